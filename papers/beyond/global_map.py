"""Where joint training from zero reaches (u_mm, W_mm): data model (DM) beyond its conditions.

The first step moves u along the mean of all y x. It scores sample i's opt token higher by about
alpha^2 - 1 plus what the other samples add, N(0, (alpha^2 + 1)^2 (n - 1)/d). So the first step is
right for all n samples with probability Phi((alpha^2 - 1)/(alpha^2 + 1) sqrt(d/(n - 1)))^n.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm as normal

from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import GradientRule
from papers.beyond import thresholds
from papers.beyond.margin_law import score_gaps
from papers.beyond.tolerances import SATURATED

OURS = "ours, beside paper A's Theorem 3"
AGREE, FORMULA = 0.9, 0.05  # of the forms that came later


def right_at_once(alpha: np.ndarray, d: np.ndarray, n: int) -> np.ndarray:
    """Probability that the first step scores every opt token higher; d >> n, T = 2."""
    gain = (np.square(alpha) - 1) / (np.square(alpha) + 1)
    return normal.cdf(gain * np.sqrt(d / (n - 1))) ** n


def half_at_once(d: float, n: int) -> float:
    """alpha at which `right_at_once` is 1/2; infinity where no alpha is enough."""
    gain = normal.ppf(0.5 ** (1 / n)) * np.sqrt((n - 1) / d)
    return float(np.sqrt((1 + gain) / (1 - gain))) if gain < 1 else np.inf


def _first_step_right(data: TokenSet) -> np.ndarray:
    """Whether the first step of each run scores every opt token higher, (runs,)."""
    even = (data.y[..., None, None] * data.X).mean((1, 2))
    return score_gaps(data, even).min((1, 2)) > 0


def _reached(data: TokenSet, rule: GradientRule, steps: int) -> np.ndarray:
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
    reached, first = np.empty((2, *shape), bool)
    for row, column in np.ndindex(shape[:2]):
        sizes = dict(n=n, T=2, d=dimensions[row], signal=alphas[column])
        data = tokens.two_token_gaussian(seeds, **sizes)
        reached[row, column] = _reached(data, rule, steps)
        first[row, column] = _first_step_right(data)
    axes = dict(alphas=np.asarray(alphas, float), dimensions=np.asarray(dimensions))
    return GlobalMap(**axes, n=n, reached=reached, first=first)


def global_claims(grid: GlobalMap, wide: int = 1024, easy: float = 1.7) -> list[Claim]:
    """The protocol's claims: a right first step is enough; thresholds; wide data all reach it.

    Two forms came after they had failed: how near the first step's formula is.
    """
    enough = grid.reached[grid.first].mean()
    right = f"DM: share of {grid.first.sum()} runs with a right first step that reach (u_mm, W_mm)"
    lost = (grid.first & ~grid.reached).sum((1, 2))
    where = ", ".join(f"{k} at d = {d}" for k, d in zip(lost, grid.dimensions, strict=True) if k)
    why = f"later steps undo it: {where}" if enough < 0.99 else ""
    claims = [at_least("global.sufficient", right, OURS, enough, 0.99, remark=why)]
    ceilings = {row: half_at_once(d, grid.n) for row, d in enumerate(grid.dimensions)}
    for row, ceiling in ceilings.items():
        d = grid.dimensions[row]
        if not np.isfinite(ceiling) or d < 64:
            continue
        value, low, high = grid.threshold(row)
        text = f"DM, d = {d}: alpha at which half of the seeds reach it, first step alone as bound"
        why = "" if value <= ceiling or low > ceiling else "the bound lies in the interval"
        more = {"interval": (low, high), "remark": why}
        claims.append(at_most(f"global.threshold.{d}", text, OURS, value, ceiling, **more))
    rows, columns = grid.dimensions == wide, grid.alphas >= easy
    if rows.any() and columns.any():
        smallest = grid.shares[rows][:, columns].min()
        text = f"DM, d = {wide}, alpha >= {easy:g}: least share that reaches it"
        claims.append(at_least("global.missed", text, OURS, smallest, 1.0))
    agree = (grid.first == grid.reached).mean()
    text = f"DM: share of {grid.first.size} runs in which first step and end agree"
    claims.append(at_least("global.agree", text, OURS, agree, AGREE))
    for row, ceiling in ceilings.items():
        if (d := grid.dimensions[row]) >= 32 * grid.n:
            off = grid.threshold(row)[0] / ceiling - 1
            text = f"DM, d = {d}: alpha at which half of the seeds reach it, over alpha*, less 1"
            claims.append(close(f"global.formula.{d}", text, OURS, off, 0.0, FORMULA))
    return claims


WORLDS = {
    "alpha 25 % larger": lambda grid: replace(grid, alphas=1.25 * grid.alphas),
    "first steps of other seeds": lambda grid: replace(grid, first=grid.first[..., ::-1]),
    "one seed never arrives": lambda grid: replace(
        grid, reached=grid.reached & (np.arange(grid.reached.shape[-1])[::-1] > 0)
    ),
}
