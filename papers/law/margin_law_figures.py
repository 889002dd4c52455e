"""Pictures of the law of the margins, and of the settings in which the law changes."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from lib.dynamics import History
from papers import fits, pieces
from papers.law import constant_map, global_map, head_law, joint_law, lp_law
from papers.law import margin_law_runs as runs
from papers.law.margin_law import MarginLaw
from papers.law.margin_law_steps import Cycles, ratio_to_law
from papers.law.tolerances import QUIET
from papers.ours import BOUNDS

# For each rule, the quantity that is constant, and the height of its label.
SHORT = {"GD": ("steps", 0.38), "Polyak": ("cap", 0.18)}
# smaller relative deviations are rounding, which differs between processors
FLOOR = 1e-10
# The rules of one figure, as its legend names them.
RULES = {
    "GD": "GD, growing steps",
    "NGD": "normalised GD",
    "NGD-mom": "normalised GD with momentum",
    "Polyak": "Polyak's rule, growing cap or none",
}
NGD = plots.look("NGD")
ONE = plots.SERIES[0]
SMALL = dict(fontsize="x-small")


def _by_setting(comparisons: Any):
    """Group comparisons by setting, and return a list of (name, comparisons, look).

    If there are more settings than looks in plots.SERIES, the last settings are left
    out.
    """
    names = dict.fromkeys(c.setting.name for c in comparisons)
    groups = ([c for c in comparisons if c.setting.name == name] for name in names)
    return list(zip(names, groups, plots.SERIES, strict=False))


def _logs(axis: Axes, **names: Any):
    """Make both axes logarithmic, and pass `names` to Axes.set."""
    axis.set(xscale="log", yscale="log", **names)


def beside_the_ray(path: np.ndarray, W_mm: np.ndarray, rest: np.ndarray) -> Figure:
    """Draw the path of two weights W_t, (steps + 1, 2), next to the ray of W_mm.

    `W_mm` and `rest` have the shape (2,); `rest` is the predicted offset of the path
    from the ray.
    """
    figure, (plane, distance) = plots.panels(1, 2, height=2.9)
    near = path[np.linalg.norm(path, axis=1) < 8]
    ends = np.outer([0, 8 / np.linalg.norm(W_mm)], W_mm)
    plane.plot(*near.T, **NGD.line)
    plane.plot(*ends.T, **plots.BOUND)
    plane.plot(*(ends + rest).T, **plots.PREDICTED)
    plane.set(
        xlabel="$w_1$", ylabel="$w_2$", title="Two weights in the plane", aspect="equal"
    )
    plane.set(xlim=(-0.3, 6.5), ylim=(-0.7, 7.6))
    pieces.beside(plane, *(0.93 * ends[1]), "ray of $W_{mm}$", plots.GREY, (-6, 0))
    words = "$W_t$; dotted: the\npredicted path"
    pieces.beside(plane, *(0.62 * ends[1] + rest), words, NGD.colour, (8, -6))
    along = np.outer(path @ W_mm, W_mm) / (W_mm @ W_mm)
    away = np.linalg.norm(path - along, axis=1)
    distance.plot(np.arange(1, len(path)), away[1:], **NGD.line)
    distance.axhline(np.linalg.norm(rest), **plots.PREDICTED)
    distance.text(
        1.2, 1.03 * np.linalg.norm(rest), "$C$, from the duals", fontsize="small"
    )
    distance.set(xscale="log", ylim=(0, 1.6), xlabel="iteration $t$")
    distance.set(title="Distance of $W_t$ from the ray")
    return figure


def bound_and_law(history: History, law: MarginLaw) -> Figure:
    """Draw NGD's direction error over t, with the law's C/||W_t|| and the slope of
    Theorem 1.

    The runs start at W_0 = 0 and have all pairs on the support, so that C is the whole
    constant. The history has the target "W_mm".
    """
    figure, (axis,) = plots.panels(1, 1, height=3.2)
    t = history.iterations[1:]
    steps = history.iterations[-1]
    error = history.direction_error["W_mm"][:, 1:]
    size = history.norm[:, 1:]
    plots.band(axis, t, error, "measured", "measured", linewidth=2.4)
    predicted = np.median(law.constant[:, None] / size, axis=0)
    seen = predicted < 2
    axis.plot(t[seen], predicted[seen], **plots.PREDICTED)
    _logs(axis, xlabel="iteration $t$", xlim=(1, steps))
    axis.set(
        ylim=(np.median(error[:, -1]) / 3, 4),
        title="Distance of the direction from that of $W_{mm}$, normalised GD",
    )
    words = "Theorem 1: $t^{-1/2}$, slope only"
    since = steps / 30
    height = 2.5 * np.median(error[:, np.searchsorted(t, since)])
    plots.slope(axis, (since, steps / 3), -0.5, height, words, (0, 12))
    early = int(np.searchsorted(t, 10))
    blue = plots.look("measured").colour
    pieces.beside(axis, t[early], error[0, early], "measured", blue, (0, -6))
    begun = int(np.flatnonzero(seen)[0])
    words = r"predicted: $C\,/\,\|W_t\|$, nothing fitted"
    pieces.beside(axis, t[begun], predicted[begun], words, plots.BLACK, (8, 2))
    power = np.median(fits.exponent(history, "W_mm", since=steps / 10))
    off = np.abs(ratio_to_law(history, "W_mm", law)[:, -1] - 1).max()
    words = f"like $t^{{{power:.3f}}}$ at last,\noff the prediction by {off:.1e}"
    pieces.beside(axis, steps, error[0, -1], words, NGD.colour, (-40, 0))
    return figure


def offsets(
    predicted: np.ndarray, measured: np.ndarray, comparisons: Sequence[runs.Comparison]
) -> Figure:
    """Draw the offsets of one run against their prediction from the SVM's duals.

    `predicted` and `measured` (m,) are the offsets on the support. `comparisons` has
    all runs. Words in the picture say by how much the offsets and the duals of these
    runs deviate.
    """
    figure, (bars,) = plots.panels(1, 1, height=3.1)
    order = np.argsort(-predicted)
    place = np.arange(len(order))
    bars.bar(place, measured[order], width=0.72, color=NGD.colour, alpha=0.45)
    tick = dict(color=plots.BLACK, ms=14, mew=2)
    bars.plot(place, predicted[order], "_", **tick)
    bars.axhline(0, color=plots.GREY, linewidth=0.8)
    bars.set(title="How far each margin is above or below the mean level", xticks=[])
    bars.set(xlabel="pairs of tokens on the support, sorted")
    high, low = np.max(predicted), np.min(predicted)
    pieces.beside(bars, place[0], high, "predicted from the duals", place=(14, 0))
    words = "measured after training by normalised GD"
    pieces.beside(bars, place[0], 0, words, NGD.colour, (1, -4))
    bars.set_ylim(1.15 * low, 1.15 * high)

    # All runs, in words.
    apart = max(np.abs(runs.offsets_missed(one)).max() for one in comparisons)
    words = pieces.written(f"worst pair of all {len(comparisons)} runs:\n{_off(apart)}")
    right = {"ha": "right", "va": "top", "transform": bars.transAxes}
    bars.text(0.98, 0.95, words, fontsize=9, **right)
    return figure


def diagonal(comparisons: Sequence[runs.Comparison]) -> Figure:
    """Draw each run's residual against its predicted constant C.

    A mark is filled if C is the whole predicted residual.
    """
    figure, (line,) = plots.panels(1, 1, height=3.3)
    look = plots.look("measured")
    points = dict(markersize=4.5, markeredgewidth=0.9, **look.mark)

    # The runs on the diagonal.
    worst = 0.0
    for _, group, _ in _by_setting(comparisons):
        predicted = np.array([c.law.constant[0] for c in group])
        measured = np.array([c.measured.residual for c in group])
        filled = np.array([c.duals_alone for c in group])
        deviation = np.abs(measured / predicted - 1)
        worst = max(worst, deviation.max())
        line.plot(
            predicted[filled], measured[filled], markerfacecolor=look.colour, **points
        )
        line.plot(
            predicted[~filled], measured[~filled], markerfacecolor="none", **points
        )

    # The words.
    _logs(line, xlabel="predicted: $C$, from the duals of the SVM")
    pieces.diagonal(line)
    line.set_ylabel(r"measured: $\|W_t\|\times$ error in the span")
    words = {"fontsize": 9, "transform": line.transAxes}
    line.text(0.03, 0.95, "dotted: measured = predicted", va="top", **words)
    off = pieces.written(f"all {len(comparisons)} runs are on it,\n{_off(worst)}")
    line.text(0.97, 0.05, off, ha="right", **words)
    return figure


def _off(worst: float) -> str:
    """Describe the largest deviation in words.

    A small deviation is a rounding error, which differs between processors, so that we
    write "about".
    """
    return f"off by about {worst:.0e} at most"


def _misses_the_law(axis: Axes, name: str, end: tuple, deviation: float) -> None:
    """Mark the end of a run that does not reach the law, and write the reason there.

    The mark is at `end` (x, y). The text says which quantity the rule `name`, a key of
    SHORT, keeps constant, and by which relative `deviation` the run misses the law.
    """
    stops = plots.look("stops")
    axis.plot(*end, ms=7, zorder=4, **stops.mark)
    what, height = SHORT[name]
    rule = {"Polyak": "Polyak's rule"}.get(name, name)
    axis.annotate(
        f"{rule}, constant {what}:\nends {100 * deviation:.0f} % off the line",
        end,
        textcoords="axes fraction",
        xytext=(0.06, height),
        color=stops.colour,
        arrowprops=dict(arrowstyle="-", color=stops.colour),
        **SMALL,
    )


def collapse(histories: Mapping[str, History], law: MarginLaw) -> Figure:
    """Draw the direction error over ||W_t|| with C/||W_t||, for the first run of each
    history.

    The runs start at W_0 = 0 and have all pairs on the support. The histories have the
    target "W_mm".
    """
    figure, (axis,) = plots.panels(1, 1, height=3.2)
    drawn = set()
    for name, history in histories.items():
        size = history.norm[0, 1:]
        error = history.direction_error["W_mm"][0, 1:]
        rule = name.split(",")[0]
        line = {"color": plots.look(rule).colour, "linewidth": 1.2, "alpha": 0.8}
        if "logistic" in name:
            line["linestyle"] = "--"
        label = RULES[rule] if rule not in drawn else None
        drawn.add(rule)
        axis.plot(size, error, label=label, **line)
        if name in SHORT:
            deviation = abs(ratio_to_law(history, "W_mm", law)[0, -1] - 1)
            _misses_the_law(axis, name, (size[-1], error[-1]), deviation)

    # By the law the error is C/||W_t||, because no pair is off the support.
    C = law.constant[0]
    sizes = np.geomspace(2, axis.get_xlim()[1], 50)
    line = plots.PREDICTED | {"linewidth": 2.4, "zorder": 3}
    axis.plot(sizes, C / sizes, **line)
    words = rf"predicted: $C/\|W_t\|$, $C={C:.3f}$"
    pieces.beside(axis, sizes[30], C / sizes[30], words, place=(6, 6))
    axis.plot([], [], "--", color=plots.GREY, label="dashed: logistic loss")
    axis.legend(loc="upper right", **SMALL)
    _logs(axis, xlabel=r"norm $\|W_t\|$ of the weight", ylabel="direction error")
    return figure


def differences(fast: tuple, slow: tuple) -> Figure:
    """Draw the direction errors of W_{2t} and of W_{2t} - W_t.

    `fast` and `slow` are (history, errors, law) of two problems, trained by NGD and by
    GD, with records that double. `errors` (runs, records - 1) are from
    `margin_law_steps.difference_errors`.
    """
    figure, axes = plots.panels(1, 2, height=3.1)
    for axis, (history, errors, _), rule in zip(
        axes, (fast, slow), ("NGD", "GD"), strict=True
    ):
        t = history.iterations[1:]
        plain = history.direction_error["W_mm"][:, 1:]
        plots.band(axis, t, plain, "$W_{2t}$", rule)
        plots.band(axis, t, errors, "$W_{2t}-W_t$", rule, linestyle="--")
        named = {"NGD": "normalised GD"}.get(rule, rule)
        _logs(axis, xlabel="iteration $2t$", title=f"Direction error, {named}")
        axis.set_ylim((1e-17, 3) if rule == "NGD" else None)
        ends = np.median(plain[:, -1]), np.median(errors[:, -1])
        colour = plots.look(rule).colour
        nearer = f"10^{{{np.log10(ends[0] / ends[1]):.1f}}}"
        labels = [
            (ends[0], f"$W_{{2t}}$:\n{ends[0]:.0e}", colour),
            (ends[1], f"$W_{{2t}}-W_t$:\n{ends[1]:.0e}", colour),
            (np.sqrt(ends[0] * ends[1]), f"${nearer}$ times\nnearer", plots.GREY),
        ]
        axis.set_xlim(t[0], t[-1])
        pieces.end_labels(axis, labels)
    history, errors, law = slow
    t = history.iterations[1:].astype(float)
    rate = min(law.slowest[0], 1.0)
    # A short line with the predicted slope, below the curve.
    part = t[len(t) // 3 : len(t) // 2]
    guide = np.log(part) * part**-rate
    guide *= np.median(errors[:, len(t) // 3]) / guide[0] / 12
    axes[1].plot(part, guide, **plots.BOUND)
    words = f"$t^{{-{rate:.2f}}}\\log t$,\nslope only"
    pieces.beside(axes[1], part[-1], guide[-1], words, plots.GREY, (-8, -4))
    return figure


def cycles(runs: Sequence[Cycles]) -> Figure:
    """Draw the last moves of the offsets over the step size, in one panel for each of
    `runs`. The step size is divided by the longest one with which the offsets converge.

    The multiples of a panel are ascending, and some of them are above 1.
    """
    figure, axes = plots.panels(1, len(runs), height=2.8)
    for axis, tried in zip(axes, runs, strict=True):
        look = plots.look("NGD-mom" if tried.momentum else "NGD")
        places = np.arange(len(tried.multiples))
        # The seeds are drawn side by side.
        aside = np.linspace(-0.2, 0.2, len(tried.moved))
        moved = tried.moved.clip(1e-13)
        axis.plot(places + aside[:, None], moved, ms=4.5, mfc="none", **look.mark)
        longer = np.searchsorted(tried.multiples, 1)
        axis.axvline(longer - 0.5, **plots.PREDICTED)
        axis.axhspan(1e-14, QUIET, color=plots.FAINT, alpha=0.5, zorder=0)
        least = moved[:, longer].min()
        pieces.beside(axis, longer - 0.4, least, f"{least:.2f} and more", place=(2, -8))
        fails = plots.look("stops").colour
        for run, place in np.argwhere(moved[:, :longer] > QUIET):
            at = place + aside[run], moved[run, place]
            axis.plot(*at, ms=5.5, mfc="none", **look.mark | {"color": fails})
            pieces.beside(axis, *at, "cycles", fails, (-6, 0))
        axis.set(
            yscale="log",
            ylim=(1e-13, 300),
            xlabel=r"step size, divided by the longest, $\eta/\eta^*$",
        )
        axis.set_xticks(places, [f"{multiple:g}" for multiple in tried.multiples])
        axis.set(title=f"Still moving at the end, momentum {tried.momentum:g}")
    pieces.note(axes[0], "settled", x=0.03, y=0.36)
    pieces.note(axes[0], "cycles", y=0.62)
    return figure


def joint(trained: Mapping[str, joint_law.JointRuns]) -> Figure:
    """Draw the direction error of W and its prediction, for each choice of steps.

    A label says by how much a run deviates at most, at any record, from the prediction
    for this run. The median of these predictions is drawn.
    """
    figure, (error,) = plots.panels(1, 1, height=3.2)
    first = next(iter(trained.values()))
    ends = []
    # No line is black, because the black dots of the prediction lie above their marks.
    seen = [like for like in plots.SERIES if like.colour != plots.BLACK]
    for one, like in zip(trained.values(), seen, strict=False):
        power = Fraction(one.rule.decay).limit_denominator(9)
        if power:
            steps = rf"steps $\propto t^{{-{power}}}$"
        else:
            steps = "constant steps"
        solid = like._replace(dash="-")
        plots.band(error, one.iterations, one.error, steps, solid, linewidth=2.4)
        size = [joint_law.path_length(one.rule, int(t)) for t in one.iterations]
        predicted = np.median(one.law.W_law.constant) / size
        error.plot(one.iterations, predicted, **plots.PREDICTED)
        off = pieces.percent(np.abs(joint_law.path_errors(one)).max())
        measured = f"$t^{{{np.mean(joint_law.exponents(one)):.3f}}}$"
        words = f"{steps}:\n{measured}, off by {off} at most"
        ends.append((np.median(one.error[:, -1]), words, like.colour))

    # The order in Theorem 3, as a short line at an arbitrary height.
    recorded = first.iterations
    t = recorded[len(recorded) // 6 : len(recorded) // 2 + 1]
    bound = 2 * np.median(first.error[:, 0]) * np.log(t[0]) / np.log(t)
    error.plot(t, bound, **plots.BOUND)
    words = r"Theorem 3: $1/\log t$, slope only"
    pieces.beside(error, t[-1], bound[-1], words, plots.GREY, (5, 0))
    _logs(error, xlabel="iteration $t$", title="Direction error of $W_t$")
    error.set_xlim(first.iterations[0], first.iterations[-1])
    error.xaxis.set_minor_formatter("")
    pieces.end_labels(error, ends, 7.5)
    return figure


def thresholds(shares: global_map.GlobalMap) -> Figure:
    """Draw the length of opt tokens at which half of the seeds reach (u_mm, W_mm), and
    the formula.

    Parameters
    ----------
    shares : GlobalMap
        The shares of seeds that reach (u_mm, W_mm), by dimension and length.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    dimensions = np.array(shares.dimensions)
    rows = range(len(dimensions))
    value, low, high = np.array([shares.threshold(row) for row in rows]).T
    between = np.geomspace(dimensions[0], dimensions[-1], 60)
    predicted = np.array([global_map.half_at_once(d, shares.n) for d in between])
    known = np.isfinite(predicted)
    axis.plot(between[known], predicted[known], **plots.PREDICTED)
    later = np.array([global_map.half_with_all_terms(d, shares.n) for d in between])
    axis.plot(between, later, color=plots.GREY, linewidth=1.2, zorder=0)
    blue = plots.look("measured")
    # A threshold beyond the largest alpha has no mark. A bar that reaches beyond it
    # ends there, with an arrow.
    largest_tried = shares.alphas[-1]
    found = np.isfinite(value)
    goes_on = dimensions[~np.isfinite(high)]
    low, high = np.minimum([low, high], largest_tried)
    marks = dimensions[found], value[found]
    bars = [(value - low)[found], (high - value)[found]]
    axis.errorbar(*marks, yerr=bars, ms=5, capsize=2, **blue.mark)
    arrow = {"marker": "^", "ls": "", "ms": 7, "color": blue.colour}
    axis.plot(goes_on, np.full(len(goes_on), largest_tried), **arrow)
    for d, ratio in zip(*marks, strict=True):
        pieces.beside(axis, d, ratio, f"{ratio:.2f}", blue.colour, (-7, -6))
    _logs(axis, xlabel="dimension $d$")
    axis.set_ylabel("length of best tokens\ndivided by that of others")
    axis.set_xlim(dimensions[0] / 1.7, dimensions[-1] * 1.7)
    top = 1.15 * max(high.max(), predicted[known].max(initial=0))
    axis.set_ylim(0.8 * low.min(), top)
    axis.set_xticks(dimensions, [f"{d:,}" for d in dimensions])
    axis.minorticks_off()
    pieces.plain_ticks(axis.yaxis)
    if known.any():
        first = np.argmax(known)
        at = between[first], predicted[first]
        pieces.beside(axis, *at, "predicted by our formula", place=(10, 3))
    words = "with two more terms,\nderived after the runs"
    pieces.beside(axis, between[8], later[8], words, plots.GREY, (-8, -10))
    axis.set(title="Ratio of lengths at which half of the seeds succeed")
    return figure


def two_samples(history: History) -> Figure:
    """Draw the two samples on which joint training fails: the loss above, the
    parameters below.

    Parameters
    ----------
    history : History
        One run on the two samples.
    """
    figure, (above, below) = plots.panels(2, 1, height=1.7)
    t = history.iterations
    loss = np.exp(history.log_gap[0])
    stops = plots.look("stops").colour
    above.plot(t, loss, color=stops)
    above.axhline(0.5, color=plots.GREY, linewidth=0.8)
    above.set(ylim=(0, 1.15), yticks=[0, 0.5, 1], title="Loss")
    pieces.end_labels(above, [(loss[-1], f"loss: {loss[-1]:.2f}", stops)], 8)
    pieces.beside(above, 0, 0.5, "one half", plots.GREY, (4, -3))
    pieces.beside(above, 0, 0, "0: what training should reach", plots.GREY, (4, 3))

    one, two = plots.SERIES[0], plots.SERIES[2]
    lines = {
        "head $u_t$": (history.score_gaps[0, :, 0, 0], one),
        "weight $W_t$": (history.margins[0, :, 0, 0], two),
    }
    ends = []
    for name, (values, like) in lines.items():
        below.plot(t, values, **like.line)
        ends.append((values[-1], name, like.colour))
    below.axhline(0, color=plots.GREY, linewidth=0.8)
    below.set(title="Head and weight: they should grow", xlabel="iteration $t$")
    bottom = min(values.min() for values, _ in lines.values())
    below.set_ylim(1.1 * bottom, -0.25 * bottom)
    for axis in (above, below):
        axis.set_xlim(0, t[-1])
    pieces.end_labels(below, ends, 8)
    return figure


def heads(common: head_law.HeadRuns, each: head_law.HeadRuns) -> Figure:
    """Draw ||W_h||/||W_1|| under both normalisations, and each head's deviation from
    C_h.
    """
    figure, (ratio, off) = plots.panels(1, 2, height=2.9)
    ones = np.ones_like(common.norm)
    rows = {}
    constants = []
    cases = ("one for all", common, common.law.norm), ("one per head", each, ones)
    for (name, one, wanted), like in zip(cases, plots.SERIES, strict=False):
        ratios = [
            head_law.ratios(norm)[:, one.kept].ravel() for norm in (wanted, one.norm)
        ]
        predicted, norms = ratios
        ratio.plot(predicted, norms, ms=5, mfc="none", label=name, **like.mark)
        rows[name.replace(" ", "\n", 1)] = np.abs(norms / predicted - 1)
        share = one.norm * one.error / one.law.constant
        constants.append(share[:, one.kept].ravel() - 1)
    ratio.set(xlabel="predicted from duals", title=r"$\|W_h\|/\|W_1\|$, measured")
    pieces.diagonal(ratio)
    ratio.legend(title="normalisation", title_fontsize="x-small", **SMALL)
    furthest = max(np.abs(values).max() for values in constants)
    pieces.note(ratio, f"$\\|W_h\\|\\times$ error over $C_h$:\n{_off(furthest)}")
    said = [pieces.percent(values.max()) for values in rows.values()]
    ends = 1e-7, 2 * BOUNDS["heads.common"]
    named = dict(title="How far off each ratio is; right: the worst", said=said)
    pieces.strip(off, rows, ends, plots.SERIES[:2], BOUNDS["heads.common"], **named)
    off.set_xlabel("relative error; dashed: asked")
    return figure


PLAIN = {  # the properties of the data that the map varies
    "noise": "noise of the other tokens",
    "imbalance": "tilt of the head",
    "raw noise": "noise on every token",
    "T": "sequence length $T$",
    "n": "samples $n$",
    "d": "dimension $d$",
    "long T": "$T$, at fixed $T/d$",
    "correlation": "correlation",
    "correlation of all": "correlation of all tokens",
}


def constants(points: Sequence[constant_map.Point]) -> Figure:
    """Draw how far each run deviates from the prediction for it, with one row per
    property of the data.

    Parameters
    ----------
    points : sequence of Point
        The runs of the map.
    """
    kept = constant_map.kept(points)
    names = list(dict.fromkeys(p.axis for p in points))
    figure, (misfit,) = plots.panels(1, 1, height=3.3)
    rows = {
        PLAIN.get(name, name): np.abs(
            [constant_map.relative(p) for p in kept if p.axis == name]
        )
        for name in names
    }
    drawn = np.concatenate([*rows.values()])
    drawn = drawn[drawn > 0]
    bound = BOUNDS["map.constant"]
    ends = drawn.min() / 2, 20 * drawn.max()
    said = [f"worst {values.max():.0e}" for values in rows.values()]
    pieces.strip(misfit, rows, ends, said=said)
    arrow = dict(arrowstyle="->", color=plots.GREY)
    axes_fraction = dict(xycoords="axes fraction", textcoords="axes fraction")
    style = dict(ha="right", va="center", color=plots.GREY, fontsize="x-small")
    words = f"required: at most {bound:g}"
    misfit.annotate(
        words, (1, 0.5), (0.95, 0.5), arrowprops=arrow, **axes_fraction, **style
    )
    misfit.set_xlabel("relative error of the predicted direction error")
    return figure


def constant_along(points: Sequence[constant_map.Point]) -> Figure:
    """Draw the law's constant over each property of the data.

    Parameters
    ----------
    points : sequence of Point
        The runs of the map.

    Returns
    -------
    Figure
        One panel per axis of the map, and one colour per seed. Lines are C as computed
        from the duals, circles the part of W that it predicts, as measured. The heights
        are logarithmic and shared, so that the panels can be compared.
    """
    kept = constant_map.kept(points)
    names = list(dict.fromkeys(p.axis for p in points))
    why = "one panel per property of the data"
    figure, panels = plots.panels(3, 3, height=1.6, why=why)
    seeds = list(dict.fromkeys(p.seed for p in kept))
    heights = []
    for axis, name in zip(panels, names, strict=True):
        for seed, like in zip(seeds, itertools.cycle(plots.SERIES)):
            here = [p for p in kept if (p.axis, p.seed) == (name, seed)]
            values = [p.value for p in here]
            predicted = [p.comparison.law.constant[0] for p in here]
            measured = [p.comparison.measured.residual for p in here]
            axis.plot(values, predicted, color=like.colour, linewidth=1)
            dots = {"mfc": "none", "mec": like.colour, "ms": 4}
            axis.plot(values, measured, "o", **dots)
            heights += measured
        if min(constant_map.VALUES[name]) > 0:
            axis.set_xscale("log")
            pieces.plain_ticks(axis.xaxis)
        axis.set_title(PLAIN.get(name, name), fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in panels:
        axis.set(yscale="log", ylim=(min(heights) / 2, 2 * max(heights)))
    panels[3].set_ylabel("the constant $C$")
    return figure


def powers(runs_of: Sequence) -> Figure:
    """Draw the exponent in the norm with which the error falls, over the exponent p.

    Parameters
    ----------
    runs_of : sequence
        Runs of `lp_law.study`; the first of each exponent and start is drawn.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    exponents = np.array(sorted({run.law.p for run in runs_of}))
    looks = {False: plots.SERIES[2], True: plots.SERIES[0]}
    expected = {False: np.full(len(exponents), -1.0)}
    expected[True] = -np.minimum(exponents - 1, 1)
    ends = {False: ("start at zero", (8, -9)), True: ("random start", (10, 3))}
    for started, like in looks.items():
        found = []
        for p in exponents:
            one = next(
                run for run in runs_of if (run.law.p, run.started) == (p, started)
            )
            found.append(np.polyfit(np.log(one.norm), np.log(one.error), 1)[0])
        line = plots.PREDICTED | {"color": like.colour}
        axis.plot(exponents, expected[started], zorder=1, **line)
        size = 9 if started else 5
        face = "none" if started else like.colour
        axis.plot(exponents, found, ms=size, mfc=face, mew=1.6, **like.mark)
        words, place = ends[started]
        pieces.beside(axis, exponents[0], found[0], words, like.colour, place)
    axis.set(
        xlabel="exponent p of mirror descent", ylabel=r"power of the norm $\|W_t\|_p$"
    )
    axis.set(title="Power with which the error falls; dotted: predicted")
    axis.set_xticks(exponents, [f"{p:g}" for p in exponents])
    axis.set_ylim(-1.25, -0.35)
    return figure


def outside(left: Sequence) -> Figure:
    """Draw the measured norm of the part of W outside the support's span, divided by
    the predicted norm.

    Parameters
    ----------
    left : sequence
        Runs of `zero_duals.left_study`.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.1)
    measured, flow, first = np.array(
        [[r.measured[-1], r.predicted[-1], r.first] for r in left]
    ).T
    style = {"ms": 4.5, "mfc": "none"}
    axis.plot(first, measured, **style, **plots.look("stops").mark)
    axis.plot(flow, measured, **style, **plots.look("measured").mark)
    _logs(axis, xlabel="predicted length", ylabel="measured length")
    axis.set_title("Length of the part of $W$ orthogonal to the support pairs")
    everything = np.concatenate([measured, flow, first])
    axis.set_xlim(everything.min() / 1.5, 1.5 * everything.max())
    axis.set_ylim(measured.min() / 1.5, 5 * measured.max())
    axis.set_aspect("equal")
    on_the_line = np.array([measured.min() / 1.5, 1.5 * measured.max()])
    axis.plot(on_the_line, on_the_line, zorder=0, **plots.PREDICTED)
    furthest = first.argmax()
    stops = plots.look("stops").colour
    words = "first-order sum"
    pieces.beside(axis, first[furthest], measured[furthest], words, stops, (0, 9))
    blue = plots.look("measured").colour
    at = flow[flow.argmax()], measured[flow.argmax()]
    pieces.beside(axis, *at, "flow", blue, (-8, 4))
    return figure


def idle_and_moves(zero: Any, zeros: Any, steps: Sequence[lp_law.Settled]) -> Figure:
    """Draw the offsets of pairs whose duals are zero, and the last moves of offsets for
    several step sizes.

    `zero` and `zeros` are runs with one and with several such pairs.
    """
    figure, (offset, moves) = plots.panels(1, 2, height=2.9)
    _idle(offset, zero, zeros)
    _moves(moves, steps)
    return figure


def _idle(axis: Axes, zero: Any, zeros: Any):
    """Draw the offsets of idle pairs minus their constant.

    `zero` has runs with one idle pair each, and `zeros` has runs with several. For each
    number of idle pairs, the first run of `zeros` is drawn.
    """
    several = {}
    for run in zeros:
        several.setdefault(f"{len(run.law.pairs)} idle pairs", run)
    shown = [("one idle pair", run, ONE) for run in zero]
    shown += [
        (*item, like)
        for item, like in zip(several.items(), plots.SERIES[1:3], strict=False)
    ]
    for _, run, like in shown:
        less = run.offsets - run.law.constants
        axis.plot(run.level, less, ms=3, mfc="none", **like.mark)
        axis.plot(run.level, np.log(run.level), **plots.PREDICTED)
    for name, like in {name: like for name, _, like in shown}.items():
        axis.plot([], [], ms=3, mfc="none", label=name, **like.mark)
    axis.plot([], [], label=r"predicted, $\log a_t$", **plots.PREDICTED)
    axis.set(xscale="log", xlabel="margin level $a_t$")
    axis.set_title("Pairs whose dual is zero")
    axis.set_ylabel("offset, minus its constant")
    axis.legend(**SMALL)


def _moves(axis: Axes, steps: Any):
    """Draw how far an offset moves in the last step, under step sizes like t^(p-2) and
    under constant step sizes.
    """
    exponents = dict.fromkeys(settled.law.p for settled in steps)
    for p in exponents:
        of_this_p = [settled for settled in steps if settled.law.p == p]
        moved = np.array([[*run.moved, run.constant] for run in of_this_p]).T
        rules, runs = moved.shape
        style = dict(ms=4, mfc="none", **plots.look(f"p = {p:g}").mark)
        aside = np.linspace(-0.2, 0.2, runs)  # runs are drawn side by side
        axis.plot(np.arange(rules)[:, None] + aside, moved, **style)
        axis.plot([], [], label=f"p = {p:g}", **style)
    names = [f"{share:g}" for share in lp_law.SHARES]
    names.append("constant\nsteps")
    axis.set(yscale="log", xlabel="step length / longest with which offsets settle")
    axis.set_ylabel("how much an offset still moves")
    axis.set_xticks(range(len(names)), names)
    axis.set(xlim=(-0.5, len(names) - 0.5), title="Shrinking and constant steps")
    axis.legend(**SMALL)
