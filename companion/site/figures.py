"""The figures to show: entries of figures/index.toml, their records, their claims in
words.

Sentences of the index quote a record as {name:format}; braces without a colon belong to
a formula. `python -m companion.site tables` makes each table of FILES anew between its marks,
laid out by templates/NAME.md.j2.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2

from companion import ledger, record
from companion.claims import LOOKS, UNDECIDED, Claim, held, shown, verdict
from companion.page_table import Page, read_pages
from companion.record import SCALES
from lib import files

PAPERS = {  # letter: (title, arXiv number)
    "A": ("Implicit Bias and Fast Convergence Rates for Self-attention", "2402.05738"),
    "B": (
        "Training Dynamics of Softmax Self-Attention: Fast Global Convergence via Preconditioning",
        "2603.01514",
    ),
    "C": (
        "Optimizing Attention with Mirror Descent: Generalized Max-Margin Token Selection",
        "2410.14581",
    ),
}
FIGURES = files.ROOT / "figures"
TEMPLATES = Path(__file__).parent / "templates"
FILES = ("README.md", "REPRODUCING.md", "notebooks/law_of_margins.md")
MARKED = re.compile(
    r"(<!-- (\w+), made by python -m companion\.site tables -->\n).*?(?=<!-- end -->)",
    re.S,
)
FIELD = re.compile(r"\{([^{}:]+):([^{}]*)\}")


@dataclass(frozen=True)
class _Entry:
    """One figure at its largest scale, as figures/index.toml has it."""

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
    title: str = ""

    @property
    def command(self) -> str:
        """What regenerates it; from kept curves it needs no data."""
        if self.scale == "demo":
            scale = ""
        else:
            scale = f"SCALE={self.scale} "
        real = self.notebook.real_data and scale and not self.trains
        return f"make figures {scale}ARGS={self.notebook.name[:2]}{' DATA_DIR=...' * bool(real)}"


def index(figures: Path) -> list[tuple[Page, list[_Entry]]]:
    """Every page by number, with its entries of the index in the folder `figures`."""
    pages = read_pages()
    table = files.read_table(figures / "index.toml")
    if unknown := ", ".join(sorted(table.keys() - pages.keys())):
        raise ValueError(f"notebooks/pages.toml has no section of {unknown}")
    notebooks = []
    for name, page in sorted(pages.items()):
        rows = table.get(name, {}).get("figure", [])
        notebooks.append((page, [_Entry(page, **row) for row in rows]))
    return notebooks


def _quantities(record: Mapping) -> dict:
    """What a sentence may quote: numbers, else the setting, else the measured value of
    a claim; four names count claims and statements, `<id>.p` is the p of a claim.
    """
    claims = record["claims"]
    return {
        **{claim["id"]: claim["measured"] for claim in claims},
        **{f"{claim['id']}.p": claim["p"] for claim in claims if "p" in claim},
        "claims": len(claims),
        "claims_that_hold": sum(claim["holds"] is True for claim in claims),
        "statements": len(record.get("statements", ())),
        "statements_with_rows": len({claim.get("number") for claim in claims}),
        **record["parameters"],
        **record.get("setting", {}),
        **{name: row["value"] for name, row in record["numbers"].items()},
    }


def filled(sentence: str, record: Mapping) -> str:
    """The sentence with the record's numbers: "{gap:.1%}" as "3.4 %", or "no value of
    gap"; "{error:.1f°}" an angle of directions so far apart, "{other/gap:.1%}" another
    figure's.
    """
    scale = FIGURES / record["scale"]

    def value(field: re.Match) -> str:
        slug, _, name = field[1].rpartition("/")
        if slug:
            saved = files.read_object(scale / f"{slug}.json")
        else:
            saved = record
        number = _quantities(saved).get(name)
        form = field[2]
        if number is None:
            return f"no value of {field[1]}"
        if form.endswith("°"):
            return format(math.degrees(2 * math.asin(number / 2)), form[:-1]) + "°"
        return format(number, form).replace("%", " %")

    # Doubled braces, around a field that is an exponent, are one pair of a formula.
    return re.sub(r"\{\{([^{}]*)\}\}", r"{\1}", FIELD.sub(value, sentence))


def unconditioned(entry: _Entry, record: Mapping) -> list[str]:
    """A sentence for each number of a finding or failure that does not say what it is.

    `entry.conditions` gives a quoted name the words that say what its number is, as "in
    the worst of" or "median". The words must stand in the text, and, for the value of a
    claim without an interval, in the claim's own statement. Whole numbers that count
    need none.
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
    """One figure at one scale, with its record."""

    slug: str
    scale: str
    folder: Path
    entry: _Entry | None
    record: Mapping

    @property
    def name(self) -> str:
        """The name of this figure's page, without its ending."""
        return f"{self.slug}-{self.scale}"

    @property
    def section(self) -> str:
        """Its place on the front page."""
        return record.origin(self.record)

    @property
    def title(self) -> str:
        """Its title in the index, else its number, and whose: "Figure 2, paper A"."""
        words = (self.entry.title if self.entry else "") or self.record["figure"]
        if self.section == "Ours":
            whose = "ours"
        else:
            whose = f"paper {self.section}"
        return f"{words[:1].upper()}{words[1:]}, {whose}"

    @property
    def sentence(self) -> str:
        """What one sees in it, as Markdown: the sentence of the index, else the
        caption.
        """
        if self.entry is None:
            return self.record["caption"]
        text = filled(self.entry.sentence, self.record)
        return text[:1].upper() + text[1:] + "."

    @property
    def alt(self) -> str:
        """The picture in words: its title, what one sees in it, and its caption,
        without TeX.
        """
        seen = f" {self.sentence}" if self.entry else ""
        words = re.sub(
            r"\\[lr]?Vert|\\\|", "‖", f"{self.title}.{seen} {self.record['caption']}"
        )
        return re.sub(r"[$*{}\\]", "", words)

    @property
    def data(self) -> list[str]:
        """The data in a few words, each kind once: "synthetic", "mnist (real)"."""
        named = [
            (row["name"], record.SOURCES[row["source"]]) for row in self.record["data"]
        ]
        words = [kind if kind == "synthetic" else f"{x} ({kind})" for x, kind in named]
        return list(dict.fromkeys(words))

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims of its record."""
        return [Claim.of(claim) for claim in self.record["claims"]]

    @property
    def open_claims(self) -> list[Claim]:
        """The claims that fail, then those that the data leave undecided."""
        failing = [claim for claim in self.claims if not claim.holds]
        return sorted(failing, key=lambda claim: claim.verdict == UNDECIDED)

    def statement(self, claim: Claim) -> str:
        """The statement of the paper under which a claim stands in the ledger."""
        return claim.number or claim.source.removeprefix(
            f"paper {self.record['paper']}, "
        )

    def exported(self) -> list[dict[str, Any]]:
        """Its claims as plain data, then the statements that have none, with the
        reason.
        """
        about = {"paper": self.record["paper"], "figure": self.name}
        rows = [
            about
            | claim.as_dict()
            | {"number": self.statement(claim), "verdict": verdict(claim)}
            for claim in self.claims
        ]
        measured = {row["number"] for row in rows}
        for name, statement in self.record.get("statements", {}).items():
            if name not in measured and statement["why"]:
                said = ledger.unmeasured(statement["why"])
                rows.append(
                    about
                    | {"number": name, "verdict": said, "remark": statement["why"]}
                )
        return rows


def figures() -> list[Figure]:
    """Figures with a record, by paper, in index order; ValueError for a damaged
    record.
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

    def place(figure):
        return places.get(figure.slug, len(places))

    return sorted(shown, key=lambda f: (f.record["paper"], place(f), f.slug, f.scale))


def templates(**more) -> jinja2.Environment:
    """The templates of tables and pages; `more` are options of the environment."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    strict = jinja2.StrictUndefined
    made = jinja2.Environment(loader=loader, trim_blocks=True, undefined=strict, **more)
    known: Any = dict(expected=_expected, hours=_hours, held=held, filled=filled)
    known |= dict(shown=shown, verdict=verdict, looks=LOOKS)
    made.globals.update(known | {"origin": record.origin})
    return made


def _expected(value: float | None, tolerance: float) -> str:
    """ "0.0243 ± 0.001": the value with one digit more than the tolerance can tell
    apart.
    """
    if value is None:
        return "no value"
    if tolerance == 0:
        return f"{value:g} exactly"
    places = 1 - math.floor(math.log10(tolerance))
    return f"{round(Decimal(repr(value)), places):f} ± {float(f'{tolerance:.2g}'):g}"


def _hours(entry: _Entry, record: Mapping) -> str:
    """What trains the kept curves that a figure draws, and in how many processor
    hours.
    """
    hours = record["numbers"]["processor_hours"]["value"]
    return f"`python -m lib.training {entry.trains}`, {hours:.1f} processor hours"


def renewed(text: str) -> str:
    """`text` with every marked table made anew."""
    notebooks = index(FIGURES)

    def read(entry):
        return record.read(FIGURES / entry.scale / f"{entry.slug}.json")

    rows = [(entry, read(entry)) for _, entries in notebooks for entry in entries]

    def table(match: re.Match) -> str:
        template = templates().get_template(f"{match[2]}.md.j2")
        return f"{match[1]}{template.render(notebooks=notebooks, rows=rows).strip()}\n"

    return MARKED.sub(table, text)
