"""The geometry of l_p mirror descent: potential, mirror map, Bregman divergence.

Source: paper C, Definition 1. The potential is psi(W) = ||W||_{p,p}^p / p, 1 < p < inf,
with 1/p + 1/q = 1. Everything is entrywise: the last axis holds the entries of W.
"""

import numpy as np

from lib.attention.coordinates import lp_norm as norm


def check_exponent(p: float) -> float:
    """p as a float; ValueError unless 1 < p < inf: the mirror map is one to one."""
    if not 1 < p < np.inf:
        raise ValueError(f"p = {p}; it must be above 1 and finite")
    return float(p)


def dual_exponent(p: float) -> float:
    """q = p / (p - 1)."""
    return check_exponent(p) / (p - 1)


def to_mirror(W: np.ndarray, p: float) -> np.ndarray:
    """The mirror map, nabla psi(W) = |W|^{p-1} sgn(W), entry by entry; 0 stays 0."""
    return np.sign(W) * np.abs(W) ** (check_exponent(p) - 1)


def bregman(W: np.ndarray, V: np.ndarray, p: float) -> np.ndarray:
    """D_psi(W, V) = psi(W) - psi(V) - <nabla psi(V), W - V>, over the last axis; zero
    entries are welcome. Source: paper C, Definition 1.
    """
    terms = np.abs(W) ** p / p + (p - 1) / p * np.abs(V) ** p - to_mirror(V, p) * W
    return terms.sum(-1)


def directional_bregman(W: np.ndarray, V: np.ndarray, p: float) -> np.ndarray:
    """D_psi(V / ||V||_{p,p}, W / ||W||_{p,p}), the SVM direction V first, the iterate W
    second.

    Source: the authors' code of paper C. Between unit vectors it is 1 - <nabla
    psi(W/||W||), V/||V||>. W (..., k, D) is a path, V (..., D). NaN where W = 0.
    ValueError for a V that is zero or not finite.
    """
    size = norm(V, p)
    if not (np.isfinite(V).all() and np.all(size > 0)):
        raise ValueError("the target V must be finite and not zero")
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = to_mirror(W / norm(W, p)[..., None], p)
    return 1 - (unit * (V / size[..., None])).sum(-1)
