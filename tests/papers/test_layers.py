"""Tests of the pictures of growing layers, on invented curves.

A failure means that a matrix has a wrong name or place, or that a count is wrong.
"""

from dataclasses import replace

import numpy as np
import pytest

from companion import plots
from lib.networks import VisionTransformer
from lib.training.curves import Curve
from papers import verdicts
from papers.studies import kept_curves, layers, speed
from papers.studies.run_measures import weight_matrices
from papers.verdicts import REPRODUCED, UNDECIDED
from tests.papers.worlds import race

RULES = ("SGD", "Adam", "SNGD")


def with_norms(norms, walked=None, at=None, rules=RULES):
    """Return curves in which every run has these norms and sums of squared steps.

    Without `walked`, the steps of every matrix have length zero.
    """
    norms = {name: np.array(values) for name, values in norms.items()}
    points = len(next(iter(norms.values())))
    if walked is None:
        walked = {name: np.zeros(points) for name in norms}
    walked = {name: np.array(values) for name, values in walked.items()}
    at = np.array(at or range(0, 10 * points, 10))
    curves = race(dict.fromkeys(rules, 0.03), walk=True)
    runs = [
        replace(run, weight_norms=norms, walked=walked, evaluated_at=at)
        for run in curves.curves
    ]
    return replace(curves, curves=tuple(runs))


# Names.


def test_every_matrix_of_the_network_has_a_name_of_its_own_in_words():
    network = VisionTransformer(
        size=8, patch=4, channels=3, width=8, depth=3, heads=2, hidden=16
    )
    norms = {name: np.ones(2) for name, _ in network.named_parameters()}
    matrices = weight_matrices(Curve("finished", weight_norms=norms))
    names = [layers.named(parameter).name for parameter in matrices]
    assert len({*names}) == len(names) == 3 + 4 * 3
    assert not {*names} & {*matrices} - {"positions"}
    assert not any("." in name for name in names)


@pytest.mark.parametrize("figure", ["fig1", "fig6", "fig7"])
def test_no_two_matrices_of_a_stored_study_have_the_same_name(figure):
    names = [layer.name for layer in layers.layers(kept_curves.kept(figure))]
    assert len({*names}) == len(names) > 1


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("tokens.embed.weight", "patch embedding"),
        ("blocks.0.attention.project.weight", "block 1: queries, keys, values"),
        ("blocks.3.attention.merge.weight", "block 4: attention output"),
        ("blocks.10.mlp.1.weight", "block 11: MLP, first matrix"),
        ("blocks.1.mlp.3.weight", "block 2: MLP, second matrix"),
        ("head.1.weight", "classification head"),
        ("blocks.1.other.weight", "blocks.1.other.weight"),
        ("w.weight", "w.weight"),
    ],
)
def test_the_name_of_a_matrix_says_its_block_and_what_it_is(parameter, name):
    assert layers.named(parameter).name == name


def test_a_name_is_that_of_the_layer_with_these_weights():
    sizes = {"width": 8, "depth": 2, "heads": 2, "head_width": 3, "hidden": 16}
    network = VisionTransformer(size=8, patch=4, **sizes)
    of = dict(network.named_parameters())
    shapes = {layers.named(name).name: tuple(W.shape) for name, W in of.items()}
    assert shapes["block 2: queries, keys, values"] == (3 * 2 * 3, 8)
    assert shapes["block 2: attention output"] == (8, 2 * 3)
    assert shapes["block 2: MLP, first matrix"] == (16, 8)
    assert shapes["block 2: MLP, second matrix"] == (8, 16)
    assert shapes["classification head"] == (10, 8)
    assert shapes["patch embedding"][0] == 8


# Growth at the end.

GROWN = {"a.weight": [1.0, 1.005], "b.weight": [1.0, 1.6], "c.weight": [2.0, 4.01]}
WALKED = {"a.weight": [0.0, 0.0], "b.weight": [0.0, 0.0], "c.weight": [0.0, 12.0]}


def dots_of(norms, walked):
    _, (ax,) = plots.panels(1, 1)
    layers._dots(ax, with_norms(norms, walked), "Adam")
    return ax


def words_in(ax, part):
    return [text for text in ax.texts if part in text.get_text()]


def rings_in(ax):
    return [line for line in ax.lines if line.get_markeredgewidth() == 1.6]


def test_a_growth_of_half_a_per_cent_is_growth_and_one_just_above_a_walk_is_not_less():
    ax = dots_of(GROWN, WALKED)
    assert words_in(ax, "3 of 3 grow") and words_in(ax, "0 less than at random")
    assert not rings_in(ax)
    (dots,) = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(dots.get_xdata(), [0.5, 60, 100.5])
    np.testing.assert_allclose(dots.get_ydata(), [0, 1, 2])


def test_a_matrix_that_grows_like_a_walk_is_a_ring_in_its_row():
    ax = dots_of(GROWN | {"c.weight": [2.0, 4.0]}, WALKED)
    assert words_in(ax, "1 less than at random")
    (ring,) = rings_in(ax)
    assert (*ring.get_xdata(), *ring.get_ydata()) == (100.0, 2)


def test_a_shrinking_matrix_does_not_count_as_growing():
    ax = dots_of(GROWN | {"c.weight": [2.0, 1.0]}, WALKED)
    assert words_in(ax, "2 of 3 grow")


def smallest_row(rule, verdict):
    """Return a claim that norms grow, with a growth of 1 to 3 % in three seeds."""
    values = np.array([1.0, 2.0, 3.0])
    bar = speed.Bar(2.0, 0.5, 3.5, values)
    missed = np.zeros(3, bool)
    return speed.Row(rule, bar, missed, verdict, verdicts.above, (-1.5, 5.5))


def test_the_row_that_decides_has_the_seeds_both_intervals_and_the_verdict():
    rows = [smallest_row("Adam", REPRODUCED), smallest_row("SNGD", UNDECIDED)]
    figure = layers.at_the_end(with_norms(GROWN, WALKED), rows)
    plain, decided, undecided = figure.axes
    assert words_in(plain, "no claim")
    assert not words_in(plain, "reproduced")
    for ax, verdict in ((decided, REPRODUCED), (undecided, UNDECIDED)):
        below = [line for line in ax.lines if min(line.get_ydata(), default=0) > 2.6]
        drawn = [tuple(line.get_xdata()) for line in below]
        assert {(1, 2, 3), (2,), (0.5, 3.5), (-1.5, 5.5)} <= {*drawn}
        assert words_in(ax, verdict)
        assert ax.get_xlim()[0] < -1.5


def test_the_mark_of_an_undecided_claim_is_hollow():
    rows = [smallest_row("Adam", REPRODUCED), smallest_row("SNGD", UNDECIDED)]
    _, decided, undecided = layers.at_the_end(with_norms(GROWN, WALKED), rows).axes
    for ax, hollow in ((decided, False), (undecided, True)):
        (mark,) = [line for line in ax.lines if list(line.get_xdata()) == [2.0]]
        assert (mark.get_markerfacecolor() == plots.PAPER) == hollow


def test_a_rule_has_a_panel_and_a_matrix_a_row_with_its_name():
    norms = {"head.1.weight": [1.0, 3.0], "blocks.0.mlp.1.weight": [1.0, 1.5]}
    figure = layers.at_the_end(with_norms(norms))
    assert len(figure.axes) == 3
    titles = [ax.get_title("left").strip() for ax in figure.axes]
    assert titles == ["SGD", "Adam", "normalised SGD"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    expected = ["classification head", "block 1: MLP, first matrix", "the smallest"]
    assert names == expected
    for ax in figure.axes:
        assert ax.get_xlim() == figure.axes[0].get_xlim()
        assert ax.get_xlim()[0] < 0 and 200 < ax.get_xlim()[1]
        bottom, top = ax.get_ylim()
        assert top < 0 and 3 < bottom


def test_the_headline_names_the_matrix_that_grows_most_under_each_rule():
    norms = {"head.1.weight": [1.0, 3.0], "tokens.embed.weight": [1.0, 1.5]}
    curves = with_norms(norms)
    words = "The classification head grows most under SGD, Adam and normalised SGD"
    assert layers._result(curves) == words

    def exchanged(run):
        if run.rule != "Adam":
            return run
        names = [*norms]
        values = [run.weight_norms[name] for name in reversed(names)]
        return replace(run, weight_norms=dict(zip(names, values, strict=True)))

    curves = replace(curves, curves=tuple(map(exchanged, curves.curves)))
    assert layers._result(curves) == (
        "The classification head grows most under SGD and normalised SGD,"
        " and the patch embedding under Adam"
    )


# Growth over training.

COURSES = {
    "head.1.weight": [1.0, 3.0, 2.0],
    "blocks.0.mlp.1.weight": [1.0, 1.5, 2.0],
    "blocks.1.mlp.1.weight": [2.0, 2.0, 3.0],
}


def test_a_course_is_the_growth_in_per_cent_over_epochs():
    curves = with_norms(COURSES)  # a step takes a tenth of the rows
    epochs, grown = layers._courses(curves, "SGD", layers.named("head.1.weight"))
    np.testing.assert_allclose(epochs, [0, 1, 2])
    np.testing.assert_allclose(grown, [0, 200, 100])


def test_a_course_is_the_mean_over_seeds():
    def change(run):
        norms = {"w.weight": np.array([1.0, 1.0 + run.seed])}
        return replace(run, weight_norms=norms)

    curves = with_norms({"w.weight": [1.0, 2.0]})
    curves = replace(curves, curves=tuple(map(change, curves.curves)))
    _, grown = layers._courses(curves, "SGD", layers.named("w.weight"))
    np.testing.assert_allclose(grown, [0, 200])  # the seeds are 0 to 4


def test_the_picture_over_training_has_a_panel_for_each_kind_and_a_line_for_each_block():
    figure = layers.over_training(with_norms(COURSES))
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown] == [
        "Classification head",
        "MLP, first matrix",
    ]
    counts = [
        sum(len(line.get_xdata()) == 3 for line in ax.lines) for ax in figure.axes
    ]
    assert counts == [3, 6]
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["SGD", "Adam", "normalised SGD"]


def test_the_headline_counts_the_norms_that_are_largest_at_the_end():
    words = layers._last_result(with_norms(COURSES))
    assert "6 of 9 norms are largest at the end" in words
