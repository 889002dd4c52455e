"""Lemmas 2, 6 and 9 of paper A (2402.05738), put to the worst W there is.

Lemma 6 speaks of every W. Lemmas 2 and 9 speak of the iterates, along which Lemmas 4 and 5 keep the
softmax weights of opt tokens from below; here of every W with such weights, which is more.

A_m = (x_{i,opt} - x_{i,t}) z_i^T for the pairs m = (i, t). Under Assumption 2 -grad L is a sum of
c_m A_m with c >= 0, and depends on W through its margins <A_m, W> alone; of all W with the same
margins the shortest is sum_m alpha_m A_m, K alpha = margins, K the Gram matrix of the A_m. So the
search runs over margins, n (T-1) numbers, and the worst W is found and not sampled.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.fits import log_slope


@dataclass(frozen=True)
class Pairs:
    """The pairs m of one data set: rows A (m, d d_z), Gram matrix K, its inverse, scores (n, T)."""

    A: np.ndarray
    K: np.ndarray
    inverse: np.ndarray
    scores: np.ndarray

    def pulls(self, margins: np.ndarray) -> np.ndarray:
        """c (m,) of -grad L = sum c_m A_m, up to a positive factor, at given margins (m,)."""
        n = len(self.scores)
        logits = np.concatenate([np.zeros((n, 1)), -margins.reshape(n, -1)], 1)[None]
        return -attention.slopes(logits, self.scores[None]).pull[0, :, 1:].ravel()


# Why Lemma 5 fails on antipodal class means.
NOT_ORTHOGONAL = (
    "class means are not nearly orthogonal (Assumption 1 fails): the other class pulls one"
    " sample's weight down"
)


def pairs(tokens: TokenSet, run: int) -> Pairs:
    """The pairs of one run of `tokens`, its opt token first in the scores."""
    one = tokens.run(run)
    A = coordinates.constraint_rows(coordinates.differences(one, one.opt)[0], one.z[0])
    order = np.concatenate([one.opt[..., None], coordinates.others(one.opt, one.shape[2])], -1)
    scores = np.take_along_axis(attention.scores(one, one.u), order, -1)[0]
    K = A @ A.T
    return Pairs(A, K, np.linalg.pinv(K, rcond=1e-12, hermitian=True), scores)


def lemma6(tokens: TokenSet, solution: MaxMargin) -> Claim:
    """<-grad L/||grad L||, W_mm> >= c = 1 / max_m ||A_m||; attained with one pair left to learn.

    Measured: its smallest value over c, at the W whose margins are 40 but for one pair, where it is
    0; every pair of every run.
    """
    smallest = np.inf
    for run in range(len(tokens.y)):
        of = pairs(tokens, run)
        toward = of.A @ solution.W[run].ravel()
        for m in range(len(of.K)):
            c = of.pulls(np.where(np.arange(len(of.K)) == m, 0.0, 40.0))
            inner = c @ toward / np.sqrt(c @ of.K @ c)
            smallest = min(smallest, inner * np.sqrt(np.diag(of.K).max()))
    text = "smallest <-grad L/||grad L||, W_mm> over c, at the worst W"
    return at_least("lemma6", text, "paper A, Lemma 6 (our constant)", smallest, 1 - 1e-6)


def needed(
    of: Pairs, toward: np.ndarray, size: float, radius: float, starts: int, seed: int
) -> float:
    """The largest epsilon that Lemma 2 needs at ||W|| = radius: a maximum over W, found by L-BFGS.

    toward (m,): <A_m, W_mm>; size ||W_mm||. Softmax weights of opt tokens are kept at least 1/(e T)
    by a penalty, as Lemma 5 gives them along training.
    """
    n, T = of.scores.shape
    draw = stream(seed, "draws")

    def at(direction):
        margins = direction * (radius / np.sqrt(direction @ of.inverse @ direction))
        c = of.pulls(margins)
        own, best = c @ margins / radius, c @ toward / size
        log_p = -np.logaddexp(0.0, np.logaddexp.reduce(-margins.reshape(n, -1), -1))
        short = np.maximum(-np.log(np.e * T) - log_p, 0).sum()
        return (1 - best / own if own > 0 else -1.0) - short

    best = -np.inf
    for start in range(starts):
        first = toward + (0.3 * draw.standard_normal(len(toward)) if start else 0.0)
        found = minimize(lambda v: -at(v), first, method="L-BFGS-B", options={"maxiter": 60})
        best = max(best, -found.fun)
    return best


def lemma2(
    tokens: TokenSet, solution: MaxMargin, runs: int = 3, radii=(10, 30, 100, 300), starts: int = 3
) -> list[Claim]:
    """R_eps = O~(1/eps): the eps needed at ||W|| = r ||W_mm||, its maximum over W, falls like 1/r.

    Two claims, over the first runs: eps r / log r does not grow with r (Lemma 2), and the exponent
    of eps / log r in r is at most -1 (Lemma 9; our readings of O~).
    """
    rows = []
    for run in range(runs):
        of = pairs(tokens, run)
        toward, size = of.A @ solution.W[run].ravel(), solution.norm[run]
        rows.append([needed(of, toward, size, r * size, starts, run) for r in radii])
    eps, source = np.maximum(rows, 1e-16), "paper A, {} (our reading)".format
    scaled = eps * np.array(radii) / np.log(radii)
    grown = (scaled[:, 0] / scaled[:, -1]).min()
    slopes = log_slope(radii, eps / np.log(radii))
    fall = "exponent of eps / log R in R = ||W||, largest"
    text = f"eps at ||W|| = {radii[0]} ||W_mm|| over that at {radii[-1]}, each times R/log R"
    return [
        at_least("lemma2", text, source("Lemma 2"), grown, 1.0),
        at_most("lemma9", fall, source("Lemma 9"), slopes.max(), -1.0),
    ]
