"""A numbered statement of a paper, written in one place and printed from there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from IPython.display import Markdown


@dataclass(frozen=True)
class Statement:
    """A numbered statement of a paper.

    Parameters
    ----------
    topic : str
        What the statement is about.
    says : str
        What the statement says, with LaTeX between dollars.
    why : str, optional
        Why no computation can check the statement. It is empty if a ledger has rows
        that check the statement.

    Examples
    --------
    >>> from companion import statements
    >>> statements.Statement("rate", "The error falls like $1/t$.").why
    ''
    """

    topic: str
    says: str
    why: str = ""


def quoted(paper: str, statements: Mapping[str, Statement], *names: str) -> Markdown:
    """Quote statements of a paper as a notebook shows them.

    Parameters
    ----------
    paper : str
        The paper's letter.
    statements : mapping of str to Statement
        The paper's statements by name.
    *names : str
        The names of the statements to quote.

    Returns
    -------
    Markdown
        The quotations, which a notebook shows if they are the last expression of a
        cell.

    Raises
    ------
    ValueError
        If a name is not that of a statement of the paper, or if the statement has no
        text.

    Examples
    --------
    >>> from companion import statements
    >>> rate = statements.Statement("rate", "The error falls like $1/t$.")
    >>> print(statements.quoted("A", {"Theorem 1": rate}, "Theorem 1").data)
    > **Paper A, Theorem 1** (rate). The error falls like $1/t$.
    """
    quotes = []
    for name in names:
        if not (name in statements and (says := statements[name].says)):
            raise ValueError(
                f"paper {paper} has no statement {name!r} with a text; "
                "see its statements.toml"
            )
        quotes += [f"> **Paper {paper}, {name}** ({statements[name].topic}). {says}"]
    return Markdown("\n\n".join(quotes))


def check_source(
    id: str, source: str, papers: Mapping[str, Mapping[str, Statement]]
) -> None:
    """Reject a claim whose source names a statement that its paper does not have.

    Only the name directly after the first paper in the source is checked. The tests
    call this function to check the records.

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

    Examples
    --------
    >>> from companion import statements
    >>> listed = {"A": {"Theorem 1": statements.Statement("rate", "")}}
    >>> statements.check_source("gap", "paper A, Theorem 1", listed)
    >>> statements.check_source("gap", "paper A, Theorem 7", listed)
    Traceback (most recent call last):
        ...
    ValueError: The claim 'gap' names 'Theorem 7' of paper A, ...
    """
    named = re.search(r"paper (\w+), ((?:Theorem|Lemma|Assumption) \d+)", source)
    if named is None:
        return
    paper, statement = named.groups()
    if statement not in papers.get(paper, {}):
        raise ValueError(
            f"The claim {id!r} names {statement!r} of paper {paper}, which the "
            "statements.toml of that paper does not have: add the statement there, or "
            "correct the claim's source."
        )
