"""How a measured number and its bound are printed: short, but a failure is seen to fail."""

import math
from decimal import Decimal, InvalidOperation

DIGITS = (4, 7, 10, 13, 17)  # significant digits, 17 tell any two numbers apart


def number(value: float) -> str:
    """`value` with four significant digits, as every table of this project prints it."""
    return f"{value:.4g}"


def failing(measured: float | None, bound: str) -> str:
    """A measured value that fails its bound, with the digits that show by how little."""
    if measured is None:
        return "not a number"
    texts = (f"{measured:.{digits}g}" for digits in DIGITS[1:])
    return next((text for text in texts if _breaks(text, bound)), repr(measured))


def _breaks(measured: float | str, bound: str) -> bool:
    """Whether `measured` breaks `bound` as both are printed; True where one is no number.

    In decimals: in float64 -1.1 is further than 0.1 from -1.
    """
    relation, _, rest = bound.partition(" ")
    try:
        value = Decimal(str(measured))
        if relation in ("≤", "≥"):
            return value > Decimal(rest) if relation == "≤" else value < Decimal(rest)
        middle, _, tolerance = bound.partition(" ± ")
        return abs(value - Decimal(middle)) > Decimal(tolerance)
    except InvalidOperation:
        return True


def stated(form: str, measured: float, holds: bool, *ends: float) -> str:
    """The bound in words: its `ends` in `form` ("≤ {}", "≥ {}" or "{} ± {}").

    Four digits where it holds; where it fails, as many as `measured` needs to break it in print.
    """
    texts = [form.format(*(f"{end:.{digits}g}" for end in ends)) for digits in DIGITS]
    wanted = (text for text in texts if holds or _breaks(measured, text))
    return next(wanted, texts[0])


def times_over(smaller: float, larger: float) -> float:
    """The larger number over the smaller in size, where both have one sign.

    Where they have not: infinity if `smaller` ≤ `larger`, else 0.
    """
    if not smaller * larger > 0:
        return math.nan if math.isnan(smaller * larger) else math.inf if smaller <= larger else 0.0
    return larger / smaller if larger > 0 else smaller / larger
