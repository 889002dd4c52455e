"""What a result depends on: its imports, direct and indirect, and a commit, clean or dirty."""

import shutil
import subprocess
import sys

import pytest

from lib import files, provenance
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
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
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


NOTEBOOKS = files.ROOT / "notebooks"


def names(text):
    return {path.relative_to(files.ROOT).as_posix() for path in provenance.closure(text)}


@pytest.mark.parametrize(
    "line",
    [
        "import lib.svm.lp",
        "from lib.svm import lp",
        "from lib.svm.lp import solve",
        "def f():\n    from lib.svm import lp",
    ],
)
def test_every_form_of_import_counts(line):
    assert {"lib/__init__.py", "lib/svm/__init__.py", "lib/svm/lp.py"} <= names(line)


def test_it_goes_on_through_what_is_imported(tmp_path, monkeypatch):
    package = tmp_path / "lib" / "a"
    package.mkdir(parents=True)
    for path, text in {
        package.parent / "__init__.py": "",
        package / "__init__.py": "from .one import f",
        package / "one.py": "from . import two",
        package / "two.py": "from ..b import g",
        package / "three.py": "",
        package.parent / "b.py": "import numpy",
    }.items():
        path.write_text(text)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    found = {
        path.relative_to(package.parent).as_posix()
        for path in provenance.closure("from lib import a")
    }
    assert found == {"__init__.py", "a/__init__.py", "a/one.py", "a/two.py", "b.py"}


def test_data_files_beside_what_is_imported_count():
    assert "lib/data/sources.toml" in names("from lib.data import places")
    assert "lib/data/sources.toml" not in names("from lib.svm import lp")
    packages = [files.ROOT / name for name in provenance.CODE]
    beside = {path.parent for package in packages for path in package.rglob("*.py")}
    kinds = {path.suffix for folder in beside for path in folder.iterdir() if path.is_file()}
    unread = {".py", ".pyc", ".md"}
    assert kinds <= unread | set(provenance.DATA), "say whether a module can read the others"


# Notebooks that train networks; 40 and 41 have a small one beside the theory.
TRAINING = ("14", "15", "16", "33", "34", "40", "41", "45")


@pytest.mark.parametrize("source", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_no_figure_hangs_on_the_site_or_the_batch_and_no_theory_on_training(source):
    found = names(source.read_text(encoding="utf-8"))
    assert not [name for name in found if name.startswith(("lib/site/", "lib/batch/"))]
    theory = source.stem[:2] not in TRAINING
    trained = [name for name in found if name.startswith(("lib/training/", "lib/networks/"))]
    assert bool(trained) != theory


def test_what_runs_is_in_the_closure():
    """Modules that the imports of a notebook really load are all among those found statically."""
    text = (NOTEBOOKS / "10_fixed_decoder.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(("from lib", "from papers"))]
    ours = "m.__file__ for n, m in sys.modules.items() if n.split('.')[0] in ('lib', 'papers')"
    said = f"print(*[{ours}], sep='|')"
    code = "\n".join([*lines, "import sys", said])
    run = dict(cwd=files.ROOT, capture_output=True, text=True, check=True)
    done = subprocess.run([sys.executable, "-c", code], **run)
    loaded = {line.removeprefix(f"{files.ROOT}/") for line in done.stdout.strip().split("|")}
    assert {name.split("/")[0] for name in loaded} == {"lib", "papers"} and loaded <= names(text)


def test_fingerprint_sees_parameters_and_what_the_notebook_imports(monkeypatch):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(files.ROOT / "notebooks"))
    one = provenance.fingerprint("10_fixed_decoder", {"seeds": 5})
    for seeds in (5, 6):
        other = provenance.fingerprint("10_fixed_decoder", {"seeds": seeds})
        assert (provenance.digest(one) == provenance.digest(other)) == (seeds == 5)
    assert {"companion/claims.py", "companion/record.py", "files.py"} <= one["lib"].keys()
