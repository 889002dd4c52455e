"""Real text data sets, whose texts and labels are checked row by row.

`places` says in which order the places are searched for a data set.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib import files, seeds
from lib.data import places
from lib.data.places import identity as identity
from lib.representation import Shapes


@dataclass(frozen=True, repr=False, eq=False)
class TextSet(Shapes):
    """One split of a text data set.

    Parameters
    ----------
    texts : list of str (N,)
        The texts.
    labels : ndarray of int64 (N,)
        The labels of the texts, from 0 to `classes` - 1.
    classes : int
        Number of classes.
    name : str
        Name of the data set.
    pairs : list of str (N,), optional
        The second sentence of each row, if the data set consists of pairs.
    """

    texts: list[str]
    labels: np.ndarray
    classes: int
    name: str
    pairs: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "TextSet":
        """Return the rows with the given indices, in the given order.

        Parameters
        ----------
        rows : ndarray of int (k,)
            The indices of the rows.

        Returns
        -------
        TextSet
            The k rows.
        """
        texts, pairs = (
            part and [part[k] for k in rows] for part in (self.texts, self.pairs)
        )
        return replace(self, texts=texts, labels=self.labels[rows], pairs=pairs)

    def sample(self, rows: int, seed: int = 0) -> "TextSet":
        """Draw rows at random, without repeats.

        Parameters
        ----------
        rows : int
            The number of rows to draw, at least 1.
        seed : int, default 0
            The seed of the random draw.

        Returns
        -------
        TextSet
            The drawn rows, or the set itself if it has at most `rows` rows.

        Raises
        ------
        ValueError
            If `rows` is not a whole number of at least 1.
        """
        rows = seeds.whole_number("rows", rows, 1)
        if rows >= len(self):
            return self
        return self.take(seeds.stream(seed, "subset").permutation(len(self))[:rows])

    def balanced(self, rows: int, characters: int) -> "TextSet":
        """Draw short rows at random, the same number from each class.

        The draw is the same in every call.

        Parameters
        ----------
        rows : int
            The largest number of rows. From each class, `rows` divided by the number of
            classes (rounded down) are drawn, or fewer if some class has fewer short
            rows.
        characters : int
            The largest number of characters of a row. In a pair, the characters of the
            two sentences are added.

        Returns
        -------
        TextSet
            The drawn rows, in random order.

        Raises
        ------
        ValueError
            If a class has no short row, or if `rows` is below the number of classes.
        """
        order = seeds.stream(0, "subset").permutation(len(self))
        seconds = self.pairs or [""] * len(self)
        lengths = np.array(
            [len(a) + len(b) for a, b in zip(self.texts, seconds, strict=True)]
        )
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
        """Compute a short hash of texts, second sentences and labels.

        Returns
        -------
        str
            16 hex digits. They are equal for equal rows in the same order.
        """
        rows = zip(
            self.texts, self.pairs or self.texts, self.labels.tolist(), strict=True
        )
        return files.sha256(repr(list(rows)).encode())

    def hold_out(self, rows: int) -> tuple["TextSet", "TextSet"]:
        """Split the rows at random into two parts, which are the same in every call.

        Parameters
        ----------
        rows : int
            The number of rows to hold out.

        Returns
        -------
        rest : TextSet
            All other rows.
        held : TextSet
            The `rows` rows that are held out.

        Raises
        ------
        ValueError
            If `rows` does not satisfy 0 < `rows` < N.
        """
        if not 0 < rows < len(self):
            raise ValueError(f"rows must be above 0, below all {len(self)}; got {rows}")
        order = seeds.stream(0, "split").permutation(len(self))
        return self.take(order[rows:]), self.take(order[:rows])


def load(name: str, split: str, *, demo: bool = False) -> TextSet:
    """Load one split of a text data set.

    Parameters
    ----------
    name : {"multi_nli", "civil_comments", "imdb"}
        The name of the data set.
    split : {"train", "test"}
        The split.
    demo : bool, default False
        Whether to load without the hub. If there is no local copy, a stand-in is
        loaded.

    Returns
    -------
    TextSet
        The split.

    Raises
    ------
    ValueError
        If the data set or the split is unknown, or if a file or a text cannot be used.
    FileNotFoundError
        If the data set is at none of the places. The message says how to fetch it.
    """
    source = places.known(name, "text")
    (texts, *pairs), labels = source.read(split, demo, _texts)
    return TextSet(list(texts), labels, source.classes, name, *map(list, pairs))


def _texts(file: object, column: str, table: Any) -> list[str]:
    """Return the texts of a column; raise ValueError if one is blank or not a text."""
    texts = table[:][column]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{file}, row {row}: {column} {text!r} is no text; remove such rows"
            )
    return texts
