"""Mini-batches as a function of seed and step, so that a run goes on from any step: plain ones,
token rows of like lengths, images cropped and mirrored at random."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lib import seeds
from lib.representation import Shapes

POOL = 8  # batches of tokens whose rows are sorted by length among themselves


@dataclass(frozen=True, repr=False)
class Batches(Shapes):
    """Shuffled mini-batches of `inputs` (N, ...) and `targets` (N,), `size` rows each.

    Batch k is a function of (seed, k) alone: every epoch has its own order, drawn from the stream
    "batches" of `seed`; an incomplete batch is left out. `transform` is applied to the inputs that
    a batch takes. `part` (k, n) is the k-th of n equal parts of every batch. ValueError for inputs
    and targets of different length, a size above N, or parts that do not divide it.
    """

    inputs: Tensor
    targets: Tensor
    size: int
    seed: int
    transform: Callable[[Tensor], Tensor] | None = None
    part: tuple[int, int] = (0, 1)

    def __post_init__(self):
        N, targets, n = len(self.inputs), len(self.targets), self.part[1]
        if N != targets:
            raise ValueError(f"inputs has {N} rows and targets {targets}; they must agree")
        if not 0 < self.size <= N:
            raise ValueError(f"size must lie between 1 and the {N} rows there are, got {self.size}")
        if self.size % n:
            raise ValueError(
                f"a batch of {self.size} rows cannot be shared equally by {n} processes"
            )

    @property
    def per_epoch(self) -> int:
        """Steps of one pass over the data."""
        return len(self.inputs) // self.size

    def whole(self, step: int) -> Tensor:
        """Row numbers of batch `step` (from 0): (size,)."""
        epoch, place = divmod(step, self.per_epoch)
        order = _order(self.seed, epoch, len(self.inputs))
        return order[place * self.size : (place + 1) * self.size]

    def mine(self, values: Tensor) -> Tensor:
        """This part's share of one value a row: (size,) -> (n, size / n) -> (size / n,)."""
        return values.reshape(self.part[1], -1)[self.part[0]]

    def rows(self, step: int) -> Tensor:
        """This part's row numbers of batch `step`."""
        return self.mine(self.whole(step))

    def pick(self, step: int, rows: Tensor) -> Tensor:
        """The inputs of these `rows` in batch `step`, before `transform`."""
        return self.inputs[rows]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs (rows, ...) and targets (rows,) of batch `step`, or of this part of it."""
        rows = self.rows(step).to(self.inputs.device)
        inputs = self.pick(step, rows)
        return (inputs if self.transform is None else self.transform(inputs)), self.targets[rows]

    def to(self, device) -> "Batches":
        """The same batches with the data on `device`."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def share(self, k: int, n: int) -> "Batches":
        """The k-th of n equal parts of every batch."""
        return replace(self, part=(k, n))


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, rows: int) -> Tensor:
    return torch.from_numpy(seeds.stream_at(seed, "batches", epoch).permutation(rows))


def trim(inputs: Tensor) -> Tensor:
    """Tokens (b, 2, T) without the columns that are padding in every row."""
    return inputs[..., : int((inputs[:, 0] != 0).sum(1).max())]


class Bucketed(Batches):
    """`Batches` of tokens (N, 2, T) whose rows have similar lengths, so that little is padding.

    The rows of `POOL` consecutive batches are sorted by length and dealt out again, in random
    order. Batch k is still a function of (seed, k) alone, and an epoch takes every row once.
    """

    def whole(self, step: int) -> Tensor:
        """Row numbers of batch `step` (from 0): (size,)."""
        epoch, place = divmod(step, self.per_epoch)
        first = place // POOL * POOL
        count = min(POOL, self.per_epoch - first)
        start = epoch * self.per_epoch + first
        pool = torch.cat([super(Bucketed, self).whole(start + k) for k in range(count)])
        lengths = (self.inputs[pool.to(self.inputs.device), 0] != 0).sum(1).cpu()
        dealt = pool[lengths.argsort(stable=True)].reshape(count, self.size)
        order = seeds.stream_at(self.seed, "buckets", epoch, first).permutation(count)
        return dealt[order[place - first]]


def crop_flip(images: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Cut a window out of each zero-padded image, and mirror some of the windows.

    `images` (b, c, s, s) are padded by `padding` on every side. `top`, `left` int64 (b,) in 0 ... 2
    padding are the windows' corners; those where `mirrored` bool (b,) holds are turned left to
    right. Shape and dtype stay.
    """
    b, _, s, _ = images.shape
    wide = F.pad(images, (padding,) * 4)  # (b, c, s + 2 padding, s + 2 padding)
    windows = wide.unfold(2, s, 1).unfold(3, s, 1)  # (b, c, top, left, s, s), a view
    cut = windows[torch.arange(b, device=images.device), :, top, left]  # (b, c, s, s)
    return torch.where(mirrored[:, None, None, None], cut.flip(-1), cut)


@dataclass(frozen=True, repr=False)
class AugmentedBatches(Batches):
    """`Batches` of images cropped out of a border of `padding` pixels and mirrored at random.

    What happens to a picture is a function of (seed, step) alone. Source: paper C, vision
    experiment (crop, resize, flip; a flip after the resize is the same picture as before it).
    """

    padding: int = 4

    def pick(self, step: int, rows: Tensor) -> Tensor:
        """The pictures of these `rows`; offsets are drawn for the whole batch, for every part."""
        rng = seeds.stream_at(self.seed, "crops", step)
        top, left = rng.integers(0, 2 * self.padding + 1, (2, self.size))
        drawn = map(torch.from_numpy, (top, left, rng.random(self.size) < 0.5))
        return crop_flip(
            self.inputs[rows], *(self.mine(d).to(rows.device) for d in drawn), self.padding
        )
