"""Paper A's Figures 2 and 5: four rules on a fixed head, drawn from histories, and their record."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.record import Number
from lib.dynamics.history import History
from lib.svm import MaxMargin
from papers import fits

FIRST = ("GD", "NGD", "NGD-mom", "Polyak")  # the rules that Figure 2 compares at first
THRESHOLD = 0.01  # of the loss gap: how soon a rule reaches it is compared


def panels_of(history: History) -> tuple[tuple[str, np.ndarray, dict], ...]:
    """The six panels: title, values (runs, k), axis options.

    Loss gap and missing weight are drawn as powers of ten: they leave the range of floats.
    """
    gap, miss = history.log_gap / np.log(10), history.log_miss.max(-1) / np.log(10)
    error = history.direction_error["W_mm"]
    deep = {"ylim": (-30, 1)}
    return (
        ("Loss gap, $\\log_{10}(L - L^*)$", gap, deep),
        ("Norm $\\|W_t\\|$", history.norm, {"yscale": "log"}),
        ("Mean weight of the opt token", history.opt_score, {}),
        ("Alignment with $W_{mm}$", history.alignment["W_mm"], {}),
        ("Direction error", error, {"yscale": "log"}),
        ("Missing weight, $\\log_{10}(1 - p_{opt})$", miss, deep),
    )


def slope_of(histories: Mapping[str, History]) -> float:
    """Exponent in t of NGD's direction error over the last decade, median over runs."""
    history = histories["NGD"]
    return float(np.median(fits.exponent(history, "W_mm", since=history.iterations[-1] / 10)))


def draw(histories: Mapping[str, History], caption: str, crowd: History | None = None) -> Figure:
    """Figure 2 or 5: medians over runs, bands from the smallest to the largest.

    With a `crowd`, many draws of NGD, its weights of opt tokens take the place of the alignment.
    """
    figure, axes = plots.panels(2, 3)
    for rule, history in histories.items():
        line = "--" if "no cap" in rule else "-"
        for axis, (title, values, options) in zip(axes, panels_of(history), strict=True):
            plots.band(axis, history.iterations, values, rule, linestyle=line)
            axis.set(title=title, xscale="log", xlim=(1, history.iterations[-1]), **options)
    axes[0].axhline(np.log10(THRESHOLD), linestyle=":", color="0.3")
    axes[0].text(1.2, np.log10(THRESHOLD) - 0.5, f"${THRESHOLD}$", color="0.3", va="top")
    if crowd is not None:
        _least_weights(axes[3], crowd)
    steps, slope = histories["NGD"].iterations[-1], slope_of(histories)
    for axis in axes[3:]:
        axis.set_xlabel("iteration $t$")
    plots.power_law(axes[4], (steps / 10, steps), -0.5, 0.3, "Theorem 1: $t^{-1/2}$")
    own = {"transform": axes[4].transAxes, "color": plots.COLOURS["NGD"]}
    axes[4].text(0.04, 0.06, f"NGD measured: $t^{{{slope:.2f}}}$", **own)
    plots.legend(figure, axes[4])
    plots.caption(figure, caption)
    return figure


def _least_weights(axis, crowd):
    """Lemma 5 in every draw: p_opt over its start, of the sample where it is least."""
    p_opt = -np.expm1(crowd.log_miss)  # (draws, k, n)
    least = (p_opt / p_opt[:, :1]).min(-1)
    axis.clear()
    axis.plot(crowd.iterations, least.T, color="0.7", linewidth=0.5)
    worst = least[least.min(1).argmin()]
    axis.plot(crowd.iterations, worst, color=plots.COLOURS["NGD"])
    title = f"Least $p_{{opt}}(t)/p_{{opt}}(0)$, {len(least)} draws"
    axis.set(title=title, xscale="log", xlim=(1, crowd.iterations[-1]), ylim=(0.75, 1.5))
    axis.axhline(1.0, linestyle=":", color="0.3")


def numbers(histories: Mapping[str, History], target: MaxMargin, polyak: float) -> dict:
    """What the record keeps; `polyak` is its iterations over the next best rule's."""
    history = histories["NGD"]
    error, miss = history.direction_error["W_mm"][:, -1], history.log_miss[:, -1].max(-1)
    return {
        "norm_of_W_mm": Number(np.median(target.norm), 1e-6),
        # The start is drawn in a QR basis, and tokens that a class shares leave signs of that basis
        # to rounding: another processor draws another start, and these errors move by about 1e-5.
        "ngd_direction_error": Number(np.median(error), 1e-6),
        "ngd_direction_error_worst": Number(error.max(), 1e-6),
        "ngd_exponent": Number(slope_of(histories), 1e-5),
        "ngd_log_missing_weight": Number(np.median(miss), 1e-4),
        "polyak_over_next_best": Number(polyak, 1e-6),
    }
