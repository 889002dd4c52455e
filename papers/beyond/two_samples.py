"""Two samples of two tokens: from zero, is the max-margin selection reached? In closed form.

`notebooks/law_of_margins.md` has the theorem and its proof, section "Two samples". A_1, A_2 are the
features of the two pairs, K their Gram matrix, the better tokens are selected, Delta_i > 0.
"""

from typing import NamedTuple

import numpy as np

from lib.attention import coordinates, losses, model
from lib.attention.token_sets import TokenSet


class Criterion(NamedTuple):
    """theta*, R_0 and R_1 of (17); theta* is -inf where K_12 >= 0."""

    threshold: float
    start: float
    most: float

    @property
    def reached(self) -> bool | None:
        """Whether it is; None where R_0 <= theta* < R_1, which the theorem leaves open."""
        if self.start > self.threshold:
            return True
        return None if self.most > self.threshold else False


def criterion(tokens: TokenSet, loss: str = "exponential") -> Criterion:
    """The criterion of one run (n = T = 2), for a loss whose |l'| does not increase.

    Raises ValueError for other sizes, for equal scores in a sample, for dependent A_1, A_2, and for
    the sigmoid loss.
    """
    scores = model.scores(tokens, tokens.u)[0]
    if scores.shape != (2, 2) or loss == "sigmoid":
        raise ValueError(f"n, T = {scores.shape}, {loss} loss; it needs two, two and a convex one")
    K = coordinates.gram(coordinates.differences(tokens, scores.argmax(1)[None]), tokens.z)[0]
    if not (np.ptp(scores, axis=1).all() and np.linalg.det(K) > 1e-12 * K.diagonal().prod()):
        raise ValueError("two samples of different scores and of independent A_1, A_2 are needed")
    one, two = np.argsort(-K.diagonal(), kind="stable")
    low, high = scores.min(1), scores.max(1)
    slope = lambda f, i: np.exp(losses.log_derivative(f[i], loss)) * (high - low)[i]
    threshold = (-K[0, 1] - K[two, two]) / (K[one, one] + K[0, 1]) if K[0, 1] < 0 else -np.inf
    middle = (low + high) / 2
    start, most = slope(middle, one) / slope(middle, two), slope(low, one) / slope(high, two)
    return Criterion(float(threshold), float(start), float(most))
