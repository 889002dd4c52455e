"""Real image sets as uint8 tensors, found in the fixed order of `lib.datasets`, every image checked row by row."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lib import seeds
from lib.data import locate, stand_in_images
from lib.data.locate import HubFile

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ImageSource:
    """Where an image set lives on the hub and how its rows look; `shape` is (channels, height, width)."""

    name: str
    repository: str
    revision: str
    files: tuple[HubFile, ...]
    rows: int
    shape: tuple[int, int, int]
    classes: int
    image_column: str
    label_column: str
    embedded: stand_in_images.Embedded
    splits: tuple[str, str] = ("train", "test")

    @property
    def command(self) -> str:
        """The command that fetches the set on a connected machine."""
        options = f"--repo-type dataset --revision {self.revision} --local-dir data/{self.name}"
        return f"hf download {self.repository} {options}"

    @property
    def stand_in(self) -> str:
        """What runs where the set is nowhere, in words."""
        return self.embedded.about


MNIST = ImageSource(
    name="mnist",
    repository="ylecun/mnist",
    revision="77f3279092a1c1579b2250db8eafed0ad422088c",
    files=(
        HubFile(
            "train",
            "mnist/train-00000-of-00001.parquet",
            "f2c01285a9f89399335b00ee4e8d499dc4e46db5e39c74903ce5618d895eb3bf",
        ),
        HubFile(
            "test",
            "mnist/test-00000-of-00001.parquet",
            "d49fcf556ce25b002b302e318ce4a11098bbfe5d4499c3f35d7c72297c52374b",
        ),
    ),
    rows=70_000,
    shape=(1, 28, 28),
    classes=10,
    image_column="image",
    label_column="label",
    embedded=stand_in_images.DIGITS,
)
CIFAR10 = ImageSource(
    name="cifar10",
    repository="uoft-cs/cifar10",
    revision="0b2714987fa478483af9968de7c934580d0bb9a2",
    files=(
        HubFile(
            "train",
            "plain_text/train-00000-of-00001.parquet",
            "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883",
        ),
        HubFile(
            "test",
            "plain_text/test-00000-of-00001.parquet",
            "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de",
        ),
    ),
    rows=60_000,
    shape=(3, 32, 32),
    classes=10,
    image_column="img",
    label_column="label",
    embedded=stand_in_images.PICTURES,
)
IMAGES = {source.name: source for source in (MNIST, CIFAR10)}


@dataclass(frozen=True)
class Standardise:
    """x ↦ (x / 255 - mean) / std per channel: uint8 (b, C, H, W) to float32; `mean`, `std` (C, 1, 1)."""

    mean: "torch.Tensor"
    std: "torch.Tensor"

    def __call__(self, images):
        mean, std = self.mean.to(images.device), self.std.to(images.device)
        return images.float().div_(255).sub_(mean).div_(std)


@dataclass(frozen=True)
class ImageSet:
    """One split of an image set: `images` uint8 (N, C, H, W), `labels` int64 (N,) in 0 ... classes
    - 1.

    `name`, `source` (data_dir, data, hub or demo), `revision` and `rows` (all splits together) are
    those of `identity`.
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
        """The map to mean 0 and variance 1 per channel, measured on this split; apply it to every split."""
        import torch

        # From the 256 grey levels' counts: a float64 copy of 50,000 colour images would take 1.2
        # GB.
        levels = torch.arange(256, dtype=torch.float64) / 255
        counts = torch.stack(
            [torch.bincount(channel.flatten(), minlength=256) for channel in self.images.unbind(1)]
        )
        share = counts.double() / counts.sum(1, keepdim=True)  # (C, 256)
        mean = share @ levels  # (C,)
        pixels = int(counts[0].sum())
        variance = (share * (levels - mean[:, None]) ** 2).sum(1) * pixels / (pixels - 1)  # (C,)
        return Standardise(
            mean.float()[:, None, None], variance.sqrt().float()[:, None, None]
        )  # (C, 1, 1)

    def first(self, rows: int | None) -> "ImageSet":
        """The first `rows` images, all of them for None or more rows than there are."""
        return replace(self, images=self.images[:rows], labels=self.labels[:rows])

    def hold_out(self, rows: int, seed: int = 0) -> tuple["ImageSet", "ImageSet"]:
        """Split at random into (all but `rows`, `rows`) images; the same `seed` gives the same split."""
        if not 0 < rows < len(self):
            raise ValueError(
                f"rows must lie between 0 and {len(self)}, the size of the split; got {rows}"
            )
        order = seeds.stream(seed, "split").permutation(len(self))
        kept, held = order[rows:], order[:rows]
        return tuple(
            replace(self, images=self.images[part], labels=self.labels[part])
            for part in (kept, held)
        )


def load(name: str, split: str, *, demo: bool = False, rows: int | None = None) -> ImageSet:
    """The split "train" or "test" of "mnist" or "cifar10", or of the stand-in where the set is
    nowhere.

    The images are decoded once, one group of rows of the file after the other; with `rows` no more
    than the first `rows` of the split are read. With `demo` the hub is left alone: without a local
    copy the stand-in is used at once. Without it, a stand-in is announced in one printed sentence
    that says how to get the real set.

    Raises FileNotFoundError if `DATA_DIR` does not exist or lacks the set, ValueError for `rows`
    below 1, or for a file that is damaged, lacks a column, or holds an image or label that cannot
    be used; the message names file, row and remedy.
    """
    import torch

    source = locate.known(name, IMAGES, "image")
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", not {split!r}')
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be 1 or more, got {rows}")
    where, folder = locate.place(source, demo)
    found = _identity(source, where, folder)
    if where == "demo":
        pixels, labels = (values[:rows] for values in source.embedded.read(split))
    else:
        pixels, labels = _read(source, locate.parquet_files(folder, split), rows)
    known_by = {key: found[key] for key in ("name", "source", "revision", "rows")}
    return ImageSet(torch.from_numpy(pixels), torch.from_numpy(labels), source.classes, **known_by)


def identity(name: str, *, demo: bool = False) -> dict:
    """What `load` would use: {name, source: data_dir | data | hub | demo, revision, rows}; reads no
    image.

    `revision` is the first 16 hex digits of the SHA-256 of the local files, the hub's revision, or
    what the stand-in says; a stand-in has its own name and says in `instead_of` what it stands for.
    Raises as `load` does for a `DATA_DIR` or file that cannot be used.
    """
    source = locate.known(name, IMAGES, "image")
    return _identity(source, *locate.locate(source, demo))


def _identity(source: ImageSource, where: str, folder: Path | None) -> dict:
    if where == "demo":
        return source.embedded.identity() | {"instead_of": source.name}
    return locate.identify(source, where, folder)


def _read(
    source: ImageSource, files: list[Path], rows: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (N, C, H, W) and labels int64 (N,) of the first `rows` rows of the parquet `files`."""
    pixels, labels, left = [], [], rows
    for path in files:
        for first, table in _groups(source, path, left):
            encoded = table[source.image_column].to_pylist()
            pixels.append(
                np.stack([_decode(source, path, first + k, row) for k, row in enumerate(encoded)])
            )
            labels.append(_labels(source, path, first, table[source.label_column].to_pylist()))
            left = None if left is None else left - len(encoded)
        if left == 0:
            break
    return np.concatenate(pixels), np.concatenate(labels)


def _groups(source: ImageSource, path: Path, rows: int | None) -> Iterator:
    """(number of the first row, table) of each group of rows, up to `rows` rows; the encoded bytes
    of one group at a time are all that lies in memory."""
    import pyarrow as pa

    wanted = [source.image_column, source.label_column]
    with locate.open_parquet(path) as file:
        schema = file.schema_arrow
        if missing := [column for column in wanted if column not in schema.names]:
            raise ValueError(
                f"{path} lacks the column {', '.join(missing)}; it has {', '.join(schema.names)}"
            )
        kind = schema.field(source.image_column).type
        if not (pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0):
            raise ValueError(
                f"{path} cannot be read: {source.image_column} is {kind}, not a struct with bytes"
            )
        first = 0
        for group in range(file.num_row_groups):
            if rows is not None and first >= rows:
                return
            try:
                table = file.read_row_group(group, wanted).slice(
                    0, None if rows is None else rows - first
                )
            except (pa.ArrowException, OSError) as error:
                raise ValueError(
                    f"{path} cannot be read, perhaps it is damaged: fetch it again ({error})"
                ) from error
            yield first, table
            first += len(table)


def _decode(source: ImageSource, path: Path, row: int, encoded: dict | None) -> np.ndarray:
    """One image as uint8 (C, H, W)."""
    from PIL import Image, UnidentifiedImageError

    channels, height, width = source.shape
    try:
        with Image.open(io.BytesIO((encoded or {}).get("bytes"))) as picture:
            found = len(picture.getbands())
            if found != channels:
                raise ValueError(
                    f"{path}, row {row}: the image has {found} channels ({picture.mode}), not {channels}"
                )
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{path}, row {row}: the image does not decode (its bytes are of no known format)"
        ) from error
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError(f"{path}, row {row}: the image does not decode ({error})") from error
    pixels = pixels.reshape(*pixels.shape[:2], channels).transpose(
        2, 0, 1
    )  # (H, W) or (H, W, C) -> (C, H, W)
    if pixels.shape != source.shape:
        size = f"{pixels.shape[2]} x {pixels.shape[1]}"
        raise ValueError(f"{path}, row {row}: the image has {size} pixels, not {width} x {height}")
    return pixels


def _labels(source: ImageSource, path: Path, first: int, labels: list) -> np.ndarray:
    for row, label in enumerate(labels, first):
        if not isinstance(label, int) or not 0 <= label < source.classes:
            raise ValueError(
                f"{path}, row {row}: label {label!r} is not one of 0 ... {source.classes - 1}"
            )
    return np.array(labels, dtype=np.int64)
