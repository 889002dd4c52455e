"""The law of the margins as claims: each takes the comparisons of `margin_law_runs`.

Their bounds are sharp enough for the wrong worlds of `margin_law_worlds` to be caught.
"""

from collections.abc import Sequence

import numpy as np

from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.dynamics.rules import POLYAK
from papers.beyond import margins as measure
from papers.beyond.margin_law_runs import Comparison

# Set before the runs that they judge; SETTLED = 1e-7 of wrong offsets may be left, times their size
CONSTANT = 1e-6  # relative error of the predicted direction error
RESIDUAL = 1e-6  # relative error of C, measured without what lies outside the span
OFFSET = 1e-6  # largest error of an offset
EXPONENT = 1e-3
SPEED = 1e-5  # relative error of the slope of 1/error in t
DUAL = 1e-5  # relative error of a recovered dual
NORM = 1e-6  # relative error of ||W_mm|| read off the growth of norm and margins
GAIN = 1e5  # least factor by which a difference of iterates is nearer to W_mm than the iterate
CERTIFICATE = 1e-9  # largest duality gap of what training alone hands over
PROVED = 90 / 96  # least share of runs whose limit the theorem proves
OURS = "ours, beyond paper A's Theorem 1"


def all_claims(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Every claim below on the runs whose premises hold; `comparisons` must hold at least one."""
    checks = constant, residual, exponent, lower_bound, offsets, duals, norm, difference
    return [check(comparisons) for check in (*checks, certificate, proved)]


def constant(comparisons: Sequence[Comparison]) -> Claim:
    """Direction error at the last record over its prediction, about hypot(C, omega)/||W_t||.

    C = ||rho_perp|| is from the SVM's duals; omega, `Measured.outside`, is zero where
    `Comparison.duals_alone`, and read off the same run at a tenth of its length elsewhere.
    """
    worst = furthest([c.measured.error[-1] / c.predicted - 1 for c in comparisons])
    statement = "direction error over its prediction, less 1: worst of all runs"
    return close("law.constant", statement, OURS, worst, 0.0, CONSTANT)


def residual(comparisons: Sequence[Comparison]) -> Claim:
    """Norm of W_T's part in the span of the support, across W_mm, over C: no omega is asked."""
    worst = furthest([c.measured.residual / c.law.constant[0] - 1 for c in comparisons])
    statement = "residual across W_mm in the support's span, over C, less 1: worst of all runs"
    return close("law.residual", statement, OURS, worst, 0.0, RESIDUAL)


def exponent(comparisons: Sequence[Comparison]) -> Claim:
    """The direction error falls like ||W_t||^-1: fitted over the last decade of t."""
    measured = [c.measured for c in comparisons]
    found = [np.polyfit(np.log(one.norm), np.log(one.error), 1)[0] for one in measured]
    statement = "exponent of the direction error in ||W_t||, worst run"
    return close("law.exponent", statement, OURS, furthest(found, -1.0), -1.0, EXPONENT)


def speed(comparison: Comparison) -> float:
    """Growth of ||W_t|| per iteration: eta/(1 - momentum) for NGD, ||W_mm||/2 for Polyak's step."""
    rule = comparison.setting.rule
    if rule.kind == POLYAK:
        return float(comparison.law.norm[0]) / 2
    return rule.step_size / (1 - rule.momentum)


def lower_bound(comparisons: Sequence[Comparison]) -> Claim:
    """error x t -> C / speed > 0: Theorem 1's t^{-1/2} improves to t^{-1} and to nothing better.

    1/error is linear in t with slope speed / C, up to a constant that ||W_t|| lost at the start:
    the slope over the last decade, over the predicted one.
    """
    ratios = []
    for c in comparisons:
        slope = np.polyfit(c.measured.iterations, 1 / c.measured.error, 1)[0]
        total = np.hypot(c.law.constant[0], c.measured.outside)
        ratios.append(slope * total / speed(c))
    statement = "growth of 1/error per iteration, times C / speed, worst run"
    return close("law.lower_bound", statement, OURS, furthest(ratios, 1.0), 1.0, SPEED)


def offset_errors(comparison: Comparison) -> np.ndarray:
    """g_m - a_t less the predicted offset, over the support."""
    measured = comparison.measured.margins - comparison.measured.level[-1]
    on = comparison.law.support[0]
    return (measured - comparison.law.offsets[0])[on]


def offsets(comparisons: Sequence[Comparison]) -> Claim:
    """g_m = a_t + log(kappa_m / beta_m) on the support, less the common part."""
    worst = furthest(np.concatenate([offset_errors(c) for c in comparisons]))
    statement = "margin less a_t less log(kappa/beta): worst support pair of all runs"
    return close("law.offsets", statement, OURS, worst, 0.0, OFFSET)


def dual_shares(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """beta / sum beta read off the margins, and the law's, over the support."""
    read = measure.recovered_duals(comparison.measured.margins, comparison.log_slopes[0])
    solved, on = comparison.law.duals[0], comparison.law.support[0]
    return read[on], solved[on] / solved.sum()


def duals(comparisons: Sequence[Comparison]) -> Claim:
    """The SVM's duals, read off the margins of a trained layer."""
    worst = furthest(np.concatenate([np.divide(*dual_shares(c)) - 1 for c in comparisons]))
    statement = "dual read off the margins over the solver's, less 1: worst support pair"
    return close("law.duals", statement, OURS, worst, 0.0, DUAL)


def norm(comparisons: Sequence[Comparison]) -> Claim:
    """||W_t|| grows by ||W_mm|| when the margins grow by 1."""
    grown = [
        np.ptp(c.measured.norm) / np.ptp(c.measured.level) / c.law.norm[0] for c in comparisons
    ]
    statement = "growth of ||W_t|| per margin, over ||W_mm||, less 1: worst run"
    return close("law.norm", statement, OURS, furthest(np.array(grown) - 1), 0.0, NORM)


def difference(comparisons: Sequence[Comparison]) -> Claim:
    """The residual cancels in W_T - W_{T/2}."""
    least = min(c.measured.error[-1] / c.measured.difference_error for c in comparisons)
    statement = "direction error of W_T over that of W_T - W_{T/2}, least of all runs"
    return at_least("law.difference", statement, OURS, least, GAIN)


def certificate(comparisons: Sequence[Comparison]) -> Claim:
    """W_T - W_{T/2} and the duals read off the margins prove each other: no solver is asked."""
    worst = max(abs(c.measured.difference_gap) for c in comparisons)
    statement = "duality gap of W_T - W_{T/2} and the duals read off, worst run"
    return at_most("law.certificate", statement, OURS, worst, CERTIFICATE)


def proved(comparisons: Sequence[Comparison]) -> Claim:
    """The local theorem of `notebooks/law_of_margins.md`, applied to the last iterate."""
    share = float(np.mean([c.proof().holds for c in comparisons]))
    statement = "share of runs whose limit the theorem proves, from their last iterate on"
    return at_least("law.proved", statement, OURS, share, PROVED)
