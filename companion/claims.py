"""A claim: one statement of a paper, the number measured for it, and its bound."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # half a second that only a table on a page needs
    import pandas as pd

KINDS = {
    "statement": "the paper's sentence with the paper's constants",
    "form": "the paper's sentence, a constant of ours where the text lost it",
    "finding": "ours, beyond the paper",
}
# A claim is of the first kind whose words its source has, else a statement.
_WORDS = {
    "form": ("our constant", "our reading", "our bound"),
    "finding": ("ours", "derived", "independent computation"),
}
FEWEST_SEEDS = 20  # an interval from fewer is marked
OPEN = 8  # so many rows of a table are shown without a click
UNDECIDED = "undecided"
VERDICTS = ("reproduced", "not reproduced", UNDECIDED)
HOLDS = "holds"
FAILS = "fails"
NO_POWER = "no power"  # it holds, but in all its wrong worlds as well
LOOKS = {  # the class of a verdict in HTML, for the site's colours; others have "holds"
    FAILS: "fails",
    "not reproduced": "fails",
    UNDECIDED: "open",
}
MEANINGS = {  # of a measured value with an interval, by whether its row has a verdict
    False: "a [b, c]: the worst seed, or what the row names, and the mean over seeds ± two"
    " standard errors, so that a may lie outside; for half of seeds a bootstrap",
    True: "a [b, c] of a row with a verdict: the mean over seeds, of ratios the geometric mean,"
    " or what the row names, and its 95 % interval; p: the level at which the interval would"
    " just decide",
}
DIGITS = (4, 7, 10, 13, 17)  # significant digits; 17 tell any two numbers apart


@dataclass(frozen=True)
class Claim:
    """One checked claim.

    `bound` is what is asked of `measured`, as text ("≥ 0.11"); a NaN never `holds`.
    `margin` is how many times over the bound is met: 1 at the edge, infinite where no
    multiple breaks it. `kind` is one of KINDS, by default read off `source`. `interval`
    holds the ends of what the seeds gave. A row of a ledger also has the `number` of
    its statement, its `setting`, how many `seeds`, the wrong worlds in which it must
    fail (`fails_if`), and the smallest of each in which it was seen to fail (`catches`;
    None before `make falsify`). A claim about data that may be too few has a `verdict`
    of VERDICTS; `p` is the level at which its interval would just decide. `same_as` is
    the id, up to its setting, of the row whose measurement this one repeats: a copy, or
    algebra of our own formulas; a ledger counts the two once.
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

    def __post_init__(self):
        read = [
            k
            for k, words in _WORDS.items()
            if any(word in self.source for word in words)
        ]
        object.__setattr__(self, "kind", self.kind or (*read, "statement")[0])

    def as_dict(self) -> dict:
        """The claim as a record stores it: NaN and infinity as null, defaults left
        out.
        """
        default = {field.name: field.default for field in fields(self)}
        stored = {name: x for name, x in asdict(self).items() if x != default[name]}
        for name in ("measured", "margin"):
            value = getattr(self, name)
            stored[name] = value if math.isfinite(value) else None
        if not all(map(math.isfinite, stored.get("interval") or ())):
            del stored["interval"]  # the runs were too few or too short
        return stored

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Claim":
        """The claim that a record stores."""
        known: dict[str, Any] = {
            k: math.nan if x is None else x for k, x in stored.items()
        }
        return cls(**known)


# Making claims.


def at_most(
    id: str, statement: str, source: str, measured: float, bound: float, **more
) -> Claim:
    """The claim measured ≤ bound; `more`: fields of `Claim`, and `why`, a failure's
    remark.
    """
    return _claim("≤", id, statement, source, measured, bound, **more)


def at_least(
    id: str, statement: str, source: str, measured: float, bound: float, **more
) -> Claim:
    """The claim measured ≥ bound."""
    return _claim("≥", id, statement, source, measured, bound, **more)


def close(
    id: str,
    statement: str,
    source: str,
    measured: float,
    expected: float,
    tolerance: float,
    **more,
) -> Claim:
    """The claim |measured - expected| ≤ tolerance, in the units of the measured
    value.
    """
    return _claim("±", id, statement, source, measured, expected, tolerance, **more)


def _claim(sign, id, statement, source, measured, *ends, why="", **more) -> Claim:
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
    form = "{} ± {}" if sign == "±" else sign + " {}"
    texts = [form.format(*(f"{end:.{digits}g}" for end in ends)) for digits in DIGITS]
    # with digits enough that a failure is seen
    bound = next((text for text in texts if holds or _breaks(measured, text)), texts[0])
    about = id, statement, source, measured, bound, holds, _times_over(smaller, larger)
    return Claim(*about, **more)


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
    """A claim with a `verdict` of VERDICTS, else ValueError; estimate: value, low,
    high.
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
    about = id, statement, source, measured, bound, verdict == VERDICTS[0]
    return Claim(*about, interval=ends, seeds=seeds, verdict=verdict, p=p)


def remarked(claim: Claim, why: str) -> Claim:
    """The claim, with `why` as its remark where it fails."""
    return claim if claim.holds else replace(claim, remark=why)


def furthest(values: np.ndarray, expected: float = 0.0) -> float:
    """The one of `values` that is furthest from `expected`; NaN where there is none."""
    values = np.ravel(values)
    if values.size:
        return float(values[np.abs(values - expected).argmax()])
    return math.nan


def bounded(
    id: str, statement: str, source: str, bound: str, values: Any, expected=None, **more
) -> Claim:
    """The claim that the worst of `values` meets `bound`: "≤ 1", "≥ 0.5" or "1 ± 0.05",
    with `expected` in place of its first number.
    """
    (sign,) = set(bound) & set("≤≥±")
    ends = [float(end) for end in bound.split(sign) if end]
    if expected is not None:
        ends[0] = expected
    worst = {"≤": np.max, "≥": np.min, "±": lambda values: furthest(values, ends[0])}[
        sign
    ]
    return _claim(sign, id, statement, source, worst(values), *ends, **more)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean of `values`, one a seed, ± two standard errors; NaN ends for one seed."""
    values = np.asarray(values, float).ravel()
    if values.size > 1:
        error = values.std(ddof=1) / math.sqrt(values.size)
    else:
        error = math.nan
    return float(values.mean() - 2 * error), float(values.mean() + 2 * error)


def _times_over(smaller: float, larger: float) -> float:
    """larger / smaller in size; of two signs infinity if `smaller` ≤ `larger`, else
    0.
    """
    if math.isnan(smaller * larger):
        return math.nan
    if smaller * larger > 0:
        return larger / smaller if larger > 0 else smaller / larger
    return math.inf if smaller <= larger else 0.0


# Claims in words.


def number(value: float) -> str:
    """`value` with four significant digits."""
    return f"{value:.4g}"


def _breaks(measured: float | str, bound: str) -> bool:
    """Whether `measured` breaks `bound` as both are printed, or one of them is no
    number.
    """
    relation, _, rest = bound.partition(" ")
    try:  # in decimals: in float64 -1.1 is further than 0.1 from -1
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
    """The measured value and its interval in brackets; `legend` says what the two
    are.
    """
    measured = claim.measured
    text = number(claim.measured)
    if not (claim.holds or claim.verdict):  # with as many digits as show that it fails
        texts = (f"{measured:.{digits}g}" for digits in DIGITS[1:])
        text = next(
            (each for each in texts if _breaks(each, claim.bound)), repr(measured)
        )
        text = "not a number" if math.isnan(measured) else text
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
    """The meaning of the number and the brackets that `shown` has for `claims`."""
    kinds = {bool(claim.verdict) for claim in claims if claim.interval is not None}
    return "; ".join(MEANINGS[kind] for kind in sorted(kinds))


def held(claims: Iterable[Mapping]) -> str:
    """How many claims of a record hold, in words, the undecided apart."""
    claims = list(claims)
    undecided = sum(claim.get("verdict") == UNDECIDED for claim in claims)
    text = f"{sum(claim['holds'] is True for claim in claims)} of {len(claims)}"
    return text + (f", {undecided} undecided" if undecided else "")


def verdict(claim: Claim) -> str:
    """The verdict on a claim in words: one of VERDICTS where its data were judged, else
    HOLDS, FAILS or NO_POWER.
    """
    if claim.verdict:
        return claim.verdict
    if not claim.holds:
        return FAILS
    if claim.fails_if and claim.catches is not None and not claim.catches:
        return NO_POWER
    return HOLDS


def in_words(claim: Claim) -> dict[str, str]:
    """A claim as a row of `frame`: what each column says of it."""
    seeds = f"{claim.seeds} seed{'s' * (claim.seeds > 1)}" if claim.seeds else ""
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
    """Lay claims out as a table of words.

    Parameters
    ----------
    claims : iterable of Claim
        The claims, in the order of the rows.

    Returns
    -------
    pandas.DataFrame
        A row per claim. Columns: `id`; `claim`, the quantity that is measured; `source`,
        the paper's statement, or "ours"; `setting`, with how many seeds; `required`,
        the bound; `measured`, with its interval; `detects`, the smallest wrong worlds in
        which the claim was seen to fail; `verdict`; `remark`, which says why a claim
        fails. A column that is empty in every row is left out.

    Examples
    --------
    >>> claim = at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> frame([claim]).loc[0, "verdict"]
    'holds'
    """
    import pandas as pd

    table = pd.DataFrame([in_words(claim) for claim in claims], dtype=object)
    return table.loc[:, (table != "").any()]


def html(table: "pd.DataFrame", text: Callable[[str], str] = escape) -> str:
    """Write a table as HTML: the one look of claims, on a page and on the site.

    Parameters
    ----------
    table : pandas.DataFrame
        Cells are plain text. A column `verdict` is marked with the class of LOOKS.
    text : callable, optional
        Turns a cell into HTML. The site passes one that also sets formulas.

    Returns
    -------
    str
        A `<table>` element.
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


def folded(summary: str, content: str) -> str:
    """The HTML `content` behind a line that opens it."""
    return f"<details><summary>{summary}</summary>{content}</details>"


class Table(tuple):
    """Claims in a notebook: one sentence, then what fails or was judged, others
    folded.
    """

    def __repr__(self) -> str:
        rows = [in_words(claim) for claim in self if not claim.holds]
        failures = [
            f"{row['id']}: {row['measured']}, required {row['required']}; {row['verdict']}"
            + (f": {row['remark']}" if row["remark"] else "")
            for row in rows
        ]
        return "\n".join(fill(line, 108) for line in (self.summary(), *failures))

    def _repr_html_(self) -> str:
        chosen = [claim for claim in self if claim.verdict or not claim.holds]
        parts = [f"<p>{escape(self.summary())}.</p>"]
        for place in range(0, len(chosen), OPEN):
            table = html(frame(chosen[place : place + OPEN]))
            parts.append(folded("more", table) if place else table)
        parts += [f"<p>{legend(chosen)}</p>"] if chosen else []
        if quiet := [claim for claim in self if claim not in chosen]:
            parts.append(folded("those that hold", html(frame(quiet))))
        return "".join(parts)

    def words(self) -> str:
        """A line for each claim that was judged: its verdict, then what was
        measured.
        """
        lines = [f"{c.verdict}: {c.statement}: {shown(c)}" for c in self if c.verdict]
        return "\n".join(fill(line, 108, subsequent_indent="    ") for line in lines)

    def summary(self) -> str:
        """One line that counts the claims that hold, and names those that fail or
        wait.
        """
        undecided = [c.id for c in self if c.verdict == UNDECIDED]
        failed = [c.id for c in self if not c.holds and c.id not in undecided]
        text = f"{sum(c.holds for c in self)} of {len(self)} claims hold"
        text += f"; not: {', '.join(failed)}" if failed else ""
        return text + (f"; undecided: {', '.join(undecided)}" if undecided else "")
