"""A claim: one statement of a paper, the number measured for it, and the bound that theory sets."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from html import escape

import numpy as np

from lib.companion.digits import failing, number, stated, times_over

KINDS = {  # what a claim is
    "statement": "the paper's sentence with the paper's constants",
    "form": "the paper's sentence, a constant of ours where the text lost it",
    "finding": "ours, beyond the paper",
}
FEWEST_SEEDS = 20  # an interval from fewer is told as such
UNFOLDED = 6  # so many rows that hold are shown without a click
UNDECIDED = "undecided"
VERDICTS = ("reproduced", "not reproduced", UNDECIDED)


@dataclass(frozen=True)
class Claim:
    """One checked claim.

    `bound` is what theory asks of `measured`, as text with its relation ("≥ 0.11"); `holds` is the
    verdict; `margin` is how many times over the bound is met, 1 at the edge, infinite where no
    multiple breaks it. A measured value that is not a number never holds. `kind` is one of KINDS,
    read off `source` where it is not given. `interval` holds the ends of what the seeds gave.

    A row of a ledger also has the `number` of its statement, its `setting` and number of `seeds`,
    the families of wrong worlds in which it must fail (`fails_if`) and the smallest world of each
    in which it was seen to (`catches`, None until `make falsify` has run it).

    A claim about data that may be too few says its `verdict`, one of VERDICTS, and holds if that is
    the first; `p` is the level at which its interval would just decide.
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
        object.__setattr__(self, "kind", self.kind or kind(self.source))
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r}: choose one of {', '.join(KINDS)}")

    def as_dict(self) -> dict:
        """The claim as a figure record stores it, without what it does not have.

        A NaN or infinity becomes null, as JSON asks.
        """
        default = {field.name: field.default for field in fields(self)}
        kept = {
            name: value
            for name, value in asdict(self).items()
            if name == "margin" or default[name] is MISSING or value != default[name]
        }
        for name in ("measured", "margin"):
            kept[name] = kept[name] if math.isfinite(kept[name]) else None
        if not all(map(math.isfinite, kept.get("interval") or ())):
            del kept["interval"]  # of runs too few or too short to have one
        return kept


def kind(source: str) -> str:
    """The kind of claim that a source names: "(our constant)" or "(our reading)" marks a form."""
    if any(word in source for word in ("our constant", "our reading", "our bound")):
        return "form"
    own = ("ours", "derived", "independent computation")
    return "finding" if any(word in source for word in own) else "statement"


def shown(claim: Claim) -> str:
    """The measured value; of a failing claim with the digits that show by how little it fails.

    Its interval follows in brackets; `legend` says what the two are.
    """
    plain = claim.holds or claim.verdict
    text = number(claim.measured) if plain else failing(claim.measured, claim.bound)
    if claim.interval is None:
        return text
    few = "" if (claim.seeds or FEWEST_SEEDS) >= FEWEST_SEEDS else f", {claim.seeds} seeds only"
    level = "" if claim.p is None else f", p {claim.p:.2g}"
    return f"{text} [{number(claim.interval[0])}, {number(claim.interval[1])}{few}]{level}"


def legend(claims: Iterable[Claim]) -> str:
    """What the number and the brackets of `shown` are, for those that the `claims` have."""
    kinds = {bool(claim.verdict) for claim in claims if claim.interval is not None}
    said = {
        False: "a [b, c]: the worst seed, or what the row names, and the mean over seeds less and"
        " plus two standard errors, so that a may lie outside",
        True: "a [b, c] of a row with a verdict: the mean over seeds, of ratios the geometric mean,"
        " or what the row names, and its 95 % interval; p: the level at which the interval would"
        " just decide",
    }
    return "; ".join(said[kind] for kind in sorted(kinds))


def at_most(id: str, statement: str, source: str, measured: float, bound: float, **more) -> Claim:
    """The claim measured ≤ bound; `more` are further fields of `Claim`."""
    measured, holds = float(measured), bool(measured <= bound)
    text, times = stated("≤ {}", measured, holds, bound), times_over(measured, float(bound))
    return Claim(id, statement, source, measured, text, holds=holds, margin=times, **more)


def at_least(id: str, statement: str, source: str, measured: float, bound: float, **more) -> Claim:
    """The claim measured ≥ bound; `more` are further fields of `Claim`."""
    measured, holds = float(measured), bool(measured >= bound)
    text, times = stated("≥ {}", measured, holds, bound), times_over(float(bound), measured)
    return Claim(id, statement, source, measured, text, holds=holds, margin=times, **more)


def remarked(claim: Claim, why: str) -> Claim:
    """The claim, with `why` it fails as its remark where it does."""
    return claim if claim.holds else replace(claim, remark=why)


def close(
    id: str, statement: str, source: str, measured: float, expected: float, tolerance: float, **more
) -> Claim:
    """The claim |measured - expected| ≤ tolerance, in the units of the measured value."""
    measured, off = float(measured), abs(float(measured) - expected)
    holds = bool(off <= tolerance)
    text = stated("{} ± {}", measured, holds, expected, tolerance)
    times = times_over(off, float(tolerance))
    return Claim(id, statement, source, measured, text, holds=holds, margin=times, **more)


def furthest(values: np.ndarray, expected: float = 0.0) -> float:
    """The value, of any shape, that is furthest from `expected`; NaN where there is none."""
    values = np.ravel(values)
    return float(values[np.abs(values - expected).argmax()]) if values.size else math.nan


def every_close(
    id: str, statement: str, source: str, values: np.ndarray, expected: float, tolerance: float
) -> Claim:
    """`close` of the furthest of the `values`, one a seed, with the `interval` of their mean."""
    worst, ends = furthest(values, expected), interval(values)
    return close(id, statement, source, worst, expected, tolerance, interval=ends)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean of `values`, one a seed, less and plus two standard errors; NaN ends for one seed."""
    values = np.asarray(values, float).ravel()
    error = values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else math.nan
    return float(values.mean() - 2 * error), float(values.mean() + 2 * error)


def held(claims: Iterable[Mapping]) -> str:
    """How many claims of a record hold, in words, those that the data leave open apart."""
    claims = list(claims)
    open_ = sum(claim.get("verdict") == UNDECIDED for claim in claims)
    text = f"{sum(claim['holds'] is True for claim in claims)} of {len(claims)}"
    return text + (f", {open_} undecided" if open_ else "")


def counts(claims: Iterable[Claim]) -> str:
    """How many statements, forms and findings hold, in words; findings last."""
    claims = list(claims)
    held = {name: [c.holds for c in claims if c.kind == name] for name in KINDS}
    return ", ".join(f"{sum(own)} of {len(own)} {name}s" for name, own in held.items() if own)


def judged(
    id: str,
    statement: str,
    source: str,
    found: tuple[float, float, float],
    bound: str,
    verdict: str,
    seeds: int,
    p: float | None = None,
) -> Claim:
    """A claim whose `verdict` was read off an interval; `found` is (measured, low, high).

    An end of the interval may be open, that is infinite. ValueError for a word not in VERDICTS.
    """
    if verdict not in VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}")
    measured, *ends = map(float, found)
    known = None if any(map(math.isnan, ends)) else tuple(ends)
    told = dict(holds=verdict == VERDICTS[0], interval=known, seeds=seeds, verdict=verdict, p=p)
    return Claim(id, statement, source, measured, bound, **told)


def html_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of plain text as a notebook shows it."""
    head, *body = (map(escape, row) for row in (columns, *rows))
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{lines}</table>"


class Table(tuple):
    """Claims in a notebook: what fails or has a verdict first, many that hold behind a click.

    As plain text only the summary and what fails, with its reason.
    """

    _columns = ("id", "kind", "statement", "source", "measured", "theory", "holds")

    def _row(self, claim: Claim) -> tuple[str, ...]:
        verdict = claim.verdict or ("yes" if claim.holds else "NO")
        verdict += f": {claim.remark}" if claim.remark and not claim.holds else ""
        about = claim.id, claim.kind, claim.statement, claim.source
        return *about, shown(claim), claim.bound, verdict

    def __repr__(self) -> str:
        failing = [self._row(claim) for claim in self if not claim.holds]
        return "\n".join(
            [self.summary(), *(f"{r[0]}: {r[4]}, theory {r[5]}; {r[6]}" for r in failing)]
        )

    def _repr_html_(self) -> str:
        first = [claim for claim in self if claim.verdict or not claim.holds]
        rest = [claim for claim in self if claim not in first]
        if len(rest) <= UNFOLDED:
            first, rest = first + rest, []
        parts = [html_table(self._columns, map(self._row, first))] if first else []
        if rest:
            table = html_table(self._columns, map(self._row, rest))
            parts += [f"<details><summary>{len(rest)} claims hold</summary>{table}</details>"]
        return "".join(parts) + f"<p>{legend(self)}</p>"

    def words(self) -> str:
        """A line for each claim that was judged: its verdict, then what was measured."""
        judged = [c for c in self if c.verdict]
        return "\n".join(f"{c.verdict}: {c.statement}: {shown(c)}" for c in judged)

    def summary(self) -> str:
        """One line that counts the claims that hold by kind, and names those that fail or wait."""
        open_ = [c.id for c in self if c.verdict == UNDECIDED]
        failed = [c.id for c in self if not c.holds and c.id not in open_]
        text = f"{sum(c.holds for c in self)} of {len(self)} claims hold ({counts(self)})"
        text += f"; not: {', '.join(failed)}" if failed else ""
        return text + (f"; undecided: {', '.join(open_)}" if open_ else "")
