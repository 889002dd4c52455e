"""Paper B's experiments: the setting of Appendix A, ablation, condition numbers, step
sizes.

`excess` maps the name of a run to its (L - L*) / L*, an array (seeds, records). Once a
run has diverged, its values are NaN.
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
    """The problems, data and starts of several seeds.

    X has the shape (seeds, n, d), Y has (seeds, n, k), and the covariance X^T X / n has
    (seeds, d, d). Each seed has a spectral start and a random start. A start is a pair
    of A_0 (seeds, k, d) and B_0 (seeds, d, d).
    """

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
        """Draw the setting of Appendix A for every seed.

        The entries of the random start are drawn from N(0, start_std^2). `problem` has
        the arguments of `random_regression`, except the seed.
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
    """Stack pairs of arrays, one pair per seed, into two arrays (seeds, ...)."""
    first, second = zip(*pairs, strict=True)
    return np.stack(first), np.stack(second)


def ablation(
    data: Experiment, step_size: float
) -> tuple[dict[str, PreconditionedRule], dict[str, Start]]:
    """Return the rules and starts of all combinations of start, preconditioner P and
    regulariser R, by name.

    "spectral, P, R" is Algorithm 1, and "random" is SGD, which has neither P nor R.
    """
    rules = {}
    starts = {}
    for start, P, R in itertools.product(
        ("spectral", "random"), (True, False), (True, False)
    ):
        name = start + ", P" * P + ", R" * R
        preconditioner = "left" if P else "none"
        rules[name] = PreconditionedRule(
            step_size=step_size, preconditioner=preconditioner, regularised=R
        )
        starts[name] = getattr(data, start)
    return rules, starts


def factor_effect(excess: Excess, mark: str) -> np.ndarray:
    """Return the final excess loss with one part, divided by the final excess loss
    without it.

    The result has the shape (seeds,). The part is `mark`, "P" or "R". There are two
    such ratios, one with the other part on and one with it off; the result is the
    geometric mean of the two. All runs have the random start. The names in `excess` are
    those of `ablation`. Any other `mark` raises KeyError.
    """
    other = {"P": "R", "R": "P"}[mark]
    pairs = [(f"random, {mark}", "random"), ("random, P, R", f"random, {other}")]
    return np.exp(
        np.mean([np.log(excess[a][:, -1] / excess[b][:, -1]) for a, b in pairs], 0)
    )


def optimisers() -> dict[str, Callable]:
    """Return, by name, functions from a step size to a rule: Algorithm 1, SGD, and the
    optimisers that paper B compares.

    SOAP and Shampoo need the package pytorch_optimizer; without it, ImportError is
    raised.
    """
    with warnings.catch_warnings():
        # This hides warnings about progress bars that are never drawn.
        warnings.simplefilter("ignore")
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
    """Measure how the number of iterations to reach a loss depends on the condition
    number of Sigma.

    Runs begin at the random start. `build` returns the experiment with the seeds
    `of_seeds` in which `floor`, the lower bound on the eigenvalues of Sigma, is one of
    `floors`. The function returns the condition numbers (floors, seeds) and, by rule,
    the first recorded iteration with (L - L*)/L* <= level, an array (floors, seeds).
    Every tenth iteration is recorded. The iteration is infinite for a run that does not
    reach the level.
    """
    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    rules = {name: PreconditionedRule(step_size, kind) for name, kind in kinds.items()}
    each = [build(floor) for floor in floors]
    shape = (len(floors), len(of_seeds))
    # We train the problems of all floors in one loop, as if they were further seeds.
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
    """Train every rule from the random start.

    The function returns every tenth iteration (records,) and, by rule, (L - L*)/L* at
    these iterations, an array (seeds, records).
    """
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
    """Choose the best step size in `grid` for each entry of `makers`.

    An entry is a function from a step size to a rule.

    We prefer step sizes with which every seed ends at (L - L*)/L* <= level. The best of
    these step sizes is the one that needs the fewest iterations to reach this level. If
    there is no such step size, the best is the one with the smallest final excess loss;
    a run that diverged has an infinite one. Iterations and excess losses are medians
    over seeds, and every tenth iteration is recorded. If several step sizes are equally
    good, we choose the first of them in `grid`.
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
    """Check on the worst seed of the `ablation` what paper B's Figures 1 and 2 show.

    The function returns the claims about Figure 1, and those about Figure 2.
    """
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
    """Check the effects of the parts of Algorithm 1 (Appendix A, Section 5).

    The effect of the start is measured at iteration 0, the effects of P and R at the
    last iteration. `effects` are the results of `factor_effect`, by mark. `times` has
    the iterations from `conditioning`, with the worst condition number in the last row.
    The measured values are medians over seeds; for the condition number, the measured
    value is the ratio of two medians. If the median run with P and R does not reach the
    level, this ratio is NaN, and the claim fails. If only the median run without P does
    not reach it, this run counts as if it took `steps` iterations, so that the ratio is
    an upper bound.
    """
    ratio = np.median(excess["spectral, P, R"][:, 0] / excess["random, P, R"][:, 0])
    both = np.median(times["P and R"][-1])
    if not np.isfinite(both):
        both = np.nan
    alone = min(np.median(times["R only"][-1]), steps)
    parts = {
        "ablation.preconditioner": effects["P"],
        "ablation.regulariser": effects["R"],
    }
    medians = {id: np.median(values) for id, values in parts.items()}
    return PAPER.claims(
        {"ablation.start": ratio} | medians | {"conditioning": both / alone}
    )


def against_best_sgd(excess: Excess) -> Claim:
    """Check that Algorithm 1 ends with a smaller loss than SGD in the median over
    seeds, each of the two with its best step size (our own statement).

    The measured value is the median over seeds of Algorithm 1's final excess loss
    divided by SGD's.
    """
    ends = [excess[name][:, -1] for name in ("Algorithm 1", "SGD")]
    return PAPER.claim("other.sgd", np.median(np.divide(*ends)))


def ill_conditioned(
    condition: float, seed: int, d: int = 4, k: int = 6, signal: float = 0.2
) -> Regression:
    """Build a problem whose Sigma has eigenvalues from 1 to 1/condition, evenly spaced
    in the logarithm.

    M Sigma^{1/2} has singular values from `signal` to signal/2, evenly spaced. k must
    be at least d.
    """
    rng = seeds.stream(seed, "data")
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    Sigma = (Q * np.geomspace(1, 1 / condition, d)) @ Q.T
    Sigma = (Sigma + Sigma.T) / 2
    values, vectors = np.linalg.eigh(Sigma)
    U, _ = np.linalg.qr(rng.standard_normal((k, d)))
    V, _ = np.linalg.qr(rng.standard_normal((d, d)))
    # This matrix is M Sigma^{1/2}, which is well conditioned.
    N = (U * np.linspace(signal, signal / 2, d)) @ V.T
    return Regression(
        Sigma=Sigma, M=N @ (vectors / np.sqrt(values)) @ vectors.T, noise=0.045
    )


def condition_numbers(
    conditions: Sequence[float], of_seeds: Sequence[int]
) -> dict[str, np.ndarray]:
    """Predict how many iterations it takes to divide the distance to the minima by
    10^6.

    With the step size 1/lambda_max the slowest mode shrinks by a factor of 1 -
    lambda_min/lambda_max per iteration. The function returns the numbers of iterations
    by the name of the preconditioner, each an array (conditions, seeds).
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
    """Fit, for each seed, the exponent with which `iterations` (conditions, seeds) grow
    in the condition number.

    The result has the shape (seeds,).
    """
    return np.polyfit(np.log(conditions), np.log(iterations), 1)[0]


def gains(
    conditions: Sequence[float], iterations: Mapping[str, np.ndarray]
) -> list[Claim]:
    """Check that, at the last condition number, Algorithm 1 needs at most one tenth of
    the iterations that the rule without a preconditioner needs.

    The first claim is about the worst seed. The second claim says that the number of
    iterations of the rule with the two-sided preconditioner does not grow with the
    condition number. `iterations` is the result of `condition_numbers`.
    """
    gain = (iterations["left"] / iterations["none"]).max(1)[-1]
    slope = growth(conditions, iterations["left_right"]).max()
    return [
        PAPER.claim("ill.gain", gain, say=conditions[-1:]),
        PAPER.claim("ill.flat", slope),
    ]
