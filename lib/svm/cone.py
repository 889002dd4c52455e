"""Least nuclear, spectral, l_1, l_inf or block-wise norm with margins at least 1: a cone program.

None of these is differentiable or strictly convex: the minimum is unique, its W need not be, and
an interior-point method ends in the middle of the optimal set. Clarabel is handed the dual,
max_{beta >= 0} 1^T beta subject to N*(S) <= 1 and S = A^T beta; W is the multiplier of S. From min
||W|| it stops at gaps near 1e-7 on hard instances, from here it reaches 1e-10. The solver is pinned
and its tolerances are tight, since the rank of a nuclear-norm solution depends on them.
"""

import contextlib
import warnings

import numpy as np

from lib.svm.blocks import Blocks
from lib.svm.scaling import shortened

TOLERANCE = 1e-10
NORMS = "nuclear", "spectral", 1.0, np.inf


def least_norm(
    A: np.ndarray, shape: tuple[int, int], norm: str | float | Blocks, unit: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """(w, beta): vec W of least `norm` with A vec(W) >= 1, and its duals (m,), up to scale.

    A (m, d d_z). None where Clarabel fails. shape (d, d_z); `unit` is the size of some feasible W:
    the program is solved in units of it.
    """
    import cvxpy as cp  # here: its import takes longer than all solvers of the other norms together

    dual_norm = {"nuclear": cp.sigma_max, "spectral": cp.normNuc, 1: cp.norm_inf, np.inf: cp.norm1}
    size = norm.dual.expression if isinstance(norm, Blocks) else dual_norm[norm]
    beta, S = cp.Variable(len(A), nonneg=True), cp.Variable(shape)
    rows, asked = shortened(A * unit)
    pulled = cp.vec(S, order="C") == rows.T @ beta
    total = cp.sum(beta) if (asked == 1).all() else asked @ beta
    program = cp.Problem(cp.Maximize(total), [pulled, size(S) <= 1])
    with warnings.catch_warnings():
        # The caller judges, from w and beta.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        accuracies = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE)
        with contextlib.suppress(cp.error.SolverError):
            program.solve(solver=cp.CLARABEL, max_iter=500, **accuracies)
    if beta.value is None:
        return None
    w = pulled.dual_value  # cvxpy leaves its sign open for an equation
    return np.copysign(unit, (A @ w).sum()) * w, np.maximum(beta.value, 0.0) * asked
