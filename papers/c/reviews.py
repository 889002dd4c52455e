"""What paper C claims about IMDb, from the kept curves of the study `imdb_256`."""

import numpy as np

from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.training.curves import Curve, Curves
from papers import kept_curves, verdicts
from papers.kept_curves import judge
from papers.verdicts import Interval

SHOWN = 2_500  # test reviews of an evaluation
LAST = 4  # evaluations whose mean accuracy is judged
PARTS = ("K", "Q", "V")
PAPER = {"l1.1": 0.8257, "l2": 0.8061, "l3": 0.8133}  # last test accuracy, model size 3
PAIRS = (("l1.1", "l3"), ("l3", "l2"), ("l1.1", "l2"))  # better, worse


def late(run: Curve) -> float:
    """Mean test accuracy of the last `LAST` evaluations, on a sample of rows."""
    return run.metrics["test_accuracy"][-LAST:].mean()


def _late_accuracy(curves: Curves, rule: str) -> np.ndarray:
    """`late` of every seed, (seeds,)."""
    return np.array([late(run) for run in curves.runs(rule)])


def _right(curves: Curves, first: str, second: str) -> np.ndarray:
    """Which test rows `first` has right at its end, less those of `second`: (seeds, rows)."""
    hits = [np.stack([run.hits for run in curves.runs(rule)]) for rule in (first, second)]
    return hits[0].astype(float) - hits[1]


def accuracy_difference(curves: Curves, first: str, second: str) -> Interval:
    """Test accuracy of `first` minus `second`, paired by seed and by test row."""
    return _paired(_right(curves, first, second))


def _paired(apart):  # differences (seeds, rows), with the error that both samples leave
    return verdicts.mean_interval(apart.mean(1), apart.mean(0).var(ddof=1) / apart.shape[1])


def late_difference(curves: Curves, first: str, second: str) -> Interval:
    """Late accuracy of `first` less `second`; the error is of the rows sampled."""
    values = _late_accuracy(curves, first) - _late_accuracy(curves, second)
    between = _right(curves, first, second).mean(0).var(ddof=1)
    return verdicts.mean_interval(values, between / SHOWN)


def _ordered(curves: Curves, better: str, worse: str) -> Claim:
    """The claim that `better` ends with a higher test accuracy than `worse`."""

    def measure():
        measured = late_difference(curves, better, worse)
        text = (
            f": mean of the last {LAST} evaluations, {len(measured.values)} seeds"
            f" (difference at the end, all rows: {accuracy_difference(curves, better, worse)})"
        )
        return text, measured

    id, text = f"imdb.{better}.{worse}", f"{better} above {worse}"
    return judge(curves, id, text, "paper C, IMDb", verdicts.above, measure)


def accuracy_table(curves: Curves) -> Table:
    """The order of the three rules, each pair a claim."""
    return Table([_ordered(curves, *pair) for pair in PAIRS])


def at_end(run: Curve, name: str) -> float:
    """The last value of the metric `name`."""
    return float(run.metrics[name][-1])


def _at_level(run: Curve, name: str, level: float, along: str, rising: bool = True) -> float:
    """The metric `name`, or the "steps", where `along` first passes `level`, or NaN."""
    sign = 1 if rising else -1
    x, level = sign * run.metrics[along], sign * level
    y = run.evaluated_at if name == "steps" else run.metrics[name]
    passed = np.flatnonzero(x >= level)
    if not len(passed):
        return np.nan
    around = slice(max(passed[0] - 1, 0), passed[0] + 1)
    return float(np.interp(level, x[around], y[around]))


def matched(
    curves: Curves, name: str, rules: tuple[str, str], along="training_accuracy", rising=True
) -> np.ndarray:
    """The metric `name` of two rules at the best `along` that both reach, (2, seeds)."""
    pairs = zip(*(curves.runs(rule) for rule in rules), strict=True)
    return np.transpose([of_pair(pair, name, along, rising) for pair in pairs])


def of_pair(pair: tuple[Curve, Curve], name: str, along: str, rising: bool = True) -> list[float]:
    """The metric `name` of two runs at the best `along` that both reach."""
    pick, worse = (np.max, min) if rising else (np.min, max)
    level = worse(float(pick(run.metrics[along])) for run in pair)
    return [_at_level(run, name, level, along, rising) for run in pair]


def apart(curves: Curves, metric: str) -> Interval:
    """The last value of `metric` under l1.1 less that under l2."""
    first, second = ([at_end(run, metric) for run in curves.runs(r)] for r in ("l1.1", "l2"))
    return verdicts.mean_interval(np.subtract(first, second))


def matched_apart(curves: Curves, metric: str) -> Interval:
    """`apart` at the best training accuracy that both runs of a seed reach."""
    first, second = matched(curves, metric, ("l1.1", "l2"))
    return verdicts.mean_interval(first - second)


def _sparser(curves: Curves, part: str) -> Claim:
    """l1.1 has a higher Hoyer index, which no scale of entries changes, than l2, at the
    end and at matched training accuracy. Shares above a threshold are shown and not
    judged: a sparser matrix' heavier tail can raise them."""

    def measure():
        end, same = (f(curves, f"hoyer.{part}") for f in (apart, matched_apart))
        shares = {"above_90": "the start's 90 % quantile", "above_006": "0.06"}
        differences = [f"{text} {apart(curves, f'{key}.{part}')}" for key, text in shares.items()]
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


def tokens_used(curves: Curves, rule: str, when: str = "last") -> np.ndarray:
    """Tokens attended to per token present: (seeds, reviews, layers)."""
    ends = [run.end for run in curves.runs(rule)]
    shares = [end[f"{when}.tokens_used"] / end["present"][:, None] for end in ends]
    return np.stack(shares).astype(float)


def attention_difference(curves: Curves) -> Interval:
    """Share of tokens used in the last layer, l2 minus l1.1, by seed and review."""
    first, second = (tokens_used(curves, rule)[..., -1] for rule in ("l1.1", "l2"))
    return _paired(second - first)


def attention_table(curves: Curves) -> Table:
    """l1.1 attends more sharply than l2, in the last layer."""

    def measure():
        measured = attention_difference(curves)
        first, second = (tokens_used(curves, rule)[..., -1].mean() for rule in ("l1.1", "l2"))
        start = tokens_used(curves, "l2", "start")[..., -1].mean()
        text = (
            f": share of tokens used in the last layer, l2 ({second:.3f}) minus l1.1"
            f" ({first:.3f}), {len(measured.values)} seeds; at the start {start:.3f}"
        )
        return text, measured

    about = "attention.sharper", "l1.1 sharper than l2", "paper C, attention maps"
    return Table([judge(curves, *about, verdicts.above, measure)])


def numbers(curves: Curves) -> dict[str, Number]:
    """Those of `kept_curves`, late and training accuracy, sparsity, tokens used."""
    measured = kept_curves.numbers(curves)
    for rule in curves.rates():
        name, runs = rule.replace(".", "_"), curves.runs(rule)
        trained = [at_end(run, "training_accuracy") for run in runs]
        measured |= {
            f"{name}_late_test_accuracy": finite(_late_accuracy(curves, rule).mean(), 1e-9),
            f"{name}_training_accuracy": finite(np.mean(trained), 1e-9),
            f"{name}_tokens_used": finite(tokens_used(curves, rule)[..., -1].mean(), 1e-7),
        }
        for part in PARTS:
            for metric in ("hoyer", "above_90"):
                mean = np.mean([at_end(run, f"{metric}.{part}") for run in runs])
                measured[f"{name}_{metric}_{part}"] = finite(mean, 1e-9)
    return measured
