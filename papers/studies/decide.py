"""Decide a family of claims from their intervals, by Holm's rule at 5 %."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from papers import verdicts
from papers.studies.intervals import LEVEL
from papers.verdicts import UNDECIDED

ALPHA = 1 - LEVEL


@dataclass(frozen=True)
class Case:
    """The intervals by which one claim is decided.

    Parameters
    ----------
    word
        The function of `papers.verdicts` that returns the verdict of an interval as a
        string.
    intervals
        The intervals, which must all give the same verdict. The list is empty if the
        claim cannot be decided.
    """

    word: Callable
    intervals: Sequence

    def says(self, level: float) -> str:
        """Return the verdict of all intervals at `level`, or "undecided" if they
        differ.
        """
        words = {
            self.word(replace(interval, level=level)) for interval in self.intervals
        }
        return words.pop() if len(words) == 1 else UNDECIDED

    @property
    def p(self) -> float:
        """Return the smallest p at which the intervals at the level 1 - p decide the
        claim.

        The result is 1 if no interval decides the claim, or if the intervals disagree.
        """
        if not self.intervals:
            return 1.0
        p = max(verdicts.p_value(interval, self.word) for interval in self.intervals)
        if p < 1 and self.says(1 - p) != UNDECIDED:
            return p
        return 1.0


@dataclass(frozen=True)
class Decision:
    """The decision about one claim.

    Parameters
    ----------
    word
        The verdict. If Holm's p is at most 0.05, it is the verdict of the intervals at
        `level`; otherwise it is "undecided".
    alone
        The verdict of the intervals at 95 %, without Holm's correction.
    p, holm
        The claim's own p, and its p adjusted by Holm's rule within the family.
    level
        The level at which Holm's rule tests the claim: 1 - 0.05 / (m - k + 1) for the
        k-th smallest of m values of p.
    """

    word: str
    alone: str
    p: float
    holm: float
    level: float


def decide(cases: Mapping[str, Case]) -> dict[str, Decision]:
    """Decide a family of claims by Holm's rule at 5 %.

    Parameters
    ----------
    cases
        {claim: case} for the whole family. A claim that cannot be decided has no
        intervals, and enters with p = 1.

    Returns
    -------
    dict
        {claim: decision}, in the order of `cases`.

    Notes
    -----
    The protocol says that a claim is decided only if Holm's p is at most 0.05. The
    protocol does not say at which level the verdict is taken. The verdict can depend on
    the level: an interval at a high level may decide because it lies within [0.8,
    1.25], and give another verdict at 95 %. We use the level of Holm's rule (our
    reading), because the correction does not cover the verdict at 95 %. The verdicts at
    the two levels differ only in such cases, and we record each of them.
    """
    p = {name: case.p for name, case in cases.items()}
    adjusted = verdicts.holm(p)  # in ascending order of p
    decisions = {}
    for rank, name in enumerate(adjusted):
        level = 1 - ALPHA / (len(cases) - rank)
        is_decided = adjusted[name] <= ALPHA
        decisions[name] = Decision(
            word=cases[name].says(level) if is_decided else UNDECIDED,
            alone=cases[name].says(LEVEL),
            p=p[name],
            holm=adjusted[name],
            level=level,
        )
    return {name: decisions[name] for name in cases}
