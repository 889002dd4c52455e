"""Draw by how much each weight matrix of a network grows, with its layer named in
words, for paper A's Figure 7.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from lib.training.curves import Curves
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.kept_curves import shown
from papers.studies.run_measures import weight_matrices
from papers.studies.speed import REFERENCE, Row, growth

# The matrices outside the blocks of `lib.networks.VisionTransformer`, and those of a
# block, by their names in the network.
OUTSIDE = {
    "tokens.embed.weight": "patch embedding",
    "positions": "positions",
    "head.1.weight": "classification head",
}
IN_A_BLOCK = {
    "attention.project.weight": "queries, keys, values",
    "attention.merge.weight": "attention output",
    "mlp.1.weight": "MLP, first matrix",
    "mlp.3.weight": "MLP, second matrix",
}
ROW = 0.19  # height of the row of a matrix in inches
# The axis of growth is logarithmic, but evenly spaced between this value and its
# negative, in per cent.
EVEN = 1.0
TICKS = (-100, -10, -1, 0, 1, 10, 100, 1000)


class Layer(NamedTuple):
    """A weight matrix: its name in the network, what it is, and its block.

    The blocks are counted from 1; the block is 0 outside the blocks.
    """

    parameter: str
    kind: str
    block: int

    @property
    def name(self) -> str:
        """The name of the matrix in words, such as "block 1: attention output"."""
        return f"block {self.block}: {self.kind}" if self.block else self.kind


def named(parameter: str) -> Layer:
    """Return the matrix with this name in the network.

    A matrix of another network keeps this name.
    """
    found = re.fullmatch(r"blocks\.(\d+)\.(.+)", parameter)
    if found and found[2] in IN_A_BLOCK:
        return Layer(parameter, IN_A_BLOCK[found[2]], int(found[1]) + 1)
    return Layer(parameter, OUTSIDE.get(parameter, parameter), 0)


def layers(curves: Curves) -> list[Layer]:
    """Return the weight matrices whose norms a study recorded, in the network's
    order.
    """
    run = curves.runs(REFERENCE)[0]
    return [named(parameter) for parameter in weight_matrices(run)]


def at_the_end(curves: Curves, rows: Sequence[Row] = ()) -> Figure:
    """Draw the growth of every weight matrix at the end, and the smallest one of each
    seed.

    Parameters
    ----------
    curves : Curves
        The kept curves of a study that recorded the norms of weights.
    rows : sequence of Row, optional
        For a rule, the claim that norms grow. Its `ratio` is the growth of the matrix
        that grows least in a seed, in per cent, and it has a corrected interval. Below
        the panel of a rule without a row stands "no claim".

    Returns
    -------
    Figure
        One row per matrix and one panel per rule. A ring is a matrix that grows less
        than a random walk with steps of the same lengths. Below them is a row with the
        interval that decides the claim.
    """
    rules = list(curves.configuration["rates"])
    claimed = {row.rule: row for row in rows}
    matrices = layers(curves)
    height = 1.6 + ROW * (len(matrices) + 2.5)
    figure, axes = plots.panels(1, len(rules), height=height, why="a panel per rule")
    ends = _ends(curves, rows)
    for ax, rule in zip(axes, rules, strict=True):
        _dots(ax, curves, rule)
        _separate_blocks(ax, matrices)
        ax.axhline(len(matrices) - 0.5, color=plots.BLACK, lw=0.8)
        _deciding(ax, len(matrices) + 0.5, claimed.get(rule))
        ax.set_xscale("symlog", linthresh=EVEN, linscale=0.6)
        ax.set(xlim=ends, ylim=(len(matrices) + 2.2, -0.7))
        ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
        ax.set_xticks(ticks, [pieces.written(f"{tick:g}") for tick in ticks])
        ax.set_xticks([], minor=True)
        places = [*range(len(matrices)), len(matrices) + 0.5]
        ax.set_yticks(places, [""] * len(places))
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    axes[0].set_yticklabels([*(layer.name for layer in matrices), "the smallest"])
    figure.supxlabel("Growth, % of the norm at the start", fontsize=9)
    reading = (
        "Dots: means over seeds; an orange ring grows less than a random walk with"
        " steps of the same lengths. Last row: the matrix that grows least, in each"
        " seed; its thin bar, the corrected interval, decides the claim."
    )
    return plots.heading(figure, _result(curves), reading, on_page=True)


def _ends(curves: Curves, rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of the axis of growth in per cent, which contain all marks."""
    drawn = [0.0]
    for rule in curves.configuration["rates"]:
        drawn += [*100 * growth(curves, rule)[0].mean(1)]
    for row in rows:
        drawn += [*row.ratio.values, row.ratio.low, row.ratio.high, *row.corrected]
    return min(-0.4 * EVEN, 1.3 * min(drawn)), 1.5 * max(drawn)


def _deciding(ax: Axes, height: float, row: Row | None) -> None:
    """Draw the growth of the matrix that grows least in every seed, its mean with both
    intervals, and the verdict below them. Without a row, only "no claim" is written.
    """
    below = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8}
    if row is None:
        ax.text(0.0, height + 1.1, "no claim", color=plots.GREY, **below)
        return
    look = plots.look(row.rule)
    ratio = row.ratio
    ax.plot(row.corrected, [height, height], lw=1.2, color=look.colour)
    thick = {"lw": 6, "solid_capstyle": "butt", "color": look.colour}
    ax.plot([ratio.low, ratio.high], [height, height], **thick)
    face = look.colour if row.decided else plots.PAPER
    mark = {"marker": look.marker, "ms": 3, "mew": 1.0, "mfc": face, "zorder": 4}
    ax.plot(ratio.estimate, height, ls="", color=look.colour, **mark)
    above = np.full(len(ratio.values), height - 0.6)
    ax.plot(ratio.values, above, "o", ms=2.5, color=look.colour)
    style = {"color": plots.GREY}
    if row.decided:
        style = {"color": plots.look(row.verdict).colour, "fontweight": "bold"}
    ax.text(0.0, height + 1.1, row.verdict, **style, **below)


def _dots(ax: Axes, curves: Curves, rule: str) -> None:
    """Draw the growth of every matrix under a rule in per cent.

    A ring in the colour of failures is a matrix that grows less than a random walk of
    its steps.
    """
    fails = plots.look(verdicts.NOT_REPRODUCED).colour
    colour = plots.look(rule).colour
    growths, walks = growth(curves, rule)  # (matrices, seeds)
    grown = 100 * growths.mean(1)
    is_less = grown <= 100 * walks.mean(1)
    rows = np.arange(len(grown))

    # A dot for each matrix, or a ring.
    dots = {"ms": 5, "mec": plots.PAPER, "mew": 0.5, "clip_on": False}
    ax.plot(grown[~is_less], rows[~is_less], "o", mfc=colour, **dots)
    fewer = is_less.sum()
    if fewer > 0:  # an empty line would be at the corner of the figure
        rings = {"ms": 5.5, "mec": fails, "mew": 1.6, "mfc": plots.PAPER}
        ax.plot(grown[is_less], rows[is_less], "o", **rings, clip_on=False)

    ax.axvline(0.0, color=plots.BLACK, linewidth=1.0)

    # The words above the panel.
    growing = (grown > 0).sum()
    ax.set_title(f"{shown(rule)}\n\n", color=colour, loc="left")
    above = [(f"{growing} of {len(grown)} grow", colour, 12)]
    ink = fails if fewer > 0 else plots.GREY
    above.append((f"{fewer} less than at random", ink, 1))
    for words, ink, points in above:
        corner = {"xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(words, (0, 1), (0, points), color=ink, fontsize=8, **corner)


def _separate_blocks(ax: Axes, matrices: list[Layer]) -> None:
    """Draw a thin line between the rows of two blocks."""
    ax.grid(False, axis="y")
    for row in range(1, len(matrices)):
        if matrices[row].block != matrices[row - 1].block:
            ax.axhline(row - 0.5, color=plots.FAINT, lw=0.6, zorder=0)


def _result(curves: Curves) -> str:
    """Write which matrix grows most under which rules."""
    names = [layer.name for layer in layers(curves)]
    most = {}
    for rule in curves.configuration["rates"]:
        best = names[growth(curves, rule)[0].mean(1).argmax()]
        most.setdefault(best, []).append(shown(rule))
    parts = [
        f"the {name} under {kept_curves.listed(rules)}" for name, rules in most.items()
    ]
    first, *others = parts
    words = first.replace(" under ", " grows most under ", 1)
    words = ", and ".join([words, *others])
    return words[0].upper() + words[1:]


def over_training(curves: Curves) -> Figure:
    """Draw the growth of every weight matrix over epochs.

    Parameters
    ----------
    curves : Curves
        The kept curves of a study that recorded the norms of weights.

    Returns
    -------
    Figure
        Above, one panel for each matrix outside the blocks. Below, one panel for each
        kind of matrix in a block; a line is the matrix of one block. Each line is the
        mean over the seeds.
    """
    matrices = layers(curves)
    outside = list(dict.fromkeys(one.kind for one in matrices if not one.block))
    inside = list(dict.fromkeys(one.kind for one in matrices if one.block))
    rows = [kinds for kinds in (outside, inside) if kinds]
    columns = max(map(len, rows))
    why = "the paper draws the norms of named layers"
    figure, axes = plots.panels(len(rows), columns, height=1.75, why=why)
    grid = axes.reshape(len(rows), columns)
    for kinds, panels in zip(rows, grid, strict=True):
        for kind, ax in zip(kinds, panels, strict=False):
            _lines(ax, curves, [one for one in matrices if one.kind == kind])
            ax.set_title(kind[0].upper() + kind[1:])
        for ax in panels[len(kinds) :]:
            ax.set_visible(False)
        panels[0].set_ylabel("Growth, %")
    for ax in grid[-1]:
        ax.set_xlabel("Epoch")
    if inside:  # one scale, so that kinds can be compared
        shared = grid[-1][: len(inside)]
        lowest = min(ax.get_ylim()[0] for ax in shared)
        highest = max(ax.get_ylim()[1] for ax in shared)
        for ax in shared:
            ax.set_ylim(lowest, highest)
    plots.legend(figure, grid[0][0])
    reading = (
        "Lines are means over seeds of the growth of a matrix. In the lower row, each"
        " rule has one line per block. The panels of the upper row have scales of their"
        " own. No claim is decided by this figure."
    )
    return plots.heading(figure, _last_result(curves), reading, on_page=True)


def _courses(curves: Curves, rule: str, layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Return the epochs of the evaluations, and the growth of a matrix there in per
    cent, as a mean over the seeds.
    """
    study = curves.configuration
    runs = []
    for run in curves.runs(rule):
        norms = run.weight_norms[layer.parameter]
        runs.append((run.evaluated_at, 100 * (norms / norms[0] - 1)))
    steps, grown = kept_curves.mean_of_runs(runs)
    return steps * study["batch"] / study["problem"]["rows"], grown


def _lines(ax: Axes, curves: Curves, matrices: list[Layer]) -> None:
    """Draw the growth over epochs of matrices of one kind, a line for each rule and
    matrix.
    """
    for rule in curves.configuration["rates"]:
        for layer in matrices:
            label = shown(rule) if layer is matrices[0] else None
            epochs, grown = _courses(curves, rule, layer)
            ax.plot(epochs, grown, label=label, lw=1.1, **plots.look(rule).line)
    ax.axhline(0.0, **plots.LEVEL)
    ax.set_xlim(0, None)


def _last_result(curves: Curves) -> str:
    """Write how many norms are largest at the last evaluation."""
    ends = []
    for rule in curves.configuration["rates"]:
        for layer in layers(curves):
            _, grown = _courses(curves, rule, layer)
            ends.append(grown[-1] >= grown.max())
    rules = len(curves.configuration["rates"])
    return (
        f"Under the {rules} rules together, {sum(ends)} of {len(ends)} norms are"
        " largest at the end of training"
    )
