"""What paper A (2402.05738) states and shows about training the head u and W together.

gamma* = 1/||u_mm|| is the largest margin of a unit head, and eta is the step size. Eq.
13 divides each of the two gradients by its own norm, and has the step size eta
(t+1)^-2/3. We compare quantities that grow like t^{1/3} with S_t = sum_{s<=t} s^{-2/3},
the sum of the step sizes divided by eta, because between 500 and 5000 steps S_t itself
still grows like t^0.36. A claim about several runs is about the worst of them.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from companion.claims import Claim, furthest
from lib.attention.coordinates import Minimal
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from lib.svm import MaxMargin
from papers import joint_loss
from papers.a.statements import PAPER
from papers.fits import fitted_slope, log_slope, path_sum

claim = PAPER.claim

# Values of `quantities` by iteration, computed by code that does not use this library.
# The values belong to one data set of paper A's data model (DM) with n = 8, T = 2, d =
# 400, noise^2 d = 1, signal 3, three samples whose query is the opt token, and eta =
# 0.3.
REFERENCE = {
    100: (-3.74, 3.03, 3.43, 0.132, 0.102, 0.959, 1.27, 3.3),
    1000: (-9.13, 7.83, 8.23, 0.050, 0.043, 0.990, 1.27, 8.3),
    5000: (-16.2, 14.2, 14.6, 0.028, 0.024, 0.994, 1.27, 14.9),
}


def _loss_ratio(history: History, tokens: TokenSet) -> np.ndarray:
    """Return the largest ratio l_i / l_j of two samples' losses l_i = e^{-f_i}.

    The result has the shape (runs, k).
    """
    _, _, f = joint_loss.log_loss_parts(*joint_loss.opt_first(history, tokens))
    return np.exp(np.ptp(f, axis=-1))


def _head_margin(history: History, tokens: TokenSet, head: MaxMargin) -> np.ndarray:
    """Return min_i y_i u_t^T x_{i,opt} / (||u_t|| gamma*), of shape (runs, k).

    It is NaN if u_t = 0.
    """
    size = np.where(history.head_norm > 0, history.head_norm, np.nan)
    return joint_loss.opt_scores(history, tokens).min(-1) / size * head.norm[:, None]


def path_exponent(
    history: History, values: np.ndarray, decay: float, since: float, skipped: int = 0
) -> np.ndarray:
    """Fit the exponent a of values (runs, k) ~ (S_t - skipped)^a for t >= since.

    The result has the shape (runs,). S_t is the sum of the step sizes (t+1)^-decay.
    `skipped` is 1 if the first step, whose size is 1, is left out of the sum. An
    exponent is NaN if a value is negative.
    """
    late = history.iterations >= since
    return log_slope(
        path_sum(history.iterations[late], decay) - skipped, values[:, late]
    )


def growth(
    history: History, rule: str, decay: float, since: float, bound: str = ""
) -> list[Claim]:
    """Check that -log L, ||W|| and ||u|| grow like S_t, the sum of step sizes
    (t+1)^-decay.

    The function returns three claims, in this order, about the exponents in S_t for t
    >= since. For ||W|| the sum leaves out the first step, at which the head is zero or
    random. `bound`, if given, replaces the claims' own bounds.
    """
    made = []
    series = {"-log L": -history.log_gap, "||W||": history.norm}
    for name, values in (series | {"||u||": history.head_norm}).items():
        skipped = int(name == "||W||")
        slopes = path_exponent(history, values, decay, since, skipped)
        path = "S_t" + " - 1" * skipped
        made.append(claim(f"exponent.{name}", slopes, rule, say=(path,), bound=bound))
    return made


def eq13(
    history: History, tokens: TokenSet, head: MaxMargin, step_size: float, since: float
) -> list[Claim]:
    """Check Theorems 2-4 and 8-10 and Lemmas 12 and 13 on runs of Eq. 13.

    The records include iteration 1. Exponents are fitted over t >= since.

    * Theorem 2: L_t <= L_1 exp(-3 c gamma* eta (t^{1/3} - 1)), with our constant c =
      1/4. In the end log L falls by gamma* eta per unit of S_t (our own statement),
      because near saturation -log L = gamma* ||u|| and ||u|| = eta S_t.
    * Theorem 3: W's direction error times log t stays bounded. The direction errors of
      W and u fall like 1/S_t (our own statement).
    * Theorem 4: min_i y_i u_t^T x_{i,opt} / ||u_t|| is at least gamma*/4, and tends to
      gamma*.
    * Lemma 12: ||W_t|| and ||u_t|| are at most 3 eta t^{1/3}.
    * Lemma 13: score gaps grow at least like S_t, the losses of two samples stay within
      a factor 4 (our constant), and p_opt does not fall for t >= 1.

    Eq. 14, p_opt >= 1/2, is about T = 2. There it follows from the last part of Lemma
    13, because p_opt starts at 1/T = 1/2.
    """
    t = history.iterations
    unit = 3 * step_size / head.norm
    late = t >= since
    moved = t >= 1
    after_first = t > 1
    path = path_sum(t, 2 / 3)

    def slopes(values: np.ndarray):
        return path_exponent(history, values, 2 / 3, since)

    fall = history.log_gap[:, t == 1] - history.log_gap[:, after_first]
    asked = unit[:, None] * (np.cbrt(t[after_first]) - 1)
    loss_slopes = -fitted_slope(path[late], history.log_gap[:, late])
    error = history.direction_error["W_mm"]
    margin = _head_margin(history, tokens, head)[:, moved]
    norms = np.maximum(history.norm, history.head_norm)[:, moved]
    longest = 3 * step_size * np.cbrt(t[moved])
    p_opt = -np.expm1(history.log_miss[:, moved])
    with np.errstate(invalid="ignore"):  # a negative gap has no exponent
        gap_slopes = slopes(history.score_gaps.min((2, 3)))
    values = {
        "theorem2": (fall / asked).min(),
        "theorem2.sharp": loss_slopes / (unit / 3),
        "theorem3.sharp": slopes(error),
        "theorem4": margin.min(),
        "theorem10": margin[:, -1],
        "lemma12": (norms / longest).max(),
        "lemma13.gap": gap_slopes,
        "lemma13.ratio": _loss_ratio(history, tokens).max(),
        "lemma13.monotone": (p_opt[:, 1:] / p_opt[:, :-1]).min(),
    }
    return [
        *PAPER.claims(values),
        bounded_by_log(history),
        head_direction(history, since),
    ]


def bounded_by_log(history: History) -> Claim:
    """Check Theorem 3: W's direction error times log t stays bounded.

    We measure the largest value of this product in the last decade of iterations,
    divided by its largest value before that decade, from t = 2 on.
    """
    t = history.iterations[history.iterations >= 2]
    error = history.direction_error["W_mm"][:, history.iterations >= 2]
    scaled = error * np.log(t)
    late = t >= t[-1] / 10
    growth = scaled[:, late].max(1) / scaled[:, ~late].max(1)
    return claim("theorem3.rate", growth.max())


def head_direction(
    history: History,
    since: float,
    rule: str = "Eq. 13",
    decay: float = 2 / 3,
    bound: str = "",
) -> Claim:
    """Check that u's direction error falls like 1/S_t for t >= since.

    This sharpens Theorem 4 and is our own statement. The step sizes are (t+1)^-decay.
    """
    slopes = path_exponent(history, history.head_direction_error["u_mm"], decay, since)
    return claim("head", slopes, rule, bound=bound)


def linear_predictor(problem: Minimal) -> Minimal:
    """Return the same problem, but with only the opt tokens, each of them twice.

    W never moves in training on this problem, so that the model is the linear predictor
    f_i = y_i u^T x_{i,opt}. No token of `problem` may be masked.
    """
    tokens = problem.tokens
    first = np.zeros_like(problem.tokens.opt)
    # (runs, n, 1, r)
    opt = np.take_along_axis(tokens.X, tokens.opt[..., None, None], 2)
    return replace(problem, tokens=replace(tokens, X=np.repeat(opt, 2, 2), opt=first))


def lemma3(
    history: History, tokens: TokenSet, head: MaxMargin, since: float
) -> list[Claim]:
    """Check Lemma 3 and Remark 4 along Eq. 13, and return three claims.

    Lemma 3 says that ||grad_u L|| >= c gamma* L, and that on the segment between two
    consecutive iterates L is at most C times its value at the first of the two. Our
    constants are c = 1/2 and C = 1 + 1e-9, which means that the loss does not rise. We
    compare pairs of consecutive iterations, and leave out the first recorded pair.
    Lemma 3 also bounds the curvature, but so loosely that no claim about it could fail.
    Remark 4 says that ||grad_u L|| is of the order of L. We add that it tends to gamma*
    L.
    """
    ratio = np.exp(history.log_gradient_head - history.log_gap) * head.norm[:, None]
    late = ratio[:, history.iterations >= since]
    segment = _on_segments(history, tokens)[:, 1:].max()
    values = {"lemma3.gradient": ratio.min(), "lemma3.segment": segment}
    return PAPER.claims(values | {"remark4": furthest(late, 1.0)})


def _on_segments(history: History, tokens: TokenSet) -> np.ndarray:
    """Return the largest L(theta')/L(theta_t) for each recorded step.

    The result has the shape (runs, steps). A step counts as recorded if both of its
    iterations, t and t + 1, are recorded. theta' runs over 8 evenly spaced points of
    the segment from theta_t to theta_{t+1}, the last of which is theta_{t+1}.
    """
    margins, scores = joint_loss.opt_first(history, tokens)
    begin = np.flatnonzero(np.diff(history.iterations) == 1)
    largest = np.full((len(margins), begin.size), -np.inf)
    at_begin = joint_loss.log_loss_parts(margins[:, begin], scores[:, begin])[0]
    for s in np.linspace(0, 1, 9)[1:]:
        between = [
            (1 - s) * a[:, begin] + s * a[:, begin + 1] for a in (margins, scores)
        ]
        largest = np.maximum(largest, joint_loss.log_loss_parts(*between)[0] - at_begin)
    return np.exp(largest)


def quantities(history: History, tokens: TokenSet, head: MaxMargin, t: int) -> dict:
    """Return REFERENCE's quantities at iteration t, as {name: values (runs,)}.

    The function raises ValueError if t is not recorded.
    """
    if t not in history.iterations:
        raise ValueError(f"iteration {t} was not recorded")
    k = int(np.searchsorted(history.iterations, t))
    return {
        "log L": history.log_gap[:, k],
        "||W||": history.norm[:, k],
        "||u||": history.head_norm[:, k],
        "error of W": history.direction_error["W_mm"][:, k],
        "error of u": history.head_direction_error["u_mm"][:, k],
        "margin": _head_margin(history, tokens, head)[:, k],
        "loss ratio": _loss_ratio(history, tokens)[:, k],
        "score gap": history.score_gaps[:, k].min((1, 2)),
    }


def against_reference(values: dict[int, dict]) -> list[Claim]:
    """Check that the median over runs of each quantity is within a factor of 1.5 of its
    value in REFERENCE.

    `values` is {iteration: quantities(...)}, for every iteration of REFERENCE. The
    factor counts as infinite if a median is NaN or has the wrong sign.
    """
    made = []
    times = ", ".join(map(str, REFERENCE))
    for place, name in enumerate(values[min(REFERENCE)]):
        ratios = [
            np.median(values[t][name]) / known[place] for t, known in REFERENCE.items()
        ]
        ratios = np.array(ratios)
        ratios[~(ratios > 0)] = np.inf  # NaN or the wrong sign
        factor = np.maximum(ratios, 1 / ratios).max()
        made.append(PAPER.claim("reference", factor, name, say=(times,)))
    return made


COMPARED = {  # arrays (runs, k); a larger value means further ahead
    "-log L": lambda run: -run.log_gap,
    "||W||": lambda run: run.norm,
    "||u||": lambda run: run.head_norm,
    "-log(1 - p_opt)": lambda run: -run.log_miss.max(-1),
    "1 / error of W": lambda run: 1 / run.direction_error["W_mm"],
    "1 / error of u": lambda run: 1 / run.head_direction_error["u_mm"],
}


def slower_than_others(
    histories: dict[str, History], rule: str, rivals: Iterable[str]
) -> list[Claim]:
    """Check that `rule` ends with the largest loss and the smallest softmax weights and
    norms.

    This must hold at the last record of every run, compared with each of the `rivals`.
    A tie is allowed.
    """
    made = []
    for name in ("-log L", "-log(1 - p_opt)", "||W||", "||u||"):
        own, *others = (
            COMPARED[name](histories[run])[:, -1] for run in (rule, *rivals)
        )
        ratio = (own / np.min(others, axis=0)).max()
        made.append(PAPER.claim("slowest", ratio, name, say=(rule,)))
    return made


def ahead(
    fast: History, slow: History, names: tuple[str, str], since: float
) -> list[Claim]:
    """Check that `fast` has larger norms, softmax weights and alignments than `slow`.

    This must hold in every run at every recorded t >= since; a tie is allowed. `fast`
    and `slow` have the same records. `names` are what the claims call the two rules.
    """
    late = fast.iterations >= since
    made = []
    for name in list(COMPARED)[1:]:  # except the loss
        ahead, behind = (COMPARED[name](run)[:, late] for run in (fast, slow))
        made.append(PAPER.claim("ahead", (ahead / behind).min(), name, say=names))
    return made
