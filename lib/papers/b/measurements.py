"""What paper B's theorems speak of, measured: curvature, starts, gradient bias, floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
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


def spectral_distances(problem: Regression, sizes, repeats: int) -> np.ndarray:
    """Distance of the spectral start to the manifold for fresh data sets, (repeats, sizes)."""
    space, rows = manifold.of(problem), []
    for repeat in range(repeats):
        rng = seeds.stream(repeat, "labels")
        starts = [np.concatenate(manifold.spectral_start(*problem.sample(n, rng))) for n in sizes]
        rows.append([space.distance(Z) for Z in starts])
    return np.array(rows)


def gradient_bias(
    problem: Regression, sizes, draws: int, repeats: int, seed: int = 0
) -> np.ndarray:
    """||E grad L^ - grad L|| at one point near the manifold, by batch size: (repeats, sizes).

    `draws` queries each with its own keys per estimate, with the control variate of
    `regression.oracle`.
    """
    rng = seeds.stream(seed, "draws")
    Z = manifold.of(problem).point() + 0.02 * rng.standard_normal(
        (problem.k + problem.d, problem.d)
    )
    A, B = (torch.from_numpy(part)[None, None] for part in (Z[: problem.k], Z[problem.k :]))
    limit = np.concatenate(regression.population_gradients(problem, Z[: problem.k], Z[problem.k :]))
    bias = np.empty((repeats, len(sizes)))
    for j, n in enumerate(sizes):
        for repeat in range(repeats):
            # chunks of at most 2^20 keys, so that memory stays small
            chunk = max(1, 2**20 // n)
            source = regression.oracle(problem, n, min(draws, chunk), [1000 * repeat + j])
            passes = range(-(-draws // chunk))
            found = [np.concatenate([g[0, 0].numpy() for g in source(t, A, B)]) for t in passes]
            bias[repeat, j] = np.linalg.norm(sum(found) / len(found) - limit)
    return bias


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
    excess loss shrinks by in an iteration along the slowest mode, guarantee = 1 - (convexity /
    smoothness)^2 what the one-point constants promise.
    """

    sizes: np.ndarray
    iterations: np.ndarray
    excess: np.ndarray
    exact: np.ndarray
    floor: np.ndarray
    factor: float
    guarantee: float


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
        guarantee=1 - (constants.convexity / constants.smoothness) ** 2,
    )
