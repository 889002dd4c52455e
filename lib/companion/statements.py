"""A numbered statement of a paper, written once and printed from there."""

from collections.abc import Mapping
from dataclasses import dataclass

from IPython.display import Markdown


@dataclass(frozen=True)
class Statement:
    """A numbered statement: its topic, what it says (LaTeX between dollars), and `why` no
    computation can check it; empty where rows do."""

    topic: str
    says: str
    why: str = ""


def quoted(paper: str, statements: Mapping[str, Statement], *names: str) -> Markdown:
    """The statements of these names as a notebook shows them; ValueError for a name that is no
    statement of the paper, or one without a text."""
    quotes = []
    for name in names:
        if not (name in statements and (says := statements[name].says)):
            raise ValueError(f"{name!r} is no statement of paper {paper} with a text")
        quotes += [f"> **Paper {paper}, {name}** ({statements[name].topic}). {says}"]
    return Markdown("\n\n".join(quotes))
