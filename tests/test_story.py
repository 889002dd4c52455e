"""The pages are one story: each says before and next, what it is for, and folds its plumbing."""

import re
import tomllib
from functools import cache

import jupytext
import pytest

from lib import files

FOLDER = files.ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
ORDER = tomllib.loads((FOLDER / "order.toml").read_text(encoding="utf-8"))
MAIN = ORDER["main"]
read = cache(jupytext.read)
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
MOST_LINES = 2_300  # of code on all pages; may only be lowered


def told(name):
    """The line below a page's title."""
    link = lambda other: f"[{other[:2]}]({other}.ipynb)"
    parts = []
    if name in MAIN:
        k = MAIN.index(name)
        parts = [f"Page {k + 1} of {len(MAIN)}"]
        parts += [f"before: {link(MAIN[k - 1])}"] if k else []
        parts += [f"next: {link(MAIN[k + 1])}"] if k + 1 < len(MAIN) else []
    else:
        kind = "Side road" if name in ORDER["side"] else "Appendix"
        parts = [f"{kind} of page {link(ORDER['after'][name])}"]
    parts += [f"{ORDER['minutes'][name]} minutes", "[words](words.md)"]
    return f"*{' · '.join(parts)}.* After it you can {ORDER['aim'][name]}."


def test_every_page_has_its_place():
    placed = [*MAIN, *ORDER["side"], *ORDER["appendix"]]
    assert sorted(placed) == [path.stem for path in SOURCES]
    assert set(ORDER["after"]) == {*placed} - {*MAIN} and {*ORDER["after"].values()} <= {*MAIN}


@each
def test_a_page_says_where_it_stands_below_its_title(source):
    first = read(source).cells[0].source.split("\n")
    assert first[2] == told(source.stem)


@each
def test_links_between_pages_and_notes_lead_somewhere(source):
    prose = [c.source for c in read(source).cells if c.cell_type == "markdown"]
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", "\n".join(prose)):
        assert (FOLDER / target).exists(), target


@each
def test_plumbing_is_marked_and_in_at_most_three_cells(source):
    cells = [cell for cell in read(source).cells if cell.cell_type == "code"]
    folded = [c for c in cells if {"parameters", "set-up"} & {*c.metadata.get("tags", [])}]
    assert 1 <= len(folded) <= 3
    assert all(cell.source.startswith("# Set-up, no need to read.") for cell in folded)
    open_cells = [cell.source for cell in cells if cell not in folded]
    assert not [text for text in open_cells if re.search(r"run\.(save|keep)\(|record\.start", text)]


def test_the_pages_do_not_grow():
    cells = [cell for path in SOURCES for cell in read(path).cells]
    lines = [line.strip() for c in cells if c.cell_type == "code" for line in c.source.split("\n")]
    assert len([line for line in lines if line and not line.startswith("#")]) <= MOST_LINES


def test_the_glossary_is_short():
    assert len((FOLDER / "words.md").read_text(encoding="utf-8").splitlines()) <= 40


def test_every_picture_of_a_page_is_there_and_every_drawing_is_shown():
    texts = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    shown = set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", texts))
    assert all((FOLDER / target).exists() for target in shown)
    assert {f"drawings/{path.name}" for path in (FOLDER / "drawings").iterdir()} <= shown
