"""Claims on the map of the constant, and the wrong worlds that they catch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most, close, every_close, furthest, remarked
from papers.beyond import margin_law_worlds as worlds
from papers.beyond import thresholds
from papers.beyond.constant_map import Point, crowding, solvable

# Of notebooks/bends_protocol.md
CONSTANT, NOISE, SWITCH = 0.01, 0.1, 0.01
OURS = "ours, beyond paper A's Theorem 1"
SEARCHED = {  # axis: the values at which W_mm may be lost, and the other two sizes
    "n": (list(range(10, 32, 2)), {"T": 5, "d": 6}),
    "T": (list(range(3, 13)), {"n": 12, "d": 6}),
    "d": (list(range(4, 10)), {"n": 18, "T": 5}),
}
SHARED_QUERY = "all constraints of a sample share its query, which Cover's count does not know"


def kept(points: Sequence[Point]) -> list[Point]:
    """The points whose premises hold."""
    return [p for p in points if not p.refusal]


def relative(p: Point) -> float:
    """Measured direction error over the law's, less 1."""
    with np.errstate(divide="ignore"):  # a wrong world predicts 0
        return float(p.comparison.measured.error[-1] / p.comparison.predicted - 1)


def map_claims(points: Sequence[Point]) -> list[Claim]:
    """C along every axis within 1 %, and C ~ noise^-2 from sigma = 1 on, on the kept points."""
    claims = []
    for axis in dict.fromkeys(p.axis for p in points):
        own = [p for p in points if p.axis == axis]
        good = kept(own)
        text = f"{axis}: error over its prediction, less 1, worst of {len(good)} of {len(own)} runs"
        worst = furthest([relative(p) for p in good])
        claims.append(close(f"map.constant.{axis}", text, OURS, worst, 0.0, CONSTANT))
    return claims + [noise_power(points)]


def noise_power(points: Sequence[Point], least: float = 1.0) -> Claim:
    """Exponent of the measured C in the noise, from sigma = `least` on, worst seed."""
    found = [p for p in kept(points) if p.axis == "noise" and p.value >= least]
    powers = []
    for seed in dict.fromkeys(p.seed for p in found):
        own = [p for p in found if p.seed == seed]
        size = [p.comparison.measured.residual for p in own]
        powers.append(np.polyfit(np.log([p.value for p in own]), np.log(size), 1)[0])
    powers = np.array(powers or [np.nan])
    text = f"noise: exponent of C in sigma >= {least:g}, worst seed"
    claim = every_close("map.noise", text, OURS, powers, -2.0, NOISE)
    return remarked(claim, f"mean {powers.mean():.3f}; opt tokens still count")


def switch_claim(axis: str, predicted: np.ndarray, measured: np.ndarray) -> Claim:
    """A run changes its selection where the first token overtakes: per seed, (seeds,) each."""
    off = np.asarray(measured) / predicted - 1
    text = f"{axis}: amount at which the run switches over the score crossing, less 1, worst seed"
    return every_close(f"map.switch.{axis}", text, OURS, off, 0.0, SWITCH)


def capacity(
    axis: str, values: Sequence[float], found: np.ndarray, sizes: Mapping[str, float]
) -> tuple[tuple[float, float, float], list[Claim]]:
    """Where half of the seeds have no W_mm along "n", "T" or "d": the value and its interval.

    And the claims that constraints are there one to two times Cover's count. found (values, seeds)
    of `has_solution`, unproved ones counting as lost; sizes: the other two of n, T and d.
    """
    did = found == 1.0 if axis == "d" else found != 1.0  # more often true at larger values
    half = thresholds.half(values, did)
    value, *ends = (crowding(**sizes, **{axis: at}) for at in half)
    low, high = sorted(ends)
    text = f"{axis} at which half of the seeds have no W_mm: constraints over Cover's count"
    more = {"interval": (low, high), "remark": f"{axis} = {half[0]:.3g}"}
    most = at_most(f"map.most.{axis}", text + ", high end", OURS, high, 2.0, **more)
    return half, [
        at_least(f"map.least.{axis}", text + ", low end", OURS, low, 1.0, **more),
        remarked(most, f"{most.remark}; {SHARED_QUERY}") if axis == "T" else most,
    ]


def capacities(seeds: Sequence[int]) -> tuple[dict[str, tuple[float, float, float]], list[Claim]]:
    """`capacity` along every axis of SEARCHED: what is lost where, by axis, and the claims."""
    lost, claims = {}, []
    for axis, (values, others) in SEARCHED.items():
        fixed = {name: [value] for name, value in others.items()}
        has = solvable(seeds, {axis: values} | fixed)
        lost[axis], own = capacity(axis, values, has, others)
        claims += own
    return lost, claims


def _changed(world):
    def change(p: Point) -> Point:
        return p if p.refusal else replace(p, comparison=world(p.comparison))

    return change


def _slower(comparison):
    """C falls like 1/sigma."""
    measured, noise = comparison.measured, np.abs(comparison.tokens.z).max()
    return replace(comparison, measured=replace(measured, residual=measured.residual * noise))


WORLDS: Mapping[str, Callable[[Point], Point]] = {
    "one dual 20 % high": _changed(lambda c: worlds.dual_off(c, 0.2)),
    "all duals alike": _changed(worlds.duals_alike),  # one of a thousand is no share of C
    "kappa without head and loss": _changed(worlds.no_score_gaps),
    "C ~ 1/noise": _changed(_slower),
}
