"""Random mutants: `python -m tests.mutations --random 60 --seed 1`.

Each mutant changes one operator, comparison, number, index, sign or minimum in a
function of `lib`, `companion` or `papers`. All places have equal chances. The tests
that import its module should notice.
"""

import ast
import random
from functools import cache
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Packages without formulas: drawing, pages, records, texts.
WITHOUT = (
    "site batch explorer data files provenance representation plots record".split()
)
WITHOUT += "stored page_table ledger figure pages statements redraw __main__ places cache".split()
OPERATORS = {"+": "-", "-": "+", "*": "/", "/": "*", "@": "*"}
OPERATORS |= {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
CALLS = {"min": "max", "minimum": "maximum", "argmin": "argmax"}
CALLS |= {new: old for old, new in CALLS.items()}
TEXTS = ast.JoinedStr | ast.List | ast.Tuple | ast.Dict
ARITHMETIC = ast.BinOp | ast.Compare | ast.Subscript | ast.Slice


@cache
def _starts(text):
    return [0, *accumulate(map(len, text.splitlines(keepends=True)))]


def _span(node, text):
    starts = _starts(text)
    return starts[node.lineno - 1] + node.col_offset, starts[
        node.end_lineno - 1
    ] + node.end_col_offset


def _places(node, text, inside=False, above=None):
    """Yield (start, end, new text) of every mutant of `node` and below, in byte
    offsets.
    """
    if isinstance(
        node, ast.Raise | ast.JoinedStr | ast.Assert | ast.arguments | ast.AnnAssign
    ):
        return
    if inside and isinstance(node, ast.BinOp | ast.Compare):
        sides = [node.left, getattr(node, "right", None) or node.comparators[0]]
        if not any(
            isinstance(s, TEXTS) or type(getattr(s, "value", 0)) is str for s in sides
        ):
            start = _span(sides[0], text)[1]
            end = _span(sides[1], text)[0]
            between = text[start:end].decode().strip(" ()\n")
            if between in OPERATORS:
                at = text.index(between.encode(), start)
                yield at, at + len(between), OPERATORS[between]
    elif inside and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield _span(node, text)[0], _span(node, text)[0] + 1, "+"
    elif inside and isinstance(node, ast.Constant) and isinstance(above, ARITHMETIC):
        if type(node.value) in (int, float):
            if type(node.value) is int:
                other = node.value + 1
            else:
                other = 1.1 * node.value or 0.1
            yield *_span(node, text), repr(other)
    elif inside and isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        end = node.func
        if name in CALLS:
            yield _span(end, text)[1] - len(name), _span(end, text)[1], CALLS[name]
    for child in ast.iter_child_nodes(node):
        yield from _places(
            child, text, inside or isinstance(node, ast.FunctionDef), node
        )


def draw(
    count: int, seed: int, words=()
) -> list[tuple[str, tuple[str, ...], str, str]]:
    """Draw `count` mutants: the file, the tests that import it, its text, its new text.

    Files are those whose path has one of the `words`, or all files. Those with a word of
    WITHOUT are left out. Raises ValueError if there are fewer than `count` places.
    """
    places = []
    for path in sorted(
        p
        for room in ("lib", "companion", "papers")
        for p in (ROOT / room).rglob("*.py")
    ):
        text = path.read_bytes()
        name = "/".join(path.parts[-3:])
        if any(word in name for word in words or [""]) and not any(
            w in name for w in WITHOUT
        ):
            places += [(path, text, *place) for place in _places(ast.parse(text), text)]
    drawn = random.Random(seed).sample(places, count)
    mutants = []
    for path, text, start, end, new in drawn:
        changed = text[:start] + new.encode() + text[end:]
        about = str(path.relative_to(ROOT)), _importing(path)
        mutants.append((*about, text.decode(), changed.decode()))
    return mutants


def _importing(file: Path) -> tuple[str, ...]:
    """Return the tests of the package of `file` that import it, or all of them if none
    does.
    """
    module = file.relative_to(ROOT).with_suffix("").parts
    package, room = module[0], module[1]
    if package == "papers":
        folders = ("papers", "studies")
    elif package == "lib" and len(module) > 2:
        folders = (room,)
    else:
        folders = (package,) if package == "companion" else (".",)
    tests = []
    for folder in folders:
        place = ROOT / "tests" / folder
        tests += sorted(
            place.glob("test_*.py") if folder == "." else place.rglob("test_*.py")
        )
    own = [path for path in tests if ".".join(module) in _imported(path)] or tests
    return tuple(str(path.relative_to(ROOT)) for path in own)


@cache
def _imported(path: Path) -> set[str]:
    """Return every dotted name that a file imports, such as "lib.svm.large"."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
            names.add(node.module)
    return names


def line(old: str, new: str) -> tuple[str, str]:
    """Return the first line in which two texts differ, as each text has it.

    If all common lines agree, the whole texts are returned.
    """
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    return next(((a.strip(), b.strip()) for a, b in pairs if a != b), (old, new))
