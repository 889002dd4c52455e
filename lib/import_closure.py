"""Which files of lib/ and papers/ a notebook or module draws on: its imports, read off the source.

Static, so that nothing is run: an import inside a function counts as well. A module brings the
`__init__` of every package above it, and the data files beside it, which it may read.
"""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lib.files import ROOT

CODE = ("lib", "papers")
DATA = (".toml", ".json", ".npz", ".csv", ".txt")


def closure(text: str) -> list[Path]:
    """The files under lib/ and papers/ that a program with this source can import or read, sorted.

    Those that an imported file imports are among them. Raises SyntaxError where the source of the
    program, or of one of those files, is none.
    """
    found, waiting = set(), set(_files(_imports(text.encode(), "")))
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= set(_files(_imports(path.read_bytes(), _package(path)))) - found
    beside = {path for folder in {path.parent for path in found} for path in folder.iterdir()}
    return sorted(found | {path for path in beside if path.suffix in DATA})


def _package(path: Path) -> str:
    """The package that relative imports in `path` start from."""
    return ".".join(path.relative_to(ROOT).parent.parts)


@cache
def _imports(source: bytes, package: str) -> frozenset[str]:
    """Dotted names that `source` may import, those of mere functions or classes among them."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] in CODE)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *filter(None, [node.module])])


def _files(names: Iterable[str]) -> Iterable[Path]:
    """The files of the modules called `names` and of the packages above them."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            place = ROOT.joinpath(*parts[:depth])
            yield from filter(Path.is_file, (place.with_suffix(".py"), place / "__init__.py"))
