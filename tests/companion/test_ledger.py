"""The ledger refuses rows without a wrong world, and shows what each catches."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from lib.companion import claims, ledger, statements
from lib.companion.record import compare
from lib.companion.statements import Statement

PAPER = {
    "Theorem 1": Statement("rate", r"$|W| \to \infty$"),
    "Remark 2": Statement("proofs", "It compares proofs.", "No number says so."),
}


def row(id="a", measured=0.5, **about):
    claim = claims.at_most(id, "largest |x|", "paper A, Theorem 1", measured, 1.0, **about)
    return ledger.rows("Theorem 1", "ours", 3, claim, fails_if=("target rotated",))[0]


def test_a_page_quotes_a_statement_word_for_word():
    text = statements.quoted("A", PAPER, "Theorem 1").data
    assert text == r"> **Paper A, Theorem 1** (rate). $|W| \to \infty$"
    for paper, name in ((PAPER, "Theorem 2"), ({"Lemma 3": Statement("gap", "")}, "Lemma 3")):
        with pytest.raises(ValueError, match=name):
            statements.quoted("A", paper, name)


def test_no_measured_value_of_a_ledger_can_drift():
    def record(*values):
        rows = [row(f"r{k}", value) for k, value in enumerate(values)]
        totals = ledger.totals(rows, {"r1": 1e-4})
        numbers = {name: asdict(number) for name, number in totals.items()}
        return json.loads(json.dumps({"numbers": numbers}))

    old = (0.5, 2e-3, math.nan, 3e-14)
    assert record(*old)["numbers"]["claims"]["value"] == 4
    assert compare(record(0.5 + 1e-7, 2.09e-3, math.nan, 8e-12), record(*old)) == []
    for place, value in enumerate((0.5 + 1e-5, 2.2e-3, 0.1, 3e-8)):
        moved = [*old[:place], value, *old[place + 1 :]]
        drifted = compare(record(*moved), record(*old))[-1]
        assert drifted.startswith(f"r{place} (ours) is ")


def test_rows_are_refused_without_a_wrong_world_or_out_of_the_book():
    mute = replace(row(), fails_if=())
    strange = ledger.rows("Theorem 9", "", 3, row(), fails_if=("norm off",))
    for refused, name in (
        (lambda: ledger.in_order(strange, PAPER), "Theorem 9"),
        (lambda: ledger.in_order([], PAPER), "Theorem 1"),
        (lambda: ledger.in_order([mute], PAPER), r"a \(ours\)"),
    ):
        with pytest.raises(ValueError, match=name):
            refused()
    explained = replace(mute, remark="a rank")
    assert ledger.in_order([explained], PAPER) == [explained]


def test_a_row_that_catches_nothing_does_not_hold(tmp_path, monkeypatch):
    # A batch redirects its figures; what the rows catch is still the repository's.
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "staged"))
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    rows = [row(), row("b"), row("c"), row("d", 2.0)]
    path = ledger.power_path("book")
    path.parent.mkdir(parents=True)
    known = {"a (ours)": ["target rotated, 1 %"], "b (ours)": [], "d (ours)": []}
    power = {id: {"catches": of, "holds": True, "small": bool(of)} for id, of in known.items()}
    path.write_text(json.dumps(power))
    with pytest.raises(ValueError, match=r"^b \(ours\)"):
        ledger.with_power(rows, "book")
    rows[1] = replace(rows[1], remark="our constant is loose")
    rows = ledger.with_power(rows, "book")
    verdicts = [ledger.verdict(r) for r in rows]
    assert verdicts == ["yes", "no power", "yes", "NO"]
    table = ledger.LedgerTable(ledger.in_order(rows, PAPER), PAPER)
    assert "1 of 4 rows fail\n  d (ours)" in table.summary()
    html = table._repr_html_()
    assert "<details open>" in html and "nothing it names" in html
    opened, folded = html.split("<summary>those that hold</summary>")
    assert opened.count("<td>NO</td>") == 1 and "<td>yes</td>" not in opened and "yes" in folded


def test_an_interval_from_few_seeds_says_so():
    few = row(interval=claims.interval(np.array([0.4, 0.6])))
    assert claims.shown(few) == "0.5 [0.3, 0.7, 3 seeds only]"


def test_failures_of_records_are_collected_with_their_digits():
    failed = claims.at_most("x", "size", "paper A, Lemma 5", 1.0000004, 1.0).as_dict()
    held = claims.at_most("y", "size", "paper A, Lemma 5", 0.5, 1.0).as_dict()
    about = {"paper": "A", "slug": "fig", "figure": "Figure 2", "scale": "demo"}
    page = ledger.failures([about | {"claims": [failed, held]}, about | {"claims": [held]}])
    assert page.count("## ") == 1 and page.count("\n* ") == 1
    assert "size: 1.0000004, asked ≤ 1" in page and "Cause not found." in page
    for verdict in ("undecided", "not reproduced"):
        judged = about | {"claims": [failed | {"verdict": verdict}]}
        assert verdict in ledger.failures([judged]).lower()
