"""A tight pair whose dual is zero: the law with beta_k replaced by ||d_k||^2 / a_t.

Such a pair k must keep margin a_t, but W_mm does not lean on it. Its pull dies like 1/a_t and turns
W by d_k log a_t, where d_k lies in the span of the tight A_m, <A_k, d_k> = 1 and <A_m, d_k> = 0 for
the others. For W to move along W_mm + d_k/a_t the pull must be ||d_k||^2/a_t beside the duals. So
g_k - a_t = log a_t + log kappa_k - log ||d_k||^2 - mean, and the error is of order log t / t.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.attention import tokens
from lib.companion.claims import Claim, close, furthest
from papers.beyond.margin_law_premises import each_seed
from papers.beyond.zero_duals import OURS, ZeroDualsRun, predict, run, settled, tightened

# Of notebooks/bends_protocol.md
OFFSET, SLOPE = 0.02, 0.02


def unit_runs(seeds: Sequence[int], step_size: float, steps: int):
    """Unit tokens (n = 6, T = 8, d = 10) made tight, and trained: runs kept; seed -> refusal."""

    def one(seed):
        data = tightened(tokens.unit_tokens(seed, n=6, T=8, d=10))
        return run(predict(data), steps, decades=2, step=step_size)

    return each_seed(seeds, one)


def zero_claims(runs: Sequence[ZeroDualsRun]) -> list[Claim]:
    """The offset of the idle pair at the end, and its slope in log a_t over the last decade.

    Without a run neither holds.
    """
    last = [r.offsets[-1] - np.log(r.level[-1]) - r.of.constants for r in runs]
    slope = [np.polyfit(np.log(r.level[-5:]), r.offsets[-5:], 1)[0] for r in runs]
    text = f"dual at zero: offset of its pair less log a_t and constant, worst of {len(runs)} runs"
    power = "dual at zero: slope of that offset in log a_t, worst run"
    return [
        close("zero.offset", text, OURS, furthest(last), 0.0, OFFSET),
        close("zero.slope", power, OURS, furthest(slope, 1.0), 1.0, SLOPE),
    ]


def no_length(r: ZeroDualsRun) -> ZeroDualsRun:
    """||d_k|| is left out of the constant."""
    return replace(r, of=replace(r.of, constants=r.of.constants + np.log(r.of.duals)))


WORLDS: Mapping[str, Callable[[ZeroDualsRun], ZeroDualsRun]] = {
    "the offset settles": settled,
    "d_k of length 1": no_length,
}
