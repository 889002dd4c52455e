"""Max-margin problems, where training must end, each solution with its proof.

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
