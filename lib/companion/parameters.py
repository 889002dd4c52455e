"""The parameters of a notebook: what its cell names, and their values at a scale and in a run."""

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import files, provenance

INSTALLS = "# Only where the project is not installed"  # how the installing cell begins


def literals(text: str) -> dict:
    """The parameters of a percent notebook: the literals of its one cell tagged "parameters".

    Raises ValueError when there is no such cell, more than one, or anything but literals in it.
    """
    tagged = [body for header, body in _cells(text) if _PARAMETERS.search(header)]
    if len(tagged) != 1:
        raise ValueError(f"needs exactly one cell tagged parameters, has {len(tagged)}")
    found = {}
    for node in ast.parse(tagged[0]).body:
        try:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = ast.literal_eval(node.value)
            for target in targets:
                single = isinstance(target, ast.Name)
                pairs = [(target, value)] if single else zip(target.elts, value, strict=True)
                found |= {name.id: own for name, own in pairs}
        except (AttributeError, ValueError, TypeError):
            raise ValueError(
                f"{ast.unparse(node)!r} in the parameters cell is not name = literal"
            ) from None
    return found


_PARAMETERS = re.compile(r"""["']parameters["']""")


def _cells(text: str) -> list[tuple[str, str]]:
    """The cells of a percent notebook: what stands behind the mark, and the body."""
    cells = (cell.partition("\n") for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:])
    return [(header, body) for header, _, body in cells]


def own_code(text: str, committed: str, ran: Sequence[str] = ()) -> dict:
    """What is a reader's own in the code of a notebook, as a change; empty where nothing is.

    text: the .py as it is now; committed: as it was last committed; ran: the cells that a kernel
    has run, which need not be saved. Comments, layout and the cells of parameters do not count.
    """
    known = _code(committed)
    if _code(text) != known:
        return {"code": provenance.digest({"code": _code(text)})[:8]}
    names = literals(committed).keys()
    return {"code": "own cells"} if {*map(_read, ran)} - {*known} - _settings(ran, names) else {}


def _code(text: str) -> list[str]:
    cells = [(header, body) for header, body in _cells(text) if "[markdown]" not in header]
    return [_read(body) for header, body in cells if not _PARAMETERS.search(header)]


def _read(cell: str) -> str:
    """A cell as Python reads it; one that is no Python, as it stands."""
    try:
        return ast.dump(ast.parse(cell))
    except SyntaxError:
        return cell.strip()


def _settings(ran: Iterable[str], names: Collection[str]) -> set[str]:
    """Those of the cells that set parameters only, do nothing, or install the project."""

    def harmless(cell: str) -> bool:
        try:
            return literals(f'# %% "parameters"\n{cell}').keys() <= names
        except (ValueError, SyntaxError):
            return cell.startswith(INSTALLS)

    return {_read(cell) for cell in ran if harmless(cell)}


def values(text: str, variables: Mapping) -> dict:
    """The parameters of a percent notebook as they are now, from its `variables` (its `globals()`).

    Raises ValueError naming the parameters that `variables` lacks, or as `literals` does.
    """
    names = literals(text)
    missing = [name for name in names if name not in variables]
    if missing:
        raise ValueError(f"run the parameters cell first: there is no {', '.join(missing)}")
    return {name: variables[name] for name in names}


def of_scale(notebook: str, scale: str) -> dict | None:
    """What `scale` changes in the parameters of `notebook`; None if it has no such scale."""
    if scale == "demo":
        return {}
    path = files.folder("notebooks") / "scales.toml"
    sections = files.read_table(path).get(notebook, {})
    section = sections.get(scale) if isinstance(sections, dict) else sections
    if not isinstance(section, dict | None):
        raise ValueError(f"{path}: {notebook} is not a table of scales, each a table of values")
    return None if section is None else {"scale": scale, **section}


def renamed(name: str) -> str:
    """What an old name, or the beginning of one, is now, in words; empty where it is none."""
    table = names_now()
    old = [known for known in table if known.startswith(name)]
    return "; ".join(f"{known} is now {' and '.join(table[known])}" for known in old)


def names_now() -> dict[str, list[str]]:
    """For every name that a notebook once had, what holds its subject now."""
    path = files.folder("notebooks") / "renamed.toml"
    table = files.read_table(path)
    for name, now in table.items():
        if not isinstance(now, list) or not all(isinstance(one, str) for one in now):
            raise ValueError(f"{path}: {name} is not a list of names")
    return table


def reference(notebook: str, text: str) -> str:
    """The notebook as it was last committed; `text`, as it is now, where no commit has it.

    JupyterLab saves by itself what a reader changes in a cell, into the paired .py as well: values
    and code that nobody committed are the reader's own.
    """
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_relative_to(files.ROOT):
        return text
    name = path.relative_to(files.ROOT).as_posix()
    return provenance.git("show", f"HEAD:./{name}") or text


def changed(notebook: str, text: str, found: Mapping) -> dict:
    """Those of the parameters `found` that differ from their values at the scale `found["scale"]`.

    At a scale that is not offered all of them count as changed, since nothing was fixed for it.
    """
    if "scale" not in found:
        raise ValueError(f"{notebook}: its parameters cell has no scale")
    own = of_scale(notebook, found["scale"])
    return differing(found, {} if own is None else {**literals(text), **own})


def differing(found: Mapping, usual: Mapping) -> dict:
    """Those of the values `found` that are not the `usual` ones, as JSON has them."""
    found, usual = _plain(found), _plain(usual)
    return {k: value for k, value in found.items() if k not in usual or value != usual[k]}


@dataclass(frozen=True)
class ParameterSource:
    """Where the parameters of a run come from.

    text: the notebook as it was at the start; reference: as it was last committed by then, whose
    values are the scale's own; variables: its `globals()`, which any cell may change later.
    """

    notebook: str
    text: str
    reference: str
    variables: Mapping

    def now(self, start: Mapping | None = None) -> tuple[dict, dict]:
        """The parameters as they are now, and what is not the scale's, the start's or committed.

        Raises ValueError as `values` does.
        """
        found = values(self.text, self.variables)
        moved = {} if start is None else differing(found, start)
        moved |= changed(self.notebook, self.reference, found)
        # What IPython ran; a page that is no notebook's has none.
        return found, moved | own_code(self.text, self.reference, self.variables.get("In", ()))


def custom_folder(notebook: str, changes: Mapping) -> Path:
    """The folder of figures of a run with the `changes`; other values have another folder."""
    return files.folder("runs") / "custom" / f"{notebook}-{provenance.digest(changes)[:8]}"


def _plain(values: Mapping) -> dict:
    """The values as JSON has them, in which a tuple and a list are the same."""
    return json.loads(files.dumps(dict(values)))
