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
from papers.fits import first_below

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
    each = list(zip(problems, of_seeds, strict=True))
    X, Y = _stacked(p.sample(n, seeds.stream(seed, "labels")) for p, seed in each)
    spectral = _stacked(manifold.spectral_start(x, y) for x, y in zip(X, Y, strict=True))
    random = _stacked(regression.gaussian_start(seed, p.d, p.k, start_std) for p, seed in each)
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
    rules = {name: PreconditionedRule(step_size, kind) for name, kind in kinds.items()}
    every, shape = [build(floor) for floor in floors], (len(floors), len(of_seeds))
    # All floors in one loop: the data sets of a floor are so many more seeds, with the same draws.
    join = lambda name: np.concatenate([getattr(of, name) for of in every])
    random = tuple(map(np.concatenate, zip(*(of.random for of in every), strict=True)))
    problems = [problem for of in every for problem in of.problems]
    data = Experiment(problems, join("X"), join("Y"), join("covariance"), random, random=random)
    record, excess = _from_random(data, rules, batch, steps, [*of_seeds] * len(every))
    times = {name: first_below(record, own, level).reshape(shape) for name, own in excess.items()}
    return np.reshape([np.linalg.cond(p.Sigma) for p in problems], shape), times


def _from_random(data, rules, batch, steps, of_seeds):
    """Every tenth iteration, and each rule's (L - L*)/L* there from the random start."""
    record = np.arange(0, steps + 1, 10)
    source = regression.minibatches(data.X, data.Y, batch, of_seeds)
    starts = dict.fromkeys(rules, data.random)
    histories = regression.descend(source, rules, starts, data.covariance, steps, record)
    optimum = np.array([problem.optimal_loss for problem in data.problems])[:, None]
    return record, {name: own.excess(data.problems) / optimum for name, own in histories.items()}


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
    for name, make in makers.items():
        rules, scores = {step: make(step) for step in grid}, {}
        record, found = _from_random(data, rules, batch, steps, of_seeds)
        for step, values in found.items():
            excess = np.nan_to_num(values, nan=np.inf)
            ends = excess[:, -1].max() <= level
            needed = first_below(record, excess, level) if ends else excess[:, -1]
            scores[step] = not ends, np.median(needed)
        best[name] = min(scores, key=scores.get)
    return best
