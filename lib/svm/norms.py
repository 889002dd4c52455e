"""Norms other than Frobenius: cone programs, and l_p norms by weighted Frobenius SVMs.

The nuclear, spectral, l_1 and l_inf norms and the norms by blocks need cone programs.
The minimal norm is unique, but several W may reach it. An interior-point method then
ends in the middle of the set of these W. We give Clarabel the dual problem, max_{beta
>= 0} 1^T beta subject to N*(S) <= 1 and S = A^T beta; W is the multiplier of the
equation for S. On hard instances, Clarabel stops at relative gaps near 1e-7 if it is
given min ||W||, but reaches 1e-10 if it is given the dual problem.

For 1 < p < inf, min ||w||_p^p / p subject to A w >= 1 has the smooth dual max_{beta >=
0} 1^T beta - ||s||_q^q / q with s = A^T beta, 1/p + 1/q = 1, w = |s|^{q-1} sgn(s).
Newton's method expands it around a pair (w, s), with weights D = (q-1) |w|^{2-p}, to

    beta >= 0,   K beta >= 1 - A (w - D s),   complementary,   K = A D A^T,

which is the dual of a token SVM in a weighted Frobenius norm. For p <= 2 the step is
taken in beta, which determines s, and w follows from s. For p > 2 the step is taken in
w, and s follows from w. Either way, the second vector of the pair is a power of the
first one with an exponent of at least one, so that no sign is overshot. A large
exponent is approached from 2 in stages.
"""

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from lib.attention.coordinates import lp_norm
from lib.attention.token_sets import as_array
from lib.seeds import whole_number
from lib.svm.frobenius import BAD, block_pivoting

_ORDER: dict = {"frobenius": "fro", "spectral": 2, "nuclear": "nuc"}
TOLERANCE = 1e-10
# The dual of each norm. All of these norms need a cone program, except "frobenius",
# which is solved as p = 2.
DUAL: dict = {"frobenius": "frobenius", "spectral": "nuclear", "nuclear": "spectral"}
DUAL |= {1.0: np.inf, np.inf: 1.0}
GOAL = 1e-13  # relative duality gap at which Newton's method stops


@dataclass(frozen=True)
class Blocks:
    """Norm of a matrix by blocks: the largest norm of a block, or the sum of the norms.

    ||W|| = max_b N(W_b), or sum_b N(W_b) if `summed`. Here W_b are the `count` parts of
    W, which have equal sizes, and N = `inner`. The dual norm is the sum of N*(W_b) over
    the parts or, if `summed`, the maximum of N*(W_b).

    Parameters
    ----------
    inner : {"frobenius", "spectral", "nuclear"}
        The norm N of a part.
    count : int
        The number of parts, at least 1.
    by_columns : bool
        Whether each part is a set of columns instead of a set of rows.
    summed : bool
        Whether to add the norms of the parts instead of taking their maximum.

    Raises
    ------
    ValueError
        If `inner` is none of these norms, or if `count` is not a whole number of at
        least 1.

    Examples
    --------
    >>> from lib import svm
    >>> norm = svm.Blocks("frobenius", count=2)
    >>> W = np.array([[3.0, 4.0], [6.0, 8.0]])
    >>> float(svm.norm_of(W, norm)), float(svm.norm_of(W, norm.dual))
    (10.0, 15.0)

    The inner product of two matrices is at most the norm of one times the dual norm of
    the other.

    >>> V = np.array([[1.0, 0.0], [0.0, -1.0]])
    >>> bool((V * W).sum() <= svm.norm_of(V, norm) * svm.norm_of(W, norm.dual))
    True
    """

    inner: str
    count: int
    by_columns: bool = False
    summed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.inner, str) or self.inner not in _ORDER:
            raise ValueError(
                f"inner = {self.inner!r}; N must be one of {', '.join(_ORDER)}"
            )
        # 2.0 cannot be a slice's end.
        object.__setattr__(self, "count", whole_number("count", self.count, 1))

    def __str__(self) -> str:
        parts = "columns" if self.by_columns else "rows"
        return f"{self.inner}, {self.count} blocks of {parts}"

    @property
    def dual(self) -> "Blocks":
        """The dual norm.

        Returns
        -------
        Blocks
            A norm by the same blocks, whose `inner` is the dual N* of N. It sums over
            the parts if the original norm takes the maximum, and takes the maximum if
            the original norm sums.
        """
        return Blocks(
            inner=DUAL[self.inner],
            count=self.count,
            by_columns=self.by_columns,
            summed=not self.summed,
        )

    def parts(self, W: Any) -> list:
        """Cut W into its blocks.

        Parameters
        ----------
        W : ndarray or cvxpy.Expression (..., d, d_z)
            The matrix, or an expression of cvxpy.

        Returns
        -------
        list
            The blocks (..., d/count, d_z), or (..., d, d_z/count) if `by_columns`.

        Raises
        ------
        ValueError
            If `count` does not divide the number of rows (or of columns, if
            `by_columns`).
        """
        axis = -1 if self.by_columns else -2
        size = W.shape[axis]
        if size % self.count:
            raise ValueError(
                f"{self.count} blocks do not divide W's {size} entries a side"
            )
        step = size // self.count
        slices = [slice(first, first + step) for first in range(0, size, step)]
        if self.by_columns:
            return [W[..., :, part] for part in slices]
        return [W[..., part, :] for part in slices]


def norm_of(W: np.ndarray, norm: str | float | Blocks) -> np.ndarray:
    """Compute a norm of matrices. The norm is specified as in `token_svm`.

    Parameters
    ----------
    W : ndarray (..., d, d_z)
        The matrices, with finite entries.
    norm : {"frobenius", "nuclear", "spectral"}, float or Blocks
        The norm. A number p with 1 <= p <= inf stands for the entrywise norm
        ||W||_{p,p}.

    Returns
    -------
    ndarray (...)
        The norms.

    Raises
    ------
    ValueError
        If `norm` is a Blocks whose parts do not fit W; if it is neither the name of a
        norm nor an exponent of at least 1; if W has fewer than two axes, or no rows or
        columns.

    Examples
    --------
    >>> from lib import svm
    >>> W = np.diag([3.0, -4.0])
    >>> for norm in "frobenius", "nuclear", "spectral", 1, np.inf:
    ...     print(norm, svm.norm_of(W, norm).round(3))
    frobenius 5.0
    nuclear 7.0
    spectral 4.0
    1 7.0
    inf 4.0
    """
    W = as_array("W", W)
    if W.ndim < 2 or 0 in W.shape[-2:]:
        raise ValueError(
            f"W has shape {W.shape}; it needs (..., d, d_z), with d and d_z at least 1"
        )
    if isinstance(norm, Blocks):
        sizes = [norm_of(part, norm.inner) for part in norm.parts(W)]
        if norm.summed:
            return np.sum(sizes, 0)
        return np.max(sizes, 0)
    norm = known(norm, "norm", ("frobenius", "nuclear", "spectral"))
    if norm in _ORDER:
        return np.linalg.norm(W, _ORDER[norm], axis=(-2, -1))
    flat = W.reshape(*W.shape[:-2], W.shape[-2] * W.shape[-1])
    if norm == np.inf:
        return np.abs(flat).max(-1)
    return lp_norm(flat, norm)


def known(norm: Any, name: str, words: tuple[str, ...]) -> Any:
    """Check the name of a norm.

    Parameters
    ----------
    norm : Any
        The norm.
    name : str
        The name of the argument, for the error message.
    words : tuple of str
        The words that are allowed besides exponents.

    Returns
    -------
    str or float
        The norm itself if it is one of the words; otherwise its exponent p >= 1 as a
        float.

    Raises
    ------
    ValueError
        If `norm` is anything else, including NaN and booleans.
    """
    if isinstance(norm, str) and norm in words:
        return norm
    if isinstance(norm, bool) or not isinstance(norm, Real) or not norm >= 1:
        listed = "".join(f"{word!r}, " for word in words)
        raise ValueError(
            f"{name} = {norm!r}; it must be {listed}an exponent p >= 1, or the number "
            "numpy.inf"
        )
    return float(norm)


def _expression(S: Any, norm: str | float | Blocks):
    """Return the norm of a cvxpy variable (d, d_z) as a scalar cvxpy expression.

    The norm is a key of `DUAL` or a Blocks, with the same meaning as in `norm_of`.
    """
    import cvxpy as cp  # imported here for the reason that `conic` gives

    if isinstance(norm, Blocks):
        terms = cp.hstack([_expression(part, norm.inner) for part in norm.parts(S)])
        if norm.summed:
            return cp.sum(terms)
        return cp.max(terms)
    size: dict = {"spectral": cp.sigma_max, "nuclear": cp.normNuc, 1.0: cp.norm1}
    size |= {np.inf: cp.norm_inf, "frobenius": partial(cp.norm, p="fro")}
    return size[norm](S)


def conic(
    A: np.ndarray, shape: tuple[int, int], dual: str | float | Blocks, unit: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find (w, beta): vec W of least norm with A vec(W) >= 1, and its duals (m,).

    Here w has the shape (d d_z,) and beta >= 0. Each of the two is returned only up to
    a positive factor of its own. A is (m, d d_z), shape is (d, d_z), `dual` is the dual
    of the norm, and `unit` is the Frobenius norm of a feasible W. The result is None if
    Clarabel fails. Otherwise the caller has to compute the accuracy.
    """
    # Imported here, because importing cvxpy takes longer than solving in the other
    # norms.
    import cvxpy as cp

    beta = cp.Variable(len(A), nonneg=True)
    S = cp.Variable(shape)
    rows, asked = _shortened(A * unit)
    pulled = cp.vec(S, order="C") == rows.T @ beta
    if (asked == 1).all():
        total = cp.sum(beta)
    else:
        total = asked @ beta
    program = cp.Problem(cp.Maximize(total), [pulled, _expression(S, dual) <= 1])
    with warnings.catch_warnings():  # the caller computes the accuracy from w and beta
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        accuracies = dict.fromkeys(
            ("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE
        )
        with contextlib.suppress(cp.error.SolverError):
            program.solve(solver=cp.CLARABEL, max_iter=500, **accuracies)
    if beta.value is None:
        return None
    w = pulled.dual_value  # cvxpy does not fix the sign of an equation's multiplier
    return np.copysign(unit, (A @ w).sum()) * w, np.maximum(beta.value, 0.0) * asked


def _shortened(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shorten each row longer than BAD times the shortest row to the shortest's length.

    The rows have the shape (m, D), and none of them is zero. Returns the shortened rows
    and the factors (m,) by which they were multiplied. These factors also replace the 1
    on the right-hand side of A w >= 1.
    """
    length = np.linalg.norm(rows, axis=1)
    asked = np.where(length > BAD * length.min(), length.min() / length, 1.0)
    return rows * asked[:, None], asked


def entrywise(
    A: np.ndarray, p: float, w: np.ndarray, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find (w, beta): the w (D,) of least ||w||_p with A w >= 1, and its duals (m,).

    Here 1 < p < inf and p is not 2. Each of w and beta is returned only up to a
    positive factor of its own. The search starts from the given w (D,), which must be
    feasible, and the given beta (m,), its duals in the Frobenius norm. A is (m, D). The
    caller has to compute the accuracy.
    """
    # Measured in this unit, the entries of w are of order one, whatever the units of
    # the tokens.
    unit = np.abs(w).max()
    A, asked = _shortened(A * unit)
    w = w / unit
    beta = beta / unit**2 / asked
    exponent = max(p, p / (p - 1))
    stages = [*2 * 1.5 ** np.arange(1, np.log(exponent / 2) / np.log(1.5)), exponent]
    with np.errstate(
        all="ignore"
    ):  # extreme exponents overflow; the caller checks the gap
        for stage in stages[:-1]:
            # Each stage is an exponent above 2. For p < 2 it is the exponent of the
            # dual norm.
            if p > 2:
                exponent_now = stage
            else:
                exponent_now = stage / (stage - 1)
            w, beta = _newton(A, asked, exponent_now, w, beta, 1e-2)
        w, beta = _newton(A, asked, p, w, beta, GOAL)
    return w * unit, beta * asked


def _newton(
    A: np.ndarray,
    asked: np.ndarray,
    p: float,
    w: np.ndarray,
    beta: np.ndarray,
    goal: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Find (w, beta): w (D,) of least ||w||_p with A w >= asked, and its duals (m,).

    This is Newton's method of the module's docstring, started from the given w (D,) and
    beta (m,). Here A is (m, D) and asked (m,). Each iteration yields two bounds on the
    least norm. The upper bound is ||w||_p after w is scaled such that the smallest of
    its margins A w / asked is 1. The lower bound is asked^T beta / ||A^T beta||_q, for
    which the scale of beta does not matter. The method stops once the relative gap 1 -
    lower / upper is at most `goal`. It also stops after five iterations in a row that
    did not halve the smallest gap so far, if no step length keeps the quotient of
    `_shorten` from rising, and after 100 iterations.

    Returns the w with the smallest upper bound, scaled such that its smallest margin is
    1, and the beta with the largest lower bound, up to a positive factor. The two may
    come from different iterations. If no iteration gave an upper bound, w is the given
    one; if none gave a lower bound, beta is the given one.
    """
    q = p / (p - 1)
    best_w = w
    best_beta = beta
    upper = np.inf
    lower = 0.0
    smallest = np.inf
    patience = 5
    for _ in range(100):
        # Make (w, s) a conjugate pair. For p > 2, w is given; scale it such that its
        # smallest margin is 1. For p <= 2, beta is given; scale it to its best
        # multiple.
        if p > 2:
            margins = A @ w / asked
            w = w / margins.min()
            margins = margins / margins.min()
            s = _power(w, p - 1)
        else:
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
        if gap < smallest / 2:
            patience = 5
        else:
            patience -= 1
        smallest = min(gap, smallest)
        if gap <= goal or patience == 0:
            break
        if p > 2:
            step = centre + weights * pulled - w
            # The quotient that must not rise is ||w|| after scaling w to smallest
            # margin 1.
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


def _weights(w: np.ndarray, p: float) -> np.ndarray:
    """Compute the weights D = dw/ds = (q-1) |w|^{2-p} (D,) of a conjugate pair (w, s).

    For p > 2, the weight of a zero entry of w would be infinite. So we first raise to a
    small size all entries that contribute next to nothing to the norm.
    """
    size = np.abs(w)
    if p > 2:
        size = np.maximum(size, size.max() * max(1e-5 ** (1 / (p - 2)), 1e-300))
    return size ** (2 - p) / (p - 1)


def _weighted(
    A: np.ndarray, weights: np.ndarray, b: np.ndarray, beta: np.ndarray
) -> np.ndarray | None:
    """Solve the dual of a token SVM with K = A diag(weights) A^T.

    The result beta >= 0 (m,) has K beta >= b and beta^T (K beta - b) = 0. Here A is (m,
    D), weights is (D,), and b and the given beta are (m,). The support of the given
    beta is tried first. If K is singular, a small ridge keeps the result near the given
    beta. The result is None if every ridge gives a beta of zero or none at all.
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


def _shorten(
    x: np.ndarray,
    dx: np.ndarray,
    exponent: float,
    y: np.ndarray,
    dy: np.ndarray,
    reduce: Callable,
) -> float:
    """Return the first a of 1, 1/2, 1/4, ... at which a quotient has not risen.

    The quotient is ||x + a dx|| / reduce(y + a dy), in the l_exponent norm; `reduce` is
    np.min or np.sum. The result is 0 if it has risen at all 30 values of a.
    """
    start = lp_norm(x, exponent) / reduce(y)
    for a in 0.5 ** np.arange(30):
        # Near the minimum, the quotient is constant up to rounding while its argument
        # has not yet reached full precision. Accepting equal values gains these last
        # digits.
        if lp_norm(x + a * dx, exponent) / reduce(y + a * dy) <= start * (1 + 1e-14):
            return a
    return 0.0


def _power(a: np.ndarray, exponent: float) -> np.ndarray:
    return np.sign(a) * np.abs(a) ** exponent
