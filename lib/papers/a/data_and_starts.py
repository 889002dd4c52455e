"""Statements of paper A (2402.05738) on data and starts alone, as checked claims: Lemmas 2, 4, 8,
11 and 14.

High-probability statements are checked as the fraction of seeds on which they fail, which must not
exceed delta. Constants that the paper's text lost are ours and marked so.
"""

from collections.abc import Sequence

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most
from lib.dynamics.gradient_descent import Start
from lib.papers.a.fixed_head import bound_on_tokens
from lib.seeds import stream
from lib.svm.max_margin import MaxMargin


def descent_ratio(
    tokens: TokenSet, W: np.ndarray, solution: MaxMargin
) -> tuple[np.ndarray, np.ndarray]:
    """<-grad L(W), W_mm>/||W_mm|| over <-grad L(W), W>/||W||, and min_i p_opt; (runs,) each.

    The ratio is infinite where the denominator is not positive: there Lemma 2 holds for every
    epsilon.
    """
    at = attention.slopes(attention.logits(tokens, W), attention.scores(tokens, tokens.u))
    toward = [(at.pull * attention.logits(tokens, V)).sum((1, 2)) for V in (solution.W, W)]
    size = np.linalg.norm(W, axis=(1, 2))
    ratio = np.full(len(size), np.inf)
    np.divide(toward[0] / solution.norm, toward[1] / size, where=toward[1] > 0, out=ratio)
    p_opt = np.exp(np.take_along_axis(at.log_weights, tokens.opt[..., None], -1)).min((1, 2))
    return ratio, p_opt


def lemma2(
    tokens: TokenSet,
    solution: MaxMargin,
    seeds,
    radii=(3, 10, 30, 100, 300),
    spreads=(0.01, 0.03, 0.1, 0.3, 1),
):
    """||W|| >= R_eps = (2 ||W_mm||/eps) log(4 n T/eps) makes the gradient favour W_mm over W, up to
    eps (our constant).

    W = r ||W_mm|| times a random direction around W_mm, `spread` wide, and kept when p_opt >= 1/(e
    T) for every sample, as Lemma 5 gives it. Two claims: 1 - ratio at the largest radius (Lemma 2),
    and over the eps that R_eps = ||W|| allows at every radius (Lemma 9).
    """
    _, n, T, _ = tokens.shape
    unit = solution.W / solution.norm[:, None, None]
    draws = [stream(seed, "start") for seed in seeds]
    needed = {r: -np.inf for r in radii}
    for spread in spreads:
        away = np.stack([draw.standard_normal(unit.shape[1:]) for draw in draws])
        direction = unit + spread * away / np.linalg.norm(away, axis=(1, 2), keepdims=True)
        direction *= (solution.norm / np.linalg.norm(direction, axis=(1, 2)))[:, None, None]
        for r in radii:
            ratio, p_opt = descent_ratio(tokens, r * direction, solution)
            needed[r] = max(needed[r], (1 - ratio)[p_opt >= 1 / (np.e * T)].max(initial=-np.inf))
    needed = {
        r: value if value > -np.inf else np.nan for r, value in needed.items()
    }  # nothing kept, nothing shown
    allowed = {r: 2 / r * np.log(4 * n * T * r) for r in radii}
    last, share = max(radii), np.max([needed[r] / allowed[r] for r in radii])
    source = "paper A, {} (our constant)"
    statement = f"largest epsilon that is needed at ||W|| = {last} ||W_mm||, W around W_mm"
    return [
        at_most("lemma2", statement, source.format("Lemma 2"), needed[last], allowed[last]),
        at_most(
            "lemma9",
            "largest epsilon that is needed over the one that R_eps allows",
            source.format("Lemma 9"),
            share,
            1.0,
        ),
    ]


def lemma4(
    tokens: TokenSet, start: Start, std: float, dimension: int, delta: float = 0.1
) -> list[Claim]:
    """Gaussian W_0 of entry size std: |x^T W_0 z| <= c and T p_{i,t} in [e^-2c, e^2c] for all tokens, w.p. 1
    - delta.

    c = std B^2 sqrt(2 log(2 n T/delta)) and ||W_0||_F <= std (d + sqrt(2 log(1/delta))), d the
    `dimension` of tokens (our constants). One start per run; both are measured as the fraction of
    runs that leave the bound.
    """
    _, n, T, _ = tokens.shape
    c = std * bound_on_tokens(tokens) ** 2 * np.sqrt(2 * np.log(2 * n * T / delta))
    weights = attention.weights(tokens, start.inside)
    outside = np.abs(np.log(T * weights)).max((1, 2)) > 2 * c
    size = np.hypot(np.linalg.norm(start.inside, axis=(1, 2)), start.outside)
    large = size > std * (dimension + np.sqrt(2 * np.log(1 / delta)))
    source = "paper A, Lemma 4 (our constant)"
    return [
        at_most(
            "lemma4.softmax",
            "fraction of starts with a weight outside [1/e, e]/T",
            source,
            outside.mean(),
            delta,
        ),
        at_most(
            "lemma4.norm",
            "fraction of starts with ||W_0|| beyond its bound",
            source,
            large.mean(),
            delta,
        ),
    ]


def start_size(tokens: TokenSet, delta: float = 0.1) -> float:
    """The entry size of W_0 at which Lemma 4's c is 1/2: weights within a factor e of 1/T."""
    _, n, T, _ = tokens.shape
    return float(
        0.5 / (bound_on_tokens(tokens).max() ** 2 * np.sqrt(2 * np.log(2 * n * T / delta)))
    )


def assumption1(tokens: TokenSet) -> np.ndarray:
    """Near orthogonality as the margin of a sufficient condition, b^2 (a^2 - 3 mu) / (4 n C mu^2),
    (runs,); >= 1 holds.

    mu the largest |<x, x'>| of two distinct tokens, a the smallest norm of an opt token and b of a
    query, and C = e^{Delta/2} Delta_max / (4 Delta_min phi (1 - phi)), phi = 1/(e T), bounds how
    much more one sample can pull than another while p_opt is in [phi, 1/2] (our constants). Under
    it the opt logit of a sample that is not yet settled cannot fall (Lemma 5).
    """
    runs, n, T, d = tokens.shape
    flat = tokens.X.reshape(runs, n * T, d)
    cross = np.abs(flat @ np.swapaxes(flat, 1, 2))
    diagonal = np.arange(n * T)
    a = np.take_along_axis(
        cross[:, diagonal, diagonal].reshape(runs, n, T), tokens.opt[..., None], -1
    ).min((1, 2))
    cross[:, diagonal, diagonal] = 0.0
    mu = cross.max((1, 2))
    gaps = np.ptp(attention.scores(tokens, tokens.u), axis=-1)  # (runs, n), under Assumption 2
    phi = 1 / (np.e * T)
    C = np.exp(gaps.max(1) / 2) * gaps.max(1) / (4 * gaps.min(1) * phi * (1 - phi))
    return (tokens.z**2).sum(-1).min(1) * (a - 3 * mu) / (4 * n * C * mu**2)


def imbalance(tokens: TokenSet) -> np.ndarray:
    """Spread of the other tokens' scores over the smallest gap to the opt token, (runs,); 0 under A2."""
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    rest = np.take_along_axis(scores, coordinates.others(tokens.opt, tokens.shape[2]), -1)
    return np.ptp(rest, axis=-1).max(1) / (best - rest.max(-1)).min(1)


def lemma8(tokens: TokenSet, delta: float = 0.1) -> list[Claim]:
    """Example 1 in high dimension satisfies Assumptions 1 and 2 with probability 1 - delta."""
    source = "paper A, Lemma 8 (our constant)"
    near, equal = assumption1(tokens) >= 1, imbalance(tokens) <= 1e-9
    return [
        at_most(
            "lemma8.orthogonal",
            "fraction of draws without Assumption 1",
            source,
            1 - near.mean(),
            delta,
        ),
        at_most(
            "lemma8.scores",
            "fraction of draws without Assumption 2",
            "paper A, Lemma 8",
            1 - equal.mean(),
            delta,
        ),
    ]


def lemma11(tokens: TokenSet, signal: float, noise: float, delta: float = 0.1) -> list[Claim]:
    """(DM): norms and cross products concentrate with probability 1 - delta.

    With m tokens, s = log(2 m^2/delta) and r the norm scale of a token (noise, or signal noise): |
    ||x||^2 / r^2 - d | <= 2 sqrt(d s) + 2 s and |<x, x'>| <= r r' (sqrt(2 d s) + s) (Laurent and
    Massart, 2000; our constants). Measured: the fraction of runs where one of them fails, each with
    its bound.
    """
    runs, n, _, d = tokens.shape
    last_two = (
        tokens.X[:, :, -2:].reshape(runs, 2 * n, d) / np.tile([noise, signal * noise], n)[:, None]
    )
    s = np.log(2 * (2 * n) ** 2 / delta)
    products = last_two @ np.swapaxes(last_two, 1, 2)
    diagonal = np.arange(2 * n)
    norms = np.abs(products[:, diagonal, diagonal] - d).max(1) / (2 * np.sqrt(d * s) + 2 * s)
    products[:, diagonal, diagonal] = 0.0
    crosses = np.abs(products).max((1, 2)) / (np.sqrt(2 * d * s) + s)
    source = "paper A, Lemma 11 (our constant)"
    return [
        at_most(
            "lemma11.norms",
            "fraction of draws with a norm beyond its bound",
            source,
            (norms > 1).mean(),
            delta,
        ),
        at_most(
            "lemma11.cross",
            "fraction of draws with a product beyond its bound",
            source,
            (crosses > 1).mean(),
            delta,
        ),
        at_most(
            "lemma11.closest",
            "largest cross product over its bound, median draw",
            source,
            np.median(crosses),
            1.0,
        ),
    ]


def lemma14(tokens: TokenSet, head: MaxMargin) -> Claim:
    """y_i (p x_{i,opt} + (1-p) x_{i,t}) are separable for p in [1/2, 1]: u_mm has margin 1/4 (ours)."""
    scores = attention.scores(tokens, head.value)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    smallest = np.minimum(best, (best + scores) / 2).min()
    statement = "smallest margin of u_mm on opt tokens and on their mixtures with others"
    return at_least("lemma14", statement, "paper A, Lemma 14 (our constant)", smallest, 0.25)


def wrong_selection(tokens: TokenSet, seeds: Sequence[int]) -> np.ndarray:
    """For every sample a random token that is not its opt token, (runs, n), one seed per run.

    Its token SVM gives a local max-margin direction: the kind of direction that the local theory
    (2308.16898) says training may end in.
    """
    _, n, T, _ = tokens.shape
    shift = np.stack([stream(seed, "start").integers(1, T, n) for seed in seeds])
    return (tokens.opt + shift) % T
