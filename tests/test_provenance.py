"""What a result depends on, and the commit that it names: clean, or with "-dirty" behind it."""

import shutil
import subprocess

import pytest

from lib import files, import_closure, provenance
from lib.companion import ledger


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A committed repository with a notebook, its executed copy and a figure."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    for name in ("notebooks/01_a.py", "notebooks/01_a.ipynb", "figures/demo/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "in_repository", lambda: True)
    return tmp_path


def test_a_clean_tree_is_named_by_its_commit(repository):
    head = provenance.git("rev-parse", "HEAD")
    assert provenance.commit() == head[:12]


@pytest.mark.parametrize("name", ["figures/demo/a.json", "notebooks/01_a.ipynb"])
def test_what_a_run_writes_leaves_the_commit_clean(repository, name):
    (repository / name).write_text("two\n")
    assert not provenance.commit().endswith("-dirty")


@pytest.mark.parametrize("name", ["notebooks/01_a.py", "lib/new.py", "papers/new.py"])
def test_changed_code_makes_it_dirty(repository, name):
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("two\n")
    assert provenance.commit() == provenance.git("rev-parse", "HEAD")[:12] + "-dirty"


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setattr(provenance, "git", lambda *_: None)
    assert provenance.commit() is None


READ = {
    "15_vit_mnist": ("kept", "figures/desk/mnist.npz"),
    "19_theory_ledger": ("kept", "figures/power/fastrates_ledger.json"),
    "14_bert": ("lib", "data/sources.toml"),
    "39_mirror_ledger": ("lib", "papers/c/cones.py"),
}


@pytest.mark.parametrize("notebook", READ)
def test_the_fingerprint_moves_with_what_the_notebook_reads(notebook, tmp_path, monkeypatch):
    group, name = READ[notebook]
    for part in ("lib", "papers", "figures", "notebooks"):
        shutil.copytree(files.ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.p*c"))
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path / "notebooks"))
    for module in (provenance, import_closure):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    before = provenance.fingerprint(notebook, {})
    path = tmp_path / name if (tmp_path / name).exists() else tmp_path / "lib" / name
    path.write_bytes(path.read_bytes() + b" ")
    now = provenance.fingerprint(notebook, {})
    assert provenance.digest(now) != provenance.digest(before)
    changed = {part for part in now if now[part] != before[part]}
    assert changed == {group}
    assert {key for key in now[group] if now[group][key] != before[group].get(key)} == {name}


@pytest.mark.parametrize(
    ("notebook", "kept"),
    [
        ("10_fixed_decoder", []),
        ("15_vit_mnist", ["desk/mnist.npz"]),
        ("39_mirror_ledger", ["power/mirror_ledger.json"]),
    ],
)
def test_kept_results_count_for_the_notebooks_that_read_them_alone(notebook, kept, monkeypatch):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(files.ROOT / "notebooks"))
    found = provenance.fingerprint(notebook, {})["kept"]
    assert list(found) == [f"figures/{name}" for name in kept]


def test_what_a_ledgers_rows_catch_lies_where_the_fingerprint_looks():
    path = ledger.power_path("mirror_ledger").relative_to(files.ROOT)
    assert any(path.match(pattern) for pattern in provenance.KEPT)
