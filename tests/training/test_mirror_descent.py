"""Mirror descent on networks against the rule written out in numpy."""

import copy

import numpy as np
import pytest
import torch

from lib import mirror
from lib.attention import tokens
from lib.training import mirror_descent
from lib.training.mirror_descent import MirrorDescent

SHAPES = ((3, 4), (5,), (1, 2, 2))


def parameters(seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return [
        torch.nn.Parameter(torch.tensor(rng.standard_normal(shape), dtype=dtype))
        for shape in SHAPES
    ]


def set_gradients(members, seed):
    rng = np.random.default_rng(seed)
    for parameter in members:
        parameter.grad = torch.tensor(rng.standard_normal(parameter.shape), dtype=parameter.dtype)


def flat(tensors):
    return np.concatenate([t.detach().double().numpy().ravel() for t in tensors])


def plain_step(theta, gradient, lr, p, normalize):
    """Paper C's rule, straight from its formula: |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g."""
    if normalize:
        q = p / (p - 1)
        gradient = gradient / (np.sum(np.abs(gradient) ** q) ** (1 / q) + np.finfo(float).eps)
    U = np.sign(theta) * np.abs(theta) ** (p - 1) - lr * gradient
    return np.sign(U) * np.abs(U) ** (1 / (p - 1))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("p", [1.1, 1.75, 2, 2.5, 3, 6])
def test_equals_the_rule_in_numpy(p, normalize):
    members = parameters()
    optimizer = MirrorDescent(members, 0.05, p, normalize=normalize)
    expected = flat(members)
    for k in range(5):
        set_gradients(members, k)
        expected = plain_step(expected, flat([m.grad for m in members]), 0.05, p, normalize)
        optimizer.step()
        np.testing.assert_allclose(flat(members), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("p", [1.3, 2, 3])
def test_trains_an_attention_layer_as_the_exact_rule_does(p, normalize):
    data = tokens.unit_tokens(0, n=4, T=5, d=6)
    start = mirror.gaussian_start(data, [0])
    rule = mirror.MirrorRule(p, 0.1, normalize)
    expected = mirror.train(data, rule, 30, start, record=[1, 10, 30], loss="exponential").W[0]
    X, y, z, u = (torch.tensor(a[0]) for a in (data.X, data.y, data.z, data.u))
    W = torch.nn.Parameter(torch.tensor(start[0]))
    optimizer = MirrorDescent([W], 0.1, p, normalize=normalize)
    found = {}
    for k in range(1, 31):
        optimizer.zero_grad()
        weights = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), -1)
        torch.exp(-y * torch.einsum("nt,ntd,d->n", weights, X, u)).mean().backward()
        optimizer.step()
        found[k] = W.detach().numpy().copy()
    for k, exact in zip((1, 10, 30), expected, strict=True):
        np.testing.assert_allclose(found[k], exact, rtol=1e-9, atol=1e-12)


def test_a_gradient_as_small_as_epsilon_is_halved_by_it():
    """‖g‖_q = ε makes g / (‖g‖_q + ε) half as long; without ε every direction has length 1."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = MirrorDescent([weight], 1.0, 2, normalize=True)
    weight.grad = torch.full_like(weight, np.finfo(float).eps)
    optimizer.step()
    assert weight.item() == pytest.approx(-0.5, rel=1e-12)


def test_weights_in_half_precision_are_mirrored_in_single():
    """A thousand steps of 2^-12 move the mirrored 1; bfloat16 alone would lose each of them."""
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = MirrorDescent([weight], 2.0**-12, 3)
    for _ in range(1024):
        weight.grad = torch.full_like(weight, -1.0)
        optimizer.step()
    assert optimizer.state[weight]["mirror"].dtype == torch.float32
    assert weight.item() == pytest.approx(1.25**0.5, rel=2.0**-8)


def test_two_is_sgd_to_the_bit():
    ours, theirs = parameters(), parameters()
    first, second = MirrorDescent(ours, 0.1, 2), torch.optim.SGD(theirs, 0.1)
    for k in range(3):
        set_gradients(ours, k)
        set_gradients(theirs, k)
        first.step()
        second.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not first.state


def test_every_group_has_its_own_p_rate_and_norm():
    members = parameters()
    groups = [
        {"params": members[:1], "p": 3, "normalize": True},
        {"params": members[1:], "lr": 0.2},
    ]
    optimizer = MirrorDescent(groups, 0.1, 1.5)
    set_gradients(members, 7)
    parts = [(members[:1], 0.1, 3, True), (members[1:], 0.2, 1.5, False)]
    expected = [
        plain_step(flat(part), flat([m.grad for m in part]), lr, p, normalize)
        for part, lr, p, normalize in parts
    ]
    optimizer.step()
    np.testing.assert_allclose(flat(members), np.concatenate(expected), rtol=1e-10)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e25])
def test_dual_norm_neither_vanishes_nor_overflows(size):
    gradients = [torch.full((10,), size), torch.full((3, 2), -size)]
    assert float(mirror_descent.dual_norm(gradients, 1.1)) == pytest.approx(
        size * 16 ** (1 / 11), rel=1e-6
    )
    assert float(mirror_descent.dual_norm([torch.zeros(3)], 1.1)) == 0
    assert float(mirror_descent.dual_norm([], 3)) == 0


def test_zero_weight_below_two_collects_its_gradients():
    """One move (1e-5)^10 = 1e-50 is nothing in float32; the mirrored weight adds up a thousand."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = MirrorDescent([weight], 1e-5, 1.1)
    for _ in range(1000):
        weight.grad = torch.tensor([-1.0, 0.0])
        optimizer.step()
    assert weight.tolist() == [pytest.approx(0.01**10, rel=1e-3), 0]


def test_zero_weight_above_two_moves_by_the_root_and_stays_finite():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = MirrorDescent([weight], 1e-4, 3)
    weight.grad = torch.tensor([1.0, -4.0, 0.0])
    optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), [-0.01, 0.02, 0], rtol=1e-6)


def test_weights_changed_from_outside_are_mirrored_afresh():
    members = parameters()
    optimizer = MirrorDescent(members, 0.05, 3)
    set_gradients(members, 0)
    optimizer.step()
    with torch.no_grad():
        members[0].fill_(0.25)
    expected = plain_step(flat(members), flat([m.grad for m in members]), 0.05, 3, False)
    optimizer.step()
    np.testing.assert_allclose(flat(members), expected, rtol=1e-10)


@pytest.mark.parametrize("model_first", [True, False])
def test_a_loaded_state_goes_on_to_the_bit(model_first):
    members = parameters(dtype=torch.float32)
    optimizer = MirrorDescent(members, 0.01, 1.1)
    with torch.no_grad():
        members[1].zero_()  # where only the state remembers what has come so far
    set_gradients(members, 0)
    optimizer.step()
    state, weights = copy.deepcopy(optimizer.state_dict()), [m.detach().clone() for m in members]
    again = parameters(seed=9, dtype=torch.float32)
    other = MirrorDescent(again, 0.01, 1.1)

    def load_weights():
        with torch.no_grad():
            for parameter, weight in zip(again, weights, strict=True):
                parameter.copy_(weight)

    for load in (load_weights, lambda: other.load_state_dict(state))[:: 1 if model_first else -1]:
        load()
    for chosen, rule in ((members, optimizer), (again, other)):
        set_gradients(chosen, 1)
        rule.step()
    assert all(torch.equal(a, b) for a, b in zip(members, again, strict=True))


def test_closure_and_parameters_without_gradient():
    members = parameters()
    before = members[2].detach().clone()
    optimizer = MirrorDescent(members, 0.1, 1.5)

    def closure():
        optimizer.zero_grad()
        loss = (members[0] ** 2).sum() + (members[1] ** 2).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first
    assert torch.equal(members[2], before)


@pytest.mark.parametrize("p", [1, 0.5, float("inf"), float("nan")])
def test_bad_p(p):
    with pytest.raises(ValueError, match="p must be above 1 and finite"):
        MirrorDescent(parameters(), 0.1, p)
    with pytest.raises(ValueError, match="p must be above 1 and finite"):
        MirrorDescent([{"params": parameters(), "p": p}], 0.1, 2)


@pytest.mark.parametrize("lr", [0, -1, float("inf"), float("nan")])
def test_bad_rate(lr):
    with pytest.raises(ValueError, match="lr must be above 0 and finite"):
        MirrorDescent(parameters(), lr, 2)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = MirrorDescent(table.parameters(), 0.1, 3)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        optimizer.step()
