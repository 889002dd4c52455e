"""Check claims on the stored curves of a study, and draw these curves, for papers A and
C.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import claims, plots
from companion.claims import Claim, Table
from companion.record import Number, Run, finite
from lib import files
from lib.training.curves import READINGS, Curve, Curves, load
from papers import verdicts
from papers.verdicts import BOUNDS, UNDECIDED, Interval

FEWEST = 3  # with fewer seeds there is no verdict
# An accuracy must exceed a plain classifier's by more than rounding errors.
LEAD = 1e-9
# Why a network decides nothing whose accuracy does not.
NOT_BETTER = "the network is not better than a plain classifier"
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imdb": "IMDb"}
# For each figure, the study whose curves it draws. The claims of the figure are decided
# from the same curves.
STUDIES = {
    "fig1": "multi_nli_200",
    "fig4": "civil_comments_400",
    "fig6": "mnist_60000",
    "fig7": "cifar10_50000",
    "vit": "vit_48000",
    "imdb": "imdb_256",
}
# Texts about data that are not public, by the revision that a study used.
PRIVATE = {
    "cfabc82d805f2592": "MultiNLI, a private sample (about a tenth of the "
    "training pairs)",
    "fa619d477c022b72": "CivilComments, a private sample (6,988 training "
    "comments, half toxic)",
}


def kept(name: str) -> Curves:
    """Return the committed curves of a study, or of a figure in `STUDIES`.

    The function raises FileNotFoundError if there are none, and ValueError if they have
    fewer than FEWEST seeds.
    """
    name = STUDIES.get(name, name)
    curves = load(files.ROOT / f"figures/desk/{name}.npz")
    if len(curves.seeds()) < FEWEST:
        runs = f"{len(curves.judged())} judged runs so far"
        command = f"python -m lib.training {name}"
        raise ValueError(f"the study {name} is unfinished, {runs}: {command}")
    return curves


def judge(
    curves: Curves, id: str, text: str, source: str, word: Callable, measure: Callable
) -> Claim:
    """Return a claim with its verdict and its p.

    `measure()` returns the rest of the claim's text, and one or more intervals. `word`
    is the function of `papers.verdicts` that returns the verdict of an interval; the
    intervals must all give the same verdict. The claim shows the first interval, and
    the largest p of all intervals. If the study cannot decide the claim, `measure` is
    not called. Then the claim is undecided, has no p, and says why.
    """
    bound = BOUNDS[word]
    seeds = len(curves.seeds())
    if reason := _silent(curves):
        nothing = (np.nan,) * 3
        return claims.judged(
            id,
            f"{text}: {reason}",
            source,
            nothing,
            bound,
            verdict=UNDECIDED,
            seeds=seeds,
        )
    rest, *intervals = measure()
    words = {word(interval) for interval in intervals}
    verdict = words.pop() if len(words) == 1 else UNDECIDED
    p = max(verdicts.p_value(interval, word) for interval in intervals)
    first = intervals[0]
    ends = first.estimate, first.low, first.high
    return claims.judged(
        id, text + rest, source, ends, bound, verdict=verdict, seeds=seeds, p=p
    )


def _silent(curves: Curves) -> str:
    """Return why a study has no verdict, in words, or "" if it has one."""
    if (count := len(curves.seeds())) < FEWEST:
        return f"{count} of {FEWEST} seeds that a verdict needs have run"
    if curves.configuration["problem"]["data"]["source"] == "demo":
        return "its data are a stand-in"
    if not (plain := curves.baselines()):
        return (
            "no plain classifier was fitted, so the network cannot be compared with one"
        )
    rule, best = _best_rule(curves)
    name = max(plain, key=plain.get)
    if best - plain[name] < LEAD:
        return (
            f"{NOT_BETTER} ({rule} {best:.3f}, {name} {plain[name]:.3f} of the test"
            " rows)"
        )
    at_edge = edges(curves)
    if at_edge:
        return f"judged at the edge of the rates tried: {at_edge}"
    return ""


def _best_rule(curves: Curves) -> tuple[str, float]:
    """Return the rule with the highest mean test accuracy, and this accuracy."""

    def right(rule: str):
        return float(np.mean([run.hits.mean() for run in curves.runs(rule)]))

    best = max(curves.rates(), key=right)
    return best, right(best)


def edges(curves: Curves) -> str:
    """List in words the rules whose learning rate is the smallest or largest that was
    tried.

    Rules whose rate was given are left out. So is SPS at its largest rate, which is its
    cap, if the cap binds in less than 1 % of the steps. A rule with several rates and
    no trials is listed. The result is "" if no rule is listed.
    """
    at_edge = []
    for rule, rate in curves.rates().items():
        trials = curves.trials(rule)
        if not trials and len(curves.configuration["rates"][rule]) == 1:
            continue
        tried = [trial.rate for trial in trials]
        capped = [
            trial.end.get("capped", 1.0) for trial in trials if trial.rate == rate
        ]
        free = rule == "SPS" and min(capped, default=1.0) < 0.01
        if not tried or rate == min(tried) or (rate == max(tried) and not free):
            at_edge.append(f"{rule} {rate:g}")
    return ", ".join(at_edge)


def numbers(curves: Curves) -> dict[str, Number]:
    """Return numbers for a record: the accuracy and learning rate of each rule, the
    accuracies of plain classifiers, the number of seeds, and the hours.
    """
    known = {"seeds": Number(float(len(_judged_seeds(curves))), 0.0)}
    for rule, rate in curves.rates().items():
        name = rule.lower().replace(".", "_")
        hits = [r.hits.mean() for r in curves.runs(rule)]
        known[f"{name}_test_accuracy"] = finite(np.mean(hits), 1e-9)
        known[f"{name}_rate"] = finite(rate, 1e-12)
    for name, value in curves.baselines().items():
        known[f"baseline_{name.replace(' ', '_')}"] = finite(value, 1e-9)
    return known | {"processor_hours": finite(curves.hours(), 1e-6)}


def ends(name: str, interval: Interval) -> dict[str, Number]:
    """Return numbers for a record: the estimate of an interval as `name`, and its ends
    as `name`_low and `name`_high.
    """
    low, high = (finite(end, 1e-6) for end in (interval.low, interval.high))
    return {
        name: finite(interval.estimate, 1e-9),
        f"{name}_low": low,
        f"{name}_high": high,
    }


def medians(ax: Axes, runs: Sequence[tuple], rule: str) -> None:
    """Draw, at each x, the median over the runs that have not ended yet, and a mark at
    the end of each run.

    A run is a pair (x, values). All runs have the same x, up to their ends.
    """
    longest = max((x for x, _ in runs), key=len)
    padded = np.full((len(runs), len(longest)), np.nan)
    for row, (_, values) in zip(padded, runs, strict=True):
        row[: len(values)] = values
    plots.band(ax, longest, np.nanmedian(padded, axis=0), shown(rule), rule)
    look = plots.look(rule)
    dots = {"markersize": 3, "color": look.colour, "clip_on": False}
    for x, values in runs:
        ax.plot(x[-1], values[-1], look.marker, **dots)


def mean_of_runs(
    runs: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over runs, at the steps that all of them have.

    A run is a pair (steps, values). The result is such a pair, too. The mean ends where
    the first run ends, because it would jump if a run left it.
    """
    common = functools.reduce(np.intersect1d, [steps for steps, _ in runs])
    values = [one[np.isin(steps, common)] for steps, one in runs]
    return common, np.mean(values, axis=0)


def shown(rule: str) -> str:
    r"""Write a rule's name as the text does: l1.1 as $\ell_{1.1}$, SNGD in full."""
    full = {"SNGD": "normalised SGD", "SPS": "Polyak's rule"}
    return full.get(rule) or re.sub(r"^l([\d.]+)$", r"$\\ell_{\1}$", rule)


def listed(names: Sequence[str]) -> str:
    """Write one or more names in a list, with "and" before the last one."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def losses(ax: Axes, curves: Curves) -> None:
    """Draw, over steps, the mean of the last READINGS readings of the clock, from which
    the steps to a target are counted.
    """
    for rule in curves.configuration["rates"]:
        read = [(run.clock["at"], run.readings()) for run in curves.runs(rule)]
        late = [(x[READINGS:], loss[READINGS:]) for x, loss in read]
        medians(ax, late, rule)
    ax.set(title="Training loss, fixed rows", xlabel="Step")


def rates_figure(curves: Curves, last: Callable[[Curve], float], name: str) -> Figure:
    """Draw last(trial) over the learning rate.

    Trials that diverged, and those for which last(trial) is not finite, are left out. A
    ring marks the chosen rate.
    """
    figure, (ax,) = plots.panels(1, 1)
    for rule in curves.configuration["rates"]:
        ends = {
            trial.rate: last(trial)
            for trial in curves.trials(rule)
            if not trial.diverged and np.isfinite(last(trial))
        }
        look = plots.look(rule)
        ax.plot(
            ends.keys(),
            ends.values(),
            marker=look.marker,
            ms=3,
            label=shown(rule),
            **look.line,
        )
        if (chosen := curves.rates().get(rule)) in ends:
            ax.plot(chosen, ends[chosen], "o", mfc="none", mec=plots.BLACK, ms=8)
    ax.set(title=f"{name} of each rate tried", xlabel="Rate", xscale="log")
    ax.xaxis.set_minor_formatter("")
    return plots.legend(figure, ax)


def _named(data: dict) -> str:
    if data["source"] == "demo":
        return f"DEMO DATA ({data['name']})"
    return PRIVATE.get(data.get("revision"), NAMES.get(data["name"], data["name"]))


def caption(
    number: str,
    curves: Curves,
    marks: str,
    table: Table,
    chosen: str,
    stop: str = "",
    size: str = "reduced",
) -> str:
    """Write the caption of figure `number`.

    The first sentence of the caption, with `marks`, is written below the picture. The
    other sentences are about the setting, the rates and the verdicts. `chosen` says how
    the rates were chosen, up to a full stop. `stop` is added after the number of
    epochs. `size` compares the network with that of the paper.
    """
    data = _named(curves.configuration["problem"]["data"]).partition(" (")[0]
    words = f"{number}, {size}: {data}, {_seeds_in_words(curves)}; {marks}."
    words += f" {_setting(curves, stop)}{chosen}"
    if plain := curves.baselines():
        rule, best = _best_rule(curves)
        others = ", ".join(
            f"{name} {100 * value:.1f} %" for name, value in plain.items()
        )
        if best - max(plain.values()) < LEAD:
            end = f": {NOT_BETTER}"
        else:
            end = ""
        words += (
            f" Test accuracy: {rule} {100 * best:.1f} %; on the same rows "
            f"{others}{end}."
        )
    judged = [
        f"{c.statement.partition(':')[0]}: {c.verdict}" for c in table if c.verdict
    ]
    return (
        f"{words} {'; '.join(judged)}. Trained in {curves.hours():.1f} processor hours."
    )


def _setting(curves: Curves, stop: str) -> str:
    """Describe the data, network, batch, steps, seeds and learning rates in words."""
    study = curves.configuration
    problem = curves.configuration["problem"]
    epochs = study["horizon"] * study["batch"] / problem["rows"]
    # This writes {'width': 32} as width 32.
    network = re.sub(r"[{}']|(?<='):", "", problem["network"])
    network = network.replace(
        "SPT and LSA", "shifted patches (SPT), locality attention (LSA)"
    )
    rates = ", ".join(f"{rule} {rate:g}" for rule, rate in curves.rates().items())
    if "tokens" in problem:
        short = f" of at most {problem['tokens']} tokens"
    else:
        short = ""
    plural = "" if round(epochs) == 1 else "s"
    return (
        f"{_named(problem['data'])}; {problem['rows']:,} training rows{short},"
        f" {problem['test_rows']:,} test rows; {network}; batch "
        f"{study['batch']}, at most"
        f" {study['horizon']:,} steps ({epochs:.0f} epoch{plural}{stop}), "
        f"{_seeds_in_words(curves)}; rates {rates}"
    )


def _judged_seeds(curves: Curves) -> list[int]:
    """Return the seeds that some rule has run, in ascending order."""
    return sorted({run.seed for run in curves.judged()})


def _seeds_in_words(curves: Curves) -> str:
    """Count the seeds, and those of the rules that have run fewer of them."""
    numbers = {}
    for run in curves.judged():
        numbers[run.rule] = numbers.get(run.rule, 0) + 1
    words = f"{len(_judged_seeds(curves))} seeds"
    fewer = [
        f"{rule}: {number}"
        for rule, number in numbers.items()
        if number < max(numbers.values())
    ]
    return f"{words} ({', '.join(fewer)})" if fewer else words


def captioned(figure: Figure, caption: str) -> Figure:
    """Write the first sentence of the caption below the figure."""
    return plots.caption(figure, caption.partition(". ")[0])


def save(
    run: Run,
    slug: str,
    number: str,
    curves: Curves,
    figure: Figure,
    caption: str,
    table: Table,
    *,
    numbers: Mapping[str, Number],
) -> None:
    """Save a figure of `curves`, with its record.

    The record has the seeds of the runs. Except at the scale "demo", it says that the
    figure was redrawn from kept curves, and on what data these were trained.
    """
    problem = curves.configuration["problem"]
    rows = [dict(problem[part]) for part in ("data", "weights") if part in problem]
    if run.scale != "demo":  # the demo trains nothing
        rows = [row | {"source": "kept", "trained_on": row["source"]} for row in rows]
    run.save(
        figure,
        slug,
        number,
        caption,
        claims=table,
        numbers=numbers,
        data=rows,
        dtype="float32",
        setting={"seeds": _judged_seeds(curves)},
    )
