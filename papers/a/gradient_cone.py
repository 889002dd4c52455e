"""Lemmas 2, 6 and 9 of paper A (2402.05738), put to the worst W there is.

Lemmas 2 and 9 speak of iterates; here of every W whose opt weights Lemmas 4 and 5 allow. A_m =
(x_{i,opt} - x_{i,t}) z_i^T for the pairs m = (i, t). Under Assumption 2 -grad L is a sum of c_m A_m
with c >= 0, and depends on W through its margins <A_m, W> alone; of all W with the same margins the
shortest is sum_m alpha_m A_m, K alpha = margins, K the Gram matrix of the A_m. So the search runs
over margins, n (T-1) numbers, and the worst W is found and not sampled.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.a.statements import PAPER
from papers.fits import log_slope


@dataclass(frozen=True)
class _Pairs:
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


NOT_ORTHOGONAL = (  # why Lemma 5 fails on antipodal class means
    "class means are not nearly orthogonal (Assumption 1 fails): the other class pulls one"
    " sample's weight down"
)


def _pairs(tokens, run):
    """The pairs of one run of `tokens`, its opt token first in the scores."""
    tokens = tokens.run(run)
    A = coordinates.constraint_rows(coordinates.differences(tokens, tokens.opt)[0], tokens.z[0])
    rest = coordinates.others(tokens.opt, tokens.shape[2])
    order = np.concatenate([tokens.opt[..., None], rest], -1)
    scores = np.take_along_axis(attention.scores(tokens, tokens.u), order, -1)[0]
    K = A @ A.T
    return _Pairs(A, K, np.linalg.pinv(K, rcond=1e-12, hermitian=True), scores)


def lemma6(tokens: TokenSet, solution: MaxMargin) -> Claim:
    """<-grad L/||grad L||, W_mm> >= c = 1 / max_m ||A_m||; attained with one pair left to learn.

    Measured over c at the W whose margins are 40 but for one pair, where it is 0; every pair.
    """
    smallest = np.inf
    for run in range(len(tokens.y)):
        pulled = _pairs(tokens, run)
        toward, K = pulled.A @ solution.W[run].ravel(), pulled.K
        for m in range(len(K)):
            c = pulled.pulls(np.where(np.arange(len(K)) == m, 0.0, 40.0))
            inner = c @ toward / np.sqrt(c @ K @ c)
            smallest = min(smallest, inner * np.sqrt(np.diag(K).max()))
    return PAPER.claim("lemma6", smallest)


def _needed(tokens, solution, run, multiple, starts):
    """The largest epsilon that Lemma 2 needs at ||W|| = multiple ||W_mm||, by L-BFGS."""
    pulled, size = _pairs(tokens, run), solution.norm[run]
    toward, radius = pulled.A @ solution.W[run].ravel(), multiple * size
    n, T = pulled.scores.shape
    draw = stream(run, "draws")

    def need(direction):
        margins = direction * (radius / np.sqrt(direction @ pulled.inverse @ direction))
        c = pulled.pulls(margins)
        along_W, along_target = c @ margins / radius, c @ toward / size
        log_p = -np.logaddexp(0.0, np.logaddexp.reduce(-margins.reshape(n, -1), -1))
        short = np.maximum(-np.log(np.e * T) - log_p, 0).sum()
        return (1 - along_target / along_W if along_W > 0 else -1.0) - short

    largest = -np.inf
    for start in range(starts):
        first = toward + (0.3 * draw.standard_normal(len(toward)) if start else 0.0)
        end = minimize(lambda v: -need(v), first, method="L-BFGS-B", options={"maxiter": 60})
        largest = max(largest, -end.fun)
    return largest


def lemma2(
    tokens: TokenSet, solution: MaxMargin, runs: int = 3, radii=(10, 30, 100, 300), starts: int = 3
) -> list[Claim]:
    """R_eps = O~(1/eps): the eps needed at ||W|| = r ||W_mm||, its maximum over W, falls like 1/r.

    Two claims, over the first runs: eps r / log r does not grow with r (Lemma 2), and the exponent
    of eps / log r in r is at most -1 (Lemma 9; our readings of O~).
    """
    needs = [[_needed(tokens, solution, run, r, starts) for r in radii] for run in range(runs)]
    eps = np.maximum(needs, 1e-16)
    scaled = eps * np.array(radii) / np.log(radii)
    ratio, slopes = scaled[:, 0] / scaled[:, -1], log_slope(radii, eps / np.log(radii))
    ends = radii[0], radii[-1]
    return [PAPER.claim("lemma2", ratio.min(), say=ends), PAPER.claim("lemma9", slopes.max())]
