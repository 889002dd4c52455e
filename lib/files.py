"""Find the project's folders, and write each file completely or not at all."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return one of the project's folders.

    Parameters
    ----------
    name : {"figures", "runs", "notebooks"}
        The name of the folder.

    Returns
    -------
    Path
        The folder that $FIGURES_DIR, $RUNS_DIR or $NOTEBOOKS_DIR names, if this
        variable is set; otherwise the folder in the repository.
    """
    given = os.environ.get(f"{name.upper()}_DIR")
    if given:
        return Path(given).resolve()
    return ROOT / name


def sha256(content: bytes) -> str:
    """Compute a short hash.

    Parameters
    ----------
    content : bytes
        The bytes to hash.

    Returns
    -------
    str
        The first 16 hex digits of the SHA-256.

    Examples
    --------
    >>> from lib import files
    >>> files.sha256(b"")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content).hexdigest()[:16]


def dumps(value: Any) -> str:
    """Write a value as strict JSON.

    Parameters
    ----------
    value : Any
        The value. Numpy values are converted to plain Python values. A value of any
        other type that JSON does not know is replaced by its `str`.

    Returns
    -------
    str
        The JSON text on several lines, with a line break at the end.

    Raises
    ------
    ValueError
        If the value contains NaN, infinity, or a reference to itself.
    TypeError
        If a key of a dict is neither a string, a plain number, a boolean nor None.

    Examples
    --------
    >>> import numpy as np
    >>> from lib import files
    >>> print(files.dumps({"seed": np.int64(3)}), end="")
    {
     "seed": 3
    }
    """

    def plain(x: Any) -> Any:
        return x.tolist() if hasattr(x, "tolist") else str(x)

    return (
        json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=plain)
        + "\n"
    )


def read_object(path: Path) -> dict:
    """Read the JSON object in a file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The object.

    Raises
    ------
    ValueError
        If the file cannot be read, or contains anything but a JSON object. The message
        names the path.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object")
    return value


def read_table(path: Path) -> dict:
    """Read the tables of a TOML file.

    Parameters
    ----------
    path : Path
        The file. If it does not exist, the result is empty.

    Returns
    -------
    dict
        The content of the file: its tables and top-level values by name.

    Raises
    ------
    ValueError
        If the file cannot be read or is not TOML. The message names the path.
    """
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ValueError(f"{path} cannot be read: {error}") from None


# Writing.

PART = ".part"  # the end of the name of a temporary file or folder; .gitignore lists it


def write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all.

    Even after an interruption, the file contains either all of the old bytes or all of
    the new ones.

    Parameters
    ----------
    path : Path
        The file. Its folder is created if needed.
    content : bytes
        The new content of the file.

    Raises
    ------
    OSError
        If the disk is full or the folder cannot be written into. The message names the
        path.
    """
    write_all({path: content})


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files or, if one of them fails, none.

    If writing one file fails, all files get their old content back. Each file is
    replaced by a single rename. So a symbolic link becomes a regular file, and a new
    file gets the default permissions of the process, not the permissions of the old
    file. Temporary files that a killed process left behind in an earlier write are
    removed.

    Parameters
    ----------
    contents : mapping of Path to bytes
        The new content of each file.

    Raises
    ------
    OSError
        If the disk is full or a folder cannot be written into. The message names the
        path.
    """
    waiting: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    with contextlib.ExitStack() as streams:
        try:
            # A full or read-only disk raises its error here, before any file changes.
            for path, content in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                sweep(path)
                waiting[path] = temporary_beside(path)
                stream = streams.enter_context(open(waiting[path], "xb"))
                _fill(stream, content, path)
            for path, temporary in waiting.items():
                old = path.read_bytes() if path.is_file() else None
                os.replace(temporary, path)
                before[path] = old
        except BaseException:
            for temporary in waiting.values():
                temporary.unlink(missing_ok=True)
            for path, old in before.items():
                if old is None:
                    path.unlink(missing_ok=True)
                else:
                    write(path, old)
            raise


def temporary_beside(path: Path) -> Path:
    """Return a new name, in the folder of a file, that no other process uses.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    Path
        The name, which ends in `PART`.
    """
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{PART}")


def _fill(stream: BinaryIO, content: bytes, path: Path) -> None:
    """Write to the temporary file of `path`; errors of the system then name `path`."""
    try:
        # This lock marks the file as in use by this process.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())  # a power cut must not leave a name without bytes
    except OSError as error:
        # If the disk is full, the system's error names no file.
        error.filename = error.filename or str(path)
        raise


def sweep(path: Path) -> None:
    """Remove the temporary files of a file, which killed processes left behind.

    Parameters
    ----------
    path : Path
        The file. Its temporary files that a running process is writing stay.
    """
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*{PART}"):
        with contextlib.suppress(OSError), open(temporary, "rb") as stream:
            # An error here means that a process is writing the file.
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()


def replace_folder(fresh: Path, place: Path) -> None:
    """Replace a folder by another one, without ever mixing the files of the two.

    Other processes see the old folder, the new folder or, between two renames, no
    folder. Only one process at a time may replace the folder at `place`.

    Parameters
    ----------
    fresh : Path
        The new folder, on the same file system as `place`. It is moved.
    place : Path
        The path of the old folder, or of an old file. It need not exist.

    Raises
    ------
    OSError
        If the new folder cannot be moved. The old one is then still in its place.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = temporary_beside(place)
    if os.path.lexists(place):
        os.rename(place, aside)
    try:
        os.rename(fresh, place)
    except BaseException:
        if os.path.lexists(aside):
            os.rename(aside, place)
        raise
    # Remove the old folder, and older ones that killed processes left behind.
    for old in place.parent.glob(f".{glob.escape(place.name)}.*{PART}"):
        remove(old)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all its content, if it exists.

    Parameters
    ----------
    path : Path
        The file or folder. If it is a symbolic link, only the link is removed. If parts
        of a folder cannot be removed, they stay, and no error is raised.

    Raises
    ------
    OSError
        If a file cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sentence(error: BaseException) -> str:
    """Return the message of an error without its error number.

    Parameters
    ----------
    error : BaseException
        The error.

    Returns
    -------
    str
        For an error of the operating system, its message, followed by the name of the
        file if there is one. For any other error, `str(error)`.

    Examples
    --------
    >>> from lib import files
    >>> files.sentence(FileNotFoundError(2, "No such file or directory", "data.npz"))
    'No such file or directory: data.npz'
    """
    name = getattr(error, "filename", None)
    return f"{getattr(error, 'strerror', None) or error}{f': {name}' if name else ''}"
