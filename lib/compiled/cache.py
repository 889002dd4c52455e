"""One folder for numba's compiled code, named after a hash of the files it comes from.

numba stores a compiled function under the file that defines it. It does not notice
changes in other files whose functions or constants are compiled into it. Here, any such
change leads to another folder, which contains no old code. If a file in the folder
cannot be read, for example because it was cut off, the function that it contains is
compiled again. If a file cannot be written, for example because a folder is in its
place, its function is compiled in every process, and a sentence on stderr says so.
"""

import ast
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import Cache, IndexDataCacheFile

from lib import interrupt

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("lib", "companion", "papers")


def kernels_hash(root: Path = ROOT) -> str:
    """Compute a hash of the files with compiled functions, and of what they import.

    Parameters
    ----------
    root : Path, optional
        The folder with the packages `lib`, `companion` and `papers`.

    Returns
    -------
    str
        16 hexadecimal digits. They change if the path or the content changes of a file
        that contains a compiled function, or of a file that such a file imports,
        directly or through other files.
    """
    waiting = [
        path
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if b"njit" in path.read_bytes()
    ]
    files = set()
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            waiting += _imported_files(path, root)
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _imported_files(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files below `root` that contain what a file imports by absolute names.

    The `__init__.py` of a package is yielded only if a name is imported from it.
    Otherwise `lib/__init__.py`, which imports the whole library, would always be.
    """
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = []
        for name in names:
            # A module, a package, or something in a module or in a package.
            place = root / name.replace(".", "/")
            places = (
                place.with_suffix(".py"),
                place / "__init__.py",
                place.parent.with_suffix(".py"),
                place.parent / "__init__.py",
            )
            yield from [file for file in places if file.is_file()][:1]


@lru_cache
def use_folder() -> Path:
    """Tell numba which folder to use for its cache, once per process.

    The function must be called before numba prepares any function for its cache. The
    folder lies in $NUMBA_CACHE_DIR if this variable is set, and otherwise in the user's
    cache ($XDG_CACHE_HOME or ~/.cache). If no file can be written there, a temporary
    folder is used until the process ends, and a sentence on stderr says so. Child
    processes use the same folder.

    Returns
    -------
    pathlib.Path
        The folder, which exists.
    """
    name = kernels_hash()
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        base = Path(given)
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = Path(caches) / "attention-dynamics" / "numba"
    # In a child process, $NUMBA_CACHE_DIR is already the folder itself.
    folder = base if base.name == name else base / name
    if not _takes_files(folder):
        _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="numba-"))
        interrupt.CLEAN_UP.append(_TEMPORARY[0].cleanup)
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
    """Return whether files can be written into a folder, which is created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _readable(load: Callable, nothing: Any) -> Callable:
    """Wrap `load` so that it returns `nothing` if a file cannot be read."""

    def loaded(self: Any, *arguments: Any) -> Any:
        try:
            return load(self, *arguments)
        except Exception:  # the error's type depends on which byte is wrong
            return nothing

    return loaded


def _load_index(self: IndexDataCacheFile) -> dict:
    """Return numba's index of a cache, or an empty dict if it cannot be read."""
    found = _readable(_numbas_load_index, {})(self)
    return found if isinstance(found, dict) else {}


def _save_overload(self: Cache, sig: Any, data: Any) -> None:
    """Let numba store a compiled function. If it cannot, say so once per process."""
    try:
        _numbas_save_overload(self, sig, data)
    except OSError as error:
        path = error.filename2 or error.filename or self.cache_path
        if not _UNWRITABLE:
            print(
                f"{path} cannot be written ({error.strerror}): its function is "
                f"compiled again in every process; remove {self.cache_path}",
                file=sys.stderr,
            )
        _UNWRITABLE.append(path)


_UNWRITABLE: list[str] = []  # files of the cache that could not be written

_numbas_load_index = IndexDataCacheFile._load_index
IndexDataCacheFile._load_index = _load_index
_numbas_save_overload = Cache._save_overload
Cache._save_overload = _save_overload
Cache._load_overload = _readable(Cache._load_overload, None)  # ty: ignore[invalid-assignment]
