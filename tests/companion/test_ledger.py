"""The ledger refuses rows without a wrong world, and shows what each catches."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from lib.companion import claims, ledger, statements
from lib.companion.record import compare

PAPER = {
    "Theorem 1": ledger.Statement("rate", r"$|W| \to \infty$"),
    "Remark 2": ledger.Statement("proofs", "It compares proofs.", "No number says so."),
}


def test_a_page_quotes_a_statement_word_for_word():
    text = statements.quoted("A", PAPER, "Theorem 1").data
    assert text == r"> **Paper A, Theorem 1** (rate). $|W| \to \infty$"
    with pytest.raises(ValueError, match="'Theorem 2' is no statement of paper A"):
        statements.quoted("A", PAPER, "Theorem 2")
    with pytest.raises(ValueError, match="Lemma 3 of paper A has no text"):
        statements.quoted("A", {"Lemma 3": ledger.Statement("gap", "")}, "Lemma 3")


def row(id="a", measured=0.5, **about):
    claim = claims.at_most(id, "largest |x|", "paper A, Theorem 1", measured, 1.0, **about)
    return ledger.rows("Theorem 1", "ours", 3, claim, fails_if=("target rotated",))


def test_markdown_has_statement_rows_and_reasons(tmp_path):
    rows = ledger.in_order([*row(), *row("b", 1.00004)], PAPER)
    path = ledger.save(rows, PAPER, tmp_path / "book.json", "Heading")
    assert path == tmp_path / "book.md"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Heading") and "## Remark 2: proofs" in text
    assert "largest \\|x\\| | 0.5 | ≤ 1 | not measured |  | yes |" in text
    assert "| 1.00004 | ≤ 1 |" in text and "No number says so." in text


def test_no_measured_value_of_a_ledger_can_drift():
    def record(*values):
        rows = [claim for k, value in enumerate(values) for claim in row(f"r{k}", value)]
        found = ledger.totals(rows, {"r1": 1e-4})
        numbers = {name: asdict(number) for name, number in found.items()}
        return json.loads(json.dumps({"numbers": numbers}))

    old = (0.5, 2e-3, math.nan, 3e-14)
    assert record(*old)["numbers"]["claims"]["value"] == 4
    assert compare(record(0.5 + 1e-7, 2.09e-3, math.nan, 8e-12), record(*old)) == []
    for place, value in enumerate((0.5 + 1e-5, 2.2e-3, 0.1, 3e-8)):
        moved = [*old[:place], value, *old[place + 1 :]]
        drifted = compare(record(*moved), record(*old))[-1]
        assert drifted.startswith(f"r{place} (ours) is ")


def test_rows_are_refused_without_a_wrong_world_or_out_of_the_book():
    claim = row()[0]
    with pytest.raises(ValueError, match="name the wrong worlds"):
        ledger.rows("Theorem 1", "ours", 3, claim, fails_if=())
    with pytest.raises(ValueError, match="not statements"):
        ledger.in_order(ledger.rows("Theorem 9", "", 3, claim, fails_if=("norm off",)), PAPER)
    with pytest.raises(ValueError, match="no reason why"):
        ledger.in_order([], PAPER)
    with pytest.raises(ValueError, match=r"^\['a'\]: name the wrong worlds"):
        ledger.in_order([replace(claim, id="a", fails_if=(), remark="")], PAPER)
    named_none = replace(claim, fails_if=(), remark="a rank")
    assert ledger.in_order([named_none], PAPER) == [named_none]


def test_a_row_that_catches_nothing_does_not_hold(tmp_path, monkeypatch):
    # A batch redirects its figures; what the rows catch is still the repository's.
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "staged"))
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    rows = [*row(), *row("b"), *row("c"), *row("d", 2.0)]
    path = ledger.power_path("book")
    path.parent.mkdir(parents=True)
    known = {"a (ours)": ["target rotated, 1 %"], "b (ours)": [], "d (ours)": []}
    found = {id: {"catches": of, "holds": True, "small": bool(of)} for id, of in known.items()}
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"^b \(ours\): catches no small wrong world.* why not"):
        ledger.with_power(rows, "book")
    rows[1] = replace(rows[1], remark=ledger.room(rows[1], "our constant is loose"))
    assert rows[1].remark.endswith("2 times as tight")
    rows = ledger.with_power(rows, "book")
    said = [ledger.verdict(r.holds, r.catches, r.fails_if) for r in rows]
    assert said == ["yes", "no power", "yes", "NO"]
    assert ledger.catches(rows[1]) == "nothing it names"
    table = ledger.LedgerTable(ledger.in_order(rows, PAPER), PAPER)
    assert (
        "1 of 4 rows fail\n  d (ours)" in table.summary()
        and "<details open>" in table._repr_html_()
    )


def test_an_interval_from_few_seeds_says_so():
    few = row(interval=claims.interval(np.array([0.4, 0.6])))[0]
    assert claims.shown(few) == "0.5 [0.3, 0.7, 3 seeds only]"


def test_failures_of_records_are_collected_with_their_digits():
    failed = claims.at_most("x", "size", "paper A, Lemma 5", 1.0000004, 1.0).as_dict()
    held = claims.at_most("y", "size", "paper A, Lemma 5", 0.5, 1.0).as_dict()
    record = {
        "paper": "A",
        "slug": "fig",
        "figure": "Figure 2",
        "scale": "demo",
        "claims": [failed, held],
    }
    page = ledger.failures([record, record | {"claims": [held]}])
    assert "Cause not found." in page
    for verdict in ("undecided", "not reproduced"):
        judged = record | {"claims": [failed | {"verdict": verdict}]}
        assert verdict in ledger.failures([judged]).lower()
    assert page.count("size") == 1 and "1.0000004, asked ≤ 1" in page
    assert claims.failing(1 + 4e-9, "≤ 1") == "1.000000004"


@pytest.mark.parametrize(
    "measured, expected, tolerance, shown",
    [(-1.100000001, -1, 0.1, "-1.100000001"), (0.2600001, 0.2, 0.06, "0.2600001")],
)
def test_a_miss_of_a_hair_is_printed_beyond_the_tolerance(measured, expected, tolerance, shown):
    """-1.1 is no miss of -1 +- 0.1 in print, though float64's -1.1 + 1 is above 0.1 in size."""
    claim = claims.close("x", "slope", "paper A", measured, expected, tolerance)
    assert not claim.holds and claims.shown(claim) == shown
    assert claim.bound == f"{expected:g} ± {tolerance:g}"
