"""What papers A and C share where they judge and draw the kept curves of a study."""

import re
from collections.abc import Callable

import numpy as np

from lib.companion import claims, plots
from lib.companion.claims import Claim
from lib.training.curves import FEWEST, Curve, Curves
from lib.training.verdicts import UNDECIDED, Interval

ABOVE = "interval above 0"


def judge(id: str, text: str, source: str, found: Interval, word: str, bound=ABOVE) -> Claim:
    """A claim on a paired quantity, with the verdict `word`; it shows the median of the seeds."""
    ends = (found.median, found.low, found.high)
    return claims.judged(id, text, source, ends, bound, word, len(found.values))


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


def setting(curves: Curves, stop: str = "") -> str:
    """Data, network, batch, steps, seeds and rates in words; `stop` follows the epochs."""
    study, problem = curves.configuration, curves.configuration["problem"]
    data, epochs = problem["data"], study["horizon"] * study["batch"] / problem["rows"]
    demo = "DEMO DATA: " if data["source"] == "demo" else ""
    network = re.sub(r"[{}']|(?<='):", "", problem["network"])  # {'width': 32} as width 32
    network = network.replace("SPT and LSA", "shifted patches (SPT), locality attention (LSA)")
    rates = ", ".join(f"{rule} {rate:g}" for rule, rate in curves.rates().items())
    plural = "" if round(epochs) == 1 else "s"
    return (
        f"{demo}{data['name']} ({data['source']}), {problem['rows']:,} training and all"
        f" {problem['test_rows']:,} test rows; {network}; batch {study['batch']}, at most"
        f" {study['horizon']:,} steps ({epochs:.0f} epoch{plural}{stop}), {len(curves.seeds())}"
        f" seeds; rates {rates}"
    )


def outcome(curves: Curves, table) -> str:
    """The verdicts of a table of claims, and the processor hours, to end a caption with."""
    verdicts = "; ".join(f"{c.id} {c.verdict}" for c in table if c.verdict)
    words = f" {verdicts}." if verdicts else ""
    return f"{words} {curves.hours():.1f} processor hours"
