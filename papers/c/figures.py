"""The figures of paper C: its authors' experiments, rates, basins, and the earlier
paper.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from lib.dynamics import History
from lib.svm.max_margin import MaxMargin
from papers import pieces
from papers.c import lemmas, section5

Histories = Mapping[float, History]


def _look(p: float) -> plots.Look:
    return plots.look(f"p = {p:g}")


def divergences(histories: Histories, table: Mapping, caption: str) -> Figure:
    """Draw the divergence of every run from every SVM, a panel an exponent.

    Parameters
    ----------
    histories : mapping of float to History
        The runs by their exponent p.
    table : mapping
        Divergences (runs, records) by (p, q): of the run with p from the SVM with q.
    caption : str
        Hollow marks are means of other code, of which the means alone are known.
    """
    figure, axes = plots.panels(1, len(histories), height=2.6)
    for axis, (p, history) in zip(axes, histories.items(), strict=True):
        ends = []
        end = history.iterations[-1]
        for q in histories:
            values = table[p, q][:, 1:]
            label = f"SVM with p = {q:g}"
            plots.band(axis, history.iterations[1:], values, label, _look(q), 0.8)
            mean = values[:, -1].mean()
            axis.plot(end, mean, markersize=3.5, **_look(q).mark)
            hollow = {"markersize": 6, "markerfacecolor": "none", "mew": 0.7}
            axis.plot(2.2 * end, section5.REFERENCE[p][q], **_look(q).mark, **hollow)
            ends.append((mean, f"{mean:.4f}", _look(q).colour))
        axis.set(xscale="log", yscale="log", ylim=(5e-4, 3), xlabel="iteration $t$")
        axis.set(title=f"trained with p = {p:g}", xlim=(1, 5 * end))
        pieces.end_labels(axis, ends, 6.5)
    axes[0].set_ylabel("divergence $D$")
    return plots.caption(plots.legend(figure, axes[0]), caption)


def rays(
    paths: Mapping[float, np.ndarray],
    solutions: Mapping[float, np.ndarray],
    caption: str,
) -> Figure:
    """Draw two weights as training moves them, beside each exponent's solution.

    Parameters
    ----------
    paths : mapping of float to ndarray (records, 2)
        The two weights by exponent, scaled to end at length 1.
    solutions : mapping of float to ndarray (2,)
        The solution of each exponent's SVM.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=2.9)
    for p, path in paths.items():
        look = _look(p)
        along = solutions[p] / np.linalg.norm(solutions[p])
        axis.plot(*path.T, **look.line)
        axis.plot(*np.outer([0, 1.12], along).T, **plots.PREDICTED)
        side = 4 if p == min(paths) else -4
        pieces.beside(axis, *(1.12 * along), f"p = {p:g}", look.colour, (side, 3))
    axis.set(xlabel="first entry of column 1", ylabel="second entry")
    axis.set(aspect="equal", xlim=(-1.0, 0.3), ylim=(-0.05, 1.25))
    return plots.caption(figure, caption)


def _direction_path(
    axis: Axes, p: float, path: np.ndarray, target: np.ndarray
) -> tuple:
    """Draw a path (k, 2) of directions and a mark at its target.

    Returns the label at the path's end: its height, how far it ends from the target,
    and its colour.
    """
    above = 2 + (_look(p).dash != "-")  # so that dashes show on a solid line
    axis.plot(*path.T, label=f"p = {p:g}", zorder=above, **_look(p).line)
    axis.plot(*target, markerfacecolor="none", zorder=above, **_look(p).mark)
    miss = np.linalg.norm(path[-1] - target)
    return target[1], f"ends {miss:.1g} off", _look(p).colour


def _directions(axis: Axes, histories: Histories, ends: Mapping) -> None:
    """Draw the directions of W, with marks at the directions of the SVM solutions."""
    labels = []
    for p, history in histories.items():
        W = history.W[0, :, 0] / history.own_norm[0, -1]
        W_mm = ends[p][p].W[0, 0] / ends[p][p].norm
        labels.append(_direction_path(axis, p, W, W_mm))
    title = "$W$ over its last norm; marks: $\\ell_p$-SVM"
    axis.set(title=title, xlabel="$W_{11}$", ylabel="$W_{12}$")
    axis.set_aspect("equal", adjustable="datalim")
    pieces.end_labels(axis, labels)


def _joint_divergences(
    axis: Axes, histories: Histories, ends: Mapping, heads: Mapping
) -> None:
    """Draw the divergence of W from its SVM solution, and of the head from its own
    (dotted).
    """
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
    histories: Histories,
    ends: Mapping[float, Mapping[float, MaxMargin]],
    heads: Mapping[float, MaxMargin],
    caption: str,
) -> Figure:
    """Draw joint training: the directions of W, and the divergences of W and of the
    head.
    """
    figure, axes = plots.panels(1, 2, height=2.9)
    _directions(axes[0], histories, ends)
    _joint_divergences(axes[1], histories, ends, heads)
    return plots.caption(plots.legend(figure, axes[0]), caption)


def lemma29(histories: Histories, divergences: Mapping, caption: str) -> Figure:
    """Draw the divergence over the norm for one exponent, and the slopes for all.

    Parameters
    ----------
    histories : mapping of float to History
        The runs by exponent.
    divergences : mapping of float to ndarray (runs, records)
        D of every run.
    caption : str
    """
    figure, (one, slopes) = plots.panels(1, 2, height=2.7)
    p, history = next(iter(histories.items()))
    size = history.own_norm[:, 1:]
    values = divergences[p][:, 1:]
    blue = plots.look("measured").colour
    one.plot(size.T, values.T, color=blue, alpha=0.4, linewidth=0.8)
    power, logarithms, _ = lemmas.theory(p)
    r = np.geomspace(size.min(), size.max(), 50)
    bound = r**power * np.log(r) ** logarithms
    bound *= np.median(values[:, 0]) / bound[0]
    one.plot(r, bound, **plots.BOUND)
    pieces.beside(one, r[25], bound[25], "Lemma 29,\nslope only", plots.GREY, (4, 4))
    one.set(xscale="log", yscale="log", title=f"Divergence $D$, p = {p:g}")
    one.set_xlabel(r"$r = \|W\|_{p,p}$")
    places = np.arange(len(histories))
    for place, (p, history) in zip(places, histories.items(), strict=True):
        measured = lemmas.slopes(history, divergences[p])
        aside = place + np.linspace(-0.18, 0.18, len(measured))
        slopes.plot(aside, measured, "o", color=blue, ms=3, mfc="none", mew=0.7)
    proved = np.array([lemmas.theory(p)[0] for p in histories])
    slopes.step(places, proved, where="mid", **plots.BOUND)
    slopes.step(places, 2 * proved, where="mid", **plots.PREDICTED)
    pieces.beside(slopes, places[0], proved[0], "Lemma 29", plots.GREY, (2, 4))
    pieces.beside(slopes, places[0], 2 * proved[0], "twice that", place=(2, -14))
    slopes.set_xticks(places, [f"{p:g}" for p in histories])
    slopes.set(xlabel="exponent p", title="Power of $r$ in $D$, a mark a seed")
    slopes.set_ylim(None, -0.2)
    return plots.caption(figure, caption)


def basins(widths: Sequence[float], kept: Mapping, caption: str) -> Figure:
    """Draw the share of starts that keep their cone's selection, by (p,
    ||W_0||/||W_mm||).
    """
    multiples = list(dict.fromkeys(m for _, m in kept))
    figure, axes = plots.panels(1, len(multiples), height=2.3)
    for axis, m in zip(axes, multiples, strict=True):
        for p in dict.fromkeys(p for p, _ in kept):
            name = f"p = {p:g}"
            marker = _look(p).marker
            plots.band(axis, widths, kept[p, m], name, marker=marker, markersize=3.5)
        axis.set(xlim=(0, 1.05), ylim=(0, 1.05), xlabel="divergence $D$ of the start")
        last = {p: kept[p, m][-1] for p, multiple in kept if multiple == m}
        words = [
            (share, f"{100 * share:.0f} %", _look(p).colour)
            for p, share in last.items()
        ]
        pieces.end_labels(axis, words)
        axis.set_title(f"$\\|W_0\\| = {m}\\,\\|W_{{mm}}\\|$")
    axes[0].set_ylabel("share that keeps\nits tokens")
    return plots.caption(plots.legend(figure, axes[0]), caption)


def parents(recorded: np.ndarray, alignments: Mapping, caption: str) -> Figure:
    """Draw how keys and queries, and W, align with the solutions of two norms.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    alignments : mapping
        By what is trained and the norm of the SVM, (runs, records).
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    ends = []
    for (trained, norm), runs in alignments.items():
        name = norm if norm in plots.LOOKS else norm.capitalize()
        like = plots.look(name)._replace(dash="-" if trained == "W" else "--")
        plots.band(axis, recorded, runs, "", like)
        last = np.median(runs[:, -1])
        ends.append((last, f"{trained}, {name}: {last:.3f}", like.colour))
    axis.set(xscale="log", ylim=(-0.1, 1.05), xlabel="iteration $t$")
    axis.set(title="Alignment with the SVMs; dashed: $K$, $Q$")
    pieces.end_labels(axis, ends, 7.5)
    return plots.caption(figure, caption)


def ranks(
    by_dimension: tuple[Sequence[int], Mapping], several: Mapping, caption: str
) -> Figure:
    """Draw ranks of nuclear-norm SVMs, and alignments where several tokens are kept.

    Parameters
    ----------
    by_dimension : tuple
        The dimensions, and the mean ranks by (n, T).
    several : mapping of int to ndarray (draws,)
        Alignments by dimension.
    caption : str
    """
    figure, (rank_axis, aligned) = plots.panels(1, 2, height=2.6)
    dimensions, shapes = by_dimension
    for ((size, length), rank), like in zip(shapes.items(), plots.SERIES, strict=False):
        missing = [d for d, r in zip(dimensions, rank, strict=True) if np.isnan(r)]
        none = f" (d={missing[0]}: no solution)" if missing else ""
        label = f"n={size}, T={length}{none}"
        style = {"marker": like.marker, "markersize": 3.5}
        plots.band(rank_axis, dimensions, rank, label, like, **style)
    rank_axis.set(title="Mean rank of the nuclear-norm SVM", xlabel="dimension $d$")
    rank_axis.set_ylim(0, None)
    rank_axis.legend(fontsize="x-small", loc="lower left")
    missed = {}
    said = []
    edge = 1e-6
    for d, values in several.items():
        off = 1 - values[np.isfinite(values)]
        near = (off < edge).sum()
        said.append(f"median {np.median(off):.2g}\n{near} of {len(off)} at the edge")
        missed[f"d = {d}"] = np.maximum(off, edge)
    named = dict(title="Several tokens at once", xlabel="$1-$alignment with their SVM")
    pieces.strip(aligned, missed, (0.7 * edge, 3), plots.SERIES, said=said, **named)
    return plots.caption(figure, caption)


def least_loss(
    multiples: Sequence[float], by_p: Mapping[float, Mapping], caption: str
) -> Figure:
    """Draw the path of least loss at each norm, and where descent from zero ends.

    Parameters
    ----------
    multiples : sequence of float
        Norms of W over that of W_mm.
    by_p : mapping of float to mapping
        By exponent the path's divergences, and the ends of descents: their norm, their
        divergence and whether their tokens are globally optimal.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    for p, ends in by_p.items():
        plots.band(axis, multiples, ends["path"], f"p = {p:g}, path", _look(p))
        for mark, runs in (("o", ends["optimal"]), ("X", ~ends["optimal"])):
            at = ends["multiple"][runs], ends["descent"][runs]
            axis.plot(*at, mark, color=_look(p).colour, markersize=5)
    axis.set(xscale="log", yscale="log", xlabel=r"$\|W\| / \|W_{mm}\|$")
    optimal = np.concatenate([ends["optimal"] for ends in by_p.values()])
    axis.set(title="Path of least loss, and descents", ylabel="divergence $D$")
    style = {"color": plots.GREY, "markersize": 5}
    words = f"descent, optimal: {optimal.sum()} of {len(optimal)}"
    axis.plot([], [], "o", label=words, **style)
    axis.plot([], [], "X", label="descent, not optimal", **style)
    axis.legend(fontsize="x-small", loc="lower left")
    return plots.caption(figure, caption)
