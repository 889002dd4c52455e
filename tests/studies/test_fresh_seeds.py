"""Tests of the record and the picture of the verdicts from fresh seeds.

A failure means that the page, the README or a record says something else than the
judge.
"""

import math
from dataclasses import replace

import pytest

from companion import plots
from papers import verdicts
from papers.studies import confirm, fresh_seeds, judge
from papers.studies.family import FAMILY
from papers.verdicts import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from tests.companion.test_plots import unreadable
from tests.studies.worlds import scattered, write_study

RATIOS = {
    "civil_comments_400": {"Adam": 0.4, "SPS": 0.85, "SNGD": 1.0},
    "mnist_60000": {"Adam": 0.79, "SNGD": 1.35},
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Return two full studies. A third one, which has only two seeds, is left out."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, ratios in RATIOS.items():
        plan = confirm.plans()[name]
        write_study(name, folder, scattered(plan, ratios, 0.05))
    plan = confirm.plans()["multi_nli_200"]
    write_study(plan.name, folder, scattered(plan, {}, 0.05), seeds=range(30, 32))
    return judge.full_studies(folder)


@pytest.fixture(scope="module")
def found(studies):
    return judge.judge(studies)


def test_only_full_studies_are_shown(studies, found):
    assert list(studies) == list(RATIOS)
    assert {verdict.study for verdict in found} == set(RATIOS)
    counted = fresh_seeds.counts(found)
    assert (counted["judged"], counted["waiting"], counted["family"]) == (5, 16, 21)


def test_counts_are_those_of_the_words(found):
    words = {verdict.claim: verdict.word for verdict in found}
    assert words == {
        "fig4.adam": REPRODUCED,
        "fig4.sps": REPRODUCED,
        "fig4.sngd": NOT_REPRODUCED,
        "fig6.sngd": REPRODUCED,
        "fig6.adam": UNDECIDED,
    }
    counted = fresh_seeds.counts(found)
    assert counted["reproduced"] == 3 and counted["not_reproduced"] == 1
    assert counted["undecided"] == 1 and counted["decided"] == 4


def test_the_record_has_the_judges_verdicts_and_intervals(found):
    table = fresh_seeds.table(found)
    numbers = fresh_seeds.numbers(found)
    for claim, verdict in zip(table, found, strict=True):
        assert (claim.id, claim.verdict) == (verdict.claim, verdict.word)
        assert claim.measured == verdict.estimate
        assert claim.interval == (verdict.low, verdict.high)
        assert (claim.seeds, claim.p) == (verdict.seeds, verdict.p)
        assert claim.holds == (verdict.word == REPRODUCED)
        # The smallest p that is computed is a bound.
        bound = "below " if verdict.p <= fresh_seeds.SMALLEST_P else ""
        assert f"Holm's p {bound}{verdict.holm:.2g}" in claim.statement
        assert numbers[f"{claim.id}.estimate"].value == verdict.estimate
        assert numbers[f"{claim.id}.corrected_low"].value == verdict.corrected[0]
        last = list(verdict.beside["at every target"])[-1]
        assert numbers[f"{claim.id}.target {last}"].value == verdict.estimate


def test_a_p_that_is_not_of_the_ratio_1_has_that_p_beside_it(found):
    """Adam on digits may gain nothing by a ratio other than 1."""
    said = {
        claim.id: "a ratio of 1 has p" in claim.statement
        for claim in fresh_seeds.table(found)
    }
    different = {
        verdict.claim: verdict.p != pytest.approx(verdict.beside["p against 1"])
        for verdict in found
    }
    assert said == different
    assert said["fig6.adam"] and not said["fig4.adam"]


def test_the_verdict_is_that_of_the_corrected_interval(found):
    for verdict in found:
        low, high = verdict.corrected
        assert low <= verdict.low and verdict.high <= high
        side = verdicts.SIDES[FAMILY[verdict.claim].word]
        inside = side[0] <= low and high <= side[1]
        assert inside == (verdict.word == REPRODUCED), verdict.claim


def test_a_claim_that_is_not_reproduced_says_by_which_rule(found):
    verdict = next(each for each in found if each.claim == "fig4.adam")
    for corrected, words in (
        ((0.9, 1.2), "count as equally fast"),
        ((1.1, 1.4), "on the other side"),
        ((1.05, 1.2), "on the other side"),
    ):
        other = replace(verdict, word=NOT_REPRODUCED, corrected=corrected)
        (claim,) = fresh_seeds.table([other])
        assert words in claim.remark
    (claim,) = fresh_seeds.table([verdict])
    assert verdict.word == REPRODUCED and claim.remark == ""


def test_a_claim_that_the_correction_leaves_undecided_names_both_intervals(found):
    verdict = next(each for each in found if each.claim == "fig4.adam")
    wide = (0.71, 1.083)
    other = replace(verdict, word=UNDECIDED, alone=REPRODUCED, corrected=wide)
    (claim,) = fresh_seeds.table([other])
    assert "alone would say reproduced" in claim.remark
    assert "0.71 to 1.08, decides nothing" in claim.remark


def test_a_source_says_what_is_our_reading():
    sources = {name: fresh_seeds.source(claim) for name, claim in FAMILY.items()}
    assert sources["fig1.sngd"] == "paper A, Figure 1"
    assert sources["fig1.adam"] == "paper A, Figure 1 (our reading)"
    assert sources["fig6.adam"] == "paper A, Figure 6 (our bound)"
    assert sources["fig7.growth.sngd"] == "paper A, Figure 7 (our reading)"
    for name in ("vit.early", "imdb.l3>l2", "sparsity.K", "attention.sharper"):
        assert "paper C" in sources[name] and "our reading" in sources[name]


def drawn_words(figure):
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_the_picture_has_a_row_for_every_verdict_and_counts_the_claims_that_wait(found):
    figure = fresh_seeds.forest(found, {})
    words = drawn_words(figure)
    for word in (REPRODUCED, NOT_REPRODUCED, UNDECIDED):
        expected = sum(verdict.word == word for verdict in found)
        assert words.count(fresh_seeds.WORDS[word]) == expected
    assert words.count("24") == len(found)
    estimate = next(v for v in found if v.claim == "fig4.adam").estimate
    assert any(word.startswith(f"{estimate:.3f} (") for word in words)
    (line,) = [text.get_text() for text in figure.texts]
    assert line.startswith("Not drawn: 16 claims")
    assert "sentence pairs (3)" in line and "film reviews (7)" in line
    assert "comments" not in line


def test_the_bars_of_the_picture_are_the_intervals(found):
    figure = fresh_seeds.forest(found, {})
    (axis,) = figure.axes
    bars = [list(line.get_xdata()) for line in axis.lines]
    for verdict in found:
        assert [verdict.low, verdict.high] in bars
        assert list(verdict.corrected) in bars


def test_a_family_without_missing_seeds_says_nothing_of_waiting():
    everything = dict.fromkeys(FAMILY)
    assert fresh_seeds._waiting(everything) == ""


def test_diamonds_are_the_first_rounds_estimates(found):
    earlier = fresh_seeds.first_round()
    assert {"fig1.adam", "fig4.sngd", "fig6.adam", "fig7.sngd", "vit.early"} <= set(
        earlier
    )
    assert not any(name.startswith("fig7.growth") for name in earlier)
    figure = fresh_seeds.forest(found, earlier)
    (axis,) = figure.axes
    diamonds = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "D"]
    assert sorted(diamonds) == sorted(
        earlier[verdict.claim].measured for verdict in found
    )


def test_the_picture_can_be_read(found):
    plots.set_style()
    figure = fresh_seeds.forest(found, fresh_seeds.first_round())
    assert unreadable(figure) == []


def test_other_measures_have_a_row_for_each_claim_on_speed(found):
    rows = fresh_seeds.other_measures(found)
    assert [row["claim"] for row in rows] == [verdict.claim for verdict in found]
    adam = rows[0]
    estimate = found[0].estimate
    assert adam["last target"].startswith(f"{estimate:.2f} (")
    assert adam["best two rates"].count(" to ") == 1


def test_the_caption_names_every_study_and_counts_the_verdicts(studies, found):
    caption = fresh_seeds.caption(studies, found)
    assert "comments (25,000 training rows, 24 seeds)" in caption
    assert "3 reproduced, 1 not reproduced, 1 undecided" in caption
    assert fresh_seeds.seeds(studies) == list(range(30, 54))


def test_a_claim_that_cannot_be_decided_has_a_row_without_a_bar(found):
    silent = [
        verdict.__class__(
            **{
                **vars(verdict),
                "estimate": math.nan,
                "low": math.nan,
                "high": math.nan,
                "corrected": (math.nan, math.nan),
                "word": UNDECIDED,
            }
        )
        for verdict in found[:1]
    ] + found[1:]
    words = drawn_words(fresh_seeds.forest(silent, {}))
    assert words.count(UNDECIDED) == 2
    (claim, *_) = fresh_seeds.table(silent)
    assert claim.interval is None and not claim.holds
