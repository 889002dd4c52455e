"""A claim: one statement of a paper, the number measured for it, and the bound that theory sets."""

import math
from dataclasses import asdict, dataclass
from html import escape


VERDICTS = ("reproduced", "not reproduced", "undecided")


@dataclass(frozen=True)
class Claim:
    """One checked statement.

    `bound` is what theory asks of `measured`, as text with its relation ("≥ 0.11"); `holds` is the
    verdict; `margin` is how many times over the bound is met, 1 at the edge, infinite where no
    multiple breaks it. A measured value that is not a number never holds. A claim about data that
    may be too few says `verdict`, one of `VERDICTS`, and holds if that is the first.
    """

    id: str
    statement: str
    source: str
    measured: float
    bound: str
    holds: bool
    margin: float = math.nan
    verdict: str | None = None

    def as_dict(self) -> dict:
        """The claim as a figure record stores it: a NaN or infinity becomes null, as JSON asks."""
        row = asdict(self)
        for name in ("measured", "margin"):
            row[name] = row[name] if math.isfinite(row[name]) else None
        if self.verdict is None:
            del row["verdict"]
        return row


def number(value: float) -> str:
    """`value` with four significant digits, as every table of this project prints it."""
    return f"{value:.4g}"


def _times(smaller: float, larger: float) -> float:
    """How often `smaller` fits into `larger`, for smaller ≤ larger of one sign; 0 or infinity across zero."""
    if not smaller * larger > 0:
        return math.nan if math.isnan(smaller * larger) else math.inf if smaller <= larger else 0.0
    return larger / smaller if larger > 0 else smaller / larger


def at_most(id: str, statement: str, source: str, measured: float, bound: float) -> Claim:
    """The claim measured ≤ bound."""
    measured, holds = float(measured), bool(measured <= bound)
    return Claim(
        id, statement, source, measured, f"≤ {number(bound)}", holds, _times(measured, float(bound))
    )


def at_least(id: str, statement: str, source: str, measured: float, bound: float) -> Claim:
    """The claim measured ≥ bound."""
    measured, holds = float(measured), bool(measured >= bound)
    return Claim(
        id, statement, source, measured, f"≥ {number(bound)}", holds, _times(float(bound), measured)
    )


def close(
    id: str, statement: str, source: str, measured: float, expected: float, tolerance: float
) -> Claim:
    """The claim |measured - expected| ≤ tolerance, in the units of the measured value."""
    measured, off = float(measured), abs(float(measured) - expected)
    bound, holds = f"{number(expected)} ± {number(tolerance)}", bool(off <= tolerance)
    return Claim(id, statement, source, measured, bound, holds, _times(off, float(tolerance)))


def judged(
    id: str, statement: str, source: str, measured: float, bound: str, verdict: str
) -> Claim:
    """A claim whose `verdict` was found from an interval; ValueError for a word not in `VERDICTS`."""
    if verdict not in VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}")
    holds = verdict == VERDICTS[0]
    return Claim(id, statement, source, float(measured), bound, holds, verdict=verdict)


class Table(tuple):
    """Claims as a table: HTML in a notebook, aligned text elsewhere."""

    _columns = ("id", "statement", "source", "measured", "theory", "holds")

    def _rows(self):
        for c in self:
            yield (
                c.id,
                c.statement,
                c.source,
                number(c.measured),
                c.bound,
                c.verdict or ("yes" if c.holds else "NO"),
            )

    def __repr__(self) -> str:
        rows = [self._columns, *self._rows()]
        widths = [max(len(row[k]) for row in rows) for k in range(len(self._columns))]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        def line(cells, tag):
            return (
                "<tr>"
                + "".join(f'<{tag} style="text-align:left">{escape(c)}</{tag}>' for c in cells)
                + "</tr>"
            )

        body = "".join(line(row, "td") for row in self._rows())
        return f"<table><thead>{line(self._columns, 'th')}</thead><tbody>{body}</tbody></table>"

    def summary(self) -> str:
        """One line that counts the claims and names those that fail."""
        failed = [c.id for c in self if not c.holds]
        return f"{len(self) - len(failed)} of {len(self)} claims hold" + (
            f"; not: {', '.join(failed)}" if failed else ""
        )
