"""What a data set is: where it lies on the hub, how its rows look, and what stands in for it."""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

SPLITS = ("train", "test")


@dataclass(frozen=True)
class StandIn:
    """A small set that needs no file: `read(split)` gives its columns and labels, always the same.

    A column is pixels uint8 (N, C, H, W) or a list of N texts; labels are int64 (N,).
    """

    name: str
    about: str
    read: Callable[[str], tuple[tuple, np.ndarray]]

    def identity(self) -> dict:
        """{name, source: demo, revision, rows}; the revision is the hash of the rows themselves."""
        revision, rows = _rows_hash(self)
        return {"name": self.name, "source": "demo", "revision": revision, "rows": rows}


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
    """A set of images or texts on the hub, as sources.toml has it.

    `files` maps each file's path in the repository to its SHA-256. `columns` is the image, a text,
    or premise and hypothesis. `shape` is (channels, height, width) of an image. `splits` are the
    file names' first parts for "train" and "test". A `threshold` turns a score in [0, 1] into the
    label score ≥ threshold.
    """

    name: str
    kind: str
    repository: str
    revision: str
    files: Mapping[str, str]
    rows: int
    classes: int
    columns: tuple[str, ...]
    label: str
    stand_in: StandIn
    shape: tuple[int, ...] = ()
    splits: tuple[str, str] = SPLITS
    threshold: float | None = None

    @property
    def command(self) -> str:
        """The command that fetches the set on a connected machine."""
        options = f"--repo-type dataset --revision {self.revision} --local-dir data/{self.name}"
        return f"hf download {self.repository} {options}"


def pinned(kind: str, stand_ins: Mapping[str, StandIn]) -> dict[str, Source]:
    """The sources of this `kind` (image or text) by name, each with its stand-in."""
    content = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    found = {}
    for name, row in content.items():
        if row["kind"] == kind:
            values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
            found[name] = Source(name=name, stand_in=stand_ins[name], **values)
    return found


def known(name: str, split: str, sources: Mapping[str, Source]) -> Source:
    """The source called `name`; ValueError for an unknown one, or a split that no set has."""
    if name not in sources:
        kind = next(iter(sources.values())).kind
        raise ValueError(f"unknown {kind} set {name!r}; there is {', '.join(sources)}")
    if split not in SPLITS:
        raise ValueError(f'split must be "train" or "test", not {split!r}')
    return sources[name]
