"""A claim: one statement of a paper, the number measured for it, and the bound that theory sets.

A number is printed with four digits; one that fails its bound with as many as show the failure.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from html import escape
from textwrap import fill

import numpy as np

KINDS = {
    "statement": "the paper's sentence with the paper's constants",
    "form": "the paper's sentence, a constant of ours where the text lost it",
    "finding": "ours, beyond the paper",
}
FEWEST_SEEDS = 20  # an interval from fewer is marked
OPEN = 8  # so many rows of a table are shown without a click
UNDECIDED = "undecided"
VERDICTS = ("reproduced", "not reproduced", UNDECIDED)
DIGITS = (4, 7, 10, 13, 17)  # significant digits; 17 tell any two numbers apart


@dataclass(frozen=True)
class Claim:
    """One checked claim.

    `bound` is what theory asks of `measured`, as text ("≥ 0.11"); `holds` is the verdict, never
    true of a NaN. `margin` is how many times over the bound is met: 1 at the edge, infinite where
    no multiple breaks it. `kind` is one of KINDS, by default read off `source`. `interval` holds
    the ends of what the seeds gave.

    A row of a ledger also has the `number` of its statement, its `setting` and number of `seeds`,
    the families of wrong worlds in which it must fail (`fails_if`), and the smallest world of each
    in which it was seen to fail (`catches`; None before `make falsify`).

    A claim about data that may be too few has a `verdict` of VERDICTS and holds if that is the
    first; `p` is the level at which its interval would just decide.
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

    def __post_init__(self):
        object.__setattr__(self, "kind", self.kind or _kind(self.source))

    def as_dict(self) -> dict:
        """The claim as a record stores it: NaN and infinity as null, defaults left out."""
        default = {field.name: field.default for field in fields(self)}
        stored = {
            name: value
            for name, value in asdict(self).items()
            if name == "margin" or default[name] is MISSING or value != default[name]
        }
        for name in ("measured", "margin"):
            stored[name] = stored[name] if math.isfinite(stored[name]) else None
        if not all(map(math.isfinite, stored.get("interval") or ())):
            del stored["interval"]  # the runs were too few or too short
        return stored


def _kind(source: str) -> str:
    if any(word in source for word in ("our constant", "our reading", "our bound")):
        return "form"
    finding = ("ours", "derived", "independent computation")
    return "finding" if any(word in source for word in finding) else "statement"


# Making claims.


def at_most(id: str, statement: str, source: str, measured: float, bound: float, **more) -> Claim:
    """The claim measured ≤ bound; `more` are further fields of `Claim`."""
    measured, holds = float(measured), bool(measured <= bound)
    text, margin = _stated("≤ {}", measured, holds, bound), _times_over(measured, float(bound))
    return Claim(id, statement, source, measured, text, holds=holds, margin=margin, **more)


def at_least(id: str, statement: str, source: str, measured: float, bound: float, **more) -> Claim:
    """The claim measured ≥ bound; `more` are further fields of `Claim`."""
    measured, holds = float(measured), bool(measured >= bound)
    text, margin = _stated("≥ {}", measured, holds, bound), _times_over(float(bound), measured)
    return Claim(id, statement, source, measured, text, holds=holds, margin=margin, **more)


def close(
    id: str, statement: str, source: str, measured: float, expected: float, tolerance: float, **more
) -> Claim:
    """The claim |measured - expected| ≤ tolerance, in the units of the measured value."""
    measured, off = float(measured), abs(float(measured) - expected)
    holds = bool(off <= tolerance)
    text = _stated("{} ± {}", measured, holds, expected, tolerance)
    margin = _times_over(off, float(tolerance))
    return Claim(id, statement, source, measured, text, holds=holds, margin=margin, **more)


def every_close(
    id: str, statement: str, source: str, values: np.ndarray, expected: float, tolerance: float
) -> Claim:
    """`close` of the furthest of the `values`, one a seed, with the `interval` of their mean."""
    worst, ends = furthest(values, expected), interval(values)
    return close(id, statement, source, worst, expected, tolerance, interval=ends)


def judged(
    id: str,
    statement: str,
    source: str,
    estimate: tuple[float, float, float],
    bound: str,
    verdict: str,
    seeds: int,
    p: float | None = None,
) -> Claim:
    """A claim whose `verdict` was read off an interval; `estimate` is (measured, low, high).

    An end of the interval may be infinite. ValueError for a word not in VERDICTS.
    """
    if verdict not in VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}")
    measured, *ends = map(float, estimate)
    known = None if any(map(math.isnan, ends)) else tuple(ends)
    more = dict(holds=verdict == VERDICTS[0], interval=known, seeds=seeds, verdict=verdict, p=p)
    return Claim(id, statement, source, measured, bound, **more)


def remarked(claim: Claim, why: str) -> Claim:
    """The claim, with `why` as its remark where it fails."""
    return claim if claim.holds else replace(claim, remark=why)


def furthest(values: np.ndarray, expected: float = 0.0) -> float:
    """The value, of any shape, that is furthest from `expected`; NaN where there is none."""
    values = np.ravel(values)
    return float(values[np.abs(values - expected).argmax()]) if values.size else math.nan


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean of `values`, one a seed, less and plus two standard errors; NaN ends for one seed."""
    values = np.asarray(values, float).ravel()
    error = values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else math.nan
    return float(values.mean() - 2 * error), float(values.mean() + 2 * error)


def _times_over(smaller: float, larger: float) -> float:
    """The larger number over the smaller in size, where both have one sign.

    Where they have not: infinity if `smaller` ≤ `larger`, else 0.
    """
    if not smaller * larger > 0:
        return math.nan if math.isnan(smaller * larger) else math.inf if smaller <= larger else 0.0
    return larger / smaller if larger > 0 else smaller / larger


# Claims in words.


def number(value: float) -> str:
    """`value` with four significant digits."""
    return f"{value:.4g}"


def failing(measured: float | None, bound: str) -> str:
    """A measured value that fails its bound, with the digits that show by how little."""
    if measured is None:
        return "not a number"
    texts = (f"{measured:.{digits}g}" for digits in DIGITS[1:])
    return next((text for text in texts if _breaks(text, bound)), repr(measured))


def _stated(form: str, measured: float, holds: bool, *ends: float) -> str:
    """The bound in words: its `ends` in `form`, with digits enough that a failure is seen."""
    texts = [form.format(*(f"{end:.{digits}g}" for end in ends)) for digits in DIGITS]
    return next((text for text in texts if holds or _breaks(measured, text)), texts[0])


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


def shown(claim: Claim) -> str:
    """The measured value and its interval in brackets; `legend` says what the two are."""
    plain = claim.holds or claim.verdict
    text = number(claim.measured) if plain else failing(claim.measured, claim.bound)
    if claim.interval is None:
        return text
    few = "" if (claim.seeds or FEWEST_SEEDS) >= FEWEST_SEEDS else f", {claim.seeds} seeds only"
    level = "" if claim.p is None else f", p {claim.p:.2g}"
    return f"{text} [{number(claim.interval[0])}, {number(claim.interval[1])}{few}]{level}"


def legend(claims: Iterable[Claim]) -> str:
    """The meaning of the number and the brackets of `shown`, for those that `claims` have."""
    meanings = {
        False: "a [b, c]: the worst seed, or what the row names, and the mean over seeds less and"
        " plus two standard errors, so that a may lie outside",
        True: "a [b, c] of a row with a verdict: the mean over seeds, of ratios the geometric mean,"
        " or what the row names, and its 95 % interval; p: the level at which the interval would"
        " just decide",
    }
    kinds = {bool(claim.verdict) for claim in claims if claim.interval is not None}
    return "; ".join(meanings[kind] for kind in sorted(kinds))


def held(claims: Iterable[Mapping]) -> str:
    """How many claims of a record hold, in words, those that the data leave open apart."""
    claims = list(claims)
    undecided = sum(claim.get("verdict") == UNDECIDED for claim in claims)
    text = f"{sum(claim['holds'] is True for claim in claims)} of {len(claims)}"
    return text + (f", {undecided} undecided" if undecided else "")


def counts(claims: Iterable[Claim]) -> str:
    """How many statements, forms and findings hold, in words; findings last."""
    claims = list(claims)
    holds = {kind: [c.holds for c in claims if c.kind == kind] for kind in KINDS}
    return ", ".join(f"{sum(row)} of {len(row)} {kind}s" for kind, row in holds.items() if row)


def html_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of plain text as a notebook shows it."""
    head, *body = (map(escape, row) for row in (columns, *rows))
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{lines}</table>"


class Table(tuple):
    """Claims in a notebook: one sentence, then what fails or was judged; its record has all rows.

    As plain text only the sentence and what fails, with its reason.
    """

    _columns = ("id", "statement", "measured", "theory", "holds")

    def _row(self, claim: Claim) -> tuple[str, ...]:
        verdict = claim.verdict or ("yes" if claim.holds else "NO")
        verdict += f": {claim.remark}" if claim.remark and not claim.holds else ""
        return claim.id, claim.statement, shown(claim), claim.bound, verdict

    def __repr__(self) -> str:
        rows = [self._row(claim) for claim in self if not claim.holds]
        failures = [f"{row[0]}: {row[2]}, theory {row[3]}; {row[4]}" for row in rows]
        return "\n".join([self.summary(), *failures])

    def _repr_html_(self) -> str:
        open_rows = [claim for claim in self if claim.verdict or not claim.holds]
        parts = [f"<p>{escape(self.summary())}.</p>"]
        for place in range(0, len(open_rows), OPEN):
            table = html_table(self._columns, map(self._row, open_rows[place : place + OPEN]))
            parts.append(f"<details><summary>more</summary>{table}</details>" if place else table)
        return "".join(parts) + (f"<p>{legend(open_rows)}</p>" if open_rows else "")

    def words(self) -> str:
        """A line for each claim that was judged: its verdict, then what was measured."""
        lines = [f"{c.verdict}: {c.statement}: {shown(c)}" for c in self if c.verdict]
        return "\n".join(fill(line, 108, subsequent_indent="    ") for line in lines)

    def summary(self) -> str:
        """One line that counts the claims that hold, and names those that fail or wait."""
        undecided = [c.id for c in self if c.verdict == UNDECIDED]
        failed = [c.id for c in self if not c.holds and c.id not in undecided]
        text = f"{sum(c.holds for c in self)} of {len(self)} claims hold"
        text += f"; not: {', '.join(failed)}" if failed else ""
        return text + (f"; undecided: {', '.join(undecided)}" if undecided else "")
