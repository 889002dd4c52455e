"""Statements of paper A (2402.05738) on training W with a fixed head, as checked claims.

Each takes a history and returns what was measured. Constants that the paper's text lost are derived
under Assumption 2 and marked "our constant"; what is sharper than the paper is marked "ours". B is
the largest norm of a token or query. Where several runs enter, a claim speaks of the worst of them.
`solution` is an end point with `norm` and `W`, the history's target `target` its direction.
"""

import numpy as np

from lib import attention
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, every_close, furthest, interval
from lib.dynamics.history import History
from lib.svm import ACCURACY, MaxMargin
from papers.fits import exponent, first_below, fitted_slope, log_slope

FLOAT = 1e-12  # rounding of a weight near 1
REGRESSION = "regression test: the bound was set beside the measured value"


def bound_on_tokens(tokens: TokenSet) -> np.ndarray:
    """B = max ||x_{i,t}||, queries included, (runs,)."""
    norms = [np.linalg.norm(a, axis=-1).reshape(len(a), -1).max(1) for a in (tokens.X, tokens.z)]
    return np.maximum(*norms)


def svm_certificate(solution: MaxMargin, name: str = "W_mm") -> Claim:
    """The SVM is solved: relative duality gap and violation within the solver's accuracy."""
    worst = max(solution.gap.max(), solution.violation.max())
    id, problem = ("svm", "W-SVM") if name == "W_mm" else (f"svm.{name}", "u-SVM")
    return at_most(id, f"{name}: duality gap and violation", f"paper A, {problem}", worst, ACCURACY)


def direction(
    history: History, rule: str, target: str, since: float, statement: str
) -> list[Claim]:
    """The direction error falls at least like t^-1/2, like 1/t (ours): exponents, t >= since."""
    own, source = exponent(history, target, since), f"paper A, {statement}"
    text, ends = f"{rule}: exponent of the direction error in t", interval(own)
    return [
        at_most(f"rate.{rule}", f"{text}, largest", source, own.max(), -0.5, interval=ends),
        every_close(f"sharp.rate.{rule}", text, f"ours, beside {source}", own, -1.0, 0.05),
    ]


def gradient_direction(history: History, rule: str, target: str, most: float = 0.03) -> Claim:
    """The last -grad L itself points to W_mm: || -grad L/||grad L|| - W_mm/||W_mm|| ||."""
    error = np.sqrt(2 * (1 - np.minimum(history.descent[target][:, -1], 1))).max()
    text = f"{rule}: direction error of the last gradient"
    form = "paper A, Theorem 6 (our constant)"
    return at_most(f"gradient.{rule}", text, form, error, most, remark=REGRESSION)


def lemma5(history: History, rule: str) -> list[Claim]:
    """p_opt(t) >= p_opt(0) / 2 (our constant); it does not fall while at most 1/2 (our reading).

    That is, from one record to the next.
    """
    p_opt = -np.expm1(history.log_miss)  # (runs, k, n)
    least = (p_opt / p_opt[:, :1]).min()
    small = p_opt[:, :-1] <= 0.5
    growth = np.where(small, p_opt[:, 1:] / p_opt[:, :-1], np.inf).min()
    source = "paper A, Lemma 5"
    own = f"{rule}: smallest p_opt(t) / p_opt(0) of any sample"
    rises = f"{rule}: smallest growth factor of a p_opt that is at most 1/2"
    return [
        at_least(f"lemma5.{rule}", own, f"{source} (our constant)", least, 0.5),
        at_least(f"lemma5.rises.{rule}", rises, f"{source} (our reading)", growth, 1 - FLOAT),
    ]


def lemma7(history: History, step_size: float) -> Claim:
    """||W_t|| grows by eta a step over the last decade (ours): c of the lower bound is 1.

    The upper bound, eta t + ||W_0||, is the triangle inequality.
    """
    since = history.iterations[-1] / 10
    grown = fitted_slope(history.iterations, history.norm, since) / step_size
    text, source = "NGD: slope of ||W_t|| in t, over eta", "ours, beside paper A, Lemma 7"
    return every_close("lemma7.lower", text, source, grown, 1.0, 0.002)


def growth(history: History, rule: str, since: float, statement: str) -> Claim:
    """||W_t|| = Theta(t): its exponent in t, t >= since."""
    own = log_slope(history.iterations, history.norm, since)
    text, source = f"{rule}: exponent of ||W_t|| in t", f"paper A, {statement}"
    return every_close(f"growth.{rule}", text, source, own, 1.0, 0.05)


def margin_growth(history: History, rule: str, predicted: np.ndarray, since: float) -> Claim:
    """log(1 - p_opt) of the worst sample falls by `predicted` (runs,) per iteration (ours).

    eta/||W_mm|| for NGD, eta/((1-beta)||W_mm||) with momentum beta, 1/2 for Polyak's step: near
    saturation L - L* = <-grad L, W_mm> = ||grad L|| ||W_mm||.
    """
    ratio = -fitted_slope(history.iterations, history.log_miss.max(-1), since) / predicted
    text = f"{rule}: slope of log(1 - p_opt), over the predicted one"
    source = "derived from paper A, Lemma 1 (ours)"
    return every_close(f"sharp.{rule}", text, source, ratio, 1, 0.002)


def saturation(history: History, since: float) -> Claim:
    """1 - p_opt <= T e^{-ct}: -log(1 - p_opt) of the worst sample grows like t; its exponent."""
    own = log_slope(history.iterations, -history.log_miss.max(-1), since)
    text = "NGD: exponent in t of -log(1 - p_opt)"
    return every_close("lemma1", text, "paper A, Lemma 1", own, 1.0, 0.05)


def polyak_step_norm(history: History, solution: MaxMargin) -> Claim:
    """The norm of Polyak's step tends to ||W_mm|| / 2 (ours)."""
    step = np.exp(history.log_step[:, -1] + history.log_gradient[:, -1])
    ratio = step / (solution.norm / 2)
    text = "Polyak: norm of the last step, over ||W_mm||/2"
    source = "derived from paper A, Theorem 7 (ours)"
    return every_close("sharp.polyak_step", text, source, ratio, 1.0, 0.01)


def polyak_gap(history: History, solution: MaxMargin, since: float) -> Claim:
    """L - L* is of the order of ||grad L||: near saturation L - L* = ||grad L|| ||W_mm|| (ours)."""
    late = history.iterations >= since
    gap = (history.log_gap - history.log_gradient)[:, late] - np.log(solution.norm)[:, None]
    worst = furthest(np.exp(gap.clip(max=700)), 1.0)
    text = "Polyak: (L - L*) / (||grad L|| ||W_mm||), late"
    return close("theorem7.gap", text, "derived from paper A, Theorem 7 (ours)", worst, 1, 0.02)


def fastest_at_first(
    histories: dict[str, History], rule: str, loss_gap: float, section: str = "Section 3.2"
) -> Claim:
    """`rule` reaches L - L* <= loss_gap before every other in every run: ratio of iterations.

    Source: paper A, Section 3.2 with a fixed head, Section 5.1 with a trained one.
    """
    first = {
        name: first_below(history.iterations, history.log_gap, np.log(loss_gap))
        for name, history in histories.items()
    }
    ratio = (first.pop(rule) / np.min(list(first.values()), axis=0)).max()
    statement = f"iterations of {rule} to L - L* = {loss_gap:g}, over the next best rule's"
    return at_most(f"fastest.{rule}", statement, f"paper A, {section}", ratio, 1.0)


def theorem5(
    history: History, target: str, step_size: float, tokens: TokenSet, solution: MaxMargin
) -> Claim:
    """After t_0 = 2 B^2 ||W_mm|| / eta (ours), error(t) / sqrt(log t/t) stays below its start."""
    moved = history.iterations > 1
    t, error = history.iterations[moved], history.direction_error[target][:, moved]
    since = (2 * bound_on_tokens(tokens) ** 2 * solution.norm / step_size)[:, None]
    late, scaled = t >= since, error * np.sqrt(t / np.log(t))
    first = late.argmax(1)[:, None]
    late[np.arange(len(late)), first[:, 0]] = False
    largest = np.where(late, scaled / np.take_along_axis(scaled, first, 1), -np.inf).max()
    statement = "NGD: largest error / (log t/t)^1/2 after t0, over that at t0"
    return at_most("theorem5", statement, "paper A, Theorem 5 (our constant)", largest, 1.0)


def smoothness(tokens: TokenSet) -> np.ndarray:
    """A bound on ||Hessian of L|| under Assumption 2 and the exponential loss, (runs,); ours.

    e^{-min gamma} D^2 (Delta^2/16 + Delta/4), Delta the largest score gap and D = max ||x_{i,s} -
    x_{i,t}|| ||z_i||.
    """
    scores = attention.scores(tokens, tokens.u)
    apart = np.linalg.norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], axis=-1)
    D = (apart.max((2, 3)) * np.linalg.norm(tokens.z, axis=-1)).max(1)
    Delta = np.ptp(scores, axis=-1).max(1)
    return np.exp(-scores.min((1, 2))) * D**2 * (Delta**2 / 16 + Delta / 4)


def reached(history: History, target: str, error: float = 0.2**0.5) -> np.ndarray:
    """Whether W_t ended within `error` of the target and selects every opt token, (runs,)."""
    selects = history.log_miss[:, -1].max(-1) < np.log(0.5)
    return selects & (history.direction_error[target][:, -1] <= error)


def leaves(histories: list[History], others: tuple[str, ...], target: str) -> Claim:
    """No run ends nearer to the direction of another selection (`others`) than to W_mm."""
    ends = [{name: a[:, -1] for name, a in history.alignment.items()} for history in histories]
    largest = max((end[other] - end[target]).max() for end in ends for other in others)
    statement = "largest final alignment with another selection's direction less that with W_mm"
    return at_most("local", statement, "paper A, Section 3.1", largest, 0.0)


def remark1(history: History, target: str, rule: str, start: str) -> Claim:
    """The fraction of runs that reach W_mm from a start direction; all must.

    Reached: within 0.02 for NGD and Polyak; for GD, which is logarithmic in t, its last gradient
    within 0.03.
    """
    if rule == "GD":
        off = np.sqrt(2 * (1 - np.minimum(history.descent[target][:, -1], 1)))
        fraction = (reached(history, target, np.inf) & (off <= 0.03)).mean()
    else:
        fraction = reached(history, target, 0.02).mean()
    statement = f"{rule} from {start}: fraction of seeds that reach W_mm"
    source = "paper A, Remark 1 (our constant)"
    return at_least(f"remark1.{rule}.{start}", statement, source, fraction, 1.0)
