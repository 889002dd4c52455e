"""Statements of paper A (2402.05738) as checked claims: each takes a history and returns what was
measured.

Constants that the paper's text lost are derived under Assumption 2 and marked "our constant". B is
the largest norm of a token or query. Where several runs enter, the claim speaks of the worst of
them.
"""

import numpy as np

from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.dynamics.history import History
from lib.papers.fits import exponent, fitted_slope
from lib.svm.max_margin import ACCURACY, MaxMargin


def bound_on_tokens(tokens: TokenSet) -> np.ndarray:
    """B = max ||x_{i,t}||, queries included, (runs,)."""
    norms = [np.linalg.norm(a, axis=-1).reshape(len(a), -1).max(1) for a in (tokens.X, tokens.z)]
    return np.maximum(*norms)


def svm_certificate(solution: MaxMargin, name: str = "W_mm") -> Claim:
    """The SVM is solved: relative duality gap and constraint violation within the solver's accuracy."""
    worst = max(solution.gap.max(), solution.violation.max())
    id, problem = ("svm", "W-SVM") if name == "W_mm" else (f"svm.{name}", "u-SVM")
    return at_most(id, f"{name}: duality gap and violation", f"paper A, {problem}", worst, ACCURACY)


def lemma5(history: History, rule: str) -> Claim:
    """No sample's p_opt ever falls: the smallest p_opt(t') / p_opt(t), t' recorded next after t."""
    p_opt = -np.expm1(history.log_miss)  # (runs, k, n)
    smallest = (p_opt[:, 1:] / p_opt[:, :-1]).min()
    statement = f"{rule}: smallest growth factor of any sample's p_opt"
    return at_least(f"lemma5.{rule}", statement, "paper A, Lemma 5", smallest, 1.0 - 1e-12)


def lemma6(
    history: History, rule: str, tokens: TokenSet, solution: MaxMargin, target: str
) -> Claim:
    """<-grad L/||grad L||, W_mm> >= 1/(2 B^2) at every record (our constant); measured as their ratio."""
    inner = history.descent[target] * solution.norm[:, None]
    moving = history.log_gradient > -np.inf  # a head u = 0 has no gradient in W
    ratio = np.where(moving, inner * 2 * bound_on_tokens(tokens)[:, None] ** 2, np.inf).min()
    statement = f"{rule}: smallest <-grad L/||grad L||, W_mm> x 2B^2"
    return at_least(f"lemma6.{rule}", statement, "paper A, Lemma 6 (our constant)", ratio, 1.0)


def lemma7(
    history: History, step_size: float, tokens: TokenSet, solution: MaxMargin
) -> list[Claim]:
    """NGD's norm grows linearly: eta t/(2 B^2 ||W_mm||) - ||W_0|| <= ||W_t|| <= eta t + ||W_0|| (Eq. 12)."""
    travelled = step_size * history.iterations  # (k,)
    start = history.norm[:, :1]
    lower = travelled / (2 * (bound_on_tokens(tokens) ** 2 * solution.norm)[:, None]) - start
    source = "paper A, Lemma 7 and Eq. 12 (our constant)"
    moved = history.iterations > 0
    above = np.divide(history.norm, lower, where=lower > 0, out=np.full(lower.shape, np.inf)).min()
    below = (history.norm[:, moved] / (travelled + start)[:, moved]).max()
    return [
        at_least(
            "lemma7.lower", "NGD: smallest ||W_t|| / lower bound, once positive", source, above, 1.0
        ),
        at_most(
            "lemma7.upper", "NGD: largest ||W_t|| / (eta t + ||W_0||)", source, below, 1.0 + 1e-12
        ),
    ]


def theorem1(history: History, target: str, since: float) -> list[Claim]:
    """The direction error falls at least like t^-1/2 and is still falling when the run ends."""
    source, worst = "paper A, Theorem 1", exponent(history, target, since).max()
    last = history.direction_error[target][:, history.iterations >= since]
    growth = (last[:, 1:] / last[:, :-1]).max()
    return [
        at_most("theorem1.rate", "NGD: exponent of the direction error in t", source, worst, -0.5),
        at_most(
            "theorem1.falls",
            "NGD: largest ratio of successive direction errors",
            source,
            growth,
            1.0,
        ),
    ]


def margin_growth(history: History, rule: str, predicted: np.ndarray, since: float) -> Claim:
    """Sharp asymptotics: log(1 - p_opt) of the worst sample falls by `predicted` (runs,) per
    iteration (ours).

    eta/||W_mm|| for NGD, eta/((1-beta)||W_mm||) with momentum beta, 1/2 for Polyak's step: near
    saturation L - L* = <-grad L, W_mm> = ||grad L|| ||W_mm||.
    """
    ratio = -fitted_slope(history.iterations, history.log_miss.max(-1), since) / predicted
    worst = ratio[np.abs(ratio - 1).argmax()]
    statement = f"{rule}: slope of log(1 - p_opt), over the predicted one"
    return close(
        f"sharp.{rule}", statement, "derived from paper A, Lemma 1 (ours)", worst, 1.0, 0.02
    )


def polyak_step_norm(history: History, solution: MaxMargin) -> Claim:
    """Sharp asymptotics: the norm of Polyak's step tends to ||W_mm|| / 2."""
    step = np.exp(history.log_step[:, -1] + history.log_gradient[:, -1])
    ratio = step / (solution.norm / 2)
    worst = ratio[np.abs(ratio - 1).argmax()]
    statement = "Polyak: norm of the last step, over ||W_mm||/2"
    return close(
        "sharp.polyak_step", statement, "derived from paper A, Theorem 7 (ours)", worst, 1.0, 0.01
    )


def iterations_until(history: History, loss_gap: float) -> np.ndarray:
    """The first recorded iteration whose L - L* is at most `loss_gap`, (runs,); infinity if there is none."""
    reached = history.log_gap <= np.log(loss_gap)
    return np.where(reached.any(1), history.iterations[reached.argmax(1)], np.inf)


def fastest_at_first(histories: dict[str, History], rule: str, loss_gap: float) -> Claim:
    """`rule` reaches L - L* <= loss_gap before every other rule in every run; as ratio of iterations."""
    own = iterations_until(histories[rule], loss_gap)
    rest = np.min(
        [iterations_until(h, loss_gap) for name, h in histories.items() if name != rule], axis=0
    )
    ratio = (own / rest).max()
    statement = f"iterations of {rule} to L - L* = {loss_gap:g}, over the next best rule's"
    return at_most(f"fastest.{rule}", statement, "paper A, Section 5.1", ratio, 1.0)


def growth_linear(history: History) -> Claim:
    """||W_t|| is linear in t (Eq. 12): R^2 of a straight line through the last decade of the run."""
    late = history.iterations >= history.iterations[-1] / 10
    x, y = history.iterations[late], history.norm[:, late]
    residual = y - y.mean(1, keepdims=True) - fitted_slope(x, y, -np.inf)[:, None] * (x - x.mean())
    fit = (1 - residual.var(1) / y.var(1)).min()
    return at_least(
        "eq12.linear", "NGD: R² of ||W_t|| against t, last decade", "paper A, Eq. 12", fit, 0.99
    )


def rate(history: History, target: str, rule: str, statement: str, since: float) -> Claim:
    """The direction error falls at least like t^-1/2: its exponent in t, t >= since (Theorems 1 and 7)."""
    worst = exponent(history, target, since).max()
    text = f"{rule}: exponent of the direction error in t"
    return at_most(f"rate.{rule}", text, f"paper A, {statement}", worst, -0.5)


def theorem5(
    history: History, target: str, step_size: float, tokens: TokenSet, solution: MaxMargin
) -> Claim:
    """After t_0 = 2 B^2 ||W_mm|| / eta (our constant) error(t) / sqrt(log t/t) stays below its value at t_0."""
    moved = history.iterations > 1
    t, error = history.iterations[moved], history.direction_error[target][:, moved]
    since = (2 * bound_on_tokens(tokens) ** 2 * solution.norm / step_size)[:, None]
    late, scaled = t >= since, error * np.sqrt(t / np.log(t))
    first = late.argmax(1)[:, None]
    late[np.arange(len(late)), first[:, 0]] = False
    largest = np.where(late, scaled / np.take_along_axis(scaled, first, 1), -np.inf).max()
    statement = "NGD: largest error / (log t/t)^1/2 after t0, over that at t0"
    return at_most("theorem5", statement, "paper A, Theorem 5 (our constant)", largest, 1.0)


def lemma1(
    history: History, step_size: float, tokens: TokenSet, solution: MaxMargin, since: float
) -> Claim:
    """1 - p_opt <= T e^{-ct} with c = eta / (2 B^2 ||W_mm||^2) (our constant): the measured rate over c."""
    rate = step_size / (2 * bound_on_tokens(tokens) ** 2 * solution.norm**2)
    smallest = (-fitted_slope(history.iterations, history.log_miss.max(-1), since) / rate).min()
    statement = "NGD: rate at which log(1 - p_opt) falls, over c"
    return at_least("lemma1", statement, "paper A, Lemma 1 (our constant)", smallest, 1.0)


def lemma10(history: History, target: str, tokens: TokenSet, solution: MaxMargin) -> Claim:
    """log(1 - p_opt) <= log(T-1) - ||W_t|| (1/||W_mm|| - 2 B^2 error_t), where that is positive (ours)."""
    B = bound_on_tokens(tokens)[:, None]
    bracket = 1 / solution.norm[:, None] - 2 * B**2 * history.direction_error[target]
    asked, found = history.norm * bracket, np.log(tokens.shape[2] - 1) - history.log_miss.max(-1)
    smallest = np.divide(found, asked, where=asked > 0, out=np.full(asked.shape, np.inf)).min()
    statement = "NGD: smallest log((T-1)/(1 - p_opt)) over its lower bound"
    return at_least("lemma10", statement, "paper A, Lemma 10 (our constant)", smallest, 1.0)


def smoothness(tokens: TokenSet) -> np.ndarray:
    """A bound on ||Hessian of L|| under Assumption 2 and the exponential loss, (runs,); ours.

    e^{-min gamma} D^2 (Delta^2/16 + Delta/4), Delta the largest score gap and D = max ||x_{i,s} -
    x_{i,t}|| ||z_i||.
    """
    scores = tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, tokens.u)
    apart = np.linalg.norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], axis=-1).max(
        (2, 3)
    )  # (runs, n)
    D = (apart * np.linalg.norm(tokens.z, axis=-1)).max(1)
    Delta = np.ptp(scores, axis=-1).max(1)
    return np.exp(-scores.min((1, 2))) * D**2 * (Delta**2 / 16 + Delta / 4)


def theorem6(history: History, target: str, since: float) -> list[Claim]:
    """GD turns towards W_mm: the error still falls at every record, the alignment is near 1."""
    late = history.direction_error[target][:, history.iterations >= since]
    source = "paper A, Theorem 6"
    return [
        at_most("theorem6.falls", "GD: largest ratio of successive direction errors", source,
                (late[:, 1:] / late[:, :-1]).max(), 1.0),
        at_least("theorem6.alignment", "GD: smallest alignment with W_mm at the end", source,
                 history.alignment[target][:, -1].min(), 0.95),
    ]  # fmt: skip


def theorem7(history: History, target: str, tokens: TokenSet, solution: MaxMargin, since: float):
    """Polyak: error falls at least like t^-1/2, ||W_t|| at least linearly, and L - L* is bounded by
    ||grad L||.

    Our constants, Delta the score gap: ||W_t|| >= (1 - e^-Delta)/Delta t / (8 B^4 ||W_mm||) -
    ||W_0|| and L - L* <= (e^Delta - 1)/(Delta min p_opt) ||grad L|| ||W_mm||.
    """
    gap, B, size = history.score_gaps.max((1, 2, 3)), bound_on_tokens(tokens), solution.norm
    lower = (-np.expm1(-gap) / gap / (8 * B**4 * size))[
        :, None
    ] * history.iterations - history.norm[:, :1]
    grown = np.divide(history.norm, lower, where=lower > 0, out=np.full(lower.shape, np.inf)).min()
    p_opt = -np.expm1(history.log_miss.max((1, 2)))
    log_bound = np.log(np.expm1(gap) / (gap * p_opt) * size)[:, None]
    ratio = np.exp((history.log_gap - history.log_gradient - log_bound).clip(max=700))
    source, ours = "paper A, Theorem 7", "paper A, Theorem 7 (our constant)"
    worst = exponent(history, target, since).max()
    return [
        at_most(
            "theorem7.rate", "Polyak: exponent of the direction error in t", source, worst, -0.5
        ),
        at_least(
            "theorem7.norm", "Polyak: smallest ||W_t|| over its lower bound", ours, grown, 1.0
        ),
        at_most(
            "theorem7.gap",
            "Polyak: largest (L - L*) / ||grad L|| over its bound",
            ours,
            ratio.max(),
            1.0,
        ),
    ]


def reached(history: History, target: str, alignment: float = 0.9) -> np.ndarray:
    """Whether W_t ended aligned with the target and every sample selects its opt token, (runs,)."""
    selects = history.log_miss[:, -1].max(-1) < np.log(0.5)
    return selects & (history.alignment[target][:, -1] >= alignment)


def leaves(histories: list[History], direction: str) -> Claim:
    """No run ends along the direction that it started in: the largest final alignment with it."""
    largest = max(history.alignment[direction][:, -1].max() for history in histories)
    statement = "largest final alignment with the local direction of the start"
    return at_most("local", statement, "paper A, Section 3.1", largest, 0.5)


def remark1(history: History, target: str, rule: str, start: str) -> Claim:
    """The fraction of runs that reach W_mm from a start direction; all must."""
    statement = f"{rule} from {start}: fraction of seeds that reach W_mm"
    fraction = reached(history, target).mean()
    return at_least(f"remark1.{rule}.{start}", statement, "paper A, Remark 1", fraction, 1.0)
