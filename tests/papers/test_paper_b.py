import numpy as np
import pytest

from lib import regression, seeds
from lib.papers import fits
from lib.papers.b import concentration, experiments, figures, measurements, smoothness, theorems
from lib.regression import manifold

PROBLEM = regression.random_regression(0, d=2, k=4)


@pytest.fixture(scope="module")
def floors():
    return measurements.scaling(PROBLEM, [50, 160, 500], 100, 64, range(2))


def test_every_monte_carlo_claim_holds():
    rows = theorems.by_monte_carlo(PROBLEM, 0, 50_000)
    rows += [theorems.integrability_threshold(PROBLEM), smoothness.descent_lemma(PROBLEM, 20)]
    assert [row.id for row in rows if not row.holds] == []


def test_the_worst_perturbation_attains_the_convexity_constant_and_no_less():
    lowest, highest = measurements.worst_curvature(
        regression.random_regression(0, 3, 5), "left_right", 1
    )
    assert lowest == pytest.approx(1.0, abs=1e-4) and lowest >= 1 - 1e-10
    assert 0.3 < highest <= 1
    found = theorems.curvatures(PROBLEM, 1, (1.0,))
    assert all(row.holds for row in theorems.one_point(found))
    assert not theorems.one_point(found, 1.0)[2].holds
    assert found["left_right"][1] == pytest.approx(1.0, abs=1e-9)  # no search finds more
    assert not theorems.one_point(found, -0.01)[3].holds


def test_the_steepest_point_attains_lemma_2_and_no_point_exceeds_it():
    ratio = smoothness.descent_ratio(PROBLEM, "left_right", 200)
    assert ratio == pytest.approx(1.0, abs=1e-9)
    assert smoothness.lemma2(ratio, "left_right").holds
    assert not smoothness.lemma2(ratio, "left_right", -0.01).holds


def test_a_bias_is_estimated_without_the_noise_of_its_first_order():
    u = np.array([0.3, 0.2])
    sums = concentration.softmax_sums(u, (30,), 20_000)
    plain = sums["mean"][0].mean(0) - u
    spread = sums["mean"][0].std(0) / np.sqrt(20_000)
    np.testing.assert_array_less(np.abs(sums["mean bias"][0].mean(0) - plain), 4 * spread)
    assert (sums["mean bias"][0].std(0) < 0.5 * sums["mean"][0].std(0)).all()
    assert concentration.biases(sums["mean bias"], 5).shape == (5, 1)
    alone = concentration.softmax_sums(u, (1,), 50)["weight"][0]
    np.testing.assert_allclose(alone, 1.0)  # a key without others has all the weight


def test_the_singular_values_attain_the_bounds_of_lemma_1():
    of = regression.random_regression(1, 3, 5)
    assert concentration.singular_ends(of) == pytest.approx((1.0, 1.0), abs=1e-12)


def test_least_squares_errs_by_its_mean_square():
    found = concentration.least_squares_errors(PROBLEM, [9], 1500)[:, 0]
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - 1) < 4 * error < 0.1  # n - d for n - d - 1 would be off by 0.17


def test_standard_errors_are_those_of_the_mean():
    estimates = np.array([[0.0, 1.0], [2.0, 1.5], [4.0, 2.0]])  # means 2 and 1.5, std 2 and 0.5
    assert theorems.standard_errors(estimates, np.array([0.0, 1.5])) == pytest.approx(np.sqrt(3))


def test_the_tail_is_freed_of_noise_that_is_independent_from_step_to_step():
    rng, offset = np.random.default_rng(0), np.full((4, 2), 0.1)
    A = PROBLEM.M + offset + rng.standard_normal((1000, 40, 4, 2))
    B = np.broadcast_to(np.linalg.inv(PROBLEM.Sigma), (1000, 40, 2, 2))  # the map is A itself
    history = regression.RegressionHistory(np.arange(40), A, B, np.full(1000, -1))
    found = measurements.tail_excess(PROBLEM, history, 20)
    expected = np.linalg.norm(offset @ PROBLEM.root) ** 2 / 2
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(1000) < expected
    with_noise = np.linalg.norm((A[:, 20:].mean(1) - PROBLEM.M) @ PROBLEM.root, axis=(1, 2)) ** 2
    assert with_noise.mean() / 2 > 2 * expected


def test_power_fit_finds_exponent_and_error():
    x = np.array([10.0, 100.0, 1000.0])
    assert fits.power_fit(x, 3 * x**-0.5) == pytest.approx((-0.5, 0.0))
    noisy = 3 * x**-0.5 * np.array([[1, 1, 1.1], [1, 1, 0.9]])
    exponent, error = fits.power_fit(x, noisy)
    each = [np.polyfit(np.log(x), np.log(y), 1)[0] for y in noisy]
    assert error == pytest.approx(np.std(each, ddof=1) / len(each) ** 0.5)
    assert abs(exponent + 0.5) < 2 * error


def test_geometric_phase_stops_above_the_floor():
    t = np.arange(100)
    slope, fit = fits.geometric_phase(t, 0.8**t + 1e-6, 1e-6)
    assert slope == pytest.approx(np.log(0.8), rel=0.01) and fit > 0.999


def test_scaling_law(floors):
    assert [row.id for row in theorems.theorem_2(floors) if not row.holds] == []
    np.testing.assert_allclose(floors.exact[1:] / floors.exact[:-1], floors.factor, rtol=0.06)
    assert floors.excess.shape == (3, 2, 101)
    # What the constants promise: |Delta|^2 shrinks by 1 - 2 eta mu + eta^2 L^2 at the best eta.
    constants = manifold.of(PROBLEM).constants("left")
    eta = np.linspace(0, 2, 2001) * constants.convexity / constants.smoothness**2
    shrunk = 1 - 2 * eta * constants.convexity + (eta * constants.smoothness) ** 2
    assert floors.guarantee == pytest.approx(shrunk.min(), abs=1e-12)


def test_spectral_start_and_gradient_bias_fall_as_claimed():
    start_sizes, sizes = [100, 1000, 10_000], [100, 1000]
    distances = measurements.spectral_distances(PROBLEM, start_sizes, 20)
    bias = measurements.gradient_bias(PROBLEM, sizes, 1000, 3)
    assert [
        row.id for row in theorems.powers(start_sizes, distances, sizes, bias) if not row.holds
    ] == []


def test_the_bias_of_the_gradient_agrees_with_fresh_batches():
    n, rng = 20, np.random.default_rng(0)
    (bias,) = measurements.gradient_bias(PROBLEM, [n], 4000, 1)[0]
    Z = manifold.of(PROBLEM).point() + 0.02 * seeds.stream(0, "draws").standard_normal((6, 2))
    X, Y = (
        np.stack(part) for part in zip(*(PROBLEM.sample(n, rng) for _ in range(3000)), strict=True)
    )
    plain = np.concatenate(
        [part.mean(0) for part in regression.empirical_gradients(X, Y, Z[:4], Z[4:])]
    )
    limit = np.concatenate(regression.population_gradients(PROBLEM, Z[:4], Z[4:]))
    assert np.linalg.norm(plain - limit) == pytest.approx(bias, rel=0.15)


def test_ablation_has_all_eight_and_knows_its_effects():
    data = experiments.experiment(range(2), 50, 1.0, d=2, k=4, signal=0.2, noise=0.045, floor=0.35)
    white = [X @ np.linalg.inv(of.root) for X, of in zip(data.X, data.problems, strict=True)]
    assert np.abs(white[0] - white[1]).max() > 1  # each seed has its own samples
    rules, starts = experiments.ablation(data, 0.1)
    assert (
        len(rules) == 8
        and rules["spectral, P, R"].preconditioner == "left"
        and not rules["random"].regularised
    )
    assert starts["spectral"] is data.spectral and starts["random, P"] is data.random
    excess = {"random": 8.0, "random, P": 4.0, "random, R": 2.0, "random, P, R": 1.0}
    excess = {name: np.full((1, 1), value) for name, value in excess.items()}
    assert experiments.factor_effect(excess, "P") == pytest.approx(0.5)
    assert experiments.factor_effect(excess, "R") == pytest.approx(0.25)


def test_first_below_is_infinite_where_never_reached():
    reached = experiments.first_below(
        np.array([0, 5, 9]), np.array([[1.0, 0.1, 0.01], [1.0, 1.0, 1.0]]), 0.1
    )
    np.testing.assert_array_equal(reached, [5, np.inf])


def test_figures_are_judged_by_the_worst_seed():
    good = {
        "ours": np.array([[1e-3, 0.02], [5e-3, 0.04]]),
        "sgd": np.array([[2e3, 0.4], [5e3, 0.2]]),
    }
    assert all(
        row.holds
        for row in figures.figure_1(good, "ours", "sgd") + figures.figure_2(good, "ours", "sgd")
    )
    bad = good | {"ours": np.array([[1e-3, 0.02], [0.02, 0.06]])}
    assert (
        not figures.figure_1(bad, "ours", "sgd")[0].holds
        and not figures.figure_2(bad, "ours", "sgd")[0].holds
    )
