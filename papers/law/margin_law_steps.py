"""Steps and the law of the margins: growing until it is seen, or too long to settle.

One step, without momentum, that raises the margins by s multiplies a wrong offset in
the mode of eigenvalue lambda by 1 - s lambda.
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

LAST = 64  # records over which a move is read


def _growing_gd(step_size: float, growth: float):
    """GD with eta_t = step_size e^{growth t}: margins grow by `growth` a step."""
    return Custom(
        lambda t, gap, norm: np.log(step_size) + growth * t + 0.0 * norm,
        logarithmic=True,
    )


def _growing_polyak(max_step: float, growth: float):
    """min((L - L*)/(2 ||grad L||^2), max_step e^{growth t}), Polyak's step."""

    def cap(t: np.ndarray):
        return np.log(max_step) + growth * t

    return Custom(
        lambda t, gap, norm: np.minimum(gap - rules.LOG_2 - 2 * norm, cap(t)),
        logarithmic=True,
    )


def figure2_runs(
    problem: coordinates.Minimal, W_mm: np.ndarray, growing_steps: int
) -> tuple[dict[str, History], dict[str, History]]:
    """Every rule on Figure 2's problem: those that go far, and constant steps."""

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
    """Direction error over the law's at the same ||W_t||, (runs, k): it tends to 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return history.direction_error[target] / law.direction_error(history.norm)


def _settling_rate(history: History, law: MarginLaw):
    """Decay of the slowest mode per margin, over its eigenvalue, 1e-3 to 1e-8."""
    level = history.norm / law.norm[:, None]
    offsets = np.where(law.support, law.offsets, 0.0)[:, None]
    terms = (history.margins - offsets) * law.slowest_mode[:, None]
    on = law.support[:, None]  # off it the mode is zero; a masked token's margin is NaN
    left = np.abs(np.where(on, terms, 0.0).sum((2, 3)))
    rates = []
    for run, (a, y) in enumerate(zip(level, left, strict=True)):
        keep = (y > 1e-8) & (y < 1e-3)
        rates.append(-np.polyfit(a[keep], np.log(y[keep]), 1)[0] / law.slowest[run])
    return np.array(rates)


def figure2_claims(
    far: Mapping, constant: Mapping, target: str, law: MarginLaw
) -> list[Claim]:
    """Errors over ||W_t|| end on one line for those that go `far` alone."""

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
    """How offsets still move, (runs, multiples), at `multiples` x the longest step."""

    multiples: np.ndarray
    momentum: float
    moved: np.ndarray


def cycles(
    tokens: TokenSet,
    multiples: Sequence[float],
    momentum: float = 0.0,
    steps: int = 20_000,
) -> Cycles:
    """Train every run with NGD around the longest step that settles, from the settled
    state, residual 1 % too long; `moved`: offsets' largest change in LAST steps.
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
    """Offsets settle at `short` and cycle at `long`, multiples of the longest step."""
    return [
        short_step(runs, short, ""),
        claim("law.long", _moved(runs, long), "", f"{long:g}"),
    ]


def short_step(
    runs: Sequence[Cycles], multiple: float, setting: str | None = None
) -> Claim:
    """Offsets settle at `multiple` of the longest step in every run."""
    moved = _moved(runs, multiple)
    if moved.max() > LOUD:
        why = "a large cycle: the threshold is that of small disturbances"
    else:
        why = ""
    setting = f"{multiple:g}" if setting is None else setting
    return claim("law.short", moved, setting, f"{multiple:g}", remark=why)


def _moved(runs: Any, multiple: float):
    """Moves at one multiple of the longest step, all runs and momenta in one axis."""
    return np.concatenate(
        [tried.moved[:, tried.multiples == multiple].ravel() for tried in runs]
    )


def _three_samples(h: float = 3.0) -> tuple[TokenSet, Start]:
    """Three samples whose offsets cycle below the longest step, without momentum; the
    start. Scored by the first coordinate; W_mm = (1, 0), kappa ~ (e^-h, 1, e^-h).
    """
    pairs = [[[h, 0], [h + 1, 1]], [[0, 0], [1, 0]], [[h, 0], [h + 1, -1]]]
    tokens = token_set(pairs, np.ones(3), z=np.ones((3, 1)), u=[1, 0])
    return tokens, Start(np.array([[[5.0], [5.0]]]), np.zeros(1))


def cycle_without_momentum(multiple: float = 0.9, steps: int = 20_000) -> Claim:
    """W_t's second coordinate in `_three_samples` at `multiple` x the longest."""
    tokens, start = _three_samples()
    longest = margin_law(tokens, token_svm(tokens)).longest_step()[0]
    record = np.arange(steps - LAST, steps + 1)
    history = train(tokens, NGD(multiple * longest), steps, record, start=start)
    moved = np.ptp(history.margins[0, 1:, 0] - history.margins[0, 1:, 1])
    return claim("law.cycle", moved, "", f"{multiple:g}")


def _random_supports(draw: np.random.Generator, count: int, pairs: int) -> tuple:
    """Random tight pairs: pi* (count, m), u (count, m, m - 1), m = `pairs`: A_m =
    (V/||V|| + u_m)/||V||, sum_m pi*_m u_m = 0, column j of u ~ e^{-cj}.
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
    """Which saturated runs of NGD still go to and fro in the end, (count, starts).

    y = x/||V|| moves by s D/sqrt(1 + ||D||^2), D = sum_m pi_m u_m, s = eta/||V||, at
    0.9 of the longest step, pi_m proportional to pi*_m e^{-<u_m, y>}, from s times
    `starts` (count, starts, k). Such a run moves by LOUD s a step in the mean of the
    last LAST, and in all by an eighth of that.
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
    """20 starts a support, (count, 20, pairs - 1): lengths lognormal around e^{-1}."""
    starts = draw.standard_normal((count, 20, pairs - 1))
    starts /= np.linalg.norm(starts, axis=-1, keepdims=True)
    lengths = np.exp(draw.normal(-1, 1, starts.shape[:2]))
    return starts * lengths[..., None]


def search(
    count: int, pairs: int, momentum: float = 0.0, longer: int = 0
) -> tuple[int, int]:
    """How many of `count` supports go to and fro at 0.9; how many after `longer`."""
    draw = stream(pairs, "problems")
    early = 0
    late = 0
    for first in range(0, count, 50):  # 50 supports at a time
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
    """Direction error of W at record k + 1 less W at k, (runs, k - 1), or NaN."""
    W = [history.weights(k) for k in range(len(history.iterations))]
    return np.stack([margins.direction_error(b - a, W_mm) for a, b in pairwise(W)], 1)


def gd_order(history: History, errors: np.ndarray, law: MarginLaw) -> Claim:
    """GD: the error of W_{2t} - W_t falls like log t / t^lambda, lambda = min(lambda_1,
    1), by four doublings. Proved: t^-q for every q < min(lambda, excess).
    """
    t = history.iterations[1:][-5:]
    y = errors[:, -5:]
    fitted = [np.polyfit(np.log(t), np.log(e / np.log(t)), 1)[0] for e in y]
    return claim("law.gd_order", np.array(fitted) + np.minimum(law.slowest, 1.0))


def ngd_claims(
    history: History, target: str, errors: np.ndarray, law: MarginLaw
) -> tuple[Claim, Claim]:
    """The law at the end; W_{2t} - W_t, of `errors`, is nearer to W_mm there."""
    off = ratio_to_law(history, target, law)[:, -1] - 1
    gains = history.direction_error[target][:, -1] / errors[:, -1]
    end = f"{history.iterations[-1]:,}"
    return claim("law.long_run", off, "", end), claim("law.gain", gains)
