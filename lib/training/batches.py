"""Mini-batches that depend only on seed and step, so that a run can resume anywhere."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lib import seeds
from lib.representation import Shapes

POOL = 8  # so many batches at a time are pooled, and their rows sorted by length
BORDER = 4  # pixels of the border of zeros around an image before it is cropped


def _unchanged(inputs: Tensor) -> Tensor:
    """Return the inputs as they are."""
    return inputs


@dataclass(frozen=True, repr=False, eq=False)
class Batches(Shapes):
    """Shuffled mini-batches of inputs and targets.

    For given data and size, batch k depends only on (seed, k). Every epoch has its own
    order of the rows, and an incomplete last batch is left out. So the rows that are
    left out differ from epoch to epoch.

    Parameters
    ----------
    inputs : Tensor (N, ...)
        The inputs, one row per sample.
    targets : Tensor (N,)
        The targets.
    size : int
        Number of rows per batch, between 1 and N.
    seed : int
        Seed of the shuffling.
    transform : callable
        A function that is applied to each batch of inputs, after any crops. Default:
        the inputs stay as they are.
    crops : bool, default False
        Whether images (N, c, s, s) get a border of `BORDER` zeros, are cropped to s x s
        at random, and are mirrored with probability 1/2.
    part : tuple of (int, int), default (0, 1)
        (k, n): the k-th of n equal parts of every batch; k counts from 0.

    Raises
    ------
    ValueError
        If inputs and targets differ in the number of rows, if images to crop are not
        square, if `size` does not lie between 1 and N, or if n does not divide `size`.

    Notes
    -----
    The crops are those that paper C uses.

    Examples
    --------
    An epoch of seven rows consists of two batches of three rows. One row is left out,
    and the next epoch has another order:

    >>> import torch
    >>> from lib.training import Batches
    >>> data = Batches(torch.arange(7), torch.arange(7), size=3, seed=0)
    >>> epoch = torch.cat([data.rows(0), data.rows(1)])
    >>> len(set(epoch.tolist()))
    6
    >>> torch.equal(data.rows(0), data.rows(2))
    False
    """

    inputs: Tensor
    targets: Tensor
    size: int
    seed: int
    transform: Callable[[Tensor], Tensor] = _unchanged
    crops: bool = False
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        N = len(self.inputs)
        shape = tuple(self.inputs.shape)
        size = self.size
        n = self.part[1]
        if len(self.targets) != N:
            raise ValueError(
                f"targets has {len(self.targets)} rows; it needs {N}, as inputs has"
            )
        if self.crops and (len(shape) != 4 or shape[2] != shape[3]):
            raise ValueError(
                f"inputs has shape {shape}; crops need square images, (N, c, s, s)"
            )
        if not 0 < size <= N:
            raise ValueError(
                f"size must lie between 1 and the {N} rows there are, got {size}"
            )
        if size % n:
            raise ValueError(
                f"a batch of {size} rows cannot be shared equally by {n} processes"
            )

    def rows(self, step: int) -> Tensor:
        """Return the row numbers of a whole batch, regardless of `part`.

        Parameters
        ----------
        step : int
            Number of the batch, from 0.

        Returns
        -------
        Tensor of int64 (size,)
            The row numbers, on the CPU. They must not be changed, because they are a
            view of the order of the epoch, which is kept for later batches.
        """
        epoch, place = divmod(step, len(self.inputs) // self.size)
        order = _order(self.seed, epoch, len(self.inputs))
        return order[place * self.size : (place + 1) * self.size]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return a batch, or this part of it.

        Parameters
        ----------
        step : int
            Number of the batch, from 0.

        Returns
        -------
        inputs : Tensor (size / n, ...)
            The inputs, cropped if `crops` is True, then transformed.
        targets : Tensor (size / n,)
            The targets. Inputs and targets are on the device of the data.
        """
        rows = self._mine(self.rows(step))
        inputs = self.inputs[rows]
        if self.crops:
            rng = seeds.stream_at(self.seed, "crops", step)
            top, left = rng.integers(0, 2 * BORDER + 1, (2, self.size))
            drawn = map(torch.from_numpy, (top, left, rng.random(self.size) < 0.5))
            inputs = _crop_flip(inputs, *map(self._mine, drawn))
        return self.transform(inputs), self.targets[rows]

    def on(
        self, device: torch.device | str, part: tuple[int, int] = (0, 1)
    ) -> "Batches":
        """Return the same batches with the data on another device.

        Parameters
        ----------
        device : torch.device or str
            The device.
        part : tuple of (int, int), default (0, 1)
            (k, n): the k-th of n equal parts of every batch; k counts from 0. It
            replaces the previous `part`.

        Returns
        -------
        Batches
            The batches, or this part of each batch.

        Raises
        ------
        ValueError
            If n does not divide the size of a batch.
        """
        inputs = self.inputs.to(device)
        targets = self.targets.to(device)
        return replace(self, inputs=inputs, targets=targets, part=part)

    def _mine(self, values: Tensor) -> Tensor:
        """Return this part's share of values, one per row, on the device of the data.

        Values (size,) become (size / n,).
        """
        k, n = self.part
        return values.reshape(n, -1)[k].to(self.inputs.device)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, rows: int) -> Tensor:
    """Return the order of the rows in an epoch, int (rows,)."""
    return torch.from_numpy(seeds.stream_at(seed, "batches", epoch).permutation(rows))


class Bucketed(Batches):
    """`Batches` of tokens (N, 2, T) of similar lengths.

    The length of a row is the number of token ids in inputs[row, 0] that are not 0. The
    rows of `POOL` consecutive batches (or of fewer at the end of an epoch) are sorted
    by length and then cut into batches, which come in random order. The parameters are
    those of `Batches`.
    """

    def rows(self, step: int) -> Tensor:
        """Return the row numbers of a whole batch.

        Parameters
        ----------
        step : int
            Number of the batch, from 0.

        Returns
        -------
        Tensor of int64 (size,)
            The row numbers, on the CPU.
        """
        per_epoch = len(self.inputs) // self.size
        epoch, place = divmod(step, per_epoch)
        first = place // POOL * POOL
        count = min(POOL, per_epoch - first)
        shuffled = _order(self.seed, epoch, len(self.inputs))
        pool = shuffled[first * self.size : (first + count) * self.size]
        lengths = (self.inputs[pool.to(self.inputs.device), 0] != 0).sum(1).cpu()
        dealt = pool[lengths.argsort(stable=True)].reshape(count, self.size)
        order = seeds.stream_at(self.seed, "buckets", epoch, first).permutation(count)
        return dealt[order[place - first]]


def _crop_flip(images: Tensor, top: Tensor, left: Tensor, flipped: Tensor) -> Tensor:
    """Add a border of zeros to `images` (b, c, s, s), and cut a window from each.

    `top` and `left` (b,) are the coordinates of the upper left corners of the windows
    in the images with borders, so that each is between 0 and 2 `BORDER`. If `flipped`
    (b,) is True, the window is mirrored left to right. Returns images (b, c, s, s).
    """
    size = images.shape[-1]
    every = torch.arange(len(images), device=images.device)
    wide = F.pad(images, (BORDER,) * 4)
    # (b, c, top, left, s, s), a view
    windows = wide.unfold(2, size, 1).unfold(3, size, 1)
    cut = windows[every, :, top, left]  # (b, c, s, s)
    return torch.where(flipped[:, None, None, None], cut.flip(-1), cut)
