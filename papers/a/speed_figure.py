"""Drawing of paper A's Figures 1, 4, 6 and 7 from the kept curves of a study."""

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Table
from lib.training.curves import Curves
from lib.training.rules import STEP_SIZED
from papers import kept_curves, pieces
from papers.a import speed
from papers.kept_curves import edges, losses, rates_figure, together
from papers.verdicts import SAME, no_gain

LEAST_GROWTH = 0.01  # of a layer, in the panel over steps
HIGHEST_LOSS = 5  # of the panel of rates: above it a trial has diverged, its line leaves the panel


def draw(curves: Curves, name: str) -> Figure:
    """Loss, steps ratio at every target, test accuracy, step size; where kept, growth.
    Lines are medians over seeds, to where the first ends; thin lines are runs."""
    walked = bool(curves.configuration["walk"])
    figure, axes = plots.panels(2, 3 if walked else 2, height=2.4)
    losses(axes[0], curves)
    _ratios(axes[1], curves, name)
    kept_curves.accuracies(axes[2], curves)
    _steps(axes[3], curves)
    if walked:
        _norms(axes[4], curves)
        _growth(axes[5], curves)
    axes[0].set(yscale="log")
    pieces.plain_ticks(axes[0].yaxis)
    targets = curves.configuration["targets"]
    for target in targets:
        axes[0].axhline(target, **plots.LEVEL)
    pieces.end_labels(axes[0], [(target, f"{target:g}", plots.GREY) for target in targets])
    return plots.legend(figure, axes[0])


def rates(curves: Curves) -> Figure:
    """Last loss of every trial over its rate; what diverged leaves the panel."""
    window = curves.configuration["window"]
    figure = rates_figure(curves, lambda trial: float(trial.smooth(window)[-1]), "Last loss")
    (ax,) = figure.axes
    ax.set(xlabel="Rate (SPS: cap)", yscale="log")
    ax.set_ylim(None, min(ax.get_ylim()[1], HIGHEST_LOSS))
    pieces.plain_ticks(ax.yaxis)
    return figure


def _steps(ax, curves: Curves) -> None:
    """Step sizes as taken, running means; SGD's one rate is a level line."""
    window = curves.configuration["window"]
    for rule in curves.configuration["rates"]:
        runs = curves.runs(rule)
        if rule in STEP_SIZED:
            kernel = np.ones(window) / window
            means = [np.convolve(run.step_size.astype(float), kernel, "valid") for run in runs]
            lines = [(np.arange(window, window + len(row), 10), row[::10]) for row in means]
            kept_curves.medians(ax, lines, rule)
        elif rule == "SGD":
            ax.axhline(runs[0].rate, label=rule, **plots.look(rule).line)
    ax.set(title="Step size taken", xlabel="Step", yscale="log")
    pieces.plain_ticks(ax.yaxis)


def _ratios(ax, curves: Curves, name: str) -> None:
    """Steps to each target over SGD's as a forest, the last target's in words. A dot is
    a seed, hollow where its run or SGD's missed the target."""
    rules, bars = [r for r in curves.configuration["rates"] if r != speed.REFERENCE], []
    *_, last = targets = curves.configuration["targets"]
    for target in targets:
        theirs = np.isinf(speed.steps(curves, speed.REFERENCE, target))
        bars += [None] if bars else []
        for rule in rules:
            ratio = speed.ratio(curves, rule, target)
            word, words = speed.CLAIMED[name].get(rule), f"{ratio.estimate:.2f}"
            judged = word is not None and target == last
            if judged:
                words += f" {speed.speed(curves, rule, name).verdict}"
            bar = pieces.Bar(
                f"{rule} to {target:g}",
                *(ratio.estimate, ratio.low, ratio.high),
                asked=SAME if judged and word is no_gain else (),
                points=tuple(ratio.values),
                hollow=tuple(theirs | np.isinf(speed.steps(curves, rule, target))),
                look=rule,
                words=words,
            )
            bars.append(bar)
    drawn = [(bar.low, bar.high, *bar.points) for bar in bars if bar]
    inside = [value for values in drawn for value in values if 0.01 < value < 100]
    pieces.forest(ax, bars, (0.8 * min(inside), 1.25 * max(1.0, *inside)), 1.0)
    ax.set(title="Steps to the target over SGD's", xscale="log")
    ax.tick_params(axis="y", labelsize=6.5)
    pieces.plain_ticks(ax.xaxis)


def _norms(ax, curves: Curves) -> None:
    """Growth of every weight matrix, a thin line a layer, in bold their median."""
    below = 0
    for rule in curves.configuration["rates"]:
        runs, look = curves.runs(rule), plots.look(rule)
        norms = [[run.weight_norms[name] for run in runs] for name in speed.layers(curves)]
        layers = [together([row / row[0] - 1 for row in rows]) for rows in norms]
        grown = np.median(layers, axis=1)[:, 1:]  # (layers, records after the start)
        x = runs[0].evaluated_at[1 : grown.shape[1] + 1]
        ax.plot(x, grown.T, color=look.colour, linewidth=0.4, alpha=0.5)
        ax.plot(x, np.median(grown, axis=0), linewidth=2, **look.line)
        below += int((grown[:, -1] < LEAST_GROWTH).sum())
    if below:
        pieces.note(ax, f"{below} end below {LEAST_GROWTH:g}")
    ax.set(title="Layers' $\\|W_t\\|/\\|W_0\\|-1$", xlabel="Step", yscale="log")
    ax.set_ylim(LEAST_GROWTH, None)


def _growth(ax, curves: Curves) -> None:
    """Growth of matrices over that of a random walk, hollow where less; verdicts."""
    edges, shrunk, words = [], False, []
    judged = [claim for claim in speed.table(curves, "fig7") if "growth" in claim.id]
    for rule, claim in zip(curves.configuration["rates"], judged, strict=True):
        grown, walk = speed.growth(curves, rule), speed.random_walk(curves, rule)
        x = np.array([np.mean(walk[name]) for name in grown])
        y = np.array([np.mean(values) for values in grown.values()])
        for some, face in ((y > x, None), (y <= x, "none")):
            ax.plot(x[some], y[some], markersize=3, mfc=face, **plots.look(rule).mark)
        words.append(f"{rule}: {(y > x).sum()}/{len(x)} above,\n{claim.verdict}")
        edges += [*x, *filter(lambda value: value > 0, y)]
        shrunk |= min(y) <= 0
    ends = np.array([min(edges) / 1.5, max(edges) * 1.5])
    equal = np.geomspace(*ends)
    ax.plot(equal, equal, **plots.LEVEL)
    ax.set(title="Growth of a layer at the end", xlabel="Growth of a random walk", xscale="log")
    if shrunk:
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_ylim(-0.01, ends[1])
    else:
        ax.set(yscale="log", ylim=ends)
    pieces.note(ax, "\n".join(words), y=0.02)


def caption(curves: Curves, name: str, table: Table) -> str:
    """Setting, rates and verdicts of figure `name` in words, the marks first."""
    study = curves.configuration
    at_edge = ", ".join(f"{rule} {rate:g}" for rule, rate in edges(curves).items())
    top = curves.rates().get("SPS") == max((t.rate for t in curves.trials("SPS")), default=0)
    inside = "inside the rates tried" + ", but for SPS, whose cap binds in under 1 % of steps" * top
    chosen = f"at the edge of the rates tried: {at_edge}" if at_edge else inside
    if not any(map(curves.trials, study["rates"])):
        chosen = "chosen by an earlier study"
    equal = [rule for rule, word in speed.CLAIMED[name].items() if word is no_gain]
    ticks = f", between {' and '.join(equal)}'s ticks no gain" if equal else ""
    thin = "runs or layers" if study["walk"] else "runs"
    marks = f"lines: medians, thin: {thin}, dots: seeds, bars: 95 % intervals{ticks}"
    rest = (
        f" ({chosen}). Hollow dots: the run missed the target. A median ends with the first"
        f" of its runs (stop: {study['stop']}). Adam has no one step size."
    )
    number = f"Paper A, Figure {name.removeprefix('fig')}"
    return kept_curves.caption(number, curves, marks, table, rest)
