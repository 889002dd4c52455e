"""The max-margin problems whose solutions training must approach, solved with proof.

The solvers take a `TokenSet`, the selected tokens and a norm. They return a `MaxMargin`
with the norm, the duals, the margins and the measured duality gap, or raise
`Infeasible` with a certificate. Open `max_margin` first.
"""

from lib.svm.frobenius import ACCURACY, Infeasible
from lib.svm.max_margin import (
    ACCURACY_OTHER_NORMS,
    MaxMargin,
    feasible,
    head_svm,
    token_svm,
)
from lib.svm.norms import Blocks, norm_of
