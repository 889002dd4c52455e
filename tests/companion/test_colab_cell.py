"""The first cell of a stored notebook: it installs where `lib` is absent, and only there."""

import importlib.util

import jupytext
import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from jupytext.cli import jupytext as jupytext_command

from lib import files
from lib.companion import colab_cell


class Shell:
    """Stands for IPython: it keeps the magics that a cell calls."""

    def __init__(self):
        self.called = []

    def run_line_magic(self, name, line):
        self.called.append((name, line))


def run(source, monkeypatch, absent):
    shell, find = Shell(), importlib.util.find_spec
    if absent:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "lib" else find(name)
        )
    exec(TransformerManager().transform_cell(source), {"get_ipython": lambda: shell})
    return shell.called


def source(monkeypatch, address):
    monkeypatch.setattr(colab_cell, "address", lambda: address)
    (cell,) = [cell for cell in colab_cell.installing([]) if colab_cell.installs(cell)]
    return cell.source


def test_it_does_nothing_where_the_project_is(monkeypatch):
    assert run(source(monkeypatch, "https://example.org/a.git"), monkeypatch, absent=False) == []


def test_it_installs_from_the_repository_where_the_project_is_absent(monkeypatch):
    text = source(monkeypatch, "https://example.org/a.git")
    assert 'repository = "https://example.org/a.git"' in text
    (pip, line), *_ = run(text, monkeypatch, absent=True)
    assert pip == "pip" and line == 'install --quiet "attention-dynamics @ git+{repository}"'


def test_without_an_address_it_asks_for_one(monkeypatch):
    with pytest.raises(ImportError, match="Write the address"):
        run(source(monkeypatch, ""), monkeypatch, absent=True)


def test_it_stands_once_behind_the_title():
    title, code = nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("scale = 1")
    once = colab_cell.installing([title, code])
    assert [colab_cell.installs(cell) for cell in once] == [False, True, False]
    assert [cell.source for cell in colab_cell.installing(once)] == [cell.source for cell in once]
    assert colab_cell.installs(colab_cell.installing([code])[0])


def test_it_stands_once_after_a_merge_by_jupytext(tmp_path, monkeypatch):
    """`jupytext --update` drops the cell, which no .py has, and may hand its id on to another."""
    text = '# %% [markdown]\n# # Title\n\n# %% tags=["parameters"]\nscale = 1\n\n# %%\nscale\n'
    (tmp_path / "01.py").write_text(text)
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.cells = colab_cell.installing(notebook.cells)
    stored = tmp_path / "01.ipynb"
    nbformat.write(nbformat.from_dict(notebook), stored)
    jupytext_command(["--to", "ipynb", "--update", str(tmp_path / "01.py")])
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path))
    for _ in range(2):
        assert colab_cell.main() == 0
        cells = nbformat.read(stored, 4).cells
        assert [cell.id for cell in cells] == ["cell-00", "install", "cell-01", "cell-02"]
        assert [cell.source for cell in cells] == [cell.source for cell in notebook.cells]


def test_a_handed_on_id_stays_unique():
    title, code = nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("scale = 1")
    code.id = colab_cell.TAG
    ids = [cell.id for cell in colab_cell.installing([title, code])]
    assert ids == ["cell-00", "install", "cell-01"]


@pytest.mark.parametrize(
    ("urls", "address"), [("", ""), ('[project.urls]\nrepository = "https://a"\n', "https://a")]
)
def test_its_address_is_that_of_the_project_file(monkeypatch, tmp_path, urls, address):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n' + urls)
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert colab_cell.address() == address
