"""Every figure of the papers beside ours: figures/beside.md, made of
figures/beside.toml.

A sentence of a paper names the claims that check it; each verdict is read from the
record of our figure at its largest scale, and never typed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from companion import claims, record
from companion.claims import Claim
from companion.site import figures
from lib import files

# What each paper numbers; C's copy names no figure, so its code's experiments stand for
# them.
NUMBERED: Mapping[str, tuple[str, ...]] = {
    "A": (*(f"Figure {number}" for number in range(1, 8)), "Table 1"),
    "B": ("Figure 1", "Figure 2"),
    "C": (
        "divergence from l_p SVMs",
        "path of one seed",
        "joint training",
        "IMDb accuracy table",
        "weight sparsity",
        "attention maps",
        "ViT on CIFAR-10",
    ),
}
MISSING = "no such claim yet"


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper as our copy has it, the claims (SLUG/ID) that check it, a
    note, and the numbers (SLUG/NAME) that say in what share of settings it is true.
    """

    text: str
    claims: tuple[str, ...] = ()
    note: str = ""
    shares: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A figure of a paper: what it shows, which of our figures stand beside it, what
    differs.
    """

    paper: str
    figure: str
    what: str
    ours: tuple[str, ...]
    differences: str
    settings: str
    sentences: tuple[Sentence, ...]


def rows(folder: Path) -> list[Row]:
    """The rows of beside.toml in `folder`."""
    found = []
    for table in files.read_table(folder / "beside.toml")["figure"]:
        sentences = [
            Sentence(
                text=one["text"],
                claims=tuple(one.get("claims", ())),
                note=one.get("note", ""),
                shares=tuple(one.get("shares", ())),
            )
            for one in table["sentence"]
        ]
        row = Row(
            paper=table["paper"],
            figure=table["figure"],
            what=table["what"],
            ours=tuple(table["ours"]),
            differences=table["differences"],
            settings=table.get("settings", ""),
            sentences=tuple(sentences),
        )
        found.append(row)
    return found


def faults(found: Iterable[Row]) -> list[str]:
    """A sentence for each figure of a paper without a row, and for each row that says
    nothing.
    """
    listed = list(found)
    named = {(row.paper, row.figure) for row in listed}
    said = []
    for paper, numbers in NUMBERED.items():
        for number in numbers:
            if (paper, number) not in named:
                said.append(
                    f"paper {paper}, {number}: expected a row in figures/beside.toml"
                )
    for row in listed:
        place = f"paper {row.paper}, {row.figure}"
        if not row.sentences:
            said.append(f"{place}: expected the sentences that the text has about it")
        for sentence in row.sentences:
            if not (sentence.claims or sentence.note):
                said.append(
                    f"{place}: {sentence.text[:40]!r} needs a claim or a note that says why"
                )
    return said


def records(folder: Path) -> dict[str, Mapping]:
    """The record of every figure of the index at its largest scale, by slug."""
    entries = [entry for _, some in figures.index(folder) for entry in some]
    return {entry.slug: record.read(_path(folder, entry)) for entry in entries}


def _path(folder: Path, entry) -> Path:
    return folder / entry.scale / f"{entry.slug}.json"


def verdict(name: str, known: Mapping[str, Mapping]) -> str:
    """What the record says of the claim SLUG/ID: its verdict in words, or that it is
    missing.
    """
    slug, _, id = name.partition("/")
    for saved in known.get(slug, {}).get("claims", ()):
        if saved["id"] == id:
            return claims.verdict(Claim.of(saved))
    return MISSING


def reason(name: str, known: Mapping[str, Mapping]) -> str:
    """The remark that the record makes on the claim SLUG/ID, if the claim fails."""
    slug, _, id = name.partition("/")
    if verdict(name, known) != "fails":
        return ""
    remarks = [one.get("remark") for one in known[slug]["claims"] if one["id"] == id]
    return remarks[0] or ""


def share(name: str, known: Mapping[str, Mapping]) -> str:
    """The number SLUG/NAME of a record in percent, or that it is missing."""
    slug, _, number = name.partition("/")
    saved = known.get(slug, {}).get("numbers", {}).get(number)
    return f"{saved['value']:.0%}".replace("%", " %") if saved else "no such number yet"


def page(folder: Path) -> str:
    """figures/beside.md: an overview, then each figure with its sentences and
    verdicts.
    """
    known = records(folder)
    pages = {entry.slug: entry for _, some in figures.index(folder) for entry in some}
    template = figures.templates().get_template("beside.md.j2")

    def judge(name):
        return verdict(name, known)

    def why(name):
        return reason(name, known)

    def part(name):
        return share(name, known)

    text = template.render(
        rows=rows(folder), pages=pages, judge=judge, why=why, part=part
    )
    return text.strip() + "\n"
