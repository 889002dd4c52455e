"""Where training must end: max-margin token selection, solved in its dual, with a certificate."""

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import nnls

from lib import coordinates
from lib.tokens import TokenSet

ACCURACY = 1e-9  # largest relative duality gap and constraint violation of a returned solution


class Infeasible(ValueError):
    """No W separates the selected tokens. `certificate` (n, T-1) proves it (Farkas): it is non-negative, sums to one,
    and sum_{i,t} certificate_{i,t} (x_{i,selected} - x_{i,t}) z_i^T = 0, so that the constraints, summed with it,
    would say 0 >= 1. `residual` is the norm of that sum relative to its largest term."""

    def __init__(self, run: int, certificate: np.ndarray, residual: float):
        self.run, self.certificate, self.residual = run, certificate, residual
        terms = np.argwhere(certificate > 0)
        listed = ", ".join(f"{certificate[i, t]:.3g} of (sample {i}, pair {t})" for i, t in terms[:6])
        more = f" and {len(terms) - 6} more" if len(terms) > 6 else ""
        super().__init__(
            f"token SVM of run {run} is infeasible: this non-negative combination of its constraints is zero "
            f"(relative residual {residual:.1e}): {listed}{more}. Select other tokens, or raise the dimension."
        )


@dataclass(frozen=True)
class TokenSVM:
    """Solution of the token SVM, one per run, with its certificate.

    duals (runs, n, T-1) beta >= 0 with W = sum beta_{i,t} delta_{i,t} z_i^T; margins (runs, n, T-1)
    delta_{i,t}^T W z_i; objective (runs,) ||W||_F^2 / 2; violation (runs,) largest 1 - margin; gap (runs,) relative
    duality gap; support (runs, n, T-1) the constraints with a positive dual; solver, status, seconds.
    """

    duals: np.ndarray
    margins: np.ndarray
    objective: np.ndarray
    violation: np.ndarray
    gap: np.ndarray
    support: np.ndarray
    solver: tuple[str, ...]
    status: str
    seconds: float
    _delta: np.ndarray
    _z: np.ndarray

    @cached_property
    def W(self) -> np.ndarray:
        """W_mm in the coordinates of the tokens that were solved for, (runs, d, d_z)."""
        pulled = np.einsum("rnt,rntd->rnd", self.duals, self._delta)
        return np.swapaxes(pulled, 1, 2) @ self._z

    @property
    def norm(self) -> np.ndarray:
        """||W_mm||_F, (runs,)."""
        return np.sqrt(2 * self.objective)


def token_svm(tokens: TokenSet, selected: np.ndarray | None = None) -> TokenSVM:
    """W_mm = argmin ||W||_F subject to (x_{i,s_i} - x_{i,t})^T W z_i >= 1 for all i and t != s_i (paper A, W-SVM).

    selected (runs, n): s_i, default the opt tokens. Solved in the n(T-1) unknowns of the dual,
    max_{beta >= 0} 1^T beta - beta^T K beta / 2 with K = `coordinates.gram`, never in d^2: by block principal
    pivoting, and where K is singular by non-negative least squares on its factor.
    Raises Infeasible (a ValueError) with a Farkas certificate, ValueError for a `selected` of the wrong shape or
    range, and RuntimeError when no solution within ACCURACY was found.
    """
    began = time.perf_counter()
    runs, n, T, _ = tokens.shape
    selected = tokens.opt if selected is None else np.asarray(selected)
    if selected.shape != (runs, n) or not np.issubdtype(selected.dtype, np.integer):
        raise ValueError(f"selected has shape {selected.shape}; it needs token indices of shape {(runs, n)}")
    if selected.min() < 0 or selected.max() >= T:
        raise ValueError(f"selected must hold token indices 0 ... {T - 1}")
    delta = coordinates.differences(tokens, selected)
    K = coordinates.gram(delta, tokens.z)
    solved = [_solve(K[run], delta[run], tokens.z[run], run) for run in range(runs)]
    duals = np.stack([beta for beta, _ in solved])  # (runs, m)
    margins = np.einsum("rij,rj->ri", K, duals)
    objective = 0.5 * np.einsum("rm,rm->r", duals, margins)
    violation = np.maximum(0.0, 1.0 - margins.min(1))
    gap = np.abs(duals.sum(1) - 2 * objective) / objective  # primal minus dual objective, relative
    shape = runs, n, T - 1
    return TokenSVM(
        duals.reshape(shape), margins.reshape(shape), objective, violation, gap, duals.reshape(shape) > 0,
        tuple(name for _, name in solved), "optimal", time.perf_counter() - began, delta, tokens.z,
    )  # fmt: skip


def _solve(K, delta, z, run):
    """The dual solution beta (m,) of one run, and the name of the solver that found it."""
    beta = block_pivoting(K)
    if beta is not None and _accurate(K, beta):
        return beta, "block principal pivoting"
    n, S, _ = delta.shape
    factor = np.einsum("ntd,ne->ntde", delta, z).reshape(n * S, -1)  # rows vec(delta_m z_i^T), K = factor factor^T
    beta = _least_distance(factor, run, (n, S))
    if not _accurate(K, beta):
        raise RuntimeError(
            f"token SVM of run {run}: violation {1 - (K @ beta).min():.1e} exceeds {ACCURACY:.0e}; its constraints are "
            "nearly dependent. Rescale the tokens to a common norm, or select other tokens."
        )
    return beta, "non-negative least squares"


def _accurate(K, beta):
    margins = K @ beta
    value = beta @ margins
    return np.isfinite(value) and 1 - margins.min() <= ACCURACY and abs(beta.sum() - value) <= ACCURACY * value


def block_pivoting(K: np.ndarray) -> np.ndarray | None:
    """The beta >= 0 with K beta >= 1 and beta^T (K beta - 1) = 0, K (m, m) symmetric positive definite.

    Block principal pivoting (Judice and Pires, 1994): guess the support, solve on it, exchange every index on the
    wrong side at once; single exchanges when that stops making progress. None where K is singular on a support.
    """
    m = len(K)
    support = np.ones(m, bool)
    fewest, patience = m + 1, 10
    for _ in range(10 * m):
        beta, slack = np.zeros(m), np.zeros(m)
        try:
            factor = cho_factor(K[np.ix_(support, support)], lower=True, check_finite=False)
        except LinAlgError:
            return None
        beta[support] = cho_solve(factor, np.ones(support.sum()), check_finite=False)
        slack[~support] = K[np.ix_(~support, support)] @ beta[support] - 1
        wrong = (support & (beta < 0)) | (~support & (slack < -ACCURACY * 1e-3))
        count = wrong.sum()
        if count == 0:
            return beta
        if count < fewest:
            fewest, patience = count, 10
        elif patience > 0:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False  # only the last one: ends for certain
        support ^= wrong
    return None


def _least_distance(factor, run, shape):
    """Dual of min ||w|| subject to factor w >= 1 by non-negative least squares (Lawson and Hanson, 1974, ch. 23).

    min_{x >= 0} ||factor^T x||^2 + (1^T x - 1)^2; its residual is zero exactly when no w exists, and then x is the proof.
    """
    scale = np.linalg.norm(factor, axis=1).max()
    system = np.vstack([factor.T / scale, np.ones(len(factor))]) if scale > 0 else np.ones((1, len(factor)))
    target = np.zeros(len(system))
    target[-1] = 1.0
    x, residual = nnls(system, target)
    if residual**2 < 1e-13:  # 1 - sum(x) equals residual^2 at the optimum
        x = x / x.sum()
        size = np.linalg.norm(factor.T @ x) / max((x * np.linalg.norm(factor, axis=1)).max(), np.finfo(float).tiny)
        raise Infeasible(run, x.reshape(shape), size)
    support = x > 0
    # The least-norm w with margin 1 on the support, once more, for the last digits; beta = pinv(factor^T) w.
    left, values, right = np.linalg.svd(factor[support], full_matrices=False)
    keep = values > values[0] * max(factor.shape) * np.finfo(float).eps
    beta = np.zeros(len(factor))
    beta[support] = left[:, keep] @ ((left[:, keep].sum(0)) / values[keep] ** 2)
    return beta if (beta >= 0).all() else x / (scale**2 * (1 - x.sum()))
