"""A million iterations of Figure 2's problem: exponents by decade, the drawing and its record."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lib.companion import claims, plots
from lib.companion.record import Number
from lib.dynamics.history import History
from papers import fits

SMALLEST_FLOAT = -np.log10(5e-324)  # as the missing weight is drawn


def decades(steps: int) -> np.ndarray:
    """10, 100, ..., the starts of the decades of t that are fitted, (log10(steps) - 1,)."""
    return 10 ** np.arange(1, int(np.log10(steps)))


def exponents(histories: Mapping[str, History], steps: int) -> dict[str, np.ndarray]:
    """Exponent of the direction error in t within each decade, {rule: (runs, decades)}."""
    return {
        name: np.stack([fits.exponent(h, "W_mm", since=a, until=10 * a) for a in decades(steps)], 1)
        for name, h in histories.items()
    }


def rates(last: Mapping[str, np.ndarray]) -> list[claims.Claim]:
    """The exponents `last` {rule: (runs,)} of the last decade: the theorem's bound, and -1 (ours).

    That of gradient descent, for which the paper has no rate, is above -0.2 (ours). Source: paper
    A, Theorem 1 and its open question 1.
    """
    source, text = "paper A, Theorem 1; open question 1", "exponent in the last decade"
    ngd, momentum, polyak = (last[name].max() for name in ("NGD", "NGD-mom", "Polyak, no cap"))
    slow = f"GD: {text}, slower than any power"
    return [
        claims.at_most("rate.bound", f"NGD: {text}, against the theorem's", source, ngd, -0.5),
        claims.close("rate.measured", f"NGD: {text} is -1", "ours", ngd, -1.0, 0.02),
        claims.close("rate.momentum", f"NGD-mom: {text} is -1", "ours", momentum, -1.0, 0.02),
        claims.close("rate.polyak", f"Polyak: {text} is -1", "ours", polyak, -1.0, 0.02),
        claims.at_least("rate.gd", slow, "ours", last["GD"].min(), -0.2),
    ]


def draw(histories: Mapping[str, History], plain_error: Sequence[float], caption: str) -> Figure:
    """Three panels: error, missing weight, exponent by decade.

    `plain_error` is that of NGD in ordinary arithmetic, one entry a step.
    """
    figure, (error, weight, rate) = plots.panels(1, 3, height=3.0)
    steps = int(next(iter(histories.values())).iterations[-1])
    found, middle = exponents(histories, steps), decades(steps) * 10**0.5
    for name, history in histories.items():
        t = history.iterations[1:]
        plots.band(error, t, history.direction_error["W_mm"][:, 1:], name)
        plots.band(weight, t, -history.log_miss.max(-1)[:, 1:] / np.log(10), name)
        plots.band(rate, middle, found[name], name, marker="o", markersize=3)
    ordinary = {"color": "0.6", "linewidth": 0.8, "label": "NGD, plain float64", "zorder": 0}
    error.plot(np.arange(len(plain_error)) + 1, plain_error, **ordinary)
    plots.power_law(error, (10, steps), -0.5, 1.5, "Theorem 1: $t^{-1/2}$")
    weight.axhline(SMALLEST_FLOAT, linestyle=":", color="0.3")
    note = {"fontsize": "x-small", "color": "0.3", "va": "bottom"}
    weight.text(1.2, 1.4 * SMALLEST_FLOAT, "above: no float64", **note)
    rate.axhline(-0.5, linestyle=":", color="0.3")
    time = {"xscale": "log", "xlabel": "iteration $t$"}
    error.set(title="Direction error", yscale="log", **time)
    weight.set(title=r"Missing weight, $-\log_{10}(1 - p_{opt})$", yscale="log", **time)
    rate.set(title="Exponent by decade", ylim=(-1.5, 0.1), **time)
    plots.legend(figure, error)
    plots.caption(figure, caption)
    return figure


def numbers(ngd: History, last: Mapping[str, np.ndarray]) -> dict[str, Number]:
    """What the record keeps: fitted exponents; NGD's last direction error and missing weight.

    `last`: each rule's exponents of the last decade, (runs,). Medians over runs.
    """
    found = {
        f"{name.split(',')[0].lower()}_exponent": Number(values.max(), 1e-3)
        for name, values in last.items()
    }
    error, miss = ngd.direction_error["W_mm"][:, -1], ngd.log_miss[:, -1].max(-1)
    found["ngd_direction_error"] = Number(np.median(error), 1e-9)
    found["ngd_missing_weight_power_of_ten"] = Number(np.median(miss) / np.log(10), 1e-2)
    return found
