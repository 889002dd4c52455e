"""Inequalities of paper C's appendix on arbitrary inputs: a wrong side would pass on its runs."""

from types import SimpleNamespace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib import attention
from lib.attention import tokens
from lib.mirror import geometry
from papers.c import lemmas
from tests.mirror.test_mirror import from_mirror

EXPONENTS = st.floats(1.05, 10)
ENTRIES = st.floats(-4, 4).filter(lambda x: x == 0 or abs(x) > 1e-4)
SIZES = st.floats(1e-6, 1e3)
SLACK = 1e-12  # rounding, relative to the largest term
many = settings(deadline=None, max_examples=150)


def matrices(count):
    rows = st.lists(st.lists(ENTRIES, min_size=count, max_size=count), min_size=1, max_size=9)
    return rows.map(lambda lists: np.array(lists).T).filter(lambda a: (a != 0).any(1).all())


def below(smaller, larger, scale=1.0):
    size = np.maximum(np.maximum(np.abs(smaller), np.abs(larger)), scale)
    return bool(np.all(smaller <= larger + SLACK * size))


@many
@given(matrices(1), EXPONENTS)
def test_lemma12(W, p):
    assert all(below(*pair, scale=0) for pair in lemmas.lemma12(W, p))


@many
@given(matrices(2), EXPONENTS)
def test_lemma13(pair, p):
    first, second = pair / geometry.norm(pair, p)[:, None]
    assert below(*lemmas.lemma13(first, second, p))
    assert below(0.0, geometry.bregman(first, second, p))
    bound, D = lemmas.lemma13(np.eye(2)[:1], -np.eye(2)[:1], p)  # by hand
    assert np.allclose([bound, D], [[1 / p if p >= 2 else 2 * (p - 1)], [2]])


@many
@given(SIZES, SIZES, EXPONENTS)
def test_lemma14_and_15(x, y, p):
    x, y = max(x, y), min(x, y)
    # x^a - y^a loses what x^a has too many digits for: rounding is relative to x^p, x^{p-1}
    assert all(below(*pair, scale=x**p) for pair in lemmas.lemma14(x, y, p))
    scale = x ** (p - 1) * max(1, p)
    assert all(below(*pair, scale=scale) for pair in lemmas.lemma15(x, y, p))


@many
@given(matrices(3), EXPONENTS)
def test_lemma26(abc, p):
    """D(a, b) = D(a, c) + D(c, b) - <nabla psi(b) - nabla psi(c), a - c>."""
    a, b, c = abc
    D = lambda first, second: geometry.bregman(first, second, p)
    turned = (geometry.to_mirror(b, p) - geometry.to_mirror(c, p)) @ (a - c)
    left, right = D(a, b), D(a, c) + D(c, b) - turned
    assert abs(left - right) <= SLACK * (1 + np.abs(abc).max() ** p) * abc.shape[1] * p


def stepped(seed, p, eta, size):
    """One plain step on a small problem: flat W, W+, gradient, and (L, L+)."""
    data = tokens.unit_tokens(seed, n=3, T=3, d=3)
    W = size * np.random.default_rng(seed).standard_normal((1, 3, 3))
    loss, gradient, _ = attention.gradients(data, W, data.u, "logistic")
    later = from_mirror(geometry.to_mirror(W, p) - eta * gradient, p)
    after = attention.gradients(data, later, data.u, "logistic")[0]
    flat = dict(W=W.ravel(), later=later.ravel(), gradient=gradient.ravel())
    return SimpleNamespace(p=p, eta=eta, losses=(loss[0], after[0]), **flat)


STEPS = st.tuples(st.integers(0, 200), EXPONENTS, st.floats(1e-4, 1), st.floats(0.1, 10))


@many
@given(STEPS)
def test_lemmas_4_and_22(step):
    step = stepped(*step)
    assume(np.isfinite(step.later).all())
    # the growth of ||W||^{p-1} is a difference: its rounding is relative to ||W||^{p-1}
    size = geometry.norm(np.array([step.W, step.later]), step.p).max()
    scale = np.maximum(step.eta, size ** (step.p - 1))
    for lemma in (lemmas._lemma4, lemmas._lemma22):
        assert below(*lemma(step), scale=scale)


@many
@given(STEPS, st.lists(ENTRIES, min_size=9, max_size=9))
def test_lemma23_and_the_slack_of_lemma24(step, V):
    """D(V, W) = D(V, W+) + D_{psi - eta L}(W+, W) - eta <grad L, V - W> + eta (L+ - L)."""
    step = stepped(*step)
    p, eta, W, later, gradient = step.p, step.eta, step.W, step.later, step.gradient
    before, after = step.losses
    scale = (np.abs([W, later, V]).max() ** p) * p * 9 + 1
    D = lambda first, second: geometry.bregman(np.array(first), second, p)
    curved = after - before - gradient @ (later - W)  # D_L(W+, W)
    slack = D(later, W) - eta * curved
    right = D(V, later) + slack - eta * gradient @ (V - W) + eta * (after - before)
    assert abs(D(V, W) - right) <= SLACK * scale
    smaller, larger = lemmas._lemma24(step)
    assert abs(larger - smaller - slack) <= SLACK * scale
