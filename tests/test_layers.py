"""The contracts of imports that pyproject.toml states hold, and theory loads nothing heavy."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_layers_hold():
    lint = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", lint, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Rooms of theory, and what each may bring along: torch alone is a second, a picture's style two.
ROOMS = "attention compiled dynamics mirror svm regression data"
THEORY = [*(f"lib.{room}" for room in ROOMS.split()), "lib.data.images", "lib.data.texts"]
THEORY += ["papers.beyond.engine.training"]
HEAVY = ("torch", "transformers", "cvxpy", "matplotlib", "pandas", "seaborn", "IPython")
HEAVY += ("datasets", "pyarrow", "sklearn", "PIL", "huggingface_hub")


def test_theory_loads_nothing_heavy():
    """Each heavy library is imported by the function that needs it, none by a room of theory."""
    loaded = f"import sys, {', '.join(THEORY)}; print(*(set({HEAVY}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
