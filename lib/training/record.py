"""What a training run did, step by step: the arrays while they grow, the history they become, its
file.
"""

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lib import files
from lib.training.step_sizes import gradient_norm

RECENT = 100  # steps whose mean loss a stopping rule sees
STEPWISE = ("loss", "step_size", "gradient_norm", "seconds")
GROUPS = ("metrics", "weight_norms", "walked")


@dataclass(frozen=True)
class TrainingHistory:
    """What a run did, as arrays; after a divergence or an early stop every entry is NaN.

    `loss`, `step_size`, `gradient_norm`, `seconds` (steps,): mini-batch loss before the step, the
    step size taken (the learning rate for an optimiser without `last_step_size`), ‖g‖, and the
    training time so far without evaluations and checkpoints. `evaluated_at` (points,): numbers of
    steps done, the records; `metrics[name]` (points,): what `evaluate` returned there. `status` is
    "finished", "stopped after step k", either with ", k steps skipped", or "diverged at step k";
    `device` says where it ran. `weight_norms[name]` (points,): Frobenius norm of each parameter.
    `drift` (points,): largest difference of a weight between processes. `walked[name]` (points,):
    Σ ‖ΔW‖² over the steps so far, empty where it was not asked for.
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

    def save(self, path: Path, about: Mapping) -> None:
        """Write the history, and `about` (plain values: what was trained and how), to an .npz,
        atomically.
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
    """The history that `History.save` wrote, and its `about`."""
    with np.load(path) as file:  # which refuses pickled objects
        text = json.loads(str(file["json"]))
        arrays = {name: file[name] for name in file.files if name != "json"}
    groups = {name: {} for name in GROUPS}
    for name in [name for name in arrays if "/" in name]:
        group, key = name.split("/", 1)
        groups[group][key] = arrays.pop(name)
    return TrainingHistory(**arrays, **groups, status=text["status"], device=text["device"]), text[
        "about"
    ]


class Record:
    """The arrays of a history while it grows; per-step values stay on the device until they are
    asked for.
    """

    def __init__(self, steps: int, points: list[int], device: torch.device, layers: list[str]):
        self.loss, self.step_size, self.norm = torch.full((3, steps), math.nan, device=device)
        self.seconds = np.full(steps, math.nan)
        self.points, self.metrics, self.device, self.layers = points, {}, device, layers
        self.weight_norms = np.full((len(points), len(layers)), math.nan)
        self.drift = np.full(len(points), math.nan)
        self.path = torch.zeros(len(layers), dtype=torch.float64, device=device)
        self.walked = np.full((len(points), len(layers)), math.nan)
        self.walking = False
        self.start = time.perf_counter()

    def note(self, step: int, optimizer) -> None:
        """What step number `step` (from 0) did."""
        lr = optimizer.param_groups[0].get("lr", math.nan)
        size, norm = (
            getattr(optimizer, "last_step_size", lr),
            getattr(optimizer, "last_gradient_norm", None),
        )
        if norm is None:
            norm = gradient_norm(
                [
                    p.grad
                    for group in optimizer.param_groups
                    for p in group["params"]
                    if p.grad is not None
                ]
            )
        self.step_size[step], self.norm[step] = size, norm
        self.seconds[step] = time.perf_counter() - self.start

    @staticmethod
    def weights(network: nn.Module) -> list[torch.Tensor]:
        """A copy of the parameters."""
        return [parameter.detach().clone() for parameter in network.parameters()]

    def walk(self, network: nn.Module, before: list[torch.Tensor]) -> None:
        """Add the squared length of the move away from `before`, parameter by parameter."""
        self.walking = True
        with torch.no_grad():
            moves = torch._foreach_sub(list(network.parameters()), before)
            self.path += torch.stack(torch._foreach_norm(moves)).to(self.path) ** 2

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock: what happens inside is no training time."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize()  # the steps under way still count
        begin = time.perf_counter()
        yield
        self.start += time.perf_counter() - begin

    def observe(
        self, done: int, network: nn.Module, evaluate: Callable | None, drift: Callable[[], float]
    ) -> None:
        """A record after `done` steps, unless there is one: weight norms, `drift()` and what
        `evaluate` finds.
        """
        place = self.points.index(done)
        if not np.isnan(self.drift[place]):
            return
        with self.paused(), torch.inference_mode():
            norms = torch._foreach_norm(list(network.parameters()), 2, torch.float64)
            self.weight_norms[place] = torch.stack([n.to(self.device) for n in norms]).cpu()
            self.walked[place] = self.path.cpu()
            self.drift[place] = drift()
            if evaluate is None:
                return
            network.eval()
            values = evaluate(network)
            network.train()
            for name, value in values.items():
                self.metrics.setdefault(name, np.full(len(self.points), math.nan))[place] = value

    def state(self) -> dict:
        """Everything so far as tensors, for a checkpoint."""
        values = {name: getattr(self, name).cpu() for name in ("loss", "step_size", "norm")}
        values |= {
            name: torch.from_numpy(getattr(self, name))
            for name in ("seconds", "weight_norms", "drift", "walked")
        }
        values |= {"path": self.path.cpu(), "walking": self.walking}
        elapsed = time.perf_counter() - self.start
        return values | {
            "elapsed": elapsed,
            "metrics": {name: torch.from_numpy(values) for name, values in self.metrics.items()},
        }

    def restore(self, state: Mapping) -> None:
        """Go on from `state`, as `state()` gave it."""
        for name in ("loss", "step_size", "norm"):
            getattr(self, name).copy_(state[name])
        self.path.copy_(state["path"])
        self.walking = state["walking"]
        for name in ("seconds", "weight_norms", "drift", "walked"):
            getattr(self, name)[:] = state[name].numpy()
        self.metrics = {name: values.numpy().copy() for name, values in state["metrics"].items()}
        self.start = time.perf_counter() - state["elapsed"]

    def found(self, done: int) -> dict[str, float]:
        """What `evaluate` returned after `done` steps, and the mean loss of the last `RECENT` of
        them.
        """
        place = self.points.index(done)
        recent = float(self.loss[max(0, done - RECENT) : done].mean())  # NaN before the first step
        return {name: float(values[place]) for name, values in self.metrics.items()} | {
            "recent_loss": recent
        }

    def history(self, skipped: int | None = None, stopped: int | None = None) -> TrainingHistory:
        """The history; `skipped` counts the steps that the optimiser left out, None if it leaves
        none out.

        `stopped` is the number of steps after which the run was done, None if it was to take them
        all.
        """
        loss, step_size, norm = (
            values.double().cpu().numpy() for values in (self.loss, self.step_size, self.norm)
        )
        bad = np.flatnonzero(~np.isfinite(loss[:stopped]))
        status = "finished" if stopped is None else f"stopped after step {stopped}"
        status += f", {skipped} steps skipped" if skipped else ""
        if len(bad) and skipped is None:
            status = f"diverged at step {bad[0] + 1}"
            for values in (loss, step_size, norm, self.seconds):
                values[bad[0] :] = math.nan
            for values in (*self.metrics.values(), self.weight_norms, self.drift, self.walked):
                values[np.array(self.points) > bad[0]] = math.nan
        arrays = (loss, step_size, norm, self.seconds, np.array(self.points))
        layers = dict(
            zip(self.layers, self.weight_norms.T, strict=True)
        )  # (points, layers) -> layers x (points,)
        walked = dict(zip(self.layers, self.walked.T, strict=True)) if self.walking else {}
        rest = dict(status=status, device=str(self.device), weight_norms=layers, drift=self.drift)
        rest |= {"walked": walked}
        return TrainingHistory(*arrays, metrics=self.metrics, **rest)


def at_end(values: np.ndarray) -> np.ndarray:
    """The last entry of each row of `values` (runs, points) that is not NaN, (runs,): a run's end,
    early or not.
    """
    present = ~np.isnan(values)
    place = values.shape[1] - 1 - present[:, ::-1].argmax(1)
    return values[np.arange(len(values)), place]


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` entries (fewer at the start) along the last axis; the shape
    stays.

    From a NaN on, every entry is NaN.
    """
    total = np.cumsum(values, axis=-1)
    before = np.concatenate([np.zeros_like(total[..., :window]), total[..., :-window]], axis=-1)
    if values.shape[-1] <= window:
        before = np.zeros_like(total)
    return (total - before) / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def steps_to_reach(loss: np.ndarray, target: float, window: int) -> np.ndarray:
    """First step (from 1) where the running mean of `loss` (runs, steps) is ≤ `target`: (runs,), or
    inf.
    """
    reached = running_mean(loss, window) <= target
    reached[..., : window - 1] = False  # a mean over fewer entries is noisier
    return np.where(reached.any(-1), reached.argmax(-1) + 1.0, np.inf)
