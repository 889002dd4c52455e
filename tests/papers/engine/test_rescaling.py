"""Progressive rescaling: against many digits, its balls, and its bad input."""

import mpmath
import numpy as np
import pytest

from lib import attention
from lib.attention import tokens
from papers.beyond.engine import optimisers as o
from papers.beyond.engine import training
from tests.papers.engine import exact

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))


def by_hand(norm, eta, radius, growth, every, steps, W):
    W = exact.digits(W)
    for t in range(steps):
        G = exact.gradients(DATA, W, "exponential").mean(0)
        W = W + mpmath.mpf(eta) * exact.steepest(G, norm)
        size, phase = mpmath.sqrt((W * W).sum()), (t + 1) // every
        bound = mpmath.mpf(radius) * mpmath.mpf(growth) ** phase
        if size > bound or (phase > 0 and (t + 1) % every == 0):
            W = W * bound / size
    return W.astype(float)


@pytest.mark.parametrize("radius, growth", [(1.0, 2.0), (50.0, 1.5), (300.0, 4.0)])
@pytest.mark.parametrize("norm", [2, np.inf])
def test_rescaling_against_many_digits(norm, radius, growth):
    rule = o.rescaled(o.steepest(norm, 0.3), radius, growth, 4)
    with mpmath.workdps(4000 if radius > 100 else 800):
        expected = by_hand(norm, 0.3, radius, growth, 4, 14, START[0])
    found = training.train(DATA, rule, 14, START, [14]).W[0, -1]
    np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
    assert np.abs(expected).max() > 2


def test_phases_begin_on_their_spheres_and_stay_within():
    rule = o.rescaled(o.steepest(2, 0.5), 3.0, 2.0, 10)
    W = training.train(DATA, rule, 100, record=range(101)).W[0]
    size = np.linalg.norm(W, axis=(1, 2))
    bound = 3.0 * 2.0 ** (np.arange(101) // 10)
    assert (size <= bound * (1 + 1e-12)).all() and size[0] == 0
    np.testing.assert_allclose(size[10::10], bound[10::10], rtol=1e-12)
    assert (size[:10] < bound[:10]).any()


def test_a_gradient_that_rests_is_rescaled_and_zero_stays():
    data = attention.token_set(
        [[[0.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]],
        [1.0, 1.0],
        z=[[1.0], [1.0]],
        u=[1.0, 0.0],
        opt=[0, 0],
    )
    rule = o.on_batches(o.rescaled(o.steepest(2, 0.1), 1.0, 3.0, 2), 1)
    W = training.train(data, rule, 4, record=range(5)).W[0, :, :, 0]
    np.testing.assert_allclose(W[:, 0], [0, 0.1, 3, 3, 9], rtol=1e-12)  # every other step rests
    assert not W[:, 1].any()


def test_a_radius_that_overflows_is_reported():
    path = training.train(DATA, o.rescaled(o.steepest(2, 0.1), 1.0, 1e100, 1), 9, record=[0, 9])
    assert path.status.tolist() == ["diverged"] and path.ended.tolist() == [3]
    assert np.isnan(path.W[0, 1]).all()


def test_bad_radii_are_named():
    for wrong in (
        lambda: o.rescaled(o.steepest(2, 0.1), 0.0, 2.0, 1),
        lambda: o.rescaled(o.steepest(2, 0.1), 1.0, 0.5, 1),
        lambda: o.rescaled(o.steepest(2, 0.1), 1.0, np.inf, 1),
        lambda: o.rescaled(o.steepest(2, 0.1), 1.0, 2.0, 0),
        lambda: o.rescaled(o.mirror(3, 0.1), 1.0, 2.0, 1),
    ):
        with pytest.raises(ValueError):
            wrong()
