"""The torch optimisers against their formulas, an independent oracle, and bad input."""

import math

import numpy as np
import pytest
import torch

from lib.training import step_sizes
from lib.training.step_sizes import (
    NormalizedSGD,
    StochasticPolyak,
    _move,
    gradient_norm,
    normalized_step,
    polyak_step,
)

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-14}


def quadratic(x):
    """1/2 x' A x with A = diag(1, 10); smallest value 0 at 0."""
    return 0.5 * (x[0] ** 2 + 10 * x[1] ** 2)


def rosenbrock(x):
    """Smallest value 0 at (1, 1)."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def logistic(x):
    """Two separable points; the infimum 0 is not attained."""
    return torch.nn.functional.softplus(-x[0]) + torch.nn.functional.softplus(-x[0] - x[1])


PROBLEMS = {"quadratic": quadratic, "rosenbrock": rosenbrock, "logistic": logistic}
RULES = {
    "normalised": (lambda p: NormalizedSGD(p, lr=0.05), lambda f, g: 0.05 / g),
    "normalised, capped": (
        lambda p: NormalizedSGD(p, lr=0.05, max_step=0.01),
        lambda f, g: min(0.05 / g, 0.01),
    ),
    "polyak, c=2": (lambda p: StochasticPolyak(p), lambda f, g: f / (2 * g * g)),
    "polyak, capped": (
        lambda p: StochasticPolyak(p, max_step=0.02, c=0.5),
        lambda f, g: min(f / (0.5 * g * g), 0.02),
    ),
    "polyak, f*=-1": (
        lambda p: StochasticPolyak(p, f_star=-1.0),
        lambda f, g: (f + 1) / (2 * g * g),
    ),
}


def closure_of(loss, parameters, optimizer):
    def closure():
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    return closure


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
        expected = formula(f, np.linalg.norm(gradient))
        assert float(optimizer.last_step_size) == pytest.approx(expected, rel=10 * DTYPES[dtype])
        assert float(optimizer.last_gradient_norm) == pytest.approx(
            np.linalg.norm(gradient), rel=10 * DTYPES[dtype]
        )
        moved = before.double().numpy() - expected * gradient
        np.testing.assert_allclose(
            x.detach().double().numpy(), moved, rtol=20 * DTYPES[dtype], atol=DTYPES[dtype]
        )


def test_uncapped_normalised_step_has_length_lr():
    x = torch.tensor([3.0, -4.0], dtype=torch.float64, requires_grad=True)
    optimizer = NormalizedSGD([x], lr=0.1)
    for _ in range(3):
        before = x.detach().clone()
        optimizer.step(closure_of(quadratic, x, optimizer))
        assert float((x.detach() - before).norm()) == pytest.approx(0.1, rel=1e-14)


def test_capped_normalised_sgd_is_sgd_once_the_cap_binds():
    ours, plain = (
        torch.tensor([1e-3, 2e-3], dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    a, b = NormalizedSGD([ours], lr=1.0, max_step=0.01), torch.optim.SGD([plain], lr=0.01)
    for _ in range(5):
        a.step(closure_of(quadratic, ours, a))
        b.step(closure_of(quadratic, plain, b))
    torch.testing.assert_close(ours, plain, rtol=1e-14, atol=0)


def test_polyak_agrees_with_alig():
    """AliG (Berrada et al. 2020) is min(f / (||g||^2 + 1e-6), lr), the rule at c = 1 and f* = 0."""
    alig = pytest.importorskip("pytorch_optimizer").AliG
    torch.manual_seed(0)
    inputs, labels = torch.randn(64, 5, dtype=torch.float64), torch.randint(0, 3, (64,))
    networks = [torch.nn.Linear(5, 3, dtype=torch.float64) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    ours = StochasticPolyak(networks[0].parameters(), max_step=0.5, c=1.0)
    theirs = alig(networks[1].parameters(), max_lr=0.5)

    def closure(network, optimizer):
        with torch.enable_grad():  # AliG calls its closure with gradients off
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            loss.backward()
        return loss

    for _ in range(20):
        ours.step(lambda: closure(networks[0], ours))
        theirs.step(lambda: float(closure(networks[1], theirs).detach()))
    for mine, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)  # their 1e-6 in the denominator


def test_one_norm_over_all_groups_and_a_cap_per_group():
    a, b = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (3.0, 4.0))
    optimizer = NormalizedSGD([{"params": [a]}, {"params": [b], "max_step": 0.01}], lr=1.0)
    (0.5 * (a**2 + b**2)).sum().backward()
    optimizer.step()
    assert float(optimizer.last_gradient_norm) == 5.0
    assert (a.item(), b.item()) == pytest.approx((3.0 - 3.0 / 5, 4.0 - 0.01 * 4.0), rel=1e-15)


def test_every_group_has_its_own_cap_and_the_largest_step_is_reported():
    a, b = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (3.0, 4.0))
    optimizer = StochasticPolyak([{"params": [a]}, {"params": [b], "max_step": 0.01}], max_step=9.0)
    optimizer.step(closure_of(lambda _: (0.5 * (a**2 + b**2)).sum(), None, optimizer))
    free = 12.5 / (2 * 25)  # f / (2 |g|^2) with f = |g|^2 / 2
    assert (a.item(), b.item()) == pytest.approx((3 * (1 - free), 4 * (1 - 0.01)), rel=1e-15)
    assert float(optimizer.last_step_size) == pytest.approx(free, rel=1e-15)


def test_parameters_of_two_precisions_share_one_norm():
    a = torch.tensor([3.0], requires_grad=True)
    b = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    optimizer = NormalizedSGD([a, b], lr=1.0)
    (0.5 * a**2).sum().backward()
    (0.5 * b**2).sum().backward()
    optimizer.step()
    assert (a.item(), b.item()) == pytest.approx((2.4, 3.2), rel=1e-6)


@pytest.mark.parametrize(
    "make", [lambda p: NormalizedSGD(p, lr=0.1), StochasticPolyak], ids=["normalised", "polyak"]
)
def test_zero_gradient_moves_nothing(make):
    x = torch.zeros(2, requires_grad=True)
    optimizer = make([x])
    optimizer.step(closure_of(quadratic, x, optimizer))
    assert x.tolist() == [0.0, 0.0]
    assert float(optimizer.last_step_size) == 0.0


@pytest.mark.parametrize("scale", [1e-12, 1e-25, 1e-36])
def test_tiny_float32_gradients_keep_their_direction(scale):
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    optimizer = NormalizedSGD([x], lr=0.5)
    x.grad = torch.tensor([scale, 0.0])
    optimizer.step()
    assert x.tolist() == pytest.approx([0.5, 0.0], rel=1e-5)


def test_polyak_step_survives_a_square_that_underflows():
    norm = torch.tensor(1e-25)  # float32
    assert float(polyak_step(torch.tensor(1e-30), norm, 2.0, math.inf)) == pytest.approx(
        1e-30 / 2e-50, rel=1e-5
    )
    assert math.isfinite(float(polyak_step(torch.tensor(1.0), norm, 2.0, math.inf)))
    assert float(normalized_step(torch.tensor(1e-45), 1.0, math.inf)) < math.inf


def test_loss_below_its_minimum_moves_nothing():
    x = torch.tensor([1.0], requires_grad=True)
    optimizer = StochasticPolyak([x], f_star=10.0)
    optimizer.step(closure_of(lambda v: (v**2).sum(), x, optimizer))
    assert x.item() == 1.0


def test_parameters_without_gradient_are_left_out():
    used, unused = torch.tensor([3.0], requires_grad=True), torch.tensor([7.0], requires_grad=True)
    optimizer = NormalizedSGD([used, unused], lr=1.0)
    optimizer.step(closure_of(lambda _: (used**2).sum(), None, optimizer))
    assert (used.item(), unused.item()) == (2.0, 7.0)
    assert float(gradient_norm([])) == 0.0


def test_no_gradient_at_all_moves_nothing():
    x = torch.tensor([3.0], requires_grad=True)
    NormalizedSGD([x], lr=1.0).step()
    assert x.item() == 3.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_gradient_names_the_step_and_moves_nothing(bad):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = NormalizedSGD([x], lr=0.1)
    x.grad = torch.ones(2)
    optimizer.step()
    before = x.detach().clone()
    x.grad = torch.tensor([bad, 1.0])
    with pytest.raises(FloatingPointError, match="step 2: gradient norm"):
        optimizer.step()
    assert torch.equal(x, before)


def test_non_finite_loss_is_named():
    x = torch.tensor([1.0], requires_grad=True)
    optimizer = StochasticPolyak([x])
    x.grad = torch.ones(1)
    with pytest.raises(FloatingPointError, match="step 1: loss is nan"):
        optimizer.step(lambda: torch.tensor(math.nan))


def test_the_check_can_be_switched_off():
    x = torch.tensor([1.0], requires_grad=True)
    optimizer = NormalizedSGD([x], lr=0.1, check_finite=False)
    x.grad = torch.tensor([math.nan])
    optimizer.step()
    assert math.isnan(float(optimizer.last_gradient_norm))


@pytest.mark.parametrize("lr", [0.0, -1.0, math.nan, math.inf])
def test_bad_learning_rate(lr):
    with pytest.raises(ValueError, match="lr must be"):
        NormalizedSGD([torch.zeros(1, requires_grad=True)], lr=lr)


@pytest.mark.parametrize(
    "options",
    [
        {"max_step": 0.0},
        {"max_step": math.nan},
        {"c": 0.0},
        {"c": -2.0},
        {"f_star": math.nan},
        {"f_star": -math.inf},
    ],
)
def test_bad_polyak_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        StochasticPolyak([torch.zeros(1, requires_grad=True)], **options)


def test_polyak_needs_a_closure_and_a_scalar_loss():
    optimizer = StochasticPolyak([torch.zeros(1, requires_grad=True)])
    with pytest.raises(TypeError, match="needs a closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="scalar loss"):
        optimizer.step(lambda: torch.zeros(3))


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients"):
        NormalizedSGD(table.parameters(), lr=0.1).step()


@pytest.mark.parametrize(
    "make",
    [lambda p: NormalizedSGD(p, lr=0.3, max_step=0.2), lambda p: StochasticPolyak(p, 0.1, c=1.0)],
)
def test_state_dict_continues_the_run(make):
    def run(steps, x, optimizer):
        for _ in range(steps):
            optimizer.step(closure_of(rosenbrock, x, optimizer))

    x = torch.tensor([-0.5, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = make([x])
    run(3, x, optimizer)
    copy = x.detach().clone().requires_grad_()
    other = (
        NormalizedSGD([copy], lr=9.0)
        if isinstance(optimizer, NormalizedSGD)
        else StochasticPolyak([copy], 9.0)
    )
    other.load_state_dict(optimizer.state_dict())
    run(3, x, optimizer)
    run(3, copy, other)
    assert torch.equal(x, copy)
    copy.grad = torch.full_like(copy, math.nan)
    with pytest.raises(FloatingPointError, match="step 7"):
        other.step(lambda: torch.tensor(1.0))


@pytest.mark.parametrize("scale", [1.0, 1e-22, 1e-25, 1e20])
def test_norm_of_large_tensors(scale):
    generator = torch.Generator().manual_seed(0)
    shapes = [(300, 1000), (70_001,), (5,), (0,)]  # whole blocks, a rest, a small one, an empty one
    gradients = [scale * torch.randn(shape, generator=generator) for shape in shapes]
    gradients.append(gradients[0].t() * 2)  # not contiguous
    expected = np.sqrt(sum((g.double().numpy() ** 2).sum() for g in gradients))
    # A ratio: `approx` would allow 1e-12 whatever the scale.
    assert float(gradient_norm(gradients)) / expected == pytest.approx(1.0, rel=1e-8)


def test_norm_of_large_tensors_does_not_depend_on_threads():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(size, generator=generator) for size in (1_000_003, 70_000)]
    before, norms = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            norms.append([step_sizes._row_norms(tensor) for tensor in tensors])
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *norms))
    for tensor, found in zip(tensors, norms[0], strict=True):
        rows = np.split(tensor.double().numpy(), range(step_sizes.ROW, len(tensor), step_sizes.ROW))
        expected = [(row**2).sum() for row in rows] + [0.0] * (len(found) - len(rows))
        np.testing.assert_allclose(found.numpy() ** 2, expected, rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norm_of_large_tensors_shows_what_is_not_finite(bad):
    gradient = torch.ones(100_000)
    gradient[70_000] = bad
    assert not math.isfinite(gradient_norm([gradient, torch.ones(3)]))


@pytest.mark.parametrize("check_finite", [False, "skip", None])
@pytest.mark.parametrize("make", [lambda p, **o: NormalizedSGD(p, 0.1, 0.5, **o), StochasticPolyak])
def test_no_value_leaves_the_device_in_a_step(make, check_finite):
    """Tensors on the device "meta" have no values: what would wait on a GPU raises here."""
    groups = [
        {"params": [torch.zeros(s, device="meta", requires_grad=True)]} for s in ((300, 400), (7,))
    ]
    optimizer = make(groups, check_finite=check_finite)

    def closure():
        for group in groups:
            (parameter,) = group["params"]
            parameter.grad = torch.zeros_like(parameter)
        return torch.zeros((), device="meta")

    for _ in range(2):
        optimizer.step(closure)
    assert optimizer.last_step_size.is_meta and optimizer.last_gradient_norm.is_meta
    with pytest.raises(RuntimeError, match="meta"):
        float(optimizer.last_step_size)


@pytest.mark.parametrize(
    "make", [lambda p: NormalizedSGD(p, 0.1, check_finite="skip"), RULES["polyak, c=2"][0]]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_steps_are_skipped_and_counted(make, bad):
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    optimizer = make([{"params": [x]}, {"params": [y]}])
    optimizer.check_finite = "skip"
    for gradient, loss in ((1.0, 1.0), (bad, 1.0), (1.0, bad), (1.0, 1.0)):
        before = x.detach().clone(), y.detach().clone()
        x.grad, y.grad = torch.tensor([gradient, 1.0]), torch.ones(1)
        optimizer.step(lambda loss=loss: torch.tensor(loss))
        good = math.isfinite(gradient) and math.isfinite(loss)
        assert (not torch.equal(x, before[0])) is good and (not torch.equal(y, before[1])) is good
        assert (float(optimizer.last_step_size) > 0) is good
    assert optimizer.skipped_steps == 2
    other = make([{"params": [x]}, {"params": [y]}])
    other.load_state_dict(optimizer.state_dict())
    assert other.skipped_steps == 2


@pytest.mark.parametrize("bad", [False, True])
def test_the_move_of_a_gpu_equals_that_of_a_cpu(bad):
    """A GPU applies the verdict to the gradients and does not read it; that path runs on a CPU."""
    ours, expected = ([torch.ones(s, requires_grad=True) for s in ((2, 3), (4,))] for _ in range(2))
    for parameters in (ours, expected):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, math.inf if bad else 2.0)
    with torch.no_grad():
        _move(ours, torch.tensor(0.0 if bad else 0.25, dtype=torch.float64), torch.tensor(bad))
        if not bad:
            _move(expected, torch.tensor(0.25, dtype=torch.float64))
    assert all(map(torch.equal, ours, expected))


def test_bad_check_finite():
    with pytest.raises(ValueError, match="check_finite must be"):
        NormalizedSGD([torch.zeros(1, requires_grad=True)], 0.1, check_finite="raise")
