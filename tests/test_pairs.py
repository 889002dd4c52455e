"""Every notebook: .py and .ipynb agree, one parameters cell, no errors, known scales."""

import ast
import tomllib

import jupytext
import nbformat
import pytest

from lib import files
from lib.companion import colab_cell, record

FOLDER = files.ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
SCALES = tomllib.loads((FOLDER / "scales.toml").read_text(encoding="utf-8"))
MEND = "run `make notebooks`"
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def stored(source):
    path = source.with_suffix(".ipynb")
    assert path.exists(), f"{path.name} is missing: {MEND}"
    return path


def cells(path):
    read = [cell for cell in jupytext.read(path).cells if not colab_cell.installs(cell)]
    return [
        (cell.cell_type, cell.source.strip(), sorted(cell.metadata.get("tags", [])))
        for cell in read
    ]


@each
def test_pair_has_the_same_cells(source):
    assert cells(source) == cells(stored(source)), (
        f"{source.stem}.ipynb differs from {source.name}: {MEND}"
    )


@each
def test_a_page_begins_with_its_title_and_has_no_empty_cell(source):
    kinds, texts, _ = zip(*cells(source), strict=True)
    assert kinds[0] == "markdown" and texts[0].startswith("# ") and all(texts)


@each
def test_stored_notebook_installs_the_project_where_it_is_absent(source):
    own = nbformat.read(stored(source), 4).cells
    assert [cell.source for cell in own] == [cell.source for cell in colab_cell.installing(own)], (
        "run `python -m lib.companion.colab_cell`"
    )


@each
def test_kernel_is_python3_and_parameters_are_literals_at_demo_scale(source):
    assert jupytext.read(source).metadata["kernelspec"]["name"] == "python3"
    assert nbformat.read(stored(source), 4).metadata["kernelspec"]["name"] == "python3"
    assert record.literals(source.read_text(encoding="utf-8"))["scale"] == "demo"


def assigned(node):
    """The names that a program binds at its top level, once per place, functions left out."""
    apart = (ast.FunctionDef, ast.ClassDef, ast.Lambda)
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    if isinstance(node, apart + comprehensions):
        return []
    own = [node.id] if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else []
    return own + [name for child in ast.iter_child_nodes(node) for name in assigned(child)]


@each
def test_no_later_cell_assigns_a_parameter(source):
    # A record asks for the parameters again when it is saved: another value would be a change.
    text = source.read_text(encoding="utf-8")
    names = assigned(ast.parse(text))
    assert {name: names.count(name) for name in record.literals(text)} == dict.fromkeys(
        record.literals(text), 1
    )


@each
def test_stored_outputs_are_there_and_without_errors(source):
    notebook = nbformat.read(stored(source), 4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs, f"no outputs in {source.stem}.ipynb: {MEND}"
    assert not [output for output in outputs if output.output_type == "error"]
    assert str(files.ROOT) not in nbformat.writes(notebook), (
        "an output names a folder of this machine"
    )


@pytest.mark.parametrize("notebook", SCALES)
def test_scales_change_parameters_that_exist(notebook):
    source = FOLDER / f"{notebook}.py"
    assert source in SOURCES, f"scales.toml names {notebook}, and there is no {source.name}"
    known = record.literals(source.read_text(encoding="utf-8"))
    for scale, changes in SCALES[notebook].items():
        assert scale in record.SCALES[1:], f"{notebook} has no scale {scale}"
        assert changes.keys() <= known.keys() - {"scale"}, f"{notebook}, {scale}: no such parameter"


def test_no_ipynb_without_its_source():
    stems = {path.stem for path in SOURCES}
    assert {path.stem for path in FOLDER.glob("*.ipynb")} <= stems


@pytest.mark.parametrize(
    "old, now", tomllib.loads((FOLDER / "renamed.toml").read_text(encoding="utf-8")).items()
)
def test_an_old_name_leads_to_notebooks_that_are_there(old, now):
    assert now and all((FOLDER / f"{name}.py").is_file() for name in now), now
    assert not (FOLDER / f"{old}.py").exists()
