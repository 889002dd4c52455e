"""Tests of paper B's problem by autograd and by hand.

A failure means that minima and constants belong to another problem.
"""

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
# The extended covariance Sbar, (k + d, k + d)
EXTENDED = block_diag(np.eye(5), PROBLEM.Sigma)
EYE = np.eye(3)
few = settings(max_examples=20, deadline=None)


def layer(seed, *lead, scale=0.5):
    Z = scale * np.random.default_rng(seed).standard_normal((*lead, 8, 3))
    return Z[..., :5, :], Z[..., 5:, :]


def plain_loss(X, Y, A, B):
    """Compute Eq. 1 in torch, as one would write it first."""
    P = torch.softmax(X @ B @ X.mT, -1)
    return ((P @ X @ A.mT - Y) ** 2).sum() / (2 * len(X))


def by_autograd(loss, *values):
    leaves = [torch.from_numpy(value).requires_grad_() for value in values]
    return [g.numpy() for g in torch.autograd.grad(loss(*leaves), leaves)]


def tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


def assert_near(pairs, others, atol):
    for ours, theirs in zip(pairs, others, strict=True):
        np.testing.assert_allclose(
            ours, theirs, atol=atol * max(np.abs(theirs).max(), 1e-3)
        )


@pytest.mark.parametrize(
    "m, d, k, scale, tolerance",
    [(m, d, k, scale, EXACT) for scale in (0.3, 30.0)
     for m, d, k in ((1, 1, 1), (6, 2, 3), (129, 4, 4), (260, 5, 8))]
    # The bound exceeds the largest logit by 745 and more, so that the largest has to be
    # found.
    + [(70, 4, 4, scale, scale * 1e-13) for scale in (1e2, 1e3, 1e4)],
)  # fmt: skip
def test_closed_form_gradients_equal_autograd(m, d, k, scale, tolerance):
    rng = np.random.default_rng(m)
    X = rng.standard_normal((m, d))
    Y = rng.standard_normal((m, k))
    A = rng.standard_normal((k, d))
    B = scale * rng.standard_normal((d, d))
    expected = by_autograd(lambda a, b: plain_loss(*tensors(X, Y), a, b), A, B)
    assert_near(regression.empirical_gradients(X, Y, A, B), expected, tolerance)


def test_gradients_of_many_runs_equal_those_of_each_on_all_threads(monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((2, 300, 3))
    Y = rng.standard_normal((2, 300, 5))
    A, B = layer(3, 4, 2)
    together = regression.empirical_gradients(X, Y, A, B)
    monkeypatch.setattr(empirical, "PARALLEL", 0)
    for r, s in np.ndindex(4, 2):
        alone = regression.empirical_gradients(X[s], Y[s], A[r, s], B[r, s])
        for part, single in enumerate(alone):
            np.testing.assert_array_equal(together[part][r, s], single)


def test_population_and_regulariser_gradients_equal_autograd():
    A, B = layer(11)
    (Sigma,) = tensors(PROBLEM.Sigma)
    population = by_autograd(
        lambda a, b: regression.population_loss(PROBLEM, a, b), A, B
    )
    regulariser = by_autograd(lambda a, b: regression.regulariser(Sigma, a, b), A, B)
    ours = regression.population_gradients(PROBLEM, A, B)
    ours += regression.regulariser_gradients(PROBLEM.Sigma, A, B)
    for gradient, expected in zip(ours, population + regulariser, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=EXACT)
    G = PROBLEM.root @ (A.T @ A - B.T @ PROBLEM.Sigma @ B) @ PROBLEM.root
    size = regression.regulariser(PROBLEM.Sigma, A, B)
    np.testing.assert_allclose(size, (G**2).sum() / 8, rtol=EXACT)


def test_optimal_loss_is_what_the_noise_of_k_labels_leaves():
    noisy = regression.random_regression(0, d=3, k=5, noise=0.4)
    assert noisy.optimal_loss == pytest.approx(5 * 0.4**2 / 2)
    X, Y = noisy.sample(20_000, np.random.default_rng(0))
    left = ((Y - X @ noisy.M.T) ** 2).sum(1) / 2
    assert abs(left.mean() - noisy.optimal_loss) < 5 * left.std() / np.sqrt(len(left))


@few
@given(st.integers(0, 10_000))
def test_minima_and_the_gradient_identities_5_and_6(seed):
    Z = np.concatenate(layer(seed, scale=1.0))
    Z_pi = SPACE.point(ortho_group.rvs(3, random_state=seed))
    Sigma = PROBLEM.Sigma
    A = Z_pi[:5]
    B = Z_pi[5:]
    assert abs(regression.population_loss(PROBLEM, A, B) - PROBLEM.optimal_loss) < EXACT
    assert regression.regulariser(Sigma, A, B) < EXACT
    np.testing.assert_allclose(A @ Sigma @ B.T, PROBLEM.M, atol=EXACT)
    np.testing.assert_allclose(A.T @ A, B.T @ Sigma @ B, atol=EXACT)
    np.testing.assert_allclose(manifold.gradient(PROBLEM, Z_pi), 0, atol=EXACT)
    gradient = manifold.gradient(PROBLEM, Z)
    Zt = np.concatenate([A, -B])
    middle = Z @ Sigma @ Z.T - Z_pi @ Sigma @ Z_pi.T + Zt @ Sigma @ Zt.T
    equation_5 = EXTENDED @ middle @ EXTENDED @ Z @ Sigma / 2
    np.testing.assert_allclose(
        equation_5, gradient, atol=EXACT * np.abs(gradient).max()
    )
    np.testing.assert_allclose(Zt.T @ EXTENDED @ Z_pi, 0, atol=EXACT)


@pytest.mark.parametrize("norm", manifold.NORMS)
@few
@given(st.integers(0, 10_000))
def test_projection_is_nearest_and_symmetric(norm, seed):
    rng = np.random.default_rng(seed)
    Z = SPACE.point(ortho_group.rvs(3, random_state=seed)) + 0.05 * rng.standard_normal(
        (8, 3)
    )
    Z_pi = SPACE.project(Z, norm)
    Delta = Z - Z_pi
    product = Z_pi.T @ EXTENDED @ Delta
    if norm == "left":
        product = PROBLEM.Sigma @ product
    np.testing.assert_allclose(product, product.T, atol=EXACT)  # Lemma 1
    points = (SPACE.point(ortho_group.rvs(3, random_state=rng)) for _ in range(50))
    assert SPACE.norm(Delta, norm) <= min(
        SPACE.norm(Z - point, norm) for point in points
    )
    np.testing.assert_allclose(SPACE.project(Z_pi, norm), Z_pi, atol=EXACT)
    assert SPACE.distance(Z, norm) == pytest.approx(
        SPACE.norm(Z - Z_pi, norm), rel=EXACT
    )
    (other,) = set(manifold.NORMS) - {norm}
    assert SPACE.distance(Z, norm) < SPACE.norm(Z - SPACE.project(Z, other), norm)


def test_constants_of_the_one_point_inequalities_in_numbers_and_the_norms_they_are_in():
    # M Sigma^{1/2} = diag(0.1, 0.09), and the eigenvalues of Sigma are 0.25 and 1.
    space = manifold.Manifold(
        np.diag([0.25, 1.0]), np.array([[0.2, 0], [0, 0.09], [0, 0]])
    )
    left = space.constants("left")
    both = space.constants("left_right")
    numbers = [(c.radius, c.convexity, c.smoothness) for c in (left, both)]
    np.testing.assert_allclose(numbers[0], (0.1, 0.01125, 0.464), rtol=1e-12)
    np.testing.assert_allclose(numbers[1], (np.sqrt(0.072), 0.045, 0.53), rtol=1e-12)
    Z = np.concatenate(layer(12))
    square = Z.T @ EXTENDED @ Z
    squares = [SPACE.norm(Z, norm) ** 2 for norm in ("left", "left_right")]
    traces = np.trace(square), np.trace(square @ PROBLEM.Sigma)
    np.testing.assert_allclose(squares, traces, rtol=EXACT)


def test_spectral_start_is_on_the_manifold_that_least_squares_estimate():
    X, Y = PROBLEM.sample(50, np.random.default_rng(13))
    A, B = manifold.spectral_start(X + 1, Y)
    Sigma = (X + 1).T @ (X + 1) / 50  # the mean square, without a centre
    M = np.linalg.lstsq(X + 1, Y, rcond=None)[0].T
    np.testing.assert_allclose(A @ Sigma @ B.T, M, atol=EXACT)
    assert regression.regulariser(Sigma, A, B) < EXACT
    estimate = manifold.estimate(X + 1, Y)
    np.testing.assert_allclose(estimate.Sigma, Sigma, rtol=1e-12)
    np.testing.assert_allclose(estimate.M, M, rtol=1e-9, atol=1e-12)


def test_the_largest_moment_is_that_of_the_manifolds_worst_point():
    _, _, Vt = np.linalg.svd(PROBLEM.M @ PROBLEM.root, full_matrices=False)
    S = PROBLEM.root @ SPACE.point(Vt)[5:] @ PROBLEM.root
    largest = np.linalg.eigvalsh((S + S.T) / 2)[-1]
    np.testing.assert_allclose(1 / (2 * largest), PROBLEM.largest_moment, rtol=EXACT)


def test_seeds_repeat_and_differ():
    first, again, other = (
        regression.random_regression(seed, 3, 5) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.M, again.M)
    assert np.abs(first.M - other.M).max() > 1e-3
    np.testing.assert_allclose(first.singular_values[0], 0.2, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.eigvalsh(first.Sigma)[-1], 1.0, rtol=1e-12)
    assert all(holds for _, holds in first.assumptions().values())


def test_a3_warns_with_the_number_and_goes_on():
    with pytest.warns(UserWarning, match=r"A3 fails: \|\|M Sigma\^1/2\|\| = 0.3"):
        problem = regression.Regression(EYE, 0.3 * EYE, 0.1)
    assert problem.assumptions()["A3"][1] is False
    assert problem.premises() == (
        "A1 lambda_min(Sigma) = 1.000; A2 sigma_d(M Sigma^1/2) = 0.300; "
        "A3 largest moment c = 0.913, needs > 1; all hold: False"
    )


X, Y = PROBLEM.sample(20, np.random.default_rng(15))
A, B = layer(16)
REFUSED = [
    (
        "Sigma is singular",
        lambda: regression.Regression(np.diag([1.0, 1.0, 0.0]), EYE, 0.1),
    ),
    (
        "Sigma is not symmetric",
        lambda: regression.Regression(EYE + np.eye(3, k=1), EYE, 0.1),
    ),
    ("Sigma has shape", lambda: regression.Regression(np.ones((2, 3)), EYE, 0.1)),
    ("k >= d", lambda: regression.Regression(EYE, np.ones((2, 3)), 0.1)),
    ("rank-deficient", lambda: regression.Regression(EYE, np.ones((4, 3)), 0.1)),
    ("M has shape", lambda: regression.Regression(EYE, np.ones((4, 2)), 0.1)),
    ("M must be", lambda: regression.Regression(EYE, np.full((4, 3), np.nan), 0.1)),
    ("noise", lambda: regression.Regression(EYE, EYE, -1.0)),
    ("B has shape", lambda: regression.empirical_gradients(X, Y, A, B[:2])),
    ("Y has shape", lambda: regression.empirical_gradients(X, Y, A[:4], B)),
    ("Y has shape", lambda: regression.empirical_gradients(X, Y[:5], A, B)),
    ("X holds", lambda: regression.empirical_gradients(X * np.nan, Y, A, B)),
    ("n < d", lambda: manifold.spectral_start(X[:2], Y[:2])),
    ("finite", lambda: manifold.spectral_start(X, np.full_like(Y, np.inf))),
    ("norm must be", lambda: SPACE.norm(np.concatenate([A, B]), "right")),
]


@pytest.mark.parametrize("message, make", REFUSED)
def test_bad_input_is_refused(message, make):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_map_with_fewer_rows_than_columns_has_no_manifold():
    with pytest.raises(ValueError, match=r"M has shape \(2, 3\); it has too few rows"):
        manifold.Manifold(Sigma=np.eye(3), M=np.ones((2, 3)))
    assert manifold.Manifold(
        Sigma=np.eye(2), M=np.eye(2)
    ).singular_values == pytest.approx([1, 1])
