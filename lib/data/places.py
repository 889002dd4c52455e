"""The places where real data sets are found.

The places are searched in this order: `$DATA_DIR/<name>`, `data/<name>`, and then the
hub at a pinned revision. A demo uses a small stand-in instead of the hub.
"""

import glob
import hashlib
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np

from lib.data.stand_ins import STAND_INS
from lib.files import ROOT, read_table

SPLITS = ("train", "test")
PROBE_SECONDS = 3.0  # the longest wait for the complete first answer of the hub
LARGEST_ANSWER = 2**22  # read at most this many bytes of the answer, a list of files


@dataclass(frozen=True)
class _Source:
    """A data set of images or texts, as sources.toml describes it.

    `columns` lists the names of the columns with the image, with the text, or with
    premise and hypothesis. `label` is the name of the column with the class. If there
    is a `threshold`, this column contains a score instead, and the class is 1 if the
    score is at least `threshold`, and 0 otherwise.
    """

    name: str
    kind: str
    repository: str
    revision: str
    rows: int
    classes: int
    columns: list[str]
    label: str
    demo: Mapping
    shape: tuple[int, ...] | list[int] = ()
    splits: tuple[str, str] | list[str] = SPLITS
    threshold: float | None = None

    def place(self, demo: bool) -> tuple[str, Path | None]:
        """Return the first place that has the data set.

        The result is the name of the place ("data_dir", "data", "hub" or "demo") and
        the folder of the data set. For the hub and for a stand-in, the folder is None.
        Raises FileNotFoundError if no place has the data set, or if $DATA_DIR is set
        but has no folder for this data set.
        """
        if given := os.environ.get("DATA_DIR"):
            # A relative path is tried from the working folder first, then from the
            # repository.
            for path in (Path(given).expanduser().absolute(), ROOT / given):
                if (path / self.name).is_dir():
                    return "data_dir", path / self.name
            what = "put its files there (data/README.md says which), or unset DATA_DIR"
            raise FileNotFoundError(
                f"DATA_DIR={given} has no folder {self.name}/; {what}"
            )
        folder = ROOT / "data" / self.name
        if folder.is_dir():
            return "data", folder
        if demo:
            return "demo", None
        import huggingface_hub

        try:  # is there a copy from an earlier download?
            huggingface_hub.snapshot_download(
                self.repository,
                repo_type="dataset",
                revision=self.revision,
                local_files_only=True,
            )
        except FileNotFoundError:
            if not reachable(self.repository, self.revision, "datasets"):
                self._missing("the hub gave no answer")
        return "hub", None

    def _missing(self, why: str) -> NoReturn:
        """Raise FileNotFoundError with the command that fetches the data set."""
        raise FileNotFoundError(
            f"{self.name} is missing: DATA_DIR is not set, data/{self.name} does not"
            f" exist and {why}; on a connected machine `hf download {self.repository}"
            f" --repo-type dataset --revision {self.revision}"
            f" --local-dir data/{self.name}` fetches it"
        )

    def read(
        self, split: str, demo: bool, column: Callable, rows: int | None = None
    ) -> tuple[Sequence[Sequence], np.ndarray]:
        """Read the columns and the labels of a split, or only the first `rows` rows.

        `column(file, name, table)` checks a column of a file and returns the values of
        the column. The result is one sequence of N values per column, and the labels,
        int64 (N,). Raises FileNotFoundError if the data set is at none of the places or
        if a file of a local copy is missing. Raises ValueError if the split is unknown,
        or if a file or a row cannot be used.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, not {split!r}")
        where, folder = self.place(demo)
        if where == "demo":
            stood, labels = STAND_INS[self.demo["name"]](split)
            return [list(values[:rows]) for values in stood], labels[:rows]
        named = self.splits[SPLITS.index(split)]
        columns = [[] for _ in self.columns]
        labels = []
        if folder:
            shards = _shards(folder, named)
        else:
            shards = [self.repository]
        for file in shards:
            table = self._table(file, named)
            if rows is not None:
                table = table.select(range(min(len(table), rows - len(labels))))
            for name, values in zip(self.columns, columns, strict=True):
                values += column(file, name, table)
            labels += self._labels(file, table[:][self.label])
            if len(labels) == rows:
                break
        return columns, np.array(labels, dtype=np.int64)

    def _table(self, file: Path | str, split: str):
        """Return the table of a local file, or of a split on the hub.

        The table contains only the columns of the data set and the labels. Raises
        ValueError if the file cannot be read or lacks a column, and FileNotFoundError
        if a download breaks off.
        """
        import datasets
        from datasets.exceptions import DatasetGenerationError

        on_hub = file == self.repository
        try:
            if on_hub:
                table = datasets.load_dataset(
                    str(file), revision=self.revision, split=split
                )
            else:
                datasets.disable_progress_bars()  # copying a local file is quick
                # The library treats a name as a pattern, in which [1] would match 1.
                name = glob.escape(str(file))
                table = datasets.load_dataset("parquet", data_files=name, split="train")
        except (ConnectionError, FileNotFoundError) as error:
            self._missing(f"the download broke off ({type(error).__name__})")
        except (DatasetGenerationError, OSError, ValueError) as error:
            what = f"{file} cannot be read, or not copied to HF_DATASETS_CACHE"
            why = " ".join(str(error.__cause__ or error).split())  # on one line
            raise ValueError(f"{what} ({why})") from error
        except Exception as error:  # the error's type depends on what a server sends
            if not on_hub:
                raise
            self._missing(f"the download broke off ({type(error).__name__})")
        has = table.column_names
        wanted = [*self.columns, self.label]
        if missing := ", ".join(column for column in wanted if column not in has):
            raise ValueError(
                f"{file} lacks the column {missing}; it has {', '.join(has)}"
            )
        return table.select_columns(wanted)

    def _labels(self, file: object, values: list) -> list[int]:
        """Check the labels of a file, and return them as classes.

        Scores are converted to classes by the threshold. Raises ValueError if a label
        is not a number from 0 to `classes` - 1, or if there is no threshold and a label
        is not a whole number.
        """
        last = self.classes - 1
        threshold = self.threshold
        # Labels are whole numbers; scores may be any numbers.
        if threshold is None:
            kinds = (int,)
        else:
            kinds = (int, float)
        for row, value in enumerate(values):
            if type(value) not in kinds or not 0 <= value <= last:
                what = (
                    f"{self.label} {value!r} is not in 0 ... {last}; remove such rows"
                )
                raise ValueError(f"{file}, row {row}: {what}")
        if threshold is None:
            return values
        return [int(value >= threshold) for value in values]


TABLES = read_table(Path(__file__).with_name("sources.toml"))
SOURCES = {name: _Source(name=name, **row) for name, row in TABLES.items()}


def known(name: str, kind: str = "") -> _Source:
    """Return the source of a data set.

    Parameters
    ----------
    name : str
        Name of the set.
    kind : {"", "image", "text"}, optional
        The kind that the data set must have. Default: any kind.

    Returns
    -------
    _Source
        The source, as sources.toml describes it.

    Raises
    ------
    ValueError
        If there is no data set of this name and kind.
    """
    names = [key for key, source in SOURCES.items() if kind in source.kind]
    if name not in names:
        raise ValueError(
            f"unknown {kind or 'data'} set {name!r}; there is {', '.join(names)}"
        )
    return SOURCES[name]


def identity(name: str, *, demo: bool = False) -> dict:
    """Describe which data would be loaded, by name, source, revision and rows.

    Parameters
    ----------
    name : str
        Name of the set.
    demo : bool, default False
        Whether to search without the hub.

    Returns
    -------
    dict
        A dict with the keys name, source, revision and rows. `source` is data_dir,
        data, hub or demo. `revision` is the commit on the hub, or 16 hex digits of the
        SHA-256 of local files or of the rows of a stand-in. `rows` is the number of
        rows of all splits together. A stand-in has a name of its own, and a further key
        `instead_of` gives the name of the data set that it replaces.

    Raises
    ------
    ValueError
        If the data set is unknown, or if a file is not a readable parquet file.
    FileNotFoundError
        If the data set is at none of the places, or if a file of a local copy is
        missing.
    """
    source = known(name)
    where, folder = source.place(demo)
    about = {
        "name": name,
        "source": where,
        "revision": source.revision,
        "rows": source.rows,
    }
    if where == "demo":
        return {**about, **source.demo, "instead_of": name}
    if folder is None:
        return about
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    digests = b""
    for path in (path for split in source.splits for path in _shards(folder, split)):
        digests += bytes.fromhex(sha256(path))
        try:
            rows += pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError) as error:
            what = (
                f"{path} is not a readable parquet file, perhaps cut off: "
                "fetch it again"
            )
            raise ValueError(f"{what} ({error})") from error
    return about | {"rows": rows, "revision": hashlib.sha256(digests).hexdigest()[:16]}


def _shards(folder: Path, split: str) -> list[Path]:
    """Return the files of `split` in order.

    The name of each file states the number of files. Raises FileNotFoundError if there
    is no file, or if the number of files is not the stated one.
    """
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    if {path.stem.rpartition("-of-")[2] for path in files} != {f"{len(files):05d}"}:
        names = ", ".join(path.name for path in files) or "none"
        what = f"{folder} lacks files {split}-*.parquet (found {names})"
        raise FileNotFoundError(f"{what}; data/README.md says what they are called")
    return files


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str
        64 hex digits.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@lru_cache
def reachable(
    repository: str, revision: str, kind: Literal["datasets", "models"]
) -> bool:
    """Ask whether the hub has a repository, and wait at most `PROBE_SECONDS`.

    Parameters
    ----------
    repository : str
        Name of the repository.
    revision : str
        The commit, 40 hex digits.
    kind : {"datasets", "models"}
        What the repository contains.

    Returns
    -------
    bool
        Whether the hub knows this commit and said so in time. If HF_HUB_OFFLINE=1 is
        set, the hub is not asked, and the result is False. A process asks once for each
        commit and remembers the answer, even if it is False.

    Notes
    -----
    The function sends the request with which a download begins. The answer must name
    the commit. So, for example, the login page of a hotel's network does not count as
    an answer.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    place = f"{endpoint.rstrip('/')}/api/{kind}/{repository}/revision/{revision}"
    answers: list[str] = []

    def ask() -> None:
        answers.append(_commit(place))

    # The time-out of a connection starts again with each byte. So it would never end
    # the wait for a server that sends one byte per second. Waiting for a thread ends in
    # any case.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answers == [revision]


def _commit(place: str) -> str:
    """Return the commit that a page of the hub names, or an empty string."""
    try:
        with urllib.request.urlopen(place, timeout=PROBE_SECONDS) as answer:
            return str(json.loads(answer.read(LARGEST_ANSWER))["sha"])
    except Exception:  # the error's type depends on what a server sends
        return ""
