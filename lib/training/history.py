"""What a training run did, as arrays: its file, and what figures ask of it."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lib import files

STEPWISE = ("loss", "step_size", "gradient_norm", "seconds")
GROUPS = ("metrics", "weight_norms", "walked")


@dataclass(frozen=True)
class TrainingHistory:
    """What a run did, as arrays; after a divergence or an early stop every entry is NaN.

    `loss`, `step_size`, `gradient_norm`, `seconds` (steps,): mini-batch loss before the step, the
    step size taken (the learning rate for an optimiser without `last_step_size`), ‖g‖, and the
    training time so far without evaluations and checkpoints. `evaluated_at` (points,): numbers of
    steps done, the records; `metrics[name]` (points,): what `evaluate` returned there. `status` is
    "finished", "stopped after step k", either with ", k steps skipped", "paused after step k" or
    "diverged at step k"; `device` says where it ran. `weight_norms[name]` (points,): Frobenius norm
    of each parameter. `drift` (points,): largest difference of a weight between processes.
    `walked[name]` (points,): Σ ‖ΔW‖² over the steps so far, empty where it was not asked for.
    """

    loss: np.ndarray
    step_size: np.ndarray
    gradient_norm: np.ndarray
    seconds: np.ndarray
    evaluated_at: np.ndarray
    metrics: Mapping[str, np.ndarray]
    status: str
    device: str
    weight_norms: Mapping[str, np.ndarray] = field(default_factory=dict)
    drift: np.ndarray | None = None
    walked: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        """Whether the run was left where it can go on."""
        return self.status.startswith("paused")

    def save(self, path: Path, about: Mapping) -> None:
        """Write the history to an .npz, atomically.

        `about` is kept with it: what was trained and how, as plain values.
        """
        arrays = {name: getattr(self, name) for name in (*STEPWISE, "evaluated_at")}
        if self.drift is not None:
            arrays["drift"] = self.drift
        for group in GROUPS:
            arrays |= {f"{group}/{name}": values for name, values in getattr(self, group).items()}
        text = files.dumps({"status": self.status, "device": self.device, "about": about})
        content = io.BytesIO()
        np.savez_compressed(content, json=np.array(text), **arrays)
        files.write(Path(path), content.getvalue())


def load(path: Path) -> tuple[TrainingHistory, dict]:
    """The history that `TrainingHistory.save` wrote, and its `about`."""
    with np.load(path) as file:  # which refuses pickled objects
        text = json.loads(str(file["json"]))
        arrays = {name: file[name] for name in file.files if name != "json"}
    groups = {name: {} for name in GROUPS}
    for name in [name for name in arrays if "/" in name]:
        group, key = name.split("/", 1)
        groups[group][key] = arrays.pop(name)
    history = TrainingHistory(**arrays, **groups, status=text["status"], device=text["device"])
    return history, text["about"]


def at_end(values: np.ndarray) -> np.ndarray:
    """The last entry of each row that is not NaN: the value at a run's end, early or not.

    `values` (runs, points); returns (runs,).
    """
    present = ~np.isnan(values)
    place = values.shape[1] - 1 - present[:, ::-1].argmax(1)
    return values[np.arange(len(values)), place]


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` entries along the last axis (fewer at the start).

    The shape stays. From a NaN on, every entry is NaN.
    """
    total = np.cumsum(values, axis=-1)
    before = np.concatenate([np.zeros_like(total[..., :window]), total[..., :-window]], axis=-1)
    if values.shape[-1] <= window:
        before = np.zeros_like(total)
    return (total - before) / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def steps_to_reach(loss: np.ndarray, target: float, window: int) -> np.ndarray:
    """First step (from 1) at which the running mean of the loss is ≤ `target`, or inf.

    `loss` (runs, steps); returns (runs,). The mean is over `window` steps; shorter ones do not
    count.
    """
    reached = running_mean(loss, window) <= target
    reached[..., : window - 1] = False  # a mean over fewer entries is noisier
    return np.where(reached.any(-1), reached.argmax(-1) + 1.0, np.inf)
