"""Figures of the atlas. They draw the results that the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from papers import pieces
from papers.atlas.atlas import NORMS, Ratios, Reached, column, fitted_rate
from papers.atlas.atlas_rules import REACHED, Row
from papers.atlas.atlas_used import ALLOWED, DECAYED, AtRest
from papers.ours import BOUNDS

LABELS = {name: name for name in NORMS}
LABELS |= {"l_1": r"$\ell_1$", "l_3": r"$\ell_3$", "l_inf": r"$\ell_\infty$"}
# The rules that the map draws: steepest descent, and the optimisers in common use. The
# claims are about all rules.
DRAWN = (
    "steepest, l_1",
    "steepest, nuclear",
    "steepest, Frobenius",
    "steepest, l_3",
    "steepest, spectral",
    "steepest, l_inf",
    "mirror, l_3",
    "Muon",
    "Shampoo, 0.9",
    "Signum",
    "Lion",
    "RMSprop, 0.99",
    "Muon, Newton-Schulz",
    "SOAP",
    "Adam, 0.999",
    "Adam, 0.999, epsilon",
    "AdaGrad",
)


def dumbbells(rows: Mapping[str, Row], reached: Reached) -> Figure:
    """Draw each rule's median ratio in its predicted norm, and its best median in
    another norm.

    The predicted norm is the norm `highest` of a row. Bars show the range over runs in
    this norm, and the ratio of the worst run is written at the right. A rule with a
    grey name was predicted to stay below REACHED. Only the rules of DRAWN have a row.
    """
    # Rules that were predicted to reach their norm come first. A line separates the
    # other rules from them.
    order = sorted(
        filter(rows.__contains__, DRAWN),
        key=lambda name: (not rows[name].reached, column(rows[name].highest)),
    )
    reaching = sum(bool(rows[name].reached) for name in order)
    figure, (axis,) = plots.panels(1, 1, height=1.1 + 0.2 * len(order))
    worst = []
    norms_drawn = set()
    for place, name in enumerate(order):
        last = reached[name].last
        own = column(rows[name].highest)
        medians = np.median(last, 0)
        rival = int(np.where(np.arange(len(NORMS)) == own, -np.inf, medians).argmax())
        norms_drawn |= {own, rival}
        looks = [plots.look(norm) for norm in NORMS]
        ends = last[:, own].min(), last[:, own].max()
        worst.append(f"{ends[0]:.3f}")
        axis.plot(
            medians[[own, rival]], [place] * 2, color=plots.FAINT, linewidth=1, zorder=1
        )
        axis.plot(ends, [place] * 2, color=looks[own].colour, linewidth=2.2)
        axis.plot(medians[own], place, ms=5, clip_on=False, **looks[own].mark)
        # The ring is larger than a mark, so that both are visible at the same place.
        ring = dict(ms=7.5, mfc="none", clip_on=False)
        axis.plot(medians[rival], place, **ring, **looks[rival].mark)
    for norm in NORMS:
        if column(norm) in norms_drawn:
            axis.plot([], [], label=LABELS[norm], **plots.look(norm).mark)
    axis.axvline(REACHED, **plots.LEVEL)
    words = f"line at {REACHED:g}: from here on, the margin counts as reached"
    pieces.beside(axis, 1.02, -0.6, words, plots.INKS["shade"], (-1, 3))
    axis.axhline(reaching - 0.5, color=plots.GREY, linewidth=0.8)
    # Between the marks at zero and those of the rules beside the line.
    middle = 0.03, reaching - 0.5
    words = "\N{UPWARDS ARROW} predicted to reach the margin of the named norm"
    pieces.beside(axis, *middle, words, plots.INKS["shade"], (1, 3))
    words = "\N{DOWNWARDS ARROW} predicted to fall short (grey names)"
    pieces.beside(axis, *middle, words, plots.INKS["shade"], (1, -3))
    axis.set_yticks(range(len(order)), map(_written, order), fontsize=8.5)
    for name, label in zip(order, axis.get_yticklabels(), strict=True):
        label.set_color(plots.BLACK if rows[name].reached else plots.GREY)
    axis.set(ylim=(len(order) - 0.4, -0.6), xlim=(0, 1.02))
    axis.set_xlabel(
        "margin divided by the largest possible; right: the worst run, predicted norm"
    )
    pieces.row_words(axis, worst)
    return plots.legend(figure, axis)


def _written(row: str) -> str:
    """Write the name of a row for a figure, with norm, beta_2 and Adam's epsilon."""
    for name, label in LABELS.items():
        row = row.replace(name, label)
    if row == "Muon":
        row = "Muon, exact"
    row = row.replace("Shampoo, 0.9", r"Shampoo, $\beta=0.9$")
    row = row.replace("RMSprop, 0.99", r"RMSprop, $\beta_2=0.99$")
    row = row.replace("Adam, 0.999, epsilon", r"Adam, $\epsilon=10^{-8}$")
    return row.replace("Adam, 0.999", r"Adam, $\epsilon=0$")


def convergence(panels: Mapping[str, Reached], norms: Mapping[str, str]) -> Figure:
    """Draw 1 - ratio in each rule's own norm over t, with fitted exponents.

    There is one panel for each schedule of step sizes. `panels` has the ratios by the
    panel's title and then by rule, and `norms` has the norm of each rule. A band holds
    the middle half of the runs.
    """
    figure, axes = plots.panels(1, len(panels), height=3.0)
    # In a single panel the names are written at the ends of the lines.
    alone = len(panels) == 1
    small = dict(
        fontsize="x-small", title_fontsize="x-small", labelspacing=0.2, handlelength=1.8
    )
    small |= dict(frameon=True, framealpha=1, edgecolor="none")  # over the dotted line
    for axis, (title, reached) in zip(axes, panels.items(), strict=True):
        powers = {}
        ends = []
        lowest = 1.0
        for name, ratios in reached.items():
            k = column(norms[name])
            later = ratios.iterations >= 10
            left = np.maximum(1 - ratios.value[:, later, k], 1e-9)
            label = LABELS[norms[name]]
            look = plots.look(norms[name])
            plots.band(axis, ratios.iterations[later], left, label, look, share=0.5)
            lowest = min(lowest, np.median(left, 0).min())
            power = np.median(fitted_rate(ratios, k))
            end_label = label
            if power < -0.05:
                powers[axis.lines[-1]] = pieces.written(f"{power:.2f}")
                end_label += f": $t^{{{power:.2f}}}$"
            ends.append((np.median(left, 0)[-1], end_label, look.colour))
        axis.axhline(1 - REACHED, **plots.LEVEL)
        axis.set(xscale="log", yscale="log", xlabel="iteration $t$", title=title)
        axis.set_ylim(min(lowest, 1 - REACHED) / 2, 1.2)
        if alone:
            axis.set_title("")
            pieces.end_labels(axis, ends, 8)
            words = f"{1 - REACHED:.0%} missing".replace("%", " %")
            start = axis.get_xlim()[0]
            pieces.beside(axis, start, 1 - REACHED, words, plots.GREY, (4, -3))
        else:
            axis.legend(
                powers, powers.values(), title="power of $t$", loc="lower left", **small
            )
    axes[0].set(ylabel="missing share of the margin")
    if alone:
        return figure
    return plots.legend(figure, axes[0])


def memory(
    memories: Sequence[float],
    by_memory: Sequence[Ratios],
    epsilons: Sequence[float],
    by_epsilon: Sequence[Ratios],
) -> Figure:
    """Draw Adam's margin ratio in three norms, over its memory and over its epsilon.

    Parameters
    ----------
    memories : sequence of float
        The values of beta_2, with epsilon 0.
    by_memory : sequence of Ratios
        The ratios for each of these values.
    epsilons : sequence of float
        The values of epsilon, smallest first.
    by_epsilon : sequence of Ratios
        The ratios for each of these values.
    """
    figure, axes = plots.panels(1, 2, height=2.9)
    forgotten = [1 - beta for beta in memories]
    evenly = range(len(epsilons))
    sign = plots.look("l_inf").colour
    for axis, x, runs in (
        (axes[0], forgotten, by_memory),
        (axes[1], evenly, by_epsilon),
    ):
        for norm in ("l_inf", "l_3", "Frobenius"):
            last = np.array([ratios.last[:, column(norm)] for ratios in runs]).T
            plots.band(axis, x, last, LABELS[norm], norm, ms=3, marker="o")
        axis.axhline(REACHED, **plots.LEVEL)
        own = [np.median(ratios.last[:, column("l_inf")]) for ratios in runs]
        for k, lift in ((np.nanargmax(own), 5), (np.nanargmin(own), -5)):
            inwards = 5 if x[k] == min(x) else -5
            pieces.beside(axis, x[k], own[k], f"{own[k]:.3f}", sign, (inwards, lift))
        axis.set_ylim(0, 1.1)
    axes[0].set(xscale="log", title=r"Memory, $\epsilon=0$")
    axes[0].set_xlabel("\N{LEFTWARDS ARROW} longer memory       " r"$1-\beta_2$")
    axes[0].set_ylabel("margin over the largest")
    title = r"Epsilon, $\beta_2=0.99$; a break after the first"
    axes[1].set(xlabel=r"$\epsilon$", title=title)
    powers = [f"$10^{{{np.log10(epsilon):.0f}}}$" for epsilon in epsilons]
    axes[1].set_xticks(evenly, powers, fontsize="small")
    pieces.end_labels(
        axes[1],
        [
            (
                np.median(by_epsilon[-1].last[:, column(norm)]),
                LABELS[norm],
                plots.look(norm).colour,
            )
            for norm in ("l_inf", "l_3", "Frobenius")
        ],
        8,
    )
    broken = {"color": plots.BLACK, "clip_on": False, "linewidth": 0.9}
    for at in (0.45, 0.52):  # the axis is broken where epsilon jumps
        slant = [at - 0.03, at + 0.03]
        axes[1].plot(
            slant, [-0.02, 0.02], transform=axes[1].get_xaxis_transform(), **broken
        )
    return figure


def batches(by_batch: Mapping[str, Mapping[int, Ratios]], norms: Mapping) -> Figure:
    """Draw each rule's margin ratio in its own norm, over the number of samples per
    step.

    Parameters
    ----------
    by_batch : mapping
        The ratios, by rule and then by the number of samples per step.
    norms : mapping of str to str
        The norm of each rule.
    """
    figure, (axis,) = plots.panels(1, 1, height=2.9)
    ends = []
    for name, runs in by_batch.items():
        k = column(norms[name])
        last = np.array([ratios.last[:, k] for ratios in runs.values()]).T
        look = plots.look(name)
        plots.band(axis, list(runs), last, name, ms=4, marker=look.marker)
        first = np.median(last[:, 0])
        words = f"{name}, {LABELS[norms[name]]}: {first:.2f}"
        ends.append((first, words, look.colour))
    axis.set(xlabel="samples per step", xticks=list(runs), ylim=(0, 1.05))
    axis.set(ylabel="margin over the largest")
    # The number of samples decreases to the right, where the labels are.
    axis.invert_xaxis()
    pieces.end_labels(axis, ends, 7.5)
    return figure


def _off_the_law(ends: Mapping[str, AtRest]) -> dict[str, np.ndarray]:
    """Return the absolute relative deviation (runs,) of 1 - ratio from the law under
    the weakest decay, by rule.

    It is NaN for a run for which the law predicts nothing.
    """
    weakest = {name: ends[f"{name}, {ALLOWED[-1]}"] for name in DECAYED}
    return {name: np.abs(end.missing / end.law - 1) for name, end in weakest.items()}


def _worst_in_words(errors: np.ndarray) -> str:
    """Write the largest error, and how many of the errors (runs,) are not known."""
    known = errors[~np.isnan(errors)]
    left_out = len(errors) - len(known)
    if not known.size:
        return "no prediction"
    if left_out:
        return f"{pieces.percent(known.max())}; {left_out} without"
    return pieces.percent(known.max())


def _shortfalls(
    axis: Axes, ends: Mapping[str, AtRest], looks: Sequence[plots.Look]
) -> None:
    """Draw, for each rule, the absolute relative deviation of 1 - ratio from the law
    under the weakest decay, with a mark for each run and a bar at the median.

    Runs for which the law predicts nothing have no mark, and are counted at the right.
    """
    off_the_law = _off_the_law(ends)
    errors = np.concatenate([*off_the_law.values()])
    errors = errors[np.isfinite(errors)]
    most = BOUNDS["atlas.decay.law"]
    low = max(errors.min(initial=most) / 2, 1e-5)
    high = min(2 * errors.max(initial=most), 1.0)
    worst = [_worst_in_words(values) for values in off_the_law.values()]
    pieces.strip(axis, off_the_law, (low, high), looks, most, said=worst)
    stops = plots.look("stops")
    for row, values in enumerate(off_the_law.values()):
        height = row + np.linspace(-0.28, 0.28, len(values))
        beyond = values > most
        points = dict(markersize=4, markeredgewidth=0.8, markerfacecolor="none")
        axis.plot(values[beyond], height[beyond], zorder=4, **stops.mark, **points)
    medians = [*decay_medians(ends).values()]
    axis.plot(medians, range(len(medians)), "|", color=plots.BLACK, ms=14, mew=1.5)
    # Words above the rows, each at what it names.
    above = {"va": "bottom", "fontsize": 8}
    words = f"required: at most {pieces.percent(most)}"
    axis.text(most, -0.62, words, ha="left", color=plots.GREY, **above)
    words = "median run"
    axis.text(
        min(medians[0], high), -0.62, words, ha="right", color=plots.BLACK, **above
    )
    right = {"transform": axis.get_yaxis_transform(), **above}
    axis.text(1.02, -0.62, "worst", **right)
    axis.axvspan(most, high, color=stops.colour, alpha=0.08, linewidth=0, zorder=0)
    ticks = [a * 10.0**k for k in range(-5, 0) for a in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    if len(shown) > 8:
        shown = [tick for tick in shown if np.isclose(np.log10(tick) % 1, (0, 1)).any()]
    axis.set_xticks(shown, [pieces.percent(tick) for tick in shown])
    axis.minorticks_off()
    names = {"sign": "sign descent", "GD": "gradient descent"}
    axis.set_yticklabels([names.get(name, name) for name in off_the_law], fontsize=8)
    axis.set_xlabel(
        "error of the predicted loss of margin (\N{LEFTWARDS ARROW} exact), per run"
    )


def _other_tokens(axis: Axes, share: Mapping, looks: Sequence[plots.Look]) -> None:
    """Draw the percentage of samples that select other tokens, over the allowed margin.

    `share` has the share of samples by (rule, allowed margin).
    """
    allowed = ALLOWED[:-1]
    for name, look in zip(DECAYED, looks, strict=True):
        percentages = [100 * share[name, margin] for margin in allowed]
        axis.plot(
            allowed, percentages, label=name, marker=look.marker, ms=3, **look.line
        )
    axis.set(xscale="log", xlabel=r"margin allowed, $\gamma/\lambda$")
    axis.set_title("Samples with other tokens, %")


def _own_norms(axis: Axes, own: Mapping[str, np.ndarray], by_rule: Reached) -> None:
    """Draw each run's best ratio in the seven norms, joined to the ratio in its rule's
    own norm.

    `own` has the ratios (runs,) in each rule's own norm, by rule. The lowest ratio is
    written below each rule.
    """
    style = dict(color=plots.FAINT, lw=0.6, ms=3, mfc=plots.PAPER, mec=plots.BLACK)
    labels = []
    for place, (name, value) in enumerate(own.items()):
        best = by_rule[name].last.max(1)
        left = place - 0.2
        right = place + 0.2
        axis.plot([left, right], [best, value], marker="o", markevery=[0], **style)
        axis.plot([right], value[None], "o", color=plots.BLACK, ms=3)
        short_name = name.replace(", 0.999,", "\n").replace(", ", "\n")
        labels.append(f"{value.min():.3f}\n{short_name}")
    axis.set_xticks(range(len(own)), labels, fontsize="x-small")
    axis.set(title="Margins in rules' own norms", ylabel="margin / largest margin")
    axis.set(xlim=(-0.5, len(own) - 0.5), ylim=(-0.05, 1.05))


def shortfalls(ends: Mapping[str, AtRest]) -> Figure:
    """Draw how far 1 - ratio under weight decay deviates from the law, one row per
    rule.

    Parameters
    ----------
    ends : mapping of str to AtRest
        Where the runs of the rules have stopped moving, under each strength of decay.
    """
    figure, (axis,) = plots.panels(1, 1, height=2.7)
    _shortfalls(axis, ends, [plots.look("measured")] * len(DECAYED))
    return figure


def decay_medians(ends: Mapping[str, AtRest]) -> dict[str, float]:
    """Find how far the median run of each rule deviates from the law under the weakest
    decay.

    Parameters
    ----------
    ends : mapping of str to AtRest
        As in `shortfalls`.

    Returns
    -------
    dict of str to float
        The medians of the absolute relative errors, by rule. The error of a run for
        which the law predicts nothing counts as infinite.
    """
    return {
        name: float(np.median(np.where(np.isnan(errors), np.inf, errors)))
        for name, errors in _off_the_law(ends).items()
    }


def used(own: Mapping[str, np.ndarray], by_rule: Reached, share: Mapping) -> Figure:
    """Draw how many samples select other tokens under strong decay, and the margin
    ratios of the rules that have their own norm.

    Parameters
    ----------
    own : mapping of str to ndarray (runs,)
        The last ratios in each rule's own norm, by rule.
    by_rule : mapping of str to Ratios
        The ratios of these rules in the seven norms.
    share : mapping
        The share of samples that select other tokens, by (rule, allowed margin).
    """
    figure, axes = plots.panels(1, 2, height=2.9)
    _other_tokens(axes[0], share, [plots.look(name) for name in DECAYED])
    _own_norms(axes[1], own, by_rule)
    return plots.legend(figure, axes[0])
