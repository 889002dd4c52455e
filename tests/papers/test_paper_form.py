"""Tests of the pictures in the form of paper A's figures, on invented curves.

A failure means that a line, an interval or a sentence of such a picture is wrong.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from companion import plots
from papers.studies import paper_form
from tests.papers.worlds import answers, curve, race

TWO = {"SGD": 0.03, "Adam": 0.05}


def each(curves, change):
    """Return the curves with every judged run changed."""
    runs = [change(run) if run.part == "curve" else run for run in curves.curves]
    return replace(curves, curves=tuple(runs))


def with_losses(losses, window=2):
    """Return curves in which the runs of each rule have these losses, a seed each."""
    curves = race(dict.fromkeys(losses, 0.03), seeds=len(losses["SGD"]))
    configuration = curves.configuration | {"window": window}
    changed = each(curves, lambda run: replace(run, loss=losses[run.rule][run.seed]))
    return replace(changed, configuration=configuration)


def with_shares(shares, rows=1000):
    """Return curves in which the runs of each rule have these accuracies at the end."""
    curves = race(dict.fromkeys(shares, 0.03), seeds=len(shares["SGD"]))

    def change(run):
        hits = np.arange(rows) < round(rows * shares[run.rule][run.seed])
        return replace(run, end=answers(hits))

    return each(curves, change)


def panel():
    _, (ax,) = plots.panels(1, 1)
    return ax


def line_of(ax, rule):
    return next(line for line in ax.lines if line.get_label() == rule)


def lines_of_runs(ax):
    return [line for line in ax.lines if line.get_label().startswith("_")]


LOSSES = {
    "SGD": [np.array([4.0, 2.0, 2.0, 0.0]), np.array([2.0, 2.0, 0.0])],
    "Adam": [np.array([2.0, 0.0, 0.0]), np.array([2.0, 2.0, 0.0])],
}


def test_the_line_of_a_rule_is_the_mean_over_seeds_of_running_means_over_epochs():
    ax = panel()
    paper_form._losses(ax, with_losses(LOSSES))
    line = line_of(ax, "SGD")
    # A batch is a tenth of the rows. The running means are 4, 3, 2, 1 and 2, 2, 1.
    np.testing.assert_allclose(line.get_xdata(), [0.1, 0.2, 0.3])
    np.testing.assert_allclose(line.get_ydata(), [3.0, 2.5, 1.5])


def test_every_run_has_a_thin_line_up_to_its_own_end():
    ax = panel()
    paper_form._losses(ax, with_losses(LOSSES))
    assert len(lines_of_runs(ax)) == 4
    longest = lines_of_runs(ax)[0]
    np.testing.assert_allclose(longest.get_xdata(), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(longest.get_ydata(), [4.0, 3.0, 2.0, 1.0])


@pytest.mark.parametrize(("last", "scale"), [(1.5, "linear"), (0.2, "log")])
def test_the_axis_of_a_loss_that_falls_far_is_logarithmic(last, scale):
    ax = panel()
    losses = [np.array([2.0, last]), np.array([2.0, last])]
    paper_form._losses(ax, with_losses({"SGD": losses, "Adam": losses}, window=1))
    assert ax.get_yscale() == scale


def test_rules_are_compared_at_the_end_of_the_shortest_run_in_every_seed():
    curves = with_losses(LOSSES)
    assert paper_form.first_end(curves) == 3
    # There, the running means are 2 and 1 under SGD, and 0 and 1 under Adam.
    assert paper_form.ahead(curves) == []
    lower = LOSSES | {"Adam": [LOSSES["Adam"][0], np.array([2.0, 1.0, 0.0])]}
    assert paper_form.ahead(with_losses(lower)) == ["Adam"]


def test_the_interval_of_an_accuracy_is_the_t_interval_over_seeds():
    shares = {"SGD": [0.5, 0.6, 0.64], "Adam": [0.7, 0.71, 0.75]}
    found = paper_form.accuracy(with_shares(shares), "SGD")
    values = 100 * np.array(shares["SGD"])
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_lower_panel_draws_the_intervals_and_writes_their_numbers():
    shares = {"SGD": [0.5, 0.6, 0.64], "Adam": [0.7, 0.71, 0.75]}
    curves = with_shares(shares)
    ax = panel()
    paper_form._ends(ax, curves)
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == ["Adam", "SGD"]  # the most accurate first
    bars = [line for line in ax.lines if line.get_linewidth() == 3]
    words = [text.get_text() for text in ax.texts]
    for row, (bar, rule) in enumerate(zip(bars, rows, strict=True)):
        interval = paper_form.accuracy(curves, rule)
        np.testing.assert_allclose(bar.get_xdata(), [interval.low, interval.high])
        assert bar.get_ydata().tolist() == [row, row]
        number = (
            f"{interval.estimate:.1f} % ({interval.low:.1f} to {interval.high:.1f})"
        )
        assert number in words
    dots = [line.get_xdata() for line in ax.lines if line.get_markersize() == 3]
    np.testing.assert_allclose(dots, [[70, 71, 75], [50, 60, 64]])
    assert any("bag of words: 70.0 %" in each for each in words)


@pytest.mark.parametrize(
    ("adam", "best"), [([0.70, 0.71, 0.72], "Adam"), ([0.52, 0.6, 0.72], None)]
)
def test_a_rule_is_the_most_accurate_only_if_its_interval_is_above_all_others(
    adam, best
):
    shares = {"SGD": [0.50, 0.51, 0.52], "Adam": adam}
    assert paper_form.most_accurate(with_shares(shares)) == best


@pytest.mark.parametrize(
    ("ahead", "best", "words"),
    [
        ([], None, "no rule is ahead of SGD in every seed, and no rule ends"),
        (["Adam"], "Adam", "Adam is ahead of SGD in every seed and ends most accurate"),
        (["Adam"], "SGD", "Adam is ahead of SGD in every seed, and SGD ends most"),
        (["SPS", "SNGD"], None, "Polyak's rule and normalised SGD are ahead of SGD"),
        (["SNGD"], None, "normalised SGD is ahead of SGD in every seed, and no"),
    ],
)
def test_the_headline_says_who_is_ahead_and_who_is_the_most_accurate(
    monkeypatch, ahead, best, words
):
    monkeypatch.setattr(paper_form, "ahead", lambda curves: ahead)
    monkeypatch.setattr(paper_form, "most_accurate", lambda curves: best)
    assert paper_form._result(race(TWO)).startswith(f"At epoch 20, {words}")


def with_evaluations(run):
    """Return a run with three evaluations, of which the last is after 20 steps."""
    metrics = {"test_accuracy": np.array([0.1, 0.6, 0.8])}
    return replace(run, evaluated_at=np.array([0, 10, 20]), metrics=metrics)


def test_accuracies_are_in_per_cent_over_epochs_and_a_guess_is_below_the_panel():
    ax = panel()
    paper_form._accuracies(ax, each(race(TWO), with_evaluations))
    line = line_of(ax, "SGD")
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2])
    np.testing.assert_allclose(line.get_ydata(), [10, 60, 80])
    low, high = ax.get_ylim()
    assert 10 < low < 60 and 80 < high < 100
    assert not ax.texts  # the plain classifiers are measured on other rows


def test_the_best_of_two_plain_classifiers_is_drawn():
    curves = race(TWO)
    end = answers(np.arange(1000) < 750)
    more = curve("nearest", 0, np.zeros(0), "baseline", end=end)
    curves = replace(curves, curves=(*curves.curves, more))
    assert paper_form._best_plain(curves) == ("nearest", pytest.approx(75))
    assert paper_form._best_plain(race(TWO, plain=None)) is None
    paper_form.figure(race(TWO, plain=None))


def test_the_figure_draws_loss_accuracy_and_the_end_under_a_headline_and_one_legend():
    figure = paper_form.figure(race(TWO))
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[:2] == [
        "Training loss of the minibatches",
        "Test accuracy, sampled rows",
    ]
    assert "all test rows" in figure.axes[2].get_xlabel()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["SGD", "Adam"]
    headline, reading = (text.get_text() for text in figure.texts)
    assert headline.replace("\n", " ").startswith("At epoch 20, Adam is ahead of SGD")
    assert "No claim is decided" in reading.replace("\n", " ")
    # A notebook cuts a figure to its tight box, which must contain the headline.
    assert figure.texts[0].get_window_extent().y1 / figure.dpi == pytest.approx(
        figure.get_tightbbox().y1
    )
