"""The geometry of l_p mirror descent, paper C: lp-AttGD and lp-JointGD.

`geometry` has the potential, the mirror map and the divergence, `kernel` the compiled
loop. `dynamics.train` trains with ``dynamics.MirrorDescent(p)``.
"""

from lib.mirror.ends import gaussian_start, selected_tokens
