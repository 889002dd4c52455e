"""The atlas: ratios of margins against certified token SVMs; its claims fail in wrong worlds."""

from dataclasses import replace

import numpy as np
import pytest

from lib import svm
from lib.ambient import optimisers, training
from lib.attention import tokens
from lib.papers.beyond import atlas, atlas_claims, atlas_figures, atlas_rules

DATA = tokens.unit_tokens(range(2), n=3, T=3, d=5)
NAMES = list(atlas.NORMS)


def path(W, status="completed"):
    """A path of two records that both hold W (runs, d, d)."""
    runs = len(W)
    none = np.zeros((runs, 2))
    return training.Path(
        optimiser=optimisers.steepest(2, 1.0),
        iterations=np.array([1, 2]),
        W=np.repeat(W[:, None], 2, 1),
        log_gap=none,
        log_gradient=none,
        status=np.array([status] * runs),
        ended=np.full(runs, 2),
    )


@pytest.fixture(scope="module")
def solved():
    """The ratios of the token SVMs' own solutions, under the names of steepest descents."""
    best = atlas.BestMargins(DATA)
    found = {
        f"steepest, {name}": atlas.ratios(path(svm.token_svm(DATA, norm=of).W), best)
        for name, of in atlas.NORMS.items()
    }
    assert best.gap <= svm.ACCURACY_OTHER_NORMS and len(best.known) == 2
    return found


def test_max_margin_solutions_have_ratio_one_in_their_own_norm(solved):
    for name in NAMES:
        last = solved[f"steepest, {name}"].last
        np.testing.assert_allclose(last[:, atlas.column(name)], 1, atol=1e-6)
        assert last.max() <= 1 + 1e-6
    flat = np.concatenate([one.last for one in solved.values()], 1)
    assert (flat < 0.999).any()


def test_no_matrix_has_more_than_the_best_margin():
    best = atlas.BestMargins(DATA)
    W = svm.token_svm(DATA).W + 0.1 * np.random.default_rng(0).standard_normal((2, 5, 5))
    found = atlas.ratios(path(W), best)
    assert (found.last > 0).all() and (found.last < 1).all() and found.steady.all()
    doubled = atlas.ratios(path(2 * W), best)
    np.testing.assert_allclose(doubled.value, found.value, rtol=1e-12)


def test_a_ratio_belongs_to_the_selection_of_the_run():
    best = atlas.BestMargins(DATA)
    other = (DATA.opt + 1) % 3
    W = svm.token_svm(DATA, other, "spectral").W
    found = atlas.ratios(path(W), best)
    np.testing.assert_array_equal(found.selection, other)
    np.testing.assert_allclose(found.last[:, atlas.column("spectral")], 1, atol=1e-6)


def test_runs_that_select_nothing_have_no_ratio_and_fail():
    best = atlas.BestMargins(DATA)
    for one in (path(np.zeros((2, 5, 5))), path(svm.token_svm(DATA).W, "diverged")):
        found = atlas.ratios(one, best)
        assert np.isnan(found.last).all()
        assert not atlas_claims.own("x", "l_1", found).holds
        assert not atlas_claims.lower("x", "l_1", found).holds
        assert not atlas_claims.none_reached("x", found).holds
        assert not atlas_claims.nearest("x", "l_1", found).holds
    assert not best.known


def test_claims_notice_wrong_worlds(solved):
    rows = atlas_rules.steepest_rows()
    claims = atlas_claims.predictions(rows, solved)
    own = [claim for claim in claims if ".own." in claim.id]
    assert len(own) == 6 and all(claim.holds for claim in own)
    assert claims[0].id == "atlas.bounded" and claims[0].holds
    noticed = atlas_claims.caught(rows, solved, atlas_claims.worlds(rows, solved))
    assert set(noticed["best margins 2 % large"]) >= {claim.id for claim in own}
    assert noticed["best margins 2 % small"] == ["atlas.bounded"]
    assert set(noticed["rules exchanged"]) & {claim.id for claim in own}


def test_rules_without_a_norm_are_judged_by_all_of_them(solved):
    one = solved["steepest, l_inf"]
    assert not atlas_claims.none_reached("Adam", one).holds
    assert atlas_claims.nearest("Adam", "l_inf", one).holds
    assert not atlas_claims.nearest("Adam", "l_1", one).holds
    less = replace(one, value=0.9 * one.value)
    assert atlas_claims.none_reached("Adam", less).holds
    row = {"Adam": atlas_rules.Row(optimisers.adam(1.0), None, "l_inf")}
    said = atlas_claims.verdicts(row, {"Adam": less})
    assert "as predicted" in said and "NOT" not in said


def test_fitted_rate_is_the_exponent():
    t = np.unique(np.geomspace(1, 10_000, 50).round().astype(int))
    value = np.repeat(1 - t[None, :, None] ** -0.5, 6, 2)
    found = atlas.Ratios(t, value, None, None, None)
    np.testing.assert_allclose(atlas.fitted_rate(found, 0), [-0.5], atol=1e-9)


def test_rows_are_those_of_the_protocol():
    rows = atlas_rules.rows()
    assert {row.highest for row in rows.values()} <= set(NAMES)
    assert all(row.reached in (None, row.highest) for row in rows.values())
    assert sum(row.reached is not None for row in rows.values()) == 12
    assert [row.reached for row in atlas_rules.steepest_rows().values()] == NAMES


def test_figures_draw(solved):
    rows = atlas_rules.steepest_rows()
    own = {name: row.reached for name, row in rows.items()}
    assert len(atlas_figures.chart(rows, solved).axes) == 2
    two = [solved["steepest, l_inf"]] * 2
    atlas_figures.memory([0.9, 0.99], two, [1e-8, 1e-3], two)
    later = {name: replace(one, iterations=np.array([10, 20])) for name, one in solved.items()}
    assert len(atlas_figures.convergence({"constant": later}, own).axes) == 1


@pytest.mark.parametrize("norm", ["frobenius", np.inf, "spectral"])
def test_short_runs_turn_towards_their_own_norm(norm):
    """Trained here, small: the own norm's ratio is the largest, and its gap to 1 falls as 1/t."""
    data = tokens.unit_tokens([0, 3], n=3, T=4, d=4)
    best = atlas.BestMargins(data)
    ran = training.train(data, optimisers.steepest(norm, 0.02), 20_000, record=[10_000, 20_000])
    found, name = atlas.ratios(ran, best), {v: k for k, v in atlas.NORMS.items()}[norm]
    assert atlas_claims.lower(name, name, found).holds
    gap = 1 - found.value[:, :, atlas.column(name)]
    assert gap[:, -1].max() < 0.03 and (gap[:, 1] < 0.6 * gap[:, 0]).all()


@pytest.mark.parametrize(
    "last, values, said",
    [
        (20_000, (0.7, 0.8, 0.9), "still rises at the last step; the protocol judges after"),
        (1_000_000, (0.7, 0.8, 0.9), "still rises at the last step"),
        (1_000_000, (0.9, 0.8, 0.9), "no longer rises in every run"),
        (1_000_000, (0.7, 0.8, 0.995), ""),
    ],
)
def test_a_norm_that_is_not_reached_says_why(solved, last, values, said):
    one = solved["steepest, l_1"]
    value = np.repeat(np.array(values)[None, :, None], 2, 0) * np.ones(len(NAMES))
    found = replace(one, iterations=np.array([last // 4, last // 2, last]), value=value)
    claim = atlas_claims.own("x", "l_1", found)
    assert claim.holds == (not said)
    assert claim.remark.endswith(said) or "judges" in said and said in claim.remark
