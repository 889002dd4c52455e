"""Drawing of paper A's Figures 1, 4, 6 and 7 from the kept curves of a study."""

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Table
from lib.training.curves import Curves
from lib.training.rules import STEP_SIZED
from papers import pieces
from papers.a import speed
from papers.kept_curves import edges, headed, losses, outcome, rates_figure, setting, together
from papers.verdicts import SAME, no_gain

HIGHEST_LOSS = 5  # of the panel of rates: above it a trial has diverged, its line leaves the panel


def draw(curves: Curves, name: str) -> Figure:
    """Loss, steps ratio at every target, test accuracy, step size; where kept, how layers grow.

    `name` is that of the figure ("fig1", ...). Lines are medians over the seeds, up to where the
    first of them ends.
    """
    walked = bool(curves.configuration["walk"])
    figure, axes = plots.panels(2, 3 if walked else 2, height=2.3)
    losses(axes[0], curves)
    _lines(axes, curves)
    _ratios(axes[1], curves, name)
    if walked:
        _norms(axes[4], curves)
        _growth(axes[5], curves)
    axes[0].set(yscale="log")
    beside = dict(transform=axes[0].get_yaxis_transform(), va="center", size=7, color=plots.GREY)
    for target in curves.configuration["targets"]:
        axes[0].axhline(target, **plots.LEVEL)
        axes[0].text(1.01, target, f"{target:g}", **beside)
    axes[2].set(title="Test accuracy, some rows (%)", xlabel="Step")
    axes[3].set(title="Step size taken", xlabel="Step", yscale="log")
    pieces.plain_ticks(axes[0].yaxis)
    pieces.plain_ticks(axes[3].yaxis)
    plots.legend(figure, axes[0])
    return figure


def rates(curves: Curves) -> Figure:
    """Last loss of every trial over its rate; what diverged leaves the panel at its top."""
    window = curves.configuration["window"]
    figure = rates_figure(curves, lambda trial: float(trial.smooth(window)[-1]), "Last loss")
    (ax,) = figure.axes
    ax.set(xlabel="Rate (SPS: cap)", yscale="log")
    ax.set_ylim(None, min(ax.get_ylim()[1], HIGHEST_LOSS))
    pieces.plain_ticks(ax.yaxis)
    return figure


def _lines(axes, curves):
    window = curves.configuration["window"]
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        accuracy = together([100 * run.metrics["test_accuracy"][1:] for run in runs])  # no guesses
        plots.band(axes[2], runs[0].evaluated_at[1 : accuracy.shape[1] + 1], accuracy, rule)
        if rule in STEP_SIZED:
            kernel = np.ones(window) / window
            means = [np.convolve(run.step_size.astype(float), kernel, "valid") for run in runs]
            lines = together([row[::10] for row in means])
            plots.band(axes[3], np.arange(lines.shape[1]) * 10 + window, lines, rule)
        elif rule == "SGD":
            axes[3].axhline(runs[0].rate, label=rule, **plots.look(rule).line)


def _ratios(ax, curves: Curves, name: str) -> None:
    """Steps to each target over SGD's: a dot a seed, hollow where censored, and the interval."""
    targets, rules = curves.configuration["targets"], list(curves.configuration["rates"])
    others, shown, bars = [rule for rule in rules if rule != speed.REFERENCE], [1.0], []
    for place, target in enumerate(targets):
        for k, rule in enumerate(others):
            look, x = plots.look(rule), place + 0.22 * (k - (len(others) - 1) / 2)
            measured = speed.ratio(curves, rule, target)
            bounded = np.isinf(speed.steps(curves, rule, target))
            bounded |= np.isinf(speed.steps(curves, speed.REFERENCE, target))
            ends = measured.low, measured.high
            shown += [value for value in (*measured.values, *ends) if 0.01 < value < 100]
            bars.append((x + 0.01, np.array(ends), look.colour))
            for value, censored in zip(measured.values, bounded, strict=True):
                face = "none" if censored else look.colour
                ax.plot(x - 0.05, value, ms=2.5, markerfacecolor=face, **look.mark)
            if target == targets[-1]:
                words = dict(transform=ax.get_xaxis_transform(), size=7, rotation=90, ha="center")
                ax.text(x, 0.02, f"{measured.estimate:.2f}", color=look.colour, **words)
    for rule, word in speed.CLAIMED[name].items():
        for end in SAME if word is no_gain else ():
            ax.axhline(end, linewidth=0.9, **plots.look(rule).line)
    ax.axhline(1, linewidth=0.8, **plots.look(speed.REFERENCE).line)
    low, high = min(0.5, *shown) / 2, 1.2 * max(1.25, *shown)  # room below for the numbers
    for x, ends, colour in bars:  # an end beyond the panel is an arrow
        ax.plot([x, x], ends.clip(low, high), color=colour, linewidth=2.4)
        for end, mark, place in ((ends[1], "^", high), (-ends[0], "v", low)):
            if end > (high if mark == "^" else -low):
                ax.plot(x, place, mark, color=colour, markersize=5, clip_on=False)
    ax.set(title="Steps to the target / SGD's steps", xlabel="Target loss")
    ax.set(yscale="log", ylim=(low, high))
    ax.set_xticks(range(len(targets)), [f"{target:g}" for target in targets])
    ticks = [value for value in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low < value < high]
    ax.set_yticks(ticks, [f"{value:g}" for value in ticks])
    ax.yaxis.set_minor_formatter("")


def _norms(ax, curves: Curves) -> None:
    """Growth of every weight matrix over steps, a thin line a layer, in bold their median."""
    for rule in curves.configuration["rates"]:
        runs, look = curves.runs(rule), plots.look(rule)
        norms = [[run.weight_norms[name] for run in runs] for name in speed.layers(curves)]
        layers = [together([row / row[0] - 1 for row in rows]) for rows in norms]
        grown = np.median(layers, axis=1)[:, 1:]  # (layers, records after the start)
        x = runs[0].evaluated_at[1 : grown.shape[1] + 1]
        ax.plot(x, grown.T, color=look.colour, linewidth=0.4, alpha=0.5)
        ax.plot(x, np.median(grown, axis=0), linewidth=2, **look.line)
    ax.set(title="Layers' $\\|W_t\\|/\\|W_0\\|-1$", xlabel="Step", yscale="log", ylim=(0.01, None))


def _growth(ax, curves: Curves) -> None:
    """Growth of every weight matrix against a random walk of the same steps, a dot a layer."""
    edges, shrunk = [], False
    for rule in curves.configuration["rates"]:
        grown, walk = speed.growth(curves, rule), speed.random_walk(curves, rule)
        x = [np.median(walk[name]) for name in grown]
        y = [np.median(values) for values in grown.values()]
        ax.plot(x, y, markersize=3, **plots.look(rule).mark)
        edges += [*x, *filter(lambda value: value > 0, y)]
        shrunk |= min(y) <= 0
    ends = np.array([min(edges) / 1.5, max(edges) * 1.5])
    ax.plot(ends, ends, **plots.LEVEL)
    ax.set(title="Growth of a layer at the end", xlabel="Growth of a random walk", xscale="log")
    if shrunk:
        ax.set_yscale("symlog", linthresh=0.01)
    else:
        ax.set(yscale="log", ylim=ends)


def caption(curves: Curves, name: str, table: Table) -> str:
    """Setting, rates and verdicts of figure `name` in words, the marks first."""
    study = curves.configuration
    at_edge = ", ".join(f"{rule} {rate:g}" for rule, rate in edges(curves).items())
    chosen = f"at the edge of the rates tried: {at_edge}" if at_edge else "inside the rates tried"
    if not any(map(curves.trials, study["rates"])):
        chosen = "chosen by an earlier study"
    claimed = speed.CLAIMED[name].items()
    equal = [rule for rule, word in claimed if word is no_gain]
    brackets = f" Between {' and '.join(equal)}'s lines it gains nothing." if equal else ""
    rest = (
        f"{setting(curves)} ({chosen}). Hollow dots: the run missed the target.{brackets} A line"
        f" ends with the first of its runs (stop: {study['stop']}). Adam has no one step size."
        f"{outcome(curves, table)}"
    )
    marks = "lines: medians, thin: runs, dots: seeds, bars: 95 % intervals"
    return headed(f"Paper A, Figure {name.removeprefix('fig')}", curves, marks, rest)
