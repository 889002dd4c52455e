"""Paper C on real data, IMDb reviews and vision: its claims and pictures, from stored
curves.

We read the paper's claims from the stored output of its authors' code.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from companion.claims import Claim, Table
from companion.record import Number, finite
from lib.networks.measures import EDGES
from lib.training.curves import Curve, Curves
from papers import pieces, verdicts
from papers.studies import kept_curves
from papers.studies.kept_curves import judge, shown
from papers.studies.run_measures import at_common_level
from papers.verdicts import Interval

# The source of a claim. Our copy of the paper has no experiments, so we read the stored
# output of the code.
SOURCE = "authors' code of paper C, {} (our reading)"
SHOWN = 2_500  # number of test reviews in an evaluation
LAST = 4  # number of final evaluations over which an accuracy is averaged
PARTS = ("K", "Q", "V")
# The last test accuracies, for model size 3.
PAPER = {"l1.1": 0.8257, "l2": 0.8061, "l3": 0.8133}
THRESHOLD = 0.06  # the paper counts the entries with a magnitude above this
# The paper's counts of the entries of K, Q and V above THRESHOLD, in a model of size 6.
PAPER_COUNTS = {"l1.1": (18_206, 13_964, 7_643), "l2": (27_224, 14_654, 10_127)}
SHARPER = ("l1.1", "l2")  # the rules whose counts the paper shows
PAIRS = (("l1.1", "l3"), ("l3", "l2"), ("l1.1", "l2"))  # better, worse
VISION = ("Adam", "l1.1")
CHARACTERS = 118  # characters in a line of words in boxes
# The metric that is compared between two runs, and the metric whose level is the same
# in the two runs at that point.
EARLY = ("steps", "test_accuracy")
SPARSER = ("hoyer", "control_loss")


def _late(run: Curve) -> float:
    """Return the mean test accuracy of the last `LAST` evaluations, on a sample of
    rows.
    """
    return run.metrics["test_accuracy"][-LAST:].mean()


def _late_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """Return `_late` of every seed.

    The result has the shape (seeds,).
    """
    return np.array([_late(run) for run in curves.runs(rule)])


def _right(curves: Curves, first: str, second: str) -> np.ndarray:
    """Return, for every seed and test row, whether `first` classifies it correctly at
    the end, minus whether `second` does.

    The result has the shape (seeds, rows), with entries -1, 0 and 1.
    """
    hits = [
        np.stack([run.hits for run in curves.runs(rule)]) for rule in (first, second)
    ]
    return hits[0].astype(float) - hits[1]


def _accuracy_difference(curves: Curves, first: str, second: str) -> Interval:
    """Return the interval of the test accuracy of `first` minus that of `second`,
    paired by seed and by test row.
    """
    return _paired(_right(curves, first, second))


def _paired(apart: np.ndarray) -> Interval:
    """Return the interval of the mean of the paired differences `apart` (seeds, rows).

    The interval includes the sampling error of the seeds and that of the rows.
    """
    return verdicts.mean_interval(
        apart.mean(1), apart.mean(0).var(ddof=1) / apart.shape[1]
    )


def _late_difference(curves: Curves, first: str, second: str) -> Interval:
    """Return the interval of the late accuracy of `first` minus the late accuracy of
    `second`.

    The interval includes the sampling error of the test rows.
    """
    values = _late_accuracy(curves, first) - _late_accuracy(curves, second)
    between = _right(curves, first, second).mean(0).var(ddof=1)
    return verdicts.mean_interval(values, between / SHOWN)


def _ordered(curves: Curves, better: str, worse: str) -> Claim:
    """Check that `better` ends with a higher test accuracy than `worse`."""

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
    """Check the order of the three rules, one claim per pair."""
    return Table([_ordered(curves, *pair) for pair in PAIRS])


def _at_end(curves: Curves, rule: str, metric: str) -> np.ndarray:
    """Return the last value of `metric`.

    The result has the shape (seeds,).
    """
    return np.array([float(run.metrics[metric][-1]) for run in curves.runs(rule)])


def _matched(
    curves: Curves, rules: tuple[str, str], name: str, along: str
) -> np.ndarray:
    """Return `at_common_level` of two rules for each seed.

    The result has the shape (2, seeds).
    """
    pairs = zip(*(curves.runs(rule) for rule in rules), strict=True)
    return np.transpose([at_common_level(pair, name, along) for pair in pairs])


def _apart(curves: Curves, metric: str) -> Interval:
    """Return the interval of the difference between the last values of `metric` under
    l1.1 and under l2.
    """
    return verdicts.mean_interval(
        _at_end(curves, "l1.1", metric) - _at_end(curves, "l2", metric)
    )


def _sparser(curves: Curves, part: str) -> Claim:
    """Check that l1.1 has a higher Hoyer index than l2.

    The index does not depend on the scale of the entries. We compare the index at the
    end of training, and at a common training accuracy of the two rules. The claim also
    shows the shares of entries above a threshold. The verdict does not depend on these
    shares, because the heavier tail of a sparser matrix can raise them.
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
    """Check the sparsity of keys, queries and values."""
    return Table([_sparser(curves, part) for part in PARTS])


def _tokens_used(curves: Curves, rule: str, when: str = "last") -> np.ndarray:
    """Return the share of tokens attended to (seeds, reviews, layers), at the end of
    training ("last") or before training ("start").
    """
    ends = [run.end for run in curves.runs(rule)]
    shares = [end[f"{when}.tokens_used"] / end["present"][:, None] for end in ends]
    return np.stack(shares).astype(float)


def attention_table(curves: Curves) -> Table:
    """Check that l1.1 attends more sharply than l2 in the last layer."""

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
    """Return the intervals by which each claim on reviews is decided, by claim id and
    then by name.

    An interval with the name "matched" compares two runs at the best training accuracy
    that each of them reaches.
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
    """Describe every claim on reviews: its verdict, its p adjusted by Holm's rule over
    all these claims, and its intervals.

    If the study cannot decide a claim, the p and the intervals are those that would
    have decided the claim.
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
    """Return the numbers of `kept_curves`, and the numbers on late accuracy, training
    accuracy, sparsity and tokens used.
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


def _early(curves: Curves) -> Claim:
    """Check that Adam needs fewer steps than l1.1 to the best accuracy that each of the
    two rules reaches.
    """

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
    """Check that the median Hoyer index is larger under l1.1 than under Adam, at the
    same training loss.
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
    """Write the smallest and the largest value of `compared`, over the best two
    learning rates of each of the two rules.

    The runs are the trials by which the rates were chosen.
    """
    best = (sorted(curves.trials(rule), key=_late)[-2:] for rule in VISION)
    values = [compared(*at_common_level(pair, name, *along)) for pair in product(*best)]
    return (
        f"at the best two rates of both, in the trials, {min(values):.2g} to "
        f"{max(values):.2g}"
    )


def vision_table(curves: Curves) -> Table:
    """Check that Adam is faster early in training, and that l1.1 is sparser.

    The paper also says that the two rules end alike after 1,000 epochs. We do not test
    this.
    """
    return Table([_early(curves), _sparser_vision(curves)])


def vision_numbers(curves: Curves) -> dict[str, Number]:
    """Return the numbers of `kept_curves`, the Hoyer indices at the end and their mean
    at the start, and the difference of the final accuracies.
    """
    measured = kept_curves.numbers(curves)
    for rule in VISION:
        index = _at_end(curves, rule, "hoyer").mean()
        measured[f"{rule.lower().replace('.', '_')}_hoyer"] = finite(index, 1e-9)
    start = np.mean([run.metrics["hoyer"][0] for run in curves.judged()])
    measured["start_hoyer"] = finite(start, 1e-9)
    return measured | kept_curves.ends(
        "end_apart", _accuracy_difference(curves, *VISION)
    )


def rates(curves: Curves) -> Figure:
    """Draw the held-out accuracy at every learning rate that was tried; a ring marks
    the chosen one.

    A trial that was dropped before the others ended is left out, since its accuracy is
    that of a shorter run.
    """
    rules = curves.configuration["rates"]
    longest = max(len(run.loss) for rule in rules for run in curves.trials(rule))

    def percent(run: Any):
        if len(run.loss) < longest:
            return np.nan
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
    """Draw the intervals of a table as a forest plot, with numbers to `digits`
    decimals.

    The axis is long enough to contain the values `also`.
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
    """Return the largest test accuracy of every seed over its evaluations, on the
    sampled rows.

    The result has the shape (seeds,).
    """
    return np.array([run.metrics["test_accuracy"].max() for run in curves.runs(rule)])


def _last_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """Return the test accuracy of every seed at its end on all test rows.

    The result has the shape (seeds,).
    """
    return np.array([run.hits.mean() for run in curves.runs(rule)])


# A bag of words that is better by less than this, in points, would cross the words.
NEAR_A_LINE = 1.3


def draw_accuracies(axis: Axes, networks: Mapping[str, Curves]) -> None:
    """Draw the last test accuracy of each norm, beside the accuracies of the paper and
    of a bag of words.

    Parameters
    ----------
    axis : Axes
        An empty panel.
    networks : mapping of str to Curves
        The runs of each network, by what it is called. Each network gets a block, with
        one row per norm in the paper's order. A small dot is a seed, a large mark their
        mean, a grey tick the paper's accuracy, a black line the bag of words.
    """
    order = sorted(PAPER, key=PAPER.__getitem__, reverse=True)
    rows: dict[float, str] = {}
    top = 0.0
    for name, curves in networks.items():
        _heading(axis, top, name)
        for row, rule in enumerate(order, start=0):
            _accuracies(axis, top + row, curves, rule, named=top + row == 0)
            rows[top + row] = shown(rule)
        _bag_of_words(axis, top, top + len(order) - 1, curves.baselines())
        top += len(order) + 0.9
    axis.margins(x=0.1)
    axis.set_yticks([*rows], [*rows.values()])
    axis.set(ylim=(top - 1.4, -1.0), xlabel="test accuracy at the end, %")
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")


def _heading(axis: Axes, row: float, words: str) -> None:
    """Write the name of a network above the first `row` of its block."""
    bold = dict(fontsize=8, fontweight="bold", va="center")
    axis.text(0.01, row - 0.7, words, transform=axis.get_yaxis_transform(), **bold)


def _accuracies(
    axis: Axes, row: float, curves: Curves, rule: str, *, named: bool
) -> None:
    """Draw a row of `draw_accuracies`. If it is `named`, it says which number is
    whose.
    """
    look = plots.look(rule)
    ours = 100 * _last_accuracy(curves, rule)
    paper = 100 * PAPER[rule]
    axis.plot(ours, [row - 0.22] * len(ours), "o", ms=3.5, color=look.colour)
    axis.plot(ours.mean(), row, ms=9, **look.mark)
    axis.plot(paper, row, "|", ms=10, mew=1.6, color=plots.GREY)
    right = 1 if ours.mean() > paper else -1
    whose, theirs = ("ours ", "paper ") if named else ("", "")
    words = f"{whose}{ours.mean():.1f} %"
    plain = [100 * level for level in curves.baselines().values()]
    crossed = any(0 < level - ours.mean() < NEAR_A_LINE for level in plain)
    side = -1 if crossed else right
    pieces.beside(axis, ours.mean(), row, words, look.colour, (9 * side, 0))
    words = f"{theirs}{paper:.1f} %"
    pieces.beside(axis, paper, row, words, plots.GREY, (-5 * right, 0))


def _bag_of_words(
    axis: Axes, first: float, last: float, plain: Mapping[str, float]
) -> None:
    """Draw the best plain classifier as a line beside the rows `first` to `last`."""
    if plain:
        best = max(plain, key=plain.__getitem__)
        level = 100 * plain[best]
        ends = [first - 0.4, last + 0.4]
        axis.plot([level, level], ends, color=plots.BLACK, linewidth=1.4)
        words = f"{best}\n{level:.1f} %"
        pieces.beside(axis, level, (first + last) / 2, words, place=(5, 0))


def difference_figure(curves: Curves) -> Figure:
    """Draw the training loss, and the differences of accuracy that the claims are
    about.
    """
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


def counts(curves: Curves, rule: str, part: str, at: int = -1) -> np.ndarray:
    """Count the entries of `part` (K, Q or V) whose magnitude is above THRESHOLD at the
    evaluation `at`, by default the last one.

    The result has the shape (seeds,). The counts are whole numbers, stored as floats.
    """
    runs = curves.runs(rule)
    entries = np.array([run.end[f"last.histogram.{part}"].sum() for run in runs])
    shares = np.array([float(run.metrics[f"above_006.{part}"][at]) for run in runs])
    return np.round(shares * entries)


def count_rows(curves: Curves) -> list[tuple[str, list[str]]]:
    """Return the rows of the table of counts, with the mean over seeds for each of K, Q
    and V.

    The counts of two rules differ by less than the counts of two starts. So the table
    also shows, paired by seed, the count under l2 minus the count under l1.1.
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


def draw_counts(axis: Axes, curves: Curves) -> None:
    """Draw by how much fewer entries of keys, queries and values are above THRESHOLD
    under l1.1 than under l2, beside the paper's counts.

    Parameters
    ----------
    axis : Axes
        An empty panel.
    curves : Curves
        The runs of a network. There is one row for each of keys, queries and values. A
        dot is a seed, in per cent of its count under l2; a diamond is the paper's
        difference.
    """
    like = plots.look("measured")
    right = {"transform": axis.get_yaxis_transform(), "fontsize": 9, "va": "center"}
    for row, part in enumerate(PARTS):
        few, many = (counts(curves, rule, part) for rule in SHARPER)
        fewer = 100 * (1 - few / many)
        dots = {"ms": 6, "mfc": like.colour, "mec": plots.PAPER, "mew": 0.6}
        axis.plot(fewer, [row] * len(fewer), "o", clip_on=False, zorder=3, **dots)
        words = f"ours: {fewer.mean():.1f} %"
        size = {"textcoords": "offset points", "fontsize": 9}
        at = fewer.max(), row
        axis.annotate(words, at, (3, 6), color=like.colour, **size)
        theirs = [PAPER_COUNTS[rule][row] for rule in SHARPER]
        paper = 100 * (1 - theirs[0] / theirs[1])
        axis.plot(paper, row, "D", ms=7, color=plots.BLACK)
        words = f"paper: {paper:.0f} %"
        axis.annotate(words, (paper, row), (8, 0), va="center", **size)
        words = f"{few.mean():,.0f}\nand {many.mean():,.0f}"
        axis.text(1.02, row, words, color=like.colour, **right)
    axis.axvline(0.0, color=plots.BLACK, linewidth=1.2)
    words = f"our counts,\n{shown('l1.1')} and {shown('l2')}"
    axis.text(1.02, -0.66, words, color=plots.GREY, **right)
    axis.set_yticks(range(len(PARTS)), ["keys", "queries", "values"], fontsize=9)
    axis.set(xlim=(-1, 42), ylim=(len(PARTS) - 0.5, -0.5))
    axis.set_xlabel(
        f"by how much fewer weights are above {THRESHOLD:g} under {shown('l1.1')} than"
        f" under {shown('l2')}, %"
    )
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")


def index_figure(networks: Mapping[str, Curves]) -> Figure:
    """Draw the Hoyer index of keys, queries and values under each norm.

    Parameters
    ----------
    networks : mapping of str to Curves
        The runs of each network, by what it is called.

    Returns
    -------
    Figure
        A block for each network, with one row each for keys, queries and values. The
        grey tick is the index before training, in the mean over all runs.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.1)
    row = 0.0
    rows = {}
    for name, one in networks.items():
        _heading(axis, row, name)
        for part in PARTS:
            means = {
                rule: _at_end(one, rule, f"hoyer.{part}").mean() for rule in one.rates()
            }
            axis.plot(
                [min(means.values()), max(means.values())],
                [row] * 2,
                color=plots.FAINT,
                linewidth=1.5,
                zorder=1,
            )
            start = np.mean([run.metrics[f"hoyer.{part}"][0] for run in one.judged()])
            axis.plot(start, row, "|", ms=14, mew=1.6, color=plots.GREY)
            # Below the last row of the first block there is room for words.
            named = row == len(PARTS) - 1
            if named:
                words = f"before training:\n{start:.3f}"
                pieces.beside(axis, start, row, words, plots.GREY, (0, -14))
            for rule, mean in means.items():
                look = plots.look(rule)
                axis.plot(mean, row, ms=6, **look.mark)
                if named:
                    pieces.beside(axis, mean, row, shown(rule), look.colour, (0, 6))
            rows[row] = {"K": "keys", "Q": "queries", "V": "values"}[part]
            row += 1.0
        row += 0.9
    axis.set_yticks([*rows], [*rows.values()])
    axis.set(ylim=(row - 1.4, -1.0))
    axis.set_xlabel(
        "Hoyer index of the weights at the end (0: all equal, 1: one entry)"
    )
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    return figure


def sparsity_differences(curves: Curves) -> Figure:
    """Draw how much larger the Hoyer index is under l1.1 than under l2, at the end and
    at matched training accuracy.
    """
    figure, (judged,) = plots.panels(1, 1, height=2.7)
    _differences(judged, curves, sparsity_table(curves), digits=5)
    judged.set(title=f"Hoyer index, {shown('l1.1')} minus {shown('l2')}")
    return figure


def draw_tokens_used(axis: Axes, networks: Mapping[str, Curves]) -> None:
    """Draw the share of tokens that the last layer uses.

    Parameters
    ----------
    axis : Axes
        An empty panel.
    networks : mapping of str to Curves
        The runs of each network, by what it is called. Each network gets a row, with a
        large mark for each norm.
    """
    largest = 0.0
    for row, one in enumerate(networks.values()):
        for rule in one.rates():
            look = plots.look(rule)
            values = 100 * _tokens_used(one, rule)[..., -1].mean(1)
            axis.plot(values, [row + 0.22] * len(values), "o", ms=3, color=look.colour)
            axis.plot(values.mean(), row, ms=8, **look.mark)
            words = f"{shown(rule)}\n{values.mean():.0f} %"
            style = {"color": look.colour, "fontsize": 9, "ha": "center"}
            axis.text(values.mean(), row - 0.16, words, va="bottom", **style)
            largest = max(largest, values.max())
    axis.set_yticks(range(len(networks)), networks)
    axis.set(xlim=(0, 1.1 * largest), ylim=(len(networks) - 0.6, -0.7))
    axis.set_xlabel(
        "\N{LEFTWARDS ARROW} sharper     tokens that the last layer uses, % of a review"
    )
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")


def words_figure(curves: Curves) -> Figure:
    """Draw the attention of the first token to the words of a review.

    Parameters
    ----------
    curves : Curves
        The kept curves of the study.

    Returns
    -------
    Figure
        A row under each norm, on the same scale.
    """
    figure, (axis,) = plots.panels(1, 1, height=1.5)
    _word_boxes(axis, curves)
    return figure


def _word_boxes(ax: Axes, curves: Curves) -> None:
    """Draw the words of a review as boxes, for the first seed; a darker box has more
    weight.

    The weights are the attention weights of the first token in the last layer, averaged
    over heads. All rows share one scale: the darkest box has the largest weight of all.
    """
    runs = {rule: curves.runs(rule)[0] for rule in PAPER if rule in curves.rates()}
    texts = next(iter(runs.values())).end["words"]
    text = texts[-1]
    review = len(texts) - 1
    maps = {rule: run.end["last.maps"][review, -1] for rule, run in runs.items()}
    largest = max(float(weights[: len(text)].max()) for weights in maps.values())
    ax.axis("off")
    ax.set(xlim=(0, CHARACTERS), ylim=(len(maps) - 0.4, -0.6))
    ax.set_title(f"What the first token reads, paper's size; darkest: {largest:.2f}")
    plain = dict(fontsize=6.5, va="center", in_layout=False)
    for height, (rule, weights) in enumerate(maps.items()):
        ax.text(0, height, shown(rule), **plain | {"fontsize": 8})
        left = 6.0
        for word, weight in zip(text, weights / largest, strict=True):
            if left + len(word) > CHARACTERS:
                break
            box = dict(facecolor=plots.INKS["blue"], alpha=float(weight), lw=0, pad=1.0)
            style = plain | {"family": "monospace", "bbox": box}
            style["color"] = plots.PAPER if weight > 0.6 else plots.BLACK
            ax.text(left, height, word.replace("$", r"\$"), **style)
            left += len(word) + 1.2


def vision_figure(curves: Curves, claim: Claim) -> Figure:
    """Draw the test accuracy over steps.

    Parameters
    ----------
    curves : Curves
        The runs of the study.
    claim : Claim
        The judged claim that Adam is ahead early, with its ratio and interval.

    Returns
    -------
    Figure
        A thin line is a run. Black lines join, for each seed, the two points at which
        the two rules have the same accuracy. These points are computed on the runs
        shown, so that they lie on the runs' lines.
    """
    figure, (accuracy,) = plots.panels(1, 1, height=3.0)

    # The runs. Adam's name is above its line, and the other below.
    lifts = {"Adam": 9}
    for rule in VISION:
        look = plots.look(rule)
        for run in curves.runs(rule):
            steps = run.evaluated_at[1:]
            measured = 100 * run.metrics["test_accuracy"][1:]
            accuracy.plot(steps, measured, color=look.colour, lw=0.9, alpha=0.75)
        last = 100 * _last_accuracy(curves, rule).mean()
        words = f"{shown(rule)}: {last:.0f} %"
        place = (-1, lifts.get(rule, -26))
        pieces.beside(accuracy, steps[-1], last, words, look.colour, place)

    # The numbers of steps of the two rules to the same accuracy.
    join = {"color": plots.BLACK, "marker": "o", "ms": 3.5, "lw": 1.2, "zorder": 4}
    steps = _matched(curves, VISION, *EARLY)
    levels = 100 * _matched(curves, VISION, "test_accuracy", "test_accuracy")
    for seed in range(steps.shape[1]):
        accuracy.plot(steps[:, seed], levels[:, seed], **join)
    low, high = claim.interval
    words = (
        "black lines: to the same accuracy Adam takes\n"
        f"{claim.measured:.2f} (95 %: {low:.2f} to {high:.2f}) of the steps\n"
        f"paper: Adam is ahead early, {claim.verdict}"
    )
    right = {"ha": "right", "fontsize": 9, "transform": accuracy.transAxes}
    accuracy.text(0.98, 0.04, words, **right)

    # The axes.
    accuracy.set(xlabel="step", ylabel="test accuracy, %")
    highest = accuracy.get_ylim()[1]
    accuracy.set_ylim(None, highest + 3)
    return figure


def vision_sparsity(curves: Curves, verdict: str) -> Figure:
    """Draw the sparsity of the weights at equal loss, and after equally many steps.

    Parameters
    ----------
    curves : Curves
        The runs of the study.
    verdict : str
        The verdict on the claim that the weights of l1.1 are sparser at equal loss.

    Returns
    -------
    Figure
        A line joins the two rules of a seed. Above, both are at the smallest training
        loss that both reach.
    """
    seeds = len(curves.seeds())
    figure, (sparsity,) = plots.panels(1, 1, height=1.4 + 0.4 * seeds)

    # The indices of both rules, (rules, seeds), at the smallest loss that both reach,
    # and at the end.
    matched = _matched(curves, VISION, *SPARSER)
    ends = np.array([_at_end(curves, rule, "hoyer") for rule in VISION])
    second = seeds + 1.6  # where the second block begins
    centre = (ends.max() + matched.min()) / 2

    # One block of rows for each of the two, and its mean difference below it.
    for top, indices, judged in (
        (0.0, matched, verdict),
        (second, ends, "not judged"),
    ):
        _joined_pairs(sparsity, top, indices)
        adam, mirror = indices.mean(1)
        words = pieces.written(f"{mirror - adam:+.3f} on average, {judged}")
        below = top + seeds - 0.2
        sparsity.text(centre, below, words, ha="center", va="center", fontsize=8)

    # The rules are named above the first row.
    for rule, index in zip(VISION, matched[:, 0], strict=True):
        style = {"ha": "center", "va": "bottom", "fontsize": 8}
        colour = plots.look(rule).colour
        sparsity.text(index, -0.4, shown(rule), color=colour, **style)

    # The axes.
    half = (seeds - 1) / 2
    names = ["equal\ntraining\nloss", "equally\nmany\nsteps"]
    sparsity.set_yticks([half, second + half], names, fontsize=8)
    sparsity.set_ylim(2 * seeds + 1.8, -1.0)
    sparsity.tick_params(axis="y", length=0)
    sparsity.grid(False, axis="y")
    sparsity.set_xlabel("Hoyer index of the weights, sparser \N{RIGHTWARDS ARROW}")
    sparsity.locator_params(axis="x", nbins=4)
    return figure


def _joined_pairs(ax: Axes, top: float, indices: np.ndarray) -> None:
    """Draw the indices (rules, seeds) of VISION, one seed per row from `top` down.

    A line joins the two rules of a seed.
    """
    line = {"color": plots.FAINT, "lw": 1.6, "zorder": 1}
    for seed, pair in enumerate(indices.T):
        height = top + seed
        ax.plot(pair, [height, height], **line)
        for rule, index in zip(VISION, pair, strict=True):
            ax.plot(index, height, ms=7, **plots.look(rule).mark)


def _shares(runs: Sequence[Curve], when: str) -> np.ndarray:
    """Return which share of the weights lies in each bin, in %, for every run.

    `when` is "start" or "last". The result has the shape (runs, bins).
    """
    counts = np.array([run.end[f"{when}.histogram"] for run in runs])
    return 100 * counts / counts.sum(1, keepdims=True)


def small_weights(
    runs: Sequence[Curve], bound: float = 0.01, when: str = "last"
) -> np.ndarray:
    """Return the share of weights with a magnitude below `bound`, in %.

    Parameters
    ----------
    runs
        The runs of a rule, which keep histograms of their weights.
    bound
        The magnitude. It is moved to the nearest edge of a bin.
    when
        "start", or "last" for the end of training.

    Returns
    -------
    ndarray (runs,)
        The shares.
    """
    edge = np.abs(np.log(EDGES / bound)).argmin()
    return _shares(runs, when)[:, :edge].sum(1)


def weight_numbers(runs: Mapping[str, Sequence[Curve]]) -> dict[str, Number]:
    """Return which share of the weights is small, for a record.

    Parameters
    ----------
    runs
        The runs of each rule of VISION, which keep histograms of their weights.

    Returns
    -------
    dict of str to Number
        Means over the seeds: for each rule the share of weights below 0.01 in
        magnitude, in %, at the end of training. "small_start" is this share at the
        start, which the rules have in common.
    """
    start = small_weights(runs[VISION[0]], when="start").mean()
    measured = {"small_start": finite(start, 1e-9)}
    for rule, of_rule in runs.items():
        name = rule.lower().replace(".", "_")
        measured[f"small_{name}"] = finite(small_weights(of_rule).mean(), 1e-9)
    return measured


def vision_weights(runs: Mapping[str, Sequence[Curve]]) -> Figure:
    """Draw the histogram of the magnitudes of all weights, at the end of training.

    Parameters
    ----------
    runs
        The runs of each rule of VISION, which keep histograms of their weights.

    Returns
    -------
    Figure
        One curve per rule, the mean over its seeds, in a band from the smallest to the
        largest value of a seed. The grey curve is the start, which the rules share.
    """
    figure, (axis,) = plots.panels(1, 1, height=2.8)
    centres = np.sqrt(EDGES[1:] * EDGES[:-1])
    start = _shares(runs[VISION[0]], "start").mean(0)
    axis.plot(centres, start, color=plots.GREY, lw=1.2, ls="--")
    highest = start.argmax()
    pieces.beside(axis, centres[highest], start[highest], "start", plots.GREY, (0, 3))

    # The names are written where the two curves are far apart.
    below, above = 0.02, 0.4
    places = {"l1.1": (above, (6, 6)), "Adam": (below, (6, -6))}
    for rule in VISION:
        look = plots.look(rule)
        shares = _shares(runs[rule], "last")
        mean = shares.mean(0)
        axis.plot(centres, mean, color=look.colour, lw=1.6)
        band = {"color": look.colour, "alpha": 0.2, "lw": 0}
        axis.fill_between(centres, shares.min(0), shares.max(0), **band)
        where, place = places[rule]
        at = np.abs(np.log(centres / where)).argmin()
        pieces.beside(axis, centres[at], mean[at], shown(rule), look.colour, place)

    axis.set(xscale="log", xlim=(1e-3, 3), ylim=(0, None))
    axis.set_xlabel("magnitude of a weight")
    axis.set_ylabel("share of the weights\nin a tenth of a decade, %")
    return figure
