"""Small studies trained in a temporary folder, for the exercises on the pages."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lib.training.curves import Curves
from lib.training.study import Study, Work, a_run


def train(study: Study) -> Curves:
    """Run a small `study` to its end, from nothing, and forget all but its curves."""
    with tempfile.TemporaryDirectory() as folder:
        return Work(study, Path(folder), say=lambda words: None).run()


def once(study: Study, rates: Mapping[str, float], cap: float | None = None) -> Curves:
    """One run of every rule of `rates` at its rate, seed 0; `cap` is SNGD's."""
    asked = replace(
        study, rates={rule: (rate,) for rule, rate in rates.items()}, seeds=1
    )
    with tempfile.TemporaryDirectory() as folder:
        work = Work(asked, Path(folder), say=lambda words: None)
        work.all_of(
            [a_run("curve", rule, rate, cap, 0) for rule, rate in rates.items()]
        )
        return work.collected()


def last_losses(study: Study, rates: Mapping[str, float]) -> dict:
    """The clock's last reading in each run of `once`, a loss on fixed rows: {rule:
    loss}.
    """
    curves = once(study, rates)
    last = {}
    for rule in rates:
        (run,) = curves.runs(rule)
        last[rule] = round(float(run.clock["loss"][-1]), 4)
    return last
