"""The geometry of l_p mirror descent: potential, mirror map, Bregman divergence.

Definition 1 of paper C introduces all three. The potential is psi(W) = ||W||_{p,p}^p /
p with 1 < p < inf, and 1/p + 1/q = 1. Everything is computed entry by entry; the last
axis of an array contains the entries of W.
"""

import numpy as np

from lib.attention.coordinates import lp_norm as norm


def check_exponent(p: float) -> float:
    """Return p as a float if the mirror map is one-to-one for this p.

    Parameters
    ----------
    p : float
        Exponent of the potential.

    Returns
    -------
    float
        The same number.

    Raises
    ------
    ValueError
        Unless 1 < p < inf.

    Examples
    --------
    >>> from lib.mirror import geometry
    >>> geometry.check_exponent(3)
    3.0
    """
    if not 1 < p < np.inf:
        raise ValueError(f"p = {p}; it must be above 1 and finite")
    return float(p)


def dual_exponent(p: float) -> float:
    """Return the dual exponent q = p / (p - 1).

    Parameters
    ----------
    p : float
        Exponent, 1 < p < inf.

    Returns
    -------
    float
        The exponent q with 1/p + 1/q = 1.

    Raises
    ------
    ValueError
        Unless 1 < p < inf.

    Examples
    --------
    >>> from lib.mirror import geometry
    >>> geometry.dual_exponent(3.0)
    1.5
    """
    return check_exponent(p) / (p - 1)


def to_mirror(W: np.ndarray, p: float) -> np.ndarray:
    """Apply the mirror map nabla psi(W) = |W|^{p-1} sgn(W), entry by entry.

    Parameters
    ----------
    W : ndarray (...)
        Weights.
    p : float
        Exponent, 1 < p < inf.

    Returns
    -------
    ndarray (...)
        The mirror images of the weights. An entry of 0 stays 0.

    Raises
    ------
    ValueError
        Unless 1 < p < inf.

    Examples
    --------
    >>> from lib.mirror import geometry
    >>> geometry.to_mirror(np.array([-2.0, 0.0, 3.0]), p=3.0)
    array([-4.,  0.,  9.])
    """
    return np.sign(W) * np.abs(W) ** (check_exponent(p) - 1)


def bregman(W: np.ndarray, V: np.ndarray, p: float) -> np.ndarray:
    """Compute the Bregman divergence of the potential, over the last axis.

    D_psi(W, V) = psi(W) - psi(V) - <nabla psi(V), W - V>.

    Parameters
    ----------
    W : ndarray (..., D)
        The first argument. Its entries may be zero.
    V : ndarray (..., D)
        The second argument. Its entries may be zero. Its leading axes broadcast against
        those of W.
    p : float
        Exponent, 1 < p < inf.

    Returns
    -------
    ndarray (...)
        The divergence. It is at least zero, up to the rounding of its terms.

    Raises
    ------
    ValueError
        Unless 1 < p < inf.

    Notes
    -----
    This is Definition 1 of paper C. If W is near V, the three terms of each entry
    cancel, and the result is accurate only in absolute terms, not relative to its size.

    Examples
    --------
    For p = 2, the divergence is half the squared distance. For other p, it is not
    symmetric:

    >>> from lib.mirror import geometry
    >>> W = np.array([1.0, 2.0])
    >>> V = np.array([0.0, 1.0])
    >>> float(geometry.bregman(W, V, p=2.0))
    1.0
    >>> float(geometry.bregman(W, V, p=3.0).round(3))
    1.667
    >>> float(geometry.bregman(V, W, p=3.0).round(3))
    2.333
    """
    p = check_exponent(p)
    # <nabla psi(V), V> is the sum of |V|^p over the entries. The middle term is this
    # sum plus -psi(V), which is the sum of -|V|^p/p.
    terms = np.abs(W) ** p / p + (p - 1) / p * np.abs(V) ** p - to_mirror(V, p) * W
    return terms.sum(-1)


def directional_bregman(W: np.ndarray, V: np.ndarray, p: float) -> np.ndarray:
    """Compute the divergence between the directions of each iterate and an SVM's V.

    D_psi(V / ||V||_{p,p}, W / ||W||_{p,p}) = 1 - <nabla psi(W / ||W||), V / ||V||>.

    Parameters
    ----------
    W : ndarray (..., D)
        The iterates, for example a path (k, D).
    V : ndarray (D,) or (..., D)
        The direction that solves the SVM. Its length does not matter. Its leading axes
        broadcast against those of W: for paths (runs, k, D) of several runs, V needs
        the shape (runs, 1, D).
    p : float
        Exponent, 1 < p < inf.

    Returns
    -------
    ndarray (...)
        The divergence for every iterate. It is NaN if W = 0 or W is not finite.

    Raises
    ------
    ValueError
        If a vector of `V` is zero or not finite, if the shapes do not fit, or unless 1
        < p < inf.

    Notes
    -----
    The formula comes from the code by the authors of paper C. Its right-hand side
    equals the divergence for vectors of norm 1.

    Examples
    --------
    >>> from lib.mirror import geometry
    >>> path = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 5.0]])
    >>> geometry.directional_bregman(path, np.array([0.0, 1.0]), p=2.0).round(3)
    array([1.   , 0.293, 0.   ])
    """
    size = norm(V, p)
    if not (np.isfinite(V).all() and np.all(size > 0)):
        raise ValueError("the target V must be finite and not zero")
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = to_mirror(W / norm(W, p)[..., None], p)
    return 1 - (unit * (V / size[..., None])).sum(-1)
