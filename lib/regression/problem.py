"""Paper B's problem: a softmax self-attention layer trained to do linear regression.

Covariates x ~ N(0, Sigma), responses y = M x + eps with eps ~ N(0, noise^2 I). The
layer Z = (A; B) has the value matrix A (k, d) and the key-query matrix B (d, d); the
logit of key x_i for query x_j is x_j^T B x_i. The functions for losses and gradients of
the population take A (..., k, d) and B (..., d, d) as numpy arrays or as torch tensors,
and return values of the same kind.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lib import seeds
from lib.representation import Shapes

# We read assumption A3 as follows: E e^{c x^T B x} is finite at all minima for this c.
SELF_MOMENT = 1.0


@dataclass(frozen=True, repr=False, eq=False)
class Regression(Shapes):
    """The law of the data in paper B: y = M x + eps.

    Covariates are x ~ N(0, Sigma), and the noise is eps ~ N(0, noise^2 I).

    Parameters
    ----------
    Sigma : ndarray (d, d)
        Covariance of x, symmetric and positive definite (assumption A1).
    M : ndarray (k, d)
        Map from covariates to responses, with k >= d and full column rank (assumption
        A2).
    noise : float
        Standard deviation of each entry of eps, finite and at least 0.

    Raises
    ------
    ValueError
        If `Sigma` or `M` is not a finite matrix, if their sizes do not fit, if `noise`
        is negative or not finite, or if A1 or A2 fails.

    Warns
    -----
    UserWarning
        If assumption A3 fails. Only a proof in paper B needs A3.

    Notes
    -----
    We read A3 as ``largest_moment > 1``, that is, sigma_1(M Sigma^{1/2}) < 1/4. Paper B
    leaves the constant in A3 blank, so that the value 1 is our choice.

    Examples
    --------
    >>> from lib import regression
    >>> problem = regression.Regression(
    ...     Sigma=np.diag([1.0, 0.25]), M=np.diag([0.2, 0.2]), noise=0.1
    ... )
    >>> problem.singular_values.round(3)
    array([0.2, 0.1])
    >>> round(problem.optimal_loss, 3)
    0.01
    """

    Sigma: np.ndarray
    M: np.ndarray
    noise: float

    def __post_init__(self) -> None:
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
                f"A3 fails: ||M Sigma^1/2|| = {self.singular_values[0]:.4g}"
                f" is not < 1/(4 c^2) = {0.25 / SELF_MOMENT**2:.4g}"
                f" with c = {SELF_MOMENT:g}",
                stacklevel=3,
            )

    @property
    def k(self) -> int:
        """Number of outputs, the rows of M."""
        return self.M.shape[0]

    @property
    def d(self) -> int:
        """Number of inputs, the columns of M."""
        return self.M.shape[1]

    @cached_property
    def root(self) -> np.ndarray:
        """Symmetric square root Sigma^{1/2}, (d, d)."""
        return covariance_root(self.Sigma, "Sigma")

    @cached_property
    def singular_values(self) -> np.ndarray:
        """Singular values sigma_1 >= ... >= sigma_d > 0 of M Sigma^{1/2}, (d,)."""
        return np.linalg.svd(self.M @ self.root, compute_uv=False)

    @property
    def optimal_loss(self) -> float:
        """Irreducible loss k noise^2 / 2, which is min L (paper B, Theorem 1)."""
        return self.k * self.noise**2 / 2

    @property
    def largest_moment(self) -> float:
        """The largest c such that E e^{c' x^T B x} is finite at all minima for c' < c.

        It equals 1 / (2 sigma_1^{1/2}). For every c' >= c, the moment is infinite at
        some minimum.

        Notes
        -----
        The moment is finite if and only if 2 c lambda_max(sym(Sigma^{1/2} B
        Sigma^{1/2})) < 1, and sigma_1^{1/2} is the largest value of lambda_max on the
        manifold of minima. We read A3 as ``largest_moment > 1``, that is, sigma_1 <
        1/4. Paper B leaves the constant in A3 blank, so that the value 1 is our choice.
        """
        return 0.5 / math.sqrt(self.singular_values[0])

    def assumptions(self) -> dict[str, tuple[float, bool]]:
        """Return the deciding number of A1, A2 and A3, and whether each of them holds.

        Returns
        -------
        dict of str to tuple of (float, bool)
            The keys are "A1", "A2" and "A3". Each tuple contains the number that
            decides the assumption, and whether the assumption holds. The number of "A1"
            is lambda_min(Sigma), the number of "A2" is sigma_d of M Sigma^{1/2}, and
            the number of "A3" is `largest_moment`.
        """
        smallest = np.linalg.eigvalsh(self.Sigma)[0]
        sigma_d = self.singular_values[-1]
        return {
            "A1": (smallest, smallest > 0),
            "A2": (sigma_d, self.k >= self.d and sigma_d > 0),
            "A3": (self.largest_moment, self.largest_moment > SELF_MOMENT),
        }

    def premises(self) -> str:
        """Describe in words what `assumptions` returns.

        Returns
        -------
        str
            One line that states the three numbers and whether all three assumptions
            hold.
        """
        held = self.assumptions()
        smallest, sigma_d, moment = (number for number, _ in held.values())
        return (
            f"A1 lambda_min(Sigma) = {smallest:.3f}; "
            f"A2 sigma_d(M Sigma^1/2) = {sigma_d:.3f}; "
            f"A3 largest moment c = {moment:.3f}, needs > {SELF_MOMENT:g}; "
            f"all hold: {all(holds for _, holds in held.values())}"
        )

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw n fresh samples.

        Parameters
        ----------
        n : int
            Number of samples.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        X : ndarray (n, d)
            Covariates, one row x_j per sample.
        Y : ndarray (n, k)
            Responses, with rows y_j = M x_j + eps_j.
        """
        X = rng.standard_normal((n, self.d)) @ self.root
        return X, X @ self.M.T + self.noise * rng.standard_normal((n, self.k))


def covariance_root(Sigma: np.ndarray, name: str) -> np.ndarray:
    """Compute the symmetric square root of a covariance.

    Parameters
    ----------
    Sigma : ndarray (d, d)
        The covariance.
    name : str
        The name to use in error messages.

    Returns
    -------
    ndarray (d, d)
        Sigma^{1/2}, symmetric.

    Raises
    ------
    ValueError
        If `Sigma` is not a square matrix or not finite, or if it is not symmetric or
        not positive definite up to rounding. The message contains `name`.

    Examples
    --------
    >>> from lib.regression.problem import covariance_root
    >>> root = covariance_root(np.array([[2.0, 1.0], [1.0, 2.0]]), "Sigma")
    >>> (root @ root).round(3)
    array([[2., 1.],
           [1., 2.]])
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
    """Draw a problem from two Gaussian matrices.

    Sigma = (1 - floor) S S^T / ||S S^T|| + floor I, and M = signal M_0 / ||M_0
    Sigma^{1/2}||. The entries of S and M_0 are standard normal, and both norms are
    spectral norms.

    Parameters
    ----------
    seed : int
        The seed of the random draw.
    d : int
        Number of inputs.
    k : int
        Number of outputs.
    signal : float, default 0.2
        Largest singular value of M Sigma^{1/2}, positive.
    noise : float, default 0.045
        Standard deviation of the noise in each response, finite and at least 0.
    floor : float, default 0.35
        Lower bound on the eigenvalues of Sigma, 0 < floor <= 1. Since the norm of Sigma
        is 1, the condition number of Sigma is at most 1 / floor. The range of `floor`
        is not checked.

    Returns
    -------
    Regression
        The problem. A1-A3 hold if k >= d and signal < 1/4.

    Raises
    ------
    ValueError
        If the problem violates A1 or A2, for example because k < d; if `noise` is
        negative or not finite; if `seed` is not a whole number of at least 0.

    Warns
    -----
    UserWarning
        If A3 fails, that is, if signal >= 1/4.

    Notes
    -----
    The problem is that of paper B, Appendix A; we chose the scaling.

    Examples
    --------
    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3, signal=0.2)
    >>> round(float(problem.singular_values[0]), 3)  # the signal
    0.2
    >>> round(float(np.linalg.norm(problem.Sigma, 2)), 3)
    1.0
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
    """Draw A and B with independent N(0, std^2) entries.

    Parameters
    ----------
    seed : int
        The seed of the random draw.
    d : int
        Number of inputs.
    k : int
        Number of outputs.
    std : float, default 1.0
        Standard deviation of every entry.

    Returns
    -------
    A : ndarray (k, d)
        Value matrix.
    B : ndarray (d, d)
        Key-query matrix.

    Raises
    ------
    ValueError
        If `seed` is not a whole number of at least 0.

    Examples
    --------
    >>> from lib import regression
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3)
    >>> A.shape, B.shape
    ((3, 2), (2, 2))
    >>> half, _ = regression.gaussian_start(seed=0, d=2, k=3, std=0.5)
    >>> np.allclose(half, A / 2)  # the same draw, half as large
    True
    """
    (Z,) = seeds.gaussian([seed], (k + d, d), std)
    return Z[:k], Z[k:]


def real(name: str, value: Any) -> Any:
    """Convert an array to float64, and return a torch tensor of floats unchanged.

    Without this conversion, sums and products of small integers could overflow without
    a warning.

    Parameters
    ----------
    name : str
        The name to use in error messages.
    value : array_like or Tensor
        The numbers.

    Returns
    -------
    ndarray of float64 or Tensor
        The same numbers.

    Raises
    ------
    ValueError
        If `value` contains anything but real numbers, or if it is a tensor of anything
        but floats.

    Examples
    --------
    >>> from lib.regression import problem
    >>> problem.real("A", np.array([[100]], np.int8)) * 2
    array([[200.]])
    """
    if hasattr(value, "mT") and not isinstance(value, np.ndarray):
        if not value.dtype.is_floating_point:
            raise ValueError(
                f"{name} is a tensor of {value.dtype}; give {name}.double(), since "
                "integers would round the problem's matrices"
            )
        return value
    value = np.asarray(value)
    if value.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {value.dtype} values; it needs real numbers")
    return value.astype(float, copy=False)


def _layer(A: Any, B: Any, d: int, k: int | None = None) -> tuple[Any, Any]:
    """Return A (..., k, d) and B (..., d, d) as `real` does; k is that of A by default.

    Raises ValueError if their last two axes do not fit.
    """
    A = real("A", A)
    B = real("B", B)
    rows = k or A.shape[-2]
    for name, value, needed in (("A", A, (rows, d)), ("B", B, (d, d))):
        if value.shape[-2:] != needed:
            shape = tuple(value.shape)
            raise ValueError(
                f"{name} has shape {shape}; its last two axes must be {needed}"
            )
    return A, B


def population_loss(problem: Regression, A: Any, B: Any) -> Any:
    """Compute the population loss, that is, the loss for infinitely many samples.

    L(Z) = 1/2 ||A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}||_F^2 + k noise^2 / 2.

    Parameters
    ----------
    problem : Regression
        The law of the data, which gives Sigma, M, noise and k.
    A : ndarray or Tensor (..., k, d)
        Value matrices.
    B : ndarray or Tensor (..., d, d)
        Key-query matrices.

    Returns
    -------
    ndarray or Tensor (...)
        L(Z) of every layer Z = (A; B).

    Raises
    ------
    ValueError
        If a shape does not fit, or if an array contains anything but real numbers.

    Notes
    -----
    The formula is that of paper B, Theorem 1. The loss is defined as 1/2 E ||y - A
    E'[x' e^{x^T B x'}] / E'[e^{x^T B x'}]||^2 (Eq. 2), where the ratio equals Sigma B^T
    x.

    Examples
    --------
    With A = 0, the layer predicts 0, and the loss is E ||y||^2 / 2:

    >>> from lib import regression
    >>> problem = regression.Regression(
    ...     Sigma=np.diag([1.0, 0.25]), M=np.diag([0.2, 0.2]), noise=0.1
    ... )
    >>> zero = np.zeros((2, 2))
    >>> round(float(regression.population_loss(problem, zero, zero)), 4)
    0.035
    """
    return excess_loss(problem, A, B) + problem.optimal_loss


def excess_loss(problem: Regression, A: Any, B: Any) -> Any:
    """Compute L(Z) - min L without the rounding error of a subtraction.

    Parameters
    ----------
    problem : Regression
        The law of the data.
    A : ndarray or Tensor (..., k, d)
        Value matrices.
    B : ndarray or Tensor (..., d, d)
        Key-query matrices.

    Returns
    -------
    ndarray or Tensor (...)
        The excess loss of every layer. It is 0 at a minimum.

    Raises
    ------
    ValueError
        If a shape does not fit, or if an array contains anything but real numbers.

    Examples
    --------
    The spectral start from many samples is nearly optimal, but a random start is not:

    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> samples = problem.sample(20_000, np.random.default_rng(0))
    >>> A, B = regression.spectral_start(*samples)
    >>> bool(regression.excess_loss(problem, A, B) < 1e-5)
    True
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3)
    >>> bool(regression.excess_loss(problem, A, B) > 1)
    True
    """
    E, _, _ = _residual(problem, A, B)
    return (E * E).sum((-1, -2)) / 2


def _residual(problem: Regression, A: Any, B: Any) -> tuple[Any, Any, Any]:
    """Return E = (A Sigma B^T - M) Sigma^{1/2} (..., k, d), Sigma and Sigma^{1/2}.

    All three are of the same kind as A: numpy arrays, or torch tensors on the CPU with
    A's dtype.
    """
    A, B = _layer(A, B, problem.d, problem.k)
    parts = problem.Sigma, problem.root, problem.M
    if not isinstance(A, np.ndarray):
        import torch  # only needed if tensors are passed

        parts = (torch.as_tensor(part, dtype=A.dtype) for part in parts)
    Sigma, root, M = parts
    return (A @ Sigma @ B.mT - M) @ root, Sigma, root


def population_gradients(problem: Regression, A: Any, B: Any) -> tuple[Any, Any]:
    """Compute the gradients of the population loss.

    Let E = A Sigma B^T Sigma^{1/2} - M Sigma^{1/2} be the residual whose norm occurs in
    the loss. Then

        grad_A L = E Sigma^{1/2} B Sigma,
        grad_B L = Sigma^{1/2} E^T A Sigma.

    Parameters
    ----------
    problem : Regression
        The law of the data.
    A : ndarray or Tensor (..., k, d)
        Value matrices.
    B : ndarray or Tensor (..., d, d)
        Key-query matrices.

    Returns
    -------
    grad_A : ndarray or Tensor (..., k, d)
        The gradient with respect to A.
    grad_B : ndarray or Tensor (..., d, d)
        The gradient with respect to B.

    Raises
    ------
    ValueError
        If a shape does not fit, or if an array contains anything but real numbers.

    Notes
    -----
    We derived these formulas ourselves.

    Examples
    --------
    The gradient predicts the change of the loss along a small step:

    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3)
    >>> grad_A, _ = regression.population_gradients(problem, A, B)
    >>> step = 1e-6 * np.ones_like(A)
    >>> above = regression.excess_loss(problem, A + step, B)
    >>> below = regression.excess_loss(problem, A - step, B)
    >>> np.allclose(above - below, 2 * (grad_A * step).sum())
    True
    """
    A, B = _layer(A, B, problem.d, problem.k)
    E, Sigma, root = _residual(problem, A, B)
    return E @ root @ B @ Sigma, root @ E.mT @ A @ Sigma


def regulariser(Sigma: Any, A: Any, B: Any) -> Any:
    """Compute the regulariser, which penalises an imbalance between A and B.

    R(Z) = 1/8 ||Sigma^{1/2} (A^T A - B^T Sigma B) Sigma^{1/2}||_F^2.

    Parameters
    ----------
    Sigma : ndarray or Tensor (..., d, d)
        The covariance, or its estimate X^T X / n. It must be symmetric, which is not
        checked.
    A : ndarray or Tensor (..., k, d)
        Value matrices.
    B : ndarray or Tensor (..., d, d)
        Key-query matrices.

    Returns
    -------
    ndarray or Tensor (...)
        R(Z) of every layer Z = (A; B).

    Raises
    ------
    ValueError
        If a shape does not fit, or if an array contains anything but real numbers.

    Notes
    -----
    In paper B, the formula of R is left blank. With the formula here, grad(L + R) takes
    the form of Eqs. 5 and 6.

    Examples
    --------
    R vanishes if A^T A = B^T Sigma B. If B = 0, it grows like the fourth power of A:

    >>> from lib import regression
    >>> eye = np.eye(2)
    >>> float(regression.regulariser(eye, eye, eye))
    0.0
    >>> [float(regression.regulariser(eye, a * eye, 0 * eye)) for a in (1, 2)]
    [0.25, 4.0]
    """
    Sigma = real("Sigma", Sigma)
    A, B = _layer(A, B, Sigma.shape[-1])
    G = A.mT @ A - B.mT @ Sigma @ B
    return ((Sigma @ G) * (Sigma @ G).mT).sum(
        (-1, -2)
    ) / 8  # ||S^{1/2} G S^{1/2}||^2 = tr(S G S G)


def regulariser_gradients(Sigma: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """Compute the gradients of the regulariser.

    With G = A^T A - B^T Sigma B,

        grad_A R = A Sigma G Sigma / 2,
        grad_B R = -Sigma B Sigma G Sigma / 2.

    Parameters
    ----------
    Sigma : ndarray or Tensor (..., d, d)
        The covariance, or its estimate X^T X / n. It must be symmetric, which is not
        checked.
    A : ndarray or Tensor (..., k, d)
        Value matrices.
    B : ndarray or Tensor (..., d, d)
        Key-query matrices.

    Returns
    -------
    grad_A : ndarray or Tensor (..., k, d)
        The gradient with respect to A.
    grad_B : ndarray or Tensor (..., d, d)
        The gradient with respect to B.

    Raises
    ------
    ValueError
        If a shape does not fit, or if an array contains anything but real numbers.

    Examples
    --------
    If A is too large compared with B, descent shrinks A and enlarges B:

    >>> from lib import regression
    >>> one = np.eye(1)
    >>> grad_A, grad_B = regression.regulariser_gradients(one, 2 * one, one)
    >>> float(grad_A[0, 0]), float(grad_B[0, 0])
    (3.0, -1.5)
    """
    Sigma = real("Sigma", Sigma)
    A, B = _layer(A, B, Sigma.shape[-1])
    SGS = Sigma @ (A.mT @ A - B.mT @ Sigma @ B) @ Sigma
    return A @ SGS / 2, -Sigma @ B @ SGS / 2
