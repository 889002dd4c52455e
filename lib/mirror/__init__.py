"""The geometry of l_p mirror descent, paper C: lp-AttGD and lp-JointGD.

`geometry` contains the potential, the mirror map and the divergence; `kernel` contains
the compiled loop. To train, call `dynamics.train` with ``dynamics.MirrorDescent(p)``.
"""

from lib.mirror.ends import gaussian_start, selected_tokens
