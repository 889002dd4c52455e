"""Update rules raced against each other: the same network, starts and batches, and what the curves
say.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.training import record
from lib.training.record import TrainingHistory, running_mean, steps_to_reach

Histories = Mapping[str, list[TrainingHistory]]  # rule -> one history per seed


def stacked(histories: Histories, name: str) -> dict[str, np.ndarray]:
    """A field of the histories, (seeds, steps), or one of their metrics, (seeds, points), for every
    rule.
    """

    def values(history: TrainingHistory) -> np.ndarray:
        return getattr(history, name) if hasattr(history, name) else history.metrics[name]

    return {
        rule: np.stack([values(history) for history in runs]) for rule, runs in histories.items()
    }


def seconds_at(histories: Histories) -> dict[str, np.ndarray]:
    """Training seconds at each evaluation, (points,), the median over seeds; 0 before the first
    step.
    """
    seconds = {rule: np.median(values, 0) for rule, values in stacked(histories, "seconds").items()}
    points = {rule: runs[0].evaluated_at for rule, runs in histories.items()}
    return {rule: np.concatenate([[0.0], values])[points[rule]] for rule, values in seconds.items()}


@dataclass(frozen=True)
class Race:
    """Steps to a training loss: `target` (seeds,), `steps` and `ratio`, to the reference's steps,
    (seeds,) a rule.

    The loss is a running mean; a rule that never gets there has infinite steps.
    """

    target: np.ndarray
    steps: dict[str, np.ndarray]
    ratio: dict[str, np.ndarray]

    def text(self) -> str:
        """One line per rule: steps and ratio, mean over seeds ± standard deviation."""
        return "\n".join(f"{rule:5} {self._words(rule)}" for rule in self.steps)

    def _words(self, rule: str) -> str:
        steps, ratio = self.steps[rule], self.ratio[rule]
        if not np.isfinite(steps).all():
            return f"does not get there in {np.sum(~np.isfinite(steps))} of {len(steps)} runs"
        spread = np.std(ratio, ddof=1) if len(ratio) > 1 else 0.0
        return f"{steps.mean():.0f} steps, {ratio.mean():.2f} ± {spread:.2f} times the reference's"


def race(
    loss: Mapping[str, np.ndarray], window: int, target: float | None = None, reference: str = "SGD"
) -> Race:
    """Who reaches a training loss first, seed by seed, from `loss` (seeds, steps) of every rule.

    `target` None stands for the reference's last running mean, one for each seed.
    """
    if target is None:
        goal = running_mean(loss[reference], window)[:, -1]
    else:
        goal = np.full(len(loss[reference]), target)
    steps = {rule: steps_to_reach(values, goal[:, None], window) for rule, values in loss.items()}
    return Race(goal, steps, {rule: values / steps[reference] for rule, values in steps.items()})


def step_errors(histories: Histories, rate: float, cap: float) -> dict[str, float]:
    """Largest relative error of the steps that SNGD and SPS took, against their formulas (paper A,
    Eqs. 2, 3).

    `rate` is SNGD's η, `cap` both rules' η_max; SPS has c = 2 and f* = 0.
    """
    loss, norm, taken = (
        stacked(histories, name) for name in ("loss", "gradient_norm", "step_size")
    )
    expected = {
        "SNGD": np.minimum(rate / norm["SNGD"], cap),
        "SPS": np.minimum(loss["SPS"] / (2 * norm["SPS"] ** 2), cap),
    }
    return {
        rule: float(np.max(np.abs(taken[rule] / values - 1))) for rule, values in expected.items()
    }


def choose(losses: Mapping[str, Mapping[float, float]]) -> dict[str, float]:
    """The rate with the smallest held-out loss of each rule, the largest of equals; a diverged
    trial (NaN) never wins.

    Caps that were never reached are equal, and the largest of them is the one that never can be.
    ValueError for a rule all of whose trials diverged.
    """
    chosen = {}
    for rule, trials in losses.items():
        finite = {rate: loss for rate, loss in trials.items() if np.isfinite(loss)}
        if not finite:
            raise ValueError(
                f"every trial of {rule} diverged, at rates {', '.join(f'{r:g}' for r in trials)}"
            )
        chosen[rule] = min(finite, key=lambda rate: (finite[rate], -rate))
    return chosen


def at_edge(losses: Mapping[str, Mapping[float, float]], chosen: Mapping[str, float]) -> list[str]:
    """The rules whose chosen rate is the smallest or largest one tried, so that a better one may
    lie outside.
    """
    return [rule for rule, trials in losses.items() if chosen[rule] in (min(trials), max(trials))]


def table(losses: Mapping[str, Mapping[float, float]], chosen: Mapping[str, float]) -> str:
    """A grid's held-out losses, one line a rule, the chosen rate marked."""
    lines = []
    for rule, trials in losses.items():
        cells = (
            f"{rate:g}: {loss:.3f}{'*' if rate == chosen[rule] else ' '}"
            for rate, loss in trials.items()
        )
        lines.append(f"{rule:5} " + "  ".join(cells))
    return "\n".join(lines)


@dataclass(frozen=True)
class Parts:
    """Finished parts of a long comparison on disk, so that one that was stopped goes on where it
    was.

    `folder` must belong to one state of code, parameters and data, as `results.Run.parts_folder`
    does.
    """

    folder: Path

    def get(self, name: str, train: Callable[[Path], TrainingHistory]) -> TrainingHistory:
        """The history called `name`: from disk, or from `train(checkpoint path)`, which is then
        kept.
        """
        path = self.folder / f"{name}.npz"
        if path.exists():
            return record.load(path)[0]
        checkpoint = path.with_suffix(".pt")
        history = train(checkpoint)
        history.save(path, {"name": name})
        checkpoint.unlink(missing_ok=True)  # some hundred MB for a BERT encoder under Adam
        return history

    def clear(self) -> None:
        """Remove them all, once the figure is saved."""
        shutil.rmtree(self.folder, ignore_errors=True)
