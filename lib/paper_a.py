"""Statements of paper A (2402.05738) as checked claims: each takes a history and returns what was measured.

Constants that the paper's text lost are derived under Assumption 2 and marked "our constant". B is the largest norm
of a token or query. Where several runs enter, the claim speaks of the worst of them.
"""

import numpy as np

from lib.claims import Claim, at_least, at_most, close
from lib.dynamics import History
from lib.svm import ACCURACY, TokenSVM
from lib.tokens import TokenSet


def bound_on_tokens(tokens: TokenSet) -> np.ndarray:
    """B = max ||x_{i,t}||, queries included, (runs,)."""
    norms = [np.linalg.norm(a, axis=-1).reshape(len(a), -1).max(1) for a in (tokens.X, tokens.z)]
    return np.maximum(*norms)


def fitted_slope(x, y, since: float, until: float = np.inf) -> np.ndarray:
    """Least-squares slope of y (runs, k) against x (k,), over since <= x <= until; (runs,)."""
    keep = (x >= since) & (x <= until)
    x, y = x[keep] - x[keep].mean(), y[:, keep]
    return (y - y.mean(1, keepdims=True)) @ x / (x @ x)


def exponent(history: History, target: str, since: float, until: float = np.inf) -> np.ndarray:
    """The a of direction error ~ t^a over iterations since <= t <= until, (runs,); since > 0."""
    later = history.iterations > 0
    log_t, log_error = np.log(history.iterations[later]), np.log(history.direction_error[target][:, later])
    return fitted_slope(log_t, log_error, np.log(since) - 1e-9, np.log(until) + 1e-9)


def svm_certificate(solution: TokenSVM) -> Claim:
    """The token SVM is solved: relative duality gap and constraint violation within the solver's accuracy."""
    worst = max(solution.gap.max(), solution.violation.max())
    return at_most("svm", "W_mm: duality gap and violation", "paper A, W-SVM", worst, ACCURACY)


def lemma5(history: History, rule: str) -> Claim:
    """No sample's p_opt ever falls: min over samples and iterations of p_opt(t') / p_opt(t), t' recorded after t."""
    p_opt = -np.expm1(history.log_miss)  # (runs, k, n)
    smallest = (p_opt[:, 1:] / p_opt[:, :-1]).min()
    statement = f"{rule}: smallest growth factor of any sample's p_opt"
    return at_least(f"lemma5.{rule}", statement, "paper A, Lemma 5", smallest, 1.0 - 1e-12)


def lemma6(history: History, rule: str, tokens: TokenSet, solution: TokenSVM, target: str) -> Claim:
    """<-grad L/||grad L||, W_mm> >= 1/(2 B^2) at every recorded iteration (our constant); measured as their ratio."""
    inner = history.descent[target] * solution.norm[:, None]
    ratio = (inner * 2 * bound_on_tokens(tokens)[:, None] ** 2).min()
    statement = f"{rule}: smallest <-grad L/||grad L||, W_mm> x 2B^2"
    return at_least(f"lemma6.{rule}", statement, "paper A, Lemma 6 (our constant)", ratio, 1.0)


def lemma7(history: History, step_size: float, tokens: TokenSet, solution: TokenSVM) -> list[Claim]:
    """NGD's norm grows linearly: eta t/(2 B^2 ||W_mm||) - ||W_0|| <= ||W_t|| <= eta t + ||W_0|| (Eq. 12)."""
    travelled = step_size * history.iterations  # (k,)
    start = history.norm[:, :1]
    lower = travelled / (2 * (bound_on_tokens(tokens) ** 2 * solution.norm)[:, None]) - start
    source = "paper A, Lemma 7 and Eq. 12 (our constant)"
    moved = history.iterations > 0
    above = ((history.norm - lower) / travelled.clip(step_size))[:, moved].min()
    below = (history.norm / (travelled + start))[:, moved].max()
    return [
        at_least("lemma7.lower", "NGD: smallest (||W_t|| - lower bound) / (eta t)", source, above, 0.0),
        at_most("lemma7.upper", "NGD: largest ||W_t|| / (eta t + ||W_0||)", source, below, 1.0 + 1e-12),
    ]


def theorem1(history: History, target: str, since: float) -> list[Claim]:
    """The direction error falls at least like t^-1/2 and is still falling when the run ends."""
    worst = exponent(history, target, since).max()
    last = history.direction_error[target][:, history.iterations >= since]
    growth = (last[:, 1:] / last[:, :-1]).max()
    return [
        at_most("theorem1.rate", "NGD: exponent of the direction error in t", "paper A, Theorem 1", worst, -0.5),
        at_most("theorem1.falls", "NGD: largest ratio of successive direction errors", "paper A, Theorem 1", growth, 1.0),
    ]


def margin_growth(history: History, rule: str, predicted: np.ndarray, since: float) -> Claim:
    """Sharp asymptotics: log(1 - p_opt) of the worst sample falls by `predicted` (runs,) per iteration (ours).

    eta/||W_mm|| for NGD, eta/((1-beta)||W_mm||) with momentum beta, 1/2 for Polyak's step: near saturation
    L - L* = <-grad L, W_mm> = ||grad L|| ||W_mm||.
    """
    ratio = -fitted_slope(history.iterations, history.log_miss.max(-1), since) / predicted
    worst = ratio[np.abs(ratio - 1).argmax()]
    statement = f"{rule}: slope of log(1 - p_opt), over the predicted one"
    return close(f"sharp.{rule}", statement, "derived from paper A, Lemma 1 (ours)", worst, 1.0, 0.02)


def polyak_step_norm(history: History, solution: TokenSVM) -> Claim:
    """Sharp asymptotics: the norm of Polyak's step tends to ||W_mm|| / 2."""
    step = np.exp(history.log_step[:, -1] + history.log_gradient[:, -1])
    ratio = step / (solution.norm / 2)
    worst = ratio[np.abs(ratio - 1).argmax()]
    statement = "Polyak: norm of the last step, over ||W_mm||/2"
    return close("sharp.polyak_step", statement, "derived from paper A, Theorem 7 (ours)", worst, 1.0, 0.01)


def iterations_until(history: History, loss_gap: float) -> np.ndarray:
    """The first recorded iteration whose L - L* is at most `loss_gap`, (runs,); infinity where there is none."""
    reached = history.log_gap <= np.log(loss_gap)
    return np.where(reached.any(1), history.iterations[reached.argmax(1)], np.inf)


def fastest_at_first(histories: dict[str, History], rule: str, loss_gap: float) -> Claim:
    """`rule` reaches L - L* <= loss_gap before every other rule, in every run; measured as the ratio of iterations."""
    own = iterations_until(histories[rule], loss_gap)
    rest = np.min([iterations_until(h, loss_gap) for name, h in histories.items() if name != rule], axis=0)
    ratio = (own / rest).max()
    statement = f"iterations of {rule} to L - L* = {loss_gap:g}, over the next best rule's"
    return at_most(f"fastest.{rule}", statement, "paper A, Section 5.1", ratio, 1.0)
