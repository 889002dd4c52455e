"""Tests of paper B's descent.

A failure means that another rule, other minibatches or a biased oracle are taken for
the paper's.
"""

import numpy as np
import pytest
import torch
from pytorch_optimizer import SOAP

from lib import regression, seeds
from lib.regression import descent, manifold

PROBLEM = regression.random_regression(3, d=3, k=4)
SPACE = manifold.of(PROBLEM)
RULES = {
    "left": regression.PreconditionedRule(0.1),
    "left_right": regression.PreconditionedRule(0.1, "left_right"),
    "none": regression.PreconditionedRule(0.1, "none"),
    "sgd": regression.sgd(0.1),
}


def stacked(pairs):
    return tuple(np.stack(part) for part in zip(*pairs, strict=True))


X, Y = stacked(PROBLEM.sample(40, seeds.stream(seed, "labels")) for seed in range(2))
START = stacked(regression.gaussian_start(seed, 3, 4, 0.3) for seed in range(2))
SIGMA = X.swapaxes(1, 2) @ X / 40


def descended(rules=RULES, steps=10, record=(0,), starts=None, Sigma=SIGMA):
    source = regression.minibatches(X, Y, 16, range(2))
    if starts is None:
        starts = dict.fromkeys(rules, START)
    else:
        starts = starts
    return regression.descend(source, rules, starts, Sigma, steps, record)


def test_descent_equals_the_plain_loop_and_repeats_to_the_bit():
    histories, again = (descended(RULES, 12, [0, 5, 12]) for _ in range(2))
    for (name, rule), s in ((pair, s) for pair in RULES.items() for s in range(2)):
        history = histories[name]
        rng = seeds.stream(s, "batches")
        (A, B) = (START[0][s], START[1][s])
        inverse = np.linalg.inv(SIGMA[s])
        for t in range(12):
            if t == 5:
                np.testing.assert_allclose(history.A[s, 1], A, rtol=1e-10)
            drawn = rng.choice(40, 16, replace=False, shuffle=False)
            g_A, g_B = regression.empirical_gradients(X[s][drawn], Y[s][drawn], A, B)
            if rule.regularised:
                more = regression.regulariser_gradients(SIGMA[s], A, B)
                g_A = g_A + more[0]
                g_B = g_B + more[1]
            if rule.preconditioner == "none":
                g_B = g_B
            else:
                g_B = inverse @ g_B
            if rule.preconditioner == "left_right":
                g_A = g_A @ inverse
                g_B = g_B @ inverse
            A = A - 0.1 * g_A
            B = B - 0.1 * g_B
        np.testing.assert_allclose(history.A[s, 2], A, rtol=1e-10)
        np.testing.assert_allclose(history.B[s, 2], B, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(history.B, again[name].B)
        np.testing.assert_array_equal(history.diverged, -1)


def test_library_optimisers_see_the_same_minibatches():
    def soap(matrices):
        return SOAP(matrices, lr=0.01, weight_decay=0.0)

    rules = {"torch SGD": regression.library(torch.optim.SGD)(0.1), "sgd": RULES["sgd"]}
    history = descended(rules | {"SOAP": soap}, 10, [0, 10])
    np.testing.assert_allclose(history["torch SGD"].B, history["sgd"].B, rtol=1e-12)
    assert np.abs(history["SOAP"].B[:, 1] - START[1]).max() > 1e-3
    assert (history["SOAP"].diverged == -1).all()


@pytest.mark.parametrize("preconditioner", descent.PRECONDITIONERS)
def test_population_descent_is_geometric_at_the_linearised_rate(preconditioner):
    rates, directions = regression.modes(PROBLEM, preconditioner)
    assert len(rates) == 7 * 3 - 3 and rates[0] > 0
    if (
        preconditioner == "left_right"
    ):  # k > d: the slowest mode is sigma_d, the fastest 2 sigma_1
        extremes = PROBLEM.singular_values[[-1, 0]] * [1, 2]
        np.testing.assert_allclose(rates[[0, -1]], extremes, rtol=1e-6)
    step = 0.5 / rates[-1]
    rules = {"own": regression.PreconditionedRule(step, preconditioner)}
    start = SPACE.point() + 1e-5 * directions[0]
    starts = {"own": (start[None, :4], start[None, 4:])}
    source = regression.population(PROBLEM)
    history = regression.descend(
        source, rules, starts, PROBLEM.Sigma[None], 20, [0, 20]
    )["own"]
    excess = history.excess([PROBLEM])[0]
    rate = np.log(excess[1] / excess[0]) / 40
    np.testing.assert_allclose(rate, np.log1p(-step * rates[0]), rtol=1e-3)


NEAR = SPACE.point() + 0.2 * np.random.default_rng(1).standard_normal((7, 3))


def oracle_draws(n, batches, count):
    A, B = (torch.from_numpy(part)[None, None] for part in (NEAR[:4], NEAR[4:]))
    source = regression.oracle(PROBLEM, n, batches, [0])
    return [
        torch.cat([part[0, 0] for part in source(t, A, B)]).numpy()
        for t in range(count)
    ]


@pytest.mark.parametrize("n", [5, 40])
def test_oracle_has_the_mean_of_fresh_in_sample_gradients(n):
    ours = oracle_draws(n, 200, 200)
    rng = np.random.default_rng(2)
    X, Y = stacked(PROBLEM.sample(n, rng) for _ in range(4000))
    fresh = np.concatenate(regression.empirical_gradients(X, Y, NEAR[:4], NEAR[4:]), 1)
    error = np.hypot(*(np.std(x, 0, ddof=1) / np.sqrt(len(x)) for x in (ours, fresh)))
    np.testing.assert_array_less(
        np.abs(np.mean(ours, 0) - np.mean(fresh, 0)), 5 * error
    )


def test_the_oracle_takes_out_what_is_first_order_in_the_keys():
    spread = [np.std(oracle_draws(n, 60, 60), 0).max(1) for n in (100, 1600)]
    # The remainder is quadratic in the keys' fluctuations, so that it is 1/n. A part of
    # first order would be 1/sqrt(n).
    assert (spread[0] / spread[1] > 8).all()


def test_divergence_stops_the_run_and_names_its_iteration():
    history = descended(
        {"wild": regression.sgd(1e4), "tame": RULES["sgd"]}, 50, np.arange(51)
    )
    wild = history["wild"]
    tame = history["tame"]
    assert (wild.diverged > 0).all() and (wild.diverged < 50).all()
    assert np.isnan(wild.excess([PROBLEM] * 2)[:, -1]).all()
    for seed, t in enumerate(wild.diverged):
        assert np.isfinite(wild.A[seed, :t]).all() and np.isnan(wild.A[seed, t:]).all()
    assert (tame.diverged == -1).all() and np.isfinite(tame.A).all()


BAD = {
    "batch is 41": lambda: regression.minibatches(X, Y, 41, range(2)),
    "preconditioner must": lambda: regression.PreconditionedRule(0.1, "right"),
    "preconditioner .* not": lambda: regression.modes(PROBLEM, "right"),
    "step_size": lambda: regression.PreconditionedRule(float("nan")),
    "draws": lambda: regression.oracle(PROBLEM, 0, 10, [0]),
    "step_size .* '0.1'": lambda: regression.PreconditionedRule("0.1"),
    "record leaves 0..10: 0..11": lambda: descended(record=[0, 11]),
    r"record\[1\] = 0.5; it must be a whole": lambda: descended(record=[0, 0.5, 4]),
    r"record\[0\] = -1; it must be a whole": lambda: descended(record=[-1, 4]),
    "record is empty; it needs": lambda: descended(record=[]),
    "rules is empty": lambda: descended(rules={}),
    "starts lacks": lambda: descended(starts={}),
    r"starts\['left'\]: A has shape \(4, 3\)": lambda: descended(
        starts=dict.fromkeys(RULES, (START[0][0], START[1][0]))
    ),
    "covariance is singular": lambda: descended(Sigma=np.zeros_like(SIGMA)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()
