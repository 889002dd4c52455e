"""Drawing of paper A's Figures 1 and 4: training curves against steps and seconds, and what training changed."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.data import texts
from lib.networks.bert import Classifier, Tokens
from lib.training import comparison
from lib.training.bert_evaluation import layer_norms
from lib.training.comparison import Histories, Race
from lib.training.record import running_mean


def draw(histories: Histories, race: Race, window: int, layers: int) -> Figure:
    """Nine panels for `histories` of every rule: lines are medians over seeds, bands run from
    lowest to highest.

    Top: training loss (running mean over `window` steps) against steps and seconds, steps to the
    reference's last loss. Middle: test accuracy against both, step size. Bottom: attention entropy,
    mean over `layers` layers and by layer at the end, growth of each layer's norm.
    """
    figure, axes = plots.panels(3, 3, height=2.05)
    loss = {
        rule: running_mean(values, window)
        for rule, values in comparison.stacked(histories, "loss").items()
    }
    accuracy = comparison.stacked(histories, "test_accuracy")
    seconds, at = comparison.stacked(histories, "seconds"), comparison.seconds_at(histories)
    entropies = {k: comparison.stacked(histories, f"entropy.{k}") for k in range(layers)}
    for rule, runs in histories.items():
        steps, points = np.arange(loss[rule].shape[1]) + 1, runs[0].evaluated_at
        plots.band(axes[0], steps, loss[rule], rule)
        plots.band(axes[1], np.median(seconds[rule], 0), loss[rule], rule)
        plots.band(axes[3], points, 100 * accuracy[rule], rule, marker="o", markersize=2.5)
        plots.band(axes[4], at[rule], 100 * accuracy[rule], rule, marker="o", markersize=2.5)
        if rule != "Adam":  # which has no single step size
            plots.band(
                axes[5], steps, running_mean(np.stack([h.step_size for h in runs]), window), rule
            )
        mean = np.mean([entropies[k][rule] for k in range(layers)], axis=0)  # (seeds, points)
        plots.band(axes[6], points, mean, rule, marker="o", markersize=2.5)
        change = np.stack(
            [entropies[k][rule][:, -1] - entropies[k][rule][:, 0] for k in range(layers)], axis=1
        )
        plots.band(axes[7], np.arange(layers) + 1, change, rule, marker="o", markersize=2.5)
        norms = np.stack([layer_norms(h.weight_norms) for h in runs])  # (seeds, layers, points)
        growth = 100 * (norms[..., -1] / norms[..., 0] - 1)
        plots.band(axes[8], np.arange(layers) + 1, growth, rule, marker="o", markersize=2.5)
    _ratios(axes[2], race)
    axes[0].set(title="Training loss", xlabel="Step")
    axes[1].set(title="Training loss", xlabel="Seconds of training")
    axes[3].set(title="Test accuracy (%)", xlabel="Step")
    axes[4].set(title="Test accuracy (%)", xlabel="Seconds of training")
    axes[5].set(title="Step size taken", xlabel="Step", yscale="log")
    axes[6].set(title="Attention entropy / log T", xlabel="Step")
    axes[7].set(title="Entropy, last minus first", xlabel="Layer", xticks=np.arange(layers) + 1)
    axes[8].set(title="Norm, growth (%)", xlabel="Layer", xticks=np.arange(layers) + 1)
    plots.legend(figure, axes[0])
    return figure


def about(
    number: str, identity: Mapping, tokens: Mapping[str, Tokens], network: Classifier, rates: Mapping[str, float],
    parameters: Mapping, note: str = "",
) -> str:  # fmt: skip
    """The caption of figure `number`: data (and a `note` on them), network and what was reduced,
    rates.

    `tokens` are the parts "train", "held out" and "test"; `parameters` those of the notebook.
    """
    count, judged, tried = (len(tokens[name].labels) for name in ("train", "test", "held out"))
    batch, steps, scale = (parameters[name] for name in ("batch", "steps", "scale"))
    return (
        f"{number}, our setting{'' if scale == 'paper' else ', reduced'}:"
        f" {'DEMO DATA: ' if identity['source'] == 'demo' else ''}{identity['name']} ({identity['source']},"
        f" {texts.extent(identity)}); {count:,} training and {judged:,} test rows of at most {parameters['length']}"
        f" tokens{note}; {network.describe()}; batch {batch}, {steps:,} steps ({steps * batch / count:.1f} epochs),"
        f" {parameters['seeds']} seeds, {parameters['precision']}; constant rates, chosen on {tried} held-out training"
        f" rows in {parameters['tune_steps']} steps: {', '.join(f'{rule} {rate:g}' for rule, rate in rates.items())};"
        f" lines: median and range over seeds, loss a mean of {parameters['window']} batches; bars: mean and standard"
        f" deviation over seeds; seconds on a shared processor"
    )


def _ratios(ax, race: Race) -> None:
    """Steps to the reference's last loss over its own: one dot per seed, mean and standard deviation as a bar."""
    for place, (rule, values) in enumerate(race.ratio.items()):
        reached = values[np.isfinite(values)]
        colour = plots.COLOURS[rule]
        ax.plot(np.full(len(reached), place), reached, "o", markersize=3, color=colour, alpha=0.5)
        if len(reached) == len(values):
            spread = values.std(ddof=1) if len(values) > 1 else 0.0
            ax.errorbar(
                place + 0.2, values.mean(), spread, fmt="s", markersize=4, capsize=3, color=colour
            )
        else:
            never = f"{len(values) - len(reached)} of {len(values)}\nnever"
            ax.annotate(never, (place, 0.4), ha="center", fontsize=6.5, color=colour)
    ax.axhline(1, linestyle=":", color="0.3")
    ax.set(
        title="Steps to SGD's last loss, ratio", ylim=(0, None), xlim=(-0.5, len(race.ratio) - 0.3)
    )
    ax.set_xticks(range(len(race.ratio)), list(race.ratio))
