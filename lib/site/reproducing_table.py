"""The table of REPRODUCING.md: claim, command, expected values with their tolerances, minutes; made
from the records.

`python -m lib.reproducing` writes it anew between its two marks; claims, commands and minutes are
those of the README.
"""

import json
import math
import sys
from decimal import Decimal

from lib import files
from lib.site import readme_table
from lib.site.readme_table import Finding

BEGIN, END = "<!-- made by python -m lib.reproducing -->", "<!-- end -->"
COLUMNS = ("figure", "claim", "command", "expected, within", "claims that hold", "minutes")


def expected(value: float | None, tolerance: float | None) -> str:
    """ "0.0243 ± 0.001": the value with one digit more than the tolerance can tell apart."""
    if value is None:
        return "no value"
    if tolerance is None:
        return f"{value:g}"
    if tolerance == 0:
        return f"{value:g} exactly"
    places = 1 - math.floor(math.log10(tolerance))
    return f"{round(Decimal(repr(value)), places):f} ± {float(f'{tolerance:.2g}'):g}"


def row(finding: Finding, record: dict) -> tuple[str, ...]:
    """The cells of one figure's line."""
    numbers = record["numbers"]
    values = [f"`{name}` {expected(**numbers[name])}" for name in finding.names]
    held, count = sum(claim["holds"] for claim in record["claims"]), len(record["claims"])
    link = f"[{record['paper']}: {record['figure']}, {finding.scale}](figures/{finding.scale}/{finding.slug}.png)"
    return (
        link,
        finding.sentence(record),
        finding.command,
        "<br>".join(values),
        f"{held} of {count}",
        finding.minutes,
    )


def table() -> str:
    """The whole table as Markdown; a figure without a record raises FileNotFoundError, with the command."""
    rows = [row(finding, _record(finding)) for finding in readme_table.read()]
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _record(finding):
    path = files.ROOT / "figures" / finding.scale / f"{finding.slug}.json"
    if not path.exists():
        raise FileNotFoundError(
            f"the README has a row for {path.name} and there is no record; run {finding.command}"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def renewed(text: str) -> str:
    """`text` with the present table between the two marks; ValueError where they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"the table's place is marked by the lines {BEGIN} and {END}; one is missing"
        )
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> int:
    """The command `python -m lib.reproducing`."""
    path = files.ROOT / "REPRODUCING.md"
    files.write(path, renewed(path.read_text(encoding="utf-8")).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
