"""Where a result was made: commit, versions, memory; and a short hash of a setting."""

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
    """Short hash of fingerprint parts, 16 hex digits."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


def git(*arguments: str) -> str | None:
    """Output of git in this repository; None where git or the repository is absent or
    refuses.
    """
    if not (
        ROOT / "notebooks"
    ).is_dir():  # an installed package may lie in somebody else's
        return None
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="surrogateescape"
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit() -> str | None:
    """The commit checked out, "-dirty" where files other than figures and .ipynb
    differ.
    """
    name = git("rev-parse", "--short=12", "HEAD")
    if name is None:
        return None
    changed = git(
        "status", "--porcelain", "--", ".", ":!figures", ":!notebooks/*.ipynb"
    )
    return name.strip() + ("-dirty" if changed else "")


def versions() -> dict[str, str]:
    """Python and those of the packages that numbers depend on that are installed."""
    known = {
        name: metadata.version(name)
        for name in PACKAGES
        if importlib.util.find_spec(name)
    }
    return {"python": platform.python_version(), **known}


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in MB; None elsewhere than on
    Linux.
    """
    # Getrusage would count what the process was started from
    status = Path("/proc/self/status")
    peak = status.exists() and re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    if peak:
        return round(int(peak[1]) * 1024 / 1e6, 1)
    return None
