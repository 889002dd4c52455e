"""The tables of README.md, REPRODUCING.md and a note, made from figures/index.toml and records.

`python -m lib.site tables` makes each anew between its marks, laid out by templates/NAME.md.j2.
"""

import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import jinja2

from lib import files
from lib.companion import record
from lib.companion.claims import held
from lib.site import figures
from lib.site.figures import Entry

FIGURES = files.ROOT / "figures"
TEMPLATES = Path(__file__).parent / "templates"
FILES = ("README.md", "REPRODUCING.md", "notebooks/law_of_margins.md")
MARKED = re.compile(
    r"(<!-- (\w+), made by python -m lib\.site tables -->\n).*?(?=<!-- end -->)", re.S
)


def templates(**more) -> jinja2.Environment:
    """The templates of tables and pages; `more` are options of the environment."""
    loader, strict = jinja2.FileSystemLoader(TEMPLATES), jinja2.StrictUndefined
    made = jinja2.Environment(loader=loader, trim_blocks=True, undefined=strict, **more)
    known: Any = dict(expected=_expected, hours=_hours, held=held, filled=figures.filled)
    made.globals.update(known)
    return made


def _expected(value: float | None, tolerance: float) -> str:
    """ "0.0243 ± 0.001": the value with one digit more than the tolerance can tell apart."""
    if value is None:
        return "no value"
    if tolerance == 0:
        return f"{value:g} exactly"
    places = 1 - math.floor(math.log10(tolerance))
    return f"{round(Decimal(repr(value)), places):f} ± {float(f'{tolerance:.2g}'):g}"


def _hours(entry: Entry) -> str:
    """What trains the kept curves that a figure draws, and in how many processor hours."""
    from lib.training import curves  # with torch, which no other table needs

    took = curves.load(FIGURES / entry.scale / f"{entry.trains}.npz").hours()
    return f"`python -m lib.training {entry.trains}`, {took:.1f} processor hours"


def _record(entry: Entry) -> dict:
    """The record of a figure of the index."""
    return record.read(FIGURES / entry.scale / f"{entry.slug}.json")


def _table(name: str) -> str:
    """The Markdown of the table of templates/NAME.md.j2."""
    notebooks = figures.index(FIGURES)
    rows = [(entry, _record(entry)) for _, entries in notebooks for entry in entries]
    template = templates().get_template(f"{name}.md.j2")
    return template.render(notebooks=notebooks, rows=rows).strip()


def _renewed(text: str) -> str:
    """`text` with every marked table made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{_table(match[2])}\n", text)


def renew() -> None:
    """Write FILES with their tables made anew."""
    for path in (files.ROOT / name for name in FILES):
        files.write(path, _renewed(path.read_text(encoding="utf-8")).encode())
