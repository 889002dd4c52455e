"""Drawing of paper A's Figures 1, 4, 6 and 7 from the kept curves of a study."""

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Table
from lib.training.curves import Curves
from lib.training.rules import STEP_SIZED
from papers.a import speed
from papers.kept_curves import edges, headed, losses, outcome, rates_panel, setting, together
from papers.verdicts import SAME, no_gain

HIGHEST_LOSS = 5  # of the panel of rates: above it a trial has diverged, its line leaves the panel


def draw(curves: Curves, name: str, observed: str = "") -> Figure:
    """Six panels: loss, steps ratio at every target, test accuracy, step size, rates tried, a last.

    `name` is that of the figure ("fig1", ...). Where no rate was tried, the fifth shows the
    accuracy at the end. The last one shows weight growth, the metric `observed` over steps, or the
    accuracy at the end.
    Lines are medians over the seeds, up to where the first of them ends.
    """
    figure, axes = plots.panels(2, 3, height=2.3)
    rules = list(curves.configuration["rates"])
    losses(axes[0], curves)
    for rule in rules:
        _lines(axes, curves, rule)
    _ratios(axes[1], curves, name)
    if any(map(curves.trials, rules)):
        _rates(axes[4], curves)
    else:
        _accuracies(axes[4], curves)
    if curves.configuration["walk"]:
        _growth(axes[5], curves)
    elif observed:
        _observed(axes[5], curves, observed)
    else:
        _accuracies(axes[5], curves)
    axes[0].set(yscale="log")
    edge = axes[0].get_yaxis_transform()  # x as a share of the panel, y in units of the loss
    for target in speed.targets(curves):
        axes[0].axhline(target, linestyle=":", color="0.4", linewidth=0.8)
        axes[0].text(1, target, f"{target:g}", transform=edge, ha="right", va="bottom", size=6)
    axes[2].set(title="Test accuracy, some rows (%)", xlabel="Step")
    axes[3].set(title="Step size taken", xlabel="Step", yscale="log")
    plots.plain_ticks(axes[0].yaxis)
    plots.plain_ticks(axes[3].yaxis)
    plots.legend(figure, axes[0])
    return figure


def _lines(axes, curves: Curves, rule: str) -> None:
    window, colour = curves.configuration["window"], plots.COLOURS[rule]
    runs = curves.runs(rule)
    accuracy = together([100 * run.metrics["test_accuracy"] for run in runs])
    plots.band(axes[2], runs[0].evaluated_at[: accuracy.shape[1]], accuracy, rule, colour)
    if rule in STEP_SIZED:
        kernel = np.ones(window) / window
        means = [np.convolve(run.step_size.astype(float), kernel, "valid") for run in runs]
        lines = together([row[::10] for row in means])
        plots.band(axes[3], np.arange(lines.shape[1]) * 10 + window, lines, rule, colour)
    elif rule == "SGD":
        axes[3].axhline(runs[0].rate, color=colour, label=rule)


def _ratios(ax, curves: Curves, name: str) -> None:
    """Steps to each target over SGD's: a dot a seed, hollow where censored, and the interval.

    Within the brackets, in a rule's colour where the paper claims no gain of it, it has none.
    """
    targets, rules = speed.targets(curves), list(curves.configuration["rates"])
    others, shown = [rule for rule in rules if rule != speed.REFERENCE], []
    for place, target in enumerate(targets):
        for k, rule in enumerate(others):
            colour, x = plots.COLOURS[rule], place + 0.22 * (k - (len(others) - 1) / 2)
            found = speed.ratio(curves, rule, target)
            bounded = np.isinf(speed.steps(curves, rule, target))
            bounded |= np.isinf(speed.steps(curves, speed.REFERENCE, target))
            shown += [value for value in found.values if np.isfinite(value)]
            for value, censored in zip(found.values, bounded, strict=True):
                face = "none" if censored else colour
                dot = {"markersize": 3, "markeredgecolor": colour, "markerfacecolor": face}
                ax.plot(x - 0.05, value, "o", **dot)
            ends = np.clip([found.low, found.high], 1e-3, 1e3)  # an open end leaves the panel
            ax.plot([x + 0.03, x + 0.03], ends, color=colour, linewidth=1.6)
    for rule, word in speed.CLAIMED[name].items():
        for end in SAME if word is no_gain else ():
            ax.axhline(end, linestyle="--", color=plots.COLOURS[rule], linewidth=0.8)
    ax.axhline(1, color=plots.COLOURS[speed.REFERENCE], linewidth=0.8)
    room = 1.3 * max(2.0, *shown, *(1 / value for value in shown if value > 0))
    ax.set(title="Steps to the target / SGD's steps", xlabel="Target loss")
    ax.set(yscale="log", ylim=(1 / room, room))
    ax.set_xticks(range(len(targets)), [f"{target:g}" for target in targets])
    ticks = [value for value in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if 1 / room < value < room]
    ax.set_yticks(ticks, [f"{value:g}" for value in ticks])
    ax.yaxis.set_minor_formatter("")


def _rates(ax, curves: Curves) -> None:
    """Last loss of every trial over its rate."""
    window = curves.configuration["window"]
    rates_panel(ax, curves, lambda trial: float(trial.smooth(window)[-1]))
    ax.set(title="Last loss of each rate tried", xlabel="Rate (SPS: cap)", yscale="log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, min(high, HIGHEST_LOSS))
    plots.plain_ticks(ax.yaxis)


def _growth(ax, curves: Curves) -> None:
    """Growth of every weight matrix against a random walk of the same steps, a dot a layer."""
    edges, shrunk = [], False
    for rule in curves.configuration["rates"]:
        grown, walk = speed.growth(curves, rule), speed.random_walk(curves, rule)
        x = [np.median(walk[name]) for name in grown]
        y = [np.median(values) for values in grown.values()]
        ax.plot(x, y, ".", color=plots.COLOURS[rule], markersize=4)
        edges += [*x, *filter(lambda value: value > 0, y)]
        shrunk |= min(y) <= 0
    ends = np.array([min(edges) / 1.5, max(edges) * 1.5])
    ax.plot(ends, ends, ":", color="0.3")
    ax.set(title="Growth of a layer's norm", xlabel="Growth of a random walk", xscale="log")
    if shrunk:
        ax.set_yscale("symlog", linthresh=0.01)
    else:
        ax.set(yscale="log", ylim=ends)


def _observed(ax, curves: Curves, name: str) -> None:
    """Mean of the metrics `name`.0, `name`.1, ... over steps."""
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        parts = [key for key in runs[0].metrics if key.startswith(f"{name}.")]
        rows = together([np.mean([run.metrics[key] for key in parts], axis=0) for run in runs])
        plots.band(ax, runs[0].evaluated_at[: rows.shape[1]], rows, rule, plots.COLOURS[rule])
    ax.set(title=f"Attention {name} / log T", xlabel="Step")


def _accuracies(ax, curves: Curves) -> None:
    for place, rule in enumerate(curves.configuration["rates"]):
        values = 100 * speed.test_accuracy(curves, rule)
        ax.plot([place] * len(values), values, ".", color=plots.COLOURS[rule])
    rules = list(curves.configuration["rates"])
    ax.set(title="Test accuracy, all rows (%)", xticks=range(len(rules)), xticklabels=rules)


def caption(curves: Curves, name: str, table: Table) -> str:
    """Setting, rates and verdicts of figure `name` in words, the marks first."""
    study = curves.configuration
    at_edge = ", ".join(f"{rule} {rate:g}" for rule, rate in edges(curves).items())
    chosen = f"at the edge of the rates tried: {at_edge}" if at_edge else "inside the rates tried"
    ring = " Ring: the rate chosen, by its steps to the last target."
    if not any(map(curves.trials, study["rates"])):
        chosen, ring = "chosen by an earlier study", ""
    claimed = speed.CLAIMED[name].items()
    equal = [rule for rule, word in claimed if word is no_gain]
    brackets = f" Between the dashed lines {' and '.join(equal)} gains nothing." if equal else ""
    rest = (
        f"{setting(curves)} ({chosen}). Hollow dots: the run missed the target.{brackets} A line"
        f" ends with the first of its runs (stop: {study['stop']}). Adam has no one step size."
        f"{ring}{outcome(curves, table)}"
    )
    marks = "lines: median and range of the seeds, dots: seeds, bars: 95 % intervals"
    return headed(f"Paper A, Figure {name.removeprefix('fig')}", curves, marks, rest)
