"""The cache of compiled functions: it sees changes in other files, and always has a place."""

import os
import sys
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

import numba
from numba.core.caching import IndexDataCacheFile

_load_index = IndexDataCacheFile._load_index


def _load_known(self):
    """numba's list of compiled functions; empty where it names a class that is no more."""
    try:
        return _load_index(self)
    except (AttributeError, ImportError):
        return {}


IndexDataCacheFile._load_index = _load_known


def stamp(caller: str) -> int:
    """A number that changes with any source file of this folder and of the folder of `caller`.

    `caller` is a module's `__file__`. numba keeps compiled functions by the file they
    stand in and by their signature. As the default of an argument that nobody passes,
    the stamp makes what a function calls in other files part of its signature."""
    find_place()  # whoever asks is about to compile
    number = 0
    for folder in sorted({Path(__file__).parent, Path(caller).parent}):
        for path in sorted(folder.glob("*.py")):
            number = zlib.crc32(path.read_bytes(), number)
    return number


@lru_cache
def find_place() -> str | None:
    """Give numba's cache a temporary folder, and say so, where no other takes files.

    The others are $NUMBA_CACHE_DIR, this repository and the user's home. Returns the
    folder, None where numba has one of its own. Processes started from here share it.
    """
    try:
        numba.njit(cache=True)(stamp)  # prepared, never compiled
    except RuntimeError:  # numba: "no locator available"
        _TEMPORARY.append(place := tempfile.TemporaryDirectory(prefix="numba-"))
        vars(numba.config)["CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"] = place.name
        print(
            f"no folder takes numba's cache: compiled functions go to {place.name} until the end "
            "of this process; NUMBA_CACHE_DIR names a lasting place",
            file=sys.stderr,
        )
        return place.name


_TEMPORARY: list[tempfile.TemporaryDirectory] = []  # removed when the process ends
