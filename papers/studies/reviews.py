"""Paper C on real data: IMDb reviews and vision, judged and drawn from kept curves.

What is claimed is the stored output of its authors' code.
"""

from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from companion.claims import Claim, Table
from companion.record import Number, finite
from lib.training.curves import Curve, Curves
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.kept_curves import judge, shown, together
from papers.studies.run_measures import at_common_level
from papers.verdicts import Interval

# Of a claim. Our copy of the paper has no experiments: we read the code's stored
# output.
SOURCE = "authors' code of paper C, {} (our reading)"
SHOWN = 2_500  # test reviews in an evaluation
LAST = 4  # how many evaluations are averaged for the judged accuracy
PARTS = ("K", "Q", "V")
PAPER = {"l1.1": 0.8257, "l2": 0.8061, "l3": 0.8133}  # last test accuracy, model size 3
# Largest test accuracy, model size 3
PAPER_MOST = {
    "l1.1": 0.8347,
    "l2": 0.8166,
    "l3": 0.8257,
}
THRESHOLD = 0.06  # the paper counts the entries whose magnitude is above it
# How many entries of K, Q and V the paper counts above THRESHOLD, in a model of size 6.
PAPER_COUNTS = {"l1.1": (18_206, 13_964, 7_643), "l2": (27_224, 14_654, 10_127)}
PAIRS = (("l1.1", "l3"), ("l3", "l2"), ("l1.1", "l2"))  # better, worse
VISION = ("Adam", "l1.1")
# Limit of the Hoyer index of entries of one uniform law, about 0.134
UNIFORM = 1 - np.sqrt(3) / 2
CHARACTERS = 118  # characters in a line of words in boxes
# What is compared, and the metric in which both runs are at the same level.
EARLY = ("steps", "test_accuracy")
SPARSER = ("hoyer", "control_loss")
WHEN = {"start": "start", "last": "end"}


def _late(run: Curve) -> float:
    """Return the mean test accuracy of the last `LAST` evaluations, on a sample of
    rows.
    """
    return run.metrics["test_accuracy"][-LAST:].mean()


def _late_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """Return `_late` of every seed, (seeds,)."""
    return np.array([_late(run) for run in curves.runs(rule)])


def _right(curves: Curves, first: str, second: str) -> np.ndarray:
    """Return which test rows `first` classifies correctly at its end, minus those of
    `second`.

    The result is (seeds, rows), with entries -1, 0 and 1.
    """
    hits = [
        np.stack([run.hits for run in curves.runs(rule)]) for rule in (first, second)
    ]
    return hits[0].astype(float) - hits[1]


def _accuracy_difference(curves: Curves, first: str, second: str) -> Interval:
    """Return the test accuracy of `first` minus `second`, paired by seed and by test
    row.
    """
    return _paired(_right(curves, first, second))


def _paired(
    apart: np.ndarray,
):  # differences (seeds, rows), with the error that both samples leave
    return verdicts.mean_interval(
        apart.mean(1), apart.mean(0).var(ddof=1) / apart.shape[1]
    )


def _late_difference(curves: Curves, first: str, second: str) -> Interval:
    """Return the late accuracy of `first` minus `second`.

    Its error includes that of the sampled rows.
    """
    values = _late_accuracy(curves, first) - _late_accuracy(curves, second)
    between = _right(curves, first, second).mean(0).var(ddof=1)
    return verdicts.mean_interval(values, between / SHOWN)


def _ordered(curves: Curves, better: str, worse: str) -> Claim:
    """Judge that `better` ends with a higher test accuracy than `worse`."""

    def measure():
        measured = _late_difference(curves, better, worse)
        text = (
            f": mean of the last {LAST} evaluations, {len(measured.values)} seeds"
            " (difference at the end, all rows: "
            f"{_accuracy_difference(curves, better, worse)})"
        )
        return text, measured

    id = f"imdb.{better}.{worse}"
    text = f"{better} above {worse}"
    return judge(curves, id, text, SOURCE.format("IMDb"), verdicts.above, measure)


def accuracy_table(curves: Curves) -> Table:
    """Judge the order of the three rules, one claim per pair."""
    return Table([_ordered(curves, *pair) for pair in PAIRS])


def _at_end(curves: Curves, rule: str, metric: str) -> np.ndarray:
    """Return the last value of `metric`, (seeds,)."""
    return np.array([float(run.metrics[metric][-1]) for run in curves.runs(rule)])


def _matched(
    curves: Curves, rules: tuple[str, str], name: str, along: str
) -> np.ndarray:
    """Return `at_common_level` of two rules for each seed, (2, seeds)."""
    pairs = zip(*(curves.runs(rule) for rule in rules), strict=True)
    return np.transpose([at_common_level(pair, name, along) for pair in pairs])


def _apart(curves: Curves, metric: str) -> Interval:
    """Return the last value of `metric` under l1.1 minus the one under l2."""
    return verdicts.mean_interval(
        _at_end(curves, "l1.1", metric) - _at_end(curves, "l2", metric)
    )


def _sparser(curves: Curves, part: str) -> Claim:
    """Judge that l1.1 has a higher Hoyer index than l2.

    The index does not depend on the scale of the entries. It is compared at the end and
    at matched training accuracy. Shares above a threshold are shown and not judged,
    because the heavier tail of a sparser matrix can raise them.
    """

    def measure():
        end, same = intervals(curves)[f"sparsity.{part}"].values()
        shares = {"above_90": "the start's 90 % quantile", "above_006": "0.06"}
        differences = [
            f"{text} {_apart(curves, f'{key}.{part}')}" for key, text in shares.items()
        ]
        text = (
            ": Hoyer index at the end, l1.1 minus l2 (at matched training "
            f"accuracy {same};"
            f" not judged, share of entries above {', '.join(differences)})"
        )
        return text, end, same

    id = f"sparsity.{part}"
    text = f"{part} sparser under l1.1"
    return judge(curves, id, text, SOURCE.format("sparsity"), verdicts.above, measure)


def sparsity_table(curves: Curves) -> Table:
    """Judge the sparsity of keys, queries and values."""
    return Table([_sparser(curves, part) for part in PARTS])


def _tokens_used(curves: Curves, rule: str, when: str = "last") -> np.ndarray:
    """Return the share of tokens attended to, (seeds, reviews, layers)."""
    ends = [run.end for run in curves.runs(rule)]
    shares = [end[f"{when}.tokens_used"] / end["present"][:, None] for end in ends]
    return np.stack(shares).astype(float)


def attention_table(curves: Curves) -> Table:
    """Judge that l1.1 attends more sharply than l2 in the last layer."""

    def measure():
        (measured,) = intervals(curves)["attention.sharper"].values()
        first, second = (
            _tokens_used(curves, rule)[..., -1].mean() for rule in ("l1.1", "l2")
        )
        start = _tokens_used(curves, "l2", "start")[..., -1].mean()
        text = (
            f": share of tokens used in the last layer, l2 ({second:.3f}) minus l1.1"
            f" ({first:.3f}), {len(measured.values)} seeds; at the start {start:.3f}"
        )
        return text, measured

    source = SOURCE.format("attention maps")
    about = "attention.sharper", "l1.1 sharper than l2", source
    return Table([judge(curves, *about, verdicts.above, measure)])


def intervals(curves: Curves) -> dict[str, dict[str, Interval]]:
    """Return the intervals that judge each claim on reviews, by claim id and name.

    The name "matched" means the best training accuracy that both runs of a seed reach.
    """
    known = {}
    rules = ("l1.1", "l2")
    for a, b in PAIRS:
        known[f"imdb.{a}.{b}"] = {
            f"{shown(a)} less {shown(b)}": _late_difference(curves, a, b)
        }
    for part in PARTS:
        first, second = _matched(curves, rules, f"hoyer.{part}", "training_accuracy")
        ways = {part: _apart(curves, f"hoyer.{part}")}
        ways[f"{part}, matched"] = verdicts.mean_interval(first - second)
        known[f"sparsity.{part}"] = ways
    first, second = (_tokens_used(curves, rule)[..., -1] for rule in rules)
    return known | {"attention.sharper": {"": _paired(second - first)}}


def summary(curves: Curves) -> str:
    """Describe every claim on reviews: verdict, Holm's p over all, and intervals.

    If the study cannot decide, p and intervals are those by which it would have been
    judged.
    """
    known = intervals(curves)
    alone = {}
    for id, ways in known.items():
        alone[id] = max(verdicts.p_value(way, verdicts.above) for way in ways.values())
    p = verdicts.holm(alone)
    lines = []
    for claim in (
        *accuracy_table(curves),
        *sparsity_table(curves),
        *attention_table(curves),
    ):
        name = claim.statement.split(":")[0]
        ends = map(str, known[claim.id].values())
        lines.append(f"{claim.verdict}  {p[claim.id]:.3f}  {name}: {', '.join(ends)}")
    return "\n".join(lines)


def numbers(curves: Curves) -> dict[str, Number]:
    """Return the numbers of `kept_curves`, late and training accuracy, sparsity, tokens
    used.
    """
    measured = kept_curves.numbers(curves)
    for rule in curves.rates():
        values = {
            "late_test_accuracy": _late_accuracy(curves, rule),
            "training_accuracy": _at_end(curves, rule, "training_accuracy"),
        }
        for metric, part in product(("hoyer", "above_90"), PARTS):
            values[f"{metric}_{part}"] = _at_end(curves, rule, f"{metric}.{part}")
        name = rule.replace(".", "_")
        measured |= {
            f"{name}_{key}": finite(each.mean(), 1e-9) for key, each in values.items()
        }
        used = _tokens_used(curves, rule)[..., -1].mean()
        measured[f"{name}_tokens_used"] = finite(used, 1e-7)
        measured[f"{name}_most_test_accuracy"] = finite(
            _most_accuracy(curves, rule).mean(), 1e-9
        )
        for part in PARTS:
            measured[f"{name}_count_{part}"] = finite(
                counts(curves, rule, part).mean(), 1e-6
            )
    return measured


def numbers_beside(curves: Curves, reduced: Curves) -> dict[str, Number]:
    """Return `numbers` of a study, and those of the `reduced` study as
    "reduced_...".
    """
    smaller = {f"reduced_{name}": number for name, number in numbers(reduced).items()}
    return numbers(curves) | smaller


def _early(curves: Curves) -> Claim:
    """Judge that Adam reaches the accuracy that both rules reach in fewer steps."""

    def measure():
        adam, mirror = _matched(curves, VISION, *EARLY)
        text = (
            ": steps to the best test accuracy that both reach, over those of l1.1,"
            f" {len(adam)} seeds; {_two_rates(curves, lambda x, y: x / y, *EARLY)}"
        )
        return text, verdicts.ratio_interval(adam / mirror)

    about = "vit.early", "Adam ahead early", SOURCE.format("vision")
    return judge(curves, *about, verdicts.faster, measure)


def _sparser_vision(curves: Curves) -> Claim:
    """Judge that the median Hoyer index is larger under l1.1, at matched training
    loss.
    """

    def measure():
        adam, mirror = _matched(curves, VISION, *SPARSER)
        last = [_at_end(curves, rule, "hoyer").mean() for rule in ("l1.1", "Adam")]
        text = (
            ": Hoyer index, l1.1 minus Adam, at matched training loss"
            f" (at the end {last[0]:.3f} and {last[1]:.3f});"
            f" {_two_rates(curves, lambda x, y: y - x, *SPARSER)}"
        )
        return text, verdicts.mean_interval(mirror - adam)

    about = "vit.sparser", "l1.1 sparser", SOURCE.format("vision")
    return judge(curves, *about, verdicts.above, measure)


def _two_rates(curves: Curves, compared: Any, name: str, *along: Any) -> str:
    """Write the least and largest of `compared` at the best two rates of both rules.

    The runs are the trials.
    """
    best = (sorted(curves.trials(rule), key=_late)[-2:] for rule in VISION)
    values = [compared(*at_common_level(pair, name, *along)) for pair in product(*best)]
    return (
        f"at the best two rates of both, in the trials, {min(values):.2g} to "
        f"{max(values):.2g}"
    )


def vision_table(curves: Curves) -> Table:
    """Judge that Adam is ahead early and l1.1 sparser.

    That both end equal after 1,000 epochs is not tested.
    """
    return Table([_early(curves), _sparser_vision(curves)])


def vision_numbers(curves: Curves) -> dict[str, Number]:
    """Return the numbers of `kept_curves`, Hoyer indices, and how far accuracies end
    apart.
    """
    measured = kept_curves.numbers(curves)
    for rule in VISION:
        index = _at_end(curves, rule, "hoyer").mean()
        measured[f"{rule.lower().replace('.', '_')}_hoyer"] = finite(index, 1e-9)
    return measured | kept_curves.ends(
        "end_apart", _accuracy_difference(curves, *VISION)
    )


def rates(curves: Curves) -> Figure:
    """Draw the held-out accuracy of every rate that was tried; a ring marks the chosen
    rate.
    """

    def percent(run: Any):
        return 100 * float(_late(run))

    return kept_curves.rates_figure(curves, percent, "Held-out accuracy (%)")


def _differences(
    ax: Axes,
    curves: Curves,
    table: Table,
    scale: float = 1.0,
    also: Any = (),
    digits: int = 1,
) -> None:
    """Draw the intervals of a table as a forest, to `digits`.

    The axis leaves room for the values `also`.
    """
    bars = []
    known = intervals(curves)
    rows = [(claim, *row) for claim in table for row in known[claim.id].items()]
    for claim, name, measured in rows:
        values = scale * np.array([measured.estimate, measured.low, measured.high])
        word = claim.verdict if claim.interval else "not judged"
        words = f"{values[0]:+.{digits}f} {word}"
        points = scale * measured.values
        bar = pieces.Bar(
            name, *values, claim.verdict, points=tuple(points), words=words
        )
        bars.append(bar)
    drawn = [
        value for bar in bars for value in (0.0, bar.low, bar.high, *bar.points, *also)
    ]
    room = 0.1 * (max(drawn) - min(drawn))
    pieces.forest(ax, bars, (min(drawn) - room, max(drawn) + room))


def _most_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """Return the largest test accuracy of every seed on the sampled rows, (seeds,)."""
    return np.array([run.metrics["test_accuracy"].max() for run in curves.runs(rule)])


def _last_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """Return the test accuracy of every seed at its end on all test rows, (seeds,)."""
    return np.array([run.hits.mean() for run in curves.runs(rule)])


def _beside_the_paper(ax: Axes, curves: Curves, reduced: Curves) -> None:
    """Draw the accuracy table as a panel: last and largest accuracy by rule, with the
    paper's.

    Each rule has two rows, "last" and "largest". Dots are seeds, the mark is their
    mean, and a star is the paper's mean. The hollow mark is the mean of the `reduced`
    network. The means are also written to the right of each row, in per cent.
    """
    names = []
    words = []
    table = (("last", _last_accuracy, PAPER), ("largest", _most_accuracy, PAPER_MOST))
    for rule in PAPER:
        for what, measure, theirs in table:
            row = len(names)
            look = plots.look(rule)
            ours, smaller = (100 * measure(one, rule) for one in (curves, reduced))
            paper = 100 * theirs[rule]
            ax.plot(ours, [row - 0.3] * len(ours), "o", ms=2.5, color=look.colour)
            ax.plot(ours.mean(), row, ms=6, **look.mark)
            ax.plot(smaller.mean(), row, ms=5, mfc="none", **look.mark)
            ax.plot(paper, row, "*", ms=8, color=plots.BLACK)
            names.append(f"{shown(rule)}, {what}")
            words.append(f"{ours.mean():.1f} | {paper:.1f} | {smaller.mean():.1f}")
    words[0] = f"ours | paper | reduced\n{words[0]}\n"
    best = max(curves.baselines().values(), default=None)
    if best is not None:
        ax.axvline(100 * best, **plots.LEVEL)
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.set(ylim=(len(names) - 0.5, -0.7), xlabel="Test accuracy, %")
    ax.set(title="Beside the paper's table, size 3")
    ax.grid(False, axis="y")
    pieces.row_words(ax, words)


def accuracy_figure(curves: Curves, reduced: Curves | None = None) -> Figure:
    """Draw test accuracy over steps, and the accuracy table beside the paper's.

    Parameters
    ----------
    curves : Curves
        The kept curves of the study.
    reduced : Curves, optional
        A smaller study, whose means are hollow marks.
    """
    figure, axes = plots.panels(1, 2, height=3.1)
    kept_curves.accuracies(axes[0], curves)
    _beside_the_paper(axes[1], curves, reduced or curves)
    return plots.legend(figure, axes[0])


def difference_figure(curves: Curves) -> Figure:
    """Draw the training loss, and the differences of accuracy that would be judged."""
    figure, axes = plots.panels(1, 2, height=2.7)
    kept_curves.losses(axes[0], curves)
    paper = [100 * (PAPER[a] - PAPER[b]) for a, b in PAIRS]
    _differences(axes[1], curves, accuracy_table(curves), 100, paper)
    axes[1].plot(paper, range(len(paper)), "*", color=plots.BLACK, markersize=7)
    axes[1].set(
        title="Accuracy, mean of the last four",
        xlabel="Difference, points, sampled rows",
    )
    return plots.legend(figure, axes[0])


def counts(curves: Curves, rule: str, part: str) -> np.ndarray:
    """Count the entries of `part` (K, Q or V) above THRESHOLD at the end, (seeds,)."""
    entries = np.array(
        [run.end[f"last.histogram.{part}"].sum() for run in curves.runs(rule)]
    )
    return np.round(_at_end(curves, rule, f"above_006.{part}") * entries)


def count_rows(curves: Curves) -> list[tuple[str, list[str]]]:
    """Return the rows of the table of counts: K, Q, V, each a mean over seeds with its
    change.

    The counts of two rules differ by less than those of two starts. So the table also
    shows the paired difference to the last rule but one.
    """
    rows = [
        (shown(rule), [f"{counts(curves, rule, part).mean():,.0f}" for part in PARTS])
        for rule in curves.rates()
    ]
    apart = [
        counts(curves, "l2", part) - counts(curves, "l1.1", part) for part in PARTS
    ]
    less = f"{shown('l2')} less {shown('l1.1')}"
    rows.append((less, [f"{values.mean():+,.0f}" for values in apart]))
    agree = [f"{(values > 0).sum()} of {len(values)}" for values in apart]
    rows.append(("seeds where fewer", agree))
    paper = {rule: np.array(values) for rule, values in PAPER_COUNTS.items()}
    rows.append(
        (f"paper, {less}", [f"{value:+,}" for value in paper["l2"] - paper["l1.1"]])
    )
    return rows


def sparsity_figure(curves: Curves, reduced: Curves | None = None) -> Figure:
    """Draw the difference of the Hoyer index, and the index of each rule.

    Parameters
    ----------
    curves : Curves
        The kept curves of the study.
    reduced : Curves, optional
        A smaller study, whose means are hollow marks.
    """
    figure, (judged, index) = plots.panels(1, 2, height=2.7)
    for k, part in enumerate(PARTS):
        for place, rule in enumerate(curves.rates()):
            look = plots.look(rule)
            x = k + 0.25 * (place - 1)
            ends = _at_end(curves, rule, f"hoyer.{part}")
            label = shown(rule) if k == 0 else None
            index.plot(x, np.mean(ends), ms=5, label=label, **look.mark)
            if reduced is not None:
                smaller = _at_end(reduced, rule, f"hoyer.{part}").mean()
                index.plot(x, smaller, ms=4, mfc="none", **look.mark)
    index.axhline(UNIFORM, **plots.LEVEL)
    index.set_xticks(range(len(PARTS)), PARTS)
    index.set(title="Hoyer index (hollow: reduced)", xlim=(-0.5, len(PARTS) - 0.5))
    _differences(judged, curves, sparsity_table(curves), digits=5)
    judged.set(title=f"Hoyer index, {shown('l1.1')} minus {shown('l2')}")
    return plots.legend(figure, index)


def attention_figure(curves: Curves, reduced: Curves | None = None) -> Figure:
    """Draw attention maps as words in boxes, and the share of tokens used.

    The means of the study `reduced` are drawn as well.
    """
    height = 2.6 + 0.55 * len(curves.rates())
    figure = Figure(figsize=(plots.WIDTH, height), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(height - 2.0, 2.0))
    _word_boxes(upper.subplots(), curves)
    left = lower.subplots()
    studies = {"paper's size": curves}
    if reduced is not None:
        studies["reduced"] = reduced
    names = []
    words = []
    for study, one in studies.items():
        for rule in curves.rates():
            values = 100 * _tokens_used(one, rule)[..., -1].mean(1)
            look = plots.look(rule)
            row = len(names)
            left.plot(values, [row - 0.3] * len(values), "o", ms=2.5, color=look.colour)
            left.plot(values.mean(), row, ms=6, **look.mark)
            names.append(f"{shown(rule)}, {study}")
            words.append(f"{values.mean():.0f} %")
    left.set_yticks(range(len(names)), names, fontsize="small")
    left.set(
        title="Tokens used, last layer", xlim=(-3, 103), ylim=(len(names) - 0.4, -0.7)
    )
    left.set_xlabel("exp(entropy), % of the tokens")
    left.grid(False, axis="y")
    pieces.row_words(left, words)
    return figure


def _word_boxes(ax: Axes, curves: Curves) -> None:
    """Draw two reviews of the first seed by their words; a darker box has more weight.

    The weights are those with which the first token reads the words in the last layer,
    as the mean over heads. The darkest box of a row has the row's largest weight, which
    is written to the left of the row. Rows do not share a scale, because their largest
    weights differ by orders of magnitude.
    """
    runs = {rule: curves.runs(rule)[0] for rule in curves.rates()}
    texts = next(iter(runs.values())).end["words"]
    ax.axis("off")
    lines = len(texts) * (len(runs) + 0.6)
    ax.set(xlim=(0, CHARACTERS), ylim=(lines, -0.6))
    ax.set_title(
        "Last layer's attention, one seed; darkest: the row's largest weight, at left"
    )
    plain = dict(fontsize=6.5, family="monospace", va="center", in_layout=False)
    height = 0.0
    for review, text in enumerate(texts):
        for rule, run in runs.items():
            weights = run.end["last.maps"][review, -1]
            ax.text(0, height, f"{shown(rule)} {weights.max():.2f}", **plain)
            left = 12.0
            for word, weight in zip(text, weights / weights.max(), strict=True):
                if left + len(word) > CHARACTERS:
                    break
                box = dict(
                    facecolor=plots.look(rule).colour,
                    alpha=float(weight),
                    lw=0,
                    pad=1.0,
                )
                colour = plots.PAPER if weight > 0.6 else plots.BLACK
                ax.text(
                    left,
                    height,
                    word.replace("$", r"\$"),
                    bbox=box,
                    color=colour,
                    **plain,
                )
                left += len(word) + 1.2
            height += 1.0
        height += 0.6


def vision_figure(curves: Curves) -> Figure:
    """Draw the loss, the test accuracy with steps to equal accuracy, and Hoyer over the
    loss.
    """
    figure, axes = plots.panels(1, 3, height=2.7)
    kept_curves.losses(axes[0], curves)
    kept_curves.accuracies(axes[1], curves)
    steps = _matched(curves, VISION, *EARLY)
    levels = _matched(curves, VISION, "test_accuracy", "test_accuracy")
    for k, rule in enumerate(VISION):
        look = plots.look(rule)
        runs = curves.runs(rule)
        axes[1].plot(steps[k], 100 * levels[k], markersize=4, mfc="none", **look.mark)
        x, y = (
            together([run.metrics[name] for run in runs])
            for name in ("control_loss", "hoyer")
        )
        axes[2].plot(np.median(x, 0), np.median(y, 0), **look.line)
        axes[2].plot(x[:, -1], y[:, -1], markersize=3, **look.mark)
        at = np.median(x[:, -1]), y[:, -1].mean()
        words = f"{shown(rule)}\n{at[1]:.3f}"
        place = (-14, 0) if rule == "l1.1" else (-10, -14)
        pieces.beside(axes[2], *at, words, look.colour, place)
    axes[2].set(title="Hoyer index", xlabel="Training loss, falling")
    axes[2].invert_xaxis()
    return plots.legend(figure, axes[0])


def caption(number: str, curves: Curves, marks: str, table: Table) -> str:
    """Write the caption of figure `number`: marks, why it is not judged, setting,
    verdicts.
    """
    study = curves.configuration
    for claim in [claim for claim in table if not claim.interval][:1]:
        marks += f"; not judged: {claim.statement.partition(': ')[2]}"
    short = any(len(run.loss) < study["horizon"] for run in curves.judged())
    if short:
        early = f"a run ends early at {study['stop']}"
    else:
        early = "no run ended early"
    chosen = ", chosen by held-out accuracy."
    if not any(map(curves.trials, curves.rates())):
        chosen = ", given by the authors' code and not chosen by us."
    if study["name"] == "imdb_paper":
        size = "at the paper's size 3"
    else:
        size = "reduced"
    number = f"Paper C, {number}"
    return kept_curves.caption(number, curves, marks, table, chosen, f"; {early}", size)
