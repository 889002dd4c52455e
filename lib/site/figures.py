"""The figures that there are to show, each with its record and what the README found, and their claims as one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib.companion import ledger, record
from lib.companion.claims import number
from lib.files import folder
from lib.site import read_record, readme_table
from lib.site.readme_table import Finding

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
    "synthetic": "synthetic",
    "data_dir": "real",
    "data": "real",
    "hub": "real, from the hub",
    "demo": "small embedded stand-in",
}


@dataclass(frozen=True)
class Figure:
    """One figure at one scale; `record` holds every key of `records.KINDS`, empty where the file has nothing usable."""

    slug: str
    scale: str
    record: Mapping
    finding: Finding | None
    folder: Path
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How the page of this figure is called, without its ending."""
        return f"{self.slug}-{self.scale}"

    @property
    def title(self) -> str:
        """Figure number and paper, as "Figure 2, paper A"."""
        words = self.record["figure"] or self.slug
        words = words[:1].upper() + words[1:]
        return f"{words}, paper {self.record['paper']}" if self.record["paper"] else words

    @property
    def claims(self) -> list[Mapping]:
        """The claims that can be read."""
        return self.record["claims"]

    @property
    def failing(self) -> list[Mapping]:
        """Those of them that do not hold."""
        return [claim for claim in self.claims if claim["holds"] is not True]

    @property
    def data(self) -> list[str]:
        """The data in a few words, each kind once: "synthetic", "mnist (real)"."""
        words = {
            str(row["source"]): SOURCES.get(row["source"], row["source"])
            for row in self.record["data"]
        }
        names = [(row["name"], row["source"]) for row in self.record["data"]]
        return list(
            dict.fromkeys(
                words[s] if s == "synthetic" else f"{name} ({words[s]})" for name, s in names
            )
        )

    @property
    def alt(self) -> str:
        """The picture in words: its number, then what its panels and lines show, or else its caption."""
        shows = self.record.get("alt") or self.record["caption"] or "no description in the record"
        return f"{self.title}. {shows}"

    @property
    def picture(self) -> Path | None:
        """The PNG, where there is one."""
        path = self.folder / f"{self.slug}.png"
        return path if path.exists() else None


def figures() -> list[Figure]:
    """Every figure there is or should be: those of the README in its order, then the rest by name.

    A figure is expected where there is a record, a picture or a row of the README.
    """
    base, rows = folder("figures"), readme_table.read()
    known = {(row.scale, row.slug): row for row in rows}
    files = [
        path
        for scale in record.SCALES
        for path in (base / scale).glob("*")
        if path.suffix in (".json", ".png")
    ]
    places = [
        *known,
        *sorted({(path.parent.name, path.stem) for path in files if not path.name.startswith(".")}),
    ]
    order = {slug: place for place, (_, slug) in reversed(list(enumerate(places)))}
    found = [
        _figure(base / scale, slug, known.get((scale, slug)))
        for scale, slug in dict.fromkeys(places)
    ]
    return sorted(found, key=lambda figure: (figure.record["paper"] or "~", order[figure.slug]))


def largest(shown: list[Figure]) -> list[Figure]:
    """Of each slug the figure of the largest scale, in the same order."""
    best = {}
    for figure in shown:
        rank = record.SCALES.index(figure.scale)
        if figure.slug not in best or rank > record.SCALES.index(best[figure.slug].scale):
            best[figure.slug] = figure
    return [figure for figure in shown if best[figure.slug] is figure]


def _figure(place: Path, slug: str, finding: Finding | None) -> Figure:
    saved, troubles = read_record.read(place / f"{slug}.json")
    if not (place / f"{slug}.png").exists():
        troubles.append(f"There is no picture figures/{place.name}/{slug}.png.")
    return Figure(slug, place.name, saved, finding, place, tuple(troubles))


def statements(shown: list[Figure]) -> list[dict]:
    """One row per checked claim of the figures, and per ledger row that cannot be checked, for one
    table.

    A ledger beside a record (figures/<scale>/<slug>.md) says more of the same claims and takes
    their place.
    """
    found = []
    # Whole ledgers first: sorting is stable, so each paper's figures keep their order behind it.
    for figure in sorted(
        shown, key=lambda f: (f.record["paper"] or "~", not (f.folder / f"{f.slug}.md").exists())
    ):
        path = figure.folder / f"{figure.slug}.md"
        rows = ledger.read(path.read_text(encoding="utf-8")) if path.exists() else []
        for row in rows or [_row(claim, figure) for claim in figure.claims]:
            found.append({**row, "paper": figure.record["paper"], "figure": figure})
    return found


def measured(claim: Mapping) -> str:
    """The measured value as text; of a failing claim with more digits, which show by how little it fails."""
    if claim["measured"] is None:
        return "not a number"
    return number(claim["measured"]) if claim["holds"] is True else f"{claim['measured']:.7g}"


def _row(claim: Mapping, figure: Figure) -> dict:
    margin = claim.get("margin")
    return {
        "statement": str(claim["source"]).removeprefix(f"paper {figure.record['paper']}, "),
        "says": "",
        "setting": figure.scale,
        "measured quantity": claim["statement"],
        "theory": claim["bound"],
        "measured": measured(claim),
        "margin": number(margin) if isinstance(margin, int | float) else "",
        "seeds": str(len(figure.record["seeds"]) or ""),
        "holds": "yes" if claim["holds"] is True else "NO",
        "remark": "",
    }
