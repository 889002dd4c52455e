"""Tests of two samples from zero: the closed form against runs.

A failure means that a problem that is lost is said to be won.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import attention, dynamics, files
from lib.attention import losses
from papers.a import phase_diagram
from papers.a.phase_diagram import two_samples_of as pair
from papers.a.phase_diagram import two_samples_reach as two_samples
from papers.wrong_worlds import World, inside
from tests.problems import stacked

CONVEX = ("exponential", "logistic", "reciprocal")


def drawn(seed):
    draw = np.random.default_rng(seed)
    size = np.exp(draw.normal(0, 1, 2))
    k = draw.uniform(0.4, 0.98) * np.sqrt(size.prod())
    gaps = np.exp(draw.normal(-1, 1.5, 2)).clip(max=3)
    return pair(np.array([[size[0], -k], [-k, size[1]]]), draw.normal(0, 0.5, 2), gaps)


def trained(problems, rule, steps, loss="exponential", record=None):
    """Return margins (problems, records, 2) of runs from zero."""
    return dynamics.train(
        stacked(*problems), rule, steps, record or [steps], loss=loss
    ).margins[..., 0]


PROBLEMS = [drawn(seed) for seed in range(150)]


@pytest.mark.parametrize("loss", CONVEX)
def test_decided_problems_end_as_the_theorem_says(loss):
    said = [two_samples(data, loss).reached for data in PROBLEMS]
    ends = trained(PROBLEMS, dynamics.NGD(0.05), 3000, loss)[:, -1].min(1)
    assert said.count(True) > 50 and said.count(False) >= 5
    for one, end in zip(said, ends, strict=True):
        assert one is None or (end > 1) == one


def test_the_module_and_training_agree_on_the_counterexample():
    data = phase_diagram.two_samples()
    lost = two_samples(data)
    assert lost.reached is False
    np.testing.assert_allclose(lost.threshold, (3 - 1.26) / (9 - 3), rtol=1e-3)
    assert lost.start < lost.highest < 0.1 * lost.threshold
    quoted = f"has $\\theta^*={lost.threshold:.2f}$ and $R_1={lost.highest:.3f}$"
    assert quoted in (files.folder("notebooks") / "law_of_margins.md").read_text(
        "utf-8"
    )
    assert (
        dynamics.train(data, dynamics.NGD(0.05), 2000, [2000]).margins[0, -1].min() < 0
    )
    turned = phase_diagram.two_samples(overlap=1.0)
    assert two_samples(turned).reached
    assert (
        dynamics.train(turned, dynamics.NGD(0.05), 2000, [2000]).margins[0, -1].min()
        > 0
    )


@pytest.mark.parametrize("k", [0.6, 0.9])
def test_where_the_slope_is_constant_the_threshold_is_exact(k):
    """The reciprocal loss is linear below zero, so that R_0 = R_1, and 1 % decides."""
    K = np.array([[2.0, -k], [-k, 0.5]])
    threshold = (k - 0.5) / (2 - k)
    factors = np.array([0.99, 1.01])
    both = []
    for factor in factors:
        both.append(pair(K, [-3.0, -3.0], [factor * threshold, 1.0]))
        found = two_samples(both[-1], "reciprocal")
        assert found.reached is bool(factor > 1)
        np.testing.assert_allclose(
            [found.start, found.highest], factor * threshold, rtol=1e-9
        )
    ends = trained(both, dynamics.NGD(0.05), 4000, "reciprocal")[:, -1].min(1)
    assert ((ends > 1) == (factors > 1)).all()
    near = pair(np.array([[2.0, -0.49], [-0.49, 0.5]]), [0.0, 0.0], [1e-6, 1.0])
    assert two_samples(near).reached  # |K_12| < K_22: whatever the scores


def test_on_the_lost_side_no_step_size_and_no_momentum_helps():
    lost = [one for one in PROBLEMS if two_samples(one).reached is False]
    log_lengths = np.random.default_rng(0).normal(0, 3, 501)
    free = dynamics.Custom(
        lambda t, log_gap, log_norm: log_lengths[t] - log_norm, logarithmic=True
    )
    assert len(lost) >= 5
    for rule in (free, replace(free, momentum=0.7)):
        assert (trained(lost, rule, 500, record=range(1, 501)).min(2) <= 0).all()


@given(st.integers(0, 10_000), st.sampled_from(CONVEX))
@settings(max_examples=50, deadline=None)
def test_23_the_flow_of_the_margins_and_24_the_bounds_of_theta(seed, loss):
    draw = np.random.default_rng(seed)
    K = np.array([[2.0, -0.7], [-0.7, 0.5]])
    low = draw.normal(0, 0.5, 2)
    gaps = np.exp(draw.normal(-1, 1, 2))
    g = np.array([-1, 1]) * np.abs(draw.normal(0, 3, 2))
    data = pair(K, low, gaps)
    p = 1 / (1 + np.exp(-g))
    c = np.exp(losses.log_derivative(low + gaps * p, loss)) * gaps * p * (1 - p)
    delta = data.X[0, :, 1] - data.X[0, :, 0]
    theta = c[0] / c[1]
    W = np.linalg.pinv(delta) @ g[:, None] @ data.z[0, :1]  # with these margins
    pulled = -2 * attention.gradients(data, W[None], data.u, loss)[1][0]
    moved = delta @ pulled @ data.z[0, 0]
    # K up to the scores' part
    np.testing.assert_allclose(moved, K @ c, atol=1e-4 * c.max())
    np.testing.assert_allclose(
        (K @ c / c[1]).sum(), 1.3 * (theta - 0.2 / 1.3), rtol=1e-9, atol=1e-9
    )
    found = two_samples(data, loss)
    np.testing.assert_allclose(found.threshold, 0.2 / 1.3, rtol=1e-3)
    even = p[0] * (1 - p[0]) / (p[1] * (1 - p[1]))
    assert found.start * even <= theta * (
        1 + 1e-9
    ) and theta <= found.highest * even * (1 + 1e-9)


@pytest.mark.parametrize(
    "world",
    [
        None,
        World("constant off", 0.05),
        World("constant off", -0.05),
        World("inner product turned", 1.0),
    ],
)
def test_the_ledgers_row_knows_the_threshold_and_notices_another(world):
    with inside(world, "A") if world else nullcontext():
        claim = phase_diagram.assumption1_bound(range(3), dynamics.NGD(0.05), 10_000)
    assert claim.measured == (0.5 if world else 1.0)
    assert claim.holds == (world is None)


@pytest.mark.parametrize(
    "reason", ["convex", "n = T = 2", "different scores", "independent", "2 runs"]
)
def test_what_the_theorem_is_not_about_is_refused(reason):
    data = phase_diagram.two_samples()
    X = data.X[0]
    y = data.y[0]
    z = data.z[0]
    u = data.u[0]
    parts = (data.X, data.y, data.z, data.u)
    refused = {
        "convex": data,
        "n = T = 2": attention.token_set(X[:, [0, 1, 0]], y, z, u),
        "different scores": attention.token_set(X, y, z, 0 * u, [1, 1]),
        "independent": attention.token_set(X[[0, 0]], y[[0, 0]], z[[0, 0]], u),
        "2 runs": attention.token_set(*(np.stack([of[0]] * 2) for of in parts)),
    }
    with pytest.raises(ValueError, match=reason):
        two_samples(refused[reason], "sigmoid" if reason == "convex" else "exponential")
