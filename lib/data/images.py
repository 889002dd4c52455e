"""Real image data sets as uint8 tensors, which are checked row by row.

`places` says in which order the places are searched for a data set.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lib import seeds
from lib.data import places
from lib.data.places import identity as identity
from lib.representation import Shapes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, repr=False, eq=False)
class ImageSet(Shapes):
    """One split of an image data set.

    Parameters
    ----------
    images : Tensor of uint8 (N, C, H, W)
        The images.
    labels : Tensor of int64 (N,)
        The labels of the images, from 0 to `classes` - 1.
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
        """Return the map x -> (x / 255 - mean) / std, with mean and std of this split.

        Returns
        -------
        Standardise
            The map. Each channel has its own mean and std. The std is the sample
            standard deviation over all pixels of all images, in which the sum of
            squares is divided by the number of pixels minus one. If all pixels of a
            channel have the same value, the std is 0, and the map gives NaN or
            infinity.
        """
        import torch

        # One channel at a time: a float64 copy of 50,000 colour images takes 1.2 GB.
        channels = [torch.std_mean(c.double().div_(255)) for c in self.images.unbind(1)]
        moments = torch.tensor(channels).float()[:, :, None, None]  # (C, 2, 1, 1)
        return Standardise(moments)


@dataclass(frozen=True, repr=False, eq=False)
class Standardise(Shapes):
    """The map x -> (x / 255 - mean) / std of images, with mean and std per channel.

    Parameters
    ----------
    moments : Tensor of float32 (C, 2, 1, 1)
        The standard deviation and the mean of each channel.
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
    """Load one split of an image data set.

    Parameters
    ----------
    name : {"mnist", "cifar10"}
        The name of the data set.
    split : {"train", "test"}
        The split.
    demo : bool, default False
        Whether to load without the hub. If there is no local copy, a stand-in is
        loaded.
    rows : int, optional
        The largest number of images to load, counted from the first one; at least 1.
        Default: all.

    Returns
    -------
    ImageSet
        The split. The images of "mnist" have one channel of 28 x 28 pixels, and the
        images of "cifar10" have three channels of 32 x 32 pixels. A stand-in may have
        other sizes.

    Raises
    ------
    ValueError
        If the data set or the split is unknown, if `rows` is not a whole number of at
        least 1, or if a file or an image cannot be used.
    FileNotFoundError
        If the data set is at none of the places. The message says how to fetch it.
    """
    import torch

    if rows is not None:
        rows = seeds.whole_number("rows", rows, 1)
    source = places.known(name, "image")
    (pixels,), labels = source.read(split, demo, partial(_pixels, source.shape), rows)
    images = torch.from_numpy(np.asarray(pixels))
    return ImageSet(
        images=images, labels=torch.from_numpy(labels), classes=source.classes
    )


def _pixels(
    shape: Sequence[int], file: object, column: str, table: Any
) -> list[np.ndarray]:
    """Return the images in a column of the table of a file, each uint8 (C, H, W).

    Raises ValueError if the column does not contain images, or if an image cannot be
    decoded.
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

    Raises ValueError, with the `place` of the image, if the image cannot be decoded, if
    its shape is not `shape`, or if its pixels are not bytes.
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
