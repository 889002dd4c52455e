"""The process that runs one test file in a copy of the repository."""

import os
import sys

import numba
import pytest


def run(copy: str, killer: str, numba_cache: str) -> None:
    """pytest on `killer` in `copy`, silently; its status is that of the process."""
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
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", killer]))
