"""Tests of the numbers and pictures of paper A's speed studies, on invented curves.

A failure means that a picture shows something else than its words say.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from companion import plots
from papers import verdicts
from papers.studies import speed
from tests.papers.worlds import clocked, race

THREE = {"SGD": 0.03, "Adam": 0.05, "SNGD": 0.012}
STAIRS = [1.5, 1.0, 0.5]  # three targets, so that the second is not the last


def each(curves, change):
    """Return the curves with every run changed."""
    return replace(curves, curves=tuple(map(change, curves.curves)))


def panel():
    _, (ax,) = plots.panels(1, 1)
    return ax


def words_in(ax, part=""):
    return [text for text in ax.texts if part in text.get_text()]


# Numbers.


def test_a_claim_is_about_the_last_of_three_targets():
    world = race(THREE, targets=STAIRS)
    claim = speed._speed(world, "Adam", "fig6")
    steps = [speed._steps(world, rule, 0.5) for rule in ("Adam", "SGD")]
    assert claim.measured == pytest.approx(stats.gmean(steps[0] / steps[1]))


def test_a_row_knows_who_missed_the_last_of_three_targets():
    for target, missed in ((0.5, False), (1e-9, True)):
        world = race({"SGD": 0.03, "Adam": 0.03}, targets=[1.5, 1.0, target])
        (row,) = speed.plain_rows(world)
        assert (row.missed == missed).all() and row.rule == "Adam"


def test_a_third_rate_that_misses_the_target_does_not_matter():
    fast = {0.05: 20, 0.1: 30, 0.2: np.inf}

    def timed(run):
        if run.part != "trial":
            return run
        readings = np.where(np.arange(40) * 5 < fast[run.rate], 2.0, 0.0)
        return clocked(100, readings, run.rate, run.rule, cap=3.0)

    ratios = speed._at_two_rates(each(race(THREE), timed), "Adam", 0.5)
    assert ratios == pytest.approx((30 / 40, 40 / 30))


def test_one_run_off_its_equation_is_seen_among_five():
    def wrong(run):
        if run.part == "curve" and run.seed == 3:
            return replace(run, step_size=run.step_size * np.float32(1.001))
        return run

    world = race({"SGD": 0.03, "SNGD": 0.03})
    assert [claim.holds for claim in speed.formulas(world)] == [True]
    assert [claim.holds for claim in speed.formulas(each(world, wrong))] == [False]


def with_norms(norms, walked, rules=("SGD", "Adam", "SNGD")):
    """Return curves in which every run has these norms and sums of squared steps."""
    norms = {name: np.array(values) for name, values in norms.items()}
    walked = {name: np.array(values) for name, values in walked.items()}
    curves = race(dict.fromkeys(rules, 0.03), walk=True)
    return each(curves, lambda run: replace(run, weight_norms=norms, walked=walked))


def test_growth_is_that_from_the_first_to_the_last_of_three_evaluations():
    curves = with_norms({"a.weight": [2.0, 3.0, 8.0]}, {"a.weight": [0.0, 5.0, 12.0]})
    grown, walk = speed.growth(curves, "SGD")
    np.testing.assert_allclose(grown, np.full((1, 5), 3.0))
    np.testing.assert_allclose(walk, np.full((1, 5), 1.0))


def test_a_claim_counts_and_names_the_matrices_beyond_a_walk():
    curves = with_norms(
        {"a.weight": [1.0, 1.9], "b.weight": [1.0, 1.2], "c.weight": [1.0, 1.6]},
        {"a.weight": [0.0, 1.25], "b.weight": [0.0, 1.25], "c.weight": [0.0, 1.25]},
    )
    claim = speed._beyond_a_walk(curves, "SGD")  # a walk grows by 0.5
    assert "(2 of 3 do)" in claim.statement and "least in b.weight" in claim.statement
    assert claim.measured == pytest.approx(0.2 - 0.5)


# Sizes and panels.


def test_a_picture_is_taller_by_the_same_height_for_each_further_rule(monkeypatch):
    for part in ("_ratios", "_losses"):
        monkeypatch.setattr(speed, part, lambda *_: None)
    heights = []
    for count in (2, 3, 4):
        curves = SimpleNamespace(configuration={"rates": range(count)})
        curves.configuration["targets"] = [0.5]
        heights.append(speed.draw(curves, []).get_figheight())
    first, second = np.diff(heights)
    assert first == pytest.approx(second) and first > 0


def test_the_panels_beside_are_step_size_and_growth_with_a_name_for_every_rule():
    curves = with_norms({"a.weight": [1.0, 1.5]}, {"a.weight": [0.0, 1.0]})
    figure = speed.beside(curves)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["Step size taken", "Ours: growth, and a walk's"]
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["SGD: 0.1", "normalised SGD"]
    named = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert [words.split(":")[0] for words in named] == ["SGD", "Adam", "SNGD"]


def test_without_lengths_of_steps_there_is_no_panel_of_growth():
    (ax,) = speed.beside(race(THREE)).axes
    assert ax.get_title() == "Step size taken"


def test_the_rates_are_drawn_with_the_steps_by_which_they_were_chosen():
    world = race(THREE)  # its targets are 1 and 0.5
    ends = {0.05: 0.1, 0.1: 0.6, 0.2: 0.3}  # 0.1 does not reach the last target

    def change(run):
        if run.part != "trial":
            return run
        falling = np.linspace(2, ends[run.rate], 11)
        return replace(run, clock={"at": np.arange(0, 110, 10), "loss": falling})

    tried = each(world, change)
    (ax,) = speed.rates(tried).axes
    line = next(line for line in ax.lines if line.get_label() == "Adam")
    assert list(line.get_xdata()) == [0.05, 0.2]
    steps = [trial.steps_to(0.5) for trial in tried.trials("Adam")]
    assert list(line.get_ydata()) == [steps[0], steps[2]]
    assert steps[0] < steps[2] < steps[1] == np.inf


def test_a_step_size_is_the_mean_over_the_window_that_ends_at_its_step():
    world = race(THREE)
    ax = panel()
    speed._step_sizes(ax, world)
    line = next(line for line in ax.lines if line.get_label() == "normalised SGD")
    at = line.get_xdata()
    assert at[:3].tolist() == [5, 15, 25]
    steps = [run.step_size.astype(float) for run in world.runs("SNGD")]
    by_hand = [np.median([one[x - 5 : x].mean() for one in steps]) for x in at]
    np.testing.assert_allclose(line.get_ydata(), by_hand)
    level = next(line for line in ax.lines if line.get_label() == "SGD: 0.1")
    assert set(level.get_ydata()) == {0.1}


# Ratios.


def test_the_panel_of_ratios_has_room_for_its_rows_alone_and_names_the_last_target():
    ax = panel()
    world = race(THREE, targets=STAIRS)
    speed._ratios(ax, speed.plain_rows(world), STAIRS[-1])
    bottom, top = ax.get_ylim()
    assert 1 < bottom < 2 and -1 < top < -0.3  # the seeds of a row are above its bar
    assert "training loss 0.5" in ax.get_xlabel()


def test_without_a_figure_of_the_paper_no_rule_has_a_verdict():
    upper, _ = speed.draw(race(THREE)).axes
    words = [text.get_text() for text in upper.texts]
    assert words.count("no claim") == 2
    names = [label.get_text() for label in upper.get_yticklabels()]
    assert sorted(names) == ["Adam", "normalised SGD"]


def test_a_corrected_interval_decides_where_a_row_is_shaded():
    inside = SimpleNamespace(low=1.05, high=1.2, estimate=1.1, values=np.array([1.1]))
    row = speed.Row("SNGD", inside, np.zeros(1, bool), "undecided", verdicts.slower)
    assert (row.deciding.low, row.deciding.high) == (1.05, 1.2)
    wide = row._replace(corrected=(0.95, 1.3))
    assert (wide.deciding.low, wide.deciding.high) == (0.95, 1.3)
    for each, shade in ((row, verdicts.SAME), (wide, (1.0, 9.0))):
        ax = panel()
        speed._ratios(ax, [each], 0.5)
        (box,) = [part.get_paths()[0].get_extents() for part in ax.collections]
        right = min(shade[1], ax.get_xlim()[1])
        assert (box.x0, box.x1) == pytest.approx((shade[0], right))


@pytest.mark.parametrize(
    ("fast", "slow", "tick", "other"),
    [(0.15, 0.012, 0.3, 0.9), (0.032, 0.028, 0.9, 0.5)],
)
def test_ticks_are_fine_where_all_ratios_are_near_one(fast, slow, tick, other):
    world = race({"SGD": 0.03, "Adam": fast, "SNGD": slow}, horizon=400)
    ax = panel()
    speed._ratios(ax, speed.plain_rows(world), 0.5)
    assert tick in ax.get_xticks() and other not in ax.get_xticks()


def row_of(low, high, verdict=verdicts.REPRODUCED):
    values = np.array([low, (low * high) ** 0.5, high])
    ratio = SimpleNamespace(low=low, high=high, estimate=values[1], values=values)
    return speed.Row("Adam", ratio, np.zeros(3, bool), verdict, verdicts.faster)


@pytest.mark.parametrize(
    ("low", "high", "arrows"),
    [(0.1, 1.5, ["<"]), (0.6, 9.0, [">"]), (0.1, 9.0, ["<", ">"]), (0.6, 1.5, [])],
)
def test_an_interval_has_an_arrow_where_it_leaves_the_panel(low, high, arrows):
    ax = panel()
    speed._draw_ratio(ax, 1.0, row_of(low, high), (0.5, 2.0))
    found = [line.get_marker() for line in ax.lines if line.get_markersize() == 7]
    assert found == arrows


def test_seeds_are_drawn_above_the_bar_of_their_row():
    ax = panel()
    speed._draw_ratio(ax, 1.0, row_of(0.6, 1.5), (0.5, 2.0))
    dots = [line.get_ydata()[0] for line in ax.lines if line.get_markersize() == 3]
    assert len(dots) == 3 and all(0.5 < y < 1.0 for y in dots)


def test_dots_of_equal_ratios_are_stacked():
    ax = panel()
    values = np.array([0.9, 0.6, 0.9, 0.9])
    bar = speed.Bar(0.8, 0.6, 1.0, values)
    row = speed.Row("Adam", bar, np.zeros(4, bool), "undecided", None)
    speed._draw_ratio(ax, 1.0, row, (0.5, 2.0))
    dots = [line for line in ax.lines if line.get_markersize() == 3]
    places = {(*line.get_xdata(), *line.get_ydata()) for line in dots}
    assert len(places) == 4
    heights = sorted(y for x, y in places if x == 0.9)
    np.testing.assert_allclose(np.diff(heights), speed.STACK / 3)


def test_a_high_stack_of_dots_stays_in_its_row():
    ax = panel()
    bar = speed.Bar(0.8, 0.6, 1.0, np.full(9, 0.8))
    row = speed.Row("Adam", bar, np.zeros(9, bool), "undecided", None)
    speed._draw_ratio(ax, 1.0, row, (0.5, 2.0))
    dots = [line for line in ax.lines if line.get_markersize() == 3]
    heights = [line.get_ydata()[0] for line in dots]
    assert len(set(heights)) == 9 and min(heights) > 0.5


def test_a_ratio_is_written_above_its_verdict():
    ax = panel()
    speed._write_ratio(ax, 1.0, row_of(0.25, 1.0))
    (number,) = words_in(ax, "0.50 (0.25 to 1.00)")
    (verdict,) = words_in(ax, "reproduced")
    assert 0.5 < number.get_position()[1] < 1 < verdict.get_position()[1] < 1.5


def test_a_shade_is_centred_on_its_row_and_touches_no_other():
    ax = panel()
    ratio = SimpleNamespace(low=0.5, high=0.7)
    speed._shade(ax, 2, ratio, verdicts.faster, (0.1, 9.0))
    (box,) = [part.get_paths()[0].get_extents() for part in ax.collections]
    assert (box.y0 + box.y1) / 2 == pytest.approx(2) and 0.8 < box.y1 - box.y0 < 1


# Losses.


def test_a_mark_is_joined_to_its_label_from_the_line_of_the_target():
    ax = panel()
    speed._losses(ax, race(THREE, targets=STAIRS))
    assert "target 0.5" in ax.get_title()
    to_panel = ax.transData + ax.transAxes.inverted()
    at_target = to_panel.transform((1.0, 0.5))[1]
    joins = [
        line
        for line in ax.lines
        if len(line.get_xdata()) == 2 and len({*line.get_xdata()}) == 1
    ]
    assert len(joins) == 3
    for line in joins:
        begin, end = line.get_ydata()
        assert begin == pytest.approx(at_target) and end < begin


def test_every_mark_is_inside_the_panel_of_losses_and_the_target_is_named_at_its_end():
    ax = panel()
    speed._losses(ax, race(THREE))
    marks = [line.get_xdata()[0] for line in ax.lines if line.get_markersize() == 7]
    right = ax.get_xlim()[1]
    assert len(marks) == 3 and 0 < min(marks) and max(marks) < right < 2 * max(marks)
    (name,) = [text for text in ax.texts if text.get_text() == "target 0.5"]
    assert name.xy == (right, 0.5) and name.get_ha() == "right"


def test_ticks_of_a_loss_that_falls_far_are_one_two_and_five():
    ax = panel()
    speed._losses(ax, race(THREE))  # from 2 to 0.5
    ticks = ax.get_yticks()
    assert {0.5, 1.0} <= {*ticks} <= {0.5, 1.0, 2.0}


def test_ticks_of_a_loss_that_falls_little_are_evenly_spaced():
    ax = panel()
    speed._losses(ax, race(THREE, targets=[1.8, 1.5]))  # from 2 to 1.5
    ticks = ax.get_yticks()
    assert len(ticks) >= 3
    np.testing.assert_allclose(np.diff(ticks), np.diff(ticks)[0])


def run_of(losses):
    clock = {"at": 10 * np.arange(len(losses)), "loss": np.array(losses)}
    return SimpleNamespace(clock=clock)


def test_a_growing_mean_is_over_three_readings_at_most():
    found = speed._growing_mean(np.array([4.0, 2.0, 0.0, 6.0, 9.0]))
    np.testing.assert_allclose(found, [4, 3, 2, 8 / 3, 5])


BLACK = {"color": "black"}


def test_a_loss_is_drawn_down_to_its_target_where_it_has_a_dot():
    ax = panel()
    run = run_of([4.0, 2.0, 0.0, 6.0, 9.0])
    largest = speed._loss_until(ax, run, 20.0, 2.5, BLACK)
    line, dot = ax.lines
    assert line.get_xdata().tolist() == [0, 10, 20]
    np.testing.assert_allclose(line.get_ydata(), [4, 3, 2.5])  # the last mean is 2
    assert (*dot.get_xdata(), *dot.get_ydata()) == (20.0, 2.5)
    assert largest == 5


def test_a_centred_mean_is_drawn_at_the_middle_of_its_three_readings():
    ax = panel()
    run = run_of([4.0, 2.0, 0.0, 6.0, 9.0])
    speed._loss_until(ax, run, 10.0, 2.0, BLACK, centred=True)
    line, dot = ax.lines
    assert line.get_xdata().tolist() == [0, 10]
    np.testing.assert_allclose(line.get_ydata(), [4, 2])  # the first is one reading
    assert (*dot.get_xdata(), *dot.get_ydata()) == (10.0, 2.0)


def test_a_loss_that_misses_its_target_is_drawn_whole_and_has_no_dot():
    ax = panel()
    speed._loss_until(ax, run_of([4.0, 2.0, 0.0, 6.0]), np.inf, 0.1, BLACK)
    (line,) = ax.lines
    assert line.get_xdata().tolist() == [0, 10, 20, 30]


def test_many_runs_are_drawn_by_thinner_lines():
    widths = []
    for seeds in (5, 6):
        ax = panel()
        speed._losses(ax, race({"SGD": 0.03}, seeds=seeds))
        widths.append({line.get_linewidth() for line in ax.lines} & {0.5, 0.9})
    assert widths == [{0.9}, {0.5}]


# Growth.


def growth_of(norms, walked):
    ax = panel()
    speed._growth(ax, with_norms(norms, walked))
    return ax


NEAR = {"a.weight": [1.0, 1.5], "b.weight": [1.0, 1.9]}
STEPS = {"a.weight": [0.0, 1.25], "b.weight": [0.0, 0.44]}  # walks grow by 0.5 and 0.2


def test_a_growth_that_is_not_above_the_walks_is_hollow():
    ax = growth_of(NEAR, STEPS)
    marks = [line for line in ax.lines if line.get_markersize() == 3]
    marks = [line for line in marks if len(line.get_xdata())]
    assert len(marks) == 6
    for line in marks:
        is_hollow = line.get_markerfacecolor() == "none"
        np.testing.assert_allclose(line.get_xdata(), [0.5] if is_hollow else [0.2])
        np.testing.assert_allclose(line.get_ydata(), [0.5] if is_hollow else [0.9])
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "Adam: 1/2 above" in named


def test_the_panel_of_growth_contains_its_marks_with_room_on_both_sides():
    ax = growth_of(NEAR, STEPS)
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert 0.1 < low < 0.2 / 1.2 and 0.9 * 1.2 < high < 0.9 * 2


def test_a_matrix_that_shrinks_makes_the_axis_of_growth_reach_below_zero():
    ax = growth_of(NEAR | {"a.weight": [1.0, 0.99]}, STEPS)
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "symlog" and low < 0 and 0.9 * 1.2 < high < 0.9 * 2
