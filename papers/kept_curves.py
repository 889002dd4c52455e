"""What papers A and C share where they judge and draw the kept curves of a study."""

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lib import files
from lib.companion import claims, plots
from lib.companion.claims import Claim, Table
from lib.companion.record import Number, Run
from lib.training.curves import Curve, Curves, load
from papers import verdicts
from papers.verdicts import UNDECIDED, Interval

ABOVE = "interval above 0"
FEWEST = 3  # seeds below which there is no verdict
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imdb": "IMDb"}
# Claims that are measured in another way than the protocol first said; the outcome was known then.
REMEASURED = ("vit.early", "sparsity.K", "sparsity.Q", "sparsity.V")
# What nobody else can get, by the revision that a study's data had.
PRIVATE = {
    "cfabc82d805f2592": "MultiNLI, a private sample (a random tenth of the training pairs)",
    "fa619d477c022b72": "CivilComments, a private sample (6,988 comments, half of them toxic)",
}


def kept(name: str, needed: bool = False) -> Curves | None:
    """The committed curves of the study `name`.

    None, with one printed sentence, where there are none or fewer than `FEWEST` seeds are finished;
    where they are `needed` FileNotFoundError or ValueError.
    """
    path, command = (
        files.ROOT / "figures" / "desk" / f"{name}.npz",
        f"python -m lib.training {name}",
    )
    if not path.exists() and not needed:
        print(f"the study {name} has no committed curves yet: {command}")
        return None
    found = load(path)
    if len(found.seeds()) >= FEWEST:
        return found
    words = f"the study {name} is unfinished, {len(found.judged())} judged runs so far: {command}"
    if needed:
        raise ValueError(words)
    print(words)
    return None


def judge(
    id: str,
    text: str,
    source: str,
    found: Interval,
    word: Callable[[Interval], str],
    bound: str = ABOVE,
    also: Sequence[Interval] = (),
) -> Claim:
    """The claim on a paired quantity with the verdict that `word` reads off `found`, and its p.

    It is undecided where an interval of `also` has another verdict.
    """
    if id in REMEASURED:
        source += " (our reading, chosen after the runs)"
    every = (found, *also)
    said = {word(one) for one in every}
    verdict = said.pop() if len(said) == 1 else UNDECIDED
    ends = (found.estimate, found.low, found.high)
    p = max(verdicts.p_value(one, word) for one in every)
    return claims.judged(id, text, source, ends, bound, verdict, len(found.values), p)


def few(id: str, text: str, source: str, curves: Curves, bound=ABOVE) -> Claim | None:
    """The claim left undecided where a verdict needs more seeds; None where enough have run."""
    count = len(curves.seeds())
    if count >= FEWEST:
        return None
    text = f"{text}: {count} of {FEWEST} seeds that a verdict needs have run"
    return claims.judged(id, text, source, (np.nan,) * 3, bound, UNDECIDED, count)


def together(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of different lengths as (rows, shortest): what every run has."""
    return np.stack([row[: min(map(len, rows))] for row in rows])


def losses(ax, curves: Curves, rows: int = 1, shown: Callable[[str], str] = str) -> None:
    """The running mean of the loss over steps, divided by `rows`; `shown` names a rule."""
    window = curves.configuration["window"]
    for rule in curves.configuration["rates"]:
        smooth = together([run.smooth(window)[window::10] for run in curves.runs(rule)]) / rows
        x = np.arange(smooth.shape[1]) * 10 + window
        plots.band(ax, x, smooth, shown(rule), plots.COLOURS[rule])
    ax.set(title="Training loss", xlabel="Step")


def rates_panel(ax, curves: Curves, last: Callable[[Curve], float]) -> None:
    """`last` of every trial that did not diverge, over its rate; a ring marks the rate chosen."""
    ring = {"mfc": "none", "mec": "0.2", "ms": 8, "clip_on": False}
    for rule in curves.configuration["rates"]:
        ends = {trial.rate: last(trial) for trial in curves.trials(rule) if not trial.diverged}
        ax.plot(ends.keys(), ends.values(), ".-", color=plots.COLOURS[rule])
        if (chosen := curves.rates().get(rule)) in ends:
            ax.plot(chosen, ends[chosen], "o", **ring)
    ax.set(xlabel="Rate", xscale="log")
    ax.xaxis.set_minor_formatter("")


def _named(data: dict) -> str:
    if data["source"] == "demo":
        return f"DEMO DATA ({data['name']})"
    return PRIVATE.get(data.get("revision"), NAMES.get(data["name"], data["name"]))


def setting(curves: Curves, stop: str = "") -> str:
    """Data, network, batch, steps, seeds and rates in words; `stop` follows the epochs."""
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
    """A caption: one sentence for below the picture, `what` its marks are, then the `rest`."""
    data = _named(curves.configuration["problem"]["data"]).partition(" (")[0]
    return f"{number}, reduced: {data}, {len(curves.seeds())} seeds; {what}. {rest}"


def captioned(figure: Figure, caption: str) -> Figure:
    """The figure with the first sentence of its caption below it."""
    plots.caption(figure, textwrap.fill(caption.partition(". ")[0], 118))
    return figure


def outcome(curves: Curves, table: Table) -> str:
    """The verdicts of a table of claims, and the processor hours, to end a caption with."""
    said = "; ".join(f"{c.statement.partition(':')[0]}: {c.verdict}" for c in table if c.verdict)
    return f" {said}. Trained in {curves.hours():.1f} processor hours."


def smoke_figure(curves: Curves) -> Figure:
    """The loss of a smoke run, marked as one: its only result is that the code runs."""
    figure, (ax,) = plots.panels(1, 1, height=2.2)
    losses(ax, curves)
    ax.set_title(f"A smoke run, no result: {_named(curves.configuration['problem']['data'])}")
    ax.set(ylabel="Training loss")
    plots.legend(figure, ax)
    return figure


def smoke_caption(number: str, curves: Curves) -> str:
    """That a smoke run is one, and its setting."""
    return (
        f"{number}: a smoke run, which shows that the code runs and nothing of the paper's claims."
        f" {setting(curves)}"
    )


def save(
    run: Run,
    slug: str,
    number: str,
    curves: Curves,
    figure: Figure,
    caption: str,
    table: Table,
    numbers: dict[str, Number],
) -> Path:
    """Save a figure of `curves` with the seeds of its runs.

    Above demo scale its data are the kept curves: nothing was trained, no other data were read.
    """
    problem = curves.configuration["problem"]
    rows = [dict(problem[part]) for part in ("data", "weights") if part in problem]
    if run.scale != "demo":
        rows = [row | {"source": "kept", "trained_on": row["source"]} for row in rows]
    told = dict(dtype="float32", setting={"seeds": curves.seeds()})
    return run.save(figure, slug, number, caption, table, numbers, rows, **told)
