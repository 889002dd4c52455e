"""The two kinds of intervals that decide the claims of the confirmation study: t
intervals, and intervals from signed ranks.

Each kind has `estimate`, `low`, `high` and `level`, so that the functions of
`papers.verdicts` can use it like an `Interval`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

LEVEL = 0.95


class NotMeasurable(ValueError):
    """The runs of a study do not give the interval of a claim."""


@dataclass(frozen=True)
class MeanInterval:
    """The t interval of a mean over seeds, from its mean, variance and number of seeds.

    The half width is sqrt((t s)^2 / n + (z sigma)^2), with the quantiles t of the t
    distribution and z of the normal distribution.

    Parameters
    ----------
    mean
        The mean over the seeds. For ratios it is the mean of their logarithms.
    variance
        s^2, the variance of one seed's value.
    seeds
        n, the number of seeds.
    other_variance
        sigma^2, a variance of the mean that does not shrink with the number of seeds,
        such as the variance due to a finite number of test rows.
    geometric
        Whether `mean` is a mean of logarithms. If so, the ends of the interval are
        ratios.
    level
        The probability with which the interval covers the true value.
    values
        The values of the seeds, for pictures; for ratios they are ratios.
    """

    mean: float
    variance: float
    seeds: int
    other_variance: float = 0.0
    geometric: bool = False
    level: float = LEVEL
    values: Sequence[float] = field(default=(), compare=False, repr=False)

    @property
    def estimate(self) -> float:
        """Return the mean over the seeds; for ratios this is the geometric mean."""
        return self._shown(self.mean)

    @property
    def low(self) -> float:
        """Return the lower end."""
        return self._shown(self.mean - self._half_width())

    @property
    def high(self) -> float:
        """Return the upper end."""
        return self._shown(self.mean + self._half_width())

    def _half_width(self) -> float:
        tail = 0.5 + self.level / 2
        t = float(special.stdtrit(self.seeds - 1, tail))
        z = float(special.ndtri(tail))
        return math.sqrt(t**2 * self.variance / self.seeds + z**2 * self.other_variance)

    def _shown(self, value: float) -> float:
        if not self.geometric:
            return value
        # At a level near 1, an end may be outside the range of floating point numbers.
        return math.exp(value) if value < 700 else math.inf


def difference_interval(values: ArrayLike, other_variance: float = 0.0) -> MeanInterval:
    """Return the t interval of the mean of paired differences.

    Parameters
    ----------
    values
        The differences, (seeds,), of at least two seeds.
    other_variance
        As in `MeanInterval`.

    Returns
    -------
    MeanInterval
        The interval at the level 0.95.

    Raises
    ------
    ValueError
        If there are fewer than two seeds, or if a difference is not finite.
    """
    values = _checked(values)
    return MeanInterval(
        mean=float(values.mean()),
        variance=float(values.var(ddof=1)),
        seeds=len(values),
        other_variance=other_variance,
        values=tuple(values),
    )


def ratio_interval(ratios: ArrayLike, log_variance: float = 0.0) -> MeanInterval:
    """Return the t interval of the geometric mean of paired ratios.

    Parameters
    ----------
    ratios
        Positive ratios, (seeds,), of at least two seeds.
    log_variance
        A variance of one seed's logarithm in addition to the variance over the seeds,
        such as the variance due to rounding to the clock. The two variances are added.

    Returns
    -------
    MeanInterval
        The interval of ratios, at the level 0.95.

    Raises
    ------
    ValueError
        If there are fewer than two seeds, or if a ratio is not positive and finite.
    """
    quotients = np.asarray(ratios, dtype=float)
    if (quotients <= 0).any():
        raise NotMeasurable(f"ratios must be positive, got {quotients}")
    logs = _checked(np.log(quotients))
    variance = float(logs.var(ddof=1)) + log_variance
    return MeanInterval(
        mean=float(logs.mean()),
        variance=variance,
        seeds=len(logs),
        geometric=True,
        values=tuple(quotients),
    )


def _checked(values: ArrayLike) -> np.ndarray:
    """Return `values` as floats (seeds,).

    Raise ValueError unless there are at least two and all are finite.
    """
    checked = np.asarray(values, dtype=float)
    if checked.ndim != 1 or len(checked) < 2:
        raise NotMeasurable(
            f"an interval needs two seeds or more, got shape {checked.shape}"
        )
    if not np.isfinite(checked).all():
        raise NotMeasurable(f"an interval of means needs finite values, got {checked}")
    return checked


@dataclass(frozen=True)
class RankInterval:
    """The interval of the Hodges-Lehmann estimate, by Wilcoxon's signed ranks.

    The Walsh averages of n values are the n (n + 1) / 2 means of two values, including
    each value with itself. The estimate is the median of the Walsh averages. At the
    level 1 - alpha the interval reaches from the k-th smallest to the k-th largest
    Walsh average. Here k is the largest number such that the sum of signed ranks is
    below k with a probability of at most alpha / 2. If there is no such k >= 1, the
    interval contains all numbers.

    Parameters
    ----------
    lower, upper
        The sorted Walsh averages of logarithms, (n (n + 1) / 2,), from which the lower
        and the upper end are computed. `lower` and `upper` differ only where an average
        is unknown. This is so where both runs of a seed missed the target, and where
        the runs of one seed give infinity and the runs of another seed give minus
        infinity.
    middle
        The logarithm of the estimate. It is NaN if no average is known.
    seeds
        n, the number of seeds.
    level
        The least probability with which the interval covers the true value.
    """

    lower: np.ndarray
    upper: np.ndarray
    middle: float
    seeds: int
    level: float = LEVEL

    @property
    def estimate(self) -> float:
        """Return the Hodges-Lehmann estimate of the ratio."""
        return math.exp(self.middle)

    @property
    def low(self) -> float:
        """Return the lower end, which is 0 if the runs do not bound the ratio from
        below.
        """
        k = self._rank()
        return math.exp(self.lower[k - 1]) if k else 0.0

    @property
    def high(self) -> float:
        """Return the upper end, which is infinite if the runs do not bound the ratio
        from above.
        """
        k = self._rank()
        return math.exp(self.upper[-k]) if k else math.inf

    def _rank(self) -> int:
        tail = (1 - self.level) / 2
        return int(
            np.searchsorted(signed_rank_distribution(self.seeds), tail, side="right")
        )


@cache
def signed_rank_distribution(seeds: int) -> np.ndarray:
    """Return the exact distribution function of Wilcoxon's signed rank sum.

    Parameters
    ----------
    seeds
        n, the number of values.

    Returns
    -------
    numpy.ndarray
        P(T <= t) for t = 0, ..., n (n + 1) / 2, under symmetry about zero and without
        ties.

    Examples
    --------
    >>> signed_rank_distribution(2)
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    probability = np.zeros(seeds * (seeds + 1) // 2 + 1)
    probability[0] = 1.0
    for rank in range(1, seeds + 1):
        with_rank = np.zeros_like(probability)
        with_rank[rank:] = probability[:-rank]
        probability = (probability + with_rank) / 2
    return np.cumsum(probability)


def rank_interval(logs: ArrayLike) -> RankInterval:
    """Return the Hodges-Lehmann interval of paired ratios, even if only a bound is
    known for some of them.

    Parameters
    ----------
    logs
        The logarithms of the ratios, (seeds,). An entry is infinity if the run missed
        its target, minus infinity if the run of the reference missed it, and NaN if
        both runs missed it. NaN is replaced by infinity for the upper end, and by minus
        infinity for the lower end.

    Returns
    -------
    RankInterval
        The interval at the level 0.95. The average of infinity and minus infinity is
        not defined. It is replaced by minus infinity for the lower end, and by infinity
        for the upper end. The estimate is the median of the averages that are defined
        (our reading).

    Raises
    ------
    ValueError
        If there are fewer than two seeds.
    """
    values = np.asarray(logs, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise NotMeasurable(
            f"an interval needs two seeds or more, got shape {values.shape}"
        )
    first, second = np.triu_indices(len(values))
    with np.errstate(invalid="ignore"):  # Infinity minus infinity is NaN, as intended.
        averages = (values[first] + values[second]) / 2
    undefined = np.isnan(averages)
    defined = averages[~undefined]
    return RankInterval(
        lower=np.sort(np.where(undefined, -np.inf, averages)),
        upper=np.sort(np.where(undefined, np.inf, averages)),
        middle=_median(defined),
        seeds=len(values),
    )


def _median(values: np.ndarray) -> float:
    """Return the median of values (k,), which may be infinite but not NaN.

    The median is NaN if there are no values, or if the two middle values are infinite
    with opposite signs.
    """
    if len(values) == 0:
        return math.nan
    ordered = np.sort(values)
    low = float(ordered[(len(ordered) - 1) // 2])
    high = float(ordered[len(ordered) // 2])
    return low if low == high else (low + high) / 2
