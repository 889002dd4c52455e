"""How a measured number and its bound are printed: short, but a failure is seen to fail."""

DIGITS = (4, 7, 10, 13, 17)  # significant digits, 17 tell any two numbers apart


def number(value: float) -> str:
    """`value` with four significant digits, as every table of this project prints it."""
    return f"{value:.4g}"


def failing(measured: float | None, bound: str) -> str:
    """A measured value that fails its bound, with the digits that show by how little."""
    if measured is None:
        return "not a number"
    texts = (f"{measured:.{digits}g}" for digits in DIGITS[1:])
    return next((text for text in texts if _breaks(float(text), bound)), repr(measured))


def _breaks(measured: float, bound: str) -> bool:
    """Whether `measured` breaks `bound` as it is printed; True where that is no number."""
    relation, _, rest = bound.partition(" ")
    try:
        if relation in ("≤", "≥"):
            return measured > float(rest) if relation == "≤" else measured < float(rest)
        middle, _, tolerance = bound.partition(" ± ")
        return abs(measured - float(middle)) > float(tolerance)
    except ValueError:
        return True


def stated(form: str, measured: float, holds: bool, *ends: float) -> str:
    """The bound in words: its `ends` in `form` ("≤ {}", "≥ {}" or "{} ± {}").

    Four digits where it holds; where it fails, as many as `measured` needs to break it in print.
    """
    texts = [form.format(*(f"{end:.{digits}g}" for end in ends)) for digits in DIGITS]
    wanted = (text for text in texts if holds or _breaks(measured, text))
    return next(wanted, texts[0])
