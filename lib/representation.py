"""The repr of a record of arrays: their shapes, not their entries."""

from collections.abc import Mapping, Sized
from dataclasses import fields

import numpy as np


class Shapes:
    """Base of a dataclass with arrays, made with repr=False: `repr` tells shapes and
    sizes, of an array of words the distinct ones, a float in 4 digits, a word itself;
    functions are left out.
    """

    def __repr__(self) -> str:
        own = fields(self)  # ty: ignore[invalid-argument-type]  # those who inherit are dataclasses
        sizes = {field.name: _size(getattr(self, field.name)) for field in own}
        words = ", ".join(f"{name} {size}" for name, size in sizes.items() if size)
        return f"{type(self).__name__}({words})"


def _size(value) -> str:
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
