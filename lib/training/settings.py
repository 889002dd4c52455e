"""What a caller chooses of a training beside network, optimiser and data."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lib.training.checkpoints import Checkpoints
from lib.training.losses import Evaluate


@dataclass(frozen=True)
class Recording:
    """What is measured of a run, and what may end it early.

    Args:
        evaluate: the model in evaluation mode, without gradients, to named numbers.
        at: numbers of steps done, 0 to the last, after which to evaluate and to record the norms of
            the weights; the end is always added.
        stop: what `evaluate` found to whether the run ends there, early; the history says so and
            its rest is NaN. "recent_loss" is among it, the mean loss of the last `RECENT` steps.
        walk: record the sum of squared moves of every parameter, `TrainingHistory.walked`.
        label: the run's name on the progress bar, which TQDM_DISABLE=1 turns off.
    """

    evaluate: Evaluate | None = None
    at: Iterable[int] = ()
    stop: Callable[[Mapping[str, float]], bool] | None = None
    walk: bool = False
    label: str = ""

    def points(self, steps: int) -> list[int]:
        """Numbers of steps done after which there is a record; ValueError for one outside 0 ...
        `steps`.
        """
        points = sorted({*map(int, self.at), steps})
        if steps < 1 or points[0] < 0 or points[-1] > steps:
            raise ValueError(
                f"steps must be 1 or more, Recording.at within 0 ... steps; got {steps} and at "
                f"{points}"
            )
        return points


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; none of it changes what is learnt, rounding aside.

    Args:
        cpu: stay on the CPU even if there is a GPU.
        precision: "float32", or "bf16" to run forward and loss under autocast to bfloat16; the
            weights stay.
        accumulate: work a batch off in this many equal parts, one after the other: the same
            gradient in a fraction of the memory. Only for a loss that is a mean over the rows.
        checkpoints: save the run as it goes and take it up where its last checkpoint left it. On a
            CPU the result then is, bit for bit, that of a run that was never interrupted.
    """

    cpu: bool = False
    precision: str = "float32"
    accumulate: int = 1
    checkpoints: Checkpoints | None = None

    def __post_init__(self):
        if self.precision not in ("float32", "bf16"):
            raise ValueError(f'precision must be "float32" or "bf16", got {self.precision!r}')
