"""The headline of each figure: the result in one sentence, and how to read the figure.

Headlines are written in figures/index.toml. A headline may quote numbers of the
figure's record as {name:format}, like the other sentences in the index, and it lists
the conditions under which it is true. If a run does not satisfy these conditions, or
if a quoted number has no value in it, it draws the figure's neutral title instead.
"""

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from companion import claims
from lib import files

# The largest number of letters of a headline that fits on one line of a page.
LETTERS = 60
FIELD = re.compile(r"\{([^{}:]+):([^{}]*)\}")
COMPARED = re.compile(r"(\S.*?)\s+(<=|>=|<|>)\s+(\S.*)")
DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
ORDERS = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Headline:
    """The text above a figure.

    Parameters
    ----------
    result : str
        What the figure shows, in at most `LETTERS` letters. The text may have fields.
    reading : str
        How to read the figure. The text may have fields.
    rests : tuple of str
        The conditions under which the headline is true: the id of a claim that must
        hold, "not" and the id of a claim that must not hold, or a comparison of numbers
        of the record such as "end < 0.02" or "ngd_corner > gd_corner".
    title : str
        The figure's neutral title.
    """

    result: str = ""
    reading: str = ""
    rests: tuple[str, ...] = ()
    title: str = ""


def entry(slug: str) -> Mapping:
    """Find the entry of a figure in figures/index.toml.

    Parameters
    ----------
    slug : str
        The figure's short name.

    Returns
    -------
    mapping
        The entry. It is empty if the index has no such figure.

    Raises
    ------
    ValueError
        If the index cannot be read.
    """
    table = files.read_table(files.ROOT / "figures" / "index.toml")
    for page in table.values():
        for listed in page.get("figure", ()):
            if listed.get("slug") == slug:
                return listed
    return {}


def of(slug: str) -> Headline:
    """Read the headline of a figure.

    Parameters
    ----------
    slug : str
        The figure's short name.

    Returns
    -------
    Headline
        The headline. All of its fields are empty if the index has no such figure.

    Raises
    ------
    ValueError
        If the index cannot be read.
    """
    listed = entry(slug)
    return Headline(
        result=listed.get("headline", ""),
        reading=listed.get("reading", ""),
        rests=tuple(listed.get("rests", ())),
        title=listed.get("title", ""),
    )


def quantities(record: Mapping) -> dict:
    """Return the values that a headline or a sentence of the index may quote.

    Parameters
    ----------
    record : mapping
        The record of the figure.

    Returns
    -------
    dict
        The values by name: the measured values of the record's claims, by id; their p
        values, as `<id>.p`; the counts "claims", "claims_that_hold", "statements",
        "statements_with_rows" and "statements_without_claims"; the parameters and the
        setting; and the numbers. If a name occurs more than once, the later entry in
        this list counts. A number or claim without a value has the value None.
    """
    rows = record["claims"]
    statements = record.get("statements", {})
    checked = {claim.get("number") for claim in rows}
    return {
        **{claim["id"]: claims.value_of(claim["measured"]) for claim in rows},
        **{f"{claim['id']}.p": claim["p"] for claim in rows if "p" in claim},
        "claims": len(rows),
        "claims_that_hold": sum(claim["holds"] is True for claim in rows),
        "statements": len(statements),
        "statements_with_rows": len(checked),
        "statements_without_claims": len(statements.keys() - checked),
        **record["parameters"],
        **record.get("setting", {}),
        **{name: row["value"] for name, row in record["numbers"].items()},
    }


def filled(text: str, record: Mapping) -> str:
    """Put the numbers of a record into the fields of a text.

    Parameters
    ----------
    text : str
        The text, with fields such as {end:.2%}. Their names are those of `quantities`.
    record : mapping
        The record.

    Returns
    -------
    str
        The text with the numbers.

    Raises
    ------
    ValueError
        If the record lacks a number that the text quotes, or if this number has no
        value.

    Examples
    --------
    >>> from companion import headlines
    >>> record = {"claims": [], "parameters": {"seeds": 10}, "numbers": {}}
    >>> headlines.filled("{seeds:d} seeds", record)
    '10 seeds'
    """
    known = quantities(record)

    def value(field: re.Match) -> str:
        number = known.get(field[1])
        if number is None:
            raise ValueError(f"a headline quotes {field[1]}, which its record lacks")
        return format(number, field[2]).replace("%", " %")

    return FIELD.sub(value, text)


def unmet(headline: Headline, record: Mapping) -> list[str]:
    """Find the conditions of a headline that a record does not satisfy.

    Parameters
    ----------
    headline : Headline
        The headline.
    record : mapping
        The record.

    Returns
    -------
    list of str
        The conditions that do not hold or cannot be looked up. The list is empty if the
        headline is true of the record.

    Examples
    --------
    >>> from companion import headlines
    >>> record = {"claims": [{"id": "rate", "measured": -1.0, "holds": True}],
    ...           "parameters": {}, "numbers": {"end": {"value": 0.1}}}
    >>> rests = ("rate", "not rate", "end < 0.2", "end > rate", "start < 1")
    >>> headlines.unmet(headlines.Headline("It falls", rests=rests), record)
    ['not rate', 'start < 1']
    """
    return [condition for condition in headline.rests if not _met(condition, record)]


def _met(condition: str, record: Mapping) -> bool:
    """Return whether a record satisfies one condition of `Headline.rests`.

    If the condition is the id of a claim, it is satisfied if the claim holds. With
    "not" before the id, it is satisfied if the claim fails or is undecided. A
    comparison is "a < b" (or >, <=, >=) with spaces around the sign, where a and b are
    numbers or names of `quantities`. A condition that names anything else is not
    satisfied.
    """
    held = {claim["id"]: claim["holds"] is True for claim in record["claims"]}
    if condition in held:
        return held[condition]
    if condition.startswith("not ") and condition.removeprefix("not ") in held:
        return not held[condition.removeprefix("not ")]
    compared = COMPARED.fullmatch(condition)
    if compared is None:
        return False
    known = quantities(record)
    sides = []
    for word in (compared[1], compared[3]):
        value = known.get(word)
        if value is None and DECIMAL.fullmatch(word):
            value = float(word)
        if value is None:
            return False
        sides.append(value)
    return bool(ORDERS[compared[2]](*sides))


def letters(text: str) -> int:
    r"""Count the letters of a text as it is drawn.

    Parameters
    ----------
    text : str
        The text, with formulas between dollars.

    Returns
    -------
    int
        The number of letters, including spaces, but without the signs that only a
        formula needs. A command such as \ell counts as one letter.

    Examples
    --------
    >>> from companion import headlines
    >>> headlines.letters(r"sparser under $\ell_{1.1}$")
    18
    """
    plain = re.sub(r"\\[a-zA-Z]+", "l", text)
    return len(re.sub(r"[${}_^\\]", "", plain))


def above(slug: str, record: Mapping) -> tuple[str, str]:
    """Return the text to write above a figure of this run.

    Parameters
    ----------
    slug : str
        The figure's short name.
    record : mapping
        The record of the run.

    Returns
    -------
    result : str
        The headline with its numbers. If this run does not satisfy the headline's
        conditions, or if a number that the headline or the reading quotes has no value
        in this run, it is the neutral title.
    reading : str
        How to read the figure. It is empty if `result` is the neutral title.

    Raises
    ------
    ValueError
        If the index cannot be read, or if a text quotes a name that the record lacks.
    """
    headline = of(slug)
    known = quantities(record)
    quoted = [name for name, _ in FIELD.findall(headline.result + headline.reading)]
    # A number of a diverged run, for example, is in the record, but has no value.
    without_value = [name for name in quoted if name in known and known[name] is None]
    if without_value or unmet(headline, record):
        return headline.title, ""
    return filled(headline.result, record), filled(headline.reading, record)
