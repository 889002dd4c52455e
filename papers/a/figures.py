"""Paper A's Figures 2, 3 and 5, and Figure 2's problem over a million iterations."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.dynamics import History
from papers import fits, pieces
from papers.a import fixed_head, joint_training

Histories = Mapping[str, History]
SMALLEST_FLOAT = -np.log10(5e-324)  # as the missing weight is drawn
SMALLEST_LOG_LOSS = -30  # powers of ten, as drawn; the loss of NGD falls much further


def _over_time(axes, histories: Histories, panels: Callable, first: int) -> None:
    """Medians over runs and their spread from record `first` on, of each rule, a panel
    for each of panels(history), {title: values (runs, k)}."""
    for name, history in histories.items():
        t = history.iterations[first:]
        for axis, (title, values) in zip(axes, panels(history).items(), strict=True):
            plots.band(axis, t, values[:, first:], name)
            axis.set(title=title, xscale="log", xlim=(1, t[-1]))
    for axis in axes[3:]:
        axis.set_xlabel("iteration $t$")


def draw(histories: Histories, caption: str, crowd: History | None = None) -> Figure:
    """Figure 2, or 5 with the weights of a `crowd`, many draws of NGD."""
    figure, axes = plots.panels(2, 3)
    panels = lambda run: {
        r"Loss gap, $\log_{10}(L - L^*)$": run.log_gap / np.log(10),
        r"Norm $\|W_t\|$": run.norm,
        "Mean weight of the opt token": run.opt_score,
        "Alignment with $W_{mm}$": run.alignment["W_mm"],
        "Direction error": run.direction_error["W_mm"],
        r"Missing weight, $\log_{10}(1 - p_{opt})$": run.log_miss.max(-1) / np.log(10),
    }
    _over_time(axes, histories, panels, 0)
    for axis in axes[[0, 5]]:
        axis.set_ylim(SMALLEST_LOG_LOSS, 1)
    for axis in axes[[1, 4]]:
        axis.set_yscale("log")
    level = fixed_head.THRESHOLD
    axes[0].axhline(np.log10(level), **plots.LEVEL)
    pieces.beside(axes[0], 1, np.log10(level), str(level), plots.GREY, (4, -3))
    polyak, look = histories["Polyak"], plots.look("Polyak")
    first = np.median(fits.first_below(polyak.iterations, polyak.log_gap, np.log(level)))
    axes[0].plot(first, np.log10(level), markersize=4, **look.mark)
    share = fixed_head.fastest_at_first(histories).measured
    words = f"at {share:.2f} of\nthe next best's $t$"
    pieces.note(axes[0], words, 0.09, 0.75, "top", look.colour)
    if crowd is not None:
        _smallest_weights(axes[3], crowd)
    ngd = histories["NGD"]
    steps, end = ngd.iterations[-1], np.median(ngd.direction_error["W_mm"][:, -1])
    pieces.theorem1(axes[4], (steps / 10, steps), 0.3)
    slope = np.median(fits.exponent(ngd, "W_mm", since=steps / 10))
    words = f"NGD: $t^{{{slope:.2f}}}$, ends {end:.3f} off"
    pieces.note(axes[4], words, 0.04, 0.06, colour=plots.look("NGD").colour)
    return plots.caption(plots.legend(figure, axes[4]), caption)


def _smallest_weights(axis, crowd):
    """Lemma 5 in every draw: p_opt over its start, of the sample where it is least."""
    p_opt = -np.expm1(crowd.log_miss)  # (draws, k, n)
    smallest = (p_opt / p_opt[:, :1]).min(-1)
    axis.clear()
    axis.plot(crowd.iterations, smallest.T, color=plots.FAINT, linewidth=0.5, rasterized=True)
    worst, look = smallest[smallest.min(1).argmin()], plots.look("NGD")
    axis.plot(crowd.iterations, worst, **look.line)
    lowest = crowd.iterations[worst.argmin()], worst.min()
    pieces.beside(axis, *lowest, f"down to {worst.min():.2f}", look.colour, (-8, 0))
    title = f"Least $p_{{opt}}(t)/p_{{opt}}(0)$, {len(smallest)} draws"
    axis.set(title=title, xlabel="iteration $t$", xscale="log")
    axis.set(xlim=(1, crowd.iterations[-1]), ylim=(0.75, 1.5))
    axis.axhline(1.0, **plots.LEVEL)


def horizon(histories: Mapping, plain_error: Sequence, caption: str) -> Figure:
    """Error, and in plain float64 (steps,); missing weight; exponent by decade."""
    figure, (error, weight, rate) = plots.panels(1, 3, height=3.0)
    steps = int(next(iter(histories.values())).iterations[-1])
    slopes = fixed_head.decade_exponents(histories, steps)
    middle = 10 ** np.arange(1.5, int(np.log10(steps)))
    heights, powers = [], []
    for name, history in histories.items():
        t = history.iterations[1:]
        plots.band(error, t, history.direction_error["W_mm"][:, 1:], name)
        weights = -history.log_miss.max(-1)[:, 1:] / np.log(10)
        plots.band(weight, t, weights, name)
        plots.band(rate, middle, slopes[name], name, marker="o", markersize=3)
        missing, power = (np.median(row[:, -1]) for row in (weights, slopes[name]))
        heights.append((missing, f"{missing:,.0f}", plots.look(name).colour))
        powers.append((power, f"{power:.3f}", plots.look(name).colour))
    ordinary = {"color": plots.GREY, "linewidth": 0.8, "label": "plain float64", "zorder": 0}
    error.plot(np.arange(len(plain_error)) + 1, plain_error, **ordinary)
    pieces.theorem1(error, (10, steps), 1.5)
    weight.axhline(SMALLEST_FLOAT, **plots.LEVEL)
    pieces.beside(weight, 1, SMALLEST_FLOAT, "above: no float64", plots.GREY, (2, 4))
    rate.axhline(-0.5, **plots.BOUND)
    time = {"xscale": "log", "xlabel": "iteration $t$"}
    error.set(title="Direction error", yscale="log", **time)
    weight.set(title=r"Missing weight, $-\log_{10}(1 - p_{opt})$", yscale="log", **time)
    rate.set(title="Exponent by decade", ylim=(-1.2, 0.05), **time)
    pieces.end_labels(weight, heights)
    pieces.end_labels(rate, powers)
    return plots.caption(plots.legend(figure, error), caption)


def joint(histories: Histories, step_size: float, caption: str) -> Figure:
    """Figure 3: medians over runs with their spread; Lemma 12's bound."""
    figure, axes = plots.panels(2, 3)
    panels = lambda run: {
        r"Train loss, $\log_{10} L$": run.log_gap / np.log(10),
        r"Norm $\|W_t\|$": np.where(run.norm > 0, run.norm, np.nan),
        r"Norm $\|u_t\|$": run.head_norm,
        "Mean weight of the opt token": run.opt_score,
        "Alignment with $W_{mm}$": run.direction_error["W_mm"] ** 2 / 2,
        "Alignment with $u_{mm}$": run.head_direction_error["u_mm"] ** 2 / 2,
    }
    _over_time(axes, histories, panels, 1)
    axes[0].set_ylim(SMALLEST_LOG_LOSS, 1)
    decayed, look = histories["NGD, decay"], plots.look("NGD, decay")
    bound = lambda t: 3 * step_size * t ** (1 / 3)
    for axis in axes[1:3]:
        axis.set(yscale="log", ylim=(0.1, 1e4))
        ends = 10, decayed.iterations[-1]
        plots.power_law(axis, ends, 1 / 3, bound(10), r"$3\eta t^{1/3}$ (Lemma 12)")
    said = "NGD, decay, of its bound:"
    for t in [t for t in joint_training.REFERENCE if t > 100]:
        norm = np.median(decayed.norm[:, np.searchsorted(decayed.iterations, t)])
        axes[1].plot(t, norm, ms=6, mec=plots.PAPER, zorder=4, **look.mark)
        said += f"\n{norm:.3g} of {bound(t):#.3g} at $t$ = {t:,}"
    pieces.note(axes[1], said, 0.04, 0.97, "top", look.colour)
    for axis in axes[4:]:  # on which 1 - value is drawn
        axis.set(yscale="log", ylim=(1, 1e-8))
        labels = ["0." + "9" * k if k < 4 else f"$1-10^{{-{k}}}$" for k in range(1, 9)]
        axis.set_yticks([10.0**-k for k in range(1, 9)], labels, minor=False)
        axis.minorticks_off()
    return plots.caption(plots.legend(figure, axes[1]), caption)


def theorem1(history: History, caption: str) -> Figure:
    """Draw runs that satisfy Theorem 1's hypotheses: the direction error and the opt weights.

    Parameters
    ----------
    history : History
        Runs of NGD with the target "W_mm".
    caption : str
        What is drawn, for below the figure.

    Returns
    -------
    Figure
        Left, the direction error of each run, with a line of the bound's slope; right, the smallest
        softmax weight of an opt token of each run.
    """
    figure, (left, right) = plots.panels(1, 2, height=2.4)
    look = plots.look("NGD")
    moved = history.iterations >= 1
    t = history.iterations[moved]
    error = history.direction_error["W_mm"][:, moved]
    smallest = -np.expm1(history.log_miss[:, moved].max(-1))
    for run in range(len(error)):
        left.plot(t, error[run], color=look.colour, linewidth=0.6, alpha=0.6)
        right.plot(t, smallest[run], color=look.colour, linewidth=0.6, alpha=0.6)
    since = t[-1] / 100
    height = 2 * error[:, t >= since].max()  # above every curve; the bound's own height is unknown
    plots.power_law(left, (since, t[-1]), -0.5, height, "Theorem 1, slope only: $t^{-1/2}$")
    left.legend(loc="lower left")
    left.set(title="Direction error", xscale="log", yscale="log", xlabel="iteration $t$")
    right.set(title="Smallest weight of an opt token", xscale="log", xlabel="iteration $t$")
    right.axhline(0.5, **plots.LEVEL)
    return plots.caption(figure, caption)
