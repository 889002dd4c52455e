"""Paper B's problem: one softmax self-attention layer trained to do linear regression.

Covariates x ~ N(0, Sigma), responses y = M x + eps with eps ~ N(0, noise^2 I). The layer Z = (A; B)
has the value matrix A (k, d) and the key-query matrix B (d, d); the logit of key x_i for query x_j
is x_j^T B x_i. Matrices may carry leading axes of runs; losses and gradients take numpy arrays or
torch tensors and return what they were given.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from lib import seeds
from lib.regression import kernel

BLOCK = 2**17  # attention weights held at a time, 1 MB in float64: they stay in a core's cache
DEVICE_BLOCK = 2**26  # the same on a GPU, 512 MB in float64
# A3 as taken here: this moment of e^{x^T B x} is finite on the manifold of minima.
SELF_MOMENT = 1.0


@dataclass(frozen=True)
class Regression:
    """The law of the data: Sigma (d, d), M (k, d), noise (standard deviation of eps, in the units
    of y).

    Raises ValueError unless A1 (Sigma symmetric, positive definite) and A2 (k >= d, M of full
    column rank) hold. Where A3 fails it warns with the number: paper B needs it for a proof, no
    formula here does.
    """

    Sigma: np.ndarray
    M: np.ndarray
    noise: float

    def __post_init__(self):
        for name in ("Sigma", "M"):
            value = np.asarray(getattr(self, name), dtype=float)
            if value.ndim != 2 or not np.isfinite(value).all():
                raise ValueError(
                    f"{name} must be a matrix of finite numbers; it has shape {value.shape}"
                )
            object.__setattr__(self, name, value)
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise must be finite and >= 0, not {self.noise}")
        covariance_root(self.Sigma, "Sigma")
        (k, d), D = self.M.shape, np.linalg.svd(self.M, compute_uv=False)
        if d != len(self.Sigma):
            raise ValueError(
                f"M has shape {self.M.shape}; it needs {len(self.Sigma)} columns, as many as Sigma "
                f"has"
            )
        if k < d:
            raise ValueError(
                f"M has shape {self.M.shape}; A2 needs k >= d, at least as many rows as columns"
            )
        if D[-1] <= d * np.finfo(float).eps * D[0]:
            raise ValueError(
                f"M is rank-deficient, its singular values are {D}; A2 needs full column rank"
            )
        if self.largest_moment <= SELF_MOMENT:
            warnings.warn(
                f"A3 fails: ||M Sigma^1/2|| = {self.singular_values[0]:.4g} exceeds 1/(4 c^2) = "
                f"{0.25 / SELF_MOMENT**2:.4g} with c = {SELF_MOMENT:g}",
                stacklevel=3,
            )

    @property
    def k(self) -> int:
        return self.M.shape[0]

    @property
    def d(self) -> int:
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
        """1 / (2 sigma_1^{1/2}), the c up to which E e^{c x^T B x} is finite on the whole manifold
        of minima.

        E e^{c x^T B x} < infinity iff 2 c lambda_max(sym(Sigma^{1/2} B Sigma^{1/2})) < 1, and
        sigma_1^{1/2} is the largest such eigenvalue on the manifold. A3 is taken as largest_moment
        > 1, i.e. sigma_1 < 1/4 (our constant; paper B's is blank).
        """
        return 0.5 / math.sqrt(self.singular_values[0])

    def assumptions(self) -> dict[str, tuple[float, bool]]:
        """By assumption, the number it is about and whether it holds: lambda_min(Sigma), sigma_d,
        largest_moment.
        """
        smallest = np.linalg.eigvalsh(self.Sigma)[0]
        sigma_d = self.singular_values[-1]
        return {
            "A1": (smallest, smallest > 0),
            "A2": (sigma_d, self.k >= self.d and sigma_d > 0),
            "A3": (self.largest_moment, self.largest_moment > SELF_MOMENT),
        }

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n fresh samples: X (n, d) with rows x_j, Y (n, k) with rows y_j = M x_j + eps_j."""
        X = rng.standard_normal((n, self.d)) @ self.root
        return X, X @ self.M.T + self.noise * rng.standard_normal((n, self.k))


def covariance_root(Sigma: np.ndarray, name: str) -> np.ndarray:
    """Sigma^{1/2}, symmetric; ValueError naming `name` where Sigma is not symmetric or not positive
    definite.
    """
    if Sigma.ndim != 2 or Sigma.shape[0] != Sigma.shape[1] or not np.isfinite(Sigma).all():
        raise ValueError(
            f"{name} has shape {Sigma.shape}; it must be a square matrix of finite numbers"
        )
    if not np.allclose(Sigma, Sigma.T, rtol=0, atol=1e-12 * np.abs(Sigma).max()):
        raise ValueError(
            f"{name} is not symmetric: largest |Sigma - Sigma^T| is "
            f"{np.abs(Sigma - Sigma.T).max():.3g}"
        )
    values, vectors = np.linalg.eigh(Sigma)
    if values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        raise ValueError(
            f"{name} is singular or indefinite: smallest eigenvalue {values[0]:.3g}; A1 needs > 0"
        )
    return (vectors * np.sqrt(values)) @ vectors.T


def random_regression(
    seed: int, d: int, k: int, signal: float = 0.2, noise: float = 0.045, floor: float = 0.35
) -> Regression:
    """A problem from two Gaussian matrices, scaled so that A1-A3 hold (paper B, Appendix A; our
    scaling).

    Sigma = (1 - floor) S S^T / ||S S^T|| + floor I, so ||Sigma|| = 1 and its condition number is at
    most 1/floor; M = signal M_0 / ||M_0 Sigma^{1/2}||, so ||M Sigma^{1/2}|| = signal.
    """
    rng = seeds.stream(seed, "data")
    S = rng.standard_normal((d, d))
    S = S @ S.T / np.linalg.norm(S @ S.T, 2)
    Sigma = (1 - floor) * (S + S.T) / 2 + floor * np.eye(d)
    M = rng.standard_normal((k, d))
    return Regression(
        Sigma, signal * M / np.linalg.norm(M @ covariance_root(Sigma, "Sigma"), 2), noise
    )


def gaussian_start(seed: int, d: int, k: int, std: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """A (k, d) and B (d, d) with independent N(0, std^2) entries."""
    Z = std * seeds.stream(seed, "start").standard_normal((k + d, d))
    return Z[:k], Z[k:]


def population_loss(problem: Regression, A, B):
    """L(Z) = 1/2 ||A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}||_F^2 + k noise^2 / 2 (paper B, Theorem
    1).

    It is 1/2 E ||y - A E'[x' e^{x^T B x'}] / E'[e^{x^T B x'}]||^2 (Eq. 2), whose ratio is Sigma B^T
    x. A (..., k, d), B (..., d, d).
    """
    return excess_loss(problem, A, B) + problem.optimal_loss


def excess_loss(problem: Regression, A, B):
    """L(Z) - min L, without the rounding of the subtraction, shape (...)."""
    E, _, _ = _residual(problem, A, B)
    return (E * E).sum((-1, -2)) / 2


def _residual(problem, A, B):
    Sigma, root, M = (_like(a, A) for a in (problem.Sigma, problem.root, problem.M))
    return (A @ Sigma @ _T(B) - M) @ root, Sigma, root


def population_gradients(problem: Regression, A, B):
    """grad_A L = E Sigma^{1/2} B Sigma and grad_B L = Sigma^{1/2} E^T A Sigma (ours).

    E = A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}, the matrix whose norm is in the loss.
    """
    E, Sigma, root = _residual(problem, A, B)
    return E @ root @ B @ Sigma, root @ _T(E) @ A @ Sigma


def regulariser(Sigma, A, B):
    """R(Z) = 1/8 ||Sigma^{1/2} (A^T A - B^T Sigma B) Sigma^{1/2}||_F^2, shape (...).

    Sigma (..., d, d) is the covariance (population) or X^T X / n (empirical). Paper B's formula is
    blank; this is the one with which grad(L + R) takes the form of Eqs. 5 and 6.
    """
    G = _T(A) @ A - _T(B) @ Sigma @ B
    return ((Sigma @ G) * _T(Sigma @ G)).sum((-1, -2)) / 8  # ||S^{1/2} G S^{1/2}||^2 = tr(S G S G)


def regulariser_gradients(Sigma, A, B):
    """grad_A R = 1/2 A Sigma G Sigma and grad_B R = -1/2 Sigma B Sigma G Sigma, G = A^T A - B^T
    Sigma B.
    """
    SGS = Sigma @ (_T(A) @ A - _T(B) @ Sigma @ B) @ Sigma
    return A @ SGS / 2, -Sigma @ B @ SGS / 2


def predict(queries, X, A, B):
    """f_Z(x) = A sum_i x_i e^{x^T B x_i} / sum_i e^{x^T B x_i} for each query x, (..., q, k).

    queries (..., q, d), keys X (..., m, d). Memory is that of BLOCK attention weights.
    """
    _check_layer(X, None, A, B)
    (q, x, a, b), back = _tensors(queries, X, A, B)
    first, out = 0, None
    for rows in q.split(_rows(x, b), -2):
        part = _attend(rows, x, b)[0] @ a.mT
        if (
            out is None
        ):  # one place for all: small results between large blocks would scatter the heap
            out = part.new_empty((*part.shape[:-2], q.shape[-2], part.shape[-1]))
        out[..., first : first + rows.shape[-2], :] = part
        first += rows.shape[-2]
    return back(out)


def empirical_gradients(X, Y, A, B):
    """grad_A L^ (..., k, d) and grad_B L^ (..., d, d) of Eq. 1 in closed form, the samples being
    queries and keys.

    With P the softmax weights, c_j = sum_i P_ji x_i, e_j = A c_j - y_j, v_j = A^T e_j: grad_A = 1/m
    sum_j e_j c_j^T,  grad_B = 1/m sum_j x_j (sum_i P_ji (v_j^T (x_i - c_j)) x_i)^T. Y (..., m, k),
    A (..., k, d), B (..., d, d). Memory is that of BLOCK attention weights, at any m. Raises
    ValueError for shapes that do not fit and for samples that are not finite.
    """
    _check_layer(X, Y, A, B)
    if not isinstance(X, torch.Tensor):
        return _compiled(X, Y, A, B)
    m, rows = X.shape[-2], _rows(X, B)
    gradient_A, gradient_B = torch.zeros_like(A), torch.zeros_like(B)
    for queries, labels in zip(X.split(rows, -2), Y.split(rows, -2), strict=True):
        c, E, total = _attend(queries, X, B)  # (..., rows, d), (..., rows, m), (..., rows, 1)
        error = c @ A.mT - labels
        v = error @ A
        pull = (v @ X.mT).mul_(E) @ X / total - c * (v * c).sum(-1, keepdim=True)  # (..., rows, d)
        gradient_A += error.mT @ c
        gradient_B += queries.mT @ pull
    return gradient_A / m, gradient_B / m


def _compiled(X, Y, A, B):
    lead = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2], A.shape[:-2], B.shape[:-2])
    sets = X.shape[:-2]
    if Y.shape[:-2] != sets:
        raise ValueError(f"Y has shape {Y.shape}; its leading axes must be those of X, {sets}")
    set_of_run = np.array(np.broadcast_to(np.arange(math.prod(sets)).reshape(sets), lead)).ravel()

    def flat(value, shape):  # (..., rows, columns) -> (runs, rows, columns)
        value = np.broadcast_to(
            value, (*shape, *value.shape[-2:])
        )  # read-only, a type of its own to the compiler
        return np.array(value, dtype=float, order="C").reshape(-1, *value.shape[-2:])

    sums = kernel.gradients(flat(X, sets), flat(Y, sets), flat(A, lead), flat(B, lead), set_of_run)
    return tuple(total.reshape(*lead, *total.shape[1:]) / X.shape[-2] for total in sums)


def _attend(queries, X, B):
    """c = sum_i P_i x_i for each query, with the unnormalised weights and their sums."""
    E = queries @ B @ X.mT
    E -= E.amax(-1, keepdim=True)
    E.exp_()
    total = E.sum(-1, keepdim=True)
    return E @ X / total, E, total


def _rows(X, B) -> int:
    """How many queries at a time keep the attention weights of all runs within BLOCK."""
    runs = torch.broadcast_shapes(X.shape[:-2], B.shape[:-2])
    return max(
        1, (BLOCK if X.device.type == "cpu" else DEVICE_BLOCK) // (math.prod(runs) * X.shape[-2])
    )


def _check_layer(X, Y, A, B):
    m, d, k = X.shape[-2], X.shape[-1], A.shape[-2]
    needed = (("A", A, (k, d)), ("B", B, (d, d)), ("Y", Y, (m, k)))
    for name, value, shape in needed:
        if value is not None and tuple(value.shape[-2:]) != shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; its last two axes must be {shape}"
            )
    for name, value in (("X", X), ("Y", Y)):
        if value is not None and not math.isfinite(float(value.sum())):
            raise ValueError(f"{name} holds values that are not finite")


def _T(value):
    return value.mT if isinstance(value, torch.Tensor) else np.swapaxes(value, -1, -2)


def _like(value, other):
    if not isinstance(other, torch.Tensor):
        return value
    return torch.as_tensor(value, dtype=other.dtype, device=other.device)


def _tensors(*values):
    """The values as torch tensors, without a copy, and the way back to the kind they were."""
    if isinstance(values[0], torch.Tensor):
        return values, lambda value: value
    return [
        torch.from_numpy(np.ascontiguousarray(value)) for value in values
    ], lambda value: value.numpy()
