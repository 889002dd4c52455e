"""Tests of the numbers and pictures of paper C's real data, on invented curves.

A failure means that a picture shows something else than its words say.
"""

from dataclasses import replace

import numpy as np
import pytest

from companion import plots
from lib.training.curves import Curve
from papers import pieces
from papers.studies import reviews
from papers.studies.kept_curves import shown
from tests.papers.test_real_data import each, reviews_world, vision_world
from tests.papers.worlds import answers

WORLD = reviews_world()
SEEN = vision_world(0.0, 0.05, 0.1)


def panel():
    _, (ax,) = plots.panels(1, 1)
    return ax


def judged_alone(change):
    """Return `change` for judged runs; all other runs stay as they are."""
    return lambda run: change(run) if run.part == "curve" else run


def dots_of(ax, size):
    return [line for line in ax.lines if line.get_markersize() == size]


def words_in(ax, part):
    return [text for text in ax.texts if part in text.get_text()]


# Layers and evaluations.


def three_layers(run):
    """Return a run of three layers whose last one is that of `run`."""
    end = dict(run.end)
    for when in ("start", "last"):
        last = end[f"{when}.tokens_used"][:, -1:]
        end[f"{when}.tokens_used"] = np.hstack([0 * last + 1, 0 * last + 3, last])
    return replace(run, end=end)


DEEP = each(WORLD, judged_alone(three_layers))


def test_attention_is_that_of_the_last_layer():
    (mine,) = reviews.attention_table(DEEP)
    (theirs,) = reviews.attention_table(WORLD)
    assert (mine.statement, mine.measured) == (theirs.statement, theirs.measured)
    name = "l2_tokens_used"
    assert reviews.numbers(DEEP)[name].value == reviews.numbers(WORLD)[name].value


def test_a_record_has_the_largest_accuracy_of_each_run():
    def falling(run):
        path = np.array([0.5, 0.9, 0.7])
        return replace(run, metrics=run.metrics | {"test_accuracy": path})

    found = reviews.numbers(each(WORLD, judged_alone(falling)))
    assert found["l2_most_test_accuracy"].value == pytest.approx(0.9)


def test_the_best_two_of_three_rates_are_compared(monkeypatch):
    monkeypatch.setattr(
        reviews, "at_common_level", lambda pair, *_: [run.rate for run in pair]
    )

    def later(run):
        path = np.full(4, run.rate)  # the smallest rate is the worst
        return replace(run, metrics=run.metrics | {"test_accuracy": path})

    curves = each(SEEN, lambda run: later(run) if run.part == "trial" else run)
    words = reviews._two_rates(curves, lambda x, y: x / y, *reviews.EARLY)
    assert words.endswith("in the trials, 0.5 to 2")  # of 0.1 and 0.2


# Accuracy.


def test_held_out_accuracies_are_in_per_cent():
    (ax,) = reviews.rates(SEEN).axes
    line = next(line for line in ax.lines if line.get_label() == "Adam")
    trials = SEEN.trials("Adam")
    expected = [100 * run.metrics["test_accuracy"][-4:].mean() for run in trials]
    np.testing.assert_allclose(list(line.get_ydata()), expected)


def test_a_rate_that_was_dropped_early_has_no_held_out_accuracy():
    def shorter(run):
        if run.part == "trial" and run.rate == 0.1:
            return replace(run, loss=run.loss[:-1])
        return run

    (ax,) = reviews.rates(each(SEEN, shorter)).axes
    line = next(line for line in ax.lines if line.get_label() == "Adam")
    rates = [run.rate for run in SEEN.trials("Adam")]
    assert list(line.get_xdata()) == [rate for rate in rates if rate != 0.1]


def accuracies(gap=0.02, **plain):
    """Return a world and the axis of its accuracies, beside plain classifiers with
    these shares of a hundred. The world is drawn as two networks.
    """
    world = reviews_world(gap=gap)
    runs = [run for run in world.curves if run.part != "baseline"]
    for name, share in plain.items():
        end = answers(np.arange(100) < share)
        runs.append(Curve("finished", part="baseline", rule=name, end=end))
    world = replace(world, curves=tuple(runs))
    ax = panel()
    reviews.draw_accuracies(ax, {"first": world, "second": world})
    return world, ax


def test_accuracies_of_seeds_their_means_and_the_papers_are_in_per_cent():
    world, ax = accuracies(words=83)
    order = ("l1.1", "l3", "l2")  # the paper's
    seeds, means = dots_of(ax, 3.5), dots_of(ax, 9)
    paper = [line for line in ax.lines if line.get_marker() == "|"]
    for k, row in enumerate(ax.get_yticks()):
        rule = order[k % 3]
        values = [100 * run.hits.mean() for run in world.runs(rule)]
        np.testing.assert_allclose(seeds[k].get_xdata(), values)
        assert all(row - 0.5 < y < row for y in seeds[k].get_ydata())
        mean = *means[k].get_xdata(), *means[k].get_ydata()
        assert mean == pytest.approx((np.mean(values), row))
        known = *paper[k].get_xdata(), *paper[k].get_ydata()
        assert known == pytest.approx((100 * reviews.PAPER[rule], row))


@pytest.mark.parametrize("gap", [0.02, 0.1])
def test_words_are_on_the_far_sides_of_our_accuracy_and_the_papers(gap):
    world, ax = accuracies(gap, words=83)
    ours, papers = [], []
    for text in words_in(ax, " %"):
        if not text.get_text().startswith("words"):
            (papers if len(ours) > len(papers) else ours).append(text)
    assert len(ours) == len(papers) == 6
    for mine, theirs in zip(ours, papers, strict=True):
        side = np.sign(mine.xy[0] - theirs.xy[0])
        assert np.sign(mine.xyann[0]) == side == -np.sign(theirs.xyann[0])


def test_the_best_plain_classifier_is_a_line_beside_the_rows_of_its_network():
    _, ax = accuracies(words=83, nearest=82)
    rows = ax.get_yticks()
    lines = [line for line in ax.lines if list(line.get_xdata()) == [83.0, 83.0]]
    for line, words, first in zip(
        lines, words_in(ax, "words\n83.0 %"), (0, 3), strict=True
    ):
        low, high = line.get_ydata()
        assert low < rows[first] and rows[first + 2] < high
        assert words.xy[1] == rows[first + 1]
    assert len(lines) == 2 and not words_in(ax, "nearest")


def test_the_panel_of_accuracies_has_room_for_its_rows_and_headings_alone():
    _, ax = accuracies(words=83)
    bottom, top = ax.get_ylim()
    rows = ax.get_yticks()
    assert rows[-1] < bottom < rows[-1] + 1 and -1.5 < top < -0.7
    for words, first in (("first", rows[0]), ("second", rows[3])):
        (heading,) = words_in(ax, words)
        assert first - 1 < heading.get_position()[1] < first - 0.5


def test_the_papers_differences_are_stars_beside_ours_in_points():
    figure = reviews.difference_figure(WORLD)
    losses, apart = figure.axes
    assert losses.get_title().startswith("Training loss")
    assert apart.get_title().startswith("Accuracy")
    (stars,) = [line for line in apart.lines if line.get_marker() == "*"]
    # 0.8257, 0.8133 and 0.8061, in per cent
    np.testing.assert_allclose(stars.get_xdata(), [1.24, 0.72, 1.96])
    assert list(stars.get_ydata()) == [0, 1, 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        shown(rule) for rule in WORLD.rates()
    ]


def forested(monkeypatch, *arguments, **more):
    """Return the bars and the ends of the axis that `_differences` draws."""
    drawn = []
    monkeypatch.setattr(
        pieces, "forest", lambda ax, bars, ends: drawn.append((bars, ends))
    )
    reviews._differences(None, WORLD, *arguments, **more)
    return drawn[0]


def test_differences_are_drawn_as_their_claims_have_them_in_points(monkeypatch):
    table = reviews.accuracy_table(WORLD)
    bars, _ = forested(monkeypatch, table, 100)
    for bar, claim in zip(bars, table, strict=True):
        assert bar.value == pytest.approx(100 * claim.measured)
        assert (bar.low, bar.high) == pytest.approx(
            tuple(100 * np.array(claim.interval))
        )
        assert bar.words == f"{100 * claim.measured:+.1f} {claim.verdict}"
        assert np.mean(bar.points) == pytest.approx(100 * claim.measured)


def test_the_axis_of_differences_holds_zero_all_bars_and_what_else_is_drawn(
    monkeypatch,
):
    table = reviews.accuracy_table(WORLD)
    for also in ([-7.0], [50.0], []):
        bars, (left, right) = forested(monkeypatch, table, 100, also)
        drawn = [0.0, *also]
        for bar in bars:
            drawn += [bar.low, bar.high, *bar.points]
        # A tenth of the range is left on both sides.
        room = (max(drawn) - min(drawn)) / 10
        assert min(drawn) - left == pytest.approx(room)
        assert right - max(drawn) == pytest.approx(room)


# Sparsity.


def test_rows_of_counts_have_the_differences_of_means_and_of_the_paper():
    rows = dict(reviews.count_rows(WORLD))
    less = f"{shown('l2')} less {shown('l1.1')}"
    for k, part in enumerate(reviews.PARTS):
        many, few = (reviews.counts(WORLD, rule, part) for rule in ("l2", "l1.1"))
        assert rows[less][k] == f"{(many - few).mean():+,.0f}"
        assert rows["seeds where fewer"][k] == f"{(many > few).sum()} of 5"
    assert rows[f"paper, {less}"] == ["+9,018", "+690", "+2,484"]


def test_the_picture_of_counts_shows_how_many_fewer_in_per_cent():
    ax = panel()
    reviews.draw_counts(ax, WORLD)
    diamonds = [line for line in ax.lines if line.get_marker() == "D"]
    by_hand = [100 * (27_224 - 18_206) / 27_224, 100 * (14_654 - 13_964) / 14_654]
    assert diamonds[0].get_xdata()[0] == pytest.approx(by_hand[0])
    assert diamonds[1].get_xdata()[0] == pytest.approx(by_hand[1])
    dots = dots_of(ax, 6)
    named = words_in(ax, "ours: ")
    for row, part in enumerate(reviews.PARTS):
        few, many = (reviews.counts(WORLD, rule, part) for rule in ("l1.1", "l2"))
        fewer = 100 * (many - few) / many
        np.testing.assert_allclose(dots[row].get_xdata(), fewer)
        assert named[row].get_text() == f"ours: {fewer.mean():.1f} %"
        assert named[row].xy == pytest.approx((fewer.max(), row))


def test_the_panel_of_counts_has_room_for_its_rows_zero_and_its_heading():
    ax = panel()
    reviews.draw_counts(ax, WORLD)
    left, right = ax.get_xlim()
    assert left < 0 < 33.2 < right  # the paper's largest difference is 33.1 %
    bottom, top = ax.get_ylim()
    assert 2 < bottom < 3 and -1 < top < 0
    (heading,) = words_in(ax, "our counts,")
    assert heading.get_position()[1] < 0


def indices(*worlds):
    networks = {f"network {k}": world for k, world in enumerate(worlds)}
    (ax,) = reviews.index_figure(networks).axes
    return ax


@pytest.mark.parametrize("worlds", [(WORLD,), (replace(WORLD), WORLD)])
def test_the_picture_of_indices_joins_the_least_and_the_largest_of_each_row(worlds):
    ax = indices(*worlds)
    joins = [
        line
        for line in ax.lines
        if len(line.get_xdata()) == 2 and len({*line.get_ydata()}) == 1
    ]
    rows = ax.get_yticks()
    assert len(joins) == len(rows) == 3 * len(worlds)
    for k, line in enumerate(joins):
        part = reviews.PARTS[k % 3]
        means = [
            np.mean([run.metrics[f"hoyer.{part}"][-1] for run in WORLD.runs(rule)])
            for rule in WORLD.rates()
        ]
        np.testing.assert_allclose(line.get_xdata(), [min(means), max(means)])
        assert set(line.get_ydata()) == {rows[k]}


@pytest.mark.parametrize("worlds", [(WORLD,), (replace(WORLD), WORLD)])
def test_the_rules_are_named_once_in_the_row_of_values(worlds):
    ax = indices(*worlds)
    for rule in WORLD.rates():
        (name,) = words_in(ax, shown(rule))
        assert name.xy[1] == 2


@pytest.mark.parametrize("worlds", [(WORLD,), (replace(WORLD), WORLD)])
def test_the_panel_of_indices_has_room_for_its_rows_and_headings_alone(worlds):
    ax = indices(*worlds)
    bottom, top = ax.get_ylim()
    assert ax.get_yticks()[-1] < bottom < ax.get_yticks()[-1] + 1 and -1.5 < top < -0.7
    for k in range(len(worlds)):
        (heading,) = words_in(ax, f"network {k}")
        first = ax.get_yticks()[3 * k]
        assert first - 1 < heading.get_position()[1] < first - 0.5


@pytest.mark.parametrize("worlds", [(WORLD,), (replace(WORLD), WORLD)])
def test_a_tick_is_the_mean_index_of_all_runs_before_training(worlds):
    ax = indices(*worlds)
    ticks = [line for line in ax.lines if line.get_marker() == "|"]
    for k, tick in enumerate(ticks):
        name = f"hoyer.{reviews.PARTS[k % 3]}"
        starts = [run.metrics[name][0] for run in WORLD.judged()]
        np.testing.assert_allclose(tick.get_xdata(), np.mean(starts))
    assert len(ticks) == 3 * len(worlds)
    assert len(words_in(ax, f"before training:\n{ticks[0].get_xdata()[0]:.3f}")) == 1


# Attention.


@pytest.mark.parametrize("worlds", [(DEEP,), (DEEP, replace(DEEP))])
def test_the_picture_of_attention_has_the_share_of_the_last_layer_in_per_cent(worlds):
    ax = panel()
    networks = {f"network {k}": world for k, world in enumerate(worlds)}
    reviews.draw_tokens_used(ax, networks)
    dots = dots_of(ax, 3)
    k = 0
    for row in range(len(worlds)):
        for rule in DEEP.rates():
            shares = [
                100 * (run.end["last.tokens_used"][:, 2] / run.end["present"]).mean()
                for run in DEEP.runs(rule)
            ]
            np.testing.assert_allclose(dots[k].get_xdata(), shares)
            assert all(row < y < row + 0.5 for y in dots[k].get_ydata())
            words = ax.texts[k]
            assert words.get_text().endswith(f"\n{np.mean(shares):.0f} %")
            assert row - 0.5 < words.get_position()[1] < row
            k += 1
    bottom, top = ax.get_ylim()
    assert len(worlds) - 1 + 0.3 < bottom < len(worlds) and -1.5 < top < -0.5


def read_words(words, weights, reviews_before=2):
    """Draw boxes of words with the weights of each norm, of the last review and the last
    layer of the first seed.
    """

    def change(run):
        if run.rule not in weights:
            return run
        maps = np.full((reviews_before + 1, 3, len(words)), 0.5)
        if run.seed == 0:
            maps[-1, -1] = weights[run.rule]
        else:
            maps[-1, -1] = 1.0
        texts = [["x"] * len(words)] * reviews_before + [words]
        return replace(run, end=run.end | {"words": texts, "last.maps": maps})

    ax = panel()
    reviews._word_boxes(ax, each(WORLD, judged_alone(change)))
    return ax


def boxes_of(ax):
    return [text for text in ax.texts if text.get_bbox_patch() is not None]


WEIGHTS = {
    "l1.1": [0.1, 0.2, 0.126],
    "l2": [0.05, 0.114, 0.02],
    "l3": [0.03, 0.04, 0.01],
}


def test_boxes_are_as_dark_as_the_share_of_the_largest_weight_of_all_rows():
    ax = read_words(["a", "good", "film"], WEIGHTS)
    found = boxes_of(ax)
    assert [box.get_text() for box in found] == 3 * ["a", "good", "film"]
    alphas = [box.get_bbox_patch().get_alpha() for box in found]
    expected = np.concatenate([*WEIGHTS.values()]) / 0.2
    np.testing.assert_allclose(alphas, expected)
    assert "darkest: 0.20" in ax.get_title()


def test_words_are_light_on_boxes_that_are_darker_than_six_tenths():
    found = boxes_of(read_words(["a", "good", "film"], WEIGHTS))
    light = [box.get_color() == plots.PAPER for box in found]
    assert light[:6] == [False, True, True, False, False, False]  # 0.5, 1, 0.63; 0.57
    assert not any(light[6:])


def test_words_follow_each_other_until_the_line_is_full():
    words = ["w" * 20] * 4 + ["v" * 40, "u"]
    found = boxes_of(read_words(words, dict.fromkeys(WEIGHTS, np.ones(6))))
    assert [box.get_text() for box in found] == 3 * words[:4]
    places = [box.get_position() for box in found]
    for row in (0, 1, 2):
        x = np.array([at for at, height in places if height == row])
        assert len(x) == 4 and (np.diff(x) > 20).all() and (np.diff(x) < 23).all()
        assert x[-1] + 20 <= reviews.CHARACTERS


def test_the_panel_of_words_has_room_for_its_rows_alone():
    bottom, top = read_words(["a", "good", "film"], WEIGHTS).get_ylim()
    assert 2.5 < bottom < 3 and -1 < top < -0.5


# Vision.


def evaluated_four_times(run):
    metrics = {name: np.append(path, path[-1]) for name, path in run.metrics.items()}
    return replace(run, evaluated_at=np.array([0, 10, 20, 30]), metrics=metrics)


LONG = each(SEEN, judged_alone(evaluated_four_times))


def drawn_vision():
    early, _ = reviews.vision_table(LONG)
    return reviews.vision_figure(LONG, early)


def test_a_rule_of_vision_is_named_at_its_last_step_with_its_accuracy_in_per_cent():
    (ax,) = drawn_vision().axes
    for rule, is_above in (("Adam", True), ("l1.1", False)):
        last = 100 * np.mean([run.hits.mean() for run in LONG.runs(rule)])
        (name,) = [
            text for text in ax.texts if text.get_text().startswith(f"{shown(rule)}: ")
        ]
        assert name.get_text() == f"{shown(rule)}: {last:.0f} %"
        assert name.xy == (30, pytest.approx(last))
        assert name.xyann[0] < 0 and (name.xyann[1] > 0) == is_above


def test_accuracies_of_vision_are_drawn_from_the_second_evaluation_on():
    (ax,) = drawn_vision().axes
    lines = [line for line in ax.lines if line.get_linewidth() == 0.9]
    run = LONG.runs("Adam")[0]
    assert lines[0].get_xdata().tolist() == [10, 20, 30]
    np.testing.assert_allclose(
        lines[0].get_ydata(), 100 * run.metrics["test_accuracy"][1:]
    )


def test_the_words_on_equal_accuracy_have_the_ratio_of_the_joins():
    (ax,) = drawn_vision().axes
    joins = [line for line in ax.lines if line.get_linewidth() == 1.2]
    (words,) = words_in(ax, "to the same accuracy Adam takes")
    steps = np.exp(np.mean([np.log(line.get_xdata()) for line in joins], 0))
    early, _ = reviews.vision_table(LONG)
    low, high = early.interval
    expected = f"{steps[0] / steps[1]:.2f} (95 %: {low:.2f} to {high:.2f}) of the steps"
    assert expected in words.get_text() and early.verdict in words.get_text()


def sparsity_of_vision():
    (ax,) = reviews.vision_sparsity(SEEN, "").axes
    joins = [line for line in ax.lines if len(line.get_xdata()) == 2]
    return ax, joins


def test_both_blocks_of_vision_have_a_row_for_each_seed_one_below_the_other():
    ax, joins = sparsity_of_vision()
    rows = [line.get_ydata()[0] for line in joins]
    assert rows[:5] == [0, 1, 2, 3, 4]
    second = np.array(rows[5:])
    np.testing.assert_allclose(np.diff(second), 1)
    assert 6 < second[0] < 8
    np.testing.assert_allclose(ax.get_yticks(), [2, second.mean()])


def test_each_block_of_vision_has_its_mean_difference_below_it_in_the_middle():
    ax, joins = sparsity_of_vision()
    words = words_in(ax, "on average")
    assert len(words) == 2
    x = np.concatenate([line.get_xdata() for line in joins])
    for text, block in zip(words, (joins[:5], joins[5:]), strict=True):
        apart = np.mean([np.subtract(*line.get_xdata()[::-1]) for line in block])
        assert text.get_text().startswith(pieces.written(f"{apart:+.3f}"))
        at, height = text.get_position()
        assert at == pytest.approx((x.min() + x.max()) / 2)
        last = block[-1].get_ydata()[0]
        assert last + 0.5 < height < last + 1


def test_the_panel_of_sparsity_has_room_for_its_words_alone():
    ax, _ = sparsity_of_vision()
    bottom, top = ax.get_ylim()
    last = max(text.get_position()[1] for text in words_in(ax, "on average"))
    assert last < bottom < last + 1 and -1.5 < top < -0.5
    for rule in reviews.VISION:
        (name,) = [text for text in ax.texts if text.get_text() == shown(rule)]
        assert top < name.get_position()[1] < 0
