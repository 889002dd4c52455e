"""The site as plain files, runs/site, that open from disk: figures, notebooks, notes, ledger."""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from lib import files, provenance
from lib.companion.record import ENDS, SCALES, SOURCES
from lib.site import figures, pages

ABOUT = (
    "A reproducible companion to three papers on the training dynamics of attention: gradient"
    " descent turns to the max-margin token selection, and a measured number stands beside every"
    " statement."
)
COLUMNS = "kind setting quantity source bound found margin seeds catches verdict remark".split()
HEADS = {"quantity": "measured quantity", "found": "measured"}


def main(argv: list[str] | None = None) -> int:
    """Write the pages, or the Markdown tables; status 1 where something cannot be read."""
    about = "Write the site of figures and notebooks, or the tables of README and REPRODUCING."
    parser = argparse.ArgumentParser(prog="python -m lib.site", description=about)
    parser.add_argument("what", nargs="?", choices=("pages", "tables"), default="pages")
    text = "where the pages go, in place of a site that is there; default: runs/site"
    parser.add_argument("--out", type=Path, default=files.folder("runs") / "site", help=text)
    asked = parser.parse_args(argv)
    folder = asked.out
    if asked.what == "pages" and folder.exists() and not (folder / "index.html").exists():
        parser.error(f"{folder} holds something else than a site; choose another folder")
    try:
        if asked.what == "tables":
            for path in (files.ROOT / name for name in figures.FILES):
                files.write(path, figures.renewed(path.read_text(encoding="utf-8")).encode())
        else:
            _build(folder)
            print(f"open {folder / 'index.html'}")
    except (OSError, ValueError) as error:
        print(f"lib.site: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


class _Site:
    """The folder into which pages are written, and their templates."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.templates = figures.templates(autoescape=True, lstrip_blocks=True)
        known: Any = dict(papers=figures.PAPERS, sources=SOURCES, columns=COLUMNS, heads=HEADS)
        known |= dict(inline=pages.inline, formulas=pages.formulas, commit=provenance.commit())
        known["version"] = metadata.version("attention-dynamics")
        self.templates.globals.update(known)

    def write(self, path: str, template: str, title: str, description=ABOUT, **values) -> None:
        """One page; ValueError where a formula on it would be shown with its backslash."""
        values |= {"title": title, "description": description, "here": Path(path).stem}
        page = self.templates.get_template(f"{template}.html.j2")
        text = page.render(values, up="../" * path.count("/"))
        if raw := re.search(r"<m[io]\b[^>]*>(\\[^<]*)<", text):
            raise ValueError(f"{path}: a formula would be shown with {raw[1]}; write it otherwise")
        files.write(self.folder / path, text.encode())

    def page(self, path: str, page: pages.Page, made=(), again=()) -> None:
        self.write(path, "page", page.title, page.title, page=page, figures=made, others=again)

    def copy(self, paths: Iterable[Path], name: str = "") -> list[str]:
        """Copy those `paths` that are there, as `name` with their endings; their names."""
        targets = {path: f"{name or path.stem}{path.suffix}" for path in paths if path.is_file()}
        for path, target in targets.items():
            shown = pages.in_few_colours if path.suffix == ".png" else bytes
            files.write(self.folder / target, shown(path.read_bytes()))
        return [Path(target).name for target in targets.values()]


def _build(folder: Path) -> None:
    """Write the whole site in place of what is in `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as place:
        site = _Site(Path(place) / "site")
        _pages(site)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(site.folder, folder)


def _pages(site: _Site) -> None:
    shown = figures.figures()
    of_scale = {f.slug: f for scale in SCALES for f in shown if f.scale == scale}
    best = [figure for figure in shown if of_scale[figure.slug] is figure]  # at its largest scale
    notes = [pages.note(path) for path in sorted(files.folder("notebooks").glob("*.md"))]
    notebooks = pages.notebooks(shown)
    order: Any = [page for page in notebooks if page.scale == "demo"]
    site.templates.globals.update(order=order)
    for figure in shown:
        copies = [figure.folder / f"{figure.slug}{end}" for end in ENDS]
        site.write(
            f"figures/{figure.name}.html",
            "figure",
            f"{figure.title}, {figure.scale}",
            figure.record["caption"] or ABOUT,
            figure=figure,
            files=site.copy(copies, f"figures/{figure.name}"),
            notebook=f"{figure.notebook}-{figure.scale}" in {page.name for page in notebooks},
            others=[f for f in shown if f.slug == figure.slug and f is not figure],
        )
    for page in notebooks:
        made = [f for f in shown if (f.notebook, f.scale) == (page.notebook, page.scale)]
        again = [p for p in notebooks if p.notebook == page.notebook and p is not page]
        site.page(f"notebooks/{page.name}.html", page, made, again)
    for page in notes:
        site.page(f"notes/{page.name}.html", page)
    reproducing = files.ROOT / "REPRODUCING.md"  # an installed package has none
    if reproducing.exists():
        site.page("benchmarks.html", pages.note(reproducing, "How fast, against what"))
    statements = {}  # of each paper first those of ledgers, which have their texts
    first = lambda figure: (figure.record["paper"], "statements" not in figure.record)
    for row in (row for figure in sorted(best, key=first) for row in figure.claims):
        statements.setdefault((row["paper"], row["statement"]), []).append(row)
    about = "What each paper states, beside what was measured for it."
    site.write("ledger.html", "ledger", "Ledger", about, statements=statements)
    claims = [row for figure in shown for row in figure.claims]
    files.write(site.folder / "claims.json", files.dumps(claims).encode())
    moving = site.copy(files.ROOT / f"figures/turning.{kind}" for kind in ("gif", "png"))
    # Papers first, each with its notebooks' order, then what goes beyond them.
    sections = sorted({figure.section for figure in best}, key=lambda name: (len(name) > 1, name))
    lists = {"best": best, "notebooks": notebooks, "notes": notes, "sections": sections}
    site.write("index.html", "index", "Figures and findings", moving=len(moving) == 2, **lists)
    site.copy(figures.TEMPLATES / name for name in ("site.css", "filter.js"))
