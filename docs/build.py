"""Build the site, runs/site: `python docs/build.py`.

Its pages are collected in runs/site-source: the notebooks with their stored outputs,
the notes, a page for each figure, and the templates of this folder, filled in. Sphinx
makes HTML of them, by conf.py, and fails at any warning.
"""

import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import jinja2
import nbformat
from sphinx.cmd.build import build_main

import lib
from companion import claims, page_table, stored
from companion.tables import figures
from lib import files

HERE = Path(__file__).parent
# Shown as they are, or offered for download.
NOTES = [
    *("REPRODUCING.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"),
    *("lib/README.md", "data/README.md", "notebooks/minimal.py", "figures/beside.md"),
    *("figures/failures.md", "figures/verdicts.png", "figures/turning.gif"),
]
MATHJAX = metadata.distribution("sphinx-mathjax-offline").locate_file(
    "sphinx-mathjax-offline/static/mathjax"
)
FONTS = "output/chtml/fonts/woff-v2"
# A picture that a script of the site brings to life where it stands on a line alone.
LIVING = re.compile(r"^(!\[[^\]]*\]\([^)]*(turning\.gif|balls\.svg)\))", re.M)
FIGURE = re.compile(r"(?<!!)(\[[^\]]*\]\([^)]*\b(?:demo|desk)/\w+)\.(?:png|json)\)")
# How a page keeps a figure: the variable, and the slug under which it is kept.
KEPT = re.compile(r"run\.(?:keep|save)\((\w+), \"(\w+)\"")


def adapted(text: str) -> str:
    """Lead links to a figure's picture to its page, and mark the living pictures."""
    text = LIVING.sub(r'<div class="living" data-picture="\2">\n\n\1\n\n</div>\n', text)
    return FIGURE.sub(r"\1.md)", text)


def notebook(path: Path, shown: list[figures.Figure]) -> str:
    """Return a notebook with folded set-up, a text for each picture, and its figures.

    Raises ValueError with the path if the notebook has no stored outputs.
    """
    page = nbformat.read(path, as_version=4)
    code = [cell for cell in page.cells if cell.cell_type == "code"]
    if not any(cell.outputs for cell in code):
        raise ValueError(f"{path}: no stored outputs; run make notebooks")
    alts = {figure.slug: figure.alt for figure in shown}
    slugs = dict(KEPT.findall("\n".join(cell.source for cell in code)))
    heading = ""
    for cell in page.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.+)", cell.source, re.M) or [heading])[-1]
            cell.source = adapted(cell.source)
            continue
        cell.outputs = stored.without_widgets(cell.outputs)
        if stored.FOLDED.intersection(cell.metadata.get("tags", [])):
            cell.metadata.tags = [*cell.metadata.tags, "hide-input"]
        named = re.findall(r"\w+", cell.source)[::-1]
        slug = next(
            (slugs.get(word, word) for word in named if slugs.get(word, word) in alts),
            "",
        )
        alt = alts.get(slug, f"The picture of the section: {heading}")
        cell.metadata["mystnb"] = {"image": {"alt": alt}}
        for output in cell.outputs:
            if "text/markdown" in output.get("data", {}):
                output.data["text/markdown"] = adapted(output.data["text/markdown"])
    if shown:
        links = [
            f"* [{one.title}](../figures/{one.scale}/{one.slug}.md)" for one in shown
        ]
        text = "\n".join(["## Figures of this page", "", *links])
        page.cells.append(nbformat.v4.new_markdown_cell(text))
    return nbformat.writes(page)


def collect(folder: Path) -> None:
    """Write the pages that Sphinx reads.

    Raises ValueError with the path if a notebook or a figure is not whole.
    """
    root = files.ROOT
    shutil.rmtree(folder, ignore_errors=True)

    def write(name: str, text: str) -> None:
        files.write(folder / name, text.encode())

    best = figures.best()
    pages = page_table.read_pages()
    of_page = {
        name: [f for f in best if f.record["notebook"] == name] for name in pages
    }
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    readme = adapted((root / "README.md").read_text(encoding="utf-8"))
    known = {
        "readme": readme.partition("\n## ")[0].partition("\n")[2],
        "rest": "## " + readme.partition("\n## ")[2],
        "pages": pages,
        "roads": page_table.ROADS,
        "figures": of_page,
        "notes": sorted(path.stem for path in (root / "notebooks").glob("*.md")),
        "names": lib.__all__,
        "papers": figures.PAPERS,
        "held": claims.held,
    }

    def fill(template: str, name: str, **more: object) -> None:
        write(name, templates.get_template(template).render(known | more))

    for name in ("index", "figures", "api", "readme"):
        fill(f"{name}.md", f"{name}.md")
    for paper in figures.PAPERS:
        fill("ledger.md", f"ledger_{paper.lower()}.md", paper=paper)
    for figure in best:
        picture = figure.folder / f"{figure.slug}.png"
        if not picture.exists():
            raise ValueError(f"{picture}: a record without its picture")
        files.write(
            folder / "figures" / figure.scale / picture.name, picture.read_bytes()
        )
        place = f"figures/{figure.scale}/{figure.slug}.md"
        fill("figure.md", place, figure=figure, page=pages[figure.record["notebook"]])
    for name in pages:
        write(
            f"notebooks/{name}.ipynb",
            notebook(root / f"notebooks/{name}.ipynb", of_page[name]),
        )
    for name in [
        *NOTES,
        *(path.relative_to(root) for path in (root / "notebooks").glob("*.md")),
    ]:
        path = root / name
        if path.suffix == ".md":
            write(str(name), adapted(path.read_text(encoding="utf-8")))
        else:
            files.write(folder / name, path.read_bytes())
    shutil.copytree(root / "notebooks/drawings", folder / "notebooks/drawings")
    copy_static(folder / "static")


def copy_static(folder: Path) -> None:
    """Copy the scripts and styles of the site, and of MathJax what this site uses."""
    shutil.copytree(HERE / "static", folder)
    files.write(
        folder / "mathjax/tex-chtml.js", (MATHJAX / "tex-chtml.js").read_bytes()
    )
    shutil.copytree(MATHJAX / FONTS, folder / "mathjax" / FONTS)


def main() -> int:
    """Build the site; the exit status is Sphinx's, or 1 if a page is not whole."""
    source = files.folder("runs") / "site-source"
    target = files.folder("runs") / "site"
    try:
        collect(source)
    except (OSError, ValueError) as error:
        print(f"site: {files.sentence(error)}", file=sys.stderr)
        return 1
    shutil.rmtree(target, ignore_errors=True)
    options = ["-W", "--keep-going", "-q", "-j", "2", "-c", str(HERE)]
    options += ["-D", f"html_static_path={source / 'static'}"]
    options += ["-d", str(source / "doctrees")]
    return build_main([*options, *sys.argv[1:], str(source), str(target)])


if __name__ == "__main__":
    raise SystemExit(main())
