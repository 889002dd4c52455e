"""Tests of optimisers against torch and by hand.

A failure means another convention, which would be another rule.
"""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch

from lib import attention, dynamics
from lib.attention import coordinates, tokens
from lib.dynamics.in_coordinates import entrywise
from tests import exact
from tests.exact import DATA, START, STILL, first_of_two, one_pair, ours

ZERO = np.zeros((1, 2, 1))
EXPONENTS = [1.1, 1.5, 2, 3, 4.3]
FIRST = 200  # steps


def torch_run(make, steps, data=DATA, start=START):
    X, z, y, u = (torch.from_numpy(a[0]) for a in (data.X, data.z, data.y, data.u))
    W = torch.tensor(start[0], requires_grad=True)
    optimiser = make([W])
    scores = y[:, None] * (X @ u)
    for _ in range(steps):
        optimiser.zero_grad()
        logits = torch.bmm(X, (z @ W.T)[:, :, None])[:, :, 0]
        torch.exp(-(torch.softmax(logits, -1) * scores).sum(-1)).mean().backward()
        optimiser.step()
    return W.detach().numpy()


LEARNT = {
    "adam": (dynamics.Adam(1e-3, epsilon=1e-8), lambda w: torch.optim.Adam(w, 1e-3)),
    "rmsprop": (
        dynamics.RMSprop(1e-3, epsilon=1e-8),
        lambda w: torch.optim.RMSprop(w, 1e-3),
    ),
    "adagrad": (
        dynamics.AdaGrad(1e-2, epsilon=1e-10),
        lambda w: torch.optim.Adagrad(w, 1e-2),
    ),
    "muon": (
        dynamics.Muon(1e-3, nesterov=True, newton_schulz=5),
        lambda w: torch.optim.Muon(w, 1e-3, weight_decay=0.0, eps=1e-30),
    ),
}


@pytest.mark.parametrize("name", LEARNT)
def test_first_steps_against_torch(name, monkeypatch):
    # torch's Newton-Schulz rounds to bfloat16; in float64 it is the same published
    # code.
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
    rule, make = LEARNT[name]
    expected = torch_run(make, FIRST)
    assert np.abs(expected - START[0]).max() > 0.05
    assert np.abs(ours(rule, FIRST) - expected).max() <= 1e-9


def test_the_dual_norm_is_the_sum_over_the_blocks():
    """A step that is not normalised has the length N*(G), which is sum_b N*(G_b) in
    every block.
    """
    with mpmath.workdps(50):
        G = (
            exact.gradients(DATA, exact.digits(START[0]), "exponential")
            .mean(0)
            .astype(float)
        )
    for norm, dual in (("spectral", "nuc"), ("nuclear", 2), ("frobenius", "fro")):
        sizes = [np.linalg.norm(part, dual) for part in np.split(G, 2)]
        rule = dynamics.SteepestDescent(norm, 1.0, normalised=False, blocks=2)
        step = ours(rule, 1) - START[0]
        plain = {"spectral": 2, "nuclear": "nuc"}.get(norm, "fro")
        for part in np.split(step, 2):
            assert np.linalg.norm(part, plain) == pytest.approx(sum(sizes), rel=1e-11)


@pytest.mark.parametrize("norm", ["spectral", "nuclear"])
@pytest.mark.parametrize("spread", [0.0, 5.0, 30.0, 60.0, 400.0, 2000.0])
def test_steps_where_the_pulls_of_four_samples_differ_by_powers_of_e_to_the_spread(
    spread, norm
):
    draw = np.random.default_rng(int(spread))
    b = draw.uniform(-1, 1, (4, 5))
    z = draw.standard_normal((4, 4))
    u = np.linalg.lstsq(b, np.ones(4), rcond=None)[0]  # score gaps of 1
    data = attention.token_set([[np.zeros(5), -row] for row in b], np.ones(4), z=z, u=u)
    features = np.einsum("nd,ne->nde", b, z).reshape(4, -1)
    margins = spread * (1 + draw.permutation(4))
    start = np.linalg.lstsq(features, margins, rcond=None)[0].reshape(1, 5, 4)
    with mpmath.workdps(int(1.8 * spread) + 60):  # e^-4 spread, to 60 digits
        G = exact.gradients(data, exact.digits(start[0]), "exponential").mean(0)
        expected = exact.steepest(G, norm).astype(float)
        size = exact.svd(G)[1]
    step = ours(dynamics.SteepestDescent(norm, 1.0), 1, start, data) - start[0]
    np.testing.assert_allclose(step, expected, atol=1e-12 + 4e-16 * np.abs(start).max())
    if spread <= 60:  # where the dual norm is a float
        dual = float(size.sum() if norm == "spectral" else size[0])
        long = (
            ours(
                dynamics.SteepestDescent(norm, 1 / dual, normalised=False),
                1,
                start,
                data,
            )
            - start[0]
        )
        np.testing.assert_allclose(
            long, expected, atol=1e-11 + 4e-16 * np.abs(start).max()
        )


def test_an_entry_or_block_that_nothing_pulls_stays():
    for rule in (
        dynamics.SteepestDescent(np.inf, 0.1), dynamics.Adam(0.1), dynamics.Adam(0.1, epsilon=1e-8), dynamics.Adam(0.1, momentum=0.9, memory=0.0),
        dynamics.RMSprop(0.1), dynamics.AdaGrad(0.1), dynamics.Signum(0.1), dynamics.Lion(0.1), dynamics.Shampoo(0.1), dynamics.SOAP(0.1),
        dynamics.SteepestDescent(3, 0.1), dynamics.SteepestDescent("spectral", 0.1), dynamics.FullAdaGrad(0.1),
    ):  # fmt: skip
        W = ours(rule, 5, ZERO, one_pair())
        assert W[0, 0] > 0.09 and W[1, 0] == 0.0, rule
    for rule in (
        dynamics.SteepestDescent("spectral", 0.1),
        dynamics.SteepestDescent(2, 0.1),
        dynamics.Muon(0.1),
    ):
        W = ours(replace(rule, blocks=2), 5, ZERO, one_pair())
        np.testing.assert_allclose(W[:, 0], [0.5, 0.0], rtol=1e-12)
    for p in EXPONENTS:  # by 0.1 a step in the mirror
        W = ours(dynamics.MirrorDescent(p, 0.1), 5, ZERO, one_pair())
        assert (
            W[0, 0] == pytest.approx(0.5 ** (1 / (p - 1)), rel=1e-12) and W[1, 0] == 0.0
        )
    one_entry = ours(dynamics.FullAdaGrad(0.1), 50, ZERO, one_pair())
    np.testing.assert_allclose(
        one_entry, ours(dynamics.AdaGrad(0.1), 50, ZERO, one_pair()), rtol=1e-11
    )
    # ties for the largest entry go to the first
    W = dynamics.train(
        one_pair([1.0, 1.0]), dynamics.SteepestDescent(1, 0.1), 2, record=[1, 2]
    ).W[0]
    np.testing.assert_allclose(W[:, :, 0], [[0.1, 0.0], [0.2, 0.0]], rtol=1e-12)


def test_a_gradient_of_zero_stalls():
    for rule in (
        dynamics.Adam(0.1), dynamics.SteepestDescent("spectral", 0.1), dynamics.SteepestDescent(1, 0.1), dynamics.SOAP(0.1),
        dynamics.MirrorDescent(3, 0.1), dynamics.NaturalGradient(0.1), dynamics.NaturalGradient(0.1, damping=1.0), dynamics.FullAdaGrad(0.1),
    ):  # fmt: skip
        path = dynamics.train(STILL, rule, 5, record=[0, 5])
        assert path.status.tolist() == ["stalled"] and path.ended.tolist() == [0]
        assert path.log_gradient[0, 0] == -np.inf and np.isnan(path.W[0, 1]).all()


@pytest.mark.parametrize(
    "rule, power, expected",
    [
        (dynamics.SteepestDescent(np.inf, 0.1), 1, [0, 0.1, 0.1, 0.2, 0.2]),
        (dynamics.MirrorDescent(3, 0.1), 2, [0, 0.1, 0.1, 0.2, 0.2]),
        (
            dynamics.SteepestDescent(2, 0.1, radius=1.0, growth=3.0, every=2),
            1,
            [0, 0.1, 3, 3, 9],
        ),
    ],
)
def test_a_batch_without_gradient_rests_and_does_not_stall(rule, power, expected):
    path = dynamics.train(
        first_of_two(), replace(rule, batch_size=1), 4, record=range(5)
    )
    assert path.status.tolist() == ["completed"] and not path.W[0, :, 1].any()
    np.testing.assert_allclose(path.W[0, :, 0, 0] ** power, expected, rtol=1e-12)


OVERFLOWS = {  # the rule, its steps, a factor of the start, and where it ends
    "steps": (dynamics.SteepestDescent(2, 1e200, decay=-300.0), 50, 0, range(1, 50)),
    "Adam's steps": (dynamics.Adam(1e200, decay=-300.0), 50, 0, range(1, 50)),
    "polar steps": (
        dynamics.SteepestDescent("spectral", 1e155, decay=-500.0),
        50,
        0,
        range(1, 50),
    ),
    "|U|^100": (dynamics.MirrorDescent(1.01, 1e3), 9, 0, range(1, 9)),
    "|W_0|^4": (dynamics.MirrorDescent(5, 1.0, batch_size=3), 9, 1e99, [0]),
    "a radius": (
        dynamics.SteepestDescent(2, 0.1, radius=1.0, growth=1e100, every=1),
        9,
        0,
        [3],
    ),
    "an inverse of no damping": (dynamics.NaturalGradient(1.0), 500, 0, range(1, 500)),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_leaves_the_range_of_floats_is_said(name):
    rule, steps, size, ends = OVERFLOWS[name]
    path = dynamics.train(DATA, rule, steps, [0, steps], size * START)
    assert path.status.tolist() == ["diverged"] and path.ended[0] in ends
    started = path.ended[0] > 0  # otherwise not even W_0 is recorded
    assert np.isfinite(path.W[0, 0]).all() == started and np.isnan(path.W[0, 1]).all()


def test_shampoo_without_memory_is_the_polar_factor():
    data = tokens.unit_tokens([0], n=4, T=4, d=4)
    polar_steps = ours(dynamics.SteepestDescent("spectral", 0.01), 100, START, data)
    np.testing.assert_allclose(
        ours(dynamics.Shampoo(0.01), 100, START, data), polar_steps, atol=1e-8
    )


def test_rules_in_minimal_coordinates_are_those_in_all():
    data = tokens.unit_tokens(range(2), n=3, T=3, d=12)
    problem = coordinates.minimal(data)
    for rule in (dynamics.NaturalGradient(0.05, damping=0.1), dynamics.Shampoo(0.05)):
        whole, inside = (
            dynamics.train(each, rule, 50, record=[50]).W[:, 0]
            for each in (data, problem.tokens)
        )
        np.testing.assert_allclose(whole, problem.expand(inside), atol=1e-9)


def without_rounding(M):
    """Return M with its entries below 1e-13 of the largest set to 0."""
    return np.where(np.abs(M) > 1e-13 * np.abs(M).max(), M, 0.0)


def soap_numpy(data, rule, steps, W):
    """Run algorithms 3 and 4 of Vyas et al. with frequency 1, line by line.

    The bases of the first G replace their initialisation.
    """
    beta = rule.momentum
    beta2 = rule.memory
    M = np.zeros_like(W)
    V = np.zeros_like(W)
    for t in range(1, steps + 1):
        G = exact.gradients(data, exact.digits(W), "exponential").mean(0).astype(float)
        if t == 1:
            L = (1 - beta2) * G @ G.T
            R = (1 - beta2) * G.T @ G
            QL = np.linalg.eigh(L)[1][:, ::-1]
            QR = np.linalg.eigh(R)[1][:, ::-1]
        turned = without_rounding(QL.T @ G @ QR)
        M = beta * M + (1 - beta) * G
        V = beta2 * V + (1 - beta2) * turned**2
        inner = without_rounding(QL.T @ M @ QR) / (1 - beta**t)
        root = np.sqrt(V / (1 - beta2**t))
        N = np.divide(inner, root, out=np.zeros_like(root), where=root > 0)
        W = W + rule.step_size * QL @ N @ QR.T
        if t > 1:
            L = beta2 * L + (1 - beta2) * G @ G.T
            R = beta2 * R + (1 - beta2) * G.T @ G
            QL = np.linalg.qr(L @ QL)[0]
            QR = np.linalg.qr(R @ QR)[0]
    return W


SOAP_DATA = tokens.unit_tokens([0], n=6, T=4, d=4)
SOAP_RULE = dynamics.SOAP(0.01, momentum=0.9, memory=0.99)


def test_soap_is_the_published_algorithm():
    with mpmath.workdps(30):
        expected = soap_numpy(SOAP_DATA, SOAP_RULE, 10, START[0])
    np.testing.assert_allclose(
        ours(SOAP_RULE, 10, START, SOAP_DATA), expected, atol=1e-12
    )


def test_the_first_step_of_soap_is_the_polar_factor():
    """This includes gradients without full rank: directions of rounding move
    nothing.
    """
    for d in (4, 9):
        data = tokens.unit_tokens([0], n=3, T=4, d=d)
        start = np.zeros((1, d, d))
        polar = ours(dynamics.SteepestDescent("spectral", 0.1), 1, start, data)
        assert np.linalg.matrix_rank(polar, 1e-6) == 3
        np.testing.assert_allclose(
            ours(dynamics.SOAP(0.1), 1, start, data), polar, atol=1e-7
        )


@pytest.mark.parametrize(
    "deltas",
    [*np.random.default_rng(0).standard_normal((20, 3, 2)), [[1.0, 0.0], [1.0, 0.01]]],
)
def test_of_pulls_in_a_plane_the_two_largest_decide(deltas):
    """Here <grad f_i, D> = |l'|/l'' = 1 on these; the size is sqrt(l'') max |grad
    f|.
    """
    random = np.random.default_rng(1)
    n = len(deltas)
    X = [[np.zeros(2), delta] for delta in deltas]
    data = attention.token_set(
        X, np.ones(n), z=np.ones((n, 1)), u=random.standard_normal(2)
    )
    W = random.standard_normal((1, 2, 1))
    f, slopes = (part.astype(float) for part in exact.answers(data, W[0]))
    larger = np.argsort(f - 2 * np.log(np.abs(slopes).max((1, 2))))[:2]
    step = ours(dynamics.NaturalGradient(1.0), 1, W, data) - W[0]
    np.testing.assert_allclose((slopes * step).sum((1, 2))[larger], 1, rtol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("t", [0, 1, 5])
def test_a_running_mean_from_zero_is_corrected_for_every_factor(beta, t):
    share = 1 - beta ** (t + 1)  # of the weights 1 - beta, (1 - beta) beta, ...
    assert np.exp(entrywise.correction(beta, t)) == pytest.approx(share, rel=1e-12)


WRONG = {  # what the message must name
    "norm = 'max'": lambda: dynamics.SteepestDescent("max", 0.1),
    "norm = 0.5": lambda: dynamics.SteepestDescent(0.5, 0.1),
    "step_size": lambda: dynamics.SteepestDescent(2, 0.0),
    "decay": lambda: dynamics.SteepestDescent(2, 0.1, decay=np.inf),
    "momentum": lambda: dynamics.Adam(0.1, momentum=1.0),
    "epsilon": lambda: dynamics.Adam(0.1, epsilon=-1.0),
    "batch_size = -1": lambda: dynamics.Adam(0.1, batch_size=-1),
    "batch_size = 4": lambda: dynamics.train(DATA, dynamics.Adam(0.1, batch_size=4), 1),
    "start": lambda: dynamics.train(
        DATA, dynamics.Adam(0.1), 1, None, np.zeros((1, 3, 3))
    ),
    "record": lambda: dynamics.train(DATA, dynamics.Adam(0.1), 3, record=[2, 1]),
    "loss": lambda: dynamics.train(DATA, dynamics.Adam(0.1), 3, loss="sigmoid"),
    "blocks = 0": lambda: dynamics.SteepestDescent(2, 0.1, blocks=0),
    "blocks = 1.5": lambda: dynamics.SteepestDescent(2, 0.1, blocks=1.5),
    "rows of W": lambda: ours(dynamics.SteepestDescent(2, 0.1, blocks=3), 1),
    "radius": lambda: dynamics.SteepestDescent(2, 0.1, radius=0.0, growth=2.0, every=1),
    "growth = 0.5": lambda: dynamics.SteepestDescent(
        2, 0.1, radius=1.0, growth=0.5, every=1
    ),
    "growth = inf": lambda: dynamics.SteepestDescent(
        2, 0.1, radius=1.0, growth=np.inf, every=1
    ),
    "every": lambda: dynamics.SteepestDescent(2, 0.1, radius=1.0, growth=2.0, every=0),
    "step_size . weight_decay": lambda: dynamics.SteepestDescent(
        2, 0.5, weight_decay=2.0
    ),
    "weight_decay": lambda: dynamics.SteepestDescent(2, 0.5, weight_decay=-1.0),
    "set batch_size": lambda: dynamics.SteepestDescent(2, 0.1, variance_reduced=True),
    "damping = -1.0": lambda: dynamics.NaturalGradient(0.1, damping=-1.0),
    "damping = inf": lambda: dynamics.NaturalGradient(0.1, damping=np.inf),
    "damping = nan": lambda: dynamics.NaturalGradient(0.1, damping=np.nan),
} | {
    f"p = {p}": lambda p=p: dynamics.MirrorDescent(p, 0.1)
    for p in (1, 0.5, np.inf, np.nan)
}


@pytest.mark.parametrize("named", WRONG)
def test_bad_arguments_are_named(named):
    with pytest.raises(ValueError, match=named):
        WRONG[named]()


def test_the_sign_of_a_mean_is_that_of_momentum_where_it_outweighs_the_gradient():
    """Lion: 0.9 m + 0.1 G is (0.7, 1.1, -1), and the momentum becomes 0.99 m + 0.01 G.

    Arrays are multiplied by e to the logarithms beside them.
    """
    m, logs = np.array([1.0, -1.0, 0.0]), np.array([0.0, -np.inf])
    G, top = np.array([-2.0, 20.0, -10.0]) / 4, np.log(4.0)
    D = np.empty(3)
    numbers = dynamics.Lion(1.0).numbers()
    assert entrywise.sign_momentum(numbers, G, top, m, logs, D) == 0
    np.testing.assert_array_equal(D, [1, 1, -1])
    np.testing.assert_allclose(np.exp(logs[0]) * m, [0.97, -0.79, -0.1])
    still = np.zeros(3), np.array([-np.inf, -np.inf])
    found = entrywise.sign_momentum(numbers, 0 * G, -np.inf, *still, D)
    assert found == -np.inf and not D.any()
