"""`make setup` where it cannot succeed says why in a sentence, and leaves no stamp."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OLD = """#!/bin/sh
exec {python} -c 'import sys; sys.version_info = (3, 10, 13); exec(sys.argv[2])' "$@"
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def clone(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def setup(clone, *settings, **environment):
    command = ["make", "--no-print-directory", "setup", *settings]
    where = {"cwd": clone, "env": os.environ | environment}
    done = subprocess.run(command, capture_output=True, text=True, **where)
    assert done.returncode and not (clone / ".venv/.installed").exists()
    said = (done.stdout + done.stderr).splitlines()
    return [line for line in said if not line.startswith(("make", "Installing"))]


def test_an_old_python_is_refused(clone):
    old = clone / "python3"
    old.write_text(OLD.format(python=sys.executable))
    old.chmod(0o755)
    (sentence,) = setup(clone, f"PYTHON={old}")
    assert sentence == "Python 3.11 or newer is needed; name one with make PYTHON=..."
    assert not (clone / ".venv").exists()


def test_without_uv_and_without_packages_the_log_is_named(clone):
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    said = setup(clone, "UV=false", f"PYTHON={sys.executable}", **nothing)
    assert said[0] == "uv did not install the lock; pip does."
    assert len(said) == 2 and ".venv/install.log" in said[1]
    assert "accelerate==" in (clone / ".venv/install.log").read_text()
