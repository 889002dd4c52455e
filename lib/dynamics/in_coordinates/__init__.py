"""Compiled training by rules that see the coordinates of W; the head stays fixed.

Open `rules` first, which says what each rule does. `training` runs the rules, and
`factored` trains keys and queries instead of W. The compiled `loop` represents the
gradient as a graded sum over samples, which `gradients` explains.
"""

from lib.dynamics.in_coordinates.training import run
