"""Paper B's loss around its minima: Theorem 1, Assumption 3, Lemmas 1, 2, 4, 7 and 8,
Eqs. 3 and 4.

Some constants are blank in our copy of the paper; we derive them here. Below, M
Sigma^{1/2} has the singular values sigma_1 >= sigma_2 >= ..., the layer is Z = (A; B),
and Z_pi is the projection of Z onto the minima. We sample from the problem
`problem`, and compute closed forms for the problem `named`. In the experiment itself
they are the same problem. In an altered copy of the experiment (a negative control)
they differ, and the claims must fail.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import block_diag, eigh, expm
from scipy.optimize import minimize
from scipy.stats import ortho_group

from companion.claims import Claim, furthest
from lib import regression, seeds
from lib.regression import Regression, manifold
from papers.b.statements import PAPER


def _standard_errors(estimates: np.ndarray, expected: np.ndarray | float) -> float:
    """Return the largest |mean - expected| of `estimates` (draws, ...), in standard
    errors of the mean.

    There must be at least two draws. `expected` (...) has the theoretical means. The
    result is NaN if all estimates of some entry are equal to its expected value.
    """
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    return float((np.abs(estimates.mean(0) - expected) / error).max())


def _ratio_errors(named: Regression, X: np.ndarray, w: np.ndarray) -> float:
    """Compare sampled means with E e^{x.w} = e^{w.Sigma.w / 2} and E[x e^{x.w}].

    The closed form of E[x e^{x.w}] is Sigma w e^{w.Sigma.w / 2}. X (draws, d) are the
    samples, and w has the shape (d,). The function returns the largest absolute
    deviation, in standard errors.
    """
    weight = np.exp(X @ w)
    sampled = np.column_stack([weight, X * weight[:, None]])
    normaliser = np.exp(w @ named.Sigma @ w / 2)
    expected = np.concatenate([[normaliser], named.Sigma @ w * normaliser])
    return _standard_errors(sampled, expected)


def _population_loss_error(
    problem: Regression,
    named: Regression,
    samples: tuple[np.ndarray, np.ndarray],
    layer: np.ndarray,
) -> float:
    """Compare L(A, B) with the mean loss over sampled queries that attend to infinitely
    many keys.

    `samples` is a pair of X (draws, d), the queries, and Y (draws, k). `layer` (k + d,
    d) is A above B. The function returns the absolute deviation in standard errors.
    """
    X, Y = samples
    A, B = np.split(layer, [problem.k])
    predictions = X @ B @ problem.Sigma @ A.T
    sampled_losses = ((Y - predictions) ** 2).sum(1) / 2
    return _standard_errors(sampled_losses, regression.population_loss(named, A, B))


def _moment_error(problem: Regression, named: Regression, X: np.ndarray) -> float:
    """Compare E e^{c x^T B x} with its closed form at the worst minimum.

    c is 0.4 times the largest value for which the moment is finite, and X (draws, d)
    are the samples. The function returns the absolute deviation in standard errors.
    """
    # sym(Sigma^{1/2} B Sigma^{1/2}) has its largest eigenvalue, sigma_1^{1/2}, at
    # R = V^T.
    _, _, Vt = np.linalg.svd(problem.M @ problem.root, full_matrices=False)
    worst_B = manifold.of(problem).point(Vt)[problem.k :]
    S = problem.root @ worst_B @ problem.root
    S = (S + S.T) / 2
    c = 0.4 * problem.largest_moment

    whitened = X @ np.linalg.inv(problem.root)
    logits = np.einsum("id,de,ie->i", whitened, S, whitened)
    # The scale is 1, unless an altered copy changes Sigma.
    scale = named.Sigma[0, 0] / problem.Sigma[0, 0]
    expected = np.linalg.det(np.eye(problem.d) - 2 * c * scale * S) ** -0.5
    return _standard_errors(np.exp(c * logits), expected)


def by_monte_carlo(
    problem: Regression, seed: int, draws: int, named: Regression | None = None
) -> list[Claim]:
    """Check closed forms against `draws` >= 2 samples of `problem`.

    The closed forms are E e^{x'^T w} = e^{w^T Sigma w / 2} and the ratio identity
    E[x' e^{x'^T w}] = Sigma w e^{w^T Sigma w / 2}, the population loss L(Z), and the
    threshold up to which moments are finite. For the threshold we compare E e^{c x^T B
    x} at the worst minimum, where c is 0.4 times the threshold, so that the variance is
    finite too. The measured value of a claim is its largest |sample mean - closed form|
    in standard errors.

    The closed forms are computed for `named`, by default `problem` itself; a negative
    control names another problem. The claim about moments uses only Sigma_11 of
    `named`.
    """
    rng = seeds.stream(seed, "draws")
    named = named or problem
    X, Y = problem.sample(draws, rng)
    w = rng.standard_normal(problem.d) / 2
    layer = 0.5 * rng.standard_normal((problem.k + problem.d, problem.d))
    errors = {
        "ratio": _ratio_errors(named, X, w),
        "population": _population_loss_error(problem, named, (X, Y), layer),
        "integrable": _moment_error(problem, named, X),
    }
    return PAPER.claims(errors)


def search(problem: Regression, starts: int) -> float:
    """Return the largest distance from the minima at which L-BFGS on L + R ends.

    The distance is in the norm "left_right", and the maximum is over `starts` >= 1
    Gaussian starts, whose seeds are 0, 1, ...
    """
    shape = (problem.k + problem.d, problem.d)
    distances = []

    def value(flat: np.ndarray):
        Z = flat.reshape(shape)
        return regularised_excess(problem, Z), manifold.gradient(problem, Z).ravel()

    options = {"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-12}
    for seed in range(starts):
        start = np.concatenate(
            regression.gaussian_start(seed, problem.d, problem.k)
        ).ravel()
        end = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
        distances.append(
            manifold.of(problem).distance(end.x.reshape(shape), "left_right")
        )
    return max(distances)


def regularised_excess(problem: Regression, Z: np.ndarray) -> float:
    """Compute L_reg(Z) - L_reg^* = L(Z) - L^* + R(Z).

    Parameters
    ----------
    problem : Regression
        The problem, with the true covariance.
    Z : ndarray, (k + d, d)
        The layer, A above B.

    Returns
    -------
    float
        The excess of L_reg = L + R over its globally optimal value.
    """
    layer = Z[: problem.k], Z[problem.k :]
    loss = regression.excess_loss(problem, *layer)
    return loss + regression.regulariser(problem.Sigma, *layer)


def minima(
    problem: Regression, points: np.ndarray, distance: float, named: Regression
) -> list[Claim]:
    """Check Theorem 1.2: the points Z_Q are minima, and a search finds no others.

    At each of the `points` (m, k + d, d) the excess loss and R must be 0. We measure
    the largest value of each, divided by the excess loss at Z = 0. `distance` is the
    result of `search`. The third claim is about the larger of `distance` and the
    distance of the minimum of `named` with R = I to the minima of `problem`, which is 0
    unless this is an altered copy.
    """
    A = points[:, : named.k]
    B = points[:, named.k :]
    scale = regression.excess_loss(named, 0 * A[0], 0 * B[0])
    excess = regression.excess_loss(named, A, B).max() / scale
    balance = regression.regulariser(named.Sigma, A, B).max() / scale
    off = manifold.of(problem).distance(manifold.of(named).point(), "left_right")
    measured = {"minima.excess": excess, "minima.balance": balance}
    return PAPER.claims(measured | {"minima.search": max(distance, off)})


def _random_layers(problem: Regression, count: int) -> np.ndarray:
    """Draw Gaussian layers Z (count, k + d, d), always from the same stream."""
    rng = seeds.stream(2, "draws")
    return rng.standard_normal((count, problem.k + problem.d, problem.d))


def _hessian(
    gradient: Callable[[np.ndarray], np.ndarray], at: np.ndarray
) -> np.ndarray:
    """Compute the Hessian (D, D) at `at`, which has D entries, by central differences.

    `gradient` returns an array of the shape of `at`. The differences have the step 1,
    so that the gradient must be linear; then they are exact up to rounding.
    """
    columns = []
    for unit in np.eye(at.size):
        step = unit.reshape(at.shape)
        difference = gradient(at + step) - gradient(at - step)
        columns.append(difference.ravel() / 2)
    return np.array(columns)


def convexity(problem: Regression, named: Regression) -> list[Claim]:
    """Check that L is strongly convex in A and in B separately, but not in A and B
    together (paper B, Theorem 1.1).

    The smallest eigenvalue of the Hessian in A is lambda_min(Sigma B^T Sigma B Sigma),
    and that of the Hessian in B is lambda_min(Sigma A^T A Sigma) lambda_min(Sigma). At
    Z = 0 the curvature along a minimum Z_Q is -2 |M Sigma^(1/2)|_F^2, which is
    negative.

    Parameters
    ----------
    problem : Regression
        The problem whose loss is measured.
    named : Regression
        The problem whose closed forms are used.

    Returns
    -------
    list of Claim
        The measured curvatures divided by their closed forms. For A and for B, the
        measured value is the ratio furthest from 1 over 20 random layers.
    """
    k = problem.k
    ratios = {"convex.A": [], "convex.B": []}
    for Z in _random_layers(problem, 20):
        A = Z[:k]
        B = Z[k:]
        # The curvatures of the loss itself.
        in_A = _hessian(
            lambda at, B=B: regression.population_gradients(problem, at, B)[0], A
        )
        in_B = _hessian(
            lambda at, A=A: regression.population_gradients(problem, A, at)[1], B
        )
        # Their closed forms.
        S = named.Sigma
        expected_A = np.linalg.eigvalsh(S @ B.T @ S @ B @ S)[0]
        expected_B = np.linalg.eigvalsh(S @ A.T @ A @ S)[0] * np.linalg.eigvalsh(S)[0]
        ratios["convex.A"].append(
            np.linalg.eigvalsh((in_A + in_A.T) / 2)[0] / expected_A
        )
        ratios["convex.B"].append(
            np.linalg.eigvalsh((in_B + in_B.T) / 2)[0] / expected_B
        )
    worst = {name: furthest(np.array(values), 1.0) for name, values in ratios.items()}
    # The curvature at Z = 0 in the direction of a minimum, by a second difference.
    step = 1e-2
    Z = step * manifold.of(problem).point()
    at_zero = regression.excess_loss(problem, 0 * Z[:k], 0 * Z[k:])
    moved = regression.excess_loss(problem, Z[:k], Z[k:])
    curvature = 2 * (moved - at_zero) / step**2  # the loss is even in Z
    expected = -2 * (named.M @ named.root * (named.M @ named.root)).sum()
    return PAPER.claims(worst | {"convex.jointly": curvature / expected})


def sample_average(problem: Regression, named: Regression, draws: int) -> Claim:
    """Compare the mean of L^ at B = 0 with L (paper B, Section 3.1).

    At B = 0 every softmax weight is 1/n, so that the prediction is A times the mean x'
    of the n keys. With y' the mean of the n responses, L^ minus the mean of |y_i|^2 / 2
    is |A x'|^2 / 2 - y'^T A x'. We take A = -M.

    Parameters
    ----------
    problem : Regression
        The problem from which the samples are drawn.
    named : Regression
        The problem whose closed form is used.
    draws : int
        How many data sets of n = 5 samples are drawn.

    Returns
    -------
    Claim
        n (mean of L^ - L) divided by its closed form, tr(A Sigma A^T) / 2 - tr(M Sigma
        A^T).
    """
    n = 5
    A = -problem.M  # makes both terms of the closed form positive
    X, Y = problem.sample(n * draws, seeds.stream(3, "draws"))
    mean_x = X.reshape(draws, n, -1).mean(1)
    mean_y = Y.reshape(draws, n, -1).mean(1)
    prediction = mean_x @ A.T
    # L^ - L, where the mean of |y_i|^2 / 2 is the population loss at B = 0.
    difference = (prediction**2).sum(1) / 2 - (mean_y * prediction).sum(1)
    expected = np.trace(A @ named.Sigma @ A.T) / 2 - np.trace(
        named.M @ named.Sigma @ A.T
    )
    return PAPER.claim("sample_average", n * difference.mean() / expected)


def lemma1_symmetry(problem: Regression, named: Regression) -> Claim:
    """Check that Sigma Z_pi^T Sbar (Z - Z_pi) is symmetric (paper B, Lemma 1.1).

    `Manifold.project` finds Z_pi by solving this very equation. So in the unaltered
    problem the measured value shows the accuracy of the solver.

    Parameters
    ----------
    problem : Regression
        The problem. Z is projected onto its minima in the "left" norm.
    named : Regression
        The problem whose Sigma and Sbar = diag(I, Sigma) are used.

    Returns
    -------
    Claim
        The largest norm of the matrix minus its transpose, divided by the norm of the
        matrix, at 20 random Z near the minimum with R = I.
    """
    space = manifold.of(problem)
    asymmetries = []
    Sbar = block_diag(np.eye(problem.k), named.Sigma)
    for Z in space.point() + 0.02 * _random_layers(problem, 20):
        nearest = space.project(Z, "left")
        product = named.Sigma @ nearest.T @ Sbar @ (Z - nearest)
        asymmetries.append(
            np.linalg.norm(product - product.T) / np.linalg.norm(product)
        )
    return PAPER.claim("lemma1.symmetry", max(asymmetries))


def lemma8_formulas(
    X: np.ndarray, w: np.ndarray, s: np.ndarray, l: int
) -> dict[str, np.ndarray]:
    """Return Lemma 8's formulas for ds/dx_l (n, d) and dc/dx_l (d, d), by the id of the
    claim.

    s (n,) = softmax(X w) are the weights of the keys X (n, d) for the logits X w, and
    c = X^T s. The key l must not be the query, on which w (d,) depends.
    """
    n, d = X.shape
    c = s @ X
    is_l = np.arange(n) == l
    return {
        "lemma8.weights": np.outer(s * (is_l - s[l]), w),
        "lemma8.mean": s[l] * (np.eye(d) + np.outer(X[l] - c, w)),
    }


def lemma8(problem: Regression) -> list[Claim]:
    """Compare Lemma 8's two identities with central differences.

    Let s = softmax(X w) for keys X (n, d), and c = X^T s. For a key l that is not the
    query, the lemma says that ds_i/dx_l = s_i (delta_il - s_l) w and dc/dx_l = s_l (I +
    (x_l - c) w^T).

    Parameters
    ----------
    problem : Regression
        The problem; the keys have its covariance.

    Returns
    -------
    list of Claim
        The norm of the error of each identity, divided by the norm of its right side,
        at its largest over 20 random layers.
    """
    n = 6
    d = problem.d
    l = 3
    step = 1e-5
    rng = seeds.stream(4, "draws")
    errors = {"lemma8.weights": [], "lemma8.mean": []}

    def weights_and_mean(X: np.ndarray, w: np.ndarray):
        weights = np.exp(X @ w)
        weights /= weights.sum()
        return weights, weights @ X

    for Z in _random_layers(problem, 20):
        X, _ = problem.sample(n, rng)
        w = Z[problem.k :].T @ X[0]  # the query is the first key
        s, _ = weights_and_mean(X, w)
        formulas = lemma8_formulas(X, w, s, l)
        # The central differences in each coordinate of the key.
        measured_s = np.empty((n, d))
        measured_c = np.empty((d, d))
        for j in range(d):
            move = np.zeros((n, d))
            move[l, j] = step
            after = weights_and_mean(X + move, w)
            before = weights_and_mean(X - move, w)
            measured_s[:, j] = (after[0] - before[0]) / (2 * step)
            measured_c[:, j] = (after[1] - before[1]) / (2 * step)
        measured = {"lemma8.weights": measured_s, "lemma8.mean": measured_c}
        for name, formula in formulas.items():
            errors[name].append(
                np.linalg.norm(measured[name] - formula) / np.linalg.norm(formula)
            )
    return PAPER.claims({name: max(values) for name, values in errors.items()})


def lemma1(problem: Regression) -> list[Claim]:
    """Check Lemma 1's inequalities at the rotations at which they are attained.

    The measured values are those of `lemma1_ratios`.
    """
    return PAPER.claims(lemma1_ratios(problem))


def lemma1_ratios(problem: Regression) -> dict[str, float]:
    """Return the ratio of the two sides of each of Lemma 1's inequalities, by the id of
    the claim.

    They are the smallest and the largest singular value of Sbar^{1/2} Z_Q, divided by
    their bounds (2 sigma_d / lambda_max)^{1/2} and (2 sigma_1 / lambda_min)^{1/2}, with
    lambda the eigenvalues of Sigma. Both bounds are attained at the rotation that we
    take. It pairs the weakest direction of the signal with the strongest direction of
    Sigma, and the strongest direction of the signal with the weakest direction of
    Sigma.
    """
    values, vectors = np.linalg.eigh(problem.Sigma)
    space = manifold.of(problem)
    sigma = space.singular_values
    ends = np.linalg.svd(space.weighted(space.point(vectors.T), "left"))[1]
    low = ends[-1] / np.sqrt(2 * sigma[-1] / values[-1])
    high = ends[0] / np.sqrt(2 * sigma[0] / values[0])
    return {"lemma1.low": low, "lemma1.high": high}


def largest_self_logit(problem: Regression, starts: int = 6) -> float:
    """Find the largest eigenvalue of sym(Sigma^{1/2} B Sigma^{1/2}) over all minima.

    The function returns this eigenvalue divided by sigma_1^{1/2}. L-BFGS searches over
    the antisymmetric S in R = R_0 e^S. The search begins at `starts` random R_0, and at
    the same R_0 with the sign of the first column reversed, because R_0 e^S has the
    same determinant as R_0. For d = 1 these two R_0 give all minima, and there is
    nothing to search.
    """
    space = manifold.of(problem)
    d = problem.d
    root = problem.root
    rng = seeds.stream(0, "draws")
    (i, j) = np.triu_indices(problem.d, 1)
    largest = -np.inf
    for _ in range(starts):
        drawn, _ = np.linalg.qr(rng.standard_normal((d, d)))
        for sign in (1.0, -1.0):
            R_0 = drawn * np.where(np.arange(d) == 0, sign, 1.0)

            def value(angles: np.ndarray, R_0: np.ndarray = R_0):
                S = np.zeros((d, d))
                S[i, j], S[j, i] = angles, -angles
                L = root @ space.point(R_0 @ expm(S))[problem.k :] @ root
                return -np.linalg.eigvalsh((L + L.T) / 2)[-1]

            least = value(np.zeros(len(i)))
            if d > 1:  # With nothing to search, scipy would return zero.
                least = minimize(value, np.zeros(len(i)), method="L-BFGS-B").fun
            largest = max(largest, -least)
    return float(largest / np.sqrt(problem.singular_values[0]))


def _steepest(problem: Regression) -> tuple[float, float, np.ndarray]:
    """Return the best beta of Eq. 4 and of Lemma 2 within the radius r, and the point Z
    at which both are attained.

    The norm is "left_right". That the two constants are attained at one common Z (k +
    d, d) is our own result. In Y = Sbar^{1/2} Z Sigma^{1/2}, the terms of the gradient
    of order 1, 2 and 3 in Delta are at most 2 sigma_1, 3/2 (2 sigma_1)^{1/2} ||Delta||
    and ||Delta||^2 / 2, each times ||Delta||. With a = r / (2 sigma_1)^{1/2} their sum
    is sigma_1 (2 + a)(1 + a) times ||Delta||, the beta of Eq. 4. Its integral gives
    sigma_1 (2 + a)^2 / 2, the beta of Lemma 2. Both bounds are attained if Y differs
    from Y_pi only in that the part of Y_pi that belongs to sigma_1 is enlarged.

    Returns
    -------
    tuple of (float, float, ndarray)
        beta of Eq. 4, beta of Lemma 2, and Z at the distance r from the minimum with
        R = I.
    """
    space = manifold.of(problem)
    largest = space.singular_values[0]
    a = space.constants("left_right").radius / np.sqrt(2 * largest)
    U, D, Vt = np.linalg.svd(problem.M @ problem.root, full_matrices=False)
    Y = np.vstack([U, Vt.T]) * np.sqrt(D)
    Y[:, 0] *= 1 + a
    beta = largest * (2 + a) * (1 + a), largest * (2 + a) ** 2 / 2
    return *beta, space.from_coordinates(Y)


def curvatures(
    problem: Regression, starts: int, fractions: Sequence[float] = (0.1, 1.0)
) -> dict[str, np.ndarray]:
    """Measure the worst curvature within our radius, divided by our constants.

    Paper B, Eqs. 3 and 4. Convexity is min <grad, Delta> / ||Delta||^2, divided by the
    convexity constant (theory: at least 1). Smoothness is max ||grad|| / ||Delta||,
    divided by the smoothness constant (theory: at most 1), with the dual norm of the
    gradient. L-BFGS searches for each of the two extremes over the points at a given
    fraction of the radius, one of `fractions`, from a minimum with random R. There are
    `starts` such minima and directions for each fraction. In the norm "left_right",
    smoothness is divided by the best beta, and is also measured at the point from
    `_steepest`.

    Returns
    -------
    dict of str to ndarray (2,)
        The two ratios, convexity and smoothness, by norm.
    """
    space = manifold.of(problem)
    worst = {}
    shape = problem.k + problem.d, problem.d
    options = dict(method="L-BFGS-B", options={"maxiter": 40})
    for norm in manifold.NORMS:
        constants = space.constants(norm)
        lowest = np.inf
        highest = 0.0

        def ratio(
            direction: np.ndarray,
            smoothness: bool,
            centre: np.ndarray,
            radius: float,
            norm: str = norm,
            constants: Any = constants,
        ):
            direction = direction.reshape(shape)
            Z = centre + radius * direction / space.norm(direction, norm)
            Delta = Z - space.project(Z, norm)
            gradient = manifold.gradient(problem, Z)
            length = space.norm(Delta, norm)
            if smoothness:
                size = manifold.dual_norm(space, gradient, norm)
                return -size / length / constants.smoothness
            return (gradient * Delta).sum() / length**2 / constants.convexity

        for fraction in fractions:
            rng = seeds.stream(0, "draws")
            for _ in range(starts):
                centre = space.point(ortho_group.rvs(problem.d, random_state=rng))
                start = rng.standard_normal(shape).ravel()
                at = centre, fraction * constants.radius
                lowest = min(
                    lowest, minimize(ratio, start, (False, *at), **options).fun
                )
                highest = max(
                    highest, -minimize(ratio, start, (True, *at), **options).fun
                )
        worst[norm] = np.array([lowest, highest])
    smoothness, _, Z = _steepest(problem)
    searched = (
        worst["left_right"][1] * space.constants("left_right").smoothness / smoothness
    )
    gradient = manifold.dual_norm(space, manifold.gradient(problem, Z), "left_right")
    attained = gradient / space.norm(Z - space.point(), "left_right") / smoothness
    worst["left_right"][1] = max(searched, attained)
    return worst


def one_point(worst: dict[str, np.ndarray]) -> list[Claim]:
    """Check Eqs. 3 and 4 with our constants, given the result of `curvatures`."""
    sides = {}
    for norm, values in worst.items():
        sides[f"convex.{norm}"], sides[f"smooth.{norm}"] = values
    return PAPER.claims(sides)


def descent_ratio(problem: Regression, norm: str, draws: int) -> float:
    """Return the largest (L_reg(Z) - min) / (beta/2 ||Z - Z_pi||^2) of Lemma 2.

    The points Z are `draws` random ones within the radius of the minimum with R = I. In
    the norm "left_right", beta is the best possible constant, and we also try the Z at
    which it is attained.
    """
    space = manifold.of(problem)
    rng = seeds.stream(1, "draws")
    constants = space.constants(norm)
    tried = []
    for fraction in rng.uniform(0.05, 1, draws):
        direction = rng.standard_normal((problem.k + problem.d, problem.d))
        move = fraction * constants.radius / space.norm(direction, norm)
        tried.append(space.point() + move * direction)
    beta = constants.smoothness
    if norm == "left_right":
        _, beta, Z = _steepest(problem)
        tried.append(Z)
    return float(
        max(
            regularised_excess(problem, Z) / (beta / 2 * space.distance(Z, norm) ** 2)
            for Z in tried
        )
    )


def _on_layers(problem: Regression, Sigma: np.ndarray) -> np.ndarray:
    """Return the matrix (D, D) of the linear map that takes a layer Z to diag(I_k,
    Sigma) Z.

    Z is (k + d, d) and has D = (k + d) d entries, in the order of Z.ravel().
    """
    on_rows = block_diag(np.eye(problem.k), Sigma)
    return np.kron(on_rows, np.eye(problem.d))


def _regularised_hessian(problem: Regression, Z: np.ndarray) -> np.ndarray:
    """Compute the Hessian (D, D) of L + R at the layer Z, which has D entries, by
    central differences.
    """
    reach = 1e-5
    basis = np.eye(Z.size).reshape(-1, *Z.shape)
    ahead = manifold.gradient(problem, Z + reach * basis)
    behind = manifold.gradient(problem, Z - reach * basis)
    return (ahead - behind).reshape(len(basis), -1) / (2 * reach)


def _best_constants(
    G: np.ndarray, S: np.ndarray, across: np.ndarray, error: float
) -> tuple[float, float]:
    """Compute alpha' and beta' of `sample_constants`, two floats.

    G (D, D) is the Hessian in the "left" norm, S (D, D) is defined in
    `sample_constants`, and the columns of `across` (D, m) are orthonormal and span the
    directions orthogonal to the manifold. `error` is 1 if the gradient has an error,
    and 0 if it is exact. If it is 0, the terms in ||S||^2 / 4 and ||S Delta||^2 / 4
    are left out.
    """
    # alpha' is the smallest value of <P grad, Delta> / (||Delta||^2 + ||S Delta||^2 /
    # 4) over all Delta orthogonal to the manifold.
    inner = across.T @ (S @ G + G @ S) @ across / 2
    square = np.eye(len(inner)) + error * across.T @ S @ S @ across / 4
    alpha = eigh(inner, square, eigvals_only=True)[0]

    # beta' is infinite if ||S|| >= 2, because the error e of the gradient alone can
    # then make ||P g||^2 as large as 4 e^2.
    size = error * np.linalg.norm(S, 2)
    if size >= 2:
        return alpha, np.inf
    beta = np.linalg.norm(S @ G, 2) / np.sqrt(1 - size**2 / 4)
    return alpha, beta


def sample_constants(
    problem: Regression, covariance: np.ndarray, Q: np.ndarray
) -> tuple[float, float]:
    """Compute Lemma 4's alpha' and beta' for a sample covariance, divided by those for
    Sigma.

    Near the minimum Z_Q, in the "left" norm, let P = diag(I, Sigma^^{-1}), where Sigma^
    is the sample covariance, and S = Sbar^{1/2} P Sbar^{1/2}. For a gradient g with an
    error of size e, <P g, Delta> >= alpha' ||Delta||^2 - e^2 / alpha' and ||P g||^2 <=
    beta'^2 ||Delta||^2 + 4 e^2 hold, with the best constants

        alpha' = min <P grad, Delta> / (||Delta||^2 + ||S Delta||^2 / 4),
        beta' = max ||P grad|| / ||Delta|| (1 - ||S||^2 / 4)^{-1/2},

    over Delta orthogonal to the manifold. Both constants are divided by those for Sigma
    and an exact gradient. For the true covariance the two ratios are 4/5 and
    (4/3)^{1/2}. The ratio of beta' is infinite if ||S|| >= 2.

    Parameters
    ----------
    problem : Regression
        The problem, with the true covariance.
    covariance : ndarray (d, d)
        The sample covariance Sigma^, which must be invertible.
    Q : ndarray (d, d)
        The rotation of the minimum Z_Q, an orthogonal matrix.

    Returns
    -------
    tuple of (float, float)
        The ratio of alpha', and the ratio of beta'.
    """
    space = manifold.of(problem)
    H = _regularised_hessian(problem, space.point(Q))

    # The Hessian in the "left" norm, and the directions orthogonal to the manifold.
    # Along the manifold, the Hessian is zero.
    inverse_root = _on_layers(problem, space.inverse_root)  # Sbar^{-1/2}
    symmetric = inverse_root @ (H + H.T) @ inverse_root / 2
    eigenvalues, eigenvectors = np.linalg.eigh(symmetric)
    dimension = problem.d * (problem.d - 1) // 2  # dimension of the manifold
    across = eigenvectors[:, dimension:]
    curvatures = eigenvalues[dimension:]
    G = (across * curvatures) @ across.T

    def constants(Sigma: np.ndarray, error: float):
        whitened_inverse = problem.root @ np.linalg.inv(Sigma) @ problem.root
        S = _on_layers(problem, whitened_inverse)
        return _best_constants(G, S, across, error)

    sample_alpha, sample_beta = constants(covariance, error=1.0)
    alpha, beta = constants(problem.Sigma, error=0.0)
    return sample_alpha / alpha, sample_beta / beta
