"""Paper C's theory in three figures: rates, basins, and the results it generalises."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.mirror.descent import MirrorHistory
from papers.c import rates
from papers.c.section5_figures import colour


def lemma29(
    histories: Mapping[float, MirrorHistory], divergences: Mapping[float, np.ndarray], caption: str
) -> Figure:
    """D against ||W||_{p,p}, a line per run; dashed Lemma 29, its constant that of the start.

    `divergences` (runs, records) by p, at the records of the history with the same p.
    """
    figure, axes = plots.panels(1, len(histories), height=2.4)
    for axis, (p, history) in zip(axes, histories.items(), strict=True):
        size, values = history.norm[:, 1:], divergences[p][:, 1:]
        axis.plot(size.T, values.T, color=colour(p) or "0.5", alpha=0.4, linewidth=0.8)
        a, b, text = rates.theory(p)
        r = np.geomspace(size.min(), size.max(), 50)
        bound = r**a * np.log(r) ** b
        axis.plot(r, bound * np.median(values[:, 0]) / bound[0], "--", color="0.3", label=text)
        slope = np.median(rates.slopes(history, divergences[p]))
        axis.set(xscale="log", yscale="log", title=f"p = {p:g}: $r^{{{slope:.2f}}}$")
        axis.set_xlabel(r"$r = \|W\|_{p,p}$")
        axis.xaxis.set_minor_formatter("")
        axis.legend(fontsize="x-small", loc="lower left")
    axes[0].set_ylabel("divergence $D$")
    plots.caption(figure, caption)
    return figure


def basins(
    widths: Sequence[float], kept: Mapping[tuple[float, float], np.ndarray], caption: str
) -> Figure:
    """Shares of starts that end at their cone's selection, by (p, multiple of ||W_mm||)."""
    multiples = list(dict.fromkeys(m for _, m in kept))
    figure, axes = plots.panels(1, len(multiples), height=2.3)
    for axis, m in zip(axes, multiples, strict=True):
        for p in dict.fromkeys(p for p, _ in kept):
            axis.plot(widths, kept[p, m], "o-", color=colour(p), label=f"p = {p:g}", markersize=3.5)
        axis.set(xscale="log", ylim=(0, 1.05), xlabel="divergence $D$ of the start")
        axis.set_title(f"$\\|W_0\\| = {m}\\,\\|W_{{mm}}\\|$")
    axes[0].set_ylabel("share that ends at\nthe cone's selection")
    plots.legend(figure, axes[0])
    plots.caption(figure, caption)
    return figure


def parents(
    pairs: tuple[np.ndarray, Mapping],
    by_dimension: tuple[Sequence[int], Mapping],
    several: Mapping[int, tuple],
    paths: tuple[Sequence[float], Mapping[float, Mapping]],
    caption: str,
) -> Figure:
    """Keys and queries, ranks, several tokens, regularisation path: a panel each.

    `pairs`, `by_dimension` and `paths` come with what stands on their axis of x: iterations
    (records,), dimensions, radii R / ||W_mm||. `several`: by dimension, alignments (draws,) second.
    In the last panel a mark is the end of a descent from zero.
    """
    figure, axes = plots.panels(2, 2, height=2.3)
    recorded, found = pairs
    curves = [key for key in found if isinstance(key, tuple)]
    for (what, norm), rule in zip(curves, ("NGD", "GD", "Polyak", "Adam"), strict=True):
        label, shade = f"{what}: {norm.capitalize()}", plots.COLOURS[rule]
        plots.band(axes[0], recorded, found[what, norm], label, shade)
    axes[0].set(xscale="log", title="alignment with the two SVMs", ylim=(-0.1, 1.05))
    axes[0].set_xlabel("iteration $t$")
    dimensions, shapes = by_dimension
    for (size, length), rank in shapes.items():
        missing = [d for d, r in zip(dimensions, rank, strict=True) if np.isnan(r)]
        none = f" (d={missing[0]}: no solution)" if missing else ""
        label = f"n={size}, T={length}{none}"
        axes[1].plot(dimensions, rank, "o-", markersize=3.5, label=label)
    axes[1].set(title="rank of the nuclear-norm SVM, mean", xlabel="dimension $d$")
    axes[1].set_ylim(0, None)
    aligned = [v[1][np.isfinite(v[1])] for v in several.values()]
    axes[2].boxplot(aligned, tick_labels=list(several), whis=(0, 100))
    axes[2].set(title="several tokens: alignment with their SVM", xlabel="dimension $d$")
    axes[2].set_ylim(None, 1.02)
    multiples, by_p = paths
    for p, one in by_p.items():
        there = one["optimal"]
        label = f"p = {p:g}; descent: {there.sum()} of {len(there)} there"
        plots.band(axes[3], multiples, one["path"], label, colour(p))
        for mark, which in (("o", there), ("x", ~there)):
            at = one["multiple"][which], one["descent"][which]
            axes[3].plot(*at, mark, color=colour(p), markersize=4)
    axes[3].set(xscale="log", yscale="log", xlabel=r"$\|W\| / \|W_{mm}\|$")
    lines = "$D$ to the opt tokens' SVM: line, regularisation path;"
    axes[3].set_title(f"{lines}\no, descent that selects them; x, that does not")
    for axis, where in ((axes[0], "best"), (axes[1], "best"), (axes[3], "lower left")):
        axis.legend(fontsize="x-small", loc=where)
    plots.caption(figure, caption)
    return figure
