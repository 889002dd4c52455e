"""The site as plain files, runs/site: figures, notebooks, notes and the ledger.

The pages open from disk. Notebooks as they ran, and notes, become HTML that needs no
script: formulas are MathML.
"""

import argparse
import io
import os
import re
import shutil
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert.exporters import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from PIL import Image
from traitlets.config import Config

from companion import ledger, record, stored
from companion.claims import UNDECIDED, Claim, frame, html, verdict
from companion.page_table import read_pages
from companion.record import ENDS, SCALES, SOURCES
from companion.site import beside, figures
from lib import files, provenance

ABOUT = "Three papers on how attention trains, a measured number beside each statement."
SHOWN = "text/html text/markdown image/svg+xml image/png image/jpeg text/plain".split()


def main(argv: list[str] | None = None) -> int:
    """Write the pages, or the Markdown tables.

    Parameters
    ----------
    argv : list of str, optional
        The words of the command, by default those of this process.

    Returns
    -------
    int
        The exit status: 1 if something cannot be read or written, else 0.
    """
    about = (
        "Write the site of figures and notebooks, or the tables of README and "
        "REPRODUCING."
    )
    parser = argparse.ArgumentParser(prog="python -m companion.site", description=about)
    parser.add_argument("what", nargs="?", choices=("pages", "tables"), default="pages")
    asked = parser.parse_args(argv)
    folder = files.folder("runs") / "site"
    try:
        if asked.what == "tables":
            for path in (files.ROOT / name for name in figures.FILES):
                files.write(
                    path, figures.renewed(path.read_text(encoding="utf-8")).encode()
                )
            base = files.ROOT / "figures"
            files.write(base / "beside.md", beside.page(base).encode())
        else:
            _build(folder)
            print(f"open {folder / 'index.html'}")
    except (OSError, ValueError) as error:
        print(f"companion.site: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True)
class _Page:
    """A note, or a notebook that ran at a scale; `name` is that of its page."""

    name: str
    title: str
    body: str
    file: str
    scale: str = ""
    notebook: str = ""


class _Site:
    """The folder into which pages are written, and their templates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.templates = figures.templates(autoescape=True, lstrip_blocks=True)
        known: Any = dict(papers=figures.PAPERS, sources=SOURCES, table=_table)
        known |= dict(inline=_inline, formulas=_formulas, commit=provenance.commit())
        known["version"] = metadata.version("attention-dynamics")
        self.templates.globals.update(known)

    def write(
        self,
        path: str,
        template: str,
        title: str,
        description: str = ABOUT,
        **values: Any,
    ) -> None:
        """Write one page.

        Parameters
        ----------
        path : str
            The page's file, from the site's folder.
        template : str
            The name of its template.
        title, description : str
            What the page is called, and what it is about.
        **values : Any
            What else the template fills in.

        Raises
        ------
        ValueError
            If a formula on the page would be shown with its backslash.
        """
        values |= {"title": title, "description": description, "here": Path(path).stem}
        page = self.templates.get_template(f"{template}.html.j2")
        text = page.render(values, up="../" * path.count("/"))
        if raw := re.search(r"<m[io]\b[^>]*>(\\[^<]*)<", text):
            raise ValueError(
                f"{path}: a formula would be shown with {raw[1]}; write it otherwise"
            )
        files.write(self.folder / path, text.encode())

    def page(
        self,
        path: str,
        page: _Page,
        made: Iterable[figures.Figure] = (),
        again: Iterable[_Page] = (),
    ) -> None:
        """Write the page of a note or of a notebook.

        Parameters
        ----------
        path : str
            The page's file, from the site's folder.
        page : _Page
            What it shows.
        made : sequence of Figure, optional
            The figures that the notebook made.
        again : sequence of _Page, optional
            The same notebook at other scales.
        """
        self.write(
            path, "page", page.title, page.title, page=page, figures=made, others=again
        )

    def copy(self, paths: Iterable[Path], name: str = "") -> list[str]:
        """Copy files into the site.

        Parameters
        ----------
        paths : iterable of Path
            The files; those that are not there are left out.
        name : str, optional
            The name of the copies, which keep their endings. Default: each file's own.

        Returns
        -------
        list of str
            The names of the copies.
        """
        targets = {
            path: f"{name or path.stem}{path.suffix}"
            for path in paths
            if path.is_file()
        }
        for path, target in targets.items():
            shown = _in_few_colours if path.suffix == ".png" else bytes
            files.write(self.folder / target, shown(path.read_bytes()))
        return [Path(target).name for target in targets.values()]


def _build(folder: Path) -> None:
    """Write the whole site in place of the last.

    Raises ValueError if the folder holds something else than a site.
    """
    if folder.exists() and not (folder / "claims.json").exists():
        raise ValueError(f"{folder} holds something else; set another RUNS_DIR")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as place:
        site = _Site(Path(place) / "site")
        _pages(site)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(site.folder, folder)


def _pages(site: _Site) -> None:
    """Write every page of the site."""
    shown = figures.figures()
    of_scale = {f.slug: f for scale in SCALES for f in shown if f.scale == scale}
    # At its largest scale
    best = [figure for figure in shown if of_scale[figure.slug] is figure]
    notes = [_note(path) for path in sorted(files.folder("notebooks").glob("*.md"))]
    notebooks = _notebooks(shown)
    order: Any = [page for page in notebooks if page.scale == "demo"]
    site.templates.globals.update(order=order)
    ran = {(page.notebook, page.scale) for page in notebooks}
    for figure in shown:
        copies = [figure.folder / f"{figure.slug}{end}" for end in ENDS]
        site.write(
            f"figures/{figure.name}.html",
            "figure",
            f"{figure.title}, {figure.scale}",
            figure.record["caption"] or ABOUT,
            figure=figure,
            files=site.copy(copies, f"figures/{figure.name}"),
            notebook=(figure.record["notebook"], figure.scale) in ran,
            others=[f for f in shown if f.slug == figure.slug and f is not figure],
        )
    for page in notebooks:
        made = [
            f
            for f in shown
            if (f.record["notebook"], f.scale) == (page.notebook, page.scale)
        ]
        again = [p for p in notebooks if p.notebook == page.notebook and p is not page]
        site.page(f"notebooks/{page.name}.html", page, made, again)
    for page in notes:
        site.page(f"notes/{page.name}.html", page)
    reproducing = files.ROOT / "REPRODUCING.md"  # an installed package has none
    if reproducing.exists():
        site.page("benchmarks.html", _note(reproducing, "How fast, against what"))
    about = "What each paper states, beside what was measured for it."
    site.write("ledger.html", "ledger", "Ledger", about, checked=_checked(best))
    rows = [row for figure in shown for row in figure.exported()]
    fields = dict.fromkeys(name for row in rows for name in row)  # else null
    exported = files.dumps([fields | row for row in rows])
    files.write(site.folder / "claims.json", exported.encode())
    moving = site.copy(
        files.ROOT / f"figures/turning.{kind}" for kind in ("gif", "png")
    )
    # Papers first, each with its notebooks' order, then what goes beyond them.
    sections = sorted(
        {figure.section for figure in best}, key=lambda name: (len(name) > 1, name)
    )
    lists = {"best": best, "notebooks": notebooks, "notes": notes, "sections": sections}
    site.write(
        "index.html", "index", "Figures and findings", moving=len(moving) == 2, **lists
    )
    site.copy(figures.TEMPLATES / name for name in ("site.css", "filter.js"))


# Claims.


@dataclass
class _Checked:
    """A statement of a paper, as the ledger shows it.

    It has what it `says` and its claims, with the figure in whose record each is. If it
    has none, it has the reason, in a word and in a sentence.
    """

    paper: str
    name: str
    says: str = ""
    claims: list[Claim] = field(default_factory=list)
    shown_in: list[figures.Figure] = field(default_factory=list)
    unmeasured: str = ""
    why: str = ""

    @property
    def failing(self) -> int:
        """How many of its claims fail, the undecided apart."""
        return sum(not c.holds and c.verdict != UNDECIDED for c in self.claims)

    @property
    def verdicts(self) -> list[str]:
        """The verdict of each row of its table."""
        return [verdict(claim) for claim in self.claims] or [self.unmeasured]

    def table(self) -> Markup:
        """Lay out its claims, each with a link to its figure, else why it has none.

        Returns
        -------
        Markup
            A table, as HTML.
        """
        if not self.claims:
            row = {"verdict": self.unmeasured, "remark": self.why}
            return Markup(html(pd.DataFrame([row]), _formulas))
        link = '<a href="figures/{0.name}.html">{0.title}</a>'
        rows = frame(self.claims)
        rows["figure"] = [Markup(link).format(figure) for figure in self.shown_in]
        return Markup(html(rows, _formulas))


def _checked(shown: list[figures.Figure]) -> list[_Checked]:
    """Return every statement that a claim or a ledger names, by paper."""
    checked: dict[tuple[str, str], _Checked] = {}

    def of(figure: figures.Figure, name: str) -> _Checked:
        paper = figure.record["paper"]
        return checked.setdefault((paper, name), _Checked(paper, name))

    # Of each paper first its ledger, which has the statements in their order.
    ledgers = [figure for figure in shown if "statements" in figure.record]
    others = [figure for figure in shown if figure not in ledgers]
    for figure in ledgers:
        for name, statement in figure.record["statements"].items():
            one = of(figure, name)
            one.says, one.why = statement["says"], statement["why"]
            one.unmeasured = ledger.unmeasured(one.why)
    for figure in (*ledgers, *others):
        for claim in figure.claims:
            one = of(figure, figure.statement(claim))
            one.claims.append(claim)
            one.shown_in.append(figure)
    return sorted(checked.values(), key=lambda one: one.paper)


def _table(claims: Iterable[Claim]) -> Markup:
    """Lay out claims as a table, with formulas as MathML."""
    return Markup(html(frame(claims), _formulas))


# Notebooks and notes as HTML.


@cache
def _mathml(formula: str, display: str = "inline") -> str:
    """Convert a TeX formula to a <math> element; one that cannot be read stays TeX."""
    # latex2mathml does not know \arg, and MathML sizes its fences itself
    text = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", formula.strip())
    text = re.sub(r"\\[bB]igg?[lrm]?(?![A-Za-z])\s*", "", text)
    plain = f"<code>{escape(formula)}</code>"
    try:
        converted = convert(text, display=display)
    except Exception:  # of many kinds; a page must not fail for one formula
        return plain
    if re.search(r">\\[A-Za-z]+<", converted):
        return plain
    return converted


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, with formulas as MathML and links to pages of the site."""

    def inline_math(self, body: str) -> str:
        """Render a formula within a line.

        Parameters
        ----------
        body : str
            Its TeX.

        Returns
        -------
        str
            HTML.
        """
        return _mathml(body)

    def block_math(self, body: str) -> str:
        """Render a formula on a line of its own.

        Parameters
        ----------
        body : str
            Its TeX.

        Returns
        -------
        str
            HTML.
        """
        return f'<span class="formula">{_mathml(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        """Render a LaTeX environment on lines of its own.

        Parameters
        ----------
        name : str
            The environment's name.
        body : str
            Its TeX.

        Returns
        -------
        str
            HTML.
        """
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """Link a notebook, a note or a figure by its page.

        Parameters
        ----------
        text : str
            The text of the link, as HTML.
        url : str
            Where it leads from the notebooks' folder.
        title : str, optional
            The title of the link.

        Returns
        -------
        str
            HTML; the text alone if the target is no page of the site.
        """
        folder = files.folder("notebooks")
        target = Path(url.partition("#")[0])
        name = target.stem
        page = None
        if re.match(r"https?:|#", url):
            page = url
        elif target.suffix == ".md" and (folder / target.name).exists():
            page = f"../notes/{name}.html"
        elif target.suffix in (".py", ".ipynb") and (folder / f"{name}.py").exists():
            page = f"../notebooks/{name}-demo.html"
        elif (
            url.startswith("../figures/")
            and (folder / target.with_suffix(".json")).exists()
        ):
            page = f"../figures/{name}-{target.parent.name}.html"
        return super().link(text, page, title) if page else text

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """Show a picture.

        Parameters
        ----------
        text : str
            The text in place of the picture.
        url : str
            Where it is, from the notebooks' folder. Drawings become part of the page.
            Figures lie under the names of their pages, and the film is on top.
        title : str, optional
            The title of the picture.

        Returns
        -------
        str
            HTML.
        """
        url = re.sub(r"^\.\./figures/(\w+)/(\w+)", r"../figures/\2-\1", url)
        return super().image(
            text, re.sub(r"^\.\./figures/(\w+\.)", r"../\1", url), title
        )


def _html(markdown: str, escape: bool = False) -> str:
    """Convert Markdown with formulas to HTML blocks.

    HTML in it stays, or is shown as it is written.
    """
    place = str(files.folder("notebooks"))
    renderer = _Renderer(
        escape, exclude_anchor_links=True, embed_images=True, path=place
    )
    return MarkdownWithMath(renderer=renderer).render(markdown)


def _inline(markdown: str) -> Markup:
    """Convert one paragraph of Markdown to HTML without the paragraph around it.

    HTML in it is shown.
    """
    html = _html(markdown, escape=True).strip()
    return Markup(html.removeprefix("<p>").removesuffix("</p>"))


def _formulas(text: str) -> Markup:
    """Convert plain text to HTML, in which text between two $ becomes a formula.

    HTML stays.
    """
    if isinstance(text, Markup):
        return text
    parts = text.split("$")
    if len(parts) % 2 == 0:  # a lone $
        return Markup(escape(text))
    return Markup(
        "".join(_mathml(p) if k % 2 else escape(p) for k, p in enumerate(parts))
    )


def _note(path: Path, section: str = "") -> _Page:
    """Make a page of a Markdown file, or of what is below one of its headings."""
    text = path.read_text(encoding="utf-8")
    if section:
        text = (
            f"# {section}\n"
            + text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        )
    return _Page(name=path.stem, title=_title(text), body=_html(text), file=path.name)


def _title(markdown: str) -> str:
    """Return the first heading of a Markdown text."""
    return re.findall(r"^# +(.+)", markdown, re.MULTILINE)[0]


def _notebooks(shown: Iterable[figures.Figure]) -> list[_Page]:
    """Make a page of every notebook at each scale at which it ran.

    At demo scale a notebook that did not run is shown as it is committed. The pages are
    in pages.toml's order, and pictures are described as the figures `shown` are.
    """
    folder = files.folder("notebooks")
    pages = []
    for source in sorted(folder.glob("[0-9]*.py")):
        for scale in SCALES:
            path = record.executed(source.stem, scale)
            if path is None:
                if scale != "demo":
                    continue
                path = source.with_suffix(".ipynb")
            made = [
                f
                for f in shown
                if (f.record["notebook"], f.scale) == (source.stem, scale)
            ]
            pages.append(_notebook(path, scale, made))
    order = list(read_pages())
    return sorted(pages, key=lambda page: [*order, page.notebook].index(page.notebook))


def _notebook(path: Path, scale: str, made: list[figures.Figure]) -> _Page:
    """Make a page of an executed notebook, with a text for each of its pictures."""
    notebook = nbformat.read(path, as_version=4)
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs = stored.without_widgets(cell.outputs)
        # Alternative text for its pictures: that of the one figure named, else the
        # first line.
        named = [f.alt for f in made if re.search(f"[\"']{f.slug}[\"']", cell.source)]
        first = cell.source.strip().splitlines()[0]
        begins = f"Picture drawn by the cell that begins: {first}"
        alt = named[0] if len(named) == 1 else begins
        for output in (
            one for one in cell.outputs if "image/png" in one.get("data", {})
        ):
            output.metadata.setdefault("image/png", {}).setdefault("alt", alt)
            picture = _in_few_colours(b64decode(output.data["image/png"]))
            output.data["image/png"] = b64encode(picture).decode()
    text = "\n".join(
        cell.source for cell in notebook.cells if cell.cell_type == "markdown"
    )
    body = _exporter().from_notebook_node(notebook)[0]
    return _Page(
        name=f"{path.stem}-{scale}",
        title=_title(text),
        body=body,
        file=path.name,
        scale=scale,
        notebook=path.stem,
    )


def _in_few_colours(picture: bytes) -> bytes:
    """Return a PNG in 80 colours, enough for a plot, and a third of its size."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(80)
    image.save(content := io.BytesIO(), "PNG", optimize=True)
    return content.getvalue()


@cache  # its templates compile once; HTMLExporter would read again all it wrote
def _exporter() -> TemplateExporter:
    """Return what turns a notebook into HTML."""
    shown = {"display_data_priority": SHOWN}
    highlight = Highlight2HTML(pygments_lexer="python")
    return TemplateExporter(
        config=Config(NbConvertBase=shown),
        template_name="basic",
        template_file=str(figures.TEMPLATES / "cells.html.j2"),
        filters={"markdown2html": _html, "highlight_code": highlight},
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
