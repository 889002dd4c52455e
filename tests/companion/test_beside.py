"""Tests of figures shown with those of the papers, and of the conditions of findings.

A failure means that a claim loses its subject.
"""

import shutil
from dataclasses import replace

import pytest

from companion import record
from companion.tables import __main__ as command
from companion.tables import beside, figures
from lib import files

FIGURES = files.ROOT / "figures"
ENTRIES = [entry for _, entries in figures.index(FIGURES) for entry in entries]


def test_every_figure_of_the_papers_has_a_row_and_every_sentence_a_claim_or_a_note():
    assert beside.faults(beside.rows(FIGURES)) == []


def test_a_figure_without_a_row_is_named_in_one_sentence():
    found = [
        row
        for row in beside.rows(FIGURES)
        if (row.paper, row.figure) != ("A", "Figure 4")
    ]
    (said,) = beside.faults(found)
    assert said == "paper A, Figure 4: expected a row in figures/beside.toml"


def test_a_row_without_sentences_and_a_sentence_without_claim_or_note_are_named():
    first, *others = beside.rows(FIGURES)
    (said,) = beside.faults([replace(first, sentences=()), *others])
    assert (
        said == "paper A, Figure 1: expected the sentences that the text has about it"
    )
    bare = replace(first, sentences=(beside.Sentence("We see that it is fast."),))
    (said,) = beside.faults([bare, *others])
    assert said.startswith(
        "paper A, Figure 1: 'We see that it is fast.' needs a claim or a note"
    )


def test_our_figures_beside_the_papers_are_in_the_index():
    known = {entry.slug for entry in ENTRIES}
    named = {slug for row in beside.rows(FIGURES) for slug in row.ours}
    checked = {
        name.partition("/")[0]
        for row in beside.rows(FIGURES)
        for sentence in row.sentences
        for name in sentence.claims
    }
    assert named | checked <= known


def test_the_page_of_figures_is_what_the_records_say():
    written = (FIGURES / "beside.md").read_text(encoding="utf-8")
    assert written == beside.page(FIGURES), "run python -m companion.tables"


FAILING = {
    "id": "a",
    "statement": "x",
    "source": "paper A, Figure 2",
    "measured": 2.0,
    "bound": "≤ 1",
    "holds": False,
    "margin": None,
}


def test_a_verdict_is_the_records_and_a_claim_that_is_not_there_is_said():
    known = {
        "slug": {
            "claims": [FAILING, FAILING | {"id": "b", "measured": 0.5, "holds": True}]
        }
    }
    assert [beside.verdict(f"slug/{id}", known) for id in "ab"] == ["fails", "holds"]
    assert beside.verdict("slug/c", known) == "no such claim yet"
    assert beside.verdict("other/a", known) == "no such claim yet"


def test_a_failing_claim_says_why_and_a_share_is_the_records():
    claim = FAILING | {"remark": "by chance"}
    fine = claim | {"id": "b", "measured": 0.5, "holds": True}
    numbers = {"part": {"value": 0.5, "tolerance": 0.01}}
    known = {"slug": {"claims": [claim, fine], "numbers": numbers}}
    assert [beside.reason(f"slug/{id}", known) for id in "abc"] == ["by chance", "", ""]
    assert beside.share("slug/part", known) == "50 %"
    assert beside.share("slug/other", known) == "no such number yet"
    numbers["part"]["value"] = None
    assert beside.share("slug/part", known) == "no value"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_every_number_of_a_finding_says_what_it_is(entry):
    saved = record.read(FIGURES / entry.scale / f"{entry.slug}.json")
    assert figures.unconditioned(entry, saved) == []


def test_a_number_without_its_condition_is_named():
    (entry,) = [entry for entry in ENTRIES if entry.slug == "fastrates_assumptions"]
    saved = {
        "claims": [
            {"id": "phase.NGD", "statement": "NGD: smallest fraction in any cell"}
        ]
    }
    place = "fastrates_assumptions: the finding's number phase.NGD"

    def said(finding, **conditions):
        changed = replace(entry, finding=finding, conditions=conditions)
        return figures.unconditioned(changed, saved)

    wrong = "in six dimensions {phase.NGD:.0%} of the runs arrive in {steps:,d} steps"
    (missing,) = said(wrong)
    assert missing == f"{place} has no condition, such as 'median' or 'in the worst of'"
    (absent,) = said(wrong, **{"phase.NGD": "smallest fraction in any cell"})
    assert absent.endswith("'smallest fraction in any cell', which is not in the text")
    (invented,) = said(wrong, **{"phase.NGD": "in six dimensions"})
    assert invented.endswith("'in six dimensions', which its claim does not say")
    right = "the smallest fraction in any cell is {phase.NGD:.0%}"
    assert said(right, **{"phase.NGD": "smallest fraction in any cell"}) == []


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Copy what the command for tables reads and writes, with tables of no rows."""
    for scale in record.SCALES:
        (tmp_path / "figures").mkdir(exist_ok=True)
        (tmp_path / "figures" / scale).symlink_to(FIGURES / scale)
    for name in ("index.toml", "beside.toml", "beside.md"):
        shutil.copy(FIGURES / name, tmp_path / "figures")
    (tmp_path / "notebooks").mkdir()
    for name in figures.FILES:
        text = (files.ROOT / name).read_text("utf-8")
        (tmp_path / name).write_text(figures.MARKED.sub(r"\1", text), "utf-8")
    monkeypatch.setenv("NOTEBOOKS_DIR", str(files.ROOT / "notebooks"))
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("index.toml", "headline =", "headlines =", "unknown entry 'headlines'"),
        ("index.toml", 'scale = "demo"\n', "", "'scale', which is missing"),
        (
            "index.toml",
            "[[10_fixed_decoder.figure]]",
            "[[10_fixed_decoder.figures]]",
            "10_fixed_decoder: expected an entry 'figure'",
        ),
        ("beside.toml", "what =", "shows =", "figure 1: expected an entry 'what'"),
        ("beside.toml", "note =", "notes =", "a sentence: unknown entry 'notes'"),
        ("beside.toml", "[[figure", "[[row", "expected an entry 'figure'"),
    ],
)
def test_a_wrong_key_in_a_table_is_one_sentence_and_no_file_is_rewritten(
    copy, capsys, name, old, new, words
):
    path = copy / "figures" / name
    text = path.read_text("utf-8")
    path.write_text(text.replace(old, new), "utf-8")
    before = [(copy / each).read_text("utf-8") for each in figures.FILES]
    assert command.main([]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(path) in said and words in said
    assert [(copy / each).read_text("utf-8") for each in figures.FILES] == before
    path.write_text(text, "utf-8")
    assert command.main([]) == 0
    after = [(copy / each).read_text("utf-8") for each in figures.FILES]
    assert all(new != old for new, old in zip(after, before, strict=True))


def test_a_value_and_its_tolerance_may_have_any_size():
    written = figures._expected
    assert written(0.02431, 0.001) == "0.0243 ± 0.001"
    assert written(12345.0, 1000) == "12300 ± 1000"
    assert written(1e25, 1e-6) == "10000000000000000000000000.0000000 ± 1e-06"
