"""Small studies trained in a temporary folder, for smoke tests and for exercises on the pages."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

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


def numbers(curves: Curves, tolerance: float = 0.15) -> dict[str, Number]:
    """The last running mean of the loss over its first value, per rule; the median over seeds.

    The `tolerance` leaves room for another processor.
    """
    window, ratios = curves.configuration["window"], {}
    for rule in curves.rates():
        ends = [run.smooth(window)[-1] / run.loss[0] for run in curves.runs(rule)]
        name = f"{rule.lower().replace('.', '_')}_loss_ratio"
        ratios[name] = finite(np.median(ends), tolerance)
    return ratios
