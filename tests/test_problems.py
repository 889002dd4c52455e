"""Tests of every solver and rule on problems with a known answer."""

import numpy as np
import pytest

from lib import attention, dynamics, svm
from tests.problems import PROBLEMS, SOLVABLE, TRAINABLE, UNSOLVABLE

NORMS = [
    "frobenius",
    1,
    1.5,
    3,
    np.inf,
    "nuclear",
    "spectral",
    svm.Blocks("spectral", 1),
]


def by_dynamics(make):
    """Return W after 2,000 steps of a rule that only sees the gradient's norm."""

    def end(data, eta):
        space = attention.minimal(data)
        history = dynamics.train(space, make(eta), 2000, [2000])
        return space.expand(history.weights(0))[0]

    return end


RULES = {  # those whose direction turns like 1/t; gradient descent's turns like 1/log t
    "NGD": by_dynamics(dynamics.NGD),
    "momentum": by_dynamics(lambda eta: dynamics.NGD(eta / 2, momentum=0.5)),
    "Polyak": by_dynamics(lambda eta: dynamics.Polyak()),
    "steepest": lambda data, eta: dynamics.train(
        data, dynamics.SteepestDescent(2, eta), 2000
    ).W[0, -1],
    "mirror, p = 2": lambda data, eta: dynamics.train(
        data, dynamics.MirrorDescent(2, eta), 2000, loss="logistic"
    ).W[0, -1],
}


@pytest.mark.parametrize("name", SOLVABLE)
@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_every_solver_knows_the_answer(norm, name):
    data, W, _ = PROBLEMS[name]
    found = svm.token_svm(data, norm=norm)
    assert found.violation[0] <= found.accuracy
    # no other W with these margins is smaller; in the Frobenius norm W is the only one
    assert found.norm[0] <= svm.norm_of(W, norm) * (1 + 1e-6)
    if norm == "frobenius":
        np.testing.assert_allclose(found.W[0], W, rtol=0, atol=1e-8 * np.abs(W).max())


@pytest.mark.parametrize("name", UNSOLVABLE)
@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_every_solver_refuses_what_has_no_answer(norm, name):
    with pytest.raises(svm.Infeasible):
        svm.token_svm(PROBLEMS[name].tokens, norm=norm)


@pytest.mark.parametrize("name", TRAINABLE)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_turns_to_the_answer(rule, name):
    data, W, error = PROBLEMS[name]
    size = np.linalg.norm(W)
    found = RULES[rule](data, 0.05 * size)
    apart = found / np.linalg.norm(found) - W / size
    assert np.linalg.norm(apart) <= error
