"""Tests of exponentials, products and softmax against mpmath.

An error here would spoil long runs unnoticed.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.compiled import exponentials, gram, softmax

ULP = 2.0**-52
patient = settings(deadline=None)  # the first call compiles


def of_each(function, x, *arguments):
    out = np.empty(len(x))
    function(np.array(x), *arguments, out)
    return out


@patient
@given(st.lists(st.floats(-708.0, 0.0), min_size=1, max_size=9))
@example([-708.0, -69.0, -1e-300, -0.0, -0.34657359027997264])
def test_exp_is_within_two_units_in_the_last_place_and_zero_below_its_range(x):
    for value, found in zip(x, of_each(exponentials.exp, x), strict=True):
        assert abs(found / mp.exp(value) - 1) <= 2 * ULP
    assert not of_each(exponentials.exp, [-708.0001, -1e4, -math.inf]).any()


@patient
@given(
    st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=9),
    st.sampled_from([0.5, -2.0]),
)
@example([1e-300, 1e-11, 1.0, 0.7071067811865475, 1.4142135623730951], 1.0)
def test_log_is_within_units_in_the_last_place_and_minus_infinity_next_to_zero(
    x, factor
):
    out = of_each(exponentials._log, x, factor)
    assert np.array_equal(
        out, of_each(exponentials._log, [-value for value in x], factor)
    )
    for value, found in zip(x, out, strict=True):
        exact = factor * mp.log(value)
        assert abs(found - exact) <= 4 * ULP * abs(exact)
    assert (of_each(exponentials._log, [0.0, -0.0, 9e-301], 1.0) == -math.inf).all()


@patient
@given(st.floats(-1e4, 700.0), st.floats(-1e4, 700.0))
def test_logarithms_of_sums(a, b):
    with mp.workdps(60):
        both = mp.log(mp.exp(a) + mp.exp(b))
        assert math.isclose(
            exponentials.add_logs(a, b), both, rel_tol=4 * ULP, abs_tol=4 * ULP
        )
        single = mp.log1p(mp.exp(a))
        assert math.isclose(
            exponentials.log1p_exp(a), single, rel_tol=4 * ULP, abs_tol=1e-320
        )
    assert exponentials.add_logs(a, -math.inf) == a


@pytest.mark.parametrize("n, T", [(1, 2), (3, 3), (4, 4), (5, 13), (11, 7)])
def test_packed_gram_products_are_those_of_the_matrix(n, T):
    m = n * T
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((2, m, 5))
    K = rows @ rows.swapaxes(1, 2)
    packed = gram.pack(K, n)
    assert packed.shape[1] % gram.WIDTH == 0
    # both ways of multiplying are tested
    assert (packed.shape[1] > gram.FITS) == (m > gram.FITS)
    for s in range(2):
        c = rng.standard_normal((n, T))
        out = np.empty(packed.shape[1])
        flat = np.zeros(packed.shape[1])
        flat[:m] = c.T.ravel()  # token first
        product(packed, s, flat, out)
        np.testing.assert_allclose(
            out[:m], (K[s] @ c.ravel()).reshape(n, T).T.ravel(), rtol=1e-12
        )
        assert not out[m:].any()
        assert math.isclose(dot(flat, out), c.ravel() @ K[s] @ c.ravel(), rel_tol=1e-12)


@gram.numba.njit
def product(K, s, c, out):
    gram.multiply(K, s, c, out)


@gram.numba.njit
def dot(a, b):
    return gram.dot(a, b)


RUNS = 2
N = 3
T = 4


def by_hand(logits, scores, logistic):
    """Compute -l', p, f and l of one sample in many digits."""
    p = [mp.exp(mp.mpf(x)) for x in logits]
    p = [x / sum(p) for x in p]
    f = sum(x * mp.mpf(s) for x, s in zip(p, scores, strict=True))
    slope = 1 / (1 + mp.exp(f)) if logistic else mp.exp(-f)
    return slope, p, f, mp.log1p(mp.exp(-f)) if logistic else mp.exp(-f)


@pytest.mark.parametrize("n", [1, softmax.WIDTH, 2 * softmax.WIDTH + 3])
def test_a_run_comes_back_from_its_lanes_and_touches_no_other(n):
    runs, T = 3, 4
    padded = n + softmax.WIDTH  # copies go in blocks of WIDTH
    lanes = np.zeros((T, runs * n + softmax.WIDTH))
    flat = np.arange(1.0, runs * (T * n + padded) + 1).reshape(runs, -1)
    for r in range(runs):
        softmax.scatter(r, n, flat, lanes)
    for r in range(runs):
        expected = flat[r, : T * n].reshape(T, n)
        np.testing.assert_array_equal(lanes[:, r * n : (r + 1) * n], expected)
        back = np.zeros(flat.shape[1])
        softmax.gather(r, n, lanes, back)
        np.testing.assert_array_equal(back[: T * n], flat[r, : T * n])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 30.0, 400.0]),
    st.booleans(),
    st.booleans(),
)
def test_the_softmax_on_lanes_agrees_with_many_digits(seed, width, logistic, tied):
    rng = np.random.default_rng(seed)
    work = softmax.empty_lanes(T, RUNS * N)
    scales = np.zeros((2, RUNS))
    logits = rng.uniform(-width, width, (T, RUNS * N))
    logits[0] = 0.0
    scores = rng.uniform(-2.0, 2.0, logits.shape)
    if tied:
        scores[2] = scores[1]
    work.margins[:, : RUNS * N], work.scores[:, : RUNS * N] = -logits[1:], scores
    softmax.slopes(work, N, logistic, False, scales)
    with mp.workdps(400):
        for run in range(RUNS):
            loss = best = mp.mpf(0)
            for i in range(run * N, run * N + N):
                slope, p, f, l = by_hand(logits[:, i], scores[:, i], logistic)
                top = scores[:, i].max()
                loss += l / N
                best += by_hand([0], [top], logistic)[3] / N
                for t in range(T):
                    push = mp.exp(scales[1, run]) * work.push[t, i]
                    assert (
                        abs(push - slope * p[t] / N)
                        <= 1e-12 * slope * p[t] / N + 1e-300
                    )
                largest = max(
                    abs(slope * q * (f - s))
                    for q, s in zip(p, scores[:, i], strict=True)
                )
                for t in range(1, T):
                    pull = mp.exp(scales[0, run]) * work.c[t - 1, i]
                    exact = slope * p[t] * (f - mp.mpf(scores[t, i])) / N
                    assert abs(pull - exact) <= 1e-11 * largest
            gaps = loss - best, loss
            for fixed, gap in zip((True, False), gaps, strict=True):
                found = softmax.log_gap(run * N, N, work, logistic, fixed)
                assert math.isclose(found, mp.log(gap), rel_tol=1e-10, abs_tol=1e-10)


@pytest.mark.parametrize("S", [1, 3, 4, 6])
@pytest.mark.parametrize("with_pairs", [True, False])
def test_products_without_the_matrix_are_those_of_the_matrix(S, with_pairs):
    n, r, q = 5, 3, 2
    rng = np.random.default_rng(S)
    v = rng.standard_normal((2, n, S, r))
    w = rng.standard_normal((2, n, q))
    v[:, :, -1] = v[:, :, 0]
    pairs = w @ w.swapaxes(1, 2) if with_pairs else np.zeros((2, n, 0))
    index = np.arange(n * S)  # by token first
    index[n * (S - 1) :] = np.arange(n)
    factors = tuple(gram.Factors(v, w, pairs, np.stack([index, index])))
    outer = np.einsum("sita,sib->sitab", v, w).swapaxes(1, 2).reshape(2, n * S, -1)
    for s in range(2):
        c = rng.standard_normal(n * S)
        out = np.empty(n * S)
        gram.multiply_factored(factors, s, c, out, gram.room_for(factors))
        np.testing.assert_allclose(out, outer[s] @ (outer[s].T @ c), rtol=1e-12)
        assert (out[n * (S - 1) :] == out[:n]).all()  # equal vectors, to the bit
