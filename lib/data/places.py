"""Where real data sets are found, in a fixed order, and always with the place's name.

The order is `$DATA_DIR/<name>`, `data/<name>`, the hub at a pinned revision; for a demo, which
leaves the hub alone, a small stand-in that is embedded in a package or generated. A place that is
named but broken is an error. What the rows hold is the business of `images` and `texts`.
"""

import hashlib
import os
import re
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib.files import ROOT

SPLITS = ("train", "test")
PROBE_SECONDS = 3.0  # longest wait for the hub's first answer
ANSWER_SECONDS = 60.0  # for which an answer, or its lack, is taken to last
_ANSWERS: dict[str, tuple[float, bool]] = {}  # of each endpoint: when asked, whether it answered


@dataclass(frozen=True)
class StandIn:
    """A small set that needs no file: `read(split)` gives its columns and labels, always the same.

    A column is pixels uint8 (N, C, H, W) or a list of N texts; labels are int64 (N,).
    """

    name: str
    read: Callable[[str], tuple[tuple, np.ndarray]]


@lru_cache
def _rows_hash(stand_in: StandIn) -> tuple[str, int]:
    """(first 16 hex digits of the SHA-256 of all rows, their number)."""
    digest, rows = hashlib.sha256(), 0
    for split in SPLITS:
        columns, labels = stand_in.read(split)
        for column in (*columns, labels.astype("<i8")):
            content = column if isinstance(column, np.ndarray) else "\0".join(column).encode()
            digest.update(hashlib.sha256(content).digest())
        rows += len(labels)
    return digest.hexdigest()[:16], rows


@dataclass(frozen=True)
class Source:
    """A set of images or texts, as sources.toml has it.

    `columns` is the image, a text, or premise and hypothesis; `label` that of the labels, or of a
    score in [0, 1] that is one from `threshold` on. `shape` is (channels, height, width) of an
    image. `splits` are what "train" and "test" are called in its files.
    """

    name: str
    kind: str
    repository: str
    revision: str
    rows: int
    classes: int
    columns: tuple[str, ...]
    label: str
    stand_in: StandIn
    shape: tuple[int, ...] = ()
    splits: tuple[str, str] = SPLITS
    threshold: float | None = None

    def place(self, demo: bool) -> tuple[str, Path | None]:
        """(data_dir | data | hub | demo, folder): the first place of the order that has the set.

        FileNotFoundError where there is none.
        """
        if os.environ.get("DATA_DIR"):
            return "data_dir", self._data_dir()
        folder = ROOT / "data" / self.name
        if folder.is_dir():
            return "data", folder
        if demo:
            return "demo", None
        if not (self._cached() or reachable()):
            self._missing("the hub gave no answer")
        return "hub", None

    def _data_dir(self) -> Path:
        # A relative path counts from the working folder, else from the repository.
        given = Path(os.environ["DATA_DIR"]).expanduser()
        places = [place for place in (given.absolute(), ROOT / given) if place.is_dir()]
        if not places:
            raise FileNotFoundError(
                f"DATA_DIR={given} is not a folder; point it at the folder that holds"
                f" {self.name}/, or unset it"
            )
        for place in places:
            if (place / self.name).is_dir():
                return place / self.name
        wanted = " and ".join(f"{self.name}/{split}-*.parquet" for split in self.splits)
        raise FileNotFoundError(
            f"DATA_DIR={given} has no folder {self.name}/; put {wanted}"
            " there (data/README.md says which), or unset DATA_DIR"
        )

    def _cached(self) -> bool:
        """Whether the pinned revision is in the hub's own cache."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            how = {"repo_type": "dataset", "revision": self.revision, "local_files_only": True}
            return bool(snapshot_download(self.repository, **how))
        except LocalEntryNotFoundError:
            return False

    def _missing(self, why: str):
        raise FileNotFoundError(
            f"{self.name} is missing: DATA_DIR is not set, data/{self.name} does not exist and"
            f" {why}; on a connected machine `hf download {self.repository} --repo-type dataset"
            f" --revision {self.revision} --local-dir data/{self.name}` fetches it"
        )

    def identity(self, demo: bool) -> dict:
        """{name, source, revision, rows} of what `rows` would read; no row of a file is read.

        `revision` is the first 16 hex digits of the SHA-256 of local files, the hub's revision, or
        the hash of a stand-in's rows; a stand-in says in `instead_of` what it stands for.
        """
        where, folder = self.place(demo)
        found = {"name": self.name, "source": where, "revision": self.revision, "rows": self.rows}
        if where == "demo":
            revision, rows = _rows_hash(self.stand_in)
            found |= {"name": self.stand_in.name, "revision": revision, "rows": rows}
            return found | {"instead_of": self.name}
        if where == "hub":
            return found
        digest, rows = hashlib.sha256(), 0
        for path in (path for split in self.splits for path in shards(folder, split)):
            rows += _count(path)
            digest.update(bytes.fromhex(sha256(path)))
        return found | {"revision": digest.hexdigest()[:16], "rows": rows}

    def tables(self, split: str, demo: bool) -> Iterator[tuple[object, object]]:
        """(name, rows) of each file of `split`, rows as a `datasets.Dataset` of its columns.

        ValueError for a file that is cut off, damaged, or lacks a column.
        """
        import datasets

        where, folder = self.place(demo)
        datasets.disable_progress_bars() if folder else None  # a copy is a matter of moments
        named = self.splits[split == "test"]
        for name in shards(folder, named) if folder else [self.repository]:
            try:
                if folder:
                    _count(name)
                    how = {"path": "parquet", "data_files": str(name), "split": "train"}
                else:
                    how = {"path": name, "revision": self.revision, "split": named}
                found = datasets.load_dataset(**how)
            except (ConnectionError, FileNotFoundError) as error:
                self._missing(f"the download broke off ({type(error).__name__})")
            except (datasets.exceptions.DatasetGenerationError, OSError) as error:
                cause = error.__cause__ or error
                if getattr(cause, "errno", None):  # of the system, which writes the copy
                    raise OSError(
                        cause.errno,
                        f"the copy of {name} could not be written ({cause.strerror}); point"
                        " HF_DATASETS_CACHE at a folder with room",
                    ) from error
                raise ValueError(
                    f"{name} cannot be read, perhaps it is damaged: fetch it again ({cause})"
                ) from error
            has, wanted = found.column_names, [*self.columns, self.label]
            if missing := [column for column in wanted if column not in has]:
                raise ValueError(
                    f"{name} lacks the column {', '.join(missing)}; it has {', '.join(has)}"
                )
            yield name, found.select_columns(wanted)

    def labels(self, name: object, values: list) -> np.ndarray:
        """Labels int64 (N,); ValueError, with the row, for one that cannot be used."""
        if self.threshold is not None:
            scores = np.array([np.nan if v is None else v for v in values], dtype=float)
            for row in np.flatnonzero(~((scores >= 0) & (scores <= 1))):
                what = f"{self.label} {values[row]!r} is not a number from 0 to 1"
                raise ValueError(f"{name}, row {row}: {what}")
            return (scores >= self.threshold).astype(np.int64)
        for row, label in enumerate(values):
            if type(label) is not int or not 0 <= label < self.classes:
                why = f"0 ... {self.classes - 1}"
                why += " (-1 marks a row without a label: remove it from the file)" * (label == -1)
                raise ValueError(f"{name}, row {row}: label {label!r} is not one of {why}")
        return np.array(values, dtype=np.int64)


def pinned(kind: str, *stand_ins: StandIn) -> dict[str, Source]:
    """The sources of this `kind` (image or text) by name, each with its stand-in, in order."""
    content = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    rows = ((name, row) for name, row in content.items() if row["kind"] == kind)
    return {
        name: Source(
            name=name,
            stand_in=stand_in,
            **{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()},
        )
        for (name, row), stand_in in zip(rows, stand_ins, strict=True)
    }


def known(name: str, split: str, sources: dict[str, Source]) -> Source:
    """The source called `name`; ValueError for an unknown one, or a split that no set has."""
    if name not in sources:
        kind = next(iter(sources.values())).kind
        raise ValueError(f"unknown {kind} set {name!r}; there is {', '.join(sources)}")
    if split not in SPLITS:
        raise ValueError(f'split must be "train" or "test", not {split!r}')
    return sources[name]


def shards(folder: Path, split: str) -> list[Path]:
    """The parquet files of `split` under `folder`, every shard that their names promise, in order.

    Raises FileNotFoundError where one is missing, ValueError for a name without a shard's numbers.
    """
    found = sorted(folder.rglob(f"{split}-*.parquet"))
    numbers = [re.search(r"-(\d+)-of-(\d+)$", path.stem) for path in found]
    if None in numbers:
        raise ValueError(
            f"{found[numbers.index(None)]}: a shard's name ends in its number and their count,"
            f" as {split}-00000-of-00001.parquet; rename the file"
        )
    if not found or len(found) != int(numbers[0][2]):
        there = ", ".join(f.name for f in found) or "none"
        raise FileNotFoundError(
            f"{folder} lacks files {split}-*.parquet (found {there});"
            " data/README.md says how to get them"
        )
    return found


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _count(path: Path) -> int:
    """Rows of a parquet file; ValueError for one that is cut off."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} is not a readable parquet file, perhaps cut off: fetch it again ({error})"
        ) from error


def reachable() -> bool:
    """Whether the hub answers within `PROBE_SECONDS`, name lookup included; asked once a minute.

    False at once under HF_HUB_OFFLINE=1. A proxy (HTTPS_PROXY) and a mirror (HF_ENDPOINT) are used
    where set. The hub's own client would take minutes to find that nobody answers.
    """
    keys = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    if any(os.environ.get(key, "").upper() in {"1", "ON", "YES", "TRUE"} for key in keys):
        return False
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    asked, answer = _ANSWERS.get(endpoint, (-ANSWER_SECONDS, False))
    if time.monotonic() - asked < ANSWER_SECONDS:
        return answer
    answers = []

    def ask():
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            with urllib.request.urlopen(request, timeout=PROBE_SECONDS):
                answers.append(True)
        except urllib.error.HTTPError as error:
            answers.append(error.code < 500)
        except (OSError, ValueError):
            answers.append(False)

    # A socket's own timeout bounds neither the name lookup nor a server that drips its answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    _ANSWERS[endpoint] = time.monotonic(), bool(answers and answers[0])
    return _ANSWERS[endpoint][1]
