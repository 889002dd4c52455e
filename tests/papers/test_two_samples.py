"""Two samples of two tokens from zero: the closed form against runs, on both sides, at its edge."""

import numpy as np
import pytest

from lib import attention, dynamics
from lib.attention import losses
from papers.a import phase_diagram
from papers.beyond import two_samples

CONVEX = ("exponential", "logistic", "reciprocal")


def pair(K, low, gaps):
    """Tokens {b_i q, b_i q + d_i} with Gram matrix K of the d_i, scores `low` and `gaps` above."""
    L = np.linalg.cholesky(K)
    d = np.c_[L, 1e-3 * np.array(gaps), [0, 0], [0, 0]]
    X = np.stack([[[0, 0, 0, low[i], 1], d[i] + [0, 0, 0, low[i], 1]] for i in range(2)])
    u = np.array([0, 0, 1e3, 1, 0])
    return attention.token_set(X, np.ones(2), z=np.tile([0.0, 0, 0, 0, 1], (2, 1)), u=u)


def drawn(seed):
    draw = np.random.default_rng(seed)
    size = np.exp(draw.normal(0, 1, 2))
    k = draw.uniform(0.4, 0.98) * np.sqrt(size.prod())
    gaps = np.exp(draw.normal(-1, 1.5, 2)).clip(max=3)
    return pair(np.array([[size[0], -k], [-k, size[1]]]), draw.normal(0, 0.5, 2), gaps)


def descend(problems, loss, lengths, momentum=0.0):
    """Margins (problems, steps, 2) of normalised descent from zero, in plain numpy."""
    scores = np.stack([attention.scores(data, data.u)[0] for data in problems])
    low, gaps = scores.min(-1), np.ptp(scores, axis=-1)
    delta = np.stack([data.X[0, :, 1] - data.X[0, :, 0] for data in problems])
    K, g, move, path = delta @ np.swapaxes(delta, 1, 2), np.zeros(low.shape), 0.0, []
    for length in lengths:
        p = np.exp(-np.logaddexp(0, -g))
        slope = losses.log_derivative(low + gaps * p, loss)
        log_c = slope + np.log(gaps) - np.logaddexp(0, g) - np.logaddexp(0, -g)
        c = np.exp(log_c - log_c.max(1, keepdims=True))
        k = (K @ c[..., None])[..., 0]
        move = momentum * move + length * k / np.sqrt((c * k).sum(1, keepdims=True))
        path.append(g := g + move)
    return np.stack(path, 1)


PROBLEMS = [drawn(seed) for seed in range(150)]


@pytest.mark.parametrize("loss", CONVEX)
def test_decided_problems_end_as_the_theorem_says(loss):
    said = [two_samples.criterion(data, loss).reached for data in PROBLEMS]
    ends = descend(PROBLEMS, loss, np.full(3000, 0.05))[:, -1].min(1)
    assert said.count(True) > 50 and said.count(False) >= 5
    for one, end in zip(said, ends, strict=True):
        assert one is None or (end > 1) == one


def test_the_module_and_training_agree_on_the_counterexample():
    data = phase_diagram.two_samples()
    lost = two_samples.criterion(data)
    assert lost.reached is False
    np.testing.assert_allclose(lost.threshold, (3 - 1.26) / (9 - 3), rtol=1e-3)
    assert lost.start < lost.most < 0.1 * lost.threshold
    assert dynamics.train(data, dynamics.ngd(0.05), 2000, [2000]).margins[0, -1].min() < 0
    turned = phase_diagram.two_samples(overlap=1.0)
    assert two_samples.criterion(turned).reached
    assert dynamics.train(turned, dynamics.ngd(0.05), 2000, [2000]).margins[0, -1].min() > 0


@pytest.mark.parametrize("k", [0.6, 0.9])
def test_where_the_slope_is_constant_the_threshold_is_exact(k):
    """The reciprocal loss is linear below zero: R_0 = R_1, and 1 % decides."""
    K = np.array([[2.0, -k], [-k, 0.5]])
    threshold = (k - 0.5) / (2 - k)
    for factor, reached in ((0.99, False), (1.01, True)):
        data = pair(K, [-3.0, -3.0], [factor * threshold, 1.0])
        found = two_samples.criterion(data, "reciprocal")
        assert found.reached is reached
        np.testing.assert_allclose([found.start, found.most], factor * threshold, rtol=1e-9)
        path = descend([data], "reciprocal", np.full(20_000, 0.01))
        assert (path[0, -1].min() > 1) == reached
    near = pair(np.array([[2.0, -0.49], [-0.49, 0.5]]), [0.0, 0.0], [1e-6, 1.0])
    assert two_samples.criterion(near).reached  # |K_12| < K_22: whatever the scores


def test_on_the_lost_side_no_step_size_and_no_momentum_helps():
    lost = [one for one in PROBLEMS if two_samples.criterion(one).reached is False]
    lengths = np.exp(np.random.default_rng(0).normal(0, 3, 500))
    assert len(lost) >= 5
    assert (descend(lost, "exponential", lengths, momentum=0.7).min(2) <= 0).all()


def test_what_the_theorem_is_not_about_is_refused():
    data = phase_diagram.two_samples()
    with pytest.raises(ValueError, match="a convex one"):
        two_samples.criterion(data, "sigmoid")
    three = attention.token_set(data.X[0][:, [0, 1, 0]], data.y[0], data.z[0], data.u[0])
    with pytest.raises(ValueError, match="it needs two, two"):
        two_samples.criterion(three)
    flat = attention.token_set(data.X[0], data.y[0], data.z[0], 0 * data.u[0], [1, 1])
    with pytest.raises(ValueError, match="different scores"):
        two_samples.criterion(flat)
