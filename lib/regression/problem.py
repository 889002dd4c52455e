"""Paper B's problem: one softmax self-attention layer trained to do linear regression.

Covariates x ~ N(0, Sigma), responses y = M x + eps with eps ~ N(0, noise^2 I). The
layer Z = (A; B) has the value matrix A (k, d) and the key-query matrix B (d, d); the
logit of key x_i for query x_j is x_j^T B x_i. Losses and gradients of the population
take numpy arrays or torch tensors A (..., k, d), B (..., d, d) and return the same.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lib import seeds
from lib.representation import Shapes

# A3 as taken here: this moment of e^{x^T B x} is finite on the manifold of minima.
SELF_MOMENT = 1.0


@dataclass(frozen=True, repr=False)
class Regression(Shapes):
    """The law of the data: Sigma (d, d), M (k, d), `noise` the standard deviation of
    eps.

    ValueError unless A1 (Sigma symmetric, positive definite) and A2 (k >= d, M of full
    column rank) hold. Where A3 fails it warns: only a proof of paper B needs it.
    """

    Sigma: np.ndarray
    M: np.ndarray
    noise: float

    def __post_init__(self):
        for name in ("Sigma", "M"):
            value = np.asarray(getattr(self, name), dtype=float)
            if value.ndim != 2 or not np.isfinite(value).all():
                raise ValueError(f"{name} must be a finite matrix, not {value.shape}")
            object.__setattr__(self, name, value)
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise must be finite and >= 0, not {self.noise}")
        covariance_root(self.Sigma, "Sigma")
        (k, d) = self.M.shape
        D = np.linalg.svd(self.M, compute_uv=False)
        if d != len(self.Sigma):
            raise ValueError(
                f"M has shape {k, d}; it needs {len(self.Sigma)} columns, as Sigma has"
            )
        if k < d:
            raise ValueError(f"M has shape {k, d}; A2 needs k >= d")
        if D[-1] <= d * np.finfo(float).eps * D[0]:
            raise ValueError(f"M is rank-deficient, against A2: singular values {D}")
        if self.largest_moment <= SELF_MOMENT:
            warnings.warn(
                f"A3 fails: ||M Sigma^1/2|| = {self.singular_values[0]:.4g} is not < 1/(4 c^2) = "
                f"{0.25 / SELF_MOMENT**2:.4g} with c = {SELF_MOMENT:g}",
                stacklevel=3,
            )

    @property
    def k(self) -> int:
        """Outputs, the rows of M."""
        return self.M.shape[0]

    @property
    def d(self) -> int:
        """Inputs, the columns of M."""
        return self.M.shape[1]

    @cached_property
    def root(self) -> np.ndarray:
        """Sigma^{1/2}, symmetric, (d, d)."""
        return covariance_root(self.Sigma, "Sigma")

    @cached_property
    def singular_values(self) -> np.ndarray:
        """sigma_1 >= ... >= sigma_d > 0 of M Sigma^{1/2}, (d,)."""
        return np.linalg.svd(self.M @ self.root, compute_uv=False)

    @property
    def optimal_loss(self) -> float:
        """The irreducible loss k noise^2 / 2, which is min L (paper B, Theorem 1)."""
        return self.k * self.noise**2 / 2

    @property
    def largest_moment(self) -> float:
        """1 / (2 sigma_1^{1/2}), the c up to which E e^{c x^T B x} is finite at all
        minima.

        It is finite iff 2 c lambda_max(sym(Sigma^{1/2} B Sigma^{1/2})) < 1, and
        sigma_1^{1/2} is the largest such eigenvalue on the manifold. A3 is taken as
        largest_moment > 1, i.e. sigma_1 < 1/4 (our constant; paper B's is blank).
        """
        return 0.5 / math.sqrt(self.singular_values[0])

    def assumptions(self) -> dict[str, tuple[float, bool]]:
        """Number and whether it holds: A1 lambda_min(Sigma), A2 sigma_d, A3
        largest_moment.
        """
        smallest = np.linalg.eigvalsh(self.Sigma)[0]
        sigma_d = self.singular_values[-1]
        return {
            "A1": (smallest, smallest > 0),
            "A2": (sigma_d, self.k >= self.d and sigma_d > 0),
            "A3": (self.largest_moment, self.largest_moment > SELF_MOMENT),
        }

    def premises(self) -> str:
        """`assumptions` in words."""
        held = self.assumptions()
        smallest, sigma_d, moment = (number for number, _ in held.values())
        return (
            f"A1 lambda_min(Sigma) = {smallest:.3f}; A2 sigma_d(M Sigma^1/2) = {sigma_d:.3f}; "
            f"A3 largest moment c = {moment:.3f}, needs > {SELF_MOMENT:g}; "
            f"all hold: {all(holds for _, holds in held.values())}"
        )

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n fresh samples: X (n, d) with rows x_j, Y (n, k) with rows y_j = M x_j +
        eps_j.
        """
        X = rng.standard_normal((n, self.d)) @ self.root
        return X, X @ self.M.T + self.noise * rng.standard_normal((n, self.k))


def covariance_root(Sigma: np.ndarray, name: str) -> np.ndarray:
    """Sigma^{1/2} (d, d), symmetric, of Sigma (d, d); ValueError, with `name`, unless
    Sigma is finite, symmetric and positive definite.
    """
    if (
        Sigma.ndim != 2
        or Sigma.shape[0] != Sigma.shape[1]
        or not np.isfinite(Sigma).all()
    ):
        raise ValueError(f"{name} has shape {Sigma.shape}; it must be square, finite")
    off = np.abs(Sigma - Sigma.T).max()
    if off > 1e-12 * np.abs(Sigma).max():
        raise ValueError(f"{name} is not symmetric: off by {off:.3g}")
    values, vectors = np.linalg.eigh(Sigma)
    if values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        raise ValueError(f"{name} is singular, against A1: eigenvalue {values[0]:.3g}")
    return (vectors * np.sqrt(values)) @ vectors.T


def random_regression(
    seed: int,
    d: int,
    k: int,
    signal: float = 0.2,
    noise: float = 0.045,
    floor: float = 0.35,
) -> Regression:
    """A problem from two Gaussian matrices; A1-A3 hold if k >= d and signal < 1/4.

    Sigma = (1 - floor) S S^T / ||S S^T|| + floor I, of norm 1 and condition number at
    most 1/floor; M = signal M_0 / ||M_0 Sigma^{1/2}||. Source: paper B, Appendix A;
    scaled by us.
    """
    rng = seeds.stream(seed, "data")
    S = rng.standard_normal((d, d))
    S = S @ S.T / np.linalg.norm(S @ S.T, 2)
    Sigma = (1 - floor) * (S + S.T) / 2 + floor * np.eye(d)
    M = rng.standard_normal((k, d))
    size = np.linalg.norm(M @ covariance_root(Sigma, "Sigma"), 2)
    return Regression(Sigma=Sigma, M=signal * M / size, noise=noise)


def gaussian_start(
    seed: int, d: int, k: int, std: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """A (k, d) and B (d, d) with independent N(0, std^2) entries."""
    (Z,) = seeds.gaussian([seed], (k + d, d), std)
    return Z[:k], Z[k:]


def population_loss(problem: Regression, A, B):
    """L(Z) = 1/2 ||A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}||_F^2 + k noise^2 / 2.

    Source: paper B, Theorem 1. It is 1/2 E ||y - A E'[x' e^{x^T B x'}] / E'[e^{x^T B x'}]
    ||^2 (Eq. 2), whose ratio is Sigma B^T x. A (..., k, d), B (..., d, d).
    """
    return excess_loss(problem, A, B) + problem.optimal_loss


def excess_loss(problem: Regression, A, B):
    """L(Z) - min L, without the rounding of the subtraction, shape (...)."""
    E, _, _ = _residual(problem, A, B)
    return (E * E).sum((-1, -2)) / 2


def _residual(problem, A, B):
    parts = problem.Sigma, problem.root, problem.M
    if not isinstance(A, np.ndarray):
        import torch  # only where tensors come in

        parts = (torch.as_tensor(part, dtype=A.dtype) for part in parts)
    Sigma, root, M = parts
    return (A @ Sigma @ B.mT - M) @ root, Sigma, root


def population_gradients(problem: Regression, A, B):
    """grad_A L = E Sigma^{1/2} B Sigma and grad_B L = Sigma^{1/2} E^T A Sigma (ours),
    with E = A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}, the matrix whose norm is in the
    loss.
    """
    E, Sigma, root = _residual(problem, A, B)
    return E @ root @ B @ Sigma, root @ E.mT @ A @ Sigma


def regulariser(Sigma, A, B):
    """R(Z) = 1/8 ||Sigma^{1/2} (A^T A - B^T Sigma B) Sigma^{1/2}||_F^2, shape (...).

    Sigma (..., d, d) is the covariance or X^T X / n. Paper B's formula is blank; with
    this one grad(L + R) takes the form of Eqs. 5 and 6.
    """
    G = A.mT @ A - B.mT @ Sigma @ B
    return ((Sigma @ G) * (Sigma @ G).mT).sum(
        (-1, -2)
    ) / 8  # ||S^{1/2} G S^{1/2}||^2 = tr(S G S G)


def regulariser_gradients(Sigma, A, B):
    """grad_A R = A Sigma G Sigma / 2 and grad_B R = -Sigma B Sigma G Sigma / 2, with
    G = A^T A - B^T Sigma B.
    """
    SGS = Sigma @ (A.mT @ A - B.mT @ Sigma @ B) @ Sigma
    return A @ SGS / 2, -Sigma @ B @ SGS / 2
