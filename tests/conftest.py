"""Fixtures that several test files share."""

import os
import subprocess
import sys

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from lib import files

# On a slow machine a notebook under nbval may take so long that a bar would appear.
os.environ["TQDM_DISABLE"] = "1"

# No test may fail because a machine is slow.
slow = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", settings.default, **slow)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def whole_site(tmp_path_factory):
    """Build the site of the repository's own records, in the first process that needs
    it.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return _built(tmp_path_factory.mktemp("whole"))
    place = tmp_path_factory.getbasetemp().parent / "whole"
    with FileLock(place.with_suffix(".lock")):
        if (place / "site").exists():
            return place / "site"
        return _built(place)


def _built(place):
    told = {"FIGURES_DIR": str(files.ROOT / "figures"), "RUNS_DIR": str(place)}
    told["PYTHONPATH"] = str(files.ROOT)
    command = [sys.executable, str(files.ROOT / "docs" / "build.py")]
    done = subprocess.run(
        command, env=os.environ | told, cwd=files.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "site"
