"""lib and papers import one way only: the contracts that pyproject.toml states."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]


def contracts(folder):
    done = subprocess.run([*LINT, "--no-cache"], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_layers_hold():
    status, said = contracts(ROOT)
    assert status == 0, said


def test_an_import_against_the_layers_is_named(tmp_path):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    # A small library of the same rooms, with one import upwards.
    for init in (path for room in ("lib", "papers") for path in (ROOT / room).rglob("__init__.py")):
        place = tmp_path / init.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    for leaf in ("budget", "seeds", "files", "representation", "provenance"):
        (tmp_path / "lib" / f"{leaf}.py").write_text("")
    (tmp_path / "lib" / "svm" / "climbing.py").write_text("import papers.a\n")
    (tmp_path / "papers" / "beyond" / "aside.py").write_text("import papers.a\n")
    status, said = contracts(tmp_path)
    assert status == 1 and "lib.svm is not allowed to import papers" in said
    assert "papers.beyond is not allowed to import papers.a" in said


# Rooms of theory, and what each may bring along: torch alone is a second, a picture's style two.
ROOMS = "attention compiled dynamics mirror svm regression data"
THEORY = [*(f"lib.{room}" for room in ROOMS.split()), "papers.beyond.engine.training"]
HEAVY = ("torch", "transformers", "cvxpy", "matplotlib", "pandas", "seaborn", "IPython")


def test_theory_loads_nothing_heavy():
    """Each heavy library is imported by the function that needs it, none by a room of theory."""
    loaded = f"import sys, {', '.join(THEORY)}; print(*(set({HEAVY}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
