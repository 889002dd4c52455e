"""Shuffled mini-batches as a function of seed and step, so that a run can go on from any step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from lib import seeds
from lib.representation import Shapes


@dataclass(frozen=True, repr=False)
class Batches(Shapes):
    """Shuffled mini-batches of data on one device: batch k is a function of (seed, k) alone.

    Every epoch has its own order, drawn from the stream "batches" of `seed`; an
    incomplete batch is left out.

    Args:
        inputs: (N, ...), for images uint8.
        targets: (N,).
        size: rows of a batch; more than N raises ValueError.
        seed: the run's integer seed.
        transform: applied to the rows of `inputs` that a batch takes, as `images.Standardise`.
        part: (k, n) for the k-th of n equal parts of every batch; see `share`.
    """

    inputs: Tensor
    targets: Tensor
    size: int
    seed: int
    transform: Callable[[Tensor], Tensor] | None = None
    part: tuple[int, int] = (0, 1)

    def __post_init__(self):
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"inputs has {len(self.inputs)} rows and targets {len(self.targets)};"
                " they must agree"
            )
        if not 0 < self.size <= len(self.inputs):
            raise ValueError(
                f"size must lie between 1 and the {len(self.inputs)} rows there are,"
                f" got {self.size}"
            )
        if self.size % self.part[1]:
            raise ValueError(
                f"a batch of {self.size} rows cannot be shared equally by {self.part[1]} processes"
            )

    @property
    def per_epoch(self) -> int:
        """Steps of one pass over the data."""
        return len(self.inputs) // self.size

    def rows(self, step: int) -> Tensor:
        """Row numbers of batch `step` (from 0): (size,), or this part's (size / n,)."""
        epoch, place = divmod(step, self.per_epoch)
        order = _order(self.seed, epoch, len(self.inputs))
        rows = order[place * self.size : (place + 1) * self.size]
        k, n = self.part
        return rows.reshape(n, -1)[k]  # (size,) -> (n, size / n) -> (size / n,)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs (size, ...) and targets (size,) of batch `step`, or this part's rows of them."""
        rows = self.rows(step).to(self.inputs.device)
        inputs = self.inputs[rows]
        return (inputs if self.transform is None else self.transform(inputs)), self.targets[rows]

    def to(self, device) -> "Batches":
        """The same batches with the data on `device`."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def share(self, k: int, n: int) -> "Batches":
        """The k-th of n equal parts of every batch; ValueError if n does not divide `size`."""
        return replace(self, part=(k, n))


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, rows: int) -> Tensor:
    return torch.from_numpy(seeds.stream_at(seed, "batches", epoch).permutation(rows))
