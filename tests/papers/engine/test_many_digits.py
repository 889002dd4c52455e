"""Optimisers against their definitions in many digits: else the map shows another rule's norm."""

import mpmath
import numpy as np
import pytest

from papers.beyond.engine import optimisers as o
from papers.beyond.engine import preconditioners
from tests import exact
from tests.exact import DATA, START, ours

STEPS = 8
NORMS = ["frobenius", 1, 1.5, 3, np.inf, "spectral", "nuclear"]
EXPONENTS = [1.1, 2, 4.3]
LOSSES = ["exponential", "logistic"]
FAR = 900.0  # logits of this size: softmax weights are e^-1000 and less
# There scores decide the slope as anywhere: one loss is enough where every digit is dear.
WHERE = [(1.0, "exponential"), (1.0, "logistic"), (FAR, "exponential")]


def steepest(norm):
    return lambda: lambda t, parts: exact.steepest(parts.mean(0), norm)


def error(found, expected, start, of_move=1e-9, of_size=1e-13, moved=0.0):
    """The largest error over what is allowed; infinite where the run did not go as far as `moved`.

    Allowed is a share of how far the run went, or of its largest entry where that is more.
    """
    went = np.abs(expected - start).max()
    if went <= moved:
        return np.inf
    return np.abs(found - expected).max() / max(of_move * went, of_size * np.abs(expected).max())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("far, loss", WHERE)
def test_steepest_descent(norm, far, loss):
    with mpmath.workdps(60 if far == 1 else 1200):
        expected = exact.train(DATA, steepest(norm)(), 0.07, STEPS, far * START[0], loss, 0.5)
    found = ours(o.steepest(norm, 0.07, decay=0.5), STEPS, far * START, loss=loss)
    assert error(found, expected, far * START[0], 1e-11, 1e-11) <= 1
    assert error(found, expected, far * START[0], 1e-8, 0.0) <= 1


MEMORY = {
    "adam": (o.adam(0.05), lambda: exact.adaptive(0.9, 0.999)),
    "adam, short memory": (o.adam(0.05, 0.5, 0.6), lambda: exact.adaptive(0.5, 0.6)),
    "adam, epsilon": (o.adam(0.05, epsilon=0.01), lambda: exact.adaptive(0.9, 0.999, 0.01)),
    "adam, least": (o.adam(0.05, epsilon=1e-300), lambda: exact.adaptive(0.9, 0.999, 1e-300)),
    "rmsprop": (o.rmsprop(0.05), lambda: exact.adaptive(0.0, 0.99, corrected=False)),
    "adagrad": (o.adagrad(0.05), lambda: exact.adaptive(0.0, 0.0, 0.0, True, False)),
    "signum": (o.signum(0.05), lambda: exact.sign_momentum(0.9, 0.9)),
    "lion": (o.lion(0.05), lambda: exact.sign_momentum(0.9, 0.99)),
    "muon": (o.muon(0.05), lambda: exact.muon(0.95, False)),
    "muon, nesterov": (o.muon(0.05, nesterov=True), lambda: exact.muon(0.95, True)),
}


@pytest.mark.parametrize(
    "name, far",
    [(name, 1.0) for name in MEMORY] + [(n, FAR) for n in MEMORY if n != "adam, epsilon"],
)
def test_rules_with_memory(name, far):
    rule, make = MEMORY[name]
    with mpmath.workdps(60 if far == 1 else 1500):
        expected = exact.train(DATA, make(), 0.05, STEPS, far * START[0])
    assert error(ours(rule, STEPS, far * START), expected, far * START[0]) <= 1


@pytest.mark.parametrize("norm", ["frobenius", 1, 3, np.inf, "spectral", "nuclear"])
def test_blocks(norm):
    rule = o.in_blocks(o.steepest(norm, 0.07), 2)
    with mpmath.workdps(2500 if norm in ("spectral", "nuclear") else 1200):
        heads = exact.in_blocks(steepest(norm), 2)
        expected = exact.train(DATA, heads, 0.07, STEPS, FAR * START[0])
    assert error(ours(rule, STEPS, FAR * START), expected, FAR * START[0], moved=0.05) <= 1


def test_muon_by_heads_has_momentum_of_the_whole():
    """Each head is Muon on its own rows of every gradient, which the whole W makes."""
    with mpmath.workdps(400):
        heads = exact.in_blocks(lambda: exact.muon(0.95, True), 2)
        expected = exact.train(DATA, heads, 0.05, STEPS, START[0])
        whole = exact.train(DATA, exact.muon(0.95, True), 0.05, STEPS, START[0])
    found = ours(o.in_blocks(o.muon(0.05, nesterov=True), 2), STEPS)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.abs(expected - whole).max() > 0.01


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_mirror_descent(p, normalised, loss):
    rule = o.mirror(p, 0.07, normalised=normalised)
    with mpmath.workdps(60):
        expected = exact.mirror(DATA, p, 0.07, STEPS, START[0], normalised, loss)
    assert error(ours(rule, STEPS, loss=loss), expected, START[0], 1e-11, 0.0) <= 1


@pytest.mark.parametrize("p", EXPONENTS)
def test_mirror_descent_where_the_softmax_underflows(p):
    far, eta = 900 * START, 0.01 * 900 ** (p - 1)
    with mpmath.workdps(1200):
        expected = exact.mirror(DATA, p, eta, STEPS, far[0], True)
    assert error(ours(o.mirror(p, eta), STEPS, far), expected, far[0], 1e-11, 1e-14, moved=1) <= 1


NATURAL = {
    "undamped": o.natural(0.02, normalised=True),
    "damped": o.natural(0.02, 0.1),
    "damped, normalised": o.natural(0.02, 1e-3, normalised=True),
    "relative": o.natural(0.02, 0.1, relative=True, normalised=True),
    "hardly damped, relative": o.natural(0.02, 1e-6, True, True),
}


@pytest.mark.parametrize("name", NATURAL)
@pytest.mark.parametrize("far, loss", WHERE)
def test_natural_gradient(name, far, loss):
    rule, start = NATURAL[name], far * START
    moves = far == 1 or rule.normalised  # e^-900 over lambda is no step
    with mpmath.workdps(60 if far == 1 else 2500):
        expected = exact.natural(DATA, rule, 8, start[0], loss)
    found, moved = ours(rule, 8, start, loss=loss), 0.01 if moves else -1
    assert error(found, expected, start[0], moved=moved) <= 1


@pytest.mark.parametrize("far, steps, tolerance", [(1.0, STEPS, 1e-8), (FAR, 3, 1e-9)])
def test_full_matrix_adagrad(far, steps, tolerance):
    """Its first step is G / ||G||, whatever the gradient's size."""
    rule, start = o.full_adagrad(0.1), far * START
    with mpmath.workdps(50 if far == 1 else 1200):
        direction = exact.full_adagrad(preconditioners.FLOOR)
        expected = exact.train(DATA, direction, 0.1, steps, start[0])
    np.testing.assert_allclose(ours(rule, steps, start), expected, atol=tolerance)
    assert np.linalg.norm(ours(rule, 1, start) - start) == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize("radius, growth", [(1.0, 2.0), (50.0, 1.5)])
@pytest.mark.parametrize("norm", [2, np.inf])
def test_rescaling(norm, radius, growth):
    with mpmath.workdps(800):
        expected = exact.rescaled(norm, 0.3, radius, growth, 4, 14, START[0])
    found = ours(o.rescaled(o.steepest(norm, 0.3), radius, growth, 4), 14)
    np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
    assert np.abs(expected).max() > 2


def test_batches():
    """One sample a step, two (the third is left out), and the Fisher matrix of one sample."""
    adam, natural = exact.adaptive(0.9, 0.999), o.natural(0.02, 0.1, relative=True)
    single = lambda t, parts: adam(t, parts[t % 3][None])
    pairs = lambda t, parts: exact.steepest(parts[[0, 1]].mean(0), 2)
    with mpmath.workdps(60):
        expected = [exact.train(DATA, single, 0.05, STEPS, START[0])]
        expected.append(exact.train(DATA, pairs, 0.05, 6, START[0]))
        fisher = exact.natural(DATA, natural, 6, START[0], "logistic", size=1)
    alone, paired = o.on_batches(o.adam(0.05), 1), o.on_batches(o.steepest(2, 0.05), 2)
    assert error(ours(alone, STEPS), expected[0], START[0], 1e-11, 1e-11) <= 1
    assert error(ours(paired, 6), expected[1], START[0], 1e-11, 1e-11) <= 1
    found = ours(o.on_batches(natural, 1), 6, loss="logistic")
    np.testing.assert_allclose(found, fisher, atol=1e-11)
