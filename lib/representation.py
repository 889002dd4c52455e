"""The repr of a record of arrays: their shapes, not their entries."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from typing import Any

import numpy as np


class Shapes:
    """The base of a dataclass with arrays, which is made with repr=False.

    Its `repr` tells the shapes of arrays and the sizes of other fields. Of an array of
    words it tells the distinct ones. A float has 4 digits, a word stands as it is, and
    functions are left out.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from lib.representation import Shapes
    >>> @dataclass(repr=False)
    ... class Record(Shapes):
    ...     weights: np.ndarray
    ...     rate: float
    >>> Record(weights=np.zeros((2, 3)), rate=0.1)
    Record(weights 2 x 3, rate 0.1)
    """

    def __repr__(self) -> str:
        own = fields(self)  # ty: ignore[invalid-argument-type]  # those who inherit are dataclasses
        sizes = {field.name: _size(getattr(self, field.name)) for field in own}
        words = ", ".join(f"{name} {size}" for name, size in sizes.items() if size)
        return f"{type(self).__name__}({words})"


def _size(value: Any) -> str:
    """Say the size of one field; nothing for a value without one."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return " | ".join(np.unique(value))
    if getattr(value, "shape", ()):
        return " x ".join(map(str, value.shape))
    if isinstance(value, float | np.ndarray):
        return f"{float(value):.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, int | str):
        return str(value)
    return str(len(value)) if isinstance(value, Sized) else ""
