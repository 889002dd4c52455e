"""Parquet files through `datasets`, with their columns checked.

They are copied once to Arrow files, and mapped into memory.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from datasets import Dataset


def files(folder: Path, split: str) -> list[Path]:
    """The parquet files of `split` under `folder`, every shard that their names promise, in order.

    Raises FileNotFoundError where one is missing, ValueError for a name without a shard's numbers.
    """
    found = sorted(folder.rglob(f"{split}-*.parquet"))
    shards = [path for path in found if "-of-" in path.stem]
    numbers = [re.search(r"-(\d+)-of-(\d+)$", path.stem) for path in shards]
    if None in numbers:
        raise ValueError(
            f"{shards[numbers.index(None)]}: a shard's name ends in its number and their count,"
            f" as {split}-00000-of-00001.parquet; rename the file"
        )
    promised = int(numbers[0][2]) if numbers else len(found)
    if not found or len(found) != promised:
        there = ", ".join(f.name for f in found) or "none"
        raise FileNotFoundError(
            f"{folder} lacks files {split}-*.parquet (found {there});"
            " data/README.md says how to get them"
        )
    return found


def count(path: Path) -> int:
    """Rows of a parquet file; ValueError for one that is cut off."""
    return _metadata(path).num_rows


def _metadata(path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} is not a readable parquet file, perhaps cut off: fetch it again ({error})"
        ) from error


def read(path: Path, columns: Iterable[str], image: str | None = None) -> "Dataset":
    """These `columns` of a parquet file as a data set of Arrow tables, mapped into memory.

    The first call copies the file to an Arrow file in the cache of `datasets`. `image` names the
    column whose rows are structs with the bytes of a picture. Raises ValueError for a damaged file,
    one that lacks a column, or one whose images are of another kind.
    """
    import datasets

    columns = list(columns)
    found = datasets.Features.from_arrow_schema(_metadata(path).schema.to_arrow_schema())
    if missing := [column for column in columns if column not in found]:
        raise ValueError(f"{path} lacks the column {', '.join(missing)}; it has {', '.join(found)}")
    kinds = {column: found[column] for column in columns}
    for column, kind in kinds.items():
        if column == image:
            if not (
                isinstance(kind, datasets.Image) or (isinstance(kind, dict) and "bytes" in kind)
            ):
                raise ValueError(
                    f"{path} cannot be read: {column} is {kind}, not a struct with bytes"
                )
            kinds[column] = datasets.Image(decode=False)
        elif isinstance(kind, datasets.ClassLabel):
            # It would refuse a bad label without naming its row.
            kinds[column] = datasets.Value("int64")
    options = {"features": datasets.Features(kinds), "columns": columns, "cache_dir": _cache()}
    try:
        with _without_bars():
            data = datasets.Dataset.from_parquet(str(path), **options)
    except (datasets.exceptions.DatasetGenerationError, OSError) as error:
        cause = error.__cause__ or error
        if getattr(cause, "errno", None):  # of the system, which writes the copy
            raise OSError(
                cause.errno,
                f"the Arrow copy of {path} could not be written to {options['cache_dir']}"
                f" ({cause.strerror}); point HF_DATASETS_CACHE at a folder with room",
            ) from error
        raise ValueError(
            f"{path} cannot be read, perhaps it is damaged: fetch it again ({cause})"
        ) from error
    return data.with_format("arrow")


@contextlib.contextmanager
def _without_bars():
    """Without the bars that `datasets` draws while it copies a file, a matter of moments."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


@lru_cache
def _cache() -> str:
    """The folder of `datasets` for its Arrow files, or a temporary one where that takes no file."""
    from datasets import config

    home = Path(config.HF_DATASETS_CACHE)
    try:
        home.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=home).close()
        return str(home)
    except OSError as error:
        _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="datasets-"))
        print(
            f"{home} takes no files ({error.strerror}): Arrow copies of data files go to"
            f" {_TEMPORARY[0].name} until the end of this process; HF_DATASETS_CACHE names a"
            " lasting place"
        )
        return _TEMPORARY[0].name


_TEMPORARY: list[tempfile.TemporaryDirectory] = []  # removed when the process ends


def labels(path: Path, values: list, classes: int) -> np.ndarray:
    """Labels int64 (N,); ValueError, with the row, for one that is not in 0 ... classes - 1."""
    for row, label in enumerate(values):
        if not isinstance(label, int) or not 0 <= label < classes:
            why = " (-1 marks a row without a label: remove it from the file)" * (label == -1)
            raise ValueError(
                f"{path}, row {row}: label {label!r} is not one of 0 ... {classes - 1}{why}"
            )
    return np.array(values, dtype=np.int64)
