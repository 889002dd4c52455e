"""Correlated tokens: runs from zero keep the opt tokens, but need more time.

Other tokens score 0 whatever their correlation. Their differences shrink, the slowest wrong offset
dies at a rate that tends to 0, and a run of given length is refused as too short from some
correlation on. At correlation 1 within a sample its other
tokens are one token: the law of the merged pair holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, token_set
from lib.companion.claims import Claim, at_least, close, furthest
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.svm.max_margin import token_svm
from papers.beyond import constant_map, thresholds
from papers.beyond import margins as measure
from papers.beyond.margin_law import MarginLaw, margin_law
from papers.beyond.margin_law_premises import SETTLED
from papers.beyond.margin_slopes import PremiseFails

AXIS = "correlation"
GRID = (0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995)
# Of notebooks/bends_protocol.md
MERGED = 0.01
LEVEL = 0.1  # came later, in the place of a claim that could not fail
OURS = "ours, beyond paper A's Theorem 1"


def law_of(data: TokenSet) -> MarginLaw:
    """The law of one run that ends in its opt tokens."""
    return margin_law(data, token_svm(data))


def level_after(law: MarginLaw, steps: int) -> float:
    """a_t of one run of the map: its step, STEP times the longest, raises a by 2 STEP/fastest."""
    return 2 * constant_map.STEP * steps / law.fastest[0]


def too_short(law: MarginLaw, steps: int) -> bool:
    """Whether duals and step say that `steps` iterations do not settle one run of the map.

    What pairs off the support leave outside its span is read off at a tenth of the run.
    """
    level = level_after(law, steps)
    left = law.remaining(np.array([level]))[0], np.exp(-law.excess[0] * level / 10)
    return bool(max(left) > SETTLED)


@dataclass(frozen=True, kw_only=True)
class Onset:
    """Which seeds' runs are refused as too short, (k, seeds), predicted and measured.

    level (k, seeds): margin level of a run over `level_after`, NaN where it is refused.
    """

    steps: int
    values: tuple[float, ...]
    predicted: np.ndarray
    measured: np.ndarray
    level: np.ndarray

    def half(self, did: np.ndarray) -> tuple[float, float, float]:
        """1 - correlation at which half of the seeds are refused, and its interval."""
        values = 1 - np.array(self.values)[::-1]
        return thresholds.half(values, ~did[::-1])


def onset(seeds: Sequence[int], steps: int, values: Sequence[float] = GRID) -> Onset:
    """Every seed at every correlation: refused by its duals, and by its run.

    Raises PremiseFails where a run is refused for another reason than its length.
    """
    predicted, measured = np.zeros((2, len(values), len(seeds)), bool)
    level = np.full(measured.shape, np.nan)
    for k, value in enumerate(values):
        for j, seed in enumerate(seeds):
            data = coordinates.minimal(constant_map.AXES[AXIS](seed, value)).tokens
            predicted[k, j] = too_short(law := law_of(data), steps)
            found = constant_map.point(AXIS, value, seed, steps)
            if found.refusal and "'long enough'" not in found.refusal:
                raise PremiseFails("length alone", j, value, found.refusal)
            measured[k, j] = bool(found.refusal)
            if found.comparison:
                level[k, j] = found.comparison.measured.level[-1] / level_after(law, steps)
    by_value = dict(values=tuple(values), predicted=predicted, measured=measured, level=level)
    return Onset(steps=steps, **by_value)


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """At correlation 1: ||W_t|| x error of one run, and C of the problem of its distinct tokens."""

    predicted: float
    measured: float


def repeated(seed: int, steps: int) -> Repeated:
    """One run whose samples hold one other token T - 1 times, beside the law of two tokens.

    A copy adds its kappa to the pair's: T - 1 times the same for every sample, so that C stays.
    """
    data = constant_map.AXES[AXIS](seed, 1.0)
    rows = np.arange(data.shape[1])
    pair = np.stack([data.z[0], data.X[0, rows, data.opt[0]]], 1)  # (n, 2, d): the query is a copy
    two = token_set(pair, data.y[0], z=data.z[0], u=data.u[0], opt=np.ones(len(rows), int))
    law = law_of(two)
    rule = ngd(float(constant_map.STEP * law.longest_step()[0]))
    problem = coordinates.minimal(data)
    W = train(problem, rule, steps, [0, steps]).weights(1)
    V = problem.reduce(token_svm(two).W)[0]
    error = measure.direction_error(W, V)[0]
    return Repeated(predicted=float(law.constant[0]), measured=float(np.linalg.norm(W) * error))


def stays(seeds: Sequence[int], values: Sequence[float] = (0.9, 0.99, 0.999)) -> float:
    """Share of runs that select every opt token, over all correlations in `values`."""
    found = [constant_map.ends_in_opt(constant_map.AXES[AXIS](s, v)) for v in values for s in seeds]
    return float(np.mean(found))


def onset_claims(found: Sequence[Onset]) -> list[Claim]:
    """The level that a run reaches is that of its steps; a longer run bears more correlation.

    Which runs are too short is no claim: a run is refused by the same duals at its level.
    """
    claims = []
    for one in found:
        text = f"correlation: margin level after {one.steps:,} steps over its prediction, worst run"
        worst = furthest(one.level[np.isfinite(one.level)], 1.0)
        claims.append(close(f"map.level.{one.steps}", text, OURS, worst, 1.0, LEVEL))
    least = min(
        a.half(a.measured)[0] / b.half(b.measured)[0]
        for a, b in zip(found, found[1:], strict=False)
    )
    text = "1 - correlation at which half need more steps: over that of the next longer runs"
    return [*claims, at_least("map.time", text, OURS, least, 1.2)]


def end_claims(stay: float, merged: Sequence[Repeated]) -> list[Claim]:
    """No correlation tried changes the selection; at 1 the merged pairs' law holds."""
    off = np.array([one.measured / one.predicted - 1 for one in merged])
    text = f"correlation 1: ‖W‖ x error over C of the merged pairs, less 1, worst of {len(off)}"
    return [
        at_least("map.stays", "correlation up to 0.999: runs that keep opt", OURS, stay, 1.0),
        close("map.merged", text, OURS, furthest(off), 0.0, MERGED),
    ]


WORLDS: Mapping[str, Callable[[Repeated], Repeated]] = {
    "C with the copies": lambda o: replace(o, predicted=o.predicted * constant_map.BASE["T"] ** 0.5)
}
ONSET_WORLDS: Mapping[str, Callable[[Onset], Onset]] = {
    "margins rise half as fast": lambda o: replace(o, level=o.level / 2)
}
