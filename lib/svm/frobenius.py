"""Least Frobenius norm with all margins at least 1, solved in its dual; or the proof that no
margins exist.

The dual has one unknown per constraint, max_{beta >= 0} 1^T beta - beta^T K beta / 2 with K the
Gram matrix of the constraints, so that the d x d_z unknowns of W never appear. Its optimality
conditions, beta >= 0, K beta >= 1 and beta^T (K beta - 1) = 0, say which constraints carry W: guess
that set, solve, exchange what is wrong.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dgemv
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import nnls

from lib.attention.coordinates import constraint_rows

ACCURACY = (
    1e-9  # largest relative duality gap and constraint violation of a returned Frobenius solution
)


class Infeasible(ValueError):
    """No W (or v) reaches positive margins, whatever the norm.

    `certificate`, shaped like the duals of one run, proves it (Farkas): it is non-negative, sums to
    one, and sum certificate_{i,t} (x_{i,s_i} - x_{i,t}) z_i^T = 0, for the head sum certificate_i
    y_i x_{i,s_i} = 0, so that the constraints, summed with it, would say 0 >= 1. `residual` is the
    norm of that sum relative to its largest term, `run` the run it happened in.
    """

    def __init__(self, problem: str, run: int, certificate: np.ndarray, residual: float):
        self.run, self.certificate, self.residual = run, certificate, residual
        terms = np.argwhere(certificate > 0)
        shares = [
            f"{certificate[tuple(t)]:.3g} of (sample {', pair '.join(map(str, t))})"
            for t in terms[:6]
        ]
        more = f" and {len(terms) - 6} more" if len(terms) > 6 else ""
        super().__init__(
            f"{problem} of run {run} is infeasible: this non-negative combination of its constraints is zero "
            f"(relative residual {residual:.1e}): {', '.join(shares)}{more}. "
            "Select other tokens, or raise the dimension."
        )


def solve(K, delta, z, problem, run, shape):
    """The dual solution beta (m,) of one run, and the name of the method that found it.

    K (m, m) the Gram matrix of the m = n S constraints; delta (n, S, d) and z (n, d_z) their
    factors; `problem`, `run` and the `shape` of a certificate are for messages. Raises Infeasible
    with a Farkas certificate, and RuntimeError where no solution within ACCURACY was found.
    """
    unknowns = min(delta.shape[-1], len(K)) * min(z.shape)  # of W within the spans of delta and z
    if len(K) <= unknowns:
        beta = block_pivoting(K)
        if beta is not None and _accurate(K, beta):
            return beta, "block principal pivoting"
    beta, x = _proximal(K)
    if beta is not None:
        return beta, "proximal block principal pivoting"
    x, residual = _null_combination(constraint_rows(*thin(delta, z)[:2]), x)
    if residual < 1e-10:
        raise Infeasible(problem, run, x.reshape(shape), residual)
    raise RuntimeError(
        f"{problem} of run {run}: no solution within {ACCURACY:.0e}, and no proof that there is none; its "
        "constraints are nearly dependent. Rescale the tokens to a common norm, or select other tokens."
    )


def block_pivoting(
    K: np.ndarray, b: np.ndarray | None = None, support: np.ndarray | None = None
) -> np.ndarray | None:
    """The beta >= 0 with K beta >= b and beta^T (K beta - b) = 0, K (m, m) symmetric positive
    definite, b = 1 (m,).

    Block principal pivoting (Judice and Pires, 1994): guess the `support` (default: all), solve on
    it, exchange every index on the wrong side at once; where that stops making progress,
    non-negative least squares. None where K is singular.
    """
    m = len(K)
    b = np.ones(m) if b is None else b
    support = np.ones(m, bool) if support is None else support.copy()
    slack_tolerance = ACCURACY * 1e-3 * np.abs(b).max()
    fewest, patience = m + 1, 10
    while True:
        inside = np.flatnonzero(support)
        beta = np.zeros(m)
        slack = -b
        if inside.size:
            factor, failed = dpotrf(K[np.ix_(inside, inside)], lower=1, clean=0, overwrite_a=1)
            if failed:
                return None
            beta[inside] = dpotrs(factor, b[inside], lower=1)[0]
            slack = dgemv(1.0, K.T, beta) - b
        wrong = np.where(support, beta < 0, slack < -slack_tolerance)
        count = wrong.sum()
        if count == 0:
            return beta
        if count < fewest:
            fewest, patience = count, 10
        elif patience == 0:
            break
        else:
            patience -= 1
        support ^= wrong
    factor, failed = dpotrf(K, lower=1)
    if failed:
        return None
    # beta^T K beta / 2 - b^T beta = ||L^T beta - L^-1 b||^2 / 2 + const.: one exchange a time,
    # never a cycle.
    return nnls(factor.T, solve_triangular(factor, b, lower=True), maxiter=10 * m)[0]


def _accurate(K, beta):
    margins = K @ beta
    value = beta @ margins
    closed = abs(beta.sum() - value) <= ACCURACY * value
    return np.isfinite(value) and 1 - margins.min() <= ACCURACY and closed


def _proximal(K):
    """(beta, x): the dual solution for any K, or None for it; and the x that it comes from.

    x solves min_{x >= 0} ||A^T x||^2 / scale^2 + (1^T x - 1)^2 (Lawson and Hanson, 1974, ch. 23),
    which has a solution whether or not a w exists: with A A^T = K, beta = x / (scale^2 (1 - 1^T x))
    if one does; otherwise A^T x = 0 and 1^T x = 1. Each step adds rho ||x - last||^2, which
    vanishes as the steps converge and leaves no singular matrix.
    """
    scale = np.sqrt(np.diag(K).max())
    bounded = K / scale**2 + 1 if scale > 0 else np.ones_like(K)
    diagonal = np.diag(bounded).copy()
    x, nearest = np.zeros(len(K)), bounded.sum(1)
    support = nearest <= np.median(
        nearest
    )  # a first guess: what the sum of all constraints satisfies least
    for rho in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-10, 1e-10):
        np.fill_diagonal(bounded, diagonal + rho)
        new = block_pivoting(bounded, 1 + rho * x, support)
        if new is None:
            break
        x, support = new, new > 0
        slack = 1 - x.sum()
        if slack > 1e-13 and rho < 1e-6:
            beta = x / (scale**2 * slack)
            if _accurate(K, beta):
                return beta, x
    beta = block_pivoting(
        K, support=support
    )  # 1 - 1^T x loses digits where W is large; its support is right
    return (beta if beta is not None and _accurate(K, beta) else None), x


def thin(delta: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, ...]:
    """delta (n, S, r) and z (n, q) in orthonormal bases of their spans, and these bases (d, r) and
    (d_z, q).

    The Gram matrix stays the same, and with it every margin and every rotation-invariant norm.
    """
    n, S, d = delta.shape
    token_basis, flat = np.linalg.qr(delta.reshape(n * S, d).T)
    query_basis, queries = np.linalg.qr(z.T)
    return flat.T.reshape(n, S, -1), queries.T, token_basis, query_basis


def _null_combination(rows, x):
    """x >= 0 with 1^T x = 1, moved onto rows^T x = 0, and ||rows^T x|| relative to its largest
    term.

    Entries that would turn negative are left out; where no such x is found, that norm is infinite.
    """
    support = np.flatnonzero(x > 0)
    while support.size:
        inside = rows[support]
        weights = x[support] - np.linalg.lstsq(inside.T, x[support] @ inside, rcond=None)[0]
        if weights.sum() < 0.5:  # the projection of a proof, which sums to one, hardly moves it
            break
        if weights.min() >= 0:
            x = np.zeros(len(x))
            x[support] = weights / weights.sum()
            largest = (x[support] * np.linalg.norm(inside, axis=1)).max()
            return x, np.linalg.norm(x[support] @ inside) / largest if largest > 0 else 0.0
        support = support[weights > 0]
    return x, np.inf
