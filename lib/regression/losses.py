"""Paper B's population loss and regulariser, in closed form, with their gradients.

The layer Z = (A; B) has the value matrix A (..., k, d) and the key-query matrix B (..., d, d),
whose leading axes count runs. Functions take numpy arrays or torch tensors and return the same.
"""

import numpy as np

from lib.regression.problem import Regression


def population_loss(problem: Regression, A, B):
    """L(Z) = 1/2 ||A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}||_F^2 + k noise^2 / 2.

    Source: paper B, Theorem 1. It is 1/2 E ||y - A E'[x' e^{x^T B x'}] / E'[e^{x^T B x'}]||^2 (Eq.
    2), whose ratio is Sigma B^T x. A (..., k, d), B (..., d, d).
    """
    return excess_loss(problem, A, B) + problem.optimal_loss


def excess_loss(problem: Regression, A, B):
    """L(Z) - min L, without the rounding of the subtraction, shape (...)."""
    E, _, _ = _residual(problem, A, B)
    return (E * E).sum((-1, -2)) / 2


def _residual(problem, A, B):
    Sigma, root, M = (_like(a, A) for a in (problem.Sigma, problem.root, problem.M))
    return (A @ Sigma @ B.mT - M) @ root, Sigma, root


def population_gradients(problem: Regression, A, B):
    """grad_A L = E Sigma^{1/2} B Sigma and grad_B L = Sigma^{1/2} E^T A Sigma (ours).

    E = A Sigma B^T Sigma^{1/2} - M Sigma^{1/2}, the matrix whose norm is in the loss.
    """
    E, Sigma, root = _residual(problem, A, B)
    return E @ root @ B @ Sigma, root @ E.mT @ A @ Sigma


def regulariser(Sigma, A, B):
    """R(Z) = 1/8 ||Sigma^{1/2} (A^T A - B^T Sigma B) Sigma^{1/2}||_F^2, shape (...).

    Sigma (..., d, d) is the covariance (population) or X^T X / n (empirical). Paper B's formula is
    blank; this is the one with which grad(L + R) takes the form of Eqs. 5 and 6.
    """
    G = A.mT @ A - B.mT @ Sigma @ B
    return ((Sigma @ G) * (Sigma @ G).mT).sum((-1, -2)) / 8  # ||S^{1/2} G S^{1/2}||^2 = tr(S G S G)


def regulariser_gradients(Sigma, A, B):
    """grad_A R = 1/2 A Sigma G Sigma and grad_B R = -1/2 Sigma B Sigma G Sigma.

    Here G = A^T A - B^T Sigma B.
    """
    SGS = Sigma @ (A.mT @ A - B.mT @ Sigma @ B) @ Sigma
    return A @ SGS / 2, -Sigma @ B @ SGS / 2


def _like(value, other):
    if isinstance(other, np.ndarray):
        return value
    import torch  # only where tensors come in

    return torch.as_tensor(value, dtype=other.dtype, device=other.device)
