"""Claims on l_p mirror descent against the duals of the l_p SVM, and their wrong worlds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most, close, every_close, furthest
from papers.beyond.lp_law import QUIET, LpRun

# Of notebooks/bends_protocol.md
EXPONENT, CONSTANT = 0.05, 0.02
LOUD = 0.1  # least move of an offset in one step that counts as a cycle
OURS = "ours, beside paper C, Lemma 29"


def onset_claims(p: float, moved: np.ndarray) -> list[Claim]:
    """Constant steps settle before the predicted onset and cycle after it; moved (runs, 2).

    Without a run neither holds.
    """
    moved = np.reshape(moved, (-1, 2)) if np.size(moved) else np.full((1, 2), np.nan)
    text = (
        f"p = {p:g}, constant steps: {{}} move of an offset at {{}} of the predicted onset".format
    )
    return [
        at_most(f"lp.rests.{p:g}", text("largest", "0.9"), OURS, moved[:, 0].max(), QUIET),
        at_least(f"lp.cycles.{p:g}", text("least", "1.25"), OURS, moved[:, 1].min(), LOUD),
    ]


def lp_claims(runs: Sequence[LpRun]) -> list[Claim]:
    """Exponent and constant for each p and kind of start, worst run."""
    claims = []
    for p, started in dict.fromkeys((r.of.p, r.started) for r in runs):
        own = [r for r in runs if (r.of.p, r.started) == (p, started)]
        name = "start" if started else "zero"
        powers = np.array([np.polyfit(np.log(r.norm), np.log(r.error), 1)[0] for r in own])
        bound = -min(1.0, p - 1) if started else -1.0  # a start is not in the span
        text = f"p = {p:g}, W_0 {'Gaussian' if started else '= 0'}: exponent of the error in ‖W‖"
        claims.append(every_close(f"lp.{name}.{p:g}", text, OURS, powers, bound, EXPONENT))
        if not started:
            off = np.array([r.norm[-1] * r.error[-1] / r.of.constant - 1 for r in own])
            text = f"p = {p:g}, W_0 = 0: ‖W‖ x error over its constant, less 1, worst run"
            claims.append(close(f"lp.constant.{p:g}", text, OURS, furthest(off), 0.0, CONSTANT))
    return claims


def bound_met(one: LpRun) -> LpRun:
    """The divergence falls with Lemma 29's exponent and not with its double."""
    a = -1.0 if one.of.p >= 2 else 1 - one.of.p
    error = one.error[-1] * (one.norm / one.norm[-1]) ** (a / 2)
    return replace(one, error=error)


WORLDS: Mapping[str, Callable[[LpRun], LpRun]] = {
    "Lemma 29 met once": bound_met,
    "constant 5 % high": lambda r: replace(r, of=replace(r.of, constant=1.05 * r.of.constant)),
}
