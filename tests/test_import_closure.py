"""What a notebook draws on: its imports, direct and indirect, and no more of the library."""

import subprocess
import sys

import pytest

from lib import files, import_closure

NOTEBOOKS = files.ROOT / "notebooks"


def names(text):
    return {path.relative_to(files.ROOT).as_posix() for path in import_closure.closure(text)}


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
    monkeypatch.setattr(import_closure, "ROOT", tmp_path)
    found = {
        path.relative_to(package.parent).as_posix()
        for path in import_closure.closure("from lib import a")
    }
    assert found == {"__init__.py", "a/__init__.py", "a/one.py", "a/two.py", "b.py"}


def test_data_files_beside_what_is_imported_count():
    assert "lib/data/sources.toml" in names("from lib.data import places")
    assert "lib/data/sources.toml" not in names("from lib.svm import lp")
    packages = [files.ROOT / name for name in import_closure.CODE]
    beside = {path.parent for package in packages for path in package.rglob("*.py")}
    kinds = {path.suffix for folder in beside for path in folder.iterdir() if path.is_file()}
    unread = {".py", ".pyc", ".md"}
    assert kinds <= unread | set(import_closure.DATA), "say whether a module can read the others"


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
