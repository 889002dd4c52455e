"""Step sizes by their formulas: a factor off would be another rule under the same name."""

import numpy as np
import pytest

from lib.dynamics import rules


def step(rule, W, gradient, loss_gap, t, buffer=0.0):
    """One step of `rule` in plain arithmetic: W_{t+1} and the momentum buffer m_t."""
    norm = np.linalg.norm(gradient.reshape(len(gradient), -1), axis=1)  # (runs,)
    moving = norm > 0
    log_norm, log_gap = (np.log(np.where(moving, value, 1.0)) for value in (norm, loss_gap))
    # 0/0 = 0: no gradient, no step
    eta = np.where(moving, np.exp(rule.log_step(t, log_gap, log_norm)), 0.0)
    buffer = rule.momentum * buffer + eta.reshape(-1, *[1] * (gradient.ndim - 1)) * gradient
    return W - buffer, buffer


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
        (rules.custom(lambda t, gap, norm: t * gap / norm), W - 4 * GAP[:, None, None] * G / NORM),
        (rules.custom_log(lambda t, log_gap, log_norm: np.log(t) - log_norm), W - 4 * G / NORM),
    ],
)
def test_one_step_equals_the_formula(rule, expected):
    new, buffer = step(rule, W, G, GAP, t=4, buffer=M if rule.momentum else 0.0)
    np.testing.assert_allclose(new, expected, rtol=1e-13)
    np.testing.assert_allclose(W - new, buffer, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(
    "make, options",
    [
        *((rules.gd, dict(step_size=size)) for size in (0.0, -1.0, np.nan, np.inf)),
        *((rules.ngd, dict(step_size=0.1, max_step=cap)) for cap in (0.0, np.nan)),
        (rules.ngd, dict(step_size=0.1, momentum=1.0)),
        (rules.ngd, dict(step_size=0.1, decay=-0.5)),
        (rules.polyak, dict(max_step=-1.0)),
    ],
)
def test_impossible_settings_are_refused_by_name(make, options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]} = .*must be"):
        make(**options)
