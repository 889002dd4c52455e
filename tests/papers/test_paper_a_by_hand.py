"""What paper A's claims measure, on invented runs and data whose numbers are known beforehand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lib import dynamics, svm
from lib.attention import coordinates, token_sets, tokens
from lib.dynamics import rules
from papers import fits
from papers.a import data_and_starts, fixed_head, joint_training

SPACE = coordinates.minimal(tokens.gaussian_tokens([0, 1], n=3, T=3, d=60))
SOLUTION = svm.token_svm(SPACE.tokens)
TIMES = np.arange(1001)
RUN = dynamics.train(SPACE, rules.polyak(), 1000, TIMES, targets={"V": SOLUTION.W})
SHAPE = RUN.norm.shape  # (runs, k)


def test_theorem_5_compares_with_the_root_of_log_t_over_t():
    rate = np.ones(1001)
    rate[2:] = np.sqrt(np.log(TIMES[2:]) / TIMES[2:])
    history = replace(RUN, direction_error={"V": np.broadcast_to(0.3 * rate, SHAPE)})
    claim = fixed_head.theorem5(history, "V", 1.0, SPACE.tokens, SOLUTION)
    assert claim.measured == pytest.approx(1.0, rel=1e-12)


def test_lemma_7_takes_the_growth_and_not_the_start():
    history = replace(RUN, norm=np.broadcast_to(2.0 + 0.1 * TIMES, SHAPE))
    assert fixed_head.lemma7(history, 0.1).measured == pytest.approx(1.0, rel=1e-12)
    assert fixed_head.lemma7(history, 0.2).measured == pytest.approx(0.5, rel=1e-12)


def test_path_sums_and_exponents_in_them():
    np.testing.assert_allclose(fits.path_sum(np.array([0, 1, 3]), 2), [0, 1, 1 + 1 / 4 + 1 / 9])
    np.testing.assert_array_equal(fits.path_sum(TIMES, 0), TIMES)
    values = np.broadcast_to(fits.path_sum(TIMES, 2 / 3) ** 1.3, SHAPE)
    found = joint_training.path_exponent(RUN, values, 2 / 3, 10)
    np.testing.assert_allclose(found, 1.3)


@pytest.mark.parametrize("failed, draws", [(0, 29), (3, 50), (29, 29)])
def test_the_upper_end_of_a_probability_is_where_5_per_cent_of_cases_have_so_few(failed, draws):
    p = data_and_starts.probability_at_most(np.arange(draws) < failed)
    assert p == 1 if failed == draws else stats.binom.cdf(failed, draws, p) == pytest.approx(0.05)


def test_polyak_ends_with_steps_of_half_the_norm_of_the_solution():
    history = replace(RUN, log_step=np.log(SOLUTION.norm / 2)[:, None] - RUN.log_gradient)
    claim = fixed_head.polyak_step_norm(history, SOLUTION)
    assert claim.holds and claim.measured == pytest.approx(1.0, rel=1e-12)


def test_the_fastest_rule_is_judged_by_its_slowest_run():
    gap = np.broadcast_to(-0.01 * TIMES, SHAPE)
    late = gap / np.array([[1.0], [2.0]])  # at the level after 50 and 100 iterations
    never = np.where(np.array([[True], [False]]), gap, 0.0)
    for own, expected in ((late, 1.0), (2 * gap, 0.5), (never, np.inf)):
        runs = {"own": replace(RUN, log_gap=own), "other": replace(RUN, log_gap=late)}
        claim = fixed_head.fastest_at_first(runs, "own", np.exp(-0.5))
        assert claim.measured == pytest.approx(expected)


def test_lemmas_12_and_13_follow_the_smallest_gap_and_the_larger_norm():
    data = tokens.two_token_gaussian([0, 1], n=4, d=100)
    known = dynamics.train(data, rules.ngd(0.1, decay=2 / 3), 1000, TIMES, head="joint")
    third, path = np.cbrt(TIMES), fits.path_sum(TIMES, 2 / 3)
    gaps = np.broadcast_to(9 * path[:, None, None] ** 1.2, known.score_gaps.shape).copy()
    gaps[:, :, 2, 0] = path
    norms = np.broadcast_to(3 * 0.1 * third, known.norm.shape)
    history = replace(known, score_gaps=gaps, head_norm=norms, norm=norms / 2)
    assert joint_training.lemma12(history, 0.1).measured == pytest.approx(1.0, rel=1e-12)
    gap, *_ = joint_training.lemma13(history, coordinates.minimal(data).tokens, 10)
    assert gap.measured == pytest.approx(1.0, rel=1e-9)


def test_a_start_of_one_logit_stays_within_its_two_sided_quantile():
    found = data_and_starts._union_bound(np.full((1, 1, 1), 0.5), 0.1)
    assert found == pytest.approx(0.5 * stats.norm.isf(0.05), rel=1e-9)


def spanned(scores, overlap=0.0):
    """One data set of three tokens a sample: scores (2, 3), all else orthogonal but for a pair."""
    X = np.zeros((2, 3, 9))
    X[:, :, 0] = scores
    X[np.arange(6) // 3, np.arange(6) % 3, 1 + np.arange(6)] = 2.0
    X[1, 1, 1] += overlap / 2  # with the first sample's first token
    y, u, z = np.ones(2), np.eye(9)[0], np.tile(3 * np.eye(9)[8], (2, 1))
    return token_sets.token_set(X, y, z=z, u=u)


def test_imbalance_is_the_widest_spread_over_the_smallest_gap():
    found = data_and_starts.imbalance(spanned([[1.0, 0.0, -0.2], [0.5, 0.0, 0.0]]))
    assert found == pytest.approx(0.2 / 0.5)


def test_near_orthogonality_by_its_formula_on_two_samples():
    data = spanned([[1e-3, 0.0, 0.0], [1e-3, 0.0, 0.0]], overlap=0.1)
    (found,) = data_and_starts.assumption1(data)
    phi, gap, mu, a, b = 1 / (3 * np.e), 1e-3, 0.1, 4.0 + 1e-6, 3.0
    C = np.exp(gap / 2) / (4 * phi * (1 - phi))  # both samples' gaps are alike
    assert found == pytest.approx(b**2 * (a - 3 * mu) / (4 * 2 * C * mu**2), rel=1e-9)


def test_lemma_11_has_tails_that_hold_and_half_of_them_does_not():
    d, delta, signal, noise = 100, 0.1, 3.0, 0.1
    data = tokens.two_token_gaussian(range(5), n=4, d=d)
    pairs = zip(
        data_and_starts.spreads(data, signal, noise),
        data_and_starts.lemma11(data, signal, noise, delta),
        strict=True,
    )
    norms, cross = (np.quantile(found, 1 - delta) / claim.measured for found, claim in pairs)
    share = delta / (2 * 8**2)  # of one token or pair of the 8 tokens
    assert stats.chi2.sf(d + norms, d) <= share < stats.chi2.sf(d + norms / 2, d)
    normal = stats.norm(scale=np.sqrt(d))
    assert normal.sf(cross) <= share < normal.sf(cross / 2)
