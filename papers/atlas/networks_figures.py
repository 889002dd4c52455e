"""The figures of notebook 45. They draw what the notebook computed."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from papers import pieces, verdicts
from papers.atlas import network_margins as network
from papers.atlas.atlas import Reached
from papers.atlas.atlas_figures import LABELS
from papers.atlas.atlas_rules import ranked
from papers.atlas.factored_atlas import NORMS, Table
from papers.ours import BOUNDS

WAYS = dict(zip(("from zero", "near ties", "wrong start"), plots.SERIES, strict=False))
NAMES = [LABELS.get(name, "sign norm") for name in NORMS]


def factor_map(table: Table, both: Reached, alone: Reached) -> Figure:
    """Draw the median ratios of rules on (K, Q) and on W in seven norms.

    The norm in which a rule was predicted to have its largest ratio is outlined.
    """
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
    text = np.char.mod("%.2f", ratios)
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
        title="Margin over the largest possible, median of the runs; outlined: "
        "predicted"
    )
    return figure


def _optimal_shares(
    axis: Axes, optimal: Mapping, rules: list[str], steepest: list[str]
) -> None:
    """Draw the share of samples that select the opt token, with a row for each rule.

    Marks are the ways in which selections compete.
    """
    # Where numbers are written, so that no mark is below: {(way, rule): points to the
    # right}.
    from_zero = optimal["from zero"]
    lowest = min(steepest, key=lambda rule: from_zero[rule].mean())
    numbered = {
        ("near ties", "steepest, l_inf"): -6,
        ("near ties", network.ADAM): -6,
        ("from zero", lowest): 6,
    }
    for shift, (way, look) in zip((-0.2, 0, 0.2), WAYS.items(), strict=True):
        heights = np.arange(len(rules)) + shift
        shares = np.array([optimal[way][rule].mean() for rule in rules])
        axis.plot(shares, heights, ms=5, label=way, **look.mark)
        for rule, share, height in zip(rules, shares, heights, strict=True):
            if (way, rule) in numbered:
                place = (numbered[way, rule], 2)
                words = f"{100 * share:.0f} %"
                pieces.beside(axis, share, height, words, look.colour, place)
    axis.axvline(BOUNDS["select.most"], **plots.LEVEL)
    axis.set(xlabel="share of samples that select the opt token", xlim=(None, 1.05))


def _disputes_won(
    disputes: network.Disputes, rules: list[str], steepest: list[str]
) -> list[tuple]:
    """Return the disputes won and all disputes, (seeds,) each, for every rule.

    The last entry is for all rules in `steepest` together.
    """
    counts = []
    for rule in rules:
        own = {pair: lead for pair, lead in disputes.items() if pair[0] == rule}
        counts.append(network.won(own, rules))
    counts.append(network.won(disputes, steepest))
    return counts


def _shares_won(
    axis: Axes,
    disputes: Mapping[str, network.Disputes],
    rules: list[str],
    steepest: list[str],
) -> list[tuple]:
    """Draw the share of disputes won with 95 % intervals, with a row for each rule.

    Marks are the ways in which selections compete. Returns the labels at the panel's
    end.
    """
    labels = []
    for shift, (way, look) in zip((-0.2, 0, 0.2), WAYS.items(), strict=True):
        heights = np.arange(len(rules) + 1) + shift
        counts = _disputes_won(disputes[way], rules, steepest)
        shares = [network.share(won, all_of_them) for won, all_of_them in counts]
        value, low, high = np.array(shares).T
        bars = np.stack([value - low, high - value]).clip(0)
        axis.errorbar(value, heights, xerr=bars, lw=0.8, ms=5, label=way, **look.mark)

        _, of_steepest = counts[-1]
        words = f"{100 * value[-1]:.0f} % of {of_steepest.sum()}"
        labels.append((heights[-1], words, look.colour))
    axis.axvline(network.HALF, **plots.LEVEL)
    axis.set(xlabel="share of comparisons won by the own norm")
    axis.set_xlim(-0.02, 1.02)
    return labels


def selections(optimal: Mapping, disputes: Mapping[str, network.Disputes]) -> Figure:
    """Draw the share of opt tokens by rule, and the share of disputes won."""
    figure, axes = plots.panels(1, 2, height=3.0)
    rules = list(optimal["from zero"])
    steepest = [rule for rule in rules if rule != network.ADAM]
    _optimal_shares(axes[0], optimal, rules, steepest)
    labels = _shares_won(axes[1], disputes, rules, steepest)

    short_names = [rule.replace("steepest, ", "") for rule in rules]
    names = [LABELS.get(name, name) for name in short_names]
    rows = (names, [*names, "steepest, all"])
    for axis, row_names in zip(axes, rows, strict=True):
        axis.set_yticks(range(len(row_names)), row_names)
        axis.invert_yaxis()
    # called last, because the axis was inverted before
    pieces.end_labels(axes[1], labels)
    return plots.legend(figure, axes[0])


def ranking(readings: network.Readings) -> Figure:
    """Draw how far the rule predicted first is ahead of each rival, a block a norm.

    Parameters
    ----------
    readings : Readings
        The ratios of every rule, seed and head.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.6)
    held = {verdicts.REPRODUCED: "decided", verdicts.NOT_REPRODUCED: "fails"}  # ours
    bars = []
    for norm, first in network.FIRST.items():
        verdict, rival, _ = network.deciding_lead(readings, first, norm)
        leads = network.leads(readings, first, norm)
        for rule, values in leads.items():
            interval = verdicts.mean_interval(values)
            named = f"{first} over {rule}, {NAMES[NORMS.index(norm)]}"
            words = f"{interval.estimate:+.2f}"
            if rule == rival:
                words += f"  {held.get(verdict, verdict)}"
            ends = interval.estimate, interval.low, interval.high
            points = tuple(interval.values)
            bars.append(
                pieces.Bar(named, *ends, look=verdict, words=words, points=points)
            )
        bars.append(None)
    drawn = [value for bar in bars if bar for value in (bar.low, bar.high, *bar.points)]
    pieces.forest(axis, bars[:-1], (1.1 * min(0.0, *drawn), 1.1 * max(drawn)))
    axis.set(xlabel="log of the predicted rule's ratio over the rival's")
    axis.tick_params(axis="y", labelsize=7)
    return figure
