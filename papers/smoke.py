"""A study's smoke test: it is trained in a temporary folder; here is what that can show."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lib.companion import claims
from lib.companion.claims import Claim
from lib.companion.record import Number, finite
from lib.training.curves import Curves
from lib.training.study import Study, Work, a_run


def train(study: Study) -> Curves:
    """Run a small `study` to its end, from nothing, and forget all but its curves."""
    with tempfile.TemporaryDirectory() as folder:
        return Work(study, folder, say=lambda words: None).run()


def once(study: Study, rates: Mapping[str, float], cap: float | None = None) -> Curves:
    """One run of every rule at its rate, {rule: rate}, with seed 0 and no search for rates.

    `cap` is SNGD's, None for no cap. The rules need not be those of the study, only be in `RULES`.
    """
    asked = replace(study, rates={rule: (rate,) for rule, rate in rates.items()}, seeds=1)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(asked, folder, say=lambda words: None)
        work.all_of([a_run("curve", rule, rate, cap, 0) for rule, rate in rates.items()])
        return work.collected()


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


def _falls(curves: Curves, over: Callable) -> dict[str, float]:
    """Last running mean over the first loss, by rule, `over` the seeds."""
    window = curves.configuration["window"]
    fall = lambda run: run.smooth(window)[-1] / run.loss[0]  # noqa: E731
    return {rule: over([fall(run) for run in curves.runs(rule)]) for rule in curves.rates()}


def learns(curves: Curves) -> Claim:
    """The claim that the loss falls under the best rule, at its worst seed."""
    falls = _falls(curves, max)
    best = min(falls, key=falls.get)
    text = f"last over first loss ({best})"
    return claims.remarked(claims.at_most("learns", text, "ours", falls[best], 0.98), SHORT)


def numbers(curves: Curves, tolerance: float = 0.15) -> dict[str, Number]:
    """Last over first loss of every rule, the median over seeds.

    The `tolerance` leaves room for another processor.
    """
    return {
        f"{rule.lower().replace('.', '_')}_loss_ratio": finite(fall, tolerance)
        for rule, fall in _falls(curves, np.median).items()
    }
