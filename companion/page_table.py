"""Read what notebooks/pages.toml says about each page."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lib.files import folder, read_table

ROADS = ("main", "side", "appendix")
SHARE = re.compile(r"\d+(\.\d+)? %")  # a tolerance as a share of the value


@dataclass(frozen=True, kw_only=True)
class Page:
    """A section of notebooks/pages.toml.

    Parameters
    ----------
    name : str
        The stem of the page's .py.
    question : str, optional
        The question that the page answers.
    paper : str, optional
        The letters of the page's papers, such as "A, C".
    road : str, optional
        One of `ROADS`. It is empty if the table does not say.
    after : str, optional
        For a page outside the main road, the page of the main road to which it belongs.
    aim : str, optional
        What a reader can do after the page.
    reading_minutes : int, optional
        How many minutes it takes to read the page.
    minutes : mapping of str to float, optional
        How many minutes the page runs on 2 cores, by scale.
    real_data : bool, optional
        Whether scales above demo need data from outside the repository.
    scales : mapping of str to mapping, optional
        The parameters that each scale above demo changes.
    records : mapping of str to mapping, optional
        What the record of each figure contains besides the measured values: the
        figure's number in the paper (`figure`), its rows of data (`data`) and its
        tolerances (`within`).
    """

    name: str
    question: str = ""
    paper: str = ""
    road: str = ""
    after: str = ""
    aim: str = ""
    reading_minutes: int = 0
    minutes: Mapping[str, float] = field(default_factory=dict)
    real_data: bool = False
    scales: Mapping[str, Mapping] = field(default_factory=dict)
    records: Mapping[str, Mapping] = field(default_factory=dict)


KINDS = {  # the type of each entry of a section, and the name of this type in messages
    "question": (str, "a text"),
    "paper": (str, "a text"),
    "road": (str, f"one of {', '.join(ROADS)}"),
    "after": (str, "a text"),
    "aim": (str, "a text"),
    "reading_minutes": (int, "a whole number"),
    "minutes": (dict, "a table of minutes by scale"),
    "real_data": (bool, "true or false"),
    "scales": (dict, "a table of scales"),
    "records": (dict, "a table of records"),
}
FACTS = {  # the type of each entry of a record
    "figure": (str, "a text"),
    "data": (list, "a list of tables with a name"),
    "within": (dict, 'a table of tolerances, each a number or "2 %"'),
}


def read_pages() -> dict[str, Page]:
    """Read notebooks/pages.toml.

    Returns
    -------
    dict of str to Page
        The pages by name, in reading order. The dict is empty if there is no such file.

    Raises
    ------
    ValueError
        If the file cannot be read, or has an entry of a type that `Page` does not
        allow. The message is one sentence with the path.
    """
    path = folder("notebooks") / "pages.toml"
    sections = read_table(path)
    if not sections and path.exists():
        raise ValueError(f"{path} is damaged: it has no section of a page")
    return {name: _page(path, name, section) for name, section in sections.items()}


def _page(path: Path, name: str, section: object) -> Page:
    """Make a Page from its section, or raise ValueError for a wrong entry."""
    if not isinstance(section, dict):
        raise ValueError(f"{path}: {name} is {section!r}; expected a section [{name}]")
    _check_entries(path, name, section, KINDS)
    page = Page(name=name, **section)
    if page.road not in ("", *ROADS):
        raise _wrong(path, f"{name}.road", page.road, KINDS["road"][1])
    for scale, minutes in page.minutes.items():
        if not _is_amount(minutes):
            raise _wrong(path, f"{name}.minutes.{scale}", minutes, "a number")
    for scale, parameters in page.scales.items():
        if not isinstance(parameters, dict):
            expected = "a table of parameters"
            raise _wrong(path, f"{name}.scales.{scale}", parameters, expected)
    for slug, facts in page.records.items():
        _check_record(path, f"{name}.records.{slug}", facts)
    return page


def _check_record(path: Path, place: str, facts: object) -> None:
    """Raise ValueError for entries of a figure that cannot be copied into a record.

    A figure needs its number, and each row of data needs a name. Each tolerance must be
    a number of at least 0, or a share of the value such as "2 %".
    """
    if not isinstance(facts, dict):
        raise _wrong(path, place, facts, "a table of facts")
    _check_entries(path, place, facts, FACTS)
    if "figure" not in facts:
        raise ValueError(f"{path}: {place} has no figure; name it as the paper does")
    rows = facts.get("data", [])
    if not all(isinstance(row, dict) and "name" in row for row in rows):
        raise _wrong(path, f"{place}.data", rows, FACTS["data"][1])
    for pattern, tolerance in facts.get("within", {}).items():
        is_share = isinstance(tolerance, str) and SHARE.fullmatch(tolerance)
        if not is_share and not _is_amount(tolerance):
            expected = 'a number of at least 0, or a share as "2 %"'
            raise _wrong(path, f"{place}.within.{pattern}", tolerance, expected)


def _check_entries(path: Path, place: str, entries: Mapping, kinds: Mapping) -> None:
    """Raise ValueError for an entry whose name or type is not in `kinds`.

    The type must be exactly the same: neither true nor 2.0 counts as a whole number.
    """
    for key, value in entries.items():
        if key not in kinds:
            known = ", ".join(kinds)
            raise ValueError(f"{path}: {place} has {key!r}; expected one of {known}")
        kind, words = kinds[key]
        if type(value) is not kind:
            raise _wrong(path, f"{place}.{key}", value, words)


def _is_amount(value: object) -> bool:
    """Return whether a value is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf


def _wrong(path: Path, place: str, value: object, expected: str) -> ValueError:
    """Make the error that says what the table contains and what is expected."""
    return ValueError(f"{path}: {place} is {value!r}; expected {expected}")
