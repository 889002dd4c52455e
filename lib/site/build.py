"""The site as plain files: figures with their claims, notebooks as they ran, ledger, benchmarks.

`make site` writes runs/site; it opens from disk, with no server and nothing from elsewhere.
"""

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path

import jinja2
from markupsafe import Markup
from PIL import Image

from lib import files, provenance
from lib.site import executed_notebooks, mathml, notebook_page, tables
from lib.site import figures as figure_pages
from lib.site.executed_notebooks import ExecutedNotebook
from lib.site.figures import Figure
from lib.site.notebook_page import Page

ABOUT = (
    "A reproducible companion to three papers on the training dynamics of attention: gradient"
    " descent turns to the max-margin token selection, and a measured number stands beside every"
    " statement."
)
BENCHMARK = ("name", "ours", "reference", "ratio", "spread", "bar", "sense", "holds", "note")


def _size(figure: Figure) -> tuple[int, int]:
    with Image.open(figure.picture) as image:
        return image.size


def _version() -> str:
    try:
        return metadata.version("attention-dynamics")
    except metadata.PackageNotFoundError:
        return "(not installed)"


@dataclass(frozen=True)
class Site:
    """What there is to show, and the folder into which it is written."""

    folder: Path
    figures: list[Figure]
    notebooks: list[ExecutedNotebook]

    @cached_property
    def templates(self) -> jinja2.Environment:
        """The templates, with what every page may ask for."""
        found = jinja2.Environment(
            loader=jinja2.FileSystemLoader(tables.TEMPLATES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        found.globals |= {
            "papers": figure_pages.PAPERS,
            "sources": figure_pages.SOURCES,
            "measured": figure_pages.measured,
            "word": figure_pages.word,
            "hours": tables.hours,
            "expected": tables.expected,
            "size": _size,
            "inline": lambda text: Markup(mathml.inline(text)),
            "formulas": lambda text: Markup(mathml.formulas(text)),
            "commit": provenance.commit(),
            "version": _version(),
        }
        return found

    def write(self, path: str, template: str, title: str, description=ABOUT, **values) -> None:
        """One page; `path` is relative to the site, `here` its name for the navigation."""
        common = {
            "title": title,
            "description": description,
            "up": "../" * path.count("/"),
            "here": Path(path).stem,
            "script": False,
        }
        text = self.templates.get_template(f"{template}.html.j2").render(common | values)
        if raw := re.search(r"<m[io]\b[^>]*>(\\[^<]*)<", text):
            raise ValueError(f"{path}: a formula would be shown with {raw[1]}; write it otherwise")
        files.write(self.folder / path, text.encode())

    def copy(self, path: Path, name: str) -> str:
        """A file of the repository under another name; returns its last part."""
        files.write(self.folder / name, path.read_bytes())
        return Path(name).name


def build(folder: Path) -> list[str]:
    """Write the whole site in place of what is in `folder`; return the troubles that it shows."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as place:
        found = figure_pages.figures(), executed_notebooks.find()
        site = Site(Path(place) / "site", *found)
        troubles = _pages(site)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(site.folder, folder)
    return troubles


def _pages(site: Site) -> list[str]:
    for name in ("site.css", "table.js"):
        site.copy(tables.TEMPLATES / name, name)
    for figure in site.figures:
        _figure(site, figure)
    pages = [(notebook, _notebook(site, notebook)) for notebook in site.notebooks]
    notes = [_note(site, path) for path in notebook_page.notes()]
    best = figure_pages.largest(site.figures)
    moving = [files.ROOT / f"figures/turning.{kind}" for kind in ("gif", "png")]
    moving = [site.copy(path, path.name) for path in moving if path.is_file()]
    # Papers first, each with its notebooks' order, then what goes beyond them.
    sections = sorted({figure.section for figure in best}, key=lambda name: (len(name) > 1, name))
    about = {"best": best, "notebooks": pages, "site": site, "moving": len(moving) == 2}
    about["notes"] = notes
    about["sections"] = sections
    site.write("index.html", "index", "Figures and findings", **about)
    rows = figure_pages.statements(best)
    site.write(
        "ledger.html",
        "ledger",
        "Ledger",
        "What each paper states, beside what was measured for it.",
        rows=rows,
        columns=[name for name in figure_pages.COLUMNS if any(row.get(name) for row in rows)],
        script=True,
    )
    troubles = _benchmarks(site)
    troubles += [f"{figure.name}: {text}" for figure in site.figures for text in figure.troubles]
    return troubles + [
        f"{notebook.name}: {text}"
        for notebook, page in pages
        for text in notebook.troubles + page.troubles
    ]


def _figure(site: Site, figure: Figure) -> None:
    found = [figure.folder / f"{figure.slug}{end}" for end in (".png", ".pdf", ".json", ".md")]
    name = f"{figure.notebook}-{figure.scale}"
    site.write(
        f"figures/{figure.name}.html",
        "figure",
        f"{figure.title}, {figure.scale}",
        figure.record["caption"] or ABOUT,
        figure=figure,
        files=[site.copy(p, f"figures/{figure.name}{p.suffix}") for p in found if p.exists()],
        page=name if name in [notebook.name for notebook in site.notebooks] else None,
        others=[f for f in site.figures if f.slug == figure.slug and f is not figure],
    )


def _notebook(site: Site, notebook: ExecutedNotebook) -> Page:
    run = (notebook.notebook, notebook.scale)
    own = [f for f in site.figures if (f.notebook, f.scale) == run]
    descriptions = {figure.slug: figure.alt for figure in own}
    page = notebook_page.page(notebook.path, descriptions, [n.name for n in site.notebooks])
    site.write(
        f"notebooks/{notebook.name}.html",
        "notebook",
        f"{page.title}, {notebook.scale}",
        page.title,
        notebook=notebook,
        page=page,
        figures=own,
        others=[n for n in site.notebooks if n.notebook == run[0] and n is not notebook],
    )
    return page


def _note(site: Site, path: Path) -> tuple[str, str]:
    """A Markdown file beside the notebooks as a page; its name and its title."""
    note = notebook_page.note(path, [notebook.name for notebook in site.notebooks])
    site.write(f"notes/{path.stem}.html", "note", note.title, note.title, page=note, file=path.name)
    return path.stem, note.title


def _benchmarks(site: Site) -> list[str]:
    path = files.folder("runs") / "bench.json"
    rows, troubles, written = [], [], ""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [{key: row[key] for key in BENCHMARK} for row in found]
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except FileNotFoundError:
        pass  # the page says how to measure them
    except (ValueError, KeyError, TypeError) as error:
        said = f"runs/bench.json cannot be read: {type(error).__name__}"
        troubles = [f"{said}; `make bench` writes it anew."]
    site.write(
        "benchmarks.html",
        "benchmarks",
        "Benchmarks",
        "Each row measures this project and a plain reference in one process; the ratio counts.",
        rows=rows,
        written=written,
        troubles=troubles,
        script=bool(rows),
    )
    return [f"benchmarks: {text}" for text in troubles]
