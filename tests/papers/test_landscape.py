"""Formulas of paper B's landscape, each on an input of a few numbers."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import expm, sqrtm
from scipy.stats import ortho_group, sem

from lib import regression, seeds
from lib.regression import Regression, manifold
from papers.b import landscape

PROBLEM = regression.random_regression(0, d=2, k=3)
ROOT = sqrtm(PROBLEM.Sigma)
FEW = np.array([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9], [0.1, 0.2]])
LAYER = np.random.default_rng(5).standard_normal((5, 2))


def measured(claims):
    return {claim.id: claim.measured for claim in claims}


def test_the_ratio_identity_is_compared_with_the_moments_of_a_tilted_gaussian():
    w = np.array([0.5, -1.1])
    S = PROBLEM.Sigma
    moment = np.exp(
        (w[0] ** 2 * S[0, 0] + w[1] ** 2 * S[1, 1]) / 2 + S[0, 1] * w[0] * w[1]
    )
    tilted = [moment, *(moment * (S[0] * w[0] + S[1] * w[1]))]
    for rows in (FEW, FEW[:2]):
        weights = [np.exp(x[0] * w[0] + x[1] * w[1]) for x in rows]
        columns = [weights] + [
            [e * x[j] for e, x in zip(weights, rows, strict=True)] for j in (0, 1)
        ]
        off = [
            abs(np.mean(c) - m) / sem(c) for c, m in zip(columns, tilted, strict=True)
        ]
        assert landscape._ratio_errors(PROBLEM, rows, w) == pytest.approx(max(off))


def test_a_sampled_loss_is_half_the_square_of_the_response_less_the_prediction():
    Y = np.array([[0.1, 0.5, -0.2], [0.3, 0.0, 1.0], [1.0, -1.0, 0.4], [0.2, 0.2, 0.1]])
    A = LAYER[:3]
    B = LAYER[3:]
    losses = []
    for x, y in zip(FEW, Y, strict=True):
        attended = PROBLEM.Sigma.dot(B.T.dot(x))
        losses.append(sum((y - A.dot(attended)) ** 2) / 2)
    named = replace(PROBLEM, noise=0.3)
    error = (A @ named.Sigma @ B.T - named.M) @ ROOT
    loss = (error**2).sum() / 2 + 3 * 0.3**2 / 2
    found = landscape._population_loss_error(PROBLEM, named, (FEW, Y), LAYER)
    assert found == pytest.approx(abs(np.mean(losses) - loss) / sem(losses))


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_the_moment_of_the_worst_minimum_is_that_of_a_quadratic_form(scale):
    N = PROBLEM.M @ ROOT
    S = sqrtm(sqrtm(N.T @ N))  # V D^{1/2} V^T, for N = U D V^T
    values = np.linalg.eigvalsh(S)
    c = 0.4 / (2 * values[-1])
    forms = [np.exp(c * g @ S @ g) for g in np.linalg.solve(ROOT, FEW.T).T]
    expected = 1 / np.sqrt(np.prod([1 - 2 * c * scale * value for value in values]))
    named = replace(PROBLEM, Sigma=scale * PROBLEM.Sigma, M=PROBLEM.M / scale)
    found = landscape._moment_error(PROBLEM, named, FEW)
    assert found == pytest.approx(abs(np.mean(forms) - expected) / sem(forms))


def excess(problem, Z):
    """Return the excess loss and R of paper B's Theorem 1 at Z."""
    A, B = np.split(Z, [problem.k])
    root = sqrtm(problem.Sigma)
    error = (A @ problem.Sigma @ B.T - problem.M) @ root
    balance = root @ (A.T @ A - B.T @ problem.Sigma @ B) @ root
    return (error**2).sum() / 2, (balance**2).sum() / 8


def test_the_regularised_excess_is_the_sum_of_both_parts():
    found = landscape.regularised_excess(PROBLEM, LAYER)
    assert found == pytest.approx(sum(excess(PROBLEM, LAYER)))


def test_what_is_left_at_the_worst_point_is_measured_by_the_loss_at_zero():
    points = np.stack([0.1 * LAYER, LAYER, 0.5 * LAYER[::-1]])
    at_zero = ((PROBLEM.M @ ROOT) ** 2).sum() / 2
    losses, balances = np.array([excess(PROBLEM, Z) for Z in points]).T
    found = measured(landscape.minima(PROBLEM, points, 0.25, PROBLEM))
    assert found == pytest.approx(
        {
            "minima.excess": losses.max() / at_zero,
            "minima.balance": balances.max() / at_zero,
            "minima.search": 0.25,
        }
    )


def test_a_minimum_of_the_named_problem_counts_as_found_by_the_search():
    named = replace(PROBLEM, M=PROBLEM.M / 2)
    points = np.zeros((1, 5, 2))
    found = measured(landscape.minima(PROBLEM, points, 1e-9, named))["minima.search"]
    # M -> c M multiplies the coordinates K by c^{1/2}; |K|^2 = 2 sum sigma.
    size = np.sqrt(2 * PROBLEM.singular_values.sum())
    assert found == pytest.approx((1 - np.sqrt(0.5)) * size)


def test_the_hessian_of_a_linear_gradient_is_its_matrix():
    H = np.arange(16.0).reshape(4, 4) ** 2
    found = landscape._hessian(
        lambda at: (H @ at.ravel() + 7).reshape(2, 2), np.full((2, 2), 0.3)
    )
    np.testing.assert_allclose(found.T, H, rtol=1e-12)


def test_the_curvatures_are_their_closed_forms():
    found = measured(landscape.convexity(PROBLEM, PROBLEM))
    names = ("convex.A", "convex.B", "convex.jointly")
    assert found == {name: pytest.approx(1.0, rel=1e-4) for name in names}


def test_the_closed_forms_of_the_curvatures_grow_with_the_covariance_and_the_signal():
    """In A and in B they are cubic in Sigma, and jointly quadratic in M."""
    named = replace(PROBLEM, Sigma=1.2 * PROBLEM.Sigma, M=PROBLEM.M / 1.2)
    found = measured(landscape.convexity(PROBLEM, named))
    assert found["convex.A"] == pytest.approx(1.2**-3)
    assert found["convex.B"] == pytest.approx(1.2**-3)
    named = replace(PROBLEM, M=0.8 * PROBLEM.M)
    jointly = measured(landscape.convexity(PROBLEM, named))["convex.jointly"]
    assert jointly == pytest.approx(0.8**-2, rel=1e-4)


def test_both_terms_of_the_sample_average_are_positive_at_minus_m():
    """With T = tr M Sigma M^T, they are T/2 and T, and T/2 and T/2 for a named M/2."""
    named = replace(PROBLEM, M=PROBLEM.M / 2)
    ratio = landscape.sample_average(PROBLEM, named, 50_000).measured
    assert ratio == pytest.approx(1.5, rel=0.05)


def test_lemma_1_is_symmetric_and_not_with_another_covariance():
    assert landscape.lemma1_symmetry(PROBLEM, PROBLEM).measured < 1e-6
    named = replace(PROBLEM, Sigma=np.diag([0.4, 1.0]), M=0.5 * PROBLEM.M)
    space = manifold.of(PROBLEM)
    asymmetries = []
    for layer in landscape._random_layers(PROBLEM, 20):
        Z = space.point() + 0.02 * layer
        near = space.project(Z)
        weighted = (Z - near) * np.array([1, 1, 1, 1, 1.0])[:, None]
        weighted[3:] *= np.array([0.4, 1.0])[:, None]
        (a, b), (c, d) = np.array([[0.4], [1.0]]) * (near.T @ weighted)
        size = np.sqrt(a**2 + b**2 + c**2 + d**2)
        asymmetries.append(abs(b - c) * np.sqrt(2) / size)
    found = landscape.lemma1_symmetry(PROBLEM, named).measured
    assert found == pytest.approx(max(asymmetries)) and found > 0.1


def test_no_minimum_is_nearer_than_the_one_of_lemma_1():
    """In two dimensions, all minima are tried: two circles of rotations."""
    space = manifold.of(PROBLEM)
    angles = np.linspace(0, 2 * np.pi, 2001)
    turns = np.array(
        [[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]
    )
    turns = np.moveaxis(turns, -1, 0)
    rotations = np.concatenate([turns, turns @ np.diag([1.0, -1.0])])
    points = np.array([space.point(Q) for Q in rotations])
    for layer in landscape._random_layers(PROBLEM, 5):
        Z = space.point() + 0.2 * layer
        nearest = space.norm(Z - space.project(Z, "left"), "left")
        tried = min(space.norm(Z - point, "left") for point in points)
        assert nearest <= tried * (1 + 1e-9)
        assert nearest == pytest.approx(tried, rel=1e-4)


def test_both_identities_of_lemma_8_hold():
    assert all(claim.holds for claim in landscape.lemma8(PROBLEM))


def test_a_formula_of_lemma_8_that_is_twice_too_large_is_off_by_a_half(monkeypatch):
    formulas = landscape.lemma8_formulas

    def doubled(*how):
        return {name: 2 * value for name, value in formulas(*how).items()}

    monkeypatch.setattr(landscape, "lemma8_formulas", doubled)
    found = measured(landscape.lemma8(PROBLEM))
    assert list(found.values()) == pytest.approx([0.5, 0.5], abs=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_both_minima_of_one_dimension_are_tried(sign):
    """The singular vectors of M and -M differ in sign, so that each sign is needed."""
    line = Regression(np.array([[0.7]]), sign * np.array([[0.1], [0.2]]), 0.1)
    assert landscape.largest_self_logit(line, starts=1) == pytest.approx(1.0)


def stay(value, start, args=(), jac=None, **how):
    """Stand for scipy's minimize, and end where the search starts."""
    return SimpleNamespace(x=start, fun=value(start, *args))


def test_the_curvatures_of_the_starts_are_those_of_the_definition(monkeypatch):
    """Without a search, and with a fake point of the best smoothness that has none."""
    space = manifold.of(PROBLEM)
    rates, directions = regression.modes(PROBLEM, "left_right")
    flat = space.point() + 1e-6 * directions[0]
    monkeypatch.setattr(landscape, "minimize", stay)
    monkeypatch.setattr(landscape, "_steepest", lambda problem: (0.7, None, flat))
    fractions = (0.3, 1.0)
    found = landscape.curvatures(PROBLEM, 2, fractions)
    for norm in ("left", "left_right"):
        constants = space.constants(norm)
        convex, smooth = [], []
        for fraction in fractions:
            rng = seeds.stream(0, "draws")
            for _ in range(2):
                centre = space.point(ortho_group.rvs(2, random_state=rng))
                E = rng.standard_normal((5, 2))
                Z = centre + fraction * constants.radius * E / space.norm(E, norm)
                Delta = Z - space.project(Z, norm)
                size = space.norm(Delta, norm)
                gradient = manifold.gradient(PROBLEM, Z)
                convex.append(np.vdot(gradient, Delta) / size**2)
                smooth.append(manifold.dual_norm(space, gradient, norm) / size)
        best = 0.7 if norm == "left_right" else constants.smoothness
        expected = min(convex) / constants.convexity, max(smooth) / best
        assert found[norm] == pytest.approx(expected), norm


def test_the_steepest_point_counts_where_no_search_is_steeper(monkeypatch):
    monkeypatch.setattr(landscape, "minimize", stay)
    steep = landscape._steepest(PROBLEM)[2]
    space = manifold.of(PROBLEM)
    slope = manifold.dual_norm(space, manifold.gradient(PROBLEM, steep), "left_right")
    monkeypatch.setattr(landscape, "_steepest", lambda problem: (0.5, None, steep))
    found = landscape.curvatures(PROBLEM, 1, (0.1,))["left_right"][1]
    assert found == pytest.approx(slope / space.distance(steep, "left_right") / 0.5)


def test_eqs_3_and_4_take_convexity_first_and_smoothness_second():
    rows = landscape.one_point(
        {"left": np.array([2.0, 0.2]), "left_right": np.array([3.0, 0.3])}
    )
    assert measured(rows) == {
        "convex.left": 2.0,
        "smooth.left": 0.2,
        "convex.left_right": 3.0,
        "smooth.left_right": 0.3,
    }


def test_lemma_2_divides_by_the_square_of_the_distance_at_the_worst_draw():
    space = manifold.of(PROBLEM)
    constants = space.constants("left")
    rng = seeds.stream(1, "draws")
    ratios = []
    for fraction in rng.uniform(0.05, 1, 4):
        E = rng.standard_normal((5, 2))
        # The excess is above 0 and the distance is at most that from R = I.
        Z = space.point() + E * (fraction * constants.radius / space.norm(E))
        gap = sum(excess(PROBLEM, Z))
        ratios.append(2 * gap / constants.smoothness / space.distance(Z) ** 2)
    found = landscape.descent_ratio(PROBLEM, "left", 4)
    assert found == pytest.approx(max(ratios))


def test_the_hessian_at_a_minimum_has_the_rates_of_descent_without_preconditioner():
    rates, _ = regression.modes(PROBLEM, "none")
    H = landscape._regularised_hessian(PROBLEM, manifold.of(PROBLEM).point())
    values = np.linalg.eigvalsh((H + H.T) / 2)
    np.testing.assert_allclose(values, [0.0, *rates], atol=1e-8)


def test_the_extended_covariance_multiplies_the_rows_of_b_alone():
    on_layers = landscape._on_layers(PROBLEM, PROBLEM.Sigma)
    found = (on_layers @ LAYER.ravel()).reshape(5, 2)
    np.testing.assert_allclose(found[:3], LAYER[:3])
    np.testing.assert_allclose(found[3:], PROBLEM.Sigma @ LAYER[3:])


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_the_convexity_of_lemma_4_is_the_least_over_the_directions_across(error):
    rng = np.random.default_rng(3)
    G, S = (part @ part.T for part in rng.standard_normal((2, 3, 3)))
    S *= 1.5 / np.linalg.norm(S, 2)
    across, _ = np.linalg.qr(rng.standard_normal((3, 2)))
    quotients = []
    for angle in np.linspace(0, np.pi, 2001):
        Delta = across @ [np.cos(angle), np.sin(angle)]
        moved = S @ Delta
        quotients.append(moved @ G @ Delta / (1 + error * moved @ moved / 4))
    alpha, _ = landscape._best_constants(G, S, across, error)
    assert alpha == pytest.approx(min(quotients), abs=1e-4)


def test_the_smoothness_of_lemma_4_is_infinite_from_a_norm_of_two_on():
    G = np.eye(2)
    for size, finite in ((1.999, True), (2.0, False), (2.001, False)):
        _, beta = landscape._best_constants(G, size * np.eye(2), np.eye(2), 1.0)
        assert np.isfinite(beta) == finite


def test_the_constants_of_lemma_4_are_exact_in_three_dimensions():
    """There the minima form a manifold of dimension 3."""
    problem = regression.random_regression(1, 3, 3)
    exact = landscape.sample_constants(problem, problem.Sigma, np.eye(3)[::-1])
    assert exact == pytest.approx((0.8, (4 / 3) ** 0.5))


@pytest.mark.parametrize("d", [2, 3])
def test_lemma_4_is_about_all_directions_across_the_manifold(monkeypatch, d):
    """The tangents are those of R e^S with S antisymmetric, d (d - 1) / 2 of them."""
    problem = regression.random_regression(1, d, 3)
    space = manifold.of(problem)
    Q = np.eye(d)[::-1]
    seen = []

    def best_constants(G, S, across, error):
        seen.append((across, error))
        return 6.0 - 3 * error, 2.0 + 5 * error

    monkeypatch.setattr(landscape, "_best_constants", best_constants)
    ratios = landscape.sample_constants(problem, problem.Sigma, Q)
    assert ratios == (3 / 6, 7 / 2) and [error for _, error in seen] == [1.0, 0.0]
    for across, _ in seen:
        assert across.shape == ((3 + d) * d, (3 + d) * d - d * (d - 1) // 2)
        for i, j in itertools.combinations(range(d), 2):
            S = np.zeros((d, d))
            S[i, j], S[j, i] = 1e-4, -1e-4
            tangent = space.point(Q @ expm(S)) - space.point(Q @ expm(-S))
            flat = space.weighted(tangent, "left").ravel()
            assert np.linalg.norm(across.T @ flat) < 1e-5 * np.linalg.norm(flat)


def test_the_smoothness_of_a_sample_is_the_largest_preconditioned_gradient():
    """P grad is linear near the minimum, and its largest size is by power iteration."""
    space = manifold.of(PROBLEM)
    Q = np.array([[0.6, -0.8], [0.8, 0.6]])
    off = PROBLEM.Sigma + np.array([[0.1, 0.06], [0.06, -0.05]])
    Z = space.point(Q)
    units = np.eye(10).reshape(10, 5, 2)

    def largest(Sigma):
        sides = (manifold.gradient(PROBLEM, Z + e * units) for e in (1e-5, -1e-5))
        slope = np.subtract(*sides) / 2e-5
        slope[:, 3:] = np.linalg.solve(Sigma, slope[:, 3:])
        images = space.weighted(slope, "left").reshape(10, 10).T
        lengths = np.array([space.weighted(e, "left").ravel() for e in units]).T
        return np.linalg.norm(images @ np.linalg.inv(lengths), 2)

    whitened = np.linalg.eigvals(np.linalg.solve(off, PROBLEM.Sigma)).real
    size = max(1.0, whitened.max())
    _, beta = landscape.sample_constants(PROBLEM, off, Q)
    expected = largest(off) / largest(PROBLEM.Sigma) / np.sqrt(1 - size**2 / 4)
    assert beta == pytest.approx(expected, rel=1e-5)
