"""Where joint training from zero reaches (u_mm, W_mm): data model (DM) beyond its conditions.

The first step moves u along the mean of all y x. It scores sample i's opt token higher by about
alpha^2 - 1 plus what the other samples add, N(0, (alpha^2 + 1)^2 (n - 1)/d). So the first step is
right for all n samples with probability Phi((alpha^2 - 1)/(alpha^2 + 1) sqrt(d/(n - 1)))^n.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm as normal

from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import GradientRule
from papers.beyond import thresholds
from papers.beyond.joint_law import score_gaps
from papers.beyond.margin_law_premises import SATURATED

OURS = "ours, beside paper A's Theorem 3"
AGREE, FORMULA = 0.9, 0.05  # of the claims that came later


def right_at_once(alpha: np.ndarray, d: np.ndarray, n: int) -> np.ndarray:
    """Probability that the first step scores every opt token higher; d >> n, T = 2."""
    gain = (np.square(alpha) - 1) / (np.square(alpha) + 1)
    return normal.cdf(gain * np.sqrt(d / (n - 1))) ** n


def half_at_once(d: float, n: int) -> float:
    """alpha at which `right_at_once` is 1/2; infinity where no alpha is enough."""
    gain = normal.ppf(0.5 ** (1 / n)) * np.sqrt((n - 1) / d)
    return float(np.sqrt((1 + gain) / (1 - gain))) if gain < 1 else np.inf


def first_step_right(data: TokenSet) -> np.ndarray:
    """Whether the first step of each run scores every opt token higher, (runs,)."""
    even = (data.y[..., None, None] * data.X).mean((1, 2))
    return score_gaps(data, even).min((1, 2)) > 0


def reached(data: TokenSet, rule: GradientRule, steps: int) -> np.ndarray:
    """Whether each run ends in its opt tokens, attended to and scored higher, (runs,).

    There (u_mm, W_mm) exists and nothing pulls the run away any more.
    """
    history = train(coordinates.minimal(data), rule, steps, [0, steps], head="joint")
    attended = history.margins[:, -1].min((1, 2)) > SATURATED
    return attended & (history.score_gaps[:, -1].min((1, 2)) > 0)


@dataclass(frozen=True, kw_only=True)
class GlobalMap:
    """alphas (a,), dimensions (b,), n; reached and first (b, a, seeds): did, and right at once."""

    alphas: np.ndarray
    dimensions: np.ndarray
    n: int
    reached: np.ndarray
    first: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Share of the seeds that reach (u_mm, W_mm), (b, a)."""
        return self.reached.mean(-1)

    def threshold(self, row: int) -> tuple[float, float, float]:
        """alpha at which half of the seeds reach it at dimension `row`; ends of a bootstrap."""
        return thresholds.half(self.alphas, self.reached[row], seed=row)


def measure(
    seeds: Sequence[int],
    alphas: Sequence[float],
    dimensions: Sequence[int],
    rule: GradientRule,
    steps: int,
    n: int = 8,
) -> GlobalMap:
    """Train every seed at every alpha and dimension, T = 2, from zero."""
    shape = len(dimensions), len(alphas), len(seeds)
    arrived, first = np.empty(shape, bool), np.empty(shape, bool)
    for row, d in enumerate(dimensions):
        for column, alpha in enumerate(alphas):
            data = tokens.two_token_gaussian(seeds, n=n, T=2, d=d, signal=alpha)
            arrived[row, column] = reached(data, rule, steps)
            first[row, column] = first_step_right(data)
    return GlobalMap(
        alphas=np.asarray(alphas, float),
        dimensions=np.asarray(dimensions),
        n=n,
        reached=arrived,
        first=first,
    )


def global_claims(found: GlobalMap, wide: int = 1024, easy: float = 1.7) -> list[Claim]:
    """The protocol's claims: a right first step is enough; thresholds; wide data all reach it."""
    enough = found.reached[found.first].mean()
    right = f"DM: share of {found.first.sum()} runs with a right first step that reach (u_mm, W_mm)"
    lost = [int((f & ~r).sum()) for f, r in zip(found.first, found.reached, strict=True)]
    where = ", ".join(f"{k} at d = {d}" for k, d in zip(lost, found.dimensions, strict=True) if k)
    why = f"later steps undo it: {where}" if enough < 0.99 else ""
    claims = [at_least("global.sufficient", right, OURS, enough, 0.99, remark=why)]
    for row, d in enumerate(found.dimensions):
        ceiling = half_at_once(d, found.n)
        if not np.isfinite(ceiling) or d < 64:
            continue
        value, low, high = found.threshold(row)
        text = f"DM, d = {d}: alpha at which half of the seeds reach it, first step alone as bound"
        why = "" if value <= ceiling or low > ceiling else "the bound lies in the interval"
        more = {"interval": (low, high), "remark": why}
        claims.append(at_most(f"global.threshold.{d}", text, OURS, value, ceiling, **more))
    rows, columns = found.dimensions == wide, found.alphas >= easy
    if rows.any() and columns.any():
        least = found.shares[rows][:, columns].min()
        text = f"DM, d = {wide}, alpha >= {easy:g}: least share that reaches it"
        claims.append(at_least("global.missed", text, OURS, least, 1.0))
    return claims + _later(found)


def _later(found):
    """Claims that came after the protocol's had failed: how near the first step's formula is."""
    agree = (found.first == found.reached).mean()
    text = f"DM: share of {found.first.size} runs in which first step and end agree"
    claims = [at_least("global.agree", text, OURS, agree, AGREE)]
    for row, d in enumerate(found.dimensions):
        bound = half_at_once(d, found.n)
        if d >= 32 * found.n:
            off = found.threshold(row)[0] / bound - 1
            text = f"DM, d = {d}: alpha at which half of the seeds reach it, over alpha*, less 1"
            claims.append(close(f"global.formula.{d}", text, OURS, off, 0.0, FORMULA))
    return claims


def one_run_lost(found: GlobalMap) -> GlobalMap:
    """A world in which the last seed reaches nothing where all do."""
    lost = found.reached.copy()
    lost[..., -1] = False
    return replace(found, reached=lost)


WORLDS: Mapping[str, Callable[[GlobalMap], GlobalMap]] = {
    "alpha 25 % larger": lambda found: replace(found, alphas=1.25 * found.alphas),
    "first steps of other seeds": lambda found: replace(found, first=found.first[..., ::-1]),
    "one seed never arrives": one_run_lost,
}
