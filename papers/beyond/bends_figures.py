"""The pictures of "Where the law bends": each draws what the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from lib.companion import plots
from lib.dynamics.history import History
from papers.beyond import constant_claims, head_claims
from papers.beyond.constant_map import Point
from papers.beyond.global_map import GlobalMap, half_at_once
from papers.beyond.head_law import HeadRuns
from papers.beyond.joint_law import JointRuns, path_length
from papers.beyond.lp_decay import SHARES, Settled
from papers.beyond.lp_law import LpRun
from papers.beyond.margin_law_figures import FLOOR
from papers.beyond.outside_span import Left
from papers.beyond.zero_duals import ZeroDualsRun

INK = ["#0072B2", "#CC79A7", "#E69F00", "#009E73", "#D55E00", "#56B4E9"]
MARKERS = "os^"
PREDICTED = "0.1"


def joint(found: Mapping[str, JointRuns]) -> Figure:
    """Direction error of W over t with its prediction from duals and steps, and 1/log t from where
    the first begins, which is Theorem 3's order; right: per run."""
    figure, (error, diagonal) = plots.panels(1, 2, height=3.1)
    first = next(iter(found.values()))
    bound = np.median(first.error[:, 0]) * np.log(first.iterations[0]) / np.log(first.iterations)
    error.plot(first.iterations, bound, "--", color="0.5", lw=1, label=r"$1/\log t$, Theorem 3")
    for (name, runs), colour, marker in zip(found.items(), INK, MARKERS):
        plots.band(error, runs.iterations, runs.error, name, colour)
        size = [path_length(runs.rule, int(t)) for t in runs.iterations]
        error.plot(runs.iterations, np.median(runs.of.law.constant) / size, ":", color=PREDICTED)
        level = runs.of.at_level(runs.level).constant
        measured = runs.norm[:, -1] * runs.error[:, -1]
        style = dict(marker=marker, linestyle="", ms=5, mfc="none", color=colour, label=name)
        diagonal.plot(level, measured, **style)
    ends = np.array(diagonal.get_xlim())
    diagonal.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
    error.set(xscale="log", yscale="log", xlabel="iteration $t$", title="Direction error of $W_t$")
    diagonal.set(xlabel="predicted from duals", title=r"$\|W_t\|\times$ direction error")
    _short_decades(error.xaxis)
    error.legend(fontsize="x-small")
    diagonal.legend(fontsize="x-small", loc="upper left")
    return figure


def reached(found: GlobalMap, history: History) -> Figure:
    """Share of seeds that reach (u_mm, W_mm), where half do, and alpha*(d); the counterexample."""
    figure, (chart, path) = plots.panels(1, 2, height=3.1)
    plots.percentages(chart, found.shares, found.alphas, found.dimensions)
    rows = np.arange(len(found.dimensions))
    predicted = np.array([half_at_once(d, found.n) for d in found.dimensions])
    predicted[np.isinf(predicted)] = np.nan
    wanted = _place(predicted, found.alphas)
    for style, colour, width in (("-", "white", 4), (":", PREDICTED, 2.2)):  # on any cell
        chart.plot(wanted, rows, style, color=colour, lw=width)
    value, low, high = _place([found.threshold(row) for row in rows], found.alphas).T
    for colour, width in (("white", 4), (INK[4], 1.6)):
        style = dict(fmt="o", ms=2 + width, color=colour, elinewidth=width)
        chart.errorbar(value, rows + 0.33, xerr=[value - low, high - value], **style)
    for row in rows[wanted > len(found.alphas) - 0.5]:  # beyond the last column
        text = dict(textcoords="offset points", ha="center", fontsize="x-small")
        chart.annotate(f"{predicted[row]:.2f}", (wanted[row], row), (0, -10), **text)
    chart.set_xlim(-0.5, np.nanmax([*wanted, len(found.alphas) - 1]) + 0.5)
    chart.set(xlabel=r"opt tokens' length $\alpha$", ylabel="dimension $d$")
    chart.set(title=r"Seeds that reach $(u_{mm},W_{mm})$, in %")
    t = np.maximum(history.iterations, 0.7)
    path.plot(t, history.score_gaps[0, :, 0, 0], color=INK[0], label="$u_t$")
    path.plot(t, history.margins[0, :, 0, 0], color=INK[4], ls="--", label="$W_t$")
    path.plot(t, np.exp(history.log_gap[0]), color="black", label="loss")
    path.axhline(0.5, color="0.3", linestyle=":")
    path.set(xscale="log", xlabel="iteration $t$", ylim=(-8, 1.5), title="{1, 0} and {1, -3}")
    path.legend(fontsize="x-small", loc="lower left")
    return figure


def _place(values, columns):
    """Where values stand between and beyond the columns of a chart, evenly in their logarithm."""
    values, logs = np.log(values), np.log(columns)
    beyond = (values - logs[-1]).clip(0) / (logs[-1] - logs[-2])
    return np.interp(values, logs, range(len(logs))) + beyond


def heads(common: HeadRuns, each: HeadRuns) -> Figure:
    """||W_h||/||W_1|| with both normalisations, and ||W_h|| x error over C_h."""
    figure, (ratio, constant) = plots.panels(1, 2, height=2.9)
    ones = np.ones_like(common.norm)
    cases = ("one for all", common, common.of.norm), ("one per head", each, ones)
    for (name, runs, wanted), colour, marker in zip(cases, INK, "ox"):
        found = head_claims.ratios(runs.norm)[:, runs.kept]
        predicted = head_claims.ratios(wanted)[:, runs.kept]
        style = dict(marker=marker, linestyle="", ms=5, mfc="none", color=colour, label=name)
        ratio.plot(predicted.ravel(), found.ravel(), **style)
        size = (runs.norm * runs.error)[:, runs.kept]
        constant.plot(runs.of.constant[:, runs.kept].ravel(), size.ravel(), **style)
    for axis in (ratio, constant):
        ends = np.array(axis.get_xlim())
        axis.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
        axis.set(xlabel="predicted from duals")
    ratio.set(title=r"$\|W_h\|/\|W_1\|$, measured")
    constant.set(title=r"$\|W_h\|\times$ error of head $h$, measured")
    ratio.legend(title="normalisation", fontsize="x-small")
    return figure


def constants(points: Sequence[Point], switches: Mapping[str, np.ndarray]) -> Figure:
    """C along every axis, each run's prediction a dash and its measurement a circle, with score
    crossings dotted; below how far every run's error is from its own prediction."""
    names = list(dict.fromkeys(p.axis for p in points))
    rows = -(-len(names) // 3)
    figure, grid = plots.panels(rows + 1, 3, height=2.3)
    for axis in grid[len(names) :]:
        axis.remove()
    _deviations(figure.add_subplot(grid[0].get_gridspec()[rows, :]), points, names)
    for axis, name in zip(grid, names, strict=False):
        good = [p for p in constant_claims.kept(points) if p.axis == name]
        values = sorted({p.value for p in good})
        at, runs = [p.value for p in good], [p.comparison for p in good]
        axis.plot(at, [one.law.constant[0] for one in runs], "_", color=PREDICTED, ms=9)
        axis.plot(at, [one.measured.residual for one in runs], "o", ms=3, mfc="none", color=INK[0])
        for crossing in switches.get(name, ()):
            axis.axvline(crossing, color=INK[4], linestyle=":", lw=0.7)
        if name in switches:
            axis.text(0.42, 0.06, "switch", transform=axis.transAxes, fontsize="x-small")
        log = "linear" if 0 in values else "log"
        axis.set(xscale=log, yscale=log, title=f"$C$ along {name}")
        if log == "log":
            axis.set_xticks(values, [f"{v:g}" for v in values])
            axis.minorticks_off()
            _short_decades(axis.yaxis)
    return figure


def _deviations(axis, points, names):
    """|error over its prediction - 1| of every kept run, a row for each axis of the map."""
    for row, name in enumerate(names):
        own = [p for p in constant_claims.kept(points) if p.axis == name]
        off = np.abs([constant_claims.relative(p) for p in own])
        height = row + np.linspace(-0.3, 0.3, len(own))
        axis.plot(off.clip(FLOOR), height, "o", ms=2, mfc="none", color=INK[0])
    axis.axvline(constant_claims.CONSTANT, color="0.3", linestyle=":")
    axis.set(xscale="log", xlim=(FLOOR / 3, 0.1))
    axis.set(xlabel=f"relative error of the direction error, or {FLOOR:.0e} where it is less")
    axis.set_yticks(range(len(names)), names, fontsize="x-small")
    axis.invert_yaxis()
    axis.set(title="How far off each run is; dotted: what was asked for")


def _short_decades(axis):
    """On a logarithmic axis of less than two decades: ticks at 1, 2 and 5 times powers of ten."""
    low, high = axis.get_view_interval()
    if high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:,.12g}"))
        axis.set_minor_formatter(NullFormatter())


def bent(
    runs: Sequence[LpRun],
    zero: Sequence[ZeroDualsRun],
    zeros: Sequence[ZeroDualsRun],
    left: Sequence[Left],
    steps: Sequence[Settled],
) -> Figure:
    """Errors of l_p over ||W||; duals at zero; what lies off the span; and steps for p < 2."""
    figure, (error, offset, outside, moves) = plots.panels(2, 2, height=2.9)
    exponents = list(dict.fromkeys(r.of.p for r in runs))
    for p, colour in zip(exponents, INK):
        for started in (False, True):
            one = next(r for r in runs if (r.of.p, r.started) == (p, started))
            style = dict(color=colour, linestyle="--" if started else "-")
            label = None if started else f"p = {p:g}"
            error.plot(one.norm, one.error, label=label, **style)
    error.set(xscale="log", yscale="log", xlabel=r"$\|W_t\|_p$", title=r"Error $\sqrt{2D_\psi}$")
    _short_decades(error.xaxis)
    error.legend(fontsize="x-small")
    _idle(offset, zero, zeros)
    measured, flow, first = np.array([[o.measured[-1], o.predicted[-1], o.first] for o in left]).T
    outside.plot(flow, measured, "o", ms=4, mfc="none", color=INK[0], label="the flow")
    outside.plot(first, measured, "x", ms=4, color=INK[4], label="first order")
    ends = np.array([measured.min(), measured.max()])
    outside.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
    outside.set(xscale="log", yscale="log", xlabel="predicted", ylabel="measured")
    outside.set(title="Left outside the span")
    _short_decades(outside.yaxis)
    outside.legend(fontsize="x-small")
    _moves(moves, steps)
    return figure


def _idle(axis, zero, zeros):
    """Offsets of pairs without dual: one idle pair in every run, several in one run each."""
    for one in zero:
        label = "one idle pair" if one is zero[0] else None
        axis.plot(one.level, one.offsets, "o", ms=3, mfc="none", color=INK[0], label=label)
        axis.plot(one.level, np.log(one.level) + one.of.constants, ":", color=PREDICTED)
    counts = dict.fromkeys(len(r.of.pairs) for r in zeros)
    for count, colour, marker in zip(counts, INK[2:], "s^"):
        one = next(r for r in zeros if len(r.of.pairs) == count)
        style = dict(marker=marker, linestyle="", ms=3, mfc="none", color=colour)
        axis.plot(one.level, one.offsets, **style)
        axis.plot([], [], label=f"{count} in one run", **style)
        wanted = np.log(one.level)[:, None] + one.of.constants
        axis.plot(one.level, wanted, ":", color=PREDICTED)
    axis.set(xscale="log", xlabel="margin level $a_t$", title="Offsets of pairs without dual")
    axis.legend(fontsize="x-small")


def _moves(axis, steps):
    """Last move of an offset with steps like t^(p-2), by their length, and with constant steps."""
    for p, colour, marker in zip(dict.fromkeys(one.of.p for one in steps), INK, MARKERS):
        own = [one for one in steps if one.of.p == p]
        moved = np.array([[*one.moved, one.constant] for one in own]).T
        style = dict(marker=marker, linestyle="", ms=4, mfc="none", color=colour)
        axis.plot(moved, **style)
        axis.plot([], [], label=f"p = {p:g}", **style)
    names = [*(f"{share:g}" for share in SHARES), "constant"]
    axis.set(yscale="log", xlabel="rise of the margins over the longest that settles")
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.4, len(names) - 0.6)
    axis.set(title="Last move of an offset")
    axis.legend(fontsize="x-small")
