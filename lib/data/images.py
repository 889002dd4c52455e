"""Real image sets as uint8 tensors, checked row by row.

`places` says in which order the places are searched for a set.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.data import places
from lib.data.places import identity as identity
from lib.representation import Shapes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, repr=False, eq=False)
class ImageSet(Shapes):
    """One split of an image set.

    Parameters
    ----------
    images : Tensor of uint8 (N, C, H, W)
        The images.
    labels : Tensor of int64 (N,)
        Their labels, below `classes`.
    classes : int
        Number of classes.
    """

    images: "torch.Tensor"
    labels: "torch.Tensor"
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice) -> "ImageSet":
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def standardise(self) -> "Standardise":
        """Return the map x -> (x / 255 - mean) / std per channel of this split.

        Returns
        -------
        Standardise
            The map. Its std is the sample standard deviation over all pixels of all
            images, with the number of pixels minus one. A channel of one value has std
            0, and the map gives NaN or infinity there.
        """
        import torch

        # One channel at a time: a float64 copy of 50,000 colour images takes 1.2 GB.
        channels = [torch.std_mean(c.double().div_(255)) for c in self.images.unbind(1)]
        moments = torch.tensor(channels).float()[:, :, None, None]  # (C, 2, 1, 1)
        return Standardise(moments)


@dataclass(frozen=True, repr=False, eq=False)
class Standardise(Shapes):
    """The map x -> (x / 255 - mean) / std per channel, of images.

    Parameters
    ----------
    moments : Tensor of float32 (C, 2, 1, 1)
        Standard deviation and mean of each channel.
    """

    moments: "torch.Tensor"

    def __call__(self, images: "torch.Tensor") -> "torch.Tensor":
        """Standardise images.

        Parameters
        ----------
        images : Tensor of uint8 (b, C, H, W)
            The images.

        Returns
        -------
        Tensor of float32 (b, C, H, W)
            The standardised images, on the device of the argument.
        """
        std, mean = self.moments.to(images.device).unbind(1)  # (C, 1, 1) each
        return images.float().div_(255).sub_(mean).div_(std)


def load(
    name: str, split: str, *, demo: bool = False, rows: int | None = None
) -> ImageSet:
    """Load one split of an image set.

    Parameters
    ----------
    name : {"mnist", "cifar10"}
        The set.
    split : {"train", "test"}
        The split.
    demo : bool, default False
        Whether not to use the hub: if there is no local copy, the stand-in is loaded.
    rows : int, optional
        Load no more than the first `rows` images, at least 1. Default: all.

    Returns
    -------
    ImageSet
        The split. The images of "mnist" have one channel of 28 x 28 pixels, those of
        "cifar10" three of 32 x 32; a stand-in may have other sizes.

    Raises
    ------
    ValueError
        If the set or the split is unknown, or if a file or an image cannot be used.
    FileNotFoundError
        If the set is at none of the places. The message says how to fetch it.
    """
    import torch

    source = places.known(name, "image")
    (pixels,), labels = source.read(split, demo, partial(_pixels, source.shape), rows)
    images = torch.from_numpy(np.asarray(pixels))
    return ImageSet(
        images=images, labels=torch.from_numpy(labels), classes=source.classes
    )


def _pixels(
    shape: Sequence[int], file: object, column: str, table: Any
) -> list[np.ndarray]:
    """Return the images in `column` of a file's table, each uint8 (C, H, W).

    Raises ValueError if the column has no images, or an image does not decode.
    """
    import datasets

    kind = table.features[column]
    if not (
        isinstance(kind, datasets.Image) or (isinstance(kind, dict) and "bytes" in kind)
    ):
        raise ValueError(
            f"{file} cannot be read: {column} is {kind}, not a struct with bytes"
        )
    table = table.cast_column(column, datasets.Image(decode=False))
    pieces = table.with_format("arrow").iter(1000)
    rows = (value for piece in pieces for value in piece[column].to_pylist())
    return [
        _decode(shape, f"{file}, row {row}", v and v["bytes"])
        for row, v in enumerate(rows)
    ]


def _decode(shape: Sequence[int], place: str, encoded: bytes | None) -> np.ndarray:
    """Decode one image to uint8 (C, H, W).

    Raises ValueError, with the `place` of the image, if it does not decode, or if it
    has another shape or other pixels than bytes.
    """
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(encoded or b"")) as picture:
            size = len(picture.getbands()), picture.height, picture.width
            pixels = np.asarray(picture)
    except (
        OSError,
        TypeError,
        SyntaxError,
    ) as error:  # OSError also covers bytes in an unknown format
        raise ValueError(f"{place}: the image does not decode ({error})") from error
    if size != tuple(shape):
        has, wanted = (f"{c} channels of {w} x {h} pixels" for c, h, w in (size, shape))
        raise ValueError(f"{place}: the image has {has}, not {wanted}")
    if pixels.dtype != np.uint8:  # black and white, or 16 bits per pixel
        raise ValueError(f"{place}: the image has {pixels.dtype} pixels, not uint8")
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)  # (C, H, W)
