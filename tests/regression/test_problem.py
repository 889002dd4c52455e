import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.stats import ortho_group

from lib import regression
from lib.regression import empirical, manifold

EXACT = 1e-10
PROBLEM = regression.random_regression(0, d=3, k=5)
SPACE = manifold.of(PROBLEM)
EXTENDED = block_diag(np.eye(5), PROBLEM.Sigma)  # the extended covariance Sbar, (k + d, k + d)


def layer(seed, *lead, scale=0.5):
    Z = scale * np.random.default_rng(seed).standard_normal((*lead, 8, 3))
    return Z[..., :5, :], Z[..., 5:, :]


ERRORS = 5.0  # standard errors that a Monte Carlo mean may be off


def off(estimates, expected):
    """How many standard errors the mean of `estimates` is from `expected`, at worst.

    The estimates (draws, ...) are independent.
    """
    standard_error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    return np.max(np.abs(estimates.mean(0) - expected) / standard_error)


def plain_loss(X, Y, A, B):
    """Eq. 1 as one would write it first, in torch."""
    P = torch.softmax(X @ B @ X.mT, -1)
    return ((P @ X @ A.mT - Y) ** 2).sum() / (2 * len(X))


def by_autograd(loss, *values):
    leaves = [torch.from_numpy(value).requires_grad_() for value in values]
    return [g.numpy() for g in torch.autograd.grad(loss(*leaves), leaves)]


def tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


@pytest.mark.parametrize("m, d, k", [(1, 1, 1), (6, 2, 3), (129, 4, 4), (260, 5, 8)])
@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_closed_form_gradients_equal_autograd(m, d, k, scale):
    rng = np.random.default_rng(m)
    X, Y = rng.standard_normal((m, d)), rng.standard_normal((m, k))
    A, B = rng.standard_normal((k, d)), scale * rng.standard_normal((d, d))
    expected = by_autograd(lambda a, b: plain_loss(*tensors(X, Y), a, b), A, B)
    for layer in ((X, Y, A, B), tensors(X, Y, A, B)):
        for ours, theirs in zip(regression.empirical_gradients(*layer), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=EXACT * max(np.abs(theirs).max(), 1e-3))


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4])
def test_gradients_stay_finite_where_softmax_is_a_maximum(scale):
    """The bound on the logits is then e^-745 and more above the largest, which has to be found."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 70, 4))
    A, B = rng.standard_normal((2, 4, 4)) * [[[1.0]], [[scale]]]
    expected = by_autograd(lambda a, b: plain_loss(*tensors(X, Y), a, b), A, B)
    for ours, theirs in zip(regression.empirical_gradients(X, Y, A, B), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=scale * 1e-13 * np.abs(theirs).max())


def test_gradients_of_many_runs_equal_those_of_each():
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((2, 150, 3)), rng.standard_normal((2, 150, 5))
    A, B = layer(3, 4, 2)
    together = regression.empirical_gradients(X, Y, A, B)
    on_tensors = regression.empirical_gradients(*tensors(X, Y, A, B))
    for r, s in np.ndindex(4, 2):
        alone = regression.empirical_gradients(X[s], Y[s], A[r, s], B[r, s])
        for all_runs, by_torch, single in zip(together, on_tensors, alone, strict=True):
            np.testing.assert_array_equal(all_runs[r, s], single)
            np.testing.assert_allclose(by_torch[r, s], single, atol=EXACT)


def test_chunks_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(4)
    X, Y = rng.standard_normal((300, 3)), rng.standard_normal((300, 5))
    A, B = layer(5)
    expected = regression.empirical_gradients(X, Y, A, B)
    monkeypatch.setattr(empirical, "PARALLEL", 0)
    for ours, theirs in zip(regression.empirical_gradients(X, Y, A, B), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    monkeypatch.setattr(empirical, "BLOCK", 1)
    chunked = regression.empirical_gradients(*tensors(X, Y, A, B))
    for ours, theirs in zip(chunked, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=EXACT)


def test_loss_and_its_ratio_by_monte_carlo():
    """E[x' e^{x' w}] / E[e^{x' w}] = Sigma w: mean and normaliser agree with their closed forms."""
    rng = np.random.default_rng(8)
    w, x = rng.standard_normal(3) * 0.5, rng.standard_normal((400_000, 3)) @ PROBLEM.root
    weight, half = np.exp(x @ w), np.exp(w @ PROBLEM.Sigma @ w / 2)
    assert off(weight, half) < ERRORS
    assert off(x * weight[:, None], PROBLEM.Sigma @ w * half) < ERRORS
    A, B = layer(9)
    X, Y = PROBLEM.sample(400_000, np.random.default_rng(10))
    error = Y - X @ B @ PROBLEM.Sigma @ A.T  # f at infinitely many keys is A Sigma B^T x
    assert off((error**2).sum(1) / 2, regression.population_loss(PROBLEM, A, B)) < ERRORS


def test_population_and_regulariser_gradients_equal_autograd():
    A, B = layer(11)
    (Sigma,) = tensors(PROBLEM.Sigma)
    population = by_autograd(lambda a, b: regression.population_loss(PROBLEM, a, b), A, B)
    regulariser = by_autograd(lambda a, b: regression.regulariser(Sigma, a, b), A, B)
    ours = regression.population_gradients(PROBLEM, A, B)
    ours += regression.regulariser_gradients(PROBLEM.Sigma, A, B)
    for found, expected in zip(ours, population + regulariser, strict=True):
        np.testing.assert_allclose(found, expected, atol=EXACT)
    G = PROBLEM.root @ (A.T @ A - B.T @ PROBLEM.Sigma @ B) @ PROBLEM.root
    size = regression.regulariser(PROBLEM.Sigma, A, B)
    np.testing.assert_allclose(size, (G**2).sum() / 8, rtol=EXACT)


def test_optimal_loss_is_what_the_noise_of_k_labels_leaves():
    noisy = regression.random_regression(0, d=3, k=5, noise=0.4)
    assert noisy.optimal_loss == pytest.approx(5 * 0.4**2 / 2)
    X, Y = noisy.sample(20_000, np.random.default_rng(0))
    left = ((Y - X @ noisy.M.T) ** 2).sum(1) / 2
    assert abs(left.mean() - noisy.optimal_loss) < 5 * left.std() / np.sqrt(len(left))


@pytest.mark.parametrize("seed", range(5))
def test_every_point_of_the_manifold_is_a_global_minimum(seed):
    Z = SPACE.point(ortho_group.rvs(3, random_state=seed))
    A, B = Z[:5], Z[5:]
    assert abs(regression.population_loss(PROBLEM, A, B) - PROBLEM.optimal_loss) < EXACT
    assert regression.regulariser(PROBLEM.Sigma, A, B) < EXACT
    np.testing.assert_allclose(A @ PROBLEM.Sigma @ B.T, PROBLEM.M, atol=EXACT)
    np.testing.assert_allclose(A.T @ A, B.T @ PROBLEM.Sigma @ B, atol=EXACT)
    np.testing.assert_allclose(manifold.gradient(PROBLEM, Z), 0, atol=EXACT)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_gradient_identities_5_and_6(seed):
    Z = np.concatenate(layer(seed, scale=1.0))
    Z_pi = SPACE.point(ortho_group.rvs(3, random_state=seed))
    gradient = manifold.gradient(PROBLEM, Z)
    Sigma, Zt = PROBLEM.Sigma, np.concatenate([Z_pi[:5], -Z_pi[5:]])
    middle = Z @ Sigma @ Z.T - Z_pi @ Sigma @ Z_pi.T + Zt @ Sigma @ Zt.T
    equation_5 = EXTENDED @ middle @ EXTENDED @ Z @ Sigma / 2
    np.testing.assert_allclose(equation_5, gradient, atol=EXACT * np.abs(gradient).max())
    np.testing.assert_allclose(Zt.T @ EXTENDED @ Z_pi, 0, atol=EXACT)


@pytest.mark.parametrize("norm", manifold.NORMS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_projection_is_nearest_and_symmetric(norm, seed):
    rng = np.random.default_rng(seed)
    Z = SPACE.point(ortho_group.rvs(3, random_state=seed)) + 0.05 * rng.standard_normal((8, 3))
    Z_pi = SPACE.project(Z, norm)
    Delta = Z - Z_pi
    product = Z_pi.T @ EXTENDED @ Delta
    if norm == "left":
        product = PROBLEM.Sigma @ product
    np.testing.assert_allclose(product, product.T, atol=EXACT)  # Lemma 1
    points = (SPACE.point(ortho_group.rvs(3, random_state=rng)) for _ in range(50))
    assert SPACE.norm(Delta, norm) <= min(SPACE.norm(Z - point, norm) for point in points)
    np.testing.assert_allclose(SPACE.project(Z_pi, norm), Z_pi, atol=EXACT)
    assert SPACE.distance(Z, norm) == pytest.approx(SPACE.norm(Z - Z_pi, norm), rel=EXACT)
    (other,) = set(manifold.NORMS) - {norm}
    assert SPACE.distance(Z, norm) < SPACE.norm(Z - SPACE.project(Z, other), norm)


@pytest.mark.parametrize("norm", manifold.NORMS)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_one_point_convexity_and_smoothness_near_the_manifold(norm, seed, fraction):
    constants = SPACE.constants(norm)
    direction = np.random.default_rng(seed).standard_normal((8, 3))
    Z = SPACE.point() + fraction * constants.radius * direction / SPACE.norm(direction, norm)
    Delta, gradient = Z - SPACE.project(Z, norm), manifold.gradient(PROBLEM, Z)
    length = SPACE.norm(Delta, norm)
    assert (gradient * Delta).sum() >= constants.convexity * length**2
    assert manifold.dual_norm(SPACE, gradient, norm) <= constants.smoothness * length
    value = regression.excess_loss(PROBLEM, Z[:5], Z[5:])
    value += regression.regulariser(PROBLEM.Sigma, Z[:5], Z[5:])
    assert value <= constants.smoothness * length**2 / 2  # Lemma 2


def test_extended_covariance_gives_the_norms():
    Z = np.concatenate(layer(12))
    square = Z.T @ EXTENDED @ Z
    squares = [SPACE.norm(Z, norm) ** 2 for norm in ("left", "left_right")]
    traces = np.trace(square), np.trace(square @ PROBLEM.Sigma)
    np.testing.assert_allclose(squares, traces, rtol=EXACT)


def test_spectral_start_is_on_the_estimated_manifold_and_exact_without_error():
    X, Y = PROBLEM.sample(50, np.random.default_rng(13))
    A, B = manifold.spectral_start(X, Y)
    Sigma = X.T @ X / 50
    M = np.linalg.lstsq(X, Y, rcond=None)[0].T
    np.testing.assert_allclose(A @ Sigma @ B.T, M, atol=EXACT)
    assert regression.regulariser(Sigma, A, B) < EXACT


def test_largest_moment_is_where_integrability_ends():
    """E e^{c x^T B x} = det(I - 2 c S)^{-1/2} at the manifold's worst point.

    S = sym(Sigma^{1/2} B Sigma^{1/2}).
    """
    _, _, V = SPACE._svd
    B = SPACE.point(V.T)[5:]
    S = PROBLEM.root @ B @ PROBLEM.root
    values = np.linalg.eigvalsh((S + S.T) / 2)
    np.testing.assert_allclose(1 / (2 * values[-1]), PROBLEM.largest_moment, rtol=EXACT)
    c = 0.4 * PROBLEM.largest_moment  # the variance is finite too
    x = np.random.default_rng(14).standard_normal((400_000, 3)) @ PROBLEM.root
    moments = np.exp(c * np.einsum("id,de,ie->i", x, B, x))
    assert off(moments, np.prod(1 - 2 * c * values) ** -0.5) < ERRORS


def test_seeds_repeat_and_differ():
    first, again, other = (regression.random_regression(seed, 3, 5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.M, again.M)
    assert np.abs(first.M - other.M).max() > 1e-3
    np.testing.assert_allclose(first.singular_values[0], 0.2, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.eigvalsh(first.Sigma)[-1], 1.0, rtol=1e-12)
    assert all(holds for _, holds in first.assumptions().values())


EYE = np.eye(3)


@pytest.mark.parametrize(
    "Sigma, M, noise, message",
    [
        (np.diag([1.0, 1.0, 0.0]), EYE, 0.1, "Sigma is singular"),
        (EYE + np.triu(np.ones((3, 3)), 1), EYE, 0.1, "Sigma is not symmetric"),
        (np.ones((2, 3)), EYE, 0.1, "Sigma has shape"),
        (EYE, np.ones((2, 3)), 0.1, "k >= d"),
        (EYE, np.ones((4, 3)), 0.1, "rank-deficient"),
        (EYE, np.ones((4, 2)), 0.1, "M has shape"),
        (EYE, np.full((4, 3), np.nan), 0.1, "M must be"),
        (EYE, EYE, -1.0, "noise"),
    ],
)
def test_problems_that_break_an_assumption_are_refused(Sigma, M, noise, message):
    with pytest.raises(ValueError, match=message):
        regression.Regression(Sigma, M, noise)


def test_a3_warns_with_the_number_and_goes_on():
    with pytest.warns(UserWarning, match=r"A3 fails: \|\|M Sigma\^1/2\|\| = 0.3"):
        problem = regression.Regression(EYE, 0.3 * EYE, 0.1)
    assert problem.assumptions()["A3"][1] is False
    sentence = problem.premises()
    assert "A1 lambda_min(Sigma) = 1.000;" in sentence
    assert "sigma_d(M Sigma^1/2) = 0.300;" in sentence
    assert sentence.endswith("c = 0.913, needs > 1; all hold: False")


@pytest.mark.parametrize(
    "message, broken",
    [
        ("B has shape", lambda X, Y, A, B: regression.empirical_gradients(X, Y, A, B[:2])),
        ("Y has shape", lambda X, Y, A, B: regression.empirical_gradients(X, Y, A[:4], B)),
        ("Y has shape", lambda X, Y, A, B: regression.empirical_gradients(X, Y[:5], A, B)),
        ("X holds", lambda X, Y, A, B: regression.empirical_gradients(X * np.nan, Y, A, B)),
        ("n < d", lambda X, Y, A, B: manifold.spectral_start(X[:2], Y[:2])),
        ("finite", lambda X, Y, A, B: manifold.spectral_start(X, np.full_like(Y, np.inf))),
        ("norm must be", lambda X, Y, A, B: SPACE.norm(np.concatenate([A, B]), "right")),
    ],
)
def test_samples_and_layers_that_do_not_fit_are_refused(message, broken):
    with pytest.raises(ValueError, match=message):
        broken(*PROBLEM.sample(20, np.random.default_rng(15)), *layer(16))


def test_constants_of_the_one_point_inequalities_in_numbers():
    # M Sigma^{1/2} = diag(0.1, 0.09), and the eigenvalues of Sigma are 0.25 and 1.
    space = manifold.Manifold(np.diag([0.25, 1.0]), np.array([[0.2, 0], [0, 0.09], [0, 0]]))
    left, both = space.constants("left"), space.constants("left_right")
    found = [(c.radius, c.convexity, c.smoothness) for c in (left, both)]
    np.testing.assert_allclose(found[0], (0.1, 0.01125, 0.464), rtol=1e-12)
    np.testing.assert_allclose(found[1], (np.sqrt(0.072), 0.045, 0.53), rtol=1e-12)


def test_estimated_covariance_is_the_mean_square_without_a_centre():
    X, Y = PROBLEM.sample(40, np.random.default_rng(0))
    found = manifold.estimate(X + 1, Y)
    np.testing.assert_allclose(found.Sigma, (X + 1).T @ (X + 1) / 40, rtol=1e-12)
    np.testing.assert_allclose(found.M @ found.Sigma, Y.T @ (X + 1) / 40, rtol=1e-9, atol=1e-12)
