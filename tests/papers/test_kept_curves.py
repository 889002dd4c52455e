"""Tests of what the figures of kept curves share, on invented curves.

A failure means that a study is judged that must not be, or that a caption is wrong.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from companion import plots
from companion.claims import Table
from lib.training.curves import Curve
from papers.studies import kept_curves
from tests.papers.worlds import answers, clocked, configuration, race

TWO = {"SGD": 0.03, "Adam": 0.05}


def each(curves, change):
    """Return the curves with every run changed."""
    return replace(curves, curves=tuple(map(change, curves.curves)))


def with_plain(curves, **shares):
    """Return the curves with plain classifiers of these accuracies alone."""
    plain = [
        Curve(
            "finished", part="baseline", rule=name, end=answers(np.arange(100) < share)
        )
        for name, share in shares.items()
    ]
    runs = [run for run in curves.curves if run.part != "baseline"]
    return replace(curves, curves=(*runs, *plain))


def unequal():
    """Return curves in which Adam has 90 % of the test rows right, and SGD 80 %."""
    share = {"SGD": 800, "Adam": 900}

    def change(run):
        if run.part != "curve":
            return run
        return replace(run, end=answers(np.arange(1000) < share[run.rule]))

    return each(race(TWO), change)


def test_the_best_rule_is_the_one_with_the_highest_accuracy():
    assert kept_curves._best_rule(unequal()) == ("Adam", pytest.approx(0.9))


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({"words": 85, "nearest": 95}, "nearest 0.950"),
        ({"words": 95, "nearest": 85}, "words 0.950"),
        ({"words": 90, "nearest": 10}, "words 0.900"),  # the network must be ahead
        ({"words": 89, "nearest": 10}, ""),
    ],
)
def test_the_best_plain_classifier_must_be_beaten(shares, reason):
    curves = with_plain(unequal(), **shares)
    silent = kept_curves._silent(curves)
    assert (silent == "") == (reason == "")
    assert reason in silent
    caption = kept_curves.caption("Figure 1", curves, "marks", Table(), ".")
    assert (f": {kept_curves.NOT_BETTER}" in caption) == bool(reason)
    assert "Test accuracy: Adam 90.0 %" in caption
    assert all(f"{name} {share}.0 %" in caption for name, share in shares.items())


@pytest.mark.parametrize("seeds", [2, 3])
def test_three_seeds_are_needed(seeds):
    silent = kept_curves._silent(race(TWO, seeds=seeds))
    assert silent.startswith("2 of 3 seeds") if seeds == 2 else silent == ""


def at_rates(rule, taken, tried, capped=(), given=(0.1, 0.2)):
    """Return curves of one rule that was tried at these rates and took one of them.

    `capped` has, for each trial, the share of the steps at which the cap bound.
    """
    capped = capped or [1.0] * len(tried)
    runs = [clocked(seed, np.ones(3), taken, rule, part="curve") for seed in range(3)]
    for k, (rate, share) in enumerate(zip(tried, capped, strict=True)):
        end = {"capped": share}
        runs.append(clocked(100 + k, np.ones(3), rate, rule, end=end))
    curves = race({rule: 0.03}, seeds=1)
    values = configuration([rule], 20, rates={rule: list(given)})
    return replace(curves, configuration=values, curves=tuple(runs))


@pytest.mark.parametrize(
    ("taken", "tried", "is_listed"),
    [
        (0.1, [0.05, 0.1, 0.2], False),
        (0.05, [0.05, 0.1, 0.2], True),
        (0.2, [0.05, 0.1, 0.2], True),
        (0.1, [], True),
    ],
)
def test_a_rate_is_at_the_edge_if_no_rate_beyond_it_was_tried(taken, tried, is_listed):
    curves = at_rates("SGD", taken, tried)
    assert kept_curves.edges(curves) == f"SGD {taken:g}" * is_listed


@pytest.mark.parametrize(("given", "is_listed"), [((0.1,), False), ((0.1, 0.2), True)])
def test_without_trials_only_a_single_rate_counts_as_given(given, is_listed):
    curves = at_rates("SGD", 0.1, [], given=given)
    assert kept_curves.edges(curves) == "SGD 0.1" * is_listed


@pytest.mark.parametrize(
    ("rule", "taken", "capped", "is_listed"),
    [
        ("SPS", 0.2, [1.0, 1.0, 0.0099, 0.5], False),
        ("SPS", 0.2, [1.0, 1.0, 0.5, 0.0099], False),  # one trial is enough
        ("SPS", 0.2, [1.0, 1.0, 0.01, 0.5], True),
        ("SPS", 0.2, [1.0, 1.0, 0.0105, 0.5], True),
        ("SPS", 0.2, [0.001, 0.001, 0.5, 0.5], True),  # at other rates
        ("SPS", 0.05, [0.001, 1.0, 1.0, 1.0], True),  # the smallest rate
        ("SGD", 0.2, [1.0, 1.0, 0.001, 0.001], True),
    ],
)
def test_sps_may_take_its_largest_rate_if_the_cap_binds_in_under_one_per_cent(
    rule, taken, capped, is_listed
):
    curves = at_rates(rule, taken, [0.05, 0.1, 0.2, 0.2], capped)
    assert kept_curves.edges(curves) == f"{rule} {taken:g}" * is_listed


def panel():
    _, (ax,) = plots.panels(1, 1)
    return ax


def test_a_median_goes_as_far_as_the_longest_run_over_the_runs_that_go_on():
    ax = panel()
    x = np.array([1, 2, 3, 4, 5])
    runs = [(x[:3], np.array([1.0, 2, 3])), (x, np.array([3.0, 4, 5, 6, 7]))]
    kept_curves.medians(ax, runs, "SGD")
    line = next(line for line in ax.lines if line.get_label() == "SGD")
    assert line.get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert line.get_ydata().tolist() == [2, 3, 4, 6, 7]
    dots = [line for line in ax.lines if line.get_markersize() == 3]
    ends = [(*dot.get_xdata(), *dot.get_ydata()) for dot in dots]
    assert ends == [(3, 3.0), (5, 7.0)]


def test_the_mean_of_runs_is_at_the_steps_that_all_of_them_have():
    runs = [
        (np.array([0, 10, 20, 25]), np.array([4.0, 2.0, 1.0, 9.0])),
        (np.array([0, 10, 20, 30]), np.array([2.0, 0.0, 0.0, 5.0])),
    ]
    steps, mean = kept_curves.mean_of_runs(runs)
    assert steps.tolist() == [0, 10, 20]
    assert mean.tolist() == [3.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("names", "words"),
    [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")],
)
def test_a_list_in_words_has_an_and_before_its_last_name(names, words):
    assert kept_curves.listed([*names]) == words


@pytest.mark.parametrize(
    ("horizon", "words"), [(200, "(20 epochs"), (10, "(1 epoch)"), (14, "(1 epoch)")]
)
def test_epochs_are_steps_times_the_batch_over_the_rows(horizon, words):
    curves = race(TWO)
    curves = replace(curves, configuration=curves.configuration | {"horizon": horizon})
    assert words in kept_curves._setting(curves, "")


def test_a_caption_begins_with_the_figure_its_data_and_its_seeds():
    caption = kept_curves.caption("Figure 1", race(TWO), "marks", Table(), ".")
    assert caption.startswith("Figure 1, reduced: invented, 5 seeds; marks. ")


def test_the_first_sentence_of_a_caption_is_written_below_the_figure(monkeypatch):
    monkeypatch.setattr(plots, "caption", lambda figure, words: words)
    assert kept_curves.captioned(None, "One, two. Three. Four.") == "One, two"


def test_a_rate_that_diverged_is_not_drawn_and_the_chosen_one_has_a_ring():
    def change(run):
        if run.part == "trial" and run.rate == 0.2:
            return replace(run, status="diverged at step 3")
        return run

    curves = each(race({"SGD": 0.03}), change)
    figure = kept_curves.rates_figure(curves, lambda trial: 10 * trial.rate, "Loss")
    line, ring = figure.axes[0].lines
    assert list(line.get_xdata()) == [0.05, 0.1]
    np.testing.assert_allclose(list(line.get_ydata()), [0.5, 1.0])
    assert (*ring.get_xdata(), *ring.get_ydata()) == (0.1, 1.0)


def test_ends_of_a_record_are_those_of_the_interval():
    interval = SimpleNamespace(estimate=1.5, low=1.0, high=2.0)
    found = kept_curves.ends("ratio", interval)
    values = {name: number.value for name, number in found.items()}
    assert values == {"ratio": 1.5, "ratio_low": 1.0, "ratio_high": 2.0}
