"""What paired runs say: a quantity seed by seed, its 95 % interval, and one of three words.

Runs of two rules are paired by their seed, which fixes start and batches. The words are those of
`notebooks/protocol.md`, which was written before the runs.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from lib.companion.claims import VERDICTS

REPRODUCED, NOT_REPRODUCED, UNDECIDED = VERDICTS
SAME = (0.8, 1.25)  # a ratio of steps within which two rules count as equally fast
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A paired quantity: `values` (seeds,), their `median`, and the 95 % interval `low` ... `high`.

    `note` says what the interval leaves open, such as runs that were censored.
    """

    values: np.ndarray
    low: float
    high: float
    note: str = ""

    @property
    def median(self) -> float:
        """The median over seeds."""
        return float(np.median(self.values))

    def __str__(self) -> str:
        text = f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"
        return f"{text} ({self.note})" if self.note else text


def mean_interval(differences: np.ndarray, other_variance: float = 0.0) -> Interval:
    """The t interval of the mean of paired `differences` (seeds,), two or more, else ValueError.

    `other_variance` is a variance of the mean that does not shrink with the seeds, such as that of
    a finite test set; it joins in quadrature: half width = sqrt((t s)²/n + (z σ)²).
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"differences must hold two seeds or more, it has shape {values.shape}")
    n, tail = len(values), 0.5 + LEVEL / 2
    between = stats.t.ppf(tail, n - 1) ** 2 * values.var(ddof=1) / n
    half = math.sqrt(between + stats.norm.ppf(tail) ** 2 * other_variance)
    return Interval(values, values.mean() - half, values.mean() + half)


def ratio_interval(values: np.ndarray) -> Interval:
    """The interval of the geometric mean of positive paired ratios (seeds,).

    It is a t interval of their logarithms. ValueError for a ratio that is not positive and finite.
    """
    ratios = np.asarray(values, dtype=float)
    if not (np.isfinite(ratios) & (ratios > 0)).all():
        raise ValueError(f"ratios must be positive and finite, got {ratios}")
    inner = mean_interval(np.log(ratios))
    return Interval(ratios, math.exp(inner.low), math.exp(inner.high))


def steps_ratio(steps: np.ndarray, reference: np.ndarray, horizon: int) -> Interval:
    """The ratio of `steps` to `reference` (seeds,), infinite where a run never got there.

    A run that was censored counts with the `horizon`, as if it had got there at the last step. So a
    censored reference leaves the ratio too large (its upper end is safe, the lower end is 0), a
    censored run leaves it too small (its lower end is safe, the upper end is infinite). A seed
    where both are censored says nothing, and both ends are open.
    """
    steps, reference = np.asarray(steps, float), np.asarray(reference, float)
    never, theirs = ~np.isfinite(steps), ~np.isfinite(reference)
    bounded = np.where(never, horizon, steps) / np.where(theirs, horizon, reference)
    found, note = ratio_interval(bounded), ""
    if never.any() or theirs.any():
        missed = f"{never.sum()} of {len(steps)} runs and {theirs.sum()} of the reference's"
        note = f"{missed} missed the target"
    low = 0.0 if theirs.any() else found.low
    return Interval(bounded, low, math.inf if never.any() else found.high, note)


def faster(ratio: Interval) -> str:
    """Verdict on "needs fewer steps": reproduced if the whole interval lies below 1.

    Not reproduced if it lies above 1 or within `SAME`.
    """
    return _word(ratio.high < 1, ratio.low >= 1 or _within(ratio))


def slower(ratio: Interval) -> str:
    """Verdict on "needs more steps": reproduced if the whole interval lies above 1.

    Not reproduced if it lies below 1 or within `SAME`.
    """
    return _word(ratio.low > 1, ratio.high <= 1 or _within(ratio))


def no_gain(ratio: Interval) -> str:
    """Verdict on "no significant gain in speed".

    Reproduced if the interval lies within `SAME` or above 1; not, if it lies below 0.8.
    """
    return _word(_within(ratio) or ratio.low >= 1, ratio.high < SAME[0])


def above(difference: Interval) -> str:
    """Verdict on "larger": reproduced if the interval lies above 0, not if below."""
    return _word(difference.low > 0, difference.high <= 0)


def equivalent(difference: Interval, margin: float) -> str:
    """Verdict on "equal": reproduced within ± `margin`, not reproduced outside of it."""
    within = -margin <= difference.low and difference.high <= margin
    return _word(within, difference.low > margin or difference.high < -margin)


def _word(supported: bool, refuted: bool) -> str:
    return REPRODUCED if supported else NOT_REPRODUCED if refuted else UNDECIDED


def _within(ratio: Interval) -> bool:
    return SAME[0] <= ratio.low and ratio.high <= SAME[1]
