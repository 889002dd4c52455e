"""What paper A (2402.05738) states about training W with a fixed head, checked on
histories.

Our copy of the text lacks some constants; we derive them under Assumption 2. A claim
about several runs is about the worst of them. `solution` is the solution of a token
SVM, with its `norm` and `W`. The target "W_mm" of a history is the direction of this W.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import minimize

from companion.claims import Claim, at_most, furthest
from lib import attention
from lib.attention import TokenSet, coordinates
from lib.dynamics import Custom, History, Rule
from lib.seeds import stream
from lib.svm import ACCURACY, MaxMargin
from papers.a.statements import PAPER
from papers.fits import exponent, first_below, fitted_slope, log_slope

claim = PAPER.claim
# We compare rules by the iteration at which their loss gap L - L* falls to this value.
THRESHOLD = 0.01


def svm_certificate(solution: MaxMargin, name: str = "W_mm") -> Claim:
    """Check that the SVM is solved: the duality gap and the violation of the
    constraints are within the solver's accuracy.

    `name` is "W_mm" for a token SVM and "u_mm" for a head SVM.
    """
    worst = max(solution.gap.max(), solution.violation.max())
    if name == "W_mm":
        id = "svm"
        problem = "W-SVM"
    else:
        id = f"svm.{name}"
        problem = "u-SVM"
    return at_most(
        id, f"{name}: duality gap and violation", f"paper A, {problem}", worst, ACCURACY
    )


def direction(history: History, rule: str, since: float, number: str) -> list[Claim]:
    """Check that the direction error falls at least like t^-1/2 for t >= since.

    The function returns one claim. The claim's remark says whether the exponents of all
    runs are within 0.05 of -1, which is our own statement. `number` names the statement
    that the claim is about, such as "Theorem 1".
    """
    slopes = exponent(history, "W_mm", since)
    furthest_off = np.abs(slopes + 1).max()
    if furthest_off <= 0.05:
        like = "as 1/t does, within 0.05"
    else:
        like = "not within 0.05 of 1/t"
    return [
        claim(
            "rate",
            slopes,
            rule,
            number=number,
            remark=f"ours, sharper: it falls {like}",
        )
    ]


def lemma5(history: History, rule: str) -> list[Claim]:
    """Check Lemma 5: p_opt(t) >= p_opt(0) / 2, and p_opt does not fall from one record
    to the next while it is at most 1/2.

    The function returns two claims about the worst sample. p_opt(0) is p_opt at the
    first record.
    """
    p_opt = -np.expm1(history.log_miss)  # (runs, k, n)
    growth = np.where(p_opt[:, :-1] <= 0.5, p_opt[:, 1:] / p_opt[:, :-1], np.inf)
    shares = (p_opt / p_opt[:, :1]).min()
    return PAPER.claims({"lemma5": shares, "lemma5.rises": growth.min()}, rule)


def lemma7(history: History, step_size: float) -> Claim:
    """Check that ||W_t|| grows by eta per step over the last decade (our own
    statement).
    """
    slopes = fitted_slope(history.iterations, history.norm, history.iterations[-1] / 10)
    return claim("lemma7.lower", slopes / step_size)


def margin_growth(
    history: History, rule: str, predicted: np.ndarray, since: float
) -> Claim:
    """Check the rate at which the largest 1 - p_opt of a run decays (our own
    statement).

    The logarithm of this value must fall by `predicted` (runs,) per iteration. The
    prediction is eta/||W_mm|| for NGD, eta/((1-beta)||W_mm||) with momentum beta, and
    1/2 for Polyak's step, because near saturation L - L* = ||grad L|| ||W_mm||.
    """
    fall = -fitted_slope(history.iterations, history.log_miss.max(-1), since)
    return claim("sharp", fall / predicted, rule)


def polyak_step_norm(history: History, solution: MaxMargin) -> Claim:
    """Check that the norm of Polyak's step tends to ||W_mm|| / 2 (our own statement).

    We measure the step at the last record of a run without a cap.
    """
    step = np.exp(history.log_step[:, -1] + history.log_gradient[:, -1])
    return claim("sharp.polyak_step", step / (solution.norm / 2))


def fastest_at_first(
    histories: Mapping[str, History],
    rule: str = "Polyak",
    rivals: Iterable[str] = ("GD", "NGD", "NGD-mom"),
    number: str = "Section 3.2",
) -> Claim:
    """Check that no rival reaches L - L* <= THRESHOLD before `rule` in any run.

    We measure the number of iterations that `rule` needs, divided by the number that
    the fastest of the `rivals` needs, in the worst run. Iterations are counted up to
    the first record at which L - L* is below THRESHOLD. The ratio is infinite if only
    `rule` misses THRESHOLD, and NaN if all rules do.
    """

    def below(run: History):
        return first_below(run.iterations, run.log_gap, np.log(THRESHOLD))

    own, *others = (below(histories[name]) for name in (rule, *rivals))
    ratio = (own / np.min(others, axis=0)).max()
    return claim("fastest", ratio, rule, say=(f"{THRESHOLD:g}",), number=number)


def decade_exponents(
    histories: Mapping[str, History], steps: int
) -> dict[str, np.ndarray]:
    """Fit the exponent in t of the direction error, in each decade from t = 10 on.

    Only whole decades up to `steps` count. The result is {rule: exponents (runs,
    decades)}.
    """
    decades = 10 ** np.arange(1, int(np.log10(steps)))
    return {
        name: np.stack([exponent(history, "W_mm", t, 10 * t) for t in decades], 1)
        for name, history in histories.items()
    }


def horizon_claims(last: Mapping[str, np.ndarray]) -> list[Claim]:
    """Check the exponents of the direction error in the last decade.

    `last` is {rule: exponents (runs,)}, with the rules "NGD", "NGD-mom", "Polyak, no
    cap" and "GD". The exponents must be -1 (our own statement), except that the
    exponents of GD must be near 0. We measure the run whose error falls most slowly;
    for GD, we measure the run whose error falls fastest. A further claim compares NGD
    with Theorem 1.
    """
    ngd, momentum, polyak = (
        last[name].max() for name in ("NGD", "NGD-mom", "Polyak, no cap")
    )
    values = {"rate.bound": ngd, "rate.measured": ngd, "rate.momentum": momentum}
    return PAPER.claims(values | {"rate.polyak": polyak, "rate.gd": last["GD"].min()})


def _theorem5(
    history: History, step_size: float, tokens: TokenSet, solution: MaxMargin
) -> Claim:
    """Check that error(t)/sqrt(log t/t) does not grow after t_0 (our own statement).

    Here t_0 = 2 B^2 ||W_mm||/eta, with B the largest norm of a token or query. We
    measure the largest value at a later record, divided by the value at the first
    record from t_0 on. The result is NaN if a run has fewer than two records from t_0
    on.
    """
    moved = history.iterations > 1
    t = history.iterations[moved]
    error = history.direction_error["W_mm"][:, moved]
    norms = [
        np.linalg.norm(a, axis=-1).reshape(len(a), -1).max(1)
        for a in (tokens.X, tokens.z)
    ]
    since = (2 * np.maximum(*norms) ** 2 * solution.norm / step_size)[:, None]
    late = t >= since
    scaled = error * np.sqrt(t / np.log(t))
    first = late.argmax(1)[:, None]
    late[np.arange(len(late)), first[:, 0]] = False
    growth = np.where(late, scaled / np.take_along_axis(scaled, first, 1), -np.inf)
    worst = growth.max(1)
    return claim("theorem5", np.where(worst > -np.inf, worst, np.nan).max())


def small_start(
    histories: Mapping[str, History],
    tokens: TokenSet,
    solution: MaxMargin,
    step_size: float,
) -> Iterator[Claim]:
    """Check NGD, GD, GD with growing steps, and Polyak's rule, all from a small start.

    Some claims are what the paper says, others what we derive from it; the source of
    each claim says which. `histories` has the four rules by name: "NGD", "GD", "Polyak"
    and `GROWING`. The first three are recorded at the same iterations. `step_size` is
    the step size of NGD. Exponents and slopes are fitted over the last decade of
    iterations. The function yields one claim after the other.
    """
    ngd = histories["NGD"]
    gd = histories["GD"]
    polyak = histories["Polyak"]
    t = ngd.iterations  # of NGD, GD and Polyak
    since = t[-1] / 10
    # (L - L*)/(||grad L|| ||W_mm||) under Polyak's rule, an array (runs, late records)
    log_ratio = polyak.log_gap - polyak.log_gradient - np.log(solution.norm)[:, None]
    ratio = np.exp(log_ratio[:, t >= since].clip(max=700))
    yield _theorem5(ngd, step_size, tokens, solution)
    yield from theorem6(gd, histories[GROWING])
    yield claim("growth.Polyak", log_slope(t, polyak.norm, since))
    yield polyak_step_norm(polyak, solution)
    yield margin_growth(polyak, "Polyak", np.full(len(tokens.y), 0.5), since)
    yield claim("theorem7.gap", furthest(ratio, 1.0))  # over all runs and late records
    yield claim("lemma1", log_slope(t, -ngd.log_miss.max(-1), since))
    yield margin_growth(ngd, "NGD", step_size / solution.norm, since)
    yield claim("growth.NGD", log_slope(t, ngd.norm, since))
    yield lemma7(ngd, step_size)
    for rule, history in (("NGD", ngd), ("GD", gd), ("Polyak", polyak)):
        yield from lemma5(history, rule)


GROWING = "GD, growing steps"  # the name of the rule `growing_steps` in rows


def growing_steps(step_size: float) -> Rule:
    """Gradient descent whose steps grow as the loss falls: eta_t = eta / min(L - L*,
    1).

    Parameters
    ----------
    step_size : float
        The step size eta of plain GD, at most 1/`smoothness`. eta_t is never below eta.

    Returns
    -------
    Rule
        The rule.

    Notes
    -----
    Under plain GD ||W_t|| grows like log t, which is slow. The late steps of plain GD
    are so short that its path is that of gradient flow. Longer steps along this path
    show where the path leads. The curvature of L falls with L - L*, so that even the
    longer steps stay short compared with the inverse of the curvature. `theorem6`
    checks that both rules follow one path for as far as plain GD gets.
    """

    def law(t: np.ndarray, log_gap: np.ndarray, log_norm: np.ndarray):
        return np.log(step_size) - np.minimum(log_gap, 0.0) + 0.0 * log_norm

    return Custom(law, logarithmic=True)


def theorem6(plain: History, growing: History) -> list[Claim]:
    """Measure Theorem 6 on W_t itself, along the path of GD.

    Parameters
    ----------
    plain : History
        Runs of GD with a constant step size.
    growing : History
        The same runs with `growing_steps`, recorded from the start, which is not zero.

    Returns
    -------
    list of Claim
        The first claim says that the direction error of `growing` falls like a power of
        ||W_t|| over the last decade of iterations. The second says that, when ||W_t||
        under `growing` equals the norm at which plain GD ends, the direction error
        equals that of plain GD at its end.
    """
    error = growing.direction_error["W_mm"]  # (runs, k)
    late = growing.iterations >= growing.iterations[-1] / 10
    slopes = []
    ratios = []
    for run in range(len(error)):
        log_norm = np.log(growing.norm[run])
        log_error = np.log(error[run])
        slopes.append(np.polyfit(log_norm[late], log_error[late], 1)[0])
        # We use the part of the run in which the norm only grows, because W may shrink
        # at first if it starts far from zero.
        since = int(log_norm.argmin())
        there = np.interp(
            np.log(plain.norm[run, -1]), log_norm[since:], log_error[since:]
        )
        ratios.append(plain.direction_error["W_mm"][run, -1] / np.exp(there))
    return PAPER.claims(
        {"theorem6": np.array(slopes), "theorem6.path": furthest(ratios, 1.0)}
    )


def smoothness(tokens: TokenSet) -> np.ndarray:
    """Return our upper bound on ||Hessian of L|| under Assumption 2 and the exponential
    loss.

    The result has the shape (runs,). No token may be masked. The bound is e^{-min
    gamma} D^2 (Delta^2/16 + Delta/4), with Delta the largest score gap and D = max
    ||x_{i,s} - x_{i,t}|| ||z_i||.
    """
    scores = attention.scores(tokens, tokens.u)
    apart = np.linalg.norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], axis=-1)
    D = (apart.max((2, 3)) * np.linalg.norm(tokens.z, axis=-1)).max(1)
    Delta = np.ptp(scores, axis=-1).max(1)
    return np.exp(-scores.min((1, 2))) * D**2 * (Delta**2 / 16 + Delta / 4)


def reached(history: History, error: float = 0.2**0.5) -> np.ndarray:
    """Return whether the last W_t has at most this direction `error` and selects every
    opt token.

    The result has the shape (runs,). The default `error` means that the alignment with
    W_mm must be at least 0.9. A token is selected if its softmax weight is above 1/2. A
    run that ended early has not reached W_mm.
    """
    selects = history.log_miss[:, -1].max(-1) < np.log(0.5)
    return selects & (history.direction_error["W_mm"][:, -1] <= error)


def remark1(history: History, rule: str, start: str) -> Claim:
    """Check Remark 1: every run ends near the direction of W_mm.

    We measure the largest direction error at the last iteration. It counts as infinite
    if the softmax weight of an opt token is at most 1/2.
    """
    selects = history.log_miss[:, -1].max(-1) < np.log(0.5)
    error = np.where(selects, history.direction_error["W_mm"][:, -1], np.inf)
    return claim("remark1", error.max(), rule, start)


NOT_ORTHOGONAL = (  # why Lemma 5 fails on antipodal class means
    "the queries are not orthogonal enough at d = 300 for our sufficient form of "
    "Assumption"
    " 1: another sample pulls one sample's weight down"
)

# The functions below check Lemmas 2, 6 and 9 at the worst possible W. Lemmas 2 and 9
# are about iterates; we check them at every W whose opt weights are possible by Lemmas
# 4 and 5. Let A_m = (x_{i,opt} - x_{i,t}) z_i^T for the pairs m = (i, t). Then -grad L
# is the sum of c_m A_m, with c >= 0 under Assumption 2, and it depends on W only
# through the margins <A_m, W>. The shortest of all W with given margins is sum_m
# alpha_m A_m, where K alpha = margins and K is the Gram matrix of the A_m. So we search
# over the margins, which are n (T-1) numbers.


def _pairs(tokens: TokenSet, run: int):
    """Return the features A (m, d d_z) of one run's m pairs, the Gram matrix K (m, m)
    of these features, and the scores (n, T), the opt token's first.
    """
    tokens = tokens.run(run)
    A = coordinates.constraint_rows(
        coordinates.differences(tokens, tokens.opt)[0], tokens.z[0]
    )
    rest = coordinates.others(tokens.opt, tokens.shape[2])
    order = np.concatenate([tokens.opt[..., None], rest], -1)
    return (
        A,
        A @ A.T,
        np.take_along_axis(attention.scores(tokens, tokens.u), order, -1)[0],
    )


def _pulls(scores: np.ndarray, margins: np.ndarray):
    """Return the coefficients c (m,) of -grad L = sum_m c_m A_m, up to one common
    positive factor, for the exponential loss.

    W enters only through its `margins` (m,). In `scores` (n, T), the opt token's score
    comes first.
    """
    opt = np.zeros((len(scores), 1))
    logits = np.concatenate([opt, -margins.reshape(len(scores), -1)], 1)
    return -attention.slopes(logits[None], scores[None]).pull[0, :, 1:].ravel()


def lemma6(tokens: TokenSet, solution: MaxMargin) -> Claim:
    """Check Lemma 6: <-grad L/||grad L||, W_mm> >= c, with c = 1 / max_m ||A_m||.

    The data satisfy Assumption 2. We measure the left side divided by c. The bound is
    attained when only one pair is not yet learnt. So we give each pair in turn the
    margin 0, and all others the margin 40.
    """
    smallest = np.inf
    for run in range(len(tokens.y)):
        A, K, scores = _pairs(tokens, run)
        toward = A @ solution.W[run].ravel()
        for m in range(len(K)):
            c = _pulls(scores, np.where(np.arange(len(K)) == m, 0.0, 40.0))
            inner = c @ toward / np.sqrt(c @ K @ c)
            smallest = np.minimum(smallest, inner * np.sqrt(np.diag(K).max()))
    return claim("lemma6", smallest)


def _needed(
    tokens: TokenSet, solution: MaxMargin, run: int, multiple: float, starts: int
):
    """Find the largest epsilon that Lemma 2 needs at ||W|| = multiple ||W_mm||.

    Lemma 2 says that the inner product of -grad L with W_mm/||W_mm|| is at least 1 -
    epsilon times the one with W/||W||. The function returns the largest epsilon (float)
    that is needed in run `run`. It makes `starts` local searches over W; the first
    begins at the direction of W_mm, the others near it. Where an opt weight of W is
    below 1/(e T), a penalty is subtracted from the epsilon.
    """
    (A, K, scores) = _pairs(tokens, run)
    size = solution.norm[run]
    inverse = np.linalg.pinv(K, rcond=1e-12, hermitian=True)
    toward = A @ solution.W[run].ravel()
    radius = multiple * size
    (n, T) = scores.shape
    draw = stream(run, "draws")

    def need(direction: np.ndarray):
        margins = direction * (radius / np.sqrt(direction @ inverse @ direction))
        c = _pulls(scores, margins)
        along_W = c @ margins / radius
        along_target = c @ toward / size
        log_p = -np.logaddexp(0.0, np.logaddexp.reduce(-margins.reshape(n, -1), -1))
        short = np.maximum(-np.log(np.e * T) - log_p, 0).sum()
        if along_W > 0:
            return 1 - along_target / along_W - short
        return -1.0 - short

    largest = -np.inf
    for start in range(starts):
        first = toward
        if start > 0:
            first = toward + 0.3 * draw.standard_normal(len(toward))
        end = minimize(
            lambda v: -need(v), first, method="L-BFGS-B", options={"maxiter": 60}
        )
        largest = max(largest, -end.fun)
    return largest


def lemma2(
    tokens: TokenSet,
    solution: MaxMargin,
    runs: int,
    radii: Sequence[float],
    starts: int,
) -> list[Claim]:
    """Check Lemmas 2 and 9 by the eps that they need at ||W|| = r ||W_mm||.

    Lemma 2 says R_eps = O~(1/eps), which we read as: eps r / log r does not grow with
    r. Lemma 9 says, in our reading of O~, that eps / log r falls at least like 1/r. eps
    is the largest epsilon needed at any W of this norm, found by local searches from
    `starts` starts in each of the first `runs` runs. The `radii` r are above 1 and
    ascending.
    """
    needs = [
        [_needed(tokens, solution, run, r, starts) for r in radii]
        for run in range(runs)
    ]
    eps = np.maximum(needs, 1e-16)
    scaled = eps * np.array(radii) / np.log(radii)
    ratio = scaled[:, 0] / scaled[:, -1]
    slopes = log_slope(radii, eps / np.log(radii))
    return [
        claim("lemma2", ratio.min(), say=(radii[0], radii[-1])),
        claim("lemma9", slopes.max()),
    ]
