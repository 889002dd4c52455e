"""Paper B's experiments: the setting of Appendix A, ablation, condition numbers, step
sizes.

`excess` maps the name of a run to (L - L*) / L*, (seeds, records). It is NaN from
divergence on.
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

    X is (seeds, n, d), Y (seeds, n, k) and the covariance X^T X / n (seeds, d, d). Each
    seed has a spectral and a random start, a pair of A_0 (seeds, k, d) and B_0 (seeds,
    d, d).
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

        The random start has entries N(0, start_std^2). `problem` holds the arguments of
        `random_regression` except the seed.
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
    """Return all combinations of start, preconditioner P and regulariser R: rules and
    starts by name.

    "spectral, P, R" is Algorithm 1, and "random", without P and R, is SGD.
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
    """Return the final excess with one part, divided by the final excess without it,
    (seeds,).

    The part is `mark`, "P" or "R". There are two such ratios, with the other part on
    and off; the result is their geometric mean. All runs have the random start. The
    names in `excess` are those of `ablation`. Another `mark` raises KeyError.
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
        # warnings about progress bars that are never drawn
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
    """Measure how many iterations it takes to reach a loss, depending on the condition
    number of Sigma.

    Runs begin at the random start. `build` returns the experiment with the seeds
    `of_seeds` in which `floor`, the lower bound on the eigenvalues of Sigma, is one of
    `floors`. Returns the condition numbers (floors, seeds), and by rule the first
    recorded iteration with (L - L*)/L* <= level, (floors, seeds). Every tenth iteration
    is recorded. The iteration is infinite for a run that does not get there.
    """
    kinds = {"R only": "none", "P and R": "left", "two-sided P and R": "left_right"}
    rules = {name: PreconditionedRule(step_size, kind) for name, kind in kinds.items()}
    each = [build(floor) for floor in floors]
    shape = (len(floors), len(of_seeds))
    # The problems for all floors are trained in one loop, as if they were further
    # seeds.
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

    Returns every tenth iteration (records,), and (L - L*)/L* there by rule, (seeds,
    records).
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
    """Choose the best step size in `grid` for each entry of `makers`, a function from
    a step size to a rule.

    We prefer step sizes with which every seed ends at (L - L*)/L* <= level. Of these,
    the best is the one that needs the fewest iterations to this level. If there is
    none, the best is the one with the smallest final excess, which is infinite for a
    run that diverged. Iterations and excess are medians over seeds; every tenth
    iteration is recorded. Of equally good step sizes, the first in `grid` is chosen.
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
    """Check what paper B's Figures 1 and 2 show, on the worst seed of the `ablation`.

    Returns the claims on Figure 1, and those on Figure 2.
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
    last iteration. `effects` are the results of `factor_effect`, by mark. `times` are
    those of `conditioning`, with the worst condition number in the last row. For a run
    that does not reach the level, `steps` is used. The measured values are medians over
    seeds, and for the condition number the ratio of two medians.
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
    """Check that Algorithm 1 ends below SGD in the median over seeds, each with its
    best step size (our own statement).

    The measured value is the median over seeds of the ratio of their final excess.
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
    """Predict how many iterations divide the distance to the minima by 10^6.

    With the step size 1/lambda_max the slowest mode shrinks by a factor of 1 -
    lambda_min/lambda_max per iteration. Returns, by the name of the preconditioner,
    arrays (conditions, seeds).
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
    """Fit, for each seed, the exponent in the condition number with which `iterations`
    (conditions, seeds) grow, (seeds,).
    """
    return np.polyfit(np.log(conditions), np.log(iterations), 1)[0]


def gains(
    conditions: Sequence[float], iterations: Mapping[str, np.ndarray]
) -> list[Claim]:
    """Check that Algorithm 1 needs at most one tenth of the iterations at the last
    condition number.

    It is compared with the rule without a preconditioner, on the worst seed. A second
    claim is that the iterations of the two-sided rule do not grow with the condition
    number. `iterations` is the result of `condition_numbers`.
    """
    gain = (iterations["left"] / iterations["none"]).max(1)[-1]
    slope = growth(conditions, iterations["left_right"]).max()
    return [
        PAPER.claim("ill.gain", gain, say=conditions[-1:]),
        PAPER.claim("ill.flat", slope),
    ]
