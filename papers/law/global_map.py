"""Find out for which problems joint training from zero reaches (u_mm, W_mm).

For two families of problems we have a prediction in closed form.

Data model (DM): all tokens are Gaussian, and opt tokens are alpha times as long as
other tokens. After the first step of the head, the score of the opt token of sample i
exceeds that of the other token by about alpha^2 - 1 + N(0, (alpha^2 + 1)^2 (n - 1)/d).
The opt token has the higher score in all n samples with probability Phi((alpha^2 -
1)/(alpha^2 + 1) sqrt(d/(n - 1)))^n.

One dimension: T = 2, tokens are numbers, and the query is the opt token. Let a_i = y_i
x_{i,opt} > 0 and b_i = y_i x_{i,other} < a_i. The head u moves by the sign of sum_i l_i
(p_i a_i + (1 - p_i) b_i), and W moves by the sign of u. So from zero and with short
steps, u keeps the sign of sum_i (a_i + b_i). If this sum is negative, training never
reaches (u_mm, W_mm), which is positive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm as normal

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, token_set, tokens
from lib.dynamics import Rule, train
from lib.seeds import stream
from papers.law.tolerances import SATURATED
from papers.ours import BOUNDS, RESAMPLES, claim
from papers.saturation import score_gaps


def half_at_once(d: float, n: int) -> float:
    """Return the alpha at which, with probability 1/2, the opt tokens of all n samples
    have the higher score after the first step.

    The result is infinite if no alpha is large enough in d dimensions.
    """
    gain = normal.ppf(0.5 ** (1 / n)) * np.sqrt((n - 1) / d)
    if gain < 1:
        return float(np.sqrt((1 + gain) / (1 - gain)))
    return np.inf


def half_with_all_terms(d: float, n: int) -> float:
    """Return the alpha of `half_at_once`, with two terms that it neglects.

    We derived these terms after the runs. All labels come from one vector, so the opt
    tokens of two samples, each times its label, have the mean inner product 2 alpha^2 /
    (pi d). And the lengths of the tokens are random, which adds 2 (alpha^4 + 1)/d to
    the variance.

    Returns
    -------
    float
        The alpha. It is 1 if tokens of equal length are enough, and infinite if no
        alpha below 100 is large enough.
    """
    needed = normal.ppf(0.5 ** (1 / n))

    def beyond(alpha: float) -> float:
        mean = alpha**2 - 1 + 2 / np.pi * (n - 1) * alpha**2 / d
        variance = ((alpha**2 + 1) ** 2 * (n - 1) + 2 * (alpha**4 + 1)) / d
        return mean - needed * np.sqrt(variance)

    if beyond(1.0) >= 0:
        return 1.0
    if beyond(100.0) < 0:
        return np.inf
    return float(brentq(beyond, 1.0, 100.0))


@dataclass(frozen=True, kw_only=True)
class GlobalMap:
    """The seeds that reach (u_mm, W_mm), by the length of the opt tokens and by the
    dimension.

    `alphas` (a,) and `dimensions` (b,) are the axes, and `n` is the number of samples.
    `reached` (b, a, seeds) says whether training ends at (u_mm, W_mm). `first` (b, a,
    seeds) says whether, already after the first step, every opt token has a higher
    score than the other token of its sample.
    """

    alphas: np.ndarray
    dimensions: np.ndarray
    n: int
    reached: np.ndarray
    first: np.ndarray

    def threshold(self, row: int) -> tuple[float, float, float]:
        """Return the alpha at which half of the seeds reach (u_mm, W_mm), and the two
        ends of the bootstrap interval of this alpha.

        The dimension is `dimensions[row]`. `half_of_seeds` computes the three numbers.
        They are infinite beyond the largest alpha that was tried.
        """
        return half_of_seeds(self.alphas, self.reached[row], seed=row)


def measure(
    seeds: Sequence[int],
    alphas: Sequence[float],
    dimensions: Sequence[int],
    rule: Rule,
    steps: int,
    n: int = 8,
) -> GlobalMap:
    """Train on every seed of the data model from zero, with T = 2.

    A run counts as having reached (u_mm, W_mm) if, at the end, it attends to every opt
    token with a margin above SATURATED, and scores every opt token higher than the
    other token. The `alphas` are ascending.
    """
    shape = len(dimensions), len(alphas), len(seeds)
    reached = np.empty(shape, bool)
    first = np.empty(shape, bool)
    for row, d in enumerate(dimensions):
        for column, alpha in enumerate(alphas):
            data = tokens.two_token_gaussian(seeds, n=n, T=2, d=d, signal=alpha)

            # How joint training ends.
            history = train(
                coordinates.minimal(data), rule, steps, [0, steps], head="joint"
            )
            attended = history.margins[:, -1].min((1, 2)) > SATURATED
            scored_higher = history.score_gaps[:, -1].min((1, 2)) > 0
            reached[row, column] = attended & scored_higher

            # From zero, the first step of the head weights all tokens equally.
            labelled_tokens = data.y[..., None, None] * data.X
            first_head = labelled_tokens.mean((1, 2))
            first[row, column] = score_gaps(data, first_head).min((1, 2)) > 0
    return GlobalMap(
        alphas=np.asarray(alphas, float),
        dimensions=np.asarray(dimensions),
        n=n,
        reached=reached,
        first=first,
    )


def global_claims(grid: GlobalMap, wide: int = 1024, easy: float = 1.7) -> list[Claim]:
    """Check the map of the data model.

    If every opt token has a higher score than the other token after the first step,
    training reaches (u_mm, W_mm). Let the threshold be the alpha at which half of the
    seeds reach (u_mm, W_mm). From 64 dimensions on, the threshold is at most the value
    of the formula, and from 32 n dimensions on it is near this value. In `wide`
    dimensions, opt tokens of length `easy` or more are enough; this claim is left out
    if the grid has no such runs. The last claim is about the share of runs in which the
    first step and the end agree.
    """
    enough = grid.reached[grid.first].mean()
    lost = (grid.first & ~grid.reached).sum((1, 2))
    where = ", ".join(
        f"{k} at d = {d}" for k, d in zip(lost, grid.dimensions, strict=True) if k
    )
    if enough < BOUNDS["global.sufficient"]:
        why = f"later steps undo it: {where}"
    else:
        why = ""
    claims = [claim("global.sufficient", enough, "", grid.first.sum(), remark=why)]
    ceilings = {row: half_at_once(d, grid.n) for row, d in enumerate(grid.dimensions)}
    for row, ceiling in ceilings.items():
        d = grid.dimensions[row]
        if not np.isfinite(ceiling) or d < 64:
            continue
        value, low, high = grid.threshold(row)
        if value <= ceiling or low > ceiling:
            why = ""
        else:
            why = "the bound lies in the interval"
        more = {"interval": (low, high), "remark": why}
        claims.append(
            claim("global.threshold", value, f"{d}", expected=ceiling, **more)
        )
    rows = grid.dimensions == wide
    columns = grid.alphas >= easy
    if rows.any() and columns.any():
        smallest = grid.reached.mean(-1)[rows][:, columns].min()
        claims.append(claim("global.missed", smallest, "", wide, f"{easy:g}"))
    claims.append(
        claim("global.agree", (grid.first == grid.reached).mean(), "", grid.first.size)
    )
    for row, ceiling in ceilings.items():
        if (d := grid.dimensions[row]) >= 32 * grid.n:
            claims.append(
                claim("global.formula", grid.threshold(row)[0] / ceiling - 1, f"{d}")
            )
    return claims


Pairs = Sequence[tuple[int, int]]  # (a_i, b_i) per sample
POSTCARD: Pairs = ((1, 0), (1, -3))
LONGEST = Fraction(1, 6)  # The longest step of u for which the proof in `verify` holds.


def _exp_between(x: Any, terms: int = 20):
    """Bound e^x from below and above by its series, for 0 <= x < `terms`.

    For a Fraction x both bounds are Fractions.
    """
    total = Fraction(0)
    term = Fraction(1)
    for k in range(1, terms + 1):
        total = total + term
        term = term * x / k
    return total, total + term / (1 - x / (terms + 1))


def _selections(pairs: Pairs) -> dict[tuple[int, ...], Fraction]:
    """Return the |u| of the head SVM for every selection for which this SVM has a
    solution.

    A selection has one entry per sample, 0 for the opt token and 1 for the other token.
    """
    sizes = {}
    for chosen in product((0, 1), repeat=len(pairs)):
        kept = [Fraction(pair[c]) for pair, c in zip(pairs, chosen, strict=True)]
        if all(x > 0 for x in kept) or all(x < 0 for x in kept):
            sizes[chosen] = max(1 / abs(x) for x in kept)
    return sizes


def _missed(pairs: Pairs) -> bool:
    """Return whether training misses the opt tokens although they have the largest
    margin.
    """
    opt = (0,) * len(pairs)
    sizes = _selections(pairs)
    best = all(sizes[opt] < size for chosen, size in sizes.items() if chosen != opt)
    return best and sum(a + b for a, b in pairs) < 0


def _smallest(largest: int, n: int = 2) -> list[Pairs]:
    """List, in order, all problems of n samples with entries up to `largest` that are
    `_missed`.
    """
    samples = [
        (a, b) for a in range(largest, 0, -1) for b in range(a - 1, -largest - 1, -1)
    ]
    return [p for p in combinations_with_replacement(samples, n) if _missed(p)]


def verify() -> dict[str, bool]:
    """Prove in rational numbers that training misses POSTCARD, the smallest integer
    problem.

    Logits differ by (a_i - b_i) a_i W, so that p_i <= 1/2 while W <= 0. The quantity
    s_i = p_i a_i + (1 - p_i) b_i is linear in p_i, so that its extremes are at p_i = 0
    and 1/2. The function returns, for every step of the proof, which is given in words,
    whether it holds.
    """
    half = Fraction(1, 2)
    holds = {}

    # Where training should end.
    u_mm = max(Fraction(1, a) for a, _ in POSTCARD)
    W_mm = max(Fraction(1, (a - b) * a) for a, b in POSTCARD)
    holds[f"u_mm = {u_mm}, W_mm = {W_mm}"] = u_mm == 1 and W_mm == 1
    classifying = set(_selections(POSTCARD))
    holds["no other selection classifies both samples"] = classifying == {(0, 0)}
    higher = [u_mm * (a - b) > 0 for a, b in POSTCARD]
    holds["u_mm scores both opt tokens higher"] = all(higher)

    # At this end point the loss vanishes: s_i at p_i = 7/8.
    grown = [Fraction(a * 7 + b, 8) for a, b in POSTCARD]
    least_exp, _ = _exp_between(Fraction(2))
    vanishes = "the loss can vanish: at u = W = c >= 2 both p_i > 7/8, both f_i >= c/2"
    holds[vanishes] = least_exp > 7 and min(grown) >= half

    # The first step moves u down, and no step moves it up again. The extremes of s_1
    # and s_2 are at p = 0 and p = 1/2.
    (a_1, b_1), (a_2, b_2) = POSTCARD
    s_1 = [b_1, half * a_1 + (1 - half) * b_1]
    s_2 = [b_2, half * a_2 + (1 - half) * b_2]
    ratio = -max(s_2) / max(s_1)  # the smallest |s_2| divided by the largest s_1
    speed = max(s_1) - min(s_2)  # l_1/l_2 = e^{k (s_1 - s_2)} at u = -k
    holds["the first step moves u down"] = sum(a + b for a, b in POSTCARD) < 0
    holds["at u = 0, W <= 0 it moves down"] = max(s_1) + max(s_2) < 0
    moves_down = [(a - b) * a > 0 for a, b in POSTCARD]
    holds["at u < 0 it moves W down"] = all(moves_down)
    _, largest_exp = _exp_between(speed * LONGEST)
    moves_up = f"u moves up only from u < -{LONGEST}: e^({speed}/6) < {ratio}"
    holds[moves_up] = largest_exp < ratio
    stays = "so u <= 0 and f_1 = u s_1 <= 0: the loss stays at 1/2 or more"
    holds[stays] = min(s_1) >= 0

    # No smaller problem is missed.
    is_smallest = _smallest(2) == [] and POSTCARD in _smallest(3)
    holds["no integers below 3 do it"] = is_smallest
    holds["one sample does it with no integers up to 9"] = _smallest(9, n=1) == []
    return holds


def problem(pairs: Pairs, labels: Sequence[int] | float = 1.0) -> TokenSet:
    """Build the TokenSet of `pairs`, with the opt token first.

    Tokens are x = y a and y b, for labels y (n,) or one label for all samples. The
    query is the opt token, and the head is zero.
    """
    y = np.broadcast_to(labels, len(pairs)).astype(float)
    X = y[:, None, None] * np.asarray(pairs, float)[:, :, None]
    return token_set(X, y, u=np.zeros(1), opt=np.zeros(len(pairs), int))


def random_problems(count: int, seed: int = 0) -> list[TokenSet]:
    """Draw `count` problems of one to five samples, with random labels.

    Entries are whole numbers with 1 <= a_i <= 9 and -9 <= b_i < a_i, whose sum is not
    zero.
    """
    draw = stream(seed, "problems")
    problems = []
    while len(problems) < count:
        n = int(draw.integers(1, 6))
        a = draw.integers(1, 10, n)
        b = np.array([draw.integers(-9, top) for top in a])
        if (a + b).sum():
            problems.append(problem(np.stack([a, b], 1), draw.choice((-1, 1), n)))
    return problems


def end(tokens: TokenSet, rule: Rule, steps: int) -> tuple[int, float]:
    """Train u and W together, and return the sign of u at the end and the smallest loss
    of the run.

    The result is 0 instead of the sign if u and W have different signs. `tokens` are
    one run of a `problem`.
    """
    record = np.unique(np.geomspace(1, steps, 100).astype(int))
    history = train(tokens, rule, steps, np.r_[0, record], head="joint")
    # The gradient of a sample with the wrong token underflows, so that the run ends
    # early.
    last = np.flatnonzero(np.isfinite(history.norm[0]))[-1]
    # u and W, each multiplied by a positive feature: y (x_opt - x_other) and (x_opt -
    # x_other) x_opt.
    both = np.append(history.score_gaps[0, last], history.margins[0, last])
    sign = int((both > 0).all()) - int((both < 0).all())
    return sign, float(np.exp(np.nanmin(history.log_gap[0])))


def agreement(problems: Sequence[TokenSet], rule: Rule, steps: int) -> Claim:
    """Check that the sign of sum_i (a_i + b_i) predicts where training ends.

    We measure the share of problems for which the prediction is correct.
    """
    right = [
        end(data, rule, steps)[0]
        == np.sign((data.y[0, :, None, None] * data.X[0]).sum())
        for data in problems
    ]
    return claim("global.line", np.mean(right), "", len(problems))


def half_of_seeds(
    values: np.ndarray, did: np.ndarray, seed: int = 0
) -> tuple[float, float, float]:
    """Find the value at which `did` is true for half of the seeds, and the 95 %
    bootstrap interval of this value.

    `values` (k,) are positive and ascending. `did` (k, seeds) should be true for more
    seeds at larger values. Between two values we interpolate the share of seeds
    linearly in the logarithm of the value. If the share is above one half at the first
    value, the first value is returned, which bounds the wanted one from above. If it is
    below one half at the last value, the result is infinite. This also applies to the
    two ends of the interval.
    """
    did = np.asarray(did)
    log = np.log(np.asarray(values, float))
    drawn = stream(seed, "resamples").integers(
        0, did.shape[1], (RESAMPLES, did.shape[1])
    )
    drawn_values = [_crossing(log, did[:, pick]) for pick in drawn]
    low, high = (_quantile(drawn_values, level) for level in (0.025, 0.975))
    return _crossing(log, did), low, high


def _crossing(log: np.ndarray, did: np.ndarray):
    share = np.maximum.accumulate(did.mean(1)) + 1e-9 * np.arange(len(log))
    return float(np.exp(np.interp(0.5, share, log, right=np.inf)))


def _quantile(values: Sequence[float], level: float) -> float:
    """Return a quantile of values that may be infinite.

    np.quantile interpolates between two neighbours, and if both of them are infinite,
    this gives NaN.
    """
    above = np.quantile(values, level, method="higher")
    if np.isinf(above):
        return float(above)
    return float(np.quantile(values, level))
