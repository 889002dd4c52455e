"""A run beside what the law of the margins says of it, which knows tokens, head, loss,
the selection, and what is early outside the span.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from companion.claims import Claim
from lib.attention import TokenSet, coordinates
from lib.dynamics import History, Polyak, Rule, Start, train, zero_start
from lib.svm import Infeasible, MaxMargin, token_svm
from papers import saturation
from papers.law import margin_law, margin_theorem, margins
from papers.law.margin_law import MarginLaw, PremiseFails
from papers.ours import claim


@dataclass(frozen=True)
class LawSetting:
    """A problem, a rule and a loss, one run per data set; start: W_0, default zero."""

    name: str
    tokens: TokenSet | coordinates.Minimal
    rule: Rule
    loss: str = "exponential"
    start: Start | None = None


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """The late records (k,) of one run, the last decade of its T iterations."""

    iterations: np.ndarray
    error: np.ndarray  # (k,) direction error against W_mm
    norm: np.ndarray  # (k,) ||W_t||
    level: np.ndarray  # (k,) a_t = <W_t, W_mm>/||W_mm||^2
    moved: float  # how much an offset moved in the last step
    step_length: float  # of the last step
    outside: float  # what lay off the support's span at the first record, or in W_0
    residual: float  # norm of W_T's part in that span across W_mm
    difference_error: float  # direction error of W_T - W_{T/2}
    difference_gap: float  # its `_duality_gap` with the duals read off the margins


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One run: its law and what it measured, runs axis 1; or the premise that fails."""

    setting: LawSetting
    run: int
    # (3, n, T-1): at a tenth of the steps, at the last but one, at the last
    margins: np.ndarray
    refusal: str = ""
    premise: str = ""
    amount: float = np.nan  # by how much the premise fails
    tokens: TokenSet | None = None
    selected: np.ndarray | None = None
    solution: MaxMargin | None = None
    log_slopes: np.ndarray | None = None
    law: MarginLaw | None = None
    measured: _Measured | None = None

    @property
    def duals_alone(self) -> bool:
        """Whether the prediction is C alone: W_0 = 0, all constraints carry W_mm."""
        return self.setting.start is None and bool(self.law.support.all())

    def proof(
        self, early: bool = False, everywhere: bool = False
    ) -> margin_theorem.Proof:
        """The theorem from the last iterate, or (early) a tenth; everywhere: 8/D^2."""
        local = margin_theorem.Local(
            self.tokens, self.law, self.selected, self.setting.loss
        )
        (tenth, before, last) = self.margins
        rule = self.setting.rule
        if rule.momentum and not (early or everywhere):
            return margin_theorem.prove_with_momentum(local, rule, before, last)
        return margin_theorem.prove(local, rule, tenth if early else last, everywhere)

    @property
    def predicted(self) -> float:
        """The direction error that the law sets at the last record's ||W_t||."""
        last = self.measured.norm[-1:]
        return float(self.law.direction_error(last, self.measured.outside)[0])


def compare(setting: LawSetting, steps: int) -> list[Comparison]:
    """Train every run of a setting for `steps` steps; hold it against its law."""
    problem = coordinates.minimal(setting.tokens)
    # without the bases, which are large
    setting = replace(setting, tokens=problem.tokens)
    start = setting.start or zero_start(problem)
    late = np.geomspace(steps / 10, steps, 11).round().astype(int)
    record = np.unique([0, steps // 2, steps - 1, *late])
    history = train(
        problem, setting.rule, steps, record, start=start, loss=setting.loss
    )
    selected = margins.selection(history, problem.tokens.opt)
    relative = margins.relative_margins(history, problem.tokens.opt, selected)
    compared = []
    for run in range(len(selected)):
        at = Comparison(setting=setting, run=run, margins=relative[run, [1, -2, -1]])
        try:
            at = _compare(at, history, start, selected[run : run + 1])
        except PremiseFails as why:  # raised for one run by itself, as run 0
            reason = str(PremiseFails(why.premise, run, why.amount, why.reason))
            at = replace(at, refusal=reason, premise=why.premise, amount=why.amount)
        # no W_mm, or none within accuracy
        except (Infeasible, RuntimeError) as why:
            at = replace(at, refusal=f"run {run}: {why}", premise="solution")
        compared.append(at)
    return compared


def _compare(c: Any, history: History, start: Any, selected: Any):
    """The comparison with its law and what the run measured, or PremiseFails."""
    setting = c.setting
    run = c.run
    margins.check_selection(run, c.margins[-1])
    tokens = setting.tokens.run(run)
    solution = token_svm(tokens, selected)
    slopes = saturation.saturated_slopes(tokens, selected, setting.loss)
    law = margin_law.margin_law(tokens, solution, selected, log_slopes=slopes)
    c = replace(c, tokens=tokens, selected=selected, solution=solution)
    c = replace(c, log_slopes=slopes, law=law)
    measured = _measure(c, history, float(start.outside[run]))
    margins.check_settled(run, law, measured, setting.rule.momentum)
    return replace(c, measured=measured)


def _measure(c: Any, history: History, off_span: Any):
    """`_Measured` of one run; off_span: norm of W_0 outside the coordinates."""
    run = c.run
    V = c.solution.W
    support = c.law.support
    iterations = history.iterations
    W = [history.weights(k)[run : run + 1] for k in range(len(iterations))]
    last = len(W) - 1

    # The late records, without steps - 1, which would weigh in the fits.
    late = np.r_[1 : last - 1, last]
    errors = [margins.direction_error(W[k], V, off_span)[0] for k in late]
    along = np.array([margins.along_and_off(w, V)[0][0] for w in W])

    # The last step: its length, and how much the offsets moved.
    log_length = history.log_step[run, -1] + history.log_gradient[run, -1]
    margins_on_support = c.margins[1:, support[0]]
    offsets = margins_on_support - margins_on_support.mean(1, keepdims=True)
    moved = np.abs(offsets[1] - offsets[0]).max()

    # What lies off the span of the support. If all pairs are in it nothing else moves
    # W there, and W_0 tells it all.
    early = W[0] if support.all() else W[1]
    outside = margins.outside_support(c.tokens, c.selected, support, early)[0]

    # The second half of the run, W_T - W_{T/2}, and the duals read off the margins.
    half = int(np.flatnonzero(iterations == iterations[-1] // 2)[0])
    difference = W[-1] - W[half]
    duals = margins.recovered_duals(c.margins[-1], c.log_slopes[0])[None]
    return _Measured(
        iterations=iterations[late],
        error=np.array(errors),
        norm=history.norm[run, late],
        level=along[late] / c.solution.norm[0],
        moved=float(moved),
        step_length=float(np.exp(log_length)),
        outside=float(np.hypot(outside, off_span)),
        residual=margins.residual(c.tokens, c.selected, support, W[-1], V)[0],
        difference_error=float(margins.direction_error(difference, V)[0]),
        difference_gap=_duality_gap(c.tokens, c.selected, difference, duals)[0],
    )


def _duality_gap(
    tokens: TokenSet, selected: np.ndarray, W: np.ndarray, duals: np.ndarray
):
    """Relative distance of W (runs, r, q) from max-margin, by any duals."""
    delta = coordinates.differences(tokens, selected, masked_as_zero=True)
    margins = np.einsum("rntd,rde,rne->rnt", delta, W, tokens.z, optimize=True)
    hidden = coordinates.hidden_pairs(tokens, selected)
    if hidden is not None:
        margins[hidden] = np.inf
    smallest = margins.min((1, 2))
    pulled = np.einsum("rnt,rntd,rne->rde", duals, delta, tokens.z, optimize=True)
    bound = duals.sum((1, 2)) / np.linalg.norm(pulled, axis=(1, 2))
    return 1 - bound * smallest / np.linalg.norm(W, axis=(1, 2))


def kept(runs: Iterable) -> list:
    """The comparisons, or the points of a map, whose premises hold."""
    return [run for run in runs if not run.refusal]


def dual_shares(c: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """beta / sum beta read off the margins, and the law's, over the support."""
    read = margins.recovered_duals(c.margins[-1], c.log_slopes[0])
    solved = c.law.duals[0]
    on = c.law.support[0]
    return read[on], solved[on] / solved.sum()


def offsets_missed(c: Comparison) -> np.ndarray:
    """Measured less predicted offsets over the support."""
    apart = c.margins[-1] - c.measured.level[-1] - c.law.offsets[0]
    return apart[c.law.support[0]]


def _values(c: Any):
    """What the claims law.* ask of one run: a number, or one a support pair."""
    m = c.measured
    law = c.law
    rule = c.setting.rule
    if isinstance(rule, Polyak):  # how fast ||W_t|| grows per iteration
        speed = float(law.norm[0]) / 2
    else:
        speed = rule.step_size / (1 - rule.momentum)
    slope = np.polyfit(m.iterations, 1 / m.error, 1)[0]
    return {
        "constant": m.error[-1] / c.predicted - 1,
        "residual": m.residual / law.constant[0] - 1,
        "exponent": np.polyfit(np.log(m.norm), np.log(m.error), 1)[0],
        "lower_bound": slope * np.hypot(law.constant[0], m.outside) / speed,
        "offsets": offsets_missed(c),
        "duals": np.divide(*dual_shares(c)) - 1,
        "norm": np.ptp(m.norm) / np.ptp(m.level) / law.norm[0] - 1,
        "difference": m.error[-1] / m.difference_error,
        "certificate": abs(m.difference_gap),
    }


def all_claims(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Every claim on the kept runs; the last applies the local theorem."""
    runs = [_values(c) for c in comparisons]
    values = {
        id: np.concatenate([np.atleast_1d(run[id]) for run in runs]) for id in runs[0]
    }
    values["proved"] = np.mean([c.proof().holds for c in comparisons])
    return [claim(f"law.{id}", value) for id, value in values.items()]
