"""The figures of paper B.

`recorded` (records,) are iterations. `excess` maps a name to (L - L*)/L* at these
iterations, (seeds, records).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from papers import pieces
from papers.b.experiments import Excess, factor_effect
from papers.b.scaling import Floors
from papers.fits import first_below

OPTIMISERS = ("Algorithm 1", "two-sided", "SGD", "Adam", "Muon", "SOAP", "Shampoo")


def _time_axis(axis: Axes, title: str, steps: int) -> None:
    """Label the axis of iterations, linear up to 10 and then logarithmic."""
    axis.set(title=title, yscale="log", xlabel="iteration $t$", xlim=(0, steps))
    axis.set_xscale("symlog", linthresh=10, linscale=0.6)
    axis.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])


def _last(axis: Axes, excess: Excess, worst: bool = False) -> None:
    """Write each rule's median last excess to the right of the panel.

    If `worst`, the worst seed follows in brackets.
    """
    labels = []
    for name, values in excess.items():
        end = np.median(values[:, -1])
        words = pieces.percent(end)
        if worst:
            words += f" ({pieces.percent(values[:, -1].max())})"
        labels.append((end, words, plots.look(name).colour))
    pieces.end_labels(axis, labels)


def against_sgd(
    recorded: np.ndarray, excess: Excess, optimum: float, ours: str, label: str
) -> Figure:
    """Draw the loss and the excess of the rule `ours` with SGD's, from a random
    start.
    """
    figure, (loss, relative) = plots.panels(1, 2, height=2.6)
    lines = (
        (ours, label, "Algorithm 1", 3),
        ("random", "SGD, random start", "SGD", 1.4),
    )
    starts = {}
    for (
        name,
        text,
        like,
        width,
    ) in lines:  # a wide line shows on both sides of the optimum's line
        plots.band(
            loss, recorded, optimum * (1 + excess[name]), text, like, linewidth=width
        )
        plots.band(relative, recorded, excess[name], text, like)
        starts[np.median(excess[name][:, 0])] = plots.look(like).colour
    for start, colour in starts.items():
        if start > 1:
            words = f"{start:,.0f} times"
        else:
            words = pieces.percent(start)
        pieces.beside(relative, 0, start, words, colour, (6, 2))
    loss.axhline(
        optimum, label="optimum $L^* = k\\sigma^2/2$", zorder=3, **plots.PREDICTED
    )
    loss.set(title="Population loss $L(Z_t)$", yscale="log", xlabel="iteration $t$")
    loss.set_ylim(optimum / 2, None)
    _time_axis(relative, "Excess over the optimum, $(L - L^*)/L^*$", recorded[-1])
    _last(relative, {like: excess[name] for name, _, like, _ in lines}, worst=True)
    return plots.legend(figure, loss)


def ablation(
    recorded: np.ndarray, excess: Excess, conditions: np.ndarray, times: Excess
) -> Figure:
    """Parts on and off from a random start; iterations to 1.15 times the optimum.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    excess : mapping of str to ndarray (seeds, records)
        (L - L*)/L* by start and parts.
    conditions : ndarray (floors, seeds)
        The condition numbers.
    times : mapping of str to ndarray (floors, seeds)
        Iterations to 1.15 L*, by rule.
    """
    steps = recorded[-1]
    figure, axes = plots.panels(1, 2, height=2.9)
    parts = {"": "neither", ", P": "P only", ", R": "R only", ", P, R": "P and R"}
    for part, text in parts.items():
        plots.band(axes[0], recorded, excess["random" + part], text)
    _time_axis(axes[0], "Random start: $(L - L^*)/L^*$", steps)
    _last(axes[0], {text: excess["random" + part] for part, text in parts.items()})
    P, R = (np.median(factor_effect(excess, part)) for part in "PR")
    words = f"R multiplies the last\nexcess by {R:.3f}, P by {P:.2f}"
    pieces.note(axes[0], words, x=0.05)
    numbers = conditions.mean(1)
    for name in ("R only", "P and R", "two-sided P and R"):
        values = np.minimum(times[name], steps).T
        mark = plots.look(name).marker
        plots.band(axes[1], numbers, values, name, marker=mark, markersize=4, share=0.5)
    axes[1].axhline(steps, **plots.LEVEL)
    axes[1].set(
        title="Iterations to $1.15\\,L^*$", xscale="log", ylim=(0, 1.15 * steps)
    )
    axes[1].set_xlabel("condition number of $\\Sigma$")
    axes[1].minorticks_off()
    axes[1].set_xticks(numbers, [f"{number:.0f}" for number in numbers])
    pieces.beside(
        axes[1], numbers.min(), steps, "on the line: not reached", plots.GREY, (2, 3)
    )
    ours = plots.look("two-sided P and R").line
    axes[0].plot([], [], label="two-sided P and R (ours)", **ours)
    return plots.legend(figure, axes[0])


def scaling(sizes: Sequence[int], floors: Floors, exponent: tuple) -> Figure:
    """Theorem 2: descent by the exact gradient of n samples, and its floor over n.

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
        ends.append((np.median(floors.floor[j]), f"$n={sizes[j]}$", colour))
    path.plot(floors.iterations, floors.exact, color=plots.BLACK, label="$n=\\infty$")
    theory = floors.exact[0] * floors.factor**floors.iterations
    line = plots.PREDICTED | {
        "linewidth": 2.5,
        "label": r"$(1-\eta\lambda_{min})^{2t}$",
    }
    path.plot(floors.iterations, theory, **line)
    path.set(title="Excess loss", yscale="log", xlabel="iteration $t$")
    path.set_ylim(floors.floor.min() / 30, None)
    pieces.end_labels(path, ends)
    first = np.median(floors.floor[0])
    _slope(bottom, sizes, -1, first, "Theorem 2: $n^{-1}$", (4, 4))
    _slope(bottom, sizes, -2, first / 4, "$n^{-2}$", (-4, -4))
    blue = plots.look("measured")
    plots.band(bottom, sizes, floors.floor.T, "floor", blue, marker="o", markersize=3)
    bottom.set(title="Floor of the excess loss", xscale="log", yscale="log")
    bottom.set_xlabel("samples $n$")
    pieces.note(bottom, f"measured: {_fitted(exponent)}", 0.05, colour=blue.colour)
    return plots.legend(figure, path)


def _slope(
    axis: Axes,
    sizes: Sequence[int] | np.ndarray,
    power: float,
    height: float,
    words: str,
    place: tuple[float, float],
) -> None:
    """Draw a power of n at a free height, with words at its middle."""
    plots.power_law(axis, (sizes[0], sizes[-1]), power, height, words)
    middle = np.sqrt(sizes[0] * sizes[-1])
    at = middle, height * (middle / sizes[0]) ** power
    pieces.beside(axis, *at, words, plots.GREY, place)


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
        The numbers of samples (m,), and the start's distances (repeats, m).
    sizes : sequence of int
        The numbers of samples of the bias.
    bias : ndarray (repeats, sizes)
        The gradient's bias.
    exponents : mapping of str to tuple
        The fitted exponents of "start" and "bias", with their standard errors.
    """
    figure, (distance, slope) = plots.panels(1, 2, height=2.7)
    panels = (
        (distance, start[0], start[1], -0.5, "start", "Distance of the spectral start"),
        (slope, sizes, bias, -1, "bias", "Bias of the gradient"),
    )
    blue = plots.look("measured")
    for axis, n, values, power, name, title in panels:
        height = 2.5 * np.median(values[:, 0])
        _slope(axis, n, power, height, f"slope $n^{{{power:g}}}$ only", (4, 4))
        plots.band(axis, n, values, name, blue, marker="o", markersize=3)
        axis.set(title=title, xscale="log", yscale="log", xlabel="samples $n$")
        words = f"measured: {_fitted(exponents[name])}"
        pieces.note(axis, words, 0.05, colour=blue.colour)
    return figure


def optimisers(
    recorded: np.ndarray, excess: Excess, step_sizes: Mapping, step_size: float
) -> Figure:
    """Iterations to within 10 % of L*, a row a rule with its best step, a mark a seed.

    Parameters
    ----------
    recorded : ndarray (records,)
        The iterations.
    excess : mapping of str to ndarray (seeds, records)
        (L - L*)/L* by rule.
    step_sizes : mapping of str to float
        The best steps of a grid.
    step_size : float
        The step of the rules that are not in it.
    """
    steps = recorded[-1]
    figure, (reached,) = plots.panels(1, 1, height=3.1)
    needed = {name: first_below(recorded, excess[name], 0.1) for name in OPTIMISERS}
    order = sorted(OPTIMISERS, key=lambda name: np.median(needed[name]))
    rows = {
        f"{name}, step {step_sizes.get(name, step_size):g}": needed[name]
        for name in order
    }
    ends = max(1, 0.6 * min(row.min() for row in rows.values())), 2 * steps
    said = []
    for name in order:
        median = np.median(needed[name])
        words = f"{median:,.0f}" if np.isfinite(median) else f">{steps:,}"
        end = pieces.percent(np.median(excess[name][:, -1]))
        said.append(f"{words};  ends {end} above")
    title = "Iterations to within 10 % of $L^*$; right: medians"
    named = dict(title=title, xlabel="iteration $t$ (>: not reached)", said=said)
    pieces.strip(reached, rows, ends, [plots.look(name) for name in order], **named)
    return figure
