"""The pictures of notebook 45: each draws what the notebook computed."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from companion import plots
from papers import pieces, verdicts
from papers.beyond import network_margins as network
from papers.beyond.atlas import Reached
from papers.beyond.atlas_figures import LABELS
from papers.beyond.atlas_rules import ranked
from papers.beyond.factored_atlas import NORMS, Table
from papers.beyond.tolerances import BOUNDS

WAYS = dict(zip(("from zero", "near ties", "wrong start"), plots.SERIES))
NAMES = [LABELS.get(name, "sign norm") for name in NORMS]


def factor_map(table: Table, both: Reached, alone: Reached) -> Figure:
    """Median ratios of rules on (K, Q) and on W, in seven norms; nearest norms."""
    lines = [
        (f"{what} by {name}", runs[name].last, norm)
        for name, row in table.items()
        for what, runs, norm in (
            ("$(K,Q)$", both, row.norm),
            ("$W$", alone, row.alone_norm),
        )
    ]
    names, lasts, predicted = zip(*lines, strict=True)
    ratios = np.median(lasts, axis=1)
    text = np.char.mod("%.3f", ratios)
    figure, (axis,) = plots.panels(1, 1, height=0.9 + 0.27 * len(lines))
    pieces.cells(axis, ratios, NAMES, names, text, low=0.5)
    nearest = []
    for row, (last, norm) in enumerate(zip(lasts, predicted, strict=True)):
        pieces.outline(axis, row, NORMS.index(norm))
        share, _ = ranked(last, NORMS, norm)
        nearest.append(f"nearest in {share * len(last):.0f} of {len(last)}")
    pieces.row_words(axis, nearest)
    for edge in range(2, len(lines), 2):
        axis.axhline(edge - 0.5, color=plots.PAPER, lw=2)
    axis.set(
        title="Margin over the largest possible, median of the runs; outlined: predicted"
    )
    return figure


def selections(optimal: Mapping, disputes: Mapping[str, network.Disputes]) -> Figure:
    """Share of opt tokens by rule and way; share of disputes won, 95 % bars."""
    figure, axes = plots.panels(1, 2, height=3.0)
    rules = list(optimal["from zero"])
    steepest = [name for name in rules if name != network.ADAM]
    names = [name.replace("steepest, ", "") for name in rules]
    names = [LABELS.get(name, name) for name in names]
    judged = []
    lowest = min(steepest, key=lambda name: optimal["from zero"][name].mean())
    left_of = {("near ties", "steepest, l_inf"): -6, ("near ties", network.ADAM): -6}
    beside = left_of | {("from zero", lowest): 6}  # where no other mark is
    for shift, (way, like) in zip((-0.2, 0, 0.2), WAYS.items(), strict=True):
        y = np.arange(len(rules)) + shift
        line = dict(ms=5, label=way, **like.mark)
        shares = np.array([optimal[way][name].mean() for name in rules])
        axes[0].plot(shares, y, **line)
        for name, x, height in zip(rules, shares, y, strict=True):
            if side := beside.get((way, name)):
                pieces.beside(
                    axes[0], x, height, f"{100 * x:.0f} %", like.colour, (side, 2)
                )
        asked = [
            {k: v for k, v in disputes[way].items() if k[0] == rule} for rule in rules
        ]
        counts = [network.won(own, rules) for own in asked]
        counts.append(network.won(disputes[way], steepest))
        value, low, high = np.array([network.share(*count) for count in counts]).T
        words = f"{100 * value[-1]:.0f} % of {counts[-1][1].sum()}"
        judged.append((len(rules) + shift, words, like.colour))
        ends = np.stack([value - low, high - value]).clip(0)
        axes[1].errorbar(value, [*y, len(rules) + shift], xerr=ends, lw=0.8, **line)
    for axis, written in zip(axes, (names, [*names, "steepest, all"]), strict=True):
        axis.set_yticks(range(len(written)), written)
        axis.invert_yaxis()
    axes[0].axvline(BOUNDS["select.most"], **plots.LEVEL)
    axes[1].axvline(network.HALF, **plots.LEVEL)
    axes[0].set(xlabel="share of samples that select the opt token", xlim=(None, 1.05))
    axes[1].set(xlabel="share of comparisons won by the own norm")
    axes[1].set_xlim(-0.02, 1.02)
    pieces.end_labels(axes[1], judged)
    return plots.legend(figure, axes[0])


def ranking(readings: network.Readings) -> Figure:
    """How far the rule predicted first is ahead of each rival; who is largest."""
    figure, axes = plots.panels(1, 2, height=3.1)
    shares = network.counted(readings)
    rules = list(readings)
    for k, rule in enumerate(rules):
        ahead = {
            x: verdicts.mean_interval(network.leads(readings, first, norm)[rule])
            for x, (norm, first) in enumerate(network.FIRST.items())
            if rule != first
        }
        mean = np.array([interval.values.mean() for interval in ahead.values()])
        low, high = np.array(
            [(interval.low, interval.high) for interval in ahead.values()]
        ).T
        style = dict(ms=5, capsize=2, **plots.look(rule).mark)
        x = np.array(list(ahead)) + 0.16 * (k - 1.5)
        axes[0].errorbar(
            x, mean, [mean - low, high - mean], label=f"over {rule}", **style
        )
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low, high + 0.25 * (high - low))  # room for the verdicts
    for x, (norm, rule) in enumerate(network.FIRST.items()):
        verdict, rival, lead = network.deciding_lead(readings, rule, norm)
        held = {verdicts.REPRODUCED: "holds", verdicts.NOT_REPRODUCED: "fails"}  # ours
        words = (
            f"{lead.values.mean():+.2f} over\n{rival}:\n{held.get(verdict, verdict)}"
        )
        pieces.beside(axes[0], x, high, words, plots.look(verdict).colour, (0, 1))
    axes[0].axhline(0, **plots.LEVEL)
    axes[0].set(ylabel="log of its ratio over the rival's")
    named = [
        f"{rule},\n{NAMES[NORMS.index(norm)]}" for norm, rule in network.FIRST.items()
    ]
    axes[0].set_xticks(range(len(network.FIRST)), named)
    pieces.cells(axes[1], shares, NAMES, rules)
    axes[1].tick_params(axis="x", labelsize="x-small")
    for norm, rule in network.FIRST.items():
        pieces.outline(axes[1], rules.index(rule), NORMS.index(norm))
    axes[1].set(title="Heads whose ratio is the largest, %")
    axes[0].set(title="Rule predicted first, over each rival")
    return plots.legend(figure, axes[0])
