"""The device and the processes of one training: its memory, and that the weights agree."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# largest difference between processes' weights, relative to the largest weight, that is let pass
DRIFT = 1e-5


def first_process() -> bool:
    """Whether this process prints and writes for all; known before the processes have met."""
    return int(os.environ.get("RANK", "0")) == 0


def accelerator(cpu: bool):
    """`accelerate`'s view of this machine: its device, or the CPU, and the other processes."""
    from accelerate import Accelerator  # which takes a second to import

    return Accelerator(cpu=cpu)


def require_same_step(accelerator, done: int) -> None:
    """ValueError where the processes would go on after different numbers of steps."""
    if accelerator.num_processes == 1:
        return
    everyone = accelerator.gather(torch.tensor([done], device=accelerator.device)).tolist()
    if len(set(everyone)) > 1:
        raise ValueError(
            f"the processes found checkpoints after {everyone} steps; they must see the same file"
        )


def drift(accelerator, model: nn.Module, done: int) -> float:
    """Largest difference of a weight between this and any other process.

    RuntimeError above `DRIFT` times the largest weight.
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


@contextmanager
def memory_advice(device: torch.device, step: int, rows: int, parts: int) -> Iterator[None]:
    """Turn an out-of-memory error of `device` into a MemoryError that says what helps.

    The step is number `step`, from 0, on a batch of `rows` rows taken in `parts` parts.
    """
    try:
        yield
    except RuntimeError as error:
        # On a CPU torch has no class of its own for this.
        words = "can't allocate memory"
        if not (isinstance(error, torch.OutOfMemoryError) or words in str(error)):
            raise
        raise MemoryError(
            f"{device} ran out of memory at step {step + 1}, with {rows} rows in {parts} part(s): "
            f"accumulate={2 * parts} gives the same result in less, else take a smaller batch, "
            "shorter inputs or precision='bf16'"
        ) from error


def same_generators_afterwards(device: torch.device):
    """A context that gives torch's generators back as it found them."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def progress(accelerator, steps: int, done: int, label: str):
    """A progress bar of `steps`, of which `done` are done, shown by one process of each machine.

    TQDM_DISABLE=1 turns it off.
    """
    from tqdm import tqdm

    # tqdm itself reads the variable only once, at import.
    silent = os.environ.get("TQDM_DISABLE", "") not in ("", "0")
    hidden = silent or not accelerator.is_local_main_process
    return tqdm(total=steps, initial=done, desc=label, unit="step", leave=False, disable=hidden)
