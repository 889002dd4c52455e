"""The figures of paper B.

`recorded` (records,) are iterations. `excess` maps a name to (L - L*)/L* at these
iterations, an array (seeds, records).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from papers import pieces
from papers.b.experiments import Excess
from papers.b.scaling import Floors
from papers.fits import first_below

OPTIMISERS = ("Algorithm 1", "two-sided", "SGD", "Adam", "Muon", "SOAP", "Shampoo")


def _time_axis(axis: Axes, title: str, steps: int) -> None:
    """Label the axis of iterations, linear up to 10 and then logarithmic."""
    axis.set(title=title, yscale="log", xlabel="iteration $t$", xlim=(0, steps))
    axis.set_xscale("symlog", linthresh=10, linscale=0.6)
    axis.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])


def _last(axis: Axes, excess: Excess, looks: Mapping[str, str] = {}) -> None:
    """Write each rule's name and the median of its final excess to the right of the
    panel.

    `looks` maps a name in `excess` to the rule whose colour is used. A name that is not
    in `looks` is itself the name of such a rule.
    """
    labels = []
    for name, values in excess.items():
        end = np.median(values[:, -1])
        words = f"{name}: {pieces.percent(end)}"
        labels.append((end, words, plots.look(looks.get(name, name)).colour))
    pieces.end_labels(axis, labels)


def against_sgd(
    recorded: np.ndarray, excess: Excess, optimum: float, ours: str, label: str
) -> Figure:
    """Draw the loss and the excess loss of the run `ours` of Algorithm 1, together with
    those of SGD.

    `label` says where `ours` starts. SGD always has the random start.
    """
    figure, (loss, relative) = plots.panels(1, 2, height=2.8)
    # A wide line is visible on both sides of the line of the optimum.
    rules = {"Algorithm 1": (ours, 3.0), "SGD": ("random", 1.4)}
    starts = {}
    for rule, (name, width) in rules.items():
        values = excess[name]
        plots.band(loss, recorded, optimum * (1 + values), rule, linewidth=width)
        plots.band(relative, recorded, values, rule)
        starts[np.median(values[:, 0])] = plots.look(rule).colour

    # The paper's panel shows the loss itself.
    loss.axhline(optimum, zorder=3, **plots.PREDICTED)
    pieces.beside(loss, recorded[-1], optimum, "optimum $L^*$", place=(-4, -4))
    loss.set(title="Population loss $L(Z_t)$", yscale="log", xlabel="iteration $t$")
    loss.set(ylim=(optimum / 3, None), xlim=(0, recorded[-1]))
    middle = len(recorded) // 3
    sgd = optimum * (1 + np.median(excess["random"][:, middle]))
    pieces.beside(loss, recorded[middle], sgd, "SGD", plots.look("SGD").colour, (4, 6))

    # Our panel shows how far the loss is above the optimum, from the first step on.
    first, colours = [*starts], [*starts.values()]
    for start, colour in zip(first, colours, strict=True):
        if start > 1:
            words = f"starts {start:,.0f} times above"
            lift = 4
        else:
            words = f"starts {pieces.percent(start)} above"
            lift = -6
        if len(first) == 1:
            colour = plots.BLACK
        pieces.beside(relative, 0, start, words, colour, (8, lift))
    title = "Excess over the optimum, $(L - L^*)/L^*$"
    _time_axis(relative, title, recorded[-1])
    # Leave room for the words at the starts.
    bottom = relative.get_ylim()[0]
    if min(first) < 1:
        bottom = bottom / 5
    relative.set_ylim(bottom, 8 * max(first))
    ends = {f"Algorithm 1,\n{label}": excess[ours], "SGD": excess["random"]}
    _last(relative, ends, {f"Algorithm 1,\n{label}": "Algorithm 1"})
    return figure


def ablation(recorded: np.ndarray, excess: Excess) -> Figure:
    """Draw the excess loss from a random start, with each part of the algorithm on and
    off.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    excess : mapping of str to ndarray (seeds, records)
        (L - L*)/L* by start and parts.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    parts = {
        "": "neither",
        ", P": "preconditioner only",
        ", R": "regulariser only",
        ", P, R": "both",
    }
    names = ("neither", "P only", "R only", "P and R")
    looks = dict(zip(parts.values(), names, strict=True))
    for part, text in parts.items():
        plots.band(axis, recorded, excess["random" + part], text, looks[text])
    title = "Excess over the optimum, $(L - L^*)/L^*$, from a random start"
    _time_axis(axis, title, recorded[-1])
    ends = {text: excess["random" + part] for part, text in parts.items()}
    _last(axis, ends, looks)
    return figure


def conditioning(
    steps: int, conditions: np.ndarray, times: Mapping[str, np.ndarray]
) -> Figure:
    """Draw, over the condition number, the number of iterations to 1.15 times the
    optimal loss.

    Parameters
    ----------
    steps : int
        The number of iterations of a run. A run that does not reach the loss is drawn
        at this height.
    conditions : ndarray (floors, seeds)
        The condition numbers. The runs of a floor are drawn at the mean condition
        number over seeds.
    times : mapping of str to ndarray (floors, seeds)
        The number of iterations to 1.15 L*, by rule. It is infinite for a run that does
        not reach this loss.
    """
    figure, (axis,) = plots.panels(1, 1, height=2.8)
    numbers = conditions.mean(1)
    names = {
        "R only": "regulariser only",
        "P and R": "both",
        "two-sided P and R": "both, two-sided (ours)",
    }
    ends = []
    for name, text in names.items():
        values = np.minimum(times[name], steps).T
        like = plots.look(name)
        style = dict(marker=like.marker, markersize=4, share=0.5)
        plots.band(axis, numbers, values, text, like, **style)
        ends.append((np.median(values[:, -1]), text, like.colour))
    axis.axhline(steps, **plots.LEVEL)
    axis.set(xscale="log", ylim=(0, 1.2 * steps), ylabel="iterations to $1.15\\,L^*$")
    axis.set(xlim=(None, numbers.max()), xlabel="condition number of $\\Sigma$")
    axis.minorticks_off()
    axis.set_xticks(numbers, [f"{number:.0f}" for number in numbers])
    words = "on this line: not reached"
    pieces.beside(axis, numbers.min(), steps, words, plots.GREY, (2, 3))
    pieces.end_labels(axis, ends)
    return figure


def scaling(sizes: Sequence[int], floors: Floors, exponent: tuple) -> Figure:
    """Draw Theorem 2: how the excess loss falls to a floor for each n, and the floor as
    a function of n.

    Parameters
    ----------
    sizes : sequence of int
        The numbers n of samples.
    floors : Floors
        The excess losses and floors.
    exponent : tuple of float
        The fitted exponent of the floor and its standard error.
    """
    figure, (path, bottom) = plots.panels(1, 2, height=2.9)
    ends = []
    for j, colour in enumerate(seaborn.color_palette("viridis", len(sizes))):
        like = plots.Look(colour, "-", "o")
        plots.band(path, floors.iterations, floors.excess[j], f"_{sizes[j]}", like)
        ends.append((np.median(floors.floor[j]), f"$n={sizes[j]:,}$", colour))
    path.plot(floors.iterations, floors.exact, color=plots.BLACK)
    path.set(title="Excess loss", yscale="log", xlabel="iteration $t$")
    lowest = floors.floor.min() / 30
    path.set_ylim(lowest, None)
    # The first iteration at which the exact descent is below a quarter of the panel's
    # height.
    top = floors.exact[0]
    late = np.argmax(floors.exact < np.sqrt(lowest * np.sqrt(lowest * top)))
    at = floors.iterations[late], floors.exact[late]
    pieces.beside(path, *at, "$n=\\infty$", place=(-5, 0))
    pieces.end_labels(path, ends)

    blue = plots.look("measured")
    plots.band(bottom, sizes, floors.floor.T, "floor", blue, marker="o", markersize=3)
    height = 6 * np.median(floors.floor[0])
    _slope(bottom, sizes, -1, height, "Theorem 2 (our reading):\n$n^{-1}$, slope only")
    bottom.set(title="Floor of the excess loss", xscale="log", yscale="log")
    bottom.set_xlabel("samples $n$")
    pieces.note(bottom, f"measured: {_fitted(exponent)}", 0.05, colour=blue.colour)
    return figure


def _slope(
    axis: Axes, sizes: Sequence[int], power: float, height: float, words: str
) -> None:
    """Draw a short line with the slope of a power of n, and words at the end of the
    line.

    The line goes from a tenth to four tenths of the logarithmic range of `sizes`, and
    begins at `height`.
    """
    first, last = sizes[0], sizes[-1]
    stub = first * (last / first) ** 0.1, first * (last / first) ** 0.4
    plots.power_law(axis, stub, power, height, words)
    at = stub[1], height * (stub[1] / stub[0]) ** power
    pieces.beside(axis, *at, words, plots.GREY, (4, 4))


def _fitted(exponent: tuple) -> str:
    """Write a fitted power of n with its standard error."""
    return f"$n^{{{exponent[0]:.3f} \\pm {exponent[1]:.3f}}}$"


def start_and_bias(
    start: tuple, sizes: Sequence[int], bias: np.ndarray, exponents: Mapping
) -> Figure:
    """Draw how the spectral start and the gradient's bias depend on n.

    Parameters
    ----------
    start : tuple
        The numbers of samples (m,), and the distances (repeats, m) of the start from
        the minima.
    sizes : sequence of int
        The numbers of samples at which the bias was measured.
    bias : ndarray (repeats, sizes)
        The norm of the gradient's bias.
    exponents : mapping of str to tuple
        The fitted exponents of "start" and "bias", with their standard errors.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    axis.set(xscale="log", yscale="log", xlabel="samples $n$")
    axis.set_ylabel("distance, or bias")
    quantities = (
        (start[0], start[1], -0.5, "start", "spectral start", plots.SERIES[2]),
        (sizes, bias, -1, "bias", "bias of the gradient", plots.look("measured")),
    )
    for n, values, power, name, title, look in quantities:
        middle = np.median(values, 0)
        _slope(axis, n, power, 2.5 * middle[0], f"$n^{{{power:g}}}$, slope only")
        plots.band(axis, n, values, name, look, marker="o", markersize=3)
        # The words are beside the last point but one, above the line.
        words = pieces.written(f"{title}:\n{_fitted(exponents[name])}")
        style = {"color": look.colour, "fontsize": 9, "va": "bottom"}
        at = n[-2], middle[-2]
        axis.annotate(words, at, (8, 12), textcoords="offset points", **style)
    return figure


def optimisers(
    recorded: np.ndarray, excess: Excess, step_sizes: Mapping, step_size: float
) -> Figure:
    """Draw the number of iterations to a loss within 10 % of L*, with one row for each
    of OPTIMISERS at its best step size, and one mark for each seed.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    excess : mapping of str to ndarray (seeds, records)
        (L - L*)/L* by rule.
    step_sizes : mapping of str to float
        The best step size of each tuned rule.
    step_size : float
        The step size of the rules that are not in `step_sizes`.
    """
    steps = recorded[-1]
    figure, (reached,) = plots.panels(1, 1, height=3.1)
    needed = {name: first_below(recorded, excess[name], 0.1) for name in OPTIMISERS}
    order = sorted(OPTIMISERS, key=lambda name: np.median(needed[name]))
    rows = {
        f"{name}, step {step_sizes.get(name, step_size):g}": needed[name]
        for name in order
    }
    # A run that has not reached the loss is drawn beyond the last iteration.
    earliest = min(steps, *(row.min() for row in rows.values()))
    ends = max(1, 0.6 * earliest), 1.8 * steps
    said = []
    for name in order:
        median = np.median(needed[name])
        if np.isfinite(median):
            words = f"{median:,.0f}"
        else:
            # The number beside the row's arrow counts the same runs.
            missed = np.isinf(needed[name]).sum()
            words = f"missed by {missed} of {len(needed[name])}"
        end = pieces.percent(np.median(excess[name][:, -1]))
        said.append(f"{words}; ends {end} above")
    title = "Iterations to within 10 % of $L^*$; right: medians"
    named = dict(title=title, xlabel="iteration $t$ (>: not reached)", said=said)
    pieces.strip(reached, rows, ends, [plots.look(name) for name in order], **named)
    reached.axvline(steps, color=plots.GREY, linewidth=0.8)
    words = f"runs end\nat {steps:,}"
    pieces.beside(reached, steps, 0, words, plots.GREY, (4, 0))
    return figure
