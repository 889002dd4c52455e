"""The two kinds of intervals that judge the confirmation: by t, and by signed ranks.

Both have `estimate`, `low`, `high` and `level`, so that the words and the p of
`papers.verdicts` treat them like an `Interval`.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

LEVEL = 0.95


@dataclass(frozen=True)
class MeanInterval:
    """The t interval of a mean over seeds, from its sufficient numbers.

    The half width is sqrt((t s)^2 / n + (z sigma)^2), with the quantiles t of the t
    distribution and z of the normal one.

    Parameters
    ----------
    mean
        The mean over the seeds, of ratios that of their logarithms.
    variance
        s^2, the variance of one seed's value.
    seeds
        n, the number of seeds.
    other_variance
        sigma^2, a variance of the mean that does not shrink with the seeds, such as
        that of a finite number of test rows.
    geometric
        Whether `mean` is that of logarithms; the ends are then ratios.
    level
        The probability that the interval covers.
    """

    mean: float
    variance: float
    seeds: int
    other_variance: float = 0.0
    geometric: bool = False
    level: float = LEVEL

    @property
    def estimate(self) -> float:
        """The mean over the seeds; for ratios the geometric mean."""
        return self._shown(self.mean)

    @property
    def low(self) -> float:
        """The lower end."""
        return self._shown(self.mean - self._half_width())

    @property
    def high(self) -> float:
        """The upper end."""
        return self._shown(self.mean + self._half_width())

    def _half_width(self) -> float:
        tail = 0.5 + self.level / 2
        t = float(special.stdtrit(self.seeds - 1, tail))
        z = float(special.ndtri(tail))
        return math.sqrt(t**2 * self.variance / self.seeds + z**2 * self.other_variance)

    def _shown(self, value: float) -> float:
        if not self.geometric:
            return value
        # At a level near 1 an end leaves the range of floating point numbers.
        return math.exp(value) if value < 700 else math.inf


def difference_interval(values: ArrayLike, other_variance: float = 0.0) -> MeanInterval:
    """Return the t interval of the mean of paired differences.

    Parameters
    ----------
    values
        Differences, (seeds,), of at least two seeds.
    other_variance
        As in `MeanInterval`.

    Returns
    -------
    MeanInterval
        At the level 0.95.

    Raises
    ------
    ValueError
        For fewer than two seeds, and for a difference that is not finite.
    """
    values = _checked(values)
    return MeanInterval(
        mean=float(values.mean()),
        variance=float(values.var(ddof=1)),
        seeds=len(values),
        other_variance=other_variance,
    )


def ratio_interval(ratios: ArrayLike, log_variance: float = 0.0) -> MeanInterval:
    """Return the t interval of the geometric mean of paired ratios.

    Parameters
    ----------
    ratios
        Positive ratios, (seeds,), of at least two seeds.
    log_variance
        A variance that one seed's logarithm has besides what its spread over the seeds
        shows, such as that of rounding to the clock. It is added to the variance over
        seeds.

    Returns
    -------
    MeanInterval
        At the level 0.95, of ratios.

    Raises
    ------
    ValueError
        For fewer than two seeds, and for a ratio that is not positive and finite.
    """
    quotients = np.asarray(ratios, dtype=float)
    if (quotients <= 0).any():
        raise ValueError(f"ratios must be positive, got {quotients}")
    logs = _checked(np.log(quotients))
    variance = float(logs.var(ddof=1)) + log_variance
    return MeanInterval(
        mean=float(logs.mean()), variance=variance, seeds=len(logs), geometric=True
    )


def _checked(values: ArrayLike) -> np.ndarray:
    checked = np.asarray(values, dtype=float)
    if checked.ndim != 1 or len(checked) < 2:
        raise ValueError(
            f"an interval needs two seeds or more, got shape {checked.shape}"
        )
    if not np.isfinite(checked).all():
        raise ValueError(f"an interval of means needs finite values, got {checked}")
    return checked


@dataclass(frozen=True)
class RankInterval:
    """The interval of the Hodges-Lehmann estimate, by Wilcoxon's signed ranks.

    The Walsh averages of n values are the n (n + 1) / 2 means of two of them, each
    value with itself included. The estimate is their median. At the level 1 - alpha the
    interval reaches from the k-th smallest to the k-th largest, k being the largest
    number for which a sum of signed ranks below k has at most the probability alpha /
    2. If there is no such k from 1 on, the interval is everything.

    Parameters
    ----------
    lower, upper
        The sorted Walsh averages of logarithms, (n (n + 1) / 2,), that hold for the
        lower and for the upper end. They differ if a seed says nothing.
    middle
        The logarithm of the estimate.
    seeds
        n, the number of seeds.
    level
        The probability that the interval covers at least.
    """

    lower: np.ndarray
    upper: np.ndarray
    middle: float
    seeds: int
    level: float = LEVEL

    @property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate of the ratio."""
        return math.exp(self.middle)

    @property
    def low(self) -> float:
        """The lower end, 0 if nothing supports it."""
        k = self._rank()
        return math.exp(self.lower[k - 1]) if k else 0.0

    @property
    def high(self) -> float:
        """The upper end, infinite if nothing supports it."""
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
    """Return the Hodges-Lehmann interval of paired ratios of which some are only
    bounded.

    Parameters
    ----------
    logs
        Logarithms of the ratios, (seeds,): infinite if the run missed its target, minus
        infinite if the reference's run did, NaN if both did. NaN counts as infinite for
        the upper end and as minus infinite for the lower one.

    Returns
    -------
    RankInterval
        At the level 0.95. The average of an infinite and a minus infinite value is not
        defined: it counts as minus infinite for the lower end and as infinite for the
        upper one. The estimate is the median of the averages that are defined (our
        reading).

    Raises
    ------
    ValueError
        For fewer than two seeds.
    """
    values = np.asarray(logs, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"an interval needs two seeds or more, got shape {values.shape}"
        )
    first, second = np.triu_indices(len(values))
    with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN, as intended
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
    """Return the median of sorted or unsorted values, which may be infinite.

    It is NaN if there are none.
    """
    if len(values) == 0:
        return math.nan
    ordered = np.sort(values)
    low = float(ordered[(len(ordered) - 1) // 2])
    high = float(ordered[len(ordered) // 2])
    return low if low == high else (low + high) / 2
