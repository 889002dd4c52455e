"""Decide a family of claims from their intervals, by Holm's rule at 5 %."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from papers import verdicts
from papers.studies.intervals import LEVEL
from papers.verdicts import UNDECIDED

ALPHA = 1 - LEVEL


@dataclass(frozen=True)
class Case:
    """What judges one claim.

    Parameters
    ----------
    word
        The function of `papers.verdicts` that reads a word off an interval.
    intervals
        The intervals, which must all say the same; none if the claim cannot be judged.
    """

    word: Callable
    intervals: Sequence

    def says(self, level: float) -> str:
        """Return the word that all intervals say at `level`, or "undecided" if they
        differ.
        """
        words = {
            self.word(replace(interval, level=level)) for interval in self.intervals
        }
        return words.pop() if len(words) == 1 else UNDECIDED

    @property
    def p(self) -> float:
        """The level at which the intervals would just decide.

        It is 1 if none decides, or if they disagree.
        """
        if not self.intervals:
            return 1.0
        p = max(verdicts.p_value(interval, self.word) for interval in self.intervals)
        if p < 1 and self.says(1 - p) != UNDECIDED:
            return p
        return 1.0


@dataclass(frozen=True)
class Decision:
    """What is decided of one claim.

    Parameters
    ----------
    word
        The verdict: that of the intervals at `level` if Holm's p is at most 0.05,
        otherwise "undecided".
    alone
        The word of the intervals at 95 %, without the correction.
    p, holm
        The claim's p, and Holm's adjusted one within the family.
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
        {claim: case}, of the whole family: one that cannot be judged has no intervals,
        and counts with p = 1.

    Returns
    -------
    dict
        {claim: decision}, in the order of `cases`.

    Notes
    -----
    The protocol says that a claim is decided only if Holm's p is at most 0.05. An
    interval that decides at a wide level by lying within [0.8, 1.25] may say another
    word at 95 %. The verdict is the word at the level of Holm's rule (our reading): the
    word at 95 % would not be held by the correction. The two differ in such cases only,
    and both are kept.
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
