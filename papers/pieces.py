"""Drawing functions that several figures share; styles are in `companion.plots`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from companion import plots
from companion.plots import EDGE, look


def written(words: str) -> str:
    """Write the numbers in a text with minus signs, and with powers of ten in place of
    e-10.
    """
    words = re.sub(
        r"(?<=\d)e([+-]\d+)", lambda e: rf"$\times10^{{{int(e[1])}}}$", words
    )
    return re.sub(r"(?<![\w}{^])-(?=\d)", "\N{MINUS SIGN}", words)


def percent(share: float) -> str:
    """Write a share in per cent with two digits, never as a power of ten."""
    return np.format_float_positional(float(f"{100 * share:.2g}"), trim="-") + " %"


def cells(
    ax: Axes,
    values: np.ndarray,
    columns: Iterable,
    rows: Iterable,
    text: np.ndarray | None = None,
    low: float = 0.0,
) -> AxesImage:
    """Draw `values` (rows, columns) in [low, 1] as coloured cells that contain texts.

    `text` (rows, columns) has the texts, by default the values in per cent. NaN is
    drawn as "none". Labels that are numbers are written in their shortest form. The
    function returns the image, for a colour bar.
    """
    image = ax.imshow(values, aspect="auto", vmin=low, vmax=1, cmap="cividis")
    for at, value in np.ndenumerate(values):
        if np.isnan(value):
            word = "none"
        else:
            if text is not None:
                word = text[at]
            else:
                word = f"{100 * value:.0f}"
        if value < (low + 1) / 2:
            colour = plots.PAPER
        else:
            colour = plots.BLACK
        ax.text(*at[::-1], word, ha="center", va="center", fontsize=7, color=colour)
    for axis, labels in ((ax.xaxis, columns), (ax.yaxis, rows)):
        words = []
        for label in labels:
            if not isinstance(label, str):
                label = f"{label:g}"
            words.append(label)
        axis.set_ticks(range(len(words)), words)
    ax.tick_params(length=0)
    ax.grid(False)
    return image


def outline(ax: Axes, row: int, column: int) -> None:
    """Outline one cell of `cells`, such as the predicted one, by its indices."""
    line = dict(fill=False, linewidth=2.2, edgecolor=plots.INKS["vermilion"])
    ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, **line))


def diagonal(ax: Axes) -> None:
    """Draw the line on which measured and predicted are equal, over the range of the x
    axis.
    """
    ends = ax.get_xlim()
    ax.plot(ends, ends, zorder=0, **plots.PREDICTED)
    ax.set_xlim(ends)


def strip(
    ax: Axes,
    rows: Mapping[str, np.ndarray],
    ends: tuple[float, float],
    looks: Sequence[plots.Look] | None = None,
    bound: float | None = None,
    said: Sequence[str] = (),
    **names: Any,
) -> None:
    """Draw points on a logarithmic axis, with one row for each name, from top to
    bottom.

    Points beyond one of the two `ends` are drawn as an arrow at this end. Beside the
    arrow is the value of the point, or the number of points if there are several or the
    point is infinite. NaN is not drawn. `looks` has an entry for each row. A line is
    drawn at `bound`, the required value. `said` has words to the right of each row.
    `names` are passed to Axes.set.
    """
    for row, values in enumerate(rows.values()):
        like = (looks or plots.SERIES[:1] * len(rows))[row]
        height = row + np.linspace(-0.28, 0.28, len(values))
        inside = (values >= ends[0]) & (values <= ends[1])
        points = dict(markersize=3.5, markeredgewidth=0.8, markerfacecolor="none")
        ax.plot(values[inside], height[inside], **like.mark, **points)
        beyond = (
            ("<", 6, ends[0], values < ends[0]),
            (">", -6, ends[1], values > ends[1]),
        )
        for arrow, shift, end, out in beyond:
            if out.any():
                ax.plot(end, row, arrow, color=like.colour, clip_on=False, markersize=5)
                single = out.sum() == 1 and np.isfinite(values[out][0])
                if single:
                    words = f"{values[out][0]:.2g}"
                else:
                    words = f"{out.sum()} of {len(values)}"
                beside(ax, end, row, words, place=(shift, 0))
    if bound is not None:
        ax.axvline(bound, **plots.BOUND)
    ax.set(xscale="log", xlim=ends, ylim=(len(rows) - 0.5, -0.5), **names)
    plain_ticks(ax.xaxis)
    ax.set_yticks(range(len(rows)), rows, fontsize="x-small")
    ax.tick_params(axis="y", length=0)
    row_words(ax, said)


def row_words(ax: Axes, words: Iterable[str]) -> None:
    """Write small words to the right of the panel, at the heights 0, 1, ... of its
    rows.
    """
    for row, each in enumerate(words):
        right = dict(
            transform=ax.get_yaxis_transform(), va="center", fontsize="x-small"
        )
        ax.text(1.02, row, written(each), **right)


def _moved_apart(heights: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Push ascending heights (k,) apart so that neighbours are at least `distances` (k
    - 1,) apart.
    """
    heights = heights.copy()
    # When a pair moves apart, it comes nearer to the next label, so that several rounds
    # are needed.
    for _ in range(200):
        push = (distances - np.diff(heights)).clip(0) / 2
        heights[:-1] -= push
        heights[1:] += push
    return heights


def end_labels(
    ax: Axes, labels: Iterable[tuple[float, str, str]], size: float = 7
) -> None:
    """Write words to the right of the panel, moved apart where they would overlap.

    A label is (height, words, colour), with the height in the units of the data. Call
    this function after the limits of the panel are set.
    """
    # Heights are given as shares of the panel's height; `inches` is this height in
    # inches.
    low, high = ax.get_position().intervaly * ax.figure.get_figheight()
    inches = high - low
    to_shares = ax.transScale + ax.transLimits
    right = ax.get_xlim()[1]
    placed = []
    for y, words, colour in labels:
        _, height = to_shares.transform((right, y))
        placed.append((height, words, colour))
    placed.sort()
    heights = np.array([height for height, _, _ in placed])

    # The distance of two labels must be half the sum of their heights.
    lines = np.array([1 + words.count("\n") for _, words, _ in placed])
    label_inches = 1.2 * lines * size / 72  # 72 points per inch
    distances = (label_inches[1:] + label_inches[:-1]) / 2 / inches
    heights = _moved_apart(heights, distances)

    for height, (_, words, colour) in zip(heights, placed, strict=True):
        ax.text(
            1.022,
            height,
            written(words),
            color=colour,
            transform=ax.transAxes,
            va="center",
            fontsize=size,
        )


def line_names(
    ax: Axes, size: float = 7, words: Mapping[str, str] | None = None, **more: Any
) -> None:
    """Write each line's name at its right end, in place of a legend.

    Call this function after the limits of the panel are set. `words` has longer names
    for some labels. `more` is for lines without a label: {name: height of the line's
    end}, written in grey.
    """
    named = []
    for line in ax.lines:
        label = line.get_label()
        y = np.asarray(line.get_ydata(), float)
        if label.startswith("_") or not np.isfinite(y).any():
            continue
        name = (words or {}).get(label, label)
        named.append((y[np.isfinite(y)][-1], name, line.get_color()))
    named += [(height, each, plots.GREY) for each, height in more.items()]
    end_labels(ax, named, size)


def beside(
    ax: Axes,
    x: float,
    y: float,
    words: str,
    colour: str = plots.BLACK,
    place: tuple[float, float] = (5, 0),
) -> None:
    """Write small words with a white edge, `place` points to the right of and above (x,
    y).
    """
    across, up = np.sign(place).astype(int) + 1
    sides = dict(
        ha=("right", "center", "left")[across], va=("top", "center", "bottom")[up]
    )
    style = dict(color=colour, fontsize="x-small", path_effects=EDGE, zorder=5, **sides)
    ax.annotate(written(words), (x, y), place, textcoords="offset points", **style)


def gap(
    ax: Axes,
    x: float,
    low: float,
    high: float,
    words: str,
    place: tuple[float, float] = (-8, 0),
) -> None:
    """Draw a bracket at x between two heights of a logarithmic axis, with words at the
    middle of the bracket.
    """
    ends = dict(
        arrowstyle="|-|,widthA=0.2,widthB=0.2", color=plots.GREY, shrinkA=0, shrinkB=0
    )
    ax.annotate("", (x, low), (x, high), arrowprops=ends)
    beside(ax, x, np.sqrt(low * high), words, place=place)


def note(
    ax: Axes,
    words: str,
    x: float = 0.96,
    y: float = 0.04,
    va: str = "baseline",
    colour: str | None = None,
) -> None:
    """Write small words in the panel.

    They begin at (x, y), or end there if x is right of the middle.
    """
    side = "right" if x > 0.5 else "left"
    style = dict(
        ha=side, va=va, fontsize="x-small", color=colour, path_effects=EDGE, zorder=5
    )
    ax.text(x, y, written(words), transform=ax.transAxes, **style)


class Bar(NamedTuple):
    """One line of a forest plot: a value, its interval and its verdict.

    `asked` are required values, drawn as short black lines across the bar. `words` are
    written to the right of the bar, by default the verdict. The single values `points`
    are drawn above the bar. `hollow` says which of these points are only bounds. By
    default the `look` is that of the verdict. If the value is NaN, the line stays
    empty. `corrected` has the ends of a second, longer interval, which is drawn thin.
    """

    label: str
    value: float
    low: float
    high: float
    verdict: str = "measured"
    asked: Sequence[float] = ()
    points: Sequence[float] = ()
    hollow: Sequence[bool] = ()
    look: str = ""
    words: str = ""
    corrected: Sequence[float] = ()


def forest(
    ax: Axes, bars: Iterable[Bar | None], ends: tuple[float, float], zero: float = 0.0
) -> None:
    """Draw intervals one below the other, with their verdicts in words at the right.

    A bar that is None leaves a gap; at least one bar must not be None. `zero` is the
    value that means no difference. An interval that goes beyond `ends` is drawn with an
    arrow, and a value beyond `ends` is written as a number.
    """
    named = {row: bar for row, bar in enumerate(bars) if bar}
    for row, bar in named.items():
        like = look(bar.look or bar.verdict)
        low, high = np.clip([bar.low, bar.high], *ends)
        if len(bar.corrected):
            thin = np.clip(bar.corrected, *ends)
            ax.plot(thin, [row, row], color=like.colour, linewidth=1)
        ax.plot(
            [low, high],
            [row, row],
            color=like.colour,
            linewidth=2.6,
            solid_capstyle="butt",
        )
        for out, end, arrow in (
            (bar.low < low, low, "<"),
            (bar.high > high, high, ">"),
        ):
            if out:
                ax.plot(end, row, arrow, color=like.colour, markersize=5, clip_on=False)
        ax.plot(bar.value, row, markersize=4.5, **like.mark)
        hollow = bar.hollow or [False] * len(bar.points)
        for point, bounded in zip(bar.points, hollow, strict=True):
            face = "none" if bounded else like.colour
            ax.plot(
                point, row - 0.32, "o", ms=2.5, mfc=face, mew=0.7, color=like.colour
            )
        for end in bar.asked:
            ax.plot(
                [end, end], [row - 0.35, row + 0.35], color=plots.BLACK, linewidth=1
            )
        if bar.value < ends[0] or bar.value > ends[1]:
            beyond = f" ({bar.value:.2g})"
        else:
            beyond = ""
        word = bar.words
        if not word and bar.verdict in plots.TABLES["verdict"]:
            word = bar.verdict
        right = dict(
            transform=ax.get_yaxis_transform(), va="center", fontsize="x-small"
        )
        ax.text(1.02, row, written(word + beyond), color=like.colour, **right)
    ax.axvline(zero, **plots.LEVEL)
    ax.set_yticks([*named], [bar.label for bar in named.values()], fontsize="small")
    ax.set(ylim=(max(named) + 0.45, -0.55), xlim=ends)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)


def plain_ticks(axis: Axis) -> None:
    """Label a logarithmic `axis` by plain numbers. Call this after the data are drawn.

    An axis that spans more than three decades, or begins below 0.001, keeps powers of
    ten.
    """
    low, high = sorted(axis.get_view_interval())
    if high > 1e3 * low or low < 1e-3:
        return  # Over this many decades, powers of ten are easier to read.
    if high > 5 * low:
        subs = (1, 2, 5)
    else:
        subs = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
