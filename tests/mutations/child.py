"""The process that runs tests in a copy of the repository, of which one formula may be wrong."""

import json
import os
import resource
import sys
from pathlib import Path

import numba
import pytest


class First:
    """Notes which test failed first."""

    failed = None

    def pytest_runtest_logreport(self, report):
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report):
        self.pytest_runtest_logreport(report)


def run(copy: str, tests: tuple[str, ...], numba_cache: str, seconds: int, report: str) -> None:
    """pytest on `tests` in `copy`, silently; its status is that of the process.

    The file `report` names the test that failed. The process ends after `seconds` on a processor.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.chdir(copy)
    os.environ |= {
        "PYTHONPATH": copy,
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": numba_cache,
    }
    sys.dont_write_bytecode = True  # a swap and its undoing may share a second and a size
    sys.path.insert(0, copy)
    numba.config.CACHE_DIR = numba_cache
    first = First()
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[first])
    Path(report).write_text(json.dumps(first.failed))
    sys.exit(status)
