"""One folder for what numba compiles, named by a hash of all code that is compiled.

numba keeps a compiled function by the file in which it stands, and does not see a
change of another file whose functions it calls. Here such a change gives another
folder, in which nothing old is found. What cannot be read there, such as a file that
was cut off, is compiled anew.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import Cache, IndexDataCacheFile

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("lib", "companion", "papers")


def kernels_hash(root: Path = ROOT) -> str:
    """Return a hash of the files that hold compiled functions.

    Parameters
    ----------
    root : Path, optional
        The folder with the packages `lib`, `companion` and `papers`.

    Returns
    -------
    str
        16 hexadecimal digits. Another name, place or content of such a file gives
        others.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            content = path.read_bytes()
            if b"njit" in content:
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(content)
    return digest.hexdigest()[:16]


@lru_cache
def use_folder() -> Path:
    """Point numba's cache to its folder, once.

    This happens before any function is prepared for the cache. The folder lies in
    $NUMBA_CACHE_DIR, else in the user's cache ($XDG_CACHE_HOME or ~/.cache). If neither
    takes files, a temporary folder serves until the process ends, and one sentence on
    stderr says so. Processes that are started from here find the same folder.

    Returns
    -------
    pathlib.Path
        The folder, which is there.
    """
    name = kernels_hash()
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        base = Path(given)
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = Path(caches) / "attention-dynamics" / "numba"
    # A process that was started from here is given the folder itself.
    folder = base if base.name == name else base / name
    if not _takes_files(folder):
        _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="numba-"))
        folder = Path(_TEMPORARY[0].name) / name
        folder.mkdir()
        print(
            f"no folder takes numba's cache: compiled functions go to {folder} until "
            "the end of this process; NUMBA_CACHE_DIR names a lasting place",
            file=sys.stderr,
        )
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    vars(numba.config)["CACHE_DIR"] = str(folder)
    return folder


_TEMPORARY: list[tempfile.TemporaryDirectory] = []  # removed when the process ends


def _takes_files(folder: Path) -> bool:
    """Say whether files can be written into a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _readable(load: Callable, nothing: Any) -> Callable:
    """Wrap `load` so that it returns `nothing` if a file cannot be read.

    It does so whatever is wrong with the file.
    """

    def loaded(self: Any, *arguments: Any) -> Any:
        try:
            return load(self, *arguments)
        except Exception:  # which one depends on the byte that is wrong
            return nothing

    return loaded


def _load_index(self: IndexDataCacheFile) -> dict:
    """Return the list of what a cache holds.

    It is empty if the list cannot be read or is no list.
    """
    found = _readable(_numbas_load_index, {})(self)
    return found if isinstance(found, dict) else {}


_numbas_load_index = IndexDataCacheFile._load_index
IndexDataCacheFile._load_index = _load_index
Cache._load_overload = _readable(Cache._load_overload, None)  # ty: ignore[invalid-assignment]
