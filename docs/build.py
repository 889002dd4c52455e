"""Build the site, runs/site: `python docs/build.py`.

The pages, notes and pictures are copied to runs/site-source, beside what the templates
of this folder make of the records. Sphinx makes HTML of them, by conf.py, and fails at
any warning. Large pictures are then compressed. Only a site that is finished replaces
the one before.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from lib import files, interrupt

if __name__ == "__main__":  # before the imports that take seconds
    interrupt.end_in_a_sentence()

# isort: split
import nbformat
from PIL import Image
from sphinx.cmd.build import build_main

import lib
from companion import claims, ledger, page_table, stored
from companion.tables import figures

DOCS = Path(__file__).parent
COPIED = ("*.md", "CITATION.cff", "LICENSE", "lib/*.md", "data/*.md", "notebooks/*.md")
COPIED += ("notebooks/minimal.py", "notebooks/drawings/*", "figures/*.*")
COPIED += ("figures/thumbs/*",)
# How a page keeps a figure: the variable, and the slug under which it is kept.
KEPT = re.compile(r"run\.(?:keep|save)\((\w+), \"(\w+)\"")
# A link to the picture or record of a figure leads to its page. A picture that leads
# somewhere is written as Markdown first, so that Sphinx checks and moves its target.
PICTURE = re.compile(r'<a href="([^"]+)">(<img [^>]*>)</a>')
FIGURE = re.compile(r"(?<!!)(\[[^\]]*\]\([^)]*\b(?:demo|desk)/\w+)\.(?:png|json)\)")
LARGE = 150_000  # bytes of a picture that is worth compressing
# A formula, or a sign that Markdown may take for markup.
MARKUP = re.compile(r"(\$[^$]+\$)|[!-/:-@[-`{-~]")


def literal(text: str) -> str:
    """Write a text of a record as Markdown that shows it as it is, but for formulas."""
    return MARKUP.sub(lambda found: found[1] or f"\\{found[0]}", text)


TEMPLATES = figures.templates(DOCS / "templates")
TEMPLATES.filters["literal"] = literal
TEMPLATES.globals.update(claims=claims, ledger=ledger, lib=lib)


def notebook(path: Path, shown: list[figures.Figure]) -> str:
    """Return a notebook as the site shows it, or raise ValueError with its path."""
    page = nbformat.read(path, as_version=4)
    if not any(cell.get("outputs") for cell in page.cells):
        raise ValueError(f"{path}: no stored outputs; run make notebooks")
    own = [figure for figure in shown if figure.record["notebook"] == path.stem]
    alts = {figure.slug: figure.alt for figure in own}
    kept = KEPT.findall("\n".join(cell.source for cell in page.cells))
    alts |= {variable: alts[slug] for variable, slug in kept if slug in alts}
    heading = ""
    for cell in page.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.+)", cell.source, re.M) or [heading])[-1]
            continue
        if stored.FOLDED.intersection(cell.metadata.get("tags", [])):
            cell.metadata.tags.append("hide-input")
        named = [alts[word] for word in re.findall(r"\w+", cell.source) if word in alts]
        alt = [f"The picture of the section: {heading}", *named][-1]
        cell.metadata["mystnb"] = {"image": {"alt": alt}}
    page.cells[0].source = f"# {path.stem[:2]} {page.cells[0].source[2:]}"
    links = TEMPLATES.get_template("links.md").render(figures=own)
    page.cells.append(nbformat.v4.new_markdown_cell(links))
    return nbformat.writes(page)


def collect(folder: Path) -> None:
    """Write what Sphinx reads; raise OSError or ValueError if a page is not whole."""
    best = figures.best()
    pages = page_table.read_pages()
    readme = (files.ROOT / "README.md").read_text("utf-8")
    TEMPLATES.globals.update(figures=best, pages=pages, papers=figures.PAPERS)

    def fill(template: str, place: str, **given: object) -> None:
        text = TEMPLATES.get_template(template).render(given)
        files.write(folder / place, text.encode())

    for pattern in COPIED:
        for path in files.ROOT.glob(pattern):
            files.write(folder / path.relative_to(files.ROOT), path.read_bytes())
    for path in DOCS.glob("templates/pages/*"):
        fill(f"pages/{path.name}", path.name, readme=readme)
    for paper in figures.PAPERS:
        fill("ledger.md", f"ledger_{paper.lower()}.md", paper=paper)
    for figure in best:
        place = f"figures/{figure.scale}/{figure.slug}"
        fill("figure.md", f"{place}.md", figure=figure)
        shutil.copy(figure.folder / f"{figure.slug}.png", folder / f"{place}.png")
    for name in pages:
        place = f"notebooks/{name}.ipynb"
        files.write(folder / place, notebook(files.ROOT / place, best).encode())
    for path in (*folder.rglob("*.md"), *folder.rglob("*.ipynb")):
        text = PICTURE.sub(r"[\2](\1)", path.read_text("utf-8"))
        path.write_text(FIGURE.sub(r"\1.md)", text), "utf-8")


def compress(folder: Path) -> None:
    """Write the large pictures of a folder anew with fewer bytes.

    The colours stay the same. An alpha channel is dropped if the picture is opaque.
    """
    for path in folder.glob("*.png"):
        if path.stat().st_size < LARGE:
            continue
        with Image.open(path) as picture:
            opaque = picture.getextrema()[-1] == (255, 255)
            if picture.mode == "RGBA" and opaque:
                picture.convert("RGB").save(path, optimize=True)


def main(argv: list[str] | None = None) -> int:
    """Build the site; the exit status is Sphinx's, or 1 if a page is not whole.

    `argv` has the words of the command, by default those of this process. They are
    options of Sphinx, except --help, which ends the process before anything is built.
    """
    parser = argparse.ArgumentParser(
        prog="python docs/build.py",
        usage="%(prog)s [OPTION OF SPHINX ...]",
        description="Build the site with every figure, claim and notebook, runs/site.",
        epilog="Other options are passed to sphinx-build, such as -v or -j1.",
        allow_abbrev=False,
    )
    _, options_of_sphinx = parser.parse_known_args(argv)
    source = files.folder("runs") / "site-source"
    fresh = files.folder("runs") / "site-fresh"
    for folder in (source, fresh):  # fresh: of a build that was killed
        shutil.rmtree(folder, ignore_errors=True)
    try:
        collect(source)
    except (OSError, ValueError) as error:
        print(f"site: {files.sentence(error)}", file=sys.stderr)
        return 1
    options = ["-W", "--keep-going", "-q", "-j2", f"-c{DOCS}", f"-d{source}/doctrees"]
    status = build_main([*options, *options_of_sphinx, str(source), str(fresh)])
    if status == 0:
        compress(fresh / "_images")
        files.replace_folder(fresh, files.folder("runs") / "site")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
