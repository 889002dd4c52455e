"""The law of the margins under other step sizes: steps so long that the offsets do not
converge, and growing steps.

With growing steps a run gets far enough to show the law. If a step without momentum
raises the margins by s, it multiplies the error of the offsets in the mode with
eigenvalue lambda by 1 - s lambda.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, token_set
from lib.dynamics import GD, NGD, Custom, History, Polyak, Start, rules, train
from lib.seeds import stream
from lib.svm import token_svm
from papers.law import margins
from papers.law.margin_law import MarginLaw, margin_law
from papers.law.tolerances import LOUD
from papers.ours import claim

LAST = 64  # how many of the last records we use to measure how far the offsets move


def _growing_gd(step_size: float, growth: float):
    """Return GD with eta_t = step_size e^{growth t}.

    The margins grow by `growth` per step.
    """
    return Custom(
        lambda t, gap, norm: np.log(step_size) + growth * t + 0.0 * norm,
        logarithmic=True,
    )


def _growing_polyak(max_step: float, growth: float):
    """Return Polyak's rule with a growing cap.

    The step is min((L - L*)/(2 ||grad L||^2), max_step e^{growth t}).
    """

    def cap(t: np.ndarray):
        return np.log(max_step) + growth * t

    return Custom(
        lambda t, gap, norm: np.minimum(gap - rules.LOG_2 - 2 * norm, cap(t)),
        logarithmic=True,
    )


def figure2_runs(
    problem: coordinates.Minimal, W_mm: np.ndarray, growing_steps: int
) -> tuple[dict[str, History], dict[str, History]]:
    """Train every rule on the problem of Figure 2, from zero.

    `W_mm` (runs, r, q) is the solution in the coordinates of `problem`. GD with growing
    steps and Polyak's rule with a growing cap take `growing_steps` steps.

    The function returns two dicts of histories by rule. The first has the rules that
    get far enough to show the law. The second has GD with a constant step size and
    Polyak's rule with a constant cap, which do not get so far.
    """

    def in_time(rule: Any, steps: int, loss: str = "exponential"):
        return train(problem, rule, steps, targets={"W_mm": W_mm}, loss=loss)

    far = {
        "GD, growing steps": in_time(_growing_gd(1.0, 1.0), growing_steps),
        "GD, growing, logistic": in_time(
            _growing_gd(1.0, 1.0), growing_steps, "logistic"
        ),
        "Polyak, growing cap": in_time(_growing_polyak(10.0, 0.8), growing_steps),
        "NGD": in_time(NGD(0.025), 100_000),
        "NGD, logistic": in_time(NGD(0.025), 100_000, "logistic"),
        "NGD-mom": in_time(NGD(0.025, momentum=0.9), 20_000),
        "Polyak, no cap": in_time(Polyak(), 10_000),
    }
    return far, {
        "GD": in_time(GD(1.0), 100_000),
        "Polyak": in_time(Polyak(10.0), 100_000),
    }


def ratio_to_law(history: History, target: str, law: MarginLaw) -> np.ndarray:
    """Return the direction error divided by the law's prediction at the same ||W_t||.

    The result has the shape (runs, k). The ratio tends to 1 if W_0 = 0 and all pairs
    are on the support.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return history.direction_error[target] / law.direction_error(history.norm)


def _settling_rate(history: History, law: MarginLaw):
    """Return the fitted decay rate of the slowest mode, divided by its eigenvalue.

    The result has the shape (runs,). The rate is per unit of margin. It is fitted over
    the records at which the error of the offsets is between 1e-3 and 1e-8; there must
    be at least two.
    """
    level = history.norm / law.norm[:, None]
    offsets = np.where(law.support, law.offsets, 0.0)[:, None]
    terms = (history.margins - offsets) * law.slowest_mode[:, None]
    # The mode is zero outside the support, and the margin of a masked token is NaN.
    on = law.support[:, None]
    left = np.abs(np.where(on, terms, 0.0).sum((2, 3)))
    rates = []
    for run, (a, y) in enumerate(zip(level, left, strict=True)):
        keep = (y > 1e-8) & (y < 1e-3)
        rates.append(-np.polyfit(a[keep], np.log(y[keep]), 1)[0] / law.slowest[run])
    return np.array(rates)


def figure2_claims(
    far: Mapping, constant: Mapping, target: str, law: MarginLaw
) -> list[Claim]:
    """Check that all rules in `far` end on one line: the law's direction error as a
    function of ||W_t||, which is C/||W_t|| up to a relative error of (C/||W_t||)^2/8.

    `far` and `constant` have histories by the name of the rule, and "NGD" is among the
    rules of `far`. `target` is the name of the direction of W_mm in the histories. The
    function returns the claim law.collapse for all rules of `far` together, law.unseen
    for each rule of `constant`, whose runs are still far from the line, and
    law.settling for the rule "NGD" of `far`.
    """

    def last(history: History):
        return ratio_to_law(history, target, law)[:, -1]

    return [
        claim(
            "law.collapse", np.concatenate([last(history) for history in far.values()])
        ),
        *(
            claim("law.unseen", np.abs(last(h) - 1), rule)
            for rule, h in constant.items()
        ),
        claim("law.settling", _settling_rate(far["NGD"], law)),
    ]


class Cycles(NamedTuple):
    """How far the offsets still move at the end of training, for several step sizes.

    The step sizes are `multiples` of the longest one with which offsets converge, and
    `moved` has the shape (runs, multiples).
    """

    multiples: np.ndarray
    momentum: float
    moved: np.ndarray


def cycles(
    tokens: TokenSet,
    multiples: Sequence[float],
    momentum: float = 0.0,
    steps: int = 20_000,
) -> Cycles:
    """Train every run by NGD with step sizes around the longest one with which offsets
    converge.

    A run starts from offsets that have converged, except that the residual is 1 % too
    long. `moved` is the largest change of an offset during the last LAST steps.
    """
    moved = np.empty((len(tokens.y), len(multiples)))
    record = np.arange(steps - LAST, steps + 1)
    for run in range(len(tokens.y)):
        problem = coordinates.minimal(tokens.run(run))
        solution = token_svm(problem.tokens)
        law = margin_law(problem.tokens, solution)
        data = problem.tokens
        delta = coordinates.differences(data, data.opt, masked_as_zero=True)
        residual = np.einsum("rnt,rntd,rne->rde", law.coefficients, delta, data.z)
        start = Start(100.0 * solution.W + 1.01 * residual, np.zeros(1))
        for column, multiple in enumerate(multiples):
            rule = NGD(multiple * law.longest_step(momentum)[0], momentum=momentum)
            history = train(problem, rule, steps, record, start=start)
            offsets = history.margins[0][:, law.support[0]]
            moved[run, column] = np.ptp(
                offsets - offsets.mean(1, keepdims=True), axis=0
            ).max()
    return Cycles(multiples=np.asarray(multiples), momentum=momentum, moved=moved)


def threshold(runs: Sequence[Cycles], short: float, long: float) -> list[Claim]:
    """Check that offsets converge with `short` times the longest step, and cycle with
    `long` times it.
    """
    return [
        short_step(runs, short, ""),
        claim("law.long", _moved(runs, long), "", f"{long:g}"),
    ]


def short_step(
    runs: Sequence[Cycles], multiple: float, setting: str | None = None
) -> Claim:
    """Check that the offsets of every run converge with `multiple` times the longest
    step.

    `multiple` is one of the multiples of `runs`. The id of the claim ends with
    `setting`, which is the multiple by default.
    """
    moved = _moved(runs, multiple)
    if moved.max() > LOUD:
        why = "a large cycle: the threshold is that of small disturbances"
    else:
        why = ""
    setting = f"{multiple:g}" if setting is None else setting
    return claim("law.short", moved, setting, f"{multiple:g}", remark=why)


def _moved(runs: Any, multiple: float):
    """Collect the moves at one multiple of the longest step in one array, over all runs
    and momenta.
    """
    return np.concatenate(
        [tried.moved[:, tried.multiples == multiple].ravel() for tried in runs]
    )


def _three_samples(h: float = 3.0) -> tuple[TokenSet, Start]:
    """Return three samples whose offsets cycle although the step is shorter than the
    longest one with which small errors decay, and the start.

    The rule has no momentum. The score of a token is its first coordinate, W_mm = (1,
    0), and kappa is proportional to (e^-h, 1, e^-h).
    """
    pairs = [[[h, 0], [h + 1, 1]], [[0, 0], [1, 0]], [[h, 0], [h + 1, -1]]]
    tokens = token_set(pairs, np.ones(3), z=np.ones((3, 1)), u=[1, 0])
    return tokens, Start(np.array([[[5.0], [5.0]]]), np.zeros(1))


def cycle_without_momentum(multiple: float = 0.9, steps: int = 20_000) -> Claim:
    """Check that the second coordinate of W_t keeps moving in `_three_samples`.

    The step is `multiple` times the longest one with which small errors of the offsets
    decay.
    """
    tokens, start = _three_samples()
    longest = margin_law(tokens, token_svm(tokens)).longest_step()[0]
    record = np.arange(steps - LAST, steps + 1)
    history = train(tokens, NGD(multiple * longest), steps, record, start=start)
    moved = np.ptp(history.margins[0, 1:, 0] - history.margins[0, 1:, 1])
    return claim("law.cycle", moved, "", f"{multiple:g}")


def _random_supports(draw: np.random.Generator, count: int, pairs: int) -> tuple:
    """Draw random sets of m = `pairs` tight constraints.

    The function returns pi* (count, m) and u (count, m, m - 1). They give A_m =
    (V/||V|| + u_m)/||V||, with sum_m pi*_m u_m = 0. Column j of u has the size e^{-cj},
    with a random c >= 0.
    """
    shares = np.exp(2 * draw.standard_normal((count, pairs)))
    shares /= shares.sum(1, keepdims=True)
    shrunk = -3 * draw.uniform(size=(count, 1, 1)) * np.arange(pairs - 1)
    across = draw.standard_normal((count, pairs, pairs - 1)) * np.exp(shrunk)
    return shares, across - shares[:, None] @ across


def _which_cycle(
    shares: np.ndarray,
    across: np.ndarray,
    starts: np.ndarray,
    momentum: float = 0.0,
    steps: int = 3000,
):
    """Find which saturated runs of NGD still move back and forth at the end.

    Let y = x/||V|| be the scaled deviation, D = sum_m pi_m u_m with pi_m proportional
    to pi*_m e^{-<u_m, y>}, and s = eta/||V||. A step moves y by s D/sqrt(1 + ||D||^2),
    plus `momentum` times the previous move. The step size is 0.9 times the longest one
    with which offsets converge.

    A run moves back and forth if its path over the last LAST steps is longer than LOUD
    s per step, and its net move is less than an eighth of this path.

    Parameters
    ----------
    shares, across : ndarray
        pi* (count, m) and u (count, m, m - 1), from `_random_supports`.
    starts : ndarray (count, starts, m - 1)
        Initial y in units of s.
    momentum : float
        The momentum, in [0, 1).
    steps : int
        The number of steps, at least LAST.

    Returns
    -------
    ndarray of bool (count, starts)
        Whether the run of each support and start moves back and forth.
    """
    modes = np.swapaxes(across, 1, 2) @ (shares[..., None] * across)
    step = 2 * 0.9 * (1 + momentum) / np.linalg.eigvalsh(modes)[:, -1, None, None]
    y = starts * step
    move = 0.0
    path = 0.0
    early = starts
    for left in range(steps, 0, -1):
        if left == LAST:
            early = y
            path = 0.0
        powers = np.log(shares)[:, None] - y @ np.swapaxes(across, 1, 2)
        pull = np.exp(powers - powers.max(-1, keepdims=True))
        D = pull @ across / pull.sum(-1, keepdims=True)
        move = momentum * move + step * D / np.sqrt(1 + (D**2).sum(-1, keepdims=True))
        y = y + move
        path = path + np.linalg.norm(move, axis=-1)
    net = np.linalg.norm(y - early, axis=-1)
    return (path > LAST * LOUD * step[..., 0]) & (net < path / 8)


def _random_starts(draw: np.random.Generator, count: int, pairs: int) -> np.ndarray:
    """Draw 20 starts per support, an array (count, 20, pairs - 1), in units of the
    step.

    The lengths of the starts are lognormal around e^{-1}.
    """
    starts = draw.standard_normal((count, 20, pairs - 1))
    starts /= np.linalg.norm(starts, axis=-1, keepdims=True)
    lengths = np.exp(draw.normal(-1, 1, starts.shape[:2]))
    return starts * lengths[..., None]


def search(
    count: int, pairs: int, momentum: float = 0.0, longer: int = 0
) -> tuple[int, int]:
    """Count the random supports on which a run moves back and forth with 0.9 of the
    longest step.

    The function returns two numbers. The first says on how many of `count` supports of
    `pairs` pairs a run does so after the usual number of steps. The second says on how
    many of these supports a run still does so after `longer` steps; it is 0 if `longer`
    is 0.
    """
    draw = stream(pairs, "problems")
    early = 0
    late = 0
    for first in range(0, count, 50):  # train on 50 supports at a time
        shares, across = _random_supports(draw, min(50, count - first), pairs)
        starts = _random_starts(draw, len(shares), pairs)
        cycles = _which_cycle(shares, across, starts, momentum=momentum)
        some_start_cycles = cycles.any(1)
        early += some_start_cycles.sum()
        if longer <= 0:
            continue
        for k in np.flatnonzero(some_start_cycles):
            cycling_starts = starts[k, cycles[k]]
            still = _which_cycle(
                shares[[k]],
                across[[k]],
                cycling_starts[None],
                momentum=momentum,
                steps=longer,
            )
            late += still.any()
    return int(early), int(late)


def difference_errors(history: History, W_mm: np.ndarray) -> np.ndarray:
    """Return the direction errors (runs, records - 1) of W at record k + 1 minus W at
    record k.

    The error is NaN after a run has ended.
    """
    W = [history.weights(k) for k in range(len(history.iterations))]
    return np.stack([margins.direction_error(b - a, W_mm) for a, b in pairwise(W)], 1)


def gd_order(history: History, errors: np.ndarray, law: MarginLaw) -> Claim:
    """Check that under GD the error of W_{2t} - W_t falls like log t / t^lambda.

    Here lambda = min(lambda_1, 1). The fit is over four doublings of t; t doubles from
    one record to the next. `errors` (runs, records - 1) are `difference_errors` of the
    history. We have proved only the weaker t^-q for every q < min(lambda, excess).
    """
    t = history.iterations[1:][-5:]
    y = errors[:, -5:]
    fitted = [np.polyfit(np.log(t), np.log(e / np.log(t)), 1)[0] for e in y]
    return claim("law.gd_order", np.array(fitted) + np.minimum(law.slowest, 1.0))


def ngd_claims(
    history: History, target: str, errors: np.ndarray, law: MarginLaw
) -> tuple[Claim, Claim]:
    """Check the law at the end of a long NGD run, and that W_{2t} - W_t is nearer to
    the direction of W_mm than W_{2t} is.

    `errors` (runs, records - 1) are `difference_errors` of the history, whose last two
    records are at t and 2t.
    """
    off = ratio_to_law(history, target, law)[:, -1] - 1
    gains = history.direction_error[target][:, -1] / errors[:, -1]
    end = f"{history.iterations[-1]:,}"
    return claim("law.long_run", off, "", end), claim("law.gain", gains)
