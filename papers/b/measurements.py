"""What paper B's theorems speak of, measured: curvature, starts, gradient bias, floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import block_diag, eigh
from scipy.optimize import minimize
from scipy.stats import ortho_group

from lib import regression, seeds
from lib.regression import PreconditionedRule, RegressionHistory, curvature, manifold
from lib.regression.problem import Regression


def worst_curvature(
    problem: Regression, norm: str, starts: int, fraction: float = 1.0
) -> tuple[float, float]:
    """The worst curvature found at distance `fraction` of the radius from the manifold.

    Returns min <grad, Delta> / ||Delta||^2 over the convexity constant (theory: >= 1) and max
    ||grad|| / ||Delta|| over the smoothness constant (theory: <= 1), by L-BFGS from `starts` random
    directions each. Around Z_pi at R = I, which is no restriction: rotations are isometries in
    "left_right", and in "left" the start R is drawn at random.
    """
    space, rng = manifold.of(problem), seeds.stream(0, "draws")
    constants, shape = space.constants(norm), (problem.k + problem.d, problem.d)
    lowest, highest = np.inf, 0.0
    for _ in range(starts):
        centre = space.point(ortho_group.rvs(problem.d, random_state=rng))

        def curvatures(direction, centre=centre):
            direction = direction.reshape(shape)
            Z = centre + fraction * constants.radius * direction / space.norm(direction, norm)
            Delta = Z - space.project(Z, norm)
            length, gradient = space.norm(Delta, norm), curvature.gradient(problem, Z)
            convexity = (gradient * Delta).sum() / length**2 / constants.convexity
            size = curvature.dual_norm(space, gradient, norm)
            return convexity, size / length / constants.smoothness

        first = rng.standard_normal(shape).ravel()
        options = dict(method="L-BFGS-B", options={"maxiter": 40})
        lowest = min(lowest, minimize(lambda v, f=curvatures: f(v)[0], first, **options).fun)
        highest = max(highest, -minimize(lambda v, f=curvatures: -f(v)[1], first, **options).fun)
    return float(lowest), float(highest)


def sample_constants(
    problem: Regression, covariance: np.ndarray, Q: np.ndarray
) -> tuple[float, float]:
    """Lemma 4's alpha' and beta' for a sample `covariance`, over alpha and beta for Sigma itself.

    Close to the minimum Z_Q, in the "left" norm. With P = diag(I, Sigma^^{-1}), S = Sbar^{1/2} P
    Sbar^{1/2} and any error of size e of the gradient, <P g, Delta> >= alpha' ||Delta||^2 - e^2 /
    alpha' and ||P g||^2 <= beta'^2 ||Delta||^2 + 4 e^2 hold with the best constants

        alpha' = min <P grad, Delta> / (||Delta||^2 + ||S Delta||^2 / 4),
        beta' = max ||P grad|| / ||Delta|| (1 - ||S||^2 / 4)^{-1/2},

    over Delta across the manifold. For the true covariance they are 4/5 and (4/3)^{1/2}.
    """
    space, k = manifold.of(problem), problem.k
    Z, reach = space.point(Q), 1e-5
    basis = np.eye(Z.size).reshape(-1, *Z.shape)
    sides = (curvature.gradient(problem, Z + sign * reach * basis) for sign in (1, -1))
    H = np.subtract(*sides).reshape(len(basis), -1) / (2 * reach)
    whole = lambda part: np.kron(block_diag(np.eye(k), part), np.eye(problem.d))
    W = whole(space.inverse_root)  # Sbar^{-1/2}
    values, vectors = np.linalg.eigh(W @ (H + H.T) @ W / 2)
    across = vectors[:, problem.d * (problem.d - 1) // 2 :]
    G = (across * values[-across.shape[1] :]) @ across.T
    found = []
    for Sigma, error in ((covariance, 1.0), (problem.Sigma, 0.0)):
        S = whole(problem.root @ np.linalg.inv(Sigma) @ problem.root)
        inner = across.T @ (S @ G + G @ S) @ across / 2
        square = np.eye(len(inner)) + error * across.T @ S @ S @ across / 4
        size = error * np.linalg.norm(S, 2)
        beta = np.linalg.norm(S @ G, 2) / np.sqrt(1 - size**2 / 4) if size < 2 else np.inf
        found.append((eigh(inner, square, eigvals_only=True)[0], beta))
    (low, high), (alpha, beta) = found
    return low / alpha, high / beta


def spectral_distances(problem: Regression, sizes, repeats: int) -> np.ndarray:
    """Lemma 3's two events for fresh data sets, (2, repeats, sizes).

    The distance of the spectral start to the manifold, and the operator norm of Sigma^{1/2}
    Sigma^^{-1} Sigma^{1/2} - I.
    """
    space, found = manifold.of(problem), np.empty((2, repeats, len(sizes)))
    for repeat in range(repeats):
        rng = seeds.stream(repeat, "labels")
        for j, n in enumerate(sizes):
            X, Y = problem.sample(n, rng)
            inverse = problem.root @ np.linalg.inv(X.T @ X / n) @ problem.root
            off = np.linalg.norm(inverse - np.eye(problem.d), 2)
            start = np.concatenate(manifold.spectral_start(X, Y))
            found[:, repeat, j] = space.distance(start), off
    return found


def near(problem: Regression, seed: int) -> np.ndarray:
    """A point Z (k + d, d) near the manifold: a minimum and 0.02 of a Gaussian matrix."""
    minimum = manifold.of(problem).point()
    return minimum + 0.02 * seeds.stream(seed, "draws").standard_normal(minimum.shape)


def loss_bias(problem: Regression, Z: np.ndarray, sizes, draws: int, repeats: int) -> np.ndarray:
    """E grad L^ - grad L at Z by batch size, (repeats, sizes, k + d, d).

    `draws` queries each with its own keys per estimate, with the control variate of
    `regression.oracle`.
    """
    A, B = (torch.from_numpy(part)[None, None] for part in (Z[: problem.k], Z[problem.k :]))
    limit = np.concatenate(regression.population_gradients(problem, Z[: problem.k], Z[problem.k :]))
    bias = np.empty((repeats, len(sizes), *Z.shape))
    for j, n in enumerate(sizes):
        for repeat in range(repeats):
            # chunks of at most 2^20 keys, so that memory stays small
            chunk = max(1, 2**20 // n)
            source = regression.oracle(problem, n, min(draws, chunk), [1000 * repeat + j])
            passes = range(-(-draws // chunk))
            found = [np.concatenate([g[0, 0].numpy() for g in source(t, A, B)]) for t in passes]
            bias[repeat, j] = sum(found) / len(found) - limit
    return bias


def gradient_bias(problem: Regression, sizes, draws: int, repeats: int) -> np.ndarray:
    """||E grad L^ - grad L|| at one point near the manifold, by batch size: (repeats, sizes)."""
    found = loss_bias(problem, near(problem, 0), sizes, draws, repeats)
    return np.linalg.norm(found, axis=(-1, -2))


def tail_excess(problem: Regression, history: RegressionHistory, since: int) -> np.ndarray:
    """Excess loss to which a run on an estimated oracle settles, free of its noise, (seeds,).

    The loss depends on the map A Sigma B^T alone, whose error is averaged over the earlier and over
    the later half of the records from iteration `since` on; half the inner product of the two means
    has no share of independent noise, where half a squared norm would have.
    """
    late = history.iterations >= since
    A, Bt = history.A[:, late], history.B[:, late].swapaxes(-1, -2)
    errors = (A @ problem.Sigma @ Bt - problem.M) @ problem.root  # (seeds, records, k, d)
    middle = errors.shape[1] // 2
    return (errors[:, :middle].mean(1) * errors[:, middle:].mean(1)).sum((-1, -2)) / 2


@dataclass(frozen=True)
class Floors:
    """Theorem 2 measured: excess (sizes, seeds, K) at iterations (K,), `floor` (sizes, seeds).

    exact (K,) is the same descent on the population loss; factor = (1 - eta lambda_min)^2 is what
    excess loss shrinks by in an iteration along the slowest mode.
    """

    sizes: np.ndarray
    iterations: np.ndarray
    excess: np.ndarray
    exact: np.ndarray
    floor: np.ndarray
    factor: float


def scaling(
    problem: Regression, sizes: Sequence[int], steps: int, draws: int, of_seeds: Sequence[int]
) -> Floors:
    """Algorithm 1 on the oracle gradient of batches of each size.

    It starts off the manifold along the slowest mode. The step is eta = 1 / lambda_max; the start
    is at the radius of the one-point bounds, where a worst-case rate is met.
    """
    space, k = manifold.of(problem), problem.k
    rates, directions = regression.modes(problem)
    constants = space.constants()
    Z = space.point() + constants.radius * directions[0] / space.norm(directions[0])
    rule, record = PreconditionedRule(1 / rates[-1]), np.arange(steps + 1)

    def run(source, count):
        starts = {"own": tuple(np.stack([part] * count) for part in (Z[:k], Z[k:]))}
        covariance = np.stack([problem.Sigma] * count)
        found = regression.descend(source, {"own": rule}, starts, covariance, steps, record)
        return found["own"]

    runs = [run(regression.oracle(problem, n, draws, of_seeds), len(of_seeds)) for n in sizes]
    return Floors(
        sizes=np.array(sizes),
        iterations=record,
        excess=np.stack([r.excess([problem] * len(of_seeds)) for r in runs]),
        exact=run(regression.population(problem), 1).excess([problem])[0],
        floor=np.stack([tail_excess(problem, r, steps // 3) for r in runs]),
        factor=float((1 - rates[0] / rates[-1]) ** 2),
    )
