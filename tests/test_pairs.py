"""Every page: .py and .ipynb agree, parameters, kernel and scales are known, answers are measured.

Every number of an answer on a page is a number of a record of its figures.
"""

import ast
import json
import re
import tomllib
from functools import cache

import jupytext
import nbformat
import pytest

from lib import files
from lib.companion import colab_cell, record
from lib.site import figures

FOLDER = files.ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
SCALES, RENAMED = (
    tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")) for name in ("scales", "renamed")
)
MEND = "run `make notebooks`"
read = cache(jupytext.read)  # nobody changes what it gives
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def stored(source):
    path = source.with_suffix(".ipynb")
    assert path.exists(), f"{path.name} is missing: {MEND}"
    return nbformat.read(path, 4)


def cells(notebook):
    kept = [cell for cell in notebook.cells if not colab_cell.installs(cell)]
    return [(c.cell_type, c.source.strip(), sorted(c.metadata.get("tags", []))) for c in kept]


@each
def test_pair_has_the_same_cells_title_first_and_none_empty(source):
    own = cells(read(source))
    assert own == cells(stored(source)), f"{source.stem}.ipynb differs from {source.name}: {MEND}"
    kinds, texts, _ = zip(*own, strict=True)
    assert kinds[0] == "markdown" and texts[0].startswith("# ") and all(texts)


@each
def test_stored_notebook_installs_the_project_where_it_is_absent(source):
    own = stored(source).cells
    assert [cell.source for cell in own] == [cell.source for cell in colab_cell.installing(own)], (
        "run `python -m lib.companion.colab_cell`"
    )


def assigned(node):
    """The names that a program binds at its top level, once per place, functions left out."""
    apart = ast.FunctionDef | ast.ClassDef | ast.Lambda
    if isinstance(node, apart | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return []
    own = [node.id] if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else []
    return own + [name for child in ast.iter_child_nodes(node) for name in assigned(child)]


@each
def test_kernel_is_python3_and_parameters_are_literals_that_no_later_cell_assigns(source):
    for notebook in (read(source), stored(source)):
        assert notebook.metadata["kernelspec"]["name"] == "python3"
    # A record asks for the parameters again when it is saved: another value would be a change.
    text = source.read_text(encoding="utf-8")
    parameters, names = record.literals(text), assigned(ast.parse(text))
    assert parameters["scale"] == "demo"
    assert {name: names.count(name) for name in parameters} == dict.fromkeys(parameters, 1)


@each
def test_stored_outputs_are_there_and_without_errors(source):
    notebook = stored(source)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs, f"no outputs in {source.stem}.ipynb: {MEND}"
    assert not [output for output in outputs if output.output_type == "error"]
    words = "an output names a folder of this machine"
    assert str(files.ROOT) not in nbformat.writes(notebook), words


@pytest.mark.parametrize("notebook", SCALES)
def test_scales_change_parameters_that_exist(notebook):
    source = FOLDER / f"{notebook}.py"
    assert source in SOURCES, f"scales.toml names {notebook}, and there is no {source.name}"
    known = record.literals(source.read_text(encoding="utf-8"))
    for scale, changes in SCALES[notebook].items():
        assert scale in record.SCALES[1:], f"{notebook} has no scale {scale}"
        assert changes.keys() <= known.keys() - {"scale"}, f"{notebook}, {scale}: no such parameter"


def test_every_ipynb_has_its_source_and_every_old_name_leads_to_pages():
    stems = {path.stem for path in SOURCES}
    assert {path.stem for path in FOLDER.glob("*.ipynb")} <= stems and not stems & RENAMED.keys()
    for old, now in RENAMED.items():
        assert now and {*now} <= stems, old


ANSWER = re.compile(r"^\*\*(?:Answer|Here)\b.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d[\d,]*(?:\.\d+(?!\w|\.\d)(\s*%)?|(\s*%))")
NO_RESULT = re.compile(r"\b\d{4}\.\d{5}\b|\\ell_\{?[\d.]+\}?")  # an arXiv number, a norm's name


def known(page):
    """What the records of a page's figures, at every scale, have measured or were made with."""
    for path in (files.ROOT / "figures").glob("d*/*.json"):
        saved = json.loads(path.read_text(encoding="utf-8"))
        if page in RENAMED.get(saved["notebook"], [saved["notebook"]]):
            yield from figures.quantities(saved).values()


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
    numbers = [(match[0].rstrip("% "), match[1] or match[2]) for match in matches]
    return [word for word, percent in numbers if not is_known(word, percent)]


@each
def test_every_number_of_an_answer_is_of_a_record(source):
    prose = [cell.source for cell in read(source).cells if cell.cell_type == "markdown"]
    answers = "\n".join(match[0] for match in ANSWER.finditer("\n\n".join(prose)))
    assert unlike(answers, known(source.stem)) == []


def test_a_number_that_no_record_has_is_seen():
    values = [0.9817, -0.8417, [1.75, 13], "demo", None, True]
    right = "at 98.2 %, like $t^{-0.84}$, 0.98 of it, p = 1.75, arXiv 2402.05738"
    assert unlike(right, values) == []
    wrong = unlike("at 98.3 % and 97 %, like $t^{-0.85}$, 1,000.5", values)
    assert wrong == ["98.3", "97", "-0.85", "1,000.5"]
