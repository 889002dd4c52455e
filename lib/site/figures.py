"""The figures to show, each with its record and its sentence, and their claims as one table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lib.companion.claims import UNDECIDED, failing, number
from lib.companion.ledger import verdict
from lib.companion.record import SCALES
from lib.files import folder
from lib.site import figure_index, read_record
from lib.site.figure_index import Entry

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
SOURCES = {  # of data, as a reader would say it
    "data_dir": "real",
    "data": "real",
    "hub": "real, from the hub",
    "demo": "small embedded stand-in",
    "kept": "redrawn from kept curves",
}
COLUMNS = (  # of the ledger, behind paper and statement
    *("kind", "setting", "measured quantity", "theory", "measured", "margin", "seeds", "catches"),
    *("holds", "remark"),
)


@dataclass(frozen=True)
class Figure:
    """One figure at one scale; `record` is as `read_record.read` gives it."""

    slug: str
    scale: str
    record: Mapping
    entry: Entry | None
    folder: Path
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How the page of this figure is called, without its ending."""
        return f"{self.slug}-{self.scale}"

    @property
    def notebook(self) -> str:
        """The notebook that makes it, by today's name; a record keeps the name of its day."""
        return self.entry.notebook.name if self.entry else self.record["notebook"]

    @property
    def section(self) -> str:
        """Its place on the front page: its paper's letter, or "beyond" for notebooks 40 on."""
        return "beyond" if self.notebook.startswith("4") else self.record["paper"]

    @property
    def title(self) -> str:
        """Its title in the index, else its number, and its paper: "Figure 2, paper A"."""
        words = (self.entry and self.entry.title) or self.record["figure"] or self.slug
        words = words[:1].upper() + words[1:]
        return f"{words}, paper {self.record['paper']}" if self.record["paper"] else words

    @property
    def sentence(self) -> str:
        """What one sees in it, as Markdown: the sentence of the index, else the caption."""
        if self.entry is None:
            return self.record["caption"] or "Nothing is known of this figure."
        text = figure_index.filled(self.entry.sentence, self.record)
        return text[:1].upper() + text[1:] + "."

    @property
    def failing(self) -> list[Mapping]:
        """The claims that do not hold."""
        return [claim for claim in self.record["claims"] if word(claim) == "does not hold"]

    @property
    def undecided(self) -> list[Mapping]:
        """The claims that the data leave open."""
        return [claim for claim in self.record["claims"] if word(claim) == UNDECIDED]

    @property
    def data(self) -> list[str]:
        """The data in a few words, each kind once: "synthetic", "mnist (real)"."""
        names = {
            "synthetic"
            if row["source"] == "synthetic"
            else f"{row['name']} ({SOURCES.get(row['source'], row['source'])})": None
            for row in self.record["data"]
        }
        return list(names)

    @property
    def alt(self) -> str:
        """The picture in words: its number, then its panels and lines, or else its caption."""
        shows = self.record["alt"] or self.record["caption"] or "no description in the record"
        return f"{self.title}. {shows}"

    @property
    def picture(self) -> Path | None:
        """The PNG, where there is one."""
        path = self.folder / f"{self.slug}.png"
        return path if path.exists() else None


def figures() -> list[Figure]:
    """Every figure there is or should be, by paper: those of the index in its order, then the rest.

    A figure is expected where there is a record, a picture or an entry of the index.
    """
    base = folder("figures")
    entries = {(entry.scale, entry.slug): entry for entry in figure_index.entries(base)}
    files = [path for scale in SCALES for path in (base / scale).glob("[!.]*")]
    there = {(p.parent.name, p.stem) for p in files if p.suffix in (".json", ".png")}
    slugs = [slug for _, slug in entries] + sorted(slug for _, slug in there)
    order = {slug: place for place, slug in reversed(list(enumerate(slugs)))}
    found = [
        _figure(base / scale, slug, entries.get((scale, slug)))
        for scale, slug in {**entries, **dict.fromkeys(there)}
    ]
    return sorted(found, key=lambda f: (f.record["paper"] or "~", order[f.slug], f.scale))


def largest(shown: list[Figure]) -> list[Figure]:
    """Of each slug the figure of the largest scale, in the same order."""
    best = {f.slug: f for f in sorted(shown, key=lambda f: SCALES.index(f.scale))}
    return [figure for figure in shown if best[figure.slug] is figure]


def _figure(place: Path, slug: str, entry: Entry | None) -> Figure:
    record, troubles = read_record.read(place / f"{slug}.json")
    if not (place / f"{slug}.png").exists():
        troubles.append(f"There is no picture figures/{place.name}/{slug}.png.")
    return Figure(slug, place.name, record, entry, folder=place, troubles=tuple(troubles))


def statements(shown: list[Figure]) -> list[dict]:
    """One row by COLUMNS per claim of the figures, and per statement that cannot be checked.

    Of each paper, ledgers come first: records that hold the statements of their claims.
    """
    found = []
    for figure in shown:
        paper = figure.record["paper"]
        place = (paper or "~", not figure.record["statements"])
        for row in [*_claims(figure), *_unchecked(figure)]:
            found.append((place, {"paper": paper, "figure": figure} | row))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def _claims(figure: Figure) -> Iterator[dict]:
    seeds = len(figure.record["seeds"])
    for claim in figure.record["claims"]:
        source = str(claim["source"]).removeprefix(f"paper {figure.record['paper']}, ")
        name, margin = claim.get("number") or source, claim.get("margin")
        yield {
            "statement": name,
            "says": figure.record["statements"].get(name, {}).get("says", ""),
            "kind": claim.get("kind", ""),
            "setting": claim.get("setting") or figure.scale,
            "measured quantity": claim["statement"],
            "theory": claim["bound"],
            "measured": measured(claim),
            "margin": number(margin) if isinstance(margin, int | float) else "",
            "seeds": str(claim.get("seeds") or seeds or ""),
            "catches": ", ".join(claim.get("catches") or ()),
            "holds": UNDECIDED
            if word(claim) == UNDECIDED
            else verdict(claim["holds"] is True, claim.get("catches"), claim.get("fails_if", ())),
            "remark": claim.get("remark", ""),
        }


def _unchecked(figure: Figure) -> Iterator[dict]:
    for name, statement in figure.record["statements"].items():
        if why := statement.get("why"):
            says = statement.get("says", "")
            yield {"statement": name, "says": says, "holds": "not checked", "remark": why}


def word(claim: Mapping) -> str:
    """ "holds", "does not hold" or, where the data are too few to say, "undecided"."""
    if claim["holds"] is True:
        return "holds"
    return UNDECIDED if claim.get("verdict") == UNDECIDED else "does not hold"


def measured(claim: Mapping) -> str:
    """The measured value with its interval; a failing claim has more digits: by how little."""
    if claim["measured"] is None:
        return "not a number"
    holds = claim["holds"] is True
    text = number(claim["measured"]) if holds else failing(claim["measured"], claim["bound"])
    ends = [number(end) for end in claim.get("interval") or () if end is not None]
    return f"{text} [{', '.join(ends)}]" if len(ends) == 2 else text
