"""One training loop for every network and optimiser; it records each step and survives a kill.

`train` is the loop, `_Run.take` one step of it: any torch optimiser that is called as
`step(closure)` goes in. The loop runs on `accelerate`, so the same call serves a CPU, a GPU or,
under torchrun, several processes that share every batch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from lib import seeds
from lib.training import devices
from lib.training.batches import Batches
from lib.training.checkpoints import run_configuration
from lib.training.history import TrainingHistory
from lib.training.losses import cross_entropy
from lib.training.record import Record
from lib.training.settings import Execution, Recording

CHECK_EVERY = 100  # steps between looks at the loss; each look waits for the device


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`build()` with torch seeded by the stream "start" of `seed`; the generator is set back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.stream(seed, "start").integers(2**63)))
        return build()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    steps: int,
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy,
    recording: Recording = Recording(),  # noqa: B008 (it is frozen)
    execution: Execution = Execution(),  # noqa: B008
) -> TrainingHistory:
    """Train `model` in place for `steps` steps and return its history.

    Args:
        optimizer: any torch optimiser over the model's parameters; it is called as `step(closure)`.
            What it states as `last_step_size` and `last_gradient_norm` is recorded.
        batches: step k uses `batches.batch(k)`, whatever the optimiser; several processes take
            `batches.share(k, n)` each. `batches.seed` seeds dropout, afresh at every step.
        loss: (model, batch) to a scalar tensor, a mean over the rows.
        recording: what is measured, and what ends the run early.
        execution: device, precision, memory, checkpoints.

    A loss that is not finite ends the run, unless the optimiser skips such steps: the history says
    so and the rest of it is NaN; nothing is raised. Raises MemoryError, saying what helps, where
    the device's memory does not hold a batch; ValueError for steps below 1, parts that do not
    divide a batch, an evaluation outside 0 ... steps, or a checkpoint of another configuration;
    OSError if a checkpoint cannot be written; RuntimeError if the processes' weights drift apart.
    """
    run = _Run.prepared(model, optimizer, batches, steps, loss, recording, execution)
    done = run.restored()
    run.network.train()
    bar = devices.progress(run.accelerator, steps, done, recording.label)
    with devices.same_generators_afterwards(run.accelerator.device), bar:
        for step in range(done, steps):
            if step in run.record.points:
                run.observe(step)
                if run.stops(step):
                    return run.history(f"stopped after step {step}", step)
            if step > done and run.pauses(step):
                if run.diverged(step - 1):
                    break
                run.save(step)
                return run.record.history(f"paused after step {step}", step, skipped=0)
            try:
                run.take(step)
            except FloatingPointError:  # of an optimiser that looks before it moves
                run.record.loss[step] = math.nan  # the loss itself may still have been finite
                break
            bar.update()
            saving = run.saves_after(step)
            # Not at every step: a look at the loss waits for the device.
            if (saving or step % CHECK_EVERY == 0) and run.diverged(step):
                break
            if saving:
                run.save(step + 1)
        else:
            run.observe(steps)
            if done < steps:
                run.save(steps)
    return run.history()


@dataclass(frozen=True)
class _Run:
    """One training under way.

    `network` and `stepper` are `model` and `optimizer` as `accelerate` wraps them; `batches` is
    this process's part.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    network: nn.Module
    stepper: torch.optim.Optimizer
    batches: Batches
    loss: Callable
    recording: Recording
    execution: Execution
    configuration: Mapping
    accelerator: object
    record: Record

    @classmethod
    def prepared(cls, model, optimizer, batches, steps, loss, recording, execution) -> "_Run":
        """The arguments of `train`, checked and moved to the device.

        Raises ValueError where `execution.accumulate` does not divide the rows of a process.
        """
        points, checkpoints = recording.points(steps), execution.checkpoints
        seen = run_configuration(model, optimizer, batches, steps, points, execution.precision)
        given = checkpoints.configuration if checkpoints else {}
        accelerator = devices.accelerator(execution.cpu)
        device, n = accelerator.device, accelerator.num_processes
        if execution.accumulate < 1 or batches.size % (execution.accumulate * n):
            raise ValueError(
                f"accumulate must divide the {batches.size // n} rows of a process, got "
                f"{execution.accumulate}"
            )
        layers = [name for name, _ in model.named_parameters()]
        network, stepper = accelerator.prepare(model, optimizer)
        part = batches if n == 1 else batches.share(accelerator.process_index, n)
        return cls(
            model=accelerator.unwrap_model(network),
            optimizer=optimizer,
            network=network,
            stepper=stepper,
            batches=part.to(device),
            loss=loss,
            recording=recording,
            execution=execution,
            configuration=seen | dict(given),
            accelerator=accelerator,
            record=Record(steps, points, device, layers),
        )

    def take(self, step: int) -> None:
        """Step number `step`, from 0: the optimiser moves the model along its batch's gradient."""
        device, parts = self.accelerator.device, self.execution.accumulate
        with devices.memory_advice(device, step, self.batches.size, parts):
            batch = self.batches.batch(step)
            torch.manual_seed(self._dropout_seed(step))
            walking = self.model.parameters() if self.recording.walk else ()
            before = [parameter.detach().clone() for parameter in walking]
            self.stepper.step(partial(self._closure, step, batch))
            self.record.note(step, self.optimizer)
            if before:
                self.record.walk(self.model, before)

    def _closure(self, step: int, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Gradients and loss of `batch`; what `step(closure)` of an optimiser calls."""
        self.stepper.zero_grad()
        value, parts = 0.0, self.execution.accumulate
        for part in zip(*(values.chunk(parts) for values in batch), strict=True):
            with self._autocast():
                share = self.loss(self.network, part) / parts
            self.accelerator.backward(share)
            value = value + share.detach()
        # The gradient is averaged over processes by itself, the loss is not, and
        # Polyak's step needs both.
        self.record.loss[step] = value = self.accelerator.reduce(value, "mean")
        return value

    @cached_property
    def _dropout(self) -> int:
        return int(seeds.stream(self.batches.seed, "dropout").integers(2**63))

    def _dropout_seed(self, step: int) -> int:
        # By step, not one stream: a resumed run needs no generator's state, and evaluations may
        # draw.
        sequence = np.random.SeedSequence([self._dropout, step, self.accelerator.process_index])
        return int(sequence.generate_state(1, np.uint64)[0])

    def _autocast(self):
        enabled = self.execution.precision == "bf16"
        return torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=enabled)

    @property
    def _skips(self) -> bool:
        return getattr(self.optimizer, "check_finite", None) == "skip"

    def diverged(self, step: int) -> bool:
        """Whether the loss of `step` is not finite and the optimiser does not skip such steps."""
        return not self._skips and not math.isfinite(self.record.loss[step])

    def observe(self, done: int) -> None:
        """Record what is measured after `done` steps, unless the checkpoint has it already."""
        apart = partial(devices.drift, self.accelerator, self.model, done)
        with self._autocast():
            self.record.observe(done, self.model, self.recording.evaluate, apart)

    def stops(self, done: int) -> bool:
        """Whether the record after `done` steps ends the run early."""
        return self.recording.stop is not None and self.recording.stop(self.record.found(done))

    def pauses(self, done: int) -> bool:
        """Whether the run is to be left after `done` steps, to go on at the next call."""
        checkpoints = self.execution.checkpoints
        return bool(checkpoints and checkpoints.pause and checkpoints.pause(done))

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`; that of the end comes after the last record."""
        checkpoints, done = self.execution.checkpoints, step + 1
        return bool(checkpoints) and done % checkpoints.every == 0 and done < len(self.record.loss)

    def save(self, done: int) -> None:
        """Write the checkpoint after `done` steps, from one process, where one is asked for."""
        if not self.execution.checkpoints or not self.accelerator.is_main_process:
            return
        with self.record.paused():
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "record": self.record.state(),
            }
            self.execution.checkpoints.save(state, self.configuration, done)

    def restored(self) -> int:
        """Load the last checkpoint, if there is one; returns the number of steps done so far."""
        if not self.execution.checkpoints:
            return 0
        found = self.execution.checkpoints.load(self.configuration)
        done = found[0] if found else 0
        devices.require_same_step(self.accelerator, done)
        if found:
            self.model.load_state_dict(found[1]["model"])
            self.optimizer.load_state_dict(found[1]["optimizer"])
            self.record.restore(found[1]["record"])
        return done

    def history(self, ending: str = "finished", done: int | None = None) -> TrainingHistory:
        """The history of a run with this `ending`, in words, after `done` steps or all of them."""
        skipped = self.optimizer.skipped_steps if self._skips else None
        return self.record.history(ending, done, skipped)
