"""Drawing of paper C's real-data figures from the kept curves of the studies `imdb` and `vit`."""

import re

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.papers.c import reviews
from lib.training.curves import Curves
from lib.training.studies.measures import EDGES

WHEN = {"start": "start", "last": "end"}


def shown(rule: str) -> str:
    """The name of a rule as the text writes it: l1.1 as $\\ell_{1.1}$."""
    return re.sub(r"^l([\d.]+)$", r"$\\ell_{\1}$", rule)


def together(rows: list[np.ndarray]) -> np.ndarray:
    """Rows as (rows, shortest): what every run has."""
    return np.stack([row[: min(map(len, rows))] for row in rows])


def loss_panel(ax, curves: Curves, rows: int) -> None:
    """Running mean of the training loss a row, without the spike of the first steps."""
    window = curves.configuration["window"]
    for rule in curves.rates():
        lines = together([run.smooth(window)[window::10] for run in curves.runs(rule)]) / rows
        steps, colour = window + 10 * np.arange(lines.shape[1]), plots.COLOURS[rule]
        plots.band(ax, steps, lines, shown(rule), colour)
    ax.set(title="Training loss", xlabel="Step")


def metric_panel(ax, curves: Curves, name: str, title: str, scale: float = 1.0) -> None:
    """A metric over steps."""
    for rule in curves.rates():
        runs = curves.runs(rule)
        lines = scale * together([run.metrics[name] for run in runs])
        steps, colour = runs[0].evaluated_at[: lines.shape[1]], plots.COLOURS[rule]
        plots.band(ax, steps, lines, shown(rule), colour)
    ax.set(title=title, xlabel="Step")


def rates_panel(ax, curves: Curves) -> None:
    """Held-out accuracy of every trial where it ended, over its rate; a ring marks the choice."""
    chosen = curves.rates()
    for rule in curves.rates():
        last = {
            trial.rate: 100 * float(np.mean(trial.metrics["test_accuracy"][-reviews.LAST :]))
            for trial in curves.trials(rule)
            if not trial.diverged
        }
        ax.plot(last.keys(), last.values(), ".-", color=plots.COLOURS[rule])
        if chosen[rule] in last:
            ring = {"mfc": "none", "mec": "0.2", "ms": 8, "clip_on": False}
            ax.plot(chosen[rule], last[chosen[rule]], "o", **ring)
    ax.set(title="Held-out accuracy (%)", xlabel="Rate", xscale="log")
    ax.xaxis.set_minor_formatter("")


def accuracy_figure(curves: Curves) -> Figure:
    """Loss, test accuracy, rates, and the last accuracy of every seed beside the paper's."""
    figure, axes = plots.panels(1, 4, height=2.5)
    loss_panel(axes[0], curves, curves.configuration["batch"])
    metric_panel(axes[1], curves, "test_accuracy", "Test accuracy (%)", 100)
    rates_panel(axes[2], curves)
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
    loss_panel(axes[0], curves, 1)
    metric_panel(axes[1], curves, "test_accuracy", "Test accuracy (%)", 100)
    rates_panel(axes[2], curves)
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
    setting, problem = curves.configuration, curves.configuration["problem"]
    data = problem["data"]
    demo = "DEMO DATA: " if data["source"] == "demo" else ""
    rates = ", ".join(f"{rule} {rate:g}" for rule, rate in curves.rates().items())
    words = "; ".join(f"{c.id} {c.verdict}" for c in table if c.verdict)
    words = f" {words}." if words else ""
    network = re.sub(r"[{}']|(?<='):", "", problem["network"])  # {'width': 32} as width 32
    never = setting["stop"] == "never"
    early = "no run ends early" if never else f"a run ends early at {setting['stop']}"
    epochs = setting["horizon"] * setting["batch"] / problem["rows"]
    return (
        f"{demo}{data['name']} ({data['source']}), {problem['rows']:,} training and all"
        f" {problem['test_rows']:,} test rows; {network}; batch {setting['batch']},"
        f" at most {setting['horizon']:,} steps ({epochs:.0f} epochs; {early}),"
        f" {len(curves.seeds())} seeds; rates {rates}, chosen by held-out"
        f" accuracy.{words} {curves.hours():.1f} processor hours"
    )
