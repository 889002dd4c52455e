"""The tables of README.md and REPRODUCING.md, made from figures/index.toml and the records.

`python -m lib.site tables` makes each anew between its two marks.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal

from lib import files
from lib.site import figure_index
from lib.site.figure_index import Entry

FIGURES = files.ROOT / "figures"
FILES = ("README.md", "REPRODUCING.md")
END = "<!-- end -->"
MARKED = re.compile(rf"(<!-- (\w+), made by python -m lib\.site tables -->\n).*?(?={END})", re.S)


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


def record_of(entry: Entry) -> dict:
    """The record of a figure of the index.

    FileNotFoundError, with the command that makes it, where there is none; ValueError where it
    lacks a number that the entry quotes.
    """
    path = FIGURES / entry.scale / f"{entry.slug}.json"
    if not path.exists():
        advice = f"run {entry.notebook.command(entry.scale)}"
        raise FileNotFoundError(
            f"figures/index.toml names {path.name}, which is not there; {advice}"
        )
    record = json.loads(path.read_text(encoding="utf-8"))
    known = figure_index.quantities(record)
    quoted = figure_index.FIELD.findall(entry.sentence + entry.finding + entry.failure)
    if lacking := [name for name, _ in quoted if name not in known]:
        raise ValueError(f"{entry.slug} quotes {', '.join(lacking)}; its record has no such number")
    return record


def _figure_row(entry: Entry) -> tuple[str, ...]:
    record = record_of(entry)
    quoted = [name for name in entry.names if name in record["numbers"]]
    values = [f"`{name}` {expected(**record['numbers'][name])}" for name in quoted]
    held = sum(claim["holds"] is True for claim in record["claims"])
    title = f"{record['paper']}: {record['figure']}, {entry.scale}"
    return (
        f"[{title}](figures/{entry.scale}/{entry.slug}.png)",
        figure_index.filled(entry.sentence, record),
        f"`{entry.notebook.command(entry.scale)}`",
        "<br>".join(values),
        f"{held} of {len(record['claims'])}",
        str(entry.notebook.minutes[entry.scale]),
    )


def figures() -> str:
    """Figure, what one sees, command, quoted numbers with their tolerances, claims, minutes."""
    columns = "figure, what you should see, command, expected within, claims that hold, minutes"
    return _markdown(columns, map(_figure_row, figure_index.entries(FIGURES)))


def notebooks() -> str:
    """Notebook, question, paper, minutes at demo scale, figures."""
    rows = []
    for notebook, shown in figure_index.read(FIGURES):
        links = [f"[{e.slug}](figures/{e.scale}/{e.slug}.png)" for e in shown]
        link = f"[{notebook.name[:2]}](notebooks/{notebook.name}.ipynb)"
        minutes = str(notebook.minutes["demo"])
        rows.append((link, notebook.question, notebook.paper, minutes, ", ".join(links)))
    return _markdown("notebook, question, paper, minutes, figures", rows)


def findings() -> str:
    """The findings for the README, one a line."""
    return _listed("finding")


def failures() -> str:
    """What did not come out as a paper says, one a line."""
    return _listed("failure")


def _listed(kind: str) -> str:
    chosen = [(entry, getattr(entry, kind)) for entry in figure_index.entries(FIGURES)]
    lines = []
    for entry, sentence in chosen:
        if sentence:
            text = figure_index.filled(sentence, record_of(entry))
            lines.append(f"* {text} [Figure](figures/{entry.scale}/{entry.slug}.png).")
    return "\n".join(lines)


def _markdown(columns: str, rows) -> str:
    heads = columns.split(", ")
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


TABLES: Mapping = {
    "figures": figures,
    "notebooks": notebooks,
    "findings": findings,
    "failures": failures,
}


def renewed(text: str) -> str:
    """`text` with every marked table made anew; ValueError for a mark of no known table."""

    def block(match):
        if match[2] not in TABLES:
            raise ValueError(f"no table {match[2]!r}; there are {', '.join(TABLES)}")
        return f"{match[1]}\n{TABLES[match[2]]()}\n\n"

    return MARKED.sub(block, text)


def renew() -> None:
    """Write README.md and REPRODUCING.md with their tables made anew."""
    for name in FILES:
        path = files.ROOT / name
        files.write(path, renewed(path.read_text(encoding="utf-8")).encode())
