"""Where training must end: max-margin problems, each solution with its proof.

In: a `TokenSet`, the selected tokens, a norm. Out: a `MaxMargin` with norm, duals, margins and the
measured duality gap; or `Infeasible` with the combination of constraints that says 0 >= 1. Open
`max_margin` first; `frobenius` (by `pivoting`), `lp` and `cone` are its solvers, `blocks` a norm of
parts of W, `scaling` keeps them from overflow.
"""

from lib.svm.blocks import Blocks, norm_of
from lib.svm.frobenius import ACCURACY, Infeasible
from lib.svm.max_margin import feasible, head_svm, token_svm
from lib.svm.solution import ACCURACY_OTHER_NORMS, MaxMargin

__all__ = [
    "ACCURACY",
    "ACCURACY_OTHER_NORMS",
    "Blocks",
    "Infeasible",
    "MaxMargin",
    "feasible",
    "head_svm",
    "norm_of",
    "token_svm",
]
