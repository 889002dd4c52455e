"""What paper A's pages say of its statements is the statements' own text."""

import re

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
    bounds = lambda words: NAMED.search(words) and FORMULA.search(words)
    return [words for words in paragraphs(text) if OWN_WORDING.search(words) or bounds(words)]


def test_no_page_words_a_statement_of_its_own():
    assert {name: restated(path.read_text("utf-8")) for name, path in PAGES.items()} == {
        name: [] for name in PAGES
    }


def test_restated_theorems_are_seen():
    words = """
# **Theorem 1.** Tokens are\n# nearly orthogonal.
#
# Under Theorem 1 the error is\n# $\\tilde O(t^{-1/2})$.
#
# **Hypotheses.** The tokens are long.
#
# Lemma 7: $\\lVert W\\rVert \\le \\eta t$
"""
    assert len(restated(f"# %% [markdown]\n# # Title\n#{words}\n# %%\n")) == 4


def test_pages_that_build_on_a_theorem_print_it():
    needed = {"00": ["Theorem 1"], "10": ["Theorem 1", "Theorem 6", "Theorem 7"]}
    needed |= {"11": ["Theorem 1"], "12": ["Theorem 2", "Theorem 3", "Theorem 4"]}
    needed |= {"13": ["Theorem 1", "Assumption 1"]}
    for name, path in PAGES.items():
        text = path.read_text("utf-8")
        calls = re.findall(r'statements\.quoted\(\s*"A", STATEMENTS,([^)]*)\)', text)
        printed = re.findall(r'"([^"]+)"', " ".join(calls))
        assert set(needed.get(name[:2], ())) <= set(printed), name
        assert set(printed) <= set(STATEMENTS), name


def test_what_two_samples_refute_without_assumption_1_has_it_as_a_hypothesis():
    for name in ("Theorem 1", "Theorem 5", "Theorem 6", "Lemma 2", "Lemma 9"):
        words = quoted("A", STATEMENTS, name).data
        assert "Assumptions 1 and 2" in words and "small $W_0$" in words, name
