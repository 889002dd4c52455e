"""Tests of the axes of the map of C and of its searches, by hand on small inputs."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention
from lib.attention import tokens
from papers.law import constant_map

BASE = tokens.class_mean_tokens(100, **constant_map.BASE)


def is_opt(data):
    return np.arange(data.shape[2]) == data.opt[0][:, None]


def test_raw_noise_has_the_amount_as_its_standard_deviation():
    one = constant_map._raw(100, 0.2)
    noise = one.X - BASE.X
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert abs(noise.mean()) < 0.02
    np.testing.assert_array_equal(one.z, one.X[:, :, 0])
    np.testing.assert_allclose(constant_map._raw(100, 0.4).X - BASE.X, 2 * noise)


@pytest.mark.parametrize("among", ["sample", "all"])
def test_correlated_tokens_are_between_their_own_and_a_common_vector(among):
    own, half, common = (
        constant_map._correlated(100, amount, among) for amount in (0.0, 0.36, 1.0)
    )
    assert own.shape == (1, 6, 5, 960)
    rest = ~is_opt(own)
    mixed = 0.8 * own.X[0][rest] + 0.6 * common.X[0][rest]
    np.testing.assert_allclose(half.X[0][rest], mixed, atol=1e-12)
    np.testing.assert_array_equal(half.X[0][~rest], own.X[0][~rest])
    np.testing.assert_array_equal(half.z, half.X[:, :, 0])
    shared = common.X[0][rest].reshape(6, 4, 960)
    np.testing.assert_allclose(shared - shared[:, :1], 0, atol=1e-12)
    across_samples = np.ptp(shared[:, 0], axis=0).max()
    assert (across_samples < 1e-12) == (among == "all")
    # The common vector has the noise's size, and is orthogonal to both class means.
    assert shared.std() == pytest.approx(constant_map.BASE["noise"], rel=0.05)
    opt = own.X[0][~rest]
    means = np.stack([opt[own.y[0] == y][0] for y in (-1, 1)] + [own.u[0]])
    np.testing.assert_allclose(shared[:, 0] @ means.T, 0, atol=1e-10)


def test_long_texts_have_15_dimensions_per_token_and_two_samples():
    assert constant_map._long(0, 7).shape == (1, 2, 7, 105)


def test_points_are_those_of_every_seed_at_every_value(monkeypatch):
    monkeypatch.setattr(constant_map, "_point", lambda *point: point)
    found = constant_map.along([5, 6], 70, {"a": (1, 2), "b": (3,)})
    places = [("a", 1), ("a", 2), ("b", 3)]
    assert found == [(*place, seed, 70) for place in places for seed in (5, 6)]


@pytest.mark.parametrize(
    "axis, longest, step, steps",
    [
        ("T", 3.0, 3.0 * constant_map.STEP, 9000),
        ("T", np.inf, 1.0, 9000),
        ("long T", 3.0, 3.0 * constant_map.STEP, constant_map.ENOUGH["long T"]),
    ],
)
def test_a_point_takes_half_of_the_longest_step(
    monkeypatch, axis, longest, step, steps
):
    law = SimpleNamespace(longest_step=lambda: np.array([longest]))
    monkeypatch.setattr(constant_map, "_law_of", lambda data: law)
    calls = []

    def compare(setting, steps):
        calls.append((setting.rule.step_size, steps))
        return [SimpleNamespace(refusal="")]

    monkeypatch.setattr(constant_map.margin_law_runs, "compare", compare)
    constant_map._point(axis, 3, 100, 9000)
    assert calls == [(step, steps)]


def test_scores_cross_where_a_straight_line_does(monkeypatch):
    """Gaps of 2 - 3 a, 1 + a and 5 - 4 a."""

    def gaps(data, u):
        return np.array([[[2 - 3 * data.u, 1 + data.u, 5 - 4 * data.u]]])

    monkeypatch.setattr(constant_map, "score_gaps", gaps)
    axes = {"imbalance": lambda seed, amount: SimpleNamespace(u=amount)}
    monkeypatch.setattr(constant_map, "AXES", axes)
    assert constant_map.score_crossing("imbalance", 0) == pytest.approx(2 / 3)
    monkeypatch.setattr(
        constant_map, "score_gaps", lambda data, u: np.array([1.0, 1 + data.u])
    )
    assert constant_map.score_crossing("imbalance", 0) == np.inf


@pytest.mark.parametrize("at", [0.37, 1.9, 3.95])
def test_the_switch_is_found_within_its_accuracy(monkeypatch, at):
    unit = 0.5
    tried = []

    def ends_in_opt(amount):
        tried.append(amount)
        return amount < at * unit

    monkeypatch.setattr(constant_map, "score_crossing", lambda axis, seed: unit)
    monkeypatch.setattr(constant_map, "AXES", {"a": lambda seed, amount: amount})
    monkeypatch.setattr(constant_map, "_ends_in_opt", ends_in_opt)
    for accuracy in (0.1, 0.002):
        tried.clear()
        found = constant_map.switch("a", 0, accuracy)
        assert abs(found / unit - at) <= accuracy / 2 + 1e-12
        assert tried[0] == constant_map.OVERTAKEN * unit
        # Bisection stops as soon as the interval is short enough.
        halvings = np.ceil(np.log2(constant_map.OVERTAKEN / accuracy))
        assert len(tried) == 1 + halvings


def test_a_run_that_never_switches_has_no_switch(monkeypatch):
    monkeypatch.setattr(constant_map, "score_crossing", lambda axis, seed: 0.5)
    monkeypatch.setattr(constant_map, "_ends_in_opt", lambda data: True)
    monkeypatch.setattr(constant_map, "AXES", {"a": lambda seed, amount: amount})
    assert np.isnan(constant_map.switch("a", 0))


def test_a_run_ends_in_opt_if_every_opt_token_is_selected():
    assert constant_map._ends_in_opt(BASE, 0.5, 300)
    other = (BASE.opt + 1) % BASE.shape[2]
    one = np.where(np.arange(6) == 4, other, BASE.opt)
    wrong = attention.token_set(BASE.X, BASE.y, BASE.z, BASE.u, one)
    assert not constant_map._ends_in_opt(wrong, 0.5, 300)


def test_crowding_is_constraints_over_covers_capacity():
    """A plane of d (d - 2) dimensions separates 2 d (d - 2) random constraints."""
    assert constant_map._crowding(7, 4, 5) == pytest.approx(7 * 3 / (2 * 15))


def point(seed, value, error, predicted, residual):
    measured = SimpleNamespace(error=np.array([9.0, error]), residual=residual)
    comparison = SimpleNamespace(measured=measured, predicted=predicted)
    return constant_map.Point(
        axis="noise", value=value, seed=seed, comparison=comparison
    )


def test_the_map_is_about_the_last_error_and_the_power_of_the_residual():
    points = [
        point(seed, value, 0.2 * (1 + 0.001 * seed), 0.2, (1 + seed) * value**power)
        for seed, power in ((1, -2.0), (2, -2.05))
        for value in (0.5, 1.0, 2.0, 5.0)
    ]
    # Below 1 the power is another one.
    points[0] = point(1, 0.5, 0.2, 0.2, 77.0)
    assert constant_map.relative(points[1]) == pytest.approx(0.001)
    constant, power = constant_map.map_claims(points)
    assert constant.measured == pytest.approx(0.002)
    assert power.measured == pytest.approx(-2.05)
    assert "mean -2.025" in constant_map._noise_power(
        [points[0], *points[4:]]
    ).remark or (power.holds)


def test_the_switch_is_relative_to_its_prediction():
    claim = constant_map.switch_claim("a", np.array([2.0, 4.0]), np.array([2.02, 4.0]))
    assert claim.measured == pytest.approx(0.01)


def test_half_is_one_minus_the_correlation_of_half_of_the_seeds():
    """Half of the seeds are excluded at the middle of three correlations."""
    did = np.array([[0, 0], [1, 0], [1, 1]], bool)
    onset = constant_map._Onset(
        steps=5, values=(0.8, 0.9, 0.99), predicted=did, measured=did, level=None
    )
    half, low, high = onset.half(did)
    assert half == pytest.approx(0.1, rel=1e-6) and low <= half <= high


def test_longer_runs_follow_the_law_up_to_larger_correlations(monkeypatch):
    class Made:
        def __init__(self, steps, half, level):
            self.steps = steps
            self.measured = half
            self.level = np.array(level)

        def half(self, did):
            return did, 0, 0

    onsets = [Made(10, 0.3, [1.02, np.nan]), Made(20, 0.2, [0.95]), Made(40, 0.08, [1])]
    first, second, third, time = constant_map.onset_claims(onsets)
    assert first.measured == pytest.approx(1.02)
    assert second.measured == pytest.approx(0.95) and third.measured == 1
    assert time.measured == pytest.approx(1.5)


def test_the_end_of_the_axis_is_relative_to_the_merged_law():
    pairs = [constant_map._Repeated(2.0, 2.01), constant_map._Repeated(4.0, 4.0)]
    stays, merged = constant_map.end_claims(0.9, pairs)
    assert stays.measured == 0.9 and merged.measured == pytest.approx(0.005)


def test_the_share_that_stays_is_over_all_seeds_and_correlations(monkeypatch):
    monkeypatch.setattr(constant_map, "_correlated", lambda seed, value: (seed, value))
    monkeypatch.setattr(constant_map, "_ends_in_opt", lambda at: at != (2, 0.5))
    assert constant_map.stays([1, 2], (0.5, 0.6)) == 0.75
