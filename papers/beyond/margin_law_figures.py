"""The pictures of the law of the margins: each draws what the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.dynamics.history import History
from lib.dynamics.rules import POLYAK
from papers.beyond.margin_law import MarginLaw
from papers.beyond.margin_law_claims import RESIDUAL, dual_shares
from papers.beyond.margin_law_runs import Comparison
from papers.beyond.margin_law_steps import QUIET, Cycles, ratio_to_law

MARKERS = "osD^v"
FLOOR = 1e-10  # below it a relative deviation is rounding, another on every processor
PREDICTED = "0.1"  # no rule's colour


def _by_setting(comparisons):
    """{setting name: its comparisons}, in order."""
    names = dict.fromkeys(c.setting.name for c in comparisons)
    return {name: [c for c in comparisons if c.setting.name == name] for name in names}


def _of_rule(group):
    """The colour of a setting: that of its rule."""
    rule = group[0].setting.rule
    if rule.kind == POLYAK:
        return plots.COLOURS["Polyak, no cap"]
    return plots.COLOURS["NGD-mom" if rule.momentum else "NGD"]


def beside_the_ray(path: np.ndarray, W_mm: np.ndarray, rest: np.ndarray) -> Figure:
    """Two weights W_t in the plane, path (steps + 1, 2), beside the ray of W_mm (2,).

    rest (2,): the predicted residual, which the path keeps from the ray; right, how it comes to.
    """
    figure, (plane, distance) = plots.panels(1, 2, height=2.9)
    near = path[np.linalg.norm(path, axis=1) < 8]
    ends = np.outer([0, 8 / np.linalg.norm(W_mm)], W_mm)
    plane.plot(*near.T, color=plots.COLOURS["NGD"], label="$W_t$, NGD")
    plane.plot(*ends.T, "--", color=PREDICTED, label="ray of $W_{mm}$")
    plane.plot(*(ends + rest).T, ":", color=PREDICTED, label=r"ray $+\ \rho_\perp$, predicted")
    plane.set(xlabel="$w_1$", ylabel="$w_2$", title="Two weights in the plane", aspect="equal")
    plane.set(xlim=(-0.3, 11), ylim=(-0.7, 7.3))
    plane.legend(fontsize="x-small", loc="lower right")
    along = np.outer(path @ W_mm, W_mm) / (W_mm @ W_mm)
    away = np.linalg.norm(path - along, axis=1)
    distance.plot(np.arange(1, len(path)), away[1:], color=plots.COLOURS["NGD"])
    distance.axhline(np.linalg.norm(rest), linestyle=":", color=PREDICTED)
    distance.text(1.2, 1.03 * np.linalg.norm(rest), "$C$, from the duals", fontsize="small")
    distance.set(xscale="log", ylim=(0, 1.6), xlabel="iteration $t$")
    distance.set(title="Distance of $W_t$ from the ray")
    return figure


def offsets(
    predicted: np.ndarray, measured: np.ndarray, comparisons: Sequence[Comparison]
) -> Figure:
    """Offsets of one run as bars, their prediction on them; duals read off over solved ones."""
    figure, (bars, duals) = plots.panels(1, 2, height=3.1)
    order = np.argsort(-predicted)
    place = np.arange(len(order))
    bar = dict(width=0.72, color=plots.COLOURS["NGD"], alpha=0.45, label="measured, NGD")
    bars.bar(place, measured[order], **bar)
    bars.plot(place, predicted[order], "_", color=PREDICTED, ms=9, mew=2, label="predicted")
    bars.axhline(0, color="0.3", linewidth=0.8)
    bars.set(title=r"Offset of the margin, $g_m-a_t$", xticks=[])
    bars.set(xlabel="pairs on the support, by offset")
    bars.legend(loc="upper right")
    for (name, group), marker in zip(_by_setting(comparisons).items(), MARKERS):
        read, solved = np.concatenate([dual_shares(c) for c in group], 1)
        style = dict(ms=3, mfc="none", mew=0.7, color=_of_rule(group), label=name)
        duals.plot(solved, read, marker, **style)
    ends = np.array(duals.get_xlim())
    duals.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
    duals.set(xscale="log", yscale="log", xlabel=r"share $\beta_m/\sum\beta$ from the solver")
    duals.set(title="Share of each dual, read off the margins")
    duals.legend(fontsize="x-small", loc="upper left", handletextpad=0.3)
    return figure


def diagonal(comparisons: Sequence[Comparison]) -> Figure:
    """Each run's residual in the span of the support over C from the duals; how far it is off.

    Filled marks: runs in which that is all of ||W_t|| x error.
    """
    figure, (line, off) = plots.panels(1, 2, height=3.1)
    groups = _by_setting(comparisons)
    for row, ((name, group), marker) in enumerate(zip(groups.items(), MARKERS)):
        predicted = np.array([c.law.constant[0] for c in group])
        measured = np.array([c.measured.residual for c in group])
        style = dict(marker=marker, linestyle="", ms=4.5, mfc="none", mew=0.9)
        style["color"] = _of_rule(group)
        line.plot([], [], label=name, **style)
        distance = np.abs(measured / predicted - 1).clip(FLOOR)
        height = row + np.linspace(-0.28, 0.28, len(group))
        alone = np.array([c.duals_alone for c in group])
        for of in (alone, ~alone):
            style["mfc"] = style["color"] if of is alone else "none"
            line.plot(predicted[of], measured[of], **style)
            off.plot(distance[of], height[of], **style)
    ends = np.array(line.get_xlim()) * (0.8, 1.25)
    line.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
    line.set(xscale="log", yscale="log", xlabel="$C$ from the duals")
    line.set(title=r"$\|W_t\|\times$ error in the support's span")
    line.legend(fontsize="x-small", loc="upper left", handletextpad=0.3)
    off.set(xscale="log", xlim=(FLOOR / 3, 1e-4), title="How far off each run is")
    off.set(xlabel=f"relative error of $C$, or {FLOOR:.0e} where it is less")
    off.set(yticks=range(len(groups)), yticklabels=[n.replace(", ", ",\n", 1) for n in groups])
    off.set(ylim=(len(groups) - 0.5, -0.5))
    off.tick_params(axis="y", length=0, labelsize="x-small")
    off.axvline(RESIDUAL, color="0.3", linestyle=":")
    off.text(
        0.7 * RESIDUAL, len(groups) - 0.6, "asked for", fontsize="x-small", ha="right", color="0.3"
    )
    return figure


def collapse(histories: Mapping[str, History], law: MarginLaw) -> Figure:
    """Direction error over ||W_t|| for every rule, with C/||W_t||; and how the deviation dies.

    The rules "GD" and "Polyak", of constant steps or cap, are broad bands; logistic runs dashed.
    """
    figure, (error, left) = plots.panels(1, 2, height=3.4)
    for name, history in histories.items():
        size, ratio = history.norm[0, 1:], ratio_to_law(history, "W_mm", law)[0, 1:]
        constant = name in ("GD", "Polyak")
        style = dict(color=_colour(name), linestyle="--" if "logistic" in name else "-")
        style |= dict(linewidth=4, alpha=0.35) if constant else dict(linewidth=1.4)
        label = f"{name}, constant {'cap' if name == 'Polyak' else 'steps'}" if constant else name
        error.plot(size, history.direction_error["W_mm"][0, 1:], label=label, **style)
        left.plot(size / law.norm[0], np.abs(ratio - 1).clip(FLOOR), **style)
    sizes = np.geomspace(2, error.get_xlim()[1], 50)
    error.plot(sizes, law.constant[0] / sizes, ":", color="0.2", linewidth=2.2, zorder=0)
    early = sizes[6], law.constant[0] / sizes[6]
    error.annotate(r"$C/\|W_t\|$", early, xytext=(6, 4), textcoords="offset points")
    error.set(xscale="log", yscale="log", xlabel=r"$\|W_t\|$", title="Direction error")
    levels = np.linspace(0, 2200, 100)
    left.plot(levels, 0.7 * np.exp(-law.slowest[0] * levels), ":", color="0.2", linewidth=2.2)
    left.text(0.42, 0.62, r"$e^{-\lambda_1a_t}$", transform=left.transAxes)
    left.set(yscale="log", ylim=(FLOOR, 3), xlim=(0, 2400), xlabel="margin level $a_t$")
    left.set(title=r"Distance from the law, $|$error$\,\times\|W_t\|/C-1\,|$")
    handles, labels = error.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize="small")
    return figure


def _colour(name):
    """The rule's colour in every figure of this project."""
    for rule in ("NGD-mom", "NGD", "GD", "Polyak, no cap", "Polyak"):
        if name.startswith(rule):
            return plots.COLOURS[rule]
    return "0.4"


def differences(fast: tuple, slow: tuple) -> Figure:
    """Direction error of W_{2t} and of W_{2t} - W_t: NGD, and GD where its norm grows like log t.

    fast, slow: (history, errors of the differences (runs, k - 1), law).
    """
    figure, axes = plots.panels(1, 2, height=3.1)
    for axis, (history, errors, _), rule in zip(axes, (fast, slow), ("NGD", "GD"), strict=True):
        t = history.iterations[1:]
        plain = history.direction_error["W_mm"][:, 1:]
        plots.band(axis, t, plain, "$W_{2t}$", plots.COLOURS[rule])
        plots.band(axis, t, errors, "$W_{2t}-W_t$", plots.COLOURS[rule], linestyle="--")
        axis.set(xscale="log", yscale="log", xlabel="iteration $2t$")
        axis.legend(loc="lower left")
    axes[0].set(title="Direction error, NGD", ylim=(1e-17, 3))
    axes[1].set(title="Direction error, GD, $T=2$")
    history, errors, law = slow
    t = history.iterations[6:].astype(float)
    rate = min(law.slowest[0], 1.0)
    guide = np.log(t) * t**-rate
    guide *= 2.5 * np.median(errors[:, -1]) / guide[-1]
    middle = len(t) // 2
    axes[1].plot(t, guide, ":", color="0.3")
    label = rf"$t^{{-{rate:.2f}}}\log t$"
    axes[1].text(t[middle], 2.4 * guide[middle], label, fontsize="small")
    return figure


def cycles(found: Sequence[Cycles]) -> Figure:
    """How much the offsets still move, over the step in units of the longest one that settles."""
    figure, axes = plots.panels(1, len(found), height=2.8)
    for axis, one in zip(axes, found, strict=True):
        rule = "NGD-mom" if one.momentum else "NGD"
        for moved, marker in zip(one.moved, MARKERS):
            style = dict(marker=marker, mfc="none", mew=1, linewidth=0.6)
            axis.plot(one.multiples, moved.clip(1e-13), color=plots.COLOURS[rule], **style)
        axis.axvline(1, color="0.3", linestyle=":")
        axis.axhspan(1e-14, QUIET, color="0.92", zorder=0)
        axis.set(yscale="log", ylim=(1e-13, 300), xlabel=r"step over the longest, $\eta/\eta^*$")
        axis.set(title=f"What an offset still moves, momentum {one.momentum:g}")
    axes[0].text(0.52, 2e-8, "settled", fontsize="small", color="0.35")
    axes[0].text(1.35, 2e-2, "cycles", fontsize="small", color="0.35")
    return figure
