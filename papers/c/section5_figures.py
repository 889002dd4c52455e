"""Paper C, Section 5: three figures drawn from histories: divergences, paths, joint runs."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from lib.attention.token_sets import TokenSet
from lib.companion import plots
from lib.mirror.descent import MirrorHistory, selected_tokens
from lib.svm.max_margin import MaxMargin
from papers.c import section5

DASHES = ((4, 2), (4, 2, 1, 2), (1, 1))  # of the SVMs' rays, in the order of the exponents


def colour(p: float) -> str:
    """The colour of an exponent, the same in every figure."""
    return plots.COLOURS[f"p = {p:g}"]


def divergences(histories: Mapping[float, MirrorHistory], same, own, caption: str) -> Figure:
    """Divergence of every exponent's run from every SVM, (p, q); lower row: the paper's reading.

    Lines are medians and bands hold 80 %; circles are the last means, with their numbers above.
    """
    figure, axes = plots.panels(2, len(histories), height=2.0)
    rows = ((same, "same tokens for all SVMs"), (own, "each SVM its own tokens"))
    for row, (found, reading) in zip(axes.reshape(2, -1), rows, strict=True):
        for axis, (p, history) in zip(row, histories.items(), strict=True):
            for q in histories:
                values, end = found[p, q][:, 1:], history.iterations[-1]
                label = f"SVM with p = {q:g}"
                plots.band(axis, history.iterations[1:], values, label, colour(q), 0.8)
                mean = values[:, -1].mean()
                axis.plot(end, mean, "o", color=colour(q), markersize=3.5)
                if found is same:
                    axis.text(1.25 * end, mean, f"{mean:.4f}", fontsize=6.5, va="center")
            axis.set(xscale="log", yscale="log", ylim=(5e-4, 3), title=f"trained with p = {p:g}")
            axis.set_xlim(1, 12 * end)
        row[0].set_ylabel(f"divergence $D$\n{reading}")
    for axis in axes[len(histories) :]:
        axis.set_xlabel("iteration $t$")
    plots.legend(figure, axes[0])
    plots.caption(figure, caption)
    return figure


def paths(
    histories: Mapping[float, MirrorHistory],
    ends: Mapping[float, Mapping[float, MaxMargin]],
    caption: str,
) -> Figure:
    """Two entries of W along the path from zero; broken rays: the directions of the SVMs.

    Above a panel stand the last divergences from the SVMs over all entries, in the order of the
    legend: two entries do not show which of them is nearest.
    """
    figure, axes = plots.panels(1, len(histories), height=2.6)
    at = (0, 2), (1, 3)  # the entries W_12 and W_34
    for axis, (p, history) in zip(axes, histories.items(), strict=True):
        path, last = history.W[0][:, at[0], at[1]], []  # (k, 2)
        axis.plot(*path.T, ".-", color=colour(p), markersize=3)
        for q, dashes in zip(histories, DASHES, strict=True):
            ray = ends[p][q].W[0][at]
            ray = 1.1 * np.hypot(*path[-1]) / np.hypot(*ray) * ray
            line = {"dashes": dashes, "color": colour(q), "label": f"SVM, p = {q:g}"}
            axis.plot([0, ray[0]], [0, ray[1]], **line)
            last.append(f"{history.divergence(ends[p][q].W)[0, -1]:.4f}")
        axis.set(title=f"trained with p = {p:g}\n$D$: {', '.join(last)}", xlabel="$W_{12}$")
    axes[0].set_ylabel("$W_{34}$")
    plots.legend(figure, axes[0])
    plots.caption(figure, caption)
    return figure


def joint(
    tokens: TokenSet,
    histories: Mapping[float, MirrorHistory],
    ends: Mapping[float, Mapping[float, MaxMargin]],
    heads: Mapping[float, MaxMargin],
    first: int,
    caption: str,
) -> Figure:
    """Joint training: directions of W and v and their SVMs; the first weights; the divergences."""
    figure, axes = plots.panels(2, 2, height=2.4)
    for p, history in histories.items():
        W = history.W[0, :, 0] / history.norm[0, -1]
        v = history.v[0] / history.head_norm[0, -1]
        target, head = ends[p][p], heads[p]
        tips = (target.W[0, 0] / target.norm, head.value[0] / head.norm)
        for axis, path, tip in zip(axes[:2], (W, v), tips, strict=True):
            axis.plot(*path.T, color=colour(p), label=f"p = {p:g}")
            axis.plot(*tip, "o", color=colour(p), markerfacecolor="none")
        chosen = selected_tokens(tokens, history.W[:, -1])
        weight = section5.selected_weight(tokens, history.W[:, : first + 1], chosen)
        probability = section5.logistic_probability(tokens, history)[:, : first + 1]
        distances = history.divergence(target.W), history.head_divergence(head.value)
        early, late = slice(0, first + 1), slice(1, None)
        for axis, when, curves in (
            (axes[2], early, (weight[0].mean(-1), probability[0].mean(-1))),
            (axes[3], late, [D[0, late] for D in distances]),
        ):
            for curve, dash in zip(curves, ("-", ":"), strict=True):
                axis.plot(history.iterations[when], curve, dash, color=colour(p))
    title = "{} over its last norm; o: $\\ell_p$-SVM"
    axes[0].set(title=title.format("$W$"), xlabel="$W_{11}$", ylabel="$W_{12}$")
    axes[1].set(title=title.format("$v$"), xlabel="$v_1$", ylabel="$v_2$")
    for axis in axes[:2]:
        axis.set_aspect("equal", adjustable="datalim")
    axes[2].set(title="selected token's weight; dotted: label's probability")
    axes[2].set(xlabel="iteration $t$", ylim=(0.2, 1.05))
    axes[3].set(title="divergence $D$ of $W$; dotted: of $v$", xlabel="iteration $t$")
    axes[3].set(xscale="log", yscale="log")
    plots.legend(figure, axes[0])
    plots.caption(figure, caption)
    return figure
