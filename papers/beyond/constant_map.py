"""The constant C of the law along the axes on which paper A's assumptions are relaxed.

Class means are the base. Along an axis C moves and the rate stays; C is predicted
from the SVM's duals and measured beside it. Where a token other than the opt one overtakes its
score, no run can rest on the opt token: that is the threshold of the axes that change scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.seeds import stream
from lib.svm.max_margin import Infeasible, token_svm
from papers.beyond import margins as measure
from papers.beyond.joint_law import score_gaps
from papers.beyond.margin_law import margin_law
from papers.beyond.margin_law_runs import Comparison, LawSetting, compare
from papers.beyond.margin_slopes import PremiseFails

BASE = {"n": 6, "T": 5, "d": 120, "signal": 3.0, "noise": 0.3}
STEP = 0.5  # of the longest step
OVERTAKEN = 4.0  # the switch is looked for up to so many times the score crossing


def tilted(seed: int, amount: float, **sizes) -> TokenSet:
    """Class means with `amount` times a random unit vector added to the head: scores differ."""
    data = tokens.class_mean_tokens(seed, **BASE | sizes)
    extra = stream(seed, "tilt").standard_normal(data.u.shape)
    return replace(data, u=data.u + amount * extra / np.linalg.norm(extra))


def raw(seed: int, amount: float, **sizes) -> TokenSet:
    """Class means with N(0, amount^2) noise added to every entry of every token, opt ones too."""
    data = tokens.class_mean_tokens(seed, **BASE | sizes)
    X = data.X + amount * stream(seed, "raw_noise").standard_normal(data.X.shape)
    return replace(data, X=X, z=X[:, :, 0])


def correlated(seed: int, amount: float, among: str = "sample", **sizes) -> TokenSet:
    """Class means whose other tokens, queries too, have correlation `amount` with each other.

    x_{i,t} = sqrt(1 - amount) g_{i,t} + sqrt(amount) c with g, c ~ N(0, noise^2 P): one c_i for the
    tokens of each "sample", or one c for "all". Every law of a single token stays, scores stay 0.
    """
    sizes = BASE | sizes
    data = tokens.class_mean_tokens(seed, **sizes)
    _, n, _, d = data.shape
    shared = stream(seed, "noise").standard_normal((n if among == "sample" else 1, d))
    rows = np.arange(n)
    opt = data.X[0, rows, data.opt[0]]
    means = np.linalg.qr(np.stack([opt[data.y[0].argmax()], data.u[0]], 1))[0]  # (d, 2)
    shared = sizes["noise"] * (shared - shared @ means @ means.T)
    X = np.sqrt(1 - amount) * data.X + np.sqrt(amount) * shared[None, :, None]
    X[0, rows, data.opt[0]] = opt
    return replace(data, X=X, z=X[:, :, 0])


def _long(seed, T):
    """Two samples of T tokens in 15 T dimensions: constraints stay as far from tight at every T."""
    return tokens.class_mean_tokens(seed, **BASE | {"n": 2, "T": T, "d": 15 * T})


def _sized(name, **others):
    sizes = BASE | others
    return lambda seed, value: tokens.class_mean_tokens(seed, **sizes | {name: value})


AXES: Mapping[str, Callable[[int, float], TokenSet]] = {
    "noise": _sized("noise"),
    "imbalance": tilted,
    "raw noise": raw,
    "T": _sized("T", d=960),  # more constraints than d leave some nearly tight
    "n": _sized("n"),
    "d": _sized("d"),
    "long T": _long,
    "correlation": partial(correlated, d=960),
    "correlation of all": partial(correlated, among="all", d=960),
}
VALUES: Mapping[str, Sequence[float]] = {
    "noise": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    "imbalance": (0.0, 0.5, 1.0, 1.5),
    "raw noise": (0.0, 0.1, 0.2, 0.3),
    "T": (2, 4, 8, 16, 32, 64),
    "n": (2, 6, 12, 24, 48),
    "d": (15, 30, 60, 120, 240, 480),
    "long T": (64, 128, 256, 512),
    "correlation": (0.0, 0.3, 0.6, 0.9),
    "correlation of all": (0.0, 0.3, 0.6, 0.9),
}
ENOUGH = {"long T": 4000}  # iterations that settle where one is dear


@dataclass(frozen=True, kw_only=True)
class Point:
    """One problem of the map: its axis, value and seed, and the run beside its law.

    refusal: the premise that fails, with the reason, where there is no such run.
    """

    axis: str
    value: float
    seed: int
    refusal: str
    comparison: Comparison | None = None


def point(axis: str, value: float, seed: int, steps: int) -> Point:
    """Train one problem by NGD with half of the longest step of its opt tokens' law."""
    of = dict(axis=axis, value=value, seed=seed)
    try:
        problem = coordinates.minimal(AXES[axis](seed, value))
        longest = margin_law(problem.tokens, token_svm(problem.tokens)).longest_step()[0]
    except (PremiseFails, Infeasible, RuntimeError) as refused:
        return Point(**of, refusal=f"{axis} = {value:g}, seed {seed}: {refused}")
    step = STEP * longest if np.isfinite(longest) else 1.0
    one = compare(LawSetting(axis, problem, ngd(step)), min(steps, ENOUGH.get(axis, steps)))[0]
    if one.refusal:
        return Point(**of, refusal=f"{axis} = {value:g}, seed {seed}: {one.refusal}")
    return Point(**of, refusal="", comparison=one)


def along(
    seeds: Sequence[int], steps: int, values: Mapping[str, Sequence[float]] = VALUES
) -> list[Point]:
    """Every seed at every value of every axis."""
    return [
        point(axis, value, seed, steps)
        for axis, chosen in values.items()
        for value in chosen
        for seed in seeds
    ]


def score_crossing(axis: str, seed: int) -> float:
    """The amount at which the first other token's score overtakes its opt token's.

    On the axes "imbalance" and "raw noise" scores are linear in the amount; infinite where none
    ever overtakes.
    """
    gaps = []
    for amount in (0.0, 1.0):
        data = AXES[axis](seed, amount)
        gaps.append(score_gaps(data, data.u))
    slope = gaps[1] - gaps[0]
    return float(np.where(slope < 0, -gaps[0] / np.where(slope < 0, slope, 1.0), np.inf).min())


def ends_in_opt(data: TokenSet, step_size: float = 0.05, steps: int = 5000) -> bool:
    """Whether a run from zero gives every opt token the largest logit."""
    problem = coordinates.minimal(data)
    history = train(problem, ngd(step_size), steps, [0, steps])
    return bool((measure.selection(history, problem.tokens.opt) == problem.tokens.opt).all())


def switch(axis: str, seed: int, accuracy: float = 0.002) -> float:
    """The amount at which a run from zero stops selecting the opt tokens, by bisection.

    Looked for between 0 and OVERTAKEN times the score crossing, to a relative `accuracy` of that;
    NaN where no run in that range switches.
    """
    unit = score_crossing(axis, seed)
    low, high = 0.0, OVERTAKEN
    if ends_in_opt(AXES[axis](seed, high * unit)):
        return float("nan")
    while high - low > accuracy:
        middle = (low + high) / 2
        if ends_in_opt(AXES[axis](seed, middle * unit)):
            low = middle
        else:
            high = middle
    return (low + high) / 2 * unit


def has_solution(data: TokenSet) -> float:
    """1 where the W-SVM has a solution, 0 where a certificate says no, NaN where neither shows."""
    try:
        token_svm(data)
    except Infeasible:
        return 0.0
    except RuntimeError:
        return float("nan")
    return 1.0


def solvable(seeds: Sequence[int], values: Mapping[str, Sequence[float]]) -> np.ndarray:
    """`has_solution` of class means for each value of the one size in `values`, (k, seeds).

    The other sizes are single-valued entries of the same mapping.
    """
    (name, moving), *rest = sorted(values.items(), key=lambda item: -len(item[1]))
    fixed = BASE | {key: value[0] for key, value in rest}
    return np.array(
        [
            [has_solution(tokens.class_mean_tokens(seed, **fixed | {name: v})) for seed in seeds]
            for v in moving
        ]
    )


def crowding(n: float, T: float, d: float) -> float:
    """n (T - 1) constraints over twice the d (d - 2) entries of W that they see.

    Cover (1965): random constraints lose their solution where this is 1. Queries lie off both class
    means, hence d - 2.
    """
    return n * (T - 1) / (2 * d * (d - 2))
