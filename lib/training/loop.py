"""One training loop for every network and torch optimiser.

`accelerate` brings the device and, under torchrun, the other processes of every batch.
"""

import inspect
import io
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from lib import files, seeds
from lib.training.batches import Batches
from lib.training.curves import READINGS, Curve, trailing_mean
from lib.training.rules import GradientStep, norms

CHECK_EVERY = 100  # steps between looks at the loss; each look waits for the device
SAVE_EVERY = 500  # steps between checkpoints
SEAL = 16  # hex digits of the SHA-256 with which a checkpoint begins
Evaluate = Callable[[nn.Module], Mapping[str, float]]  # of a model in evaluation mode
# The same after so many steps
EvaluateAt = Callable[[nn.Module, int], Mapping[str, float]]


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the mean cross-entropy of a batch, in nats.

    Parameters
    ----------
    model : torch.nn.Module
        The network, from inputs to logits (b, classes).
    batch : tuple of Tensor
        Inputs and targets (b,).

    Returns
    -------
    Tensor ()
        The mean over the rows.
    """
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def _check_holds_all(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError unless an optimiser holds all parameters that are trained.

    One that was given an exhausted generator, or matrices alone, would train a part of
    the network in silence.
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


def _no_closure(optimizer: torch.optim.Optimizer) -> str:
    """Say what the step of an optimiser has to take."""
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
        What `build` returns with torch seeded. The state of torch's generator stays as
        it was.

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
    """Return the first process's value, in every process.

    Parameters
    ----------
    value : Any
        The value of this process.

    Returns
    -------
    Any
        The value of the first process.
    """
    return broadcast_object_list([value])[0]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    steps: int,
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy,
    *,
    evaluate: EvaluateAt = lambda model, step: {},
    at: Iterable[int] = (),
    stop: Callable[[Mapping[str, float]], bool] = lambda metrics: False,
    reached: Callable[[int, float], bool] = lambda step, reading: False,
    walk: bool = False,
    clock: Evaluate = lambda model: {},
    tick: int = 0,
    cpu: bool = False,
    checkpoint: Path | None = None,
    key: str = "",
    pause: Callable[[int], bool] = lambda step: False,
) -> Curve:
    """Train a network in place, step k on batch k, and record its curve.

    The same call goes on from the file `checkpoint`, bit for bit on a CPU. A run ends
    where a loss or a norm is not finite.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    optimizer : torch.optim.Optimizer
        Its optimiser. Of one that states them, such as `NormalizedSGD`, the attributes
        ``last_step_size`` and ``last_gradient_norm`` are recorded.
    batches : Batches
        The data.
    steps : int
        Number of steps.
    loss : callable
        From the network and a batch to its loss, a mean over the rows where processes
        share them. Default: mean cross-entropy.
    evaluate : callable
        From the network and the number of steps done to metrics by name. Default: none.
        A metric that an evaluation does not have is NaN there.
    at : iterable of int
        Numbers of steps after which `evaluate` and the norms of the weights are
        measured, besides the end.
    stop : callable
        Whether an evaluation's metrics end the run. Default: never.
    reached : callable
        Whether a reading of the clock ends the run, given the step and the mean of the
        last readings (`curves.trailing_mean`). Default: never.
    walk : bool, default False
        Whether to add up the squared moves of the weights.
    clock : callable
        From the network to metrics, of which "clock_loss" is recorded.
    tick : int, default 0
        Number of steps between readings of the clock; 0 for none.
    cpu : bool, default False
        Whether to stay on the CPU.
    checkpoint : Path, optional
        The file in which the run is saved, and from which it goes on.
    key : str
        What a checkpoint must carry to be of this run.
    pause : callable
        Whether to save the run and leave, given the number of steps done. Default:
        never.

    Returns
    -------
    Curve
        What the run did step by step, and how it ended.

    Raises
    ------
    ValueError
        If the checkpoint is damaged, of another `key`, or differs between processes; if
        the optimiser lacks a parameter of the network that requires a gradient.
    TypeError
        If the optimiser's step does not take a closure, or does not call it.
    OSError
        If the checkpoint cannot be written.

    Examples
    --------
    >>> import torch
    >>> from lib.training import Batches, NormalizedSGD, initialised, train
    >>> inputs = torch.eye(4)
    >>> targets = torch.tensor([0, 1, 0, 1])
    >>> network = initialised(lambda: torch.nn.Linear(4, 2), seed=0)
    >>> curve = train(
    ...     network,
    ...     NormalizedSGD(network.parameters(), lr=0.1),
    ...     Batches(inputs, targets, size=4, seed=0),
    ...     steps=50,
    ...     cpu=True,
    ... )
    >>> curve.status, len(curve.loss), bool(curve.loss[-1] < 0.1 * curve.loss[0])
    ('finished', 50, True)
    """
    try:
        inspect.signature(optimizer.step).bind(None)
    except TypeError:
        raise TypeError(_no_closure(optimizer)) from None
    _check_holds_all(model, optimizer)
    machine = Accelerator(cpu=cpu)
    device = machine.device
    network, stepper = machine.prepare(model, optimizer)
    part = batches.on(device, (machine.process_index, machine.num_processes))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    parameters = list(weights.values())
    points = {*map(int, at), steps}
    dropout = int(seeds.stream(batches.seed, "dropout").integers(2**63))
    sized = isinstance(optimizer, GradientStep)
    # loss, and where they are stated step size and gradient norm
    log = torch.full((3 if sized else 1, steps), math.nan, device=device)
    walked = norms(parameters) * 0
    rows = []
    readings = []
    calls = 0  # of the closure in one step
    done = 0
    spent = 0.0
    begin = time.process_time()

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        stepper.zero_grad()
        value = loss(network, batch)
        machine.backward(value)
        # accelerate averages the gradient over processes; Polyak's step needs the loss
        # averaged too
        log[0, step] = value = machine.reduce(value.detach(), "mean")
        return value

    def look(
        measure: Callable[..., Mapping[str, float]], *more: int
    ) -> dict[str, float]:
        model.eval()
        with torch.no_grad():
            metrics = {
                name: float(value) for name, value in measure(model, *more).items()
            }
        model.train()
        return metrics

    def save(path: Path) -> None:
        for remains in path.parent.glob(f".{path.name}.*"):
            remains.unlink()  # of a run killed while it wrote
        state = {
            "key": key,
            "step": step,
            "seconds": spent + time.process_time() - begin,
        }
        state |= {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "log": log,
        }
        state |= {"rows": rows, "readings": readings, "walked": walked}
        torch.save(state, stream := io.BytesIO())
        content = stream.getvalue()
        files.write(path, files.sha256(content).encode() + content)

    if checkpoint and checkpoint.exists():
        state = _read(checkpoint, key)
        done, spent, rows, readings = (
            state[k] for k in ("step", "seconds", "rows", "readings")
        )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        walked.copy_(state["walked"])
        log.copy_(state["log"])
    if agreed(done) != done:
        raise ValueError(
            f"{checkpoint} differs between the processes: they must see one file"
        )
    status = "finished"
    network.train()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for step in range(done, steps + 1):
            leaving = agreed(pause(step))
            if step > done:
                if step % CHECK_EVERY == 0 and not math.isfinite(log[0, step - 1]):
                    break
                if (
                    checkpoint
                    and machine.is_main_process
                    and (leaving or step % SAVE_EVERY == 0)
                ):
                    save(checkpoint)
            # What is measured here is not in the checkpoint: it is measured again from
            # there.
            ending = False
            if tick and step % tick == 0:
                readings.append(look(clock)["clock_loss"])
                ending = reached(step, float(trailing_mean(readings[-READINGS:])[-1]))
            if step in points or ending:
                row = {"at": step, "metrics": look(evaluate, step)}
                row["weight_norms"] = dict(
                    zip(weights, norms(parameters).cpu().tolist(), strict=True)
                )
                row["walked"] = (
                    dict(zip(weights, walked.cpu().tolist(), strict=True))
                    if walk
                    else {}
                )
                rows.append(row)
                if step < steps and (ending or stop(row["metrics"])):
                    status = f"stopped after step {step}"
                    break
            if step == steps:
                break
            if leaving:
                status = f"paused after step {step}"
                break
            batch = part.batch(step)
            # By step, not one stream: a resumed run needs no generator's state.
            drawn = np.random.SeedSequence([dropout, step, machine.process_index])
            torch.manual_seed(int(drawn.generate_state(1, np.uint64)[0]))
            before = [p.clone() for p in parameters] if walk else []
            calls = 0
            stepper.step(closure)
            if not calls:
                raise TypeError(_no_closure(optimizer))
            if isinstance(optimizer, GradientStep):
                log[1, step] = optimizer.last_step_size
                log[2, step] = optimizer.last_gradient_norm
            if walk:
                moves = torch._foreach_norm(torch._foreach_sub(parameters, before))
                walked.add_(torch.stack(moves).to(walked) ** 2)
    record = log.cpu().numpy()
    finite = np.isfinite(record).all(0)
    end = steps if finite.all() else int(finite.argmin())
    if end < step:
        status = f"diverged at step {end + 1}"
    rows = [row for row in rows if row["at"] <= end]
    read = {}
    groups: dict[str, Any] = {}
    if tick:
        read = {"at": np.arange(0, end + 1, tick), "loss": readings[: end // tick + 1]}
    for group in ("metrics", "weight_norms", "walked"):
        names = dict.fromkeys(name for row in rows for name in row[group])
        groups[group] = {
            name: np.array([row[group].get(name, math.nan) for row in rows])
            for name in names
        }
    return Curve(
        status,
        *record[:, :end],
        evaluated_at=np.array([row["at"] for row in rows], dtype=int),
        seconds=spent + time.process_time() - begin,
        clock={name: np.array(values, np.float32) for name, values in read.items()},
        **groups,
    )


def _read(path: Path, key: str) -> dict:
    """Read the state of a checkpoint."""
    content = path.read_bytes()
    if files.sha256(content[SEAL:]).encode() != content[:SEAL]:
        raise ValueError(f"{path} is damaged: remove it to start this run afresh")
    try:
        state = torch.load(
            io.BytesIO(content[SEAL:]), map_location="cpu", weights_only=True
        )
        known_key = state["key"]
    except Exception as error:  # which one depends on what the file holds
        raise ValueError(
            f"{path} holds no checkpoint: remove it to start this run afresh"
        ) from error
    if known_key != key:
        raise ValueError(
            f"{path} is of another run or other code: remove it to start afresh"
        )
    return state
