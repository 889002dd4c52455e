"""Paper A's Figures 1, 4, 6 and 7: their claims and pictures, from the stored curves of
a study.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import claims, plots
from companion.claims import Claim, Table
from companion.record import Number, finite
from lib.training.curves import Curve, Curves
from lib.training.rules import STEP_SIZED
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.kept_curves import edges, judge, rates_figure, together
from papers.studies.run_measures import random_walk_growth, weight_matrices
from papers.verdicts import SAME, Interval, no_gain

REFERENCE = "SGD"
FORMULA = 1e-5  # largest relative deviation of a step from its equation
HIGHEST_LOSS = (
    5  # top of the panel of rates; the line of a diverged trial leaves the panel
)


def _steps(curves: Curves, rule: str, target: float) -> np.ndarray:
    """Return the steps to `target` of every seed, (seeds,).

    They are infinite for a run that did not reach it.
    """
    return np.array([run.steps_to(target) for run in curves.runs(rule)])


def _ratio(curves: Curves, rule: str, target: float) -> Interval:
    """Return the interval of the steps of `rule` to `target` divided by SGD's, paired
    by seed.
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
    elif rule != "SNGD":  # our copy of the text is only about normalised SGD
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
    """Return the smallest and the largest ratio of steps, over the best two rates of
    `rule` and of SGD.

    The runs are the trials of the race. The result is None if fewer than two trials of
    either rule reached `target`.
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


def _formulas(curves: Curves) -> list[Claim]:
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
    """Return how much matrices grow, ‖W‖ / ‖W_0‖ - 1 at the end, (layers, seeds).

    The second result is the growth if steps had no common direction, sqrt(1 + Σ ‖ΔW‖² /
    ‖W_0‖²) - 1. Vectors such as biases are left out.
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
    """Check that norms grow, as paper A says about "various layers".

    The paper does not say that every layer grows, so the claim is about the median over
    the matrices (our reading). Its words say how many matrices grow.
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
    return Table([*rows, *_formulas(curves)])


def numbers(curves: Curves) -> dict[str, Number]:
    """Return the numbers of `kept_curves`, and for every rule the median last loss and
    the ratio of steps.
    """
    study = curves.configuration
    measured = kept_curves.numbers(curves)
    for rule in study["rates"]:
        name = rule.lower()
        last = [r.smooth(study["window"])[-1] for r in curves.runs(rule)]
        measured[f"{name}_training_loss"] = finite(np.median(last), 1e-6)
        if rule != REFERENCE:
            interval = _ratio(curves, rule, study["targets"][-1])
            measured |= kept_curves.ends(f"{name}_steps_ratio", interval)
    return measured


def draw(curves: Curves, name: str) -> Figure:
    """Draw the steps to the last target, and below it what the paper's figure shows.

    Parameters
    ----------
    curves : Curves
        The kept curves of the figure's study.
    name : str
        "fig1", "fig4", "fig6" or "fig7".

    Returns
    -------
    Figure
        Above, one row per rule with its interval. Below, medians of the training loss,
        and of the test accuracy or, if the study recorded it, of the growth of the
        layers.
    """
    rivals = len(curves.configuration["rates"]) - 1
    above = 0.75 + 0.42 * rivals
    # The three panels have two sizes, so `plots.panels` cannot arrange them.
    figure, _ = plots.panels(1, 1, height=above + 2.0)
    figure.clear()
    axes = figure.subplot_mosaic(
        [["ratios", "ratios"], ["loss", "second"]], height_ratios=(above, 2.0)
    )
    _ratios(axes["ratios"], curves, name)
    _losses(axes["loss"], curves)
    if curves.configuration["walk"]:
        _norms(axes["second"], curves)
    else:
        _accuracies(axes["second"], curves)
    return figure


def beside(curves: Curves) -> Figure:
    """Draw what explains the speed: test accuracy, step size, and growth compared with
    a random walk.

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
    figure, axes = plots.panels(1, 3 if walked else 2, height=2.7)
    kept_curves.accuracies(axes[0], curves)
    _step_sizes(axes[1], curves)
    if walked:
        _growth(axes[2], curves)
    return plots.legend(figure, axes[0])


def rates(curves: Curves) -> Figure:
    """Draw the last loss of every trial over its rate.

    The line of a rule leaves the panel where its trials diverged.
    """
    window = curves.configuration["window"]
    figure = rates_figure(
        curves, lambda trial: float(trial.smooth(window)[-1]), "Last loss"
    )
    (ax,) = figure.axes
    ax.set(xlabel="Rate (SPS: cap)", yscale="log")
    ax.set_ylim(None, min(ax.get_ylim()[1], HIGHEST_LOSS))
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
            ax.axhline(runs[0].rate, label=rule, **plots.look(rule).line)
    ax.set(title="Step size taken", xlabel="Step", yscale="log")
    pieces.plain_ticks(ax.yaxis)


SAYS = {  # what the paper says about a rule, in a word
    verdicts.faster: "paper: faster",
    verdicts.slower: "paper: slower",
    no_gain: "paper: no gain",
}
HIGHEST_ROW = -1.25  # of the panel of ratios, whose first rule is at 0
SMOOTH = 5  # a drawn running mean of the loss is over at least so many readings


def _ratios(ax: Axes, curves: Curves, name: str) -> None:
    """Draw the steps to the last target divided by SGD's, one rule per row, with
    verdicts.

    A dot is a seed. It is hollow if its run or SGD's missed the target. The grey area
    is the range in which the protocol calls two rules equally fast.
    """
    rules = [rule for rule in curves.configuration["rates"] if rule != REFERENCE]
    # Rules about which the paper says something come first.
    rules.sort(key=lambda rule: rule not in CLAIMED[name])
    *_, last = curves.configuration["targets"]
    theirs = np.isinf(_steps(curves, REFERENCE, last))
    bars = []
    colours = []
    for rule in rules:
        both = _ratio(curves, rule, last)
        word = CLAIMED[name].get(rule)
        verdict = _speed(curves, rule, name).verdict if word else ""
        bar = pieces.Bar(
            kept_curves.shown(rule) + (f"\n{SAYS[word]}" if word else ""),
            *(both.estimate, both.low, both.high),
            points=tuple(both.values),
            hollow=tuple(theirs | np.isinf(_steps(curves, rule, last))),
            look=rule,
            words=f"{both.estimate:.2f} of SGD's steps\n{verdict or 'no claim'}",
        )
        bars.append(bar)
        fails = verdict == verdicts.NOT_REPRODUCED
        colours.append(plots.look(verdict if fails else rule).colour)
    drawn = [(bar.low, bar.high, *bar.points) for bar in bars]
    inside = [value for values in drawn for value in values if 0.01 < value < 100]
    ends = min(0.72, 0.85 * min(inside)), 1.18 * max(1.25, *inside)
    ax.axvspan(*SAME, color=plots.FAINT, alpha=0.45, linewidth=0, zorder=0)
    pieces.forest(ax, bars, ends, 1.0)
    # The words about the range are above the rows, beside the line of SGD. The words of
    # each row have the colour of its rule.
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, HIGHEST_ROW)
    ax.lines[-1].set_ydata([0.0, (bottom - top) / (bottom - HIGHEST_ROW)])
    low, high = (f"{end:g}" for end in SAME)
    grey = dict(color=plots.INKS["shade"], fontsize=7, ha="center", va="center")
    ax.text(1.0, (top + HIGHEST_ROW) / 2, f"equally fast:\n{low} to {high}", **grey)
    for text, colour in zip(ax.texts, colours, strict=False):
        text.set_color(colour)
    for label, bar in zip(ax.get_yticklabels(), bars, strict=True):
        label.set_color(plots.look(bar.look).colour)
    ax.set(xscale="log")
    pieces.plain_ticks(ax.xaxis)
    ax.minorticks_off()
    steps = f"steps to the training loss {last:g}, divided by SGD's"
    arrows = "\N{LEFTWARDS ARROW} faster       slower \N{RIGHTWARDS ARROW}"
    ax.set_xlabel(f"{steps}        {arrows}")


def _losses(ax: Axes, curves: Curves) -> None:
    """Draw the median training loss of each rule, and the last target.

    A line is a running mean of the medians, up to where the first of the rule's runs
    stops.
    """
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        read = together([run.readings()[kept_curves.READINGS :] for run in runs])
        at = runs[0].clock["at"][kept_curves.READINGS :][: read.shape[1]]
        median = np.median(read, axis=0)
        wide = min(max(SMOOTH, len(median) // 30), len(median))
        smooth = np.convolve(median, np.ones(wide) / wide, "valid")
        ax.plot(at[wide - 1 :], smooth, **plots.look(rule).line)
    *_, last = curves.configuration["targets"]
    ax.axhline(last, **plots.LEVEL)
    ax.set(title="Training loss", xlabel="step", yscale="log", xlim=(0, None))
    pieces.plain_ticks(ax.yaxis)
    pieces.beside(ax, 0, last, f"target {last:g}", plots.GREY, (3, -3))


def _accuracies(ax: Axes, curves: Curves) -> None:
    """Draw the median test accuracy of each rule, named at the end of its line."""
    ends = []
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        look = plots.look(rule)
        known = together([100 * run.metrics["test_accuracy"] for run in runs])
        at = runs[0].evaluated_at[: known.shape[1]]
        ax.plot(at[1:], np.median(known, axis=0)[1:], **look.line)
        last = np.median(known, axis=0)[-1]
        ends.append((last, kept_curves.shown(rule), look.colour))
    ax.set(title="Test accuracy, %, sampled rows", xlabel="step", xlim=(0, None))
    pieces.end_labels(ax, ends)


def _norms(ax: Axes, curves: Curves) -> None:
    """Draw the growth of the median weight matrix, and say how many matrices grow."""
    ends = []
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        look = plots.look(rule)
        norms = [[run.weight_norms[name] for run in runs] for name in _layers(curves)]
        lines = [together([row / row[0] - 1 for row in rows]) for rows in norms]
        grown = 100 * np.median(lines, axis=1)  # (layers, records)
        x = runs[0].evaluated_at[: grown.shape[1]]
        median = np.median(grown, axis=0)
        ax.plot(x, median, **look.line)
        longer = int((growth(curves, rule)[0].mean(1) > 0).sum())
        words = f"{kept_curves.shown(rule)}:\n{longer} of {len(grown)} grow"
        ends.append((median[-1], words, look.colour))
    ax.set(title="Growth of the median layer's norm, %", xlabel="step", xlim=(0, None))
    pieces.end_labels(ax, ends)


def _growth(ax: Axes, curves: Curves) -> None:
    """Draw the growth of matrices divided by that of a random walk (our own question).

    A mark is hollow if the growth is smaller than that of the walk.
    """
    drawn = []
    shrunk = False
    words = []
    for rule in curves.configuration["rates"]:
        y, x = (part.mean(1) for part in growth(curves, rule))
        for some, face in ((y > x, None), (y <= x, "none")):
            ax.plot(x[some], y[some], markersize=3, mfc=face, **plots.look(rule).mark)
        words.append(f"{rule}: {(y > x).sum()}/{len(x)} above")
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
    pieces.note(ax, "\n".join(words), y=0.02)


def caption(curves: Curves, name: str, table: Table) -> str:
    """Write the caption of figure `name`: what the marks mean, the setting, rates and
    verdicts.
    """
    study = curves.configuration
    at_edge = edges(curves)
    top = curves.rates().get("SPS") == max(
        (t.rate for t in curves.trials("SPS")), default=0
    )
    inside = (
        "inside the rates tried"
        + ", but for SPS, whose cap binds in under 1 % of steps" * top
    )
    if at_edge:
        chosen = f"at the edge of the rates tried: {at_edge}"
    else:
        chosen = inside
    if not any(map(curves.trials, study["rates"])):
        chosen = "given, not chosen by trials"
    marks = "bars: 95 %, dots: seeds; below: medians, up to a rule's first stop,"
    marks += " the loss as a running mean"
    rest = (
        f" ({chosen}; stop: {study['stop']}). Hollow dots: the run missed the target."
    )
    number = f"Paper A, Figure {name.removeprefix('fig')}"
    return kept_curves.caption(number, curves, marks, table, rest)
