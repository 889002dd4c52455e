import numpy as np
import pytest
import torch
from pytorch_optimizer import SOAP

from lib import regression, seeds
from lib.regression import manifold, rules

PROBLEM = regression.random_regression(3, d=3, k=4)
SPACE = manifold.of(PROBLEM)


def samples(runs, n):
    pairs = [PROBLEM.sample(n, seeds.stream(seed, "labels")) for seed in range(runs)]
    return tuple(np.stack(part) for part in zip(*pairs, strict=True))


def random_starts(runs, std=0.3):
    pairs = [regression.gaussian_start(seed, 3, 4, std) for seed in range(runs)]
    return tuple(np.stack(part) for part in zip(*pairs, strict=True))


def covariances(X):
    return X.swapaxes(1, 2) @ X / X.shape[1]


RULES = {
    "left": regression.PreconditionedRule(0.1),
    "left_right": regression.PreconditionedRule(0.1, "left_right"),
    "none": regression.PreconditionedRule(0.1, "none"),
    "sgd": regression.sgd(0.1),
}


@pytest.mark.parametrize("name", RULES)
def test_descent_equals_the_plain_loop(name):
    X, Y = samples(2, 40)
    start, Sigma = random_starts(2), covariances(X)
    source = regression.minibatches(X, Y, 16, range(2))
    history = regression.descend(source, RULES, dict.fromkeys(RULES, start), Sigma, 12, [0, 5, 12])[
        name
    ]
    rule = RULES[name]
    for s in range(2):
        rng, A, B, inverse = (
            seeds.stream(s, "batches"),
            start[0][s],
            start[1][s],
            np.linalg.inv(Sigma[s]),
        )
        for t in range(12):
            if t == 5:
                np.testing.assert_allclose(history.A[s, 1], A, rtol=1e-10)
            drawn = rng.choice(40, 16, replace=False, shuffle=False)
            g_A, g_B = regression.empirical_gradients(X[s][drawn], Y[s][drawn], A, B)
            if rule.regularised:
                more = regression.regulariser_gradients(Sigma[s], A, B)
                g_A, g_B = g_A + more[0], g_B + more[1]
            g_B = g_B if rule.preconditioner == "none" else inverse @ g_B
            if rule.preconditioner == "left_right":
                g_A, g_B = g_A @ inverse, g_B @ inverse
            A, B = A - 0.1 * g_A, B - 0.1 * g_B
        np.testing.assert_allclose(history.A[s, 2], A, rtol=1e-10)
        np.testing.assert_allclose(history.B[s, 2], B, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(history.diverged, -1)


def test_library_optimisers_see_the_same_minibatches():
    X, Y = samples(2, 40)
    start, Sigma = random_starts(2), covariances(X)
    library = {
        "torch SGD": regression.Library(lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
        "sgd": regression.sgd(0.1),
        "SOAP": regression.Library(lambda parameters: SOAP(parameters, lr=0.01, weight_decay=0.0)),
    }
    source = regression.minibatches(X, Y, 16, range(2))
    history = regression.descend(source, library, dict.fromkeys(library, start), Sigma, 10, [0, 10])
    np.testing.assert_allclose(history["torch SGD"].B, history["sgd"].B, rtol=1e-12)
    assert np.abs(history["SOAP"].B[:, 1] - start[1]).max() > 1e-3
    assert (history["SOAP"].diverged == -1).all()


def test_the_same_seed_repeats_to_the_bit():
    X, Y = samples(2, 40)
    start, Sigma = random_starts(2), covariances(X)
    first, again = (
        regression.descend(
            regression.minibatches(X, Y, 16, range(2)),
            RULES,
            dict.fromkeys(RULES, start),
            Sigma,
            20,
            [20],
        )
        for _ in range(2)
    )
    for name in RULES:
        np.testing.assert_array_equal(first[name].B, again[name].B)


@pytest.mark.parametrize("preconditioner", rules.PRECONDITIONERS)
def test_population_descent_is_geometric_at_the_linearised_rate(preconditioner):
    rates, directions = regression.modes(PROBLEM, preconditioner)
    assert len(rates) == 7 * 3 - 3 and rates[0] > 0
    if preconditioner == "left_right":  # k > d: the slowest mode is sigma_d, the fastest 2 sigma_1
        np.testing.assert_allclose(
            rates[[0, -1]], PROBLEM.singular_values[[-1, 0]] * [1, 2], rtol=1e-6
        )
    step = 0.5 / rates[-1]
    rule = {"own": regression.PreconditionedRule(step, preconditioner)}
    record = np.array([0, 20])
    start = SPACE.point() + 1e-5 * directions[0]
    starts = {"own": (start[None, :4], start[None, 4:])}
    source = regression.population(PROBLEM)
    descended = regression.descend(source, rule, starts, PROBLEM.Sigma[None], record[-1], record)
    history = descended["own"]
    excess = history.excess([PROBLEM])[0]
    np.testing.assert_allclose(
        np.log(excess[1] / excess[0]) / 40, np.log1p(-step * rates[0]), rtol=1e-3
    )


@pytest.mark.parametrize("n", [5, 40])
def test_oracle_has_the_mean_of_fresh_in_sample_gradients(n):
    Z = SPACE.point() + 0.2 * np.random.default_rng(1).standard_normal((7, 3))
    A, B = (torch.from_numpy(part)[None, None] for part in (Z[:4], Z[4:]))
    source = regression.oracle(PROBLEM, n, 200, [0])
    ours = [torch.cat([part[0, 0] for part in source(t, A, B)]).numpy() for t in range(200)]
    rng = np.random.default_rng(2)
    fresh = [
        regression.empirical_gradients(*PROBLEM.sample(n, rng), Z[:4], Z[4:]) for _ in range(4000)
    ]
    fresh = np.stack([np.concatenate(pair) for pair in fresh])
    error = np.hypot(*(x.std(0, ddof=1) / np.sqrt(len(x)) for x in (np.stack(ours), fresh)))
    np.testing.assert_array_less(np.abs(np.mean(ours, 0) - fresh.mean(0)), 5 * error)


def test_the_oracle_takes_out_what_is_first_order_in_the_keys():
    Z = SPACE.point() + 0.2 * np.random.default_rng(1).standard_normal((7, 3))
    A, B = (torch.from_numpy(part)[None, None] for part in (Z[:4], Z[4:]))
    spread = []
    for n in (400, 6400):
        source = regression.oracle(PROBLEM, n, 60, [0])
        drawn = [torch.cat([part[0, 0] for part in source(t, A, B)]).numpy() for t in range(60)]
        spread.append(np.std(drawn, 0).max(1))
    # What is left is quadratic in the keys' fluctuations, 1/n; a part of first order, 1/sqrt(n).
    assert (spread[0] / spread[1] > 8).all()


def test_divergence_stops_the_run_and_names_its_iteration():
    X, Y = samples(2, 40)
    start, Sigma = random_starts(2), covariances(X)
    rules = {"wild": regression.sgd(1e4), "tame": regression.sgd(0.1)}
    source = regression.minibatches(X, Y, 16, range(2))
    history = regression.descend(source, rules, dict.fromkeys(rules, start), Sigma, 50, [0, 50])
    assert (history["wild"].diverged > 0).all() and (history["wild"].diverged < 50).all()
    assert (
        np.isnan(history["wild"].A[:, 1]).all()
        and np.isnan(history["wild"].excess([PROBLEM] * 2)[:, 1]).all()
    )
    assert (history["tame"].diverged == -1).all() and np.isfinite(history["tame"].A).all()
    one = {"wild": rules["wild"]}
    source = regression.minibatches(X, Y, 16, range(2))
    every = regression.descend(source, one, {"wild": start}, Sigma, 50, np.arange(51))["wild"]
    for seed, t in enumerate(every.diverged):
        assert np.isfinite(every.A[seed, :t]).all() and np.isnan(every.A[seed, t:]).all()


def test_bad_input_is_refused():
    X, Y = samples(2, 40)
    start, Sigma = random_starts(2), covariances(X)
    with pytest.raises(ValueError, match="batch is 41"):
        regression.minibatches(X, Y, 41, range(2))
    with pytest.raises(ValueError, match="preconditioner"):
        regression.PreconditionedRule(0.1, "right")
    with pytest.raises(ValueError, match="preconditioner"):
        regression.modes(PROBLEM, "right")
    with pytest.raises(ValueError, match="step_size"):
        regression.PreconditionedRule(float("nan"))
    with pytest.raises(ValueError, match="draws"):
        regression.oracle(PROBLEM, 0, 10, [0])
    source, starts = regression.minibatches(X, Y, 4, range(2)), dict.fromkeys(RULES, start)
    with pytest.raises(ValueError, match="record"):
        regression.descend(source, RULES, starts, Sigma, 10, [0, 11])
    with pytest.raises(ValueError, match="starts lacks"):
        regression.descend(source, RULES, {}, Sigma, 10, [0])
    with pytest.raises(ValueError, match="covariance is singular"):
        regression.descend(source, RULES, starts, np.zeros_like(Sigma), 10, [0])
