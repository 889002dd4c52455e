"""The process that runs the tests of one killer in a copy of the repository."""

import json
import os
import sys
from pathlib import Path

import numba
import pytest


class Order:
    """The quickest tests first, by `seconds` {test: seconds}; notes how long each took and which
    one failed first.
    """

    def __init__(self, seconds: dict[str, float]):
        self.known, self.seconds, self.failed = seconds, {}, None

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.known.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def run(copy: str, killer: str, numba_cache: str, seconds: dict, report: str) -> None:
    """pytest on `killer` in `copy`, silently; its status is that of the process.

    The file `report` says how many seconds each test took, and which one failed.
    """
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
    order = Order(seconds)
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", killer], plugins=[order])
    Path(report).write_text(json.dumps({"seconds": order.seconds, "failed": order.failed}))
    sys.exit(status)
