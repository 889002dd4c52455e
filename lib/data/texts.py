"""Real text sets, in the fixed order of `places`, with labels that were checked row by
row.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib import files, seeds
from lib.data import places
from lib.data.places import identity as identity
from lib.representation import Shapes


@dataclass(frozen=True, repr=False)
class TextSet(Shapes):
    """One split: `texts` (N), `labels` int64 (N,) below `classes`, `pairs` (N) second
    sentences.
    """

    texts: list[str]
    labels: np.ndarray
    classes: int
    name: str
    pairs: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "TextSet":
        """The rows with these numbers (rows,), in this order."""
        texts, pairs = (
            part and [part[k] for k in rows] for part in (self.texts, self.pairs)
        )
        return replace(self, texts=texts, labels=self.labels[rows], pairs=pairs)

    def sample(self, rows: int, seed: int = 0) -> "TextSet":
        """`rows` rows drawn at random without repeats; all of them if there are
        fewer.
        """
        if rows >= len(self):
            return self
        return self.take(seeds.stream(seed, "subset").permutation(len(self))[:rows])

    def balanced(self, rows: int, characters: int) -> "TextSet":
        """At most `rows` random rows, equally many a class, of at most `characters`,
        both sentences of a pair together; ValueError where a class gets none.
        """
        order = seeds.stream(0, "subset").permutation(len(self))
        seconds = self.pairs or [""] * len(self)
        lengths = np.array([len(a) + len(b) for a, b in zip(self.texts, seconds)])
        short = order[lengths[order] <= characters]
        by_label = [short[self.labels[short] == label] for label in range(self.classes)]
        count = min(rows // self.classes, *map(len, by_label))
        if count < 1:
            raise ValueError(
                f"{self.name}: a class gets no row within {characters} characters"
            )
        chosen = np.concatenate([part[:count] for part in by_label])
        return self.take(short[np.isin(short, chosen)])

    def content(self) -> str:
        """A short hash of texts and labels, equal for equal rows in equal order."""
        rows = zip(
            self.texts, self.pairs or self.texts, self.labels.tolist(), strict=True
        )
        return files.sha256(repr(list(rows)).encode())

    def hold_out(self, rows: int) -> tuple["TextSet", "TextSet"]:
        """(all but `rows`, `rows`) rows at random; ValueError unless 0 < rows < all
        there are.
        """
        if not 0 < rows < len(self):
            raise ValueError(f"rows must be above 0, below all {len(self)}; got {rows}")
        order = seeds.stream(0, "split").permutation(len(self))
        return self.take(order[rows:]), self.take(order[:rows])


def load(name: str, split: str, *, demo: bool = False) -> TextSet:
    """The split "train" or "test" of "multi_nli", "civil_comments" or "imdb", as
    `images.load`.
    """
    source = places.known(name, "text")
    (texts, *pairs), labels = source.read(split, demo, _texts)
    return TextSet(list(texts), labels, source.classes, name, *map(list, pairs))


def _texts(file: object, column: str, table) -> list[str]:
    texts = table[:][column]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{file}, row {row}: {column} {text!r} is no text; remove such rows"
            )
    return texts
