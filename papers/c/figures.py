"""Paper C's figures: its authors' code, rates, basins, what it generalises."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from companion import plots
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from lib.svm.max_margin import MaxMargin
from papers import pieces
from papers.c import lemmas, section5

Histories = Mapping[float, History]


def _look(p: float) -> plots.Look:
    return plots.look(f"p = {p:g}")


def divergences(
    histories: Histories, same, by_q, judged: Mapping, caption: str
) -> Figure:
    """Divergence of every run from every SVM, (p, q); below: the paper's reading.
    Hollow are the means of other code; claims by id.
    """
    figure, axes = plots.panels(2, len(histories), height=2.0)
    rows = ((same, "same tokens for all SVMs"), (by_q, "each SVM its own tokens"))
    for row, (table, reading) in zip(axes.reshape(2, -1), rows, strict=True):
        for axis, (p, history) in zip(row, histories.items(), strict=True):
            for q in histories:
                values = table[p, q][:, 1:]
                end = history.iterations[-1]
                label = f"SVM with p = {q:g}"
                plots.band(axis, history.iterations[1:], values, label, _look(q), 0.8)
                mean = values[:, -1].mean()
                axis.plot(end, mean, markersize=3.5, **_look(q).mark)
                if table is same:
                    axis.text(1.4 * end, mean, f"{mean:.4f}", fontsize=6.5, va="center")
            axis.set(
                xscale="log",
                yscale="log",
                ylim=(5e-4, 3),
                title=f"trained with p = {p:g}",
            )
            axis.set_xlim(1, 12 * end)
            agrees = judged.get(f"bregman.table.{p:g}")
            if table is same and agrees:
                theirs = section5.REFERENCE[p]
                for q in histories:
                    axis.plot(
                        end, theirs[q], ms=6, mfc="none", mew=0.7, **_look(q).mark
                    )
                words = f"hollow: other code's,\na factor of {agrees.measured:.2f} off"
                pieces.note(axis, f"{words}\n{pieces.asked(agrees)}", 0.04)
        row[0].set_ylabel(f"divergence $D$\n{reading}")
    for axis in axes[len(histories) :]:
        axis.set_xlabel("iteration $t$")
    return plots.caption(plots.legend(figure, axes[0]), caption)


def _direction_path(axis, p: float, path: np.ndarray, target: np.ndarray) -> tuple:
    """A path (k, 2) of directions, its target's mark; the end label with its miss."""
    above = 2 + (_look(p).dash != "-")  # so that dashes show on a solid line
    axis.plot(*path.T, label=f"p = {p:g}", zorder=above, **_look(p).line)
    axis.plot(*target, markerfacecolor="none", zorder=above, **_look(p).mark)
    miss = np.linalg.norm(path[-1] - target)
    return target[1], f"ends {miss:.1g} off", _look(p).colour


def _directions(axes, histories: Histories, ends: Mapping, heads: Mapping) -> None:
    """Directions of W on the first axis and of the head on the second."""
    labels_of_W = []
    labels_of_v = []
    for p, history in histories.items():
        W = history.W[0, :, 0] / history.own_norm[0, -1]
        W_mm = ends[p][p].W[0, 0] / ends[p][p].norm
        labels_of_W.append(_direction_path(axes[0], p, W, W_mm))
        v = history.u[0] / history.own_head_norm[0, -1]
        v_mm = heads[p].value[0] / heads[p].norm
        labels_of_v.append(_direction_path(axes[1], p, v, v_mm))
    title = "{} over its last norm; marks: $\\ell_p$-SVM"
    axes[0].set(title=title.format("$W$"), xlabel="$W_{11}$", ylabel="$W_{12}$")
    axes[1].set(title=title.format("$u$"), xlabel="$u_1$", ylabel="$u_2$")
    for axis, labels in zip(axes, (labels_of_W, labels_of_v), strict=True):
        axis.set_aspect("equal", adjustable="datalim")
        pieces.end_labels(axis, labels)


def _first_probabilities(axis, tokens: TokenSet, histories: Histories, first: int):
    """Softmax weight of the selected tokens and the label's probability, dotted."""
    early = slice(0, first + 1)
    for p, history in histories.items():
        weight, label_probability = section5.probabilities(tokens, history)
        t = history.iterations[early]
        colour = _look(p).colour
        axis.plot(t, weight[0, early].mean(-1), color=colour, ls=_look(p).dash)
        axis.plot(t, label_probability[0, early].mean(-1), color=colour, ls=":")
    axis.set(title="Selected token's weight", ylim=(0.2, 1.05))
    axis.set(xlabel="iteration $t$; dotted: label's probability")


def _joint_divergences(
    axis, histories: Histories, ends: Mapping, heads: Mapping
) -> None:
    """Divergence of W from its SVM, and dotted that of the head from its own."""
    labels = []
    for p, history in histories.items():
        of_W = history.divergence(ends[p][p].W, p)[0]
        of_v = history.head_divergence(heads[p].value, p)[0]
        t = history.iterations[1:]
        colour = _look(p).colour
        for name, D, dash in (("$W$", of_W, _look(p).dash), ("$u$", of_v, ":")):
            axis.plot(t, D[1:], color=colour, ls=dash)
            labels.append((D[-1], f"{name}: {D[-1]:.1e}", colour))
    axis.set(title="Divergence $D$ of $W$; dotted: of $u$", xlabel="iteration $t$")
    axis.set(xscale="log", yscale="log")
    pieces.end_labels(axis, labels)


def joint(
    tokens: TokenSet,
    histories: Histories,
    ends: Mapping[float, Mapping[float, MaxMargin]],
    heads: Mapping[float, MaxMargin],
    first: int,
    caption: str,
) -> Figure:
    """Joint training: directions of W and v; the first weights; the divergences."""
    figure, axes = plots.panels(2, 2, height=2.4)
    _directions(axes[:2], histories, ends, heads)
    _first_probabilities(axes[2], tokens, histories, first)
    _joint_divergences(axes[3], histories, ends, heads)
    return plots.caption(plots.legend(figure, axes[0]), caption)


def lemma29(histories: Histories, divergences: Mapping, caption: str) -> Figure:
    """D (runs, records) against ||W||_{p,p}, a line per run; dashed: Lemma 29."""
    figure, axes = plots.panels(1, len(histories), height=2.4)
    for axis, (p, history) in zip(axes, histories.items(), strict=True):
        size = history.own_norm[:, 1:]
        values = divergences[p][:, 1:]
        axis.plot(size.T, values.T, color=_look(p).colour, alpha=0.4, linewidth=0.8)
        a, b, text = lemmas.theory(p)
        r = np.geomspace(size.min(), size.max(), 50)
        bound = r**a * np.log(r) ** b
        axis.plot(
            r, bound * np.median(values[:, 0]) / bound[0], label=text, **plots.BOUND
        )
        slope = np.median(lemmas.slopes(history, divergences[p]))
        axis.set(xscale="log", yscale="log", title=f"p = {p:g}: $r^{{{slope:.2f}}}$")
        axis.set_xlabel(r"$r = \|W\|_{p,p}$")
        axis.xaxis.set_minor_formatter("")
        axis.legend(fontsize="x-small", loc="lower left", handlelength=2.6)
    axes[0].set_ylabel("divergence $D$")
    return plots.caption(figure, caption)


def basins(widths: Sequence[float], kept: Mapping, caption: str) -> Figure:
    """Shares of starts that end at their cone's selection, by (p, ||W_0||/||W_mm||)."""
    multiples = list(dict.fromkeys(m for _, m in kept))
    figure, axes = plots.panels(1, len(multiples), height=2.3)
    for axis, m in zip(axes, multiples, strict=True):
        for p in dict.fromkeys(p for p, _ in kept):
            name = f"p = {p:g}"
            marker = _look(p).marker
            plots.band(axis, widths, kept[p, m], name, marker=marker, markersize=3.5)
        axis.set(xscale="log", ylim=(0, 1.05), xlabel="divergence $D$ of the start")
        last = {p: kept[p, m][-1] for p, multiple in kept if multiple == m}
        words = [
            (share, f"{100 * share:.0f} %", _look(p).colour)
            for p, share in last.items()
        ]
        pieces.end_labels(axis, words)
        axis.set_title(f"$\\|W_0\\| = {m}\\,\\|W_{{mm}}\\|$")
    axes[0].set_ylabel("share that ends at\nthe cone's selection")
    return plots.caption(plots.legend(figure, axes[0]), caption)


def parents(
    pairs: tuple[np.ndarray, Mapping],
    by_dimension: tuple[Sequence[int], Mapping],
    several: Mapping,
    paths: tuple[Sequence[float], Mapping[float, Mapping]],
    caption: str,
) -> Figure:
    """Keys and queries, ranks, several tokens, regularisation path: a panel each.
    `pairs`, `by_dimension`, `paths`: x, then the values; `several`: by dimension,
    alignments (draws,). Last panel: a mark is the end of a descent.
    """
    figure, axes = plots.panels(2, 2, height=2.3)
    recorded, alignments = pairs
    ends = []
    for (trained, norm), runs in alignments.items():
        name = norm if norm in plots.LOOKS else norm.capitalize()
        like = plots.look(name)._replace(dash="-" if trained == "W" else "--")
        plots.band(axes[0], recorded, runs, "", like)
        last = np.median(runs[:, -1])
        ends.append((last, f"{trained}, {name}: {last:.3f}", like.colour))
    axes[0].set(
        xscale="log",
        title="Alignment with the SVMs; dashed: $K$, $Q$",
        ylim=(-0.1, 1.05),
    )
    axes[0].set_xlabel("iteration $t$")
    pieces.end_labels(axes[0], ends, 6.5)
    dimensions, shapes = by_dimension
    for ((size, length), rank), like in zip(shapes.items(), plots.SERIES):
        missing = [d for d, r in zip(dimensions, rank, strict=True) if np.isnan(r)]
        none = f" (d={missing[0]}: no solution)" if missing else ""
        label = f"n={size}, T={length}{none}"
        plots.band(
            axes[1], dimensions, rank, label, like, marker=like.marker, markersize=3.5
        )
    axes[1].set(title="Mean rank of the nuclear-norm SVM", xlabel="dimension $d$")
    axes[1].set_ylim(0, None)
    missed = {}
    said = []
    edge = 1e-6
    for d, values in several.items():
        off = 1 - values[np.isfinite(values)]
        near = (off < edge).sum()
        said.append(f"median {np.median(off):.2g}\n{near} of {len(off)} at the edge")
        missed[f"d = {d}"] = np.maximum(off, edge)
    named = dict(title="Several tokens at once", xlabel="$1-$alignment with their SVM")
    pieces.strip(axes[2], missed, (0.7 * edge, 3), plots.SERIES, said=said, **named)
    multiples, by_p = paths
    for p, ends in by_p.items():
        plots.band(axes[3], multiples, ends["path"], f"p = {p:g}, path", _look(p))
        for mark, runs in (("o", ends["optimal"]), ("x", ~ends["optimal"])):
            at = ends["multiple"][runs], ends["descent"][runs]
            axes[3].plot(*at, mark, color=_look(p).colour, markersize=4)
    axes[3].set(xscale="log", yscale="log", xlabel=r"$\|W\| / \|W_{mm}\|$")
    optimal = np.concatenate([ends["optimal"] for ends in by_p.values()])
    axes[3].set(title="Path of least loss, and descents", ylabel="divergence $D$")
    optimal = f"descent, optimal: {optimal.sum()} of {len(optimal)}"
    axes[3].plot([], [], "o", color=plots.GREY, ms=4, label=optimal)
    axes[3].plot([], [], "x", color=plots.GREY, ms=4, label="descent, not optimal")
    for axis in axes[[1, 3]]:
        axis.legend(fontsize="x-small", loc="lower left")
    return plots.caption(figure, caption)
