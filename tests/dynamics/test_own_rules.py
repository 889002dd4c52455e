"""Tests of a reader's own rules.

A failure means that a mistake in such a rule becomes an error deep in the loop, a wrong
trajectory without a message, or a run that is said to have diverged.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lib import attention, dynamics

DATA = attention.unit_tokens([0, 1], n=3, T=4, d=5)


@dataclass(frozen=True, repr=False)
class Mine(dynamics.Rule):
    gives: Callable

    def direction(self, gradient, state):
        return self.gives(gradient)


@dataclass(frozen=True, repr=False)
class InLogs(dynamics.Rule):
    gives: Callable

    def log_step(self, t, log_gap, log_norm):
        return self.gives(t, log_gap, log_norm)


STEPS = {
    "another shape": (
        lambda g: g[:1],
        ValueError,
        r"shape \(1, 5, 5\); it needs \(2, 5",
    ),
    "a number": (lambda g: 1.0, ValueError, r"shape \(\); it needs \(2, 5, 5\)"),
    "nothing": (lambda g: None, TypeError, "NoneType of type object; it needs real"),
    "words": (lambda g: "down", TypeError, "it needs real numbers"),
    "complex numbers": (lambda g: 1j * g, TypeError, "complex128; it needs real"),
    "NaN": (lambda g: g * np.nan, ValueError, "NaN at its first step"),
    "a tensor with a gradient": (
        lambda g: torch.tensor(g, requires_grad=True),
        TypeError,
        r"returned cannot become a numpy array: .*detach",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_direction_of_no_use_is_named(name):
    gives, kind, words = STEPS[name]
    with pytest.raises(kind, match=words) as caught:
        dynamics.train(DATA, Mine(gives), 3)
    assert "Mine.direction" in str(caught.value)


@pytest.mark.parametrize(
    "kind", [np.asarray, np.ndarray.tolist, torch.tensor, np.float32]
)
def test_a_direction_may_be_of_any_kind_of_array(kind):
    theirs = dynamics.train(DATA, Mine(lambda g: -0.5 * g), 20)
    mine = dynamics.train(DATA, Mine(lambda g: kind(-0.5 * g)), 20)
    np.testing.assert_allclose(mine.W, theirs.W, rtol=1e-6)


def test_a_rule_may_change_its_arguments():
    def halved(gradient):
        gradient *= -0.5
        return gradient

    changed = dynamics.train(DATA, Mine(halved), 20)
    assert changed == dynamics.train(DATA, Mine(lambda g: -0.5 * g), 20)

    def in_place(t, log_gap, log_norm):
        log_gap *= 0
        log_norm *= -1
        return log_norm

    changed = dynamics.train(DATA, InLogs(in_place), 20)
    assert changed == dynamics.train(DATA, InLogs(lambda t, gap, norm: -norm), 20)


LAWS = {
    "seven numbers": (lambda t, gap, norm: np.ones(7), ValueError, r"shape \(7,\)"),
    "a matrix": (lambda t, gap, norm: np.ones((2, 2)), ValueError, r"shape \(2, 2\)"),
    "nothing": (lambda t, gap, norm: None, TypeError, "NoneType"),
    "words": (lambda t, gap, norm: "0.1", TypeError, "it needs real numbers"),
    "complex numbers": (lambda t, gap, norm: 1j, TypeError, "it needs real numbers"),
    "NaN": (lambda t, gap, norm: np.nan, ValueError, "NaN at the first step"),
    "below zero": (lambda t, gap, norm: 1.0 - t, ValueError, "-1.0 at iteration 2"),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_step_size_of_no_use_is_named(name):
    law, kind, words = LAWS[name]
    with pytest.raises(kind, match=words):
        dynamics.train(DATA, dynamics.Custom(law), 5)
    if name != "below zero":  # a logarithm may be negative infinity
        with pytest.raises(kind, match=words):
            dynamics.train(DATA, InLogs(law), 5)


def test_a_step_size_of_zero_is_no_step():
    rule = dynamics.Custom(lambda t, gap, norm: 0.0 if t < 3 else 0.5)
    run = dynamics.train(DATA, rule, 5, [0, 3, 5])
    assert (run.norm[:, 1] == 0).all() and (run.norm[:, 2] > 0).all()


def test_a_step_may_be_one_number_or_one_of_each_run():
    one = dynamics.train(DATA, dynamics.Custom(lambda t, gap, norm: 0.1), 5)
    given = [0.1, 0.1]
    listed = dynamics.train(DATA, dynamics.Custom(lambda t, gap, norm: given), 5)
    tensor = torch.tensor(given, dtype=torch.float64)
    as_tensor = dynamics.train(DATA, dynamics.Custom(lambda t, gap, norm: tensor), 5)
    assert listed == one and as_tensor == one


def test_a_completed_run_whose_opt_tokens_do_not_lead_says_so():
    start = 3 * np.random.default_rng(0).standard_normal((2, 5, 5))
    run = dynamics.train(DATA, dynamics.GD(1e-6), 1, start=start)
    assert (run.status == "completed").all() and (run.margins[:, -1] < 0).any(
        (1, 2)
    ).all()
    assert "opt tokens do not lead in 2 runs (0, 1)" in repr(run)
    assert "do not lead" not in repr(dynamics.train(DATA, dynamics.NGD(0.1), 2000))


class OwnLaw(dynamics.GD):
    """A subclass of a compiled rule, with a step size of its own."""

    def log_step(self, t, log_gap, log_norm):
        return np.log(0.3) - 0.5 * np.log(t + 1.0) - log_norm


class OwnDirection(dynamics.Adam):
    """A subclass of a compiled rule, with a direction of its own."""

    def direction(self, gradient, state):
        return -0.3 * gradient


def test_a_subclass_of_a_compiled_rule_trains_by_its_own_method():
    tokens = attention.unit_tokens([0, 1], n=3, T=4, d=6)
    own = dynamics.train(tokens, OwnLaw(1.0), 50)
    law = dynamics.train(tokens, dynamics.NGD(0.3, decay=0.5), 50)
    np.testing.assert_allclose(own.norm, law.norm, rtol=1e-10)
    own = dynamics.train(tokens, OwnDirection(0.1), 50)
    plain = dynamics.train(tokens, dynamics.GD(0.3), 50)
    np.testing.assert_allclose(own.norm, plain.norm, rtol=1e-10)


def test_a_run_without_gradient_does_not_stop_the_others():
    tokens = attention.unit_tokens([0, 1], n=3, T=4, d=6)
    u = tokens.u.copy()
    u[0] = 0.0
    flat = attention.token_set(tokens.X, tokens.y, tokens.z, u, opt=tokens.opt)

    class Normalised(dynamics.Rule):
        def direction(self, gradient, state):
            with np.errstate(invalid="ignore"):
                size = np.linalg.norm(gradient, axis=(1, 2), keepdims=True)
                return -0.3 * gradient / size

    run = dynamics.train(flat, Normalised(), 50)
    assert run.status.tolist() == ["stalled", "completed"]
    alone = dynamics.train(tokens.run(1), Normalised(), 50)
    np.testing.assert_array_equal(run.norm[1], alone.norm[0])


class Plain(dynamics.Rule):
    """A plain class that sets the momentum as an attribute."""

    def __init__(self, momentum):
        self.momentum = momentum

    def log_step(self, t, log_gap, log_norm):
        return np.log(0.3) - log_norm


class OfClass(dynamics.Rule):
    """A plain class whose momentum is an attribute of the class."""

    momentum = 0.9

    def log_step(self, t, log_gap, log_norm):
        return np.log(0.3) - log_norm


@dataclass(frozen=True, repr=False)
class Fields(dynamics.Rule):
    """A dataclass with fields of the names that every rule has, without a default."""

    momentum: float
    decay: float
    step_size: float

    def log_step(self, t, log_gap, log_norm):
        shrink = self.decay * np.log(t + 1.0)
        return np.log(self.step_size) - shrink - log_norm


@pytest.mark.parametrize(
    "rule, decay",
    [(Plain(0.9), 0.0), (OfClass(), 0.0), (Fields(0.9, 0.5, 0.3), 0.5)],
    ids=["plain", "of the class", "dataclass"],
)
def test_a_rule_sets_its_momentum_as_it_sets_anything_else(rule, decay):
    run = dynamics.train(DATA, rule, 30)
    expected = dynamics.train(DATA, dynamics.NGD(0.3, momentum=0.9, decay=decay), 30)
    np.testing.assert_allclose(run.W, expected.W, atol=1e-10)
    assert run.momentum.tolist() == [0.9, 0.9]


def test_a_field_without_a_default_has_to_be_given():
    with pytest.raises(TypeError, match="'decay' and 'step_size'"):
        Fields(0.9)


@pytest.mark.parametrize(
    "momentum, kind, words",
    [
        (1.0, ValueError, r"momentum = 1.0; it must be in \[0, 1\)"),
        ("0.9", TypeError, "momentum = '0.9'; it must be a number"),
    ],
)
def test_the_settings_of_a_plain_rule_are_checked_before_training(
    momentum, kind, words
):
    with pytest.raises(kind, match=words):
        dynamics.train(DATA, Plain(momentum), 3)


def test_rules_of_a_plain_class_differ_by_what_they_set():
    assert Plain(0.1) != Plain(0.2)
    assert Fields(0.1, 0.0, 1.0) == Fields(0.1, 0.0, 1.0)


class AdamAlong(dynamics.Adam):
    def log_step(self, t, log_gap, log_norm):
        return np.log(0.3) - log_norm


class MirrorAlong(dynamics.MirrorDescent):
    def log_step(self, t, log_gap, log_norm):
        return np.log(0.3) - log_norm


@pytest.mark.parametrize("kind, setting", [(AdamAlong, 0.1), (MirrorAlong, 3.0)])
def test_a_step_size_that_a_compiled_rule_would_not_use_is_refused(kind, setting):
    with pytest.raises(TypeError, match=f"{kind.__name__} defines log_step.*lib.Rule"):
        kind(setting)
