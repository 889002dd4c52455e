"""The figures of notebook 45. They draw the results that the notebook computed."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from companion import plots
from papers import pieces, verdicts
from papers.atlas import network_margins as network
from papers.atlas.atlas import Reached
from papers.atlas.atlas_figures import LABELS
from papers.atlas.factored_atlas import NORMS, Table

WAYS = dict(zip(("from zero", "near ties", "wrong start"), plots.SERIES, strict=False))
NAMES = [LABELS.get(name, "sign norm") for name in NORMS]


DRAWN = {  # the rules in the map of factors, by their names in the map
    "gradient descent": "gradient descent",
    "sign descent": "sign descent",
    "polar steps": "polar steps (Muon)",
}


def factor_map(table: Table, both: Reached, alone: Reached) -> Figure:
    """Draw the median ratios of three rules on W and on (K, Q) in seven norms.

    The norm with the largest ratio is bold, and the norm that was predicted to have it
    is outlined.
    """
    lines = [
        (what, runs[name].last, norm)
        for name, row in table.items()
        if name in DRAWN
        for what, runs, norm in (
            (f"{DRAWN[name]}: $W$", alone, row.alone_norm),
            ("keys and queries", both, row.norm),
        )
    ]
    names, lasts, predicted = zip(*lines, strict=True)
    ratios = np.median(lasts, axis=1)
    figure, (axis,) = plots.panels(1, 1, height=0.7 + 0.32 * len(lines))
    axis.imshow(ratios, aspect="auto", vmin=0.2, vmax=1.3, cmap="Blues")
    for (row, column), ratio in np.ndenumerate(ratios):
        if column == ratios[row].argmax():
            style = {"fontsize": 10, "fontweight": "bold"}
        else:
            style = {"fontsize": 8, "fontweight": "normal"}
        style["color"] = plots.BLACK if ratio < 0.9 else plots.PAPER
        axis.text(column, row, f"{ratio:.2f}", ha="center", va="center", **style)
    for row, norm in enumerate(predicted):
        place = (NORMS.index(norm) - 0.46, row - 0.39)
        line = dict(fill=False, linewidth=2, edgecolor=plots.BLACK, zorder=3)
        axis.add_patch(Rectangle(place, 0.92, 0.78, **line))
    for edge in range(2, len(lines), 2):
        axis.axhline(edge - 0.5, color=plots.PAPER, lw=4)
    axis.set_xticks(range(len(NAMES)), NAMES)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure


def _disputes_won(
    disputes: network.Disputes, rules: list[str], steepest: list[str]
) -> list[tuple]:
    """Return, for every rule, the number of disputes that its own selection wins, and
    the number of all its disputes with other `rules`, as two arrays (seeds,).

    The last entry is for the disputes among the rules in `steepest`.
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
    """Draw the share of disputes won, with 95 % intervals and one row for each rule.

    There is a mark for each of the problems in which selections compete. The function
    returns the labels for the right end of the panel.
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


def selections(optimal: Mapping) -> Figure:
    """Draw the share of samples that select the best token, with a row for each rule.

    `optimal` has the shares (runs,) by problem and then by rule; the means over runs
    are drawn. The problem with near ties is coloured, and the other two are grey.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    rules = list(optimal["near ties"])
    rules.sort(key=lambda rule: -optimal["near ties"][rule].mean())
    greys = {
        "from zero": dict(marker="o", mfc=plots.PAPER, mew=1.2),
        "wrong start": dict(marker="^", mfc=plots.PAPER, mew=1.2),
    }
    look = plots.look("measured")
    for row, rule in enumerate(rules):
        for way, style in greys.items():
            share = 100 * optimal[way][rule].mean()
            axis.plot(share, row, ls="", ms=6, color=plots.GREY, **style)
        share = 100 * optimal["near ties"][rule].mean()
        axis.plot(share, row, ms=8, **look.mark)
        words = f"{share:.0f} %"
        pieces.beside(axis, share, row, words, look.colour, (0, -6))
    # The names are written at the marks of the last rule, which are far enough apart.
    last = rules[-1]
    for way in optimal:
        colour = look.colour if way == "near ties" else plots.GREY
        share = 100 * optimal[way][last].mean()
        pieces.beside(axis, share, len(rules) - 1, way, colour, (0, 7))
    axis.set_yticks(range(len(rules)), _rule_names(rules))
    axis.set(xlabel="samples that select their best token, %")
    left = 100 * min(one[last].mean() for one in optimal.values()) - 6
    axis.set(ylim=(len(rules) - 0.3, -0.6), xlim=(left, 101))
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    return figure


def _rule_names(rules: list[str]) -> list[str]:
    """Return the names of the rules for a figure, with steepest descent named by its
    norm.
    """
    names = []
    for rule in rules:
        name = rule.replace("steepest, ", "")
        if name in LABELS:
            name = f"steepest, {LABELS[name]}"
        names.append(name)
    return names


def comparisons(disputes: Mapping[str, network.Disputes], rules: list[str]) -> Figure:
    """Draw the share of comparisons that the selection of a rule wins in its own norm,
    one row per rule.

    Parameters
    ----------
    disputes : mapping of str to Disputes
        The result of `papers.atlas.network_margins.disputes`, by problem.
    rules : list of str
        The rules, from top to bottom. The last row is for all rules except Adam
        together.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    steepest = [rule for rule in rules if rule != network.ADAM]
    labels = _shares_won(axis, disputes, rules, steepest)
    names = [*_rule_names(rules), "steepest, all"]
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    # called last, because the axis was inverted before
    pieces.end_labels(axis, labels)
    return plots.legend(figure, axis)


def ranking(readings: network.Readings) -> Figure:
    """Draw how far the rule that was predicted to rank first is ahead of its nearest
    rival, by norm.

    Parameters
    ----------
    readings : Readings
        The ratios of every rule, seed and head.
    """
    figure, (axis,) = plots.panels(1, 1, height=2.4)
    held = {verdicts.REPRODUCED: "decided", verdicts.NOT_REPRODUCED: "fails"}  # ours
    bars = []
    for norm, first in network.FIRST.items():
        verdict, rival, _ = network.deciding_lead(readings, first, norm)
        values = network.leads(readings, first, norm)[rival]
        interval = verdicts.mean_interval(values)
        bars.append(
            pieces.Bar(
                f"{NAMES[NORMS.index(norm)]} norm:\n{first} before {rival}",
                *(interval.estimate, interval.low, interval.high),
                look=verdict,
                words=f"{interval.estimate:+.2f}  {held.get(verdict, verdict)}",
                points=tuple(interval.values),
            )
        )
    # Norms for which the ranking is decided come first.
    bars.sort(key=lambda bar: bar.look != verdicts.REPRODUCED)
    drawn = [value for bar in bars for value in (bar.low, bar.high, *bar.points)]
    pieces.forest(axis, bars, (1.1 * min(0.0, *drawn), 1.1 * max(drawn)))
    axis.set_xlabel(
        "\N{LEFTWARDS ARROW} rival ahead       log ratio of the two margins"
        "       predicted rule ahead \N{RIGHTWARDS ARROW}"
    )
    return figure
