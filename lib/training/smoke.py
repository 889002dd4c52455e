"""A study's smoke test: trained afresh in a folder that goes away, and what that can show."""

import tempfile
from pathlib import Path

import numpy as np

from lib.budget import Budget
from lib.companion import claims
from lib.companion.claims import Claim
from lib.companion.record import Number, finite
from lib.training.curves import Curves
from lib.training.runner import Runner
from lib.training.study import Study


def train(study: Study) -> Curves:
    """Run a small `study` to its end, from nothing, and forget all but its curves."""
    with tempfile.TemporaryDirectory() as folder:
        return Runner(study, Path(folder), Budget(), say=lambda words: None).run()


def learns(curves: Curves) -> Claim:
    """That the loss falls under the best rule: last running mean over the first loss, worst
    seed.
    """
    window = curves.configuration["window"]
    falls = {
        rule: max(run.smooth(window)[-1] / run.loss[0] for run in curves.runs(rule))
        for rule in curves.rates()
    }
    best = min(falls, key=falls.get)
    return claims.at_most("learns", f"last over first loss ({best})", "ours", falls[best], 0.98)


def numbers(curves: Curves, tolerance: float = 0.15) -> dict[str, Number]:
    """Last over first loss of every rule, within a `tolerance` that leaves room for another
    processor.
    """
    window = curves.configuration["window"]
    return {
        f"{rule.lower().replace('.', '_')}_loss_ratio": finite(
            np.median([run.smooth(window)[-1] / run.loss[0] for run in curves.runs(rule)]),
            tolerance,
        )
        for rule in curves.rates()
    }
