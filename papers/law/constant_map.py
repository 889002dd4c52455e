"""Measure the law's constant C while paper A's assumptions are relaxed one by one.

The base data are class means. Each axis of the map changes one property of these data.
If the other token of a pair on the support scores higher than the opt token, no run can
converge to the opt tokens. If tokens are correlated, runs still converge to them, but
more and more slowly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, token_set, tokens
from lib.dynamics import NGD, train
from lib.seeds import stream
from lib.svm import Infeasible, token_svm
from papers.law import margin_law_runs, margins
from papers.law.global_map import half_of_seeds
from papers.law.margin_law import PremiseFails, margin_law
from papers.law.margin_law_runs import kept
from papers.law.tolerances import SETTLED
from papers.ours import claim
from papers.saturation import score_gaps

BASE = {"n": 6, "T": 5, "d": 120, "signal": 3.0, "noise": 0.3}
STEP = 0.5  # The step size, divided by the longest one with which the offsets converge.
# The search for the switch of the selection ends at this multiple of the amount at
# which another token scores as high as the opt token.
OVERTAKEN = 4.0


def _tilted(seed: int, amount: float) -> TokenSet:
    """Return class means with a tilted head, so that the other tokens of a sample have
    different scores.

    `amount` times a random unit vector is added to the head u.
    """
    data = tokens.class_mean_tokens(seed, **BASE)
    extra = stream(seed, "tilt").standard_normal(data.u.shape)
    return replace(data, u=data.u + amount * extra / np.linalg.norm(extra))


def _raw(seed: int, amount: float) -> TokenSet:
    """Return class means with N(0, amount^2) noise on every entry of every token."""
    data = tokens.class_mean_tokens(seed, **BASE)
    X = data.X + amount * stream(seed, "raw_noise").standard_normal(data.X.shape)
    return replace(data, X=X, z=X[:, :, 0])


def _correlated(seed: int, amount: float, among: str = "sample") -> TokenSet:
    """Return class means whose tokens other than the opt token are correlated.

    Each of these tokens is sqrt(1 - amount) times itself plus sqrt(amount) times a
    common vector. Each sample has its own common vector; if `among` is "all", all
    samples share one. `amount` is in [0, 1]. The data have 960 dimensions.
    """
    data = tokens.class_mean_tokens(seed, **BASE | {"d": 960})
    _, n, _, d = data.shape
    common_vectors = n if among == "sample" else 1
    shared = stream(seed, "noise").standard_normal((common_vectors, d))
    rows = np.arange(n)
    opt = data.X[0, rows, data.opt[0]]
    means = np.linalg.qr(np.stack([opt[data.y[0].argmax()], data.u[0]], 1))[0]
    shared = BASE["noise"] * (shared - shared @ means @ means.T)
    X = np.sqrt(1 - amount) * data.X + np.sqrt(amount) * shared[None, :, None]
    X[0, rows, data.opt[0]] = opt
    return replace(data, X=X, z=X[:, :, 0])


def _sized(name: str, **fixed: Any):
    sizes = BASE | fixed
    return lambda seed, value: tokens.class_mean_tokens(seed, **sizes | {name: value})


def _long(seed: int, T: int):
    # With two samples in 15 T dimensions, how far constraints are from being tight does
    # not depend on T.
    return tokens.class_mean_tokens(seed, **BASE | dict(n=2, T=T, d=15 * T))


# For each axis: a function from (seed, value) to tokens, and the values.
_ALONG: Mapping[str, tuple[Callable[[int, float], TokenSet], Sequence[float]]] = {
    "noise": (_sized("noise"), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)),
    "imbalance": (_tilted, (0.0, 0.5, 1.0, 1.5)),
    "raw noise": (_raw, (0.0, 0.1, 0.2, 0.3)),
    # If there are more constraints than dimensions, some constraints are nearly tight.
    "T": (_sized("T", d=960), (2, 4, 8, 16, 32, 64)),
    "n": (_sized("n"), (2, 6, 12, 24, 48)),
    "d": (_sized("d"), (15, 30, 60, 120, 240, 480)),
    "long T": (_long, (64, 128, 256, 512)),
    "correlation": (_correlated, (0.0, 0.3, 0.6, 0.9)),
    "correlation of all": (partial(_correlated, among="all"), (0.0, 0.3, 0.6, 0.9)),
}
AXES = {axis: make for axis, (make, _) in _ALONG.items()}
VALUES = {axis: values for axis, (_, values) in _ALONG.items()}
# The offsets of these runs converge early, and each of their iterations is expensive.
ENOUGH = {"long T": 4000}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One problem of the map: a run with its law, or the premise of the law that the
    run violates.
    """

    axis: str
    value: float
    seed: int
    refusal: str = ""
    comparison: margin_law_runs.Comparison | None = None


def _point(axis: str, value: float, seed: int, steps: int) -> Point:
    """Train on one problem with NGD, and compare the run with its law.

    The step size is `STEP` times the longest step with which the offsets converge, in a
    run that selects the opt tokens. It is 1 if the offsets converge with steps of every
    length. `value` is the value of the property that is changed along `axis`. The
    function returns the Point.
    """
    at = Point(axis=axis, value=value, seed=seed)
    where = f"{axis} = {value:g}, seed {seed}"
    try:
        problem = coordinates.minimal(AXES[axis](seed, value))
        longest = _law_of(problem.tokens).longest_step()[0]
    except (PremiseFails, Infeasible, RuntimeError) as why:
        return replace(at, refusal=f"{where}: {why}")
    step = STEP * longest if np.isfinite(longest) else 1.0
    setting = margin_law_runs.LawSetting(name=axis, tokens=problem, rule=NGD(step))
    (run,) = margin_law_runs.compare(setting, min(steps, ENOUGH.get(axis, steps)))
    if run.refusal:
        return replace(at, refusal=f"{where}: {run.refusal}")
    return replace(at, comparison=run)


def _law_of(data: TokenSet):
    return margin_law(data, token_svm(data))


def along(
    seeds: Sequence[int], steps: int, values: Mapping[str, Sequence[float]] = VALUES
) -> list[Point]:
    """Return the point of every seed at every value of every axis."""
    places = [(axis, value) for axis, chosen in values.items() for value in chosen]
    return [_point(*place, seed, steps) for place in places for seed in seeds]


def score_crossing(axis: str, seed: int) -> float:
    """Return the smallest amount on `axis` at which another token scores as high as an
    opt token.

    The amount is infinite if this never happens. `axis` is "imbalance" or "raw noise".
    On these axes scores are linear in the amount, so it suffices to compute them at two
    amounts.
    """
    sets = (AXES[axis](seed, amount) for amount in (0.0, 1.0))
    gaps = [score_gaps(data, data.u) for data in sets]
    slope = gaps[1] - gaps[0]
    return float(
        np.where(slope < 0, -gaps[0] / np.where(slope < 0, slope, 1.0), np.inf).min()
    )


def _ends_in_opt(data: TokenSet, step_size: float = 0.05, steps: int = 5000) -> bool:
    """Return whether a run from W = 0 ends with the largest logit on every opt token.

    The function raises ValueError if the run ends early.
    """
    problem = coordinates.minimal(data)
    history = train(problem, NGD(step_size), steps, [0, steps])
    return bool(
        (margins.selection(history, problem.tokens.opt) == problem.tokens.opt).all()
    )


def switch(axis: str, seed: int, accuracy: float = 0.002) -> float:
    """Find by bisection the amount on `axis` above which a run no longer selects all
    opt tokens.

    `accuracy` is relative to the `score_crossing`, which must be finite. The result is
    NaN if the run still selects the opt tokens at `OVERTAKEN` times that crossing.
    """
    unit = score_crossing(axis, seed)

    def stays_at(amount: float):
        return _ends_in_opt(AXES[axis](seed, amount * unit))

    low = 0.0
    high = OVERTAKEN
    if stays_at(high):
        return float("nan")
    while high - low > accuracy:
        middle = (low + high) / 2
        if stays_at(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2 * unit


def _has_solution(data: TokenSet) -> float:
    """Return 1 if the token SVM has a solution, 0 if a certificate proves that it has
    none, and NaN if we cannot tell.
    """
    try:
        token_svm(data)
    except Infeasible:
        return 0.0
    except RuntimeError:
        return float("nan")
    return 1.0


def _crowding(n: float, T: float, d: float) -> float:
    """Return the number of constraints, n (T - 1), divided by Cover's (1965) capacity.

    The capacity is 2 d (d - 2), because queries are orthogonal to the two class means.
    """
    return n * (T - 1) / (2 * d * (d - 2))


def relative(p: Point) -> float:
    """Return the measured direction error divided by the law's prediction, minus 1, at
    the last record of a point whose premises hold.
    """
    with np.errstate(divide="ignore"):  # An altered copy of the claim may predict 0.
        return float(p.comparison.measured.error[-1] / p.comparison.predicted - 1)


def map_claims(points: Sequence[Point]) -> list[Claim]:
    """Check that the law predicts C on every axis, and that C falls like noise^-2 from
    noise sigma = 1 on.

    We measure `relative`. Points that violate a premise are left out. If no point of an
    axis remains, the measured value of its claim is NaN.
    """
    rows = []
    for axis in dict.fromkeys(p.axis for p in points):
        here = [p for p in points if p.axis == axis]
        good = [relative(p) for p in kept(here)]
        rows.append(claim("map.constant", good, axis, len(good), len(here)))
    return [*rows, _noise_power(points)]


def _noise_power(points: Any, lowest: float = 1.0):
    """Fit the exponent with which the measured C depends on the noise sigma, from sigma
    = `lowest` on.

    The function returns a claim about the worst seed. If no point remains, the measured
    value of the claim is NaN.
    """
    loud = [p for p in kept(points) if p.axis == "noise" and p.value >= lowest]
    powers = []
    for seed in dict.fromkeys(p.seed for p in loud):
        sizes = {
            p.value: p.comparison.measured.residual for p in loud if p.seed == seed
        }
        powers.append(
            np.polyfit(np.log(list(sizes)), np.log(list(sizes.values())), 1)[0]
        )
    powers = np.array(powers or [np.nan])
    why = f"mean {powers.mean():.3f}; opt tokens still count"
    return claim("map.noise", powers, "", f"{lowest:g}", each=True, why=why)


def switch_claim(axis: str, predicted: np.ndarray, measured: np.ndarray) -> Claim:
    """Check that runs change their selection at the amount at which another token
    begins to score higher than the opt token.

    `predicted` and `measured` are amounts, one per seed.
    """
    return claim("map.switch", np.asarray(measured) / predicted - 1, axis, each=True)


# For each axis: the values at which W_mm may cease to exist, and the other two sizes,
# which are fixed.
SEARCHED = {
    "n": (range(10, 32, 2), {"T": 5, "d": 6}),
    "T": (range(3, 13), {"n": 12, "d": 6}),
    "d": (range(4, 10), {"n": 18, "T": 5}),
}
SHARED_QUERY = (
    "all constraints of a sample share its query, which Cover's count does not know"
)


def _capacity(axis: str, values: Sequence[int], has: np.ndarray, sizes: Any):
    """Find the value at which W_mm ceases to exist for half of the seeds, and make the
    claims about this value.

    `has` (values, seeds) is 1 if W_mm exists, else 0 or NaN; `sizes` holds the two
    sizes that stay fixed while `axis` varies. The function returns the value with the
    two ends of its interval, and two claims.
    """
    # With more dimensions W_mm begins to exist; with more samples or tokens it ceases
    # to.
    if axis == "d":
        is_beyond = has == 1.0
    else:
        is_beyond = has != 1.0
    half = half_of_seeds(values, is_beyond)
    # Both ends of every range in SEARCHED violate one of the two claims, so that an
    # interval that is cut off there cannot make this claim hold.
    ends = np.clip(half[1:], values[0], values[-1])
    low, high = sorted(_crowding(**sizes, **{axis: end}) for end in ends)
    at = f"{axis} = {half[0]:.3g}"
    # `half_of_seeds` returns the first value itself if the interval begins before it.
    if half[1] <= values[0] * (1 + 1e-9):
        at += f"; the interval begins before {axis} = {values[0]}, the first we tried"
    if np.isinf(half[2]):
        at += f"; the interval reaches beyond {axis} = {values[-1]}, the last we tried"
    why = at
    if axis == "T":
        why += f"; {SHARED_QUERY}"
    more = {"interval": (low, high), "remark": at}
    fewest = claim("map.least", low, axis, **more)
    return half, [fewest, claim("map.most", high, axis, **more, why=why)]


def capacities(
    seeds: Sequence[int],
) -> tuple[dict[str, tuple[float, float, float]], list[Claim]]:
    """Find, for each of the sizes, the value at which W_mm ceases to exist for half of
    the seeds.

    The function returns {axis: (value, low, high)}, and the claims.
    """
    lost = {}
    rows = []
    for axis, (values, sizes) in SEARCHED.items():
        make = _sized(axis, **sizes)
        has = [[_has_solution(make(seed, value)) for seed in seeds] for value in values]
        lost[axis], claims = _capacity(axis, values, np.array(has), sizes)
        rows += claims
    return lost, rows


GRID = (0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995)


@dataclass(frozen=True)
class _Onset:
    """The runs that are too short at each correlation, as predicted and as measured.

    The arrays have the shape (correlations, seeds).
    """

    steps: int
    values: tuple[float, ...]
    predicted: np.ndarray
    measured: np.ndarray
    # The measured level divided by the predicted one. It is NaN if the run is excluded.
    level: np.ndarray

    def half(self, did: np.ndarray) -> tuple[float, float, float]:
        """Return 1 minus the correlation at which half of the seeds are excluded.

        The function also returns the two ends of the bootstrap interval. `did` is
        `predicted` or `measured`. A result beyond the correlations that were tried is
        replaced by the last of them.
        """
        tried = 1 - np.array(self.values)[::-1]
        return tuple(np.minimum(half_of_seeds(tried, ~did[::-1]), tried[-1]).tolist())


def onset(seeds: Sequence[int], steps: int, values: Sequence[float] = GRID) -> _Onset:
    """Find, at each correlation, which runs of `steps` steps are too short to show the
    law.

    `predicted` is computed from the duals, and `measured` by training. The correlations
    `values` are ascending. The function raises PremiseFails if the law has no
    prediction, or if a run is excluded for a reason other than its length.
    """
    predicted, measured = np.zeros((2, len(values), len(seeds)), bool)
    reached = np.full(measured.shape, np.nan)
    for k, j in np.ndindex(measured.shape):
        law = _law_of(coordinates.minimal(_correlated(seeds[j], values[k])).tokens)
        level = 2 * STEP * steps / law.fastest[0]
        # The part of W outside the support's span is measured after a tenth of the
        # run's steps.
        left = law.remaining(np.array([level]))[0], np.exp(-law.excess[0] * level / 10)
        predicted[k, j] = max(left) > SETTLED
        run = _point("correlation", values[k], seeds[j], steps)
        if run.refusal and "'long enough'" not in run.refusal:
            raise PremiseFails("length alone", j, values[k], run.refusal)
        measured[k, j] = bool(run.refusal)
        if run.comparison:
            reached[k, j] = run.comparison.measured.level[-1] / level
    return _Onset(
        steps=steps,
        values=tuple(values),
        predicted=predicted,
        measured=measured,
        level=reached,
    )


class _Repeated(NamedTuple):
    """The constant C, predicted and measured, when all tokens of a sample except its
    opt token coincide (correlation 1).

    The prediction is the C of the distinct tokens. The measured value is ||W_t|| times
    the direction error at the end of a run.
    """

    predicted: float
    measured: float


def repeated(seed: int, steps: int) -> _Repeated:
    """Train one run on data in which all other tokens of a sample coincide.

    The law is that of the two distinct tokens of each sample, because copies of a token
    do not change C.
    """
    data = _correlated(seed, 1.0)
    rows = np.arange(data.shape[1])
    # The query is one of the coinciding tokens.
    pair = np.stack([data.z[0], data.X[0, rows, data.opt[0]]], 1)
    two = token_set(
        pair, data.y[0], z=data.z[0], u=data.u[0], opt=np.ones(len(rows), int)
    )
    law = _law_of(two)
    problem = coordinates.minimal(data)
    W = train(
        problem, NGD(float(STEP * law.longest_step()[0])), steps, [0, steps]
    ).weights(1)
    error = margins.direction_error(W, problem.reduce(token_svm(two).W)[0])[0]
    return _Repeated(float(law.constant[0]), float(np.linalg.norm(W) * error))


def stays(seeds: Sequence[int], values: Sequence[float] = (0.9, 0.99, 0.999)) -> float:
    """Return the share of runs that select every opt token.

    The runs are over all seeds and over the correlations `values` between the tokens of
    a sample.
    """
    return float(
        np.mean([_ends_in_opt(_correlated(s, v)) for v in values for s in seeds])
    )


def onset_claims(onsets: Sequence[_Onset]) -> list[Claim]:
    """Check that the margin level of a run follows from its number of steps, and that
    longer runs follow the law up to larger correlations.
    """

    def level(at: Any):
        return at.level[np.isfinite(at.level)]

    rows = [
        claim("map.level", level(at), f"{at.steps}", f"{at.steps:,}") for at in onsets
    ]
    halves = np.array([at.half(at.measured)[0] for at in onsets])
    return [*rows, claim("map.time", halves[:-1] / halves[1:])]


def end_claims(share: float, merged: Sequence[_Repeated]) -> list[Claim]:
    """Check the two ends of the correlation axis.

    No correlation that was tried changes the selection (`share`), and at correlation 1
    the law of the distinct tokens holds (`merged`).
    """
    off = [pair.measured / pair.predicted - 1 for pair in merged]
    return [claim("map.stays", share), claim("map.merged", off, "", len(off))]
