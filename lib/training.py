"""One training loop for every network and optimiser; it records what each step did.

The loop runs on `accelerate`, so the same call serves a CPU, a GPU or, under torchrun, several processes.
"""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib import seeds
from lib.optimizers import gradient_norm

CHECK_EVERY = 100  # steps between looks at the loss; each look waits for the device


@dataclass(frozen=True)
class Batches:
    """Shuffled mini-batches of data that lie on one device: batch k is a function of (seed, k) alone.

    Every epoch has its own order, drawn from the stream "batches" of `seed`; an incomplete batch is left out.

    Args:
        inputs: (N, ...), for images uint8.
        targets: (N,).
        size: rows of a batch; more than N raises ValueError.
        seed: the run's integer seed.
        transform: applied to the rows of `inputs` that a batch takes, for example `datasets.Standardise`.
    """

    inputs: Tensor
    targets: Tensor
    size: int
    seed: int
    transform: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self):
        if len(self.inputs) != len(self.targets):
            raise ValueError(f"inputs has {len(self.inputs)} rows and targets {len(self.targets)}; they must agree")
        if not 0 < self.size <= len(self.inputs):
            raise ValueError(f"size must lie between 1 and the {len(self.inputs)} rows there are, got {self.size}")

    @property
    def per_epoch(self) -> int:
        """Steps of one pass over the data."""
        return len(self.inputs) // self.size

    def rows(self, step: int) -> Tensor:
        """Row numbers of batch `step` (from 0): (size,)."""
        epoch, place = divmod(step, self.per_epoch)
        return _order(self.seed, epoch, len(self.inputs))[place * self.size : (place + 1) * self.size]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs (size, ...) and targets (size,) of batch `step`."""
        rows = self.rows(step).to(self.inputs.device)
        inputs = self.inputs[rows]
        return (inputs if self.transform is None else self.transform(inputs)), self.targets[rows]

    def to(self, device) -> "Batches":
        """The same batches with the data on `device`."""
        return Batches(self.inputs.to(device), self.targets.to(device), self.size, self.seed, self.transform)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, rows: int) -> Tensor:
    key = int(seeds.stream(seed, "batches").integers(2**63))
    return torch.from_numpy(np.random.default_rng([key, epoch]).permutation(rows))


@dataclass(frozen=True)
class History:
    """What a run did, as arrays; after a divergence every entry is NaN.

    `loss`, `step_size`, `gradient_norm`, `seconds` (steps,): mini-batch loss before the step, the step size
    taken (the learning rate for an optimiser without `last_step_size`), ‖g‖, and the training time so far
    without evaluations. `evaluated_at` (points,): numbers of steps done; `metrics[name]` (points,): what
    `evaluate` returned there. `status` is "finished" or "diverged at step k"; `device` says where it ran.
    """

    loss: np.ndarray
    step_size: np.ndarray
    gradient_norm: np.ndarray
    seconds: np.ndarray
    evaluated_at: np.ndarray
    metrics: Mapping[str, np.ndarray]
    status: str
    device: str


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`build()` with torch's generator seeded by the stream "start" of `seed`, and set back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.stream(seed, "start").integers(2**63)))
        return build()


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of logits model(inputs) (b, classes) against targets (b,), in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def classification(inputs: Tensor, targets: Tensor, transform=None, size: int = 1000) -> Callable[[nn.Module], dict]:
    """An `evaluate` for `train`: {"test_loss": mean cross-entropy, "test_accuracy": share of correct labels}.

    `inputs` (N, ...), `targets` (N,), taken `size` rows at a time.
    """

    @torch.no_grad()
    def evaluate(model: nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        loss = correct = 0.0
        for rows, labels in zip(inputs.split(size), targets.to(device).split(size), strict=True):
            rows = rows.to(device)
            logits = model(rows if transform is None else transform(rows))  # (size, classes)
            loss += F.cross_entropy(logits, labels, reduction="sum")
            correct += (logits.argmax(1) == labels).sum()
        return {"test_loss": float(loss) / len(targets), "test_accuracy": float(correct) / len(targets)}

    return evaluate


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    steps: int,
    *,
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    evaluate_at: Iterable[int] = (),
    label: str = "",
    cpu: bool = False,
) -> History:
    """Train `model` in place for `steps` steps and return its history.

    Args:
        optimizer: any torch optimiser over the model's parameters; it is called as `step(closure)`.
        batches: step k uses `batches.batch(k)`, whatever the optimiser.
        loss: (model, batch) to a scalar tensor.
        evaluate: the model in evaluation mode, without gradients, to named numbers.
        evaluate_at: numbers of steps done, 0 to `steps`, after which to evaluate; the end is always added.
        label: the run's name on the progress bar, which TQDM_DISABLE=1 turns off.
        cpu: stay on the CPU even if there is a GPU.

    A loss that is not finite ends the run: the history says so and the rest of it is NaN; nothing is raised.
    Raises ValueError for steps below 1 or an evaluation outside 0 ... steps.
    """
    points = sorted({*evaluate_at, steps})
    if steps < 1 or points[0] < 0 or points[-1] > steps:
        raise ValueError(
            f"steps must be 1 or more, evaluate_at within 0 ... steps; got {steps} and evaluate_at {points}"
        )
    accelerator = _accelerator(cpu)
    record = _Record(steps, points, accelerator.device)
    network, stepper = accelerator.prepare(model, optimizer)
    batches = batches.to(accelerator.device)

    def take(step: int) -> None:
        batch = batches.batch(step)

        def closure():
            stepper.zero_grad()
            value = loss(network, batch)
            accelerator.backward(value)
            # The gradient is averaged over processes by itself, the loss is not, and Polyak's step needs
            # both.
            record.loss[step] = value = accelerator.reduce(value.detach(), "mean")
            return value

        stepper.step(closure)
        record.note(step, optimizer)

    network.train()
    with _progress(steps, label, accelerator.is_local_main_process) as bar:
        for step in range(steps):
            if step in points:
                record.evaluate(step, network, evaluate)
            try:
                take(step)
            except FloatingPointError:
                record.loss[step] = math.nan  # the loss itself may still have been finite
                break
            bar.update()
            if step % CHECK_EVERY == 0 and not math.isfinite(record.loss[step]):
                break
        else:
            record.evaluate(steps, network, evaluate)
    return record.history()


def _accelerator(cpu: bool):
    with warnings.catch_warnings():
        # accelerate pulls in tqdm's notebook bar, which asks for a package that nothing here uses.
        warnings.filterwarnings("ignore", message="IProgress not found")
        from accelerate import Accelerator
    return Accelerator(cpu=cpu)


class _Record:
    """The arrays of a history while it grows; per-step values stay on the device."""

    def __init__(self, steps: int, points: list[int], device: torch.device):
        self.loss, self.step_size, self.norm = torch.full((3, steps), math.nan, device=device)
        self.seconds = np.full(steps, math.nan)
        self.points, self.metrics, self.device = points, {}, device
        self.start = time.perf_counter()

    def note(self, step: int, optimizer) -> None:
        lr = optimizer.param_groups[0].get("lr", math.nan)
        size, norm = getattr(optimizer, "last_step_size", lr), getattr(optimizer, "last_gradient_norm", None)
        if norm is None:
            norm = gradient_norm(
                [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            )
        self.step_size[step], self.norm[step] = size, norm
        self.seconds[step] = time.perf_counter() - self.start

    def evaluate(self, step: int, network: nn.Module, evaluate) -> None:
        if evaluate is None:
            return
        begin = time.perf_counter()
        network.eval()
        with torch.inference_mode():
            values = evaluate(network)
        network.train()
        for name, value in values.items():
            self.metrics.setdefault(name, np.full(len(self.points), math.nan))[self.points.index(step)] = value
        self.start += time.perf_counter() - begin

    def history(self) -> History:
        loss, step_size, norm = (values.double().cpu().numpy() for values in (self.loss, self.step_size, self.norm))
        bad = np.flatnonzero(~np.isfinite(loss))
        status = f"diverged at step {bad[0] + 1}" if len(bad) else "finished"
        if len(bad):
            for values in (loss, step_size, norm, self.seconds):
                values[bad[0] :] = math.nan
            for values in self.metrics.values():
                values[np.array(self.points) > bad[0]] = math.nan
        arrays = (loss, step_size, norm, self.seconds, np.array(self.points))
        return History(*arrays, metrics=self.metrics, status=status, device=str(self.device))


def _progress(steps: int, label: str, main: bool):
    from tqdm import tqdm

    silent = os.environ.get("TQDM_DISABLE", "") not in ("", "0")  # tqdm itself reads it only once, at import
    return tqdm(total=steps, desc=label, unit="step", leave=False, disable=silent or not main)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` entries (fewer at the start) along the last axis; the shape stays.

    From a NaN on, every entry is NaN.
    """
    total = np.cumsum(values, axis=-1)
    before = np.concatenate([np.zeros_like(total[..., :window]), total[..., :-window]], axis=-1)
    if values.shape[-1] <= window:
        before = np.zeros_like(total)
    return (total - before) / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def steps_to_reach(loss: np.ndarray, target: float, window: int) -> np.ndarray:
    """First step (from 1) where the running mean of `loss` (runs, steps) is ≤ `target`: (runs,), or inf."""
    reached = running_mean(loss, window) <= target
    reached[..., : window - 1] = False  # a mean over fewer entries is noisier
    return np.where(reached.any(-1), reached.argmax(-1) + 1.0, np.inf)
