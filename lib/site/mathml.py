"""Markdown and TeX as HTML that needs no script: formulas become MathML, which browsers draw by themselves."""

import re
from html import escape

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

# What latex2mathml does not know, in terms that it does.
_REWRITTEN = {r"\arg": r"\operatorname{arg}"}


def mathml(formula: str, display: bool = False) -> str:
    """The TeX `formula` as one <math> element; a formula that cannot be read stays readable as TeX."""
    text = formula.strip()
    for unknown, known in _REWRITTEN.items():
        text = re.sub(re.escape(unknown) + "(?![A-Za-z])", lambda _, known=known: known, text)
    plain = f"<code>{escape(formula)}</code>"
    try:
        converted = convert(text, display="block" if display else "inline")
    except (
        Exception
    ):  # the converter raises errors of many kinds, and a page must not fail for one formula
        return plain
    return plain if re.search(r">\\[A-Za-z]+<", converted) else converted


class _Renderer(IPythonRenderer):
    """nbconvert's renderer of notebook text, with formulas as MathML and without links beside headings."""

    def __init__(self):
        super().__init__(escape=False, exclude_anchor_links=True)

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return f'<span class="formula" tabindex="0" role="region" aria-label="formula">{mathml(body, True)}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def html(markdown: str) -> str:
    """Markdown with formulas as HTML blocks."""
    return MarkdownWithMath(renderer=_Renderer()).render(markdown)


def inline(markdown: str) -> str:
    """One paragraph of Markdown as HTML without the paragraph around it, for a heading or a cell of a table."""
    return html(markdown).strip().removeprefix("<p>").removesuffix("</p>")
