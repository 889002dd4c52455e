"""Deterministic inequalities of paper C's appendix, each as its sides, smaller <= larger.

The last axis holds the entries of a matrix. Constants that the text at hand lost are ours.
"""

from lib.mirror.geometry import bregman, dual_exponent, norm


def lemma4(W, later, gradient, eta, p):
    """||W+||^{p-1} - ||W||^{p-1} <= eta ||grad L||_{q,q}, W+ = `later` one step after W."""
    return _growth(W, later, p), eta * norm(gradient, dual_exponent(p))


def _growth(W, later, p):
    """||W+||^{p-1} - ||W||^{p-1}: what one step adds to the norm of the mirror image."""
    return norm(later, p) ** (p - 1) - norm(W, p) ** (p - 1)


def lemma12(W, p):
    """D^{1/p-1/2} ||W||_F <= ||W||_{p,p} <= ||W||_F, D entries, p >= 2; two pairs.

    The ends are switched for p < 2.
    """
    size, ends = norm(W, p), sorted((1.0, W.shape[-1] ** (1 / p - 0.5)))
    frobenius = norm(W, 2)
    return [(ends[0] * frobenius, size), (size, ends[1] * frobenius)]


def lemma13(first, second, p):
    """||W_1 - W_2||_{p,p}^p / (p 2^p) <= D_psi(W_1, W_2) where ||W_1||_{p,p} = ||W_2||_{p,p} = 1.

    For p >= 2; the smaller side is (p-1)/2 ||W_1 - W_2||_F^2 for p < 2 (our constant).
    """
    apart = first - second
    bound = norm(apart, p) ** p / (p * 2**p) if p >= 2 else (p - 1) / 2 * norm(apart, 2) ** 2
    return bound, bregman(first, second, p)


def lemma14(x, y, p):
    """x >= y >= 0: y (x^{p-1} - y^{p-1}) <= (p-1)/p (x^p - y^p) <= x (x^{p-1} - y^{p-1}); pairs."""
    middle, rise = (p - 1) / p * (x**p - y**p), x ** (p - 1) - y ** (p - 1)
    return [(y * rise, middle), (middle, x * rise)]


def lemma15(x, y, p):
    """(p-1) y^{p-2} (x-y) <= x^{p-1} - y^{p-1} <= (p-1) x^{p-2} (x-y), x >= y > 0, p >= 2; pairs.

    Reversed for p < 2.
    """
    rise = x ** (p - 1) - y ** (p - 1)
    at_y, at_x = ((p - 1) * end ** (p - 2) * (x - y) for end in (y, x))
    return [(at_y, rise), (rise, at_x)] if p >= 2 else [(at_x, rise), (rise, at_y)]


def lemma22(W, later, gradient, eta, p):
    """eta <-grad L, W> / ||W|| <= ||W+||^{p-1} - ||W||^{p-1}."""
    return -eta * (gradient * W).sum(-1) / norm(W, p), _growth(W, later, p)


def lemma24(W, later, gradient, losses, eta, p):
    """(p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= -eta <grad L, W>; Lemma 23 with V = 0."""
    grown = (p - 1) / p * (norm(later, p) ** p - norm(W, p) ** p) + eta * (losses[1] - losses[0])
    return grown, -eta * (gradient * W).sum(-1)
