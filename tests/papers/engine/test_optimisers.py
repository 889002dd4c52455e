"""The optimisers' loop against 60 digits, torch.optim and numpy; its bad input; its invariances."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from pytorch_optimizer import SOAP

from lib import attention, dynamics
from lib.attention import coordinates, tokens
from papers.beyond.engine import graded_svd as svd
from papers.beyond.engine import gradients, spectral, training
from papers.beyond.engine import optimisers as o
from tests.papers.engine import exact

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))
FAR = 900.0  # logits of this size: softmax weights are e^-1000 and less
NORMS = ["frobenius", 1, 1.5, 3, np.inf, "spectral", "nuclear"]
FIRST = 1000  # steps


def ours(rule, steps, start=START, data=DATA, loss="exponential"):
    return training.train(data, rule, steps, start, [steps], loss).W[0, -1]


def error(found, expected, start):
    """The largest difference, relative to how far the run went; infinite where it did not move."""
    moved = np.abs(expected - start).max()
    off = np.abs(found - expected).max() / max(moved, np.abs(expected).max())
    return off if moved > 0 else np.inf


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("far", [1.0, FAR])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_steepest_descent_against_many_digits(norm, far, loss):
    rule, steps = o.steepest(norm, 0.07, decay=0.5), 12
    p = 2 if norm == "frobenius" else norm
    with mpmath.workdps(60 if far == 1 else 1200):
        direction = lambda t, parts: exact.steepest(parts.mean(0), p)
        expected = exact.train(DATA, direction, 0.07, steps, far * START[0], loss, 0.5)
    assert error(ours(rule, steps, far * START, loss=loss), expected, far * START[0]) <= 1e-11
    moved = np.abs(expected - far * START[0]).max()
    assert np.abs(ours(rule, steps, far * START, loss=loss) - expected).max() < 1e-8 * moved


STATEFUL = {
    "adam": (o.adam(0.05, epsilon=0.0), lambda: exact.adaptive(0.9, 0.999)),
    "adam, short memory": (o.adam(0.05, 0.5, 0.6), lambda: exact.adaptive(0.5, 0.6)),
    "adam, epsilon": (o.adam(0.05, epsilon=0.01), lambda: exact.adaptive(0.9, 0.999, 0.01)),
    "rmsprop": (o.rmsprop(0.05), lambda: exact.adaptive(0.0, 0.99, corrected=False)),
    "adagrad": (o.adagrad(0.05), lambda: exact.adaptive(0.0, 0.0, 0.0, True, False)),
    "signum": (o.signum(0.05), lambda: exact.sign_momentum(0.9, 0.9)),
    "lion": (o.lion(0.05), lambda: exact.sign_momentum(0.9, 0.99)),
    "muon": (o.muon(0.05), lambda: exact.muon(0.95, False)),
    "muon, nesterov": (o.muon(0.05, nesterov=True), lambda: exact.muon(0.95, True)),
}


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("far", [1.0, FAR])
def test_rules_with_memory_against_many_digits(name, far):
    rule, make = STATEFUL[name]
    if far > 1 and rule.epsilon:
        rule, make = replace(rule, epsilon=1e-300), lambda: exact.adaptive(0.9, 0.999, 1e-300)
    with mpmath.workdps(60 if far == 1 else 1500):
        expected = exact.train(DATA, make(), 0.05, 12, far * START[0])
    found = ours(rule, 12, far * START)
    moved = np.abs(expected - far * START[0]).max()
    assert np.abs(found - expected).max() <= max(1e-9 * moved, 1e-13 * np.abs(expected).max())


def test_one_sample_a_step_against_many_digits():
    direction = exact.adaptive(0.9, 0.999)
    with mpmath.workdps(60):
        expected = exact.train(
            DATA, lambda t, parts: direction(t, parts[t % 3][None]), 0.05, 12, START[0]
        )
    assert error(ours(o.on_batches(o.adam(0.05), 1), 12), expected, START[0]) <= 1e-11
    with mpmath.workdps(60):
        pairs = lambda t, parts: exact.steepest(parts[[0, 1]].mean(0), 2)  # the third is left out
        expected = exact.train(DATA, pairs, 0.05, 6, START[0])
    assert error(ours(o.on_batches(o.steepest(2, 0.05), 2), 6), expected, START[0]) <= 1e-11


def torch_run(make, steps, data=DATA, start=START):
    X, z, y, u = (torch.from_numpy(a[0]) for a in (data.X, data.z, data.y, data.u))
    W = torch.tensor(start[0], requires_grad=True)
    optimiser, scores = make([W]), y[:, None] * (X @ u)
    for _ in range(steps):
        optimiser.zero_grad()
        logits = torch.bmm(X, (z @ W.T)[:, :, None])[:, :, 0]
        torch.exp(-(torch.softmax(logits, -1) * scores).sum(-1)).mean().backward()
        optimiser.step()
    return W.detach().numpy()


class Plain(torch.optim.Optimizer):
    """W -= lr D(grad): sign and polar factor in a line each."""

    def __init__(self, parameters, lr, direction):
        super().__init__(parameters, {"lr": lr, "direction": direction})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for W in group["params"]:
                W -= group["lr"] * group["direction"](W.grad)


def polar(G):
    U, S, V = torch.linalg.svd(G, full_matrices=False)
    kept = S > 1e-12 * S[0]  # n = 3 samples in 4 dimensions: one singular value is zero
    return U[:, kept] @ V[kept]


LEARNT = {
    "sign": (o.steepest(np.inf, 1e-3), lambda w: Plain(w, 1e-3, torch.sign)),
    "polar": (o.steepest("spectral", 1e-3), lambda w: Plain(w, 1e-3, polar)),
    "adam": (o.adam(1e-3, epsilon=1e-8), lambda w: torch.optim.Adam(w, 1e-3)),
    "rmsprop": (o.rmsprop(1e-3, epsilon=1e-8), lambda w: torch.optim.RMSprop(w, 1e-3)),
    "adagrad": (o.adagrad(1e-2, epsilon=1e-10), lambda w: torch.optim.Adagrad(w, 1e-2)),
    "muon": (
        o.muon(1e-3, nesterov=True, newton_schulz=5),
        lambda w: torch.optim.Muon(w, 1e-3, weight_decay=0.0, eps=1e-30),
    ),
}


@pytest.mark.parametrize("name", LEARNT)
def test_first_thousand_steps_against_torch(name, monkeypatch):
    # torch's Newton-Schulz rounds to bfloat16; in float64 it is the same published code.
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
    rule, make = LEARNT[name]
    expected = torch_run(make, FIRST)
    assert np.abs(expected - START[0]).max() > 0.05
    assert np.abs(ours(rule, FIRST) - expected).max() <= 1e-9


def test_frobenius_is_normalised_gradient_descent():
    """The engine of rules that do not see the coordinates, in minimal ones, says the same."""
    data = tokens.unit_tokens(range(2), n=3, T=4, d=12)
    start = np.random.default_rng(1).standard_normal((2, 12, 12))
    found = training.train(data, o.steepest(2, 0.05), 500, start, [0, 500])
    history = dynamics.train(data, dynamics.ngd(0.05), 500, [0, 500], start)
    np.testing.assert_allclose(found.log_gap, history.log_gap, rtol=1e-9)
    np.testing.assert_allclose(found.log_gradient, history.log_gradient, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found.W, axis=(2, 3)), history.norm, rtol=1e-10)


# Nuclear: where the two largest singular values meet, rounding says which pair moves.
@pytest.mark.parametrize(
    "rule, steps",
    [
        (o.steepest("frobenius", 0.05), 200),
        (o.steepest("frobenius", 0.5, normalised=False), 200),
        (o.mirror(2, 0.05), 200),
        (o.natural(0.05, normalised=True), 50),
        (o.natural(0.05, 0.1), 200),
        (o.rescaled(o.steepest("frobenius", 0.05), 2.0, 1.5, 20), 100),
        (o.full_adagrad(0.05), 20),
        (o.steepest("spectral", 0.05), 200),
        (o.steepest("nuclear", 0.05), 5),
        (o.muon(0.05), 200),
        (o.shampoo(0.05), 50),
    ],
)
def test_equivariant_rules_agree_in_minimal_coordinates(rule, steps):
    data = tokens.unit_tokens(range(2), n=3, T=3, d=12)
    problem = coordinates.minimal(data)
    assert problem.tokens.shape[-1] == 9 and problem.tokens.z.shape[-1] == 3
    whole = training.train(data, rule, steps, record=[steps]).W[:, 0]
    inside = training.train(problem.tokens, rule, steps, record=[steps]).W[:, 0]
    np.testing.assert_allclose(whole, problem.expand(inside), atol=1e-9)


def rotated(data):
    """The same problem in other coordinates, and what W becomes there."""
    draw = np.random.default_rng(3)
    P, Q = (np.linalg.qr(draw.standard_normal((4, 4)))[0] for _ in range(2))
    turned = replace(data, X=data.X @ P.T, u=data.u @ P.T, z=data.z @ Q.T)
    return turned, lambda W: P @ W @ Q.T


@pytest.mark.parametrize(
    "rule, same",
    [
        (o.steepest("frobenius", 0.05), True),
        (o.muon(0.05, nesterov=True, newton_schulz=5), True),
        (o.shampoo(0.05, 0.9), True),
        (o.natural(0.05, 0.1, relative=True), True),
        (o.full_adagrad(0.05), True),
        (o.steepest(3, 0.05), False),
        (o.adam(0.05), False),
        (o.mirror(3, 0.05), False),
        (o.in_blocks(o.steepest("spectral", 0.05), 2), False),
    ],
)
def test_who_sees_a_rotation(rule, same):
    turned, map_to = rotated(DATA)
    steps = 20
    found = ours(rule, steps, map_to(START), turned)
    apart = np.abs(found - map_to(ours(rule, steps))).max()
    assert apart < 1e-8 if same else apart > 1e-2


def graded(b, logs):
    return gradients.Graded(np.array(b, float), np.array(logs, float))


POLAR = o.steepest("spectral", 1.0)


def polar_of(b, logs, z, rule=POLAR):
    z = np.array(z, float)
    D = np.zeros((len(b[0]), z.shape[1]))
    space = svd.space(len(b), len(b[0]), z.shape[1])
    value = spectral.direction(graded(b, logs), z, rule.numbers(), space, D)
    return D, value


@pytest.mark.parametrize("spread", [0.0, 5.0, 30.0, 60.0, 400.0, 5000.0])
def test_polar_factor_of_graded_sums_against_many_digits(spread):
    draw = np.random.default_rng(int(spread))
    b, z = draw.uniform(-1, 1, (4, 5)), draw.standard_normal((4, 4))
    logs = spread * draw.permutation(4)
    with mpmath.workdps(int(spread) * 3 + 60):
        terms = [
            mpmath.exp(mpmath.mpf(s)) * np.outer(exact.digits(x), exact.digits(y))
            for s, x, y in zip(logs, b, z, strict=True)
        ]
        U, S, V = exact.svd(sum(terms))
        value, nuclear = float(mpmath.log(S.sum())), float(mpmath.log(S[0]))
        expected, leading = (U @ V).astype(float), np.outer(U[:, 0], V[0]).astype(float)
    found, dual = polar_of(b, logs, z)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert dual == pytest.approx(value, abs=1e-12 * max(1, abs(value)))
    found, dual = polar_of(b, logs, z, o.steepest("nuclear", 1.0))
    np.testing.assert_allclose(found, leading, atol=1e-12)
    assert dual == pytest.approx(nuclear, abs=1e-12 * max(1, abs(nuclear)))


def test_polar_factor_of_rank_deficient_gradients():
    """It is zero off row and column space: many samples, equal tokens or queries, zero."""
    draw = np.random.default_rng(0)
    b, z = draw.standard_normal((6, 5)), draw.standard_normal((6, 4))
    U, _, V = np.linalg.svd(b.T @ z, full_matrices=False)
    np.testing.assert_allclose(polar_of(b, np.zeros(6), z)[0], U @ V, atol=1e-12)
    b[3:] = b[:3]  # rank 3
    U, S, V = np.linalg.svd(b.T @ z, full_matrices=False)
    found = polar_of(b, np.zeros(6), z)[0]
    np.testing.assert_allclose(found, U[:, :3] @ V[:3], atol=1e-10)
    assert np.linalg.matrix_rank(found, 1e-8) == 3
    z[1] = z[0]  # equal queries
    U, S, V = np.linalg.svd(b[:3].T @ z[:3], full_matrices=False)
    np.testing.assert_allclose(polar_of(b[:3], np.zeros(3), z[:3])[0], U[:, :2] @ V[:2], atol=1e-10)
    D, value = polar_of(np.zeros((2, 3)), [-np.inf, -np.inf], np.eye(2))
    assert not D.any() and value == -np.inf


# Two tokens, one query entry: everything can be said by hand. Score gap 1, W (2, 1).
def by_hand(delta, z=(1.0,), u=(1.0, 0.0)):
    return attention.token_set([[np.zeros(2), -np.array(delta, float)]], [1.0], z=[z], u=u)


def test_zero_entries_stay_under_sign_and_adam():
    data = by_hand([1.0, 0.0])
    for rule in (
        o.steepest(np.inf, 0.1), o.adam(0.1), o.adam(0.1, epsilon=1e-8), o.adam(0.1, 0.9, 0.0),
        o.rmsprop(0.1), o.adagrad(0.1), o.signum(0.1), o.lion(0.1), o.shampoo(0.1), o.soap(0.1),
        o.steepest(3, 0.1), o.steepest("spectral", 0.1),
    ):  # fmt: skip
        W = ours(rule, 5, np.zeros((1, 2, 1)), data)
        assert W[0, 0] > 0.09 and W[1, 0] == 0.0, rule


def test_ties_for_the_largest_entry_go_to_the_first():
    data = by_hand([1.0, 1.0], u=(1.0, 0.0))
    W = training.train(data, o.steepest(1, 0.1), 2, record=[1, 2]).W[0]
    np.testing.assert_allclose(W[:, :, 0], [[0.1, 0.0], [0.2, 0.0]], rtol=1e-12)


def test_a_gradient_of_zero_stalls():
    data = attention.token_set([np.zeros((2, 2))], [1.0], z=[[1.0]], u=[1.0, 0.0], opt=[0])
    for rule in (o.adam(0.1), o.steepest("spectral", 0.1), o.steepest(1, 0.1), o.soap(0.1)):
        path = training.train(data, rule, 5, record=[0, 5])
        assert path.status.tolist() == ["stalled"] and path.ended.tolist() == [0]
        assert path.log_gradient[0, 0] == -np.inf and np.isnan(path.W[0, 1]).all()


def test_a_batch_without_gradient_moves_nothing_and_does_not_stall():
    data = attention.token_set(
        [[[0.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]], [1.0, 1.0],
        z=[[1.0], [1.0]], u=[1.0, 0.0], opt=[0, 0],
    )  # fmt: skip
    rule = o.on_batches(o.steepest(np.inf, 0.1), 1)
    path = training.train(data, rule, 4, record=[0, 1, 2, 3, 4])
    assert path.status.tolist() == ["completed"]
    np.testing.assert_allclose(path.W[0, :, 0, 0], [0, 0.1, 0.1, 0.2, 0.2])


def test_steps_that_overflow_are_reported():
    for rule in (
        o.steepest(2, 1e200, decay=-300.0),
        o.adam(1e200, decay=-300.0),
        o.steepest("spectral", 1e155, decay=-500.0),
    ):
        path = training.train(DATA, rule, 50, record=[0, 50])
        assert path.status.tolist() == ["diverged"] and 0 < path.ended[0] < 50
        assert np.isfinite(path.W[0, 0]).all() and np.isnan(path.W[0, 1]).all()


def test_moments_do_not_underflow():
    """Adam with epsilon 0 does not see the gradient's size: at e^-900 it is what it is at 1."""
    near = ours(o.adam(0.05), 3, np.zeros((1, 2, 1)), by_hand([1.0, 0.5]))
    far = ours(o.adam(0.05), 3, np.array([[[900.0], [0.0]]]), by_hand([1.0, 0.5]))
    assert np.abs(far - near - [[900.0], [0.0]]).max() < 0.02
    path = training.train(DATA, o.adam(0.5), 20_000, record=[20_000])
    assert path.log_gradient[0, 0] < -1.0 and path.status.tolist() == ["completed"]


def test_shuffled_batches_are_those_of_the_seed():
    data = tokens.unit_tokens(range(2), n=3, T=4, d=4)
    rule = o.on_batches(o.adam(0.05), 1, shuffled=True)
    first = training.train(data, rule, 40, seeds=[3, 4]).W
    np.testing.assert_array_equal(training.train(data, rule, 40, seeds=[3, 4]).W, first)
    alone = training.train(data.run(1), rule, 40, seeds=[4]).W[0]
    np.testing.assert_array_equal(alone, first[1])
    assert np.abs(training.train(data, rule, 40, seeds=[5, 4]).W[0] - first[0]).max() > 1e-3


def test_shampoo_without_memory_is_the_polar_factor():
    data = tokens.unit_tokens([0], n=4, T=4, d=4)
    found = ours(o.shampoo(0.01), 100, START, data)
    np.testing.assert_allclose(
        found, ours(o.steepest("spectral", 0.01), 100, START, data), atol=1e-8
    )


def without_rounding(M):
    """M, its entries below 1e-13 of the largest 0."""
    return np.where(np.abs(M) > 1e-13 * np.abs(M).max(), M, 0.0)


def soap_numpy(data, rule, steps, W):
    """Algorithms 3 and 4 of Vyas et al. with frequency 1, line by line; the bases of the first G
    stand for their initialisation."""
    beta, beta2 = rule.momentum, rule.memory
    M, V = np.zeros_like(W), np.zeros_like(W)
    for t in range(1, steps + 1):
        G = exact.gradients(data, exact.digits(W), "exponential").mean(0).astype(float)
        if t == 1:
            L, R = (1 - beta2) * G @ G.T, (1 - beta2) * G.T @ G
            QL, QR = np.linalg.eigh(L)[1][:, ::-1], np.linalg.eigh(R)[1][:, ::-1]
        turned = without_rounding(QL.T @ G @ QR)
        M = beta * M + (1 - beta) * G
        V = beta2 * V + (1 - beta2) * turned**2
        inner, root = without_rounding(QL.T @ M @ QR) / (1 - beta**t), np.sqrt(V / (1 - beta2**t))
        N = np.divide(inner, root, out=np.zeros_like(root), where=root > 0)
        W = W + rule.step_size * QL @ N @ QR.T
        if t > 1:
            L, R = beta2 * L + (1 - beta2) * G @ G.T, beta2 * R + (1 - beta2) * G.T @ G
            QL, QR = np.linalg.qr(L @ QL)[0], np.linalg.qr(R @ QR)[0]
    return W


SOAP_DATA, SOAP_RULE = tokens.unit_tokens([0], n=6, T=4, d=4), o.soap(0.01, 0.9, 0.99)


def test_soap_is_the_published_algorithm():
    with mpmath.workdps(30):
        expected = soap_numpy(SOAP_DATA, SOAP_RULE, 10, START[0])
    np.testing.assert_allclose(ours(SOAP_RULE, 10, START, SOAP_DATA), expected, atol=1e-12)


def test_the_second_step_of_soap_against_a_published_package():
    """It skips the first of its steps; its epsilon is above rounding and below what moves."""
    options = {"weight_decay": 0.0, "precondition_frequency": 1, "eps": 1e-11}
    make = lambda W: SOAP(W, 0.01, (0.9, 0.99), **options)
    theirs = [torch_run(make, k + 1, SOAP_DATA, START) for k in (1, 2)]
    first, second = (ours(SOAP_RULE, k, START, SOAP_DATA) for k in (1, 2))
    np.testing.assert_allclose(first, theirs[0], atol=1e-6)
    moved = np.linalg.norm(theirs[1] - theirs[0])
    assert np.linalg.norm(second - first - (theirs[1] - theirs[0])) <= 2e-4 * moved


def test_the_first_step_of_soap_is_the_polar_factor():
    """Also of a gradient without full rank: what is rounding in its own bases moves nothing."""
    for d in (4, 9):
        data = tokens.unit_tokens([0], n=3, T=4, d=d)
        start = np.zeros((1, d, d))
        polar = ours(o.steepest("spectral", 0.1), 1, start, data)
        assert np.linalg.matrix_rank(polar, 1e-6) == 3
        np.testing.assert_allclose(ours(o.soap(0.1), 1, start, data), polar, atol=1e-7)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: o.steepest("max", 0.1),
        lambda: o.steepest(0.5, 0.1),
        lambda: o.steepest(2, 0.0),
        lambda: o.steepest(2, 0.1, decay=np.inf),
        lambda: o.adam(0.1, momentum=1.0),
        lambda: o.adam(0.1, epsilon=-1.0),
        lambda: o.on_batches(o.adam(0.1), 0),
        lambda: training.train(DATA, o.on_batches(o.adam(0.1), 4), 1),
        lambda: training.train(DATA, o.adam(0.1), 1, np.zeros((1, 3, 3))),
        lambda: training.train(DATA, o.adam(0.1), 3, record=[2, 1]),
        lambda: training.train(DATA, o.adam(0.1), 3, loss="hinge"),
    ],
)
def test_bad_arguments_are_named(wrong):
    with pytest.raises(ValueError):
        wrong()
