"""Tests of how a change of the problem changes what every rule does.

A failure means that a rule depends on an axis, an order or a copy.
"""

from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.dynamics.in_coordinates import factored

DATA = attention.unit_tokens([0], n=4, T=3, d=4)
START = np.random.default_rng(0).standard_normal((1, 4, 4))
STEPS = 15
ETA = 0.05


def by_dynamics(make):
    def end(data, W, scale):
        history = dynamics.train(data, make(scale * ETA), STEPS, [STEPS], W)
        # Nothing lies outside
        return attention.minimal(data).expand(history.weights(0))

    return end


def by_engine(make, steps=STEPS):
    return lambda data, W, scale: dynamics.train(
        data, make(scale * ETA), steps, [steps], W
    ).W[0]


def by_mirror(data, W, scale):
    rule = dynamics.MirrorDescent(3, scale * ETA)
    return dynamics.train(data, rule, STEPS, [STEPS], W, loss="logistic").W[0]


def by_svm(norm):
    return lambda data, W, scale: svm.token_svm(data, norm=norm).W


RULES = {  # name: W at the end, (1, d, d_z), of data, start and a factor of the step size
    "GD": by_dynamics(dynamics.GD),
    "NGD": by_dynamics(dynamics.NGD),
    "Polyak": by_dynamics(lambda eta: dynamics.Polyak()),
    "steepest": by_engine(lambda eta: dynamics.SteepestDescent(2, eta)),
    "Muon": by_engine(lambda eta: dynamics.Muon(eta, nesterov=True, newton_schulz=5)),
    "Shampoo": by_engine(lambda eta: dynamics.Shampoo(eta, memory=0.9)),
    # the inverse root of its sum enlarges rounding, in 15 steps from 1e-16 to 1e-7
    "full AdaGrad": by_engine(dynamics.FullAdaGrad, 3),
    "natural": by_engine(
        lambda eta: dynamics.NaturalGradient(eta, damping=0.1, relative=True)
    ),
    "rescaled": by_engine(
        lambda eta: dynamics.SteepestDescent(
            2, eta, radius=40 * eta, growth=1.5, every=4
        )
    ),
    "nuclear": by_engine(lambda eta: dynamics.SteepestDescent("nuclear", eta), 5),
    "sign": by_engine(lambda eta: dynamics.SteepestDescent(np.inf, eta)),
    "l_3": by_engine(lambda eta: dynamics.SteepestDescent(3, eta)),
    "Adam": by_engine(dynamics.Adam),
    "mirror": by_mirror,
    "blocks": by_engine(
        lambda eta: dynamics.SteepestDescent("spectral", eta, blocks=2)
    ),
    "batches": by_engine(lambda eta: dynamics.SteepestDescent(2, eta, batch_size=1)),
    "SVM": by_svm("frobenius"),
    "SVM in l_1.5": by_svm(1.5),
}
SOLVERS = {"SVM", "SVM in l_1.5"}
# rules that see coordinates
COORDINATES = {
    "sign",
    "l_3",
    "Adam",
    "mirror",
    "blocks",
    "SVM in l_1.5",
}


def turned(P, Q):
    return replace(DATA, X=DATA.X @ P.T, u=DATA.u @ P.T, z=DATA.z @ Q.T)


def orthogonal(seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]


def of_samples(order):
    parts = {name: getattr(DATA, name)[:, order] for name in ("X", "y", "z", "opt")}
    return replace(DATA, **parts)


def of_tokens(order):
    places = [order.index(k) for k in range(DATA.shape[2])]
    return replace(DATA, X=DATA.X[:, :, order], opt=np.array(places)[DATA.opt])


P = orthogonal(1)
Q = orthogonal(2)
# Moves rows between the two blocks
FLIPS = np.eye(4)[[2, 0, 3, 1]] * np.array([1, -1, -1, 1.0])
EYE = np.eye(4)
# for each change: the data, (left, right, factor) of W, and the rules that must see it
RELATIONS = {
    "rotation": (turned(P, Q), (P, Q, 1), COORDINATES),
    "axes renamed and turned round": (turned(FLIPS, FLIPS), (FLIPS, FLIPS, 1), {"blocks"}),
    "order of tokens": (of_tokens([2, 0, 1]), (EYE, EYE, 1), set()),
    "order of samples": (of_samples([3, 1, 0, 2]), (EYE, EYE, 1), {"batches"}),
    "every sample twice": (of_samples([0, 0, 1, 1, 2, 2, 3, 3]), (EYE, EYE, 1), {"batches"}),
    "every token twice": (of_tokens([0, 1, 2, 0, 1, 2]), (EYE, EYE, 1), SOLVERS),
    "queries of twice the length": (
        replace(DATA, z=2 * DATA.z), (EYE, EYE, 0.5), {"GD", "natural", "mirror"},
    ),
    "labels and head": (replace(DATA, y=-DATA.y, u=-DATA.u), (EYE, EYE, 1), set()),
    "labels alone": (replace(DATA, y=-DATA.y), (EYE, EYE, 1), RULES.keys() - SOLVERS),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain():
    return {name: end(DATA, START, 1) for name, end in RULES.items()}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_turns_with_the_problem_or_sees_the_change(plain, rule, relation):
    data, (left, right, factor), seen_by = RELATIONS[relation]
    expected = factor * left @ plain[rule] @ right.T
    try:
        found = RULES[rule](data, factor * left @ START @ right.T, factor)
    except svm.Infeasible:  # a token and its copy
        found = np.full_like(expected, np.inf)
    apart = np.abs(found - expected).max()
    assert apart > 1e-3 if rule in seen_by else apart < 1e-8


@pytest.mark.parametrize(
    ("norm", "sees_rotation"),
    [("frobenius", False), ("spectral", False), (np.inf, True)],
)
def test_the_gauge_of_keys_and_queries_is_orthogonal(norm, sees_rotation):
    """K C and Q C^-T have the same product. A run only keeps this if C is
    orthogonal.
    """
    K, Q_0 = factored.small_start(DATA, [0], 3, size=0.3)
    rule = {"": dynamics.SteepestDescent(norm, 0.05, decay=0.5)}

    def end(data, K, Q):
        return factored.train(data, rule, K, Q, [40])[""].W[:, 0]

    W = end(DATA, K, Q_0)
    C = orthogonal(3)[:3, :3]
    C = np.linalg.qr(C)[0]

    def apart(found, left=EYE, right=EYE):
        return np.abs(found - left @ W @ right.T).max()

    assert (apart(end(DATA, K @ C, Q_0 @ C)) > 1e-3) == sees_rotation
    assert (apart(end(turned(P, Q), P @ K, Q @ Q_0), P, Q) > 1e-3) == sees_rotation
    assert apart(end(turned(FLIPS, FLIPS), FLIPS @ K, FLIPS @ Q_0), FLIPS, FLIPS) < 1e-7
    assert apart(end(DATA, 2 * K, Q_0 / 2)) > 1e-3  # the same product, another run
    if not sees_rotation:
        assert apart(end(DATA, K @ C, Q_0 @ C)) < 1e-7
