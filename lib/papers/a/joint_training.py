"""Statements of paper A (2402.05738), Section 4, as checked claims: head u and attention W trained
together by Eq. 13.

gamma* = 1/||u_mm|| is the largest margin of a unit head. B is the largest norm of a token or query,
eta the step size; Eq. 13 steps by eta (t+1)^-2/3. Constants that the paper's text lost are ours and
marked so; where several runs enter, a claim speaks of the worst of them.
"""

from dataclasses import replace

import numpy as np

from lib import attention
from lib.attention.coordinates import Minimal
from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.dynamics.history import History
from lib.papers.a.fixed_head import bound_on_tokens, fitted_slope
from lib.svm.max_margin import MaxMargin


def scores_along(history: History, tokens: TokenSet) -> np.ndarray:
    """gamma_{i,t} = y_i u^T x_{i,t} at every record, (runs, k, n, T); tokens in minimal coordinates."""
    return np.stack(
        [attention.scores(tokens, history.head(k)) for k in range(history.iterations.size)], 1
    )


def log_losses(history: History, tokens: TokenSet) -> np.ndarray:
    """log of each sample's loss, -f_i = sum_t p_t (gamma_opt - gamma_t) - gamma_opt, (runs, k, n)."""
    opt_score = np.take_along_axis(scores_along(history, tokens), tokens.opt[:, None, :, None], -1)[
        ..., 0
    ]
    log_odds = -history.margins
    log_weights = log_odds - np.logaddexp(0.0, np.logaddexp.reduce(log_odds, -1))[..., None]
    return (np.exp(log_weights) * history.score_gaps).sum(-1) - opt_score


def loss_ratio(history: History, tokens: TokenSet) -> np.ndarray:
    """max_{i,j} l_i / l_j over samples, (runs, k)."""
    return np.exp(np.ptp(log_losses(history, tokens), axis=-1))


def head_margin(history: History, tokens: TokenSet, head: MaxMargin) -> np.ndarray:
    """min_i y_i u_t^T x_{i,opt} / (||u_t|| gamma*), (runs, k); NaN where u_t = 0."""
    opt_score = np.take_along_axis(scores_along(history, tokens), tokens.opt[:, None, :, None], -1)[
        ..., 0
    ]
    size = np.where(history.head_norm > 0, history.head_norm, np.nan)
    return opt_score.min(-1) / size * head.norm[:, None]


def linearity(history: History, values: np.ndarray, power: float, since: float) -> np.ndarray:
    """R^2 of the straight line fitted to `values` (runs, k) against t^power, over t >= since; (runs,)."""
    late = history.iterations >= since
    x, y = history.iterations[late] ** power, values[:, late]
    slope = fitted_slope(x, y, -np.inf)
    residual = y - y.mean(1, keepdims=True) - slope[:, None] * (x - x.mean())
    return 1 - residual.var(1) / y.var(1)


def growth(
    history: History,
    rule: str,
    power: float,
    since: float,
    source="paper A, Theorems 2, 3 and Lemma 12",
):
    """-log L, ||W|| and ||u|| are linear in t^power (R^2 > 0.99), with exponents near it; four claims."""
    series = {"-log L": -history.log_gap, "||W||": history.norm, "||u||": history.head_norm}
    found = [
        at_least(f"linear.{name}.{rule}", f"{rule}: R² of {name} against t^{power:.3g}", source,
                 linearity(history, values, power, since).min(), 0.99)
        for name, values in series.items()
    ]  # fmt: skip
    late = history.iterations >= since
    log_t = np.log(history.iterations[late])
    own = np.concatenate(
        [fitted_slope(log_t, np.log(values[:, late]), -np.inf) for values in series.values()]
    )
    worst = own[np.abs(own - power).argmax()]
    statement = f"{rule}: exponent in t of the three, the one furthest off"
    return [*found, close(f"exponent.{rule}", statement, source + " (ours)", worst, power, 0.05)]


def theorem2(history: History, step_size: float, head: MaxMargin, since: float) -> list[Claim]:
    """L_t <= L_1 exp(-3 c gamma* eta (t^{1/3} - 1)); asymptotically log L falls by 3 gamma* eta per
    unit of t^{1/3}.

    c = 1/4 (our constant). The sharp slope (ours): near saturation -log L = gamma* ||u|| and ||u||
    = 3 eta t^{1/3}.
    """
    later, unit = history.iterations > 1, 3 * step_size / head.norm
    root = np.cbrt(history.iterations[later])
    first = history.log_gap[:, history.iterations == 1]
    smallest = ((first - history.log_gap[:, later]) / (unit[:, None] * (root - 1))).min()
    slope = -fitted_slope(np.cbrt(history.iterations), history.log_gap, np.cbrt(since)) / unit
    worst = slope[np.abs(slope - 1).argmax()]
    return [
        at_least("theorem2", "Eq. 13: smallest (log L_1 - log L_t) / (3 gamma* eta (t^1/3 - 1))",
                 "paper A, Theorem 2 (our constant)", smallest, 0.25),
        close("theorem2.sharp", "Eq. 13: slope of log L in t^1/3, over -3 gamma* eta",
              "derived from paper A, Theorem 2 (ours)", worst, 1.0, 0.1),
    ]  # fmt: skip


def theorem3(
    history: History,
    step_size: float,
    target: str,
    tokens: TokenSet,
    solution: MaxMargin,
    since: float,
):
    """||W_t|| grows like t^{1/3}, and the direction error falls at least like 1/log t; two claims.

    ||W_t|| >= (1/(2 B^2 ||W_mm||)) sum_{0 < s < t} eta (s+1)^-2/3, as in Lemma 7 (our constant; the
    step s = 0 is zero). The rate: error x log t after iteration `since` never exceeds its value
    there (our constant).
    """
    steps = np.concatenate(
        [[0.0, 0.0], step_size * np.arange(2, history.iterations[-1] + 1) ** (-2 / 3)]
    ).cumsum()
    lower = steps[history.iterations] / (
        2 * (bound_on_tokens(tokens) ** 2 * solution.norm)[:, None]
    )
    moved, late = history.iterations > 1, history.iterations >= since
    scaled = history.direction_error[target][:, late] * np.log(history.iterations[late])
    source, start = "paper A, Theorem 3 (our constant)", history.iterations[late][0]
    return [
        at_least("theorem3.norm", "Eq. 13: smallest ||W_t|| over its lower bound", source,
                 (history.norm / np.where(moved, lower, 1.0))[:, moved].min(), 1.0),
        at_most("theorem3.rate", f"Eq. 13: largest error x log t, over that at t = {start}",
                source, (scaled[:, 1:] / scaled[:, :1]).max(), 1.0),
    ]  # fmt: skip


def theorem4(history: History, tokens: TokenSet, head: MaxMargin, since: float) -> Claim:
    """min_i y_i u_t^T x_{i,opt} / ||u_t|| is at least gamma*/4 for t >= since (our constant)."""
    smallest = head_margin(history, tokens, head)[:, history.iterations >= since].min()
    statement = "Eq. 13: smallest margin of u_t over gamma*"
    return at_least("theorem4", statement, "paper A, Theorem 4 (our constant)", smallest, 0.25)


def theorem10(history: History, tokens: TokenSet, head: MaxMargin, since: float) -> Claim:
    """The margin's shortfall 1 - margin/gamma* falls at least like t^{-1/3} (our reading), for t >= since."""
    later = history.iterations >= since
    log_short = np.log1p(-head_margin(history, tokens, head)[:, later])
    worst = fitted_slope(np.log(history.iterations[later]), log_short, -np.inf).max()
    statement = "Eq. 13: exponent in t of 1 - margin/gamma*"
    return at_most("theorem10", statement, "paper A, Theorem 10 (our constant)", worst, -1 / 3)


def remark3(history: History, name: str, decay: float, since: float) -> Claim:
    """With steps (t+1)^-p, -log L grows like t^{1-p}, for attention as for linear predictors."""
    late = history.iterations >= since
    own = fitted_slope(np.log(history.iterations[late]), np.log(-history.log_gap[:, late]), -np.inf)
    worst = own[np.abs(own - (1 - decay)).argmax()]
    statement = f"{name}: exponent in t of -log L, steps (t+1)^-{decay:.3g}"
    return close(
        f"remark3.{name}.{decay:.3g}", statement, "paper A, Remark 3", worst, 1 - decay, 0.05
    )


def linear_predictor(problem: Minimal) -> Minimal:
    """The opt tokens alone, each twice: W never moves and f_i = y_i u^T x_{i,opt} is linear."""
    tokens = problem.tokens
    twice = np.repeat(
        np.take_along_axis(tokens.X, tokens.opt[..., None, None], 2), 2, 2
    )  # (runs, n, 2, r)
    return replace(
        problem, tokens=TokenSet(twice, tokens.y, tokens.z, tokens.u, np.zeros_like(tokens.opt))
    )


def lemma12(history: History, step_size: float) -> Claim:
    """||W_t||, ||u_t|| <= 3 eta t^{1/3}."""
    later = history.iterations > 0
    bound = 3 * step_size * np.cbrt(history.iterations[later])
    largest = (np.maximum(history.norm, history.head_norm)[:, later] / bound).max()
    return at_most(
        "lemma12",
        "Eq. 13: largest ||W_t||, ||u_t|| over 3 eta t^1/3",
        "paper A, Lemma 12",
        largest,
        1.0,
    )


def lemma13(
    history: History, tokens: TokenSet, step_size: float, rule: str = "Eq. 13"
) -> list[Claim]:
    """For t >= 1: growing score gaps, bounded loss ratio, non-decreasing p_opt that is at least 1/2
    (T = 2).

    Gap >= c t^{1/3}, c an eighth of what the first step gives on orthogonal tokens, eta (p s - r
    q)/sqrt(n (p^2 s + r^2 q)) with p = 1/T, r = 1 - p, and s and q the mean square norms of opt and
    other tokens; loss ratio at most 4 (our constants). For T > 2 the start, and so the bound on
    p_opt, is 1/T.
    """
    _, n, T, _ = tokens.shape
    square = np.einsum("rntd,rntd->rnt", tokens.X, tokens.X)
    s = np.take_along_axis(square, tokens.opt[..., None], -1).mean((1, 2))
    q = (square.sum((1, 2)) - n * s) / (n * (T - 1))
    p, r = 1 / T, 1 - 1 / T
    smallest = step_size / 8 * (p * s - r * q) / np.sqrt(n * (p**2 * s + r**2 * q))  # (runs,)
    later = history.iterations >= 1
    gap = history.score_gaps.min((2, 3))[:, later] / np.cbrt(history.iterations[later])
    p_opt = -np.expm1(history.log_miss)
    source = "paper A, Lemma 13"
    return [
        at_least("lemma13.gap", f"{rule}: smallest score gap over c t^1/3", source + " (our constant)",
                 (gap / smallest[:, None]).min(), 1.0),
        at_most("lemma13.ratio", f"{rule}: largest ratio of two samples' losses", source + " (our constant)",
                loss_ratio(history, tokens).max(), 4.0),
        at_least("lemma13.monotone", f"{rule}: smallest growth factor of any sample's p_opt", source,
                 (p_opt[:, 1:] / p_opt[:, :-1]).min(), 1.0 - 1e-12),
        at_least("lemma13.half", f"{rule}: smallest p_opt", source + ", Eq. 14", p_opt.min(), 1 / T - 1e-12),
    ]  # fmt: skip
