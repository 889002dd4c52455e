"""Drawing of paper C's real-data figures from the kept curves of the studies `imdb` and `vit`."""

import re

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Table
from lib.networks.weight_statistics import EDGES
from lib.training.curves import Curves
from papers import kept_curves
from papers.c import reviews, vision
from papers.kept_curves import together
from papers.verdicts import Interval

WHEN = {"start": "start", "last": "end"}


def shown(rule: str) -> str:
    """The name of a rule as the text writes it: l1.1 as $\\ell_{1.1}$."""
    return re.sub(r"^l([\d.]+)$", r"$\\ell_{\1}$", rule)


def training_panels(axes, curves: Curves, rows: int) -> None:
    """Three panels: training loss a row, test accuracy, held-out accuracy by rate.

    The loss is a running mean, without the spike of the first steps.
    """
    kept_curves.losses(axes[0], curves, rows, shown)
    for rule in curves.rates():
        runs, look = curves.runs(rule), (shown(rule), plots.COLOURS[rule])
        accuracy = 100 * together([run.metrics["test_accuracy"] for run in runs])
        plots.band(axes[1], runs[0].evaluated_at[: accuracy.shape[1]], accuracy, *look)
    kept_curves.rates_panel(axes[2], curves, lambda run: 100 * float(reviews.late(run)))
    axes[1].set(title="Test accuracy (%)", xlabel="Step")
    axes[2].set(title="Held-out accuracy (%)")


def differences(ax, names: list[str], *series: list[Interval], scale: float = 1.0) -> None:
    """Paired differences, a dot a seed and a bar for the 95 % interval; a second series is hollow.

    Zero says that the two rules are alike.
    """
    for k, intervals in enumerate(series):
        face = "none" if k else "0.3"
        for place, found in enumerate(intervals):
            x = place + 0.25 * (k - (len(series) - 1) / 2)
            values = scale * found.values
            ax.plot([x - 0.05] * len(values), values, "o", markersize=3, mec="0.3", mfc=face)
            ends = [scale * found.low, scale * found.high]
            ax.plot([x + 0.05] * 2, ends, color="0.3", linewidth=1.6)
    ax.axhline(0, color="0.3", linewidth=0.8)
    ax.set(xlim=(-0.5, len(names) - 0.5), xticks=range(len(names)), xticklabels=names)


def accuracy_figure(curves: Curves) -> Figure:
    """Loss, test accuracy, rates, and what is judged: the paired differences of the last accuracy.

    A cross is the paper's difference.
    """
    figure, axes = plots.panels(1, 4, height=2.5)
    training_panels(axes[:3], curves, curves.configuration["batch"])
    found = [reviews.accuracy_difference(curves, *pair) for pair in reviews.PAIRS]
    names = [f"{shown(first)}-\n{shown(second)}" for first, second in reviews.PAIRS]
    differences(axes[3], names, found, scale=100)
    paper = [100 * (reviews.PAPER[a] - reviews.PAPER[b]) for a, b in reviews.PAIRS]
    axes[3].plot(np.arange(len(paper)) + 0.25, paper, "x", color="#D55E00", markersize=5)
    axes[3].set(title="Difference (points)")
    plots.legend(figure, axes[0])
    return figure


def sparsity_figure(curves: Curves) -> Figure:
    """Magnitudes at start (grey) and end by part, and what is judged: Hoyer, l1.1 minus l2.

    In the last panel at the end (filled) and at matched training accuracy (hollow).
    """
    figure, axes = plots.panels(1, 4, height=2.5)
    for k, part in enumerate(reviews.PARTS):
        runs = curves.runs("l2")
        start = sum(run.end[f"start.histogram.{part}"] for run in runs)
        axes[k].stairs(100 * start / start.sum(), EDGES, color="0.8", label="start", fill=True)
        for place, rule in enumerate(curves.rates()):
            last = sum(run.end[f"last.histogram.{part}"] for run in curves.runs(rule))
            share = 100 * last / last.sum()
            line = dict(color=plots.COLOURS[rule], zorder=4 - place)  # the first, l1.1, on top
            axes[k].stairs(share, EDGES, label=shown(rule), **line)
        axes[k].axvline(0.06, linestyle=":", color="0.3", label="0.06, the paper's threshold")
        axes[k].set(title=f"{part}: share of entries (%)", xscale="log", xlabel="Magnitude")
        axes[k].set(xlim=(1e-3, 2))
    pairs = [
        [of(curves, f"hoyer.{part}") for part in reviews.PARTS]
        for of in (reviews.apart, reviews.matched_apart)
    ]
    differences(axes[3], list(reviews.PARTS), *pairs)
    axes[3].set(title=f"Hoyer, {shown('l1.1')} minus {shown('l2')}")
    plots.legend(figure, axes[0])
    return figure


def attention_figure(curves: Curves) -> Figure:
    """Tokens used by layer, start and end; what is judged; the last maps of two reviews.

    Judged is the paired difference in the last layer.
    """
    figure = Figure(figsize=(plots.WIDTH, 5.4), layout="constrained")
    places = figure.add_gridspec(3, 2, height_ratios=(1.2, 1, 1), width_ratios=(3, 1))
    parts = (places[0, 0], places[0, 1], places[1, :], places[2, :])
    left, right, *grid = map(figure.add_subplot, parts)
    differences(right, ["last layer"], [reviews.attention_difference(curves)])
    right.set(title=f"{shown('l2')} minus {shown('l1.1')}")
    rules = list(curves.rates())
    layers = reviews.tokens_used(curves, rules[0]).shape[-1]
    for k, rule in enumerate(rules):
        for layer in range(layers):
            for when, face in (("start", "none"), ("last", plots.COLOURS[rule])):
                values = reviews.tokens_used(curves, rule, when)[..., layer].mean(1)
                x = layer + 0.2 * (k - 1) + (0.06 if when == "last" else 0)
                left.plot(
                    [x] * len(values),
                    values,
                    "o",
                    markersize=4,
                    mec=plots.COLOURS[rule],
                    mfc=face,
                    label=f"{shown(rule)}, {WHEN[when]}" if not layer else None,
                )
    left.set(title="Share of the tokens that the first token uses", ylim=(0, 1.08), xlabel="Layer")
    left.set_xticks(range(layers), range(1, layers + 1))
    left.legend(fontsize=6, ncols=3, loc="lower left")
    first = {rule: curves.runs(rule)[0] for rule in rules}
    words = next((r.end["words"] for r in first.values() if "words" in r.end), None)
    maps = {rule: run.end["last.maps"][:, -1] for rule, run in first.items()}  # (2, tokens)
    top = max(values.max() for values in maps.values())
    for row, ax in enumerate(grid):
        shares = np.stack([maps[rule][row] for rule in rules])  # (rules, tokens)
        image = ax.imshow(shares, cmap="Greens", aspect="auto", vmin=0, vmax=top)
        names = words[row] if words is not None else range(shares.shape[1])
        ax.set_xticks(range(shares.shape[1]), names, rotation=90, fontsize=6)
        ax.set(yticks=range(len(rules)), yticklabels=map(shown, rules))
        ax.set(title=f"Attention weights, a review of label {1 - row}")
        ax.grid(False)
    figure.colorbar(image, ax=grid, label="weight", shrink=0.8)
    return figure


def vision_figure(curves: Curves) -> Figure:
    """Loss, test accuracy with the steps to equal accuracy, rates, and Hoyer against the loss."""
    figure, axes = plots.panels(1, 4, height=2.5)
    training_panels(axes[:3], curves, 1)
    steps = vision.steps_to_accuracy(curves)
    levels = vision.matched(curves, "test_accuracy", vision.RULES, "test_accuracy")
    for k, rule in enumerate(vision.RULES):
        colour = plots.COLOURS[rule]
        axes[1].plot(steps[k], 100 * levels[k], "o", markersize=3, color=colour)
        for run in curves.runs(rule):
            x, y = run.metrics["control_loss"], run.metrics["hoyer"]
            axes[3].plot(x, y, ".-", color=colour, markersize=2, linewidth=0.8)
    axes[3].set(title="Hoyer index", xlabel="Training loss, falling")
    axes[3].invert_xaxis()
    plots.legend(figure, axes[0])
    return figure


def caption(number: str, curves: Curves, marks: str, table: Table) -> str:
    """What the marks of figure `number` are, then setting, rates and verdicts in words."""
    stop = curves.configuration["stop"]
    early = "no run ends early" if stop == "never" else f"a run ends early at {stop}"
    said = kept_curves.setting(curves, f"; {early}")
    rest = f"{said}, chosen by held-out accuracy.{kept_curves.outcome(curves, table)}"
    return kept_curves.headed(f"Paper C, {number}", curves, marks, rest)
