"""Tests of the pictures that are drawn from fresh seeds.

A failure means that a picture or a record says something else than the verdicts of page
51.
"""

import json
import math

import numpy as np
import pytest
from scipy import stats

from companion import plots
from lib import files
from papers.studies import second_round, speed
from papers.studies.family import FAMILY, centred_steps
from tests.companion.test_plots import unreadable

DESK = files.ROOT / "figures" / "desk"
SPEED = [figure for figure in second_round.FIGURES if figure != "vit"]


@pytest.fixture(scope="module")
def studies():
    return {figure: second_round.read(figure) for figure in second_round.FIGURES}


@pytest.mark.parametrize("figure", SPEED)
def test_a_row_has_the_ratios_of_its_seeds_and_the_recorded_verdict(studies, figure):
    study = studies[figure]
    rows = {row.rule: row for row in second_round.rows(study)}
    assert {FAMILY[claim.id].rules[0] for claim in study.claims} == set(rows)
    target = study.runs.targets[-1]
    for claim in study.claims:
        row = rows[FAMILY[claim.id].rules[0]]
        assert len(row.ratio.values) == claim.seeds and not row.missed.any()
        assert stats.gmean(row.ratio.values) == pytest.approx(claim.measured)
        seed = 31
        both = (study.runs.curves[rule][seed] for rule in (row.rule, "SGD"))
        steps, reference = (centred_steps(run, target) for run in both)
        place = study.curves.seeds().index(seed)
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


def test_rows_that_are_decided_come_first():
    bar = speed.Bar(0.9, 0.8, 1.1, np.array([0.9]))
    missed = np.zeros(1, bool)
    undecided = speed.Row("Adam", bar, missed, "undecided", None)
    decided = speed.Row("SNGD", bar, missed, "reproduced", None)
    assert speed.ordered([undecided, decided]) == [decided, undecided]
