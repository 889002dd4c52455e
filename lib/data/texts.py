"""Real text sets, found in the fixed order of `lib.datasets`, with labels that were checked row by row."""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lib import seeds
from lib.data import locate, stand_in_texts
from lib.data.locate import HubFile

TOXIC = 0.5  # a comment counts as toxic from this share of its readers on, as in WILDS
WILDS = "all_data_with_identities.csv"
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")


@dataclass(frozen=True)
class TextSource:
    """Where a text set lives on the hub and how its rows look.

    `text_columns` is one column, or premise and hypothesis; `splits` are the file names' first
    parts for "train" and "test"; a `threshold` turns a score in [0, 1] into the label score ≥
    threshold.
    """

    name: str
    repository: str
    revision: str
    files: tuple[HubFile, ...]
    rows: int
    classes: int
    text_columns: tuple[str, ...]
    label_column: str
    generator: stand_in_texts.Generator
    splits: tuple[str, str] = ("train", "test")
    threshold: float | None = None

    @property
    def command(self) -> str:
        """The command that fetches the set on a connected machine."""
        options = f"--repo-type dataset --revision {self.revision} --local-dir data/{self.name}"
        return f"hf download {self.repository} {options}"

    @property
    def stand_in(self) -> str:
        """What runs where the set is nowhere, in words."""
        return f"{self.generator.name}, generated from templates,"


MULTI_NLI = TextSource(
    name="multi_nli",
    repository="nyu-mll/multi_nli",
    revision="da70db2af9d09693783c3320c4249840212ee221",
    files=(
        HubFile(
            "train",
            "data/train-00000-of-00001.parquet",
            "1c1de03640b168e410aabfca19e7cc2f3dfcd7f0e126e935674e56fb102c4529",
        ),
        HubFile(
            "test",
            "data/validation_matched-00000-of-00001.parquet",
            "350c26950b55f460b50d36c76aef87d64b49c78812d7abf7bf97e5fede10f186",
        ),
    ),
    rows=402_517,
    classes=3,
    text_columns=("premise", "hypothesis"),
    label_column="label",
    generator=stand_in_texts.PAIRS,
    splits=("train", "validation_matched"),
)
CIVIL_COMMENTS = TextSource(
    name="civil_comments",
    repository="google/civil_comments",
    revision="f2970eb3a55777454c94069077cc8d9b5866312d",
    files=(
        HubFile(
            "train",
            "data/train-00000-of-00002.parquet",
            "c20f01c3aecbdd942886cacb0ee67e995df33bc712a622fde75927ed3d6ccefe",
        ),
        HubFile(
            "train",
            "data/train-00001-of-00002.parquet",
            "a76af69d7b24758bc38b196bc422d4767935c1dd7d3c1465554649c546d99ccb",
        ),
        HubFile(
            "test",
            "data/test-00000-of-00001.parquet",
            "410f803ff161e7c4ba005db7de5b444cac413f4861bf056b0fd69d670d75aa08",
        ),
    ),
    rows=1_902_194,
    classes=2,
    text_columns=("text",),
    label_column="toxicity",
    generator=stand_in_texts.COMMENTS,
    threshold=TOXIC,
)
IMDB = TextSource(
    name="imdb",
    repository="stanfordnlp/imdb",
    revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    files=(
        HubFile(
            "train",
            "plain_text/train-00000-of-00001.parquet",
            "db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c",
        ),
        HubFile(
            "test",
            "plain_text/test-00000-of-00001.parquet",
            "b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da",
        ),
    ),
    rows=50_000,
    classes=2,
    text_columns=("text",),
    label_column="label",
    generator=stand_in_texts.REVIEWS,
)
TEXTS = {source.name: source for source in (MULTI_NLI, CIVIL_COMMENTS, IMDB)}


@dataclass(frozen=True)
class TextSet:
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

    def take(self, rows: np.ndarray) -> "TextSet":
        """The rows with these numbers, in this order."""
        return replace(
            self,
            texts=[self.texts[k] for k in rows],
            labels=self.labels[rows],
            pairs=None if self.pairs is None else [self.pairs[k] for k in rows],
            groups=None if self.groups is None else self.groups[rows],
        )

    def sample(self, rows: int | None, seed: int = 0) -> "TextSet":
        """`rows` rows drawn at random without repeats, all of them for None or more rows than there
        are.

        The files may be sorted by label, so the first rows would not do.
        """
        if rows is None or rows >= len(self):
            return self
        return self.take(seeds.stream(seed, "data").permutation(len(self))[:rows])

    def hold_out(self, rows: int, seed: int = 0) -> tuple["TextSet", "TextSet"]:
        """Split at random into (all but `rows`, `rows`) rows; the same `seed` gives the same split."""
        if not 0 < rows < len(self):
            raise ValueError(
                f"rows must lie between 0 and {len(self)}, the size of the split; got {rows}"
            )
        order = seeds.stream(seed, "split").permutation(len(self))
        return self.take(order[rows:]), self.take(order[:rows])


def load(name: str, split: str, *, demo: bool = False) -> TextSet:
    """The split "train" or "test" of "multi_nli", "civil_comments" or "imdb", or of the generated
    stand-in.

    The test split of multi_nli is its validation_matched. With `demo` the hub is left alone:
    without a local copy the generated set is used at once. A folder civil_comments/ with WILDS'
    `all_data_with_identities.csv` is read from that file, with its own splits and `groups`.

    Raises FileNotFoundError if `DATA_DIR` does not exist or lacks the set, ValueError for a file
    that is damaged, lacks a column, or holds a text or label that cannot be used; the message names
    file and row.
    """
    source = locate.known(name, TEXTS, "text")
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", not {split!r}')
    where, folder = locate.place(source, demo)
    found = _identity(source, where, folder)
    if where == "demo":
        sentences, labels = source.generator.rows(split)
        columns, groups = list(zip(*sentences, strict=True)), None
    elif _wilds(source, folder):
        columns, labels, groups = _read_wilds(folder / WILDS, split)
    else:
        files = locate.parquet_files(folder, source.splits[split == "test"])
        parts = [_read_file(source, path) for path in files]
        columns = [sum((part[k] for part, _ in parts), []) for k in range(len(source.text_columns))]
        labels, groups = np.concatenate([y for _, y in parts]), None
    pairs = list(columns[1]) if len(columns) > 1 else None
    known_by = {key: found[key] for key in ("name", "source", "revision", "rows")}
    return TextSet(list(columns[0]), labels, source.classes, pairs=pairs, groups=groups, **known_by)


def identity(name: str, *, demo: bool = False) -> dict:
    """What `load` would use: {name, source: data_dir | data | hub | demo, revision, rows}; reads no
    text.

    A generated set has its own name and says in `instead_of` what it stands for. Raises as `load`
    does for a `DATA_DIR` or file that cannot be used.
    """
    source = locate.known(name, TEXTS, "text")
    return _identity(source, *locate.locate(source, demo))


def extent(identity: dict) -> str:
    """How much of a set lies at hand, in words for a caption, from its `identity`."""
    if identity["source"] == "demo":
        return f"{identity['rows']:,} rows generated from templates"
    whole = TEXTS[identity["name"]].rows
    found = identity["rows"]
    return (
        f"all {whole:,} rows at hand"
        if found == whole
        else f"a sample: {found:,} of {whole:,} rows at hand"
    )


def _identity(source: TextSource, where: str, folder: Path | None) -> dict:
    if where == "demo":
        made = source.generator
        digest = hashlib.sha256(Path(stand_in_texts.__file__).read_bytes()).hexdigest()[:16]
        rows = made.train_rows + made.test_rows
        return {
            "name": made.name,
            "source": where,
            "revision": digest,
            "rows": rows,
            "instead_of": source.name,
        }
    if _wilds(source, folder):
        path = folder / WILDS
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
        return {
            "name": source.name,
            "source": where,
            "revision": digest,
            "rows": len(_csv(path, ["split"])),
        }
    return locate.identify(source, where, folder)


def _wilds(source: TextSource, folder: Path | None) -> bool:
    return source is CIVIL_COMMENTS and folder is not None and (folder / WILDS).is_file()


def _read_file(source: TextSource, path: Path) -> tuple[list[list[str]], np.ndarray]:
    """The text columns and the labels int64 (N,) of one parquet file."""
    import pyarrow as pa

    wanted = [*source.text_columns, source.label_column]
    with locate.open_parquet(path) as file:
        names = file.schema_arrow.names
        if missing := [column for column in wanted if column not in names]:
            raise ValueError(
                f"{path} lacks the column {', '.join(missing)}; it has {', '.join(names)}"
            )
        try:
            table = file.read(wanted)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{path} cannot be read, perhaps it is damaged: fetch it again ({error})"
            ) from error
    columns = [_texts(path, name, table[name].to_pylist()) for name in source.text_columns]
    values = table[source.label_column].to_pylist()
    labels = (
        _labels(path, values, source.classes) if source.threshold is None else _scores(path, values)
    )
    return columns, labels


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


def _read_wilds(path: Path, split: str) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Comments, labels (N,) and identities mentioned (N, 8) of WILDS' file; an identity counts from 0.5 on."""
    table = _csv(path, ["comment_text", "split", "toxicity", *IDENTITIES])
    inside = np.flatnonzero(np.array(table["split"].to_pylist()) == split)
    if not len(inside):
        raise ValueError(f"{path} has no row of the split {split!r}")
    table = table.take(inside)
    texts = _texts(path, "comment_text", table["comment_text"].to_pylist())
    groups = np.stack(
        [np.array(table[name].to_pylist(), dtype=float) >= TOXIC for name in IDENTITIES], axis=1
    )
    return [texts], _scores(path, table["toxicity"].to_pylist()), groups  # groups (N, 8)


def _texts(path: Path, column: str, texts: list) -> list[str]:
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            what = (
                "null"
                if text is None
                else "empty"
                if isinstance(text, str)
                else f"{text!r}, not a text"
            )
            raise ValueError(
                f"{path}, row {row}: {column} is {what}; remove such rows from the file"
            )
    return texts


def _labels(path: Path, labels: list, classes: int) -> np.ndarray:
    for row, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < classes:
            why = (
                " (-1 marks a row without a label: remove it from the file)" if label == -1 else ""
            )
            raise ValueError(
                f"{path}, row {row}: label {label!r} is not one of 0 ... {classes - 1}{why}"
            )
    return np.array(labels, dtype=np.int64)


def _scores(path: Path, scores: list) -> np.ndarray:
    for row, score in enumerate(scores):
        if not isinstance(score, int | float) or not (math.isfinite(score) and 0 <= score <= 1):
            raise ValueError(f"{path}, row {row}: toxicity {score!r} is not a number from 0 to 1")
    return (np.array(scores) >= TOXIC).astype(np.int64)
