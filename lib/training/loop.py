"""One training loop for every network and optimiser; it records what each step did and survives
being killed.

The loop runs on `accelerate`, so the same call serves a CPU, a GPU or, under torchrun, several
processes that share every batch. `python -m lib.training --help` trains a named network without a
notebook.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib import seeds
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.record import Record, TrainingHistory, at_end, running_mean, steps_to_reach

__all__ = [
    "Batches",
    "Checkpoints",
    "TrainingHistory",
    "at_end",
    "classification",
    "cross_entropy",
    "initialised",
    "running_mean",
    "steps_to_reach",
    "train",
]

CHECK_EVERY = 100  # steps between looks at the loss; each look waits for the device
# largest difference between processes' weights, relative to the largest weight, that is let pass
DRIFT = 1e-5


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`build()` with torch's generator seeded by the stream "start" of `seed`, and set back
    afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.stream(seed, "start").integers(2**63)))
        return build()


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of logits model(inputs) (b, classes) against targets (b,), in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def classification(
    inputs: Tensor, targets: Tensor, transform=None, size: int = 1000
) -> Callable[[nn.Module], dict]:
    """An `evaluate` for `train`: {"test_loss": mean cross-entropy, "test_accuracy": share of
    correct labels}.

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
        return {
            "test_loss": float(loss) / len(targets),
            "test_accuracy": float(correct) / len(targets),
        }

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
    precision: str = "float32",
    accumulate: int = 1,
    checkpoints: Checkpoints | None = None,
    stop: Callable[[Mapping[str, float]], bool] | None = None,
    pause: Callable[[int], bool] | None = None,
    walk: bool = False,
) -> TrainingHistory:
    """Train `model` in place for `steps` steps and return its history.

    Args:
        optimizer: any torch optimiser over the model's parameters; it is called as `step(closure)`.
        batches: step k uses `batches.batch(k)`, whatever the optimiser; several processes take
            `batches.share(k, n)` each. `batches.seed` seeds dropout, afresh at every step.
        loss: (model, batch) to a scalar tensor, a mean over the rows.
        evaluate: the model in evaluation mode, without gradients, to named numbers.
        evaluate_at: numbers of steps done, 0 to `steps`, after which to evaluate and to record the
            norms of the weights; the end is always added.
        label: the run's name on the progress bar, which TQDM_DISABLE=1 turns off.
        cpu: stay on the CPU even if there is a GPU.
        precision: "float32", or "bf16" to run forward and loss under autocast to bfloat16; the
            weights stay.
        accumulate: work a batch off in this many equal parts, one after the other: the same
            gradient in a fraction of the memory. Only for a loss that is a mean over the rows.
        checkpoints: save the run as it goes and take it up where its last checkpoint left it. On a
            CPU the result then is, bit for bit, that of a run that was never interrupted.
        stop: what `evaluate` found to whether the run ends there, early; the history says so and
            its rest is NaN. "recent_loss" is among it, the mean loss of the last `RECENT` steps.
        pause: the steps done to whether the run is saved to its checkpoint and left there, to go on
            at the next call; the history then says "paused after step k".
        walk: record the sum of squared moves of every parameter, `TrainingHistory.walked`.

    A loss that is not finite ends the run, unless the optimiser skips such steps: the history says
    so and the rest of it is NaN; nothing is raised. Raises MemoryError, saying what helps, where
    the device's memory does not hold a batch; ValueError for steps below 1, parts that do not
    divide a batch, an evaluation outside 0 ... steps, an unknown precision, or a checkpoint of
    another configuration; OSError if a checkpoint cannot be written; RuntimeError if the processes'
    weights drift apart.
    """
    points = sorted({*map(int, evaluate_at), steps})
    if steps < 1 or points[0] < 0 or points[-1] > steps:
        raise ValueError(
            f"steps must be 1 or more, evaluate_at within 0 ... steps; got {steps} and evaluate_at "
            f"{points}"
        )
    if precision not in ("float32", "bf16"):
        raise ValueError(f'precision must be "float32" or "bf16", got {precision!r}')
    configuration = _configuration(model, optimizer, batches, steps, points, precision)
    accelerator = _accelerator(cpu)
    device, rank, processes = (
        accelerator.device,
        accelerator.process_index,
        accelerator.num_processes,
    )
    if accumulate < 1 or batches.size % (accumulate * processes):
        raise ValueError(
            f"accumulate must divide the {batches.size // processes} rows of a process, got "
            f"{accumulate}"
        )
    if pause is not None and checkpoints is None:
        raise ValueError("pause needs checkpoints: without them a paused run could not go on")
    record = Record(steps, points, device, [name for name, _ in model.named_parameters()])
    network, stepper = accelerator.prepare(model, optimizer)
    model = accelerator.unwrap_model(network)
    batches = (batches if processes == 1 else batches.share(rank, processes)).to(device)
    dropout = int(seeds.stream(batches.seed, "dropout").integers(2**63))
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
    skips = getattr(optimizer, "check_finite", None) == "skip"

    def take(step: int) -> None:
        batch = batches.batch(step)
        # By step, not one stream: a resumed run needs no generator's state, and evaluations may
        # draw.
        torch.manual_seed(
            int(np.random.SeedSequence([dropout, step, rank]).generate_state(1, np.uint64)[0])
        )

        def closure():
            stepper.zero_grad()
            value = 0.0
            for part in zip(*(values.chunk(accumulate) for values in batch), strict=True):
                with autocast:
                    share = loss(network, part) / accumulate
                accelerator.backward(share)
                value = value + share.detach()
            # The gradient is averaged over processes by itself, the loss is not, and Polyak's step
            # needs both.
            record.loss[step] = value = accelerator.reduce(value, "mean")
            return value

        before = record.weights(model) if walk else None
        stepper.step(closure)
        record.note(step, optimizer)
        if walk:
            record.walk(model, before)

    def observe(done: int) -> None:
        with autocast:
            record.observe(done, model, evaluate, lambda: _drift(accelerator, model, done))

    def save(done: int) -> None:
        with record.paused():
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "record": record.state(),
            }
            checkpoints.save(state, configuration, done)

    done, stopped, paused = 0, None, None
    if checkpoints:
        configuration = {**configuration, **checkpoints.configuration}
        done = _restore(accelerator, checkpoints, configuration, model, optimizer, record)
    main = accelerator.is_local_main_process
    network.train()
    with _same_generators_afterwards(device), _progress(steps, done, label, main) as bar:
        for step in range(done, steps):
            if step in points:
                observe(step)
                if stop is not None and stop(record.found(step)):
                    stopped = step
                    break
            if pause is not None and step > done and pause(step):
                if skips or math.isfinite(record.loss[step - 1]):
                    paused = step
                    if accelerator.is_main_process:
                        save(step)
                break
            try:
                take(step)
            except FloatingPointError:
                record.loss[step] = math.nan  # the loss itself may still have been finite
                break
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                raise MemoryError(
                    f"{device} ran out of memory at step {step + 1}, with {batches.size} rows in "
                    f"{accumulate} part(s):"
                    f" accumulate={2 * accumulate} gives the same result in less, else take a "
                    f"smaller batch, shorter"
                    " inputs or precision='bf16'"
                ) from error
            bar.update()
            saving = (
                checkpoints is not None and (step + 1) % checkpoints.every == 0 and step + 1 < steps
            )
            if (
                (saving or step % CHECK_EVERY == 0)
                and not skips
                and not math.isfinite(record.loss[step])
            ):
                break
            if saving and accelerator.is_main_process:
                save(step + 1)
        else:
            observe(steps)
            if checkpoints and done < steps and accelerator.is_main_process:
                save(steps)
    if paused is not None:
        return replace(record.history(0, paused), status=f"paused after step {paused}")
    return record.history(optimizer.skipped_steps if skips else None, stopped)


def _out_of_memory(error: RuntimeError) -> bool:
    # On a CPU torch has no class of its own for this.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _configuration(model, optimizer, batches, steps, points, precision) -> dict:
    """What a checkpoint has to agree with: all that decides the result and that can be seen from
    here.
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


def _restore(accelerator, checkpoints, configuration, model, optimizer, record) -> int:
    """Load the last checkpoint, if there is one, into model, optimiser and record; the steps done
    so far.
    """
    found = checkpoints.load(configuration)
    done = found[0] if found else 0
    if accelerator.num_processes > 1:
        everyone = accelerator.gather(torch.tensor([done], device=accelerator.device)).tolist()
        if len(set(everyone)) > 1:
            raise ValueError(
                f"the processes found checkpoints after {everyone} steps; they must see the same "
                f"file"
            )
    if found:
        model.load_state_dict(found[1]["model"])
        optimizer.load_state_dict(found[1]["optimizer"])
        record.restore(found[1]["record"])
    return done


def _drift(accelerator, model: nn.Module, done: int) -> float:
    """Largest difference of a weight between this and any other process; RuntimeError above
    `DRIFT`.
    """
    if accelerator.num_processes == 1:
        return 0.0
    from accelerate.utils import broadcast

    mine = torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])
    apart = (mine - broadcast(mine.clone())).abs().max()  # from process 0
    apart = float(accelerator.gather(apart.reshape(1)).max())
    if not apart <= DRIFT * float(mine.abs().max()):
        raise RuntimeError(f"after {done} steps the weights of two processes differ by {apart:.1e}")
    return apart


def _accelerator(cpu: bool):
    from accelerate import Accelerator

    return Accelerator(cpu=cpu)


def _same_generators_afterwards(device: torch.device):
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _progress(steps: int, done: int, label: str, main: bool):
    from tqdm import tqdm

    silent = os.environ.get("TQDM_DISABLE", "") not in (
        "",
        "0",
    )  # tqdm itself reads it only once, at import
    return tqdm(
        total=steps, initial=done, desc=label, unit="step", leave=False, disable=silent or not main
    )
