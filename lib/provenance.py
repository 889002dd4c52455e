"""What a result depends on and where it was made: sources, commit, versions, memory."""

import ast
import json
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lib.files import ROOT, dumps, folder, in_repository, sha256
from lib.import_closure import CODE, closure

# Committed results that notebooks read: the curves of studies, and what the rows of ledgers catch.
KEPT = ("figures/desk/*.npz", "figures/power/*.json")
PACKAGES = ("numpy", "scipy", "torch", "cvxpy", "numba", "matplotlib")


def fingerprint(notebook: str, parameters: Mapping) -> dict:
    """What a result depends on: hashes of the .py (source), of files (lib, kept); parameters.

    `lib` has the files of lib/ and papers/ that the notebook imports, directly or through one
    another, with the data files beside them, and no others; `kept` the committed results that it
    reads. A file of lib/ is named without its "lib/".
    """
    source = folder("notebooks") / f"{notebook}.py"
    text = source.read_text(encoding="utf-8") if source.exists() else None
    everything = (path for name in CODE for path in sorted((ROOT / name).rglob("*.py")))
    modules = closure(text) if text is not None else everything
    parts = {
        "source": sha256(text.encode()) if text is not None else None,
        "parameters": dict(parameters),
        "lib": {
            path.relative_to(ROOT).as_posix().removeprefix("lib/"): sha256(path.read_bytes())
            for path in modules
        },
        "kept": kept(text) if text is not None else {},
    }
    return json.loads(dumps(parts))


def kept(text: str) -> dict[str, str]:
    """The hashes of the committed results whose stem is a string in a notebook's source `text`."""
    words = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    found = sorted(path for pattern in KEPT for path in ROOT.glob(pattern) if path.stem in words)
    return {path.relative_to(ROOT).as_posix(): sha256(path.read_bytes()) for path in found}


def digest(parts: Mapping) -> str:
    """Short hash of fingerprint parts, 16 hex digits."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


def git(*arguments: str) -> str | None:
    """Output of git in this repository; None where git or the repository is absent or refuses."""
    if not in_repository():  # an installed package may lie in somebody else's repository
        return None
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        # A committed file may hold any bytes.
        how = {"encoding": "utf-8", "errors": "surrogateescape"}
        done = subprocess.run(command, capture_output=True, **how)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit() -> str | None:
    """The commit checked out, with "-dirty" where the working tree differs.

    Changes of figures and executed notebooks alone do not count.
    """
    name = git("rev-parse", "--short=12", "HEAD")
    if name is None:
        return None
    changed = git("status", "--porcelain", "--", ".", ":!figures", ":!notebooks/*.ipynb")
    return name.strip() + ("-dirty" if changed else "")


def versions() -> dict[str, str]:
    """Python and the packages that numbers depend on; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in MB; None on Windows."""
    # Linux; getrusage would also count what the process was started from
    status = Path("/proc/self/status")
    if status.exists():
        return round(int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024 / 1e6, 1)
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
