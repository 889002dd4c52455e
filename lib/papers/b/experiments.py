"""Paper B's experiments as data, and what is measured on them.

The setting of Appendix A, ablation, condition numbers, step sizes.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib import regression, seeds
from lib.regression import manifold
from lib.regression.problem import Regression
from lib.regression.rules import PreconditionedRule

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


def experiment(of_seeds: Sequence[int], n: int, start_std: float, **problem: float) -> Experiment:
    """The setting of paper B's Appendix A: problem, samples and starts, drawn anew for every seed.

    `n` samples a seed; entries of the random start are N(0, start_std^2). `problem` are the
    arguments of `random_regression` but the seed; it raises ValueError for bad ones.
    """
    problems = [regression.random_regression(seed, **problem) for seed in of_seeds]
    X, Y = _stacked(
        p.sample(n, seeds.stream(seed, "labels"))
        for p, seed in zip(problems, of_seeds, strict=True)
    )
    spectral = _stacked(manifold.spectral_start(x, y) for x, y in zip(X, Y, strict=True))
    random = _stacked(
        regression.gaussian_start(seed, p.d, p.k, start_std)
        for p, seed in zip(problems, of_seeds, strict=True)
    )
    covariance = X.swapaxes(1, 2) @ X / n
    return Experiment(problems, X, Y, covariance, spectral=spectral, random=random)


def _stacked(pairs) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.stack(part) for part in zip(*pairs, strict=True))


def ablation(
    data: Experiment, step_size: float
) -> tuple[dict[str, PreconditionedRule], dict[str, Start]]:
    """All eight combinations of start, preconditioner and regulariser: rules and starts by name.

    Names go from "spectral, P, R", which is Algorithm 1, to "random", which is SGD.
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
    """Last excess with a part over that without it, from the random start, (seeds,).

    The geometric mean over the other part on and off. mark: "P" (preconditioner) or "R"
    (regulariser); `excess` (seeds, records) by the names of `ablation`.
    """
    other = {"P": "R", "R": "P"}[mark]
    pairs = [(f"random, {mark}", "random"), ("random, P, R", f"random, {other}")]
    return np.exp(np.mean([np.log(excess[a][:, -1] / excess[b][:, -1]) for a, b in pairs], 0))


def first_below(iterations: np.ndarray, excess: np.ndarray, level: float) -> np.ndarray:
    """First of the `iterations` (K,) whose excess (seeds, K) is at most `level`, (seeds,).

    Infinity where there is none.
    """
    reached = excess <= level
    return np.where(reached.any(1), iterations[reached.argmax(1)], np.inf)


def optimisers() -> dict[str, Callable]:
    """Step size -> rule, of Algorithm 1, SGD and the library optimisers that paper B names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about progress bars that are never drawn
        from pytorch_optimizer import SOAP, Shampoo

    return {
        "Algorithm 1": PreconditionedRule,
        "SGD": regression.sgd,
        "Adam": regression.library(torch.optim.Adam),
        "Muon": regression.library(torch.optim.Muon, weight_decay=0.0),
        "SOAP": regression.library(SOAP, weight_decay=0.0),
        "Shampoo": regression.library(Shampoo, preconditioning_compute_steps=10),
    }


def conditioning(
    floors: Sequence[float],
    build: Callable[[float], Experiment],
    step_size: float,
    batch: int,
    steps: int,
    of_seeds: Sequence[int],
    level: float,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Condition numbers of Sigma (floors, seeds) and, by rule, iterations to (L - L*)/L* <= level.

    All from the random start. `build` makes the experiment for one `floor` of the eigenvalues;
    times (floors, seeds) are infinite where the level is not reached.
    """
    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    rules = {
        name: PreconditionedRule(step_size, preconditioner)
        for name, preconditioner in kinds.items()
    }
    record, every = np.arange(0, steps + 1, 10), [build(floor) for floor in floors]
    # All floors in one loop: the data sets of a floor are so many more seeds, with the same draws.
    X, Y, covariance, random_A, random_B = (
        np.concatenate(parts)
        for parts in zip(
            *((data.X, data.Y, data.covariance, *data.random) for data in every), strict=True
        )
    )
    source = regression.minibatches(X, Y, batch, [*of_seeds] * len(every))
    starts = dict.fromkeys(rules, (random_A, random_B))
    histories = regression.descend(source, rules, starts, covariance, steps, record)
    problems = [problem for data in every for problem in data.problems]
    optimum = np.array([problem.optimal_loss for problem in problems])[:, None]
    shape = len(every), len(of_seeds)
    times = {
        name: first_below(record, history.excess(problems) / optimum, level).reshape(shape)
        for name, history in histories.items()
    }
    return np.reshape([np.linalg.cond(p.Sigma) for p in problems], shape), times


def tune(
    makers: Mapping[str, Callable],
    grid: Sequence[float],
    data: Experiment,
    batch: int,
    steps: int,
    of_seeds: Sequence[int],
    level: float,
) -> dict[str, float]:
    """The best step size of each maker (step size -> rule) on these seeds, from the random start.

    Fewest iterations to (L - L*)/L* <= level, median of seeds, among the step sizes at which every
    seed also ends there; where there is none, the smallest last excess, median of seeds.
    """
    best = {}
    record = np.arange(0, steps + 1, 10)
    for name, make in makers.items():
        rules = {step: make(step) for step in grid}
        source = regression.minibatches(data.X, data.Y, batch, of_seeds)
        histories = regression.descend(
            source, rules, dict.fromkeys(rules, data.random), data.covariance, steps, record
        )
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
