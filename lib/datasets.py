"""Real data sets as tensors, found in a fixed order, and always with the name of the place they came from.

The order is `$DATA_DIR/<name>`, `data/<name>`, the hub at a pinned revision, and last the small set embedded
in scikit-learn. A place that is named but broken is an error; only a set that is nowhere gives way to the
embedded one.
"""

import hashlib
import io
import os
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import lib
from lib import seeds

if TYPE_CHECKING:
    import torch

ROOT = Path(lib.__file__).resolve().parent.parent
PROBE_SECONDS = 3.0  # longest wait for the hub's first answer


@dataclass(frozen=True)
class HubFile:
    """One parquet file of a hub repository: which split it holds, its path there, and its SHA-256."""

    split: str
    path: str
    sha256: str


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
    splits: tuple[str, str] = ("train", "test")
    stand_in: str = "scikit-learn's 8 x 8 digits"

    @property
    def command(self) -> str:
        """The command that fetches the set on a connected machine."""
        options = f"--repo-type dataset --revision {self.revision} --local-dir data/{self.name}"
        return f"hf download {self.repository} {options}"


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
)
IMAGES = {source.name: source for source in (MNIST,)}

DIGITS = {"name": "digits", "source": "demo", "rows": 1797}
DIGITS_TEST_ROWS = 360


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
    """One split of an image set: `images` uint8 (N, C, H, W), `labels` int64 (N,) in 0 ... classes - 1.

    `name`, `source` (data_dir, data, hub or demo), `revision` and `rows` (all splits together) are those of
    `identity`.
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
        pixels = self.images.double().div(255)
        mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))  # (C,)
        return Standardise(mean.float()[:, None, None], std.float()[:, None, None])  # (C, 1, 1)

    def first(self, rows: int | None) -> "ImageSet":
        """The first `rows` images, all of them for None or more rows than there are."""
        return replace(self, images=self.images[:rows], labels=self.labels[:rows])

    def hold_out(self, rows: int, seed: int = 0) -> tuple["ImageSet", "ImageSet"]:
        """Split at random into (all but `rows`, `rows`) images; the same `seed` gives the same split."""
        if not 0 < rows < len(self):
            raise ValueError(f"rows must lie between 0 and {len(self)}, the size of the split; got {rows}")
        order = seeds.stream(seed, "split").permutation(len(self))
        kept, held = order[rows:], order[:rows]
        return tuple(replace(self, images=self.images[part], labels=self.labels[part]) for part in (kept, held))


def images(name: str, split: str, *, demo: bool = False) -> ImageSet:
    """The split "train" or "test" of the image set `name` ("mnist"), or of the digits where it is nowhere.

    With `demo` the hub is left alone: without a local copy the embedded digits are used at once. Without it,
    digits in place of the real set are announced in one printed sentence that says how to get the real one.

    The digits are scikit-learn's `load_digits`, 1,797 scanned digits of 8 x 8 pixels, 1,437 train and 360
    test. Raises FileNotFoundError if `DATA_DIR` does not exist or lacks the set, ValueError for a file that
    is damaged, lacks a column, or holds an image or label that cannot be used; the message names file, row
    and remedy.
    """
    source = _known(name)
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", not {split!r}')
    where, folder = place(source, demo)
    if where == "demo":
        pictures, labels = _digits(split)
        return _image_set(pictures, labels, 10, _digits_identity())
    pictures, labels = _read(source, parquet_files(folder, split))
    return _image_set(pictures, labels, source.classes, identify(source, where, folder))


def identity(name: str, *, demo: bool = False) -> dict:
    """What `images` would use: {name, source: data_dir | data | hub | demo, revision, rows}; reads no image.

    `revision` is the first 16 hex digits of the SHA-256 of the local files, the hub's revision, or the
    version of the package that embeds the set. Raises as `images` does for a `DATA_DIR` or file that cannot
    be used.
    """
    source = _known(name)
    where, folder = locate(source, demo)
    return _digits_identity() if where == "demo" else identify(source, where, folder)


def hub_reachable(timeout: float = PROBE_SECONDS) -> bool:
    """Whether the hub answers within `timeout` seconds, name lookup and connection included.

    False at once under HF_HUB_OFFLINE=1. A proxy (HTTPS_PROXY) and a mirror (HF_ENDPOINT) are used where set.
    """
    if any(
        os.environ.get(key, "").upper() in {"1", "ON", "YES", "TRUE"}
        for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    ):
        return False
    answers = []

    def ask():
        try:
            with urllib.request.urlopen(urllib.request.Request(_endpoint(), method="HEAD"), timeout=timeout):
                answers.append(True)
        except urllib.error.HTTPError as error:
            answers.append(error.code < 500)
        except (OSError, ValueError):
            answers.append(False)

    # A socket's own timeout bounds neither the name lookup nor a server that sends one byte now and then.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    return bool(answers and answers[0])


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def place(source, demo: bool) -> tuple[str, Path | None]:
    """(data_dir | data | hub | demo, folder) of a set, downloaded if that is where it is.

    `source` is an `ImageSource` or `texts.TextSource`. A stand-in that nobody asked for by `demo` is announced.
    """
    where, folder = locate(source, demo)
    if where == "hub":
        try:
            folder = _download(source)
        except OSError as error:
            where, folder = "demo", None
            _announce(source, f"the download broke off ({type(error).__name__})")
    elif where == "demo" and not demo:
        _announce(source, "the hub gave no answer")
    return where, folder


def _known(name: str) -> ImageSource:
    if name not in IMAGES:
        raise ValueError(f"unknown image set {name!r}; there is {', '.join(IMAGES)}")
    return IMAGES[name]


def locate(source, demo: bool) -> tuple[str, Path | None]:
    """(place, folder): the first place of the module's order that has the set."""
    if os.environ.get("DATA_DIR"):
        return "data_dir", _data_dir(source.name, source.splits)
    folder = ROOT / "data" / source.name
    if folder.is_dir():
        return "data", folder
    if demo:
        return "demo", None
    folder = _cached(source)
    return ("hub", folder) if folder or hub_reachable() else ("demo", None)


def _data_dir(name: str, splits: tuple[str, str]) -> Path:
    """The folder of `name` under `$DATA_DIR`; a relative path counts from here, else from the repository."""
    given = Path(os.environ["DATA_DIR"]).expanduser()
    places = [place for place in (given.absolute(), ROOT / given) if place.is_dir()]
    if not places:
        raise FileNotFoundError(
            f"DATA_DIR={given} is not a folder; point it at the folder that holds {name}/, or unset it"
        )
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(
        f"DATA_DIR={given} has no folder {name}/; put {name}/{splits[0]}-*.parquet and {name}/{splits[1]}-*.parquet"
        " there (data/README.md says which), or unset DATA_DIR"
    )


def parquet_files(folder: Path, split: str) -> list[Path]:
    """The parquet files of `split` under `folder`, every shard that their names promise."""
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    promised = int(files[0].stem.rpartition("-of-")[2]) if files and "-of-" in files[0].stem else len(files)
    if not files or len(files) != promised:
        found = ", ".join(f.name for f in files) or "none"
        raise FileNotFoundError(
            f"{folder} lacks files {split}-*.parquet (found {found}); data/README.md says how to get them"
        )
    return files


def open_parquet(path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a readable parquet file, perhaps cut off: fetch it again ({error})") from error


def identify(source, where: str, folder: Path | None) -> dict:
    if where == "hub":
        return {"name": source.name, "source": where, "revision": source.revision, "rows": source.rows}
    digest, rows = hashlib.sha256(), 0
    for split in source.splits:
        for path in parquet_files(folder, split):
            with open_parquet(path) as file:
                rows += file.metadata.num_rows
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return {"name": source.name, "source": where, "revision": digest.hexdigest()[:16], "rows": rows}


def _digits_identity() -> dict:
    return DIGITS | {"revision": f"scikit-learn {version('scikit-learn')}"}


def _image_set(pictures: np.ndarray, labels: np.ndarray, classes: int, known: dict) -> ImageSet:
    import torch

    return ImageSet(torch.from_numpy(pictures), torch.from_numpy(labels), classes, **known)


def _digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    # The set has no split of its own; this one is fixed, whatever seed a run has.
    order = seeds.stream(0, "split").permutation(DIGITS["rows"])
    rows = order[:DIGITS_TEST_ROWS] if split == "test" else order[DIGITS_TEST_ROWS:]
    pixels = np.rint(digits.images[rows] * (255 / 16)).astype(
        np.uint8
    )  # (N, 8, 8), grey levels 0 ... 16 spread to 0 ... 255
    return pixels[:, None], digits.target[rows].astype(np.int64)  # (N, 1, 8, 8), (N,)


def _read(source: ImageSource, files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (N, C, H, W) and labels int64 (N,) of the parquet `files`."""
    parts = [_read_file(source, path) for path in files]
    return np.concatenate([p for p, _ in parts]), np.concatenate([y for _, y in parts])


def _read_file(source: ImageSource, path: Path) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    wanted = [source.image_column, source.label_column]
    with open_parquet(path) as file:
        schema = file.schema_arrow
        missing = [column for column in wanted if column not in schema.names]
        if missing:
            raise ValueError(f"{path} lacks the column {', '.join(missing)}; it has {', '.join(schema.names)}")
        try:
            table = file.read(wanted)
            encoded = table[source.image_column].combine_chunks().field("bytes").to_pylist()
        except (pa.ArrowException, OSError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read, perhaps it is damaged: fetch it again ({error})") from error
    pixels = np.stack([_decode(source, path, row, content) for row, content in enumerate(encoded)])
    return pixels, _labels(source, path, table[source.label_column].to_pylist())


def _decode(source: ImageSource, path: Path, row: int, content: bytes | None) -> np.ndarray:
    """One image as uint8 (C, H, W)."""
    from PIL import Image

    channels, height, width = source.shape
    try:
        with Image.open(io.BytesIO(content)) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError(f"{path}, row {row}: the image does not decode ({error})") from error
    pixels = pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)  # (H, W) or (H, W, C) -> (C, H, W)
    found = pixels.shape
    if found != source.shape:
        raise ValueError(f"{path}, row {row}: the image has {found[2]} x {found[1]} pixels, not {width} x {height}")
    return pixels


def _labels(source: ImageSource, path: Path, labels: list) -> np.ndarray:
    for row, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < source.classes:
            raise ValueError(f"{path}, row {row}: label {label!r} is not one of 0 ... {source.classes - 1}")
    return np.array(labels, dtype=np.int64)


def _cached(source) -> Path | None:
    """The folder of the pinned revision in the hub's own cache, if every file is there."""
    from huggingface_hub import try_to_load_from_cache

    found = [
        try_to_load_from_cache(source.repository, file.path, revision=source.revision, repo_type="dataset")
        for file in source.files
    ]
    return Path(found[0]).parent if all(isinstance(path, str) for path in found) else None


def _download(source) -> Path:
    """Fetch the pinned files through the hub's cache and check them; their folder, or OSError."""
    from huggingface_hub import hf_hub_download

    for file in source.files:
        path = Path(
            hf_hub_download(
                source.repository,
                file.path,
                revision=source.revision,
                repo_type="dataset",
                endpoint=_endpoint(),
            )
        )
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                raise ValueError(f"{path} is not the file that was pinned (SHA-256 differs): delete it and run again")
    return path.parent


def _announce(source, why: str) -> None:
    print(
        f"{source.name} is missing: DATA_DIR is not set, data/{source.name} does not exist and {why};"
        f" on a connected machine `{source.command}` fetches it; {source.stand_in} run instead."
    )
