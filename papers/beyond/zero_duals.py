"""Tight pairs whose duals are zero: a second SVM says how each of them slows the run.

W = a W_mm + D log a + rest, with D the least ||D|| in the span of the tight A_m such that
<A_m, D> = 0 on the support and <A_k, D> >= 1 on the idle tight pairs k; y >= 0 its duals there. For
W must move along W_mm + D/a, so that an idle pair pulls y_k/a beside the duals: margins g_k - a =
<A_k, D> log a + ..., and where y_k > 0

    g_k - a_t = log a_t + log kappa_k - log y_k - mean + o(1),

the law of one such pair with y_k = ||d_k||^2. Where y_k = 0 the pair is pushed by the others faster
than it asks: slope <A_k, D> > 1 in log a_t. ||W_t|| x error grows like ||D|| log a_t. Wrong offsets
of idle pairs die like a_t^-rate, rate the least eigenvalue of Y^1/2 Q Y^1/2, Y = diag(y), Q the
Gram matrix of the idle A_k less the support's span.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, close, furthest
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.svm.max_margin import MaxMargin, token_svm
from papers.beyond import margins as measure
from papers.beyond.margin_law import TIGHT, from_duals
from papers.beyond.margin_law_premises import check_selection, each_seed
from papers.beyond.margin_slopes import SMALLEST_DUAL, PremiseFails, saturated_slopes

APART = 1e-3  # an idle pair with y_k = 0 must have a slope of 1 + APART at least
DEAD = 0.01  # a_t^-rate at the end that counts as settled
# Of notebooks/bends_protocol.md
OFFSET, SLOPE, RESIDUAL = 0.02, 0.02, 0.005
OURS = "ours, beyond paper A's Theorem 1"


@dataclass(frozen=True, kw_only=True)
class ZeroDuals:
    """One run's law with idle tight pairs, all in minimal coordinates.

    pairs (k,): their places among n (T-1); duals (k,) y; slopes (k,) <A_k, D>; constants (k,) the
    offsets less log a_t, NaN where y_k = 0; lengths (k,) Q_kk; rate; step: half of the longest one,
    or ||W_mm||. tight (n (T-1),): the support and the pairs; K, rest (m,): Gram matrix and offsets
    at log a_t = 0 of those.
    """

    tokens: TokenSet
    solution: MaxMargin
    pairs: np.ndarray
    duals: np.ndarray
    slopes: np.ndarray
    constants: np.ndarray
    lengths: np.ndarray
    rate: float
    step: float
    tight: np.ndarray
    K: np.ndarray
    rest: np.ndarray

    def residual(self, level: np.ndarray) -> np.ndarray:
        """||rho_0 + D log a||, the length of W's part in the tight span across W_mm, at `level`."""
        drift = np.zeros(len(self.rest))
        drift[np.isin(np.flatnonzero(self.tight), self.pairs)] = self.slopes
        offsets = self.rest + np.multiply.outer(np.log(level), drift)
        return np.sqrt(np.einsum("km,mk->k", offsets, np.linalg.solve(self.K, offsets.T)))


def second(Q: np.ndarray) -> np.ndarray:
    """y >= 0 that maximises 1^T y - y^T Q y / 2: duals of D on the idle pairs."""
    lower = np.linalg.cholesky(Q)
    return nnls(lower.T, np.linalg.solve(lower, np.ones(len(Q))))[0]


def predict(data: TokenSet, count: int = 1) -> ZeroDuals:
    """The law of a run that ends in the opt tokens of `data`, one run, exponential loss.

    Raises PremiseFails: "zero duals" unless `count` tight constraints have none; "score gaps" where
    a tight token scores at least the opt one; "second margin" where an idle pair carries nothing of
    D and is only just further out.
    """
    small = coordinates.minimal(data).tokens
    solution = token_svm(small)
    beta, margins = solution.duals[0].ravel(), solution.margins[0].ravel()
    on = beta > SMALLEST_DUAL * beta.max()
    idle = np.flatnonzero((margins - 1 <= TIGHT) & ~on)
    if idle.size != count:
        said = f"{idle.size} tight constraints have a dual at zero; it needs {count}"
        raise PremiseFails("zero duals", 0, idle.size, said)
    log_slopes = saturated_slopes(small)[0].ravel()
    if not np.isfinite(log_slopes[on]).all() or not np.isfinite(log_slopes[idle]).all():
        raise PremiseFails("score gaps", 0, 0.0, "a tight token scores at least the opt token")
    K = coordinates.gram(coordinates.differences(small, small.opt), small.z)[0]
    cross = K[np.ix_(idle, on)]
    Q = K[np.ix_(idle, idle)] - cross @ np.linalg.solve(K[np.ix_(on, on)], cross.T)
    y = second(Q)
    slopes, active = Q @ y, y > 0
    if (slopes[~active] < 1 + APART).any():
        least = slopes[~active].min()
        said = f"an idle pair without pull has the slope {least:.6f}, it needs {1 + APART:g}"
        raise PremiseFails("second margin", 0, least, said)
    mean = beta[on] @ (log_slopes[on] - np.log(beta[on])) / beta[on].sum()
    with np.errstate(divide="ignore"):
        constants = np.where(active, log_slopes[idle] - np.log(y) - mean, np.nan)
    root = np.sqrt(y[active])
    shape = solution.duals.shape
    held = np.where(on, beta, 0.0).reshape(shape)
    law = from_duals(K[None], held, solution.margins, log_slopes.reshape(shape))
    rest = np.zeros(len(beta))
    rest[on] = log_slopes[on] - np.log(beta[on]) - mean
    rest[idle] = constants
    tight = np.zeros(len(beta), bool)
    tight[on] = tight[idle] = True
    return ZeroDuals(
        tokens=small,
        solution=solution,
        pairs=idle,
        duals=y,
        slopes=slopes,
        constants=constants,
        lengths=np.diag(Q),
        rate=float(np.linalg.eigvalsh(root[:, None] * Q[np.ix_(active, active)] * root)[0]),
        step=float(min(law.longest_step()[0] / 2, law.norm[0])),
        tight=tight,
        K=K[np.ix_(tight, tight)],
        rest=rest[tight],
    )


def tightened(data: TokenSet, count: int = 1) -> TokenSet:
    """One run's data with its `count` least slack constraints made tight; their duals stay zero.

    Their tokens move along W_mm z until the margin at W_mm is 1, so that W_mm is still the
    solution. Raises PremiseFails "slack constraints" where there are fewer.
    """
    solution = token_svm(data)
    slack = np.where(solution.support[0], np.inf, solution.margins[0] - 1)
    if np.isfinite(slack).sum() < count:
        said = f"{np.isfinite(slack).sum()} constraints are slack; it needs {count}"
        raise PremiseFails("slack constraints", 0, np.isfinite(slack).sum(), said)
    X = data.X.copy()
    place = coordinates.others(data.opt, data.shape[2])[0]
    for m in np.argsort(slack, axis=None)[:count]:
        i, pair = np.unravel_index(m, slack.shape)
        pull = solution.W[0] @ data.z[0, i]
        X[0, i, place[i, pair]] += slack[i, pair] * pull / (pull @ pull)
    return replace(data, X=X)


@dataclass(frozen=True, kw_only=True)
class ZeroDualsRun:
    """A run beside its law at late records (k,): level a_t, offsets (k, idle), residual (k,).

    residual: the length of W_t's part in the span of the tight pairs, across W_mm.
    """

    of: ZeroDuals
    level: np.ndarray
    offsets: np.ndarray
    residual: np.ndarray


def run(of: ZeroDuals, steps: int, decades: int = 1, step: float | None = None) -> ZeroDualsRun:
    """Train by NGD from zero; records of the last decades, steps of length of.step by default.

    PremiseFails "selection made" where the run ends elsewhere; "idle pairs settled" where what is
    left of their wrong offsets is above DEAD.
    """
    late = np.unique(np.geomspace(steps / 10**decades, steps, 9).round().astype(int))
    history = train(of.tokens, ngd(step or of.step), steps, [0, *late])
    check_selection(0, history.margins[0, -1])
    W = [history.weights(k + 1) for k in range(len(late))]
    V, tight = of.solution.W, of.tight.reshape(of.solution.duals.shape)
    along = np.array([measure.along_and_off(w, V)[0][0] for w in W])
    level = along / of.solution.norm[0]
    left = level[-1] ** -of.rate
    if not left <= DEAD:
        said = f"wrong offsets of idle pairs have decayed to {left:.2g}, they need {DEAD:g}"
        raise PremiseFails("idle pairs settled", 0, left, said)
    margins = history.margins[0, 1:].reshape(len(late), -1)
    across = [measure.residual(of.tokens, of.tokens.opt, tight, w, V)[0] for w in W]
    return ZeroDualsRun(
        of=of, level=level, offsets=margins[:, of.pairs] - level[:, None], residual=np.array(across)
    )


def study(seeds: Sequence[int], count: int, steps: int):
    """Gaussian tokens (n = 6, T = 6, d = 36) with `count` pairs made tight: kept, and refused."""

    def one(seed):
        data = tightened(tokens.gaussian_tokens(seed, n=6, T=6, d=36), count)
        return run(predict(data, count), steps)

    return each_seed(seeds, one, f"{count} idle pairs, ")


def zeros_claims(runs: Sequence[ZeroDualsRun]) -> list[Claim]:
    """Offset, slope in log a_t and residual, by the number of idle pairs, worst run."""
    claims = []
    for count in dict.fromkeys(len(r.of.pairs) for r in runs):
        own = [r for r in runs if len(r.of.pairs) == count]
        text = f"{count} duals at zero: {{}}, worst of {len(own)} runs".format
        last = [r.offsets[-1] - np.log(r.level[-1]) - r.of.constants for r in own]
        slopes = [np.polyfit(np.log(r.level), r.offsets, 1)[0] - r.of.slopes for r in own]
        size = [r.residual[-1] / r.of.residual(r.level[-1:]) - 1 for r in own]
        parts = (
            ("offset", "offset less log a_t and constant", last, OFFSET),
            ("slope", "slope of an offset in log a_t, less <A_k, D>", slopes, SLOPE),
            ("residual", "length of the residual over its prediction, less 1", size, RESIDUAL),
        )
        claims += [
            close(f"zeros.{name}.{count}", text(said), OURS, _furthest(values), 0.0, bound)
            for name, said, values, bound in parts
        ]
    return claims


def _furthest(values):
    """The furthest from 0 of all runs' `values`; NaN, of a pair without pull, left out."""
    values = np.concatenate(values)
    return furthest(values[~np.isnan(values)])


def alone(r: ZeroDualsRun) -> ZeroDualsRun:
    """Each idle pair by itself: y_k = 1/Q_kk, as if it were the only one."""
    wrong = r.of.constants + np.log(r.of.duals * r.of.lengths)
    return replace(r, of=replace(r.of, constants=wrong))


def settled(r: ZeroDualsRun) -> ZeroDualsRun:
    """Offsets settle, as with positive duals."""
    return replace(r, offsets=np.broadcast_to(r.offsets[0], r.offsets.shape))


WORLDS: Mapping[str, Callable[[ZeroDualsRun], ZeroDualsRun]] = {
    "idle pairs do not meet": alone,
    "offsets settle": settled,
    "no drift": lambda r: replace(r, residual=np.full_like(r.residual, r.residual[0])),
}
