"""Two directives that show claims of records; their text is never read as markup."""

from collections.abc import Iterable
from itertools import chain

from docutils import nodes
from docutils.parsers.rst import Directive

from companion import claims, ledger
from companion.tables import figures


def text(words: str) -> list[nodes.Node]:
    """Turn plain text into nodes: what stands between two dollars is a formula."""
    parts = words.split("$")
    if len(parts) % 2 == 0:  # a lone dollar
        return [nodes.Text(words)]
    formulas = (nodes.math(part, part) for part in parts[1::2])
    plain = [nodes.Text(part) for part in parts[::2]]
    return [*chain.from_iterable(zip(plain, formulas, strict=False)), plain[-1]]


def row(cells: Iterable[list[nodes.Node]], over: int = 0, name: str = "") -> nodes.row:
    """Make a row of a table; its last cell goes over more columns."""
    entries = [nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells]
    if over:
        entries[-1]["morecols"] = over
    return nodes.row("", *entries, classes=[name] if name else [])


def table(columns: list[str], rows: Iterable[nodes.row]) -> nodes.table:
    """Make a table under its heads."""
    widths = [nodes.colspec(colwidth=1) for _ in columns]
    head = nodes.thead("", row(text(column) for column in columns))
    body = nodes.tbody("", *rows)
    group = nodes.tgroup("", *widths, head, body, cols=len(columns))
    return nodes.table("", group, classes=["claims"])


def verdict(word: str) -> list[nodes.Node]:
    """Make a verdict in its colour."""
    look = claims.LOOKS.get(word, "holds")
    return [nodes.inline("", word, classes=["verdict", look])]


class Claims(Directive):
    """The caption of a figure, and its claims: `{claims} scale/slug`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the nodes."""
        scale, slug = self.arguments[0].split("/")
        (figure,) = (
            one for one in figures.figures() if (one.scale, one.slug) == (scale, slug)
        )
        caption = nodes.paragraph("", "", *text(figure.record["caption"]))
        if not figure.claims:
            return [caption]
        held = f"{claims.held(figure.record['claims'])} claims hold."
        frame = claims.frame(figure.claims).drop(columns="id")
        rows = [
            row(
                verdict(word) if column == "verdict" else text(word)
                for column, word in zip(frame.columns, words, strict=True)
            )
            for words in frame.itertuples(index=False)
        ]
        count = nodes.paragraph("", held)
        return [caption, count, table([*frame.columns], rows)]


class Ledger(Directive):
    """Every statement of a paper with the claims made for it: `{ledger} A`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the nodes."""
        paper = self.arguments[0]
        shown = [one for one in figures.best() if one.record["paper"] == paper]
        # A ledger has the statements of the paper in their order.
        statements = {}
        for figure in shown:
            statements |= figure.record.get("statements", {})
        found = {name: [] for name in statements}
        for figure in shown:
            for claim in figure.claims:
                name = figure.statement(claim)
                found.setdefault(name, []).append((figure, claim))
        rows = []
        for name, measured in found.items():
            about = statements.get(name, {"topic": "", "says": "", "why": ""})
            said = filter(None, (about["topic"], about["says"]))
            head = [nodes.strong("", name), nodes.Text(" "), *text(": ".join(said))]
            rows.append(row([head], over=4, name="statement"))
            rows += [self._row(*one) for one in measured]
            if not measured:
                why = ledger.unmeasured(about["why"])
                rows.append(row([text(f"{why}: {about['why']}")], over=4))
        return [table(["claim", "measured", "required", "verdict", "figure"], rows)]

    @staticmethod
    def _row(figure: figures.Figure, claim: claims.Claim) -> nodes.row:
        """Make the row of a claim, with a link to its figure."""
        words = claims.in_words(claim)
        about = ", ".join(filter(None, (words["claim"], words["setting"])))
        place = f"figures/{figure.scale}/{figure.slug}.html"
        link = nodes.reference("", figure.slug, refuri=place)
        cells = [text(about), text(words["measured"]), text(words["required"])]
        return row([*cells, verdict(words["verdict"]), [link]])
