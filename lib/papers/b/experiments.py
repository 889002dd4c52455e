"""Paper B's experiments as data: the setting of Appendix A, ablation, scaling law, and what is measured on them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.stats import ortho_group

from lib import regression, seeds
from lib.regression import descent, manifold
from lib.regression.descent import PreconditionedRule, RegressionHistory
from lib.regression.problem import Regression

Start = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Experiment:
    """One problem, data set and pair of starts per seed.

    X (seeds, n, d), Y (seeds, n, k), covariance (seeds, d, d) = X^T X / n; starts A_0 (seeds, k,
    d), B_0 (seeds, d, d).
    """

    problems: list[Regression]
    X: np.ndarray
    Y: np.ndarray
    covariance: np.ndarray
    spectral: Start
    random: Start


def experiment(
    of_seeds: Sequence[int],
    d: int,
    k: int,
    n: int,
    signal: float,
    noise: float,
    floor: float,
    start_std: float,
) -> Experiment:
    """The setting of paper B's Appendix A; Sigma, M, samples and random start are drawn anew for every seed."""
    problems = [regression.random_regression(seed, d, k, signal, noise, floor) for seed in of_seeds]
    X, Y = _stacked(
        p.sample(n, seeds.stream(seed, "labels"))
        for p, seed in zip(problems, of_seeds, strict=True)
    )
    spectral = _stacked(manifold.spectral_start(x, y) for x, y in zip(X, Y, strict=True))
    random = _stacked(regression.gaussian_start(seed, d, k, start_std) for seed in of_seeds)
    return Experiment(problems, X, Y, X.swapaxes(1, 2) @ X / n, spectral, random)


def _stacked(pairs) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.stack(part) for part in zip(*pairs, strict=True))


def ablation(
    data: Experiment, step_size: float
) -> tuple[dict[str, PreconditionedRule], dict[str, Start]]:
    """All eight combinations of start, preconditioner and regulariser: rules and starts by name,
    "spectral, P, R" to "random".

    "spectral, P, R" is Algorithm 1, "random" is SGD.
    """
    rules, starts = {}, {}
    for start in ("spectral", "random"):
        for preconditioner in ("left", "none"):
            for regularised in (True, False):
                name = start + ", P" * (preconditioner == "left") + ", R" * regularised
                rules[name] = PreconditionedRule(step_size, preconditioner, regularised)
                starts[name] = getattr(data, start)
    return rules, starts


def factor_effect(excess: dict[str, np.ndarray], mark: str) -> np.ndarray:
    """Last excess with a part over that without it, geometric mean over the other random-start
    parts, (seeds,).

    mark "P" (preconditioner) or "R" (regulariser).
    """
    other = {"P": "R", "R": "P"}[mark]
    pairs = [(f"random, {mark}", "random"), ("random, P, R", f"random, {other}")]
    return np.exp(np.mean([np.log(excess[a][:, -1] / excess[b][:, -1]) for a, b in pairs], 0))


def first_below(iterations: np.ndarray, excess: np.ndarray, level: float) -> np.ndarray:
    """First recorded iteration whose excess (seeds, K) is at most `level`, infinity where there is none, (seeds,)."""
    reached = excess <= level
    return np.where(reached.any(1), iterations[reached.argmax(1)], np.inf)


def optimisers() -> dict[str, Callable]:
    """Step size -> rule, of Algorithm 1, SGD and the library optimisers that paper B names as relatives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about progress bars that are never drawn
        from pytorch_optimizer import SOAP, Shampoo

    return {
        "Algorithm 1": PreconditionedRule,
        "SGD": descent.sgd,
        "Adam": descent.library(torch.optim.Adam),
        "Muon": descent.library(torch.optim.Muon, weight_decay=0.0),
        "SOAP": descent.library(SOAP, weight_decay=0.0),
        "Shampoo": descent.library(Shampoo, preconditioning_compute_steps=10),
    }


def conditioning(
    floors: Sequence[float], build: Callable[[float], Experiment], step_size: float, batch: int, steps: int,
    of_seeds: Sequence[int], level: float,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """Condition numbers of Sigma (floors, seeds) and, by rule, iterations to (L - L*)/L* <= level.

    All from the random start. `build` makes the experiment for one `floor` of the eigenvalues;
    times (floors, seeds) are infinite where the level is not reached.
    """
    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    rules = {
        name: PreconditionedRule(step_size, preconditioner)
        for name, preconditioner in kinds.items()
    }
    record, numbers, times = np.arange(0, steps + 1, 10), [], {name: [] for name in rules}
    for floor in floors:
        data = build(floor)
        numbers.append([np.linalg.cond(problem.Sigma) for problem in data.problems])
        source = descent.minibatches(data.X, data.Y, batch, of_seeds)
        histories = descent.descend(
            source, rules, dict.fromkeys(rules, data.random), data.covariance, steps, record
        )  # fmt: skip
        for name, history in histories.items():
            excess = history.excess(data.problems) / data.problems[0].optimal_loss
            times[name].append(first_below(record, excess, level))
    return np.array(numbers), {name: np.array(rows) for name, rows in times.items()}


def tune(
    makers: Mapping[str, Callable], grid: Sequence[float], data: Experiment, batch: int, steps: int,
    of_seeds: Sequence[int], level: float,
) -> dict[str, float]:  # fmt: skip
    """The best step size of each maker (step size -> rule) on these seeds, from the random start.

    Fewest iterations to (L - L*)/L* <= level, median of seeds, among the step sizes at which every
    seed also ends there; where there is none, the smallest last excess, median of seeds.
    """
    best = {}
    record = np.arange(0, steps + 1, 10)
    for name, make in makers.items():
        rules = {step: make(step) for step in grid}
        source = descent.minibatches(data.X, data.Y, batch, of_seeds)
        histories = descent.descend(
            source, rules, dict.fromkeys(rules, data.random), data.covariance, steps, record
        )  # fmt: skip
        scores = {}
        for step, history in histories.items():
            excess = np.nan_to_num(
                history.excess(data.problems) / data.problems[0].optimal_loss, nan=np.inf
            )
            ends = excess[:, -1].max() <= level
            scores[step] = (
                not ends,
                np.median(first_below(record, excess, level) if ends else excess[:, -1]),
            )
        best[name] = min(scores, key=scores.get)
    return best


def worst_curvature(
    problem: Regression, norm: str, starts: int, seed: int = 0, fraction: float = 1.0
) -> tuple[float, float]:
    """The worst curvature that a search finds at distance `fraction` of the radius from the
    manifold.

    Returns min <grad, Delta> / ||Delta||^2 over the convexity constant (theory: >= 1) and max
    ||grad|| / ||Delta|| over the smoothness constant (theory: <= 1), by L-BFGS from `starts` random
    directions each. Around Z_pi at R = I, which is no restriction: rotations are isometries in
    "left_right", and in "left" the start R is drawn at random.
    """
    space, rng = manifold.of(problem), np.random.default_rng(seed)
    constants, shape = space.constants(norm), (problem.k + problem.d, problem.d)
    lowest, highest = np.inf, 0.0
    for _ in range(starts):
        centre = space.point(ortho_group.rvs(problem.d, random_state=rng))

        def curvatures(direction, centre=centre):
            direction = direction.reshape(shape)
            Z = centre + fraction * constants.radius * direction / space.norm(direction, norm)
            Delta = Z - space.project(Z, norm)
            length, gradient = space.norm(Delta, norm), manifold.gradient(problem, Z)
            convexity = (gradient * Delta).sum() / length**2 / constants.convexity
            return convexity, manifold.dual_norm(
                space, gradient, norm
            ) / length / constants.smoothness

        first = rng.standard_normal(shape).ravel()
        options = dict(method="L-BFGS-B", options={"maxiter": 40})
        lowest = min(lowest, minimize(lambda v, f=curvatures: f(v)[0], first, **options).fun)
        highest = max(highest, -minimize(lambda v, f=curvatures: -f(v)[1], first, **options).fun)
    return float(lowest), float(highest)


def spectral_distances(problem: Regression, sizes, repeats: int, norm: str = "left") -> np.ndarray:
    """Distance of the spectral start to the manifold for fresh data sets of each size, (repeats, sizes)."""
    space, rows = manifold.of(problem), []
    for repeat in range(repeats):
        rng = seeds.stream(repeat, "labels")
        starts = [np.concatenate(manifold.spectral_start(*problem.sample(n, rng))) for n in sizes]
        rows.append([space.distance(Z, norm) for Z in starts])
    return np.array(rows)


def gradient_bias(
    problem: Regression, sizes, draws: int, repeats: int, seed: int = 0
) -> np.ndarray:
    """||E grad L^ - grad L|| at one point near the manifold for batches of each size, (repeats,
    sizes).

    `draws` queries each with its own keys per estimate, with the control variate of
    `preconditioning.oracle`.
    """
    rng = np.random.default_rng(seed)
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
            source = descent.oracle(problem, n, min(draws, chunk), [1000 * repeat + j])
            passes = -(-draws // chunk)
            total = (
                sum(
                    np.concatenate([g[0, 0].numpy() for g in source(t, A, B)])
                    for t in range(passes)
                )
                / passes
            )
            bias[repeat, j] = np.linalg.norm(total - limit)
    return bias


def tail_excess(problem: Regression, history: RegressionHistory, since: int) -> np.ndarray:
    """Excess loss to which a run on an estimated oracle settles, freed of the estimate's noise,
    (seeds,).

    The loss depends on the map A Sigma B^T alone, whose error is averaged over the earlier and over
    the later half of the records from iteration `since` on; half the inner product of the two means
    has no share of independent noise, where half a squared norm would have.
    """
    late = history.iterations >= since
    maps = (
        history.A[:, late] @ problem.Sigma @ history.B[:, late].swapaxes(-1, -2)
    )  # (seeds, records, k, d)
    errors = (maps - problem.M) @ problem.root
    middle = errors.shape[1] // 2
    return (errors[:, :middle].mean(1) * errors[:, middle:].mean(1)).sum((-1, -2)) / 2


@dataclass(frozen=True)
class Floors:
    """Theorem 2 measured: excess (sizes, seeds, K) at iterations (K,) and its `floor` (sizes,
    seeds).

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
    problem: Regression, sizes: Sequence[int], steps: int, draws: int, of_seeds: Sequence[int],
    preconditioner: str = "left",
) -> Floors:  # fmt: skip
    """Algorithm 1 on the oracle gradient of batches of each size, started off the manifold along
    the slowest mode.

    The step is eta = 1 / lambda_max; the start is at the radius of the one-point bounds, where a
    worst-case rate is met.
    """
    space, k = manifold.of(problem), problem.k
    rates, directions = descent.modes(problem, preconditioner)
    norm = preconditioner if preconditioner != "none" else "left"
    Z = space.point() + space.constants(norm).radius * directions[0] / space.norm(
        directions[0], norm
    )
    rule, record = PreconditionedRule(1 / rates[-1], preconditioner), np.arange(steps + 1)

    def run(source, count):
        start = tuple(np.stack([part] * count) for part in (Z[:k], Z[k:]))
        covariance = np.stack([problem.Sigma] * count)
        return descent.descend(source, {"own": rule}, {"own": start}, covariance, steps, record)[
            "own"
        ]

    runs = [run(descent.oracle(problem, n, draws, of_seeds), len(of_seeds)) for n in sizes]
    constants = space.constants(norm)
    return Floors(
        np.array(sizes), record, np.stack([r.excess([problem] * len(of_seeds)) for r in runs]),
        run(descent.population(problem), 1).excess([problem])[0],
        np.stack([tail_excess(problem, r, steps // 3) for r in runs]),
        float((1 - rates[0] / rates[-1]) ** 2), 1 - (constants.convexity / constants.smoothness) ** 2,
    )  # fmt: skip
