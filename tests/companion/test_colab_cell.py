"""The first cell of a stored notebook: it installs where `lib` is absent and does nothing where it is there."""

import importlib.util

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

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


@pytest.mark.parametrize(
    ("urls", "address"), [("", ""), ('[project.urls]\nrepository = "https://a"\n', "https://a")]
)
def test_its_address_is_that_of_the_project_file(monkeypatch, tmp_path, urls, address):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n' + urls)
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert colab_cell.address() == address
