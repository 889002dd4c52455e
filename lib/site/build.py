"""The site as plain files: figures with their claims, notebooks as they ran, notes, ledger.

`make site` writes runs/site; it opens from disk, with no server and nothing from elsewhere.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lib import files, provenance
from lib.companion.record import SCALES
from lib.site import figures, pages, tables
from lib.site.figures import Figure
from lib.site.pages import Page

ABOUT = (
    "A reproducible companion to three papers on the training dynamics of attention: gradient"
    " descent turns to the max-margin token selection, and a measured number stands beside every"
    " statement."
)
LEDGER = "What each paper states, beside what was measured for it."
BENCHMARKS = "How fast, against what"  # the section of REPRODUCING.md
COLUMNS = "kind setting quantity source bound found margin seeds catches verdict remark".split()
HEADS = {"quantity": "measured quantity", "bound": "theory", "found": "measured"}


def build(folder: Path) -> list[str]:
    """Write the whole site in place of what is in `folder`; return the troubles that it shows."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as place:
        site = _Site(Path(place) / "site")
        troubles = _pages(site)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(site.folder, folder)
    return troubles


class _Site:
    """The folder into which pages are written, and their templates."""

    def __init__(self, folder: Path):
        try:
            version = metadata.version("attention-dynamics")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        self.folder = folder
        self.templates = tables.templates(autoescape=True, lstrip_blocks=True)
        known: dict[str, Any] = dict(
            papers=figures.PAPERS,
            sources=figures.SOURCES,
            columns=COLUMNS,
            heads=HEADS,
            inline=lambda text: Markup(pages.inline(text)),
            formulas=lambda text: Markup(pages.formulas(text)),
            commit=provenance.commit(),
            version=version,
        )
        self.templates.globals.update(known)

    def write(self, path: str, template: str, title: str, description=ABOUT, **values) -> None:
        """One page; `path` is relative to the site, `here` its name for the navigation.

        ValueError where a formula on it would be shown with its backslash.
        """
        values |= {"title": title, "description": description, "here": Path(path).stem}
        page = self.templates.get_template(f"{template}.html.j2")
        text = page.render(values, up="../" * path.count("/"))
        if raw := re.search(r"<m[io]\b[^>]*>(\\[^<]*)<", text):
            raise ValueError(f"{path}: a formula would be shown with {raw[1]}; write it otherwise")
        files.write(self.folder / path, text.encode())

    def copy(self, paths: Iterable[Path], name: str = "") -> list[str]:
        """Copy those `paths` that are there, as `name` with their endings; return their names."""
        names = []
        for path in filter(Path.is_file, paths):
            target = self.folder / f"{name or path.stem}{path.suffix}"
            files.write(target, path.read_bytes())
            names.append(target.name)
        return names


def _pages(site: _Site) -> list[str]:
    shown = figures.figures()
    of_scale = {f.slug: f for scale in SCALES for f in shown if f.scale == scale}
    best = [figure for figure in shown if of_scale[figure.slug] is figure]  # at its largest scale
    notes = [pages.note(path) for path in sorted(files.folder("notebooks").glob("*.md"))]
    notebooks = pages.notebooks(shown)
    order: Any = [page for page in notebooks if page.scale == "demo"]
    site.templates.globals.update(order=order)
    for figure in shown:
        _figure(site, figure, shown, notebooks)
    for page in notebooks:
        made = [f for f in shown if (f.notebook, f.scale) == (page.notebook, page.scale)]
        again = [p for p in notebooks if p.notebook == page.notebook and p is not page]
        _page(site, f"notebooks/{page.name}.html", page, made, again)
    for page in notes:
        _page(site, f"notes/{page.name}.html", page)
    reproducing = files.ROOT / "REPRODUCING.md"  # an installed package has none
    if reproducing.exists():
        _page(site, "benchmarks.html", pages.note(reproducing, BENCHMARKS))
    statements = {}  # of each paper first those of ledgers, which have their texts
    for figure in sorted(
        best, key=lambda f: (f.record["paper"] or "~", not f.record["statements"])
    ):
        for row in figure.claims:
            statements.setdefault((row["paper"], row["statement"]), []).append(row)
    site.write("ledger.html", "ledger", "Ledger", LEDGER, statements=statements)
    claims = [row for figure in shown for row in figure.claims]
    files.write(site.folder / "claims.json", files.dumps(claims).encode())
    moving = site.copy(files.ROOT / f"figures/turning.{kind}" for kind in ("gif", "png"))
    # Papers first, each with its notebooks' order, then what goes beyond them.
    sections = sorted({figure.section for figure in best}, key=lambda name: (len(name) > 1, name))
    lists = {"best": best, "notebooks": notebooks, "notes": notes, "sections": sections}
    site.write("index.html", "index", "Figures and findings", moving=len(moving) == 2, **lists)
    site.copy(tables.TEMPLATES / name for name in ("site.css", "filter.js"))
    return [f"{item.name}: {text}" for item in [*shown, *notebooks] for text in item.troubles]


def _figure(site: _Site, figure: Figure, shown: list[Figure], notebooks: list[Page]) -> None:
    paths = (figure.folder / f"{figure.slug}{end}" for end in (".png", ".pdf", ".json", ".md"))
    site.write(
        f"figures/{figure.name}.html",
        "figure",
        f"{figure.title}, {figure.scale}",
        figure.record["caption"] or ABOUT,
        figure=figure,
        files=site.copy(paths, f"figures/{figure.name}"),
        notebook=f"{figure.notebook}-{figure.scale}" in {page.name for page in notebooks},
        others=[f for f in shown if f.slug == figure.slug and f is not figure],
    )


def _page(site: _Site, path: str, page: Page, made=(), again=()) -> None:
    site.write(path, "page", page.title, page.title, page=page, figures=made, others=again)
