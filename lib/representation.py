"""Records of arrays, whose repr shows shapes and whose equality compares entries."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from typing import Any

import numpy as np


class Shapes:
    """A base class for dataclasses that contain arrays.

    Declare such a dataclass with repr=False and eq=False, so that it keeps the methods
    of this class.

    Two records are equal if they have the same class and all their fields are equal;
    fields with compare=False are ignored. Arrays are compared entry by entry and must
    have the same dtype. In numpy arrays, NaN equals NaN. A record has no hash.

    The `repr` shows the shapes of arrays and the sizes of other fields. An array of one
    number is shown as this number, and an array of strings is shown as its distinct
    strings. Floats are shown with 4 digits, strings in full, and mappings by their
    keys. None, functions and other values without a size are left out.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from lib.representation import Shapes
    >>> @dataclass(repr=False, eq=False)
    ... class Record(Shapes):
    ...     weights: np.ndarray
    ...     norm: np.ndarray
    ...     rate: float
    >>> Record(weights=np.zeros((2, 3)), norm=np.array([135.05]), rate=0.1)
    Record(weights (2, 3), norm 135.1, rate 0.1)
    >>> one, other = (Record(np.zeros(3), np.ones(3), 0.1) for _ in range(2))
    >>> one
    Record(weights (3,), norm (3,), rate 0.1)
    >>> one == other
    True
    """

    __hash__ = None  # ty: ignore[invalid-assignment]  # an array has none either

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        own = fields(self)  # ty: ignore[invalid-argument-type]  # those who inherit are dataclasses
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in own
            if field.compare
        )

    def __repr__(self) -> str:
        own = fields(self)  # ty: ignore[invalid-argument-type]  # those who inherit are dataclasses
        sizes = {field.name: _size(getattr(self, field.name)) for field in own}
        words = ", ".join(f"{name} {size}" for name, size in sizes.items() if size)
        return f"{type(self).__name__}({words})"


def _equal(one: Any, other: Any) -> bool:
    """Return whether two fields have the same type (arrays: dtype) and equal values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(
            _equal(one[key], other[key]) for key in one
        )
    if isinstance(one, np.ndarray):
        has_nan = one.dtype.kind in "fc"  # the words of a status have no NaN
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=has_nan
        )
    if hasattr(one, "equal"):  # a tensor of torch
        return one.dtype == other.dtype and one.equal(other)
    return bool(one == other)


def _size(value: Any) -> str:
    """Return the text that `Shapes` shows for one field; empty if it has no size."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return " | ".join(np.unique(value))
    shape = tuple(getattr(value, "shape", ()))
    if shape not in ((), (1,)):
        return str(shape)
    if isinstance(value, np.ndarray):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, Sized):
        return str(len(value))
    return ""
