"""Tests of claims and ledgers.

A failure means that a claim that fails counts as holding, or is printed as if it held.
"""

import json
import math
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion import claims, ledger, statements
from companion.record import compare
from companion.statements import Statement

INF = float("inf")
NAN = float("nan")


def most(measured, bound=1.0, id="a", **more):
    return claims.at_most(id, "s", "p", measured, bound, **more)


def least(measured, bound=1.0):
    return claims.at_least("a", "s", "p", measured, bound)


def near(measured, tolerance=0.1, expected=1.0):
    return claims.close("a", "s", "p", measured, expected, tolerance)


@pytest.mark.parametrize(
    ("claim", "holds", "margin"),
    [
        (most(1.0), True, 1.0),
        (most(0.5), True, 2.0),
        (most(1.1), False, 1 / 1.1),
        (most(NAN), False, NAN),
        (most(-1.0, -0.5), True, 2.0),
        (most(-1.0, 0.5), True, INF),
        (least(1.0), True, 1.0),
        (least(3.0), True, 3.0),
        (least(0.9), False, 0.9),
        (least(-3.0), False, 0.0),
        (least(NAN), False, NAN),
        (near(1.05), True, 2.0),
        (near(1.5), False, 0.2),
        (near(0.85), False, 2 / 3),
        (near(NAN), False, NAN),
    ],
)
def test_a_claim_holds_within_its_bound_and_says_how_many_times_over(
    claim, holds, margin
):
    assert claim.holds is holds and claim.margin == pytest.approx(margin, nan_ok=True)


def stored_and_read(claim):
    """Return a claim after its way through a file of strict JSON."""
    return claims.Claim.of(json.loads(json.dumps(claim.as_dict(), allow_nan=False)))


def test_a_claim_is_stored_as_plain_json_without_an_interval_that_has_no_ends():
    row = replace(most(NAN), interval=(NAN, 1.0)).as_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["measured"] is None and row["holds"] is False and "interval" not in row
    assert replace(most(1.0), interval=(0.0, 1.0)).as_dict()["interval"] == (0.0, 1.0)
    assert "interval" not in replace(most(1.0), interval=(-INF, INF)).as_dict()


@pytest.mark.parametrize("claim", [most(INF), most(-INF), least(INF), near(-INF)])
@pytest.mark.parametrize("ends", [None, (0.5, INF), (-INF, 0.5), (0.25, 0.5)])
def test_an_infinite_value_is_the_same_after_it_is_stored(claim, ends):
    claim = replace(claim, interval=ends)
    again = stored_and_read(claim)
    assert again.measured == claim.measured and again.interval == ends
    assert claims.shown(again) == claims.shown(claim)


def test_a_p_that_is_no_number_is_named_with_its_claim():
    for p in (NAN, INF):
        with pytest.raises(ValueError, match="claim 'c': its p is (nan|inf); expected"):
            replace(judged(), p=p).as_dict()
    assert stored_and_read(replace(judged(), p=0.25)) == replace(judged(), p=0.25)


def test_the_worst_of_several_values_is_the_one_furthest_from_the_bound():
    values = np.array([[0.9, 1.5], [0.2, 1.1]])

    def bounded(bound, **more):
        return claims.bounded("a", "s", "p", bound, values, **more).measured

    assert [bounded(bound) for bound in ("≤ 1", "≥ 0.5", "1 ± 0.05")] == [1.5, 0.2, 0.2]
    assert bounded("1 ± 0.05", expected=0.3) == 1.5 and np.isnan(
        claims.furthest(values[:0])
    )


def test_an_interval_is_two_standard_errors_each_way():
    error = np.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    ends = 3 - 2 * error, 3 + 2 * error
    assert claims.interval(np.array([1.0, 2.0, 3.0, 6.0])) == pytest.approx(ends)


ANY = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-12)


@given(
    ANY,
    st.sampled_from([0.0, 1e-15, 3e-13, -2e-9, 1e-5, -4e-5, 0.3]),
    st.sampled_from("<>="),
)
def test_a_failing_claim_is_printed_with_digits_that_fail(bound, off, relation):
    measured = bound * (1 + off)
    if relation == "=":
        claim = near(measured, abs(off) / 2 * abs(bound), bound)
        middle, tolerance = map(float, claim.bound.split(" ± "))
        fails = abs(float(claims.shown(claim)) - middle) > tolerance
    else:
        claim = (most if relation == "<" else least)(measured, bound)
        printed = float(claims.shown(claim))
        asked = float(claim.bound[2:])
        if relation == "<":
            fails = printed > asked
        else:
            fails = printed < asked
    assert claim.holds or fails


@pytest.mark.parametrize(
    ("measured", "expected", "tolerance", "shown"),
    [(-1.100000001, -1, 0.1, "-1.100000001"), (0.2600001, 0.2, 0.06, "0.2600001")],
)
def test_a_miss_of_a_hair_is_printed_beyond_the_tolerance(
    measured, expected, tolerance, shown
):
    """In print -1.1 lies within -1 +- 0.1, but in float64 |-1.1 + 1| is larger than
    0.1.
    """
    claim = near(measured, tolerance, expected)
    assert not claim.holds and claims.shown(claim) == shown
    assert claim.bound == f"{expected:g} ± {tolerance:g}"


def judged(ends=(1.1, 1.3), verdict="undecided", seeds=5):
    estimate = 1.2, *ends
    return claims.judged(
        "c", "slower", "p", estimate, "above 1", verdict=verdict, seeds=seeds
    )


def test_verdicts_in_words_and_the_legend_of_their_brackets():
    plain = most(0.5)
    worst = replace(most(0.5), interval=(0.1, 0.2))
    table = claims.Table([judged(), plain])
    assert table.words() == "undecided: slower: 1.2 [1.1, 1.3, 5 seeds only]"
    open_end = judged((1.1, INF), "reproduced", 20)
    assert claims.shown(open_end) == "1.2 [1.1, inf]"
    with pytest.raises(ValueError, match="'perhaps'"):
        judged(verdict="perhaps")
    assert claims.held([judged().as_dict(), plain.as_dict()]) == "1 of 2, 1 undecided"
    assert claims.legend([plain]) == ""
    assert "worst seed" in claims.legend([plain, worst])
    assert "geometric mean" in claims.legend([judged()])
    assert claims.legend([judged()]) in claims.Table([worst, judged()])._repr_html_()


def test_a_table_is_one_sentence_and_what_fails_with_its_reason():
    fails = replace(most(2.0, id="bad"), remark="the horizon is <short>")
    holds = [
        replace(most(0.5, id=f"row{k}"), remark="no small world") for k in range(7)
    ]
    table = claims.Table([*holds, fails])
    assert table.summary() == "7 of 8 claims hold; not: bad"
    line = "bad: 2, required ≤ 1; fails: the horizon is <short>"
    assert repr(table).splitlines() == [table.summary(), line]
    html = table._repr_html_()
    seen, _, folded = html.partition("<details>")
    assert (
        seen.startswith("<p>7 of 8 claims hold; not: bad.</p>") and "row0" not in seen
    )
    assert "<p></p>" not in html  # no claim has an interval to explain
    assert "the horizon is &lt;short&gt;" in seen and folded.count(">row") == 7
    assert (
        claims.Table(holds)
        ._repr_html_()
        .startswith("<p>7 of 7 claims hold.</p><details>")
    )
    many = claims.Table([fails] * 9)._repr_html_()
    assert many.count("bad") == 18
    assert many.partition("<details>")[0].count("<td>bad</td>") == 8
    assert claims.remarked(holds[0], "why") == holds[0]
    assert claims.remarked(fails, "why").remark == "why"


PAPER = {
    "Theorem 1": Statement("rate", r"$|W| \to \infty$"),
    "Remark 2": Statement("proofs", "It compares proofs.", "No number says so."),
}


def row(id="a", measured=0.5, **about):
    claim = claims.at_most(
        id, "largest |x|", "paper A, Theorem 1", measured, 1.0, **about
    )
    return ledger.rows("Theorem 1", "ours", 3, claim, fails_if=("target rotated",))[0]


def test_a_page_quotes_a_statement_word_for_word():
    text = statements.quoted("A", PAPER, "Theorem 1").data
    assert text == r"> **Paper A, Theorem 1** (rate). $|W| \to \infty$"
    for paper, name in (
        (PAPER, "Theorem 2"),
        ({"Lemma 3": Statement("gap", "")}, "Lemma 3"),
    ):
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
    few = row(interval=claims.interval(np.array([0.4, 0.6])))
    assert claims.shown(few) == "0.5 [0.3, 0.7, 3 seeds only]"
    explained = replace(mute, remark="a rank")
    assert ledger.in_order([explained], PAPER) == [explained]


def test_a_claim_that_detects_nothing_does_not_hold(tmp_path, monkeypatch):
    # A batch redirects its figures; what the claims detect is still the repository's.
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "staged"))
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    rows = [row(), row("b"), row("c"), row("d", 2.0)]
    path = ledger.power_path("book")
    path.parent.mkdir(parents=True)
    known = {"a (ours)": ["target rotated, 1 %"], "b (ours)": [], "d (ours)": []}
    power = {
        id: {"catches": of, "holds": True, "small": bool(of)}
        for id, of in known.items()
    }
    path.write_text(json.dumps(power))
    with pytest.raises(ValueError, match=r"^b \(ours\)"):
        ledger.with_power(rows, "book")
    rows[1] = replace(rows[1], remark="our constant is loose")
    rows = ledger.with_power(rows, "book")
    verdicts = [claims.verdict(r) for r in rows]
    assert verdicts == ["holds", "no power", "holds", "fails"]
    table = ledger.LedgerTable(ledger.in_order(rows, PAPER), PAPER)
    assert "1 of 4 claims fail\n  d (ours)" in table.summary()
    html = table._repr_html_()
    assert "<p></p>" not in html
    assert "<details open>" in html and "nothing it names" in html
    opened, folded = html.split("<summary>those that hold</summary>")
    assert opened.count(">fails<") == 1 and ">holds<" not in opened
    assert folded.count(">holds<") == 2


def test_a_table_of_claims_has_a_column_for_whatever_one_of_them_says():
    plain = most(0.5)
    table = claims.frame([plain, replace(plain, holds=False, remark="too short")])
    assert list(table) == "id claim source required measured verdict remark".split()
    assert list(table["verdict"]) == ["holds", "fails"]
    assert list(table["remark"]) == ["", "too short"]
    row = replace(plain, setting="ours", seeds=3, fails_if=("norm off",), catches=())
    (shown,) = claims.frame([row]).to_dict("records")
    assert shown["setting"] == "ours, 3 seeds"
    assert shown["detects"] == "nothing it names" and shown["verdict"] == "no power"


def test_html_shows_a_cell_whole_and_never_runs_it():
    long = "<b>" + "word " * 99
    html = claims.html(claims.frame([most(0.5, id=long)]))
    assert "&lt;b&gt;" + ("word " * 99).strip() in html and "<b>" not in html
    assert '<span class="verdict holds">holds</span>' in html


def test_no_word_of_a_record_opens_html_in_a_page_of_markdown():
    words = "<script>alert(1)</script> <img src=x onerror=alert(2)> $a<b$ and 1 < 2"
    claim = claims.at_most("x", words, "ours", 1.0, 0.5, why=words, setting=words)
    about = {"paper": "A", "slug": "fig", "figure": words, "scale": "demo"}
    record = about | {"notebook": "10_fixed", "claims": [claim.as_dict()]}
    page = ledger.failures([record])
    assert page.count("script>alert(1)") == page.count("$a< b$ and 1 < 2") == 4
    assert not re.search("<[A-Za-z/!?]", page)  # how a tag begins in Markdown


def test_failures_of_records_are_collected_with_their_digits():
    failed = claims.at_most("x", "size", "paper A, Lemma 5", 1.0000004, 1.0).as_dict()
    held = claims.at_most("y", "size", "paper A, Lemma 5", 0.5, 1.0).as_dict()
    about = {"paper": "A", "slug": "fig", "figure": "Figure 2", "scale": "demo"}
    about["notebook"] = "10_fixed"
    page = ledger.failures(
        [about | {"claims": [failed, held]}, about | {"claims": [held]}]
    )
    assert page.count("## ") == 1 and page.count("\n* ") == 1
    assert "size: 1.0000004, required ≤ 1" in page
    assert "We have not found the cause." in page
    for verdict in ("undecided", "not reproduced"):
        judged = about | {"claims": [failed | {"verdict": verdict}]}
        assert verdict in ledger.failures([judged]).lower()
    unseen = failed | {"measured": None, "verdict": "undecided"}
    page = ledger.failures([about | {"notebook": "44_atlas", "claims": [unseen]}])
    assert (
        "## Ours: Figure 2" in page
        and "* size, required ≤ 1 (paper A, Lemma 5). Not" in page
    )


def _measured(id, value, **more):
    """Return a claim named `id` that shows `value`."""
    return claims.at_most(id, id, "ours", value, 2.0, **more)


def test_rows_that_show_one_number_or_name_each_other_are_one_measurement():
    rows = [
        _measured("a", 1.0),
        _measured("copy of a", 1.0 + 1e-7),
        _measured("near a", 1.0 + 3e-6),
        _measured("zero", 1e-31),
        _measured("another zero", 3e-29),
        _measured("algebra", 0.25, same_as="b"),
        _measured("b", 0.5),
        _measured("nothing", math.nan),
        _measured("nothing else", math.nan),
    ]
    groups = [[row.id for row in group] for group in ledger.measurements(rows)]
    assert groups == [
        ["a", "copy of a"],
        ["near a"],
        ["zero", "another zero"],
        ["b", "algebra"],
        ["nothing"],
        ["nothing else"],
    ]
    assert ledger.totals(rows)["distinct_measurements"].value == 6


def test_a_row_that_repeats_a_row_which_is_not_there_is_named():
    with pytest.raises(ValueError, match="lost: same_as names 'gone'"):
        ledger.measurements([_measured("lost", 1.0, same_as="gone")])


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("paper A, Theorem 1", "statement"),
        ("paper A, Figure 6 (our bound)", "form"),
        ("ours, beside paper A", "finding"),
        ("paper A, after 24 hours", "statement"),
    ],
)
def test_the_kind_of_a_claim_is_that_of_whole_words_of_its_source(source, kind):
    assert claims.Claim("s", "s", source, 1.0, "< 2", True).kind == kind
