"""Real image sets as uint8 tensors, in the fixed order of `places`, checked row by row."""

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lib.data import places, stand_in_images
from lib.representation import Shapes

if TYPE_CHECKING:
    import torch

IMAGES = places.pinned("image", stand_in_images.DIGITS, stand_in_images.PICTURES)


@dataclass(frozen=True)
class Standardise:
    """x ↦ (x / 255 - mean) / std per channel, uint8 (b, C, H, W) to float32.

    `mean`, `std` (C, 1, 1).
    """

    mean: "torch.Tensor"
    std: "torch.Tensor"

    def __call__(self, images):
        mean, std = self.mean.to(images.device), self.std.to(images.device)
        return images.float().div_(255).sub_(mean).div_(std)


@dataclass(frozen=True, repr=False)
class ImageSet(Shapes):
    """One split of an image set: `images` uint8 (N, C, H, W), `labels` int64 (N,).

    Labels lie in 0 ... classes - 1. `name`, `source` (data_dir, data, hub or demo), `revision` and
    `rows` (all splits together) are those of `identity`.
    """

    images: "torch.Tensor"
    labels: "torch.Tensor"
    classes: int
    name: str
    source: str
    revision: str
    rows: int

    def __len__(self) -> int:
        return len(self.labels)

    def standardise(self) -> Standardise:
        """The map to mean 0 and variance 1 per channel, measured on this split, for every split."""
        import torch

        # From the 256 grey levels' counts: a float64 copy of 50,000 colour
        # images would take 1.2 GB.
        levels = torch.arange(256, dtype=torch.float64) / 255
        channels = self.images.unbind(1)
        counts = torch.stack([torch.bincount(c.flatten(), minlength=256) for c in channels])
        share = counts.double() / counts.sum(1, keepdim=True)  # (C, 256)
        mean, pixels = share @ levels, int(counts[0].sum())  # (C,)
        variance = (share * (levels - mean[:, None]) ** 2).sum(1) * pixels / (pixels - 1)  # (C,)
        # (C, 1, 1)
        return Standardise(mean.float()[:, None, None], variance.sqrt().float()[:, None, None])

    def first(self, rows: int | None) -> "ImageSet":
        """The first `rows` images, all of them for None; ValueError for `rows` below 1."""
        _check(rows)
        return replace(self, images=self.images[:rows], labels=self.labels[:rows])


def _check(rows: int | None) -> None:
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be 1 or more, got {rows}")


def load(name: str, split: str, *, demo: bool = False, rows: int | None = None) -> ImageSet:
    """The split "train" or "test" of "mnist" or "cifar10"; no more than its first `rows`.

    With `demo` the hub is left alone: without a local copy the stand-in is used. Raises
    FileNotFoundError for a set that is nowhere, ValueError for `rows` below 1, or for a file that
    is damaged, lacks a column, or holds an image or label that cannot be used; the message names
    file, row and remedy.
    """
    import torch

    source = places.known(name, split, IMAGES)
    _check(rows)
    found = source.identity(demo)
    if found["source"] == "demo":
        (pixels,), labels = source.stand_in.read(split)
    else:
        parts, left = [], rows
        for file, table in source.tables(split, demo):
            parts.append(
                _read(source, file, table.select(range(min(len(table), left or len(table)))))
            )
            left = left and left - len(parts[-1][1])
            if left == 0:
                break
        pixels, labels = map(np.concatenate, zip(*parts, strict=True))
    known_by = {key: found[key] for key in ("name", "source", "revision", "rows")}
    pixels, labels = torch.from_numpy(pixels[:rows]), torch.from_numpy(labels[:rows])
    return ImageSet(pixels, labels, source.classes, **known_by)


def identity(name: str, *, demo: bool = False) -> dict:
    """What `load` would use: {name, source: data_dir | data | hub | demo, revision, rows}."""
    return places.known(name, "train", IMAGES).identity(demo)


def _read(source: places.Source, name: object, table) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (N, C, H, W) and labels int64 (N,) of the rows of a file."""
    import datasets

    (column,) = source.columns
    kind = table.features[column]
    if not (isinstance(kind, datasets.Image) or (isinstance(kind, dict) and "bytes" in kind)):
        raise ValueError(f"{name} cannot be read: {column} is {kind}, not a struct with bytes")
    table = table.cast_column(column, datasets.Image(decode=False))
    pixels = np.empty((len(table), *source.shape), dtype=np.uint8)
    row = 0
    for piece in table.with_format("arrow").iter(1000):
        for values in piece[column].to_pylist():
            pixels[row] = _decode(source, f"{name}, row {row}", values and values["bytes"])
            row += 1
    return pixels, source.labels(name, table[:][source.label])


def _decode(source: places.Source, place: str, encoded: bytes | None) -> np.ndarray:
    """One image as uint8 (C, H, W)."""
    from PIL import Image

    channels, height, width = source.shape
    try:
        with Image.open(io.BytesIO(encoded)) as picture:
            found, size = len(picture.getbands()), picture.size
            pixels = np.asarray(picture)
    except (OSError, TypeError, SyntaxError) as error:  # bytes of no known format among them
        raise ValueError(f"{place}: the image does not decode ({error})") from error
    if found != channels:
        raise ValueError(f"{place}: the image has {found} channels, not {channels}")
    if size != (width, height):
        wide, high = size
        raise ValueError(f"{place}: the image has {wide} x {high} pixels, not {width} x {height}")
    # (H, W) or (H, W, C) -> (C, H, W)
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)
