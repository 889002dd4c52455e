"""A bound on what the saturated flow leaves outside the support's span, proved, from data alone.

The flow follows -grad log L, L = sum_m kappa_m e^{-g_m} over all pairs, all kappa_m > 0, from W =
0. Along it log L + a never rises, a = <W, W_mm>/||W_mm||^2, since all margins of W_mm are at least
1. So no pull exceeds the sum of all kappa over e^a, and the offsets o_k = g_k - a on the support
stay where sum kappa_k e^{-o_k} <= sum of all kappa and sum beta_k o_k = 0. Let R_m be the largest
that -<A_m, .> gets there, eps_m the excess of pair m off the support, mean = E_beta
log(kappa/beta), D = log(sum of all kappa) - mean and Y_m = log kappa_m + R_m - mean - D. Then,
omega being W's part off the span,

    ||omega||^2 <= sum_m e^D/eps_m (Y_m^2 + 1) where Y_m > 1, and e^D/eps_m 2 e^{Y_m - 1} elsewhere.

The proof stands in `notebooks/where_the_law_bends.md`.
"""

import numpy as np
from scipy.optimize import brentq

FARTHEST = 1e6  # log of the largest and the smallest multiplier that is tried


def lowest(direction: np.ndarray, beta: np.ndarray, slopes: np.ndarray, total: float) -> float:
    """min <direction, o> with <beta, o> = 0 and sum e^{slopes - o} <= e^total, all (k,).

    The shares e^{slopes - o} / e^total are proportional to direction - nu beta > 0; nu is where
    <beta, o> = 0. Minus infinity where no multiplier within FARTHEST does it.
    """
    first = (direction / beta).argmin()
    spread = direction - (direction / beta)[first] * beta
    spread[first] = 0.0  # without its rounding
    with np.errstate(divide="ignore"):
        log_spread = np.log(spread.clip(0))

    def offsets(depth):
        shares = np.logaddexp(log_spread, depth + np.log(beta))
        return slopes - total - shares + np.logaddexp.reduce(shares)

    def balance(depth):
        return beta @ offsets(depth)

    if len(beta) == 1:
        return 0.0
    if not balance(-FARTHEST) > 0 >= balance(FARTHEST):
        return -np.inf
    return float(direction @ offsets(brentq(balance, -FARTHEST, FARTHEST)))


def bound(
    K: np.ndarray, on: np.ndarray, beta: np.ndarray, margins: np.ndarray, slopes: np.ndarray
) -> float:
    """The bound on ||omega|| of one run; K (m, m) the Gram matrix of all pairs.

    on (m,): the support; beta, margins, slopes (m,): duals, margins of W_mm and log kappa.
    """
    held = beta[on]
    mean = held @ (slopes[on] - np.log(held)) / held.sum()
    total = np.logaddexp.reduce(slopes)
    inside = np.linalg.solve(K[np.ix_(on, on)], K[np.ix_(on, ~on)]).T  # (off, on)
    farthest = np.array([-lowest(row, held, slopes[on], total) for row in inside])
    Y = slopes[~on] + farthest - total
    terms = np.where(Y > 1, Y**2 + 1, 2 * np.exp(np.minimum(Y, 1) - 1))
    return float(np.sqrt(np.exp(total - mean) * (terms / (margins[~on] - 1)).sum()))
