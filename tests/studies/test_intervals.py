"""Tests of the confirmation's intervals.

A failure means that a verdict rests on wrong ends.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from papers import verdicts
from papers.studies.intervals import (
    difference_interval,
    rank_interval,
    ratio_interval,
    signed_rank_distribution,
)

VALUES = np.array([0.31, -0.12, 0.44, 0.25, 0.53, 0.07])


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
def test_the_t_intervals_are_those_of_the_first_round(level):
    other = 0.03**2
    mine = replace(difference_interval(VALUES, other), level=level)
    theirs = replace(verdicts.mean_interval(VALUES, other), level=level)
    assert (mine.estimate, mine.low, mine.high) == pytest.approx(
        (theirs.estimate, theirs.low, theirs.high)
    )
    mine = replace(ratio_interval(np.exp(VALUES)), level=level)
    theirs = replace(verdicts.ratio_interval(np.exp(VALUES)), level=level)
    assert (mine.estimate, mine.low, mine.high) == pytest.approx(
        (theirs.estimate, theirs.low, theirs.high)
    )


def test_the_variance_of_rounding_is_added_to_that_over_seeds():
    wide = ratio_interval(np.exp(VALUES), 0.02)
    half = stats.t.ppf(0.975, 5) * math.sqrt((VALUES.var(ddof=1) + 0.02) / 6)
    assert math.log(wide.high) - VALUES.mean() == pytest.approx(half)


def test_p_is_that_of_the_t_test():
    p = verdicts.p_value(difference_interval(VALUES), verdicts.above)
    assert p == pytest.approx(stats.ttest_1samp(VALUES, 0).pvalue, rel=1e-5)


@pytest.mark.parametrize(
    ("build", "values", "sentence"),
    [
        (difference_interval, [1.0], "two seeds or more"),
        (difference_interval, [1.0, np.nan], "finite values"),
        (ratio_interval, [1.0, 0.0], "must be positive"),
        (ratio_interval, [1.0, np.inf], "finite values"),
        (rank_interval, [1.0], "two seeds or more"),
    ],
)
def test_values_that_give_no_interval_are_refused(build, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(np.array(values))


@pytest.mark.parametrize("seeds", [2, 5, 8])
def test_the_distribution_of_signed_ranks_is_that_of_all_signs(seeds):
    sums = [
        np.dot(signs, range(1, seeds + 1)) for signs in product((0, 1), repeat=seeds)
    ]
    by_hand = [
        np.mean(np.array(sums) <= t) for t in range(seeds * (seeds + 1) // 2 + 1)
    ]
    np.testing.assert_allclose(signed_rank_distribution(seeds), by_hand)


def test_the_rank_interval_has_the_shifts_that_wilcoxons_test_does_not_reject():
    interval = rank_interval(VALUES)
    low = math.log(interval.low)
    high = math.log(interval.high)
    for shift, inside in ((low, True), (high, True)):
        for step, is_kept in ((1e-6, inside), (-1e-6, not inside)):
            moved = shift + step if shift == low else shift - step
            p = stats.wilcoxon(VALUES - moved, method="exact").pvalue
            assert (p > 0.05) == is_kept
    pairs = [(a + b) / 2 for k, a in enumerate(VALUES) for b in VALUES[k:]]
    assert math.log(interval.estimate) == pytest.approx(np.median(pairs))


def test_the_p_of_the_rank_interval_is_wilcoxons():
    values = np.array([0.3, 0.1, 0.4, 0.2, 0.5, -0.05, 0.6, 0.35])
    p = verdicts.p_value(rank_interval(values), verdicts.slower)
    assert p == pytest.approx(stats.wilcoxon(values, method="exact").pvalue, rel=1e-5)


def test_missed_targets_open_the_end_that_they_do_not_support():
    plain = np.linspace(-0.9, -0.5, 12)
    slow, lost, both = (np.append(plain, last) for last in (np.inf, -np.inf, np.nan))
    assert rank_interval(slow).high < 1 and rank_interval(lost).high < 1
    assert rank_interval(slow).high > rank_interval(lost).high
    assert rank_interval(both).low == rank_interval(lost).low
    assert rank_interval(both).high == rank_interval(slow).high
    # the estimate of the other seeds
    assert math.log(rank_interval(both).estimate) == pytest.approx(-0.7)


def test_if_most_runs_miss_nothing_supports_an_end():
    interval = rank_interval(np.array([np.inf] * 5 + [-np.inf] * 5))
    assert (interval.low, interval.high) == (0.0, math.inf)
    assert verdicts.p_value(interval, verdicts.faster) == 1.0
    # Three seeds reach no level of 95 %
    few = rank_interval(np.array([-0.5, -0.6, -0.7]))
    assert (few.low, few.high) == (0.0, math.inf)


def test_two_seeds_are_enough_for_an_estimate_by_ranks():
    interval = rank_interval(np.log([2.0, 8.0]))
    assert interval.estimate == pytest.approx(4) and interval.seeds == 2


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
def test_the_estimate_by_ranks_is_the_median_of_all_means_of_two(seeds):
    values = np.array([0.9, -0.4, 0.1, 2.0, 0.35])[:seeds]
    pairs = [(a + b) / 2 for k, a in enumerate(values) for b in values[k:]]
    assert math.log(rank_interval(values).estimate) == pytest.approx(np.median(pairs))


def test_the_estimate_by_ranks_turns_with_the_sign_of_the_logarithms():
    values = np.array([0.9, -0.4, 0.1])
    turned = rank_interval(-values).estimate
    assert turned == pytest.approx(1 / rank_interval(values).estimate)


def test_a_seed_without_information_leaves_the_estimate_to_the_others():
    assert rank_interval([0.3, np.nan]).estimate == pytest.approx(math.exp(0.3))


def test_there_is_no_estimate_by_ranks_if_nothing_is_known():
    assert math.isnan(rank_interval([np.nan, np.nan]).estimate)


def test_there_is_no_estimate_by_ranks_between_opposite_infinities():
    assert math.isnan(rank_interval([np.inf, -np.inf]).estimate)


def test_the_estimate_by_ranks_is_infinite_if_every_run_missed():
    assert rank_interval([np.inf, np.inf]).estimate == math.inf


def test_an_end_beyond_the_floating_point_numbers_is_infinite():
    interval = replace(ratio_interval([0.5, 2.0]), level=1 - 1e-12)
    assert interval.high == math.inf and interval.low == 0.0
