"""Tests of optimisers against their formulas and a reference.

A failure means that another step is judged under the same name.
"""

import math

import numpy as np
import pytest
import torch

from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak, maker

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-14}
PROBLEMS = {
    "quadratic": lambda x: 0.5 * (x[0] ** 2 + 10 * x[1] ** 2),
    "rosenbrock": lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2,
}


def sngd(lr, cap=math.inf):
    return lambda p: NormalizedSGD(p, lr, cap)


RULES = {
    "normalised": (sngd(0.05), lambda f, g: 0.05 / g),
    "normalised, capped": (sngd(0.05, 0.01), lambda f, g: min(0.05 / g, 0.01)),
    "polyak": (StochasticPolyak, lambda f, g: f / (2 * g * g)),
    "polyak, capped": (
        lambda p: StochasticPolyak(p, 0.02),
        lambda f, g: min(f / 2 / g**2, 0.02),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("rule", RULES)
def test_each_step_equals_its_formula(rule, problem, dtype):
    make, formula = RULES[rule]
    x = torch.tensor([-0.7, 0.4], dtype=dtype, requires_grad=True)
    optimizer = make([x])

    def closure():
        optimizer.zero_grad()
        value = PROBLEMS[problem](x)
        value.backward()
        return value

    for _ in range(5):
        before = x.detach().clone()
        loss = optimizer.step(closure)
        gradient = x.grad.double().numpy()
        f = float(loss.detach())
        norm = np.linalg.norm(gradient)
        close = 10 * DTYPES[dtype]
        expected = formula(f, norm)
        assert float(optimizer.last_step_size) == pytest.approx(expected, rel=close)
        assert float(optimizer.last_gradient_norm) == pytest.approx(norm, rel=close)
        moved = before.double().numpy() - expected * gradient
        ends = x.detach().double().numpy()
        np.testing.assert_allclose(ends, moved, rtol=2 * close, atol=DTYPES[dtype])


@pytest.mark.parametrize(
    ("make", "gradient", "loss", "ends"),
    [
        *(
            (make, [0.0, 0.0], 1.0, [1.0, 1.0])
            for make in (sngd(0.1), StochasticPolyak)
        ),
        *((sngd(0.5), [tiny, 0.0], 1.0, [0.5, 1.0]) for tiny in (1e-12, 1e-25, 1e-36)),
        (StochasticPolyak, [1.0, 2.0], -1.0, [1.0, 1.0]),
    ],
)
def test_a_gradient_that_is_none_or_tiny_and_a_loss_below_zero(
    make, gradient, loss, ends
):
    x = torch.ones(2, requires_grad=True)
    unused = torch.tensor([7.0], requires_grad=True)
    x.grad = torch.tensor(gradient)
    optimizer = make([x, unused])
    optimizer.step(lambda: torch.tensor(loss))
    assert unused.item() == 7.0 and x[1] == 1.0
    assert x.tolist() == pytest.approx(ends, rel=1e-5)
    assert (float(optimizer.last_step_size) == 0) == (ends[0] == 1)


@pytest.mark.parametrize("make", [sngd(0.1, 0.5), StochasticPolyak])
def test_no_value_leaves_the_device_in_a_step(make):
    """Tensors on the device "meta" have no values, so that what would wait on a GPU
    raises here.
    """
    parameters = [
        torch.zeros(s, device="meta", requires_grad=True) for s in ((300, 400), (7,))
    ]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(2):
        optimizer.step(lambda: torch.zeros((), device="meta"))
    assert optimizer.last_step_size.is_meta and optimizer.last_gradient_norm.is_meta


def flat(tensors):
    return np.concatenate([t.detach().double().numpy().ravel() for t in tensors])


def plain_step(theta, gradient, lr, p):
    """Take a step of paper C's rule, |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g."""
    U = np.sign(theta) * np.abs(theta) ** (p - 1) - lr * gradient
    return np.sign(U) * np.abs(U) ** (1 / (p - 1))


@pytest.mark.parametrize("p", [1.1, 1.75, 2, 2.5, 3, 6])
def test_mirror_descent_equals_the_rule_in_numpy(p):
    rng = np.random.default_rng(0)

    def draw():
        return [torch.tensor(rng.standard_normal(s)) for s in ((3, 4), (5,), (1, 2, 2))]

    members = [torch.nn.Parameter(values) for values in draw()]
    optimizer = MirrorDescent(members, 0.05, p)
    for _ in range(5):
        gradients = draw()
        for member, gradient in zip(members, gradients, strict=True):
            member.grad = gradient
        expected = plain_step(flat(members), flat(gradients), 0.05, p)
        optimizer.step()
        np.testing.assert_allclose(flat(members), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("start", "how", "steps", "ends", "close"),
    [
        # A thousand steps of 2^-12 move the mirrored 1; bfloat16 alone would lose each
        # of them.
        (torch.ones(1, dtype=torch.bfloat16), (2.0**-12, 3), 1024, 1.25**0.5, 2.0**-8),
        # One move (1e-5)^10 = 1e-50 is nothing in float32; the mirrored weight adds up
        # a thousand.
        (torch.zeros(1), (1e-5, 1.1), 1000, 0.01**10, 1e-3),
    ],
)
def test_steps_too_small_for_the_weight_add_up_in_the_mirror(
    start, how, steps, ends, close
):
    weight = torch.nn.Parameter(start)
    still = torch.nn.Parameter(torch.zeros(1))
    optimizer = MirrorDescent([weight, still], *how)
    weight.grad = torch.full_like(weight, -1.0)
    still.grad = torch.zeros(1)
    for _ in range(steps):
        optimizer.step()
    assert optimizer.state[weight]["mirror"].dtype == torch.float32
    assert weight.item() == pytest.approx(ends, rel=close) and still.item() == 0


@pytest.mark.parametrize("p", [1.0, 0.0, math.inf, math.nan])
def test_a_power_without_an_inverse_map_is_refused(p):
    with pytest.raises(ValueError, match="p must be above 1 and finite"):
        MirrorDescent([torch.zeros(1, requires_grad=True)], 0.1, p)


@pytest.mark.parametrize("value", [-1.0, math.nan])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("lr", lambda p, lr: NormalizedSGD(p, lr)),
        ("max_step", lambda p, cap: NormalizedSGD(p, 0.1, cap)),
        ("max_step", lambda p, cap: StochasticPolyak(p, cap)),
        ("lr", lambda p, lr: MirrorDescent(p, lr, 3.0)),
    ],
)
def test_a_negative_step_size_is_refused(name, make, value):
    with pytest.raises(ValueError, match=f"{name} must be zero or above, got {value}"):
        make([torch.zeros(1, requires_grad=True)], value)


@pytest.mark.parametrize("name", [*dir(torch.optim), "Newton"])
def test_an_optimiser_of_torch_takes_a_step_at_its_rate_or_is_refused_by_name(name):
    layer = torch.nn.Linear(3, 2)
    calls = []

    def closure():
        calls.append(1)
        loss = layer(torch.ones(1, 3)).square().sum()
        loss.backward()
        return loss

    try:
        optimizer = maker(name)(layer.parameters(), 0.25, None)
    except ValueError as error:
        assert name in str(error) and name not in (
            "Adagrad",
            "AdamW",
            "NAdam",
            "RMSprop",
            "SGD",
        )
    else:
        start = layer.bias.tolist()
        optimizer.step(closure)
        assert len(calls) == 1 and layer.bias.tolist() != start
        assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("rule", [NormalizedSGD, StochasticPolyak])
def test_a_rule_of_the_whole_gradient_takes_one_group(rule):
    parts = [{"params": [torch.nn.Parameter(torch.ones(2))]} for _ in range(2)]
    with pytest.raises(ValueError, match=f"{rule.__name__} takes one group"):
        rule(parts, 0.1)
