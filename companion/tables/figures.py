"""The figures to show: entries of figures/index.toml, with their records and claims.

Sentences in the index quote a record as {name:format}; braces without a colon belong to
a formula. `python -m companion.tables` rewrites each marked table in `FILES`, with the
layout in templates/NAME.md.j2.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal, localcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from PIL import Image

from companion import headlines, record
from companion.claims import (
    LOOKS,
    UNDECIDED,
    Claim,
    held,
    markdown,
    shown,
    verdict,
)
from companion.page_table import Page, read_pages
from companion.record import SCALES
from lib import files

TALL = 1.3  # The height of a thumbnail is at most this many times its width.
PAPERS = {  # letter: (title, arXiv number)
    "A": ("Implicit Bias and Fast Convergence Rates for Self-attention", "2402.05738"),
    "B": (
        "Training Dynamics of Softmax Self-Attention: "
        "Fast Global Convergence via Preconditioning",
        "2603.01514",
    ),
    "C": (
        "Optimizing Attention with Mirror Descent: "
        "Generalized Max-Margin Token Selection",
        "2410.14581",
    ),
}
FIGURES = files.ROOT / "figures"
TEMPLATES = Path(__file__).parent / "templates"
FILES = ("README.md", "REPRODUCING.md", "notebooks/law_of_margins.md")
MARKED = re.compile(
    r"(<!-- (\w+), made by python -m companion\.tables -->\n).*?(?=<!-- end -->)",
    re.S,
)
FIELD = headlines.FIELD


@dataclass(frozen=True)
class _Entry:
    """The entry of one figure, at its largest scale, in figures/index.toml."""

    notebook: Page
    slug: str
    scale: str
    sentence: str
    conditions: Mapping[str, str] = field(default_factory=dict)
    row: int = 0
    asks: str = ""
    says: str = ""
    finding: str = ""
    failure: str = ""
    trains: str = ""
    fresh: bool = False
    title: str = ""
    headline: str = ""
    reading: str = ""
    rests: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that regenerates the figure.

        With kept curves it needs no data.
        """
        if self.scale == "demo":
            scale = ""
        else:
            scale = f"SCALE={self.scale} "
        real = self.notebook.real_data and scale and not self.trains
        folder = " DATA_DIR=..." if real else ""
        return f"make figures {scale}ARGS={self.notebook.name[:2]}{folder}"


def check_keys(
    place: str, table: object, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Check that a table of a TOML file has the keys that it must have, and no others.

    Parameters
    ----------
    place : str
        The file and the place in it, for the message.
    table : object
        The table.
    required : collection of str
        The keys that the table must have.
    optional : collection of str, optional
        Further keys that it may have.

    Raises
    ------
    ValueError
        If a key is missing or unknown, or if the object is not a table.

    Examples
    --------
    >>> from companion.tables import figures
    >>> figures.check_keys("a.toml, gap", {"slug": "gap"}, ["slug", "scale"])
    Traceback (most recent call last):
        ...
    ValueError: a.toml, gap: expected an entry 'scale', which is missing
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{place}: expected a table, got {table!r}")
    for key in required:
        if key not in table:
            raise ValueError(f"{place}: expected an entry {key!r}, which is missing")
    known = [*required, *optional]
    for key in table:
        if key not in known:
            raise ValueError(
                f"{place}: unknown entry {key!r}; expected one of {', '.join(known)}"
            )


def index(figures: Path) -> list[tuple[Page, list[_Entry]]]:
    """Read the index of figures.

    Parameters
    ----------
    figures : Path
        The folder of figures.

    Returns
    -------
    list of tuple
        Every page, sorted by name, with the list of its entries, which may be empty.

    Raises
    ------
    ValueError
        If the table of pages lacks a page that the index names, if a file cannot be
        read, or if an entry in the index has an unknown field, or lacks one.
    """
    pages = read_pages()
    path = figures / "index.toml"
    table = files.read_table(path)
    if unknown := ", ".join(sorted(table.keys() - pages.keys())):
        raise ValueError(f"notebooks/pages.toml has no section of {unknown}")
    notebooks = []
    for name, page in sorted(pages.items()):
        entries = []
        for row in _rows(path, name, table):
            entries.append(_Entry(page, **row))
        notebooks.append((page, entries))
    return notebooks


def _rows(path: Path, page: str, table: Mapping) -> list[Mapping]:
    """Return the entries of a page in the index, or raise ValueError for a wrong one.

    `table` is the content of the index, and `path` is its file.
    """
    if page not in table:
        return []
    check_keys(f"{path}, {page}", table[page], ["figure"])
    rows = table[page]["figure"]
    if not isinstance(rows, list):
        raise ValueError(f"{path}: expected [[{page}.figure]] with two brackets")
    given = [each for each in fields(_Entry) if each.name != "notebook"]
    required = [
        each.name
        for each in given
        if each.default is MISSING and each.default_factory is MISSING
    ]
    optional = [each.name for each in given if each.name not in required]
    for number, row in enumerate(rows, start=1):
        slug = row.get("slug", number) if isinstance(row, Mapping) else number
        check_keys(f"{path}, {page}, figure {slug}", row, required, optional)
    return rows


def filled(sentence: str, record: Mapping) -> str:
    """Fill a sentence with the record's numbers.

    Parameters
    ----------
    sentence : str
        The sentence. Its fields have the names of `headlines.quantities`. A field
        {gap:.1%} becomes "3.4 %", or "no value of gap".
        {error:.1f°} is the angle in degrees between two unit vectors at this distance,
        and {other/gap:.1%} is a number of another figure at the same scale.
    record : mapping
        The record of the figure.

    Returns
    -------
    str
        The sentence with its numbers.

    Raises
    ------
    ValueError
        If the record of another figure cannot be read, with the path in the message, or
        if a format such as "d" does not fit its number.

    Examples
    --------
    >>> from companion.tables import figures
    >>> record = {"scale": "demo", "claims": [], "parameters": {}}
    >>> record["numbers"] = {"gap": {"value": 0.034, "tolerance": 0.001}}
    >>> figures.filled("the gap is {gap:.1%}", record)
    'the gap is 3.4 %'
    """
    scale = FIGURES / record["scale"]

    def value(field: re.Match) -> str:
        slug, _, name = field[1].rpartition("/")
        if slug:
            saved = files.read_object(scale / f"{slug}.json")
        else:
            saved = record
        number = headlines.quantities(saved).get(name)
        form = field[2]
        if number is None:
            return f"no value of {field[1]}"
        if form.endswith("°"):
            return format(math.degrees(2 * math.asin(number / 2)), form[:-1]) + "°"
        return format(number, form).replace("%", " %")

    # Doubled braces around a field that is an exponent become one pair of braces in a
    # formula.
    return re.sub(r"\{\{([^{}]*)\}\}", r"{\1}", FIELD.sub(value, sentence))


def unconditioned(entry: _Entry, record: Mapping) -> list[str]:
    """Find the numbers of a finding or failure whose meaning is not stated.

    For each quoted name, `entry.conditions` has the words that say what the number is,
    such as "in the worst of" or "median". The text must contain these words. If the
    number is the value of a claim, the claim's own statement must contain them, too.
    Whole numbers, whose format ends in d, need no such words. The tests call this
    function to check the index.

    Parameters
    ----------
    entry : _Entry
        The figure's entry in the index.
    record : mapping
        Its record.

    Returns
    -------
    list of str
        One sentence for each such number. The list is empty if there is none.
    """
    statements = {claim["id"]: claim["statement"] for claim in record["claims"]}
    said = []
    for kind, text in (("finding", entry.finding), ("failure", entry.failure)):
        for quoted, form in FIELD.findall(text):
            if form.endswith("d"):
                continue
            words = entry.conditions.get(quoted, "")
            place = f"{entry.slug}: the {kind}'s number {quoted}"
            if not words:
                said.append(
                    f"{place} has no condition, such as 'median' or 'in the worst of'"
                )
            elif words not in text:
                said.append(
                    f"{place} has the condition {words!r}, which is not in the text"
                )
            elif quoted in statements and words not in statements[quoted]:
                said.append(
                    f"{place} has the condition {words!r}, which its claim does not say"
                )
    return said


@dataclass(frozen=True)
class Figure:
    """One figure at one scale, with its record.

    Parameters
    ----------
    slug : str
        Its short name.
    scale : str
        One of `SCALES`.
    folder : Path
        The folder of its files.
    entry : _Entry or None
        The figure's entry in the index. It is None if the index has no entry at
        this scale.
    record : mapping
        Its record.
    """

    slug: str
    scale: str
    folder: Path
    entry: _Entry | None
    record: Mapping

    @property
    def section(self) -> str:
        """The section of the figure on the front page."""
        return record.origin(self.record)

    @property
    def title(self) -> str:
        """The title in the index or, without one, a title like "Figure 2, paper A"."""
        words = self.record["figure"]
        if self.entry and self.entry.title:
            words = self.entry.title
        if self.section == "Ours":
            whose = "ours"
        else:
            whose = f"paper {self.section}"
        return markdown(f"{words[:1].upper()}{words[1:]}, {whose}")

    @property
    def sentence(self) -> str:
        """What the figure shows, as Markdown: the index's sentence, or the caption."""
        if self.entry is None:
            return markdown(self.record["caption"])
        text = filled(self.entry.sentence, self.record)
        return text[:1].upper() + text[1:] + "."

    @cached_property
    def alt(self) -> str:
        """The picture in words, without TeX: the headline and what it shows."""
        shows = self.sentence if self.entry else self.record["caption"]
        result, reading = headlines.above(self.slug, self.record)
        sentences = f"{result or self.title}. {reading} {shows}"
        words = re.sub(r"\\[lr]?Vert|\\\|", "‖", sentences)
        return re.sub(r"[$*{}\\]", "", words)

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims in the record of the figure."""
        return [Claim.of(claim) for claim in self.record["claims"]]

    def statement(self, claim: Claim) -> str:
        """Return the statement of the paper under which the ledger lists a claim.

        Parameters
        ----------
        claim : Claim
            A claim of this figure.

        Returns
        -------
        str
            The statement's name or, if the claim has no statement, the claim's source.
        """
        return claim.number or claim.source.removeprefix(
            f"paper {self.record['paper']}, "
        )


def figures() -> list[Figure]:
    """Read the figures that have a record.

    Returns
    -------
    list of Figure
        The figures, by paper, and within a paper in the order in which the index
        lists them. Figures that are not in the index come last.

    Raises
    ------
    ValueError
        If a record or the index is damaged.
    """
    base = files.folder("figures")
    entries = {(e.scale, e.slug): e for _, rows in index(base) for e in rows}
    places = {slug: place for place, (_, slug) in reversed([*enumerate(entries)])}
    shown = []
    for path in (path for scale in SCALES for path in (base / scale).glob("*.json")):
        slug = path.stem
        scale = path.parent.name
        shown += [
            Figure(
                slug=slug,
                scale=scale,
                folder=path.parent,
                entry=entries.get((scale, slug)),
                record=record.read(path),
            )
        ]

    def place(figure: Figure):
        return places.get(figure.slug, len(places))

    return sorted(shown, key=lambda f: (f.record["paper"], place(f), f.slug, f.scale))


def best() -> list[Figure]:
    """Read the figures, each only at its largest scale.

    Returns
    -------
    list of Figure
        The figures, in the order of `figures`.

    Raises
    ------
    ValueError
        If a record or the index is damaged.
    """
    found = figures()
    largest = {
        figure.slug: figure
        for scale in SCALES
        for figure in found
        if figure.scale == scale
    }
    return [figure for figure in found if largest[figure.slug] is figure]


def templates(folder: Path = TEMPLATES) -> jinja2.Environment:
    """Load the templates of tables or pages.

    Parameters
    ----------
    folder : Path, optional
        The folder of the templates. The default is the folder for tables.

    Returns
    -------
    jinja2.Environment
        The templates. Texts that are inserted into a template named NAME.html are
        escaped.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=jinja2.select_autoescape(["html"]),
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    known: Any = dict(expected=_expected, hours=_hours, held=held, filled=filled)
    known |= dict(shown=shown, verdict=verdict, looks=LOOKS, thumbnail=_thumbnail)
    made.globals.update(known | {"origin": record.origin})
    return made


def _expected(value: float | None, tolerance: float) -> str:
    """Write a value and its tolerance, such as 0.0243 ± 0.001.

    The value has one digit more than the tolerance can distinguish. If the tolerance is
    0, the text is "exactly" and the value, with at most six digits.
    """
    if value is None:
        return "no value"
    if tolerance == 0:
        return f"{value:g} exactly"
    places = 1 - math.floor(math.log10(tolerance))
    with localcontext(prec=1000):  # enough for any two floats
        rounded = round(Decimal(repr(value)), places)
    return f"{rounded:f} ± {float(f'{tolerance:.2g}'):g}"


def _hours(entry: _Entry, record: Mapping) -> str:
    """Say how the kept curves of a figure were trained, and in how many hours."""
    hours = record["numbers"]["processor_hours"]["value"]
    program = "papers.studies.confirm" if entry.fresh else "lib.training"
    return f"`python -m {program} {entry.trains}`, {hours:.1f} processor hours"


def _thumbnail(picture: str, alt: str) -> str:
    """Write a small picture that links to the large one.

    A picture in figures/thumbs with the same name is shown in its place, unless it is
    much taller than wide.
    """
    small = f"figures/thumbs/{Path(picture).name}"
    shown = picture
    if (files.ROOT / small).exists():
        with Image.open(files.ROOT / small) as narrow:
            if narrow.height <= TALL * narrow.width:
                shown = small
    return f'<a href="{picture}"><img src="{shown}" width="210" alt="{alt}"></a>'


def _counted(claims: list[Mapping]) -> dict[str, int]:
    """Count the claims that hold, that fail, and that the data leave undecided."""
    undecided = sum(claim.get("verdict") == UNDECIDED for claim in claims)
    hold = sum(claim["holds"] is True for claim in claims)
    fail = len(claims) - hold - undecided
    return {"total": len(claims), "hold": hold, "fail": fail, "undecided": undecided}


def renewed(text: str) -> str:
    """Rewrite every marked table of a text.

    Parameters
    ----------
    text : str
        The text of one of `FILES`.

    Returns
    -------
    str
        The text with its tables made from the records.

    Raises
    ------
    ValueError
        If a record or the index is damaged.
    jinja2.TemplateNotFound
        If a mark names a table that has no template.
    """
    notebooks = index(FIGURES)

    def read(entry: _Entry):
        return record.read(FIGURES / entry.scale / f"{entry.slug}.json")

    rows = [(entry, read(entry)) for _, entries in notebooks for entry in entries]
    claims = [claim for _, saved in rows for claim in saved["claims"]]

    def table(match: re.Match) -> str:
        template = templates().get_template(f"{match[2]}.md.j2")
        text = template.render(
            notebooks=notebooks,
            rows=rows,
            claims=_counted(claims),
        )
        return f"{match[1]}{text.strip()}\n"

    return MARKED.sub(table, text)
