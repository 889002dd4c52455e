"""What paper B's ledger measures: each once, for the true world and all wrong ones."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import ortho_group

from lib import regression, seeds
from lib.regression import manifold
from lib.regression.problem import Regression
from lib.regression.rules import PreconditionedRule
from papers.b import concentration, measurements, smoothness, theorems


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
    """`measurements.sample_constants` at random minima, (alpha' or beta', draws, sizes)."""
    of, found = problem(sizes), np.empty((2, sizes.draws, len(ns)))
    for r in range(sizes.draws):
        rng = seeds.stream(r, "labels")
        for j, n in enumerate(ns):
            X, _ = of.sample(n, rng)
            Q = ortho_group.rvs(of.d, random_state=rng)
            found[:, r, j] = measurements.sample_constants(of, X.T @ X / n, Q)
    return found


@cache
def minima(sizes: Sizes) -> tuple[np.ndarray, float]:
    """Points Z_Q of 100 random Q, (100, k + d, d); how far `theorems.search` of 20 starts ends."""
    of = problem(sizes)
    Q = ortho_group.rvs(of.d, 100, random_state=seeds.stream(0, "draws"))
    return np.array([manifold.of(of).point(one) for one in Q]), theorems.search(of, 20)


@cache
def starts(sizes: Sizes, ns: tuple[int, ...]) -> np.ndarray:
    """What 90 % of data sets do not exceed, of Lemma 3's two events: (2, 4 parts, sizes).

    The distance of the spectral start to the minima, and the size of Sigma^{1/2} Sigma^^{-1}
    Sigma^{1/2} - I.
    """
    found = measurements.spectral_distances(problem(sizes), ns, sizes.draws)
    return np.quantile(found.reshape(2, 4, -1, len(ns)), 0.9, axis=2)


@cache
def softmax_sums(sizes: Sizes, ns: tuple[int, ...]) -> dict:
    """`concentration.softmax_sums` at a minimum, for a query of typical length d^{1/2}."""
    query = np.ones(sizes.d)
    return concentration.softmax_sums(
        _logits(problem(sizes)).T @ query, query, ns, sizes.softmax_draws
    )


@cache
def integrated(sizes: Sizes, ns: tuple[int, ...]) -> dict[str, np.ndarray]:
    """`concentration.integrated` at a minimum of the `quiet` problem."""
    return concentration.integrated(_logits(quiet(sizes)), ns, 200, sizes.softmax_draws // 200)


def _logits(of):
    """L = Sigma^{1/2} B Sigma^{1/2} at the minimum Q = I, (d, d)."""
    return of.root @ manifold.of(of).point()[of.k :] @ of.root


def quiet(sizes: Sizes) -> Regression:
    """The ledger's problem with a quarter of its signal: A3 with c = 2, not with c = 1 alone.

    Means over the query expand in 1/n only as far as moments of e^{x^T B x} are finite: at the full
    signal of 0.2 the second order is not, and the first is reached slowly.
    """
    return problem(replace(sizes, signal=sizes.signal / 4))


@cache
def gradient_biases(sizes: Sizes, ns: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The gradients' biases near the minima of the `quiet` problem, (points, repeats, sizes).

    "L^", "R^" and "L^ + R^" at four points; "loud" (1, repeats, sizes) is L^ at the full signal.
    """
    of, loud, parts, repeats = quiet(sizes), problem(sizes), {"L^": [], "R^": []}, 5
    draws = sizes.softmax_draws // 2
    for seed in range(4):
        Z = measurements.near(of, seed)
        parts["L^"].append(measurements.loss_bias(of, Z, ns, draws, repeats))
        parts["R^"].append(concentration.regulariser_bias(of, Z, ns, draws, repeats, seed))
    of_loud = measurements.loss_bias(loud, measurements.near(loud, 0), ns, draws, repeats)
    parts = {name: np.array(own) for name, own in parts.items()}
    parts |= {"L^ + R^": parts["L^"] + parts["R^"], "loud": of_loud[None]}
    return {name: np.linalg.norm(own, axis=(-1, -2)) for name, own in parts.items()}


@cache
def floors(sizes: Sizes) -> measurements.Floors:
    """Descent on the oracle gradient of the `quiet` problem to its floor, batches of 50 to 400."""
    return measurements.scaling(quiet(sizes), (50, 100, 200, 400), 150, 16, range(10))


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
