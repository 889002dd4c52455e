"""Paper A's Figures 2, 3 and 5 in the paper's panels, each followed by what we add.

What we add has its own panels: loss gaps on logarithmic axes, rules without a cap,
Lemma 5, Eq. 13 with its decay, and Figure 2's problem over a million iterations.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from lib.dynamics import History
from papers import fits, pieces
from papers.a import figure_sentences, fixed_head, joint_training

Histories = Mapping[str, History]
SMALLEST_FLOAT = -np.log10(5e-324)  # in the units in which the missing weight is drawn
# lowest power of ten that is drawn; the loss of NGD falls much further
SMALLEST_LOG_LOSS = -30
# The look of each name in the paper's legends.
PAPER_NAMES = {"Polyak-step": "Polyak"}


def _over_time(
    axes: Sequence[Axes], histories: Histories, panels: Callable, shown: slice
) -> None:
    """Draw medians over runs and their spread, a line a rule and a panel a quantity.

    Parameters
    ----------
    axes : sequence of Axes
        One for each of panels(history), {title: values (runs, k)}.
    histories : mapping of str to History
        Rules by the name that the legend shows.
    panels : function
        From a history to {title: values (runs, k)}.
    shown : slice
        The records that are drawn.
    """
    for name, history in histories.items():
        t = history.iterations[shown]
        look = plots.look(PAPER_NAMES.get(name, name))
        for axis, (title, values) in zip(axes, panels(history).items(), strict=True):
            plots.band(axis, t, values[:, shown], name, like=look)
            axis.set(title=title, xscale="log", xlim=(1, t[-1]))


def _until(histories: Histories, first: int, horizon: int) -> slice:
    """Return the records from record `first` on with t <= horizon."""
    iterations = next(iter(histories.values())).iterations
    return slice(first, int(np.searchsorted(iterations, horizon, side="right")))


def _time_below(axes: Sequence[Axes]) -> None:
    for axis in axes:
        axis.set_xlabel("iteration $t$")


def figure2(
    histories: Histories,
    setting: figure_sentences.Setting,
    least_loss: np.ndarray,
    caption: str,
) -> Figure:
    """Draw Figure 2 or 5: the paper's four panels and four rules.

    Parameters
    ----------
    histories : mapping of str to History
        The rules of `figure_sentences.rules2`.
    setting : Setting
        Its horizon is the last iteration drawn, its `polyak_cap` is where the mark
        stands.
    least_loss : ndarray, shape (runs,)
        L*, the infimum of the train loss.
    caption : str
    """
    figure, axes = plots.panels(2, 2, height=2.3, why="the paper's own four panels")

    def panels(run: Any):
        return {
            "Train loss $L(W_t)$": least_loss[:, None] + np.exp(run.log_gap),
            r"Norm $\|W_t\|$": run.norm,
            "Mean softmax score of the opt token": run.opt_score,
            "Alignment with $W_{mm}$": run.alignment["W_mm"],
        }

    shown = _until(histories, 1, setting.horizon)
    _over_time(axes, histories, panels, shown)
    _time_below(axes[2:])
    loss, norm, score, alignment = axes
    level = float(np.median(least_loss))
    loss.axhline(level, **plots.LEVEL)
    pieces.beside(loss, 1, level, "$L^*$", plots.GREY, (4, 2))
    loss.set_ylim(0, None)
    norm.set_yscale("log")
    for axis in (score, alignment):
        axis.set_ylim(0, 1.04)
    # From the mark on, Polyak's cap binds in every run.
    polyak = histories["Polyak-step"]
    look = plots.look("Polyak")
    since = int(figure_sentences.capped_since(polyak, setting.polyak_cap).max())
    at = polyak.iterations[since], np.median(polyak.norm[:, since])
    norm.plot(*at, markersize=4, **look.mark)
    pieces.beside(norm, *at, "the cap binds", look.colour, (3, -9))
    return plots.caption(plots.legend(figure, loss), caption)


def figure2_beyond(
    histories: Histories, caption: str, crowd: History | None = None
) -> Figure:
    """Draw what Figure 2's panels cannot show: gaps on logarithmic axes, without caps.

    Parameters
    ----------
    histories : mapping of str to History
        "GD", "NGD", "NGD-mom" and "Polyak, no cap" at least.
    caption : str
    crowd : History, optional
        Many data sets trained by NGD. If given, the first panel shows Lemma 5 on them
        in place of the loss gap.
    """
    figure, axes = plots.panels(1, 3, height=2.7)

    def panels(run: Any):
        return {
            r"Loss gap, $\log_{10}(L - L^*)$": run.log_gap / np.log(10),
            "Direction error": run.direction_error["W_mm"],
            r"Missing weight, $\log_{10}(1 - p_{opt})$": run.log_miss.max(-1)
            / np.log(10),
        }

    _over_time(axes, histories, panels, slice(1, None))
    _time_below(axes)
    gap, error, missing = axes
    for axis in (gap, missing):
        axis.set_ylim(SMALLEST_LOG_LOSS, 1)
        pieces.note(axis, "lines go\non below", 0.04, 0.04, colour=plots.GREY)
    error.set_yscale("log")
    ngd = histories["NGD"]
    steps = ngd.iterations[-1]
    end = np.median(ngd.direction_error["W_mm"][:, -1])
    pieces.theorem1(error, (steps / 10, steps), 0.3)
    slope = np.median(fits.exponent(ngd, "W_mm", since=steps / 10))
    words = f"NGD: $t^{{{slope:.2f}}}$,\nends {end:.3f} off"
    pieces.note(error, words, 0.04, 0.05, colour=plots.look("NGD").colour)
    if crowd is not None:
        _smallest_weights(gap, crowd)
    return plots.caption(plots.legend(figure, error), caption)


def _smallest_weights(axis: Axes, crowd: Any):
    """Draw Lemma 5 in every data set: the smallest p_opt of any sample, divided by its
    start.
    """
    p_opt = -np.expm1(crowd.log_miss)  # (draws, k, n)
    smallest = (p_opt / p_opt[:, :1]).min(-1)
    axis.clear()
    axis.plot(
        crowd.iterations, smallest.T, color=plots.FAINT, linewidth=0.5, rasterized=True
    )
    worst = smallest[smallest.min(1).argmin()]
    look = plots.look("stops")
    axis.plot(crowd.iterations, worst, color=look.colour)
    lowest = crowd.iterations[worst.argmin()], worst.min()
    pieces.beside(axis, *lowest, f"down to {worst.min():.2f}", look.colour, (-8, 0))
    title = f"Least $p_{{opt}}(t)/p_{{opt}}(0)$,\n{len(smallest)} data sets, NGD"
    axis.set(title=title, xlabel="iteration $t$", xscale="log")
    axis.set(xlim=(1, crowd.iterations[-1]), ylim=(0.75, 1.5))
    axis.axhline(1.0, **plots.LEVEL)
    pieces.note(axis, "lines go\non above", 0.96, 0.97, "top", plots.GREY)


def settings(
    sweeps: Mapping[str, figure_sentences.Sweep],
    sentences: Mapping[str, figure_sentences.Sentence],
    chosen: Mapping[str, figure_sentences.Setting],
    caption: str,
) -> Figure:
    """Draw, for each sentence, the share of settings in which it is true.

    Parameters
    ----------
    sweeps : mapping of str to Sweep
        By the figure's name; their sentences are the same.
    sentences : mapping of str to Sentence
    chosen : mapping of str to Setting
        The setting drawn in each figure: the mark is filled if the sentence is true in
        it.
    caption : str
    """
    count = len(sentences) + 1
    row_height = 0.22 if len(sweeps) == 1 else 0.38  # inches
    figure, (axis,) = plots.panels(1, 1, height=0.8 + row_height * count)
    labels = [sentence.short for sentence in sentences.values()] + ["all of them"]
    for row, (name, sweep) in enumerate(sweeps.items()):
        look = plots.SERIES[row]
        shares = [*sweep.shares.values(), sweep.true.all(1).mean()]
        truths = [*sweep.of(chosen[name]).values()]
        truths.append(all(truths))
        for place, (share, true) in enumerate(zip(shares, truths, strict=True)):
            height = place + 0.2 * (2 * row - len(sweeps) + 1)
            face = look.colour if true else "none"
            label = name if place == 0 else None
            axis.plot([0, share], [height, height], color=look.colour, linewidth=1)
            mark = {
                "markersize": 5,
                "markerfacecolor": face,
                "label": label,
                "clip_on": False,
            }
            axis.plot(share, height, **look.mark, **mark)
            pieces.beside(
                axis, share, height, pieces.percent(share), look.colour, (6, 0)
            )
    settings_tried = len(next(iter(sweeps.values())).settings)
    axis.set_yticks(range(count), labels, fontsize="small")
    axis.set(xlim=(0, 1.08), ylim=(count - 0.5, -0.5))
    axis.set(title=f"Share of {settings_tried} settings in which a sentence is true")
    axis.tick_params(axis="y", length=0)
    if len(sweeps) > 1:
        plots.legend(figure, axis)
    return plots.caption(figure, caption)


def horizon(histories: Mapping, plain_error: Sequence, caption: str) -> Figure:
    """Draw a long run: direction error, missing weight, and exponent by decade.

    `plain_error` (steps,) is the direction error in plain float64.
    """
    figure, (error, weight, rate) = plots.panels(1, 3, height=3.0)
    steps = int(next(iter(histories.values())).iterations[-1])
    slopes = fixed_head.decade_exponents(histories, steps)
    middle = 10 ** np.arange(1.5, int(np.log10(steps)))
    heights = []
    powers = []
    for name, history in histories.items():
        t = history.iterations[1:]
        plots.band(error, t, history.direction_error["W_mm"][:, 1:], name)
        weights = -history.log_miss.max(-1)[:, 1:] / np.log(10)
        plots.band(weight, t, weights, name)
        plots.band(rate, middle, slopes[name], name, marker="o", markersize=3)
        missing, power = (np.median(row[:, -1]) for row in (weights, slopes[name]))
        heights.append((missing, f"{missing:,.0f}", plots.look(name).colour))
        powers.append((power, f"{power:.3f}", plots.look(name).colour))
    ordinary = {
        "color": plots.GREY,
        "linewidth": 0.8,
        "label": "_plain float64",
        "zorder": 0,
    }
    error.plot(np.arange(len(plain_error)) + 1, plain_error, **ordinary)
    hook = int(np.argmax(plain_error[100:])) + 100
    at = hook + 1, plain_error[hook]
    pieces.beside(error, *at, "plain float64\nstops here", plots.GREY, (3, 0))
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


def cost(
    pairs: np.ndarray,
    gram: np.ndarray,
    factored: np.ndarray,
    gram_limit: np.ndarray,
    factored_limit: np.ndarray,
    solved: np.ndarray,
    caption: str,
) -> Figure:
    """Draw the time of a step in two forms with the memory's limit, and that of the
    SVM.

    Parameters
    ----------
    pairs : ndarray (k,)
        The numbers of pairs.
    gram, factored : ndarray (k,)
        Seconds for a step in either form; NaN where it was not measured.
    gram_limit, factored_limit : ndarray (k,)
        Seconds for reading what either form reads.
    solved : ndarray (k,)
        Seconds for the token SVM.
    caption : str
    """
    figure, (step, svm) = plots.panels(1, 2, height=3.0)
    forms = {
        "Gram form": (gram, gram_limit, plots.SERIES[0]),
        "factored": (factored, factored_limit, plots.SERIES[1]),
    }
    heights = []
    for name, (seconds, limit, look) in forms.items():
        step.plot(pairs, 1e3 * seconds, color=look.colour, marker="o", markersize=4)
        step.plot(pairs, 1e3 * limit, color=look.colour, linestyle="--", linewidth=0.8)
        last = np.flatnonzero(np.isfinite(seconds))[-1]
        heights.append((1e3 * seconds[last], name, look.colour))
    svm.plot(pairs, solved, color=plots.BLACK, marker="o", markersize=4)
    both = {"xscale": "log", "yscale": "log", "xlabel": "pairs of tokens, $m$"}
    step.set(title="One step; dashed: reading its arrays", ylabel="ms", **both)
    svm.set(title="The token SVM, with its certificate", ylabel="s", **both)
    pieces.end_labels(step, heights)
    return plots.caption(figure, caption)


def figure3(histories: Histories, horizon: int, caption: str) -> Figure:
    """Draw Figure 3: the paper's six panels and four rules.

    Parameters
    ----------
    histories : mapping of str to History
        The rules of `figure_sentences.rules3`.
    horizon : int
        The last iteration drawn.
    caption : str
    """
    figure, axes = plots.panels(2, 3, why="the paper's own six panels")

    def panels(run: Any):
        return {
            "Train loss $L$": np.exp(run.log_gap),
            r"Norm $\|W_t\|$": np.where(run.norm > 0, run.norm, np.nan),
            r"Norm $\|u_t\|$": run.head_norm,
            "Mean softmax score": run.opt_score,
            "Alignment with $W_{mm}$": run.alignment["W_mm"],
            "Alignment with $u_{mm}$": run.head_alignment["u_mm"],
        }

    shown = _until(histories, 1, horizon)
    _over_time(axes, histories, panels, shown)
    _time_below(axes[3:])
    loss, norm, head_norm, score, *alignments = axes
    for axis in (loss, norm, head_norm):
        axis.set_yscale("log")
    score.set_ylim(0.45, 1.03)
    for axis in alignments:
        low = axis.get_ylim()[0]
        axis.set_ylim(low, 1 + 0.06 * (1 - low))
    # "Slightly" in numbers: the two NGD rules differ most in ||W||.
    ends = {
        name: np.median(histories[name].norm[:, shown][:, -1])
        for name in ("NGD", "NGD-joint")
    }
    factor = ends["NGD"] / ends["NGD-joint"]
    words = f"NGD {factor:.1f} times\nNGD-joint"
    pieces.note(norm, words, 0.04, 0.96, "top", plots.look("NGD").colour)
    return plots.caption(plots.legend(figure, loss), caption)


def figure3_beyond(histories: Histories, step_size: float, caption: str) -> Figure:
    """Draw what Figure 3 leaves out: Eq. 13 with its decay, Lemma 12, and a long
    horizon.

    Parameters
    ----------
    histories : mapping of str to History
        "NGD, decay" among them.
    step_size : float
        eta of Eq. 13.
    caption : str
    """
    figure, axes = plots.panels(1, 3, height=2.9)

    def panels(run: Any):
        return {
            r"Train loss, $\log_{10} L$": run.log_gap / np.log(10),
            r"Norm $\|W_t\|$": np.where(run.norm > 0, run.norm, np.nan),
            "Direction error of $W$": run.direction_error["W_mm"],
        }

    _over_time(axes, histories, panels, slice(1, None))
    _time_below(axes)
    loss, norm, error = axes
    loss.set_ylim(SMALLEST_LOG_LOSS, 1)
    pieces.note(loss, "lines go\non below", 0.04, 0.04, colour=plots.GREY)
    decayed = histories["NGD, decay"]
    look = plots.look("NGD, decay")

    def bound(t: np.ndarray):
        return 3 * step_size * t ** (1 / 3)

    norm.set(yscale="log", ylim=(0.1, 1e4))
    error.set_yscale("log")
    ends = 10, decayed.iterations[-1]
    plots.power_law(
        norm, ends, 1 / 3, bound(10), r"$3\eta t^{1/3}$ (Lemma 12, our reading)"
    )
    said = "NGD, decay, of its bound:"
    for t in [t for t in joint_training.REFERENCE if t > 100]:
        height = np.median(decayed.norm[:, np.searchsorted(decayed.iterations, t)])
        norm.plot(t, height, ms=6, mec=plots.PAPER, zorder=4, **look.mark)
        said += f"\n{height:.3g} of {bound(t):#.3g} at $t$ = {t:,}"
    pieces.note(norm, said, 0.04, 0.97, "top", look.colour)
    return plots.caption(plots.legend(figure, norm), caption)


def theorem1(history: History, caption: str) -> Figure:
    """Draw runs that satisfy Theorem 1's hypotheses: the direction error and the opt
    weights.

    Parameters
    ----------
    history : History
        Runs of NGD with the target "W_mm".
    caption : str
        What is drawn, for below the figure.

    Returns
    -------
    Figure
        Left, the direction error of each run, with a line of the bound's slope; right,
        the smallest softmax weight of an opt token of each run.
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
    # The line lies above every curve, since the bound's constant is unknown.
    height = 2 * error[:, t >= since].max()
    plots.power_law(left, (since, t[-1]), -0.5, height, "Theorem 1: $t^{-1/2}$")
    pieces.beside(left, t[-1] / 10, height / 10**0.5, "slope only", plots.GREY, (4, 4))
    left.set(
        title="Direction error", xscale="log", yscale="log", xlabel="iteration $t$"
    )
    right.set(
        title="Smallest weight of an opt token", xscale="log", xlabel="iteration $t$"
    )
    right.axhline(0.5, **plots.LEVEL)
    return plots.caption(figure, caption)
