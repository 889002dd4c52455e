"""The curvature of L + R around its minima, and the rates at which descent approaches them.

Also the gradient itself and its dual norm.
"""

import numpy as np

from lib.regression.losses import population_gradients, regulariser_gradients
from lib.regression.manifold import Manifold, check_norm, of
from lib.regression.problem import Regression
from lib.regression.rules import PRECONDITIONERS


def gradient(problem: Regression, Z: np.ndarray) -> np.ndarray:
    """grad(L + R) at Z (..., k + d, d) in the Euclidean inner product."""
    A, B = Z[..., : problem.k, :], Z[..., problem.k :, :]
    pairs = zip(
        population_gradients(problem, A, B), regulariser_gradients(problem.Sigma, A, B), strict=True
    )
    return np.concatenate([a + b for a, b in pairs], -2)


def dual_norm(manifold: Manifold, gradient: np.ndarray, norm: str = "left") -> np.ndarray:
    """||g||_* of a Euclidean gradient: sup of <g, Delta> over ||Delta|| = 1 in the named norm.

    `gradient` (..., k + d, d) to (...). Raises ValueError for an unknown norm.
    """
    check_norm(norm)
    k = len(manifold.M)
    W = np.concatenate([gradient[..., :k, :], manifold.inverse_root @ gradient[..., k:, :]], -2)
    return np.linalg.norm(W @ manifold.inverse_root if norm == "left_right" else W, axis=(-1, -2))


def modes(problem: Regression, preconditioner: str = "left") -> tuple[np.ndarray, np.ndarray]:
    """The modes of P grad(L + R) around a minimum: rates lambda and their directions.

    Rates (modes,) ascending, directions (modes, k + d, d). The d (d - 1) / 2 rotations, of rate
    zero, are left out. With step eta a mode of Z_t - Z_pi shrinks by 1 - eta lambda an iteration on
    the population loss, so the excess loss falls in the end like (1 - eta lambda_min)^{2t}. Raises
    ValueError for an unknown preconditioner.
    """
    if preconditioner not in PRECONDITIONERS:
        raise ValueError(f"preconditioner must be one of {PRECONDITIONERS}, not {preconditioner!r}")
    k, d = problem.k, problem.d
    Z, reach = of(problem).point(), 1e-5
    basis = np.eye((k + d) * d).reshape(-1, k + d, d)
    above, below = (gradient(problem, Z + sign * reach * basis) for sign in (1, -1))
    slope = (above - below) / (2 * reach)
    inverse = np.linalg.inv(problem.Sigma)
    if preconditioner != "none":
        slope[:, k:] = inverse @ slope[:, k:]
    if preconditioner == "left_right":
        slope = slope @ inverse
    rates, vectors = np.linalg.eig(slope.reshape(len(slope), -1).T)
    order = np.argsort(rates.real)[d * (d - 1) // 2 :]
    return rates.real[order], vectors.real.T[order].reshape(-1, k + d, d)
