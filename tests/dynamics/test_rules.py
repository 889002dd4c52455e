import numpy as np
import pytest

from lib.dynamics import rules

W = np.random.default_rng(0).standard_normal((2, 3, 4))
G = np.random.default_rng(1).standard_normal((2, 3, 4))
NORM = np.linalg.norm(G, axis=(1, 2))[:, None, None]
GAP = np.array([0.3, 2.0])
M = 0.2 * G


@pytest.mark.parametrize(
    "rule, expected",
    [
        (rules.gd(0.7), W - 0.7 * G),
        (rules.gd(0.7, decay=0.5), W - 0.7 / np.sqrt(5) * G),
        (rules.ngd(0.1), W - 0.1 * G / NORM),
        (rules.ngd(0.1, max_step=0.01), W - 0.01 * G),
        (rules.ngd(0.1, decay=2 / 3), W - 0.1 * 5 ** (-2 / 3) * G / NORM),
        (rules.ngd(0.1, momentum=0.9), W - 0.9 * M - 0.1 * G / NORM),
        (rules.polyak(), W - GAP[:, None, None] / (2 * NORM**2) * G),
        (rules.polyak(0.001), W - 0.001 * G),
        (rules.custom(lambda t, log_gap, log_norm: np.log(t) - log_norm), W - 4 * G / NORM),
    ],
)
def test_one_step_equals_the_formula(rule, expected):
    new, buffer = rules.step(rule, W, G, GAP, t=4, buffer=M if rule.momentum else 0.0)
    np.testing.assert_allclose(new, expected, rtol=1e-13)
    np.testing.assert_allclose(W - new, buffer, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("rule", [rules.gd(1.0), rules.ngd(1.0), rules.polyak()])
def test_without_gradient_nothing_moves(rule):
    new, _ = rules.step(rule, W, 0 * G, GAP, t=0)
    np.testing.assert_array_equal(new, W)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rules.gd(0.0),
        lambda: rules.gd(-1.0),
        lambda: rules.gd(float("nan")),
        lambda: rules.gd(float("inf")),
        lambda: rules.ngd(0.1, max_step=0.0),
        lambda: rules.ngd(0.1, max_step=float("nan")),
        lambda: rules.ngd(0.1, momentum=1.0),
        lambda: rules.ngd(0.1, decay=-0.5),
        lambda: rules.polyak(-1.0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()
