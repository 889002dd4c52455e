"""Training by rules that see the coordinates of W, compiled; the head stays fixed.

Open `rules` first, for what each rule does; `training` runs them; `factored` trains
keys and queries in place of W. The compiled `loop` sees the gradient as a graded sum
over samples.
"""

from lib.dynamics.in_coordinates.training import run
