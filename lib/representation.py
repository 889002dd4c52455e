"""How a record of arrays shows itself: sizes and a few numbers in a line."""

from collections.abc import Mapping
from dataclasses import fields
from numbers import Real

import numpy as np


class Facts:
    """A record that shows its `facts()`, pairs of a name and a value in words, never its arrays.

    A dataclass takes it as its base and is made with repr=False.
    """

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.facts())
        return f"{type(self).__name__}({shown})"


class Shapes(Facts):
    """A record that shows arrays by their shapes, rows of floats by their ends, others in words."""

    def facts(self) -> list[tuple[str, str]]:
        """The fields in their order."""
        return [(field.name, _size(getattr(self, field.name))) for field in fields(self)]


def _size(value) -> str:
    shape = getattr(value, "shape", ())
    number = isinstance(value, float | np.ndarray) and np.asarray(value).dtype == float
    if number and len(shape) < 2:
        return span(value)
    if shape:
        return " x ".join(map(str, shape))
    if isinstance(value, Mapping):
        return ", ".join(map(str, value)) or "none"
    plain = isinstance(value, Real | str | tuple | type(None))
    return str(value) if plain else type(value).__name__


def span(values: np.ndarray, form: str = ".3g") -> str:
    """The smallest and the largest of `values`, of any shape, in words, NaN left aside."""
    present = np.asarray(values)[~np.isnan(values)]
    if not present.size:
        return "none"
    smallest, largest = format(present.min(), form), format(present.max(), form)
    return smallest if smallest == largest else f"{smallest} to {largest}"


def last(values: np.ndarray) -> np.ndarray:
    """Of each run (runs, k) the last value that is not NaN, NaN where there is none, (runs,)."""
    place = values.shape[1] - 1 - (~np.isnan(values))[:, ::-1].argmax(1)
    return values[np.arange(len(values)), place]


def counts(words: np.ndarray) -> str:
    """How often each of the words (k,) occurs, such as "completed 3, stalled 1"."""
    pairs = zip(*np.unique(words, return_counts=True))
    return ", ".join(f"{word} {count}" for word, count in pairs)


def when(happened: np.ndarray) -> str:
    """In how many runs something happened, and when first; happened (runs,) is -1 where not."""
    times = happened[happened >= 0]
    first = f", first at t = {times.min()}" if times.size else ""
    return f"in {times.size} of {happened.size} runs{first}"
