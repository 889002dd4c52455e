"""What several test files share."""

import os

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from companion.site import build
from lib import files

# No test may fail because a machine is slow.
slow = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", settings.default, **slow)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def whole_site(tmp_path_factory):
    """The site of the repository's own records, built by the first process that asks
    for it.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return _built(tmp_path_factory.mktemp("whole"))
    place = tmp_path_factory.getbasetemp().parent / "whole"
    with FileLock(place.with_suffix(".lock")):
        if (place / "site").exists():
            return place / "site"
        return _built(place)


def _built(place):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("figures", "notebooks"):
            patch.setenv(f"{name.upper()}_DIR", str(files.ROOT / name))
        patch.setenv("RUNS_DIR", str(place / "runs"))
        build._build(place / "site")
    return place / "site"
