"""The commit that a result names: clean, or with "-dirty" behind it."""

import shutil
import subprocess

import pytest

from lib import provenance


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


@pytest.mark.parametrize("name", ["notebooks/01_a.py", "lib/new.py"])
def test_changed_code_makes_it_dirty(repository, name):
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("two\n")
    assert provenance.commit() == provenance.git("rev-parse", "HEAD")[:12] + "-dirty"


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setattr(provenance, "git", lambda *_: None)
    assert provenance.commit() is None
