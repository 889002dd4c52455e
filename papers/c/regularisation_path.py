"""The regularisation path W_R = argmin L(W) over ||W||_{p,p} <= R, beside descent.

The problem is not convex: it is solved from several starts, and the best is kept.
"""

import numpy as np
from scipy.optimize import minimize

from lib import attention
from lib.attention.token_sets import TokenSet
from lib.mirror.geometry import norm, to_mirror


def log_gap_and_gradient(tokens: TokenSet, W: np.ndarray) -> tuple[float, np.ndarray]:
    """log(L - L*) of the first run and its gradient at W (d, d_z), logistic; exact at e^-30000."""
    W = W.reshape(1, tokens.shape[-1], -1)
    at = attention.slopes(
        attention.logits(tokens, W), attention.scores(tokens, tokens.u), "logistic"
    )
    pull = at.pull[0] * np.exp(at.log_scale[0] - at.log_gap[0])
    return at.log_gap[0], -np.einsum("nt,ntd,ne->de", pull, tokens.X[0], tokens.z[0])


def solve(
    tokens: TokenSet, p: float, radii: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W_R (k, d, d_z) and log(L(W_R) - L*) (k,) for ascending `radii` (k,), first run.

    The best of L-BFGS from every start (starts, d, d_z) and from the solution for the radius
    before, on the sphere ||W||_{p,p} = R: log(L - L*) as a function of R w / ||w||. The minimum
    lies on it as long as growing helps, as here.
    """
    found, gaps, shape = [], [], starts.shape[1:]

    def objective(w, R):
        size = norm(w, p)
        value, gradient = log_gap_and_gradient(tokens, (R / size * w).reshape(shape))
        gradient = gradient.ravel()
        along = (gradient @ w) / size * to_mirror(w / size, p)  # the part that only changes ||w||
        return value, R / size * (gradient - along)

    for R in radii:
        candidates = [*starts, *found[-1:]]
        tried = [
            minimize(objective, c.ravel() / norm(c.ravel(), p), (R,), "L-BFGS-B", jac=True)
            for c in candidates
        ]
        best = min(tried, key=lambda result: result.fun)
        found.append((R * best.x / norm(best.x, p)).reshape(shape))
        gaps.append(best.fun)
    return np.array(found), np.array(gaps)
