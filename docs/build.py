"""Build the site, runs/site: `python docs/build.py`.

The pages, notes and pictures are copied to runs/site-source, beside what the templates
of this folder make of the records. Sphinx makes HTML of them, by conf.py, and fails at
any warning. Only a site that is finished replaces the one before.
"""

import re
import shutil
import sys
from pathlib import Path

from lib import files, interrupt

if __name__ == "__main__":  # before the imports that take seconds
    interrupt.end_in_a_sentence()

# isort: split
import nbformat
from sphinx.cmd.build import build_main

import lib
from companion import claims, ledger, page_table, stored
from companion.tables import figures

DOCS = Path(__file__).parent
COPIED = (
    *("*.md", "CITATION.cff", "LICENSE", "lib/README.md", "data/README.md"),
    *(
        "notebooks/*.md",
        "notebooks/minimal.py",
        "notebooks/drawings/*",
        "figures/*.*",
        "figures/thumbs/*",
    ),
)
# How a page keeps a figure: the variable, and the slug under which it is kept.
KEPT = re.compile(r"run\.(?:keep|save)\((\w+), \"(\w+)\"")
TEMPLATES = figures.templates(DOCS / "templates")
TEMPLATES.globals |= {"claims": claims, "ledger": ledger, "lib": lib}


def notebook(path: Path, shown: list[figures.Figure]) -> str:
    """Return a notebook as JSON, with what the site adds to it.

    Its set-up is folded, each picture has a text, and links lead to its figures, which
    are found among `shown`. Raises ValueError with the path if the notebook has no
    stored outputs.
    """
    page = nbformat.read(path, as_version=4)
    if not any(cell.get("outputs") for cell in page.cells):
        raise ValueError(f"{path}: no stored outputs; run make notebooks")
    own = [figure for figure in shown if figure.record["notebook"] == path.stem]
    alts = {figure.slug: figure.alt for figure in own}
    for variable, slug in KEPT.findall("\n".join(cell.source for cell in page.cells)):
        if slug in alts:
            alts[variable] = alts[slug]
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
    links = TEMPLATES.get_template("links.md").render(figures=own)
    page.cells.append(nbformat.v4.new_markdown_cell(links))
    return nbformat.writes(page)


def collect(folder: Path) -> None:
    """Write what Sphinx reads into `folder`, which is emptied first.

    Raises OSError or ValueError with the path if a notebook or figure is not whole.
    """
    shutil.rmtree(folder, ignore_errors=True)
    best = figures.best()
    pages = page_table.read_pages()
    readme = (files.ROOT / "README.md").read_text(encoding="utf-8")
    papers = figures.PAPERS
    known = {"figures": best, "pages": pages, "papers": papers, "readme": readme}
    # The first heading of a page, for the list of pages.
    known["titles"] = {
        name: re.search(
            "^# # (.+)$",
            files.ROOT.joinpath(f"notebooks/{name}.py").read_text(encoding="utf-8"),
            re.M,
        )[1]
        for name in pages
    }

    def fill(template: str, name: str, **more: object) -> None:
        text = TEMPLATES.get_template(template).render(known | more)
        files.write(folder / name, text.encode())

    for name in ("index.md", "figures.md", "api.md", "readme.md"):
        fill(name, name)
    for paper in papers:
        fill("ledger.md", f"ledger_{paper.lower()}.md", paper=paper)
    for figure in best:
        place = f"figures/{figure.scale}/{figure.slug}"
        picture = figure.folder / f"{figure.slug}.png"
        files.write(folder / f"{place}.png", picture.read_bytes())
        fill("figure.md", f"{place}.md", figure=figure)
    for pattern in COPIED:
        for path in files.ROOT.glob(pattern):
            files.write(folder / path.relative_to(files.ROOT), path.read_bytes())
    for name in pages:
        place = f"notebooks/{name}.ipynb"
        files.write(folder / place, notebook(files.ROOT / place, best).encode())


def main() -> int:
    """Build the site; the exit status is Sphinx's, or 1 if a page is not whole."""
    source = files.folder("runs") / "site-source"
    fresh = files.folder("runs") / "site-fresh"
    try:
        collect(source)
    except (OSError, ValueError) as error:
        print(f"site: {files.sentence(error)}", file=sys.stderr)
        return 1
    shutil.rmtree(fresh, ignore_errors=True)  # of a build that was killed
    options = ["-W", "--keep-going", "-q", "-j", "2", "-c", str(DOCS)]
    options += ["-d", str(source / "doctrees")]
    status = build_main([*options, *sys.argv[1:], str(source), str(fresh)])
    if status == 0:
        files.replace_folder(fresh, files.folder("runs") / "site")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
