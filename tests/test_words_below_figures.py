"""What is said of a figure names panels, axes, legends and kinds of line that it has.

A picture is redrawn more often than the words below it, which then name what is gone.
"""

import json
import re

import jupytext
import pytest

from lib import files
from lib.site import figures

RECORDS = {p: json.loads(p.read_text("utf-8")) for p in figures.FIGURES.glob("d*/*.json")}
SOURCES = sorted((files.ROOT / "notebooks").glob("[0-9]*.py"))
PLACES = r"Left|Middle|Right|Upper|Lower|Top|Bottom"
# Bold at the start of a bullet, and quoted where one is to look.
NAMES = rf'^\* \*\*(?!{PLACES})([^*]+?)\.?\*\*|(?i:look at)[^"\n]*"([^"]+)"'


def stems(name):
    """Its words without plurals and formulas."""
    text = re.sub(r"\$[^$]*\$", " ", name).lower()
    return {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text)} - {"the", "and"}


def unseen(text, words):
    """The names in a page's text that no panel, axis or legend of its figures has."""
    named = [part for name in re.findall(NAMES, text, re.M) for part in "".join(name).split(", ")]
    return [name for name in named if not any(stems(name) <= stems(word) for word in words)]


def lines(path):
    """Which of "dotted" and "dashed" lines a picture has, by its SVG; all, if it is older."""
    drawn = path.with_suffix(".svg")
    if not drawn.exists():
        return {"dotted", "dashed"}
    dashes = re.findall(r"stroke-dasharray: ([\d.]+),? ?([\d.]+)", drawn.read_text("utf-8"))
    return {"dotted" if float(on) < float(off) else "dashed" for on, off in dashes}


def kinds(text):
    return {*re.findall("dotted|dashed", text)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_page_names_panels_axes_and_lines_that_its_figures_have(source):
    mine = {p: record for p, record in RECORDS.items() if record["notebook"] == source.stem}
    cells = [cell for cell in jupytext.read(source).cells if cell.cell_type == "markdown"]
    text = "\n\n".join(cell.source for cell in cells)
    words = [word for record in mine.values() for word in record.get("words", [])]
    if words:
        assert unseen(text, words) == []
        assert kinds(text) <= set().union(*map(lines, mine))


def test_a_caption_or_a_sentence_names_lines_that_its_figure_has():
    said = {path: record["caption"] for path, record in RECORDS.items()}
    for entry in (entry for _, entries in figures.index(figures.FIGURES) for entry in entries):
        said[figures.FIGURES / entry.scale / f"{entry.slug}.json"] += entry.sentence
    assert [path.stem for path, text in said.items() if not kinds(text) <= lines(path)] == []


def test_a_name_that_a_figure_has_no_more_is_seen():
    text = '* **Missing weights.** Look at "NGD, decay".\n* **Layers over steps.** A thin line.'
    words = ["Missing weight, $p$", "NGD, decay", "Layers' $W$", "Steps over SGD's"]
    assert unseen(text, words) == ["Layers over steps"]
