"""Paper B's figures drawn: `recorded` (records,) are iterations, `excess` (seeds,
records) by name is (L - L*)/L* there.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import seaborn
from matplotlib.figure import Figure

from companion import plots
from papers import pieces
from papers.b.experiments import Excess, factor_effect
from papers.b.scaling import Floors
from papers.fits import first_below

OPTIMISERS = ("Algorithm 1", "two-sided", "SGD", "Adam", "Muon", "SOAP", "Shampoo")


def _time_axis(axis, title: str, steps: int) -> None:
    """Iterations from 0, linear up to 10 and then logarithmic."""
    axis.set(title=title, yscale="log", xlabel="iteration $t$", xlim=(0, steps))
    axis.set_xscale("symlog", linthresh=10, linscale=0.6)
    axis.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])


def _last(axis, excess: Excess, worst: bool = False) -> None:
    """Right of the panel each rule's median and worst last excess, in per cent."""
    labels = []
    for name, values in excess.items():
        end = np.median(values[:, -1])
        words = pieces.percent(end)
        words += f",\nat worst\n{pieces.percent(values[:, -1].max())}" if worst else ""
        labels.append((end, words, plots.look(name).colour))
    pieces.end_labels(axis, labels)


def against_sgd(
    recorded: np.ndarray, excess: Excess, optimum: float, ours: str, label: str
) -> Figure:
    """Loss and excess of the rule `ours` beside SGD's from a random start."""
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
    ) in lines:  # a wide line shows on both sides of the optimum's
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
    """All combinations of parts; `times` by rule over `conditions`, (floors, seeds)."""
    steps = recorded[-1]
    figure, axes = plots.panels(1, 3, height=2.7)
    parts = {"": "neither", ", P": "P only", ", R": "R only", ", P, R": "P and R"}
    for axis, start in zip(axes, ("spectral", "random"), strict=False):
        for part, text in parts.items():
            plots.band(axis, recorded, excess[start + part], text)
        if start == "spectral":
            axis.set_ylim(1e-4, 1e-1)
        _time_axis(axis, f"{start.capitalize()} start: $(L - L^*)/L^*$", steps)
        _last(axis, {text: excess[start + part] for part, text in parts.items()})
    P, R = (np.median(factor_effect(excess, part)) for part in "PR")
    words = f"R multiplies the last\nexcess by {R:.3f}, P by {P:.2f}"
    pieces.note(axes[1], words, x=0.05)
    numbers = conditions.mean(1)
    for name in ("R only", "P and R", "two-sided P and R"):
        values = np.minimum(times[name], steps).T
        mark = plots.look(name).marker
        plots.band(axes[2], numbers, values, name, marker=mark, markersize=4)
    axes[2].axhline(steps, **plots.LEVEL)
    axes[2].set(
        title="Iterations to $1.15\\,L^*$", xscale="log", ylim=(0, 1.15 * steps)
    )
    axes[2].set_xlabel("condition number of $\\Sigma$")
    axes[2].minorticks_off()
    axes[2].set_xticks(numbers, [f"{number:.0f}" for number in numbers])
    pieces.beside(
        axes[2], numbers.min(), steps, "on the line: not reached", plots.GREY, (2, 3)
    )
    ours = plots.look("two-sided P and R").line
    axes[1].plot([], [], label="two-sided P and R (ours)", **ours)
    return plots.legend(figure, axes[1])


def scaling(
    sizes: Sequence[int],
    floors: Floors,
    start: tuple,
    bias: np.ndarray,
    exponents: Mapping,
) -> Figure:
    """Theorem 2: the oracle's descent for each n, its floor, two powers of n. `start`:
    sizes (m,), distances (repeats, m); `bias` (repeats, sizes); `exponents` with
    errors, of "floor", "start" and "bias".
    """
    figure, (path, bottom, powers) = plots.panels(1, 3, height=2.6)
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
    path.set(title="Excess loss, oracle gradient", yscale="log", xlabel="iteration $t$")
    path.set_ylim(floors.floor.min() / 30, None)
    pieces.end_labels(path, ends)
    floor, distance, slope = plots.SERIES[:3]
    first = np.median(floors.floor[0])
    guides = (
        (bottom, sizes, -1, first, "Theorem 2: $n^{-1}$", (4, 4)),
        (bottom, sizes, -2, first / 4, "$n^{-2}$", (-4, -4)),
        (powers, start[0], -1 / 2, 3 * np.median(start[1][:, 0]), "$n^{-1/2}$", (4, 4)),
        (powers, sizes, -1, np.median(bias[:, 0]) / 3, "$n^{-1}$", (-4, -4)),
    )
    for axis, n, power, height, words, place in guides:
        plots.power_law(axis, (n[0], n[-1]), power, height, words)
        middle = np.sqrt(n[0] * n[-1])
        at = middle, height * (middle / n[0]) ** power
        pieces.beside(axis, *at, words, plots.GREY, place)
    plots.band(bottom, sizes, floors.floor.T, "floor", floor, marker="o", markersize=3)
    plots.band(powers, *start, "start", distance, marker="s", markersize=3)
    plots.band(powers, sizes, bias, "bias", slope, marker="^", markersize=3)
    logs = dict(xscale="log", yscale="log", xlabel="samples $n$")
    bottom.set(title="Floor of the excess loss", **logs)
    powers.set(title="Start's distance, bias", **logs)
    powers.set_ylim(bias.min() / 60, 8 * start[1].max())
    said = {
        name: f"$n^{{{a:.3f} \\pm {error:.3f}}}$"
        for name, (a, error) in exponents.items()
    }
    pieces.note(bottom, f"measured: {said['floor']}", 0.05, colour=floor.colour)
    pieces.note(
        powers,
        f"distance of start: {said['start']}",
        0.05,
        0.92,
        colour=distance.colour,
    )
    pieces.note(powers, f"gradient bias: {said['bias']}", 0.05, colour=slope.colour)
    return plots.legend(figure, path)


def optimisers(
    recorded: np.ndarray, excess: Excess, step_sizes: Mapping, step_size: float
) -> Figure:
    """Optimisers at their best steps, else `step_size`; iterations to within 10 %."""
    steps = recorded[-1]
    figure, (path, reached) = plots.panels(1, 2, height=3.1)
    needed = {name: first_below(recorded, excess[name], 0.1) for name in OPTIMISERS}
    order = sorted(OPTIMISERS, key=lambda name: np.median(needed[name]))
    for name in order:
        path.plot(
            recorded, np.median(excess[name], 0), label=name, **plots.look(name).line
        )
    _time_axis(path, "From the random start: $(L - L^*)/L^*$", steps)
    path.set_ylim(2e-3, 3e4)
    _last(path, {name: excess[name] for name in order})
    rows = {
        f"{name}, step {step_sizes.get(name, step_size):g}": needed[name]
        for name in order
    }
    ends = max(1, 0.6 * min(row.min() for row in rows.values())), 2 * steps
    medians = [np.median(row) for row in rows.values()]
    said = [
        f"{median:,.0f}" if np.isfinite(median) else f"  >{steps:,}"
        for median in medians
    ]
    title = "Iterations to within 10 % of $L^*$; right: median"
    named = dict(title=title, xlabel="iteration $t$ (>: not reached)", said=said)
    pieces.strip(reached, rows, ends, [plots.look(name) for name in order], **named)
    return plots.legend(figure, path)
