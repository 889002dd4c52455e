"""A study's smoke test: it is trained in a temporary folder; here is what that can show."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from lib.budget import Budget
from lib.companion import claims
from lib.companion.claims import Claim
from lib.companion.record import Number, finite
from lib.training import threads
from lib.training.curves import Curves
from lib.training.run_files import RunId
from lib.training.runner import Runner
from lib.training.study import Study


def train(study: Study) -> Curves:
    """Run a small `study` to its end on one thread, from nothing, and forget all but its curves."""
    threads.one("a small network waits for others longer than it computes")
    with tempfile.TemporaryDirectory() as folder:
        return Runner(study, Path(folder), Budget(), say=lambda words: None).run()


def once(study: Study, rates: Mapping[str, float], cap: float | None = None) -> Curves:
    """One run of every rule at its rate, {rule: rate}, with seed 0 and no search for rates.

    `cap` is SNGD's, None for no cap. The rules need not be those of the study, only be in `RULES`.
    """
    asked = replace(study, rates={rule: (rate,) for rule, rate in rates.items()}, seeds=1)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(asked, Path(folder), Budget(), say=lambda words: None)
        for rule, rate in rates.items():
            runner.one(RunId("curve", rule, rate, cap if rule == "SNGD" else None, 0))
        return runner.files.collected()


def last_losses(study: Study, rates: Mapping[str, float]) -> dict:
    """The running mean of the loss a row at the end of each run of `once`, {rule: loss}."""
    found = once(study, rates)
    return {
        rule: round(float(found.runs(rule)[0].smooth(study.window)[-1]) / study.loss_rows, 4)
        for rule in rates
    }


# Why a smoke run that fails to learn fails.
SHORT = (
    "a smoke run takes a few dozen steps; more of them at an ordinary rate do learn, as notebook 14"
    " shows below its tables"
)


def learns(curves: Curves) -> Claim:
    """The claim that the loss falls under the best rule.

    Its number is the last running mean over the first loss, at the worst seed.
    """
    window = curves.configuration["window"]
    falls = {
        rule: max(run.smooth(window)[-1] / run.loss[0] for run in curves.runs(rule))
        for rule in curves.rates()
    }
    best = min(falls, key=falls.get)
    text = f"last over first loss ({best})"
    return claims.remarked(claims.at_most("learns", text, "ours", falls[best], 0.98), SHORT)


def numbers(curves: Curves, tolerance: float = 0.15) -> dict[str, Number]:
    """Last over first loss of every rule, the median over seeds.

    The `tolerance` leaves room for another processor.
    """
    window = curves.configuration["window"]
    return {
        f"{rule.lower().replace('.', '_')}_loss_ratio": finite(
            np.median([run.smooth(window)[-1] / run.loss[0] for run in curves.runs(rule)]),
            tolerance,
        )
        for rule in curves.rates()
    }
