"""What a training run did, as arrays: its file, and what figures ask of it."""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lib import files
from lib.representation import Facts, span

# What reading a damaged .npz raises, beside OSError.
DAMAGE = (ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
STEPWISE = ("loss", "step_size", "gradient_norm", "seconds")
GROUPS = ("metrics", "weight_norms", "walked")


@dataclass(frozen=True, repr=False)
class TrainingHistory(Facts):
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

    def facts(self) -> list[tuple[str, str]]:
        """How it ended and where, the first and the last loss, and the last of each metric."""
        seen = self.loss[np.isfinite(self.loss)]
        ends = f"{seen[0]:.4g} to {seen[-1]:.4g}" if seen.size else "none"
        last = {name: np.asarray(values)[-1:] for name, values in self.metrics.items()}
        return [
            ("status", self.status),
            ("device", self.device),
            ("steps", f"{seen.size} of {self.loss.size}"),
            ("loss", ends),
            ("evaluations", str(len(self.evaluated_at))),
            *((name, span(value, ".4g")) for name, value in last.items()),
        ]

    def save(self, path: Path, about: Mapping) -> None:
        """Write the history to an .npz, atomically.

        `about` is kept with it: what was trained and how, as plain values.
        """
        names = (*STEPWISE, "evaluated_at", *["drift"] * (self.drift is not None))
        head = {"status": self.status, "device": self.device, "about": about}
        files.write(Path(path), packed(head, flattened(self, names, GROUPS)))


def load(path: Path) -> tuple[TrainingHistory, dict]:
    """The history that `TrainingHistory.save` wrote, and its `about`.

    Raises FileNotFoundError where there is none, ValueError for a file that is truncated or holds
    no history.
    """
    try:
        head, arrays = unpacked(path)
        values = grouped(arrays, GROUPS)
        history = TrainingHistory(**values, status=head["status"], device=head["device"])
        return history, head["about"]
    except DAMAGE as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path} is not a training history that can be read ({what}); train again"
        ) from error


def flattened(run, names: Iterable[str], groups: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays `names` of `run`, and those of its mappings `groups` as "group/name"."""
    arrays = {name: getattr(run, name) for name in names}
    for group in groups:
        arrays |= {f"{group}/{name}": values for name, values in getattr(run, group).items()}
    return {name: np.asarray(values) for name, values in arrays.items()}


def grouped(arrays: Mapping[str, np.ndarray], groups: Iterable[str]) -> dict:
    """What `flattened` was made of: the arrays by name and a dict for each of the `groups`."""
    found = {group: {} for group in groups}
    for name, values in arrays.items():
        group, slash, key = name.partition("/")
        (found[group] if slash else found)[key or name] = values
    return found


def packed(head: Mapping, arrays: Mapping[str, np.ndarray]) -> bytes:
    """An .npz of the `arrays` and, as JSON, of the plain values `head`."""
    content = io.BytesIO()
    np.savez_compressed(content, json=np.array(files.dumps(head)), **arrays)
    return content.getvalue()


def unpacked(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """The head and the arrays of an .npz that `packed` made."""
    # np.load refuses pickled objects, and leaves a damaged file open that it opened itself.
    with open(path, "rb") as stream, np.load(stream) as file:
        arrays = {name: file[name] for name in file.files if name != "json"}
        return json.loads(str(file["json"])), arrays


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
