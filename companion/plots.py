"""Style and the few figure pieces that notebooks share; looks.toml says how a rule
looks.
"""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from IPython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from matplotlib.figure import Figure

from lib import files

WIDTH = 7.0  # inches, a page's text width
FEW = 6  # runs: so many are drawn one by one, more as a band
MANY = 20  # runs: from here on a band holds the middle 90 %, below all


class Look(NamedTuple):
    """How one thing looks in every figure: `line` and `mark` are matplotlib's options
    for it.
    """

    colour: str
    dash: str | tuple
    marker: str

    @property
    def line(self) -> dict:
        """Colour and dash."""
        return {"color": self.colour, "linestyle": self.dash}

    @property
    def mark(self) -> dict:
        """Colour and marker, without a line."""
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
GIVEN = {}  # looks of names that the tables do not know, in this process
BLACK, GREY, FAINT, PAPER = (INKS[name] for name in ("black", "grey", "faint", "paper"))
PREDICTED = LOOKS["predicted"].line | {"linewidth": 1.8}
BOUND = LOOKS["bound"].line | {"linewidth": 1.2}
LEVEL = {"color": GREY, "linestyle": ":", "linewidth": 0.9}  # zero, one, a threshold


def look(name: str) -> Look:
    """The look of a rule, norm, verdict or role; a name without one gets a spare
    look.
    """
    if name not in LOOKS | GIVEN:
        free = [each for each in SPARE if each not in GIVEN.values()]
        GIVEN[name] = (free or SPARE)[0]
        shared = "" if free else ", as other names have"
        print(
            f"{name} has no look in looks.toml: drawn in {GIVEN[name].colour}{shared}"
        )
    return (LOOKS | GIVEN)[name]


def set_style() -> None:
    """Set the project's figure style for this process; a notebook calls it once."""
    import seaborn as sns  # with scipy.stats and pandas: half a second that only a picture needs

    if get_ipython() is not None:  # a figure as a cell's last line is shown, sharp
        select_figure_formats(get_ipython(), {"png2x"})
    sns.set_theme(context="paper", style="ticks", palette="colorblind")
    mpl.rcParams.update(STYLE)


def panels(rows: int, columns: int, height: float = 2.2) -> tuple[Figure, np.ndarray]:
    """A figure of `rows` x `columns` axes, page wide, each row `height` inches; the
    axes flat.
    """
    if not mpl.rcParams["figure.constrained_layout.use"]:
        set_style()
    # Figure() rather than pyplot: it is shown where the notebook says so, and not kept
    # alive.
    figure = Figure(figsize=(WIDTH, rows * height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(rows, columns)).ravel()


def band(
    ax, x, runs, label: str, like: str | Look = "", share: float | None = None, **line
) -> None:
    """Draw the median over `runs` (runs, points) at `x`, in the look of `like` or
    `label`. Up to `FEW` runs are thin lines beside it; more are a band that holds all
    of them, from `MANY` on the middle 90 %, or the `share` asked for.
    """
    runs = np.atleast_2d(runs)
    style = (like if isinstance(like, Look) else look(like or label)).line
    (drawn,) = ax.plot(x, np.median(runs, axis=0), label=label, **style | line)
    spreads = vars(ax.figure).setdefault("spreads", {})
    if len(runs) <= FEW and share is None:
        if len(runs) > 1:
            ax.plot(x, runs.T, color=drawn.get_color(), linewidth=0.5, alpha=0.5)
            spreads["thin lines: runs"] = None
        return
    share = share or (0.9 if len(runs) >= MANY else 1.0)
    edges = np.quantile(runs, (0.5 - share / 2, 0.5 + share / 2), axis=0)
    # In an SVG, its outline is heavy
    light = dict(alpha=0.15, linewidth=0, rasterized=True)
    ax.fill_between(x, *edges, color=drawn.get_color(), **light)
    spreads["bands: " + (f"middle {100 * share:.0f} %" if share < 1 else "range")] = (
        None
    )


def power_law(
    ax, span: tuple[float, float], exponent: float, height: float, label: str
) -> None:
    """Draw `height` (x / span[0])^exponent over span: a theorem's power, on log-log
    axes.
    """
    x = np.array(span)
    ax.plot(x, height * (x / x[0]) ** exponent, label=label, **BOUND)


def legend(figure: Figure, ax) -> Figure:
    """The figure with one legend above all panels, for the lines of `ax`, in few
    rows.
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
    """The figure with `text` below it, and what its bands hold."""
    spreads = vars(figure).get("spreads", {})
    if spreads and not re.search(r"bands?:|\bthin\b", text):
        words = re.sub("(bands: [^:]*) or bands:", r"\1 or", " or ".join(spreads))
        text += f"; lines: medians, {words}"
    # Letters a line: no last word stands alone
    even = len(text) // (len(text) // 148 + 1) + 8
    figure.supxlabel(textwrap.fill(text, even), fontsize="x-small", color=GREY)
    return figure
