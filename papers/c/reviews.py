"""Paper C on real data, from kept curves: what it claims of IMDb and of vision, drawn."""

from itertools import product

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.networks.measures import EDGES
from lib.training.curves import Curve, Curves
from papers import kept_curves, pieces, verdicts
from papers.kept_curves import judge, shown, together
from papers.run_measures import at_common_level
from papers.verdicts import Interval

SHOWN = 2_500  # test reviews of an evaluation
LAST = 4  # evaluations whose mean accuracy is judged
PARTS = ("K", "Q", "V")
PAPER = {"l1.1": 0.8257, "l2": 0.8061, "l3": 0.8133}  # last test accuracy, model size 3
PAIRS = (("l1.1", "l3"), ("l3", "l2"), ("l1.1", "l2"))  # better, worse
VISION = ("Adam", "l1.1")
# What is compared, and where: along which metric both runs are at one level.
EARLY, SPARSER = ("steps", "test_accuracy"), ("hoyer", "control_loss")
WHEN = {"start": "start", "last": "end"}


def _late(run: Curve) -> float:
    """Mean test accuracy of the last `LAST` evaluations, on a sample of rows."""
    return run.metrics["test_accuracy"][-LAST:].mean()


def _late_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """`_late` of every seed, (seeds,)."""
    return np.array([_late(run) for run in curves.runs(rule)])


def _right(curves: Curves, first: str, second: str) -> np.ndarray:
    """Which test rows `first` has right at its end, less those of `second`: (seeds, rows)."""
    hits = [np.stack([run.hits for run in curves.runs(rule)]) for rule in (first, second)]
    return hits[0].astype(float) - hits[1]


def _accuracy_difference(curves: Curves, first: str, second: str) -> Interval:
    """Test accuracy of `first` minus `second`, paired by seed and by test row."""
    return _paired(_right(curves, first, second))


def _paired(apart):  # differences (seeds, rows), with the error that both samples leave
    return verdicts.mean_interval(apart.mean(1), apart.mean(0).var(ddof=1) / apart.shape[1])


def _late_difference(curves: Curves, first: str, second: str) -> Interval:
    """Late accuracy of `first` less `second`; the error is of the rows sampled."""
    values = _late_accuracy(curves, first) - _late_accuracy(curves, second)
    between = _right(curves, first, second).mean(0).var(ddof=1)
    return verdicts.mean_interval(values, between / SHOWN)


def _ordered(curves: Curves, better: str, worse: str) -> Claim:
    """The claim that `better` ends with a higher test accuracy than `worse`."""

    def measure():
        measured = _late_difference(curves, better, worse)
        text = (
            f": mean of the last {LAST} evaluations, {len(measured.values)} seeds"
            f" (difference at the end, all rows: {_accuracy_difference(curves, better, worse)})"
        )
        return text, measured

    id, text = f"imdb.{better}.{worse}", f"{better} above {worse}"
    return judge(curves, id, text, "paper C, IMDb", verdicts.above, measure)


def accuracy_table(curves: Curves) -> Table:
    """The order of the three rules, each pair a claim."""
    return Table([_ordered(curves, *pair) for pair in PAIRS])


def _at_end(curves: Curves, rule: str, metric: str) -> np.ndarray:
    """The last value of `metric`, (seeds,)."""
    return np.array([float(run.metrics[metric][-1]) for run in curves.runs(rule)])


def _matched(curves: Curves, rules: tuple[str, str], name: str, along: str) -> np.ndarray:
    """`at_common_level` of two rules, seed by seed: (2, seeds)."""
    pairs = zip(*(curves.runs(rule) for rule in rules), strict=True)
    return np.transpose([at_common_level(pair, name, along) for pair in pairs])


def _apart(curves: Curves, metric: str) -> Interval:
    """The last value of `metric` under l1.1 less that under l2."""
    return verdicts.mean_interval(_at_end(curves, "l1.1", metric) - _at_end(curves, "l2", metric))


def _sparser(curves: Curves, part: str) -> Claim:
    """l1.1 has a higher Hoyer index, which no scale of entries changes, than l2, at the
    end and at matched training accuracy. Shares above a threshold are shown and not
    judged: a sparser matrix' heavier tail can raise them."""

    def measure():
        end, same = _measured(curves)[f"sparsity.{part}"].values()
        shares = {"above_90": "the start's 90 % quantile", "above_006": "0.06"}
        differences = [f"{text} {_apart(curves, f'{key}.{part}')}" for key, text in shares.items()]
        text = (
            f": Hoyer index at the end, l1.1 minus l2 (at matched training accuracy {same};"
            f" not judged, share of entries above {', '.join(differences)})"
        )
        return text, end, same

    id, text = f"sparsity.{part}", f"{part} sparser under l1.1"
    return judge(curves, id, text, "paper C, sparsity", verdicts.above, measure)


def sparsity_table(curves: Curves) -> Table:
    """Sparsity of keys, queries and values."""
    return Table([_sparser(curves, part) for part in PARTS])


def _tokens_used(curves: Curves, rule: str, when: str = "last") -> np.ndarray:
    """Tokens attended to per token present: (seeds, reviews, layers)."""
    ends = [run.end for run in curves.runs(rule)]
    shares = [end[f"{when}.tokens_used"] / end["present"][:, None] for end in ends]
    return np.stack(shares).astype(float)


def attention_table(curves: Curves) -> Table:
    """l1.1 attends more sharply than l2, in the last layer."""

    def measure():
        (measured,) = _measured(curves)["attention.sharper"].values()
        first, second = (_tokens_used(curves, rule)[..., -1].mean() for rule in ("l1.1", "l2"))
        start = _tokens_used(curves, "l2", "start")[..., -1].mean()
        text = (
            f": share of tokens used in the last layer, l2 ({second:.3f}) minus l1.1"
            f" ({first:.3f}), {len(measured.values)} seeds; at the start {start:.3f}"
        )
        return text, measured

    about = "attention.sharper", "l1.1 sharper than l2", "paper C, attention maps"
    return Table([judge(curves, *about, verdicts.above, measure)])


def _measured(curves: Curves) -> dict[str, dict[str, Interval]]:
    """Of each claim on reviews, by its id, the intervals that judge it, by their names.
    Matched is at the best training accuracy that both runs of a seed reach."""
    known, rules = {}, ("l1.1", "l2")
    for a, b in PAIRS:
        known[f"imdb.{a}.{b}"] = {f"{shown(a)} less {shown(b)}": _late_difference(curves, a, b)}
    for part in PARTS:
        first, second = _matched(curves, rules, f"hoyer.{part}", "training_accuracy")
        ways = {part: _apart(curves, f"hoyer.{part}")}
        ways[f"{part}, matched"] = verdicts.mean_interval(first - second)
        known[f"sparsity.{part}"] = ways
    first, second = (_tokens_used(curves, rule)[..., -1] for rule in rules)
    return known | {"attention.sharper": {"": _paired(second - first)}}


def summary(curves: Curves) -> str:
    """Verdict, Holm's p over all, and intervals of every claim on reviews; where the
    study cannot speak, p and intervals are those by which it would have been judged."""
    known, alone = _measured(curves), {}
    for id, ways in known.items():
        alone[id] = max(verdicts.p_value(way, verdicts.above) for way in ways.values())
    p, lines = verdicts.holm(alone), []
    for claim in (*accuracy_table(curves), *sparsity_table(curves), *attention_table(curves)):
        name, ends = claim.statement.split(":")[0], map(str, known[claim.id].values())
        lines.append(f"{claim.verdict}  {p[claim.id]:.3f}  {name}: {', '.join(ends)}")
    return "\n".join(lines)


def numbers(curves: Curves) -> dict[str, Number]:
    """Those of `kept_curves`, late and training accuracy, sparsity, tokens used."""
    measured = kept_curves.numbers(curves)
    for rule in curves.rates():
        values = {
            "late_test_accuracy": _late_accuracy(curves, rule),
            "training_accuracy": _at_end(curves, rule, "training_accuracy"),
        }
        for metric, part in product(("hoyer", "above_90"), PARTS):
            values[f"{metric}_{part}"] = _at_end(curves, rule, f"{metric}.{part}")
        name = rule.replace(".", "_")
        measured |= {f"{name}_{key}": finite(each.mean(), 1e-9) for key, each in values.items()}
        used = _tokens_used(curves, rule)[..., -1].mean()
        measured[f"{name}_tokens_used"] = finite(used, 1e-7)
    return measured


def _early(curves: Curves) -> Claim:
    """Adam gets to the accuracy that both reach in fewer steps."""

    def measure():
        adam, mirror = _matched(curves, VISION, *EARLY)
        text = (
            ": steps to the best test accuracy that both reach, over those of l1.1,"
            f" {len(adam)} seeds; {_two_rates(curves, lambda x, y: x / y, *EARLY)}"
        )
        return text, verdicts.ratio_interval(adam / mirror)

    about = "vit.early", "Adam ahead early", "paper C, vision"
    return judge(curves, *about, verdicts.faster, measure)


def _sparser_vision(curves: Curves) -> Claim:
    """The median Hoyer index is larger under l1.1, at matched training loss."""

    def measure():
        adam, mirror = _matched(curves, VISION, *SPARSER)
        last = [_at_end(curves, rule, "hoyer").mean() for rule in ("l1.1", "Adam")]
        text = (
            ": Hoyer index, l1.1 minus Adam, at matched training loss"
            f" (at the end {last[0]:.3f} and {last[1]:.3f});"
            f" {_two_rates(curves, lambda x, y: y - x, *SPARSER)}"
        )
        return text, verdicts.mean_interval(mirror - adam)

    about = "vit.sparser", "l1.1 sparser", "paper C, vision"
    return judge(curves, *about, verdicts.above, measure)


def _two_rates(curves: Curves, compared, name: str, *along) -> str:
    """Least and most that is `compared` at the best two rates of both, in the trials."""
    best = (sorted(curves.trials(rule), key=_late)[-2:] for rule in VISION)
    values = [compared(*at_common_level(pair, name, *along)) for pair in product(*best)]
    return f"at the best two rates of both, in the trials, {min(values):.2g} to {max(values):.2g}"


def vision_table(curves: Curves) -> Table:
    """Adam ahead early, l1.1 sparser; equal ends after 1,000 epochs are not tested."""
    return Table([_early(curves), _sparser_vision(curves)])


def vision_numbers(curves: Curves) -> dict[str, Number]:
    """Those of `kept_curves`, Hoyer indices, accuracies apart at the end."""
    measured = kept_curves.numbers(curves)
    for rule in VISION:
        index = _at_end(curves, rule, "hoyer").mean()
        measured[f"{rule.lower().replace('.', '_')}_hoyer"] = finite(index, 1e-9)
    return measured | kept_curves.ends("end_apart", _accuracy_difference(curves, *VISION))


def rates(curves: Curves) -> Figure:
    """Held-out accuracy of every rate that was tried; a ring marks the rate chosen."""
    percent = lambda run: 100 * float(_late(run))
    return kept_curves.rates_figure(curves, percent, "Held-out accuracy (%)")


def _differences(ax, curves: Curves, table: Table, scale=1.0, also=()) -> None:
    """A forest of the intervals of a table, with room for the values `also`."""
    bars, known = [], _measured(curves)
    rows = [(claim, *row) for claim in table for row in known[claim.id].items()]
    for claim, name, measured in rows:
        values = scale * np.array([measured.estimate, measured.low, measured.high])
        word = claim.verdict if claim.interval else "not judged"
        words = f"{values[0]:+.{3 - round(np.log10(scale))}f} {word}"  # all to one digit
        points = scale * measured.values
        bar = pieces.Bar(name, *values, claim.verdict, points=tuple(points), words=words)
        bars.append(bar)
    drawn = [value for bar in bars for value in (0.0, bar.low, bar.high, *bar.points, *also)]
    room = 0.1 * (max(drawn) - min(drawn))
    pieces.forest(ax, bars, (min(drawn) - room, max(drawn) + room))


def accuracy_figure(curves: Curves) -> Figure:
    """Loss, accuracy, the paired differences that are judged; stars: the paper's."""
    figure, axes = plots.panels(1, 3, height=2.9)
    kept_curves.losses(axes[0], curves)
    kept_curves.accuracies(axes[1], curves)
    paper = [100 * (PAPER[a] - PAPER[b]) for a, b in PAIRS]
    _differences(axes[2], curves, accuracy_table(curves), 100, paper)
    axes[2].plot(paper, range(len(paper)), "*", color=plots.BLACK, markersize=7)
    axes[2].set(title="Accuracy, mean of the last four", xlabel="Difference, points, sampled rows")
    return plots.legend(figure, axes[0])


def sparsity_figure(curves: Curves) -> Figure:
    """How magnitudes move, Hoyer index; l1.1 less l2, at the end and matched."""
    figure, axes = plots.panels(2, 3, height=2.1)
    (index, judged), grid = axes[3:5], axes[0].get_gridspec()
    axes[5].remove()
    judged.set_subplotspec(grid[1, 1:])

    def share(rule, name):  # per cent of the entries of all runs
        counts = np.sum([run.end[name] for run in curves.runs(rule)], axis=0)
        return 100 * counts / counts.sum()

    for k, part in enumerate(PARTS):
        for place, rule in enumerate(curves.rates()):
            look = plots.look(rule)
            line = look.line | dict(zorder=4 - place)  # the first, l1.1, on top
            start, last = (share(rule, f"{when}.histogram.{part}") for when in WHEN)
            axes[k].stairs(last - start, EDGES, label=shown(rule), baseline=None, **line)
            ends = _at_end(curves, rule, f"hoyer.{part}")
            x = k + 0.22 * (place - 1)
            index.plot([x] * len(ends), ends, ms=2.5, mfc="none", **look.mark)
            index.plot(x, np.mean(ends), ms=5, **look.mark)
            number = dict(ha="center", fontsize=6, rotation=90, color=look.colour)
            index.text(x, max(ends) + 0.012, f"{np.mean(ends):.3f}", **number)
        axes[k].axvline(0.06, label="0.06, the paper's threshold", **plots.LEVEL)
        axes[k].set(title=f"{part}: entries, end less start", xlabel="Magnitude")
        axes[k].set(xscale="log", xlim=(4e-3, 1.5))
    axes[0].set_ylabel("change of share, points")
    index.set_xticks(range(len(PARTS)), PARTS)
    index.set(title="Hoyer index", xlim=(-0.5, len(PARTS) - 0.5))
    index.set_ylim(None, index.get_ylim()[1] + 0.05)
    _differences(judged, curves, sparsity_table(curves))
    judged.set(title=f"Hoyer index, {shown('l1.1')} less {shown('l2')}")
    return plots.legend(figure, axes[0])


def attention_figure(curves: Curves) -> Figure:
    """Tokens used by layer, start and end; the difference in the last, judged."""
    figure, (left, right) = plots.panels(1, 2, height=2.7)
    _differences(right, curves, attention_table(curves), scale=100)
    right.set(title=f"Last layer, {shown('l2')} less {shown('l1.1')}", xlabel="Points")
    rules = list(curves.rates())
    layers = _tokens_used(curves, rules[0]).shape[-1]
    for k, rule in enumerate(rules):
        look = plots.look(rule)
        for layer, (when, face) in product(range(layers), (("start", "none"), ("last", None))):
            values = 100 * _tokens_used(curves, rule, when)[..., layer].mean(1)
            x = layer + 0.29 * (k - 1) + (0.06 if when == "last" else 0)
            label = f"{shown(rule)}, {WHEN[when]}" if not layer else None
            left.plot([x] * len(values), values, ms=2.5, mfc=face, **look.mark)
            left.plot(x, values.mean(), ms=6, mfc=face, label=label, **look.mark)
            if when == "last" and layer == layers - 1:
                words = f"{values.mean():.0f} %"
                pieces.beside(left, x, values.mean(), words, look.colour, (6, 0))
    left.set(title="Tokens used by attention", ylim=(-5, 108), xlabel="Layer")
    left.set_ylabel("exp(entropy), % of the tokens")
    left.set_xlim(-0.5, layers - 0.45)
    left.set_xticks(range(layers), range(1, layers + 1))
    return plots.legend(figure, left)


def maps(curves: Curves) -> Figure:
    """The last attention weights of two reviews, first seed, all on one scale."""
    first = {rule: curves.runs(rule)[0] for rule in curves.rates()}
    words = next(iter(first.values())).end["words"]
    shares = np.stack([run.end["last.maps"][:, -1] for run in first.values()], 1)
    figure, grid = plots.panels(2, 1, height=1.8)
    for row, ax in enumerate(grid):
        image = ax.imshow(shares[row], cmap="Greens", aspect="auto", vmin=0, vmax=shares.max())
        ax.set_xticks(range(shares.shape[-1]), words[row], rotation=90, fontsize=6)
        ax.set_yticks(range(len(first)), map(shown, first))
        ax.set(title=f"Attention weights, a review of label {1 - row}")
        ax.grid(False)
    figure.colorbar(image, ax=grid, label="weight", shrink=0.8)
    return figure


def vision_figure(curves: Curves) -> Figure:
    """Loss, test accuracy with steps to equal accuracy, Hoyer against the loss."""
    figure, axes = plots.panels(1, 3, height=2.7)
    kept_curves.losses(axes[0], curves)
    kept_curves.accuracies(axes[1], curves)
    steps = _matched(curves, VISION, *EARLY)
    levels = _matched(curves, VISION, "test_accuracy", "test_accuracy")
    early, sparser = vision_table(curves)
    ends = []
    for k, rule in enumerate(VISION):
        look, runs = plots.look(rule), curves.runs(rule)
        axes[1].plot(steps[k], 100 * levels[k], markersize=4, mfc="none", **look.mark)
        x, y = (together([run.metrics[name] for run in runs]) for name in ("control_loss", "hoyer"))
        axes[2].plot(x.T, y.T, color=look.colour, linewidth=0.7, alpha=0.6)
        axes[2].plot(np.median(x, 0), np.median(y, 0), **look.line)
        ends.append((y[:, -1].mean(), f"{y[:, -1].mean():.3f}", look.colour))
    notes = (
        (axes[1], (0.36, 0.35), "Adam", early, "of the steps"),
        (axes[2], (0.04, 0.96), shown("l1.1"), sparser, "more\nat equal loss"),
    )
    for ax, place, rule, claim, what in notes:
        words = claim.verdict
        if claim.interval:
            number, low, high = (f"{value:.2g}" for value in (claim.measured, *claim.interval))
            words = f"{rule}: {number} {what}\n({low} to {high}),\n{words}"
        pieces.note(ax, words, *place, va="top")
    axes[2].set(title="Hoyer index", xlabel="Training loss, falling")
    axes[2].invert_xaxis()
    pieces.end_labels(axes[2], ends)
    return plots.legend(figure, axes[0])


def caption(number: str, curves: Curves, marks: str, table: Table) -> str:
    """Marks of figure `number`, why it is not judged, setting, rates, verdicts."""
    study = curves.configuration
    for claim in [claim for claim in table if not claim.interval][:1]:
        marks += f"; not judged: {claim.statement.partition(': ')[2]}"
    short = any(len(run.loss) < study["horizon"] for run in curves.judged())
    early = f"a run ends early at {study['stop']}" if short else "no run ended early"
    chosen = ", chosen by held-out accuracy."
    number = f"Paper C, {number}"
    return kept_curves.caption(number, curves, marks, table, chosen, f"; {early}")
