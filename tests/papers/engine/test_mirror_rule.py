"""Mirror descent as a rule of the optimisers' loop: against 60 digits and its own engine."""

import mpmath
import numpy as np
import pytest

from lib import attention, mirror
from lib.attention import tokens
from papers.beyond.engine import optimisers as o
from papers.beyond.engine import training
from tests.papers.engine import exact

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))
EXPONENTS = [1.1, 1.5, 2, 3, 4.3]


def apart(found, expected, start):
    return np.abs(found - expected).max() / np.abs(expected - start).max()


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_mirror_descent_against_many_digits(p, normalised, loss):
    rule = o.mirror(p, 0.07, normalised=normalised)
    with mpmath.workdps(60):
        expected = exact.mirror(DATA, p, 0.07, 12, START[0], normalised, loss)
    found = training.train(DATA, rule, 12, START, [12], loss).W[0, -1]
    assert apart(found, expected, START[0]) <= 1e-11


@pytest.mark.parametrize("p", EXPONENTS)
def test_where_the_softmax_underflows_against_many_digits(p):
    far, eta = 900 * START, 0.01 * 900 ** (p - 1)
    with mpmath.workdps(1200):
        expected = exact.mirror(DATA, p, eta, 12, far[0], True)
    found = training.train(DATA, o.mirror(p, eta), 12, far, [12]).W[0, -1]
    moved = np.abs(expected - far[0]).max()
    assert moved > 1
    assert np.abs(found - expected).max() <= max(1e-11 * moved, 1e-14 * np.abs(expected).max())


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("normalised", [True, False])
def test_the_two_engines_of_mirror_descent_agree(p, normalised):
    data = tokens.unit_tokens(range(3), n=5, T=4, d=6)
    start = mirror.gaussian_start(data, range(3))
    times = [0, 1, 10, 100, 300]
    rule = mirror.MirrorRule(p, 0.005, normalised)
    expected = mirror.train(data, rule, 300, start, record=times, loss="exponential")
    ours = o.mirror(p, 0.005, normalised=normalised)
    found = training.train(data, ours, 300, start, times)
    moved = np.abs(expected.W[:, -1] - start).max()
    assert moved > 0.01
    # Both keep the mirror image; W is a power 1/(p-1) of it, which multiplies their rounding.
    images = [np.sign(W) * np.abs(W) ** (p - 1) for W in (found.W, expected.W)]
    assert np.abs(images[0] - images[1]).max() <= 1e-12 * max(1.0, np.abs(images[1]).max())
    np.testing.assert_allclose(found.log_gap, expected.log_gap, rtol=1e-9)


def test_p_2_is_gradient_descent():
    for normalised in (True, False):
        rules = o.mirror(2, 0.05, normalised=normalised), o.steepest(2, 0.05, 0.0, normalised)
        one, other = (training.train(DATA, rule, 200, START, [200]).W for rule in rules)
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_zero_entries_stay_and_a_start_of_zero_is_welcome():
    data = attention.token_set([[np.zeros(2), [-1.0, 0.0]]], [1.0], z=[[1.0]], u=[1.0, 0.0])
    for p in EXPONENTS:
        W = training.train(data, o.mirror(p, 0.1), 5, record=[5]).W[0, 0]
        # one entry is pulled, by 0.1 a step in the mirror
        assert W[0, 0] == pytest.approx(0.5 ** (1 / (p - 1)), rel=1e-12) and W[1, 0] == 0.0


def test_what_leaves_the_range_of_floats_is_said():
    path = training.train(DATA, o.mirror(1.01, 1e3), 9, record=[0, 9])  # |U|^100
    assert path.status.tolist() == ["diverged"] and 0 < path.ended[0] < 9
    assert np.isfinite(path.W[0, 0]).all() and np.isnan(path.W[0, 1]).all()
    path = training.train(DATA, o.mirror(5, 1.0), 9, 1e99 * START, [0, 9])  # |W|^4
    assert path.status.tolist() == ["diverged"] and path.ended.tolist() == [0]


def test_a_gradient_of_zero_stalls_or_rests():
    still = attention.token_set([np.zeros((2, 2))], [1.0], z=[[1.0]], u=[1.0, 0.0], opt=[0])
    path = training.train(still, o.mirror(3, 0.1), 5, record=[0, 5])
    assert path.status.tolist() == ["stalled"] and path.ended.tolist() == [0]
    first_only = attention.token_set(
        [[[0.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]],
        [1.0, 1.0],
        z=[[1.0], [1.0]],
        u=[1.0, 0.0],
        opt=[0, 0],
    )
    rule = o.on_batches(o.mirror(3, 0.1), 1)
    path = training.train(first_only, rule, 4, record=[0, 1, 2, 3, 4])
    np.testing.assert_allclose(path.W[0, :, 0, 0] ** 2, [0, 0.1, 0.1, 0.2, 0.2], rtol=1e-12)


@pytest.mark.parametrize("p", [1, 0.5, np.inf, np.nan])
def test_exponents_without_a_mirror_are_refused(p):
    with pytest.raises(ValueError, match="mirror map"):
        o.mirror(p, 0.1)
