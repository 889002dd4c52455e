"""Tests of verdicts by hand.

A failure means that few seeds or a small test set count as a result.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from papers import verdicts
from papers.verdicts import NOT_REPRODUCED, REPRODUCED, UNDECIDED


def interval(low, high):
    """Return an interval with these ends."""
    return SimpleNamespace(low=low, high=high)


def test_the_interval_is_that_of_a_paired_t_test_of_ratios_that_of_their_logarithms():
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5])
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    plain = verdicts.mean_interval(values)
    ratio = verdicts.ratio_interval(np.exp(values))
    assert (plain.low, plain.high) == pytest.approx(tuple(ends))
    assert (ratio.low, ratio.high) == pytest.approx(tuple(np.exp(ends)), rel=1e-12)
    assert plain.estimate == pytest.approx(0.26)
    assert ratio.estimate == pytest.approx(stats.gmean(np.exp(values)))


def test_a_finite_test_set_widens_the_interval():
    values = np.array([0.01, 0.02, 0.03])
    alone = verdicts.mean_interval(values)
    wide = verdicts.mean_interval(values, 0.02**2)
    half = math.hypot((alone.high - alone.low) / 2, stats.norm.ppf(0.975) * 0.02)
    assert wide.high - wide.low == pytest.approx(2 * half)


@pytest.mark.parametrize(
    ("ends", "faster", "slower", "no_gain"),
    [
        ((0.4, 0.7), REPRODUCED, NOT_REPRODUCED, NOT_REPRODUCED),
        ((0.85, 0.95), REPRODUCED, NOT_REPRODUCED, REPRODUCED),
        ((0.9, 1.1), NOT_REPRODUCED, NOT_REPRODUCED, REPRODUCED),
        ((0.5, 1.4), UNDECIDED, UNDECIDED, UNDECIDED),
        ((0.7, 0.9), REPRODUCED, NOT_REPRODUCED, UNDECIDED),
        ((1.1, 1.2), NOT_REPRODUCED, REPRODUCED, REPRODUCED),
        ((1.4, 3.0), NOT_REPRODUCED, REPRODUCED, REPRODUCED),
    ],
)
def test_words_of_speed_and_of_differences(ends, faster, slower, no_gain):
    ratio = interval(*ends)
    assert (verdicts.faster(ratio), verdicts.slower(ratio)) == (faster, slower)
    assert verdicts.no_gain(ratio) == no_gain
    words = [
        verdicts.above(interval(*ends))
        for ends in ((0.1, 0.2), (-0.1, 0.2), (-0.2, 0.0))
    ]
    assert words == [REPRODUCED, UNDECIDED, NOT_REPRODUCED]  # verdicts on differences


def test_censored_runs_open_the_end_that_they_do_not_support():
    steps = np.array([50.0, 60.0, 55.0])
    reference = np.array([90.0, np.inf, 95.0])
    found = verdicts.steps_ratio(steps, reference, 100)
    assert (
        found.low == 0
        and found.high < 1
        and "1 of the reference's missed" in found.note
    )
    turned = verdicts.steps_ratio(reference, steps, 100)
    assert turned.high == math.inf and turned.low > 1
    # The runs that got there took longer as well
    assert verdicts.slower(turned) == REPRODUCED
    nothing = verdicts.steps_ratio(np.full(3, np.inf), np.full(3, np.inf), 100)
    assert {verdicts.faster(nothing), verdicts.slower(nothing)} == {UNDECIDED}
    assert verdicts.p_value(nothing, verdicts.faster) == 1


@given(st.lists(st.floats(1, 99), min_size=3, max_size=5), st.integers(0, 2))
def test_censoring_never_gives_a_word_that_the_whole_run_would_contradict(steps, place):
    """A run that is cut off at the horizon would have needed more steps, so that
    "faster" must not depend on it.
    """
    steps = np.array(steps)
    cut = steps.copy()
    cut[place] = np.inf
    assert (
        verdicts.faster(verdicts.steps_ratio(cut, np.full(len(cut), 50.0), 100))
        != REPRODUCED
    )


@pytest.mark.parametrize(
    "make, values, message",
    [
        (verdicts.mean_interval, values, "two seeds or more")
        for values in ([1.0], [[1.0, 2.0]])
    ]
    + [
        (verdicts.ratio_interval, [1.0, bad], "positive and finite")
        for bad in (0.0, np.inf, -2.0)
    ],
)
def test_values_that_give_no_interval_are_refused(make, values, message):
    with pytest.raises(ValueError, match=message):
        make(np.array(values))


def test_p_is_that_of_the_t_test_and_the_level_at_which_the_interval_decides():
    ratios = np.array([0.6, 0.9, 0.7, 0.8])
    found = verdicts.ratio_interval(ratios)
    p = verdicts.p_value(found, verdicts.faster)
    assert p == pytest.approx(stats.ttest_1samp(np.log(ratios), 0).pvalue, rel=1e-5)
    wide = verdicts.mean_interval(np.array([0.1, 0.3, 0.2]), other_variance=0.01)
    p = verdicts.p_value(wide, verdicts.above)
    assert (
        replace(wide, level=1 - 1.01 * p).low
        > 0
        > replace(wide, level=1 - 0.99 * p).low
    )


def test_holm_is_its_definition_by_hand():
    """0.01 x 4, 0.02 x 3, then 0.03 x 2, which is raised to the one before, then
    0.5.
    """
    found = verdicts.holm({"d": 0.5, "b": 0.02, "a": 0.01, "c": 0.03})
    assert list(found) == ["a", "b", "c", "d"]
    assert list(found.values()) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert verdicts.holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}


def test_an_opened_end_is_unknown_and_the_other_stays():
    values = np.array([0.5, 0.6, 0.8])
    plain = verdicts.mean_interval(values)
    ratio = verdicts.ratio_interval(values)
    for whole, lowest in ((plain, -math.inf), (ratio, 0.0)):
        below, above = (
            replace(whole, opened=opened) for opened in ((True, False), (False, True))
        )
        assert (below.low, below.high) == (lowest, whole.high)
        assert (above.low, above.high) == (whole.low, math.inf)
