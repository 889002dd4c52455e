"""Draw training in the form of paper A's Figures 1, 4, 6 and 7: the loss of the
minibatches and the test accuracy, over epochs.

No claim is decided by these pictures. The claims count steps to a target, see `speed`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from companion import plots
from lib.training.curves import Curves
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.kept_curves import shown
from papers.verdicts import Interval

REFERENCE = "SGD"
# If the loss falls by a larger factor than this, its axis is logarithmic.
WIDE = 3.0
# Room above and below the accuracies, as a share of their range and at least in points.
ROOM = 0.06
LEAST_ROOM = 0.5


def figure(curves: Curves) -> Figure:
    """Draw training loss and test accuracy over epochs, and the accuracies at the end.

    Parameters
    ----------
    curves : Curves
        The kept curves of a study with the rule "SGD".

    Returns
    -------
    Figure
        Above, the running mean of the minibatch losses, and the accuracy on sampled
        test rows. A thin line is a run, and a thick line is the mean over the runs of a
        rule. Below, the accuracy on all test rows at the end, with its interval.
    """
    above = 2.7
    below = 0.75 + 0.27 * len(curves.configuration["rates"])
    # The rows have two heights and other margins, so `plots.panels` cannot arrange
    # them.
    drawn, _ = plots.panels(1, 1, height=above + below)
    drawn.clear()
    upper, lower = drawn.subfigures(2, 1, height_ratios=(above, below))
    loss, measured = upper.subplots(1, 2)
    _losses(loss, curves)
    _accuracies(measured, curves)
    _ends(lower.subplots(1, 1), curves)
    plots.legend(drawn, loss)
    return plots.heading(drawn, _result(curves), _reading(curves), on_page=True)


def accuracy(curves: Curves, rule: str) -> Interval:
    """Compute the accuracy at the end on all test rows, in per cent, with its t
    interval over seeds.

    The interval does not contain the error that is due to the choice of the test rows.
    """
    shares = [run.hits.mean() for run in curves.runs(rule)]
    return verdicts.mean_interval(100 * np.array(shares))


def first_end(curves: Curves) -> int:
    """Return the number of steps of the shortest run of all rules."""
    rules = curves.configuration["rates"]
    return min(len(run.loss) for rule in rules for run in curves.runs(rule))


def ahead(curves: Curves) -> list[str]:
    """Return the rules whose running mean of the loss is below SGD's in every seed.

    They are compared after `first_end` steps, up to which every run goes.
    """
    last = first_end(curves) - 1
    window = curves.configuration["window"]
    loss = {
        rule: np.array([run.smooth(window)[last] for run in curves.runs(rule)])
        for rule in curves.configuration["rates"]
    }
    return [rule for rule in loss if (loss[rule] < loss[REFERENCE]).all()]


def most_accurate(curves: Curves) -> str | None:
    """Return the rule whose interval of the accuracy is above those of all other rules.

    The result is None if there is no such rule.
    """
    intervals = {rule: accuracy(curves, rule) for rule in curves.configuration["rates"]}
    best = max(intervals, key=lambda rule: intervals[rule].estimate)
    highest = max(
        (interval.high for rule, interval in intervals.items() if rule != best),
        default=-np.inf,
    )
    return best if intervals[best].low > highest else None


def _result(curves: Curves) -> str:
    """Write which rules are ahead of SGD, and which rule is the most accurate."""
    names = [shown(rule) for rule in ahead(curves)]
    best = most_accurate(curves)
    verb = "are" if len(names) > 1 else "is"
    epoch = first_end(curves) * _epochs_per_step(curves)
    words = f"At epoch {epoch:.2g}, {kept_curves.listed(names or ['no rule'])} {verb}"
    words = f"{words} ahead of {REFERENCE} in every seed"
    if best is None:
        return f"{words}, and no rule ends clearly most accurate"
    if names == [shown(best)]:
        return f"{words} and ends most accurate"
    return f"{words}, and {shown(best)} ends most accurate"


def _reading(curves: Curves) -> str:
    """Write how to read the figure, and what the words of its result mean."""
    study = curves.configuration
    seeds = len(curves.seeds())
    epoch = first_end(curves) * _epochs_per_step(curves)
    return (
        f"Top left: running means of the loss of {study['window']} minibatches. Top"
        " right: accuracy on a sample of the test rows. Thin lines are runs; a thick"
        f" line is the mean over {seeds} seeds, up to the end of the rule's shortest"
        f" run. Ahead: a smaller loss at epoch {epoch:.2g}, the end of the shortest run"
        " of all. Most accurate: the 95 % interval over seeds lies above all others. No"
        " claim is decided by this figure."
    )


def _epochs_per_step(curves: Curves) -> float:
    """Return which part of the training rows is in one minibatch."""
    study = curves.configuration
    return study["batch"] / study["problem"]["rows"]


def _runs_and_mean(
    ax: Axes,
    curves: Curves,
    values: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]],
) -> None:
    """Draw a thin line for each run over epochs, and a thick one for the mean of each
    rule.

    For each rule, `values` has a pair (steps, values) for each run.
    """
    scale = _epochs_per_step(curves)
    for rule, runs in values.items():
        look = plots.look(rule)
        for steps, one in runs:
            ax.plot(scale * steps, one, color=look.colour, lw=0.6, alpha=0.35)
        common, mean = kept_curves.mean_of_runs(runs)
        ax.plot(scale * common, mean, label=shown(rule), lw=1.4, **look.line)
    ax.set(xlabel="Epoch", xlim=(0, None))


def _losses(ax: Axes, curves: Curves) -> None:
    """Draw the running mean of the loss of each minibatch."""
    window = curves.configuration["window"]
    values = {}
    lowest = np.inf
    highest = -np.inf
    for rule in curves.configuration["rates"]:
        values[rule] = []
        for run in curves.runs(rule):
            loss = run.smooth(window)
            values[rule].append((np.arange(1, len(loss) + 1), loss))
            lowest = min(lowest, loss.min())
            highest = max(highest, loss.max())
    _runs_and_mean(ax, curves, values)
    ax.set_title("Training loss of the minibatches")
    if highest > WIDE * lowest:
        ax.set_yscale("log")
        pieces.plain_ticks(ax.yaxis)


def _accuracies(ax: Axes, curves: Curves) -> None:
    """Draw the test accuracy on sampled rows.

    The untrained network only guesses, so its accuracy may lie below the panel. The
    plain classifiers are drawn in the lower panel alone: their accuracy is on all test
    rows, and on those of the sample it can be some points higher or lower.
    """
    values = {}
    heights = []
    for rule in curves.configuration["rates"]:
        values[rule] = []
        for run in curves.runs(rule):
            shares = 100 * run.metrics["test_accuracy"]
            values[rule].append((run.evaluated_at, shares))
            heights += [*shares[1:]]
    _runs_and_mean(ax, curves, values)
    room = max(LEAST_ROOM, ROOM * (max(heights) - min(heights)))
    ax.set_ylim(min(heights) - room, max(heights) + room)
    ax.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
    ax.set_title("Test accuracy, sampled rows")


def _best_plain(curves: Curves) -> tuple[str, float] | None:
    """Return the name and the accuracy in per cent of the best plain classifier.

    The result is None if the study has no plain classifier.
    """
    plain = curves.baselines()
    if not plain:
        return None
    name = max(plain, key=plain.__getitem__)
    return name, 100 * plain[name]


def _ends(ax: Axes, curves: Curves) -> None:
    """Draw the accuracy of each rule at the end, on all test rows, with its interval.

    A small dot is a seed.
    """
    intervals = {rule: accuracy(curves, rule) for rule in curves.configuration["rates"]}
    order = sorted(intervals, key=lambda rule: -intervals[rule].estimate)
    right = {"transform": ax.get_yaxis_transform(), "fontsize": 9, "va": "center"}
    for row, rule in enumerate(order):
        look = plots.look(rule)
        interval = intervals[rule]
        ends = [interval.low, interval.high]
        ax.plot(ends, [row, row], color=look.colour, lw=3, solid_capstyle="butt")
        ax.plot(interval.estimate, row, ms=6.5, **look.mark)
        dots = {"ms": 3, "color": look.colour}
        ax.plot(interval.values, [row - 0.32] * len(interval.values), "o", **dots)
        words = f"{interval.estimate:.1f} % ({interval.low:.1f} to {interval.high:.1f})"
        ax.text(1.02, row, words, color=look.colour, **right)
    if best := _best_plain(curves):
        name, level = best
        ax.axvline(level, **plots.LEVEL)
        words = f"{name}: {level:.1f} %"
        style = {"color": plots.GREY, "fontsize": 8, "path_effects": plots.EDGE}
        ax.text(level, len(order) - 0.25, f" {words}", va="center", **style)
    ax.set_yticks(range(len(order)), [shown(rule) for rule in order], fontsize=9)
    for label, rule in zip(ax.get_yticklabels(), order, strict=True):
        label.set_color(plots.look(rule).colour)
    ax.set(ylim=(len(order) + 0.1, -0.7))
    ax.set_xlabel("Test accuracy at the end of a run, all test rows (%)")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
