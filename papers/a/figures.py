"""Paper A's Figures 2, 3 and 5 with the paper's panels, each followed by our additions.

Our additions have their own figures: rules without a cap on logarithmic axes, Lemma 5,
Eq. 13 with its decay, and Figure 2's problem over a million iterations.
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
# The look of each name in the paper's legends.
PAPER_NAMES = {"Polyak-step": "Polyak"}
# The usual name of each rule, for the ends of lines.
NAMES = {
    "NGD": "normalised GD",
    "NGD-mom": "with momentum",
    "Polyak-step": "Polyak's rule",
    "Polyak, no cap": "Polyak's rule",
}


def _over_time(
    axes: Sequence[Axes], histories: Histories, panels: Callable, shown: slice
) -> None:
    """Draw medians over runs and their spread, one line per rule and one panel per
    quantity.

    Parameters
    ----------
    axes : sequence of Axes
        One for each entry of panels(history), which is {title: values (runs, k)}.
    histories : mapping of str to History
        The rules, by the name that the legend shows.
    panels : function
        A function from a history to {title: values (runs, k)}.
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
        The horizon of the setting is the last iteration drawn. The mark is drawn at the
        iteration from which every step of Polyak's rule is at `polyak_cap`. All runs
        must reach such an iteration.
    least_loss : ndarray, shape (runs,)
        L*, the infimum of the train loss.
    caption : str
    """
    figure, axes = plots.panels(2, 2, height=2.3, why="the paper's own four panels")

    def panels(run: Any):
        return {
            "Train loss $L(W_t)$": least_loss[:, None] + np.exp(run.log_gap),
            r"Norm $\|W_t\|$": run.norm,
            "Mean softmax score of the best token": run.opt_score,
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
    norm.set_ylim(None, 4 * norm.get_ylim()[1])
    for axis in (score, alignment):
        axis.set_ylim(0, 1.04)
    # From the mark on, Polyak's cap binds in every run.
    polyak = histories["Polyak-step"]
    look = plots.look("Polyak")
    since = int(figure_sentences.capped_since(polyak, setting.polyak_cap).max())
    at = polyak.iterations[since], np.median(polyak.norm[:, since])
    norm.plot(*at, markersize=4, **look.mark)
    words = "from here on\nat its cap"
    pieces.beside(norm, *at, words, look.colour, (-4, 10))
    figure.draw_without_rendering()
    pieces.line_names(norm, words=NAMES)
    return plots.caption(figure, caption)


def figure2_beyond(histories: Histories, caption: str) -> Figure:
    """Draw the direction error of Figure 2's rules without caps, on logarithmic axes.

    Parameters
    ----------
    histories : mapping of str to History
        The rules that are drawn, by name; one of them is "NGD".
    caption : str
    """
    figure, (error,) = plots.panels(1, 1, height=3.0)

    def panels(run: Any):
        return {
            "Distance of the direction from that of $W_{mm}$": (
                run.direction_error["W_mm"]
            )
        }

    _over_time([error], histories, panels, slice(1, None))
    _time_below([error])
    error.set_yscale("log")
    ngd = histories["NGD"]
    steps = ngd.iterations[-1]
    late = int(np.searchsorted(ngd.iterations, steps / 10))
    height = np.median(ngd.direction_error["W_mm"][:, late])
    plots.slope(
        error,
        (0.1 * steps, 0.3 * steps),
        -0.5,
        1.25 * height,
        "Theorem 1, slope only",
        (36, -4),
    )
    slope = np.median(fits.exponent(ngd, "W_mm", since=steps / 10))
    middle = int(np.searchsorted(ngd.iterations, steps / 3))
    at = ngd.iterations[middle], np.median(ngd.direction_error["W_mm"][:, middle])
    pieces.beside(
        error, *at, f"$t^{{{slope:.2f}}}$", plots.look("NGD").colour, (-3, -6)
    )
    figure.draw_without_rendering()
    pieces.line_names(error, words=NAMES)
    return plots.caption(figure, caption)


def smallest_weights(crowd: History, caption: str) -> Figure:
    """Draw Lemma 5 on many data sets: the smallest weight of an opt token over the
    samples, where each weight is divided by its value at the start.

    Parameters
    ----------
    crowd : History
        Many data sets trained by NGD.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    p_opt = -np.expm1(crowd.log_miss)  # (draws, k, n)
    smallest = (p_opt / p_opt[:, :1]).min(-1)
    axis.plot(
        crowd.iterations, smallest.T, color=plots.FAINT, linewidth=0.5, rasterized=True
    )
    worst = smallest[smallest.min(1).argmin()]
    # How many data sets have a weight that falls below its start by more than rounding.
    falling = (smallest.min(1) < 1 - 1e-12).sum()
    if falling:
        look = plots.look("stops")
        axis.plot(crowd.iterations, worst, color=look.colour, linewidth=2)
        lowest = crowd.iterations[worst.argmin()], worst.min()
        words = f"{falling} of {len(smallest)},\ndown to {worst.min():.2f}"
        pieces.beside(axis, *lowest, words, look.colour, (8, -2))
        others = f"the other {len(smallest) - falling}"
    else:
        others = f"all {len(smallest)}"
    pieces.note(axis, others, 0.25, 0.75, colour=plots.GREY)
    title = "Least weight of a best token, divided by that at the start"
    axis.set(title=title, xlabel="iteration $t$", xscale="log")
    axis.set(xlim=(1, 200), ylim=(0.68, 1.5))
    plots.threshold(axis, 1.0, "as at the start", at=0.86)
    return plots.caption(figure, caption)


def settings(
    sweep: figure_sentences.Sweep,
    sentences: Mapping[str, figure_sentences.Sentence],
    caption: str,
) -> Figure:
    """Draw, for each sentence, the share of settings in which it is true.

    The top row is the share of settings in which all sentences are true at once. A
    sentence that is true in no setting is orange and comes next. If more than two
    sentences are true in all settings, they share the last row.

    Parameters
    ----------
    sweep : Sweep
        The sentences that are true in each setting.
    sentences : mapping of str to Sentence
    caption : str
    """
    always = [each for each in sentences if sweep.shares[each] == 1]
    # Sentences that are always true come last, because they may share a row.
    order = sorted(sentences, key=lambda each: (sweep.shares[each], each in always))
    names = [sentences[each].short for each in order]
    if len(always) > 2:
        order = order[: -len(always) + 1]
        names = [*names[: len(order) - 1], f"{len(always)} more sentences"]
    places = [0.0, *np.arange(len(order)) + 1.6]  # leave a gap below the first row
    figure, (axis,) = plots.panels(1, 1, height=0.9 + 0.21 * (places[-1] + 1))
    together = f"all {len(sentences)} at once"
    shares = [sweep.true.all(1).mean(), *(sweep.shares[each] for each in order)]
    for place, share in zip(places, shares, strict=True):
        look = plots.look("measured" if share > 0 else "stops")
        axis.plot([0, share], [place, place], color=look.colour, linewidth=2)
        axis.plot(share, place, "o", color=look.colour, markersize=5, clip_on=False)
        words = pieces.percent(share)
        if place == 0:
            words += f": {sweep.true.all(1).sum()} of {len(sweep.settings)} settings"
            if not sweep.true.all(1).any():
                most = sweep.true.sum(1)
                best = (most == most.max()).sum()
                words += f"; at most {most.max()} are true, in {best} settings"
        pieces.beside(axis, share, place, words, look.colour, (6, 0))
    axis.set_yticks(places, [together, *names])
    axis.set_xlabel(f"share of {len(sweep.settings)} settings in which it is true")
    axis.tick_params(axis="y", length=0, labelsize="small")
    axis.get_yticklabels()[0].set_fontweight("bold")
    axis.set(xlim=(0, 1.08), ylim=(places[-1] + 0.6, -0.6))
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axis.grid(False, axis="y")
    return plots.caption(figure, caption)


def horizon(histories: Mapping, plain_error: Sequence, caption: str) -> Figure:
    """Draw a long run: the direction error, and its exponent in t in each decade.

    `histories` has the rules by name. `plain_error` (steps,) is the direction error of
    NGD at t = 1, 2, ... in plain float64, without our measures against rounding errors.
    It must have more than 100 steps.
    """
    figure, (error, rate) = plots.panels(1, 2, height=3.1)
    steps = int(next(iter(histories.values())).iterations[-1])
    slopes = fixed_head.decade_exponents(histories, steps)
    middle = 10 ** np.arange(1.5, int(np.log10(steps)))
    ends = []
    powers = {}
    for name, history in histories.items():
        t = history.iterations[1:]
        errors = history.direction_error["W_mm"][:, 1:]
        plots.band(error, t, errors, name)
        plots.band(rate, middle, slopes[name], name, marker="o", markersize=3)
        colour = plots.look(name).colour
        ends.append((np.median(errors[:, -1]), NAMES.get(name, name), colour))
        power = f"$t^{{{np.median(slopes[name][:, -1]):.2f}}}$"
        powers.setdefault(power, []).append(np.median(slopes[name][:, -1]))
    ordinary = {"color": plots.GREY, "linewidth": 1.2, "linestyle": "--", "zorder": 0}
    error.plot(np.arange(len(plain_error)) + 1, plain_error, **ordinary)
    hook = int(np.argmax(plain_error[100:])) + 100
    at = hook + 1, plain_error[hook]
    words = "normalised GD in plain float64:\nrounding errors from here on"
    pieces.beside(error, *at, words, plots.GREY, (0, 4))
    time = {"xscale": "log", "xlabel": "iteration $t$"}
    error.set(title="Distance of the direction from that of $W_{mm}$", **time)
    error.set(yscale="log", xlim=(1, steps), ylim=(None, 10))
    rate.set(title="Exponent of $t$ by decade", ylim=(-1.2, 0.05), **time)
    plots.threshold(rate, -0.5, "Theorem 1: $-1/2$", at=0.62)
    figure.draw_without_rendering()
    pieces.end_labels(error, ends)
    pieces.end_labels(
        rate, [(np.mean(each), power, plots.BLACK) for power, each in powers.items()]
    )
    return plots.caption(figure, caption)


def cost(
    sentences: np.ndarray, gram: np.ndarray, factored: np.ndarray, caption: str
) -> Figure:
    """Draw how long a training step takes, for two forms of the computation.

    Parameters
    ----------
    sentences : ndarray (k,)
        The number of sentences in the data, for each measurement.
    gram, factored : ndarray (k,)
        The seconds per step in each of the two forms. They are NaN where they were not
        measured. The last entry of `factored` must be known.
    caption : str
    """
    figure, (step,) = plots.panels(1, 1, height=2.9)
    looks = {"one matrix of all pairs": plots.BLACK, "factored": plots.look("measured")}
    for (name, look), seconds in zip(looks.items(), (gram, factored), strict=True):
        colour = getattr(look, "colour", look)
        step.plot(sentences, 1e3 * seconds, color=colour, marker="o", markersize=4)
        last = np.flatnonzero(np.isfinite(seconds))[-1]
        at = sentences[last], 1e3 * seconds[last]
        pieces.beside(step, *at, name, colour, (-10, 2))
    words = f"{1e3 * factored[-1]:.1f} ms a step"
    end = sentences[-1], 1e3 * factored[-1]
    pieces.beside(step, *end, words, plots.look("measured").colour, (8, 0))
    step.set(xscale="log", yscale="log", xlabel="sentences of 20 tokens")
    step.set(title="Time of one step, in milliseconds", xlim=(8, 2500))
    step.set_ylim(None, 2 * step.get_ylim()[1])
    step.set_xticks(sentences, [f"{each:,.0f}" for each in sentences])
    step.minorticks_off()
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
    # The text says "slightly". For ||W||, the metric in which the two NGD rules differ
    # most, we print by how much they differ.
    high, low = (
        np.median(histories[name].norm[:, shown][:, -1])
        for name in ("NGD", "NGD-joint")
    )
    pieces.gap(norm, 0.93 * horizon, low, high, "")
    words = f"{high / low:.1f} times"
    colour = plots.look("measured").colour
    if high / low > figure_sentences.SLIGHTLY:
        words += ",\nnot slightly"
        colour = plots.look("stops").colour
    pieces.note(norm, words, 0.04, 0.98, "top", colour)
    names = {"NGD": "normalised GD", "NGD-joint": "its joint form (common norm)"}
    names["Polyak-step"] = "Polyak's rule"
    for line in loss.get_lines():
        line.set_label(names.get(str(line.get_label()), line.get_label()))
    return plots.caption(plots.legend(figure, loss), caption)


def figure3_beyond(decayed: History, step_size: float, caption: str) -> Figure:
    """Draw the norm of W under Eq. 13 with its decay, divided by Lemma 12's bound.

    Parameters
    ----------
    decayed : History
        Runs of NGD with decaying steps, in joint training. Two marks are at the
        iterations 1,000 and 5,000, which must be recorded.
    step_size : float
        The step size eta of Eq. 13.
    caption : str
    """
    figure, (axis,) = plots.panels(1, 1, height=2.8)
    moved = decayed.norm.min(0) > 0
    t = decayed.iterations[moved]
    share = decayed.norm[:, moved] / (3 * step_size * t ** (1 / 3))
    look = plots.look("NGD, decay")
    plots.band(axis, t, share, "NGD, decay", linestyle="-", linewidth=2)
    for each in [each for each in joint_training.REFERENCE if each > 100]:
        at = int(np.searchsorted(t, each))
        middle = np.median(share[:, at])
        axis.plot(each, middle, "o", markersize=5, color=look.colour)
        words = f"{100 * middle:.0f} % at $t$ = {each:,}"
        place = (-6, 4) if each < t[-1] / 5 else (-4, -10)
        pieces.beside(axis, each, middle, words, look.colour, place)
    axis.set(xscale="log", xlim=(t[0], t[-1]), ylim=(0, 1.08), xlabel="iteration $t$")
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axis.set(title=r"Norm of $W_t$, as a share of $3\eta t^{1/3}$")
    plots.threshold(axis, 1.0, r"Lemma 12 as we read it: at most $3\eta t^{1/3}$")
    return plots.caption(figure, caption)


def theorem1(history: History, caption: str) -> Figure:
    """Draw runs that satisfy Theorem 1's hypotheses: the direction error.

    Parameters
    ----------
    history : History
        Runs of NGD with the target "W_mm".
    caption : str
        The text below the figure, which says what is drawn.

    Returns
    -------
    Figure
        The direction error of each run, with short lines that show the slopes of t^-1/2
        and 1/t.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    look = plots.look("NGD")
    moved = history.iterations >= 1
    t = history.iterations[moved]
    error = history.direction_error["W_mm"][:, moved]
    for run in error:
        axis.plot(t, run, color=look.colour, linewidth=0.7, alpha=0.6)
    since = t[-1] / 10
    height = np.median(error[:, np.searchsorted(t, since)])
    words = "Theorem 1: $t^{-1/2}$, slope only"
    plots.slope(axis, (since, 0.9 * t[-1]), -0.5, 1.6 * height, words, (0, 14))
    plots.slope(
        axis, (since, 0.9 * t[-1]), -1, height / 1.6, "$1/t$, slope only", (-5, -5)
    )
    axis.set(title="Distance of the direction from that of $W_{mm}$")
    axis.set(xscale="log", yscale="log", xlabel="iteration $t$", xlim=(1, t[-1]))
    power = fits.exponent(history, "W_mm", since).max()
    figure.draw_without_rendering()
    pieces.end_labels(
        axis, [(np.median(error[:, -1]), f"$t^{{{power:.2f}}}$", look.colour)], 8.5
    )
    return plots.caption(figure, caption)
