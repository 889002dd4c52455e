"""The pictures of notebook 45: each draws what the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.companion import plots
from papers.beyond.atlas_figures import LABELS, LOWEST
from papers.beyond.factored_atlas import NORMS, Ends, FactorRow
from papers.beyond.network_margins import MarginReading
from papers.beyond.networks_claims import ADAM, FIRST, Disputes, counted, leads, share, won
from papers.verdicts import mean_interval

INK = {rule: plots.COLOURS[rule] for rule in ("NGD", "Adam")}
INK |= {"Signum": "#E69F00", "Muon": "#CC79A7"}
MARKS = {"NGD": "o", "Signum": "^", "Muon": "s", "Adam": "x"}
WAYS = {
    "from zero": ("#0072B2", "o"),
    "near ties": ("#E69F00", "s"),
    "wrong start": ("#000000", "^"),
}
NAMES = [LABELS.get(name, "sign") for name in NORMS]


def factor_map(
    table: Mapping[str, FactorRow], both: Mapping[str, Ends], alone: Mapping[str, Ends]
) -> Figure:
    """Median ratio of every rule on (K, Q) and on W, in seven norms; predictions outlined."""
    lines = [
        (f"{what} by {name}", ran[name].last, row.norm if ran is both else row.alone_norm)
        for name, row in table.items()
        for what, ran in (("$(K,Q)$", both), ("$W$", alone))
    ]
    figure, (axis,) = plots.panels(1, 1, height=0.9 + 0.27 * len(lines))
    values = np.array([np.median(last, 0) for _, last, _ in lines])
    image = axis.imshow(values, aspect="auto", vmin=LOWEST, vmax=1, cmap="cividis")
    for (i, k), value in np.ndenumerate(values):
        colour = "white" if value < 0.5 * (1 + LOWEST) else "black"
        text = "none" if np.isnan(value) else f"{value:.3f}"
        axis.text(k, i, text, ha="center", va="center", fontsize=7, color=colour)
    for i, (_, _, norm) in enumerate(lines):
        k = NORMS.index(norm)
        box = Rectangle((k - 0.48, i - 0.46), 0.96, 0.92, fill=False, lw=1.8, ec="#D55E00")
        axis.add_patch(box)
    axis.set_xticks(range(len(NORMS)), NAMES)
    axis.set_yticks(range(len(lines)), [name for name, _, _ in lines], fontsize="small")
    axis.tick_params(length=0)
    axis.grid(False)
    for edge in range(2, len(lines), 2):
        axis.axhline(edge - 0.5, color="white", lw=2)
    axis.set(title="Margin over the largest possible, median of the runs; outlined: predicted")
    figure.colorbar(image, ax=axis, shrink=0.6)
    return figure


def selections(
    optimal: Mapping[str, Mapping[str, np.ndarray]], found: Mapping[str, Disputes]
) -> Figure:
    """Left the share of opt tokens by rule and way, right the share of disputes won, 95 % bars.

    Bars are bootstraps over seeds; the last row of the right panel is what is judged.
    """
    figure, axes = plots.panels(1, 2, height=3.0)
    rules = list(optimal["from zero"])
    steepest = [name for name in rules if name != ADAM]
    names = [name.replace("steepest, ", "") for name in rules]
    names = [LABELS.get(name, name) for name in names]
    for shift, (way, (colour, mark)) in zip((-0.2, 0, 0.2), WAYS.items(), strict=True):
        y = np.arange(len(rules)) + shift
        line = dict(color=colour, marker=mark, ls="", ms=5, label=way)
        axes[0].plot([optimal[way][name].mean() for name in rules], y, **line)
        own = [{pair: v for pair, v in found[way].items() if pair[0] == a} for a in rules]
        counts = [won(pairs, rules) for pairs in own] + [won(found[way], steepest)]
        value, low, high = np.array([share(*count) for count in counts]).T
        ends = np.stack([value - low, high - value]).clip(0)
        axes[1].errorbar(value, [*y, len(rules) + shift], xerr=ends, lw=0.8, **line)
    for axis, written in zip(axes, (names, [*names, "steepest, all"]), strict=True):
        axis.set_yticks(range(len(written)), written)
        axis.invert_yaxis()
    axes[1].axvline(0.5, color="0.3", ls=":")
    axes[0].set(xlabel="share of samples that select the opt token", xlim=(None, 1.02))
    axes[1].set(xlabel="disputes won by the rule's own norm")
    axes[1].set_xlim(-0.02, 1.02)
    plots.legend(figure, axes[0])
    return figure


def ranking(found: Mapping[str, Sequence[MarginReading]]) -> Figure:
    """Left how far the rule predicted first is ahead of each rival; right where who is largest."""
    figure, axes = plots.panels(1, 2, height=3.1)
    shares, rules = counted(found), list(found)
    for k, rule in enumerate(rules):
        ahead = {
            x: leads(found, first, norm)[rule]
            for x, (norm, first) in enumerate(FIRST.items())
            if rule != first
        }
        low, mean, high = np.array([_ends(values) for values in ahead.values()]).T
        style = dict(color=INK[rule], marker=MARKS[rule], ls="", ms=5, capsize=2)
        x = np.array(list(ahead)) + 0.16 * (k - 1.5)
        axes[0].errorbar(x, mean, [mean - low, high - mean], label=f"less {rule}", **style)
    axes[0].axhline(0, color="0.3", ls=":")
    axes[0].set(ylabel="log ratio, mean of seeds, 95 %")
    named = [f"{rule},\n{NAMES[NORMS.index(norm)]}" for norm, rule in FIRST.items()]
    axes[0].set_xticks(range(len(FIRST)), named)
    plots.percentages(axes[1], shares, range(len(NORMS)), range(len(rules)))
    axes[1].set_xticks(range(len(NORMS)), NAMES, rotation=45)
    axes[1].set_yticks(range(len(rules)), rules)
    for norm, rule in FIRST.items():
        corner = NORMS.index(norm) - 0.47, rules.index(rule) - 0.45
        axes[1].add_patch(Rectangle(corner, 0.94, 0.9, fill=False, lw=1.8, ec="#D55E00"))
    axes[1].set(title="heads whose ratio is the largest, %")
    axes[0].set(title="who was predicted first, less each rival")
    plots.legend(figure, axes[0])
    return figure


def _ends(values):
    """(low, mean, high) of the paired interval of a mean."""
    found = mean_interval(values)
    return found.low, found.values.mean(), found.high


def shares_table(
    optimal: Mapping[str, Mapping[str, np.ndarray]], found: Mapping[str, Disputes]
) -> str:
    """A line per rule: samples that select the opt token, disputes won of all, for every way."""
    lines = [f"{'':22}" + "".join(f"{way + ': opt, won':>28}" for way in optimal)]
    for rule in next(iter(optimal.values())):
        cells = []
        for way in optimal:
            pairs = {pair: v for pair, v in found[way].items() if pair[0] == rule}
            count, of = won(pairs, list(optimal[way]))
            cells.append(f"{optimal[way][rule].mean():.3f}, {count.sum()} of {of.sum()}")
        lines.append(f"{rule:22}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)
