"""An executed notebook as the body of a web page: code folded, formulas as MathML, no script."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import bs4
import nbformat
from nbconvert import HTMLExporter
from traitlets.config import Config

from lib.companion.colab_cell import installs
from lib.companion.notebook_cells import without_widget
from lib.files import folder
from lib.site import mathml, tables

SHOWN = "text/html text/markdown image/svg+xml text/latex image/png image/jpeg text/plain".split()
ACTIVE = "script style link iframe object embed meta base form".split()

ACTIVE_LINK = re.compile(r"\s*(javascript|vbscript|data:text)", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """The title of a notebook, its HTML, and in words what went wrong while it was executed."""

    title: str
    body: str
    troubles: tuple[str, ...]


def page(path: Path, descriptions: Mapping[str, str], links: Iterable[str]) -> Page:
    """The notebook at `path`; a file that is no notebook gives an empty page that says so.

    descriptions: alternative text by slug, for the picture of a cell in whose source the slug
    stands. links: the pages beside this one, to which its links to other notebooks lead; other
    links into the repository become plain text, since the site does not hold those files.
    """
    if not path.exists():
        return Page(path.stem, "", ("It was never run: there is no executed copy and no .ipynb.",))
    try:
        notebook = nbformat.read(path, as_version=4)
        cells = notebook.cells = [cell for cell in notebook.cells if not installs(cell)]
    except Exception as error:  # nbformat raises errors of many kinds for a damaged file
        return Page(path.stem, "", (f"The executed copy cannot be read: {type(error).__name__}.",))
    troubles = failures(cells)
    for cell in cells:
        if cell.cell_type == "code":
            _describe(cell, descriptions)
            cell.outputs = [without_widget(output) for output in cell.outputs]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    heading = re.search(r"^# +(.+)", text, re.MULTILINE)
    body, _ = _exporter().from_notebook_node(notebook)
    soup = bs4.BeautifulSoup(body, features="html.parser")
    _link(soup, list(links))
    _strip(soup)
    _make_accessible(soup)
    return Page(heading[1] if heading else path.stem, str(soup), tuple(troubles))


def notes() -> list[Path]:
    """The Markdown files beside the notebooks: proofs, and the protocols of studies."""
    return sorted(folder("notebooks").glob("*.md"))


def note(path: Path, links: Iterable[str]) -> Page:
    """The Markdown file at `path` as a page; `links` are the pages of notebooks."""
    text = path.read_text(encoding="utf-8")
    heading = re.search(r"^# +(.+)", text, re.MULTILINE)
    soup = bs4.BeautifulSoup(mathml.html(text), features="html.parser")
    _link(soup, list(links))
    _strip(soup)
    _make_accessible(soup)
    return Page(heading[1] if heading else path.stem, str(soup), ())


def failures(cells) -> list[str]:
    """Each cell that raised, and how many never ran though others did."""
    code = [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]
    found = [
        f"Code cell {place} failed: {output.ename}: {output.evalue}"[:300]
        for place, cell in enumerate(code, 1)
        for output in cell.outputs
        if output.output_type == "error"
    ]
    waiting = sum(cell.execution_count is None for cell in code)
    return found + ([f"{waiting} of {len(code)} code cells did not run."] if waiting else [])


def _describe(cell, descriptions):
    """Alternative text for the pictures: that of the one figure named, else the first line."""
    quoted = [t for slug, t in descriptions.items() if re.search(f"[\"']{slug}[\"']", cell.source)]
    first = next((line for line in cell.source.splitlines() if line.strip()), "")
    begins = f"Picture drawn by the cell that begins: {first}"
    text = quoted[0] if len(quoted) == 1 else begins
    for output in cell.outputs:
        for kind in {"image/png", "image/jpeg"} & output.get("data", {}).keys():
            output.metadata.setdefault(kind, {}).setdefault("alt", text)


@cache  # it compiles its templates once, not for every notebook
def _exporter():
    config = Config({"NbConvertBase": {"display_data_priority": SHOWN}})
    return HTMLExporter(
        config=config,
        template_name="basic",
        template_file=str(tables.TEMPLATES / "cells.html.j2"),
        filters={"markdown2html": mathml.html},
        exclude_output_prompt=True,
    )


def _link(soup: bs4.BeautifulSoup, beside: list[str]) -> None:
    """Links to notebooks and notes lead to their pages; links to other files are undone."""
    written = {path.stem for path in notes()}
    for link in soup.find_all("a", href=True):
        if re.match(r"https?:|#|mailto:", link["href"]):
            continue
        target = Path(link["href"].partition("#")[0])
        page = next((name for name in beside if name.startswith(f"{target.stem}-")), None)
        if page:
            link["href"] = f"../notebooks/{page}.html"
        elif target.suffix == ".md" and target.stem in written:
            link["href"] = f"../notes/{target.stem}.html"
        else:
            link.unwrap()


def _strip(soup: bs4.BeautifulSoup) -> None:
    """Nothing is left that runs or loads from elsewhere."""
    for element in soup.find_all(ACTIVE):
        element.decompose()
    for element in soup.find_all(True):
        for name, value in list(element.attrs.items()):
            if name.startswith("on") or ACTIVE_LINK.match(str(value)):
                del element[name]
        if element.name != "a" and re.match(r"\s*(https?:)?//", element.get("src") or ""):
            element.replace_with(f"[not shown: {element['src']} would be loaded from elsewhere]")


def _make_accessible(soup: bs4.BeautifulSoup) -> None:
    """Tables scroll on a small screen, also by keyboard; every picture has a text."""
    for table in soup.find_all("table"):
        around = {"class": "wide", "tabindex": "0", "role": "region", "aria-label": "table"}
        table.wrap(soup.new_tag("div", attrs=around))
    for image in soup.select("img:not([alt])"):
        image["alt"] = "Picture without a description"
