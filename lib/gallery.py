"""What there is to show: every figure with its record, every notebook with its executed copies, all troubles said.

Nothing here raises for a record that is missing, damaged or of another schema: what can be read is kept, and `troubles`
says in words what cannot.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib import findings, ledger, results
from lib.claims import number
from lib.findings import Finding
from lib.results import folder

SCHEMA = 1
PAPERS = {  # letter: (title, arXiv number)
    "A": ("Implicit Bias and Fast Convergence Rates for Self-attention", "2402.05738"),
    "B": ("Training Dynamics of Softmax Self-Attention: Fast Global Convergence via Preconditioning", "2603.01514"),
    "C": ("Optimizing Attention with Mirror Descent: Generalized Max-Margin Token Selection", "2410.14581"),
}
SOURCES = {  # of data, as a reader would say it
    "synthetic": "synthetic",
    "data_dir": "real",
    "data": "real",
    "hub": "real, from the hub",
    "demo": "small embedded stand-in",
}
KINDS = {  # what a record of today's schema holds
    "paper": str,
    "figure": str,
    "caption": str,
    "notebook": str,
    "parameters": dict,
    "seeds": list,
    "data": list,
    "claims": list,
    "numbers": dict,
    "provenance": dict,
}
OF_CLAIM = ("id", "statement", "source", "measured", "bound", "holds")


@dataclass(frozen=True)
class Figure:
    """One figure at one scale; `record` holds every key of KINDS, empty where the file has nothing usable."""

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
        words = {str(row["source"]): SOURCES.get(row["source"], row["source"]) for row in self.record["data"]}
        names = [(row["name"], row["source"]) for row in self.record["data"]]
        return list(dict.fromkeys(words[s] if s == "synthetic" else f"{name} ({words[s]})" for name, s in names))

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
    base, rows = folder("figures"), findings.read()
    known = {(row.scale, row.slug): row for row in rows}
    files = [path for scale in results.SCALES for path in (base / scale).glob("*") if path.suffix in (".json", ".png")]
    places = [*known, *sorted({(path.parent.name, path.stem) for path in files if not path.name.startswith(".")})]
    order = {slug: place for place, (_, slug) in reversed(list(enumerate(places)))}
    found = [_figure(base / scale, slug, known.get((scale, slug))) for scale, slug in dict.fromkeys(places)]
    return sorted(found, key=lambda figure: (figure.record["paper"] or "~", order[figure.slug]))


def largest(shown: list[Figure]) -> list[Figure]:
    """Of each slug the figure of the largest scale, in the same order."""
    best = {}
    for figure in shown:
        rank = results.SCALES.index(figure.scale)
        if figure.slug not in best or rank > results.SCALES.index(best[figure.slug].scale):
            best[figure.slug] = figure
    return [figure for figure in shown if best[figure.slug] is figure]


def _figure(place: Path, slug: str, finding: Finding | None) -> Figure:
    record, troubles = _record(place / f"{slug}.json")
    if not (place / f"{slug}.png").exists():
        troubles.append(f"There is no picture figures/{place.name}/{slug}.png.")
    return Figure(slug, place.name, record, finding, place, tuple(troubles))


def _record(path: Path) -> tuple[dict, list[str]]:
    """The record with every key of KINDS, and what is wrong with it."""
    name = f"figures/{path.parent.name}/{path.name}"
    empty = {key: kind() for key, kind in KINDS.items()}
    if not path.exists():
        return empty, [f"There is no record {name}; running its notebook makes it."]
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return empty, [f"The record {name} cannot be read: {type(error).__name__}."]
    if not isinstance(read, dict):
        return empty, [f"The record {name} is not a record."]
    record = {key: read[key] if isinstance(read.get(key), kind) else kind() for key, kind in KINDS.items()}
    record["alt"] = read.get("alt") if isinstance(read.get("alt"), str) else ""
    lacking = [key for key, kind in KINDS.items() if not isinstance(read.get(key), kind)]
    troubles = []
    for key, readable in (("claims", _is_claim), ("data", _is_data)):
        whole = [row for row in record[key] if readable(row)]
        lacking += [f"{len(record[key]) - len(whole)} of {len(record[key])} {key}"] if whole != record[key] else []
        record[key] = whole
    whole = {name: row for name, row in record["numbers"].items() if _is_number(row)}
    lacking += [name for name in record["numbers"] if name not in whole]
    record["numbers"] = whole
    if read.get("schema") != SCHEMA or lacking:
        schema = f"schema {read.get('schema', 'none')}" + ("" if read.get("schema") == SCHEMA else f", not {SCHEMA}")
        gone = f"; missing or unreadable: {', '.join(lacking)}" if lacking else ""
        troubles.append(f"The record {name} has {schema}{gone}.")
    return record, troubles


def _plain(value):
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_claim(row):
    return isinstance(row, dict) and all(key in row for key in OF_CLAIM) and _plain(row["measured"])


def _is_data(row):
    return isinstance(row, dict) and {"name", "source"} <= row.keys()


def _is_number(row):
    return isinstance(row, dict) and _plain(row.get("value", "")) and _plain(row.get("tolerance"))


@dataclass(frozen=True)
class Copy:
    """One executed copy of a notebook: its file, its scale and in words what is wrong with it."""

    notebook: str
    scale: str
    path: Path
    committed: bool
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How its page is called, without its ending."""
        return f"{self.notebook}-{self.scale}"


def copies() -> list[Copy]:
    """Every notebook at every scale at which it was run: from runs/, at demo scale else the committed .ipynb."""
    found = []
    for source in sorted(folder("notebooks").glob("*.py")):
        for scale in results.SCALES:
            path = folder("runs") / scale / f"{source.stem}.ipynb"
            if path.exists():
                found.append(Copy(source.stem, scale, path, False, tuple(_unfinished(path, source))))
            elif scale == "demo":
                found.append(Copy(source.stem, scale, source.with_suffix(".ipynb"), True))
    return found


def _unfinished(path: Path, source: Path) -> list[str]:
    """What the marker beside an executed copy says against it."""
    try:
        marker = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ["This run did not finish: there is no mark of success beside it."]
    now = results.sha256(source.read_bytes())
    changed = not isinstance(marker, dict) or marker.get("source") != now
    return ["The notebook has changed since this run."] if changed else []


def statements(shown: list[Figure]) -> list[dict]:
    """One row per checked claim of the figures, and per ledger row that cannot be checked, for one table.

    A ledger beside a record (figures/<scale>/<slug>.md) says more of the same claims and takes their place.
    """
    found = []
    # Whole ledgers first: sorting is stable, so each paper's figures keep their order behind it.
    for figure in sorted(shown, key=lambda f: (f.record["paper"] or "~", not (f.folder / f"{f.slug}.md").exists())):
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
