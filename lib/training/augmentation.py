"""Random crops and flips of whole batches, on the device that holds them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib import seeds
from lib.training.batches import Batches


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


@dataclass(frozen=True)
class Resize:
    """uint8 (b, c, s, s) through `standardise` to float32 (b, c, size, size), bilinear."""

    standardise: Callable[[Tensor], Tensor]
    size: int

    def __call__(self, images: Tensor) -> Tensor:
        images = self.standardise(images)
        if self.size == images.shape[-1]:
            return images
        size = (self.size, self.size)
        return F.interpolate(images, size=size, mode="bilinear", align_corners=False)


@dataclass(frozen=True, repr=False)
class AugmentedBatches(Batches):
    """`batches.Batches` of images cropped out of a padded border and mirrored at random.

    padding: pixels of the border, 4 in paper C; `transform` comes after it. What happens to a
    picture is a function of (seed, step) alone, so a resumed run sees the same pictures. Source:
    paper C, vision experiment (crop, resize, flip; a flip after the resize is the same picture as
    one before).
    """

    padding: int = 4

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images (size, ...) and labels (size,) of batch `step`, or this part's rows of them."""
        rows = self.rows(step).to(self.inputs.device)
        draws = [torch.from_numpy(values).to(self.inputs.device) for values in self._draw(step)]
        images = crop_flip(self.inputs[rows], *draws, self.padding)
        return (images if self.transform is None else self.transform(images)), self.targets[rows]

    def _draw(self, step: int) -> list[np.ndarray]:
        """Top, left and mirrored for this part's rows, drawn for the whole batch for every part."""
        rng = seeds.stream_at(self.seed, "crops", step)
        top, left = rng.integers(0, 2 * self.padding + 1, (2, self.size))
        k, n = self.part
        return [values.reshape(n, -1)[k] for values in (top, left, rng.random(self.size) < 0.5)]
