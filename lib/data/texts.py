"""Real text sets, in the fixed order of `locate`, with labels that were checked row by row."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lib import seeds
from lib.data import hub, locate, parquet, sources, stand_in_texts
from lib.representation import Facts

TEXTS = sources.pinned("text", stand_in_texts.STAND_INS)
WILDS = "all_data_with_identities.csv"
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")


@dataclass(frozen=True, repr=False)
class TextSet(Facts):
    """One split of a text set: `texts` (N) strings, `labels` int64 (N,) in 0 ... classes - 1.

    `pairs` (N) holds the second sentence of each row, or is None. `groups` bool (N, 8) says which
    of `IDENTITIES` a comment mentions, or is None. `name`, `source`, `revision` and `rows` are
    those of `identity`.
    """

    texts: list[str]
    labels: np.ndarray
    classes: int
    name: str
    source: str
    revision: str
    rows: int
    pairs: list[str] | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def facts(self) -> list[tuple[str, str]]:
        shares = np.bincount(self.labels, minlength=self.classes) / max(1, len(self))
        return [
            ("name", self.name),
            ("source", self.source),
            ("texts" if self.pairs is None else "pairs", f"{len(self):,}"),
            ("class shares", ", ".join(f"{share:.0%}" for share in shares)),
        ]

    def take(self, rows: np.ndarray) -> "TextSet":
        """The rows with these numbers (rows,), in this order."""
        return replace(
            self,
            texts=[self.texts[k] for k in rows],
            labels=self.labels[rows],
            pairs=None if self.pairs is None else [self.pairs[k] for k in rows],
            groups=None if self.groups is None else self.groups[rows],
        )

    def sample(self, rows: int | None, seed: int = 0) -> "TextSet":
        """`rows` rows drawn at random without repeats; all of them for None or if there are fewer.

        The files may be sorted by label, so the first rows would not do. ValueError for `rows`
        below 1.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be 1 or more, got {rows}")
        if rows is None or rows >= len(self):
            return self
        return self.take(seeds.stream(seed, "subset").permutation(len(self))[:rows])

    def hold_out(self, rows: int, seed: int = 0) -> tuple["TextSet", "TextSet"]:
        """Split at random into (all but `rows`, `rows`) rows, the same for the same `seed`.

        Raises ValueError unless 0 < rows < the number of rows.
        """
        if not 0 < rows < len(self):
            raise ValueError(
                f"rows must lie between 0 and {len(self)}, the size of the split; got {rows}"
            )
        order = seeds.stream(seed, "split").permutation(len(self))
        return self.take(order[rows:]), self.take(order[:rows])


def load(name: str, split: str, *, demo: bool = False) -> TextSet:
    """The split "train" or "test" of "multi_nli", "civil_comments" or "imdb".

    Where the set is nowhere, that of the generated stand-in.

    The test split of multi_nli is its validation_matched. With `demo` the hub is left alone:
    without a local copy the generated set is used at once. A folder civil_comments/ with WILDS'
    `all_data_with_identities.csv` is read from that file, with its own splits and `groups`.

    Raises FileNotFoundError if `DATA_DIR` does not exist or lacks the set, ValueError for a file
    that is damaged, lacks a column, or holds a text or label that cannot be used; the message names
    file and row.
    """
    source = sources.known(name, split, TEXTS)
    where, folder = locate.place(source, demo)
    found, groups = _identity(source, where, folder), None
    if where == "demo":
        columns, labels = source.stand_in.read(split)
    elif _wilds(source, folder):
        columns, labels, groups = _read_wilds(folder / WILDS, split, source.threshold)
    else:
        paths = parquet.files(folder, source.splits[split == "test"])
        parts = [_read(source, path) for path in paths]
        columns = [sum(column, []) for column in zip(*(texts for texts, _ in parts), strict=True)]
        labels = np.concatenate([y for _, y in parts])
    pairs = list(columns[1]) if len(columns) > 1 else None
    known_by = {key: found[key] for key in ("name", "source", "revision", "rows")}
    return TextSet(list(columns[0]), labels, source.classes, pairs=pairs, groups=groups, **known_by)


def identity(name: str, *, demo: bool = False) -> dict:
    """What `load` would use: {name, source: data_dir | data | hub | demo, revision, rows}.

    It reads no text of a file. See `locate.identify`. Raises as `load` does for a `DATA_DIR` or
    file that cannot be used.
    """
    source = sources.known(name, "train", TEXTS)
    return _identity(source, *locate.locate(source, demo))


def _identity(source: sources.Source, where: str, folder: Path | None) -> dict:
    if not _wilds(source, folder):
        return locate.identify(source, where, folder)
    revision, rows = hub.sha256(folder / WILDS)[:16], len(_csv(folder / WILDS, ["split"]))
    return {"name": source.name, "source": where, "revision": revision, "rows": rows}


def _wilds(source: sources.Source, folder: Path | None) -> bool:
    return source.name == "civil_comments" and folder is not None and (folder / WILDS).is_file()


def _read(source: sources.Source, path: Path) -> tuple[list[list[str]], np.ndarray]:
    """The text columns and the labels int64 (N,) of one parquet file."""
    data = parquet.read(path, (*source.columns, source.label))
    columns = {name: data.data.column(name).to_pylist() for name in data.column_names}
    texts = [_texts(path, name, columns[name]) for name in source.columns]
    values = columns[source.label]
    if source.threshold is not None:
        return texts, _scores(path, values, source.threshold)
    return texts, parquet.labels(path, values, source.classes)


def _csv(path: Path, columns: list[str]):
    """These columns of a csv file as a pyarrow table."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        return csv.read_csv(
            path,
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(include_columns=columns),
        )
    except (pa.ArrowException, KeyError, OSError) as error:
        raise ValueError(f"{path} is not the csv file of WILDS: {error}") from error


def _read_wilds(
    path: Path, split: str, threshold: float
) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Comments, labels (N,) and identities mentioned (N, 8) of WILDS' file.

    An identity counts from the `threshold` on too.
    """
    table = _csv(path, ["comment_text", "split", "toxicity", *IDENTITIES])
    inside = np.flatnonzero(np.array(table["split"].to_pylist()) == split)
    if not len(inside):
        raise ValueError(f"{path} has no row of the split {split!r}")
    table = table.take(inside)
    texts = _texts(path, "comment_text", table["comment_text"].to_pylist())
    mentioned = [np.array(table[name].to_pylist(), dtype=float) >= threshold for name in IDENTITIES]
    labels = _scores(path, table["toxicity"].to_pylist(), threshold)
    return [texts], labels, np.stack(mentioned, axis=1)  # groups (N, 8)


def _texts(path: Path, column: str, texts: list) -> list[str]:
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            shown = "null" if text is None else f"{text!r}, not a text"
            what = "empty" if isinstance(text, str) else shown
            raise ValueError(
                f"{path}, row {row}: {column} is {what}; remove such rows from the file"
            )
    return texts


def _scores(path: Path, scores: list, threshold: float) -> np.ndarray:
    for row, score in enumerate(scores):
        if not isinstance(score, int | float) or not (math.isfinite(score) and 0 <= score <= 1):
            raise ValueError(f"{path}, row {row}: toxicity {score!r} is not a number from 0 to 1")
    return (np.array(scores) >= threshold).astype(np.int64)
