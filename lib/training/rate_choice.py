"""The choice of a rule's rate in a study, out of trials on a seed that no judged run has."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lib.training.curves import Curve

if TYPE_CHECKING:
    from lib.training.study import Study

JUDGED = 4  # last evaluations whose mean held-out accuracy judges a trial
DIVERGED = (math.inf, math.inf)


def choose(study: "Study", rule: str, trials: Callable[..., list[Curve]]) -> float:
    """The rate at which `rule` is judged, out of the study's candidates.

    Half of the candidates are dropped at a quarter of the horizon. The rest run to the end, and the
    best is taken. While it lies at an edge of the grid, one more rate beyond is tried, at most
    `study.extensions` times. `trials(rates, until)` runs some rates, up to the step `until` or to
    the end for None. ValueError, with the rates, where every one diverged.
    """
    rates = sorted(study.rates[rule])
    if len(rates) == 1:
        return rates[0]
    # A study that is taken up again finds some trials whole; they are judged by their first quarter
    # as before, so that the same rates are kept.
    begun = [cut(curve, study.quarter) for curve in trials(rates, study.quarter)]
    early = {rate: score(study, curve) for rate, curve in zip(rates, begun, strict=True)}
    kept = sorted(rates, key=early.get)[: (len(rates) + 1) // 2]
    dropped = [rate for rate in rates if rate not in kept]
    found = dict(zip(kept, trials(kept, None), strict=True))
    for extension in range(study.extensions + 1):
        if all(curve.diverged for curve in found.values()):
            dead = sorted([*found, *(rate for rate in dropped if early[rate] == DIVERGED)])
            alive = ", ".join(f"{rate:g}" for rate in dropped if rate not in dead)
            words = f"{study.name}: every rate of {rule} diverged: "
            words += ", ".join(f"{rate:g}" for rate in dead)
            words += f" (dropped at a quarter of the steps: {alive})" if alive else ""
            raise ValueError(f"{words}; give the study lower rates")
        scores = {rate: score(study, curve) for rate, curve in found.items()}
        best = min(scores, key=lambda rate: (scores[rate], -rate))
        beyond = beyond_edge(rule, best, sorted([*found, *dropped]), found[best])
        if beyond is None or extension == study.extensions:
            return best
        (found[beyond],) = trials([beyond], None)


def cut(curve: Curve, steps: int) -> Curve:
    """What `curve` would be had its run been left after `steps` steps; itself if it was shorter."""
    if len(curve.loss) < steps:
        return curve
    seen = curve.evaluated_at <= steps
    metrics = {name: values[seen] for name, values in curve.metrics.items()}
    return replace(curve, status="paused", loss=curve.loss[:steps], metrics=metrics)


def beyond_edge(rule: str, best: float, tried: Sequence[float], trial: Curve) -> float | None:
    """The next rate beyond the edge of the sorted `tried` where `best` lies; None if inside.

    For SPS also None where the `trial` at `best` hardly ever met its cap.
    """
    if len(tried) < 2 or best not in (tried[0], tried[-1]):
        return None
    if best == tried[0]:
        return float(f"{best * tried[0] / tried[1]:.3g}")
    if rule == "SPS" and trial.end.get("capped", 1.0) < 0.01:
        return None  # a cap that is never reached is as good as a larger one
    return float(f"{best * tried[-1] / tried[-2]:.3g}")


def score(study: "Study", trial: Curve) -> tuple[float, float]:
    """How good a trial is, the smaller the better; `DIVERGED` if it diverged."""
    if trial.diverged:
        return DIVERGED
    if study.criterion == "accuracy":
        return 0.0, -float(np.mean(trial.metrics["test_accuracy"][-JUDGED:]))
    target = study.targets[-1] * study.loss_rows
    return trial.steps_to(target, study.window), float(trial.smooth(study.window)[-1])
