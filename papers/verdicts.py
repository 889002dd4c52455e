"""Evaluate paired runs: one value per seed, the 95 % interval of the mean, and a
verdict.

Two runs of different rules are paired if they have the same seed, which determines the
start and the batches. The three verdicts are those of `notebooks/protocol.md`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from companion.claims import VERDICTS

REPRODUCED, NOT_REPRODUCED, UNDECIDED = VERDICTS
# Two rules count as equally fast if the ratio of their numbers of steps is in this
# range.
SAME = (0.8, 1.25)
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """The mean of paired `values` (seeds,), with the t interval from `low` to `high`.

    There must be at least two seeds. The confidence level is `level`. If `geometric` is
    true, everything is computed from logarithms, and the mean is the geometric mean.
    `other_variance` is a variance of the mean that does not shrink with the number of
    seeds, such as the variance due to a finite test set. It is added in quadrature:
    half width = sqrt((t s)²/n + (z σ)²). `opened` says which of the two ends of the
    interval are unknown, for example because runs were censored, and `note` says why.
    """

    values: np.ndarray
    geometric: bool = False
    other_variance: float = 0.0
    opened: tuple[bool, bool] = (False, False)
    note: str = ""
    level: float = LEVEL

    @property
    def estimate(self) -> float:
        """Return the mean over seeds; for ratios this is the geometric mean."""
        return self._at(0.0)

    @property
    def low(self) -> float:
        """Return the lower end.

        An unknown end is 0 for ratios and -inf for differences.
        """
        if self.opened[0]:
            return 0.0 if self.geometric else -math.inf
        return self._at(-1.0)

    @property
    def high(self) -> float:
        """Return the upper end. An unknown end is infinite."""
        return math.inf if self.opened[1] else self._at(1.0)

    def _at(self, halves: float) -> float:
        if self.geometric:
            values = np.log(self.values)
        else:
            values = self.values
        n = len(values)
        tail = 0.5 + self.level / 2
        between = stats.t.ppf(tail, n - 1) ** 2 * values.var(ddof=1) / n
        half = math.sqrt(between + stats.norm.ppf(tail) ** 2 * self.other_variance)
        offset = 0.0
        if halves:  # Without this, 0 times an infinite half would give NaN.
            offset = halves * half
        value = float(values.mean()) + offset
        if self.geometric:
            return math.exp(value)
        return value

    def __str__(self) -> str:
        text = f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"
        if self.note:
            text += f" ({self.note})"
        return text


def mean_interval(differences: np.ndarray, other_variance: float = 0.0) -> Interval:
    """Compute the t interval of the mean of two or more paired `differences` (seeds,).

    `other_variance` is explained in `Interval`. The function raises ValueError if the
    shape is different, or if there are fewer than two seeds.
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"differences must hold two seeds or more, not shape {values.shape}"
        )
    return Interval(values, other_variance=other_variance)


def ratio_interval(values: np.ndarray) -> Interval:
    """Compute the t interval of the geometric mean of positive paired ratios (seeds,).

    The function raises ValueError if a ratio is not positive and finite, or if there
    are fewer than two seeds.
    """
    ratios = np.asarray(values, dtype=float)
    if not (np.isfinite(ratios) & (ratios > 0)).all():
        raise ValueError(f"ratios must be positive and finite, got {ratios}")
    return replace(mean_interval(ratios), geometric=True)


def steps_ratio(steps: np.ndarray, reference: np.ndarray, horizon: int) -> Interval:
    """Compute the ratio of `steps` to `reference` (seeds,), with its interval.

    A run that never reached the goal is censored: its number of steps is infinite. We
    replace this number by the `horizon`, as if the run had reached the goal at the last
    step. If a run of the reference is censored, this makes the ratio too large, so that
    the upper end still holds, and we set the lower end to 0. If a run of the rule is
    censored, the ratio is too small, so that the lower end still holds, and we set the
    upper end to infinity. If both runs of one seed are censored, this seed says
    nothing, and both ends of the interval are unknown. The function raises ValueError
    if a number of steps is not positive, or if there are fewer than two seeds.
    """
    never = ~np.isfinite(steps)
    theirs = ~np.isfinite(reference)
    bounded = np.where(never, horizon, steps) / np.where(theirs, horizon, reference)
    missed = f"{never.sum()} of {len(steps)} runs and {theirs.sum()} of the reference's"
    opened = bool(theirs.any()), bool(never.any())
    note = ""
    if any(opened):
        note = f"{missed} missed the target"
    return replace(ratio_interval(bounded), opened=opened, note=note)


def faster(ratio: Interval) -> str:
    """Decide "fewer steps": yes if the interval is below 1; otherwise no if it is above
    1 or inside `SAME`.

    For an interval that is inside `SAME` and below 1, the answer is yes.
    """
    return decided(ratio.high < 1, ratio.low >= 1 or _within(ratio))


def slower(ratio: Interval) -> str:
    """Decide "more steps": yes if the interval is above 1; otherwise no if it is below
    1 or inside `SAME`.

    For an interval that is inside `SAME` and above 1, the answer is yes.
    """
    return decided(ratio.low > 1, ratio.high <= 1 or _within(ratio))


def no_gain(ratio: Interval) -> str:
    """Decide "no gain": yes if the interval is inside `SAME` or above 1, no if it is
    below 0.8.
    """
    return decided(_within(ratio) or ratio.low >= 1, ratio.high < SAME[0])


def above(difference: Interval) -> str:
    """Decide "larger": yes if the interval is above 0, no if it is below 0."""
    return decided(difference.low > 0, difference.high <= 0)


BOUNDS: dict[Callable, str] = {  # What each verdict requires of the interval.
    faster: "interval below 1",
    slower: "interval above 1",
    no_gain: "interval within [0.8, 1.25] or above 1",
    above: "interval above 0",
}
# The range that a picture shades. If the claim holds, the whole interval lies in this
# range. "No gain" also holds for an interval above 1.
SIDES: dict[Callable, tuple[float, float]] = {
    faster: (0.0, 1.0),
    slower: (1.0, math.inf),
    no_gain: SAME,
    above: (0.0, math.inf),
}


def p_value(interval: Interval, word: Callable[[Interval], str]) -> float:
    """Return the smallest α for which `word` gives a decision on the interval at level
    1 - α.

    The result is 1 if there is no such α, and e^-30 if an even smaller α is enough. If
    `word` compares the interval with a single value, the result is the two-sided p
    value of the t test against this value.
    """

    def says(alpha: float) -> bool:
        return word(replace(interval, level=1 - alpha)) != UNDECIDED

    # ln α
    low = -30.0
    high = 0.0
    if not says(math.exp(-1e-9)):
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if says(math.exp(middle)):
            high = middle
        else:
            low = middle
    return math.exp(high)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Adjust the p values of a family of claims by Holm's method, and return them in
    ascending order.

    With the p values in ascending order, the k-th of m becomes the maximum over j ≤ k
    of (m - j + 1) p_(j), or 1 if this is larger than 1. No p may be NaN. A claim is
    kept at level α if its adjusted p value is at most α.
    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    adjusted = {}
    largest = 0.0
    for k, (name, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(values) - k) * p))
        adjusted[name] = largest
    return adjusted


def decided(supported: bool, refuted: bool) -> str:
    """Return the verdict of an interval by which a claim is `supported`, `refuted` or
    neither.

    If both are true, the function returns REPRODUCED.
    """
    if supported:
        return REPRODUCED
    if refuted:
        return NOT_REPRODUCED
    return UNDECIDED


def _within(ratio: Interval) -> bool:
    return SAME[0] <= ratio.low and ratio.high <= SAME[1]
