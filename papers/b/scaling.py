"""Paper B in the number of samples n: Lemma 3's starts, the gradients' bias, Theorem 2's floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib import regression, seeds
from lib.companion.claims import Claim, at_most, close
from lib.regression import PreconditionedRule, Regression, RegressionHistory, manifold
from papers.b.concentration import leading
from papers.fits import geometric_phase, power_fit

LATE = 50  # below, C/n is no small term


def spectral_distances(problem: Regression, sizes, repeats: int) -> np.ndarray:
    """Lemma 3's two events for fresh data sets, (2, repeats, sizes).

    The distance of the spectral start to the manifold, and the operator norm of Sigma^{1/2}
    Sigma^^{-1} Sigma^{1/2} - I.
    """
    space, events = manifold.of(problem), np.empty((2, repeats, len(sizes)))
    for repeat in range(repeats):
        rng = seeds.stream(repeat, "labels")
        for j, n in enumerate(sizes):
            X, Y = problem.sample(n, rng)
            inverse = problem.root @ np.linalg.inv(X.T @ X / n) @ problem.root
            off = np.linalg.norm(inverse - np.eye(problem.d), 2)
            start = np.concatenate(manifold.spectral_start(X, Y))
            events[:, repeat, j] = space.distance(start), off
    return events


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
            chunk = max(1, 2**20 // n)  # of keys at most 2^20, so that memory stays small
            source = regression.oracle(problem, n, min(draws, chunk), [1000 * repeat + j])
            passes = range(-(-draws // chunk))
            parts = [np.concatenate([g[0, 0].numpy() for g in source(t, A, B)]) for t in passes]
            bias[repeat, j] = sum(parts) / len(parts) - limit
    return bias


def gradient_bias(problem: Regression, sizes, draws: int, repeats: int) -> np.ndarray:
    """||E grad L^ - grad L|| at one point near the manifold, by batch size: (repeats, sizes)."""
    bias = loss_bias(problem, near(problem, 0), sizes, draws, repeats)
    return np.linalg.norm(bias, axis=(-1, -2))


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
    """Algorithm 1 on the oracle gradient of batches of each size, with eta = 1 / lambda_max.

    From the radius of the one-point bounds along the slowest mode, where a worst-case rate is met.
    """
    space, k = manifold.of(problem), problem.k
    rates, directions = regression.modes(problem)
    constants = space.constants()
    Z = space.point() + constants.radius * directions[0] / space.norm(directions[0])
    rule, record = PreconditionedRule(1 / rates[-1]), np.arange(steps + 1)

    def run(source, count):
        starts = {"oracle": tuple(np.stack([part] * count) for part in (Z[:k], Z[k:]))}
        covariance = np.stack([problem.Sigma] * count)
        rules = {"oracle": rule}
        return regression.descend(source, rules, starts, covariance, steps, record)["oracle"]

    runs = [run(regression.oracle(problem, n, draws, of_seeds), len(of_seeds)) for n in sizes]
    return Floors(
        sizes=np.array(sizes),
        iterations=record,
        excess=np.stack([r.excess([problem] * len(of_seeds)) for r in runs]),
        exact=run(regression.population(problem), 1).excess([problem])[0],
        floor=np.stack([tail_excess(problem, r, steps // 3) for r in runs]),
        factor=float((1 - rates[0] / rates[-1]) ** 2),
    )


def theorem_2(floors: Floors) -> list[Claim]:
    """Geometric down to the floor, at the linearised rate; the floor falls like n^-2."""
    source = "paper B, Theorem 2"
    pairs = zip(floors.excess[-1], floors.floor[-1], strict=True)
    slopes = [geometric_phase(floors.iterations, *pair)[0] for pair in pairs]
    rate = np.mean(slopes) / np.log(floors.factor)
    exponent, _ = power_fit(floors.sizes, floors.floor.T)
    predicted = "slope of log excess in t, down to 10 floors, over 2 log(1 - eta lambda_min)"
    floor = floors.sizes, floors.floor.T
    power, reading = "exponent of the floor in n", f"{source} (our reading)"
    return [
        close("thm2.rate", predicted, f"{source} (ours)", rate, 1.0, 0.05),
        at_most("thm2.floor", power, reading, exponent, -1.0),
        leading("thm2.floor_late", "the floor", "ours", *floor, -2.0, LATE),
    ]


def powers(sizes, distances: np.ndarray, bias_sizes, bias: np.ndarray) -> list[Claim]:
    """Spectral start's distance ~ n^{-1/2} (paper B, Lemma 3) and gradient bias ~ 1/n (Theorem 4).

    `distances` (repeats, sizes) at the sample sizes `sizes`, `bias` (repeats, bias_sizes) at
    `bias_sizes`.
    """
    start, error = power_fit(sizes, distances)
    far = f"exponent of the spectral start's distance in n, standard error {error:.2g}"
    text, source = "|E grad L^ - grad L|", "paper B, Theorem 4 (our reading)"
    return [
        close("lemma3", far, "paper B, Lemma 3 (our reading)", start, -0.5, 0.05),
        leading("theorem4", text, source, bias_sizes, bias, -1.0, LATE),
    ]
