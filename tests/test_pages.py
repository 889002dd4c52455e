"""Notebooks that teach have their parts: question, statement, the rule on the page held against
the library, what to look at, what was seen, and predictions to test.
"""

import re

import jupytext
import pytest

from lib import files

LONGEST_CELL = 20  # lines that are not blank
SOURCES = sorted((files.ROOT / "notebooks").glob("*.py"))
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def cells(source, kind):
    """The texts of all cells of a kind but the parameters, which take what they take."""
    return [
        cell.source
        for cell in jupytext.read(source).cells
        if cell.cell_type == kind and "parameters" not in cell.metadata.get("tags", ())
    ]


@each
def test_page_has_its_parts(source):
    prose = "\n".join(cells(source, "markdown"))
    for part in (
        "Question",
        "Hypotheses|hypotheses",
        "Look at|look at|Dotted lines",
        "## What we saw",
    ):
        assert re.search(part, prose), f"{source.name} lacks {part}"
    assert "## Change this" in prose and prose.count("Prediction:") >= 3


@each
def test_rule_on_the_page_is_held_against_the_library(source):
    code = "\n".join(cells(source, "code"))
    assert re.search(r"assert_(allclose|close)|^\s*assert ", code, re.MULTILINE), source.name


@each
def test_cells_are_short(source):
    long = [
        text.splitlines()[0]
        for text in cells(source, "code")
        if len([line for line in text.splitlines() if line.strip()]) > LONGEST_CELL
    ]
    assert not long, f"{source.name}: split the cells that begin with {long}"
