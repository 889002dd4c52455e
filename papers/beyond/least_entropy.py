"""The dual of least relative entropy: which duals a run ends in where they are not unique.

min sum_m pi_m log(pi_m / kappa_m) over pi >= 0 with sum_m pi_m A_m = V / ||V||^2. Its own dual is
min over rho across V of G(rho) = log sum_m kappa_m e^{-<A_m, rho>}, on which the offsets of the
margins descend; with independent A_m there is one pi, and nothing to choose.
"""

import numpy as np

INDEPENDENT = 1e-10  # smallest eigenvalue of the Gram matrix of the tight A_m, each of length 1
SHARE = 1e-12  # a share of the pull that falls below this leaves for zero: no minimiser
STEPS = 200  # of Newton's method; a share that leaves for zero loses a factor e in each


def features(K: np.ndarray) -> np.ndarray:
    """F (s, rank) with F F^T = K (s, s): the rows A_m in coordinates of their span."""
    length = np.sqrt(np.diag(K))
    values, vectors = np.linalg.eigh(K / np.outer(length, length))
    kept = values >= INDEPENDENT
    return length[:, None] * vectors[:, kept] * np.sqrt(values[kept])


def least_entropy(K: np.ndarray, log_slopes: np.ndarray) -> np.ndarray:
    """pi (s,), sum 1, of the tight constraints with Gram matrix K (s, s) and log kappa (s,).

    An entry is 0 where no dual of all positive entries exists: G then has no minimiser, and that
    share of the pull goes to zero for ever. RuntimeError where Newton's method does not end.
    """
    F = features(K)
    v = np.linalg.lstsq(F, np.ones(len(F)), rcond=None)[0]  # V: F v = 1
    H = F @ np.linalg.qr(v[:, None], mode="complete")[0][:, 1:]
    y = np.zeros(H.shape[1])

    def at(y):
        powers = log_slopes - H @ y
        top = powers.max()
        weights = np.exp(powers - top)
        return top + np.log(weights.sum()), weights / weights.sum()

    value, pi = at(y)
    for _ in range(STEPS):
        if pi.min() < SHARE:
            return np.where(pi < SHARE, 0.0, pi)
        centred = H - pi @ H
        step = np.linalg.lstsq(centred.T @ (pi[:, None] * centred), H.T @ pi, rcond=None)[0]
        decrement, size = (H.T @ pi) @ step, 1.0
        if decrement < 1e-28:
            return pi
        while decrement > 1e-9 and at(y + size * step)[0] > value - size * decrement / 4:
            size /= 2
        y = y + size * step
        value, pi = at(y)
    raise RuntimeError(f"least entropy: Newton's method is not done after {STEPS} steps")
