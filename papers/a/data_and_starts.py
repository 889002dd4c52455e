"""Statements of paper A (2402.05738) on data and starts alone, as checked claims.

What holds with probability 1 - delta is checked by the upper end, at 95 %, of the probability that
it fails, which must not exceed delta: 28 draws without a failure are too few for delta = 0.1.
Constants that the paper's text lost are ours and marked so.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.dynamics.gradient_descent import Start
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.a.fixed_head import FLOAT, bound_on_tokens
from papers.fits import log_slope


def lemma4(
    tokens: TokenSet, start: Start, std: float, dimension: int, delta: float = 0.1
) -> list[Claim]:
    """Gaussian W_0 of entry size std: |x^T W_0 z| <= c for all tokens, with probability 1 - delta.

    Then T p_{i,t} is in [e^-2c, e^2c]. c by the union bound over Gaussian tails, sum 2 Q(c / (std
    ||x|| ||z||)) = delta, which is at most std B^2 sqrt(2 log(2 n T/delta)) (our constant).
    ||W_0||_F is std d, d the `dimension` of tokens, within 3 % in every draw. Source: paper A,
    Lemma 4.
    """
    sizes = std * np.linalg.norm(tokens.X, axis=-1) * np.linalg.norm(tokens.z, axis=-1)[..., None]
    logits = np.abs(attention.logits(tokens, start.inside)).max((1, 2))
    share = logits / _union_bound(sizes, delta)
    size = np.hypot(np.linalg.norm(start.inside, axis=(1, 2)), start.outside)
    source = "paper A, Lemma 4 (our constant)"
    text = f"largest |x^T W_0 z| of a start over c, quantile {1 - delta:g}"
    most = np.quantile(share, 1 - delta)
    norm, ratio = "largest ||W_0||_F over std d, any start", (size / (std * dimension)).max()
    return [
        at_most("lemma4.logits", text, source, most, 1.0),
        close("lemma4.norm", norm, "paper A, Lemma 4", ratio, 1.0, 0.03),
    ]


def _union_bound(sizes: np.ndarray, delta: float) -> np.ndarray:
    """c (runs,) with sum 2 Q(c / size) = delta over the sizes (runs, n, T), by bisection."""
    low, high = np.zeros(len(sizes)), 40 * sizes.max((1, 2))
    for _ in range(60):
        middle = (low + high) / 2
        wide = 2 * ndtr(-middle[:, None, None] / sizes).sum((1, 2)) > delta
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return high


def start_size(tokens: TokenSet, delta: float = 0.1) -> float:
    """The entry size of W_0 at which Lemma 4's c is 1/2: weights within a factor e of 1/T."""
    _, n, T, _ = tokens.shape
    tail = np.sqrt(2 * np.log(2 * n * T / delta))
    return float(0.5 / (bound_on_tokens(tokens).max() ** 2 * tail))


def assumption1(tokens: TokenSet) -> np.ndarray:
    """Near orthogonality as a margin, b^2 (a^2 - 3 mu) / (4 n C mu^2), (runs,): >= 1 suffices.

    mu the largest |<x, x'>| of two distinct tokens, a the smallest norm of an opt token and b of a
    query, and C = e^{Delta/2} Delta_max / (4 Delta_min phi (1 - phi)), phi = 1/(e T), bounds how
    much more one sample can pull than another while p_opt is in [phi, 1/2] (our constants). Under
    it the opt logit of a sample that is not yet settled cannot fall (Lemma 5).
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


def imbalance(tokens: TokenSet) -> np.ndarray:
    """Spread of the other tokens' scores over the least gap to the opt token, (runs,); 0 by A2."""
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    rest = np.take_along_axis(scores, coordinates.others(tokens.opt, tokens.shape[2]), -1)
    return np.ptp(rest, axis=-1).max(1) / (best - rest.max(-1)).min(1)


def definition1(tokens: TokenSet) -> Claim:
    """The opt token is the best by a gap: smallest gap of scores over the largest score."""
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    rest = np.take_along_axis(scores, coordinates.others(tokens.opt, tokens.shape[2]), -1)
    smallest = ((best - rest) / np.abs(scores).max((1, 2), keepdims=True)).min()
    text = "smallest score gap to the opt token, over the largest score"
    return at_least("definition1", text, "paper A, Definition 1", smallest, FLOAT)


def probability_at_most(failed: np.ndarray) -> float:
    """The upper end, at 95 %, of a probability of which `failed` (draws,) says where it occurred.

    Clopper and Pearson (1934): the p at which so few of the draws would fail in 5 % of the cases.
    """
    k, draws = int(failed.sum()), failed.size
    return float(beta.ppf(0.95, k + 1, draws - k)) if k < draws else 1.0


def lemma8(tokens: TokenSet, delta: float = 0.1) -> list[Claim]:
    """Data satisfy Assumptions 1 and 2 with probability 1 - delta: that of the draws that do not.

    Assumption 1 in our sufficient form, whose smallest margin is the third claim; and whether other
    tokens' scores differ by more than rounding.
    """
    form, near = "paper A, Assumption 1 (our reading)", assumption1(tokens)
    apart = probability_at_most(near < 1), probability_at_most(imbalance(tokens) > 1e-9)
    texts = "probability of a draw without Assumption {}, upper end at 95 %".format
    least = "smallest b^2 (a^2 - 3 mu) / (4 n C mu^2) of any draw"
    return [
        at_most("assumption1", texts(1), form, apart[0], delta),
        at_most("assumption2", texts(2), "paper A, Assumption 2", apart[1], delta),
        at_least("assumption1.margin", least, form, near.min(), 1.0),
    ]


def lemma11(tokens: TokenSet, signal: float, noise: float, delta: float = 0.1) -> list[Claim]:
    """(DM): norms and cross products concentrate with probability 1 - delta.

    With m tokens, s = log(2 m^2/delta) and r the norm scale of a token (noise, or signal noise): |
    ||x||^2 / r^2 - d | <= 2 sqrt(d s) + 2 s and |<x, x'>| <= r r' (sqrt(2 d s) + s) (Laurent and
    Massart, 2000; our constants). Measured: what a draw does not exceed with probability 1 - delta,
    over its bound.
    """
    d = tokens.shape[-1]
    s = np.log(2 * (2 * tokens.shape[1]) ** 2 / delta)
    norms, products = spreads(tokens, signal, noise)
    text = f"{{}} over its bound, quantile {1 - delta:g}"
    source = "paper A, Lemma 11 (our constant)"
    norms = np.quantile(norms, 1 - delta) / (2 * np.sqrt(d * s) + 2 * s)
    products = np.quantile(products, 1 - delta) / (np.sqrt(2 * d * s) + s)
    return [
        at_most("lemma11.norms", text.format("largest | |x|^2/r^2 - d |"), source, norms, 1.0),
        at_most("lemma11.cross", text.format("largest |<x, x'>| / (r r')"), source, products, 1.0),
    ]


def lemma11_exponents(
    draw: Callable[[Sequence[int], int], TokenSet], draws: int, signal: float, off: float
) -> list[Claim]:
    """(DM): norms and cross products spread like d^{1/2}: exponents in d of the median draw.

    draw(seeds, d): tokens of noise 1/sqrt(d). off: by what the measured exponents are made wrong.
    """
    sizes, found = (400, 1600, 6400), []
    for d in sizes:  # one draw at a time: all of them are large
        each = [spreads(draw([seed], d), signal, d**-0.5) for seed in range(draws)]
        found.append(np.median(each, axis=0)[:, 0])
    slopes = log_slope(sizes, np.transpose(found)) + off
    source, text = "paper A, Lemma 11 (our reading)", "exponent in d of the largest {}".format
    texts = {"norms": "| |x|^2/r^2 - d |", "cross": "|<x, x'>| / (r r')"}
    return [
        close(f"lemma11.exponent.{name}", text(what), source, slope, 0.5, 0.05)
        for (name, what), slope in zip(texts.items(), slopes, strict=True)
    ]


def spreads(tokens: TokenSet, signal: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Largest | ||x||^2 / r^2 - d | and |<x, x'>| / (r r') of each draw of (DM), (runs,) each."""
    runs, n, _, d = tokens.shape
    scales = np.tile([noise, signal * noise], n)[:, None]
    last_two = tokens.X[:, :, -2:].reshape(runs, 2 * n, d) / scales
    products = last_two @ np.swapaxes(last_two, 1, 2)
    norms = np.abs(np.diagonal(products, axis1=1, axis2=2) - d).max(1)
    products[:, range(2 * n), range(2 * n)] = 0.0
    return norms, np.abs(products).max((1, 2))


def lemma14(tokens: TokenSet, head: MaxMargin) -> list[Claim]:
    """y_i (p x_{i,opt} + (1-p) x_{i,t}) are separable for p in [1/2, 1], by u_mm.

    Its margin is 1 on opt tokens, and at least 1/4 on their mixtures (our constant).
    """
    scores = attention.scores(tokens, head.value)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    text, source = "smallest margin of u_mm on {}", "paper A, Lemma 14"
    mixed, form = ((best + scores) / 2).min(), f"{source} (our constant)"
    return [
        at_least("lemma14.opt", text.format("opt tokens"), source, best.min(), 1 - 1e-6),
        at_least("lemma14.mixed", text.format("mixtures with others"), form, mixed, 0.25),
    ]


def wrong_selection(tokens: TokenSet, seeds: Sequence[int]) -> np.ndarray:
    """For every sample a random token that is not its opt token, (runs, n), one seed per run.

    Its token SVM gives a local max-margin direction: the kind of direction that the local theory
    (2308.16898) says training may end in.
    """
    _, n, T, _ = tokens.shape
    shift = np.stack([stream(seed, "selection").integers(1, T, n) for seed in seeds])
    return (tokens.opt + shift) % T
