"""The norms that are cone programs: nuclear, spectral, l_1, l_inf, and the largest over blocks.

None of these is strictly convex: the minimum is unique, its W need not be, and an
interior-point method ends in the middle of the optimal set. Clarabel is handed the dual,
max_{beta >= 0} 1^T beta subject to N*(S) <= 1 and S = A^T beta; W is the multiplier of S.
From min ||W|| it stops at gaps near 1e-7 on hard instances, from here it reaches 1e-10.
"""

import contextlib
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np

from lib.attention.coordinates import lp_norm
from lib.svm.scaling import shortened

DUAL = {"frobenius": "frobenius", "spectral": "nuclear", "nuclear": "spectral"}
_ORDER: dict = {"frobenius": "fro", "spectral": 2, "nuclear": "nuc"}
TOLERANCE = 1e-10
CONIC = "nuclear", "spectral", 1.0, np.inf


@dataclass(frozen=True)
class Blocks:
    """max_b N(W_b), or where `summed` sum_b N(W_b); W_b one of `count` parts, N = `inner`.

    Head-wise steepest descent is steepest descent in it; its dual is the sum of N* over
    the parts. inner: "frobenius", "spectral" or "nuclear"; by_columns: parts of the
    columns, else the rows. Raises ValueError for another N or a count below 1.
    """

    inner: str
    count: int
    by_columns: bool = False
    summed: bool = False

    def __post_init__(self):
        if self.inner not in DUAL or self.count != int(self.count) or self.count < 1:
            raise ValueError(f"{self}: N must be one of {', '.join(DUAL)}, count at least 1")

    def __str__(self):
        parts = "columns" if self.by_columns else "rows"
        return f"{self.inner}, {self.count} blocks of {parts}"

    @property
    def dual(self) -> "Blocks":
        """The dual norm."""
        return Blocks(DUAL[self.inner], self.count, self.by_columns, not self.summed)

    def parts(self, W) -> list:
        """The blocks of W (..., d, d_z), numpy's or cvxpy's; ValueError where they do not fit."""
        size = W.shape[-1 if self.by_columns else -2]
        if size % self.count:
            raise ValueError(f"{self.count} blocks do not divide W's {size} entries a side")
        step = size // self.count
        slices = [slice(first, first + step) for first in range(0, size, step)]
        return [W[..., :, part] if self.by_columns else W[..., part, :] for part in slices]

    def of(self, W: np.ndarray) -> np.ndarray:
        """The norm of matrices (..., d, d_z)."""
        sizes = [norm_of(part, self.inner) for part in self.parts(W)]
        return np.sum(sizes, 0) if self.summed else np.max(sizes, 0)

    def expression(self, S):
        """The norm of a cvxpy variable (d, d_z)."""
        import cvxpy as cp  # here: see `least_norm`

        inner = {"spectral": cp.sigma_max, "nuclear": cp.normNuc}
        inner["frobenius"] = partial(cp.norm, p="fro")
        terms = [inner[self.inner](part) for part in self.parts(S)]
        return cp.sum(cp.hstack(terms)) if self.summed else cp.max(cp.hstack(terms))


def norm_of(W: np.ndarray, norm: str | float | Blocks) -> np.ndarray:
    """N(W) of matrices (..., d, d_z), N by the names of `max_margin.token_svm`."""
    if isinstance(norm, Blocks):
        return norm.of(W)
    if norm in _ORDER:
        return np.linalg.norm(W, _ORDER[norm], axis=(-2, -1))
    flat = W.reshape(*W.shape[:-2], -1)
    return np.abs(flat).max(-1) if norm == np.inf else lp_norm(flat, float(norm))


def least_norm(
    A: np.ndarray, shape: tuple[int, int], norm: str | float | Blocks, unit: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """(w, beta): vec W of least `norm` with A vec(W) >= 1, and its duals (m,), up to scale.

    A (m, d d_z). None where Clarabel fails. shape (d, d_z); `unit` is the size of some
    feasible W: the program is solved in units of it.
    """
    import cvxpy as cp  # here: its import takes longer than all solvers of the other norms together

    dual_norm = {"nuclear": cp.sigma_max, "spectral": cp.normNuc, 1: cp.norm_inf, np.inf: cp.norm1}
    size = norm.dual.expression if isinstance(norm, Blocks) else dual_norm[norm]
    beta, S = cp.Variable(len(A), nonneg=True), cp.Variable(shape)
    rows, asked = shortened(A * unit)
    pulled = cp.vec(S, order="C") == rows.T @ beta
    total = cp.sum(beta) if (asked == 1).all() else asked @ beta
    program = cp.Problem(cp.Maximize(total), [pulled, size(S) <= 1])
    with warnings.catch_warnings():  # the caller judges, from w and beta
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        accuracies = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE)
        with contextlib.suppress(cp.error.SolverError):
            program.solve(solver=cp.CLARABEL, max_iter=500, **accuracies)
    if beta.value is None:
        return None
    w = pulled.dual_value  # cvxpy leaves its sign open for an equation
    return np.copysign(unit, (A @ w).sum()) * w, np.maximum(beta.value, 0.0) * asked
