"""Tests of optimisers against their definitions in many digits.

A failure means that the atlas shows another rule's norm.
"""

from dataclasses import replace

import mpmath
import numpy as np
import pytest

from lib import dynamics
from lib.dynamics.in_coordinates import preconditioners
from tests import exact
from tests.exact import DATA, START, ours

STEPS = 8
NORMS = ["frobenius", 1, 1.5, 3, np.inf, "spectral", "nuclear"]
FAR = 900.0  # logits of this size: softmax weights are e^-1000 and less
# The slope depends on the scores as elsewhere, so that one loss is enough here, where
# every digit costs time.
WHERE = [(1.0, "exponential"), (1.0, "logistic"), (FAR, "exponential")]


def steepest(norm):
    return lambda: lambda t, parts: exact.steepest(parts.mean(0), norm)


def two(make):
    """Apply a rule to two blocks of rows of every gradient."""
    return lambda: exact.in_blocks(make, 2)


def signed():
    muon = exact.muon(0.95, True)
    return lambda t, parts: exact.sign(muon(t, parts))


def one_sample():
    adam = exact.adaptive(0.9, 0.999)
    return lambda t, parts: adam(t, parts[t % 3][None])


def two_samples():
    """Take two of three samples; the third is left out."""
    return lambda t, parts: exact.steepest(parts[:2].mean(0), 2)


def reduced():
    """Return SVRG, whose anchor is the W at the start of each epoch of three
    samples.
    """
    anchor = None

    def direction(t, parts):
        nonlocal anchor
        anchor = anchor if t % 3 else parts
        return parts[t % 3] - anchor[t % 3] + anchor.mean(0)

    return direction


NOT_NORMALISED = dynamics.SteepestDescent(2, 0.2, normalised=False, batch_size=1)
RULES = {  # a rule, and what makes its direction
    **{
        f"steepest, {p}": (dynamics.SteepestDescent(p, 0.07, decay=0.5), steepest(p))
        for p in NORMS
    },
    **{
        f"blocks, {p}": (dynamics.SteepestDescent(p, 0.07, blocks=2), two(steepest(p)))
        for p in NORMS
    },
    "adam": (dynamics.Adam(0.05), lambda: exact.adaptive(0.9, 0.999)),
    "adam, short memory": (
        dynamics.Adam(0.05, momentum=0.5, memory=0.6),
        lambda: exact.adaptive(0.5, 0.6),
    ),
    "adam, epsilon": (
        dynamics.Adam(0.05, epsilon=0.01),
        lambda: exact.adaptive(0.9, 0.999, 0.01),
    ),
    "adam, least": (
        dynamics.Adam(0.05, epsilon=1e-300),
        lambda: exact.adaptive(0.9, 0.999, 1e-300),
    ),
    "rmsprop": (
        dynamics.RMSprop(0.05),
        lambda: exact.adaptive(0.0, 0.99, corrected=False),
    ),
    "adagrad": (
        dynamics.AdaGrad(0.05),
        lambda: exact.adaptive(0.0, 0.0, 0.0, True, False),
    ),
    "signum": (dynamics.Signum(0.05), lambda: exact.sign_momentum(0.9, 0.9)),
    "lion": (dynamics.Lion(0.05), lambda: exact.sign_momentum(0.9, 0.99)),
    "muon": (dynamics.Muon(0.05), lambda: exact.muon(0.95, False)),
    "muon, nesterov": (
        dynamics.Muon(0.05, nesterov=True),
        lambda: exact.muon(0.95, True),
    ),
    "muon by heads": (
        dynamics.Muon(0.05, blocks=2),
        two(lambda: exact.muon(0.95, False)),
    ),
    "full AdaGrad": (
        dynamics.FullAdaGrad(0.1),
        lambda: exact.full_adagrad(preconditioners.FLOOR),
    ),
    "OLion": (dynamics.OLion(0.05), signed),
    "decayed": (
        dynamics.SteepestDescent(2, 0.1, decay=0.5, weight_decay=0.7),
        steepest(2),
    ),
    "variance reduced": (replace(NOT_NORMALISED, variance_reduced=True), reduced),
    "one sample a step": (dynamics.Adam(0.05, batch_size=1), one_sample),
    "two samples a step": (
        dynamics.SteepestDescent(2, 0.05, batch_size=2),
        two_samples,
    ),
}


def error(found, expected, start, of_move=1e-11, of_size=1e-14, moved=0.0):
    """Return the largest error divided by the allowed one; inf if the run hardly moved.

    The allowed error is a share of how far the run went, or of its largest entry if
    that is larger. The run has to go at least as far as `moved`.
    """
    went = np.abs(expected - start).max()
    if went <= moved:
        return np.inf
    return np.abs(found - expected).max() / max(
        of_move * went, of_size * np.abs(expected).max()
    )


@pytest.mark.parametrize("far, loss", WHERE)
@pytest.mark.parametrize("name", RULES)
def test_rules_are_their_definitions(name, far, loss):
    rule, make = RULES[name]
    dear = name == "full AdaGrad"  # far from zero its roots are tested
    steps = 3 if dear and far > 1 else STEPS
    of_move = 5e-10 if dear else 1e-11
    with mpmath.workdps(60 if far == 1 else 1200):
        expected = exact.train(DATA, make(), rule, steps, far * START[0], loss)
    # a step of size e^-900 has no effect
    still = far > 1 and name in (
        "adam, epsilon",
        "variance reduced",
    )
    moved = -1 if still else 0.01
    found = ours(rule, steps, far * START, loss=loss)
    assert error(found, expected, far * START[0], of_move, moved=moved) <= 1


@pytest.mark.parametrize("p", [1.1, 2, 4.3])
@pytest.mark.parametrize("far, loss", WHERE)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("batch_size", [0, 3], ids=["kernel", "loop"])
def test_mirror_descent(p, normalised, far, loss, batch_size):
    """Where the softmax underflows, only normalised steps move W."""
    rule = dynamics.MirrorDescent(
        p,
        0.07 if far == 1 else 0.01 * FAR ** (p - 1),
        normalised=normalised,
        batch_size=batch_size,  # three samples are all of them
    )
    with mpmath.workdps(60 if far == 1 else 1200):
        of_run = p, rule.step_size, STEPS, far * START[0], normalised, loss
        expected = exact.mirror(DATA, *of_run)
    found = ours(rule, STEPS, far * START, loss=loss)
    moved = 1e-3 if far == 1 or normalised else -1
    assert error(found, expected, far * START[0], moved=moved) <= 1


NATURAL = {
    "undamped": dynamics.NaturalGradient(0.02, normalised=True),
    "damped": dynamics.NaturalGradient(0.02, damping=0.1),
    "damped, normalised": dynamics.NaturalGradient(0.02, damping=1e-3, normalised=True),
    "relative": dynamics.NaturalGradient(
        0.02, damping=0.1, relative=True, normalised=True
    ),
    "hardly damped, relative": dynamics.NaturalGradient(
        0.02, damping=1e-6, relative=True, normalised=True
    ),
    "one sample a step": dynamics.NaturalGradient(
        0.02, damping=0.1, relative=True, normalised=True, batch_size=1
    ),
}


@pytest.mark.parametrize("name", NATURAL)
@pytest.mark.parametrize("far, loss", WHERE)
def test_natural_gradient(name, far, loss):
    rule = NATURAL[name]
    start = far * START
    moves = far == 1 or rule.normalised  # e^-900 divided by lambda has no effect
    with mpmath.workdps(60 if far == 1 else 2500):
        expected = exact.natural(
            DATA, rule, 8, start[0], loss, size=rule.batch_size or None
        )
    found = ours(rule, 8, start, loss=loss)
    moved = 0.01 if moves else -1
    assert error(found, expected, start[0], 1e-9, 1e-13, moved) <= 1


@pytest.mark.parametrize("radius, growth", [(1.0, 2.0), (50.0, 1.5)])
@pytest.mark.parametrize("norm", [2, np.inf])
def test_rescaling(norm, radius, growth):
    with mpmath.workdps(800):
        expected = exact.rescaled(norm, 0.3, radius, growth, 4, 14, START[0])
    found = ours(
        dynamics.SteepestDescent(norm, 0.3, radius=radius, growth=growth, every=4), 14
    )
    np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
    assert np.abs(expected).max() > 2
