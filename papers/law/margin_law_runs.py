"""Compare a run with the prediction of the law of the margins.

The prediction uses the tokens, the head, the loss, the tokens that the run selects, and
the part of W that lies outside the support's span early in the run.
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
    """A problem, a rule and a loss, with one run per data set.

    `start` is W_0, by default zero.
    """

    name: str
    tokens: TokenSet | coordinates.Minimal
    rule: Rule
    loss: str = "exponential"
    start: Start | None = None


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """The measurements on one run.

    The late records (k,) are those in the last decade of its T iterations.
    """

    iterations: np.ndarray
    error: np.ndarray  # (k,) direction error against W_mm
    norm: np.ndarray  # (k,) ||W_t||
    level: np.ndarray  # (k,) a_t = <W_t, W_mm>/||W_mm||^2
    moved: float  # how much an offset moved in the last step
    step_length: float  # length of the last step
    # The norm of W's part outside the support's span, at the first record or in W_0.
    outside: float
    # norm of the part of W_T that is in that span and orthogonal to W_mm
    residual: float
    difference_error: float  # direction error of W_T - W_{T/2}
    # The `_duality_gap` of W_T - W_{T/2}, with the duals computed from the margins.
    difference_gap: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One run with its law and its measurements, or with the premise of the law that
    fails.
    """

    setting: LawSetting
    run: int
    # (3, n, T-1): the margins after a tenth of the steps, at the last step but one, and
    # at the last step.
    margins: np.ndarray
    refusal: str = ""
    premise: str = ""
    amount: float = np.nan  # by how much the run violates the premise
    tokens: TokenSet | None = None
    selected: np.ndarray | None = None
    solution: MaxMargin | None = None
    log_slopes: np.ndarray | None = None
    law: MarginLaw | None = None
    measured: _Measured | None = None

    @property
    def duals_alone(self) -> bool:
        """Return whether C is the whole predicted residual.

        This is true if W_0 = 0 and all constraints are on the support.
        """
        return self.setting.start is None and bool(self.law.support.all())

    def proof(
        self, early: bool = False, everywhere: bool = False
    ) -> margin_theorem.Proof:
        """Apply the local theorem to the last iterate or, if `early`, to the iterate
        after a tenth of the run.

        With `everywhere`, steps must be short enough for every start, as in
        `margin_theorem.prove`. With momentum, the theorem covers only the last iterate,
        and not `everywhere`. The law of the run must be known.
        """
        local = margin_theorem.Local(
            self.tokens, self.law, self.selected, self.setting.loss
        )
        (tenth, before, last) = self.margins
        rule = self.setting.rule
        if rule.momentum and not (early or everywhere):
            return margin_theorem.prove_with_momentum(local, rule, before, last)
        if early:
            return margin_theorem.prove(local, rule, tenth, everywhere)
        return margin_theorem.prove(local, rule, last, everywhere)

    @property
    def predicted(self) -> float:
        """Return the direction error that the law predicts for ||W_t|| at the last
        record.

        If a premise fails, the method raises ValueError and says which.
        """
        if self.measured is None:
            raise ValueError(
                f"the law predicts nothing for this run, since {self.refusal}"
            )
        last = self.measured.norm[-1:]
        return float(self.law.direction_error(last, self.measured.outside)[0])


def compare(setting: LawSetting, steps: int) -> list[Comparison]:
    """Train every run of a setting for `steps` steps, and compare each run with its
    law.

    If a premise of the law fails for a run, or if the SVM of the run has no solution,
    the comparison says so. The function raises ValueError if a run ends early.
    """
    problem = coordinates.minimal(setting.tokens)
    # The bases of the minimal coordinates are large, and we no longer need them.
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
        # It was raised for a single run, and names it run 0.
        except PremiseFails as why:
            reason = str(PremiseFails(why.premise, run, why.amount, why.reason))
            at = replace(at, refusal=reason, premise=why.premise, amount=why.amount)
        # W_mm does not exist, or was not found within the accuracy.
        except (Infeasible, RuntimeError) as why:
            at = replace(at, refusal=f"run {run}: {why}", premise="solution")
        compared.append(at)
    return compared


def _compare(c: Any, history: History, start: Any, selected: Any):
    """Return the comparison `c` with the law and the measurements filled in, or raise
    PremiseFails.
    """
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
    """Return the `_Measured` of one run.

    `off_span` is the norm of W_0's part outside the minimal coordinates.
    """
    run = c.run
    V = c.solution.W
    support = c.law.support
    iterations = history.iterations
    W = [history.weights(k)[run : run + 1] for k in range(len(iterations))]
    last = len(W) - 1

    # The late records. We leave out the last iteration but one, because two records so
    # close to each other would bias the fits.
    late = np.r_[1 : last - 1, last]
    errors = [margins.direction_error(W[k], V, off_span)[0] for k in late]
    along = np.array([margins.along_and_off(w, V)[0][0] for w in W])

    # The length of the last step, and how much the offsets moved in it.
    log_length = history.log_step[run, -1] + history.log_gradient[run, -1]
    margins_on_support = c.margins[1:, support[0]]
    offsets = margins_on_support - margins_on_support.mean(1, keepdims=True)
    moved = np.abs(offsets[1] - offsets[0]).max()

    # The part of W outside the support's span. If all pairs are on the support, no step
    # changes this part, so we measure it in W_0.
    early = W[0] if support.all() else W[1]
    outside = margins.outside_support(c.tokens, c.selected, support, early)[0]

    # How far W moves in the second half of the run, W_T - W_{T/2}, and the duals
    # computed from the margins.
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
    """Return the relative duality gap (runs,) of W (runs, r, q) in the max-margin
    problem.

    Any nonnegative `duals` (runs, n, T-1) give an upper bound on the normalised margin.
    The gap is 1 minus the ratio of the normalised margin of W to this bound.
    """
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
    """Select the comparisons, or the points of a map, for which the premises of the law
    hold.
    """
    return [run for run in runs if not run.refusal]


def dual_shares(c: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Return beta / sum beta on the support, once computed from the margins and once
    from the solver, as two arrays (m,).
    """
    read = margins.recovered_duals(c.margins[-1], c.log_slopes[0])
    solved = c.law.duals[0]
    on = c.law.support[0]
    return read[on], solved[on] / solved.sum()


def offsets_missed(c: Comparison) -> np.ndarray:
    """Return the measured minus the predicted offsets on the support.

    The result has the shape (m,).
    """
    apart = c.margins[-1] - c.measured.level[-1] - c.law.offsets[0]
    return apart[c.law.support[0]]


def _values(c: Any):
    """Return the values of one run for the claims law.*, by the id of the claim.

    A value is a number, or an array with an entry for each pair on the support. The
    rule must be NGD or Polyak, because "lower_bound" needs to know how fast ||W_t||
    grows.
    """
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
    """Check every claim law.* on comparisons for which the premises of the law hold.

    The last claim is about the share of runs whose convergence the local theorem
    proves. At least one comparison is needed. The rules must be NGD or Polyak.
    """
    runs = [_values(c) for c in comparisons]
    values = {
        id: np.concatenate([np.atleast_1d(run[id]) for run in runs]) for id in runs[0]
    }
    values["proved"] = np.mean([c.proof().holds for c in comparisons])
    return [claim(f"law.{id}", value) for id, value in values.items()]
