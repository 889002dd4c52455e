"""Small studies trained in a temporary folder, for the exercises on the pages."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lib.training.curves import Curves
from lib.training.rules import Rule
from lib.training.study import Study
from lib.training.work import Run, Work, race


def _quiet(sentence: str) -> None:
    """Print nothing."""


def train(study: Study) -> Curves:
    """Run a small `study` from start to end, and return its curves.

    Nothing is kept on disk.
    """
    return race(study, say=_quiet)


def once(
    study: Study,
    rates: Mapping[str, float],
    *,
    cap: float | None = None,
    rules: Mapping[str, Rule] | None = None,
) -> Curves:
    """Run every rule in `rates` once at its learning rate, with seed 0.

    `cap` is the largest step of SNGD. `rules` gives further rules by name, as in
    `lib.training.race`.
    """
    single = replace(
        study,
        rates={rule: (rate,) for rule, rate in rates.items()},
        rules=rules or {},
        seeds=1,
    )
    runs = [Run.of("curve", rule, rate, cap, 0) for rule, rate in rates.items()]
    with tempfile.TemporaryDirectory() as folder:
        work = Work(single, Path(folder), say=_quiet)
        work.all_of(runs)
        return work.collected()


def last_losses(
    study: Study,
    rates: Mapping[str, float],
    *,
    rules: Mapping[str, Rule] | None = None,
) -> dict[str, float]:
    """Return the clock's last reading in each run of `once`, by rule, to four decimals.

    A reading is a loss on fixed rows.
    """
    curves = once(study, rates, rules=rules)
    last = {}
    for rule in rates:
        (run,) = curves.runs(rule)
        last[rule] = round(float(run.clock["loss"][-1]), 4)
    return last
