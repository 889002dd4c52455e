"""Paper B's experiments: the setting of Appendix A, ablation, condition numbers, step
sizes. `excess`: (L - L*) / L* of each run by its name, (seeds, records).
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from companion.claims import Claim
from lib import regression, seeds
from lib.regression import PreconditionedRule, Regression, manifold
from papers.b.statements import PAPER
from papers.fits import first_below

Start = tuple[np.ndarray, np.ndarray]
Excess = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Experiment:
    """Problem, X (n, d), Y (n, k), X^T X / n, two starts A_0, B_0 for every seed."""

    problems: list[Regression]
    X: np.ndarray
    Y: np.ndarray
    covariance: np.ndarray
    spectral: Start
    random: Start

    @classmethod
    def draw(
        cls, of_seeds: Sequence[int], n: int, start_std: float, **problem: Any
    ) -> "Experiment":
        """Appendix A for every seed; the random start has entries N(0, start_std^2).
        `problem` are the arguments of `random_regression` but the seed.
        """
        problems = [regression.random_regression(seed, **problem) for seed in of_seeds]
        each = list(zip(problems, of_seeds, strict=True))
        X, Y = _stacked(p.sample(n, seeds.stream(seed, "labels")) for p, seed in each)
        spectral = _stacked(map(manifold.spectral_start, X, Y))
        random = _stacked(
            regression.gaussian_start(seed, p.d, p.k, start_std) for p, seed in each
        )
        return cls(problems, X, Y, X.swapaxes(1, 2) @ X / n, spectral, random)


def _stacked(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> Start:
    first, second = zip(*pairs, strict=True)
    return np.stack(first), np.stack(second)


def ablation(
    data: Experiment, step_size: float
) -> tuple[dict[str, PreconditionedRule], dict[str, Start]]:
    """Rules and starts, from "spectral, P, R" (Algorithm 1) to "random" (SGD)."""
    rules = {}
    starts = {}
    for start, P, R in itertools.product(
        ("spectral", "random"), (True, False), (True, False)
    ):
        name = start + ", P" * P + ", R" * R
        rules[name] = PreconditionedRule(
            step_size=step_size, preconditioner="left" if P else "none", regularised=R
        )
        starts[name] = getattr(data, start)
    return rules, starts


def factor_effect(excess: Excess, mark: str) -> np.ndarray:
    """Last excess with the part `mark`, "P" or "R", over that without, (seeds,):
    geometric mean over the other part on and off, by the names of `ablation`.
    """
    other = {"P": "R", "R": "P"}[mark]
    pairs = [(f"random, {mark}", "random"), ("random, P, R", f"random, {other}")]
    return np.exp(
        np.mean([np.log(excess[a][:, -1] / excess[b][:, -1]) for a, b in pairs], 0)
    )


def optimisers() -> dict[str, Callable]:
    """Step size -> rule, of Algorithm 1, SGD and the optimisers that paper B names."""
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
    """Condition numbers of Sigma and, by rule, iterations to (L - L*)/L* <= level or
    inf, (floors, seeds); random start; `build` makes a floor's experiment.
    """
    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    rules = {name: PreconditionedRule(step_size, kind) for name, kind in kinds.items()}
    each = [build(floor) for floor in floors]
    shape = (len(floors), len(of_seeds))
    # All floors in one loop: the data sets of a floor are so many more seeds, with the
    # same draws.
    problems = [problem for part in each for problem in part.problems]

    def joined(name: str):
        return np.concatenate([getattr(part, name) for part in each])

    random = tuple(
        map(np.concatenate, zip(*(part.random for part in each), strict=True))
    )
    data = Experiment(problems, *map(joined, ("X", "Y", "covariance")), random, random)
    record, excess = _from_random(data, rules, batch, steps, [*of_seeds] * len(floors))
    times = {
        name: first_below(record, v, level).reshape(shape) for name, v in excess.items()
    }
    return np.reshape([np.linalg.cond(p.Sigma) for p in problems], shape), times


def _from_random(
    data: Any, rules: Any, batch: int, steps: int, of_seeds: Sequence[int]
):
    """Every tenth iteration, and each rule's (L - L*)/L* from the random start."""
    record = np.arange(0, steps + 1, 10)
    source = regression.minibatches(data.X, data.Y, batch, of_seeds)
    starts = dict.fromkeys(rules, data.random)
    histories = regression.descend(
        source, rules, starts, data.covariance, steps, record
    )
    optimum = np.array([problem.optimal_loss for problem in data.problems])[:, None]
    return record, {
        name: run.excess(data.problems) / optimum for name, run in histories.items()
    }


def tune(
    makers: Mapping[str, Callable],
    grid: Sequence[float],
    data: Experiment,
    batch: int,
    steps: int,
    of_seeds: Sequence[int],
    level: float,
) -> dict[str, float]:
    """The best step of each maker (step size -> rule), by medians: fewest iterations to
    (L - L*)/L* <= level, if every seed ends there, else the smallest last excess.
    """
    best = {}
    for name, make in makers.items():
        rules = {step: make(step) for step in grid}
        scores = {}
        record, runs = _from_random(data, rules, batch, steps, of_seeds)
        for step, values in runs.items():
            excess = np.nan_to_num(values, nan=np.inf)
            ends = excess[:, -1].max() <= level
            if ends:
                needed = first_below(record, excess, level)
            else:
                needed = excess[:, -1]
            scores[step] = not ends, np.median(needed)
        best[name] = min(scores, key=scores.get)
    return best


def figure_claims(excess: Excess) -> tuple[list[Claim], list[Claim]]:
    """Paper B's Figures 1 and 2, judged by the worst seed of the `ablation`."""
    ours, sgd = (excess[name] for name in ("spectral, P, R", "random"))
    random = excess["random, P, R"][:, -1].max()
    end = sgd[:, -1].min()
    start = ours[:, 0].max()
    far = 1 + sgd[:, 0].min()
    first = {"fig1.start": start, "fig1.sgd_start": far, "fig1.sgd_end": end}
    return PAPER.claims(first), PAPER.claims({"fig2.end": random, "fig2.sgd_end": end})


def ablation_claims(
    excess: Excess, effects: Mapping, times: Mapping, steps: int
) -> list[Claim]:
    """The parts' effects (Appendix A, Section 5): the start at once, P and R at last.
    `effects` of `factor_effect` by mark, `times` of `conditioning`, the last row worst;
    what does not get there counts as `steps`.
    """
    ratio = np.median(excess["spectral, P, R"][:, 0] / excess["random, P, R"][:, 0])
    both, alone = (
        np.median(np.minimum(times[k][-1], steps)) for k in ("P and R", "R only")
    )
    parts = {
        "ablation.preconditioner": effects["P"],
        "ablation.regulariser": effects["R"],
    }
    medians = {id: np.median(values) for id, values in parts.items()}
    return PAPER.claims(
        {"ablation.start": ratio} | medians | {"conditioning": both / alone}
    )


def against_best_sgd(excess: Excess) -> Claim:
    """Algorithm 1 ends below SGD, each at its best step, by the median seed (ours)."""
    ends = [excess[name][:, -1] for name in ("Algorithm 1", "SGD")]
    return PAPER.claim("other.sgd", np.median(np.divide(*ends)))


def ill_conditioned(
    condition: float, seed: int, d: int = 4, k: int = 6, signal: float = 0.2
) -> Regression:
    """A problem: Sigma's eigenvalues from 1 to 1/condition, evenly in the log."""
    rng = seeds.stream(seed, "data")
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    Sigma = (Q * np.geomspace(1, 1 / condition, d)) @ Q.T
    Sigma = (Sigma + Sigma.T) / 2
    values, vectors = np.linalg.eigh(Sigma)
    U, _ = np.linalg.qr(rng.standard_normal((k, d)))
    V, _ = np.linalg.qr(rng.standard_normal((d, d)))
    N = (
        U * np.linspace(signal, signal / 2, d)
    ) @ V.T  # M Sigma^{1/2}, well conditioned
    return Regression(
        Sigma=Sigma, M=N @ (vectors / np.sqrt(values)) @ vectors.T, noise=0.045
    )


def condition_numbers(
    conditions: Sequence[float], of_seeds: Sequence[int]
) -> dict[str, np.ndarray]:
    """Iterations that cut the distance to the minima by 10^6, (conditions, seeds):
    steps 1/lambda_max along the slowest mode, rate 1 - lambda_min/lambda_max.
    """

    def iterations(condition: float, seed: int, name: str):
        rates, _ = regression.modes(ill_conditioned(condition, seed), name)
        return np.log(1e6) / -np.log1p(-rates[0] / rates[-1])

    return {
        name: np.array(
            [[iterations(c, seed, name) for seed in of_seeds] for c in conditions]
        )
        for name in ("none", "left", "left_right")
    }


def growth(conditions: Sequence[float], iterations: np.ndarray) -> np.ndarray:
    """Exponents of iterations (conditions, seeds) in the condition number, (seeds,)."""
    return np.polyfit(np.log(conditions), np.log(iterations), 1)[0]


def gains(
    conditions: Sequence[float], iterations: Mapping[str, np.ndarray]
) -> list[Claim]:
    """Algorithm 1 gains tenfold at the last one; the two-sided rule never slows."""
    gain = (iterations["left"] / iterations["none"]).max(1)[-1]
    slope = growth(conditions, iterations["left_right"]).max()
    return [
        PAPER.claim("ill.gain", gain, say=conditions[-1:]),
        PAPER.claim("ill.flat", slope),
    ]
