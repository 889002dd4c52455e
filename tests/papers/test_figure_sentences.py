"""Tests of the claims about paper A's Figures 2, 3 and 5.

They hold where the sentences do, and can fail.
"""

from dataclasses import replace

import numpy as np
import pytest

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from papers.a import figure_sentences as sentences

PROBLEM = coordinates.minimal(tokens.class_mean_tokens([0, 1], n=6, T=4, d=200))
SETTING = sentences.Setting(0.1, 0.05, 100.0, 1000.0, 300)
RECORDS = np.unique([*dynamics.log_spaced(1000, 60), 100, 300])
GOAL = {"targets": {"W_mm": svm.token_svm(PROBLEM.tokens)}}
RUNS = dynamics.train(PROBLEM, sentences.rules2(SETTING), 1000, RECORDS, **GOAL)


def test_a_rule_is_ahead_only_where_it_is_ahead_in_every_metric():
    ngd = RUNS["NGD"]
    further = replace(ngd, norm=1.1 * ngd.norm)
    share = sentences.share_ahead(further, ngd, sentences.FIGURE2_METRICS, 300)
    np.testing.assert_array_equal(share, 1.0)
    # The same run, behind in one metric at one counted record of the first seed.
    error = ngd.direction_error["W_mm"].copy()
    error[0, RECORDS == 300] *= 1.001
    behind = replace(further, direction_error={"W_mm": error})
    counted = ((RECORDS >= sentences.FIRST) & (RECORDS <= 300)).sum()
    share = sentences.share_ahead(behind, ngd, sentences.FIGURE2_METRICS, 300)
    np.testing.assert_allclose(share, [1 - 1 / counted, 1.0])
    # Before FIRST and after the horizon nothing counts.
    share = sentences.share_ahead(behind, ngd, sentences.FIGURE2_METRICS, 299)
    np.testing.assert_array_equal(share, 1.0)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("ngd_ahead", "NGD", "GD"),
        ("momentum", "NGD-mom", "NGD"),
        ("polyak_ahead", "Polyak-step", "NGD"),
    ],
)
def test_who_is_ahead_is_not_ahead_with_the_roles_exchanged(name, first, second):
    assert (sentences.values2(RUNS, SETTING)[name] == 1).all()
    exchanged = RUNS | {first: RUNS[second], second: RUNS[first]}
    assert (sentences.values2(exchanged, SETTING)[name] < 1).all()


def test_a_capped_rule_is_gd_with_the_step_of_its_cap_and_of_no_other():
    assert sentences.capped_is_gd(RUNS, PROBLEM, SETTING) <= 1e-12
    since = sentences.capped_since(RUNS["Polyak-step"], SETTING.polyak_cap)
    assert (RECORDS[since] < 300).all()
    # A cap that this run never had: the steps do not agree.
    other = replace(SETTING, polyak_cap=900.0)
    assert sentences.capped_is_gd(RUNS, PROBLEM, other) > 1e-6
    # A cap that does not bind before the horizon.
    assert np.isnan(sentences.capped_is_gd(RUNS, PROBLEM, replace(SETTING, horizon=1)))


def test_the_mean_missing_weight_does_not_underflow():
    far = replace(RUNS["NGD"], log_miss=RUNS["NGD"].log_miss - 1e4)
    moved = sentences.mean_log_miss(far) - sentences.mean_log_miss(RUNS["NGD"])
    np.testing.assert_allclose(moved, -1e4)


def test_claims_take_the_worst_run_and_say_why_they_fail():
    values = {name: np.array([1.0, 0.9]) for name in sentences.FIGURE3}
    why = {"ahead_of_gd": "one run is behind"}
    made = sentences.claims_of("fig3", sentences.FIGURE3, values, why)
    held = {claim.id: claim.holds for claim in made}
    assert not held["fig3.ahead_of_gd"] and not held["fig3.losses_alike"]
    assert held["fig3.slightly.norm of W"] and not held["fig3.ahead.norm of W"]
    assert made[0].remark == "one run is behind" and made[0].kind == "form"
    ours = sentences.claims_of(
        "fig5", sentences.FIGURE2, dict.fromkeys(sentences.FIGURE2, 1.0), ours=True
    )
    assert {claim.kind for claim in ours} == {"finding"}


def test_a_sweep_counts_the_settings_in_which_a_sentence_is_true():
    short = SETTING
    long = replace(SETTING, horizon=1000)
    true = np.array([[True, True], [True, False]])
    sweep = sentences.Sweep([short, long], ["a", "b"], true)
    assert sweep.shares == {"a": 1.0, "b": 0.5}
    assert sweep.best == [short] and sweep.most == 2
    assert sweep.of(long) == {"a": True, "b": False}
    assert sweep.share("b", lambda setting: setting.horizon == 1000) == 0.0


def test_a_sweep_agrees_with_its_settings_one_by_one(monkeypatch):
    grid = {
        "gd_step": (0.1, 1.0),
        "ngd_step": (0.05,),
        "ngd_cap": (100.0, np.inf),
        "polyak_cap": (1000.0,),
        "horizon": (300, 1000),
    }
    monkeypatch.setattr(sentences, "GRID2", grid)
    sweep = sentences.sweep2(PROBLEM, GOAL, RECORDS)
    assert len(sweep.settings) == 8
    alone = sentences.truths(
        "fig2", sentences.FIGURE2, sentences.values2(RUNS, SETTING)
    )
    assert sweep.of(SETTING) == alone
    assert sweep.share("ngd_ahead", lambda setting: setting.gd_step == 1.0) == 0.0
