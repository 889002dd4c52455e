"""Every engine with every loss, against autograd: it trains with that loss, or refuses it."""

import numpy as np
import pytest
import torch

from lib import attention, dynamics, mirror
from lib.attention import tokens
from papers.beyond.engine import factored, optimisers, training

DATA = tokens.unit_tokens([0], n=4, T=3, d=4)
START = np.random.default_rng(0).standard_normal((1, 4, 4))
FACTORS = np.random.default_rng(1).standard_normal((2, 1, 4, 2))
ETA, STEPS = 0.7, 6
BY_HAND = {
    "exponential": lambda f: torch.exp(-f),
    "logistic": lambda f: torch.log(1 + torch.exp(-f)),
    "sigmoid": lambda f: 1 / (1 + torch.exp(f)),
    "reciprocal": lambda f: torch.where(f >= 0, 1 / (1 + f.abs()), 1 - f),
}


def descended(loss, trained):
    """Gradient descent by autograd from arrays "W", "u" or "K" and "Q"; what they become."""
    X, z, y = (torch.from_numpy(a[0]) for a in (DATA.X, DATA.z, DATA.y))
    given = {name: torch.tensor(a, requires_grad=True) for name, a in trained.items()}
    u = given.get("u", torch.from_numpy(DATA.u[0]))
    for _ in range(STEPS):
        W = given["W"] if "W" in given else given["K"] @ given["Q"].T
        p = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), -1)
        f = y * torch.einsum("nt,ntd,d->n", p, X, u)
        BY_HAND[loss](f).mean().backward()
        with torch.no_grad():
            for value in given.values():
                value -= ETA * value.grad
                value.grad = None
    return [value.detach().numpy() for value in given.values()]


def by_dynamics(loss):
    space = attention.minimal(DATA)  # of the same size: nothing is outside
    history = dynamics.train(DATA, dynamics.gd(ETA), STEPS, [STEPS], START, loss=loss)
    return [space.expand(history.weights(0))[0]], {"W": START[0]}


def by_dynamics_joint(loss):
    space, rule = attention.minimal(DATA), dynamics.gd(ETA)
    history = dynamics.train(DATA, rule, STEPS, [STEPS], START, head="joint", loss=loss)
    u = space.token_basis[0] @ history.head(0)[0]
    return [space.expand(history.weights(0))[0], u], {"W": START[0], "u": DATA.u[0]}


def by_optimisers(loss):
    rule = optimisers.steepest(2, ETA, normalised=False)
    return [training.train(DATA, rule, STEPS, START, [STEPS], loss).W[0, 0]], {"W": START[0]}


def by_factors(loss):
    rule, (K, Q) = optimisers.steepest(2, ETA, normalised=False), FACTORS
    path = factored.train(DATA, {"GD": rule}, K, Q, [STEPS], loss)["GD"]
    return [path.K[0, 0], path.Q[0, 0]], {"K": K[0], "Q": Q[0]}


def by_mirror(loss):
    rule = mirror.MirrorRule(2, ETA, normalised=False)
    path = mirror.train(DATA, rule, STEPS, START, "joint", [STEPS], loss)
    return [path.W[0, 0], path.v[0, 0]], {"W": START[0], "u": DATA.u[0]}


EVERY = by_dynamics, by_dynamics_joint
COMPILED = by_optimisers, by_factors, by_mirror


@pytest.mark.parametrize("loss", BY_HAND)
@pytest.mark.parametrize("engine", [*EVERY, *COMPILED])
def test_every_engine_trains_with_the_loss_it_is_given_or_refuses_it(engine, loss):
    assert set(BY_HAND) == set(attention.LOSSES)
    if engine in COMPILED and loss not in attention.COMPILED_LOSSES:
        with pytest.raises(ValueError, match="loss must be one of"):
            engine(loss)
        return
    found, start = engine(loss)
    for value, expected, before in zip(found, descended(loss, start), start.values(), strict=True):
        assert np.abs(expected - before).max() > 0.01
        np.testing.assert_allclose(value, expected, atol=1e-12)


@pytest.mark.parametrize("engine", [*EVERY, *COMPILED])
@pytest.mark.parametrize("loss", ["Logistic", "hinge", ""])
def test_an_unknown_loss_is_refused(engine, loss):
    with pytest.raises(ValueError, match="loss must be one of"):
        engine(loss)
