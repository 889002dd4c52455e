"""Steps and the law of the margins: those that grow until it is seen, those too long to settle.

The map of the offsets is the same for all rules: one step that raises the margins by s multiplies a
wrong offset in the mode of eigenvalue lambda by 1 - s lambda.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.dynamics.gradient_descent import Start, train
from lib.dynamics.history import History
from lib.dynamics.rules import LOG_2, GradientRule, custom, gd, ngd, polyak
from lib.svm.max_margin import token_svm
from papers.beyond import margins as measure
from papers.beyond.margin_law import MarginLaw, margin_law

OURS = "ours, beyond paper A's Theorem 1"
QUIET = 1e-6  # offsets that move by less over the last records have settled
LOUD = 1e-2  # and by more, cycle
LAST = 64  # records


def growing_gd(step_size: float, growth: float) -> GradientRule:
    """GD with eta_t = step_size e^{growth t}: margins grow by `growth` a step, not by growth/t.

    The path of gradient flow does not depend on the clock, and neither does the law; with constant
    steps ||W_t|| ~ log t reaches 13 in a million steps.
    """
    return custom(lambda t, log_gap, log_norm: np.log(step_size) + growth * t + 0.0 * log_norm)


def growing_polyak(max_step: float, growth: float) -> GradientRule:
    """Polyak's step, its cap growing: min((L - L*)/(2 ||grad L||^2), max_step e^{growth t})."""
    log_cap = np.log(max_step)
    return custom(
        lambda t, log_gap, log_norm: np.minimum(
            log_gap - LOG_2 - 2 * log_norm, log_cap + growth * t
        )
    )


def figure2_runs(
    problem: coordinates.Minimal, W_mm: np.ndarray, growing_steps: int
) -> tuple[dict[str, History], dict[str, History]]:
    """Every rule on the problem of Figure 2: those that go far enough for the law, and the others.

    The others have constant steps or a constant cap, so that ||W_t|| ~ log t.
    """

    def in_time(rule, steps, loss="exponential"):
        return train(problem, rule, steps, targets={"W_mm": W_mm}, loss=loss)

    far = {
        "GD, growing steps": in_time(growing_gd(1.0, 1.0), growing_steps),
        "GD, growing, logistic": in_time(growing_gd(1.0, 1.0), growing_steps, "logistic"),
        "Polyak, growing cap": in_time(growing_polyak(10.0, 0.8), growing_steps),
        "NGD": in_time(ngd(0.025), 100_000),
        "NGD, logistic": in_time(ngd(0.025), 100_000, "logistic"),
        "NGD-mom": in_time(ngd(0.025, momentum=0.9), 20_000),
        "Polyak, no cap": in_time(polyak(), 10_000),
    }
    return far, {"GD": in_time(gd(1.0), 100_000), "Polyak": in_time(polyak(10.0), 100_000)}


def ratio_to_law(history: History, target: str, law: MarginLaw) -> np.ndarray:
    """Direction error over the law's at the same ||W_t||, (runs, k): tends to 1 for every rule."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return history.direction_error[target] / law.direction_error(history.norm)


def within_from(histories: Mapping[str, History], target: str, law: MarginLaw, off=0.01) -> float:
    """The ||W_t|| beyond which every rule stays within `off`, relatively, of the law."""
    found = []
    for history in histories.values():
        far = np.abs(ratio_to_law(history, target, law)[0, 1:] - 1) > off
        found.append(history.norm[0, 1:][far].max(initial=0.0))
    return max(found)


def collapse(histories: dict[str, History], target: str, law: MarginLaw) -> Claim:
    """Error against ||W_t|| is one line for all rules and losses: last records over C/||W_t||."""
    last = np.concatenate([ratio_to_law(h, target, law)[:, -1] for h in histories.values()])
    statement = "direction error over C/||W_t|| at the end, worst rule"
    return close("law.collapse", statement, OURS, furthest(last, 1.0), 1.0, 1e-6)


def not_yet(history: History, target: str, law: MarginLaw, rule: str) -> Claim:
    """Constant GD steps leave the law unseen: how far from it a run of this length ends."""
    last = np.abs(ratio_to_law(history, target, law)[:, -1] - 1).min()
    statement = f"{rule}, constant steps: |error over C/||W_t|| - 1| at the end, least run"
    return at_least(f"law.unseen.{rule}", statement, OURS, last, 0.1)


def settling_rate(
    history: History, law: MarginLaw, least: float = 1e-8, most: float = 1e-3
) -> np.ndarray:
    """Decay of the slowest mode of the offsets per unit of margin, over its eigenvalue, (runs,).

    Fitted where that mode's size lies between `least` and `most`: when what is of second order in
    it is over. For runs that end in the opt tokens.
    """
    level = history.norm / law.norm[:, None]
    offsets = np.where(law.support, law.offsets, 0.0)[:, None]
    left = np.abs(((history.margins - offsets) * law.slowest_mode[:, None]).sum((2, 3)))
    found = []
    for run, (a, y) in enumerate(zip(level, left, strict=True)):
        keep = (y > least) & (y < most)
        found.append(-np.polyfit(a[keep], np.log(y[keep]), 1)[0] / law.slowest[run])
    return np.array(found)


def settles_at(rates: np.ndarray) -> Claim:
    """Wrong offsets decay like e^{-lambda_1 a_t}: the fitted rate over the eigenvalue."""
    statement = "decay of the slowest mode per unit of margin, over lambda_1, worst run"
    return close("law.settling", statement, OURS, furthest(rates, 1.0), 1.0, 0.02)


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """How much offsets still move, (runs, multiples), at steps `multiples` x the longest one."""

    multiples: np.ndarray
    momentum: float
    moved: np.ndarray


def cycles(
    tokens: TokenSet, multiples: Sequence[float], momentum: float = 0.0, steps: int = 20_000
) -> Cycles:
    """Train every run with NGD at steps around the longest that lets the offsets settle.

    From the settled state with its residual 1 % too long, so that a disturbance either dies or
    grows. What is reported is the largest change of an offset over the last LAST iterations.
    """
    moved = np.empty((len(tokens.y), len(multiples)))
    record = np.arange(steps - LAST, steps + 1)
    for run in range(len(tokens.y)):
        problem = coordinates.minimal(tokens.run(run))
        solution = token_svm(problem.tokens)
        law = margin_law(problem.tokens, solution)
        start = settled_start(problem.tokens, solution.W, law)
        longest = law.longest_step(momentum)[0]
        for column, multiple in enumerate(multiples):
            rule = ngd(multiple * longest, momentum=momentum)
            history = train(problem, rule, steps, record, start=start)
            offsets = history.margins[0][:, law.support[0]]  # (records, support)
            offsets = offsets - offsets.mean(1, keepdims=True)
            moved[run, column] = np.ptp(offsets, axis=0).max()
    return Cycles(multiples=np.asarray(multiples), momentum=momentum, moved=moved)


def settled_start(
    tokens: TokenSet, W_mm: np.ndarray, law: MarginLaw, level: float = 100.0, longer: float = 1.01
) -> Start:
    """W_0 = level W_mm + longer rho_perp: where a run would be at margin level a_t = `level`."""
    delta = coordinates.differences(tokens, tokens.opt)
    residual = np.einsum("rnt,rntd,rne->rde", law.coefficients, delta, tokens.z)
    return Start(level * W_mm + longer * residual, np.zeros(len(W_mm)))


def threshold(found: Sequence[Cycles], below: float, above: float) -> list[Claim]:
    """Offsets settle at `below` and cycle at `above`, multiples of the longest step."""
    long = f"step {above:g} x the longest: least move of an offset"
    return [
        short_step(found, below, "law.short"),
        at_least("law.long", long, OURS, _moved(found, above).min(), LOUD),
    ]


def short_step(found: Sequence[Cycles], multiple: float, id: str = "") -> Claim:
    """Offsets settle at `multiple` of the longest step, with every momentum and in every run.

    The threshold is that of small disturbances. Where the claim fails with momentum, a disturbance
    that is not small ends in a large cycle.
    """
    statement = f"step {multiple:g} x the longest: largest move of an offset"
    id = id or f"law.short.{multiple:g}"
    most = _moved(found, multiple).max()
    why = "a large cycle: the threshold is that of small disturbances" if most > LOUD else ""
    return at_most(id, statement, OURS, most, QUIET, remark=why)


def _moved(found, multiple):
    """Moves at one multiple of the longest step, all runs and momenta in one axis."""
    return np.concatenate([c.moved[:, c.multiples == multiple].ravel() for c in found])


def difference_errors(history: History, W_mm: np.ndarray) -> np.ndarray:
    """Direction error of W at record k + 1 less that at k, (runs, k - 1); W_mm (runs, r, q)."""
    pairs = range(len(history.iterations) - 1)
    return np.stack(
        [measure.direction_error(measure.difference(history, k, k + 1), W_mm) for k in pairs], 1
    )


def gd_order(history: History, errors: np.ndarray, law: MarginLaw) -> Claim:
    """GD: the error of W_{2t} - W_t falls like log t / t^lambda, lambda = min(lambda_1, 1).

    Proved: at most t^-q for every q < min(lambda_1, 1, excess). Where lambda_1 is near 1 a factor
    log t comes with it, the resonance with the saturation of the softmax weights: measured, over
    the last four doublings, and not to be asked of other lambda_1 or of an excess below 1.
    """
    t, y = history.iterations[1:][-5:], errors[:, -5:]
    fitted = [np.polyfit(np.log(t), np.log(e / np.log(t)), 1)[0] for e in y]
    off = np.array(fitted) + np.minimum(law.slowest, 1.0)
    statement = "GD: exponent of error/log t of W_{2t} - W_t, plus min(lambda_1, 1), worst run"
    return close("law.gd_order", statement, OURS, furthest(off), 0.0, 0.06)


def gain(history: History, target: str, errors: np.ndarray) -> Claim:
    """W_{2t} - W_t is nearer to W_mm than W_{2t}, at the last record (`difference_errors`)."""
    least = (history.direction_error[target][:, -1] / errors[:, -1]).min()
    statement = "NGD: direction error of W_{2t} over that of W_{2t} - W_t, last record"
    return at_least("law.gain", statement, OURS, least, 1e5)


def long_run(history: History, target: str, law: MarginLaw) -> Claim:
    """The law at the end of the longest run."""
    off = ratio_to_law(history, target, law)[:, -1] - 1
    end = f"NGD at t = {history.iterations[-1]:,}"
    statement = f"{end}: direction error over its prediction, less 1"
    return close("law.long_run", statement, OURS, furthest(off), 0.0, 1e-6)
