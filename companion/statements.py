"""A numbered statement of a paper, written once and printed from there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from IPython.display import Markdown


@dataclass(frozen=True)
class Statement:
    """A numbered statement: its topic, what it says (LaTeX between dollars), and `why`
    no computation can check it; empty where rows do.
    """

    topic: str
    says: str
    why: str = ""


def quoted(paper: str, statements: Mapping[str, Statement], *names: str) -> Markdown:
    """The statements of these names as a notebook shows them; ValueError for a name
    that is no statement of the paper, or one without a text.
    """
    quotes = []
    for name in names:
        if not (name in statements and (says := statements[name].says)):
            raise ValueError(f"{name!r} is no statement of paper {paper} with a text")
        quotes += [f"> **Paper {paper}, {name}** ({statements[name].topic}). {says}"]
    return Markdown("\n\n".join(quotes))


def check_source(
    id: str, source: str, papers: Mapping[str, Mapping[str, Statement]]
) -> None:
    """Refuse a claim whose source names a statement that its paper's list does not
    have.

    Parameters
    ----------
    id : str
        The claim's id, for the message.
    source : str
        The claim's source, such as "paper B, Theorem 1.2 (our reading)".
    papers : mapping of str to mapping of str to Statement
        The statements of each paper, by the paper's letter and the statement's name.

    Raises
    ------
    ValueError
        If the source names a numbered theorem, lemma or assumption that is not listed.
    """
    named = re.search(r"paper (\w+), ((?:Theorem|Lemma|Assumption) \d+)", source)
    if named is None:
        return
    paper, statement = named.groups()
    if statement not in papers.get(paper, {}):
        raise ValueError(
            f"The claim {id!r} names {statement!r} of paper {paper}, which the statements.toml of"
            " that paper does not have: add the statement there, or correct the claim's source."
        )
