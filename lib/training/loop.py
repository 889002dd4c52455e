"""One training loop for every network and torch optimiser.

`accelerate` chooses the device and, under torchrun, divides every batch among the
processes.
"""

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from lib import seeds
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoint
from lib.training.curves import Curve
from lib.training.recorders import Clock, Evaluations, Steps, Walk

CHECK_EVERY = 100  # steps between checks of the loss; each check waits for the device
SAVE_EVERY = 500  # steps between checkpoints


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the mean cross-entropy of a batch, in nats.

    Parameters
    ----------
    model : torch.nn.Module
        The network, a function from inputs to logits (b, classes).
    batch : tuple of Tensor
        Inputs and targets (b,).

    Returns
    -------
    Tensor ()
        The mean over the rows of the batch.
    """
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def _check_holds_all(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError unless the optimiser has all parameters that are to be trained.

    Without this check, an optimiser that was given an exhausted generator, or only the
    matrices, would train a part of the network without a warning.
    """
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left_out = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in held
    ]
    if left_out:
        raise ValueError(
            f"{type(optimizer).__name__} was not given {len(left_out)} of the "
            f"network's parameters, the first {left_out[0]!r}: give it all of "
            "list(model.parameters()), or freeze what is not to be trained with "
            "requires_grad_(False)"
        )


def _what_is_wrong(error: Exception) -> str:
    """Explain in one line why the state of a checkpoint could not be restored."""
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return " ".join(str(error).split())


def _no_closure(optimizer: torch.optim.Optimizer) -> str:
    """Return the error message for an optimiser whose step takes no closure."""
    return (
        f"{type(optimizer).__name__}.step did not call its closure; the loop expects "
        "torch's step(closure), which calls closure() for the loss and its gradients"
    )


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a network from the random stream "start" of a seed.

    Parameters
    ----------
    build : callable
        A function without arguments that returns a network.
    seed : int
        The seed.

    Returns
    -------
    torch.nn.Module
        The network that `build` returns after torch is seeded. The state of torch's
        generator on the CPU is restored afterwards; the generators of other devices
        stay seeded.

    Examples
    --------
    >>> import torch
    >>> from lib.training import initialised
    >>> first, again = (initialised(lambda: torch.nn.Linear(2, 2), 0) for _ in range(2))
    >>> torch.equal(first.weight, again.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.stream(seed, "start").integers(2**63)))
        return build()


def agreed(value: Any) -> Any:
    """Return, in every process, the value of the first process.

    Parameters
    ----------
    value : Any
        The value in this process. It must be possible to pickle it.

    Returns
    -------
    Any
        The value in the first process.
    """
    return broadcast_object_list([value])[0]


def _never(step: int) -> bool:
    """Return False: the run is never paused."""
    return False


class Trainer:
    """Train a network in place, with step k on batch k, and record its curve.

    If there is a checkpoint, the trainer continues from it. On a CPU, the result is
    bitwise the same as without the interruption. A run ends after `steps` steps, or
    earlier if a recorder ends it. It also ends if the loss is not finite, which is
    checked every `CHECK_EVERY` steps. The curve is then cut at the first loss, step
    size or gradient norm that is not finite.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    optimizer : torch.optim.Optimizer
        The optimiser of the network. If it is a `GradientStep`, such as
        `NormalizedSGD`, its ``last_step_size`` and ``last_gradient_norm`` are recorded.
    batches : Batches
        The data.
    steps : int
        The largest number of steps.
    loss : callable
        A function of the network and a batch that returns the loss. If several
        processes share a batch, the loss must be a mean over the rows of the batch.
        Default: mean cross-entropy.
    evaluations : Evaluations, optional
        The recorder that measures the network at chosen steps and at the end. Default:
        only the norms of the weights are measured, at the end.
    clock : Clock, optional
        The recorder that reads the loss on fixed rows. Default: none.
    walk : bool, default False
        Whether to add up the squared lengths of the moves of each weight.
    checkpoint : Checkpoint, optional
        The file to which the run is saved, and from which it continues.
    pause : callable, optional
        A function of the number of steps done that returns whether to save the run and
        to stop for now. Default: the run is never paused.
    cpu : bool, default False
        Whether to use the CPU even if there is a GPU.

    Attributes
    ----------
    step : int
        Number of steps done.

    Raises
    ------
    ValueError
        If the optimiser lacks a parameter of the network that requires a gradient, or
        if a batch cannot be divided equally among the processes.
    TypeError
        If `optimizer` is not an optimiser but, for example, a function that makes one;
        if its step does not take a closure; or if `checkpoint` is not a Checkpoint.

    Examples
    --------
    >>> import torch
    >>> from lib.training import Batches, NormalizedSGD, Trainer, initialised
    >>> inputs = torch.eye(4)
    >>> targets = torch.tensor([0, 1, 0, 1])
    >>> network = initialised(lambda: torch.nn.Linear(4, 2), seed=0)
    >>> trainer = Trainer(
    ...     network,
    ...     NormalizedSGD(network.parameters(), lr=0.1),
    ...     Batches(inputs, targets, size=4, seed=0),
    ...     steps=50,
    ...     cpu=True,
    ... )
    >>> curve = trainer.run()
    >>> curve.status, len(curve.loss), bool(curve.loss[-1] < 0.1 * curve.loss[0])
    ('finished', 50, True)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        steps: int,
        loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy,
        *,
        evaluations: Evaluations | None = None,
        clock: Clock | None = None,
        walk: bool = False,
        checkpoint: Checkpoint | None = None,
        pause: Callable[[int], bool] = _never,
        cpu: bool = False,
    ) -> None:
        _check_takes_closure(optimizer)
        _check_holds_all(model, optimizer)
        if not isinstance(checkpoint, Checkpoint | None):
            raise TypeError(
                "checkpoint must be a Checkpoint, such as Checkpoint('run.pt'), got "
                f"{checkpoint!r}"
            )
        self.model = model
        self.optimizer = optimizer
        self.steps = steps
        self.loss = loss
        self.checkpoint = checkpoint
        self.pause = pause

        # The machine. The network is moved to the device in place, and the data are
        # copied.
        self.machine = Accelerator(cpu=cpu)
        device = self.machine.device
        self.network, self.stepper = self.machine.prepare(model, optimizer)
        part = (self.machine.process_index, self.machine.num_processes)
        self.batches = batches.on(device, part)
        self.dropout = int(seeds.stream(batches.seed, "dropout").integers(2**63))

        # The recorders.
        self.weights = {
            name: parameter.detach() for name, parameter in model.named_parameters()
        }
        self.log = Steps(steps, optimizer, device)
        self.walk = Walk(list(self.weights.values())) if walk else None
        self.clock = clock
        if self.clock is not None:
            self.clock.start()
        self.evaluations = evaluations or Evaluations(lambda model, step: {})
        self.evaluations.start()

        # How far the run has come.
        self.has_run = False
        self.step = 0
        self.calls = 0  # calls of the closure in one step
        self.batch: tuple[Tensor, Tensor]
        self.spent = 0.0  # processor seconds that earlier processes used for this run
        self.begin = time.process_time()

    @property
    def seconds(self) -> float:
        """The processor seconds of the whole run so far."""
        return self.spent + time.process_time() - self.begin

    def run(self) -> Curve:
        """Train to the end, starting from the checkpoint if there is one.

        A trainer runs once.

        Returns
        -------
        Curve
            The record of all steps, and how the run ended. The fields that describe the
            study, such as the rule and the rate, have their default values.

        Raises
        ------
        ValueError
            If the checkpoint is damaged, is incomplete, has another key, or differs
            between processes.
        TypeError
            If the optimiser's step does not call its closure.
        OSError
            If the checkpoint cannot be read or written.
        RuntimeError
            If this method was called before.
        """
        if self.has_run:
            raise RuntimeError(
                "this trainer has run: make a new one, which continues from the "
                "checkpoint if there is one"
            )
        self.has_run = True
        self.restore()
        self.network.train()
        device = self.machine.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            status = self._run_steps()
        return self._curve(status)

    def restore(self) -> None:
        """Resume from the checkpoint, if there is one.

        Raises
        ------
        ValueError
            If the checkpoint is damaged, is incomplete, has another key, or differs
            between processes.
        OSError
            If the checkpoint cannot be read.
        """
        if self.checkpoint is not None and self.checkpoint.exists():
            state = self.checkpoint.read()
            try:
                self._take_over(state)
            except Exception as error:  # the type of the error depends on the state
                raise ValueError(
                    f"{self.checkpoint.path} does not hold the state of this run "
                    f"({_what_is_wrong(error)}): remove it to start this run afresh"
                ) from error
        if agreed(self.step) != self.step:
            assert self.checkpoint is not None  # without one, every process begins at 0
            raise ValueError(
                f"{self.checkpoint.path} differs between the processes: they must see "
                "one file"
            )

    def _take_over(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint.

        Raises an error if the state does not fit this run; `restore` explains the
        error.
        """
        step = seeds.whole_number("step", state["step"])
        if step > self.steps:
            raise ValueError(f"step {step} of a run of {self.steps}")
        self.step = step
        self.spent = float(state["seconds"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for recorder in self._recorders():
            recorder.restore(state)

    def save(self) -> None:
        """Write the checkpoint, if the run has one; only the first process writes.

        Raises
        ------
        OSError
            If the checkpoint cannot be written.
        """
        if self.checkpoint is None or not self.machine.is_main_process:
            return
        state: dict[str, Any] = {
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        for recorder in self._recorders():
            state |= recorder.state()
        self.checkpoint.write(state)

    def measure(self) -> bool:
        """Read the clock and evaluate, if these are due; return whether the run ends.

        There is also an evaluation after the last step, and when the clock ends the
        run.

        Returns
        -------
        bool
            Whether a recorder ends the run here. It is False after the last step, where
            the run ends anyway.
        """
        reached = False
        if self.clock is not None and self.clock.is_due(self.step):
            reached = self.clock.read(self.model, self.step)
        is_last = self.step == self.steps
        if not (reached or is_last or self.step in self.evaluations.at):
            return False
        self.evaluations.evaluate(self.model, self.step, self.weights, self.walk)
        return not is_last and (reached or self.evaluations.ends_run())

    def update(self) -> None:
        """Take one step on the batch that belongs to it.

        This method seeds torch's generators. `run` restores them at the end.

        Raises
        ------
        TypeError
            If the optimiser's step does not call its closure.
        """
        self.batch = self.batches.batch(self.step)
        # Each step has its own random stream, so that a run can resume without the
        # state of a generator.
        place = [self.dropout, self.step, self.machine.process_index]
        drawn = np.random.SeedSequence(place).generate_state(1, np.uint64)
        torch.manual_seed(int(drawn[0]))
        if self.walk is not None:
            self.walk.start_step()
        self.calls = 0
        self.stepper.step(self._loss_and_gradient)
        if not self.calls:
            raise TypeError(_no_closure(self.optimizer))
        self.log.size(self.step)
        if self.walk is not None:
            self.walk.end_step()
        self.step += 1

    def _loss_and_gradient(self) -> Tensor:
        """Compute the loss of the batch and its gradient: the optimiser's closure.

        The loss is recorded. If a step calls the closure several times, the last loss
        counts.
        """
        self.calls += 1
        self.stepper.zero_grad()
        value = self.loss(self.network, self.batch)
        self.machine.backward(value)
        # accelerate averages the gradient over the processes. Polyak's step needs the
        # average of the loss, too.
        value = self.machine.reduce(value.detach(), "mean")
        self.log.loss(self.step, value)
        return value

    def _run_steps(self) -> str:
        """Take steps until the run ends or pauses, and return its status in words.

        A checkpoint is written before the measurements at its step, so that it does not
        contain them. A run that resumes from the checkpoint repeats these measurements.
        """
        first = self.step
        while True:
            leaving = agreed(self.pause(self.step))
            if self.step > first:
                is_checked = self.step % CHECK_EVERY == 0
                if is_checked and not self.log.is_finite(self.step - 1):
                    return "diverged"
                if leaving or self.step % SAVE_EVERY == 0:
                    self.save()
            if self.measure():
                return f"stopped after step {self.step}"
            if self.step == self.steps:
                return "finished"
            if leaving:
                return f"paused after step {self.step}"
            self.update()

    def _recorders(self) -> list[Steps | Walk | Clock | Evaluations]:
        """Return the recorders whose state a checkpoint contains."""
        recorders = (self.log, self.walk, self.clock, self.evaluations)
        return [recorder for recorder in recorders if recorder is not None]

    def _curve(self, status: str) -> Curve:
        """Return the Curve of the run, cut before the first number that is not finite.

        The clock readings and the evaluations, including the walks (`walked`), are cut
        there, too. If there is such a number, the status of the curve names its step,
        counted from 1, and the given `status` is ignored.
        """
        record = self.log.arrays()
        end = record.shape[1]
        if end < self.step:
            status = f"diverged at step {end + 1}"
        stepwise = dict(
            zip(("loss", "step_size", "gradient_norm"), record, strict=False)
        )
        return Curve(
            status=status,
            seconds=self.seconds,
            clock=self.clock.arrays(end) if self.clock is not None else {},
            **stepwise,
            **self.evaluations.arrays(end),
        )


def _check_takes_closure(optimizer: torch.optim.Optimizer) -> None:
    """Raise TypeError unless the step of an optimiser can be given a closure."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            "optimizer must be a torch.optim.Optimizer, such as SGD(model.parameters(),"
            f" lr=0.1), got {optimizer!r}"
        )
    try:
        inspect.signature(optimizer.step).bind(None)
    except TypeError:
        raise TypeError(_no_closure(optimizer)) from None
