"""Checkpoints of a training run: written whole or not at all, read back only by the same run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from lib import files

SHOWN = 5  # differences that a refusal names


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often a run is saved, and what it is: the arguments of `training.train` that it
    needs.

    Args:
        path: one file, replaced at every checkpoint; a run that finds it goes on from there.
        every: steps between checkpoints, 1 or more, else ValueError. The run's end is saved too.
        configuration: what tells this run from others (network, data, loss, the start's seed)
            beyond what `train` sees for itself (optimiser and options, parameters and their shapes,
            batches, steps, seed).
        pause: the steps done to whether the run is saved and left there, to go on at the next call;
            the history then says "paused after step k".
    """

    path: Path
    every: int
    configuration: Mapping = field(default_factory=dict)
    pause: Callable[[int], bool] | None = None

    def __post_init__(self):
        if self.every < 1:
            raise ValueError(f"every must be 1 or more steps, got {self.every}")
        object.__setattr__(self, "path", Path(self.path))

    def save(self, state: Mapping, configuration: Mapping, step: int) -> None:
        """Write `state` (tensors, numbers, strings, and dicts and lists of them), reached after
        `step` steps.

        The file holds the old checkpoint or all of the new one, whatever interrupts. OSError, in
        one sentence, if it cannot be written, as on a full disk; the old one then stays.
        """
        for remains in self.path.parent.glob(f".{self.path.name}.*"):
            remains.unlink()  # of a run killed while it wrote
        content = {"configuration": flat(configuration), "step": step, "state": dict(state)}
        try:
            with files.replacing(self.path) as stream:
                torch.save(content, stream)
        except (OSError, RuntimeError) as error:
            # torch reports a failed write as a RuntimeError of its own, raised while it handles the
            # true one.
            cause = error if isinstance(error, OSError) else error.__context__
            if not isinstance(cause, OSError):
                raise
            kept = "the one before it is kept" if self.path.exists() else "there is none yet"
            raise OSError(
                cause.errno,
                f"the checkpoint after step {step} could not be written to {self.path.parent}"
                f" ({cause.strerror}; {_needed(content):.1f} MB); {kept}",
            ) from None

    def load(self, configuration: Mapping) -> tuple[int, dict] | None:
        """(steps done, state) of the last checkpoint, None if there is none.

        Never runs code from the file. ValueError if it is no checkpoint, or one of another
        configuration, which names what differs.
        """
        if not self.path.exists():
            return None
        advice = "remove it or choose another path to start afresh"
        try:
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            theirs, step, state = content["configuration"], content["step"], content["state"]
        except Exception as error:  # what torch raises depends on the bytes it trips over
            reason = str(error).split("\n")[0] or type(error).__name__
            raise ValueError(
                f"{self.path} is not a checkpoint that can be read ({reason}); {advice}"
            ) from error
        if found := differences(theirs, flat(configuration)):
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            listed = "; ".join(found[:SHOWN]) + more
            raise ValueError(
                f"{self.path} is a checkpoint of another configuration: {listed}; {advice}"
            )
        return step, state


def run_configuration(model, optimizer, batches, steps, points, precision) -> dict:
    """What a checkpoint has to agree with: all that decides a run and that the loop sees for
    itself.
    """
    changing = ("params", "steps", "skipped")  # of an option's group
    groups = [
        {k: v for k, v in group.items() if k not in changing} for group in optimizer.param_groups
    ]
    return {
        "optimizer": type(optimizer).__name__,
        **{f"optimizer group {k}": group for k, group in enumerate(groups)},
        "batch": {"size": batches.size, "per_epoch": batches.per_epoch},
        "seed": batches.seed,
        "steps": steps,
        "evaluate_at": points,
        "precision": precision,
        "shape": {name: tuple(p.shape) for name, p in model.named_parameters()},
    }


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """One phrase per entry in which a checkpoint's configuration and this run's differ."""
    return [
        f"{key} is {theirs.get(key, 'absent')} in it and {ours.get(key, 'absent')} here"
        for key in [*ours, *(key for key in theirs if key not in ours)]
        if theirs.get(key) != ours.get(key)
    ]


def flat(values: Mapping, above: str = "") -> dict[str, str]:
    """Nested mappings as {"outer.inner": text of the value}."""
    found = {}
    for key, value in values.items():
        name = f"{above}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: repr(value)}
    return found


def _needed(value) -> float:
    """Megabytes of the tensors in a nest of dicts and lists."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size() / 1e6
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(map(_needed, value)) if isinstance(value, list | tuple) else 0.0
