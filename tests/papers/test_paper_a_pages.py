"""What paper A's pages say of its statements is the statements' own text."""

import re

import pytest

from lib.companion.statements import quoted
from lib.files import ROOT
from papers.a.statements import STATEMENTS

PAGES = {path.stem: path for path in sorted((ROOT / "notebooks").glob("[01]*.py"))}
NAMED = re.compile(r"(?:Theorems?|Lemmas?)\s+\d")
FORMULA = re.compile(r"\\tilde\s*O|\bO\(|\\Theta|\\[lg]eq?\b|\\to\b")
OWN_WORDING = re.compile(r"\*\*(?:Statement|Hypotheses|(?:Theorem|Lemma|Assumption)\s+\d)")


def paragraphs(text):
    """The markdown paragraphs of a page in percent format, each on one line."""
    for cell in re.split(r"^# %%", text, flags=re.M)[1:]:
        if cell.startswith(" [markdown]"):
            lines = [line.removeprefix("#").strip() for line in cell.splitlines()[1:]]
            yield from (" ".join(part.split("\n")) for part in "\n".join(lines).split("\n\n"))


def restated(text):
    """The paragraphs that word a statement themselves: a bold one, or its name beside a bound."""
    return [
        said
        for said in paragraphs(text)
        if OWN_WORDING.search(said) or (NAMED.search(said) and FORMULA.search(said))
    ]


@pytest.mark.parametrize("name", PAGES)
def test_no_page_words_a_statement_of_its_own(name):
    assert restated(PAGES[name].read_text("utf-8")) == []


@pytest.mark.parametrize(
    "said",
    [
        "# **Theorem 1.** Tokens are\n# nearly orthogonal.",
        "# Under Theorem 1 the error is\n# $\\tilde O(t^{-1/2})$.",
        "# **Hypotheses.** The tokens are long.",
        "# Lemma 7: $\\lVert W\\rVert \\le \\eta t$",
    ],
)
def test_a_restated_theorem_is_seen(said):
    assert len(restated(f"# %% [markdown]\n# # Title\n#\n{said}\n\n# %%\n")) == 1


def test_pages_that_build_on_a_theorem_print_it():
    needed = {
        "00": ["Theorem 1"],
        "10": ["Theorem 1", "Theorem 6", "Theorem 7"],
        "11": ["Theorem 1"],
    }
    needed |= {"12": ["Theorem 2", "Theorem 3", "Theorem 4"], "13": ["Theorem 1", "Assumption 1"]}
    for name, path in PAGES.items():
        text = path.read_text("utf-8")
        calls = re.findall(r'statements\.quoted\(\s*"A", STATEMENTS,([^)]*)\)', text)
        printed = re.findall(r'"([^"]+)"', " ".join(calls))
        assert set(needed.get(name[:2], ())) <= set(printed), name
        assert set(printed) <= set(STATEMENTS), name


@pytest.mark.parametrize("name", ["Theorem 1", "Theorem 5", "Theorem 6", "Lemma 2", "Lemma 9"])
def test_what_two_samples_refute_without_assumption_1_has_it_as_a_hypothesis(name):
    said = quoted("A", STATEMENTS, name).data
    assert "Assumptions 1 and 2" in said and "small $W_0$" in said
