"""The arrays of a training run while they grow, on its device, and in its checkpoint."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from lib.training.history import TrainingHistory
from lib.training.step_sizes import gradient_norm

RECENT = 100  # steps whose mean loss a stopping rule sees
ON_DEVICE = ("loss", "step_size", "norm", "path")  # what a checkpoint keeps, with ON_HOST
ON_HOST = ("seconds", "weight_norms", "drift", "walked")


class Record:
    """The arrays of a history while it grows; per-step values stay on the device until read."""

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

    def note(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """What step number `step` (from 0) did.

        An optimiser that states `last_step_size` and `last_gradient_norm` is taken at its word; for
        any other the step size is its learning rate and ‖g‖ is measured here.
        """
        groups = optimizer.param_groups
        self.step_size[step] = getattr(optimizer, "last_step_size", groups[0].get("lr", math.nan))
        norm = getattr(optimizer, "last_gradient_norm", None)
        if norm is None:
            parameters = [p for group in groups for p in group["params"]]
            norm = gradient_norm([p.grad for p in parameters if p.grad is not None])
        self.norm[step] = norm
        self.seconds[step] = time.perf_counter() - self.start

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
        """Record weight norms, `drift()` and what `evaluate` finds after `done` steps, once."""
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
        return {
            **{name: getattr(self, name).cpu() for name in ON_DEVICE},
            **{name: torch.from_numpy(getattr(self, name)) for name in ON_HOST},
            "walking": self.walking,
            "elapsed": time.perf_counter() - self.start,
            "metrics": {name: torch.from_numpy(values) for name, values in self.metrics.items()},
        }

    def restore(self, state: Mapping) -> None:
        """Go on from `state`, as `state()` gave it."""
        for name in ON_DEVICE:
            getattr(self, name).copy_(state[name])
        for name in ON_HOST:
            getattr(self, name)[:] = state[name].numpy()
        self.walking = state["walking"]
        self.metrics = {name: values.numpy().copy() for name, values in state["metrics"].items()}
        self.start = time.perf_counter() - state["elapsed"]

    def found(self, done: int) -> dict[str, float]:
        """What `evaluate` returned after `done` steps, and "recent_loss".

        The latter is the mean loss of the last `RECENT` of them.
        """
        place = self.points.index(done)
        recent = float(self.loss[max(0, done - RECENT) : done].mean())  # NaN before the first step
        found = {name: float(values[place]) for name, values in self.metrics.items()}
        return found | {"recent_loss": recent}

    def history(
        self, ending: str = "finished", done: int | None = None, skipped: int | None = None
    ) -> TrainingHistory:
        """The history of a run that ended, in words, as `ending` says.

        `done` is the number of steps that it took, None for all of them. `skipped` counts
        those that the optimiser left out, None if it leaves none out: then a loss that is not
        finite is a divergence.
        """
        loss, step_size, norm = (
            values.double().cpu().numpy() for values in (self.loss, self.step_size, self.norm)
        )
        bad = np.flatnonzero(~np.isfinite(loss[:done]))
        status = ending + (f", {skipped} steps skipped" if skipped else "")
        if len(bad) and skipped is None:
            status = f"diverged at step {bad[0] + 1}"
            for values in (loss, step_size, norm, self.seconds):
                values[bad[0] :] = math.nan
            for values in (*self.metrics.values(), self.weight_norms, self.drift, self.walked):
                values[np.array(self.points) > bad[0]] = math.nan
        return TrainingHistory(
            loss=loss,
            step_size=step_size,
            gradient_norm=norm,
            seconds=self.seconds,
            evaluated_at=np.array(self.points),
            metrics=self.metrics,
            status=status,
            device=str(self.device),
            weight_norms=self._by_layer(self.weight_norms),
            drift=self.drift,
            walked=self._by_layer(self.walked) if self.walking else {},
        )

    def _by_layer(self, values: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.layers, values.T, strict=True))  # (points, layers) -> layer: (points,)
