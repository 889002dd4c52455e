"""Markdown and TeX as HTML that needs no script: formulas become MathML."""

import re
from functools import cache
from html import escape

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath


@cache
def mathml(formula: str, display: bool = False) -> str:
    """The TeX `formula` as one <math> element; one that cannot be read stays readable as TeX."""
    # latex2mathml does not know \arg
    text = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", formula.strip())
    text = re.sub(r"\\[bB]igg?[lrm]?(?![A-Za-z])\s*", "", text)  # MathML sizes its fences itself
    plain = f"<code>{escape(formula)}</code>"
    try:
        converted = convert(text, display="block" if display else "inline")
    except Exception:  # of many kinds; a page must not fail for one formula
        return plain
    return plain if re.search(r">\\[A-Za-z]+<", converted) else converted


class _Renderer(IPythonRenderer):
    """nbconvert's renderer with formulas as MathML and without links beside headings."""

    def __init__(self, escape: bool):
        super().__init__(escape=escape, exclude_anchor_links=True)

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        around = 'class="formula" tabindex="0" role="region" aria-label="formula"'
        return f"<span {around}>{mathml(body, True)}</span>"

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def html(markdown: str, escape: bool = False) -> str:
    """Markdown with formulas as HTML blocks; HTML in it stays, or is shown as it is written."""
    return MarkdownWithMath(renderer=_Renderer(escape)).render(markdown)


def inline(markdown: str) -> str:
    """One paragraph of Markdown as HTML without the paragraph around it; HTML in it is shown."""
    return html(markdown, escape=True).strip().removeprefix("<p>").removesuffix("</p>")


def formulas(text: str) -> str:
    """Plain text as HTML, in which only what stands between two $ becomes a formula."""
    parts = text.split("$")
    if len(parts) % 2 == 0:  # a lone $
        return escape(text)
    return "".join(mathml(p) if k % 2 else escape(p) for k, p in enumerate(parts))
