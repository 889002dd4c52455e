"""Paper A's Figures 1, 4, 6 and 7: their claims and pictures, from the stored curves of
a study.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from companion import claims, plots
from companion.claims import Claim, Table
from lib.training.curves import Curve, Curves
from lib.training.rules import STEP_SIZED
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.family import centred_steps
from papers.studies.kept_curves import judge, rates_figure
from papers.studies.run_measures import random_walk_growth, weight_matrices
from papers.verdicts import SAME, Interval, no_gain

REFERENCE = "SGD"
FORMULA = 1e-5  # largest relative deviation of a step from its equation


def _steps(curves: Curves, rule: str, target: float) -> np.ndarray:
    """Return the number of steps to `target` for every seed.

    The result has the shape (seeds,). The number is infinite for a run that did not
    reach the target.
    """
    return np.array([run.steps_to(target) for run in curves.runs(rule)])


def _ratio(curves: Curves, rule: str, target: float) -> Interval:
    """Return the interval of the number of steps of `rule` to `target` divided by
    SGD's, paired by seed.

    An end of the interval is open if a run missed the target (see
    `verdicts.steps_ratio`).
    """
    both = (_steps(curves, name, target) for name in (rule, REFERENCE))
    return verdicts.steps_ratio(*both, curves.configuration["horizon"])


def _speed(curves: Curves, rule: str, figure: str) -> Claim:
    """Check what paper A says about `rule` in `figure`, at the last target."""
    word = CLAIMED[figure][rule]
    target = curves.configuration["targets"][-1]
    source = f"paper A, Figure {figure.removeprefix('fig')}"
    if word is no_gain:
        source += " (our bound)"
    elif rule != "SNGD":  # our copy of the text covers only normalised SGD
        source += " (our reading)"

    def measure():
        measured = _ratio(curves, rule, target)
        text = f": steps to loss {target:g} over SGD's, {len(measured.values)} seeds"
        text += f" ({measured.note})" if measured.note else ""
        if both := _at_two_rates(curves, rule, target):
            ends = f"{both[0]:.2f} to {both[1]:.2f}"
            text += f"; at the best two rates of both, in the trials, {ends}"
        return text, measured

    text = f"{rule} {word.__name__.replace('_', ' ')}"
    return judge(curves, f"{figure}.{rule.lower()}", text, source, word, measure)


def _at_two_rates(
    curves: Curves, rule: str, target: float
) -> tuple[float, float] | None:
    """Return the smallest and the largest ratio of the numbers of steps, over the best
    two learning rates of `rule` and of SGD.

    The steps are those of the tuning trials, and not of the runs that decide the claim.
    The result is None if fewer than two trials of either rule reached `target`.
    """
    theirs, mine = (
        sorted(trial.steps_to(target) for trial in curves.trials(name))[:2]
        for name in (REFERENCE, rule)
    )
    if len([*theirs, *mine]) < 4 or np.isinf([*theirs, *mine]).any():
        return None
    return mine[0] / theirs[1], mine[1] / theirs[0]


# What the paper says about each figure. It says nothing about Adam in Figure 7.
CLAIMED = {
    "fig1": dict.fromkeys(("SNGD", "SPS", "Adam"), verdicts.faster),
    "fig4": dict.fromkeys(("SNGD", "SPS", "Adam"), verdicts.faster),
    "fig6": {"SNGD": verdicts.slower, "Adam": no_gain},
    "fig7": {"SNGD": verdicts.slower},
}


def _step_error(run: Curve) -> float:
    """Return the largest relative deviation of a step from its equation, given the
    run's loss and ‖g‖.
    """
    loss = run.loss.astype(float)
    norm = run.gradient_norm.astype(float)
    if run.rule == "SNGD":
        expected = np.minimum(run.rate / norm, run.cap)
    else:
        expected = np.minimum(loss / (2 * norm**2), run.rate)
    return float(np.max(np.abs(run.step_size / expected - 1)))


def formulas(curves: Curves) -> list[Claim]:
    """Check the code: compare steps with their equations, in the worst run of each
    rule.
    """
    equation = {"SNGD": "paper A, Eq. 2", "SPS": "paper A, Eq. 3"}
    measured = []
    for rule in filter(curves.runs, STEP_SIZED):
        id = f"formula.{rule}"
        text = f"{rule}: worst error of a step"
        worst = max(map(_step_error, curves.runs(rule)))
        measured.append(claims.at_most(id, text, equation[rule], worst, FORMULA))
    return measured


def growth(curves: Curves, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much matrices grow: ‖W‖ / ‖W_0‖ - 1 at the end.

    The result has the shape (layers, seeds). The second result, of the same shape, is
    the growth if steps had no common direction, sqrt(1 + Σ ‖ΔW‖² / ‖W_0‖²) - 1. Vectors
    such as biases are left out.
    """
    runs = curves.runs(rule)
    names = _layers(curves)
    first, last = (
        np.array([[run.weight_norms[name][at] for run in runs] for name in names])
        for at in (0, -1)
    )
    walked = np.array([[run.walked[name][-1] for run in runs] for name in names])
    return last / first - 1, random_walk_growth(first, walked)


def _layers(curves: Curves) -> list[str]:
    """Return the names of the weight matrices, in the network's order."""
    return weight_matrices(curves.runs(REFERENCE)[0])


def _norms_grow(curves: Curves, rule: str) -> Claim:
    """Check that norms grow, which paper A says about "various layers".

    The paper does not say that every layer grows, so the claim is about the median over
    the matrices (our reading). The text of the claim says how many matrices grow.
    """

    def measure():
        grown, _ = growth(curves, rule)
        longer = (grown.mean(1) > 0).sum()
        text = (
            f": {longer} of {len(grown)} matrices grow; median growth over the matrices"
        )
        return text, verdicts.mean_interval(np.median(grown, axis=0))

    id = f"fig7.grows.{rule.lower()}"
    text = f"norms grow under {rule}"
    return judge(
        curves, id, text, "paper A, Figure 7 (our reading)", verdicts.above, measure
    )


def _beyond_a_walk(curves: Curves, rule: str) -> Claim:
    """Check that every layer grows more than a random walk with steps of the same
    lengths would (our own question).
    """

    def measure():
        grown, walk = growth(curves, rule)
        beyond = grown - walk
        further = (beyond.mean(1) > 0).sum()
        lowest = _layers(curves)[beyond.mean(1).argmin()]
        text = (
            f" beyond a random walk of its steps ({further} of {len(grown)} do):"
            f" smallest growth less the walk's, least in {lowest}"
        )
        return text, verdicts.mean_interval(beyond.min(0))

    id = f"fig7.growth.{rule.lower()}"
    text = f"every layer grows under {rule}"
    return judge(
        curves, id, text, "ours, beside paper A, Figure 7", verdicts.above, measure
    )


def table(curves: Curves, figure: str) -> Table:
    """Return the claims of Figure 1, 4, 6 or 7 ("fig1", ...) on the curves of its
    study.
    """
    rows = [_speed(curves, rule, figure) for rule in CLAIMED[figure]]
    if curves.configuration["walk"]:
        rules = curves.configuration["rates"]
        rows += [_norms_grow(curves, rule) for rule in rules]
        rows += [_beyond_a_walk(curves, rule) for rule in rules]
    return Table([*rows, *formulas(curves)])


def draw(
    curves: Curves, rows: "Sequence[Row] | None" = None, centred: bool = False
) -> Figure:
    """Draw the steps to the last target, divided by SGD's, and below it the training.

    Parameters
    ----------
    curves : Curves
        The kept curves of the figure's study.
    rows : sequence of Row, optional
        The rows of the upper panel, from top to bottom. By default there is a row for
        each rule but SGD, without a verdict.
    centred : bool, optional
        Whether steps are counted to the middle one of the three readings that reach the
        target, as in the second round. By default they are counted to the last one, as
        in the first round.

    Returns
    -------
    Figure
        Above, one row per rule with its interval. Below, the training loss of every run
        up to the target.
    """
    if rows is None:
        rows = plain_rows(curves)
    above = 0.75 + 0.52 * (len(curves.configuration["rates"]) - 1)
    below = 2.6
    # The two panels have two heights, so `plots.panels` cannot arrange them.
    figure, _ = plots.panels(1, 1, height=above + below)
    figure.clear()
    upper, lower = figure.subplots(2, 1, height_ratios=(above, below))
    _ratios(upper, rows, curves.configuration["targets"][-1])
    _losses(lower, curves, centred)
    return figure


def beside(curves: Curves) -> Figure:
    """Draw what may explain the speed: the step size, and growth compared with a random
    walk.

    Parameters
    ----------
    curves : Curves
        The kept curves of a study.

    Returns
    -------
    Figure
        One panel for each; the last only if the study recorded the lengths of steps.
    """
    walked = bool(curves.configuration["walk"])
    figure, axes = plots.panels(1, 2 if walked else 1, height=2.5)
    _step_sizes(axes[0], curves)
    if walked:
        _growth(axes[1], curves)
    return plots.legend(figure, axes[0])


def rates(curves: Curves) -> Figure:
    """Draw the number of steps to the last target of every trial over its learning
    rate.

    By this number the rates of the first round were chosen. A trial that did not reach
    the target is left out.
    """
    target = curves.configuration["targets"][-1]
    name = f"Steps to training loss {target:g}"
    figure = rates_figure(curves, lambda trial: trial.steps_to(target), name)
    (ax,) = figure.axes
    ax.set(xlabel="Rate (SPS: cap)", yscale="log")
    pieces.plain_ticks(ax.yaxis)
    return figure


def _step_sizes(ax: Axes, curves: Curves) -> None:
    """Draw running means of the step sizes; SGD's constant rate is a horizontal
    line.
    """
    window = curves.configuration["window"]
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        if rule in STEP_SIZED:
            kernel = np.ones(window) / window
            means = [
                np.convolve(run.step_size.astype(float), kernel, "valid")
                for run in runs
            ]
            lines = [
                (np.arange(window, window + len(row), 10), row[::10]) for row in means
            ]
            kept_curves.medians(ax, lines, rule)
        elif rule == "SGD":
            label = f"{rule}: {runs[0].rate:g}"
            ax.axhline(runs[0].rate, label=label, **plots.look(rule).line)
    ax.set(title="Step size taken", xlabel="Step", yscale="log")
    pieces.plain_ticks(ax.yaxis)


SAYS = {  # what the paper says about a rule, in brief
    verdicts.faster: "paper: faster",
    verdicts.slower: "paper: slower",
    no_gain: "paper: no gain",
}
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)  # ticks of ratios
NEAR_ONE = (0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4)  # ticks of ratios that are near one
NEAR = 0.008  # dots whose ratios differ by less than this share are stacked
STACK = 0.23  # height of a stack of dots, in rows
PALE = 0.4  # opacity of a rule about which the paper says nothing


class Bar(NamedTuple):
    """A ratio with its interval at 95 %, and the ratios of the seeds, (seeds,)."""

    estimate: float
    low: float
    high: float
    values: np.ndarray


class Row(NamedTuple):
    """A row of `_ratios`.

    `ratio` is the rule's number of steps divided by SGD's. `missed` (seeds,) says for
    which seeds the ratio is only a bound, because a run missed the target. `word` gives
    the verdict on what the paper says about the rule; it is None if the paper says
    nothing. `corrected` has the ends of the interval at the level of Holm's procedure;
    it is None if the verdict is not corrected.
    """

    rule: str
    ratio: Interval | Bar
    missed: np.ndarray
    verdict: str
    word: Callable | None
    corrected: tuple[float, float] | None = None

    @property
    def decided(self) -> bool:
        """Whether the claim is decided."""
        return self.verdict in (verdicts.REPRODUCED, verdicts.NOT_REPRODUCED)

    @property
    def deciding(self) -> Interval | Bar:
        """The interval by which the claim is decided."""
        if self.corrected is None:
            return self.ratio
        return Bar(self.ratio.estimate, *self.corrected, self.ratio.values)


def plain_rows(curves: Curves) -> list[Row]:
    """Return the rows of `draw` without verdicts.

    Parameters
    ----------
    curves : Curves
        The kept curves of a study.

    Returns
    -------
    list of Row
        One row for each rule but SGD, in the order of `ordered`.
    """
    rules = [rule for rule in curves.configuration["rates"] if rule != REFERENCE]
    target = curves.configuration["targets"][-1]
    missed_by_reference = np.isinf(_steps(curves, REFERENCE, target))
    rows = []
    for rule in rules:
        missed_by_rule = np.isinf(_steps(curves, rule, target))
        row = Row(
            rule=rule,
            ratio=_ratio(curves, rule, target),
            missed=missed_by_reference | missed_by_rule,
            verdict="no claim",
            word=None,
        )
        rows.append(row)
    return ordered(rows)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Sort rows: those that are decided come first, and then those about whose rule the
    paper says something. Among equals, the smallest ratio comes first.
    """

    def place(row: Row):
        return not row.decided, row.word is None, row.ratio.estimate

    return sorted(rows, key=place)


def _ratios(ax: Axes, rows: Sequence[Row], target: float) -> None:
    """Draw each rule's steps to the last target divided by SGD's, with the verdicts.

    Each dot is one seed. The dot is hollow if the seed's run of the rule or of SGD
    missed the target. A large mark is hollow if the claim is undecided. The shade of a
    row is the side on which the whole bar must lie for the paper's claim to hold. If
    the bar lies where the protocol calls two rules equally fast, the shade is that
    range. A thin line is the corrected interval.
    """
    # The ends of the axis, which contain all ratios that are not extreme.
    inside = []
    for row in rows:
        ratio = row.ratio
        for value in (ratio.low, ratio.high, *ratio.values, *(row.corrected or ())):
            if 0.01 < value < 100:
                inside.append(value)
    left_end = min(0.72, 0.85 * min(inside))
    right_end = 1.18 * max(1.25, *inside)
    ends = (left_end, right_end)

    # The rows, and the value at which a rule is as fast as SGD.
    for height, row in enumerate(rows):
        _shade(ax, height, row.deciding, row.word, ends)
        _draw_ratio(ax, height, row, ends)
        _write_ratio(ax, height, row)
    ax.axvline(1.0, color=plots.BLACK, linewidth=1.2)

    # The names of the rules, with what the paper says about them.
    names = []
    for row in rows:
        rule_name = kept_curves.shown(row.rule)
        if row.word is not None:
            rule_name += f"\n{SAYS[row.word]}"
        names.append(rule_name)
    ax.set_yticks(range(len(rows)), names, fontsize=9)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(plots.look(row.rule).colour)

    # The axes.
    ax.set(xscale="log", xlim=ends, ylim=(len(rows) - 0.5, -0.5))
    ticks = RATIOS if left_end < 0.5 else NEAR_ONE
    _tick(ax, [tick for tick in ticks if left_end <= tick <= right_end])
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    steps = f"steps to the training loss {target:g}, divided by SGD's"
    faster = "\N{LEFTWARDS ARROW} faster than SGD"
    ax.set_xlabel(f"{faster}      {steps}      slower \N{RIGHTWARDS ARROW}")


def _draw_ratio(ax: Axes, height: float, row: Row, ends: tuple[float, float]) -> None:
    """Draw the interval of a row, its mean and the seeds."""
    look = plots.look(row.rule)
    ratio = row.ratio
    style = {"color": look.colour, "alpha": 1 if row.word else PALE}

    # The interval, with an arrow if it continues beyond an end of the axis.
    low, high = np.clip([ratio.low, ratio.high], *ends)
    ax.plot([low, high], [height, height], lw=4, solid_capstyle="butt", **style)
    if ratio.low < low:
        ax.plot(low, height, "<", ms=7, clip_on=False, **style)
    if ratio.high > high:
        ax.plot(high, height, ">", ms=7, clip_on=False, **style)

    if row.corrected:
        thin = np.clip(row.corrected, *ends)
        ax.plot(thin, [height, height], lw=1.2, **style)

    # The mean.
    face = look.colour if row.decided else plots.PAPER
    mark = {"marker": look.marker, "ms": 8, "mew": 1.6, "mfc": face}
    ax.plot(ratio.estimate, height, ls="", color=look.colour, **mark)

    # The seeds. Dots that would cover each other are stacked, within the row.
    order = np.argsort(ratio.values)
    levels: list[int] = []
    for place, value in enumerate(ratio.values[order]):
        others = ratio.values[order][:place]
        levels.append(int(np.sum(value < (1 + NEAR) * others)))
    step = STACK / max(3, *levels)
    for level, seed in zip(levels, order, strict=True):
        face = "none" if row.missed[seed] else look.colour
        y = height - 0.2 - step * level
        ax.plot(ratio.values[seed], y, "o", ms=3, mfc=face, mew=0.6, **style)


def _write_ratio(ax: Axes, height: float, row: Row) -> None:
    """Write the ratio of a row and the verdict on it to the right of the panel."""
    ratio = row.ratio
    right = {"transform": ax.get_yaxis_transform(), "fontsize": 9, "va": "center"}
    number = f"{ratio.estimate:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    number = number.replace("inf", "\N{INFINITY}")
    colour = plots.BLACK if row.word else plots.GREY
    ax.text(1.02, height - 0.18, number, color=colour, **right)
    verdict = row.verdict
    style = {"color": plots.GREY}
    if row.decided:
        style = {"color": plots.look(row.verdict).colour, "fontweight": "bold"}
    ax.text(1.02, height + 0.2, verdict, **style, **right)


def _shade(
    ax: Axes, row: int, ratio: Interval, word: Callable | None, ends: tuple
) -> None:
    """Shade the side of a row on which the whole bar must lie if the paper's claim
    holds, or the range that counts as equally fast if the bar lies in that range.
    """
    if word is None:
        return
    same = word is no_gain or (SAME[0] <= ratio.low and ratio.high <= SAME[1])
    side = SAME if same else verdicts.SIDES[word]
    low, high = np.clip(side, *ends)
    box = {"color": plots.FAINT, "alpha": 0.45, "linewidth": 0, "zorder": 0}
    ax.fill_between([low, high], row - 0.46, row + 0.46, **box)
    if same:
        words = f"equally fast:\n{SAME[0]:g} to {SAME[1]:g}"
        grey = {"color": plots.INKS["shade"], "fontsize": 8, "va": "center"}
        if ratio.low < SAME[0]:
            ax.text(1.02 * max(SAME[1], ratio.high), row, words, **grey)
        else:
            ax.text(0.98 * SAME[0], row, words, ha="right", **grey)


def _tick(ax: Axes, ticks: list[float]) -> None:
    """Label a logarithmic x axis at `ticks` alone."""
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)


MANY = 5  # more runs of a rule than this are drawn by thinner lines
LABEL = 0.11  # distance between labels of steps, as a share of the panel's height
ROUNDING = 1e-9  # rounding error of a tick
# If the loss falls by a smaller factor than this, its axis has evenly spaced ticks.
WIDE = 3.0


def _losses(ax: Axes, curves: Curves, centred: bool = False) -> None:
    """Draw the training loss of every run from the first step to the last target.

    A line is the mean of three readings of the clock, from which the steps are counted,
    and ends in a dot. It is drawn at the last of the three readings, or at the middle
    one if `centred`. The mark on the line of the target is the geometric mean
    of the steps of a rule's runs, so that the marks of rules with the same seeds have
    the ratios of the upper panel.
    """
    target = curves.configuration["targets"][-1]

    # The runs, up to the target.
    highest = target
    marks = []
    rules = curves.configuration["rates"]
    # A study may have run some of its rules on fewer seeds than others.
    runs_of = {
        rule: [run for run in curves.judged() if run.rule == rule] for rule in rules
    }
    most = max(map(len, runs_of.values()))
    count = centred_steps if centred else Curve.steps_to
    for rule, runs in runs_of.items():
        steps = np.array([count(run, target) for run in runs])
        thin = len(runs) > MANY
        style = {
            "color": plots.look(rule).colour,
            "lw": 0.5 if thin else 0.9,
            "alpha": 0.45 if thin else 0.7,
        }
        for run, end in zip(runs, steps, strict=True):
            largest = _loss_until(ax, run, end, target, style, centred)
            highest = max(highest, largest)
        middle, words = _mean_steps(curves, steps)
        if len(runs) < most and np.isfinite(steps).all():
            words += f" ({len(runs)} seeds)"
        marks.append((middle, rule, f" {kept_curves.shown(rule)}: {words}"))
    marks.sort(reverse=True)

    # Below the target there is room for one label per rule.
    top = 1.08 * highest
    share = LABEL * (len(marks) + 0.3)
    depth = share / (1 - share) * np.log(1.08 * highest / target)
    latest_mark = marks[0][0]
    is_long = any(words.endswith(" seeds)") for *_, words in marks)
    right = (1.95 if is_long else 1.7) * latest_mark
    ax.axhline(target, color=plots.BLACK, linewidth=1.2)
    pieces.beside(ax, right, target, f"target {target:g}", place=(-2, 3))
    ax.set(yscale="log", xlim=(0, right), ylim=(target * np.exp(-depth), top))

    # A mark for each rule, joined to its label.
    below = {"transform": ax.get_xaxis_transform()}
    for place, (middle, rule, words) in enumerate(marks):
        look = plots.look(rule)
        height = share - LABEL * (place + 0.75)
        ax.plot([middle, middle], [share, height], color=look.colour, lw=1, **below)
        ax.plot(middle, target, ms=7, **look.mark, zorder=5)
        style = {"fontsize": 9, "color": look.colour, "va": "center"}
        ax.text(middle, height, words, **style, **below)

    # The axes.
    if highest < WIDE * target:
        locator = MaxNLocator(4, steps=[1, 2, 5, 10])
    else:
        locator = LogLocator(subs=(1, 2, 5))
    lowest_tick = target * (1 - ROUNDING)
    ticks = [
        tick
        for tick in locator.tick_values(target, highest)
        if lowest_tick <= tick <= highest
    ]
    ax.set_yticks(ticks, [f"{tick:.4g}" for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set(title=f"Training loss, each run up to the target {target:g}", xlabel="step")


def _loss_until(
    ax: Axes,
    run: Curve,
    end: float,
    target: float,
    style: Mapping,
    centred: bool = False,
) -> float:
    """Draw the loss of a run up to step `end`, where it reaches the target, with a dot
    there unless `end` is infinite.

    Values below the target are drawn on its line. The function returns the largest loss
    of the whole run.
    """
    at = run.clock["at"]
    loss = _growing_mean(run.clock["loss"])
    if centred:  # the mean that ends one reading later
        loss[:-1] = loss[1:]
        loss[0] = run.clock["loss"][0]
    is_drawn = at <= end
    ax.plot(at[is_drawn], np.maximum(loss[is_drawn], target), **style)
    if np.isfinite(end):
        ax.plot(end, target, "o", ms=2.5, color=style["color"], alpha=0.6, zorder=3)
    return loss.max()


def _mean_steps(curves: Curves, steps: np.ndarray) -> tuple[float, str]:
    """Return the geometric mean of a rule's steps to the target, as a number and as
    text.

    If runs missed the target, the number is the step at which all runs end.
    """
    missed = int(np.isinf(steps).sum())
    if missed:
        horizon = float(curves.configuration["horizon"])
        return horizon, f"{missed} of {len(steps)} runs miss it"
    mean = float(np.exp(np.log(steps).mean()))
    return mean, f"{mean:,.0f} steps"


def _growing_mean(readings: np.ndarray) -> np.ndarray:
    """Return the mean of each reading and the readings before it, at most READINGS in
    all.
    """
    number = kept_curves.READINGS
    return np.array(
        [readings[max(0, k + 1 - number) : k + 1].mean() for k in range(len(readings))]
    )


def _growth(ax: Axes, curves: Curves) -> None:
    """Draw the growth of matrices divided by that of a random walk (our own question).

    A mark is hollow if the growth is smaller than that of the walk.
    """
    drawn = []
    shrunk = False
    for rule in curves.configuration["rates"]:
        y, x = (part.mean(1) for part in growth(curves, rule))
        label = f"{rule}: {(y > x).sum()}/{len(x)} above"
        style = {"markersize": 3, **plots.look(rule).mark}
        ax.plot(x[y > x], y[y > x], label=label, **style)
        ax.plot(x[y <= x], y[y <= x], mfc="none", **style)
        drawn += [*x, *filter(lambda value: value > 0, y)]
        shrunk |= min(y) <= 0
    ends = np.array([min(drawn) / 1.5, max(drawn) * 1.5])
    equal = np.geomspace(*ends)
    ax.plot(equal, equal, **plots.LEVEL)
    ax.set(
        title="Ours: growth, and a walk's",
        xlabel="Growth of a random walk",
        xscale="log",
    )
    if shrunk:
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_ylim(-0.01, ends[1])
    else:
        ax.set(yscale="log", ylim=ends)
    # This panel also has rules that the panel of step sizes lacks, so its legend is its
    # own.
    ax.legend(loc="lower right", fontsize="x-small", handletextpad=0.2)
