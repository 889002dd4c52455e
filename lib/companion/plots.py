"""Style and the few figure pieces that notebooks share; no results are computed here.

Widths are inches.
"""

import matplotlib as mpl
import numpy as np
from IPython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH = 7.0  # inches, a page's text width

# One colour per update rule or exponent, the same in every figure (Okabe-Ito: told apart by
# colour-blind readers and in grey).
SPARE = ("#8C510A", "#5E3C99", "#999999", "#F0E442")


class Colours(dict):
    """Colour by rule; a rule without one gets the next spare colour, and keeps it."""

    def __missing__(self, rule: str) -> str:
        free = [colour for colour in SPARE if colour not in self.values()]
        return self.setdefault(rule, (free or SPARE)[0])


COLOURS = Colours(
    {
        "GD": "#000000",
        "SGD": "#000000",
        "NGD": "#0072B2",
        "SNGD": "#0072B2",
        "NGD-mom": "#56B4E9",
        "NGD-joint": "#009E73",
        "NGD, decay": "#CC79A7",
        "Polyak": "#D55E00",
        "Polyak, no cap": "#E69F00",
        "SPS": "#D55E00",
        "Adam": "#009E73",
        "p = 1.75": "#D55E00",
        "p = 2": "#000000",
        "p = 3": "#0072B2",
        "l1.1": "#CC79A7",
        "l2": "#000000",
        "l3": "#0072B2",
    }
)


def set_style() -> None:
    """Set the project's figure style for this process; a notebook calls it once."""
    import seaborn as sns  # with scipy.stats and pandas: half a second that only a picture needs

    if get_ipython() is not None:
        # so that a figure as a cell's last line is shown
        select_figure_formats(get_ipython(), {"png"})
    sns.set_theme(context="paper", style="ticks", palette="colorblind")
    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 200,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 9,
            "axes.labelsize": 8.5,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "lines.linewidth": 1.4,
            "pdf.fonttype": 42,
        }
    )


def panels(rows: int, columns: int, height: float = 2.2) -> tuple[Figure, np.ndarray]:
    """A figure of `rows` x `columns` axes, page wide, each row `height` inches.

    The axes come as a flat array (rows columns,). Sets the project's style where nobody has.
    """
    if not mpl.rcParams["figure.constrained_layout.use"]:
        set_style()
    # Figure() rather than pyplot: it is shown where the notebook says so and never kept alive by
    # global state.
    figure = Figure(figsize=(WIDTH, rows * height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(rows, columns)).ravel()


def band(ax, x, runs, label: str, colour: str | None = None, share: float = 1.0, **line) -> None:
    """Draw the median over runs, and a band that holds the middle `share` of them.

    By default the band goes from smallest to largest. `x` (points,), `runs` (runs, points). Without
    a colour the `label` is a rule, and has that rule's.
    """
    runs = np.atleast_2d(runs)
    colour = colour or COLOURS[label]
    (drawn,) = ax.plot(x, np.median(runs, axis=0), label=label, color=colour, **line)
    if len(runs) > 1:
        edges = np.quantile(runs, (0.5 - share / 2, 0.5 + share / 2), axis=0)
        ax.fill_between(x, *edges, color=drawn.get_color(), alpha=0.15, linewidth=0)


def power_law(ax, span: tuple[float, float], exponent: float, height: float, label: str) -> None:
    """Draw `height` (x / span[0])^exponent over span: a slope to compare with, on log-log axes."""
    x = np.array(span)
    ax.plot(x, height * (x / x[0]) ** exponent, ":", color="0.3", label=label)


def plain_ticks(axis) -> None:
    """Label a logarithmic `axis` (`ax.xaxis`, `ax.yaxis`) by plain numbers, few over many decades.

    To be called when the data are drawn.
    """
    low, high = sorted(axis.get_view_interval())
    if high > 1e3 * low:
        return  # powers of ten say it better
    subs = (1, 2, 5) if high > 5 * low else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def toward_one(ax, smallest: float) -> None:
    """Label `ax`, on which 1 - value is drawn, by the values 0.9, 0.99, ..., 1 - `smallest`.

    The values rise upwards.
    """
    nines = range(1, 1 - int(np.floor(np.log10(smallest))))
    ax.set(yscale="log", ylim=(1, smallest))
    ax.set_yticks(
        [10.0**-k for k in nines],
        ["0." + "9" * k if k < 4 else f"$1-10^{{-{k}}}$" for k in nines],
        minor=False,
    )
    ax.minorticks_off()


def percentages(ax, fractions: np.ndarray, columns, rows):
    """Draw `fractions` (rows, columns) in [0, 1] as coloured cells with their percentages.

    The first row stands at the bottom. NaN is a blank cell marked "none". Returns the image, for a
    colour bar.
    """
    image = ax.imshow(fractions, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="cividis")
    for (row, column), fraction in np.ndenumerate(fractions):
        text, colour = (
            ("none", "black")
            if np.isnan(fraction)
            else (f"{100 * fraction:.0f}", "white" if fraction < 0.5 else "black")
        )
        ax.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    ax.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    ax.tick_params(length=0)
    ax.grid(False)
    return image


def legend(figure: Figure, ax) -> None:
    """One legend above all panels, for the lines of `ax`."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(labels),
        fontsize="small",
        columnspacing=1.2,
    )


def caption(figure: Figure, text: str) -> None:
    """Write setting, data and scale below a figure, so that every copy of the picture has them."""
    figure.supxlabel(text, fontsize="x-small", color="0.35")
