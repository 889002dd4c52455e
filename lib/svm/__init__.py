"""The max-margin problems whose solutions training must reach, solved with proof.

In: a `TokenSet`, the selected tokens, a norm. Out: a `MaxMargin` with norm, duals,
margins and the measured duality gap; or `Infeasible` with its certificate. Open
`max_margin` first.
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
