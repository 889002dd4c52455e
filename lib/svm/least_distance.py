"""The least-norm W by its rows, where their Gram matrix has lost half of the digits.

A problem whose constraints of norm 1 leave a margin s for W of norm 1 has W of norm 1/s, from terms
of size 1/s^2 that cancel: from the duals alone its margins are known to about eps/s^2. Solved on
the rows and kept as it is, W has margins to about eps/s.
"""

import contextlib

import numpy as np
from scipy.optimize import nnls


def least_distance(rows: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """x >= 0 of the least ||sum x_m rows_m||^2 + (asked^T x - 1)^2; rows (m, D), asked (m,).

    The constraints rows w >= asked that x is positive on carry the w of least norm (Lawson and
    Hanson, 1974, ch. 23); where the sum of terms is zero there is none.
    """
    stacked = np.vstack([rows.T, asked])
    with contextlib.suppress(RuntimeError):  # no end within maxiter
        return nnls(stacked, np.eye(len(stacked))[-1], maxiter=30 * len(rows))[0]
    return np.zeros(len(rows))


def least_norm(rows: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(w, beta): the w (D,) of least norm with rows w >= asked, and beta >= 0 with rows^T beta = w.

    rows (m, D) of norm 1, asked (m,). Both to rounding times the condition of the rows that carry
    w; None where none were found. The caller checks what it needs.
    """
    on = least_distance(rows, asked) > 0
    if not on.any():
        return None
    w = np.zeros(rows.shape[1])
    for _ in range(3):  # each removes the rounding of the one before
        w = w + np.linalg.lstsq(rows[on], asked[on] - rows[on] @ w, rcond=None)[0]
    beta = np.zeros(len(rows))
    beta[on] = np.linalg.lstsq(rows[on].T, w, rcond=None)[0]
    return (w, beta) if (beta >= 0).all() else None
