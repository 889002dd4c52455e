"""The global minima of paper B's regularised population loss, and what surrounds them.

With M Sigma^{1/2} = U D V^T the minima form the manifold {(U D^{1/2} R Sigma^{-1/2};
Sigma^{-1/2} V D^{1/2} R Sigma^{-1/2}) : R orthogonal}. Two norms measure distance, both
through the extended covariance Sbar = diag(I_k, Sigma):

* "left": <Z, Z'> = tr(Z^T Sbar Z') (paper B, Theorem 1.3);
* "left_right": <Z, Z'> = tr(Z^T Sbar Z' Sigma) (ours: the factorisation of Tu et al. 2016).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import leastsq, root

from lib.regression.descent import PRECONDITIONERS
from lib.regression.problem import (
    Regression,
    covariance_root,
    population_gradients,
    regulariser_gradients,
)
from lib.representation import Shapes

NORMS = ("left", "left_right")


class _Constants(NamedTuple):
    """<grad, Delta> >= convexity ||Delta||^2, ||grad|| <= smoothness ||Delta||, Delta =
    Z - Z_pi, within `radius` of the manifold, in their norm and with the gradient in
    its inner product.
    """

    radius: float
    convexity: float
    smoothness: float


@dataclass(frozen=True, repr=False)
class Manifold(Shapes):
    """The minima for a covariance Sigma (d, d) and a map M (k, d), true or estimated.

    Z = (A; B) is one (k + d, d) matrix here. ValueError for a singular Sigma, or k < d.
    """

    Sigma: np.ndarray
    M: np.ndarray

    def __post_init__(self):
        if self.M.shape[0] < self.M.shape[1]:
            raise ValueError(f"M has shape {self.M.shape}; it has too few rows")
        covariance_root(self.Sigma, "Sigma")

    @cached_property
    def _root(self) -> np.ndarray:
        return covariance_root(self.Sigma, "Sigma")

    @cached_property
    def inverse_root(self) -> np.ndarray:
        """Sigma^{-1/2}, (d, d)."""
        return np.linalg.inv(self._root)

    @cached_property
    def _svd(self):
        U, D, Vt = np.linalg.svd(self.M @ self._root, full_matrices=False)
        return U, D, Vt.T

    @cached_property
    def _K(self):
        """K = (U D^{1/2}; V D^{1/2}): minima are K R in coordinates Sbar^{1/2} Z
        Sigma^{1/2}.
        """
        U, D, V = self._svd
        return np.vstack([U, V]) * np.sqrt(D)

    @property
    def singular_values(self) -> np.ndarray:
        """sigma_1 >= ... >= sigma_d of M Sigma^{1/2}, (d,)."""
        return self._svd[1]

    def point(self, R: np.ndarray | None = None) -> np.ndarray:
        """The minimum with rotation R (d, d) orthogonal, identity if none is given; (k
        + d, d).
        """
        return self.from_coordinates(self._K if R is None else self._K @ R)

    def from_coordinates(self, Y: np.ndarray) -> np.ndarray:
        """Z = Sbar^{-1/2} Y Sigma^{-1/2} of Y (..., k + d, d), the same shape."""
        return self._sides(Y, self.inverse_root) @ self.inverse_root

    def _sides(self, Z, root):
        """diag(I, root) Z."""
        k = len(self.M)
        return np.concatenate([Z[..., :k, :], root @ Z[..., k:, :]], -2)

    def weighted(self, Z: np.ndarray, norm: str) -> np.ndarray:
        """Z (..., k + d, d) as Sbar^{1/2} Z for "left", Sbar^{1/2} Z Sigma^{1/2} for
        "left_right", whose Frobenius norm is ||Z||; else ValueError.
        """
        _check_norm(norm)
        W = self._sides(Z, self._root)
        return W @ self._root if norm == "left_right" else W

    def norm(self, Z: np.ndarray, norm: str = "left") -> np.ndarray:
        """||Z|| in the norm of that name, shape (...)."""
        return np.linalg.norm(self.weighted(Z, norm), axis=(-1, -2))

    def project(self, Z: np.ndarray, norm: str = "left") -> np.ndarray:
        """Z_pi, the minimum nearest to Z (k + d, d) in that norm.

        "left_right": orthogonal Procrustes, R = u v^T from the SVD of K^T Sbar^{1/2} Z
        Sigma^{1/2}. "left": no closed form; from there the stationary point of Lemma 1
        is found, the nearest one when Z is near the manifold.
        """
        _check_norm(norm)
        u, _, vt = np.linalg.svd(self._K.T @ self.weighted(Z, "left_right"))
        R = u @ vt
        if norm == "left":
            R = self._stationary(self.weighted(Z, "left"), R)
        return self.point(R)

    def _stationary(self, W, R):
        """The rotation near R at which ||W - K R Sigma^{-1/2}||^2 is stationary."""
        i, j = np.triu_indices(len(R), 1)
        if not len(i):
            return R

        def turned(entries):  # by the Cayley transform of a skew matrix
            skew = np.zeros_like(R)
            skew[i, j], skew[j, i] = entries, -entries
            return R @ np.linalg.solve(np.eye(len(R)) - skew, np.eye(len(R)) + skew)

        def rest(entries):
            return self._K @ turned(entries) @ self.inverse_root - W

        def slope(entries):
            pulled = (self._K @ turned(entries)).T @ rest(entries) @ self.inverse_root
            return (pulled - pulled.T)[i, j]

        near, _ = leastsq(lambda entries: rest(entries).ravel(), np.zeros(len(i)))
        polished = root(slope, near, tol=1e-15).x  # the last digits
        return turned(
            min(near, polished, key=lambda entries: np.abs(slope(entries)).max())
        )

    def distance(self, Z: np.ndarray, norm: str = "left") -> float:
        """||Z - Z_pi|| of one Z (k + d, d) in that norm. Raises ValueError for an unknown norm."""
        return float(self.norm(Z - self.project(Z, norm), norm))

    def constants(self, norm: str = "left") -> _Constants:
        """One-point convexity and smoothness of L + R near the manifold, by their
        formulas.

        Source: paper B, Eqs. 3 and 4; the constants are ours. With sigma the singular
        values of M Sigma^{1/2} and lambda the eigenvalues of Sigma:

        * "left_right": radius^2 = 4/5 sigma_d, convexity sigma_d/2, smoothness 5.3 sigma_1;
        * "left": radius^2 = 4/9 sigma_d lambda_min / lambda_max^2, convexity sigma_d
          lambda_min / 2, smoothness 4.64 sigma_1 lambda_max.
        """
        _check_norm(norm)
        largest = self.singular_values[0]
        smallest = self.singular_values[-1]
        if norm == "left_right":
            return _Constants(
                radius=np.sqrt(0.8 * smallest),
                convexity=smallest / 2,
                smoothness=5.3 * largest,
            )
        low, high = np.linalg.eigvalsh(self.Sigma)[[0, -1]]
        radius = np.sqrt(4 * smallest * low / 9) / high
        return _Constants(
            radius=radius,
            convexity=smallest * low / 2,
            smoothness=4.64 * largest * high,
        )


def of(problem: Regression) -> Manifold:
    """The manifold of global minima of the problem's regularised population loss."""
    return Manifold(problem.Sigma, problem.M)


def estimate(X: np.ndarray, Y: np.ndarray) -> Manifold:
    """The manifold that n samples predict, by least squares: Sigma^ = X^T X / n, M^ =
    (Y^T X / n) Sigma^^{-1}, of X (n, d), Y (n, k). ValueError if n < d, where Sigma^ is
    singular, and for samples that are not finite.
    """
    n, d = X.shape
    if len(Y) != n:
        raise ValueError(f"Y has shape {Y.shape}; it needs {n} rows, as many as X")
    if not (np.isfinite(X).all() and np.isfinite(Y).all()):
        raise ValueError("X and Y must be finite")
    if n < d:
        raise ValueError(f"X has shape {X.shape}: n < d makes its covariance singular")
    Sigma = X.T @ X / n
    return Manifold(Sigma, np.linalg.solve(Sigma, X.T @ Y / n).T)


def spectral_start(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A_0 (k, d), B_0 (d, d) of paper B's Algorithm 1: the point R = I of the estimated
    manifold, U^ D^^{1/2} Sigma^^{-1/2} and Sigma^^{-1/2} V^ D^^{1/2} Sigma^^{-1/2}.
    """
    Z = estimate(X, Y).point()
    return Z[: Y.shape[1]], Z[Y.shape[1] :]


def _check_norm(norm: str) -> None:
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {NORMS}, not {norm!r}")


def gradient(problem: Regression, Z: np.ndarray) -> np.ndarray:
    """grad(L + R) at Z (..., k + d, d) in the Euclidean inner product."""
    A = Z[..., : problem.k, :]
    B = Z[..., problem.k :, :]
    loss_A, loss_B = population_gradients(problem, A, B)
    R_A, R_B = regulariser_gradients(problem.Sigma, A, B)
    return np.concatenate([loss_A + R_A, loss_B + R_B], -2)


def dual_norm(
    manifold: Manifold, gradient: np.ndarray, norm: str = "left"
) -> np.ndarray:
    """||g||_* of a Euclidean gradient: sup of <g, Delta> over ||Delta|| = 1 in the
    named norm. `gradient` (..., k + d, d) to (...). ValueError for an unknown norm.
    """
    _check_norm(norm)
    W = manifold._sides(gradient, manifold.inverse_root)
    return np.linalg.norm(
        W @ manifold.inverse_root if norm == "left_right" else W, axis=(-1, -2)
    )


def modes(
    problem: Regression, preconditioner: str = "left"
) -> tuple[np.ndarray, np.ndarray]:
    """The modes of P grad(L + R) around a minimum: rates lambda and their directions.

    Rates (modes,) ascending, directions (modes, k + d, d), without the d (d - 1) / 2
    rotations, of rate zero. With step eta a mode of Z_t - Z_pi shrinks by 1 - eta
    lambda an iteration on the population loss, so the excess loss falls in the end like
    (1 - eta lambda_min)^{2t}. ValueError for an unknown preconditioner.
    """
    if preconditioner not in PRECONDITIONERS:
        raise ValueError(
            f"preconditioner must be one of {PRECONDITIONERS}, not {preconditioner!r}"
        )
    k = problem.k
    d = problem.d
    Z = of(problem).point()
    reach = 1e-5
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
