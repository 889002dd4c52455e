"""The norms that adaptive rules have of their own: quadratic ones, and l_inf in turned coordinates.

A rule whose divisors settle, D = H^{-1} G, is gradient descent in N(W)^2 = <W, H W>, of largest
margin 1 / ||V||_F, V the shortest with <H^{-1/2} A_m, V> >= 1. AdaGrad: H = diag(sqrt v), v the sum
of G^2 (Qian and Qian, 1906.03559). Adam on single samples: H = diag(s), s_j = sqrt(sum_i (sum_t
beta_it A_it)_j^2), beta the duals in that norm (Baek, Song and Yun, 2510.26303, for linear models).
Shampoo's sums: H W = L^{1/4} W R^{1/4}, SOAP: l_inf of Q_L^T W Q_R, ours.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from lib import svm
from lib.attention.token_sets import TokenSet
from papers.beyond.atlas import Ratios, features, least_margins
from papers.beyond.engine.training import Path

# rows of the atlas
OWN = "Adam, 0.999, per sample", "AdaGrad", "Shampoo, sums", "SOAP"
# of an eigenvalue, or of an entry, beside the largest: below it nothing was pulled
FLOOR = 1e-12
# largest relative change of the fixed point's s in its last step
SETTLED = 1e-9
GAP = 1e-7  # largest relative duality gap of a shortest vector


def shortest(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shortest V (k,) with rows V >= 1, rows (m, k), and its duals: V = rows^T duals.

    By Lawson and Hanson's method. RuntimeError where the relative duality gap is above GAP.
    """
    scale = np.linalg.norm(rows, axis=1).max()
    scaled = rows / scale
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    weights, _ = nnls(np.vstack([scaled.T, np.ones(len(rows))]), target, maxiter=10 * rows.size)
    V = scaled.T @ weights
    least, square = (scaled @ V).min(), V @ V
    if not least >= (1 - GAP) * square / weights.sum():
        raise RuntimeError("no shortest vector to the accuracy asked for: not separable?")
    return V / (least * scale), weights / (least * scale**2)


class _FixedPoint(NamedTuple):
    """Adam's s (d, d_z) on single samples, how far its last step moved it, and after how many."""

    s: np.ndarray
    residual: float
    steps: int


def fixed_point(A: np.ndarray, most: int = 300) -> _FixedPoint:
    """The fixed point of s -> sqrt(sum_i (sum_t beta_it A_it)^2), beta of the SVM in sum s_j W_j^2.

    A (n, T-1, d, d_z). From s = 1, by the geometric mean of both sides; it settles at SETTLED.
    """
    n, s, residual, steps = len(A), np.ones(A.shape[2:]), np.inf, 0
    while residual > SETTLED and steps < most:
        _, duals = shortest((A / np.sqrt(s)).reshape(-1, s.size))
        pulls = np.einsum("im,imk->ik", duals.reshape(n, -1), A.reshape(n, -1, s.size))
        new = np.sqrt((pulls**2).sum(0)).reshape(s.shape)
        new = np.sqrt(s * np.maximum(new, FLOOR * new.max()))
        new /= np.sqrt((new**2).mean())
        residual, s, steps = float(np.abs(new / s - 1).max()), new, steps + 1
    return _FixedPoint(s, residual, steps)


def _power(M, exponent):
    """M^exponent of a symmetric M >= 0, of its pseudo-inverse where the exponent is negative."""
    values, vectors = np.linalg.eigh(M)
    kept = values > FLOOR * values[-1]
    return (vectors[:, kept] * values[kept] ** exponent) @ vectors[:, kept].T


def _quadratic(A, W, root, inverse):
    """W's ratio in <W, H W>: root = H^{1/2} W, inverse = H^{-1/2} A."""
    V, _ = shortest(inverse.reshape(-1, W.size))
    least = np.einsum("ntde,de->nt", A, W).min()
    return least * np.linalg.norm(V) / np.linalg.norm(root)


def entrywise(A: np.ndarray, W: np.ndarray, s: np.ndarray) -> float:
    """W's share of the largest margin in N(W)^2 = sum_j s_j W_j^2; s (d, d_z), positive."""
    root = np.sqrt(np.maximum(s, FLOOR * s.max()))
    return _quadratic(A, W, root * W, A / root)


def two_sided(A: np.ndarray, W: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """W's share of the largest margin in N(W)^2 = <W, L^{1/4} W R^{1/4}>."""
    root, inverse = ([_power(M, power) for M in (left, right)] for power in (1 / 8, -1 / 8))
    return _quadratic(A, W, root[0] @ W @ root[1], inverse[0] @ A @ inverse[1])


def turned(tokens: TokenSet, selection, W, left, right) -> float:
    """W's share of the largest margin in max |Q_L^T W Q_R|; left Q_L and right Q_R orthogonal."""
    other = replace(tokens, X=tokens.X @ left, u=tokens.u @ left, z=tokens.z @ right)
    best = 1 / svm.token_svm(other, selection[None], np.inf).norm[0]
    least = least_margins(tokens, selection[None], W[None, None])[0, 0]
    return least / np.abs(left.T @ W @ right).max() / best


def _own(name, tokens, selection, W, second, left, right):
    """(ratio, residual of the fixed point) of one run; second None: the identity as the metric."""
    if name == "SOAP":
        return turned(tokens, selection, W, left, right), 0.0
    A = features(tokens, selection)
    if name == "Shampoo, sums":
        return two_sided(A, W, left, right), 0.0
    if second is None:
        return entrywise(A, W, np.ones(W.shape)), 0.0
    if name == "AdaGrad":
        return entrywise(A, W, np.sqrt(second)), 0.0
    point = fixed_point(A)
    return entrywise(A, W, point.s), point.residual


def own_ratios(tokens: TokenSet, name: str, path: Path, reached: Ratios, identity: bool = False):
    """Last ratio of every run in the own norm of a row of OWN; the fixed point's residual.

    (runs,), NaN where a run selects nothing. identity: with the identity as the metric.
    """
    value = np.full((len(path.W), 2), np.nan)
    for run in np.flatnonzero(np.isfinite(reached.last).all(1)):
        W, sides = path.W[run, -1], (path.second[run], path.left[run], path.right[run])
        sides = (None, *map(np.eye, W.shape)) if identity else sides
        value[run] = _own(name, tokens.run(run), reached.selection[run], W, *sides)
    return value.T
