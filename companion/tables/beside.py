"""Compare every figure of the papers with ours, in figures/beside.md.

The input is figures/beside.toml. A sentence of a paper names the claims that check it.
Each verdict is read from the record of our figure at its largest scale, and never
typed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from companion import claims, record
from companion.claims import Claim
from companion.tables import figures
from lib import files

# The numbered figures of each paper. Our copy of paper C names no figure, so that we
# list the experiments in its code instead.
NUMBERED: Mapping[str, tuple[str, ...]] = {
    "A": (*(f"Figure {number}" for number in range(1, 8)), "Table 1"),
    "B": ("Figure 1", "Figure 2"),
    "C": (
        "divergence from l_p SVMs",
        "path of one seed",
        "joint training",
        "IMDb accuracy table",
        "weight sparsity",
        "attention maps",
        "ViT on CIFAR-10",
    ),
}
MISSING = "no such claim yet"
# The fields that each row of beside.toml must have.
REQUIRED = ("paper", "figure", "what", "ours", "differences", "sentence")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper as our copy has it.

    Parameters
    ----------
    text : str
        The sentence.
    claims : tuple of str, optional
        The claims that check the sentence, as SLUG/ID.
    note : str, optional
        A further remark on the sentence.
    shares : tuple of str, optional
        The numbers, as SLUG/NAME, that say in what share of settings the sentence is
        true.
    """

    text: str
    claims: tuple[str, ...] = ()
    note: str = ""
    shares: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A figure of a paper beside ours.

    Parameters
    ----------
    paper : str
        The paper's letter.
    figure : str
        The figure's number or name in the paper.
    what : str
        What the paper's figure shows.
    ours : tuple of str
        Our figures that are compared with it, by slug.
    differences : str
        How our figures differ from the paper's.
    settings : str
        The settings in which the sentences were checked. The text may be empty.
    sentences : tuple of Sentence
        What the paper says about the figure.
    """

    paper: str
    figure: str
    what: str
    ours: tuple[str, ...]
    differences: str
    settings: str
    sentences: tuple[Sentence, ...]


def rows(folder: Path) -> list[Row]:
    """Read the rows of beside.toml.

    Parameters
    ----------
    folder : Path
        The folder of beside.toml.

    Returns
    -------
    list of Row
        The rows, in the order of the file.

    Raises
    ------
    ValueError
        If the file is missing or cannot be read, or if a row or a sentence lacks a
        field or has an unknown one. The message has the path.
    """
    path = folder / "beside.toml"
    whole = files.read_table(path)
    figures.check_keys(str(path), whole, ["figure"])
    found = []
    for number, table in enumerate(whole["figure"], start=1):
        place = f"{path}, figure {number}"
        figures.check_keys(place, table, REQUIRED, ["settings"])
        for one in table["sentence"]:
            figures.check_keys(
                f"{place}, a sentence", one, ["text"], ["claims", "note", "shares"]
            )
        sentences = [
            Sentence(
                text=one["text"],
                claims=tuple(one.get("claims", ())),
                note=one.get("note", ""),
                shares=tuple(one.get("shares", ())),
            )
            for one in table["sentence"]
        ]
        row = Row(
            paper=table["paper"],
            figure=table["figure"],
            what=table["what"],
            ours=tuple(table["ours"]),
            differences=table["differences"],
            settings=table.get("settings", ""),
            sentences=tuple(sentences),
        )
        found.append(row)
    return found


def faults(found: Iterable[Row]) -> list[str]:
    """List the figures of the papers that have no row, and the rows without content.

    The figures are those of `NUMBERED`. A row is without content if it has no sentence,
    or a sentence with neither a claim nor a note. The tests call this function to check
    beside.toml.

    Parameters
    ----------
    found : iterable of Row
        The rows.

    Returns
    -------
    list of str
        One sentence for each fault. The list is empty if there is none.
    """
    listed = list(found)
    named = {(row.paper, row.figure) for row in listed}
    said = []
    for paper, numbers in NUMBERED.items():
        for number in numbers:
            if (paper, number) not in named:
                said.append(
                    f"paper {paper}, {number}: expected a row in figures/beside.toml"
                )
    for row in listed:
        place = f"paper {row.paper}, {row.figure}"
        if not row.sentences:
            said.append(f"{place}: expected the sentences that the text has about it")
        for sentence in row.sentences:
            if not (sentence.claims or sentence.note):
                said.append(
                    f"{place}: {sentence.text[:40]!r} needs a claim or a note that "
                    "says why"
                )
    return said


def records(folder: Path) -> dict[str, Mapping]:
    """For every figure that the index lists, read the record at the largest scale.

    Parameters
    ----------
    folder : Path
        The folder of figures.

    Returns
    -------
    dict of str to mapping
        The records by slug.

    Raises
    ------
    ValueError
        If a record is damaged. The message has the path.
    """
    entries = [entry for _, some in figures.index(folder) for entry in some]
    return {entry.slug: record.read(_path(folder, entry)) for entry in entries}


def _path(folder: Path, entry: figures._Entry) -> Path:
    """Return the path of the record of an entry."""
    return folder / entry.scale / f"{entry.slug}.json"


def verdict(name: str, known: Mapping[str, Mapping]) -> str:
    """Read the verdict on a claim from its record.

    Parameters
    ----------
    name : str
        The claim, as SLUG/ID.
    known : mapping of str to mapping
        The records by slug.

    Returns
    -------
    str
        The verdict in words, or `MISSING` if no record has the claim.

    Examples
    --------
    >>> from companion.tables import beside
    >>> beside.verdict("fastrates/gap", {})
    'no such claim yet'
    """
    slug, _, id = name.partition("/")
    for saved in known.get(slug, {}).get("claims", ()):
        if saved["id"] == id:
            return claims.verdict(Claim.of(saved))
    return MISSING


def reason(name: str, known: Mapping[str, Mapping]) -> str:
    """Read the remark on a claim that fails from its record.

    Parameters
    ----------
    name : str
        The claim, as SLUG/ID.
    known : mapping of str to mapping
        The records by slug.

    Returns
    -------
    str
        The remark. It is empty if the claim does not fail or has no remark.
    """
    slug, _, id = name.partition("/")
    if verdict(name, known) != "fails":
        return ""
    remarks = [one.get("remark") for one in known[slug]["claims"] if one["id"] == id]
    return claims.markdown(remarks[0] or "")


def share(name: str, known: Mapping[str, Mapping]) -> str:
    """Read a number of a record as a percentage.

    Parameters
    ----------
    name : str
        The number, as SLUG/NAME.
    known : mapping of str to mapping
        The records by slug.

    Returns
    -------
    str
        The percentage, or a text that says that the number is missing, or that it has
        no value.

    Examples
    --------
    >>> from companion.tables import beside
    >>> beside.share("map/true", {"map": {"numbers": {"true": {"value": 0.75}}}})
    '75 %'
    """
    slug, _, number = name.partition("/")
    saved = known.get(slug, {}).get("numbers", {}).get(number)
    if not saved:
        return "no such number yet"
    if saved["value"] is None:
        return "no value"
    return f"{saved['value']:.0%}".replace("%", " %")


def page(folder: Path) -> str:
    """Write figures/beside.md: an overview, then each figure with its verdicts.

    Parameters
    ----------
    folder : Path
        The folder of figures.

    Returns
    -------
    str
        The page, in Markdown: each figure has its sentences, and each sentence has its
        verdicts.

    Raises
    ------
    ValueError
        If a table or a record cannot be read, or if an entry of a table lacks a field
        or has an unknown one. The message has the path.
    """
    known = records(folder)
    pages = {entry.slug: entry for _, some in figures.index(folder) for entry in some}
    template = figures.templates().get_template("beside.md.j2")

    def judge(name: str):
        return verdict(name, known)

    def verdicts(row: Row):
        # A claim that checks several sentences is counted once.
        names = {name: None for one in row.sentences for name in one.claims}
        return Counter(judge(name) for name in names)

    def why(name: str):
        return reason(name, known)

    def part(name: str):
        return share(name, known)

    text = template.render(
        rows=rows(folder),
        pages=pages,
        judge=judge,
        verdicts=verdicts,
        why=why,
        part=part,
    )
    return text.strip() + "\n"
