"""The optimisers against their formulas, an independent oracle, an exact path, and bad input."""

import copy
import math

import numpy as np
import pytest
import torch

from lib import mirror
from lib.attention import tokens
from lib.training.rules import (
    MirrorDescent,
    NormalizedSGD,
    StochasticPolyak,
    _move,
    gradient_norm,
    normalized_step,
    polyak_step,
)

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


def test_capped_normalised_sgd_is_sgd_once_the_cap_binds():
    ours, plain = (
        torch.tensor([1e-3, 2e-3], dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    a, b = NormalizedSGD([ours], lr=1.0, max_step=0.01), torch.optim.SGD([plain], lr=0.01)
    for _ in range(5):
        a.step(closure_of(PROBLEMS["quadratic"], ours, a))
        b.step(closure_of(PROBLEMS["quadratic"], plain, b))
    torch.testing.assert_close(ours, plain, rtol=1e-14, atol=0)


def test_polyak_is_half_of_alig():
    """AliG (Berrada et al. 2020) is min(f / (||g||^2 + 1e-6), lr); half of f makes it paper A's."""
    alig = pytest.importorskip("pytorch_optimizer").AliG
    torch.manual_seed(0)
    inputs, labels = torch.randn(64, 5, dtype=torch.float64), torch.randint(0, 3, (64,))
    networks = [torch.nn.Linear(5, 3, dtype=torch.float64) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    ours = StochasticPolyak(networks[0].parameters(), max_step=0.5)
    theirs = alig(networks[1].parameters(), max_lr=0.5)

    def closure(network, optimizer):
        with torch.enable_grad():  # AliG calls its closure with gradients off
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            loss.backward()
        return loss

    for _ in range(20):
        ours.step(lambda: closure(networks[0], ours))
        theirs.step(lambda: float(closure(networks[1], theirs).detach()) / 2)
    for mine, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)  # their 1e-6 in the denominator


def test_parameters_of_two_precisions_share_one_norm():
    a = torch.tensor([3.0], requires_grad=True)
    b = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    optimizer = NormalizedSGD([a, b], lr=1.0)
    optimizer.step(
        closure_of(lambda _: (0.5 * a**2).sum().double() + 0.5 * b[0] ** 2, a, optimizer)
    )
    assert (a.item(), b.item()) == pytest.approx((2.4, 3.2), rel=1e-6)


@pytest.mark.parametrize("make", [lambda p: NormalizedSGD(p, lr=0.1), StochasticPolyak])
def test_zero_gradient_and_no_gradient_move_nothing(make):
    x, unused = torch.zeros(2, requires_grad=True), torch.tensor([7.0], requires_grad=True)
    optimizer = make([x, unused])
    optimizer.step(closure_of(PROBLEMS["quadratic"], x, optimizer))
    assert x.tolist() == [0.0, 0.0] and unused.item() == 7.0
    assert float(optimizer.last_step_size) == 0.0 == float(gradient_norm([]))


@pytest.mark.parametrize("scale", [1e-12, 1e-25, 1e-36])
def test_tiny_float32_gradients_keep_their_direction(scale):
    (x,), closure = given([scale, 0.0])
    NormalizedSGD([x], lr=0.5).step(closure)
    assert x.tolist() == pytest.approx([0.5, 1.0], rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-22, 1e20])
def test_norm_of_large_tensors(scale):
    generator = torch.Generator().manual_seed(0)
    gradients = [scale * torch.randn(s, generator=generator) for s in ((300, 1000), (7,), (0,))]
    gradients.append(gradients[0].t() * 2)  # not contiguous
    expected = np.sqrt(sum((g.double().numpy() ** 2).sum() for g in gradients))
    # A ratio: `approx` would allow 1e-12 whatever the scale.
    assert float(gradient_norm(gradients)) / expected == pytest.approx(1.0, rel=1e-8)


def test_a_step_survives_a_square_that_underflows_and_a_loss_below_zero():
    norm = torch.tensor(1e-25)  # float32
    found = float(polyak_step(torch.tensor(1e-30), norm, math.inf))
    assert found == pytest.approx(1e-30 / 2e-50, rel=1e-5)
    assert math.isfinite(float(polyak_step(torch.tensor(1.0), norm, math.inf)))
    assert float(normalized_step(torch.tensor(1e-45), 1.0, math.inf)) < math.inf
    assert float(polyak_step(torch.tensor(-1.0), torch.tensor(1.0), math.inf)) == 0


@pytest.mark.parametrize("make", [lambda p: NormalizedSGD(p, 0.1), StochasticPolyak])
@pytest.mark.parametrize(("gradient", "loss"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_what_is_not_finite_is_named_and_moves_nothing(make, gradient, loss):
    (x,), closure = given([gradient, 1.0], loss=loss)
    with pytest.raises(FloatingPointError, match="nan|inf.*no parameter was moved"):
        make([x]).step(closure)
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


def test_the_move_of_a_gpu_is_that_of_a_cpu(monkeypatch):
    ours, _ = given([2.0, 3.0], [1.0])
    with torch.no_grad():
        _move(ours, torch.tensor(0.25, dtype=torch.float64))
    assert [p.tolist() for p in ours] == [[0.5, 0.25], [0.75]]
    far = [p.detach().to("meta").requires_grad_() for p in ours]
    for parameter in far:
        parameter.grad = torch.zeros_like(parameter)
    with torch.no_grad():
        _move(far, torch.zeros((), device="meta"))  # asks for no value
    assert all(p.is_meta for p in far)


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


@pytest.mark.parametrize(
    "make", [lambda p: NormalizedSGD(p, 0.1), lambda p: MirrorDescent(p, 1, 3)]
)
def test_sparse_gradients_are_refused(make):
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients; build the embedding"):
        make(table.parameters()).step(lambda: torch.tensor(1.0))
