"""The pictures of notebook 45: each draws what the notebook computed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.companion import plots
from lib.papers.beyond.atlas_figures import LABELS, LOWEST
from lib.papers.beyond.factored_atlas import NORMS, Ends, FactorRow
from lib.papers.beyond.network_margins import MarginReading
from lib.papers.beyond.networks_claims import FIRST, Disputes, counted, level, won

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
    """Left the share of opt tokens by rule and way, right the share of disputes won."""
    figure, axes = plots.panels(1, 2, height=3.0)
    rules = list(optimal["from zero"])
    names = [name.replace("steepest, ", "") for name in rules]
    names = [LABELS.get(name, name) for name in names]
    for shift, (way, (colour, mark)) in zip((-0.2, 0, 0.2), WAYS.items(), strict=True):
        y = np.arange(len(rules)) + shift
        line = dict(color=colour, marker=mark, ls="", ms=5, label=way)
        axes[0].plot([optimal[way][name].mean() for name in rules], y, **line)
        own = [[v for (a, _), v in found[way].items() if a == name] for name in rules]
        shares = [(np.concatenate(v) > 0).mean() if sum(map(len, v)) else np.nan for v in own]
        axes[1].plot(shares, y, **line)
    for axis in axes:
        axis.set_yticks(range(len(rules)), names)
        axis.invert_yaxis()
    axes[1].axvline(0.5, color="0.3", ls=":")
    axes[0].set(xlabel="share of samples that select the opt token", xlim=(None, 1.02))
    axes[1].set(xlabel="disputes whose own selection has\nthe larger margin in the own norm")
    axes[1].set_xlim(-0.02, 1.02)
    plots.legend(figure, axes[0])
    return figure


def ranking(found: Mapping[str, Sequence[MarginReading]]) -> Figure:
    """Left each rule's ratio over the rules' mean, by norm; right where it is the largest."""
    figure, axes = plots.panels(1, 2, height=3.1)
    levels = {rule: level(runs) for rule, runs in found.items()}  # (seeds, norms)
    middle = np.mean(list(levels.values()), 0)
    for k, (rule, own) in enumerate(levels.items()):
        x, ratio = np.arange(len(NORMS)) + 0.16 * (k - 1.5), np.exp(own - middle)
        centre = np.median(ratio, 0)
        spread = [centre - ratio.min(0), ratio.max(0) - centre]
        style = dict(color=INK[rule], marker=MARKS[rule], ls="", ms=5, capsize=2)
        axes[0].errorbar(x, centre, spread, label=rule, **style)
    axes[0].axhline(1, color="0.3", ls=":")
    axes[0].set(yscale="log", ylabel="ratio over the mean of the rules")
    low, high = axes[0].get_ylim()
    ticks = [t for t in (0.25, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.7, 2, 4) if low <= t <= high]
    axes[0].set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes[0].minorticks_off()
    axes[0].set_xticks(range(len(NORMS)), NAMES, rotation=45)
    shares, rules = counted(found), list(found)
    plots.percentages(axes[1], shares, range(len(NORMS)), range(len(rules)))
    axes[1].set_xticks(range(len(NORMS)), NAMES, rotation=45)
    axes[1].set_yticks(range(len(rules)), rules)
    for norm, rule in FIRST.items():
        corner = NORMS.index(norm) - 0.47, rules.index(rule) - 0.45
        axes[1].add_patch(Rectangle(corner, 0.94, 0.9, fill=False, lw=1.8, ec="#D55E00"))
    axes[1].set(title="heads whose ratio is the largest, %")
    axes[0].set(title="ratio, median and range of seeds")
    plots.legend(figure, axes[0])
    return figure


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
            cells.append(f"{optimal[way][rule].mean():.3f}, {count} of {of}")
        lines.append(f"{rule:22}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)
