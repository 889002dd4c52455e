"""What transients leave outside the support's span, from tokens and head, without a run.

sqrt(w^T Q w), w_m what pair m off the support has pulled in all and Q the Gram matrix of these A_m
less the span. Steepest descent with short steps has, c the pull, K the Gram matrix,

    dw/da = ||W_mm||^2 c(K w) / (c . margins of W_mm),    a = <W, W_mm>/||W_mm||^2.

To first order w_m = kappa_m e^{-mean - <A_m, rho_perp>}/eps_m, eps_m the excess of pair m;
`notebooks/where_the_law_bends.md`, section 5, proves the bound.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from lib.attention import coordinates, model, tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import ngd
from lib.svm.max_margin import token_svm
from papers.beyond import margins
from papers.beyond.margin_law import gram, log_ratios, margin_law, require, saturated_slopes
from papers.beyond.tolerances import above, near

STEPS = (0.1, 0.02)  # as shares of the longest step
FARTHEST = 1e6  # log of the largest and the smallest multiplier that is tried
EARLY = (
    "the sum knows small weights only: where little is left, first steps with even weights count"
)


class _Pulls:
    """The pairs m of one run that ends in its opt tokens, in one axis (m,), minimal coordinates.

    Raises PremiseFails as `margin_law` does; "partial support" where all constraints carry W_mm;
    "score gaps" where another token scores at least the opt one.
    """

    def __init__(self, data: TokenSet):
        self.tokens = small = coordinates.minimal(data).tokens
        solution = token_svm(small)
        self.W_mm = solution.W
        self.margins = solution.margins[0].ravel()
        self.law = margin_law(small, solution)
        self.slopes = saturated_slopes(small)[0].ravel()
        self.on = self.law.support[0].ravel()
        self.beta = self.law.duals[0].ravel()
        reason = "every constraint carries W_mm: nothing is left outside"
        require(not self.on.all(), "partial support", 0.0, reason)
        reason = "another token scores at least the opt one's"
        require(np.isfinite(self.slopes).all(), "score gaps", 0.0, reason)
        self.K = gram(small)[0]
        self.square = beyond_span(self.K, self.on, ~self.on)
        scores = model.scores(small, small.u)[0]
        rest = coordinates.others(small.opt, scores.shape[-1])[0]
        self.scores = np.take_along_axis(scores, rest, -1)  # (n, T-1) of the other tokens
        self.best = np.take_along_axis(scores, small.opt[0][:, None], -1)[:, 0]  # and the opt ones

    def pull(self, g: np.ndarray) -> np.ndarray:
        """-n grad L = sum c_m A_m at margins g (m,): c times e^{least margin}, exponential loss."""
        margins = g.reshape(self.scores.shape)
        rest = np.exp(-margins).sum(1)
        f = (self.best + (np.exp(-margins) * self.scores).sum(1)) / (1 + rest)
        weight = np.exp(-f) / (1 + rest)
        relative = np.exp(margins.min() - margins)
        return (weight[:, None] * relative * (f[:, None] - self.scores)).ravel()

    def size(self, w: np.ndarray) -> float:
        """The norm of what pulls w (m,) leave outside the support's span."""
        rest = w[~self.on]
        return float(np.sqrt(max(rest @ self.square @ rest, 0.0)))

    def flow(self, level: float) -> float:
        """That size once the margin level is `level`, by the flow from W = 0."""
        square = self.law.norm[0] ** 2

        def rate(_, w):
            c = self.pull(self.K @ w)
            return c * square / (c @ self.margins)

        zero = np.zeros(len(self.on))
        path = solve_ivp(rate, (0.0, level), zero, method="LSODA", rtol=1e-8, atol=1e-10)
        return self.size(path.y[:, -1])

    def first_order(self) -> float:
        """That size at the end of time, to first order in the pulls off the support."""
        _, mean = log_ratios(self.slopes[self.on], self.beta[self.on])
        rho = self.K @ self.law.coefficients[0].ravel()
        w = np.zeros(len(self.on))
        w[~self.on] = np.exp(self.slopes - mean - rho)[~self.on] / (self.margins - 1)[~self.on]
        return self.size(w)


def _lowest(direction, beta, slopes, total):
    """min <direction, o>, <beta, o> = 0, sum e^{slopes - o} <= e^total, all (k,); -inf for none.

    The shares e^{slopes - o} / e^total are proportional to direction - nu beta > 0.
    """
    first = (direction / beta).argmin()
    spread = direction - (direction / beta)[first] * beta
    spread[first] = 0.0  # without its rounding
    with np.errstate(divide="ignore"):
        log_spread = np.log(spread.clip(0))

    def offsets(depth):
        shares = np.logaddexp(log_spread, depth + np.log(beta))
        return slopes - total - shares + np.logaddexp.reduce(shares)

    def balance(depth):
        return beta @ offsets(depth)

    if len(beta) == 1:
        return 0.0
    if not balance(-FARTHEST) > 0 >= balance(FARTHEST):
        return -np.inf
    return float(direction @ offsets(brentq(balance, -FARTHEST, FARTHEST)))


def _bound(K, on, beta, margins, slopes):
    """||omega||^2 <= e^D sum h(Y_m)/eps_m, h(Y) = Y^2 + 1 where Y > 1, and 2 e^{Y-1} elsewhere.

    Y_m = log kappa_m + R_m - log sum kappa, D that logarithm less mean, R_m the largest -<A_m, .>.
    """
    _, mean = log_ratios(slopes[on], beta[on])
    total = np.logaddexp.reduce(slopes)
    inside = np.linalg.solve(K[np.ix_(on, on)], K[np.ix_(on, ~on)]).T  # (off, on)
    farthest = np.array([-_lowest(row, beta[on], slopes[on], total) for row in inside])
    Y = slopes[~on] + farthest - total
    terms = np.where(Y > 1, Y**2 + 1, 2 * np.exp(np.minimum(Y, 1) - 1))
    return float(np.sqrt(np.exp(total - mean) * (terms / (margins[~on] - 1)).sum()))


def beyond_span(K: np.ndarray, on: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Gram matrix of the A_m of `pairs` less the span of those in `on`, from that of all, K."""
    cross = K[np.ix_(pairs, on)]
    return K[np.ix_(pairs, pairs)] - cross @ np.linalg.solve(K[np.ix_(on, on)], cross.T)


class Left(NamedTuple):
    """One problem: the norm outside the span after runs with STEPS of the longest step, (k,)."""

    measured: np.ndarray
    predicted: np.ndarray  # of the flow, at the level where each run stood
    first: float  # the first-order sum
    bound: float  # the one that is proved for the saturated flow


def _left(problem, steps):
    """NGD from zero with STEPS of the longest step, all to one level; `steps` of the shortest."""
    measured, predicted, data = [], [], problem.tokens
    for share in STEPS:
        count = round(steps * min(STEPS) / share)
        rule = ngd(float(share * problem.law.longest_step()[0]))
        history = train(data, rule, count, [0, count])
        margins.check_selection(0, history.margins[0, -1])
        W = history.weights(1)
        level = margins.along_and_off(W, problem.W_mm)[0][0] / problem.law.norm[0]
        measured.append(margins.outside_support(data, data.opt, problem.law.support, W)[0])
        predicted.append(problem.flow(level))
    bound = _bound(problem.K, problem.on, problem.beta, problem.margins, problem.slopes)
    return Left(np.array(measured), np.array(predicted), problem.first_order(), bound)


PROBLEMS = {
    "class means": lambda seed: tokens.class_mean_tokens(seed, n=6, T=5, d=15, noise=0.3),
    "Gaussian": lambda seed: tokens.gaussian_tokens(seed, n=6, T=6, d=36),
}


def study(name: str, seeds: Sequence[int], steps: int):
    """Every seed of PROBLEMS[name]: the runs that are kept, and seed -> refusal."""
    study_seed = lambda seed: _left(_Pulls(PROBLEMS[name](seed)), steps)
    return margins.each_seed(seeds, study_seed, f"{name}, ")


def left_claims(runs: Sequence[Left]) -> list[Claim]:
    """Size from the flow, its order in the step, and the first-order sum as a bound from above."""
    none = np.full(len(STEPS), np.nan)
    runs = runs or [Left(none, none, np.nan, np.nan)]
    off = np.array([run.measured / run.predicted - 1 for run in runs])  # (runs, STEPS)
    flow = f"norm over the flow's, less 1, at {STEPS[-1]:g} of the longest step"
    order = np.median(np.abs(off[:, 0] / off[:, -1])) * STEPS[-1] / STEPS[0]
    growth = "how that grows from the shorter to the longer step, over the ratio, median"
    first = np.array([run.first / run.measured[-1] for run in runs])
    bound = np.array([run.bound / run.measured[-1] for run in runs])
    text = "outside the span: {}".format
    proved = text("the saturated flow's bound over the norm, least run")
    return [
        near("outside.flow", text(f"{flow}, worst of {len(runs)} runs"), off[:, -1]),
        near("outside.order", text(growth), order, 1.0),
        above("outside.first", text("first-order sum over the norm, least run"), first, why=EARLY),
        above("outside.bound", proved, bound),
    ]


WORLDS = {
    # pairs off the support do not feel what they left: the first-order sum is exact
    "pulls without reaction": lambda run: run._replace(predicted=np.full(len(STEPS), run.first)),
    # the flow is as far off at any step
    "the step does not matter": lambda run: run._replace(
        measured=run.predicted * (run.measured[-1] / run.predicted[-1])
    ),
    "a bound fifty times lower": lambda run: run._replace(bound=run.bound / 50),
}
# of runs in which the sum is a bound
BOUND_WORLDS = {"first order without its main pair": lambda run: run._replace(first=run.first / 10)}
