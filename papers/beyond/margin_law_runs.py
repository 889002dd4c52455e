"""The law of the margins met by training: one run's prediction beside what the run measured.

The prediction is `margin_law`'s and knows the tokens, the head and the loss; of the run it
is told which tokens it selects and what lies outside the support's span, early on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.dynamics.gradient_descent import Start, train, zero_start
from lib.dynamics.rules import GradientRule
from lib.svm.max_margin import Infeasible, MaxMargin, token_svm
from papers.beyond import margin_theorem, margin_theorem_momentum
from papers.beyond import margins as measure
from papers.beyond.margin_law import MarginLaw, margin_law
from papers.beyond.margin_law_premises import check_rest, check_selection, check_settled
from papers.beyond.margin_slopes import PremiseFails, saturated_slopes


@dataclass(frozen=True)
class LawSetting:
    """A problem, a rule and a loss, one run per data set; start: W_0, default zero."""

    name: str
    tokens: TokenSet | coordinates.Minimal
    rule: GradientRule
    loss: str = "exponential"
    start: Start | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one run measured at its late records (k,), the last decade of its iterations.

    Of the last iteration but one only `moved` is kept: how much an offset moved in the last step.

    error (k,) is the direction error against W_mm, norm (k,) ||W_t||, level (k,) a_t = <W_t,
    W_mm>/||W_mm||^2; margins (n, T-1) and step_length of the last record; outside: norm of what lay
    off the support's span at the first of them (W_0's, where all constraints carry W_mm); residual:
    norm of W_T's part in that span across W_mm, T the last iteration. difference_error and
    difference_gap: direction error of W_T - W_{T/2}, T the last iteration, and its `duality_gap`
    with the duals read off the margins.
    """

    iterations: np.ndarray
    error: np.ndarray
    norm: np.ndarray
    level: np.ndarray
    margins: np.ndarray
    moved: float
    step_length: float
    outside: float
    residual: float
    difference_error: float
    difference_gap: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One run: its law and what it measured; both None where `refusal` says which premise fails.

    premise: its name; amount: by how much it fails, NaN where there is no W_mm to ask. tokens,
    selected, solution, log_slopes, law: all of this run alone, a runs axis of length 1. margins
    (3, n, T-1): at a tenth of the steps, at the last but one and at the last.
    """

    setting: LawSetting
    run: int
    refusal: str = ""
    premise: str = ""
    amount: float = np.nan
    tokens: TokenSet | None = None
    selected: np.ndarray | None = None
    solution: MaxMargin | None = None
    log_slopes: np.ndarray | None = None
    law: MarginLaw | None = None
    measured: Measured | None = None
    margins: np.ndarray | None = None

    @property
    def duals_alone(self) -> bool:
        """Whether the prediction is C alone: W_0 = 0, and all constraints carry W_mm."""
        return self.setting.start is None and bool(self.law.support.all())

    def proof(self, early: bool = False, everywhere: bool = False) -> margin_theorem.Proof:
        """What the local theorem says of this run, from its last iterate on, or from a tenth on.

        everywhere: by steps shorter than 8/D^2 alone. With momentum from the last iterate alone.
        """
        of = margin_theorem.local(self.tokens, self.law, self.selected, self.setting.loss)
        tenth, before, last = self.margins
        if self.setting.rule.momentum and not (early or everywhere):
            return margin_theorem_momentum.prove(of, self.setting.rule, before, last)
        return margin_theorem.prove(of, self.setting.rule, tenth if early else last, everywhere)

    @property
    def predicted(self) -> float:
        """The direction error that the law sets at the last record's ||W_t||."""
        last = self.measured.norm[-1:]
        return float(self.law.direction_error(last, self.measured.outside)[0])


def late_records(steps: int) -> np.ndarray:
    """Iteration 0, eleven evenly spaced in log t over the last decade, steps / 2 and steps - 1."""
    late = np.geomspace(steps / 10, steps, 11).round().astype(int)
    return np.unique(np.concatenate([[0, steps // 2, steps - 1], late]))


def compare(setting: LawSetting, steps: int) -> list[Comparison]:
    """Train every run of a setting for `steps` iterations and hold it against its law."""
    problem = coordinates.minimal(setting.tokens)
    setting = replace(setting, tokens=problem.tokens)  # the bases are large, and nobody's
    start = setting.start or zero_start(problem)
    history = train(
        problem, setting.rule, steps, late_records(steps), start=start, loss=setting.loss
    )
    selected = measure.selection(history, problem.tokens.opt)
    margins = measure.relative_margins(history, problem.tokens.opt, selected)
    found = []
    for run in range(len(selected)):
        try:
            found.append(_compare(setting, problem.tokens, history, start, selected, margins, run))
        except PremiseFails as refused:  # told of one run by itself, it does not know which
            said = str(PremiseFails(refused.premise, run, refused.amount, refused.said))
            of = dict(refusal=said, premise=refused.premise, amount=refused.amount)
            found.append(Comparison(setting=setting, run=run, **of))
        except (Infeasible, RuntimeError) as refused:  # no W_mm, or none within accuracy
            of = dict(refusal=f"run {run}: {refused}", premise="solution")
            found.append(Comparison(setting=setting, run=run, **of))
    return found


def _compare(setting, tokens, history, start, selected, margins, run):
    part, chosen = tokens.run(run), selected[run : run + 1]
    check_selection(run, margins[run, -1])
    solution = token_svm(part, chosen)
    slopes = saturated_slopes(part, chosen, setting.loss)
    law = margin_law(part, solution, chosen, log_slopes=slopes)
    of = Comparison(
        setting=setting,
        run=run,
        tokens=part,
        selected=chosen,
        solution=solution,
        log_slopes=slopes,
        law=law,
    )
    measured = _measure(of, history, margins[run, -2:], float(start.outside[run]))
    check_settled(run, law, measured, setting.rule.momentum)
    check_rest(run, measured)
    return replace(of, measured=measured, margins=margins[run, [1, -2, -1]])


def _measure(of, history, margins, off_span):
    """`Measured` of one run from its margins (2, n, T-1) at the last two records.

    off_span: the norm of W_0's part outside minimal coordinates.
    """
    run = of.run
    W = [history.weights(k)[run : run + 1] for k in range(len(history.iterations))]
    V, support = of.solution.W, of.law.support
    late = np.r_[1 : len(W) - 2, len(W) - 1]  # without steps - 1, which would weigh in the fits
    along = np.array([measure.along_and_off(w, V)[0][0] for w in W])
    early = W[0] if support.all() else W[1]  # W_0 tells it all where nothing else moves it
    left = measure.outside_support(of.tokens, of.selected, support, early)[0]
    half = int(np.flatnonzero(history.iterations == history.iterations[-1] // 2)[0])
    step = W[-1] - W[half]
    duals = measure.recovered_duals(margins[-1], of.log_slopes[0])[None]
    offsets = margins[:, support[0]]
    offsets = offsets - offsets.mean(1, keepdims=True)
    return Measured(
        iterations=history.iterations[late],
        error=np.array([measure.direction_error(W[k], V, off_span)[0] for k in late]),
        norm=history.norm[run, late],
        level=along[late] / of.solution.norm[0],
        margins=margins[-1],
        moved=float(np.abs(offsets[1] - offsets[0]).max()),
        step_length=float(np.exp(history.log_step[run, -1] + history.log_gradient[run, -1])),
        outside=float(np.hypot(left, off_span)),
        residual=measure.residual(of.tokens, of.selected, support, W[-1], V)[0],
        difference_error=float(measure.direction_error(step, V)[0]),
        difference_gap=duality_gap(of.tokens, of.selected, step, duals)[0],
    )


def duality_gap(tokens: TokenSet, selected: np.ndarray, W: np.ndarray, duals: np.ndarray):
    """How far W is from the max-margin direction, proved by duals of any origin, (runs,).

    W / (least margin of W) is feasible, and 1^T beta / ||sum beta_m A_m|| a lower bound on the
    norm of all that is: the relative distance of the two. Needs no solver. W (runs, r, q), duals
    (runs, n, T-1) >= 0.
    """
    delta = coordinates.differences(tokens, selected)
    least = np.einsum("rntd,rde,rne->rnt", delta, W, tokens.z, optimize=True).min((1, 2))
    pulled = np.einsum("rnt,rntd,rne->rde", duals, delta, tokens.z, optimize=True)
    bound = duals.sum((1, 2)) / np.linalg.norm(pulled, axis=(1, 2))
    return 1 - bound * least / np.linalg.norm(W, axis=(1, 2))


def kept(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The runs whose premises hold."""
    return [one for one in comparisons if not one.refusal]
