"""What a result depends on and where it was made: sources, commit, versions, memory."""

import ast
import importlib.util
import json
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from lib.files import ROOT, dumps, folder, read_table, sha256
from lib.page_table import read_pages

CODE = ("lib", "companion", "papers")  # the packages whose files count
DATA = (".toml", ".json", ".npz", ".csv", ".txt")  # what a module may read beside it
# Committed results that notebooks read: the curves of studies, and what the rows of
# ledgers catch.
KEPT = ("figures/desk/*.npz", "figures/power/*.json")
PACKAGES = ("numpy", "scipy", "torch", "cvxpy", "numba", "matplotlib")


def closure(text: str) -> list[Path]:
    """The files of this project that a program with this source can import or read,
    sorted, the data files beside a module among them. SyntaxError where a source is no
    Python.
    """
    reached = set()
    waiting = set(_files(_imports(text.encode(), ())))
    while waiting:
        path = waiting.pop()
        reached.add(path)
        names = _imports(path.read_bytes(), path.relative_to(ROOT).parent.parts)
        waiting |= set(_files(names)) - reached
    beside = {
        path
        for folder in {path.parent for path in reached}
        for path in folder.iterdir()
    }
    return sorted(reached | {path for path in beside if path.suffix in DATA})


@cache
def _imports(source: bytes, package: tuple[str, ...]) -> frozenset[str]:
    """Dotted names that `source` may import, those of mere functions or classes among
    them.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                above = package[: len(package) - node.level + 1]
            else:
                above = ()
            base = ".".join([*above, *filter(None, [node.module])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.split(".")[0] in CODE)


def _files(names: Iterable[str]) -> Iterator[Path]:
    """The files of the modules called so, and of the packages above them."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            place = ROOT.joinpath(*parts[:depth])
            yield from filter(
                Path.is_file, (place.with_suffix(".py"), place / "__init__.py")
            )


def fingerprint(notebook: str, parameters: Mapping) -> dict:
    """What a result depends on: parameters, and hashes of the .py ("source"), of its
    `closure` ("lib"), of the committed results named in it or for it in
    figures/index.toml ("kept"), and what notebooks/pages.toml says of its records
    ("record").
    """
    source = folder("notebooks") / f"{notebook}.py"
    if source.exists():
        text = source.read_text(encoding="utf-8")
    else:
        text = ""
    words = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
    }
    page = read_table(ROOT / "figures" / "index.toml").get(notebook, {})
    words |= {figure.get("trains") for figure in page.get("figure", ())}
    kept = sorted(
        path for pattern in KEPT for path in ROOT.glob(pattern) if path.stem in words
    )
    parts = {"source": sha256(text.encode()), "parameters": dict(parameters)}
    for part, paths in (("lib", closure(text)), ("kept", kept)):
        names = [
            path.relative_to(ROOT).as_posix().removeprefix("lib/") for path in paths
        ]
        parts[part] = {
            name: sha256(path.read_bytes()) for name, path in zip(names, paths)
        }
    pages = read_pages()
    if notebook in pages and pages[notebook].records:
        parts["record"] = pages[notebook].records
    return json.loads(dumps(parts))


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
    status = Path(
        "/proc/self/status"
    )  # getrusage would count what the process was started from
    peak = status.exists() and re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    if peak:
        return round(int(peak[1]) * 1024 / 1e6, 1)
    return None
