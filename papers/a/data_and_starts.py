"""What paper A (2402.05738) states of data and starts alone, measured on draws.

What holds with probability 1 - DELTA is checked by the upper end, at 95 %, of the probability that
it fails, which must not exceed DELTA: 28 draws without a failure are too few. Constants that the
paper's text lost are ours. The claims' words and bounds are in `statements.toml`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim
from lib.dynamics.gradient_descent import Start
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.a.fixed_head import bound_on_tokens, claim
from papers.a.statements import PAPER
from papers.fits import log_slope

DELTA = 0.1


def lemma4(tokens: TokenSet, start: Start, std: float, dimension: int) -> list[Claim]:
    """Gaussian W_0 of entry size std: |x^T W_0 z| <= c for all tokens, with probability 1 - DELTA.

    Then T p_{i,t} is in [e^-2c, e^2c]. c by the union bound over Gaussian tails, sum 2 Q(c / (std
    ||x|| ||z||)) = DELTA, at most std B^2 sqrt(2 log(2 n T/DELTA)). ||W_0||_F is std d, d the
    `dimension` of tokens, within 3 % in every draw.
    """
    sizes = std * np.linalg.norm(tokens.X, axis=-1) * np.linalg.norm(tokens.z, axis=-1)[..., None]
    logits = np.abs(attention.logits(tokens, start.inside)).max((1, 2))
    share = logits / _union_bound(sizes, DELTA)
    size = np.hypot(np.linalg.norm(start.inside, axis=(1, 2)), start.outside)
    ratio = (size / (std * dimension)).max()
    return [claim("lemma4.logits", np.quantile(share, 1 - DELTA)), claim("lemma4.norm", ratio)]


def _union_bound(sizes: np.ndarray, delta: float) -> np.ndarray:
    """c (runs,) with sum 2 Q(c / size) = delta over the sizes (runs, n, T), by bisection."""
    low, high = np.zeros(len(sizes)), 40 * sizes.max((1, 2))
    for _ in range(60):
        middle = (low + high) / 2
        wide = 2 * ndtr(-middle[:, None, None] / sizes).sum((1, 2)) > delta
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return high


def start_size(tokens: TokenSet) -> float:
    """The entry size of W_0 at which Lemma 4's c is 1/2: weights within a factor e of 1/T."""
    _, n, T, _ = tokens.shape
    tail = np.sqrt(2 * np.log(2 * n * T / DELTA))
    return float(0.5 / (bound_on_tokens(tokens).max() ** 2 * tail))


def _assumption1(tokens: TokenSet) -> np.ndarray:
    """Near orthogonality as a margin, b^2 (a^2 - 3 mu) / (4 n C mu^2), (runs,): >= 1 suffices.

    mu the largest |<x, x'>| of two distinct tokens, a the smallest norm of an opt token and b of a
    query; C = e^{Delta/2} Delta_max / (4 Delta_min phi (1 - phi)), phi = 1/(e T), bounds how much
    more one sample pulls than another while p_opt is in [phi, 1/2] (our constants; Lemma 5).
    """
    runs, n, T, d = tokens.shape
    flat = tokens.X.reshape(runs, n * T, d)
    cross = np.abs(flat @ np.swapaxes(flat, 1, 2))
    squared = np.diagonal(cross, axis1=1, axis2=2).reshape(runs, n, T)
    a = np.take_along_axis(squared, tokens.opt[..., None], -1).min((1, 2))
    cross[:, range(n * T), range(n * T)] = 0.0
    mu = cross.max((1, 2))
    gaps = np.ptp(attention.scores(tokens, tokens.u), axis=-1)  # (runs, n), under Assumption 2
    phi = 1 / (np.e * T)
    C = np.exp(gaps.max(1) / 2) * gaps.max(1) / (4 * gaps.min(1) * phi * (1 - phi))
    return (tokens.z**2).sum(-1).min(1) * (a - 3 * mu) / (4 * n * C * mu**2)


def _imbalance(tokens: TokenSet) -> np.ndarray:
    """Spread of the other tokens' scores over the least gap to the opt token, (runs,); 0 by A2."""
    best, rest = _split_scores(tokens)
    return np.ptp(rest, axis=-1).max(1) / (best - rest).min((1, 2))


def definition1(tokens: TokenSet) -> Claim:
    """The opt token is the best by a gap: smallest gap of scores over the largest score."""
    best, rest = _split_scores(tokens)
    largest = np.abs(attention.scores(tokens, tokens.u)).max((1, 2), keepdims=True)
    return claim("definition1", ((best - rest) / largest).min())


def _split_scores(tokens):
    """Scores of the opt tokens, (runs, n, 1), and of the others, (runs, n, T-1)."""
    scores = attention.scores(tokens, tokens.u)
    rest = coordinates.others(tokens.opt, tokens.shape[2])
    return (np.take_along_axis(scores, at, -1) for at in (tokens.opt[..., None], rest))


def _probability_at_most(failed: np.ndarray) -> float:
    """The upper end, at 95 %, of a probability of which `failed` (draws,) says where it occurred.

    Clopper and Pearson (1934): the p at which so few of the draws would fail in 5 % of the cases.
    """
    k, draws = int(failed.sum()), failed.size
    return float(beta.ppf(0.95, k + 1, draws - k)) if k < draws else 1.0


def lemma8(tokens: TokenSet) -> list[Claim]:
    """The probability that a draw breaks Assumption 1, or 2, and the margin of the first."""
    margin = _assumption1(tokens)
    far, unequal = (_probability_at_most(x) for x in (margin < 1, _imbalance(tokens) > 1e-9))
    values = {"assumption1": far, "assumption2": unequal, "assumption1.margin": margin.min()}
    return PAPER.claims(values)


def lemma11(tokens: TokenSet, signal: float, noise: float) -> list[Claim]:
    """(DM): norms and cross products concentrate with probability 1 - DELTA.

    With m tokens, s = log(2 m^2/DELTA) and r the norm scale of a token (noise, or signal noise): |
    ||x||^2 / r^2 - d | <= 2 sqrt(d s) + 2 s and |<x, x'>| <= r r' (sqrt(2 d s) + s) (Laurent and
    Massart, 2000; our constants). Measured: the quantile of the draws, over its bound.
    """
    d = tokens.shape[-1]
    s = np.log(2 * (2 * tokens.shape[1]) ** 2 / DELTA)
    norms, products = _spreads(tokens, signal, noise)
    norms = np.quantile(norms, 1 - DELTA) / (2 * np.sqrt(d * s) + 2 * s)
    products = np.quantile(products, 1 - DELTA) / (np.sqrt(2 * d * s) + s)
    return [claim("lemma11.norms", norms), claim("lemma11.cross", products)]


def lemma11_exponents(
    draw: Callable[[Sequence[int], int], TokenSet], draws: int, signal: float, off: float
) -> list[Claim]:
    """(DM): norms and cross products spread like d^{1/2}: exponents in d of the median draw.

    draw(seeds, d): tokens of noise 1/sqrt(d). off: by what the measured exponents are made wrong.
    """
    sizes, medians = (400, 1600, 6400), []
    for d in sizes:  # one draw at a time: all of them are large
        each = [_spreads(draw([seed], d), signal, d**-0.5) for seed in range(draws)]
        medians.append(np.median(each, axis=0)[:, 0])
    norms, products = log_slope(sizes, np.transpose(medians)) + off
    slopes = {"lemma11.exponent.norms": norms, "lemma11.exponent.cross": products}
    return PAPER.claims(slopes)


def _spreads(tokens: TokenSet, signal: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Largest | ||x||^2 / r^2 - d | and |<x, x'>| / (r r') of each draw of (DM), (runs,) each."""
    runs, n, _, d = tokens.shape
    scales = np.tile([noise, signal * noise], n)[:, None]
    last_two = tokens.X[:, :, -2:].reshape(runs, 2 * n, d) / scales
    products = last_two @ np.swapaxes(last_two, 1, 2)
    norms = np.abs(np.diagonal(products, axis1=1, axis2=2) - d).max(1)
    products[:, range(2 * n), range(2 * n)] = 0.0
    return norms, np.abs(products).max((1, 2))


def lemma14(tokens: TokenSet, head: MaxMargin) -> list[Claim]:
    """y_i (p x_{i,opt} + (1-p) x_{i,t}), p in [1/2, 1], are separable, by u_mm."""
    scores = attention.scores(tokens, head.value)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    mixed = ((best + scores) / 2).min()
    return [claim("lemma14.opt", best.min()), claim("lemma14.mixed", mixed)]


def wrong_selection(tokens: TokenSet, seeds: Sequence[int]) -> np.ndarray:
    """For every sample a random token that is not its opt token, (runs, n), one seed per run."""
    _, n, T, _ = tokens.shape
    shift = np.stack([stream(seed, "selection").integers(1, T, n) for seed in seeds])
    return (tokens.opt + shift) % T
