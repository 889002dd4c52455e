"""The choice of a rule's rate in a study, out of trials on a seed that no judged run has."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lib.training.curves import Curve

if TYPE_CHECKING:
    from lib.training.study import Study

JUDGED = 4  # last evaluations whose mean held-out accuracy judges a trial
ROUNDS = 8  # equal parts of the horizon, after each of which a race looks at its runs
RECENT = 10  # readings of the clock whose mean and deviation compare two runs on their way
ERRORS = 2.0  # standard deviations by which a run must be worse to be dropped
DIVERGED = (math.inf, math.inf)


def choose(study: "Study", rule: str, trials: Callable[..., list[Curve]]) -> float:
    """The rate at which `rule` is judged, out of the study's candidates.

    Half of the candidates are dropped at a quarter of the horizon. The rest run to the end, and the
    best is taken. While it lies at an edge of the grid, one more rate beyond is tried, at most
    `study.extensions` times. A study with a clock has a `race` in place of the halving.
    `trials(rates, until)` runs some rates, up to the step `until` or to the end for None.
    ValueError, with the rates, where every one diverged.
    """
    rates = sorted(study.rates[rule])
    if len(rates) == 1:
        return rates[0]
    if study.clock:
        return race(study, rule, trials)
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


def race(study: "Study", rule: str, trials: Callable[..., list[Curve]]) -> float:
    """The best rate of a grid, at the cost of the best two.

    All rates run side by side. For speed the race ends when two have reached the last target, or
    the first has and no other is left, or twice its steps are over: who is not there yet needs more
    steps, so nothing is guessed. From the second of `ROUNDS` parts on, a rate is dropped that is
    worse than the best by more than `ERRORS` of its error. A best rate at an edge brings in one
    more beyond, as far as the others ran. The arguments are those of `choose`.
    """
    rates, tried = sorted(study.rates[rule]), {}
    ends = [study.horizon * part // ROUNDS for part in range(1, ROUNDS + 1)]
    for extension in range(study.extensions + 1):
        alive = rates
        for part, until in enumerate(ends):
            asked = until if until < study.horizon else None
            seen = [cut(curve, until) for curve in trials(alive, asked)]
            tried |= dict(zip(alive, seen, strict=True))
            alive = _going_on(study, {rate: tried[rate] for rate in alive}, part)
            if not alive or (extension == 0 and _over(study, tried, alive, until)):
                break
        ends = ends if extension else ends[: part + 1]
        if all(curve.diverged for curve in tried.values()):
            dead = ", ".join(f"{rate:g}" for rate in sorted(tried))
            raise ValueError(
                f"{study.name}: every rate of {rule} diverged: {dead}; give the study lower rates"
            )
        best = min(tried, key=lambda rate: (score(study, tried[rate]), -rate))
        beyond = beyond_edge(rule, best, sorted(tried), tried[best])
        if beyond is None:
            break
        rates = [beyond]
    return best


def _over(study: "Study", tried: Mapping, alive: list[float], until: int) -> bool:
    """Whether a race for speed has ended after `until` steps."""
    if study.criterion == "accuracy":
        return False
    steps = {rate: score(study, curve)[0] for rate, curve in tried.items()}
    first, *others = sorted(steps.values())
    waiting = any(math.isinf(steps[rate]) for rate in alive)
    second = others[0] if others else math.inf
    return first < math.inf and (second < math.inf or not waiting or 2 * first <= until)


def _going_on(study: "Study", runs: Mapping[float, Curve], part: int) -> list[float]:
    """The rates of `runs` that neither diverged nor are worse than the best beyond their error."""
    alive = {rate: level(study, curve) for rate, curve in runs.items() if not curve.diverged}
    if part == 0 or not alive:
        return list(alive)
    mean, error = min(alive.values())
    return [rate for rate, (m, e) in alive.items() if m - mean <= ERRORS * math.hypot(e, error)]


def level(study: "Study", curve: Curve) -> tuple[float, float]:
    """How good a run is on its way, the smaller the better, and the error of that.

    For speed mean and standard deviation of the clock's last `RECENT` readings; for accuracy minus
    the last held-out one, with its binomial deviation.
    """
    if study.criterion == "accuracy":
        p, rows = float(curve.metrics["test_accuracy"][-1]), study.options["held_out"]
        return -p, math.sqrt(p * (1 - p) / rows)
    last = np.asarray(curve.clock["loss"][-RECENT:], dtype=float)
    return float(last.mean()), float(last.std())


def cut(curve: Curve, steps: int) -> Curve:
    """What `curve` would be had its run been left after `steps` steps; itself if it was shorter."""
    if len(curve.loss) < steps:
        return curve
    seen = curve.evaluated_at <= steps
    metrics = {name: values[seen] for name, values in curve.metrics.items()}
    early = curve.clock["at"] <= steps if curve.clock else ()
    clock = {name: values[early] for name, values in curve.clock.items()}
    return replace(curve, status="paused", loss=curve.loss[:steps], metrics=metrics, clock=clock)


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
    if trial.clock:
        return trial.steps_to(study.targets[-1], 0), float(trial.readings()[-1])
    target = study.targets[-1] * study.loss_rows
    return trial.steps_to(target, study.window), float(trial.smooth(study.window)[-1])
