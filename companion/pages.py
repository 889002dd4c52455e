"""Find pages and their parameters: which notebooks exist, and what a scale changes."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from companion.page_table import read_pages
from lib import files

SCALES = ("demo", "desk")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters with which a page would run.

    Parameters
    ----------
    page : str
        The text of the page's .py.
    overrides : dict
        The parameters that the scale and the settings change.
    values : dict
        All parameters of the page.
    """

    page: str
    overrides: dict
    values: dict


def notebooks(names: Iterable[str] = ()) -> list[str]:
    """Find the notebooks to which the given names refer.

    Parameters
    ----------
    names : iterable of str, optional
        Stems of notebooks, or beginnings that belong to only one stem. If there are no
        names, all notebooks are found.

    Returns
    -------
    list of str
        The stems, without repetition, in the order of `names`, or sorted if there are
        no names.

    Raises
    ------
    ValueError
        If a name does not refer to exactly one notebook, or if there is no notebook.
    """
    folder = files.folder("notebooks")
    stems = sorted(path.stem for path in folder.glob("[0-9]*.py"))
    if not stems:
        raise ValueError(
            f"no notebook in {folder}; set NOTEBOOKS_DIR to the folder of notebooks"
        )
    chosen = [_beginning_with(name, stems) for name in names]
    return list(dict.fromkeys(chosen)) or stems


def _beginning_with(name: str, stems: list[str]) -> str:
    """Find the stem that is equal to a name, or the only stem that begins with it.

    If there is no such stem, or several, the function raises ValueError with the
    possible stems.
    """
    if name in stems:
        return name
    fits = [stem for stem in stems if stem.startswith(name)]
    if len(fits) == 1:
        return fits[0]
    words = ", ".join(fits or stems)
    raise ValueError(f"{name!r} is not the name of one notebook; choose one of {words}")


def planned(notebook: str, scale: str, settings: Mapping | None = None) -> Plan | None:
    """Determine the parameters with which a page would run.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py.
    scale : str
        One of `SCALES`.
    settings : mapping, optional
        Values for parameters, which replace those of the scale.

    Returns
    -------
    Plan or None
        The plan, or None if the page is not offered at this scale.

    Raises
    ------
    ValueError
        If the name of a setting is not a parameter of the page, if its value has
        another type, or if a page or a table cannot be read.
    FileNotFoundError
        If there is no such page, although the scale is offered. The scale demo is
        always offered.
    """
    of_scale = _of_scale(notebook, scale)
    if of_scale is None:
        return None
    page = text(notebook)
    usual = parameters(page)
    overrides = {**of_scale, **(settings or {})}
    check_kinds(overrides, usual)
    return Plan(page=page, overrides=overrides, values=usual | overrides)


def _of_scale(notebook: str, scale: str) -> dict | None:
    """Return the parameters that a scale changes in a notebook, with their values.

    The scale demo changes no parameter. The result is None if the notebook has no such
    scale.
    """
    if scale == "demo":
        return {}
    pages = read_pages()
    if notebook not in pages or scale not in pages[notebook].scales:
        return None
    return {"scale": scale, **pages[notebook].scales[scale]}


def check_kinds(overrides: Mapping, usual: Mapping) -> None:
    """Check that new values of parameters have the names and types of the usual values.

    Parameters
    ----------
    overrides : mapping
        The values by name.
    usual : mapping
        The page's own values by name.

    Raises
    ------
    ValueError
        If a parameter does not fit. The message has the name of the parameter.

    Notes
    -----
    If the usual value is a bool, a whole number or a list, the new value must have the
    same type. If it is a float, the new value must be a finite number. If it is
    anything else, such as a text, every new value fits.

    Examples
    --------
    >>> from companion import pages
    >>> pages.check_kinds({"seeds": 3}, {"scale": "demo", "seeds": 20})
    >>> pages.check_kinds({"seeds": 0.5}, {"scale": "demo", "seeds": 20})
    Traceback (most recent call last):
        ...
    ValueError: seeds: expected a value like 20, got 0.5
    """
    # We check this here, because papermill would only log an unknown parameter and draw
    # the default figure.
    if unknown := ", ".join(sorted(overrides.keys() - usual.keys())):
        raise ValueError(
            f"unknown parameter {unknown}; choose one of {', '.join(usual)}"
        )
    for name, value in overrides.items():
        if not _of_one_kind(value, usual[name]):
            raise ValueError(
                f"{name}: expected a value like {usual[name]!r}, got {value!r}"
            )


def _of_one_kind(value: object, usual: object) -> bool:
    """Return whether a value has the type of the usual value; see `check_kinds`."""
    if isinstance(usual, bool):
        return isinstance(value, bool)
    if isinstance(usual, int):
        return type(value) is int
    if isinstance(usual, float):
        return (
            isinstance(value, int | float)
            and type(value) is not bool
            and math.isfinite(value)
        )
    if isinstance(usual, list | tuple):
        return isinstance(value, list | tuple)
    return True


def text(notebook: str) -> str:
    """Read the .py of a page.

    Parameters
    ----------
    notebook : str
        The stem of the .py.

    Returns
    -------
    str
        The text of the .py.

    Raises
    ------
    FileNotFoundError
        If there is no such page.
    ValueError
        If the file is not UTF-8.
    """
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_file():
        raise FileNotFoundError(
            f"no file {path}; set NOTEBOOKS_DIR to the folder of notebooks"
        )
    return path.read_text(encoding="utf-8")


def parameters(page: str) -> dict:
    r"""Read the values that the cell tagged "parameters" assigns.

    Parameters
    ----------
    page : str
        The text of the page.

    Returns
    -------
    dict
        The values by name, `scale` among them.

    Raises
    ------
    ValueError
        If there is not exactly one such cell, if it assigns no scale, or if its code
        raises an error. The code runs without builtins, so that a call of a builtin
        function or an import raises an error.

    Examples
    --------
    >>> from companion import pages
    >>> page = '# %% tags=["parameters"]\nscale = "demo"\nseeds = 20\n'
    >>> pages.parameters(page)
    {'scale': 'demo', 'seeds': 20}
    """
    values: dict = {"__builtins__": {}}
    try:
        exec(_parameters_cell(page), values)
    except Exception as error:
        raise ValueError(
            f"its parameters cell must hold lines `name = literal`: {error}"
        ) from None
    del values["__builtins__"]
    if "scale" not in values:
        raise ValueError('its parameters cell needs a line scale = "demo"')
    return values


def _parameters_cell(page: str) -> str:
    """Return the code of the one cell tagged "parameters"."""
    cells = re.split(r"^# %%", page, flags=re.MULTILINE)
    tagged = [cell for cell in cells if re.match(r""".*["']parameters["']""", cell)]
    if len(tagged) != 1:
        raise ValueError(f"expected one cell tagged parameters, found {len(tagged)}")
    return tagged[0].partition("\n")[2]
