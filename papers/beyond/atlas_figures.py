"""The pictures of the atlas: each draws what the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.companion import plots
from papers.beyond.atlas import NORMS, Ratios, column
from papers.beyond.atlas_claims import REACHED
from papers.beyond.atlas_rules import Row

LABELS = {name: name for name in NORMS}
LABELS |= {"l_1": r"$\ell_1$", "l_3": r"$\ell_3$", "l_inf": r"$\ell_\infty$"}
INK = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#888888"]  # by norm
LOWEST = 0.5  # of the map's colours


def chart(rows: Mapping[str, Row], found: Mapping[str, Ratios]) -> Figure:
    """The map: median ratio of every rule (rows) in every norm (columns), predictions outlined."""
    figure, (axis,) = plots.panels(1, 1, height=0.62 + 0.235 * len(rows))
    values = np.array([np.median(found[name].last, 0) for name in rows])
    image = axis.imshow(values, aspect="auto", vmin=LOWEST, vmax=1, cmap="cividis")
    for (i, k), value in np.ndenumerate(values):
        least = np.min(found[list(rows)[i]].last[:, k])
        text = "none" if np.isnan(value) else f"{value:.3f}" + (" *" if least >= REACHED else "")
        colour = "white" if value < 0.5 * (1 + LOWEST) else "black"
        axis.text(k, i, text, ha="center", va="center", fontsize=6.5, color=colour)
    for i, row in enumerate(rows.values()):
        k = column(row.highest)
        style = dict(fill=False, lw=1.8, ec="#D55E00", ls="-" if row.reached else ":")
        axis.add_patch(Rectangle((k - 0.48, i - 0.46), 0.96, 0.92, **style))
    axis.set_xticks(range(len(NORMS)), [LABELS[name] for name in NORMS])
    axis.set_yticks(range(len(rows)), [_written(name) for name in rows], fontsize="x-small")
    axis.tick_params(length=0)
    axis.grid(False)
    axis.set(title="Margin over the largest possible, median of the runs (*: 0.99 in every run)")
    axis.set(xlabel="norm", ylabel="optimiser")
    figure.colorbar(image, ax=axis, shrink=0.6, label="margin / largest margin in the norm")
    return figure


def _written(row: str) -> str:
    """A row's name as a figure writes it: its norm, and beta_2 where it names one."""
    for name, label in LABELS.items():
        row = row.replace(name, label)
    for memory in ("0.99", "0.999"):
        row = row.replace(f"RMSprop, {memory}", rf"RMSprop, $\beta_2={memory}$")
    return row.replace("Adam, 0.999", r"Adam, $\beta_2=0.999$")


def convergence(panels: Mapping[str, Mapping[str, Ratios]], own: Mapping[str, str]) -> Figure:
    """1 - ratio in each rule's own norm over the steps; a panel per schedule, title: its rules."""
    figure, axes = plots.panels(1, len(panels), height=3.0)
    for axis, (title, found) in zip(axes, panels.items(), strict=True):
        for name, one in found.items():
            k, later = column(own[name]), one.iterations >= 10
            left = np.maximum(1 - one.value[:, later, k], 1e-9)
            label, colour = LABELS[own[name]], INK[column(own[name])]
            plots.band(axis, one.iterations[later], left, label, colour)
        axis.axhline(1 - REACHED, color="0.3", linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="iteration $t$", title=title, ylim=(1e-6, 1.2))
    axes[0].set(ylabel="1 - ratio in the rule's own norm")
    plots.legend(figure, axes[0])
    return figure


def memory(
    memories: Sequence[float],
    by_memory: Sequence[Ratios],
    epsilons: Sequence[float],
    by_epsilon: Sequence[Ratios],
    by_batch: Mapping[str, Mapping[int, Ratios]],
    own: Mapping[str, str],
) -> Figure:
    """Adam's ratio in three norms against beta_2 (epsilon 0) and epsilon; the own norm's of every
    rule against the samples a step."""
    figure, axes = plots.panels(1, 3, height=2.9)
    forgotten = [1 - beta for beta in memories]
    for axis, x, runs in ((axes[0], forgotten, by_memory), (axes[1], epsilons, by_epsilon)):
        for name in ("l_inf", "l_3", "Frobenius"):
            k = column(name)
            last = np.array([one.last[:, k] for one in runs]).T
            plots.band(axis, x, last, LABELS[name], INK[k], marker="o", ms=3)
        axis.axhline(REACHED, color="0.3", linestyle=":")
    for (name, runs), marker in zip(by_batch.items(), "os^D", strict=False):
        k = column(own[name])
        last = np.array([one.last[:, k] for one in runs.values()]).T
        plots.band(axes[2], list(runs), last, name, INK[k], marker=marker, ms=3)
    axes[2].set(xlabel="samples a step", title="in the own norm", xticks=list(runs))
    axes[2].legend(fontsize="x-small", loc="lower right")
    axes[0].set(xscale="log", xlabel=r"$1-\beta_2$", title=r"Adam, $\epsilon=0$", ylabel="ratio")
    axes[1].set(xscale="log", xlabel=r"$\epsilon$", title=r"Adam, $\beta_2=0.99$")
    plots.legend(figure, axes[0])
    return figure
