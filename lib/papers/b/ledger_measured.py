"""What paper B's ledger measures: each once, for the true world and all wrong ones."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from lib import regression, seeds
from lib.papers.b import concentration, measurements, smoothness, theorems
from lib.regression import curvature, manifold
from lib.regression.problem import Regression
from lib.regression.rules import PreconditionedRule


@dataclass(frozen=True)
class Sizes:
    """How large the ledger's problems are; the defaults are those of notebook 29 at demo scale."""

    d: int = 3
    k: int = 5
    signal: float = 0.2
    noise: float = 0.1
    floor: float = 0.35
    monte_carlo: int = 500_000
    draws: int = 200
    oracle_steps: int = 40
    oracle_draws: int = 32
    softmax_draws: int = 20_000
    searches: int = 1


SMALL = Sizes(draws=40, oracle_draws=16, softmax_draws=10_000, searches=1)


@cache
def problem(sizes: Sizes, seed: int = 0) -> Regression:
    """The ledger's problem: A1-A3 hold."""
    shape = sizes.d, sizes.k, sizes.signal, sizes.noise, sizes.floor
    return regression.random_regression(seed, *shape)


@cache
def self_logits(sizes: Sizes) -> np.ndarray:
    """Largest self-logit eigenvalue on the manifold over sigma_1^{1/2}, of three draws, (3,)."""
    return np.array([concentration.largest_self_logit(problem(sizes, s)) for s in range(3)])


@cache
def curvatures(sizes: Sizes) -> tuple[dict, dict[str, float]]:
    """The worst curvature around the minima, and Lemma 2's ratio, of the ledger's problem."""
    of = problem(sizes)
    worst = theorems.curvatures(of, sizes.searches, (1.0,))
    return worst, {norm: smoothness.descent_ratio(of, norm, 100) for norm in manifold.NORMS}


@cache
def sample_curvatures(sizes: Sizes, ns: tuple[int, ...]) -> np.ndarray:
    """Relative change of <grad, Delta> by the sample preconditioner, rms over 10, (4, sizes)."""
    of = problem(sizes)
    space, k = manifold.of(of), of.k
    found = np.empty((40, len(ns)))
    for r in range(40):
        rng = seeds.stream(r, "draws")
        Z = space.point() + 0.02 * rng.standard_normal((k + of.d, of.d))
        Delta, gradient = Z - space.project(Z), curvature.gradient(of, Z)
        for j, n in enumerate(ns):
            X, _ = of.sample(n, rng)
            step = gradient.copy()
            step[k:] = np.linalg.solve(X.T @ X / n, gradient[k:])
            inner = (space.weighted(step, "left") * space.weighted(Delta, "left")).sum()
            found[r, j] = abs(inner / (gradient * Delta).sum() - 1)
    return np.sqrt((found.reshape(4, 10, -1) ** 2).mean(1))


@cache
def starts(sizes: Sizes, ns: tuple[int, ...]) -> np.ndarray:
    """The distance to the minima that 90 % of spectral starts do not exceed, (4 parts, sizes)."""
    distances = measurements.spectral_distances(problem(sizes), ns, sizes.draws)
    return np.quantile(distances.reshape(4, -1, len(ns)), 0.9, axis=1)


@cache
def softmax_sums(sizes: Sizes, ns: tuple[int, ...]) -> dict:
    """`concentration.softmax_sums` at a query with |u| = 0.4, as many keys drawn for every n."""
    u = np.full(sizes.d, 0.4) / np.sqrt(sizes.d)
    return concentration.softmax_sums(u, ns, 2 * sizes.softmax_draws * 100 // ns[-1])


@cache
def gradient_biases(sizes: Sizes, ns: tuple[int, ...]) -> np.ndarray:
    """|E grad L^ - grad L| at four points near the minima, (points, repeats, sizes)."""
    of = problem(sizes)
    return np.array([measurements.gradient_bias(of, ns, 20_000, 2, seed) for seed in range(4)])


@cache
def regulariser_biases(sizes: Sizes, ns: tuple[int, ...]) -> np.ndarray:
    """`concentration.regulariser_bias` of the ledger's problem, for each sample size of `ns`."""
    return concentration.regulariser_bias(problem(sizes), ns, sizes.softmax_draws)


@cache
def algorithm_1(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1 as it is written, from `draws` data sets of each n in (50, 200, 800).

    Sample covariance, spectral start, steps on the oracle gradient of fresh batches of n. Returns
    the last excess loss freed of the oracle's noise, and the distance of the mean iterate to the
    minima, (draws, sizes) each.
    """
    of, excess, distance = problem(sizes), [], []
    rates, _ = regression.modes(of)
    rule, record = PreconditionedRule(1 / rates[-1]), np.arange(sizes.oracle_steps + 1)
    each = range(sizes.draws)
    for n in (50, 200, 800):
        drawn = [of.sample(n, seeds.stream(seed, "labels")) for seed in each]
        starts = [manifold.spectral_start(X, Y) for X, Y in drawn]
        start = tuple(np.stack(part) for part in zip(*starts, strict=True))
        covariance = np.stack([X.T @ X / n for X, _ in drawn])
        source = regression.oracle(of, n, sizes.oracle_draws, each)
        run = regression.descend(
            source, {"own": rule}, {"own": start}, covariance, sizes.oracle_steps, record
        )["own"]
        excess.append(np.abs(measurements.tail_excess(of, run, sizes.oracle_steps // 3)))
        late = sizes.oracle_steps // 3
        Z = np.concatenate([run.A[:, late:].mean(1), run.B[:, late:].mean(1)], 1)
        distance.append([manifold.of(of).distance(one) for one in Z])
    return np.array(excess).T, np.array(distance).T
