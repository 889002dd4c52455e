"""Style and the few figure pieces that notebooks share.

The file looks.toml says how a rule looks.
"""

import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from IPython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from lib import files

WIDTH = 7.0  # inches, a page's text width
# the largest number of panels of a figure, unless a reason is given for more
MOST_PANELS = 3
FEW = 6  # up to this many runs are drawn as single dots; more runs are drawn as a band
# from this many runs on, a band holds the middle 90 %; with fewer runs, it holds all of
# them
MANY = 20


class Look(NamedTuple):
    """How one thing looks in every figure.

    Parameters
    ----------
    colour : str
        The colour, as matplotlib names it.
    dash : str or tuple
        The dash of lines, as matplotlib names it.
    marker : str
        The marker of points.

    Examples
    --------
    >>> from companion import plots
    >>> plots.Look("black", "--", "o").line
    {'color': 'black', 'linestyle': '--'}
    """

    colour: str
    dash: str | tuple
    marker: str

    @property
    def line(self) -> dict:
        """Matplotlib's options for a line: colour and dash."""
        return {"color": self.colour, "linestyle": self.dash}

    @property
    def mark(self) -> dict:
        """Matplotlib's options for points: colour and marker, without a line."""
        return {"color": self.colour, "marker": self.marker, "linestyle": ""}


# {table: {name: Look}}
TABLES = files.read_table(Path(__file__).with_name("looks.toml"))
STYLE, INKS, _dashes = (TABLES.pop(name) for name in ("style", "inks", "dashes"))
_dashes = {
    name: d if isinstance(d, str) else (d[0], tuple(d[1]))
    for name, d in _dashes.items()
}
for _row in TABLES.values():
    for _name, (_ink, _line, _mark) in _row.items():
        _row[_name] = Look(INKS[_ink], _dashes[_line], _mark)
SERIES, SPARE = ([*TABLES[name].values()] for name in ("series", "spare"))
_named = [row for table, row in TABLES.items() if table not in ("series", "spare")]
LOOKS = {name: row[name] for row in _named for name in row}
GIVEN = {}  # looks that this process gave to names without an entry in the tables
LETTERS_AN_INCH = 9.2  # letters per inch in a line of a headline
BLACK, GREY, FAINT, PAPER = (INKS[name] for name in ("black", "grey", "faint", "paper"))
PREDICTED = LOOKS["predicted"].line | {"linewidth": 1.8}
BOUND = LOOKS["bound"].line | {"linewidth": 1.2}
HEADLINE = {"fontsize": 11, "fontweight": "bold", "color": BLACK}
READING = {"fontsize": 8, "color": INKS["shade"]}
LEVEL = {"color": GREY, "linewidth": 0.8, "zorder": 1}  # zero, one, a threshold
# A slope without a height has shorter and finer dashes than a bound.
SLOPE = {"color": GREY, "linestyle": (0, (4, 2)), "linewidth": 1.4}
# A white edge keeps words near the data readable.
EDGE = [patheffects.withStroke(linewidth=2, foreground=PAPER)]


def look(name: str) -> Look:
    """Return the look of a rule, norm, verdict or role.

    Parameters
    ----------
    name : str
        The name in looks.toml. A name that is not there gets a spare look, which it
        keeps as long as this process runs. If all spare looks are taken, the name
        shares the first of them, and a printed line says so.

    Returns
    -------
    Look
        The look.

    Examples
    --------
    >>> from companion import plots
    >>> plots.look("NGD") == plots.look("NGD")
    True
    >>> sorted(plots.look("NGD").line)
    ['color', 'linestyle']
    """
    if name not in LOOKS | GIVEN:
        free = [each for each in SPARE if each not in GIVEN.values()]
        GIVEN[name] = (free or SPARE)[0]
        if not free:
            print(f"{name} is drawn like another line: all spare looks are taken")
    return (LOOKS | GIVEN)[name]


def set_style() -> None:
    """Set the project's figure style for this process; a notebook calls it once."""
    # seaborn imports scipy.stats and pandas. This takes half a second, and only a
    # picture needs it.
    import seaborn as sns

    if get_ipython() is not None:  # a figure as a cell's last line is shown, sharp
        select_figure_formats(get_ipython(), {"png2x"})
    sns.set_theme(context="paper", style="ticks", palette="colorblind")
    mpl.rcParams.update(STYLE)


def panels(
    rows: int, columns: int, height: float = 2.2, *, why: str = ""
) -> tuple[Figure, np.ndarray]:
    """Make a figure of rows and columns of axes, as wide as a page.

    A figure says one thing, in at most `MOST_PANELS` panels.

    Parameters
    ----------
    rows, columns : int
        How many rows and columns of axes.
    height : float, optional
        The height of each row, in inches.
    why : str, optional
        Why this figure has more than `MOST_PANELS` panels.

    Returns
    -------
    figure : Figure
        The figure. It is not registered with pyplot, so that it is shown only if the
        notebook asks for it.
    axes : ndarray of Axes (rows * columns,)
        The axes of the figure, row by row.

    Raises
    ------
    ValueError
        If there are more than `MOST_PANELS` panels and no reason is given.

    Examples
    --------
    >>> from companion import plots
    >>> figure, axes = plots.panels(2, 3, why="the paper's own six panels")
    >>> axes.shape
    (6,)
    """
    if rows * columns > MOST_PANELS and not why:
        raise ValueError(
            f"{rows * columns} panels; draw at most {MOST_PANELS}, or say why"
        )
    if not mpl.rcParams["figure.constrained_layout.use"]:
        set_style()
    # We use Figure() in place of pyplot, so that the notebook decides where the figure
    # is shown, and pyplot does not keep the figure alive.
    figure = Figure(figsize=(WIDTH, rows * height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(rows, columns)).ravel()


def band(
    ax: Axes,
    x: ArrayLike,
    runs: ArrayLike,
    label: str,
    like: str | Look = "",
    share: float | None = None,
    **line: Any,
) -> None:
    """Draw the median over runs, and the spread of the runs around it.

    The ends of up to `FEW` runs are drawn as dots beside the median. More runs are
    drawn as a band that holds all of them. From `MANY` runs on, the band holds the
    middle 90 %. If `share` is given, the band holds this share.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x : array_like (points,)
        The horizontal positions.
    runs : array_like (runs, points)
        The values of each run; a single run may be (points,).
    label : str
        The label of the median in a legend.
    like : str or Look, optional
        The look, or the name of the thing that has this look. The default is `label`.
    share : float, optional
        The share of runs that the band holds, above 0 and at most 1. If it is given,
        even a few runs are drawn as a band.
    **line : Any
        Further options of the median's line.

    Examples
    --------
    >>> from companion import plots
    >>> figure, (axis,) = plots.panels(1, 1)
    >>> plots.band(axis, [1, 2], [[1.0, 2.0], [3.0, 4.0]], "NGD")
    >>> axis.lines[0].get_ydata()
    array([2., 3.])
    >>> axis.lines[1].get_ydata()  # where the two runs end
    array([2., 4.])
    """
    runs = np.atleast_2d(runs)
    if not isinstance(like, Look):
        like = look(like or label)
    style = like.line
    (drawn,) = ax.plot(x, np.median(runs, axis=0), label=label, **style | line)
    spreads = vars(ax.figure).setdefault("spreads", {})
    if len(runs) <= FEW and share is None:
        if len(runs) > 1:
            ends = np.full(len(runs), np.asarray(x)[-1])
            dots = {"markersize": 2.5, "alpha": 0.7, "clip_on": False}
            ax.plot(ends, runs[:, -1], "o", color=drawn.get_color(), **dots)
            spreads["dots: where runs end"] = None
        return
    if not share:
        share = 0.9 if len(runs) >= MANY else 1.0
    edges = np.quantile(runs, (0.5 - share / 2, 0.5 + share / 2), axis=0)
    # its outline is large in an SVG
    light = dict(alpha=0.15, linewidth=0, rasterized=True)
    ax.fill_between(x, *edges, color=drawn.get_color(), **light)
    if share < 1:
        spreads[f"bands: middle {100 * share:.0f} %"] = None
    else:
        spreads["bands: range"] = None


def power_law(
    ax: Axes, span: tuple[float, float], exponent: float, height: float, label: str
) -> None:
    """Draw the power law of a theorem, height (x / x_0)^exponent, on log-log axes.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    span : tuple of float
        The first and the last x; x_0 is the first.
    exponent : float
        The exponent.
    height : float
        The value at the first x.
    label : str
        The label of the line in a legend.

    Examples
    --------
    >>> from companion import plots
    >>> figure, (axis,) = plots.panels(1, 1)
    >>> plots.power_law(axis, (1, 100), exponent=-1, height=2.0, label="1/t")
    >>> axis.lines[0].get_ydata()
    array([2.  , 0.02])
    """
    x = np.array(span)
    ax.plot(x, height * (x / x[0]) ** exponent, label=label, **BOUND)


def _word(
    ax: Axes, at: tuple[float, float], words: str, place: tuple, **more: Any
) -> None:
    """Write small grey words `place` points to the right of and above a point.

    A negative number puts them to the left or below, and a zero centres them.
    """
    across, up = np.sign(place).astype(int) + 1
    sides = {
        "ha": ("right", "center", "left")[across],
        "va": ("top", "center", "bottom")[up],
    }
    style = {"color": GREY, "fontsize": "x-small", "path_effects": EDGE, "zorder": 5}
    ax.annotate(words, at, place, textcoords="offset points", **style, **sides, **more)


def slope(
    ax: Axes,
    span: tuple[float, float],
    exponent: float,
    height: float,
    words: str = "slope only",
    place: tuple[float, float] = (0, 5),
) -> None:
    """Draw a short dashed line that shows only a slope, with words that say so.

    The height of this line is arbitrary, so it must not look like a bound, and it must
    not be as long as the data: a `span` of at most one decade is enough.

    Parameters
    ----------
    ax : Axes
        Where to draw; its axes are logarithmic.
    span : tuple of float
        The first and the last x of the line; x_0 is the first.
    exponent : float
        The exponent of height (x / x_0)^exponent.
    height : float
        The value at the first x.
    words : str, optional
        The words at the middle of the line: "slope only", by itself or after the slope.
    place : tuple of float, optional
        How many points to the right of and above the middle the words are. A zero
        centres them.

    Examples
    --------
    >>> from companion import plots
    >>> figure, (axis,) = plots.panels(1, 1)
    >>> plots.slope(axis, (10, 100), -0.5, 2.0, "$t^{-1/2}$, slope only")
    >>> axis.lines[0].get_ydata().round(2)
    array([2.  , 0.63])
    >>> axis.texts[0].get_text()
    '$t^{-1/2}$, slope only'
    """
    x = np.array(span, float)
    ax.plot(x, height * (x / x[0]) ** exponent, **SLOPE)
    middle = np.sqrt(x[0] * x[1])
    _word(ax, (middle, height * (middle / x[0]) ** exponent), words, place)


def threshold(
    ax: Axes,
    value: float,
    words: str = "",
    *,
    upright: bool = False,
    at: float = 0.01,
    place: tuple[float, float] | None = None,
) -> None:
    """Draw a thin grey line across a panel at one value, with words beside the line.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    value : float
        The height of the line, or its x if it is upright.
    words : str, optional
        What the value is, such as "no gain".
    upright : bool, optional
        Whether the line is vertical.
    at : float, optional
        Where along the line the words begin, as a share of the panel.
    place : tuple of float, optional
        How many points to the right of and above that point the words are. By default
        they are just above a level line, and just to the right of an upright line.

    Examples
    --------
    >>> from companion import plots
    >>> figure, (axis,) = plots.panels(1, 1)
    >>> plots.threshold(axis, 0.5, "one half")
    >>> axis.texts[0].get_text()
    'one half'
    """
    if upright:
        ax.axvline(value, **LEVEL)
        point = (value, at)
        beside_line = (3, 0)
        coords = ax.get_xaxis_transform()
    else:
        ax.axhline(value, **LEVEL)
        point = (at, value)
        beside_line = (1, 2)
        coords = ax.get_yaxis_transform()
    if place is None:
        place = beside_line
    if words:
        _word(ax, point, words, place, xycoords=coords)


def _wrapped(text: str, width: int) -> str:
    """Break a text into lines of about equal length, without breaking formulas.

    With at most `width` letters per line, there are as few lines as possible. The lines
    are as narrow as this number of lines allows.
    """
    whole = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace(" ", "\0"), text)
    whole = re.sub(r"([A-Z][a-z]+) (\d)", "\\1\0\\2", whole)  # as "Lemma 5"
    fewest = len(textwrap.wrap(whole, width))
    even = width
    while even > 1 and len(textwrap.wrap(whole, even - 1)) == fewest:
        even -= 1
    return textwrap.fill(whole, even).replace("\0", " ")


def _lengthen(figure: Figure, inches: float) -> None:
    """Add `inches` to the top of a figure, or remove them if they are negative.

    Without a constrained layout, axes and texts keep their distance from the bottom.
    """
    before = figure.get_figheight()
    figure.set_figheight(before + inches)
    if figure.get_constrained_layout():
        return
    shrunk = before / (before + inches)
    for axis in figure.axes:
        left, low, width, height = axis.get_position().bounds
        axis.set_position((left, shrunk * low, width, shrunk * height))
    for text in figure.texts:
        text.set_y(shrunk * text.get_position()[1])


def heading(
    figure: Figure, result: str, reading: str = "", *, on_page: bool = False
) -> Figure:
    """Write above a figure what the figure shows and how to read it.

    The figure grows by the height of the words. A new heading replaces an earlier one.

    Parameters
    ----------
    figure : Figure
        The figure.
    result : str
        What the figure shows, in one sentence.
    reading : str, optional
        How to read the figure. This text is written below, in smaller type.
    on_page : bool, optional
        Whether a notebook shows the words, too. By default only a saved picture has
        them, because a notebook cuts a figure to its panels.

    Returns
    -------
    Figure
        The same figure.

    Examples
    --------
    >>> from companion import plots
    >>> figure, _ = plots.panels(1, 2)
    >>> figure = plots.heading(figure, "Every rule falls on one line")
    >>> [text.get_text() for text in figure.texts]
    ['Every rule falls on one line']
    """
    for text, height in vars(figure).pop("heading", ()):
        text.remove()
        _lengthen(figure, -height)
    width = figure.get_figwidth()
    lines = [
        (_wrapped(result, int(LETTERS_AN_INCH * width)), HEADLINE),
        (_wrapped(reading, int(1.9 * LETTERS_AN_INCH * width)), READING),
    ]
    lines = [(words, style) for words, style in lines if words]
    heights = [
        (1.3 * style["fontsize"] * (1 + words.count("\n")) + 3) / 72
        for words, style in lines
    ]
    _lengthen(figure, sum(heights))
    total = figure.get_figheight()
    drawn = []
    top = total - 0.04
    for (words, style), height in zip(lines, heights, strict=True):
        at = 0.04 / width, top / total
        text = figure.text(*at, words, va="top", in_layout=on_page, **style)
        drawn.append((text, height))
        top -= height
    figure.heading = drawn
    share = (total - sum(heights)) / total
    # The layout ignores a legend with an anchor, so that the panels leave room for it
    # here.
    below = share
    gap = 2 * mpl.rcParams["figure.constrained_layout.h_pad"] / total
    for one in figure.legends:
        one.set_bbox_to_anchor((0, 0, 1, share), transform=figure.transFigure)
        height = one.get_window_extent().height / figure.bbox.height
        below = min(below, share - height - gap)
    if figure.get_constrained_layout():
        figure.get_layout_engine().set(rect=(0, 0, 1, below))
    return figure


def legend(figure: Figure, ax: Axes) -> Figure:
    """Give a figure one legend above all its panels.

    Parameters
    ----------
    figure : Figure
        The figure.
    ax : Axes
        The axes whose lines the legend names.

    Returns
    -------
    Figure
        The same figure. Its legend has as few rows as the width allows. There is no
        legend if the axes have no labels, or if not even one column fits.

    Examples
    --------
    >>> from companion import plots
    >>> figure, axes = plots.panels(1, 2)
    >>> plots.power_law(axes[0], (1, 100), -1, 2.0, "1/t")
    >>> legend = plots.legend(figure, axes[0]).legends[0]
    >>> [text.get_text() for text in legend.get_texts()]
    ['1/t']
    """
    handles, labels = ax.get_legend_handles_labels()
    more = dict(fontsize="small", columnspacing=1.2, handlelength=2.6)
    for columns in range(len(labels), 0, -1):
        made = figure.legend(
            handles, labels, loc="outside upper center", ncols=columns, **more
        )
        if made.get_window_extent().width <= figure.bbox.width:
            break
        made.remove()
    return figure


def caption(figure: Figure, text: str) -> Figure:
    """Write a text below a figure, and say what the bands in the figure hold.

    Parameters
    ----------
    figure : Figure
        The figure.
    text : str
        The caption. If the figure has bands or dots from `band`, and the text mentions
        neither, the function adds what they mean.

    Returns
    -------
    Figure
        The same figure.

    Examples
    --------
    >>> from companion import plots
    >>> figure, (axis,) = plots.panels(1, 1)
    >>> plots.band(axis, [1, 2], [[1.0, 2.0], [3.0, 4.0]], "NGD")
    >>> plots.caption(figure, "Three data sets").get_supxlabel()
    'Three data sets; lines: medians, dots: where runs end'
    """
    spreads = vars(figure).get("spreads", {})
    if spreads and not re.search(r"bands?:|\bdots\b", text):
        words = re.sub("(bands: [^:]*) or bands:", r"\1 or", " or ".join(spreads))
        text += f"; lines: medians, {words}"
    # The lines are about equally long, so that a last word is hardly ever alone on its
    # line.
    even = len(text) // (len(text) // 148 + 1) + 8
    figure.supxlabel(textwrap.fill(text, even), fontsize="x-small", color=GREY)
    return figure


def boxes(figure: Figure) -> list[list[float]]:
    """Find the legends and panels of a drawn figure.

    Parameters
    ----------
    figure : Figure
        The figure, which must have been drawn already.

    Returns
    -------
    list of list of float
        The left, top, right and bottom of each, as shares of the figure, measured from
        its top left corner. The figure's own legends come first, and then its visible
        panels.

    Examples
    --------
    >>> from companion import plots
    >>> figure, _ = plots.panels(1, 2)
    >>> figure.draw_without_rendering()
    >>> left, right = plots.boxes(figure)
    >>> left[2] <= right[0]
    True
    """
    width, height = figure.bbox.size
    extents = [legend.get_window_extent() for legend in figure.legends]
    panels = [axis for axis in figure.axes if axis.get_visible()]
    extents += [axis.get_tightbbox() for axis in panels]
    found = []
    for box in extents:
        shares = (
            box.x0 / width,
            1 - box.y1 / height,
            box.x1 / width,
            1 - box.y0 / height,
        )
        found.append([round(float(share), 4) for share in np.clip(shares, 0, 1)])
    return found
