"""What papers A and C share where they judge and draw the kept curves of a study."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lib import files
from lib.companion import claims, plots
from lib.companion.claims import Claim, Table
from lib.companion.record import Number, Run, finite
from lib.training.curves import READINGS, Curve, Curves, load
from papers import pieces, verdicts
from papers.verdicts import UNDECIDED, Interval

ABOVE = "interval above 0"
FEWEST = 3  # seeds below which there is no verdict
LEAD = 1e-9  # in accuracy, over a plain classifier: more than rounding
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imdb": "IMDb"}
# The study whose curves a figure draws, and which its claims are judged by.
STUDIES = {
    "fig1": "multi_nli_200",
    "fig4": "civil_comments_400",
    "fig6": "mnist_60000",
    "fig7": "cifar10_50000",
    "vit": "vit_48000",
    "imdb": "imdb_256",
}
# What nobody else can get, by the revision that a study's data had.
PRIVATE = {
    "cfabc82d805f2592": "MultiNLI, a private sample (about a tenth of the training pairs)",
    "fa619d477c022b72": "CivilComments, a private sample (6,988 training comments, half toxic)",
}


def kept(name: str, needed: bool = False) -> Curves | None:
    """The committed curves of a study, or of a figure in `STUDIES`. Where there are
    none, or fewer than FEWEST seeds: None and a printed sentence, or if they are
    `needed` FileNotFoundError or ValueError."""
    name = STUDIES.get(name, name)
    path, command = files.ROOT / f"figures/desk/{name}.npz", f"python -m lib.training {name}"
    if not path.exists() and not needed:
        print(f"the study {name} has no committed curves yet: {command}")
        return None
    curves = load(path)
    if len(curves.seeds()) >= FEWEST:
        return curves
    words = f"the study {name} is unfinished, {len(curves.judged())} judged runs so far: {command}"
    if needed:
        raise ValueError(words)
    print(words)
    return None


def judge(id, text, source, measured: Interval, word: Callable, bound=ABOVE, also=()) -> Claim:
    """The claim with its p and the verdict that `word` reads off all intervals."""
    every = (measured, *also)
    decided = {word(interval) for interval in every}
    verdict = decided.pop() if len(decided) == 1 else UNDECIDED
    ends = (measured.estimate, measured.low, measured.high)
    p = max(verdicts.p_value(interval, word) for interval in every)
    return claims.judged(id, text, source, ends, bound, verdict, len(measured.values), p)


def few(id: str, text: str, source: str, curves: Curves, bound=ABOVE) -> Claim | None:
    """The claim left undecided, and why, where the study cannot speak; or None."""
    count = len(curves.seeds())
    if count < FEWEST:
        reason = f"{count} of {FEWEST} seeds that a verdict needs have run"
    elif not (reason := _silent(curves)):
        return None
    return claims.judged(id, f"{text}: {reason}", source, (np.nan,) * 3, bound, UNDECIDED, count)


def _silent(curves: Curves) -> str:
    """Why a study has no verdict, or ""."""
    if curves.configuration["problem"]["data"]["source"] == "demo":
        return "its data are a stand-in"
    if not (plain := curves.baselines()):
        return "no plain classifier was fitted, so the network cannot be compared with one"
    rule, best = _best_rule(curves)
    name = max(plain, key=plain.get)
    if best - plain[name] < LEAD:
        return f"too small to speak ({rule} {best:.3f}, {name} {plain[name]:.3f} of the test rows)"
    at_edge = ", ".join(f"{rule} {rate:g}" for rule, rate in edges(curves).items())
    return f"judged at the edge of the rates tried: {at_edge}" if at_edge else ""


def _best_rule(curves: Curves) -> tuple[str, float]:
    """The rule of the highest mean test accuracy, and that accuracy."""
    rights = {rule: [run.hits.mean() for run in curves.runs(rule)] for rule in curves.rates()}
    best = max(rights, key=lambda rule: float(np.mean(rights[rule])))
    return best, float(np.mean(rights[best]))


def edges(curves: Curves) -> dict[str, float]:
    """Rules at the edge of the rates tried, and it; not SPS if its cap hardly binds."""
    at_edge = {}
    for rule, rate in curves.rates().items():
        trials = curves.trials(rule)
        tried = [trial.rate for trial in trials]
        capped = [trial.end.get("capped", 1.0) for trial in trials if trial.rate == rate]
        free = rule == "SPS" and min(capped, default=1.0) < 0.01
        if not tried or rate == min(tried) or (rate == max(tried) and not free):
            at_edge[rule] = rate
    return at_edge


def _gate(curves: Curves) -> str:
    """A sentence, or "": the best rule's test accuracy, the plain classifiers'."""
    if not (plain := curves.baselines()):
        return ""
    rule, best = _best_rule(curves)
    others = ", ".join(f"{name} {100 * value:.1f} %" for name, value in plain.items())
    end = ": too small to speak" if best - max(plain.values()) < LEAD else ""
    return f" Test accuracy: {rule} {100 * best:.1f} %; on the same rows {others}{end}."


def numbers(curves: Curves, rules: Iterable[str]) -> dict[str, Number]:
    """For a record: accuracy and rate of each rule, plain classifiers, seeds, hours."""
    known = {"seeds": Number(float(len(curves.seeds())), 0.0)}
    for rule in rules:
        name, hits = rule.lower().replace(".", "_"), [r.hits.mean() for r in curves.runs(rule)]
        known[f"{name}_test_accuracy"] = finite(np.mean(hits), 1e-9)
        known[f"{name}_rate"] = finite(curves.rates()[rule], 1e-12)
    for name, value in curves.baselines().items():
        known[f"baseline_{name.replace(' ', '_')}"] = finite(value, 1e-9)
    return known | {"processor_hours": finite(curves.hours(), 1e-6)}


def ends(name: str, interval: Interval) -> dict[str, Number]:
    """For a record: the estimate of an interval under `name`, and its ends."""
    low, high = (finite(end, 1e-6) for end in (interval.low, interval.high))
    return {name: finite(interval.estimate, 1e-9), f"{name}_low": low, f"{name}_high": high}


def together(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of different lengths as (rows, shortest): what every run has."""
    return np.stack([row[: min(map(len, rows))] for row in rows])


def medians(ax, runs: Sequence[tuple], label: str, rule: str) -> None:
    """Every run (x, values), thin, to its end; their median to where the first ends."""
    for x, values in runs:
        ax.plot(x, values, color=plots.look(rule).colour, linewidth=0.7, alpha=0.6)
    median = np.median(together([values for _, values in runs]), axis=0)
    plots.band(ax, x[: len(median)], median, label, rule, marker="." * (len(median) == 1))


def losses(ax, curves: Curves, shown: Callable[[str], str] = str) -> None:
    """The clock's readings, by which targets are judged; `shown` names a rule."""
    for rule in curves.configuration["rates"]:
        read = [(run.clock["at"], run.readings()) for run in curves.runs(rule)]
        late = [(x[READINGS:], loss[READINGS:]) for x, loss in read]
        medians(ax, late, shown(rule), rule)
    ax.set(title="Training loss, fixed rows", xlabel="Step")


def accuracies(ax, curves: Curves, shown: Callable[[str], str] = str) -> None:
    """Test accuracy over steps on sampled rows; marks: the mean over seeds at the end,
    on all rows. Dotted: that of the best plain classifier. `shown` names a rule."""
    ends = []
    for rule in curves.configuration["rates"]:
        runs, look = curves.runs(rule), plots.look(rule)
        known = [(run.evaluated_at, 100 * run.metrics["test_accuracy"]) for run in runs]
        later = [(x[1:], accuracy[1:]) for x, accuracy in known]  # no guesses
        medians(ax, later, shown(rule), rule)
        last = 100 * np.mean([run.hits.mean() for run in runs])
        end = np.median([run.clock["at"][-1] for run in runs])
        ax.plot(end, last, markersize=5, **look.mark)
        ends.append((last, f"{last:.1f}", look.colour))
    if plain := curves.baselines():
        best = max(plain, key=plain.__getitem__)
        ax.axhline(100 * plain[best], **plots.LEVEL)
        pieces.note(ax, f"{best}: {100 * plain[best]:.1f}", colour=plots.GREY)
    ax.set(title="Test accuracy (%)", xlabel="Step (marks: all rows)")
    pieces.end_labels(ax, ends)


def rates_figure(curves: Curves, last: Callable[[Curve], float], name: str) -> Figure:
    """`last` of every trial that did not diverge; a ring marks the rate chosen."""
    figure, (ax,) = plots.panels(1, 1)
    for rule in curves.configuration["rates"]:
        ends = {trial.rate: last(trial) for trial in curves.trials(rule) if not trial.diverged}
        look = plots.look(rule)
        ax.plot(ends.keys(), ends.values(), marker=look.marker, ms=3, label=rule, **look.line)
        if (chosen := curves.rates().get(rule)) in ends:
            ax.plot(chosen, ends[chosen], "o", mfc="none", mec=plots.BLACK, ms=8)
    ax.set(title=f"{name} of each rate tried", xlabel="Rate", xscale="log")
    ax.xaxis.set_minor_formatter("")
    return plots.legend(figure, ax)


def _named(data: dict) -> str:
    if data["source"] == "demo":
        return f"DEMO DATA ({data['name']})"
    return PRIVATE.get(data.get("revision"), NAMES.get(data["name"], data["name"]))


def setting(curves: Curves, stop: str = "") -> str:
    """Data, network, batch, steps, seeds, rates in words; `stop` follows the epochs."""
    study, problem = curves.configuration, curves.configuration["problem"]
    epochs = study["horizon"] * study["batch"] / problem["rows"]
    network = re.sub(r"[{}']|(?<='):", "", problem["network"])  # {'width': 32} as width 32
    network = network.replace("SPT and LSA", "shifted patches (SPT), locality attention (LSA)")
    rates = ", ".join(f"{rule} {rate:g}" for rule, rate in curves.rates().items())
    short = f" of at most {problem['tokens']} tokens" if "tokens" in problem else ""
    plural = "" if round(epochs) == 1 else "s"
    return (
        f"{_named(problem['data'])}; {problem['rows']:,} training rows{short},"
        f" {problem['test_rows']:,} test rows; {network}; batch {study['batch']}, at most"
        f" {study['horizon']:,} steps ({epochs:.0f} epoch{plural}{stop}), {len(curves.seeds())}"
        f" seeds; rates {rates}"
    )


def headed(number: str, curves: Curves, what: str, rest: str) -> str:
    """A caption: one sentence for below the picture, with its marks; the `rest`."""
    data = _named(curves.configuration["problem"]["data"]).partition(" (")[0]
    return f"{number}, reduced: {data}, {len(curves.seeds())} seeds; {what}. {rest}"


def captioned(figure: Figure, caption: str) -> Figure:
    """The figure with the first sentence of its caption below it."""
    return plots.caption(figure, caption.partition(". ")[0])


def outcome(curves: Curves, table: Table) -> str:
    """The end of a caption: the verdicts of a table, and the processor hours."""
    judged = [f"{c.statement.partition(':')[0]}: {c.verdict}" for c in table if c.verdict]
    return f"{_gate(curves)} {'; '.join(judged)}. Trained in {curves.hours():.1f} processor hours."


def save(
    run: Run, slug, number, curves: Curves, figure: Figure, caption, table: Table, numbers: dict
) -> Path:
    """Save a figure of `curves` with the seeds of its runs; no other data were read."""
    problem = curves.configuration["problem"]
    rows = [dict(problem[part]) for part in ("data", "weights") if part in problem]
    if run.scale != "demo":  # nothing was trained
        rows = [row | {"source": "kept", "trained_on": row["source"]} for row in rows]
    made = figure, slug, number, caption, table, numbers, rows
    return run.save(*made, dtype="float32", setting={"seeds": curves.seeds()})
