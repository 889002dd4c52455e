"""Tests of the pictures that are drawn from fresh seeds.

A failure means that a picture or a record says something else than the verdicts of page
51.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from companion import plots
from lib import files
from lib.training.curves import Curves
from papers.studies import confirm, fresh_seeds, judge, second_round, speed
from papers.studies.family import FAMILY, centred_steps
from tests.companion.test_plots import unreadable
from tests.studies.worlds import scattered, write_study

DESK = files.ROOT / "figures" / "desk"
SPEED = [figure for figure in second_round.FIGURES if figure != "vit"]


@pytest.fixture(scope="module")
def studies():
    return {figure: second_round.read(figure) for figure in second_round.FIGURES}


@pytest.mark.parametrize("figure", SPEED)
def test_a_row_has_the_ratios_of_its_seeds_and_the_recorded_verdict(studies, figure):
    study = studies[figure]
    rows = {row.rule: row for row in second_round.rows(study)}
    assert set(rows) == set(study.runs.rates) - {"SGD"}
    target = study.runs.targets[-1]
    about_growth = second_round.growth_claims(study)
    for claim in study.claims:
        if claim.id in about_growth:
            continue
        row = rows[FAMILY[claim.id].rules[0]]
        assert len(row.ratio.values) == claim.seeds and not row.missed.any()
        assert stats.gmean(row.ratio.values) == pytest.approx(claim.measured)
        seed = 31
        both = (study.runs.curves[rule][seed] for rule in (row.rule, "SGD"))
        steps, reference = (centred_steps(run, target) for run in both)
        place = study.runs.seeds.index(seed)
        assert row.ratio.values[place] == pytest.approx(steps / reference)
        assert (row.ratio.low, row.ratio.high) == claim.interval
        assert row.verdict == claim.verdict
        low, high = row.corrected
        assert low < row.ratio.low and row.ratio.high < high


def test_a_run_that_misses_the_target_has_a_hollow_dot_at_its_horizon(studies):
    study = studies["fig6"]
    (run, *others) = [run for run in study.curves.curves if run.rule == "Adam"][::-1]
    assert run.part == "curve"
    high = run.clock | {"loss": np.full(len(run.clock["loss"]), 2.0)}
    missed = run.__class__(**{**vars(run), "clock": high})
    kept = tuple(missed if each is run else each for each in study.curves.curves)
    curves = study.curves.__class__(study.curves.configuration, kept)
    rows = {row.rule: row for row in second_round.rows(study._replace(curves=curves))}
    place = study.curves.seeds().index(run.seed)
    row = rows["Adam"]
    assert row.missed.sum() == 1 and row.missed[place]
    (sgd,) = [c for c in study.curves.runs("SGD") if c.seed == run.seed]
    reference = centred_steps(sgd, study.runs.targets[-1])
    expected = study.runs.plan.horizon / reference
    assert row.ratio.values[place] == pytest.approx(expected)


def test_the_picture_has_both_intervals_and_no_verdict_called_uncorrected(studies):
    study = studies["fig4"]
    upper, _ = second_round.draw(study).axes
    drawn = [list(line.get_xdata()) for line in upper.lines]
    for claim in study.claims:
        for interval in (claim.interval, study.corrected[claim.id]):
            assert any(line == pytest.approx(list(interval)) for line in drawn)
    words = [text.get_text() for text in upper.texts]
    assert words.count("reproduced") == 3
    assert not any("uncorrected" in word for word in words)


def test_the_marks_of_the_lower_panel_have_the_ratios_of_the_upper_one(studies):
    study = studies["fig1"]
    _, lower = second_round.draw(study).axes
    marks = sorted(line.get_xdata()[0] for line in lower.lines if line.get_ms() == 7)
    sgd = marks[-1]
    ratios = sorted(claim.measured for claim in study.claims)
    np.testing.assert_allclose(np.array(marks[:-1]) / sgd, ratios)


@pytest.mark.parametrize("figure", second_round.FIGURES)
def test_a_picture_can_be_read_and_its_caption_says_what_it_is(studies, figure):
    plots.set_style()
    study = studies[figure]
    assert unreadable(second_round.draw(study)) == []
    caption = second_round.caption(study)
    assert f"{len(study.runs.seeds)} seeds" in caption
    assert "none of the judged seeds had been run before" in caption
    for claim in study.claims:
        assert claim.verdict in caption
    # A run that ends at its target is not compared with a plain classifier.
    assert ("nearest neighbours" in caption) == (figure == "vit")


@pytest.mark.parametrize("figure", second_round.FIGURES)
def test_a_committed_record_has_the_numbers_of_the_committed_verdicts(studies, figure):
    """If another study was judged, the corrected intervals have changed."""
    path = DESK / f"{second_round.FIGURES[figure]}.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    expected = second_round.numbers(studies[figure])
    assert set(expected) == set(record["numbers"])
    for name, number in expected.items():
        found = record["numbers"][name]["value"]
        assert math.isclose(found, number.value, rel_tol=1e-6, abs_tol=1e-9), name


def test_the_checks_of_step_sizes_hold_on_fresh_seeds(studies):
    claims = list(second_round.table(studies["fig1"]))
    assert {claim.id for claim in claims} == {"formula.SNGD", "formula.SPS"}
    assert all(claim.holds for claim in claims)
    assert list(second_round.table(studies["vit"])) == []


# Figure 7, on invented runs.

# By which factor the norm of each matrix has grown when growth is measured, and at the
# end of the run. The first one grows least.
FACTORS = {
    "positions": {"SGD": 1.02, "Adam": 1.04, "SPS": 1.01, "SNGD": 0.99},
    "head.1.weight": {"SGD": 1.5, "Adam": 1.5, "SPS": 1.5, "SNGD": 1.5},
}


def with_norms(run, plan):
    """Return a run whose norms were recorded at the start, at the step at which growth
    is measured, and at its end. They differ a little between seeds.
    """
    norms = {}
    for name, factors in FACTORS.items():
        noise = 1 + 1e-4 * (run.seed % 3)
        norms[name] = np.array([2.0, 2.0 * factors[run.rule] * noise, 20.0])
    walked = {name: np.array([0.0, 4.0, 4.0]) for name in norms}
    at = np.array([0, plan.stop_from, plan.horizon])
    return replace(run, weight_norms=norms, walked=walked, evaluated_at=at)


@pytest.fixture(scope="module")
def seventh(tmp_path_factory):
    """Return an invented study of Figure 7. Normalised SGD is slower than SGD, and its
    norms do not all grow.
    """
    plan = confirm.plans()["cifar10_50000"]
    folder = tmp_path_factory.mktemp("seeds")
    ratios = {"Adam": 0.4, "SPS": 0.8, "SNGD": 1.5}
    write_study(plan.name, folder, scattered(plan, ratios, 0.05))
    runs = judge.read_runs(plan, folder)
    curves = {}
    for rule, of_seeds in runs.curves.items():
        curves[rule] = {seed: with_norms(run, plan) for seed, run in of_seeds.items()}
    configuration = runs.configuration | {"rates": dict(plan.rates), "walk": True}
    runs = replace(runs, curves=curves, configuration=configuration)
    found = judge.judge({plan.name: runs})
    judged = [run for rule in runs.rates for run in runs.of(rule)]
    return second_round.Study(
        "fig7",
        runs,
        Curves(configuration, tuple(judged)),
        fresh_seeds.table(found),
        {verdict.claim: verdict.corrected for verdict in found},
        {verdict.claim: verdict.level for verdict in found},
    )


def test_a_rule_without_a_claim_has_a_row_of_its_own_seeds(seventh):
    rows = {row.rule: row for row in second_round.rows(seventh)}
    assert {*rows} == {"Adam", "SPS", "SNGD"}
    assert rows["SNGD"].verdict == "reproduced" and len(rows["SNGD"].ratio.values) == 14
    for rule, expected in (("Adam", 0.4), ("SPS", 0.8)):
        row = rows[rule]
        assert row.verdict == "no claim, 6 seeds" and not row.decided
        assert row.word is None and row.corrected is None
        assert row.ratio.low < stats.gmean(row.ratio.values) < row.ratio.high
        assert row.ratio.estimate == pytest.approx(expected, rel=0.1)
        # Each ratio is of the two runs of one seed.
        target = seventh.runs.targets[-1]
        for seed, ratio in zip(range(30, 36), row.ratio.values, strict=True):
            both = (seventh.runs.curves[each][seed] for each in (rule, "SGD"))
            steps, reference = (centred_steps(run, target) for run in both)
            assert ratio == pytest.approx(steps / reference)


def test_the_lower_panel_has_the_runs_of_all_seeds_and_says_which_rules_have_fewer(
    seventh,
):
    _, lower = second_round.draw(seventh).axes
    ends = [line for line in lower.lines if line.get_ms() == 2.5]
    assert len(ends) == 2 * 14 + 2 * 6
    words = [text.get_text() for text in lower.texts if "steps" in text.get_text()]
    assert sum("(6 seeds)" in each for each in words) == 2
    assert len(words) == 4


def test_growth_is_that_of_the_first_seeds_at_the_step_at_which_it_is_measured(seventh):
    curves = second_round.grown(seventh)
    assert curves.seeds() == list(range(30, 36))
    assert all(run.evaluated_at[-1] == 4800 for run in curves.curves)
    growth, walks = speed.growth(curves, "SGD")
    np.testing.assert_allclose(growth.mean(1), [0.02, 0.5], atol=2e-4)
    np.testing.assert_allclose(walks, math.sqrt(2) - 1)


def test_a_claim_on_growth_has_a_row_in_per_cent_with_the_verdict(seventh):
    rows = {row.rule: row for row in second_round.smallest(seventh)}
    assert {*rows} == {"SGD", "Adam", "SNGD"}
    expected = {"SGD": 2, "Adam": 4, "SNGD": -1}
    for rule, row in rows.items():
        assert len(row.ratio.values) == 6
        np.testing.assert_allclose(row.ratio.values, expected[rule], atol=0.03)
        low, high = row.corrected
        assert low < row.ratio.low < row.ratio.estimate < row.ratio.high < high
        reproduced = expected[rule] > 0
        assert row.verdict == ("reproduced" if reproduced else "not reproduced")


def test_the_numbers_of_growth_count_the_matrices(seventh):
    numbers = second_round._growth_numbers(seventh)
    values = {name: number.value for name, number in numbers.items()}
    assert values["matrices"] == 2
    assert values["sngd_matrices_grow"] == 1 and values["sgd_matrices_grow"] == 2
    assert values["adam_below_walk"] == 1  # the walk grows by 41 %
    assert values["adam_least_growth"] == pytest.approx(0.04, abs=3e-4)
    assert values["adam_median_growth"] == pytest.approx(0.27, abs=3e-4)


def test_rows_that_are_decided_come_first():
    bar = speed.Bar(0.9, 0.8, 1.1, np.array([0.9]))
    missed = np.zeros(1, bool)
    undecided = speed.Row("Adam", bar, missed, "undecided", None)
    decided = speed.Row("SNGD", bar, missed, "reproduced", None)
    assert speed.ordered([undecided, decided]) == [decided, undecided]
