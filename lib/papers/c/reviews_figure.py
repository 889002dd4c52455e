"""Drawing of paper C's real-data figures from the kept curves of the studies `imdb` and `vit`."""

import re

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.papers import kept_curves
from lib.papers.c import reviews
from lib.papers.kept_curves import together
from lib.training.curves import Curves
from lib.training.measures import EDGES

WHEN = {"start": "start", "last": "end"}


def shown(rule: str) -> str:
    """The name of a rule as the text writes it: l1.1 as $\\ell_{1.1}$."""
    return re.sub(r"^l([\d.]+)$", r"$\\ell_{\1}$", rule)


def training_panels(axes, curves: Curves, rows: int) -> None:
    """Three panels: training loss a row, test accuracy, held-out accuracy by rate.

    The loss is a running mean, without the spike of the first steps.
    """
    window = curves.configuration["window"]
    for rule in curves.rates():
        runs, look = curves.runs(rule), (shown(rule), plots.COLOURS[rule])
        loss = together([run.smooth(window)[window::10] for run in runs]) / rows
        plots.band(axes[0], window + 10 * np.arange(loss.shape[1]), loss, *look)
        accuracy = 100 * together([run.metrics["test_accuracy"] for run in runs])
        plots.band(axes[1], runs[0].evaluated_at[: accuracy.shape[1]], accuracy, *look)
    kept_curves.rates_panel(axes[2], curves, lambda run: 100 * float(reviews.late(run)))
    titles = ("Training loss", "Test accuracy (%)", "Held-out accuracy (%)")
    for axis, title in zip(axes, titles):
        axis.set_title(title)
    for axis in axes[:2]:
        axis.set_xlabel("Step")


def accuracy_figure(curves: Curves) -> Figure:
    """Loss, test accuracy, rates, and the last accuracy of every seed beside the paper's."""
    figure, axes = plots.panels(1, 4, height=2.5)
    training_panels(axes[:3], curves, curves.configuration["batch"])
    rules = list(curves.rates())
    for k, rule in enumerate(rules):
        ours = 100 * reviews.accuracy(curves, rule)
        colour = plots.COLOURS[rule]
        axes[3].plot([k - 0.12], [100 * reviews.PAPER[rule]], "_", color=colour, markersize=12)
        axes[3].plot([k + 0.12] * len(ours), ours, ".", color=colour)
    axes[3].set(title="Test: – paper, · ours", xlim=(-0.5, len(rules) - 0.5))
    axes[3].set(xticks=range(len(rules)), xticklabels=map(shown, rules))
    plots.legend(figure, axes[0])
    return figure


def sparsity_figure(curves: Curves) -> Figure:
    """Magnitudes at start (grey) and end by part; Hoyer index against training accuracy."""
    figure, axes = plots.panels(2, 3, height=2.1)
    for k, part in enumerate(reviews.PARTS):
        runs = curves.runs("l2")
        start = sum(run.end[f"start.histogram.{part}"] for run in runs)
        axes[k].stairs(100 * start / start.sum(), EDGES, color="0.8", label="start", fill=True)
        for place, rule in enumerate(curves.rates()):
            last = sum(run.end[f"last.histogram.{part}"] for run in curves.runs(rule))
            share = 100 * last / last.sum()
            line = dict(color=plots.COLOURS[rule], zorder=4 - place)  # the first, l1.1, on top
            axes[k].stairs(share, EDGES, label=shown(rule), **line)
            for run in curves.runs(rule):
                x, y = run.metrics["training_accuracy"], run.metrics[f"hoyer.{part}"]
                line = dict(color=plots.COLOURS[rule], linewidth=0.8)
                axes[k + 3].plot(100 * x, y, ".-", markersize=2, **line)
        axes[k].axvline(0.06, linestyle=":", color="0.3", label="0.06, the paper's threshold")
        axes[k].set(title=f"{part}: share of entries (%)", xscale="log", xlabel="Magnitude")
        axes[k].set(xlim=(1e-3, 2))
        axes[k + 3].set(title=f"{part}: Hoyer index", xlabel="Training accuracy (%)")
    plots.legend(figure, axes[0])
    return figure


def attention_figure(curves: Curves) -> Figure:
    """Tokens used, layer by layer, start and end; the last maps of two reviews on one scale."""
    figure = Figure(figsize=(plots.WIDTH, 5.4), layout="constrained")
    grid = figure.subplots(3, 1, height_ratios=(1.2, 1, 1))
    rules = list(curves.rates())
    layers = reviews.tokens_used(curves, rules[0]).shape[-1]
    for k, rule in enumerate(rules):
        for layer in range(layers):
            for when, face in (("start", "none"), ("last", plots.COLOURS[rule])):
                values = reviews.tokens_used(curves, rule, when)[..., layer].mean(1)
                x = layer + 0.2 * (k - 1) + (0.06 if when == "last" else 0)
                grid[0].plot(
                    [x] * len(values),
                    values,
                    "o",
                    markersize=4,
                    mec=plots.COLOURS[rule],
                    mfc=face,
                    label=f"{shown(rule)}, {WHEN[when]}" if not layer else None,
                )
    grid[0].set(
        title="Share of the tokens that the first token uses", ylim=(0, 1.08), xlabel="Layer"
    )
    grid[0].set_xticks(range(layers), range(1, layers + 1))
    grid[0].legend(fontsize=6, ncols=3, loc="lower left")
    first = {rule: curves.runs(rule)[0] for rule in rules}
    words = next((r.end["words"] for r in first.values() if "words" in r.end), None)
    maps = {rule: run.end["last.maps"][:, -1] for rule, run in first.items()}  # (2, tokens)
    top = max(values.max() for values in maps.values())
    for row, ax in enumerate(grid[1:]):
        shares = np.stack([maps[rule][row] for rule in rules])  # (rules, tokens)
        image = ax.imshow(shares, cmap="Greens", aspect="auto", vmin=0, vmax=top)
        names = words[row] if words is not None else range(shares.shape[1])
        ax.set_xticks(range(shares.shape[1]), names, rotation=90, fontsize=6)
        ax.set(yticks=range(len(rules)), yticklabels=map(shown, rules))
        ax.set(title=f"Attention weights, a review of label {1 - row}")
        ax.grid(False)
    figure.colorbar(image, ax=list(grid[1:]), label="weight", shrink=0.8)
    return figure


def vision_figure(curves: Curves) -> Figure:
    """Loss, test accuracy, rates, magnitudes at the end, and the Hoyer index against the loss."""
    figure, axes = plots.panels(1, 5, height=2.4)
    training_panels(axes[:3], curves, 1)
    for rule in curves.rates():
        colour = plots.COLOURS[rule]
        last = sum(run.end["histogram"] for run in curves.runs(rule))
        axes[3].stairs(100 * last / last.sum(), EDGES, color=colour)
        for run in curves.runs(rule):
            x, y = run.metrics["control_loss"], run.metrics["hoyer"]
            axes[4].plot(x, y, ".-", color=colour, markersize=2, linewidth=0.8)
    axes[3].set(title="Weights (%)", xscale="log", xlabel="Magnitude", xlim=(1e-4, 3))
    axes[4].set(title="Hoyer index", xlabel="Training loss")
    axes[4].invert_xaxis()
    plots.legend(figure, axes[0])
    return figure


def caption(curves: Curves, table) -> str:
    """Setting, rates and verdicts in words."""
    stop = curves.configuration["stop"]
    early = "no run ends early" if stop == "never" else f"a run ends early at {stop}"
    said = kept_curves.setting(curves, f"; {early}")
    return f"{said}, chosen by held-out accuracy.{kept_curves.outcome(curves, table)}"
