"""The figures to show, each with its record, its sentence and its claims in words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lib import files
from lib.companion import ledger
from lib.companion.claims import UNDECIDED, failing, number
from lib.companion.record import SCALES, checked
from lib.site import figure_index
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
COLUMNS = "kind setting quantity source bound found margin seeds catches verdict remark".split()
HEADS = {"quantity": "measured quantity", "bound": "theory", "found": "measured"}
EMPTY = {"schema": 1} | {key: "" for key in ("paper", "figure", "caption", "notebook")}
EMPTY |= {key: {} for key in ("parameters", "setting", "numbers", "statements", "provenance")}
EMPTY |= {key: [] for key in ("seeds", "data", "claims")}


@dataclass(frozen=True)
class Figure:
    """One figure at one scale: `record` is as `read` gives it, `claims` as `rows` does."""

    slug: str
    scale: str
    folder: Path
    entry: Entry | None
    record: Mapping
    claims: tuple[dict, ...] = ()
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of this figure's page, without its ending."""
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
    def alt(self) -> str:
        """The picture in words: its title and its caption."""
        return f"{self.title}. {self.record['caption'] or 'No description in the record.'}"

    @property
    def picture(self) -> Path | None:
        """The PNG, where there is one."""
        path = self.folder / f"{self.slug}.png"
        return path if path.exists() else None

    @property
    def data(self) -> list[str]:
        """The data in a few words, each kind once: "synthetic", "mnist (real)"."""
        words = (
            "synthetic"
            if row["source"] == "synthetic"
            else f"{row['name']} ({SOURCES.get(row['source'], row['source'])})"
            for row in self.record["data"]
        )
        return list(dict.fromkeys(words))

    def rows(self) -> tuple[dict, ...]:
        """A row per claim, then one per statement that cannot be checked, with the reason.

        All in words but `measured`, which is a number or None; `found` is that in words, with its
        interval.
        """
        statements = self.record["statements"]
        unchecked = [
            {"statement": name, "verdict": "not checked", "remark": statement["why"]}
            for name, statement in statements.items()
            if statement.get("why")
        ]
        about = {"paper": self.record["paper"], "figure": self.name, "title": self.title}
        return tuple(
            about | {"says": statements.get(row["statement"], {}).get("says", "")} | row
            for row in [*map(self._row, self.record["claims"]), *unchecked]
        )

    def _row(self, claim: Mapping) -> dict:
        measured, margin, source = claim["measured"], claim.get("margin"), str(claim["source"])
        name = claim.get("number") or source.removeprefix(f"paper {self.record['paper']}, ")
        undecided = not claim["holds"] and claim.get("verdict") == UNDECIDED
        power = claim.get("catches"), claim.get("fails_if", ())
        if measured is None:
            found = "not a number"
        else:
            found = number(measured) if claim["holds"] else failing(measured, claim["bound"])
        ends = [number(end) for end in claim.get("interval") or () if end is not None]
        return {
            "statement": str(name),
            "kind": claim.get("kind", ""),
            "setting": claim.get("setting") or self.scale,
            "quantity": str(claim["statement"]),
            "source": source,
            "bound": str(claim["bound"]),
            "measured": measured,
            "found": f"{found} [{', '.join(ends)}]" if len(ends) == 2 else found,
            "margin": "" if margin is None else number(margin),
            "seeds": str(claim.get("seeds") or len(self.record["seeds"]) or ""),
            "catches": ", ".join(power[0] or ()),
            "verdict": UNDECIDED if undecided else ledger.verdict(claim["holds"], *power),
            "remark": claim.get("remark", ""),
        }

    @property
    def open_claims(self) -> list[dict]:
        """The claims that fail, then those that the data leave undecided."""
        return [row for word in ("NO", UNDECIDED) for row in self.claims if row["verdict"] == word]


def figures() -> list[Figure]:
    """Every figure there is or should be, by paper: those of the index in its order, then the rest.

    A figure is expected where there is a record, a picture or an entry of the index.
    """
    base = files.folder("figures")
    entries = {(entry.scale, entry.slug): entry for entry in figure_index.entries(base)}
    paths = [path for scale in SCALES for path in (base / scale).glob("[!.]*")]
    there = {(p.parent.name, p.stem) for p in paths if p.suffix in (".json", ".png")}
    slugs = [slug for _, slug in entries] + sorted(slug for _, slug in there)
    order = {slug: place for place, slug in reversed(list(enumerate(slugs)))}
    shown = [
        _figure(base / scale, slug, entries.get((scale, slug)))
        for scale, slug in {**entries, **dict.fromkeys(there)}
    ]
    return sorted(shown, key=lambda f: (f.record["paper"] or "~", order[f.slug], f.scale))


def read(path: Path, name: str) -> dict:
    """The record in a file; ValueError, which calls it `name`, for one that cannot be shown."""
    record = checked(files.parse_object(path.read_bytes(), name), name)
    if (schema := record.get("schema")) != EMPTY["schema"]:
        raise ValueError(f"{name} has schema {schema}, not {EMPTY['schema']}")
    record = EMPTY | record
    if wrong := [key for key, empty in EMPTY.items() if type(record[key]) is not type(empty)]:
        raise ValueError(f"{name} is damaged: {', '.join(wrong)} cannot be read")
    return record


def _figure(folder: Path, slug: str, entry: Entry | None) -> Figure:
    name, troubles = f"figures/{folder.name}/{slug}", []
    figure = Figure(slug, folder.name, folder, entry, EMPTY)
    try:
        readable = replace(figure, record=read(folder / f"{slug}.json", f"{name}.json"))
        figure = replace(readable, claims=readable.rows())
    except FileNotFoundError:
        troubles.append(f"There is no record {name}.json; running its notebook makes it.")
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        troubles.append(f"The record cannot be shown: {type(error).__name__}, {error}.")
    if not figure.picture:
        troubles.append(f"There is no picture {name}.png.")
    return replace(figure, troubles=tuple(troubles))


def largest(shown: list[Figure]) -> list[Figure]:
    """Of each slug the figure of the largest scale, in the same order."""
    best = {f.slug: f for f in sorted(shown, key=lambda f: SCALES.index(f.scale))}
    return [figure for figure in shown if best[figure.slug] is figure]


def by_statement(shown: list[Figure]) -> dict[tuple[str, str], list[dict]]:
    """The claims of the figures by (paper, statement).

    Of each paper, ledgers come first: records that hold the statements of their claims.
    """
    ordered = sorted(shown, key=lambda f: (f.record["paper"] or "~", not f.record["statements"]))
    groups = {}
    for row in (row for figure in ordered for row in figure.claims):
        groups.setdefault((row["paper"], row["statement"]), []).append(row)
    return groups
