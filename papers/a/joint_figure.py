"""Paper A's Figure 3: head and attention trained together, drawn from histories, and its record."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.record import Number
from lib.dynamics.history import History
from lib.svm import MaxMargin

SMALLEST_LOG_LOSS = -30  # powers of ten; the loss of NGD falls much further


def panels_of(history: History) -> dict[str, np.ndarray]:
    """The six panels, {title: values (runs, k)}; of an alignment its distance from 1 is drawn."""
    return {
        "Train loss, $\\log_{10} L$": history.log_gap / np.log(10),
        "Norm $\\|W_t\\|$": np.where(history.norm > 0, history.norm, np.nan),
        "Norm $\\|u_t\\|$": history.head_norm,
        "Mean softmax weight of opt token": history.opt_score,
        "Alignment with $W_{mm}$": history.direction_error["W_mm"] ** 2 / 2,
        "Alignment with $u_{mm}$": history.head_direction_error["u_mm"] ** 2 / 2,
    }


def draw(histories: Mapping[str, History], step_size: float, caption: str) -> Figure:
    """Figure 3: medians over runs, bands from the smallest to the largest; Lemma 12's bound."""
    figure, axes = plots.panels(2, 3)
    for name, history in histories.items():
        for axis, (title, values) in zip(axes, panels_of(history).items(), strict=True):
            plots.band(axis, history.iterations[1:], values[:, 1:], name)
            axis.set(title=title, xscale="log", xlim=(1, history.iterations[-1]))
    axes[0].set_ylim(SMALLEST_LOG_LOSS, 1)
    steps, at_ten = next(iter(histories.values())).iterations[-1], 3 * step_size * 10 ** (1 / 3)
    for axis in axes[1:3]:
        axis.set(yscale="log", ylim=(0.1, 1e4))
        plots.power_law(axis, (10, steps), 1 / 3, at_ten, r"$3\eta t^{1/3}$ (Lemma 12)")
    for axis in axes[4:]:
        plots.toward_one(axis, 1e-8)
    for axis in axes[3:]:
        axis.set_xlabel("iteration $t$")
    plots.legend(figure, axes[1])
    plots.caption(figure, caption)
    return figure


def numbers(
    measured: Mapping[int, Mapping[str, np.ndarray]], attention: MaxMargin, head: MaxMargin
) -> dict[str, Number]:
    """What the record keeps; `measured` {iteration: {quantity: (runs,)}}."""
    found = {
        f"{name.replace(' ', '_').replace('|', '')}_at_{t}": Number(np.median(value), 1e-5)
        for t, values in measured.items()
        for name, value in values.items()
    }
    found["norm_of_W_mm"] = Number(np.median(attention.norm), 1e-6)
    found["norm_of_u_mm"] = Number(np.median(head.norm), 1e-6)
    return found
