import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.companion import claims
from lib.companion.claims import legend


@pytest.mark.parametrize(
    "claim, holds",
    [
        (claims.at_most("a", "s", "p", 1.0, 1.0), True),
        (claims.at_most("a", "s", "p", 1.1, 1.0), False),
        (claims.at_least("a", "s", "p", 1.0, 1.0), True),
        (claims.at_least("a", "s", "p", 0.9, 1.0), False),
        (claims.close("a", "s", "p", 1.05, 1.0, 0.1), True),
        (claims.close("a", "s", "p", 1.15, 1.0, 0.1), False),
        (claims.close("a", "s", "p", 0.85, 1.0, 0.1), False),
        (claims.at_most("a", "s", "p", float("nan"), 1.0), False),
        (claims.at_least("a", "s", "p", float("nan"), 1.0), False),
        (claims.close("a", "s", "p", float("nan"), 1.0, 0.1), False),
    ],
)
def test_verdicts(claim, holds):
    assert claim.holds is holds


def test_record_is_plain_json():
    row = claims.at_most("a", "s", "p", float("inf"), 1.0).as_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["measured"] is None and row["holds"] is False


def test_table_shows_every_claim_and_names_the_failing():
    table = claims.Table(
        [claims.at_most("good", "x < y", "p", 0.5, 1.0), claims.at_most("bad", "s", "p", 2.0, 1.0)]
    )
    assert table.summary() == "1 of 2 claims hold (1 of 2 statements); not: bad"
    assert "x &lt; y" in table._repr_html_()
    assert repr(table).splitlines() == [table.summary(), "bad: 2, theory ≤ 1; NO"]


def test_what_fails_stands_open_before_the_many_that_hold():
    held = [claims.at_most(f"row{k}", "s", "p", 0.5, 1.0) for k in range(7)]
    html = claims.Table([*held, claims.at_most("bad", "s", "p", 2.0, 1.0)])._repr_html_()
    assert html.index("bad") < html.index("<details>") < html.index("row0")
    assert "7 claims hold" in html
    assert "<details>" not in claims.Table(held[:6])._repr_html_()


def test_verdicts_in_words_leave_out_what_was_not_judged():
    judged = claims.judged("a", "slower", "p", (1.2, 1.1, 1.3), "above 1", "undecided", 5)
    table = claims.Table([judged, claims.at_most("b", "s", "p", 0.5, 1.0)])
    assert table.words() == "undecided: slower: 1.2 [1.1, 1.3, 5 seeds only]"
    open_end = claims.judged(
        "c", "slower", "p", (1.2, 1.1, float("inf")), "above 1", "reproduced", 20
    )
    assert claims.shown(open_end) == "1.2 [1.1, inf]"
    assert "interval" not in open_end.as_dict()


def test_brackets_are_explained_where_there_are_any():
    plain = claims.at_most("a", "s", "p", 0.5, 1.0)
    worst = replace(plain, id="b", interval=(0.1, 0.2))
    judged = claims.judged("c", "s", "p", (1.2, 1.1, 1.3), "above 1", "undecided", 5)
    assert legend([plain]) == ""
    assert "worst seed" in legend([plain, worst])
    assert "geometric mean" in legend([judged]) and "worst" not in legend([judged])
    both = claims.Table([worst, judged])
    assert legend(both) in both._repr_html_()


def test_an_interval_without_finite_ends_is_not_stored():
    claim = claims.at_most("a", "b", "c", 1.0, 2.0)
    stored = replace(claim, interval=(float("nan"), 1.0)).as_dict()
    assert "interval" not in stored and "interval" in replace(claim, interval=(0.0, 1.0)).as_dict()


def test_an_interval_is_two_standard_errors_each_way():
    low, high = claims.interval(np.array([1.0, 2.0, 3.0, 6.0]))
    error = np.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    assert (low, high) == pytest.approx((3 - 2 * error, 3 + 2 * error))


@pytest.mark.parametrize(
    "claim, margin",
    [
        (claims.at_most("a", "s", "p", 0.5, 1.0), 2.0),
        (claims.at_least("a", "s", "p", 3.0, 1.0), 3.0),
        (claims.at_most("a", "s", "p", -1.0, -0.5), 2.0),
    ],
)
def test_a_margin_is_how_often_the_bound_is_met(claim, margin):
    assert claim.margin == pytest.approx(margin)


ANY = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-12)


@given(ANY, st.sampled_from([0.0, 1e-15, 3e-13, -2e-9, 1e-5, -4e-5, 0.3]), st.sampled_from("<>="))
def test_a_failing_claim_is_printed_with_digits_that_fail(bound, off, relation):
    measured = bound * (1 + off)
    if relation == "=":
        claim = claims.close("a", "s", "p", measured, bound, abs(off) / 2 * abs(bound))
    else:
        make = claims.at_most if relation == "<" else claims.at_least
        claim = make("a", "s", "p", measured, bound)
    printed = float(claims.shown(claim))
    if relation == "=":
        middle, tolerance = map(float, claim.bound.split(" ± "))
        fails = abs(printed - middle) > tolerance
    else:
        asked = float(claim.bound[2:])
        fails = printed > asked if relation == "<" else printed < asked
    assert claim.holds or fails


def test_a_bound_has_four_digits_where_the_claim_holds():
    assert claims.at_most("a", "s", "p", 0.1, 2 / 3).bound == "≤ 0.6667"
    assert claims.at_most("a", "s", "p", 0.66668, 2 / 3).bound == "≤ 0.6666667"
    assert claims.failing(3.0, "interval below 1") == "3"


def test_only_a_claim_that_fails_is_remarked():
    holds, fails = (claims.at_most("x", "x", "ours", value, 1.0) for value in (0.5, 2.0))
    assert claims.remarked(holds, "why") == holds
    assert claims.remarked(fails, "why").remark == "why" and not fails.remark


def test_a_table_says_why_a_claim_fails_and_not_why_one_holds():
    fails = replace(claims.at_most("a", "b", "c", 2.0, 1.0), remark="the horizon is <short>")
    holds = replace(claims.at_most("d", "e", "f", 0.0, 1.0), remark="no small world shows it")
    table = claims.Table([fails, holds])
    assert "NO: the horizon is <short>" in repr(table) and "no small" not in repr(table)
    page = table._repr_html_()
    assert "NO: the horizon is &lt;short&gt;" in page and "no small" not in page
