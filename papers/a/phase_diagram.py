"""Violate paper A's assumptions step by step, and count runs that still reach W_mm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from scipy.stats import beta

from companion.claims import Claim
from lib import attention, dynamics, svm
from lib.attention import TokenSet, class_mean_tokens, coordinates, losses, token_set
from lib.dynamics.rules import Rule
from lib.seeds import stream
from papers.a import assumptions
from papers.a.fixed_head import reached
from papers.a.statements import PAPER

Rules = Mapping[str, Rule]


def two_samples(overlap: float = -1.0) -> TokenSet:
    """Return the smallest problem that needs a condition like Assumption 1.

    The problem has the samples {q, q + d_1} and {q, q + d_2}. The query q is orthogonal
    to d_1 = (3, 0, 0.001) and d_2 = (overlap, 0.5, 0.1). The opt tokens are q + d_i,
    with score gaps of 0.01 and 1. Up to an error of 1e-4, <d_1, d_2> = 3 overlap. If
    this product is negative and its absolute value is larger than ||d_2||^2, the second
    sample drives W away from what the first sample needs.
    """
    q = np.eye(4)[3]
    d = np.array([[3, 0, 0.001, 0], [overlap, 0.5, 0.1, 0]])
    return token_set(
        np.stack([[q, q + row] for row in d]), np.ones(2), u=10 * np.eye(4)[2]
    )


def two_samples_reach(tokens: TokenSet, loss: str = "exponential") -> SimpleNamespace:
    """Decide whether training from zero (n = T = 2) selects the best tokens.

    The theory is in the section "Two samples" of `notebooks/law_of_margins.md`. It
    requires that |l'| does not increase. Let K be the Gram matrix of A_i = (best -
    other token) z_i^T, with K_11 >= K_22. Let R be |l'| times the difference of the two
    scores of sample 1, divided by the same product for sample 2. R_0 is the value of R
    at W = 0, where the output of each sample is the mean of its two scores. R_1 is an
    upper bound of R, with sample 1 at its lower score and sample 2 at its higher one.

    Parameters
    ----------
    tokens : TokenSet
        One run of two samples with two tokens each. The best token of a sample is the
        one with the largest score.
    loss : str
        One of `attention.LOSSES`, except "sigmoid".

    Returns
    -------
    namespace
        `threshold` is theta* = (|K_12| - K_22)/(K_11 - |K_12|), or -inf if K_12 >= 0.
        `start` and `highest` are R_0 and R_1, with which the threshold is compared.
        `reached` is True if R_0 > theta* (gradient flow selects the best tokens), False
        if R_1 <= theta* (no step sizes lead to their selection), and None in between,
        where the theory leaves the answer open.

    Raises
    ------
    ValueError
        For several runs, other sizes, equal scores in a sample, dependent A_1 and A_2,
        the sigmoid loss, or an unknown loss.
    """
    if len(tokens.y) != 1:
        raise ValueError(f"tokens has {len(tokens.y)} runs; give them one by one")
    scores = attention.scores(tokens, tokens.u)[0]
    if scores.shape != (2, 2) or loss == "sigmoid":
        raise ValueError(
            f"n, T = {scores.shape} and the {loss} loss; it needs n = T = 2 and a "
            "convex loss"
        )
    best = scores.argmax(1)[None]
    K = coordinates.gram(coordinates.differences(tokens, best), tokens.z)[0]
    if not (
        np.ptp(scores, axis=1).all() and np.linalg.det(K) > 1e-12 * K.diagonal().prod()
    ):
        raise ValueError(
            "two samples of different scores and of independent A_1, A_2 are needed"
        )
    first, second = np.argsort(-K.diagonal(), kind="stable")
    low = scores.min(1)
    high = scores.max(1)

    def slope(f: np.ndarray, i: int):
        return np.exp(losses.log_derivative(f[i], loss)) * (high - low)[i]

    k = -K[0, 1]
    if k > 0:
        threshold = (k - K[second, second]) / (K[first, first] - k)
    else:
        threshold = -np.inf
    middle = (low + high) / 2
    start = slope(middle, first) / slope(middle, second)
    highest = slope(low, first) / slope(high, second)
    reached = bool(start > threshold)
    if start <= threshold < highest:
        reached = None
    return SimpleNamespace(
        threshold=threshold, start=start, highest=highest, reached=reached
    )


def two_samples_of(
    K: np.ndarray, low: Sequence[float], gaps: Sequence[float]
) -> TokenSet:
    """Build the samples {b_i, b_i + d_i}, where K (2, 2) is the Gram matrix of the d_i.

    The tokens b_i have the scores `low` (2,), and the opt tokens b_i + d_i have scores
    that are higher by `gaps` (2,), which are positive. The two samples have the same
    query, a unit vector. To carry the scores, the d_i have a further coordinate, which
    adds 1e-6 gaps_i gaps_j to their Gram matrix.
    """
    rest = np.array([[0, 0, 0, value, 1] for value in low])
    d = np.c_[np.linalg.cholesky(K), 1e-3 * np.array(gaps), np.zeros((2, 2))]
    z = np.tile([0.0, 0, 0, 0, 1], (2, 1))
    u = np.array([0, 0, 1e3, 1, 0])
    return token_set(np.stack([rest, rest + d], 1), np.ones(2), z, u)


def theta_star(K: np.ndarray) -> float:
    """Return theta* = (|K_12| - K_22)/(K_11 - |K_12|) for a Gram matrix K with K_12 <
    0.
    """
    k = -K[0, 1]
    return (k - K[1, 1]) / (K[0, 0] - k)


def assumption1_bound(seeds: Iterable[int], rule: Rule, steps: int) -> Claim:
    """Check how far -K_12 may exceed min(K_11, K_22) if the score gaps are small.

    For each seed, the ratio of the two score gaps is 2 % below our threshold theta* in
    one run, and 2 % above it in another. Only the second run should select its opt
    tokens in the end. We measure the share of runs for which theta* predicts the
    outcome correctly.
    """
    right = []
    for seed in seeds:
        draw = stream(seed, "draws")
        small = np.exp(draw.normal())
        large = small * draw.uniform(1.5, 6.0)
        k = small + draw.uniform(0.1, 0.9) * (np.sqrt(small * large) - small)
        K = np.array([[large, -k], [-k, small]])
        theta = theta_star(K)
        for ratio, arrives in ((0.98, False), (1.02, True)):
            data = two_samples_of(K, [0, 0], [0.01 * ratio * theta, 0.01])
            last = dynamics.train(
                coordinates.minimal(data), rule, steps, [steps]
            ).margins[0, -1]
            right.append((last > 0).all() == arrives)
    return PAPER.claim("assumption1.bound", np.mean(right))


def assumption1_needed(tokens: TokenSet, rules: Rules, steps: int) -> list[Claim]:
    """Check that on `two_samples` every rule ends at the direction of a selection other
    than the opt tokens (our own statement).

    `tokens` is `two_samples()`. The other selection has the other token of the first
    sample, and the opt token of the second. For each rule we measure the alignment with
    that direction minus the alignment with W_mm.
    """
    problem = coordinates.minimal(tokens)
    rival = svm.token_svm(problem.tokens, tokens.opt - [[1, 0]])
    goals = {"W_mm": svm.token_svm(problem.tokens).W, "rival": rival.W}
    histories = dynamics.train(problem, rules, steps, [steps], targets=goals)

    def apart(near: Mapping[str, np.ndarray]):
        return (near["rival"] - near["W_mm"])[0, -1]

    made = {name: apart(history.alignment) for name, history in histories.items()}
    return [
        PAPER.claim("assumption1.needed", value, name) for name, value in made.items()
    ]


def skewed(tokens: TokenSet, spread: float, seeds: Sequence[int]) -> TokenSet:
    """Violate Assumption 2 by adding to u a random vector that is orthogonal to all opt
    tokens.

    The vector has one seed per run. It is scaled such that the largest change of any
    other token's score is `spread` times the smallest score of an opt token in the run.
    So the opt tokens keep the highest scores if all other tokens score zero, as they do
    for class means.

    The function raises ValueError unless 0 <= spread < 1, because other tokens could
    become opt tokens.
    """
    if not 0 <= spread < 1:
        raise ValueError(
            f"spread = {spread}; it must be in [0, 1): opt tokens must stay the best"
        )
    d = tokens.shape[-1]
    opt = tokens.opt[..., None]
    added = np.stack([stream(seed, "draws").standard_normal(d) for seed in seeds])
    for run, opt_tokens in enumerate(
        np.take_along_axis(tokens.X, opt[..., None], 2)[:, :, 0]
    ):
        added[run] -= np.linalg.pinv(opt_tokens, rcond=1e-9) @ (opt_tokens @ added[run])
    scores = np.abs(attention.scores(tokens, added))
    np.put_along_axis(scores, opt, 0.0, -1)
    best = np.take_along_axis(attention.scores(tokens, tokens.u), opt, -1).min((1, 2))
    return replace(
        tokens, u=tokens.u + added * (spread * best / scores.max((1, 2)))[:, None]
    )


def bounded_tokens(
    seeds: Sequence[int], n: int, T: int, d: int, ratio: float, size: float = 2.0
) -> TokenSet:
    """Draw `class_mean_tokens` whose noise tokens are about `ratio` times as long as
    opt tokens.

    The longer of the two kinds of tokens has the length `size`; for noise tokens this
    is true only on average.
    """
    signal = size * min(1.0, 1.0 / ratio)
    noise = size * min(1.0, ratio)
    return class_mean_tokens(seeds, n, T, d, signal, noise / np.sqrt(d))


def fraction_reached(tokens: TokenSet, rules: Rules, steps: int) -> dict[str, float]:
    """Return, by rule, the share of runs from W = 0 that have `reached` W_mm after
    `steps` steps.

    Runs without a W_mm are left out, because no W selects their opt tokens. The share
    is NaN if no run has a W_mm.
    """
    kept = svm.feasible(coordinates.minimal(tokens).tokens)
    if kept is None:
        return dict.fromkeys(rules, np.nan)
    goal = {"W_mm": svm.token_svm(kept)}
    # A run that stalled or diverged has NaN here, so that it counts as not having
    # reached W_mm.
    with np.errstate(invalid="ignore"):
        histories = dynamics.train(kept, rules, steps, [steps], targets=goal)
        return {
            name: float(reached(history).mean()) for name, history in histories.items()
        }


def phase_diagram(
    seeds: Sequence[int],
    n: int,
    T: int,
    cells: Sequence[tuple[int, float]],
    spreads: Sequence[float],
    rules: Rules,
    steps: int,
) -> dict[str, np.ndarray]:
    """Compute `fraction_reached` for every spread and every cell (d, ratio).

    The result is {rule: shares (spreads, cells)}.
    """
    columns = [bounded_tokens(seeds, n, T, *cell) for cell in cells]

    def reach(tokens: TokenSet, spread: float):
        return fraction_reached(skewed(tokens, spread, seeds), rules, steps)

    rows = [[reach(tokens, spread) for tokens in columns] for spread in spreads]
    return {
        name: np.array([[cell[name] for cell in row] for row in rows]) for name in rules
    }


def broken(
    diagrams: Sequence[Mapping[str, np.ndarray]], rules: Sequence[str]
) -> list[Claim]:
    """Check that all runs reach W_mm in the first cell of each diagram, and that some
    runs of another cell do not.

    In the first cell no assumption is violated. `diagrams` are results of
    `phase_diagram`. If the first cell of a diagram has no run with a W_mm, the claim
    about the first cells fails. Other cells without such a run are left out.
    """
    intact = np.min([diagram[rule][0, 0] for diagram in diagrams for rule in rules])
    worst = {
        rule: min(np.nanmin(diagram[rule].ravel()[1:]) for diagram in diagrams)
        for rule in rules
    }
    broken = [PAPER.claim("phase", smallest, rule) for rule, smallest in worst.items()]
    return [PAPER.claim("phase.intact", intact), *broken]


def falling_weights(d: int, draws: int, rules: Rules) -> dict[str, np.ndarray]:
    """Return, for each data set in dimension d, whether Lemma 5 fails: a softmax weight
    of an opt token falls although it is at most 1/2.

    Parameters
    ----------
    d : int
        The dimension of the tokens. The length of the tokens other than the opt tokens
        does not change with d.
    draws : int
        How many data sets of Figure 5 are drawn, with the seeds 0, 1, ...
    rules : mapping of str to Rule
        The update rules.

    Returns
    -------
    dict of str to numpy.ndarray
        By rule, a bool array of shape (draws,): whether some p_opt that is at most 1/2
        falls, by more than rounding errors, between two records within 1,000
        iterations.
    """
    recorded = dynamics.log_spaced(1000, 200)
    falls = {name: [] for name in rules}
    for first in range(0, draws, 25):  # all data sets at once need too much memory
        seeds = range(first, min(first + 25, draws))
        noise = 0.1 * np.sqrt(300 / d)
        drawn = class_mean_tokens(seeds, 20, 10, d, 3.0, noise, antipodal=True)
        problem = coordinates.minimal(drawn)
        start = dynamics.gaussian_start(problem, 1e-3, seeds)
        for name, history in dynamics.train(
            problem, rules, 1000, recorded, start=start
        ).items():
            p_opt = -np.expm1(history.log_miss)  # (runs, k, n)
            before = p_opt[:, :-1]
            after = p_opt[:, 1:]
            growth = np.where(before <= 0.5, after / before, np.inf)
            falls[name].extend(growth.min((1, 2)) < 1 - 1e-12)
    return {name: np.array(of_draws) for name, of_draws in falls.items()}


def upper_end(failed: np.ndarray) -> float:
    """Return the 95 % upper confidence limit of the probability of a failure.

    `failed` (draws,) is a bool array of the draws that failed. The limit is that of
    Clopper and Pearson (1934). It is 1 if all draws failed, or if there are none.
    """
    count = int(failed.sum())
    draws = failed.size
    if count < draws:
        return float(beta.ppf(0.95, count + 1, draws - count))
    return 1.0


def dimension_claims(falls: Mapping[int, Mapping[str, np.ndarray]]) -> list[Claim]:
    """Check that Lemma 5 fails on many data sets in the lowest dimension, and hardly
    ever in the highest one.

    In the highest dimension we measure the 95 % upper confidence limit of the
    probability that it fails. With 100 data sets, one failure is still within the
    bound.

    Parameters
    ----------
    falls : mapping of int to mapping
        The results of `falling_weights` by dimension.

    Returns
    -------
    list of Claim
        Two claims per rule.
    """
    lowest = min(falls)
    highest = max(falls)
    made = []
    for rule, failed in falls[lowest].items():
        share = failed.mean()
        made.append(PAPER.claim("dimension.low", share, rule, say=(lowest,)))
        above = upper_end(falls[highest][rule])
        made.append(PAPER.claim("dimension.high", above, rule, say=(highest,)))
    return made


def room_by_dimension(
    dimensions: Sequence[int], n: int, T: int, draws: int
) -> np.ndarray:
    """Return `assumptions.near_orthogonality` of class means.

    The result has the shape (dimensions, draws). In each of the `dimensions`, opt
    tokens have the length 2 and other tokens a length of about 1. The seeds are 0,
    ..., draws - 1.
    """
    rows = []
    for d in dimensions:
        per_draw = []
        for seed in range(draws):  # one data set at a time limits the memory
            data = class_mean_tokens([seed], n, T, d, 2.0, d**-0.5)
            per_draw.append(assumptions.near_orthogonality(data)[0])
        rows.append(per_draw)
    return np.array(rows)
