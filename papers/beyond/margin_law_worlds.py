"""Worlds in which the law of the margins is a little wrong, and which claims notice.

A world changes what one comparison predicts, or what it measured, and leaves the rest. Where a
change has to pick a pair it takes the support pair on which C depends least.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.attention import coordinates
from lib.companion.claims import Claim
from papers.beyond.margin_law import from_duals
from papers.beyond.margin_law_runs import Comparison
from papers.beyond.margin_slopes import saturated_slopes


def _again(comparison: Comparison, duals=None, log_slopes=None) -> Comparison:
    """The comparison with the law of other duals or other log kappa."""
    of = comparison
    delta = coordinates.differences(of.tokens, of.selected)
    duals = of.law.duals if duals is None else duals
    slopes = of.log_slopes if log_slopes is None else log_slopes
    law = from_duals(coordinates.gram(delta, of.tokens.z), duals, of.solution.margins, slopes)
    return replace(of, law=law, log_slopes=slopes, solution=replace(of.solution, duals=duals))


def _with_law(comparison, **changes):
    return replace(comparison, law=replace(comparison.law, **changes))


def _measuring(comparison, **changes):
    return replace(comparison, measured=replace(comparison.measured, **changes))


def _least_pair(comparison):
    """Where in (1, n, T-1) the pair stands that moves C least: dC/d offset = coefficient/C."""
    weight = np.where(comparison.law.support, np.abs(comparison.law.coefficients), np.inf)
    return np.unravel_index(weight.argmin(), weight.shape)


def dual_off(comparison: Comparison, by: float = 0.01) -> Comparison:
    """One dual is larger by the share `by`."""
    duals = comparison.law.duals.copy()
    duals[_least_pair(comparison)] *= 1 + by
    return _again(comparison, duals=duals)


def duals_alike(comparison: Comparison) -> Comparison:
    """Every pair on the support carries the same."""
    duals = comparison.law.duals
    return _again(comparison, duals=np.where(duals > 0, duals.sum() / (duals > 0).sum(), 0.0))


def offset_off(comparison: Comparison, by: float = 0.01) -> Comparison:
    """One offset is larger by `by`, as if its score gap were."""
    slopes = comparison.log_slopes.copy()
    slopes[_least_pair(comparison)] += by
    return _again(comparison, log_slopes=slopes)


def exponent_off(comparison: Comparison) -> Comparison:
    """The error falls like t^-0.9, and is what it is at the last record."""
    measured = comparison.measured
    bent = (measured.iterations / measured.iterations[-1]) ** 0.1
    return _measuring(comparison, error=measured.error * bent)


def other_sign(comparison: Comparison) -> Comparison:
    """The offsets are log(beta/kappa): the same residual, mirrored, with the same C."""
    law = comparison.law
    return _with_law(comparison, offsets=-law.offsets, coefficients=-law.coefficients)


def no_score_gaps(comparison: Comparison) -> Comparison:
    """kappa forgets head and loss: the offsets are -log beta, as for a linear classifier."""
    return _again(comparison, log_slopes=np.zeros_like(comparison.log_slopes))


def other_loss(comparison: Comparison) -> Comparison:
    """kappa is that of the other loss."""
    loss = "logistic" if comparison.setting.loss == "exponential" else "exponential"
    slopes = saturated_slopes(comparison.tokens, comparison.selected, loss)
    return _again(comparison, log_slopes=slopes)


def nothing_outside(comparison: Comparison) -> Comparison:
    """What the start and the transients leave off the support's span is forgotten."""
    return _measuring(comparison, outside=0.0)


def plain_iterate(comparison: Comparison) -> Comparison:
    """The residual does not cancel in a difference of iterates: 10^-4 of it stays."""
    measured, stays = comparison.measured, 1e-4 * comparison.measured.error[-1]
    error, gap = measured.difference_error + stays, measured.difference_gap + stays
    return _measuring(comparison, difference_error=error, difference_gap=gap)


WORLDS: Mapping[str, Callable[[Comparison], Comparison]] = {
    "one dual 1 % high": dual_off,
    "one offset 0.01 high": offset_off,
    "all offsets of the wrong sign": other_sign,
    "‖W_mm‖ 1 % high": lambda one: _with_law(one, norm=1.01 * one.law.norm),
    "error ~ t^-0.9": exponent_off,
    "kappa without head and loss": no_score_gaps,
    "kappa of the other loss": other_loss,
    "nothing outside the span": nothing_outside,
    "a 10^-4 of the residual stays": plain_iterate,
}


def caught(
    comparisons: Sequence[Comparison],
    claims_of: Callable[[Sequence[Comparison]], list[Claim]],
    worlds: Mapping[str, Callable[[Comparison], Comparison]] = WORLDS,
) -> dict[str, list[str]]:
    """Per world, the ids of the claims that fail in it; a claim that fails here is left out."""
    here = {claim.id for claim in claims_of(comparisons) if not claim.holds}
    return {
        name: [
            claim.id
            for claim in claims_of([world(c) for c in comparisons])
            if not claim.holds and claim.id not in here
        ]
        for name, world in worlds.items()
    }
