"""Every number of an answer on a page is a number of a record of its figures."""

import json
import re

import jupytext
import pytest

from lib import files
from lib.companion.record import names_now
from lib.site import figures

SOURCES = sorted((files.ROOT / "notebooks").glob("[0-9]*.py"))
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


ANSWER = re.compile(r"^\*\*(?:Answer|Here)\b.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d[\d,]*(?:\.\d+(?!\w|\.\d)(\s*%)?|(\s*%))")
NO_RESULT = re.compile(r"\b\d{4}\.\d{5}\b|\\ell_\{?[\d.]+\}?")  # an arXiv number, a norm's name


def known(page):
    """What the records of a page's figures, at every scale, have measured or were made with."""
    for path in (files.ROOT / "figures").glob("d*/*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        if page in names_now().get(record["notebook"], [record["notebook"]]):
            yield from figures.quantities(record).values()


def unlike(text, values):
    """The decimal numbers of a text that are none of the `values` at the digits printed."""
    values = [v for row in values for v in (row if isinstance(row, list) else [row])]
    values = [float(v) for v in values if isinstance(v, int | float)]

    def is_known(word, percent):
        digits = len(word.partition(".")[2])
        shown = float(word.replace(",", "").replace("\u2212", "-")) / (100 if percent else 1)
        half = 0.5001 * 10.0 ** -(digits + 2 * bool(percent))
        return any(abs(abs(value) - abs(shown)) <= half for value in values)

    matches = NUMBER.finditer(NO_RESULT.sub("", text))
    found = [(match[0].rstrip("% "), match[1] or match[2]) for match in matches]
    return [word for word, percent in found if not is_known(word, percent)]


@each
def test_every_number_of_an_answer_is_of_a_record(source):
    cells = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "markdown"]
    prose = "\n\n".join(cells)
    answers = "\n".join(match[0] for match in ANSWER.finditer(prose))
    assert unlike(answers, known(source.stem)) == []


def test_a_number_that_no_record_has_is_seen():
    values = [0.9817, -0.8417, [1.75, 13], "demo", None, True]
    assert (
        unlike("at 98.2 %, like $t^{-0.84}$, 0.98 of it, p = 1.75, arXiv 2402.05738", values) == []
    )
    wrong = unlike("at 98.3 % and 97 %, like $t^{-0.85}$, 1,000.5", values)
    assert wrong == ["98.3", "97", "-0.85", "1,000.5"]
