"""What transients leave outside the support's span, from tokens and head, without a run.

W never leaves the span of all A_m. Let w_m be what pair m has pulled in all; off the span of the
support lies sqrt(w^T Q w), over the pairs off it, with Q the Gram matrix of their A_m less the
support's span. On the margin level a = <W, W_mm>/||W_mm||^2 as its clock, steepest descent is

    dw/da = ||W_mm||^2 c(K w) / (c . margins of W_mm),

whatever the rule, as long as its steps are short: c_m the exact pull, K the Gram matrix of all
pairs. That flow of m numbers is integrated from a = 0 on. Its first order in the pulls is a sum,
with margins g_m = (1 + eps_m) a + <A_m, rho_perp>: w_m = kappa_m e^{-mean - <A_m, rho_perp>}/eps_m.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.integrate import solve_ivp

from lib.attention import coordinates, model, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, close, remarked
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.svm.max_margin import MaxMargin, token_svm
from papers.beyond import margins as measure
from papers.beyond.margin_law import MarginLaw, margin_law
from papers.beyond.margin_law_premises import check_selection, each_seed
from papers.beyond.margin_slopes import PremiseFails, saturated_slopes
from papers.beyond.outside_bound import bound

SHARES = (0.1, 0.02)  # of the longest step
# Of notebooks/bends_protocol.md
FLOW, ORDER = 0.01, 0.1
OURS = "ours, beyond paper A's Theorem 1"
EARLY = (
    "the sum knows small weights only: where little is left, first steps with even weights count"
)


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """One run's pairs m, all in one axis (m,), in minimal coordinates.

    K (m, m) their Gram matrix; on (m,) the support; square (off, off): Q; scores (n, T-1) of the
    other tokens and own (n,) of the opt ones.
    """

    tokens: TokenSet
    solution: MaxMargin
    law: MarginLaw
    K: np.ndarray
    on: np.ndarray
    square: np.ndarray
    scores: np.ndarray
    own: np.ndarray

    def pull(self, g: np.ndarray) -> np.ndarray:
        """-n grad L = sum c_m A_m at margins g (m,): c times e^{least margin}, exponential loss."""
        margins = g.reshape(self.scores.shape)
        rest = np.exp(-margins).sum(1)
        f = (self.own + (np.exp(-margins) * self.scores).sum(1)) / (1 + rest)
        weight = np.exp(-f) / (1 + rest)
        relative = np.exp(margins.min() - margins)
        return (weight[:, None] * relative * (f[:, None] - self.scores)).ravel()

    def size(self, w: np.ndarray) -> float:
        """What pulls w (m,) leave outside the support's span."""
        rest = w[~self.on]
        return float(np.sqrt(max(rest @ self.square @ rest, 0.0)))

    def flow(self, level: float) -> float:
        """That size once the margin level is `level`, by the flow from W = 0."""
        margins, square = self.solution.margins[0].ravel(), self.law.norm[0] ** 2

        def rate(_, w):
            c = self.pull(self.K @ w)
            return c * square / (c @ margins)

        zero = np.zeros(len(self.on))
        found = solve_ivp(rate, (0.0, level), zero, method="LSODA", rtol=1e-8, atol=1e-10)
        return self.size(found.y[:, -1])

    def first_order(self) -> float:
        """That size at the end of time, to first order in the pulls off the support."""
        slopes = saturated_slopes(self.tokens)[0].ravel()
        margins, beta = self.solution.margins[0].ravel(), self.law.duals[0].ravel()
        on = self.on
        mean = beta[on] @ (slopes[on] - np.log(beta[on])) / beta[on].sum()
        rho = self.K @ self.law.coefficients[0].ravel()
        w = np.zeros(len(on))
        w[~on] = np.exp(slopes - mean - rho)[~on] / (margins - 1)[~on]
        return self.size(w)

    def bound(self) -> float:
        """`outside_bound.bound` of this run."""
        slopes, margins = saturated_slopes(self.tokens)[0].ravel(), self.solution.margins[0].ravel()
        return bound(self.K, self.on, self.law.duals[0].ravel(), margins, slopes)


def pulls(data: TokenSet) -> Pulls:
    """The pulls of one run that ends in its opt tokens.

    Raises PremiseFails "partial support" where all constraints carry W_mm, "score gaps" where
    another token scores at least the opt one, and what `margin_law` raises.
    """
    small = coordinates.minimal(data).tokens
    solution = token_svm(small)
    law = margin_law(small, solution)
    on = law.support[0].ravel()
    if on.all():
        said = "every constraint carries W_mm: nothing is left outside"
        raise PremiseFails("partial support", 0, 0.0, said)
    if not np.isfinite(saturated_slopes(small)).all():
        raise PremiseFails("score gaps", 0, 0.0, "another token scores at least the opt one's")
    K = coordinates.gram(coordinates.differences(small, small.opt), small.z)[0]
    cross = K[np.ix_(~on, on)]
    square = K[np.ix_(~on, ~on)] - cross @ np.linalg.solve(K[np.ix_(on, on)], cross.T)
    scores = model.scores(small, small.u)[0]
    rest = coordinates.others(small.opt, scores.shape[-1])[0]
    return Pulls(
        tokens=small,
        solution=solution,
        law=law,
        K=K,
        on=on,
        square=square,
        scores=np.take_along_axis(scores, rest, -1),
        own=np.take_along_axis(scores, small.opt[0][:, None], -1)[:, 0],
    )


@dataclass(frozen=True, kw_only=True)
class Left:
    """One problem: what lies outside the span after runs with SHARES of the longest step, (k,).

    predicted: of the flow at the level where each run stood, (k,); first: the first-order sum;
    bound: the one that is proved for the saturated flow.
    """

    measured: np.ndarray
    predicted: np.ndarray
    first: float
    bound: float


def left(of: Pulls, steps: int) -> Left:
    """Train by NGD from zero with SHARES of the longest step, all to one margin level.

    `steps` of the shortest share; PremiseFails "selection made" where a run ends elsewhere.
    """
    measured, predicted = [], []
    for share in SHARES:
        count = round(steps * min(SHARES) / share)
        rule = ngd(float(share * of.law.longest_step()[0]))
        history = train(of.tokens, rule, count, [0, count])
        check_selection(0, history.margins[0, -1])
        W = history.weights(1)
        level = measure.along_and_off(W, of.solution.W)[0][0] / of.law.norm[0]
        found = measure.outside_support(of.tokens, of.tokens.opt, of.law.support, W)
        measured.append(found[0])
        predicted.append(of.flow(level))
    return Left(
        measured=np.array(measured),
        predicted=np.array(predicted),
        first=of.first_order(),
        bound=of.bound(),
    )


PROBLEMS: Mapping[str, Callable[[int], TokenSet]] = {
    "class means": lambda seed: tokens.class_mean_tokens(seed, n=6, T=5, d=15, noise=0.3),
    "Gaussian": lambda seed: tokens.gaussian_tokens(seed, n=6, T=6, d=36),
}


def study(name: str, seeds: Sequence[int], steps: int):
    """Every seed of PROBLEMS[name]: what is kept, and seed -> refusal."""
    return each_seed(seeds, lambda seed: left(pulls(PROBLEMS[name](seed)), steps), f"{name}, ")


def left_claims(found: Sequence[Left]) -> list[Claim]:
    """Size from the flow, its order in the step, and the first-order sum as a bound from above.

    Without a run none holds.
    """
    none = np.full(len(SHARES), np.nan)
    found = found or [Left(measured=none, predicted=none, first=np.nan, bound=np.nan)]
    off = np.array([one.measured / one.predicted - 1 for one in found])  # (runs, shares)
    worst = off[np.abs(off[:, -1]).argmax(), -1]
    text = f"outside the span: norm over the flow's, less 1, at {SHARES[-1]:g} of the longest step"
    order = np.median(np.abs(off[:, 0] / off[:, -1])) * SHARES[-1] / SHARES[0]
    said = "outside the span: how that grows from the shorter to the longer step, over the ratio"
    least = min(one.first / one.measured[-1] for one in found)
    above = "outside the span: first-order sum over the norm, least run"
    proved = "outside the span: the saturated flow's bound over the norm, least run"
    return [
        close("outside.flow", text + f", worst of {len(found)} runs", OURS, worst, 0.0, FLOW),
        close("outside.order", said + ", median", OURS, order, 1.0, ORDER),
        remarked(at_least("outside.first", above, OURS, least, 1.0), EARLY),
        at_least("outside.bound", proved, OURS, min(o.bound / o.measured[-1] for o in found), 1.0),
    ]


def any_step(one: Left) -> Left:
    """The flow is as far off at any step."""
    off = one.measured[-1] / one.predicted[-1]
    return replace(one, measured=one.predicted * off)


WORLDS: Mapping[str, Callable[[Left], Left]] = {
    # Pairs off the support do not feel what they left: the first-order sum is exact.
    "pulls without reaction": lambda o: replace(o, predicted=np.full_like(o.predicted, o.first)),
    "the step does not matter": any_step,
    "a bound fifty times lower": lambda one: replace(one, bound=one.bound / 50),
}
BOUND_WORLDS = {  # for runs in which it is a bound
    "first order without its main pair": lambda one: replace(one, first=one.first / 10)
}
