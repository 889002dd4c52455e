"""Paper A's Figures 2 and 5, and Figure 2's problem over a million iterations."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Claim
from lib.companion.record import Number
from lib.dynamics import History
from lib.svm import MaxMargin
from papers import fits, pieces
from papers.a import fixed_head
from papers.a.statements import PAPER

FIRST = ("GD", "NGD", "NGD-mom", "Polyak")  # the rules that Figure 2 compares at first
SMALLEST_FLOAT = -np.log10(5e-324)  # as the missing weight is drawn
THRESHOLD = 0.01  # of the loss gap: how soon a rule reaches it is compared


def _panels(history):
    """The six panels: title, values (runs, k), axis options."""
    gap, miss = history.log_gap / np.log(10), history.log_miss.max(-1) / np.log(10)
    deep = {"ylim": (-30, 1)}
    return (
        ("Loss gap, $\\log_{10}(L - L^*)$", gap, deep),
        ("Norm $\\|W_t\\|$", history.norm, {"yscale": "log"}),
        ("Mean weight of the opt token", history.opt_score, {}),
        ("Alignment with $W_{mm}$", history.alignment["W_mm"], {}),
        ("Direction error", history.direction_error["W_mm"], {"yscale": "log"}),
        ("Missing weight, $\\log_{10}(1 - p_{opt})$", miss, deep),
    )


def _slope(ngd: History) -> float:
    """Exponent in t of the direction error over the last decade, median over runs."""
    return float(np.median(fits.exponent(ngd, "W_mm", since=ngd.iterations[-1] / 10)))


def fastest(histories: Mapping[str, History]) -> Claim:
    """Polyak's rule is first at the dotted level of the loss gap: its iterations over others'."""
    compared = {rule: histories[rule] for rule in FIRST}
    return fixed_head.fastest_at_first(compared, "Polyak", THRESHOLD)


def draw(histories: Mapping[str, History], caption: str, crowd: History | None = None) -> Figure:
    """Figure 2, or 5 with the weights of a `crowd`, many draws of NGD."""
    figure, axes = plots.panels(2, 3)
    for rule, history in histories.items():
        for axis, (title, values, options) in zip(axes, _panels(history), strict=True):
            plots.band(axis, history.iterations, values, rule)
            axis.set(title=title, xscale="log", xlim=(1, history.iterations[-1]), **options)
    axes[0].axhline(np.log10(THRESHOLD), **plots.LEVEL)
    pieces.beside(axes[0], 1, np.log10(THRESHOLD), str(THRESHOLD), plots.GREY, (4, -3))
    polyak, look = histories["Polyak"], plots.look("Polyak")
    first = np.median(fits.first_below(polyak.iterations, polyak.log_gap, np.log(THRESHOLD)))
    axes[0].plot(first, np.log10(THRESHOLD), markersize=4, **look.mark)
    words = f"at {fastest(histories).measured:.2f} of\nthe next best's $t$"
    pieces.note(axes[0], words, 0.09, 0.75, "top", look.colour)
    if crowd is not None:
        _smallest_weights(axes[3], crowd)
    ngd = histories["NGD"]
    steps, end = ngd.iterations[-1], np.median(ngd.direction_error["W_mm"][:, -1])
    for axis in axes[3:]:
        axis.set_xlabel("iteration $t$")
    pieces.theorem1(axes[4], (steps / 10, steps), 0.3)
    words = f"NGD: $t^{{{_slope(ngd):.2f}}}$, ends {end:.3f} off"
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
    axis.set(title=title, xscale="log", xlim=(1, crowd.iterations[-1]), ylim=(0.75, 1.5))
    axis.axhline(1.0, **plots.LEVEL)


def numbers(histories: Mapping[str, History], target: MaxMargin) -> dict:
    """What the record keeps."""
    history = histories["NGD"]
    error, miss = history.direction_error["W_mm"][:, -1], history.log_miss[:, -1].max(-1)
    return {
        "norm_of_W_mm": Number(np.median(target.norm), 1e-6),
        "ngd_direction_error": Number(np.median(error), 1e-6),
        "ngd_direction_error_worst": Number(error.max(), 1e-6),
        "ngd_exponent": Number(_slope(history), 1e-5),
        "ngd_log_missing_weight": Number(np.median(miss), 1e-4),
        "polyak_over_next_best": Number(fastest(histories).measured, 1e-6),
    }


def decade_exponents(histories: Mapping[str, History], steps: int) -> dict[str, np.ndarray]:
    """Direction error's exponent by decade from t = 10, {rule: (runs, decades)}."""
    decades = 10 ** np.arange(1, int(np.log10(steps)))
    slope = lambda history, t: fits.exponent(history, "W_mm", since=t, until=10 * t)
    return {
        name: np.stack([slope(history, t) for t in decades], 1)
        for name, history in histories.items()
    }


def horizon_claims(last: Mapping[str, np.ndarray]) -> list[Claim]:
    """Exponents `last` {rule: (runs,)} of the last decade: -1 (ours), of GD near 0."""
    ngd, momentum, polyak = (last[name].max() for name in ("NGD", "NGD-mom", "Polyak, no cap"))
    values = {"rate.bound": ngd, "rate.measured": ngd, "rate.momentum": momentum}
    return PAPER.claims(values | {"rate.polyak": polyak, "rate.gd": last["GD"].min()})


def draw_horizon(histories: Mapping, plain_error: Sequence, caption: str) -> Figure:
    """Error, and in plain float64 (steps,); missing weight; exponent by decade."""
    figure, (error, weight, rate) = plots.panels(1, 3, height=3.0)
    steps = int(next(iter(histories.values())).iterations[-1])
    slopes, middle = decade_exponents(histories, steps), 10 ** np.arange(1.5, int(np.log10(steps)))
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


def horizon_numbers(ngd: History, last: Mapping[str, np.ndarray]) -> dict[str, Number]:
    """Medians of the exponents `last`, of NGD's last error and missing weight."""
    known = {
        f"{name.split(',')[0].lower()}_exponent": Number(np.median(values), 1e-3)
        for name, values in last.items()
    }
    error, miss = ngd.direction_error["W_mm"][:, -1], ngd.log_miss[:, -1].max(-1)
    known["ngd_direction_error"] = Number(np.median(error), 1e-9)
    known["ngd_missing_weight_power_of_ten"] = Number(np.median(miss) / np.log(10), 1e-2)
    return known
