"""Tests of what a result depends on.

A failure means that a figure of old code counts as up to date.
"""

import shutil
import subprocess

import pytest

from companion import ledger, record, sources
from lib import files, provenance
from papers import poster

NOTEBOOKS = files.ROOT / "notebooks"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Make a committed repository with a notebook, its executed copy and a figure."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    for name in ("notebooks/01_a.py", "notebooks/01_a.ipynb", "figures/demo/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    who = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "-c",
        "commit.gpgsign=false",
    ]
    for words in (
        ["init", "--quiet"],
        ["add", "."],
        ["commit", "--quiet", "-m", "first"],
    ):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir(exist_ok=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        ("figures/demo/a.json", False),  # what a run writes
        ("figures/index.toml", True),  # its texts are drawn into the figures
        ("notebooks/01_a.ipynb", False),
        ("notebooks/01_a.py", True),
        ("lib/new.py", True),
        ("papers/new.py", True),
    ],
)
def test_a_tree_is_named_by_its_commit_and_whether_its_code_changed(
    repository, name, dirty
):
    head = provenance.git("rev-parse", "HEAD")[:12]
    assert provenance.commit() == head
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("two\n")
    assert provenance.commit() == head + "-dirty" * dirty


def test_a_tree_whose_state_git_cannot_tell_is_not_called_clean(repository):
    head = provenance.git("rev-parse", "HEAD")[:12]
    (repository / ".git" / "index").write_bytes(b"no index")
    assert provenance.commit() == head + "-dirty"


READ = [
    ("16_vit_cifar10", "kept", "figures/desk/cifar10_50000.npz"),
    ("51_fresh_seeds", "kept", "figures/desk/confirm/mnist_60000"),
    ("14_bert", "kept", "figures/desk/verdicts.json"),
    ("19_theory_ledger", "kept", "figures/power/fastrates_ledger.json"),
    ("50_what_we_know", "kept", "figures/desk/atlas_map.json"),
    ("50_what_we_know", "kept", "figures/demo/fastrates_fig2_beyond.json"),
    ("14_bert", "lib", "data/sources.toml"),
    ("39_mirror_ledger", "lib", "papers/c/lemmas.py"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy what a fingerprint reads; each test may add to another file."""
    place = tmp_path_factory.mktemp("copy")
    for part in ("lib", "companion", "papers", "figures", "notebooks"):
        left = shutil.ignore_patterns("*.p*c", "*.png", "*.svg", "*.ipynb")
        shutil.copytree(files.ROOT / part, place / part, ignore=left)
    return place


@pytest.mark.parametrize(("notebook", "group", "name"), READ)
def test_the_fingerprint_moves_with_what_is_read(
    notebook, group, name, copy, monkeypatch
):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(copy / "notebooks"))
    monkeypatch.setattr(sources, "ROOT", copy)
    before = sources.fingerprint(notebook, {})
    assert group != "kept" or name in before["kept"]
    if (copy / name).exists():
        path = copy / name
    else:
        path = copy / "lib" / name
    changed = path / "30.npz" if path.is_dir() else path
    changed.write_bytes(changed.read_bytes() + b" ")
    now = sources.fingerprint(notebook, {})
    assert provenance.digest(now) != provenance.digest(before)
    assert {part for part in now if now[part] != before[part]} == {group}
    assert {key for key in now[group] if now[group][key] != before[group].get(key)} == {
        name
    }
    others = sources.fingerprint(notebook, {"seeds": 6})
    assert provenance.digest(others) != provenance.digest(now)


@pytest.mark.parametrize(
    ("field", "notebook", "moves"),
    [
        ("reading", "41_how_margins_settle", True),
        ("headline", "41_how_margins_settle", True),
        ("sentence", "41_how_margins_settle", False),  # it is in no picture
        ("reading", "40_law_of_margins", False),  # which has other figures
        ("reading", "50_what_we_know", False),
        ("finding", "50_what_we_know", True),  # which shows the README's table
    ],
)
def test_the_fingerprint_moves_with_the_texts_that_a_page_shows(
    field, notebook, moves, copy, monkeypatch
):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(copy / "notebooks"))
    monkeypatch.setattr(sources, "ROOT", copy)
    before = sources.fingerprint(notebook, {})
    index = copy / "figures" / "index.toml"
    text = index.read_text("utf-8")
    above, slug, entry = text.partition('slug = "law_real"\n')
    changed = entry.replace(f'{field} = "', f'{field} = "In other words: ', 1)
    index.write_text(above + slug + changed, "utf-8")
    now = sources.fingerprint(notebook, {})
    index.write_text(text, "utf-8")
    assert {part for part in now if now[part] != before[part]} == (
        {"texts"} if moves else set()
    )


def test_every_record_that_the_poster_reads_counts(monkeypatch):
    read = record.read
    seen = set()

    def reading(path):
        seen.add(path.relative_to(files.ROOT).as_posix())
        return read(path)

    monkeypatch.setattr(record, "read", reading)
    for panel in ("_turning", "_rate"):  # they train, and read no record
        monkeypatch.setattr(poster, panel, lambda axes: None)
    poster.numbers()
    poster.draw()
    assert seen
    assert seen <= sources.fingerprint("50_what_we_know", {})["kept"].keys()


def test_what_a_ledgers_rows_catch_lies_where_the_fingerprint_looks():
    path = ledger.power_path("mirror_ledger").relative_to(files.ROOT)
    assert any(path.match(pattern) for pattern in sources.KEPT)


def names(text, root=files.ROOT):
    return {path.relative_to(root).as_posix() for path in sources.closure(text)}


def test_every_form_of_import_counts_and_what_it_imports_in_turn(tmp_path, monkeypatch):
    for name, text in {
        "__init__": "",
        "a/__init__": "from .one import f",
        "a/one": "from . import two",
        "a/two": "def g():\n    from ..b import g",
        "a/three": "",
        "b": "import numpy, lib.c.d",
        "c/__init__": "",
        "c/d": "",
    }.items():
        files.write(tmp_path / "lib" / f"{name}.py", text.encode())
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    below = {"lib/__init__.py", "lib/b.py", "lib/c/__init__.py", "lib/c/d.py"}
    above = {"lib/a/__init__.py", "lib/a/one.py", "lib/a/two.py"}
    assert names("from lib.b import numpy", tmp_path) == below
    assert names("from lib import a", tmp_path) == below | above


def test_every_kind_of_data_file_beside_a_module_is_known():
    packages = [files.ROOT / name for name in sources.CODE]
    beside = {
        path.parent for package in packages for path in package.rglob("[0-9]*.py")
    }
    kinds = {
        path.suffix for folder in beside for path in folder.iterdir() if path.is_file()
    }
    unread = {".py", ".pyc", ".md"}
    assert kinds <= unread | set(sources.DATA), (
        "say whether a module can read the others"
    )
