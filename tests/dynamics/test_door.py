"""Tests that all rules have one entry point.

A failure means that a rule is trained by another engine's arithmetic, or silently with
another head, loss or start than requested.
"""

import copy
import math
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.dynamics import History
from lib.dynamics.in_coordinates import factored

DATA = attention.unit_tokens([0, 1], n=3, T=4, d=5)
START = np.random.default_rng(0).standard_normal((2, 5, 5))
SEES_COORDINATES = [
    dynamics.MirrorDescent(3.0),
    dynamics.MirrorDescent(1.5, 0.2, normalised=False, batch_size=2),
    dynamics.SteepestDescent("spectral", 0.1, blocks=5, weight_decay=0.5),
    dynamics.SteepestDescent(math.inf, 0.1),
    dynamics.SteepestDescent(2, 0.1, radius=1.0, growth=2.0, every=3),
    dynamics.SteepestDescent(np.float64(3.0), np.float64(0.1), decay=-0.5),
    dynamics.SignDescent(0.1, batch_size=1, variance_reduced=True),
    dynamics.Adam(0.1, epsilon=1e-8, memory=0.9),
    dynamics.RMSprop(0.1),
    dynamics.AdaGrad(0.1),
    dynamics.FullAdaGrad(0.1),
    dynamics.Signum(0.1),
    dynamics.Lion(0.1),
    dynamics.OLion(0.1),
    dynamics.Muon(0.1, nesterov=True),
    dynamics.Shampoo(0.1, memory=0.5),
    dynamics.SOAP(0.1),
    dynamics.NaturalGradient(0.1, damping=0.1),
]


@dataclass(frozen=True, repr=False)
class Momentum(dynamics.Rule):
    """Heavy-ball descent as a reader would write it."""

    step_size: float

    def direction(self, gradient, state):
        state["m"] = 0.9 * state.get("m", 0.0) + self.step_size * gradient
        return -state["m"]


@pytest.mark.parametrize("rule", SEES_COORDINATES, ids=repr)
def test_a_rule_is_written_as_it_is_made(rule):
    assert eval(repr(rule), vars(dynamics)) == rule
    assert pickle.loads(pickle.dumps(rule)) == rule and hash(rule) == hash(rule)
    assert rule.formula


@pytest.mark.parametrize("head", ["fixed", "joint"])
def test_a_mapping_of_all_kinds_is_each_rule_alone(head):
    rules = {"GD": dynamics.GD(0.5), "l_3": dynamics.MirrorDescent(3.0)}
    if head == "fixed":
        rules |= {"Adam": dynamics.Adam(0.1), "mine": Momentum(0.1)}
    steps = {name: 10 * (k + 1) for k, name in enumerate(rules)}
    together = dynamics.train(DATA, rules, steps, [0, 10, 20, 40], head=head)
    assert list(together) == list(rules)
    for name, rule in rules.items():
        record = [t for t in (0, 10, 20, 40) if t <= steps[name]]
        alone = dynamics.train(DATA, rule, steps[name], record, head=head)
        assert alone.iterations.tolist() == together[name].iterations.tolist()
        np.testing.assert_array_equal(alone.W, together[name].W)
        np.testing.assert_array_equal(alone.u, together[name].u)


# one rule sees coordinates but does not use them, the other follows the gradient
PAIRS = {
    "mirror descent": (
        dynamics.MirrorDescent(2.0, 0.5, normalised=False),
        dynamics.GD(0.5),
    ),
    "normalised mirror descent": (dynamics.MirrorDescent(2.0, 0.1), dynamics.NGD(0.1)),
    "steepest descent": (dynamics.SteepestDescent(2, 0.1), dynamics.NGD(0.1)),
    "a reader's own": (Momentum(0.5), dynamics.GD(0.5, momentum=0.9)),
}


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("name", PAIRS)
def test_all_engines_measure_the_same_quantities(name, loss):
    targets = {"W_mm": svm.token_svm(DATA)}
    by_coordinates, along = (
        dynamics.train(DATA, rule, 40, start=START, targets=targets, loss=loss)
        for rule in PAIRS[name]
    )
    assert (by_coordinates.coordinates, along.coordinates) == ("tokens", "minimal")
    for field in ("margins", "log_miss", "score_gaps", "log_gap", "log_gradient"):
        found, expected = (getattr(one, field) for one in (by_coordinates, along))
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(by_coordinates.norm, along.norm, rtol=1e-10)
    for field in ("direction_error", "alignment", "descent"):
        found, expected = (
            getattr(one, field)["W_mm"] for one in (by_coordinates, along)
        )
        np.testing.assert_allclose(found, expected, atol=1e-8)
    inside = attention.minimal(DATA).expand(along.weights(-1))
    moved = by_coordinates.weights(-1) - START
    outside = START - attention.minimal(DATA).expand(
        attention.minimal(DATA).reduce(START)[0]
    )
    np.testing.assert_allclose(moved, inside + outside - START, atol=1e-8)


def test_the_head_is_measured_in_joint_mirror_descent():
    targets = {"u_mm": svm.head_svm(DATA)}
    more = dict(head="joint", head_targets=targets)
    mirror, along = (
        dynamics.train(DATA, rule, 30, **more)
        for rule in (dynamics.MirrorDescent(2.0), dynamics.NGD(0.1))
    )
    np.testing.assert_allclose(mirror.head_norm, along.head_norm, rtol=1e-9)
    for field in ("head_direction_error", "head_alignment"):
        found, expected = (getattr(one, field)["u_mm"] for one in (mirror, along))
        np.testing.assert_allclose(found, expected, atol=1e-8)
    np.testing.assert_allclose(mirror.score_gaps, along.score_gaps, atol=1e-9)
    np.testing.assert_allclose(mirror.own_head_norm, mirror.head_norm, rtol=1e-12)


def histories():
    rules = {"NGD": dynamics.NGD(0.1), "SOAP": dynamics.SOAP(0.1)}
    made = dynamics.train(DATA, rules, 20, targets={"V": svm.token_svm(DATA)})
    K, Q = factored.small_start(DATA, [0, 1], 3)
    made |= factored.train(DATA, {"K, Q": dynamics.Adam(0.1)}, K, Q, [5, 20])
    joint = {"l_3": dynamics.MirrorDescent(3.0)}
    return made | dynamics.train(DATA, joint, 20, head="joint")


def test_every_history_leaves_its_process(tmp_path):
    for history in histories().values():
        history.save(tmp_path / "run.npz")
        read = History.load(tmp_path / "run.npz")
        for other in (
            read,
            copy.deepcopy(history),
            pickle.loads(pickle.dumps(history)),
        ):
            assert repr(other) == repr(history)
            np.testing.assert_array_equal(other.W, history.W)
            np.testing.assert_array_equal(other.u, history.u)
            assert other.to_dataframe().equals(history.to_dataframe())
            for name, moment in history.moments.items():
                np.testing.assert_array_equal(other.moments[name], moment)


def test_a_divergence_is_refused_in_minimal_coordinates():
    history = dynamics.train(DATA, dynamics.NGD(0.1), 5)
    with pytest.raises(ValueError, match="minimal coordinates"):
        history.divergence(START, 3.0)
    history = dynamics.train(DATA, dynamics.MirrorDescent(3.0), 5)
    with pytest.raises(ValueError, match="target has shape"):
        history.divergence(START[:1], 3.0)


def test_a_rule_of_a_readers_own_ends_as_others_do():
    wild = dynamics.train(DATA, Momentum(1e300), 50, start=START)
    assert (wild.status == "diverged").all() and (wild.ended < 50).all()
    assert np.isfinite(wild.W[:, 0]).all() and np.isnan(wild.W[:, -1]).all()
    # float64 has no gradient if the opt tokens lead by thousands
    far = 1e4 * svm.token_svm(DATA).W
    still = dynamics.train(DATA, Momentum(0.1), 50, start=far)
    assert (still.status == "stalled").all() and (still.ended == 0).all()
    assert np.isfinite(still.log_gap[:, 0]).all()


@dataclass(frozen=True, repr=False)
class Flat(dynamics.Rule):
    def direction(self, gradient, state):
        return gradient.reshape(len(gradient), -1)


@dataclass(frozen=True, repr=False)
class Both(Momentum):
    def log_step(self, t, log_gap, log_norm):
        return 0.0 * log_gap


ADAM = dynamics.Adam(0.1)
PROBLEM = attention.minimal(DATA)
REFUSED = {  # what the message must name
    'head = "joint", but Adam': lambda: dynamics.train(DATA, ADAM, 5, head="joint"),
    'head = "joint", but Momentum': lambda: dynamics.train(
        DATA, Momentum(0.1), 5, head="joint"
    ),
    'head = "joint", but MirrorDescent': lambda: dynamics.train(
        DATA, dynamics.MirrorDescent(3.0, batch_size=1), 5, head="joint"
    ),
    "tokens is a Minimal": lambda: dynamics.train(PROBLEM, ADAM, 5),
    "start is a Start": lambda: dynamics.train(
        DATA, ADAM, 5, start=dynamics.zero_start(PROBLEM)
    ),
    "for Adam.*, not 'sigmoid'": lambda: dynamics.train(DATA, ADAM, 5, loss="sigmoid"),
    "for MirrorDescent.*, not 'sigmoid'": lambda: dynamics.train(
        DATA, dynamics.MirrorDescent(3.0), 5, loss="sigmoid"
    ),
    "rule 'a': batch_size = 4; there are 3": lambda: dynamics.train(
        DATA, {"a": replace(ADAM, batch_size=4)}, 5
    ),
    "steps has no rule 'b'": lambda: dynamics.train(DATA, {"b": ADAM}, {"a": 5}),
    "single rule needs one number": lambda: dynamics.train(DATA, ADAM, {"a": 5}),
    **{
        message: lambda steps=steps, record=record: dynamics.train(
            DATA, {"b": ADAM}, {"b": steps}, record
        )
        for message, steps, record in (
            (r"steps\['b'\] = '5'; it must be a whole number", "5", [0, 5]),
            (r"steps\['b'\] = 5.5; it must be a whole number", 5.5, [0, 5]),
            (r"steps\['b'\] = -1; it must be a whole number", -1, [0, 5]),
            ("record must list whole numbers, .* in 0 ... 5", 5, [10, 20]),
            ("record must list whole numbers, .* in 0, 1, 2, ...", 5, ["a"]),
            ("record must list whole numbers, .* in 0, 1, 2", 5, [0, np.nan]),
            ("record must list whole numbers, .*0, 1, 2", 5, []),
            ("record must ascend within 0, 1, 2", 5, [3, 2]),
        )
    },
    r"returned shape \(2, 25\)": lambda: dynamics.train(DATA, Flat(), 5),
    "record must list whole numbers": lambda: factored.train(DATA, SIGN, K, Q, []),
    "m = 2.5; it must be a whole": lambda: factored.small_start(DATA, [0, 1], 2.5),
    "momentum = 1": lambda: dynamics.Signum(0.1, momentum=1),
    "first_mix = -1": lambda: dynamics.Lion(0.1, first_mix=-1),
    "newton_schulz = 1.5": lambda: dynamics.Muon(0.1, newton_schulz=1.5),
    "weight_decay = 0.5 with decay = -1": lambda: dynamics.Adam(
        0.1, weight_decay=0.5, decay=-1
    ),
    "batch_size = -1": lambda: dynamics.MirrorDescent(3.0, batch_size=-1),
    "target 'V' has shape": lambda: dynamics.train(
        DATA, ADAM, 5, targets={"V": START[:1]}
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_an_engine_does_not_take_is_refused_by_name(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


K, Q = factored.small_start(DATA, [0, 1], 2)
SIGN = {"a": dynamics.SignDescent(0.1)}
WRONG_TYPES = {
    "rule 'a' = GD.* such as lib.Adam": lambda: factored.train(
        DATA, {"a": dynamics.GD(0.1)}, K, Q, [1]
    ),
    "rules = SignDescent.*; it must be a dict": lambda: factored.train(
        DATA, SIGN["a"], K, Q, [1]
    ),
    "tokens = Minimal; it must be a TokenSet": lambda: factored.train(
        PROBLEM, SIGN, K, Q, [1]
    ),
    "K is str": lambda: factored.train(DATA, SIGN, "K", Q, [1]),
    "step_size = '1'": lambda: dynamics.Adam("1"),
    "joint = 'no'; it must be True or False": lambda: dynamics.NGD(0.1, joint="no"),
    "logarithmic = None": lambda: dynamics.Custom(abs, logarithmic=None),
    "normalised = 'no'": lambda: dynamics.MirrorDescent(3.0, normalised="no"),
    "normalised = 1": lambda: dynamics.SteepestDescent(2, 0.1, normalised=1),
    "nesterov = 'no'": lambda: dynamics.Muon(0.1, nesterov="no"),
    "variance_reduced = 'no'": lambda: dynamics.Adam(
        0.1, batch_size=1, variance_reduced="no"
    ),
    "rules holds": lambda: dynamics.train(DATA, {"a": dynamics.Adam}, 5),
    "defines both": lambda: Both(0.1),
    "neither": lambda: dynamics.Rule(),
}


@pytest.mark.parametrize("message", WRONG_TYPES)
def test_what_is_no_rule_is_refused(message):
    with pytest.raises(TypeError, match=message):
        WRONG_TYPES[message]()


def test_factors_may_come_as_lists():
    found, expected = (
        factored.train(DATA, SIGN, start[0], start[1], [5])["a"]
        for start in ((K.tolist(), Q.tolist()), (K, Q))
    )
    np.testing.assert_array_equal(found.W, expected.W)


def test_a_readers_rule_trains_with_every_loss():
    for loss in attention.LOSSES:
        run = dynamics.train(DATA, Momentum(0.1), 20, loss=loss)
        assert (run.status == "completed").all()
        assert (np.diff(run.log_gap) < 0).all()
