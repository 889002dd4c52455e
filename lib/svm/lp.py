"""Least l_p norm with all margins at least 1, 1 < p < inf, by weighted Frobenius SVMs.

min ||w||_p^p / p subject to A w >= 1 has the smooth dual max_{beta >= 0} 1^T beta -
||s||_q^q / q with s = A^T beta, 1/p + 1/q = 1, and w = |s|^{q-1} sgn(s). Newton's method
expands this around a pair (w, s), with weights D = dw/ds = (q-1) |w|^{2-p}, which leaves

    beta >= 0,   K beta >= 1 - A (w - D s),   complementary,   K = A D A^T,

the dual of a token SVM in a weighted Frobenius norm. What moves is the side whose power
is at least one, so that the expansion never overshoots into the wrong sign: beta for p
<= 2, w for p > 2. Large exponents are approached from 2.
"""

import numpy as np

from lib.attention.coordinates import lp_norm as norm
from lib.svm.frobenius import block_pivoting
from lib.svm.scaling import shortened

GOAL = 1e-13  # relative duality gap at which Newton's method rests


def least_norm(
    A: np.ndarray, p: float, w: np.ndarray, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(w, beta): the w (D,) of least ||w||_p with A w >= 1, its duals (m,), both up to scale.

    A (m, D). Starts from a feasible w and its duals, such as those of the Frobenius SVM.
    """
    unit = np.abs(w).max()  # with it entries are of order one, whatever the units of the tokens
    A, asked = shortened(A * unit)
    w, beta = w / unit, beta / unit**2 / asked
    exponent = max(p, p / (p - 1))
    stages = [*2 * 1.5 ** np.arange(1, np.log(exponent / 2) / np.log(1.5)), exponent]
    with np.errstate(all="ignore"):  # extreme exponents overflow; the caller checks the gap
        for stage in stages[:-1]:
            w, beta = _newton(A, asked, stage if p > 2 else stage / (stage - 1), w, beta, 1e-2)
        w, beta = _newton(A, asked, p, w, beta, GOAL)
    return w * unit, beta * asked


def _newton(A, asked, p, w, beta, goal):
    # A w >= asked (m,), with duals beta
    q = p / (p - 1)
    best_w, best_beta, upper, lower = w, beta, np.inf, 0.0
    smallest, patience = np.inf, 5
    for _ in range(100):
        if p > 2:  # a conjugate pair (w, s), scaled to the least margin 1
            margins = A @ w / asked
            w, margins = w / margins.min(), margins / margins.min()
            s = _power(w, p - 1)
        else:  # ... or to the best multiple of beta
            s = A.T @ beta
            factor = (asked @ beta / (np.abs(s) ** q).sum()) ** (1 / (q - 1))
            s, beta = factor * s, factor * beta
            w = _power(s, q - 1)
            margins = A @ w / asked
        primal = norm(w, p) / margins.min() if margins.min() > 0 else np.inf
        if primal < upper:
            best_w, upper = w / margins.min(), primal
        weights = _weights(w, p)
        centre = w - weights * s
        new = _weighted(A, weights, asked - A @ centre, beta)
        if new is None:
            break
        pulled = A.T @ new
        dual = asked @ new / norm(pulled, q)
        if dual > lower:
            best_beta, lower = new, dual
        gap = 1 - lower / upper
        patience = 5 if gap < smallest / 2 else patience - 1
        smallest = min(gap, smallest)
        if gap <= goal or patience == 0:
            break
        if p > 2:
            step = centre + weights * pulled - w
            a = _shorten(w, step, p, margins, A @ step / asked, np.min)  # ||w|| at least margin 1
            w, beta = w + a * step, new
        else:
            move = new - beta
            a = _shorten(s, pulled - s, q, asked * beta, asked * move, np.sum)
            beta = beta + a * move
        if a == 0:
            break
    return best_w, best_beta


def _weights(w, p):
    """D = dw/ds = (q-1) |w|^{2-p}; for p > 2 bounded near zero entries of negligible norm."""
    size = np.abs(w)
    if p > 2:
        size = np.maximum(size, size.max() * max(1e-5 ** (1 / (p - 2)), 1e-300))
    return size ** (2 - p) / (p - 1)


def _weighted(A, weights, b, beta):
    """beta >= 0 with K beta >= b, K = A diag(weights) A^T; near the last beta if K is singular."""
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
    """The first a of 1, 1/2, ... at which ||x + a dx|| / reduce(y + a dy) has not risen, or 0."""
    start = norm(x, exponent) / reduce(y)
    for a in 0.5 ** np.arange(30):
        # Flat to rounding long before its argument is exact: accepting that brings the last digits.
        if norm(x + a * dx, exponent) / reduce(y + a * dy) <= start * (1 + 1e-14):
            return a
    return 0.0


def _power(a, exponent):
    return np.sign(a) * np.abs(a) ** exponent
