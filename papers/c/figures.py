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
from papers.c import lemmas

Histories = Mapping[float, History]


def _look(p: float) -> plots.Look:
    return plots.look(f"p = {p:g}")


def divergences(histories: Histories, table: Mapping, caption: str) -> Figure:
    """Draw the divergence of every run from every SVM, one panel per exponent of
    training.

    Lines are means over runs, and bands hold the middle 80 %.

    Parameters
    ----------
    histories : mapping of float to History
        The runs by their exponent p.
    table : mapping
        The divergences (runs, records) by (p, q), each of a run with p from the
        solution of the SVM with q.
    caption : str
    """
    figure, axes = plots.panels(1, len(histories), height=2.6)
    last = max(history.iterations[-1] for history in histories.values())
    for axis, (p, history) in zip(axes, histories.items(), strict=True):
        t = history.iterations[1:]
        for q in histories:
            values = table[p, q][:, 1:]
            mean = values.mean(0)
            low, high = np.quantile(values, (0.1, 0.9), axis=0)
            colour = _look(q).colour
            axis.plot(t, mean, label=f"SVM with p = {q:g}", **_look(q).line)
            axis.fill_between(t, low, high, color=colour, alpha=0.15, linewidth=0)
            pieces.beside(axis, t[-1], mean[-1], f"{mean[-1]:.4f}", colour)
        axis.set(xscale="log", yscale="log", ylim=(5e-4, 3), xlabel="iteration $t$")
        # Every panel shows the same iterations, with room for the numbers.
        axis.set(title=f"trained with p = {p:g}", xlim=(1, 20 * last))
        axis.set_xticks([1, 100, 10_000])
        axis.minorticks_off()
    axes[0].set_ylabel("divergence $D$")
    return plots.caption(plots.legend(figure, axes[0]), caption)


def rays(
    paths: Mapping[float, np.ndarray],
    solutions: Mapping[float, np.ndarray],
    caption: str,
) -> Figure:
    """Draw the path of two weights during training, together with the SVM solution for
    each exponent.

    Parameters
    ----------
    paths : mapping of float to ndarray (records, 2)
        The two weights by exponent, scaled so that the path ends at length 1.
    solutions : mapping of float to ndarray (2,)
        The solution of each exponent's SVM.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=3.4)
    # The rays go on beyond the ends of the paths, so that both are seen.
    ray = plots.PREDICTED | {"color": plots.GREY}
    far = 1.3
    for p, path in paths.items():
        look = _look(p)
        along = solutions[p] / np.linalg.norm(solutions[p])
        side = 4 if p == min(paths) else -4
        axis.plot(*path.T, linewidth=2, color=look.colour)
        axis.plot(*path[-1], "o", markersize=4, color=look.colour)
        axis.plot(*np.outer([0, far], along).T, zorder=3, **ray)
        pieces.beside(axis, *(far * along), f"p = {p:g}", look.colour, (side, 3))
    axis.set(xlabel="first entry of column 1", ylabel="second entry")
    axis.set(aspect="equal", xlim=(-1.0, 0.15), ylim=(-0.05, 1.35))
    return plots.caption(figure, caption)


def _joint_divergences(axis: Axes, divergences: Mapping, of: str) -> None:
    """Draw, for each exponent, the divergence of `of` from the solution of its SVM.

    `divergences` maps an exponent to its iterations and its divergences. Each line has
    its exponent and its last divergence at its end.
    """
    # Where each line ends.
    last_t = {}
    last_D = {}
    for p, (t, D) in divergences.items():
        last_t[p] = t[-1]
        last_D[p] = D[-1]
    exponents_by_height = sorted(last_D, key=last_D.__getitem__)

    # The lines, and the words at their ends.
    for p, (t, D) in divergences.items():
        line_look = _look(p)
        axis.plot(t, D, **line_look.line)
        neighbours = []
        for q in last_D:
            if q == p:
                continue
            decades_apart = abs(np.log10(last_D[q] / last_D[p]))
            if decades_apart < 1:
                neighbours.append(q)
        # If two lines end close together, the label of the lower one is below it.
        height = exponents_by_height.index(p)
        if not neighbours:
            lift = 0
        elif height > exponents_by_height.index(neighbours[0]):
            lift = 6
        else:
            lift = -6
        words = f"p = {p:g}: {last_D[p]:.0e}"
        pieces.beside(axis, last_t[p], last_D[p], words, line_look.colour, (5, lift))

    # The axes.
    axis.set(title=f"Divergence $D$ of {of}", xlabel="iteration $t$")
    axis.set(xscale="log", yscale="log", xlim=(1, 60 * max(last_t.values())))
    axis.set_xticks([1, 100, 10_000])
    axis.minorticks_off()


def joint(
    histories: Histories,
    ends: Mapping[float, Mapping[float, MaxMargin]],
    heads: Mapping[float, MaxMargin],
    caption: str,
) -> Figure:
    """Draw joint training: the divergences of W and of the head from their SVMs.

    Parameters
    ----------
    histories : mapping of float to History
        The runs by exponent p. The first run of each exponent is drawn.
    ends : mapping
        The solutions of the l_q token SVMs, by p and then by q.
    heads : mapping of float to MaxMargin
        The solutions of the l_p head SVMs, by p.
    caption : str
    """
    figure, axes = plots.panels(1, 2, height=3.0)
    of_W = {}
    of_head = {}
    for p, history in histories.items():
        t = history.iterations[1:]
        of_W[p] = t, history.divergence(ends[p][p].W, p)[0, 1:]
        of_head[p] = t, history.head_divergence(heads[p].value, p)[0, 1:]
    _joint_divergences(axes[0], of_W, "the weight $W$")
    _joint_divergences(axes[1], of_head, "the head $u$")
    bottoms, tops = zip(*(axis.get_ylim() for axis in axes), strict=True)
    for axis in axes:
        axis.set_ylim(min(bottoms), max(tops))
    return plots.caption(figure, caption)


def lemma29(histories: Histories, divergences: Mapping, caption: str) -> Figure:
    """Draw the exponent a of D ~ r^a, where r is the norm of the iterate, for each
    exponent p.

    Parameters
    ----------
    histories : mapping of float to History
        The runs by exponent.
    divergences : mapping of float to ndarray (runs, records)
        D of every run.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=2.7)
    blue = plots.look("measured").colour
    places = np.arange(len(histories))
    for place, (p, history) in zip(places, histories.items(), strict=True):
        measured = lemmas.slopes(history, divergences[p])
        proved = lemmas.theory(p)[0]
        aside = place + np.linspace(-0.18, 0.18, len(measured))
        axis.plot(aside, measured, "o", color=blue, ms=3.5, mfc="none", mew=0.8)
        dash = place + np.array([-0.32, 0.32])
        excluded = dict(color=plots.GREY, alpha=0.15, linewidth=0)
        axis.fill_between(dash, proved, 0.0, **excluded)
        axis.plot(dash, [proved, proved], color=plots.GREY, linewidth=1.6)
        axis.plot(dash, [2 * proved, 2 * proved], zorder=0, **plots.PREDICTED)
        if place == 0:
            pieces.beside(axis, place, min(measured), "measured", blue, (0, -8))
    _, right = dash
    pieces.beside(axis, right, proved / 2, "above the\nbound's power", plots.GREY)
    pieces.beside(axis, right, proved, "Lemma 29", plots.GREY)
    pieces.beside(axis, right, 2 * proved, "twice its exponent")
    axis.set_xticks(places, [f"{p:g}" for p in histories])
    axis.set_xlabel("exponent p of mirror descent")
    axis.set_ylabel(r"$a$ in $D \sim \|W\|_{p,p}^{\,a}$")
    axis.set(ylim=(None, 0), xlim=(-0.5, places[-1] + 1.15))
    return plots.caption(figure, caption)


def basins(widths: Sequence[float], kept: Mapping, p: float, caption: str) -> Figure:
    """Draw the share of starts whose runs end at the selection of their cone, one line
    per ||W_0||.

    Parameters
    ----------
    widths : sequence of float
        The divergences of the starts from the best direction.
    kept : mapping
        The shares (widths,) by exponent and by the length ||W_0||/||W_mm||. The first
        three lengths are drawn.
    p : float
        The exponent that is drawn.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    labels = []
    multiples = list(dict.fromkeys(m for _, m in kept))
    looks = [plots.SERIES[k] for k in (2, 5, 0)]  # orange marks what fails
    multiples = multiples[: len(looks)]
    for m, like in zip(multiples, looks, strict=False):
        share = 100 * np.array(kept[p, m])
        axis.plot(widths, share, marker=like.marker, markersize=4, **like.line)
        words = f"starts {m}$\\times$: {share[-1]:.0f} %"
        labels.append((share[-1], words, like.colour))
    # The last share is that of the longest starts.
    all_keep = np.cumprod(share == 100).astype(bool)
    if all_keep.any():
        near = np.array(widths)[all_keep][-1]
        axis.axvspan(0, near, color=like.colour, alpha=0.12, linewidth=0)
        words = f"up to $D$ = {near:g}: 100 %\nof the starts {multiples[-1]}$\\times$"
        style = {"fontsize": 9, "color": like.colour, "va": "center"}
        axis.text(near + 0.02, 30, words, **style)
    first = [100 * kept[p, m][0] for m in multiples]
    if first[0] < 100:
        words = f"{first[0]:.0f} % of the starts {multiples[0]}$\\times$"
        style = {"fontsize": 9, "color": looks[0].colour, "va": "top"}
        axis.text(0.02, first[0] - 6, words, **style)
    axis.set(xlim=(0, 1.0), ylim=(0, 105))
    axis.set_xlabel(
        "\N{LEFTWARDS ARROW} the direction of $W_{mm}$   divergence $D$ of the start"
        "   far from it \N{RIGHTWARDS ARROW}"
    )
    axis.set_ylabel("runs that end at the\ntokens of $W_{mm}$, %")
    for line in axis.lines:
        line.set_clip_on(False)
    pieces.end_labels(axis, labels, 9)
    return plots.caption(figure, caption)


def parents(recorded: np.ndarray, alignments: Mapping, caption: str) -> Figure:
    """Draw how K Q^T and W align with the SVM solutions for two norms.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    alignments : mapping
        Alignments (runs, records), by (what is trained, norm of the SVM).
    caption : str
    """
    trained = list(dict.fromkeys(what for what, _ in alignments))
    figure, axes = plots.panels(1, len(trained), height=2.8)
    for axis, what in zip(axes, trained, strict=True):
        ends = []
        for (of, norm), runs in alignments.items():
            if of != what:
                continue
            name = norm if norm in plots.LOOKS else norm.capitalize()
            plots.band(axis, recorded, runs, name, name)
            last = np.median(runs[:, -1])
            ends.append((last, f"{name}: {last:.3f}", plots.look(name).colour))
        named = "$K$ and $Q$" if "K" in what else "$W$"
        axis.set(xscale="log", ylim=(-0.3, 1.05), xlabel="iteration $t$")
        axis.set(title=f"{named} trained: alignment with two SVMs")
        axis.set_xlim(recorded[0], recorded[-1])
        pieces.end_labels(axis, ends, 7.5)
    return plots.caption(figure, caption)


def ranks(
    by_dimension: tuple[Sequence[int], Mapping], several: Mapping, caption: str
) -> Figure:
    """Draw ranks of nuclear-norm SVMs, and alignments when several tokens per sample
    are selected.

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
        label = f"n={size}, T={length}"
        if missing:
            label += f" (d={missing[0]}: no solution)"
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


def descents(by_p: Mapping[float, Mapping], caption: str) -> Figure:
    """Draw where descent from W = 0 ends, with one row per exponent.

    Parameters
    ----------
    by_p : mapping of float to mapping
        The results of `papers.c.predecessor.path_against_descent`, by exponent. A run
        counts as a miss if descent does not select the opt tokens.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=2.6)
    looks = {True: plots.look("measured"), False: plots.look("stops")}
    said = []
    for row, ends in enumerate(by_p.values()):
        optimal = ends["optimal"]
        aside = row + np.linspace(-0.25, 0.25, len(optimal))
        for reached, like in looks.items():
            some = optimal == reached
            axis.plot(ends["descent"][some], aside[some], markersize=6, **like.mark)
        said.append(f"{(~optimal).sum()} of {len(optimal)} miss")
    axis.set(xscale="log", xlabel="divergence $D$ from the best tokens' SVM")
    axis.set_yticks(range(len(by_p)), [f"p = {p:g}" for p in by_p])
    axis.set_ylim(len(by_p) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_title("Where descent from zero ends; crosses: not at the best tokens")
    pieces.row_words(axis, said)
    return plots.caption(figure, caption)
