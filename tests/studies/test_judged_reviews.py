"""Tests of the pictures and numbers of film reviews, on invented runs.

A failure means that a picture or a record says something else than the judge.
"""

from dataclasses import replace

import numpy as np
import pytest

from companion import plots
from lib.training.curves import Curves
from papers.studies import fresh_seeds, judge, judged_reviews, second_round
from papers.studies.family import FAMILY
from tests.papers.test_real_data import reviews_world
from tests.studies.test_family import reviews_of

LARGER = reviews_world()
PROBLEM = {"network": "invented", "test_rows": 2000}


def with_counts(run):
    """Return a run with the measurements of which a record has the numbers."""
    metrics = {"test_accuracy": np.full(5, 0.5)}
    end = dict(run.end)
    for part in judged_reviews.PARTS:
        metrics |= {f"above_006.{part}": np.full(5, 0.3)}
        metrics |= {f"above_90.{part}": np.full(5, 0.1)}
        end[f"last.histogram.{part}"] = np.array([40, 60])
    return replace(run, metrics=dict(run.metrics) | metrics, end=end)


def study_of(accuracies):
    """Return an invented study whose rules end at these accuracies."""
    runs = reviews_of(accuracies)
    problem = runs.configuration["problem"] | PROBLEM
    problem["data"] = {"name": "imdb", "source": "data_dir"}
    configuration = runs.configuration | {
        "name": "imdb_256",
        "horizon": runs.plan.horizon,
        "problem": problem,
        "rates": {rule: [0.1] for rule in accuracies},
    }
    curves = {
        rule: {seed: with_counts(run) for seed, run in of_seeds.items()}
        for rule, of_seeds in runs.curves.items()
    }
    runs = replace(runs, configuration=configuration, curves=curves)
    found = judge.judge({"imdb_256": runs})
    judged = [run for rule in accuracies for run in runs.of(rule)]
    return second_round.Study(
        "imdb",
        runs,
        Curves(configuration, tuple(judged)),
        fresh_seeds.table(found),
        {verdict.claim: verdict.corrected for verdict in found},
        {verdict.claim: verdict.level for verdict in found},
    )


@pytest.fixture(scope="module")
def study():
    return study_of({"l1.1": 0.86, "l2": 0.84, "l3": 0.83})


def lines_of(ax, width):
    return [line for line in ax.lines if line.get_linewidth() == width]


@pytest.mark.parametrize("kind", judged_reviews.KINDS)
def test_a_line_has_the_interval_and_the_corrected_one_of_its_claim(study, kind):
    _, lower = judged_reviews.draw(study, LARGER, kind).axes
    unit = judged_reviews.KINDS[kind].unit
    thick, thin = lines_of(lower, 2.6), lines_of(lower, 1)
    rows = []
    for claim in judged_reviews.claims(study, kind):
        intervals = FAMILY[claim.id].measure(study.runs)
        for k, interval in enumerate(intervals):
            row = len(rows)
            rows.append(claim)
            ends = unit * np.array([interval.low, interval.high])
            np.testing.assert_allclose(thick[row].get_xdata(), ends)
            if k == 0:
                corrected = unit * np.array(study.corrected[claim.id])
                np.testing.assert_allclose(thin[row].get_xdata(), corrected)
    assert len(thick) == len(thin) == len(rows) > 0
    words = [text.get_text() for text in lower.texts]
    for claim in judged_reviews.claims(study, kind):
        assert any(each.endswith(claim.verdict) for each in words)


def test_the_papers_differences_are_stars_in_points(study):
    _, lower = judged_reviews.draw(study, LARGER, "imdb").axes
    (stars,) = [line for line in lower.lines if line.get_marker() == "*"]
    # 0.8257, 0.8133 and 0.8061 for l1.1, l3 and l2
    np.testing.assert_allclose(stars.get_xdata(), [1.96, 1.24, 0.72])
    labels = [label.get_text() for label in lower.get_yticklabels()]
    assert labels[0] == r"$\ell_{1.1}$ minus $\ell_{2}$"


def test_the_difference_of_tokens_used_is_named_in_the_order_of_its_sign(study):
    _, lower = judged_reviews.draw(study, LARGER, "attention").axes
    (label,) = lower.get_yticklabels()
    assert label.get_text() == r"$\ell_{2}$ minus $\ell_{1.1}$"
    (claim,) = judged_reviews.claims(study, "attention")
    assert claim.measured == pytest.approx(0.2) and claim.verdict == "reproduced"


def test_a_claim_that_is_not_judged_has_a_row_without_a_bar_and_no_number():
    study = study_of({"l1.1": 0.86, "l2": 0.84, "l3": 0.78})  # l3 fails the gate
    _, lower = judged_reviews.draw(study, LARGER, "imdb").axes
    drawn = [
        line for line in lines_of(lower, 2.6) if np.isfinite(line.get_xdata()).all()
    ]
    assert len(drawn) == 1 and len(lower.get_yticks()) == 3
    words = [text.get_text() for text in lower.texts]
    assert words.count("undecided") == 2
    numbers = judged_reviews.numbers(study, LARGER)
    assert "imdb_l1_1_above_l2" in numbers and "imdb_l3_above_l2" not in numbers


@pytest.mark.parametrize("kind", judged_reviews.KINDS)
def test_if_no_claim_is_judged_the_picture_is_drawn_without_bars(kind):
    study = study_of({"l1.1": 0.7, "l2": 0.7, "l3": 0.7})  # every rule fails the gate
    _, lower = judged_reviews.draw(study, LARGER, kind).axes
    assert not any(np.isfinite(line.get_xdata()).all() for line in lines_of(lower, 2.6))
    low, high = lower.get_xlim()
    assert low < 0 < high


def test_a_claim_on_sparsity_has_two_ways_with_numbers_of_their_own(study):
    numbers = judged_reviews.numbers(study, LARGER)
    for claim in judged_reviews.claims(study, "sparsity"):
        ways = judged_reviews.ways(study, claim)
        assert [way.name for way in ways] == ["at the end", "matched"]
        name = claim.id.replace(".", "_")
        assert numbers[name].value == ways[0].interval.estimate
        assert numbers[f"{name}_matched"].value == ways[1].interval.estimate
        low, high = numbers[f"{name}_matched_low"], numbers[f"{name}_matched_high"]
        assert low.value <= ways[1].interval.estimate <= high.value


def test_numbers_have_both_networks_and_each_claim_with_both_intervals(study):
    numbers = judged_reviews.numbers(study, LARGER)
    assert numbers["paper_size_seeds"].value == len(LARGER.seeds())
    assert numbers["seeds"].value == 7
    # Four seeds of seven are even, and the accuracy of the others is higher by 0.002.
    late = numbers["l1_1_late_test_accuracy"].value
    assert late == pytest.approx(0.86 + 0.002 * 3 / 7)
    low, high = study.corrected["sparsity.K"]
    assert numbers["sparsity_K_corrected_low"].value == pytest.approx(low)
    assert numbers["sparsity_K_corrected_high"].value == pytest.approx(high)
    assert numbers["attention_sharper"].value == pytest.approx(0.2)


@pytest.mark.parametrize("kind", judged_reviews.KINDS)
def test_a_caption_says_what_is_judged_and_what_is_drawn_beside(study, kind):
    plots.set_style()
    caption = judged_reviews.caption(study, LARGER, kind)
    assert "7 seeds" in caption
    assert (
        f"Beside it, not judged: {LARGER.configuration['problem']['network']}"
        in caption
    )
    for claim in judged_reviews.claims(study, kind):
        assert claim.verdict in caption
