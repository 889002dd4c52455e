"""Formulas of paper B's scaling in n, each on an input of a few numbers."""

import numpy as np
import pytest
import torch

from lib import regression, seeds
from lib.regression import manifold
from papers.b import scaling

PROBLEM = regression.random_regression(0, d=2, k=3)
DRAW = np.random.default_rng(0)


@pytest.mark.parametrize("part, sizes", [(7, [3, 3, 2]), (1, [1] * 8), (100, [8])])
def test_draws_come_in_parts_of_at_most_the_given_size(monkeypatch, part, sizes):
    monkeypatch.setattr(scaling, "PART", part)
    parts = list(scaling._draws(np.random.default_rng(3), 8, 2, 1))
    assert [len(one) for one in parts] == sizes
    whole = np.random.default_rng(3).standard_normal((8, 2, 1))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_every_draw_has_its_own_stream_for_all_sizes():
    found = scaling.repeated(
        lambda size, rng: (size * rng.random(), size), [1, 10, 100], 2, "draws"
    )
    assert found.shape == (2, 2, 3)
    for r in range(2):
        uniform = seeds.stream(r, "draws").random(3)
        np.testing.assert_allclose(found[0, r], uniform * [1, 10, 100])
        np.testing.assert_array_equal(found[1, r], [1, 10, 100])


def test_softmax_sums_are_those_of_a_plain_loop():
    """The first-order change with a key is e (v - limit) / n, where E e = 1."""
    u = np.array([0.6, -0.4])
    query = np.array([1.0, 0.5])
    keys = DRAW.standard_normal((3, 4, 2))
    found = scaling._sums(u, query, keys.copy())
    keys[:, 0] = query
    eye = np.eye(2)
    for draw, g in enumerate(keys):
        logits = [key @ u for key in g]
        s = np.exp(logits) / np.sum(np.exp(logits))
        c = sum(w * key for w, key in zip(s, g, strict=True))
        C = sum(w * np.outer(key - c, key - c) for w, key in zip(s, g, strict=True))
        # Under the density e of mean 1 a key has the mean u and the covariance I.
        e = [np.exp(logit - (u**2).sum() / 2) for logit in logits]
        of_mean = sum(e[i] * (g[i] - u) for i in (1, 2, 3)) / 4
        of_second = (
            sum(e[i] * (np.outer(g[i], g[i]) - eye - np.outer(u, u)) for i in (1, 2, 3))
            / 4
        )
        of_outer = np.outer(of_mean, u) + np.outer(u, of_mean)
        expected = {
            "weight": 4 * s[0],
            "mean": c,
            "outer": np.outer(c, c),
            "covariance": C,
            "mean bias": c - u - of_mean,
            "outer bias": np.outer(c, c) - np.outer(u, u) - of_outer,
            "covariance bias": C - eye - (of_second - of_outer),
        }
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][draw], value, atol=1e-12)


def test_the_logits_of_the_integrals_are_those_of_l_transposed(monkeypatch):
    L = np.array([[1.0, 2.0], [0.0, -1.0]])
    seen = []

    def softmax_sums(u, query, sizes, draws, seed):
        seen.append((u, query, draws, seed))
        four = np.arange(1.0, 5)  # the estimates of the four parts
        parts = {"mean": four, "outer": four, "covariance": four}
        return {f"{k} bias": [np.repeat(v, 3)] * len(sizes) for k, v in parts.items()}

    monkeypatch.setattr(scaling, "softmax_sums", softmax_sums)
    found = scaling.integrated(L, [5, 9], 4, 3, repeats=2)
    square = []
    for q, (u, query, draws, seed) in enumerate(seen):
        drawn = seeds.stream(q, "start").standard_normal(2)
        np.testing.assert_array_equal(query, drawn)
        np.testing.assert_allclose(u, [drawn[0], 2 * drawn[0] - drawn[1]])
        assert (draws, seed) == (12, q)
        square.append((drawn**2).sum() * 1.5 * 3.5)
    means = [np.mean(square[:2]), np.mean(square[2:])]
    np.testing.assert_allclose(found["mean"], np.repeat(means, 2).reshape(2, 2))
    np.testing.assert_allclose(found["outer"], np.full((2, 2), 1.5 * 3.5))
    np.testing.assert_allclose(found["covariance"], np.full((2, 2), 24.0))


def test_the_leading_exponent_is_exact_for_its_own_form_from_the_bound_on():
    n = np.array([25, 50, 100, 400])
    values = np.stack([3 * n**-1.5 * np.exp(7 / n), n**-0.5 * np.exp(-20 / n)])
    np.testing.assert_allclose(scaling.leading(n, values), [-1.5, -0.5])
    values[:, 0] = 9.0
    np.testing.assert_allclose(scaling.leading(n, values, 50), [-1.5, -0.5])
    assert abs(scaling.leading(n, values, 25)[0] + 1.5) > 0.1


def test_least_squares_errors_are_those_of_numpy():
    problem = regression.random_regression(3, 2, 3, noise=0.3)
    found = scaling.least_squares_errors(problem, [6, 9], 2)
    for r in range(2):
        rng = seeds.stream(r, "draws")
        for j, n in enumerate((6, 9)):
            X, Y = problem.sample(n, rng)
            off = np.linalg.lstsq(X, Y, rcond=None)[0].T - problem.M
            square = np.trace(off @ problem.Sigma @ off.T)
            expected = 3 * 0.3**2 * 2 / (n - 3)
            assert found[r, j] == pytest.approx(square / expected)


def test_a_start_of_perturbed_data_is_that_of_its_own_minima():
    sizes = [0.0, 1e-3, 0.1]
    found = scaling.perturbed_starts(PROBLEM, sizes, 2)
    space = manifold.of(PROBLEM)
    for r in range(2):
        rng = seeds.stream(r, "draws")
        S = rng.standard_normal((2, 2))
        S = S + S.T
        S = S / np.abs(np.linalg.eigvalsh(S)).max()
        N = rng.standard_normal((3, 2))
        N = N / np.sqrt(np.linalg.eigvalsh(N.T @ N).max())
        for j, s in enumerate(sizes):
            near = manifold.Manifold(PROBLEM.Sigma + s * S, PROBLEM.M + s * N)
            expected = space.distance(near.point())
            assert found[r, j] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (found[:, 0] < 1e-8).all()
    assert (found[:, 1] < 0.03 * found[:, 2]).all() and (found[:, 1] > 1e-4).all()


def test_spectral_distances_are_those_of_fresh_spectral_starts():
    distances, _ = scaling.spectral_distances(PROBLEM, [20, 50], 2)
    for r in range(2):
        rng = seeds.stream(r, "labels")
        for j, n in enumerate((20, 50)):
            start = np.vstack(regression.spectral_start(*PROBLEM.sample(n, rng)))
            assert distances[r, j] == manifold.of(PROBLEM).distance(start)


def test_a_point_near_the_minima_is_off_by_a_fiftieth_of_a_gaussian():
    off = scaling.near(PROBLEM, 3) - manifold.of(PROBLEM).point()
    drawn = seeds.stream(3, "draws").standard_normal((5, 2))
    np.testing.assert_allclose(50 * off, drawn, rtol=1e-12)


def test_the_bias_of_the_regulariser_is_what_is_beyond_the_linear_part():
    """grad R is a polynomial of degree 4 in Sigma, whose linear part is exact."""
    Z = DRAW.standard_normal((5, 2))
    draws, n = 3, 4
    found = scaling.regulariser_bias(PROBLEM, Z, [n], draws, 1, 8)[0, 0]
    expected = np.zeros((5, 2))
    at = np.arange(-2.0, 3)
    for g in seeds.stream(8, "draws").standard_normal((draws, n, 2)):
        X = g @ PROBLEM.root
        off = X.T @ X / n - PROBLEM.Sigma
        values = [
            np.vstack(
                regression.regulariser_gradients(PROBLEM.Sigma + t * off, Z[:3], Z[3:])
            ).ravel()
            for t in at
        ]
        quartic, cubic, square, _, _ = np.polyfit(at, np.array(values), 4)
        expected += (quartic + cubic + square).reshape(5, 2) / draws
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_bias_of_the_loss_is_the_mean_of_enough_draws_of_at_most_2_to_the_20(
    monkeypatch,
):
    asked = []

    def oracle(problem, n, draws, of_seeds):
        asked.append((n, draws, of_seeds))

        def source(t, A, B):
            assert A.shape == (1, 1, 3, 2) and B.shape == (1, 1, 2, 2)
            return torch.full_like(A, 2.0**t), torch.full_like(B, 3.0 * t)

        return source

    monkeypatch.setattr(regression, "oracle", oracle)
    Z = DRAW.standard_normal((5, 2))
    limit = np.vstack(regression.population_gradients(PROBLEM, Z[:3], Z[3:]))
    sizes = [2**21, 2**20, 2**19, 2**10]
    found = scaling.loss_bias(PROBLEM, Z, sizes, 3, 2) + limit
    assert [draws for _, draws, _ in asked] == [1, 1, 2, 3] * 2
    assert [n for n, *_ in asked] == sizes * 2
    # Each entry has a stream of its own.
    assert len({of_seeds[0] for *_, of_seeds in asked}) == 8
    for passes, entry in zip((3, 3, 2, 1), found[0], strict=True):
        np.testing.assert_allclose(entry[:3], (2**passes - 1) / passes)
        np.testing.assert_allclose(entry[3:], 3 * (passes - 1) / 2, atol=1e-12)


def test_streams_of_different_repeats_and_sizes_do_not_meet(monkeypatch):
    asked = []

    def oracle(problem, n, draws, of_seeds):
        asked.extend(of_seeds)
        return lambda t, A, B: (A, B)

    monkeypatch.setattr(regression, "oracle", oracle)
    scaling.loss_bias(PROBLEM, np.zeros((5, 2)), [2, 3, 4], 1, 4)
    assert len(set(asked)) == 12


def test_the_bias_of_the_gradient_is_its_frobenius_norm(monkeypatch):
    bias = DRAW.standard_normal((2, 3, 5, 2))
    monkeypatch.setattr(scaling, "loss_bias", lambda *how: bias)
    found = scaling.gradient_bias(PROBLEM, [1, 2, 3], 1, 2)
    np.testing.assert_allclose(found**2, (bias**2).sum((2, 3)))


def test_the_tail_is_half_the_product_of_the_errors_of_its_two_halves():
    """With A = M + E Sigma^{-1} and B = I, the map is off by E; the middle record of
    three belongs to the later half.
    """
    E = DRAW.standard_normal((2, 5, 3, 2))
    A = PROBLEM.M @ np.linalg.inv(PROBLEM.Sigma) + E @ np.linalg.inv(PROBLEM.Sigma)
    B = np.broadcast_to(np.eye(2), (2, 5, 2, 2))
    iterations = np.array([0, 10, 20, 30, 40])
    history = regression.RegressionHistory(iterations, A, B, np.full(2, -1))
    first = E[:, 2]
    second = (E[:, 3] + E[:, 4]) / 2
    expected = [
        np.trace(a @ PROBLEM.Sigma @ b.T) / 2
        for a, b in zip(first, second, strict=True)
    ]
    for since in (20, 11):
        found = scaling.tail_excess(PROBLEM, history, since)
        np.testing.assert_allclose(found, expected)
    # The map is A Sigma B^T, with B transposed.
    turned = np.array([[0.0, -1.0], [2.0, 0.5]])
    inverse = np.linalg.inv(PROBLEM.Sigma @ turned.T)
    history = regression.RegressionHistory(
        iterations,
        (PROBLEM.M + E) @ inverse,
        np.broadcast_to(turned, (2, 5, 2, 2)),
        np.full(2, -1),
    )
    np.testing.assert_allclose(scaling.tail_excess(PROBLEM, history, 20), expected)


def test_every_step_is_recorded_of_every_run():
    source = regression.population(PROBLEM)
    run = scaling.from_slowest_mode(PROBLEM, 0.01, source, 3, runs=2)
    assert run.iterations.tolist() == [0, 1, 2, 3] and run.A.shape == (2, 4, 3, 2)
    np.testing.assert_array_equal(run.A[0], run.A[1])


def test_the_floors_are_those_of_the_last_two_thirds(monkeypatch):
    monkeypatch.setattr(
        scaling, "tail_excess", lambda problem, run, since: np.full(2, since)
    )
    floors = scaling.scaling(PROBLEM, [50, 60], 12, 2, [0, 1])
    np.testing.assert_array_equal(floors.floor, np.full((2, 2), 4))
    rates, _ = regression.modes(PROBLEM)
    assert floors.factor == pytest.approx((rates[-1] - rates[0]) ** 2 / rates[-1] ** 2)
    assert floors.exact.shape == (13,) and floors.excess.shape == (2, 2, 13)
    # All runs start at the radius, like the exact one.
    np.testing.assert_allclose(floors.excess[..., 0], floors.exact[0])
    radius = manifold.of(PROBLEM).constants().radius
    start = scaling.from_slowest_mode(
        PROBLEM, radius, regression.population(PROBLEM), 0
    )
    assert floors.exact[0] == start.excess([PROBLEM])[0, 0]


def test_the_rate_is_that_of_the_largest_size_in_the_mean_over_seeds():
    """Its logarithm per iteration is 0.8 and 1.4 times that of the factor."""
    sizes = np.array([25, 50, 100, 200])
    t = np.arange(20)
    excess = np.ones((4, 2, 20)) * 0.5**t
    excess[-1] = [0.9 ** (0.8 * t), 0.9 ** (1.4 * t)]
    floor = np.stack([sizes**-2.0 * np.exp(9 / sizes)] * 2, 1)
    floor[0] *= 2  # below LATE
    floors = scaling.Floors(sizes, t, excess, None, 1e-9 * floor, 0.9)
    rate, power, late = scaling.theorem_2(floors)
    assert rate.measured == pytest.approx(1.1)
    assert late.measured == pytest.approx(-2.0)
    slope = np.polyfit(np.log(sizes), np.log(floor[:, 0]), 1)[0]
    assert power.measured == pytest.approx(slope)


def test_the_powers_are_those_of_their_own_sizes():
    sizes = np.array([10, 100, 1000])
    bias_sizes = np.array([25, 50, 100, 200])
    bias = 1 / bias_sizes * np.exp(3 / bias_sizes)
    bias[0] = 1.0  # below LATE
    start, falls = scaling.powers(
        sizes, np.stack([sizes**-0.4, sizes**-0.6]), bias_sizes, np.stack([bias] * 2)
    )
    assert (start.id, start.measured) == ("lemma3", pytest.approx(-0.5))
    assert falls.measured == pytest.approx(-1.0)
