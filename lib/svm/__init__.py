"""Where training must end: max-margin problems in any norm, each solution with its certificate.

In: a token set and the selected tokens. Out: the solution W, its duals, the duality gap, or
`Infeasible` with the combination of constraints that proves it.
Open `max_margin` first; `frobenius`, `lp` and `cone` are its solvers.
"""

from lib.svm.max_margin import ACCURACY, Infeasible, MaxMargin, feasible, head_svm, token_svm

__all__ = ["ACCURACY", "Infeasible", "MaxMargin", "feasible", "head_svm", "token_svm"]
