"""Norms other than Frobenius: cone programs, and the l_p norms by weighted Frobenius
SVMs.

Cone programs are the nuclear, spectral, l_1 and l_inf norm and the largest over blocks.
Their minimum is unique, its W need not be: an interior-point method ends in the middle.
Clarabel is handed the dual, max_{beta >= 0} 1^T beta subject to N*(S) <= 1 and S = A^T
beta; W is the multiplier of S. From min ||W|| it stops at gaps near 1e-7 on hard
instances, from here it reaches 1e-10.

For 1 < p < inf, min ||w||_p^p / p subject to A w >= 1 has the smooth dual max_{beta >=
0} 1^T beta - ||s||_q^q / q with s = A^T beta, 1/p + 1/q = 1, w = |s|^{q-1} sgn(s).
Newton's method expands it around a pair (w, s), with weights D = (q-1) |w|^{2-p}, to

    beta >= 0,   K beta >= 1 - A (w - D s),   complementary,   K = A D A^T,

the dual of a token SVM in a weighted Frobenius norm. What moves is the side whose power
is at least one, so that no sign is overshot: beta for p <= 2, w for p > 2. Large
exponents are approached from 2.
"""

import contextlib
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np

from lib.attention.coordinates import lp_norm
from lib.svm.frobenius import BAD, block_pivoting

_ORDER: dict = {"frobenius": "fro", "spectral": 2, "nuclear": "nuc"}
TOLERANCE = 1e-10
# Dual norms. All but "frobenius", which is solved as p = 2, need a cone program.
DUAL: dict = {"frobenius": "frobenius", "spectral": "nuclear", "nuclear": "spectral"}
DUAL |= {1.0: np.inf, np.inf: 1.0}
GOAL = 1e-13  # relative duality gap at which Newton's method rests


@dataclass(frozen=True)
class Blocks:
    """max_b N(W_b), or where `summed` sum_b N(W_b); W_b one of `count` parts, N =
    `inner`.

    Its dual is the sum of N* over the parts. inner: "frobenius", "spectral" or
    "nuclear"; by_columns: parts of the columns, else the rows. ValueError for another N
    or count < 1.
    """

    inner: str
    count: int
    by_columns: bool = False
    summed: bool = False

    def __post_init__(self):
        if self.inner not in _ORDER or self.count != int(self.count) or self.count < 1:
            raise ValueError(
                f"{self}: N must be one of {', '.join(_ORDER)}, count at least 1"
            )

    def __str__(self) -> str:
        parts = "columns" if self.by_columns else "rows"
        return f"{self.inner}, {self.count} blocks of {parts}"

    @property
    def dual(self) -> "Blocks":
        """The dual norm."""
        return Blocks(
            inner=DUAL[self.inner],
            count=self.count,
            by_columns=self.by_columns,
            summed=not self.summed,
        )

    def parts(self, W) -> list:
        """The blocks of W (..., d, d_z), numpy's or cvxpy's; ValueError where they do
        not fit.
        """
        size = W.shape[-1 if self.by_columns else -2]
        if size % self.count:
            raise ValueError(
                f"{self.count} blocks do not divide W's {size} entries a side"
            )
        step = size // self.count
        slices = [slice(first, first + step) for first in range(0, size, step)]
        return [
            W[..., :, part] if self.by_columns else W[..., part, :] for part in slices
        ]


def norm_of(W: np.ndarray, norm: str | float | Blocks) -> np.ndarray:
    """N(W) of matrices (..., d, d_z), N by the names of `max_margin.token_svm`."""
    if isinstance(norm, Blocks):
        sizes = [norm_of(part, norm.inner) for part in norm.parts(W)]
        if norm.summed:
            return np.sum(sizes, 0)
        return np.max(sizes, 0)
    if norm in _ORDER:
        return np.linalg.norm(W, _ORDER[norm], axis=(-2, -1))
    flat = W.reshape(*W.shape[:-2], -1)
    if norm == np.inf:
        return np.abs(flat).max(-1)
    return lp_norm(flat, float(norm))


def _expression(S, norm):
    """The norm of a cvxpy variable (d, d_z), N as in `norm_of`."""
    import cvxpy as cp  # here: see `conic`

    if isinstance(norm, Blocks):
        terms = cp.hstack([_expression(part, norm.inner) for part in norm.parts(S)])
        return cp.sum(terms) if norm.summed else cp.max(terms)
    size: dict = {"spectral": cp.sigma_max, "nuclear": cp.normNuc, 1.0: cp.norm1}
    size |= {np.inf: cp.norm_inf, "frobenius": partial(cp.norm, p="fro")}
    return size[norm](S)


def conic(
    A: np.ndarray, shape: tuple[int, int], dual: str | float | Blocks, unit: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """(w, beta): vec W of least norm with A vec(W) >= 1, and its duals (m,), up to
    scale.

    A (m, d d_z), shape (d, d_z), `dual` the dual of the norm, `unit` the size of a
    feasible W. None where Clarabel fails.
    """
    import cvxpy as cp  # here: its import takes longer than all solvers of the other norms together

    beta = cp.Variable(len(A), nonneg=True)
    S = cp.Variable(shape)
    rows, asked = _shortened(A * unit)
    pulled = cp.vec(S, order="C") == rows.T @ beta
    if (asked == 1).all():
        total = cp.sum(beta)
    else:
        total = asked @ beta
    program = cp.Problem(cp.Maximize(total), [pulled, _expression(S, dual) <= 1])
    with warnings.catch_warnings():  # the caller judges, from w and beta
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        accuracies = dict.fromkeys(
            ("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE
        )
        with contextlib.suppress(cp.error.SolverError):
            program.solve(solver=cp.CLARABEL, max_iter=500, **accuracies)
    if beta.value is None:
        return None
    w = pulled.dual_value  # cvxpy leaves its sign open for an equation
    return np.copysign(unit, (A @ w).sum()) * w, np.maximum(beta.value, 0.0) * asked


def _shortened(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m, D), cut to the shortest where over BAD times it; what A w >= 1 then
    asks, (m,).
    """
    length = np.linalg.norm(rows, axis=1)
    asked = np.where(length > BAD * length.min(), length.min() / length, 1.0)
    return rows * asked[:, None], asked


def entrywise(
    A: np.ndarray, p: float, w: np.ndarray, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(w, beta): the w (D,) of least ||w||_p with A w >= 1, its duals (m,), both up to
    scale, from a feasible w and its duals; A (m, D).
    """
    unit = np.abs(
        w
    ).max()  # with it entries are of order one, whatever the units of the tokens
    A, asked = _shortened(A * unit)
    w = w / unit
    beta = beta / unit**2 / asked
    exponent = max(p, p / (p - 1))
    stages = [*2 * 1.5 ** np.arange(1, np.log(exponent / 2) / np.log(1.5)), exponent]
    with np.errstate(
        all="ignore"
    ):  # extreme exponents overflow; the caller checks the gap
        for stage in stages[:-1]:
            w, beta = _newton(
                A, asked, stage if p > 2 else stage / (stage - 1), w, beta, 1e-2
            )
        w, beta = _newton(A, asked, p, w, beta, GOAL)
    return w * unit, beta * asked


def _newton(A, asked, p, w, beta, goal):
    # A w >= asked (m,), with duals beta
    q = p / (p - 1)
    best_w = w
    best_beta = beta
    upper = np.inf
    lower = 0.0
    smallest = np.inf
    patience = 5
    for _ in range(100):
        if p > 2:  # a conjugate pair (w, s), scaled to the least margin 1
            margins = A @ w / asked
            w = w / margins.min()
            margins = margins / margins.min()
            s = _power(w, p - 1)
        else:  # ... or to the best multiple of beta
            s = A.T @ beta
            factor = (asked @ beta / (np.abs(s) ** q).sum()) ** (1 / (q - 1))
            s = factor * s
            beta = factor * beta
            w = _power(s, q - 1)
            margins = A @ w / asked
        if margins.min() > 0:
            primal = lp_norm(w, p) / margins.min()
        else:
            primal = np.inf
        if primal < upper:
            best_w = w / margins.min()
            upper = primal
        weights = _weights(w, p)
        centre = w - weights * s
        new = _weighted(A, weights, asked - A @ centre, beta)
        if new is None:
            break
        pulled = A.T @ new
        dual = asked @ new / lp_norm(pulled, q)
        if dual > lower:
            best_beta = new
            lower = dual
        gap = 1 - lower / upper
        patience = 5 if gap < smallest / 2 else patience - 1
        smallest = min(gap, smallest)
        if gap <= goal or patience == 0:
            break
        if p > 2:
            step = centre + weights * pulled - w
            # ||w|| at least margin 1
            a = _shorten(w, step, p, margins, A @ step / asked, np.min)
            w = w + a * step
            beta = new
        else:
            move = new - beta
            a = _shorten(s, pulled - s, q, asked * beta, asked * move, np.sum)
            beta = beta + a * move
        if a == 0:
            break
    return best_w, best_beta


def _weights(w, p):
    """D = dw/ds = (q-1) |w|^{2-p}; for p > 2 bounded near zero entries of negligible
    norm.
    """
    size = np.abs(w)
    if p > 2:
        size = np.maximum(size, size.max() * max(1e-5 ** (1 / (p - 2)), 1e-300))
    return size ** (2 - p) / (p - 1)


def _weighted(A, weights, b, beta):
    """beta >= 0 with K beta >= b, K = A diag(weights) A^T; near the last beta if K is
    singular.
    """
    K = (A * weights) @ A.T
    diagonal = np.diag(K).copy()
    for ridge in (0.0, 1e-12, 1e-9, 1e-6):
        rho = ridge * diagonal.max()
        np.fill_diagonal(K, diagonal + rho)
        new = block_pivoting(K, b + rho * beta, beta > 0)
        if new is not None and new.any():
            return new
    return None


def _shorten(x, dx, exponent, y, dy, reduce):
    """The first a of 1, 1/2, ... at which ||x + a dx|| / reduce(y + a dy) has not
    risen, or 0.
    """
    start = lp_norm(x, exponent) / reduce(y)
    for a in 0.5 ** np.arange(30):
        # Flat to rounding long before its argument is exact: accepting that brings the
        # last digits.
        if lp_norm(x + a * dx, exponent) / reduce(y + a * dy) <= start * (1 + 1e-14):
            return a
    return 0.0


def _power(a, exponent):
    return np.sign(a) * np.abs(a) ** exponent
