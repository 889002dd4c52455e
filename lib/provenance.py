"""Record how a result was made: commit, versions and memory. Hash settings."""

import importlib.util
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lib.files import ROOT, sha256

PACKAGES = ("numpy", "scipy", "torch", "cvxpy", "numba", "matplotlib")


def digest(parts: Mapping) -> str:
    """Compute a short hash of the parts of a fingerprint.

    Parameters
    ----------
    parts : mapping
        The parts, whose values JSON can represent. The order of the parts does not
        matter.

    Returns
    -------
    str
        16 hex digits.

    Raises
    ------
    TypeError
        If JSON cannot represent a value, for example a numpy array.
    """
    return sha256(json.dumps(parts, sort_keys=True).encode())


def git(*arguments: str) -> str | None:
    """Run git in this repository.

    Parameters
    ----------
    *arguments : str
        The words that follow ``git`` on the command line.

    Returns
    -------
    str or None
        The output of git, with its line breaks; None if git or the repository is
        missing, or if git fails.
    """
    if not (
        ROOT / "notebooks"
    ).is_dir():  # an installed package may lie in another repository
        return None
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="surrogateescape"
        )
    except OSError:
        return None
    if done.returncode != 0:
        return None
    return done.stdout


def commit() -> str | None:
    """Return the commit that is checked out.

    Returns
    -------
    str or None
        At least 12 hex digits. "-dirty" follows if files differ from the commit or are
        untracked, or if git cannot tell. The files in figures/, except index.toml, and
        the .ipynb files of notebooks/ are not considered. The result is None if git or
        the repository is missing, or if git cannot name the commit.
    """
    name = git("rev-parse", "--short=12", "HEAD")
    if name is None:
        return None
    name = name.strip()
    # What a run writes does not count, but the texts above the figures do.
    code = (".", ":!figures", ":!notebooks/*.ipynb")
    texts = ("figures/index.toml",)
    for paths in (code, texts):
        # If git fails here, the result is None, which does not show that the tree is
        # clean.
        if git("status", "--porcelain", "--", *paths) != "":
            return f"{name}-dirty"
    return name


def versions() -> dict[str, str]:
    """Return the versions of the software on which results depend.

    Returns
    -------
    dict of str to str
        The version of Python, and the version of each of `PACKAGES` that is installed.
    """
    known = {
        name: metadata.version(name)
        for name in PACKAGES
        if importlib.util.find_spec(name)
    }
    return {"python": platform.python_version(), **known}


def peak_memory_mb() -> float | None:
    """Return the peak resident memory of this process so far.

    Returns
    -------
    float or None
        The memory in MB, millions of bytes; None on systems other than Linux.
    """
    # getrusage would include the memory of the parent process.
    status = Path("/proc/self/status")
    peak = status.exists() and re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    if peak:
        return round(int(peak[1]) * 1024 / 1e6, 1)
    return None
