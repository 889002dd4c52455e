"""A claim: one statement of a paper, the number measured for it, and its bound."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

# Importing pandas takes half a second, and only a table on a page needs it.
if TYPE_CHECKING:
    import pandas as pd

KINDS = {
    "statement": "the paper's sentence with the paper's constants",
    "form": "the paper's sentence, a constant of ours where the text lost it",
    "finding": "ours, beyond the paper",
}
# The kind of a claim is the first one in this table of which a phrase occurs in the
# claim's source, as whole words. If there is none, the kind is "statement".
_WORDS = {
    "form": ("our constant", "our reading", "our bound"),
    "finding": ("ours", "derived", "independent computation"),
}
FEWEST_SEEDS = 20  # An interval from fewer seeds is marked.
UNFOLDED = 8  # how many rows of a table are shown unfolded
UNDECIDED = "undecided"
VERDICTS = ("reproduced", "not reproduced", UNDECIDED)
HOLDS = "holds"
FAILS = "fails"
NO_POWER = "no power"  # the claim holds, but it also holds in all of its altered copies
# The class of a verdict in HTML, for the colours of the site. Other verdicts have the
# class "holds".
LOOKS = {
    FAILS: "fails",
    "not reproduced": "fails",
    UNDECIDED: "open",
}
# How to read a measured value with an interval, if the claim has a verdict and if it
# has none.
MEANINGS = {
    False: "In a [b, c], the interval is the mean over seeds, or over parts of the"
    " draws, ± two standard errors (for the value of half of the seeds it is a"
    " bootstrap interval). If a is the middle of the interval, it is this mean."
    " Otherwise a is the worst seed, unless the claim names something else, and may"
    " lie outside.",
    True: "If a claim has a verdict, a is the mean over seeds (of ratios the geometric"
    " mean), unless the claim names something else, and [b, c] is its 95 % interval."
    " The number p is the level at which the interval would just decide.",
}
DIGITS = (4, 7, 10, 13, 17)  # significant digits; with 17, any two numbers differ


@dataclass(frozen=True)
class Claim:
    """One checked claim: a statement, a measured value, and a bound on this value.

    Parameters
    ----------
    id : str
        The name of the claim within its figure.
    statement : str
        What is claimed, in words.
    source : str
        Where the claim is stated, such as "paper A, Theorem 1", or "ours".
    measured : float
        The measured value.
    bound : str
        What is required of `measured`, as text such as "≥ 0.11".
    holds : bool
        Whether `measured` satisfies the bound. A NaN never does.
    margin : float, optional
        The factor by which the measured value (for "±" its absolute deviation) could
        grow or shrink before the claim fails. It is 1 if the claim just holds, infinite
        if no factor makes the claim fail, and below 1 if the claim fails. It is NaN if
        it is not known.
    kind : str, optional
        One of `KINDS`. By default it follows from the words in `source`.
    interval : tuple of float, optional
        The ends of the interval that was computed from the seeds.
    number : str, optional
        In a ledger, the name of the statement in the paper.
    setting : str, optional
        In a ledger, the setting in which the value was measured.
    seeds : int, optional
        How many seeds there were, in a ledger or for a claim with a verdict.
    remark : str, optional
        Why the claim fails, or another remark on it.
    fails_if : tuple of str, optional
        In a ledger, the altered copies of the experiment (negative controls) in which
        the claim must fail.
    catches : tuple of str, optional
        The smallest altered copy of each family in which the claim was observed to
        fail. It is None until ``make falsify`` has been run.
    verdict : str, optional
        One of `VERDICTS`, for a claim that the data may be too few to decide. It is
        empty for most claims, which simply hold or fail.
    p : float, optional
        The p value: the smallest α for which the interval at level 1 - α decides the
        claim.
    same_as : str, optional
        The id, without the setting, of another claim whose measurement this claim
        repeats: the measured value is a copy of the other one, or follows from it by
        our own formulas. A ledger counts the two claims as one measurement.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.Claim("gap", "largest gap", "paper A", 0.5, "≤ 1", holds=True)
    >>> claim.kind
    'statement'
    >>> claim.as_dict()["margin"] is None
    True
    """

    id: str
    statement: str
    source: str
    measured: float
    bound: str
    holds: bool
    margin: float = math.nan
    kind: str = ""
    interval: tuple[float, float] | None = None
    number: str = ""
    setting: str = ""
    seeds: int | None = None
    remark: str = ""
    fails_if: tuple[str, ...] = ()
    catches: tuple[str, ...] | None = None
    verdict: str = ""
    p: float | None = None
    same_as: str = ""

    def __post_init__(self) -> None:
        read = [
            k
            for k, words in _WORDS.items()
            if any(re.search(rf"\b{word}\b", self.source) for word in words)
        ]
        object.__setattr__(self, "kind", self.kind or (*read, "statement")[0])

    def as_dict(self) -> dict:
        """Return the claim as a record stores it.

        Returns
        -------
        dict
            The fields by name. A `measured` that is NaN is None, and an infinite one is
            the text "inf" or "-inf". A `margin` that is NaN or infinite is None. In an
            `interval`, one infinite end is stored as such a text. An interval without a
            finite end or with a NaN is left out, and so are all other fields that have
            their default.

        Raises
        ------
        ValueError
            If `p` is NaN or infinite. The message names the claim.
        """
        default = {field.name: field.default for field in fields(self)}
        stored = {name: x for name, x in asdict(self).items() if x != default[name]}
        stored["measured"] = _as_json(self.measured)
        stored["margin"] = self.margin if math.isfinite(self.margin) else None
        if self.interval is not None:
            ends = tuple(_as_json(end) for end in self.interval)
            if None in ends or not any(map(math.isfinite, self.interval)):
                # There were too few runs, or they were too short.
                del stored["interval"]
            else:
                stored["interval"] = ends
        if self.p is not None and not math.isfinite(self.p):
            raise ValueError(
                f"claim {self.id!r}: its p is {self.p}; expected a finite number, or "
                "None if there is no p"
            )
        return stored

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Claim":
        """Make a claim from the form in which a record stores it.

        Parameters
        ----------
        stored : mapping of str to Any
            The fields by name, as `as_dict` returns them or as JSON has them.

        Returns
        -------
        Claim
            The claim. A `measured` or `margin` that is stored as None becomes NaN, an
            infinity that is stored as a text becomes a number, and a list becomes a
            tuple.

        Raises
        ------
        TypeError
            If a field is missing or unknown.
        """
        known: dict[str, Any] = {}
        for name, x in stored.items():
            if x is None and name in ("measured", "margin"):
                known[name] = math.nan
            elif name == "measured":
                known[name] = value_of(x)
            elif name == "interval" and isinstance(x, list | tuple):
                known[name] = tuple(map(value_of, x))
            elif isinstance(x, list):  # JSON has no tuples
                known[name] = tuple(x)
            else:
                known[name] = x
        return cls(**known)


def _as_json(value: float) -> float | str | None:
    """Return a number as a record stores it: None for NaN, a text for an infinity."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return str(float(value))
    return value


def value_of(stored: Any) -> Any:
    """Return a measured value from the form in which a record stores it.

    Parameters
    ----------
    stored : Any
        The stored value.

    Returns
    -------
    Any
        The infinite number if the value is "inf" or "-inf", because JSON has no
        infinities; otherwise the value as it is.

    Examples
    --------
    >>> from companion import claims
    >>> claims.value_of("inf"), claims.value_of(0.5)
    (inf, 0.5)
    """
    if isinstance(stored, str) and stored in ("inf", "-inf"):
        return float(stored)
    return stored


# Making claims.


def at_most(
    id: str, statement: str, source: str, measured: float, bound: float, **more: Any
) -> Claim:
    """Claim that `measured` is at most `bound`.

    Parameters
    ----------
    id, statement, source : str
        The name, text and origin of the claim, as in the fields of `Claim`.
    measured : float
        The measured value.
    bound : float
        The largest value for which the claim holds.
    **more : Any
        Further fields of `Claim`, and `why`. If the claim fails, `why` takes the place
        of `remark`.

    Returns
    -------
    Claim
        The claim that measured ≤ bound.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> claim.bound, claim.holds, claim.margin
    ('≤ 1', True, 2.0)
    >>> claims.at_most("gap", "gap", "ours", 2.0, 1.0, why="too few steps").remark
    'too few steps'
    """
    return _claim("≤", id, statement, source, measured, bound, **more)


def at_least(
    id: str, statement: str, source: str, measured: float, bound: float, **more: Any
) -> Claim:
    """Claim that `measured` is at least `bound`.

    Parameters
    ----------
    id, statement, source : str
        The name, text and origin of the claim, as in the fields of `Claim`.
    measured : float
        The measured value.
    bound : float
        The smallest value for which the claim holds.
    **more : Any
        Further fields of `Claim`, and `why`, the remark of a claim that fails.

    Returns
    -------
    Claim
        The claim that measured ≥ bound.

    Examples
    --------
    >>> from companion import claims
    >>> claims.at_least("rank", "smallest rank", "paper C, Lemma 2", 3, 2).bound
    '≥ 2'
    """
    return _claim("≥", id, statement, source, measured, bound, **more)


def close(
    id: str,
    statement: str,
    source: str,
    measured: float,
    expected: float,
    tolerance: float,
    **more: Any,
) -> Claim:
    """Claim that `measured` equals `expected` up to `tolerance`.

    Parameters
    ----------
    id, statement, source : str
        The name, text and origin of the claim, as in the fields of `Claim`.
    measured : float
        The measured value.
    expected : float
        The value that the source states.
    tolerance : float
        The largest |measured - expected|, in the units of the measured value.
    **more : Any
        Further fields of `Claim`, and `why`, the remark of a claim that fails.

    Returns
    -------
    Claim
        The claim that |measured - expected| ≤ tolerance.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.close("slope", "fitted slope", "paper A", -1.02, -1.0, 0.1)
    >>> claim.bound, claim.holds
    ('-1 ± 0.1', True)
    """
    return _claim("±", id, statement, source, measured, expected, tolerance, **more)


def _claim(
    sign: str,
    id: str,
    statement: str,
    source: str,
    measured: float,
    *ends: float,
    why: str = "",
    **more: Any,
) -> Claim:
    """Return a claim whose bound has the sign "≤", "≥" or "±" and the numbers `ends`.

    `ends` is the bound or, for "±", the expected value and the tolerance. If the claim
    fails, `why` becomes the remark of the claim, and the text of the bound has enough
    digits to show the failure.
    """
    measured = float(measured)
    expected = float(ends[0])
    smaller, larger = {
        "≤": (measured, expected),
        "≥": (expected, measured),
        "±": (abs(measured - expected), float(ends[-1])),
    }[sign]
    holds = smaller <= larger
    if why and not holds:
        more["remark"] = why
    if sign == "±":
        form = "{} ± {}"
    else:
        form = sign + " {}"
    texts = [form.format(*(f"{end:.{digits}g}" for end in ends)) for digits in DIGITS]
    # Use the fewest digits with which a failure is visible.
    bound = next((text for text in texts if holds or _breaks(measured, text)), texts[0])
    return Claim(
        id=id,
        statement=statement,
        source=source,
        measured=measured,
        bound=bound,
        holds=holds,
        margin=_times_over(smaller, larger),
        **more,
    )


def judged(
    id: str,
    statement: str,
    source: str,
    estimate: tuple[float, float, float],
    bound: str,
    *,
    verdict: str,
    seeds: int,
    p: float | None = None,
) -> Claim:
    """Make a claim with a verdict, from data that may be too few to decide the claim.

    Parameters
    ----------
    id, statement, source : str
        The name, text and origin of the claim, as in the fields of `Claim`.
    estimate : tuple of float
        The measured value and the low and the high end of its interval. If an end is
        NaN, the claim has no interval.
    bound : str
        The requirement, as text.
    verdict : str
        One of `VERDICTS`. The claim holds if the verdict is the first of these,
        "reproduced".
    seeds : int
        How many seeds there were.
    p : float, optional
        The p value: the smallest α for which the interval at level 1 - α decides the
        claim.

    Returns
    -------
    Claim
        The claim with its verdict and its interval.

    Raises
    ------
    ValueError
        If `verdict` is not one of `VERDICTS`.

    Examples
    --------
    >>> from companion import claims
    >>> estimate = 1.4, 1.1, 1.8
    >>> claim = claims.judged(
    ...     "ratio",
    ...     "loss ratio",
    ...     "paper A",
    ...     estimate,
    ...     "≥ 1",
    ...     verdict="reproduced",
    ...     seeds=20,
    ... )
    >>> claim.holds, claim.interval
    (True, (1.1, 1.8))
    """
    if verdict not in VERDICTS:
        raise ValueError(
            f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}"
        )
    measured, low, high = map(float, estimate)
    if math.isnan(low) or math.isnan(high):
        ends = None
    else:
        ends = (low, high)
    return Claim(
        id=id,
        statement=statement,
        source=source,
        measured=measured,
        bound=bound,
        holds=verdict == VERDICTS[0],
        interval=ends,
        seeds=seeds,
        verdict=verdict,
        p=p,
    )


def remarked(claim: Claim, why: str) -> Claim:
    """Give a claim a remark if it fails.

    Parameters
    ----------
    claim : Claim
        The claim.
    why : str
        Why it fails.

    Returns
    -------
    Claim
        The same claim if it holds; otherwise the claim with `why` in place of its
        remark.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 2.0, 1.0)
    >>> claims.remarked(claim, "the step size is too large").remark
    'the step size is too large'
    """
    if claim.holds:
        return claim
    return replace(claim, remark=why)


def furthest(values: np.ndarray, expected: float = 0.0) -> float:
    """Select the value that is furthest from the expected one.

    Parameters
    ----------
    values : ndarray
        The values, of any shape.
    expected : float, optional
        The value from which the distance is measured.

    Returns
    -------
    float
        The value with the largest |value - expected|, or the first of several in a tie.
        It is NaN if there are no values or one of them is NaN.

    Examples
    --------
    >>> from companion import claims
    >>> claims.furthest(np.array([0.9, 1.3, 1.0]), 1.0)
    1.3
    """
    values = np.ravel(values)
    if values.size:
        return float(values[np.abs(values - expected).argmax()])
    return math.nan


def bounded(
    id: str,
    statement: str,
    source: str,
    bound: str,
    values: Any,
    expected: float | None = None,
    **more: Any,
) -> Claim:
    """Claim that the worst of some values meets a bound.

    Parameters
    ----------
    id, statement, source : str
        The name, text and origin of the claim, as in the fields of `Claim`.
    bound : str
        The bound as text: "≤ 1", "≥ 0.5" or "1 ± 0.05".
    values : array_like
        The measured values, of any shape. If one of them is NaN, the claim fails.
    expected : float, optional
        The number that replaces the first number in `bound`.
    **more : Any
        Further fields of `Claim`, and `why`, the remark of a claim that fails.

    Returns
    -------
    Claim
        The claim. It is about the largest value for "≤", about the smallest value for
        "≥", and about the value furthest from the middle for "±".

    Raises
    ------
    ValueError
        If the bound has another form, or if there are no values for "≤" or "≥".

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.bounded("gap", "gap, worst seed", "ours", "≤ 1", [0.2, 0.5])
    >>> claim.measured, claim.holds
    (0.5, True)
    """
    (sign,) = set(bound) & set("≤≥±")
    ends = [float(end) for end in bound.split(sign) if end]
    if expected is not None:
        ends[0] = expected
    worst = {"≤": np.max, "≥": np.min, "±": lambda values: furthest(values, ends[0])}[
        sign
    ]
    return _claim(sign, id, statement, source, worst(values), *ends, **more)


def interval(values: ArrayLike) -> tuple[float, float]:
    """Return the mean of some values plus and minus two standard errors.

    Parameters
    ----------
    values : array_like
        The values, one per seed; at least one.

    Returns
    -------
    tuple of float
        The low and the high end. They are NaN if there is only one seed, or if a value
        is NaN.

    Examples
    --------
    >>> from companion import claims
    >>> claims.interval([1.0, 3.0])
    (0.0, 4.0)
    """
    values = np.asarray(values, float).ravel()
    if values.size > 1:
        error = values.std(ddof=1) / math.sqrt(values.size)
    else:
        error = math.nan
    return float(values.mean() - 2 * error), float(values.mean() + 2 * error)


def _times_over(smaller: float, larger: float) -> float:
    """Return the factor by which `smaller` could change before it exceeds `larger`.

    The factor is larger / smaller for positive numbers, and smaller / larger for
    negative ones. If the signs differ or one number is zero, it is infinite if
    `smaller` ≤ `larger`, and 0 otherwise. It is NaN if one number is NaN, or if both
    numbers are infinite with the same sign.
    """
    if math.isnan(smaller) or math.isnan(larger):
        return math.nan
    if smaller > 0 and larger > 0:
        return larger / smaller
    if smaller < 0 and larger < 0:
        return smaller / larger
    if smaller <= larger:
        return math.inf
    return 0.0


# Claims in words.


def number(value: float) -> str:
    """Write a value with four significant digits.

    Parameters
    ----------
    value : float
        The value.

    Returns
    -------
    str
        Its text.

    Examples
    --------
    >>> from companion import claims
    >>> claims.number(0.123456)
    '0.1235'
    """
    return f"{value:.4g}"


def _breaks(measured: float | str, bound: str) -> bool:
    """Return whether `measured`, a number or its printed text, violates `bound`.

    The bound is the text "≤ x", "≥ x" or "m ± tolerance". A number that is equal to the
    bound does not violate it. The result is also True if a number cannot be read or is
    NaN.
    """
    relation, _, rest = bound.partition(" ")
    # Decimals are exact, whereas in float64 the distance of -1.1 from -1 is more than
    # 0.1.
    try:
        value = Decimal(str(measured))
        if relation in ("≤", "≥"):
            if relation == "≤":
                return value > Decimal(rest)
            return value < Decimal(rest)
        middle, _, tolerance = bound.partition(" ± ")
        return abs(value - Decimal(middle)) > Decimal(tolerance)
    except InvalidOperation:
        return True


def shown(claim: Claim) -> str:
    """Write the measured value of a claim, with its interval in brackets.

    Parameters
    ----------
    claim : Claim
        The claim.

    Returns
    -------
    str
        The text; `legend` explains the number and the brackets. If the claim fails and
        has no verdict, the number has enough digits to show the failure, and a NaN is
        "not a number". If there are fewer seeds than `FEWEST_SEEDS`, the text says how
        many.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.at_most(
    ...     "gap", "largest gap", "ours", 0.5, 1.0, interval=(0.4, 0.6), seeds=3
    ... )
    >>> claims.shown(claim)
    '0.5 [0.4, 0.6, 3 seeds only]'
    """
    measured = claim.measured
    text = number(claim.measured)
    if not (claim.holds or claim.verdict):  # Use enough digits to show the failure.
        texts = (f"{measured:.{digits}g}" for digits in DIGITS[1:])
        text = next(
            (each for each in texts if _breaks(each, claim.bound)), repr(measured)
        )
        if math.isnan(measured):
            text = "not a number"
    if claim.interval is None:
        return text
    if (claim.seeds or FEWEST_SEEDS) >= FEWEST_SEEDS:
        few = ""
    else:
        few = f", {claim.seeds} seeds only"
    level = "" if claim.p is None else f", p {claim.p:.2g}"
    return (
        f"{text} [{number(claim.interval[0])}, {number(claim.interval[1])}{few}]{level}"
    )


def legend(claims: Iterable[Claim]) -> str:
    """Explain the number and the brackets that `shown` writes.

    Parameters
    ----------
    claims : iterable of Claim
        The claims that are shown.

    Returns
    -------
    str
        The meaning of each kind of interval among the claims. It is empty if no claim
        has an interval.
    """
    kinds = {bool(claim.verdict) for claim in claims if claim.interval is not None}
    return " ".join(MEANINGS[kind] for kind in sorted(kinds))


def held(claims: Iterable[Mapping]) -> str:
    """Count the claims of a record that hold, in words.

    Parameters
    ----------
    claims : iterable of mapping
        The claims as the record stores them.

    Returns
    -------
    str
        How many claims hold, and how many there are. Undecided claims are counted
        separately.

    Examples
    --------
    >>> from companion import claims
    >>> claims.held([{"holds": True}, {"holds": False, "verdict": "undecided"}])
    '1 of 2, 1 undecided'
    """
    claims = list(claims)
    undecided = sum(claim.get("verdict") == UNDECIDED for claim in claims)
    text = f"{sum(claim['holds'] is True for claim in claims)} of {len(claims)}"
    if undecided:
        text += f", {undecided} undecided"
    return text


def verdict(claim: Claim) -> str:
    """Return the verdict on a claim, in words.

    Parameters
    ----------
    claim : Claim
        The claim.

    Returns
    -------
    str
        The claim's own verdict, one of `VERDICTS`, if it has one; otherwise `HOLDS`,
        `FAILS` or `NO_POWER`.

    Examples
    --------
    >>> from companion import claims
    >>> claims.verdict(claims.at_most("gap", "largest gap", "ours", 0.5, 1.0))
    'holds'
    """
    if claim.verdict:
        return claim.verdict
    if not claim.holds:
        return FAILS
    if claim.fails_if and claim.catches is not None and not claim.catches:
        return NO_POWER
    return HOLDS


def in_words(claim: Claim) -> dict[str, str]:
    """Return the row of `frame` for one claim, as text.

    Parameters
    ----------
    claim : Claim
        The claim.

    Returns
    -------
    dict of str to str
        The text for each column of `frame`, by the name of the column.
    """
    if not claim.seeds:
        seeds = ""
    elif claim.seeds == 1:
        seeds = "1 seed"
    else:
        seeds = f"{claim.seeds} seeds"
    if claim.fails_if and claim.catches == ():
        detects = "nothing it names"
    else:
        detects = ", ".join(claim.catches or ())
    return {
        "id": claim.id,
        "claim": claim.statement,
        "source": claim.source,
        "setting": ", ".join(filter(None, (claim.setting, seeds))),
        "required": claim.bound,
        "measured": shown(claim),
        "detects": detects,
        "verdict": verdict(claim),
        "remark": claim.remark,
    }


def frame(claims: Iterable[Claim]) -> "pd.DataFrame":
    """Arrange claims as a table of words.

    Parameters
    ----------
    claims : iterable of Claim
        The claims, in the order of the rows.

    Returns
    -------
    pandas.DataFrame
        One row per claim. The columns are `id`; `claim`, the quantity that is measured;
        `source`, the paper's statement, or "ours"; `setting`, with the number of seeds;
        `required`, the bound; `measured`, the value with its interval; `detects`, the
        smallest altered copies in which the claim was observed to fail; `verdict`; and
        `remark`, which says why a claim fails. A column that is empty in every row is
        left out.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> claims.frame([claim]).loc[0, "verdict"]
    'holds'
    """
    import pandas as pd

    table = pd.DataFrame([in_words(claim) for claim in claims], dtype=object)
    return table.loc[:, (table != "").any()]


def html(table: "pd.DataFrame", text: Callable[[str], str] = escape) -> str:
    """Write a table as HTML, so that claims look the same on a page and on the site.

    Parameters
    ----------
    table : pandas.DataFrame
        The table. Its cells are plain text. Cells of a column `verdict` are marked with
        the class in `LOOKS`.
    text : callable, optional
        A function that turns a cell into HTML. The site passes one that also typesets
        formulas.

    Returns
    -------
    str
        A ``<table>`` element.

    Examples
    --------
    >>> from companion import claims
    >>> claim = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> table = claims.html(claims.frame([claim]))
    >>> '<span class="verdict holds">holds</span>' in table
    True
    """
    import pandas as pd

    cells = table.map(text)
    if "verdict" in table:
        cells["verdict"] = [
            f'<span class="verdict {LOOKS.get(word, "holds")}">{text(word)}</span>'
            for word in table["verdict"]
        ]
    with pd.option_context("display.max_colwidth", None):
        return cells.to_html(index=False, border=0, justify="left", escape=False)


def markdown(words: str) -> str:
    """Write a text of a record as Markdown in which no HTML tag can begin.

    Formulas and other Markdown stay as they are.

    Parameters
    ----------
    words : str
        The text: a caption, or the text of a claim.

    Returns
    -------
    str
        The text, with a space after each ``<`` that could open a tag. A backslash would
        spoil a formula such as ``$a<b$``; a space does not.

    Examples
    --------
    >>> from companion import claims
    >>> claims.markdown("<script>, $a<b$ and 1 < 2")
    '< script>, $a< b$ and 1 < 2'
    """
    return re.sub("<(?=[A-Za-z/!?])", "< ", words)


def folded(summary: str, content: str) -> str:
    """Fold HTML behind a line on which a reader clicks to open it.

    Parameters
    ----------
    summary : str
        The line, as HTML.
    content : str
        The HTML that is folded.

    Returns
    -------
    str
        A ``<details>`` element.

    Examples
    --------
    >>> from companion import claims
    >>> claims.folded("more", "<p>text</p>")
    '<details><summary>more</summary><p>text</p></details>'
    """
    return f"<details><summary>{summary}</summary>{content}</details>"


class Table(tuple):
    """Claims as a notebook shows them.

    The table shows one sentence, then the claims that fail or have a verdict, and then,
    folded, all other claims. As plain text it consists of the sentence and one line for
    each claim that fails.

    Parameters
    ----------
    iterable : iterable of Claim
        The claims.

    Examples
    --------
    >>> from companion import claims
    >>> good = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> bad = claims.at_least("rank", "rank", "ours", 1, 2, why="too few steps")
    >>> claims.Table([good, bad])
    1 of 2 claims hold; not: rank
    rank: 1, required ≥ 2; fails: too few steps
    """

    def __repr__(self) -> str:
        lines = [self.summary()]
        for claim in self:
            if claim.holds:
                continue
            row = in_words(claim)
            compared = f"{row['measured']}, required {row['required']}"
            line = f"{row['id']}: {compared}; {row['verdict']}"
            if row["remark"]:
                line += f": {row['remark']}"
            lines.append(line)
        return "\n".join(fill(line, 108) for line in lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML.

        First comes the summary, and then come the claims that fail or have a `verdict`,
        with a legend of their intervals. (Most claims have no `verdict`; they simply
        hold or fail.) Of these claims, all rows after the first UNFOLDED ones are
        folded, and so are the claims that hold.
        """
        chosen = [claim for claim in self if claim.verdict or not claim.holds]
        parts = [f"<p>{escape(self.summary())}.</p>"]
        for place in range(0, len(chosen), UNFOLDED):
            table = html(frame(chosen[place : place + UNFOLDED]))
            if place > 0:
                table = folded("more", table)
            parts.append(table)
        explained = legend(chosen)
        if explained:
            parts.append(f"<p>{explained}</p>")
        if quiet := [claim for claim in self if claim not in chosen]:
            parts.append(folded("those that hold", html(frame(quiet))))
        return "".join(parts)

    def words(self) -> str:
        """Write a line for each claim that has a verdict of `VERDICTS`.

        Returns
        -------
        str
            The lines. Each has the verdict, the statement, and the measured value.
        """
        lines = [f"{c.verdict}: {c.statement}: {shown(c)}" for c in self if c.verdict]
        return "\n".join(fill(line, 108, subsequent_indent="    ") for line in lines)

    def summary(self) -> str:
        """Count the claims that hold, and name those that fail or are undecided.

        Returns
        -------
        str
            One line.

        Examples
        --------
        >>> from companion import claims
        >>> good = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
        >>> claims.Table([good]).summary()
        '1 of 1 claims hold'
        """
        undecided = [c.id for c in self if c.verdict == UNDECIDED]
        failed = [c.id for c in self if not c.holds and c.id not in undecided]
        text = f"{sum(c.holds for c in self)} of {len(self)} claims hold"
        if failed:
            text += f"; not: {', '.join(failed)}"
        if undecided:
            text += f"; undecided: {', '.join(undecided)}"
        return text
