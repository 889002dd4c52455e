"""One training loop for every network and optimiser; it records each step and survives a kill.

Any torch optimiser goes in that is called as `step(closure)`. The loop runs on `accelerate`: the
same call serves a CPU, a GPU or, under torchrun, several processes that share every batch.
"""

import hashlib
import io
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lib import files, seeds
from lib.training.batches import Batches
from lib.training.curves import READINGS, Curve
from lib.training.measures import Evaluate, cross_entropy
from lib.training.rules import norms

CHECK_EVERY = 100  # steps between looks at the loss; each look waits for the device
RECENT = 100  # steps whose mean loss a stopping rule sees
SEAL = 64  # hex digits of the SHA-256 with which a checkpoint begins


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`build()` with torch seeded by the stream "start" of `seed`; the generator is set back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.stream(seed, "start").integers(2**63)))
        return build()


def accelerator(cpu: bool = False):
    """`accelerate`'s view of this machine: its device, or the CPU, and the other processes."""
    from accelerate import Accelerator  # which takes a second to import

    return Accelerator(cpu=cpu)


def agreed(machine, value):
    """The first process's `value`, in every process."""
    if machine.num_processes == 1:
        return value
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value])[0]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    steps: int,
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy,
    *,
    evaluate: Evaluate | None = None,
    at: Iterable[int] = (),
    stop: Callable[[Mapping[str, float]], bool] | None = None,
    walk: bool = False,
    clock: Evaluate | None = None,
    tick: int = 0,
    cpu: bool = False,
    precision: str = "float32",
    checkpoint: Path | None = None,
    every: int = 500,
    key: str = "",
    pause: Callable[[int], bool] | None = None,
    label: str = "",
) -> Curve:
    """Train `model` in place for `steps` steps and return the curve.

    Args:
        optimizer: called as `step(closure)`; where it states `last_step_size` and
            `last_gradient_norm`, both are recorded.
        batches: step k uses `batches.batch(k)`; its seed also seeds dropout, afresh at every step.
        loss: (model, batch) to a scalar, a mean over the rows where several processes share them.
        evaluate, at: what is measured, with the norms of the weights, after these numbers of steps
            and at the end.
        stop: what `evaluate` found, "recent_loss" and "clock", to whether the run ends there.
        walk: record the sum of squared moves of every parameter.
        clock, tick: "clock_loss" of what it finds is recorded every `tick` steps.
        checkpoint, every, key: the file that is written every so many steps and that the same call
            goes on from, bit for bit on a CPU; a file of another `key` is refused.
        pause: the steps done to whether the run is saved and left there.

    A loss that is not finite ends the run; the status says so, nothing is raised. ValueError for
    steps below 1, a point outside 0 ... steps, or a checkpoint that is damaged or of another run;
    OSError for one that cannot be written.
    """
    points = sorted({*map(int, at), steps})
    if steps < 1 or points[0] < 0 or points[-1] > steps:
        raise ValueError(f"steps must be 1 or more, at within 0 ... steps; got {steps}, {points}")
    machine = accelerator(cpu)
    device, n = machine.device, machine.num_processes
    network, stepper = machine.prepare(model, optimizer)
    part = (batches if n == 1 else batches.share(machine.process_index, n)).to(device)
    names, parameters = zip(*model.named_parameters(), strict=True)
    dropout = int(seeds.stream(batches.seed, "dropout").integers(2**63))
    log = {name: torch.full((steps,), math.nan, device=device) for name in ("loss", "step", "norm")}
    path = norms([p.detach() for p in parameters]) * 0
    sized = hasattr(optimizer, "last_step_size")
    rows, ticks, begin = [], [], time.process_time()

    def autocast():
        return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()

    def closure() -> Tensor:
        stepper.zero_grad()
        with autocast():
            value = loss(network, batch)
        machine.backward(value)
        # The gradient is averaged over processes by itself, the loss is not, and Polyak's step
        # needs both.
        log["loss"][step] = value = machine.reduce(value.detach(), "mean")
        return value

    def take() -> None:
        # By step, not one stream: a resumed run needs no generator's state.
        sequence = np.random.SeedSequence([dropout, step, machine.process_index])
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
        before = [p.detach().clone() for p in parameters] if walk else []
        stepper.step(closure)
        if sized:
            log["step"][step] = optimizer.last_step_size
            log["norm"][step] = optimizer.last_gradient_norm
        if walk:
            moves = torch._foreach_sub([p.detach() for p in parameters], before)
            path.add_(torch.stack(torch._foreach_norm(moves)).to(path) ** 2)

    def observe() -> None:
        model.eval()
        with torch.no_grad(), autocast():
            found = {name: float(v) for name, v in evaluate(model).items()} if evaluate else {}
            kept = {
                "weight_norms": norms(parameters).cpu().tolist(),
                "walked": path.cpu().tolist() * walk,
            }
        rows.append({"at": step, "metrics": found} | kept)
        model.train()

    def read_clock() -> None:
        model.eval()
        with torch.no_grad(), autocast():
            ticks.append(float(clock(model)["clock_loss"]))
        model.train()

    def save() -> None:
        if not (checkpoint and machine.is_main_process):
            return
        state = {"key": key, "step": step, "seconds": spent + time.process_time() - begin}
        state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        write(checkpoint, state | {"log": log, "rows": rows, "ticks": ticks, "path": path})

    done, spent, status = 0, 0.0, "finished"
    if checkpoint and checkpoint.exists():
        state = read(checkpoint, key)
        done, spent, rows = state["step"], state["seconds"], state["rows"]
        ticks += state["ticks"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        path.copy_(state["path"])
        for name, values in state["log"].items():
            log[name].copy_(values)
    if agreed(machine, done) != done:
        raise ValueError(f"{checkpoint} differs between the processes: they must see one file")
    network.train()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), bar(machine, steps, done, label) as shown:
        for step in range(done, steps + 1):
            if tick and step == tick * len(ticks):
                read_clock()
            if step in points and not (rows and rows[-1]["at"] == step):
                observe()
            if step == steps:
                break
            if stop and step in points:
                recent = float(log["loss"][max(0, step - RECENT) : step].mean())
                seen = float(np.mean(ticks[-READINGS:])) if ticks else math.inf
                if stop(rows[-1]["metrics"] | {"recent_loss": recent, "clock": seen}):
                    status = f"stopped after step {step}"
                    break
            if step > done and pause and agreed(machine, pause(step)):
                if math.isfinite(log["loss"][step - 1]):
                    save()
                    status = f"paused after step {step}"
                break
            batch = part.batch(step)
            try:
                take()
            except FloatingPointError:  # of an optimiser that looks before it moves
                log["loss"][step] = math.nan  # the loss itself may still have been finite
                status = ""
                break
            shown.update()
            saving = checkpoint and (step + 1) % every == 0 and step + 1 < steps
            # Not at every step: a look at the loss waits for the device.
            if (saving or step % CHECK_EVERY == 0) and not math.isfinite(log["loss"][step]):
                status = ""
                break
            if saving:
                step += 1  # noqa: PLW2901 (the number of steps done)
                save()
    loss, size, norm = (values.double().cpu().numpy() for values in log.values())
    finite = np.isfinite(loss)
    end = steps if finite.all() else int(finite.argmin())
    if end < step or not status:
        status = f"diverged at step {end + 1}"
    rows, taken = [row for row in rows if row["at"] <= end], slice(end if sized else 0)
    ticks = ticks[: end // tick + 1] if tick else []

    def by_layer(group: str) -> dict[str, np.ndarray]:
        table = np.array([row[group] for row in rows]).reshape(len(rows), len(names))
        return dict(zip(names, table.T, strict=True))  # layer: (points,)

    return Curve(
        status=status,
        seconds=spent + time.process_time() - begin,
        seed=batches.seed,
        loss=loss[:end],
        step_size=size[taken],
        gradient_norm=norm[taken],
        evaluated_at=np.array([row["at"] for row in rows], dtype=int),
        metrics={
            name: np.array([row["metrics"][name] for row in rows])
            for name in (rows[0]["metrics"] if rows else ())
        },
        weight_norms=by_layer("weight_norms"),
        walked=by_layer("walked") if walk else {},
        clock=dict(at=tick * np.arange(len(ticks)), loss=np.array(ticks)) if tick else {},
    )


def write(path: Path, state: Mapping) -> None:
    """Write a checkpoint, the old one or all of the new one; OSError where that fails."""
    for remains in path.parent.glob(f".{path.name}.*"):
        remains.unlink()  # of a run killed while it wrote
    stream = io.BytesIO()
    near = lambda x: x.cpu() if isinstance(x, Tensor) else x  # noqa: E731
    torch.save(tree_map(near, dict(state)), stream)
    content = stream.getvalue()
    files.write(path, hashlib.sha256(content).hexdigest().encode() + content)


def read(path: Path, key: str) -> dict:
    """The state of a checkpoint; ValueError if it is damaged or of another `key`."""
    content = path.read_bytes()
    if hashlib.sha256(content[SEAL:]).hexdigest().encode() != content[:SEAL]:
        raise ValueError(f"{path} is damaged: remove it to start this run afresh")
    state = torch.load(io.BytesIO(content[SEAL:]), map_location="cpu", weights_only=True)
    if state["key"] != key:
        raise ValueError(f"{path} is of another run or other code: remove it to start afresh")
    return state


def bar(machine, steps: int, done: int, label: str):
    """A progress bar, shown by one process of each machine; TQDM_DISABLE=1 turns it off."""
    from tqdm import tqdm

    # tqdm itself reads the variable only once, at import.
    silent = os.environ.get("TQDM_DISABLE", "") not in ("", "0")
    hidden = silent or not machine.is_local_main_process
    return tqdm(total=steps, initial=done, desc=label, unit="step", leave=False, disable=hidden)
