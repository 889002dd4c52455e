"""Counts, seeds and sizes: what must be a whole number is one, or is refused by its name."""

import numpy as np


def whole_number(name: str, value, least: int = 0) -> int:
    """`value` as an int, at least `least`; ValueError naming it for anything else.

    A float without a fraction is one; a truth value and a text are none, though int() takes them.
    """
    try:
        number = None if isinstance(value, bool | np.bool_ | str | bytes) else int(value)
    except (TypeError, ValueError, OverflowError):  # no number at all, NaN, infinity
        number = None
    if number is None or number != value or number < least:
        enough = f"at least {least}" if least else "zero or more"
        raise ValueError(f"{name} = {value!r}; it must be a whole number, {enough}")
    return number
