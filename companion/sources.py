"""Find the files that a page's code can reach, and hash them for its fingerprint."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from companion.page_table import read_pages
from lib.files import ROOT, dumps, folder, read_table, sha256

CODE = ("lib", "companion", "papers")  # the packages whose files are hashed
# The kinds of files that a module may read from its own folder.
DATA = (".toml", ".json", ".npz", ".csv", ".txt")
# Committed results that notebooks read: the curves of studies, and the altered copies
# that the claims of ledgers detect.
KEPT = ("figures/desk/*.npz", "figures/power/*.json")
# Which committed results a source reads without naming them on the page. A folder
# counts with all of its files.
READS = {
    "papers/poster.py": (
        "figures/demo/fastrates_assumptions.json",
        "figures/demo/fastrates_bound.json",
        "figures/desk/atlas_map.json",
        "figures/desk/precond_*.json",
        "figures/desk/verdicts.json",
    ),
    "papers/studies/judge.py": ("figures/desk/confirm/*",),
    "papers/studies/second_round.py": ("figures/desk/verdicts.json",),
}
# A page that imports this module reads the rows of figures/index.toml for the README's
# table, and the records of their figures.
READS_ROWS = "companion/tables/figures.py"
# What the entry of a figure in the index says above its picture (`headlines.Headline`),
# and what it says in the README's table.
HEADING = ("title", "headline", "reading", "rests")
ROW = ("row", "asks", "says", "finding", "scale")


def closure(text: str) -> list[Path]:
    """Return the files of this project that a program with the given source can read.

    Parameters
    ----------
    text : str
        The source of the program.

    Returns
    -------
    list of Path
        The files of `CODE` that the program imports, directly or through other files,
        sorted. They include the data files in the folders of these modules.

    Raises
    ------
    SyntaxError
        If a source is not Python.
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
    """Return the dotted names that a source may import: modules, functions and classes.

    Only names in `CODE` count. `package` has the parts of the name of the package that
    contains the source; they are needed for relative imports.
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
    """Yield the files of these modules, and of the packages above them.

    If a name is that of a function in a module, the file of the module is yielded.
    """
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            place = ROOT.joinpath(*parts[:depth])
            yield from filter(
                Path.is_file, (place.with_suffix(".py"), place / "__init__.py")
            )


def _content(path: Path) -> bytes:
    """Return the bytes of a file, or of all files in a folder with their names."""
    if path.is_file():
        return path.read_bytes()
    inside = sorted(each for each in path.iterdir() if each.is_file())
    return b"".join(each.name.encode() + each.read_bytes() for each in inside)


def _entries() -> dict[str, tuple[str, Mapping]]:
    """Return the entries of figures/index.toml by slug, each with its page."""
    table = read_table(ROOT / "figures" / "index.toml")
    return {
        entry.get("slug", ""): (page, entry)
        for page, section in table.items()
        for entry in section.get("figure", ())
    }


def _chosen(entry: Mapping, names: Iterable[str]) -> dict:
    """Return those of the named fields that an entry of the index has."""
    return {name: entry[name] for name in names if name in entry}


def fingerprint(notebook: str, parameters: Mapping) -> dict:
    """Return hashes of everything that the results of a page depend on.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py. If there is no such file, the text of the page
        counts as empty.
    parameters : mapping
        The parameters of the page.

    Returns
    -------
    dict
        "parameters" has the parameters. "source" is the hash of the .py. "lib" has the
        hashes of the files in the `closure` of the .py, by path. "kept" has the hashes
        of the committed results that are named in the .py or in the page's entry of
        figures/index.toml, or that a source in the closure reads. "texts" has, by slug,
        the texts above the page's figures in figures/index.toml; for a page that shows
        the README's table, it also has the texts of the table's rows. "record" is the
        entry of notebooks/pages.toml for the page's records. If there are no texts, or
        if there is no such entry, the part is left out.

    Raises
    ------
    SyntaxError
        If a source is not Python.
    ValueError
        If a table cannot be read.
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
    entries = _entries()
    own = {slug: entry for slug, (page, entry) in entries.items() if page == notebook}
    words |= {entry.get("trains") for entry in own.values()}
    kept = {
        path for pattern in KEPT for path in ROOT.glob(pattern) if path.stem in words
    }
    code = closure(text)
    for reader, patterns in READS.items():
        if ROOT / reader in code:
            kept |= {path for pattern in patterns for path in ROOT.glob(pattern)}
    texts = {slug: _chosen(entry, HEADING) for slug, entry in own.items()}
    if ROOT / READS_ROWS in code:
        for slug, (_, entry) in entries.items():
            if "row" not in entry:
                continue
            texts[slug] = texts.get(slug, {}) | _chosen(entry, ROW)
            kept |= set(ROOT.glob(f"figures/{entry.get('scale')}/{slug}.json"))
    parts = {"source": sha256(text.encode()), "parameters": dict(parameters)}
    for part, paths in (("lib", code), ("kept", sorted(kept))):
        names = [
            path.relative_to(ROOT).as_posix().removeprefix("lib/") for path in paths
        ]
        parts[part] = {
            name: sha256(_content(path))
            for name, path in zip(names, paths, strict=True)
        }
    if texts:
        parts["texts"] = texts
    pages = read_pages()
    if notebook in pages and pages[notebook].records:
        parts["record"] = pages[notebook].records
    return json.loads(dumps(parts))
