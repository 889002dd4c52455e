"""Tests of paper B's claims.

They hold on a problem that satisfies them, and fail on one that does not.
"""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from lib import regression, seeds
from lib.regression import manifold
from papers import fits
from papers.b import experiments, landscape, ledger_rows, scaling
from papers.b.statements import PAPER

PROBLEM = regression.random_regression(0, d=2, k=4)
QUIET = regression.random_regression(0, d=2, k=4, signal=0.05)  # A3 with c = 2


def failing(rows):
    return [row.id for row in rows if not row.holds]


def test_every_monte_carlo_claim_holds():
    exact = PAPER.claim("a3.exact", landscape.largest_self_logit(PROBLEM))
    assert failing([*landscape.by_monte_carlo(PROBLEM, 0, 50_000), exact]) == []


@pytest.mark.parametrize("distance", [1e-2, 1e-3])
def test_a_run_along_the_slowest_mode_starts_at_its_distance_from_the_minimum(distance):
    source = regression.population(PROBLEM)
    run = scaling.from_slowest_mode(PROBLEM, distance, source, 2)
    space = manifold.of(PROBLEM)
    Z = np.concatenate([run.A, run.B], 2)[0]  # (K, k + d, d)
    lengths = [space.norm(at - space.point()) for at in Z]
    assert lengths[0] == pytest.approx(distance, rel=1e-9)
    # Each iteration shrinks the deviation by 1 - eta lambda_min, to first order.
    rates, _ = regression.modes(PROBLEM)
    factor = 1 - rates[0] / rates[-1]
    assert lengths[1] / lengths[0] == pytest.approx(factor, rel=10 * distance)


def test_the_sample_average_of_the_loss_is_that_of_its_closed_form():
    assert failing([landscape.sample_average(PROBLEM, PROBLEM, 400_000)]) == []
    off = replace(PROBLEM, M=1.1 * PROBLEM.M)
    assert failing([landscape.sample_average(PROBLEM, off, 400_000)]) != []


def test_the_worst_perturbation_attains_the_constants_and_no_less():
    wide = regression.random_regression(0, 3, 5)
    lowest = landscape.curvatures(wide, 1, (1.0,))["left_right"][0]
    assert lowest == pytest.approx(1.0, abs=1e-4) and lowest >= 1 - 1e-10
    worst = landscape.curvatures(PROBLEM, 1)
    assert failing(landscape.one_point(worst)) == [] and worst["left"][1] > 0.3
    assert "convex.left_right" in failing(
        landscape.one_point({k: v / 2 for k, v in worst.items()})
    )
    # No search finds more
    assert worst["left_right"][1] == pytest.approx(1.0, abs=1e-9)
    assert "smooth.left_right" in failing(
        landscape.one_point({k: v / 0.99 for k, v in worst.items()})
    )
    ratios = [
        landscape.descent_ratio(PROBLEM, norm, 200) for norm in ("left_right", "left")
    ]
    assert ratios[0] == pytest.approx(1.0, abs=1e-9)
    assert PAPER.claim("lemma2", max(ratios)).holds
    ends = [claim.measured for claim in landscape.lemma1(wide)]
    assert ends == pytest.approx([1.0, 1.0], abs=1e-12)


def test_a_bias_is_estimated_without_the_noise_of_its_first_order():
    u = np.array([0.3, 0.2])
    query = np.array([1.0, -0.5])
    sums = scaling.softmax_sums(u, query, (30,), 20_000)
    limits = {"mean": u, "outer": np.outer(u, u), "covariance": np.eye(2)}
    for name, limit in limits.items():
        value = sums[name][0]
        bias = sums[f"{name} bias"][0]
        spread = value.std(0) / np.sqrt(20_000)
        np.testing.assert_array_less(
            np.abs(bias.mean(0) - value.mean(0) + limit), 4 * spread
        )
        assert bias.std() < 0.7 * value.std(), name
    alone = scaling.softmax_sums(u, query, (1,), 50)
    # a query without others has all the weight
    np.testing.assert_allclose(alone["weight"][0], 1.0)
    np.testing.assert_allclose(alone["mean"][0], np.broadcast_to(query, (50, 2)))


def test_biases_integrated_over_the_query_are_those_of_equal_weights():
    once, many = (
        scaling.integrated(np.zeros((2, 2)), (4,), queries, draws, repeats=queries)
        for queries, draws in ((2000, 1), (20, 4000))
    )
    queries = np.stack(
        [seeds.stream(q, "start").standard_normal(2) for q in range(2000)]
    )
    square = queries[:, :, None] * queries[:, None]
    eye = np.eye(2)
    mean = (queries**2).sum(1) ** 2 / 4**2  # |g|^2 |g/n|^2
    np.testing.assert_allclose(once["mean"][:, 0], mean)
    outer = ((square + 3 * eye) ** 2).sum((1, 2)) / 4**4
    assert many["outer"].mean() == pytest.approx(outer[:20].mean(), rel=0.02)
    C = square * (1 / 4 - 1 / 16) - eye * (1 / 4 + 3 / 16)
    fourth = (C**2).sum((1, 2)) ** 2
    assert many["covariance"].mean() == pytest.approx(fourth[:20].mean(), rel=0.05)
    # Noise of one draw adds nothing to a power of a mean
    for name, exact in (("outer", outer), ("covariance", fourth)):
        off = once[name][:, 0] - exact
        assert abs(off.mean()) < 3 * off.std() / np.sqrt(2000), name


def test_the_fit_takes_out_the_next_order():
    n = np.array([25, 50, 100, 200])
    for c, off, measured in ((1.0, 0.0, -1.0), (3.0, 0.0, -1.0), (1.0, 0.1, -0.9)):
        values = c / n * (1 + 2 / n) * n**off
        assert scaling.leading(n, values) == pytest.approx(measured, abs=5e-3)
        assert abs(fits.power_fit(n, values)[0] - measured) > 0.02


def test_the_bias_of_the_regulariser_in_one_dimension_is_that_of_chi_square_moments():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = regression.Regression(np.array([[0.7]]), np.array([[0.3]]), 0.1)
    a, b = Z = np.array([[1.2], [0.5]])
    for n, draws in (
        (12, 40_000),
        (1000, 2000),
    ):  # at many samples the first order is noise
        bias = scaling.regulariser_bias(problem, Z, (n,), draws, 2, 0)[:, 0].mean(0)
        second = 2 / n
        third = 6 / n + 8 / n**2
        fourth = 12 / n + 44 / n**2 + 48 / n**3
        of_a = a / 2 * (a**2 * 0.7**2 * second - b**2 * 0.7**3 * third)
        of_b = -b / 2 * (a**2 * 0.7**3 * third - b**2 * 0.7**4 * fourth)
        np.testing.assert_allclose(bias, [of_a, of_b], rtol=0.03)


def test_lemma_4_holds_with_its_constants_and_a_bad_preconditioner_worsens_them():
    problem = regression.random_regression(0, 2, 3)
    rng = np.random.default_rng(1)
    Q = np.array([[0.6, -0.8], [0.8, 0.6]])
    exact = landscape.sample_constants(problem, problem.Sigma, Q)
    assert exact == pytest.approx((0.8, (4 / 3) ** 0.5))
    X, _ = problem.sample(60, rng)
    low, high = landscape.sample_constants(problem, X.T @ X / 60, Q)
    inverse = np.linalg.inv(X.T @ X / 60)
    space = manifold.of(problem)
    assert high > (4 / 3) ** 0.5 and exact[0] >= low - 1e-12
    tried = []  # constants of Sigma itself, in directions orthogonal to the manifold
    for _ in range(1500):
        Z = space.point(Q) + 1e-6 * rng.standard_normal((5, 2))
        Delta = Z - space.project(Z)
        tried.append((manifold.gradient(problem, Z), Delta, space.norm(Delta)))
    alpha = min((g * Delta).sum() / size**2 for g, Delta, size in tried)
    beta = max(manifold.dual_norm(space, g) / size for g, _, size in tried)
    worst = 0.0
    for g, Delta, size in tried:
        h = rng.standard_normal((5, 2))
        e = rng.uniform(0, 2) * beta * size
        step = g + e * h / manifold.dual_norm(space, h)
        step[3:] = inverse @ step[3:]
        inner = (space.weighted(step, "left") * space.weighted(Delta, "left")).sum()
        assert inner >= low * alpha * 0.8 * size**2 - e**2 / (low * alpha * 0.8)
        worst = max(
            worst, space.norm(step) ** 2 / ((high * beta * size) ** 2 + 4 * e**2)
        )
    assert 0.3 < worst < 1.1


def test_the_smoothness_of_lemma_4_is_the_best_that_any_error_allows():
    """With an error of length e, |P g| is at most |S G| + e |S|, of which the lemma
    takes 4 e^2.
    """
    rng = np.random.default_rng(0)
    G, S = (part @ part.T for part in rng.standard_normal((2, 4, 4)))
    errors = np.linspace(0, 200, 200_001)
    for size in (0.3, 1.2, 1.9):
        shrunk = S * size / np.linalg.norm(S, 2)
        _, beta = landscape._best_constants(G, shrunk, np.eye(4), error=1.0)
        exact = np.linalg.norm(shrunk @ G, 2)
        needed = (exact + errors * size) ** 2 - 4 * errors**2
        assert beta**2 == pytest.approx(needed.max()) and needed.argmax() < 200_000
        _, beta = landscape._best_constants(G, shrunk, np.eye(4), error=0.0)
        assert beta == pytest.approx(exact)
    assert landscape._best_constants(G, 2 * shrunk, np.eye(4), 1.0)[1] == np.inf


@pytest.mark.parametrize("sizes", [(2, 4), (3, 5)])
def test_the_point_that_needs_the_best_smoothness_lies_at_the_radius(sizes):
    problem = regression.random_regression(0, *sizes)
    space = manifold.of(problem)
    radius = space.constants("left_right").radius
    beta, _, Z = landscape._steepest(problem)
    assert space.distance(Z, "left_right") == pytest.approx(radius)
    slope = manifold.dual_norm(space, manifold.gradient(problem, Z), "left_right")
    assert slope / radius == pytest.approx(beta)


def test_a_search_returns_the_end_that_is_farthest_from_the_minima(monkeypatch):
    def stay(value, start, **how):
        return SimpleNamespace(x=start)

    monkeypatch.setattr(landscape, "minimize", stay)
    space = manifold.of(PROBLEM)
    far = [
        space.distance(
            np.concatenate(regression.gaussian_start(seed, 2, 4)), "left_right"
        )
        for seed in range(4)
    ]
    for starts in (1, 2, 3, 4):
        assert landscape.search(PROBLEM, starts) == max(far[:starts])
    assert far[0] < max(far) > far[3]


def test_the_points_of_theorem_1_are_minima_and_a_wrong_covariance_is_seen():
    problem = regression.random_regression(0, 2, 3)
    points = np.stack(
        [manifold.of(problem).point(Q) for Q in (np.eye(2), -np.eye(2)[::-1])]
    )
    distance = landscape.search(problem, 3)
    assert distance < 1e-5
    assert failing(landscape.minima(problem, points, distance, problem)) == []
    wrong = replace(problem, Sigma=1.05 * problem.Sigma)
    assert len(failing(landscape.minima(problem, points, distance, wrong))) == 3


def test_least_squares_errs_by_its_mean_square():
    ratios = scaling.least_squares_errors(PROBLEM, [9], 1500)[:, 0]
    error = ratios.std() / np.sqrt(len(ratios))
    # n - d for n - d - 1 would be off by 0.17
    assert abs(ratios.mean() - 1) < 4 * error < 0.1


def test_standard_errors_are_those_of_the_mean():
    # Means 2 and 1.5, std 2 and 0.5
    estimates = np.array([[0.0, 1.0], [2.0, 1.5], [4.0, 2.0]])
    found = landscape._standard_errors(estimates, np.array([0.0, 1.5]))
    assert found == pytest.approx(np.sqrt(3))


def test_the_tail_is_freed_of_noise_that_is_independent_from_step_to_step():
    rng = np.random.default_rng(0)
    offset = np.full((4, 2), 0.1)
    A = PROBLEM.M + offset + rng.standard_normal((1000, 40, 4, 2))
    # The map is A itself
    B = np.broadcast_to(np.linalg.inv(PROBLEM.Sigma), (1000, 40, 2, 2))
    history = regression.RegressionHistory(np.arange(40), A, B, np.full(1000, -1))
    excess = scaling.tail_excess(PROBLEM, history, 20)
    expected = np.linalg.norm(offset @ PROBLEM.root) ** 2 / 2
    assert abs(excess.mean() - expected) < 4 * excess.std() / np.sqrt(1000) < expected
    with_noise = (
        np.linalg.norm((A[:, 20:].mean(1) - PROBLEM.M) @ PROBLEM.root, axis=(1, 2)) ** 2
    )
    assert with_noise.mean() / 2 > 2 * expected


def test_fits_find_exponents_rates_and_first_crossings():
    x = np.array([10.0, 100.0, 1000.0])
    assert fits.power_fit(x, 3 * x**-0.5) == pytest.approx((-0.5, 0.0))
    noisy = 3 * x**-0.5 * np.array([[1, 1, 1.1], [1, 1, 0.9]])
    exponent, error = fits.power_fit(x, noisy)
    each = [np.polyfit(np.log(x), np.log(y), 1)[0] for y in noisy]
    assert error == pytest.approx(np.std(each, ddof=1) / len(each) ** 0.5)
    assert abs(exponent + 0.5) < 2 * error
    t = np.arange(100)
    slope = fits.geometric_phase(t, 0.8**t + 1e-6, 1e-6)
    assert slope == pytest.approx(np.log(0.8), rel=0.01)
    values = np.array([[1.0, 0.1, 0.01], [1.0, 1.0, 1.0]])
    assert fits.first_below(np.array([0, 5, 9]), values, 0.1).tolist() == [5, np.inf]


def test_scaling_law():
    floors = scaling.scaling(PROBLEM, [50, 160, 500], 100, 64, range(2))
    # At this signal the floor does not fall like n^-2 yet.
    assert failing(scaling.theorem_2(floors)) == ["thm2.floor_late"]
    quiet = scaling.scaling(QUIET, [50, 100, 200, 400], 100, 16, range(3))
    late = scaling.theorem_2(quiet)[-1]
    assert late.measured == pytest.approx(-2, abs=0.1), late
    np.testing.assert_allclose(
        floors.exact[1:] / floors.exact[:-1], floors.factor, rtol=0.06
    )
    assert floors.excess.shape == (3, 2, 101)


def test_spectral_start_and_gradient_bias_fall_as_claimed():
    start_sizes = [100, 1000, 10_000]
    sizes = [50, 100, 200, 400]
    distances, inverse = scaling.spectral_distances(PROBLEM, start_sizes, 20)
    bias = scaling.gradient_bias(QUIET, sizes, 10_000, 3)
    assert fits.power_fit(start_sizes, inverse)[0] == pytest.approx(-0.5, abs=0.1)
    assert failing(scaling.powers(start_sizes, distances, sizes, bias)) == []


def test_the_inverse_covariance_is_off_by_its_spectral_norm():
    _, inverse = scaling.spectral_distances(PROBLEM, [20], 5)
    for r, found in enumerate(inverse[:, 0]):
        X, _ = PROBLEM.sample(20, seeds.stream(r, "labels"))
        values = eigh(PROBLEM.Sigma, X.T @ X / 20, eigvals_only=True)
        assert found == pytest.approx(np.abs(values - 1).max())


def test_the_bias_of_the_gradient_agrees_with_fresh_batches():
    Z = scaling.near(PROBLEM, 0)
    rng = np.random.default_rng(0)
    (bias,) = scaling.gradient_bias(PROBLEM, [20], 4000, 1)[0]
    X, Y = map(
        np.stack, zip(*(PROBLEM.sample(20, rng) for _ in range(3000)), strict=True)
    )
    gradients = regression.empirical_gradients(X, Y, Z[:4], Z[4:])
    plain = np.concatenate([part.mean(0) for part in gradients])
    limit = np.concatenate(regression.population_gradients(PROBLEM, Z[:4], Z[4:]))
    assert np.linalg.norm(plain - limit) == pytest.approx(bias, rel=0.15)


def test_ablation_has_all_eight_and_knows_its_effects():
    shape = dict(d=2, k=4, signal=0.2, noise=0.045, floor=0.35)
    data = experiments.Experiment.draw(range(2), 50, 1.0, **shape)
    pairs = zip(data.X, data.problems, strict=True)
    white = [X @ np.linalg.inv(problem.root) for X, problem in pairs]
    assert np.abs(white[0] - white[1]).max() > 1  # each seed has its own samples
    rules, starts = experiments.ablation(data, 0.1)
    assert len(rules) == 8 and not rules["random"].regularised
    assert rules["spectral, P, R"].preconditioner == "left"
    assert starts["spectral"] is data.spectral and starts["random, P"] is data.random
    last = {"random": 8.0, "random, P": 4.0, "random, R": 2.0, "random, P, R": 1.0}
    excess = {name: np.full((1, 1), value) for name, value in last.items()}
    effects = [experiments.factor_effect(excess, mark) for mark in "PR"]
    assert effects == [pytest.approx(0.5), pytest.approx(0.25)]


def test_figures_are_judged_by_the_worst_seed():
    good = np.array([[1e-3, 0.02], [5e-3, 0.04]])
    sgd = np.array([[2e3, 0.4], [5e3, 0.2]])
    for ours, wrong in (
        (good, []),
        (np.array([[1e-3, 0.02], [0.02, 0.06]]), ["start", "end"]),
    ):
        excess = {"spectral, P, R": ours, "random, P, R": ours, "random": sgd}
        first, second = experiments.figure_claims(excess)
        expected = [f"fig{k}.{word}" for k, word in enumerate(wrong, 1)]
        assert failing([*first, *second]) == expected


def test_iterations_on_ill_conditioned_problems_cut_the_distance_a_millionfold():
    problem = experiments.ill_conditioned(4.0, 0)
    even = 4.0 ** np.linspace(-1, 0, 4)
    np.testing.assert_allclose(np.linalg.eigvalsh(problem.Sigma), even)
    np.testing.assert_allclose(problem.singular_values, np.linspace(0.2, 0.1, 4))
    for name, counts in experiments.condition_numbers([4.0], [0]).items():
        rates, _ = regression.modes(problem, name)
        assert (1 - rates[0] / rates[-1]) ** counts[0, 0] == pytest.approx(1e-6)


def test_a_tenfold_gain_is_asked_of_the_worst_draw_and_growth_is_an_exponent():
    conditions = [1.0, 10.0, 100.0]
    slow = np.array([[1.0, 1.0], [10.0, 10.0], [100.0, 100.0]])
    assert experiments.growth(conditions, slow**0.5) == pytest.approx([0.5, 0.5])
    iterations = {"none": slow, "left": slow * [0.05, 0.2], "left_right": slow**0}
    gain, flat = experiments.gains(conditions, iterations)
    assert gain.measured == pytest.approx(0.2) and not gain.holds and flat.holds
    better = iterations | {"left": slow * 0.05, "left_right": slow**0.1}
    assert [claim.holds for claim in experiments.gains(conditions, better)] == [
        True,
        False,
    ]


def test_the_gain_is_that_at_the_last_condition_number():
    slow = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    left = slow * [[0.9, 0.8], [0.5, 0.4], [0.03, 0.07]]
    iterations = {"none": slow, "left": left, "left_right": slow**0}
    gain, _ = experiments.gains([1.0, 10.0, 100.0], iterations)
    assert gain.measured == pytest.approx(max(3 / 100, 14 / 200))


def test_ten_parts_share_the_draws_and_each_draw_is_in_one_of_them():
    sizes = [np.arange(23.0)[:, None], 100 + np.arange(40.0)[:, None]]
    found = ledger_rows._in_parts(sizes, lambda part: part.sum((1, 2)))
    expected = np.zeros((10, 2))
    for size, values in enumerate(sizes):
        for draw in range(len(values) // 10 * 10):
            expected[draw % 10, size] += values[draw, 0]
    np.testing.assert_array_equal(found, expected)


def test_the_quantile_that_is_not_exceeded_is_that_of_each_quarter():
    values = np.random.default_rng(0).standard_normal((2, 20, 3))
    found = ledger_rows._not_exceeded(values)
    assert found.shape == (2, 4, 3)
    for quarter in range(4):
        drawn = values[:, 5 * quarter : 5 * quarter + 5]
        np.testing.assert_allclose(
            found[:, quarter], np.quantile(drawn, 0.9, axis=1), rtol=1e-12
        )


def plain_gradients(X, Y, A, B):
    """Return the gradients of Eq. 1 by torch: the mean over queries of |A c - y|^2
    / 2.
    """
    A, B = (torch.tensor(part, requires_grad=True) for part in (A, B))
    X, Y = (torch.tensor(part) for part in (X, Y))
    weights = torch.softmax(X @ B @ X.T, dim=1)
    loss = ((weights @ X @ A.T - Y) ** 2).sum(1).mean() / 2
    loss.backward()
    return A.grad.numpy(), B.grad.numpy()


def plain_descent(data, s, seed, kind, step_size, batch, steps):
    """Return (L - L*)/L* at every iteration of one seed, from the random start."""
    A, B = (part[s].copy() for part in data.random)
    problem = data.problems[s]
    X = data.X[s]
    S = X.T @ X / len(X)
    inverse = np.linalg.inv(S)
    left = np.eye(len(S)) if kind == "none" else inverse
    right = inverse if kind == "left_right" else np.eye(len(S))
    draw = seeds.stream(seed, "batches")
    values, vectors = np.linalg.eigh(problem.Sigma)
    root = vectors * np.sqrt(values) @ vectors.T
    optimum = len(A) * problem.noise**2 / 2
    ratios = []
    for _ in range(steps + 1):
        error = (A @ problem.Sigma @ B.T - problem.M) @ root
        ratios.append((error**2).sum() / 2 / optimum)
        rows = draw.choice(len(X), batch, replace=False, shuffle=False)
        g_A, g_B = plain_gradients(X[rows], data.Y[s][rows], A, B)
        G = S @ (A.T @ A - B.T @ S @ B) @ S
        g_A = g_A + A @ G / 2
        g_B = g_B - S @ B @ G / 2
        A = A - step_size * g_A @ right
        B = B - step_size * left @ g_B @ right
    return np.array(ratios)


def test_times_by_condition_number_are_those_of_a_plain_loop():
    floors = (0.5, 0.1)
    of_seeds = (3, 4)
    batch, steps, step_size = 6, 30, 0.2
    shape = dict(n=12, start_std=0.5, d=2, k=3, signal=0.2, noise=0.2)

    def build(floor):
        return experiments.Experiment.draw(of_seeds, floor=floor, **shape)

    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    paths = {
        name: np.array(
            [
                [
                    plain_descent(build(floor), s, seed, kind, step_size, batch, steps)
                    for s, seed in enumerate(of_seeds)
                ]
                for floor in floors
            ]
        )
        for name, kind in kinds.items()
    }
    # Some runs get below this level, and some do not.
    level = 1.01 * np.median([path[..., 20] for path in paths.values()])
    conditions, times = experiments.conditioning(
        floors, build, step_size, batch, steps, of_seeds, level
    )
    for row, floor in enumerate(floors):
        for s, problem in enumerate(build(floor).problems):
            values = np.linalg.eigvalsh(problem.Sigma)
            assert conditions[row, s] == pytest.approx(values[-1] / values[0])
    seen = set()
    for name, path in paths.items():
        for place in np.ndindex(len(floors), len(of_seeds)):
            below = [t for t in range(0, steps + 1, 10) if path[place][t] <= level]
            expected = below[0] if below else np.inf
            assert times[name][place] == expected, (name, place)
            seen.add(expected)
    assert len(seen) > 2 and np.inf in seen


def test_the_best_step_is_the_soonest_there_or_else_the_lowest_end(monkeypatch):
    record = np.array([0, 10, 20])
    nan = np.nan
    excess = {  # three seeds each, by rule and step
        # All seeds are there: 0.1 after 10, 20, 20 iterations, 0.2 after 10, 10, 20.
        ("both", 0.1): [[9, 1, 0.1], [9, 2, 0.1], [9, 2, 0.1]],
        ("both", 0.2): [[9, 1, 0.9], [9, 1, 0.9], [9, 2, 0.9]],
        # One seed never arrives, though the others arrive at once and end lowest.
        ("both", 0.4): [[1, 0, 0], [1, 0, 0], [9, 9, 1.1]],
        # With no step do all seeds arrive. Then the median end counts, not the mean or
        # the best.
        ("ends", 0.1): [[9, 9, 0.5], [9, 9, 8], [9, 9, 8]],
        ("ends", 0.2): [[9, 9, 2], [9, 9, 3], [9, 9, 90]],
        ("ends", 0.4): [[9, 9, 4], [9, 9, 4], [9, 9, 4]],
        # A diverged seed has no end.
        ("lost", 0.1): [[9, 9, 7], [9, 9, 7], [9, 9, 7]],
        ("lost", 0.2): [[9, 9, 0.1], [9, nan, nan], [9, nan, nan]],
        ("lost", 0.4): [[9, 9, 8], [9, 9, 8], [9, 9, 8]],
    }

    def from_random(data, rules, *how):
        assert (data, how) == ("data", (5, 20, [7, 8, 9]))
        return record, {
            step: np.array(excess[rule], float) for step, rule in rules.items()
        }

    monkeypatch.setattr(experiments, "_from_random", from_random)
    makers = {
        name: lambda step, name=name: (name, step) for name in ("both", "ends", "lost")
    }
    best = experiments.tune(
        makers, [0.1, 0.2, 0.4], "data", 5, 20, [7, 8, 9], level=1.0
    )
    assert best == {"both": 0.2, "ends": 0.2, "lost": 0.1}


def test_the_effects_of_the_parts_are_medians_over_seeds():
    start = np.array([[2.0, 9.0], [3.0, 9.0], [40.0, 9.0]])
    random = np.array([[1000.0, 9.0], [3000.0, 9.0], [100.0, 9.0]])
    effects = {"P": np.array([0.5, 0.9, 7.0]), "R": np.array([2.0, 1.5, 0.1])}
    easy = [1.0, 1.0, 1.0]
    times = {
        "P and R": np.array([easy, [10.0, np.inf, 20.0]]),
        "R only": np.array([easy, [50.0, np.inf, np.inf]]),
        "two-sided P and R": np.array([easy, easy]),
    }
    rows = experiments.ablation_claims(
        {"spectral, P, R": start, "random, P, R": random}, effects, times, steps=100
    )
    measured = {row.id: row.measured for row in rows}
    assert measured == pytest.approx(
        {
            "ablation.start": 0.002,
            "ablation.preconditioner": 0.9,
            "ablation.regulariser": 1.5,
            "conditioning": 20 / 100,
        }
    )
    assert failing(rows) == ["ablation.start", "ablation.regulariser"]


def test_conditioning_fails_if_no_rule_reaches_the_level():
    excess = {name: np.ones((1, 2)) for name in ("spectral, P, R", "random, P, R")}
    never = np.full((1, 1), np.inf)
    for both, measured in ((never, np.nan), (np.array([[20.0]]), 20 / 100)):
        times = {"P and R": both, "R only": never}
        rows = experiments.ablation_claims(
            excess, {"P": [1.0], "R": [1.0]}, times, steps=100
        )
        assert rows[-1].measured == pytest.approx(measured, nan_ok=True)
        assert rows[-1].holds == (both is not never)


def test_the_sample_preconditioner_moves_alpha_only_if_k_is_d():
    rng = np.random.default_rng(0)
    sizes = replace(ledger_rows.SMALL, d=2, k=4)
    wide = ledger_rows._problem(sizes)
    square = ledger_rows._square(sizes)
    assert (square.k, square.d) == (2, 2)
    off = {}
    for problem in (wide, square):
        X, _ = problem.sample(500, rng)
        alpha, _ = landscape.sample_constants(problem, X.T @ X / 500, np.eye(2))
        off[problem.k] = abs(alpha - 4 / 5)
    assert off[4] < 1e-12 and off[2] > 1e-4


def test_the_excess_ends_at_the_balance_for_the_sample_covariance():
    """The run ends where A Sigma B^T = M and A^T A = B^T S B, with S that of the data
    set. There R(Z) = |D^(1/2) V^T (S' - I) V D^(1/2)|^2 / 8 for the whitened S'.
    """
    n = 6400
    sizes = replace(ledger_rows.SMALL, draws=8)
    found = ledger_rows._with_exact_gradients(sizes, (n,))
    problem = ledger_rows._problem(sizes)
    inverse = np.linalg.inv(problem.root)
    _, D, Vt = np.linalg.svd(problem.M @ problem.root, full_matrices=False)
    for seed, (excess,) in enumerate(found):
        X, _ = problem.sample(n, seeds.stream(seed, "labels"))
        off = inverse @ (X.T @ X / n) @ inverse - np.eye(problem.d)
        balance = np.sqrt(D)[:, None] * (Vt @ off @ Vt.T) * np.sqrt(D)
        assert excess == pytest.approx((balance**2).sum() / 8, rel=0.15)


def test_algorithm_1_is_compared_with_sgd_seed_by_seed():
    ours = np.array([[8.0, 1.0], [8.0, 2.0], [8.0, 30.0]])
    sgd = np.array([[9.0, 4.0], [9.0, 10.0], [9.0, 5.0]])
    row = experiments.against_best_sgd({"Algorithm 1": ours, "SGD": sgd})
    # The median of 1/4, 2/10 and 30/5.
    assert (row.id, row.measured, row.holds) == ("other.sgd", 0.25, True)
    assert not experiments.against_best_sgd({"Algorithm 1": sgd, "SGD": ours}).holds


def test_the_largest_self_logit_of_one_dimension_is_that_of_its_two_minima():
    line = regression.random_regression(0, d=1, k=2)
    assert landscape.largest_self_logit(line) == pytest.approx(1.0, abs=1e-9)


def test_a_batch_of_one_sample_attends_to_itself():
    """Then A c = A x, so that E grad_A L^ = (A - M) Sigma, and B has no gradient."""
    Z = scaling.near(PROBLEM, 0)
    bias = scaling.loss_bias(PROBLEM, Z, [1], 20_000, 6)[:, 0]
    limit = np.concatenate(regression.population_gradients(PROBLEM, Z[:4], Z[4:]))
    expected = np.concatenate([(Z[:4] - PROBLEM.M) @ PROBLEM.Sigma, 0 * Z[4:]]) - limit
    error = bias.std(0, ddof=1) / np.sqrt(len(bias))
    assert (np.abs(bias.mean(0) - expected) <= 6 * error + 1e-12).all()
    assert np.abs(expected).max() > 50 * error.max()
    # Each entry has draws of its own.
    assert np.ptp(bias, axis=0).max() > 0


def test_every_tenth_iteration_up_to_the_last_step_is_recorded(monkeypatch):
    """(L - L*) / L* divides the excess of each problem by its own optimum."""
    problems = [replace(PROBLEM, noise=0.1), replace(PROBLEM, noise=0.3)]
    asked = []

    def descend(source, rules, starts, covariance, steps, record):
        asked.append((starts, record.tolist()))
        excess = np.ones((2, len(record))) * [[3.0], [5.0]]
        return {name: SimpleNamespace(excess=lambda problems: excess) for name in rules}

    monkeypatch.setattr(regression, "descend", descend)
    monkeypatch.setattr(regression, "minibatches", lambda *how: None)
    data = SimpleNamespace(
        X=None, Y=None, covariance=None, random="start", problems=problems
    )
    for steps, expected in ((9, [0]), (10, [0, 10]), (29, [0, 10, 20])):
        record, excess = experiments._from_random(data, {"a": 1}, 3, steps, [0, 1])
        assert record.tolist() == expected
        assert asked[-1] == ({"a": "start"}, expected)
        # L* = k noise^2 / 2 is 0.02 and 0.18.
        np.testing.assert_allclose(excess["a"][:, -1], [3 / 0.02, 5 / 0.18])


def test_the_effect_of_a_part_is_that_at_the_last_iteration():
    last = {"random": 8.0, "random, P": 4.0, "random, R": 2.0, "random, P, R": 3.0}
    excess = {
        name: np.array([[7.0, 9.0 - value, value]]) for name, value in last.items()
    }
    of_P, of_R = (experiments.factor_effect(excess, mark)[0] for mark in "PR")
    assert of_P == pytest.approx(np.sqrt(4 / 8 * 3 / 2))
    assert of_R == pytest.approx(np.sqrt(2 / 8 * 3 / 4))


def test_figures_measure_the_worst_seed_at_the_start_and_at_the_end():
    ours = np.array([[1e-3, 7.0, 0.02], [5e-3, 7.0, 0.04]])
    ablated = np.array([[3.0, 7.0, 0.03], [4.0, 7.0, 0.01]])
    sgd = np.array([[2e3, 7.0, 0.4], [5e3, 7.0, 0.2]])
    excess = {"spectral, P, R": ours, "random, P, R": ablated, "random": sgd}
    first, second = experiments.figure_claims(excess)
    assert {row.id: row.measured for row in (*first, *second)} == {
        "fig1.start": 5e-3,
        "fig1.sgd_start": 2001.0,  # L over L*, and not L - L*
        "fig1.sgd_end": 0.2,
        "fig2.end": 0.03,
        "fig2.sgd_end": 0.2,
    }


@pytest.mark.parametrize(
    "id, inside, outside",
    [
        ("fig1.start", 0.0099, 0.0101),
        ("fig1.sgd_start", 1001.0, 999.0),
        ("fig1.sgd_end", 0.051, 0.049),
        ("fig2.end", 0.049, 0.051),
        ("ablation.start", 0.00099, 0.00101),
        ("conditioning", 0.99, 1.01),
        ("ill.gain", 0.099, 0.101),
        ("ill.flat", 0.049, 0.051),
        ("other.sgd", 0.99, 1.01),
        ("sample_average", 1.019, 1.021),
        ("thm2.rate", 0.951, 0.949),
        ("thm2.floor_late", -2.049, -2.051),
        ("theorem4", -0.951, -0.949),
    ],
)
def test_each_claim_holds_up_to_its_bound(id, inside, outside):
    assert PAPER.claim(id, inside, say=(1,)).holds
    assert not PAPER.claim(id, outside, say=(1,)).holds


def test_the_gain_names_the_last_condition_number():
    slow = np.array([[1.0], [10.0], [100.0]])
    iterations = {"none": slow, "left": slow / 20, "left_right": slow**0}
    gain, _ = experiments.gains([1.5, 23.5, 777.0], iterations)
    assert "777" in gain.statement and "23.5" not in gain.statement


def test_eigenvalues_between_the_ends_are_even_in_the_logarithm():
    problem = experiments.ill_conditioned(1000.0, 1, d=3, k=5, signal=0.24)
    values = np.linalg.eigvalsh(problem.Sigma)
    np.testing.assert_allclose(values, [1e-3, 10**-1.5, 1.0], rtol=1e-9)
    np.testing.assert_allclose(problem.singular_values, [0.24, 0.18, 0.12])
    assert problem.M.shape == (5, 3)


def test_growth_is_fitted_seed_by_seed():
    conditions = [2.0, 20.0, 200.0]
    iterations = np.array(conditions)[:, None] ** [0.5, 1.5] * [3.0, 7.0]
    np.testing.assert_allclose(experiments.growth(conditions, iterations), [0.5, 1.5])


def test_the_covariance_of_each_seed_is_its_mean_square():
    shape = dict(d=2, k=3, signal=0.2, noise=0.1, floor=0.5)
    data = experiments.Experiment.draw([3, 8], 7, 0.25, **shape)
    for s, seed in enumerate((3, 8)):
        mean = np.mean([np.outer(x, x) for x in data.X[s]], 0)
        np.testing.assert_allclose(data.covariance[s], mean)
        A, B = regression.gaussian_start(seed, 2, 3, 0.25)
        np.testing.assert_array_equal(data.random[0][s], A)
        np.testing.assert_array_equal(data.random[1][s], B)
        start = regression.spectral_start(data.X[s], data.Y[s])
        np.testing.assert_array_equal(data.spectral[0][s], start[0])
