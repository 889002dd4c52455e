"""Notebooks as they ran, and notes, as HTML that needs no script: formulas become MathML."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path

import bs4
import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

from lib import files
from lib.companion import colab_cell, record
from lib.site.figures import Figure
from lib.site.tables import TEMPLATES

SHOWN = "text/html text/markdown image/svg+xml image/png image/jpeg text/plain".split()
ACTIVE = "script style link iframe object embed meta base form".split()
ACTIVE_LINK = re.compile(r"\s*(javascript|vbscript|data:text)", re.IGNORECASE)


@cache
def _mathml(formula: str, display: str = "inline") -> str:
    """The TeX `formula` as one <math> element; one that cannot be read stays readable as TeX."""
    # latex2mathml does not know \arg, and MathML sizes its fences itself
    text = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", formula.strip())
    text = re.sub(r"\\[bB]igg?[lrm]?(?![A-Za-z])\s*", "", text)
    plain = f"<code>{escape(formula)}</code>"
    try:
        converted = convert(text, display=display)
    except Exception:  # of many kinds; a page must not fail for one formula
        return plain
    return plain if re.search(r">\\[A-Za-z]+<", converted) else converted


class _Renderer(IPythonRenderer):
    """nbconvert's renderer with formulas as MathML."""

    def inline_math(self, body: str) -> str:
        return _mathml(body)

    def block_math(self, body: str) -> str:
        return f'<span class="formula">{_mathml(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def _html(markdown: str, escape: bool = False) -> str:
    """Markdown with formulas as HTML blocks; HTML in it stays, or is shown as it is written."""
    place = str(files.folder("notebooks"))
    renderer = _Renderer(escape, exclude_anchor_links=True, embed_images=True, path=place)
    return MarkdownWithMath(renderer=renderer).render(markdown)


def inline(markdown: str) -> str:
    """One paragraph of Markdown as HTML without the paragraph around it; HTML in it is shown."""
    return _html(markdown, escape=True).strip().removeprefix("<p>").removesuffix("</p>")


def formulas(text: str) -> str:
    """Plain text as HTML, in which only what stands between two $ becomes a formula."""
    parts = text.split("$")
    if len(parts) % 2 == 0:  # a lone $
        return escape(text)
    return "".join(_mathml(p) if k % 2 else escape(p) for k, p in enumerate(parts))


@dataclass(frozen=True)
class Page:
    """A notebook that ran, or a note: `name` is that of its page, `troubles` what went wrong."""

    name: str
    title: str
    body: str
    file: str
    scale: str = ""
    troubles: tuple[str, ...] = ()

    @property
    def notebook(self) -> str:
        """The stem of the notebook's file."""
        return Path(self.file).stem


def note(path: Path, section: str = "") -> Page:
    """The Markdown file at `path`, or the part of it below the heading `section`, as a page."""
    text = path.read_text(encoding="utf-8")
    if section:
        part = re.search(rf"^## {section}$.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        text = part[0].removeprefix("#") if part else f"# {section}\n"
    return Page(path.stem, _title(text, path), _finished(_html(text)), path.name)


def _title(markdown: str, path: Path) -> str:
    heading = re.search(r"^# +(.+)", markdown, re.MULTILINE)
    return heading[1] if heading else path.stem


def notebooks(shown: Iterable[Figure]) -> list[Page]:
    """Every notebook at every scale at which it ran; at demo scale else the committed .ipynb.

    In the order of notebooks/order.toml. Pictures are described as the figures `shown` are.
    """
    pages = []
    for source in sorted(files.folder("notebooks").glob("[0-9]*.py")):
        for scale in record.SCALES:
            path = files.folder("runs") / scale / f"{source.stem}.ipynb"
            made = [f for f in shown if (f.notebook, f.scale) == (source.stem, scale)]
            if path.exists():
                pages.append(_notebook(path, scale, made, _unfinished(path, source)))
            elif scale == "demo":
                pages.append(_notebook(source.with_suffix(".ipynb"), scale, made, []))
    reading = files.read_table(files.folder("notebooks") / "order.toml")
    order = [name for part in ("main", "side", "appendix") for name in reading.get(part, ())]
    return sorted(pages, key=lambda page: [*order, page.notebook].index(page.notebook))


def _unfinished(path: Path, source: Path) -> list[str]:
    """What the marker beside an executed notebook says against it."""
    try:
        marker = files.read_object(path.with_suffix(".json"))
    except (OSError, ValueError):
        return ["This run did not finish: there is no mark of success beside it."]
    changed = marker.get("source") != files.sha256(source.read_bytes())
    return ["The notebook has changed since this run."] if changed else []


def _notebook(path: Path, scale: str, made: list[Figure], troubles: list[str]) -> Page:
    page = Page(f"{path.stem}-{scale}", path.stem, "", path.name, scale)
    try:
        notebook = nbformat.read(path, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    except Exception as error:  # nbformat raises errors of many kinds for a damaged file
        lost = f"The executed copy cannot be read: {type(error).__name__}."
        return replace(page, troubles=(lost,))
    for cell in code:
        cell.outputs = colab_cell.without_widgets(cell.outputs)
        _describe(cell, made)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    body = _finished(_exporter().from_notebook_node(notebook)[0])
    troubles = [*troubles, *_failures(code)]
    return replace(page, title=_title(text, path), body=body, troubles=tuple(troubles))


def _failures(code) -> list[str]:
    """Each code cell that raised, and how many never ran though others did."""
    code = [cell for cell in code if not colab_cell.installs(cell)]
    failures = []
    for place, cell in enumerate(code, 1):
        for error in [output for output in cell.outputs if output.output_type == "error"]:
            failures.append(f"Code cell {place} failed: {error.ename}: {error.evalue}"[:300])
    waiting = sum(cell.execution_count is None for cell in code)
    return failures + ([f"{waiting} of {len(code)} code cells did not run."] if waiting else [])


def _describe(cell, made: list[Figure]) -> None:
    """Alternative text for the pictures: that of the one figure named, else the first line."""
    named = [f.alt for f in made if re.search(f"[\"']{f.slug}[\"']", cell.source)]
    begins = f"Picture drawn by the cell that begins: {cell.source.strip().splitlines()[0]}"
    for output in cell.outputs:
        for kind in {"image/png", "image/jpeg"} & output.get("data", {}).keys():
            text = named[0] if len(named) == 1 else begins
            output.metadata.setdefault(kind, {}).setdefault("alt", text)


@cache  # it compiles its templates once, not for every notebook
def _exporter() -> HTMLExporter:
    config = Config()
    config.NbConvertBase.display_data_priority = SHOWN
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = {colab_cell.TAG}
    return HTMLExporter(
        config=config,
        template_name="basic",
        template_file=str(TEMPLATES / "cells.html.j2"),
        filters={"markdown2html": _html},
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )


def _finished(body: str) -> str:
    """HTML in which nothing runs or loads from elsewhere, and links lead to pages of the site."""
    soup = bs4.BeautifulSoup(body, features="html.parser")
    for element in soup.find_all(ACTIVE):
        element.decompose()
    for element in soup.find_all(True):
        for name, value in list(element.attrs.items()):
            if name.startswith("on") or ACTIVE_LINK.match(str(value)):
                del element[name]
        if re.match(r"\s*(https?:)?//", str(element.get("src"))):
            element.replace_with(f"[not shown: {element['src']} would be loaded from elsewhere]")
    for picture in soup.find_all("img", src=re.compile(r"^\.\./figures/")):
        path = Path(str(picture["src"]))  # a committed picture, or the film, at the site's top
        scale = path.parent.name
        name = f"figures/{path.stem}-{scale}{path.suffix}" if scale in record.SCALES else path.name
        picture["src"] = f"../{name}"
    for link in soup.find_all("a", href=True):
        _lead(link)
    return str(soup)


def _lead(link: bs4.Tag) -> None:
    """Lead a link to a notebook, a note or a figure to its page, one to another file nowhere."""
    address, folder = str(link["href"]), files.folder("notebooks")
    if re.match(r"https?:|#|mailto:", address):
        return
    target = Path(address.partition("#")[0])
    if target.suffix == ".md" and (folder / target.name).exists():
        link["href"] = f"../notes/{target.stem}.html"
    elif target.suffix in (".py", ".ipynb") and (folder / f"{target.stem}.py").exists():
        link["href"] = f"../notebooks/{target.stem}-demo.html"
    elif target.parts[:2] == ("..", "figures") and (folder / target.with_suffix(".json")).exists():
        link["href"] = f"../figures/{target.stem}-{target.parent.name}.html"
    else:
        link.unwrap()
