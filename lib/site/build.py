"""The site: every figure with its claims, every notebook as it ran, the ledger and the benchmarks,
as plain files.

`make site` writes runs/site; it opens from disk, with no server and nothing from elsewhere.
"""

import argparse
import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path

import jinja2
from markupsafe import Markup
from PIL import Image

from lib import files, provenance
from lib.site import executed_notebooks, figures, mathml, notebook_page, reproducing_table

ABOUT = (
    "A reproducible companion to three papers on the training dynamics of attention: gradient descent turns to the "
    "max-margin token selection, and a measured number stands beside every statement."
)


def _sentence(figure: figures.Figure) -> Markup:
    """What was found, in one sentence: the README's, else the caption."""
    if figure.finding is None:
        return Markup.escape(figure.record["caption"] or "Nothing is known of this figure.")
    text = figure.finding.sentence(figure.record)
    return Markup(mathml.inline(text[:1].upper() + text[1:]) + ".")


def _size(figure: figures.Figure) -> tuple[int, int]:
    with Image.open(figure.picture) as image:
        return image.size


def _version() -> str:
    try:
        return metadata.version("attention-dynamics")
    except metadata.PackageNotFoundError:
        return "(not installed)"


class Site:
    """Pages written below a folder; every page knows what all have in common."""

    def __init__(self, folder: Path):
        self.folder = folder
        loader = jinja2.FileSystemLoader(notebook_page.TEMPLATES)
        self.templates = jinja2.Environment(
            loader=loader,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self.templates.globals |= {
            "papers": figures.PAPERS,
            "sources": figures.SOURCES,
            "measured": figures.measured,
            "expected": reproducing_table.expected,
            "sentence": _sentence,
            "size": _size,
            "inline": lambda text: Markup(mathml.inline(text)),
            "commit": provenance.commit(),
            "version": _version(),
        }

    def write(
        self, path: str, template: str, title: str, description: str = ABOUT, **values
    ) -> None:
        """One page; `path` is relative to the site, `here` its name for the navigation."""
        up, here = "../" * path.count("/"), Path(path).stem
        common = {
            "title": title,
            "description": description,
            "up": up,
            "here": here,
            "script": False,
        }
        text = self.templates.get_template(f"{template}.html.j2").render(common | values)
        files.write(self.folder / path, text.encode())

    def copy(self, path: Path, name: str) -> str:
        """A file of the repository under another name; returns its last part."""
        files.write(self.folder / name, path.read_bytes())
        return Path(name).name


def build(folder: Path) -> list[str]:
    """Write the whole site into `folder`, in place of what is there, and return the troubles that it shows."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as place:
        site = Site(Path(place) / "site")
        troubles = _pages(site)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(site.folder, folder)
    return troubles


def _pages(site: Site) -> list[str]:
    for name in ("site.css", "table.js"):
        site.copy(notebook_page.TEMPLATES / name, name)
    drawn, ran = figures.figures(), executed_notebooks.copies()
    cards = figures.largest(drawn)
    for figure in drawn:
        _figure(site, figure, drawn, ran)
    shown = [(copy, _notebook(site, copy, drawn, ran)) for copy in ran]
    _ledger(site, cards)
    troubles = _benchmarks(site)
    groups = [
        (paper, list(group))
        for paper, group in groupby(cards, key=lambda figure: figure.record["paper"])
    ]
    claims = [claim for figure in cards for claim in figure.claims]
    held = sum(claim["holds"] is True for claim in claims)
    site.write(
        "index.html", "index", "Figures and findings",
        groups=groups, figures=drawn, notebooks=shown, held=held, total=len(claims),
    )  # fmt: skip
    troubles += [f"{figure.name}: {text}" for figure in drawn for text in figure.troubles]
    return troubles + [
        f"{copy.name}: {text}" for copy, page in shown for text in copy.troubles + page.troubles
    ]


def _figure(site, figure, drawn, ran):
    found = [
        figure.folder / f"{figure.slug}{suffix}" for suffix in (".png", ".pdf", ".json", ".md")
    ]
    names = [
        site.copy(path, f"figures/{figure.name}{path.suffix}") for path in found if path.exists()
    ]
    page = f"{figure.record['notebook']}-{figure.scale}"
    site.write(
        f"figures/{figure.name}.html", "figure", f"{figure.title}, {figure.scale}", figure.record["caption"] or ABOUT,
        figure=figure, files=names, page=page if page in [copy.name for copy in ran] else None,
        others=[other for other in drawn if other.slug == figure.slug and other is not figure],
    )  # fmt: skip


def _notebook(site, copy, drawn, ran):
    own = [
        figure
        for figure in drawn
        if (figure.record["notebook"], figure.scale) == (copy.notebook, copy.scale)
    ]
    page = notebook_page.page(
        copy.path, {figure.slug: figure.alt for figure in own}, [other.name for other in ran]
    )
    site.write(
        f"notebooks/{copy.name}.html", "notebook", f"{page.title}, {copy.scale}", page.title,
        copy=copy, page=page, figures=own,
        others=[other for other in ran if other.notebook == copy.notebook and other is not copy],
    )  # fmt: skip
    return page


def _ledger(site, cards):
    rows = figures.statements(cards)
    verdicts = [row["holds"] for row in rows]
    counts = {
        "yes": verdicts.count("yes"),
        "no": verdicts.count("NO"),
        "open": verdicts.count("not checked"),
    }
    site.write(
        "ledger.html", "ledger", "Ledger", "What each paper states, beside what was measured for it.",
        rows=rows, counts=counts, letters=sorted({row["paper"] for row in rows if row["paper"]}),
        slugs=list(dict.fromkeys(row["figure"].slug for row in rows)), script=True,
    )  # fmt: skip


def _benchmarks(site):
    path, rows, written, troubles = files.folder("runs") / "bench.json", [], "", []
    keys = ("name", "ours", "reference", "ratio", "spread", "bar", "sense", "holds", "note")
    if path.exists():
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
        try:
            rows = [
                {key: row[key] for key in keys}
                for row in json.loads(path.read_text(encoding="utf-8"))
            ]
        except (ValueError, KeyError, TypeError) as error:
            troubles = [
                f"runs/bench.json cannot be read: {type(error).__name__}; `make bench` writes it anew."
            ]
    else:
        troubles = ["There is no runs/bench.json here; `make bench` measures and writes it."]
    about = "Each row measures this project and a plain reference in one process; the ratio is what counts."
    site.write("benchmarks.html", "benchmarks", "Benchmarks", about, rows=rows, written=written, troubles=troubles,
               script=bool(rows))  # fmt: skip
    return [f"benchmarks: {text}" for text in troubles]


def main(argv: list[str] | None = None) -> int:
    """The command `python -m lib.site`; troubles are printed, and shown on the site, but do not stop it."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.site", description="Write the site of figures and notebooks."
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to; default: runs/site, which is replaced"
    )
    folder = parser.parse_args(argv).out or files.folder("runs") / "site"
    if (
        folder.exists()
        and not (folder / "index.html").exists()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        parser.error(f"{folder} holds something else than a site; choose another folder")
    for trouble in build(folder):
        print(trouble)
    found = [path for path in folder.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in found) / 1e6
    print(f"{len(found)} files, {megabytes:.1f} MB; open {folder / 'index.html'}")
    return 0
