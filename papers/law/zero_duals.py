"""The law for tight pairs whose duals are zero ("idle" pairs), and the part of W
outside the span of the support.

As far as the margins of tight pairs are concerned, W = a W_mm + D log a + rest. Here D
is the element of smallest norm in the span of the tight A_m with <A_m, D> = 0 on the
support and <A_k, D> >= 1 on the idle pairs k. Let y >= 0 be the duals of D on the idle
pairs. If y_k > 0, then

    g_k - a_t = log a_t + log kappa_k - log y_k - mean + o(1).

This is proved if all y_k > 0 and steps are short (`notebooks/law_of_margins.md`).
Otherwise it is an ansatz, in which a pair with y_k = 0 has the slope <A_k, D> > 1 in
log a_t. Errors in the offsets of idle pairs decay like a_t^-rate, where the rate is the
least eigenvalue of Y^1/2 Q Y^1/2. Here Y = diag(y), and Q is the Gram matrix of the
idle pairs after the support's span is projected out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, nnls

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, model, tokens
from lib.dynamics import NGD, train
from lib.svm import token_svm
from papers.law import margin_law, margins
from papers.law.margin_law import from_duals, gram, require
from papers.law.tolerances import APART, SETTLED_IDLE, SMALLEST_DUAL, TIGHT
from papers.ours import claim
from papers.saturation import log_ratios, saturated_slopes

STEPS = (0.1, 0.02)  # step sizes, as shares of the longest step
# the largest absolute value of the logarithm of a multiplier that we try
FARTHEST = 1e6
# The reason why the first-order sum can be wrong.
EARLY = (
    "the sum knows small weights only: where little is left, first steps with "
    "even weights count"
)


def _second(Q: np.ndarray) -> np.ndarray:
    """Return the duals y >= 0 (idle,) of D on the idle pairs, which maximise 1^T y -
    y^T Q y / 2 for a positive definite Q.
    """
    lower = np.linalg.cholesky(Q)
    return nnls(lower.T, np.linalg.solve(lower, np.ones(len(Q))))[0]


class _ZeroDuals:
    """The law of one run with idle tight pairs, in minimal coordinates, for the
    exponential loss.

    The constructor raises PremiseFails with "zero duals" unless exactly `count` tight
    constraints have a zero dual, with "score gaps" if a tight token scores at least as
    high as the opt token, and with "second margin" if the slope of an idle pair without
    pull is too close to 1.
    """

    def __init__(self, data: TokenSet, count: int = 1) -> None:
        self.tokens = coordinates.minimal(data).tokens
        self.solution = solution = token_svm(self.tokens)
        beta = solution.duals[0].ravel()
        at_solution = solution.margins[0].ravel()
        on = beta > SMALLEST_DUAL * beta.max()
        spare = (at_solution - 1 <= TIGHT) & ~on
        # The idle pairs (k,), as indices into all n (T-1) pairs, and a mask (n (T-1),)
        # of the support and the idle pairs.
        self.pairs = np.flatnonzero(spare)
        self.tight = on | spare
        idle = self.pairs
        reason = f"{idle.size} tight constraints have a dual at zero; it needs {count}"
        require(idle.size == count, "zero duals", idle.size, reason)
        log_slopes = saturated_slopes(self.tokens)[0].ravel()
        reason = "a tight token scores at least the opt token"
        require(np.isfinite(log_slopes[self.tight]).all(), "score gaps", 0.0, reason)
        K = gram(self.tokens, masked_as_zero=True)[0]
        Q = _beyond_span(K, on, idle)
        self.duals = y = _second(Q)
        self.lengths = np.diag(Q)
        self.slopes = Q @ y
        active = y > 0
        slowest = self.slopes[~active].min(initial=np.inf)
        reason = (
            f"an idle pair without pull has the slope {slowest:.6f}, it needs "
            f"{1 + APART:g}"
        )
        require(slowest >= 1 + APART, "second margin", slowest, reason)
        rest = np.zeros(len(beta))
        rest[on], mean = log_ratios(log_slopes[on], beta[on])
        with np.errstate(divide="ignore"):
            rest[idle] = np.where(active, log_slopes[idle] - np.log(y) - mean, np.nan)
        self.constants = rest[idle]  # offsets minus log a_t, NaN where y_k = 0
        self.rest = rest[self.tight]
        self.K = K[np.ix_(self.tight, self.tight)]
        root = np.sqrt(y[active])
        pushed = root[:, None] * Q[np.ix_(active, active)] * root
        self.rate = float(np.linalg.eigvalsh(pushed)[0])
        law = from_duals(
            K[None], (beta * on)[None], at_solution[None], log_slopes[None]
        )
        self.step = float(min(law.longest_step()[0] / 2, law.norm[0]))

    def residual(self, level: np.ndarray) -> np.ndarray:
        """Return ||rho_0 + D log a|| at a = `level` (k,), with shape (k,).

        This is the predicted norm of the part of W that is in the span of the tight
        pairs and orthogonal to W_mm. It is NaN if an idle pair has y_k = 0, because the
        offset of such a pair is not known.
        """
        drift = np.zeros(len(self.rest))
        drift[np.isin(np.flatnonzero(self.tight), self.pairs)] = self.slopes
        offsets = self.rest + np.multiply.outer(np.log(level), drift)
        return np.sqrt(
            np.einsum("km,mk->k", offsets, np.linalg.solve(self.K, offsets.T))
        )


def _tightened(data: TokenSet, count: int = 1) -> TokenSet:
    """Return the data of one run, changed so that `count` slack constraints become
    tight.

    These are the constraints with the least slack. Their tokens are moved along W_mm z.
    The function raises PremiseFails with "slack constraints" if there are fewer slack
    constraints than `count`.
    """
    solution = token_svm(data)
    slack = np.where(solution.support[0], np.inf, solution.margins[0] - 1)
    available = np.isfinite(slack).sum()
    reason = f"{available} constraints are slack; it needs {count}"
    require(available >= count, "slack constraints", available, reason)

    # The token x of a constraint moves along W_mm z_i until <x_opt - x, W_mm z_i> = 1.
    X = data.X.copy()
    token_of_pair = coordinates.others(data.opt, data.shape[2])[0]
    least_slack_first = np.argsort(slack, axis=None)
    for m in least_slack_first[:count]:
        i, pair = np.unravel_index(m, slack.shape)
        token = token_of_pair[i, pair]
        direction = solution.W[0] @ data.z[0, i]
        X[0, i, token] += slack[i, pair] * direction / (direction @ direction)
    return replace(data, X=X)


@dataclass(frozen=True, kw_only=True)
class _ZeroDualsRun:
    """A run with its law, at late records (k,)."""

    law: _ZeroDuals
    level: np.ndarray  # a_t
    offsets: np.ndarray  # (k, idle)
    # The norm of the part of W_t that is in the span of the tight pairs and orthogonal
    # to W_mm.
    residual: np.ndarray


def _run(law: Any, steps: int, decades: int = 1, step: float | None = None):
    """Train by NGD from zero and compare with the law.

    `step` defaults to `law.step`. The function returns a _ZeroDualsRun with records
    from the last `decades` decades of the `steps` iterations. It raises PremiseFails if
    the run has not selected its opt tokens, or if the offsets of the idle pairs have
    not converged.
    """
    late = np.unique(np.geomspace(steps / 10**decades, steps, 9).round().astype(int))
    data = law.tokens
    V = law.solution.W
    history = train(data, NGD(step or law.step), steps, [0, *late])
    margins.check_selection(0, margins.known(history.margins)[0, -1])
    W = [history.weights(k + 1) for k in range(len(late))]  # Record 0 is the start.

    # The margin level a_t = <W_t, W_mm>/||W_mm||^2, and whether the offsets of idle
    # pairs have converged.
    along = np.array([margins.along_and_off(w, V)[0][0] for w in W])
    level = along / law.solution.norm[0]
    undecayed = level[-1] ** -law.rate
    reason = (
        f"wrong offsets of idle pairs have decayed to {undecayed:.2g}, "
        f"they need {SETTLED_IDLE:g}"
    )
    require(undecayed <= SETTLED_IDLE, "idle pairs settled", undecayed, reason)

    # The law predicts the offsets of the idle pairs, and the part of W_t orthogonal to
    # W_mm.
    idle_margins = history.margins[0, 1:].reshape(len(late), -1)[:, law.pairs]
    tight = law.tight.reshape(law.solution.duals.shape)
    residuals = [margins.residual(data, data.opt, tight, w, V)[0] for w in W]
    return _ZeroDualsRun(
        law=law,
        level=level,
        offsets=idle_margins - level[:, None],
        residual=np.array(residuals),
    )


def study(
    seeds: Sequence[int], count: int, steps: int, step: float | None = None
) -> tuple[list, dict[int, str]]:
    """Train on one problem per seed, with `count` tight pairs whose duals are zero.

    `step` is NGD's step size. By default it is half of the longest one with which
    offsets converge, but at most ||W_mm||. The function returns the runs that meet the
    premises of the law, and for each excluded seed the reason.
    """

    def study_seed(seed: int):
        if count == 1:
            data = tokens.unit_tokens(seed, n=6, T=8, d=10)
            decades = 2
        else:
            data = PROBLEMS["Gaussian"](seed)
            decades = 1
        return _run(_ZeroDuals(_tightened(data, count), count), steps, decades, step)

    where = ""
    if count > 1:
        where = f"{count} idle pairs, "
    return margins.each_seed(seeds, study_seed, where)


def _last_offsets(r: Any):
    return r.offsets[-1] - np.log(r.level[-1]) - r.law.constants


def zero_claims(runs: Sequence[_ZeroDualsRun]) -> list[Claim]:
    """Check the offset of a single idle pair at the end, and the slope of this offset
    in log a_t over the last five records.
    """
    slopes = [np.polyfit(np.log(r.level[-5:]), r.offsets[-5:], 1)[0] for r in runs]
    offsets = [_last_offsets(r) for r in runs]
    return [claim("zero.offset", offsets, "", len(runs)), claim("zero.slope", slopes)]


def zeros_claims(runs: Sequence[_ZeroDualsRun]) -> list[Claim]:
    """Check, for each number of idle pairs, the offsets, their slopes in log a_t, and
    the residual.

    Each claim is about the worst run.
    """
    rows = []
    for count in dict.fromkeys(len(r.law.pairs) for r in runs):
        alike = [r for r in runs if len(r.law.pairs) == count]
        slopes = [
            np.polyfit(np.log(r.level), r.offsets, 1)[0] - r.law.slopes for r in alike
        ]
        size = [r.residual[-1] / r.law.residual(r.level[-1:]) - 1 for r in alike]
        parts = {
            "offset": [_last_offsets(r) for r in alike],
            "slope": slopes,
            "residual": size,
        }
        for name, values in parts.items():
            values = np.concatenate(values)
            # The value of a pair with y_k = 0 is NaN.
            values = values[~np.isnan(values)]
            rows.append(claim(f"zeros.{name}", values, f"{count}", len(alike)))
    return rows


class _Pulls:
    """The pairs (m,) of one run that ends at its opt tokens, in minimal coordinates.

    The arrays over pairs are the margins at W_mm (`margins`), log kappa (`log_kappa`),
    the duals (`beta`), and whether the dual is positive (`on_support`). `K` (m, m) is
    the Gram matrix of the features A_m. `Q` is the Gram matrix of the parts of these
    features outside the support's span, for the pairs outside the support. `opt_scores`
    (n,) and `scores` (n, T-1) are the scores of the opt token and of the other tokens.

    These arrays predict the norm of the part of W outside the support's span. This norm
    is sqrt(w^T Q w), where w_m is the sum of all pulls of a pair m outside the support.
    Steepest descent with short steps has dw/da = ||W_mm||^2 c(K w) / (c . margins of
    W_mm), with c the pulls. To first order w_m = kappa_m e^{-mean - <A_m,
    rho_perp>}/eps_m, where eps_m is the excess of the margin over 1. The bound is
    proved in `notebooks/where_the_law_bends.md`, section 5.

    Masked tokens have no pair. The constructor raises PremiseFails in the cases in
    which `margin_law` does, and with "partial support" or "score gaps".
    """

    def __init__(self, data: TokenSet) -> None:
        self.tokens = small = coordinates.minimal(data).tokens
        solution = token_svm(small)
        self.W_mm = solution.W
        self.law = margin_law.margin_law(small, solution)
        self.shown = shown = coordinates.shown_pairs(small, small.opt)[0]  # (n, T-1)
        self.margins = solution.margins[0][shown]
        self.log_kappa = saturated_slopes(small)[0][shown]
        self.on_support = self.law.support[0][shown]
        self.beta = self.law.duals[0][shown]
        reason = "every constraint carries W_mm: nothing is left outside"
        require(not self.on_support.all(), "partial support", 0.0, reason)
        reason = "another token scores at least the opt one's"
        require(np.isfinite(self.log_kappa).all(), "score gaps", 0.0, reason)
        K = gram(small, masked_as_zero=True)[0]
        self.K = K[np.ix_(shown.ravel(), shown.ravel())]
        self.Q = _beyond_span(self.K, self.on_support, ~self.on_support)
        scores = model.scores(small, small.u)[0]
        rest = coordinates.others(small.opt, scores.shape[-1])[0]
        # (n, T-1); a masked token has weight zero, so that we may use any finite score
        self.scores = np.where(shown, np.take_along_axis(scores, rest, -1), 0.0)
        self.opt_scores = np.take_along_axis(scores, small.opt[0][:, None], -1)[:, 0]

    def pull(self, g: np.ndarray) -> np.ndarray:
        """Return the pulls c (m,) in -n grad L = sum_m c_m A_m at margins g (m,).

        The pulls are multiplied by e^{least margin}, so that they do not underflow.
        """
        margins = np.full(self.scores.shape, np.inf)  # the margin of a masked token
        margins[self.shown] = g
        rest = np.exp(-margins).sum(1)
        f = (self.opt_scores + (np.exp(-margins) * self.scores).sum(1)) / (1 + rest)
        weight = np.exp(-f) / (1 + rest)
        relative = np.exp(margins.min() - margins)
        pulled = weight[:, None] * relative * (f[:, None] - self.scores)
        return pulled[self.shown]

    def size(self, w: np.ndarray) -> float:
        """Return the norm of the part of W outside the support's span, given the sums w
        (m,) of all pulls.
        """
        rest = w[~self.on_support]
        return float(np.sqrt(max(rest @ self.Q @ rest, 0.0)))

    def flow(self, level: float) -> float:
        """Return the norm of the part of W outside the support's span at the margin
        level `level`, under gradient flow from W = 0.
        """
        squared_norm = self.law.norm[0] ** 2

        def rate(_: Any, w: np.ndarray):
            c = self.pull(self.K @ w)
            return c * squared_norm / (c @ self.margins)

        zero = np.zeros(len(self.on_support))
        path = solve_ivp(
            rate, (0.0, level), zero, method="LSODA", rtol=1e-8, atol=1e-10
        )
        return self.size(path.y[:, -1])

    def first_order(self) -> float:
        """Return the limit of the norm of the part of W outside the support's span, to
        first order in the pulls of pairs outside the support.
        """
        _, mean = log_ratios(
            self.log_kappa[self.on_support], self.beta[self.on_support]
        )
        rho = self.K @ self.law.coefficients[0][self.shown]
        w = np.zeros(len(self.on_support))
        w[~self.on_support] = (
            np.exp(self.log_kappa - mean - rho)[~self.on_support]
            / (self.margins - 1)[~self.on_support]
        )
        return self.size(w)


def _lowest(
    direction: np.ndarray, beta: np.ndarray, slopes: np.ndarray, total: float
) -> float:
    """Return the smallest <direction, o> over the offsets o (m,) that satisfy two
    constraints.

    The constraints are <beta, o> = 0 and sum_k e^{slopes_k - o_k} <= e^total. All
    vectors have the shape (m,), and beta is positive. We search for the Lagrange
    multiplier that makes <beta, o> zero. The result is -inf if no multiplier whose
    logarithm lies between -FARTHEST and FARTHEST does so. For a single pair, o = 0 is
    the only offset, and the result is 0.
    """
    first = (direction / beta).argmin()
    spread = direction - (direction / beta)[first] * beta
    spread[first] = 0.0  # The exact value is zero; this removes rounding errors.
    with np.errstate(divide="ignore"):
        log_spread = np.log(spread.clip(0))

    def offsets(depth: Any):
        shares = np.logaddexp(log_spread, depth + np.log(beta))
        return slopes - total - shares + np.logaddexp.reduce(shares)

    def balance(depth: Any):
        return beta @ offsets(depth)

    if len(beta) == 1:
        return 0.0
    if not balance(-FARTHEST) > 0 >= balance(FARTHEST):
        return -np.inf
    return float(direction @ offsets(brentq(balance, -FARTHEST, FARTHEST)))


def _bound(
    K: np.ndarray,
    on: np.ndarray,
    beta: np.ndarray,
    margins: np.ndarray,
    slopes: np.ndarray,
) -> float:
    """Bound the norm of omega, the part of W outside the support's span.

    The bound is ||omega||^2 <= e^{total - mean} sum_m h(Y_m)/eps_m, over pairs m
    outside the support, where h(Y) = Y^2 + 1 if Y > 1, else 2 e^{Y-1}, and eps_m is the
    margin minus 1. Here `mean` is the mean of log(kappa/beta) on the support, weighted
    by beta, and e^total is the sum of all kappa. Y_m is log kappa_m - total, plus the
    largest amount by which the offsets on the support can lower the margin m. `K` (m,
    m) is the Gram matrix of all pairs, `on` (m,) is True on the support, and `beta`,
    `margins` and `slopes` (the log kappa) have the shape (m,). The function returns the
    bound on ||omega||.
    """
    _, mean = log_ratios(slopes[on], beta[on])
    total = np.logaddexp.reduce(slopes)
    inside = np.linalg.solve(K[np.ix_(on, on)], K[np.ix_(on, ~on)]).T
    farthest = np.array([-_lowest(row, beta[on], slopes[on], total) for row in inside])
    Y = slopes[~on] + farthest - total
    terms = np.where(Y > 1, Y**2 + 1, 2 * np.exp(np.minimum(Y, 1) - 1))
    return float(np.sqrt(np.exp(total - mean) * (terms / (margins[~on] - 1)).sum()))


def _beyond_span(K: np.ndarray, on: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the Gram matrix of the features of `pairs`, from which their projections
    onto the span of the features of the pairs `on` are subtracted.

    `K` (m, m) is the Gram matrix of all pairs, and `on` (m,) a mask. `pairs` are
    indices or a mask.
    """
    cross = K[np.ix_(pairs, on)]
    return K[np.ix_(pairs, pairs)] - cross @ np.linalg.solve(K[np.ix_(on, on)], cross.T)


class Left(NamedTuple):
    """The norm of the part of W outside the support's span, after runs with each of the
    step sizes `STEPS` (k,).
    """

    measured: np.ndarray
    predicted: np.ndarray  # predicted by the flow, at the level that each run reached
    first: float  # the first-order sum
    bound: float  # the bound that we prove for the saturated flow


def _left(problem: Any, steps: Any):
    """Train by NGD with each of the step sizes `STEPS` until all runs have about the
    same level, and return Left.

    `problem` is a _Pulls, and `steps` is the number of iterations with the shortest
    step. The function raises PremiseFails if a run has not selected its opt tokens.
    """
    measured = []
    predicted = []
    data = problem.tokens
    for share in STEPS:
        count = round(steps * min(STEPS) / share)
        rule = NGD(float(share * problem.law.longest_step()[0]))
        history = train(data, rule, count, [0, count])
        margins.check_selection(0, margins.known(history.margins)[0, -1])
        W = history.weights(1)
        level = margins.along_and_off(W, problem.W_mm)[0][0] / problem.law.norm[0]
        measured.append(
            margins.outside_support(data, data.opt, problem.law.support, W)[0]
        )
        predicted.append(problem.flow(level))
    bound = _bound(
        problem.K, problem.on_support, problem.beta, problem.margins, problem.log_kappa
    )
    return Left(
        measured=np.array(measured),
        predicted=np.array(predicted),
        first=problem.first_order(),
        bound=bound,
    )


PROBLEMS = {
    "class means": lambda seed: tokens.class_mean_tokens(
        seed, n=6, T=5, d=15, noise=0.3
    ),
    "Gaussian": lambda seed: tokens.gaussian_tokens(seed, n=6, T=6, d=36),
}


def left_study(
    name: str, seeds: Sequence[int], steps: int
) -> tuple[list[Left], dict[int, str]]:
    """Measure every seed of PROBLEMS[name].

    The function returns the results, and for each excluded seed the reason.
    """

    def study_seed(seed: int):
        return _left(_Pulls(PROBLEMS[name](seed)), steps)

    return margins.each_seed(seeds, study_seed, f"{name}, ")


def left_claims(runs: Sequence[Left]) -> list[Claim]:
    """Compare the norm of the part of W outside the support's span with the flow, the
    first-order sum and the bound.

    The deviation from the flow must be of first order in the step size. The first-order
    sum and the bound must be larger than the measured norm.
    """
    none = np.full(len(STEPS), np.nan)
    runs = runs or [Left(measured=none, predicted=none, first=np.nan, bound=np.nan)]
    off = np.array([run.measured / run.predicted - 1 for run in runs])
    order = np.median(np.abs(off[:, 0] / off[:, -1])) * STEPS[-1] / STEPS[0]
    return [
        claim("outside.flow", off[:, -1], "", f"{STEPS[-1]:g}", len(runs)),
        claim("outside.order", order),
        claim("outside.first", [r.first / r.measured[-1] for r in runs], why=EARLY),
        claim("outside.bound", [r.bound / r.measured[-1] for r in runs]),
    ]
