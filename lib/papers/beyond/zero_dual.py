"""A tight pair whose dual is zero: the law with beta_k replaced by ||d_k||^2 / a_t.

Such a pair k must keep margin a_t, but W_mm does not lean on it. Its pull dies like 1/a_t and turns
W by d_k log a_t, where d_k lies in the span of the tight A_m, <A_k, d_k> = 1 and <A_m, d_k> = 0 for
the others. For W to move along W_mm + d_k/a_t the pull must be ||d_k||^2/a_t beside the duals. So
g_k - a_t = log a_t + log kappa_k - log ||d_k||^2 - mean, and the error is of order log t / t.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, close
from lib.dynamics import margins as measure
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.svm.margin_law import TIGHT
from lib.svm.margin_slopes import SMALLEST_DUAL, PremiseFails, saturated_slopes
from lib.svm.max_margin import MaxMargin, token_svm

# Written down in notebooks/bends_protocol.md before the runs
OFFSET, SLOPE = 0.02, 0.02
OURS = "ours, beyond paper A's Theorem 1"


@dataclass(frozen=True, kw_only=True)
class ZeroDual:
    """One run's law with a dual at zero: the pair (sample, place), and its offset less log a_t.

    drift: ||d_k||, by which ||W_t|| x error grows per log a_t in the end.
    """

    tokens: TokenSet
    solution: MaxMargin
    pair: tuple[int, int]
    constant: float
    drift: float

    def offset(self, level: np.ndarray) -> np.ndarray:
        """g_k - a_t at margin level a_t."""
        return np.log(level) + self.constant


def predict(data: TokenSet) -> ZeroDual:
    """The law of a run that ends in the opt tokens of `data`, one run, exponential loss.

    Raises PremiseFails: "one zero dual" unless exactly one tight constraint has none; "score gaps"
    where its token, or one on the support, outscores the opt token.
    """
    solution = token_svm(data)
    beta, margins = solution.duals[0].ravel(), solution.margins[0].ravel()
    on = beta > SMALLEST_DUAL * beta.max()
    idle = np.flatnonzero((margins - 1 <= TIGHT) & ~on)
    if idle.size != 1:
        said = f"{idle.size} tight constraints have a dual at zero; it needs one"
        raise PremiseFails("one zero dual", 0, idle.size, said)
    k = int(idle[0])
    slopes = saturated_slopes(data)[0].ravel()
    if not np.isfinite(slopes[on]).all() or not np.isfinite(slopes[k]):
        raise PremiseFails("score gaps", 0, 0.0, "a tight token scores at least the opt token")
    tight = np.append(np.flatnonzero(on), k)
    K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0]
    square = np.linalg.inv(K[np.ix_(tight, tight)])[-1, -1]  # ||d_k||^2
    mean = beta[on] @ (slopes[on] - np.log(beta[on])) / beta[on].sum()
    return ZeroDual(
        tokens=data,
        solution=solution,
        pair=divmod(k, solution.duals.shape[2]),
        constant=float(slopes[k] - np.log(square) - mean),
        drift=float(np.sqrt(square)),
    )


def tightened(data: TokenSet) -> TokenSet:
    """One run's data with its least slack constraint made tight; its dual stays zero.

    The other token moves along W_mm z until its margin at W_mm is 1, so that W_mm is still the
    solution. Raises PremiseFails "a slack constraint" where all are tight.
    """
    solution = token_svm(data)
    slack = np.where(solution.support[0], np.inf, solution.margins[0] - 1)
    if not np.isfinite(slack).any():
        raise PremiseFails("a slack constraint", 0, 0.0, "every constraint carries W_mm")
    i, place = np.unravel_index(slack.argmin(), slack.shape)
    t = coordinates.others(data.opt, data.shape[2])[0, i, place]
    pull = solution.W[0] @ data.z[0, i]
    X = data.X.copy()
    X[0, i, t] += slack[i, place] * pull / (pull @ pull)
    return replace(data, X=X)


@dataclass(frozen=True, kw_only=True)
class ZeroDualRun:
    """A run beside its law: level a_t and the offset g_k - a_t at late records, (k,) each."""

    of: ZeroDual
    level: np.ndarray
    offset: np.ndarray


def run(of: ZeroDual, step_size: float, steps: int) -> ZeroDualRun:
    """Train by NGD from zero; PremiseFails "selection made" where the run ends elsewhere."""
    problem = coordinates.minimal(of.tokens)
    late = np.unique(np.geomspace(steps / 100, steps, 9).round().astype(int))
    history = train(problem, ngd(step_size), steps, [0, *late])
    margins = history.margins[0, 1:]
    if not margins[-1].min() > 5:
        said = f"it ends elsewhere: the smallest margin is {margins[-1].min():.2g}, it needs 5"
        raise PremiseFails("selection made", 0, margins[-1].min(), said)
    V = problem.reduce(of.solution.W)[0]
    W = [history.weights(k + 1) for k in range(len(late))]
    along = np.array([measure.along_and_off(w, V)[0][0] for w in W])
    level = along / of.solution.norm[0]
    return ZeroDualRun(of=of, level=level, offset=margins[:, *of.pair] - level)


def unit_runs(seeds: Sequence[int], step_size: float, steps: int):
    """Unit tokens (n = 6, T = 8, d = 10) made tight, and trained: runs kept; seed -> refusal."""
    kept, refused = [], {}
    for seed in seeds:
        try:
            data = tightened(tokens.unit_tokens(seed, n=6, T=8, d=10))
            kept.append(run(predict(data), step_size, steps))
        except (PremiseFails, RuntimeError) as why:
            refused[seed] = f"seed {seed}: {getattr(why, 'named', why)}"
    return kept, refused


def zero_claims(runs: Sequence[ZeroDualRun]) -> list[Claim]:
    """The offset of the idle pair at the end, and its slope in log a_t over the last decade.

    Without a run neither holds.
    """
    last = np.array([r.offset[-1] - r.of.offset(r.level[-1]) for r in runs])
    slope = np.array([np.polyfit(np.log(r.level[-5:]), r.offset[-5:], 1)[0] for r in runs])
    text = f"dual at zero: offset of its pair less log a_t and constant, worst of {len(runs)} runs"
    power = "dual at zero: slope of that offset in log a_t, worst run"
    far = slope[np.abs(slope - 1).argmax()] if runs else np.nan
    worst = last[np.abs(last).argmax()] if runs else np.nan
    return [
        close("zero.offset", text, OURS, worst, 0.0, OFFSET),
        close("zero.slope", power, OURS, far, 1.0, SLOPE),
    ]


def settled(r: ZeroDualRun) -> ZeroDualRun:
    """The offset settles, as with a positive dual."""
    return replace(r, offset=np.full_like(r.offset, r.offset[0]))


def no_length(r: ZeroDualRun) -> ZeroDualRun:
    """||d_k|| is left out of the constant."""
    return replace(r, of=replace(r.of, constant=r.of.constant + 2 * np.log(r.of.drift)))


WORLDS: Mapping[str, Callable[[ZeroDualRun], ZeroDualRun]] = {
    "the offset settles": settled,
    "d_k of length 1": no_length,
}
