"""l_p mirror descent on attention: lp-AttGD and lp-JointGD of paper C.

In: a token set, rules with an exponent p, a start. Out: the path of W and of the head,
norms and Bregman divergences from a target. Open `geometry` first; `descent` trains.
"""

from lib.mirror.descent import (
    MirrorHistory,
    MirrorRule,
    gaussian_start,
    selected_tokens,
    train,
)
