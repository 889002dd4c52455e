"""Claims on several heads against the duals of their SVMs, and the wrong worlds that they catch."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, close, furthest
from papers.beyond.head_law import HeadRuns

# Of notebooks/bends_protocol.md
RATIO, LEVEL, CONSTANT = 0.02, 1e-4, 0.02
OURS = "ours, beyond paper A's Theorem 1"


def ratios(norm: np.ndarray) -> np.ndarray:
    """||W_h||/||W_1|| of the heads after the first, (H - 1, runs)."""
    return norm[1:] / norm[:1]


def at_level(runs: HeadRuns) -> np.ndarray:
    """||W_h|| predicted at the run's common level: head h stands at that plus its mean, (H, runs).

    Where all constraints of each head carry its solution.
    """
    along = runs.of.norm * (runs.whole + runs.of.mean)
    return np.hypot(along, runs.of.constant)


def head_claims(common: HeadRuns, each: HeadRuns) -> list[Claim]:
    """Norms in the SVMs' ratio with one normalisation, equal with one per head; C_h with both.

    On the runs whose premises hold; without one no claim holds.
    """
    limit = (ratios(common.norm) / ratios(common.of.norm) - 1)[:, common.kept]
    level = (ratios(common.norm) / ratios(at_level(common)) - 1)[:, common.kept]
    equal = (ratios(each.norm) - 1)[:, each.kept]
    text = "one normalisation: ‖W_h‖/‖W_1‖ over {}, less 1, worst head and run".format
    same = "one normalisation per head: ‖W_h‖/‖W_1‖ less 1, worst head and run"
    claims = [
        close("heads.common", text("the SVM norms' ratio"), OURS, furthest(limit), 0.0, RATIO),
        close("heads.level", text("that at the run's level"), OURS, furthest(level), 0.0, LEVEL),
        close("heads.each", same, OURS, furthest(equal), 0.0, RATIO),
    ]
    for name, runs in (("common", common), ("each", each)):
        found = (runs.norm * runs.error / runs.of.constant - 1)[:, runs.kept]
        what = f"normalised {'together' if runs.common else 'each'}: ‖W_h‖ x error over C_h, less 1"
        claims.append(close(f"heads.constant.{name}", what, OURS, furthest(found), 0.0, CONSTANT))
    return claims


def _of(runs, **changes):
    return replace(runs, of=replace(runs.of, **changes))


def other_normalisation(runs: HeadRuns) -> HeadRuns:
    """Norms as the other normalisation would leave them."""
    norm = np.ones_like(runs.norm) if runs.common else runs.of.norm
    return replace(runs, norm=norm * runs.norm[:1] / norm[:1])


def _high(values, head):
    """`values` (H, runs) with those of one head 3 % larger."""
    return values * np.where(np.arange(len(values)) == head, 1.03, 1.0)[:, None]


WORLDS: Mapping[str, Callable[[HeadRuns], HeadRuns]] = {
    "the other normalisation": other_normalisation,
    "no head has a mean of its own": lambda runs: _of(runs, mean=np.zeros_like(runs.of.mean)),
    "one SVM norm 3 % high": lambda runs: _of(runs, norm=_high(runs.of.norm, 1)),
    # of the third head, which shares opt tokens
    "one C_h 3 % high": lambda runs: _of(runs, constant=_high(runs.of.constant, 2)),
}
