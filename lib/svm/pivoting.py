"""Block principal pivoting: guess which constraints carry W, solve, exchange what is wrong."""

import numba
import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from lib.compiled import cache

SLACK = 1e-12  # relative to b, a constraint missed by less is kept
PATIENCE = 10  # exchanges without progress
BLOCK = 48  # columns of a Cholesky factor that plain loops make; matrix products make the rest

cache.find_place()


def block_pivoting(
    K: np.ndarray, b: np.ndarray | None = None, support: np.ndarray | None = None
) -> np.ndarray | None:
    """The beta >= 0 with K beta >= b and beta^T (K beta - b) = 0.

    K (m, m) symmetric positive definite, b (m,), default 1. Judice and Pires (1994): guess the
    `support` (default: the half whose sum satisfies least), solve on it, exchange every index on
    the wrong side at once; where that stops making progress, non-negative least squares. None
    where K is singular.
    """
    b = np.ones(len(K)) if b is None else b
    beta, ended = _exchanged(K, b, np.empty(0, bool) if support is None else support)
    if ended:
        return beta if beta.size else None
    try:
        factor = cholesky(K, lower=True)
    except np.linalg.LinAlgError:
        return None
    # beta^T K beta / 2 - b^T beta = ||L^T beta - L^-1 b||^2 / 2 + const.: one exchange a time,
    # never a cycle.
    return nnls(factor.T, solve_triangular(factor, b, lower=True), maxiter=10 * len(K))[0]


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _dot(x, y, count):
    total = 0.0
    for k in range(count):
        total += x[k] * y[k]
    return total


@numba.njit(cache=True)
def _positive(L):
    """Turn K (m, m) into the L of K = L L^T, in its lower part; False where it has none."""
    m = len(L)
    for first in range(0, m, BLOCK):
        last = min(first + BLOCK, m)
        if first:
            rows = np.ascontiguousarray(L[first:, :first])
            L[first:, first:last] -= rows @ np.ascontiguousarray(rows[: last - first].T)
        for i in range(first, m):
            row = L[i, first:last]
            for j in range(min(i + 1, last) - first):
                row[j] -= _dot(row, L[first + j, first:last], j)
                if first + j < i:
                    row[j] /= L[first + j, first + j]
            if i < last:
                if not L[i, i] > 0:
                    return False
                L[i, i] = np.sqrt(L[i, i])
    return True


@numba.njit(cache=True)
def _exchanged(K, b, support):
    """(beta, ended): beta is empty where K is singular; not `ended` where progress stopped."""
    if not support.size:
        total = K.sum(1)
        support = total <= np.median(total)
    tolerance = SLACK * np.abs(b).max()
    fewest, patience = len(b) + 1, PATIENCE
    while patience >= 0:
        inside = np.flatnonzero(support)
        L = K[inside][:, inside]
        if not _positive(L):
            return np.empty(0), True
        x = b[inside]
        for i in range(len(x)):
            x[i] = (x[i] - _dot(L[i], x, i)) / L[i, i]
        for i in range(len(x) - 1, -1, -1):
            x[i] /= L[i, i]
            for j in range(i):
                x[j] -= L[i, j] * x[i]
        beta = np.zeros(len(b))
        beta[inside] = x
        slack = K @ beta - b
        wrong = np.where(support, beta < 0, slack < -tolerance)
        count = np.count_nonzero(wrong)
        if count == 0:
            return beta, True
        if count < fewest:
            fewest, patience = count, PATIENCE
        else:
            patience -= 1
        support = support ^ wrong
    return np.empty(0), False
