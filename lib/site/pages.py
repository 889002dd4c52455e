"""Notebooks as they ran, and notes, as HTML that needs no script: formulas become MathML."""

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from PIL import Image
from traitlets.config import Config

from lib import files
from lib.companion import colab_cell, record
from lib.site.figures import TEMPLATES, Figure

SHOWN = "text/html text/markdown image/svg+xml image/png image/jpeg text/plain".split()


@cache
def _mathml(formula: str, display: str = "inline") -> str:
    """The TeX `formula` as one <math> element; one that cannot be read stays as TeX."""
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
    """nbconvert's renderer with formulas as MathML, and links that lead to pages of the site."""

    def inline_math(self, body: str) -> str:
        return _mathml(body)

    def block_math(self, body: str) -> str:
        return f'<span class="formula">{_mathml(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A notebook, a note or a figure by its page; what is no page of the site as its text."""
        folder, target = files.folder("notebooks"), Path(url.partition("#")[0])
        name, page = target.stem, None
        if re.match(r"https?:|#", url):
            page = url
        elif target.suffix == ".md" and (folder / target.name).exists():
            page = f"../notes/{name}.html"
        elif target.suffix in (".py", ".ipynb") and (folder / f"{name}.py").exists():
            page = f"../notebooks/{name}-demo.html"
        elif url.startswith("../figures/") and (folder / target.with_suffix(".json")).exists():
            page = f"../figures/{name}-{target.parent.name}.html"
        return super().link(text, page, title) if page else text

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """Drawings are part of the page; figures lie under their pages' names, the film on top."""
        url = re.sub(r"^\.\./figures/(\w+)/(\w+)", r"../figures/\2-\1", url)
        return super().image(text, re.sub(r"^\.\./figures/(\w+\.)", r"../\1", url), title)


def _html(markdown: str, escape: bool = False) -> str:
    """Markdown with formulas as HTML blocks; HTML in it stays, or is shown as it is written."""
    place = str(files.folder("notebooks"))
    renderer = _Renderer(escape, exclude_anchor_links=True, embed_images=True, path=place)
    return MarkdownWithMath(renderer=renderer).render(markdown)


def inline(markdown: str) -> Markup:
    """One paragraph of Markdown as HTML without the paragraph around it, HTML shown."""
    html = _html(markdown, escape=True).strip()
    return Markup(html.removeprefix("<p>").removesuffix("</p>"))


def formulas(text: str) -> Markup:
    """Plain text as HTML, in which only what stands between two $ becomes a formula."""
    parts = text.split("$")
    if len(parts) % 2 == 0:  # a lone $
        return Markup(escape(text))
    return Markup("".join(_mathml(p) if k % 2 else escape(p) for k, p in enumerate(parts)))


@dataclass(frozen=True)
class Page:
    """A note, or a notebook that ran at a scale; `name` is that of its page."""

    name: str
    title: str
    body: str
    file: str
    scale: str = ""
    notebook: str = ""


def note(path: Path, section: str = "") -> Page:
    """The Markdown file at `path`, or what stands there below the heading `section`, as a page."""
    text = path.read_text(encoding="utf-8")
    if section:
        text = f"# {section}\n" + text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return Page(path.stem, _title(text), _html(text), path.name)


def _title(markdown: str) -> str:
    return re.findall(r"^# +(.+)", markdown, re.MULTILINE)[0]


def notebooks(shown: Iterable[Figure]) -> list[Page]:
    """Every notebook at each scale at which it ran, at demo scale else as committed, in
    order.toml's order. Pictures are described as the figures `shown` are."""
    folder, runs, pages = files.folder("notebooks"), files.folder("runs"), []
    for source in sorted(folder.glob("[0-9]*.py")):
        for scale in record.SCALES:
            path = runs / scale / f"{source.stem}.ipynb"
            marker = path.with_suffix(".json")  # of a success
            ran = files.read_object(marker)["source"] if marker.exists() else ""
            if ran != files.sha256(source.read_bytes()):
                if scale != "demo":
                    continue
                path = source.with_suffix(".ipynb")
            made = [f for f in shown if (f.notebook, f.scale) == (source.stem, scale)]
            pages.append(_notebook(path, scale, made))
    reading = files.read_table(folder / "order.toml")
    order = [name for part in ("main", "side", "appendix") for name in reading.get(part, ())]
    return sorted(pages, key=lambda page: [*order, page.notebook].index(page.notebook))


def _notebook(path: Path, scale: str, made: list[Figure]) -> Page:
    notebook = nbformat.read(path, as_version=4)
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs = colab_cell.without_widgets(cell.outputs)
        # Alternative text for its pictures: that of the one figure named, else the first line.
        named = [f.alt for f in made if re.search(f"[\"']{f.slug}[\"']", cell.source)]
        begins = f"Picture drawn by the cell that begins: {cell.source.strip().splitlines()[0]}"
        alt = named[0] if len(named) == 1 else begins
        for output in (one for one in cell.outputs if "image/png" in one.get("data", {})):
            output.metadata.setdefault("image/png", {}).setdefault("alt", alt)
            picture = in_few_colours(b64decode(output.data["image/png"]))
            output.data["image/png"] = b64encode(picture).decode()
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    body = _exporter().from_notebook_node(notebook)[0]
    return Page(f"{path.stem}-{scale}", _title(text), body, path.name, scale, path.stem)


def in_few_colours(picture: bytes) -> bytes:
    """A PNG in 80 colours, enough for a plot, and a third of its size."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(80)
    image.save(content := io.BytesIO(), "PNG", optimize=True)
    return content.getvalue()


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
