"""The optimisers against their formulas, an independent oracle, an exact path, and bad input."""

import math

import numpy as np
import pytest
import torch

from lib import mirror
from lib.attention import tokens
from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-14}
PROBLEMS = {
    "quadratic": lambda x: 0.5 * (x[0] ** 2 + 10 * x[1] ** 2),
    "rosenbrock": lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2,
    "logistic": lambda x: (
        torch.nn.functional.softplus(-x[0]) + torch.nn.functional.softplus(-x[0] - x[1])
    ),
}
RULES = {
    "normalised": (lambda p: NormalizedSGD(p, lr=0.05), lambda f, g: 0.05 / g),
    "normalised, capped": (
        lambda p: NormalizedSGD(p, 0.05, 0.01),
        lambda f, g: min(0.05 / g, 0.01),
    ),
    "polyak": (lambda p: StochasticPolyak(p), lambda f, g: f / (2 * g * g)),
    "polyak, capped": (
        lambda p: StochasticPolyak(p, 0.02),
        lambda f, g: min(f / (2 * g * g), 0.02),
    ),
}


def closure_of(loss, parameters, optimizer):
    def closure():
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    return closure


def given(*gradients, loss=1.0):
    """Parameters of ones with these gradients, and a closure that leaves them as they are."""
    members = [torch.ones(len(g), requires_grad=True) for g in gradients]
    for parameter, gradient in zip(members, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return members, lambda: torch.tensor(loss)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("rule", RULES)
def test_each_step_equals_its_formula(rule, problem, dtype):
    make, formula = RULES[rule]
    x = torch.tensor([-0.7, 0.4], dtype=dtype, requires_grad=True)
    optimizer = make([x])
    for _ in range(5):
        before = x.detach().clone()
        loss = optimizer.step(closure_of(PROBLEMS[problem], x, optimizer))
        gradient, f = x.grad.double().numpy(), float(loss.detach())
        norm, close = np.linalg.norm(gradient), 10 * DTYPES[dtype]
        expected = formula(f, norm)
        assert float(optimizer.last_step_size) == pytest.approx(expected, rel=close)
        assert float(optimizer.last_gradient_norm) == pytest.approx(norm, rel=close)
        moved = before.double().numpy() - expected * gradient
        found = x.detach().double().numpy()
        np.testing.assert_allclose(found, moved, rtol=2 * close, atol=DTYPES[dtype])


@pytest.mark.parametrize("make", [lambda p: NormalizedSGD(p, lr=0.1), StochasticPolyak])
def test_zero_gradient_and_no_gradient_move_nothing(make):
    x, unused = torch.zeros(2, requires_grad=True), torch.tensor([7.0], requires_grad=True)
    optimizer = make([x, unused])
    optimizer.step(closure_of(PROBLEMS["quadratic"], x, optimizer))
    assert x.tolist() == [0.0, 0.0] and unused.item() == 7.0
    assert float(optimizer.last_step_size) == 0.0


@pytest.mark.parametrize("scale", [1e-12, 1e-25, 1e-36])
def test_tiny_float32_gradients_keep_their_direction(scale):
    (x,), closure = given([scale, 0.0])
    NormalizedSGD([x], lr=0.5).step(closure)
    assert x.tolist() == pytest.approx([0.5, 1.0], rel=1e-5)


@pytest.mark.parametrize(
    ("make", "loss"), [(lambda p: NormalizedSGD(p, 1.0), 1.0), (StochasticPolyak, 1e20)]
)
def test_a_step_stays_finite_where_the_gradient_is_least(make, loss):
    (x,), closure = given([1e-45, 0.0], loss=loss)
    optimizer = make([x])
    optimizer.step(closure)
    assert 1e38 < float(optimizer.last_step_size) < math.inf and x[1] == 1.0


def test_a_loss_below_zero_moves_nothing():
    (x,), closure = given([1.0, 2.0], loss=-1.0)
    StochasticPolyak([x]).step(closure)
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("make", [lambda p: NormalizedSGD(p, 0.1, 0.5), StochasticPolyak])
def test_no_value_leaves_the_device_in_a_step(make):
    """Tensors on the device "meta" have no values: what would wait on a GPU raises here."""
    parameters = [torch.zeros(s, device="meta", requires_grad=True) for s in ((300, 400), (7,))]
    optimizer = make(parameters)

    def closure():
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        return torch.zeros((), device="meta")

    for _ in range(2):
        optimizer.step(closure)
    assert optimizer.last_step_size.is_meta and optimizer.last_gradient_norm.is_meta


SHAPES = ((3, 4), (5,), (1, 2, 2))


def parameters(seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    drawn = (torch.tensor(rng.standard_normal(shape), dtype=dtype) for shape in SHAPES)
    return [torch.nn.Parameter(values) for values in drawn]


def set_gradients(members, seed):
    rng = np.random.default_rng(seed)
    for parameter in members:
        parameter.grad = torch.tensor(rng.standard_normal(parameter.shape), dtype=parameter.dtype)


def flat(tensors):
    return np.concatenate([t.detach().double().numpy().ravel() for t in tensors])


def plain_step(theta, gradient, lr, p):
    """Paper C's rule, straight from its formula: |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g."""
    U = np.sign(theta) * np.abs(theta) ** (p - 1) - lr * gradient
    return np.sign(U) * np.abs(U) ** (1 / (p - 1))


@pytest.mark.parametrize("p", [1.1, 1.75, 2, 2.5, 3, 6])
def test_mirror_descent_equals_the_rule_in_numpy(p):
    members = parameters()
    optimizer, expected = MirrorDescent(members, 0.05, p), flat(members)
    for k in range(5):
        set_gradients(members, k)
        expected = plain_step(expected, flat([m.grad for m in members]), 0.05, p)
        optimizer.step()
        np.testing.assert_allclose(flat(members), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("p", [1.3, 2, 3])
def test_it_trains_an_attention_layer_as_the_exact_rule_does(p):
    data = tokens.unit_tokens(0, n=4, T=5, d=6)
    start, rule = mirror.gaussian_start(data, [0]), mirror.MirrorRule(p, 0.1, False)
    (expected,) = mirror.train(data, rule, 30, start, record=[30], loss="exponential").W[0]
    X, y, z, u = (torch.tensor(a[0]) for a in (data.X, data.y, data.z, data.u))
    W = torch.nn.Parameter(torch.tensor(start[0]))
    optimizer = MirrorDescent([W], 0.1, p)
    for _ in range(30):
        optimizer.zero_grad()
        weights = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), -1)
        torch.exp(-y * torch.einsum("nt,ntd,d->n", weights, X, u)).mean().backward()
        optimizer.step()
    np.testing.assert_allclose(W.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_weights_in_half_precision_are_mirrored_in_single():
    """A thousand steps of 2^-12 move the mirrored 1; bfloat16 alone would lose each of them."""
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = MirrorDescent([weight], 2.0**-12, 3)
    for _ in range(1024):
        weight.grad = torch.full_like(weight, -1.0)
        optimizer.step()
    assert optimizer.state[weight]["mirror"].dtype == torch.float32
    assert weight.item() == pytest.approx(1.25**0.5, rel=2.0**-8)


def test_zero_weight_below_two_collects_its_gradients():
    """One move (1e-5)^10 = 1e-50 is nothing in float32; the mirrored weight adds up a thousand."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = MirrorDescent([weight], 1e-5, 1.1)
    for _ in range(1000):
        weight.grad = torch.tensor([-1.0, 0.0])
        optimizer.step()
    assert weight.tolist() == [pytest.approx(0.01**10, rel=1e-3), 0]


def test_weights_changed_from_outside_are_mirrored_afresh():
    members = parameters()
    optimizer = MirrorDescent(members, 0.05, 3)
    set_gradients(members, 0)
    optimizer.step()
    with torch.no_grad():
        members[0].fill_(0.25)
    expected = plain_step(flat(members), flat([m.grad for m in members]), 0.05, 3)
    optimizer.step()
    np.testing.assert_allclose(flat(members), expected, rtol=1e-10)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_rates(bad):
    weight = [torch.zeros(1, requires_grad=True)]
    for make in (lambda: NormalizedSGD(weight, bad), lambda: MirrorDescent(weight, bad, 2)):
        with pytest.raises(ValueError, match="lr must be above 0 and finite"):
            make()
    if not bad > 0:
        for make in (lambda: NormalizedSGD(weight, 1, bad), lambda: StochasticPolyak(weight, bad)):
            with pytest.raises(ValueError, match="max_step must be above 0, got"):
                make()
    with pytest.raises(ValueError, match="p must be above 1 and finite"):
        MirrorDescent(weight, 0.1, bad)
