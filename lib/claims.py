"""A claim: one statement of a paper, the number measured for it, and the bound that theory sets."""

import math
from dataclasses import asdict, dataclass
from html import escape


@dataclass(frozen=True)
class Claim:
    """One checked statement.

    `bound` is what theory asks of `measured`, as text with its relation ("≥ 0.11"); `holds` is the verdict.
    A measured value that is not a number never holds.
    """

    id: str
    statement: str
    source: str
    measured: float
    bound: str
    holds: bool

    def as_dict(self) -> dict:
        """The claim as a figure record stores it: a measured NaN or infinity becomes null, as JSON asks."""
        row = asdict(self)
        row["measured"] = self.measured if math.isfinite(self.measured) else None
        return row


def number(value: float) -> str:
    """`value` with four significant digits, as every table of this project prints it."""
    return f"{value:.4g}"


def at_most(id: str, statement: str, source: str, measured: float, bound: float) -> Claim:
    """The claim measured ≤ bound."""
    return Claim(id, statement, source, float(measured), f"≤ {number(bound)}", bool(measured <= bound))


def at_least(id: str, statement: str, source: str, measured: float, bound: float) -> Claim:
    """The claim measured ≥ bound."""
    return Claim(id, statement, source, float(measured), f"≥ {number(bound)}", bool(measured >= bound))


def close(id: str, statement: str, source: str, measured: float, expected: float, tolerance: float) -> Claim:
    """The claim |measured - expected| ≤ tolerance, in the units of the measured value."""
    bound = f"{number(expected)} ± {number(tolerance)}"
    return Claim(id, statement, source, float(measured), bound, bool(abs(measured - expected) <= tolerance))


class Table(tuple):
    """Claims as a table: HTML in a notebook, aligned text elsewhere."""

    _columns = ("id", "statement", "source", "measured", "theory", "holds")

    def _rows(self):
        for c in self:
            yield c.id, c.statement, c.source, number(c.measured), c.bound, "yes" if c.holds else "NO"

    def __repr__(self) -> str:
        rows = [self._columns, *self._rows()]
        widths = [max(len(row[k]) for row in rows) for k in range(len(self._columns))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        def line(cells, tag):
            return "<tr>" + "".join(f'<{tag} style="text-align:left">{escape(c)}</{tag}>' for c in cells) + "</tr>"

        body = "".join(line(row, "td") for row in self._rows())
        return f"<table><thead>{line(self._columns, 'th')}</thead><tbody>{body}</tbody></table>"

    def summary(self) -> str:
        """One line that counts the claims and names those that fail."""
        failed = [c.id for c in self if not c.holds]
        return f"{len(self) - len(failed)} of {len(self)} claims hold" + (f"; not: {', '.join(failed)}" if failed else "")
