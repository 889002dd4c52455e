"""Real image sets as uint8 tensors, in the fixed order of `locate`, checked row by row."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lib.data import locate, parquet, sources, stand_in_images
from lib.representation import Facts

if TYPE_CHECKING:
    import torch

IMAGES = sources.pinned("image", stand_in_images.STAND_INS)
PIECE = 1000  # encoded images that are read from the mapped file at a time


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
class ImageSet(Facts):
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

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("name", self.name),
            ("source", self.source),
            ("images", f"{len(self):,}"),
            ("pixels", " x ".join(map(str, self.images.shape[1:]))),
            ("classes", str(self.classes)),
        ]

    def standardise(self) -> Standardise:
        """The map to mean 0 and variance 1 per channel, measured on this split, for every split."""
        import torch

        # From the 256 grey levels' counts: a float64 copy of 50,000 colour
        # images would take 1.2 GB.
        levels = torch.arange(256, dtype=torch.float64) / 255
        counts = torch.stack(
            [torch.bincount(channel.flatten(), minlength=256) for channel in self.images.unbind(1)]
        )
        share = counts.double() / counts.sum(1, keepdim=True)  # (C, 256)
        mean = share @ levels  # (C,)
        pixels = int(counts[0].sum())
        variance = (share * (levels - mean[:, None]) ** 2).sum(1) * pixels / (pixels - 1)  # (C,)
        # (C, 1, 1)
        return Standardise(mean.float()[:, None, None], variance.sqrt().float()[:, None, None])

    def first(self, rows: int | None) -> "ImageSet":
        """The first `rows` images, all of them for None or more rows than there are.

        ValueError for `rows` below 1.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be 1 or more, got {rows}")
        return replace(self, images=self.images[:rows], labels=self.labels[:rows])


def load(name: str, split: str, *, demo: bool = False, rows: int | None = None) -> ImageSet:
    """The split "train" or "test" of "mnist" or "cifar10", or of its stand-in.

    The stand-in is taken where the set is nowhere. The images are decoded once, one group of rows
    of the file after the other; with `rows` no more than the first `rows` of the split are read.
    With `demo` the hub is left alone: without a local copy the stand-in is used at once. Without
    it, a stand-in is announced in one printed sentence that says how to get the real set.

    Raises FileNotFoundError if `DATA_DIR` does not exist or lacks the set, ValueError for `rows`
    below 1, or for a file that is damaged, lacks a column, or holds an image or label that cannot
    be used; the message names file, row and remedy.
    """
    import torch

    source = sources.known(name, split, IMAGES)
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be 1 or more, got {rows}")
    where, folder = locate.place(source, demo)
    found = locate.identify(source, where, folder)
    if where == "demo":
        (pixels,), labels = source.stand_in.read(split)
        pixels, labels = pixels[:rows], labels[:rows]
    else:
        stored = source.splits[split == "test"]
        pixels, labels = _read(source, parquet.files(folder, stored), rows)
    known_by = {key: found[key] for key in ("name", "source", "revision", "rows")}
    return ImageSet(torch.from_numpy(pixels), torch.from_numpy(labels), source.classes, **known_by)


def identity(name: str, *, demo: bool = False) -> dict:
    """What `load` would use: {name, source: data_dir | data | hub | demo, revision, rows}.

    It reads no image of a file. See `locate.identify`. Raises as `load` does for a `DATA_DIR` or
    file that cannot be used.
    """
    source = sources.known(name, "train", IMAGES)
    return locate.identify(source, *locate.locate(source, demo))


def _read(
    source: sources.Source, files: list[Path], rows: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (N, C, H, W) and labels int64 (N,) of the first `rows` rows of the `files`."""
    import pyarrow.compute as pc

    left = sum(map(parquet.count, files))
    left = left if rows is None else min(rows, left)
    pixels, labels = np.empty((left, *source.shape), dtype=np.uint8), []
    place = 0
    for path in files:
        data = parquet.read(path, (*source.columns, source.label), image=source.columns[0])
        data = data.select(range(min(len(data), left)))
        numbers = data[:][source.label].to_pylist() if len(data) else []
        labels.append(parquet.labels(path, numbers, source.classes))
        row = 0
        for table in data.iter(PIECE):
            for encoded in pc.struct_field(table[source.columns[0]], "bytes").to_pylist():
                pixels[place] = _decode(source, path, row, encoded)
                place, row = place + 1, row + 1
        left -= len(data)
        if not left:
            break
    return pixels, np.concatenate(labels)


def _decode(source: sources.Source, path: Path, row: int, encoded: bytes | None) -> np.ndarray:
    """One image as uint8 (C, H, W)."""
    from PIL import Image, UnidentifiedImageError

    channels, height, width = source.shape
    try:
        with Image.open(io.BytesIO(encoded)) as picture:
            found = len(picture.getbands())
            if found != channels:
                raise ValueError(
                    f"{path}, row {row}: the image has {found} channels ({picture.mode}),"
                    f" not {channels}"
                )
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{path}, row {row}: the image does not decode (its bytes are of no known format)"
        ) from error
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError(f"{path}, row {row}: the image does not decode ({error})") from error
    # (H, W) or (H, W, C) -> (C, H, W)
    pixels = pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)
    if pixels.shape != source.shape:
        size = f"{pixels.shape[2]} x {pixels.shape[1]}"
        raise ValueError(f"{path}, row {row}: the image has {size} pixels, not {width} x {height}")
    return pixels
