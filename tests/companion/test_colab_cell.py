"""The cell that installs: else a page fails on Colab, or installs over a reader's own
clone.
"""

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


def run(address, monkeypatch, folder, absent):
    monkeypatch.setattr(files, "ROOT", folder)
    (folder / "pyproject.toml").write_text(
        f'[project.urls]\nrepository = "{address}"\n'
    )
    (cell,) = colab_cell._installing([])
    shell = Shell()
    find = importlib.util.find_spec
    if absent:

        def hide(name):
            return None if name == "lib" else find(name)

        monkeypatch.setattr(importlib.util, "find_spec", hide)
    exec(
        TransformerManager().transform_cell(cell.source), {"get_ipython": lambda: shell}
    )
    return shell.called


def test_it_installs_from_the_repository_only_where_the_project_is_absent(
    monkeypatch, tmp_path
):
    address = "https://example.org/a.git"
    assert run(address, monkeypatch, tmp_path, absent=False) == []
    (pip, line), *_ = run(address, monkeypatch, tmp_path, absent=True)
    assert pip == "pip" and line.startswith('install --quiet "attention-dynamics[')
    assert line.endswith('] @ git+{repository}"')
    with pytest.raises(ImportError, match="address"):
        run("", monkeypatch, tmp_path, absent=True)
    (tmp_path / "pyproject.toml").unlink()
    assert 'repository = ""' in colab_cell._installing([])[0].source


def test_it_stands_once_though_jupytext_merged_and_widgets_go(tmp_path):
    """`jupytext --update` drops the cell, which no .py has, and may hand its id on to
    another.
    """
    text = '# %% [markdown]\n# # Title\n\n# %% tags=["parameters"]\nscale = 1\n\n# %%\nscale\n'
    (tmp_path / "01.py").write_text(text)
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.cells = colab_cell._installing(notebook.cells)
    stored = tmp_path / "01.ipynb"
    nbformat.write(nbformat.from_dict(notebook), stored)
    jupytext_command(["--to", "ipynb", "--update", str(tmp_path / "01.py")])
    for _ in range(2):
        colab_cell.store(stored, stored)
        cells = nbformat.read(stored, 4).cells
        assert [cell.id for cell in cells] == [
            "cell-00",
            "install",
            "cell-01",
            "cell-02",
        ]
        assert [cell.source for cell in cells] == [
            cell.source for cell in notebook.cells
        ]
