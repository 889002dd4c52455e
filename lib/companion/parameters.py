"""The parameters of a notebook: what its parameters cell names, and the values they have in a run."""

import ast
import re
from collections.abc import Iterable, Mapping


def literals(text: str) -> dict:
    """The parameters of a percent notebook: the literals of its one cell tagged "parameters".

    Raises ValueError when there is no such cell, more than one, or anything but literals in it.
    """
    cells = [cell.partition("\n") for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]]
    tagged = [body for header, _, body in cells if re.search(r"""["']parameters["']""", header)]
    if len(tagged) != 1:
        raise ValueError(f"needs exactly one cell tagged parameters, has {len(tagged)}")
    found = {}
    for node in ast.parse(tagged[0]).body:
        try:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = ast.literal_eval(node.value)
            for target in targets:
                found |= (
                    {target.id: value} if isinstance(target, ast.Name) else _unpacked(target, value)
                )
        except (AttributeError, ValueError, TypeError):
            raise ValueError(
                f"{ast.unparse(node)!r} in the parameters cell is not name = literal"
            ) from None
    return found


def _unpacked(target: ast.Tuple | ast.List, values: Iterable) -> dict:
    return {name.id: value for name, value in zip(target.elts, values, strict=True)}


def values(text: str, variables: Mapping) -> dict:
    """The parameters of a percent notebook as they are now, from its `variables` (its `globals()`).

    Raises ValueError naming the parameters that `variables` lacks, or as `literals` does.
    """
    names = literals(text)
    missing = [name for name in names if name not in variables]
    if missing:
        raise ValueError(f"run the parameters cell first: there is no {', '.join(missing)}")
    return {name: variables[name] for name in names}
