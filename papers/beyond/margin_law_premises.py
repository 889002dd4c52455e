"""What a run must show before its error is held against the law of the margins.

Each check looks at margins and steps, never at the direction error. None proves that the direction
converges: they refuse the runs in which it is seen not to have.
"""

from collections.abc import Callable, Iterable

import numpy as np

from papers.beyond.margin_slopes import PremiseFails

SATURATED = 5.0  # least margin at which a selection counts as made: other weights below e^-5
SETTLED = 1e-7  # largest e^{-rate a} that counts as settled
RESTS = 1e-7  # largest move of an offset in one step that counts as rest
ROUNDING = 64  # a move of so many units in the last place of the margins is rest as well


def check_selection(run, margins):
    """Raise PremiseFails where the smallest of the margins (n, T-1) shows no selection yet."""
    least = margins.min()
    if least < SATURATED:
        sample, pair = np.unravel_index(margins.argmin(), margins.shape)
        said = (
            f"the smallest margin is {least:.2g} (sample {sample}, pair {pair}), it needs "
            f"{SATURATED:g}: the run has not decided on its tokens yet, or never will"
        )
        raise PremiseFails("selection made", run, least, said)


def check_settled(run, law, measured, momentum):
    """Raise PremiseFails where steps are too long or the run too short for the law to be seen."""
    longest = law.longest_step(momentum)[0]
    if measured.step_length >= longest:
        said = (
            f"steps of length {measured.step_length:.3g} make the offsets cycle, they need less "
            f"than {longest:.3g}"
        )
        raise PremiseFails("short steps", run, measured.step_length / longest, said)
    level = measured.level[-1:]
    # What transients leave outside the span is read at the first late record: over by then?
    left = max(law.remaining(level)[0], np.exp(-law.excess[0] * measured.level[0]))
    if momentum == 0:  # `remaining` is of the exact flow; a step may overshoot in the fastest mode
        overshot = max(measured.step_length / law.norm[0] * law.fastest[0] - 1, 0.0)
        left = max(left, overshot ** measured.iterations[-1])
    if left > SETTLED:
        more = np.log(SETTLED) / np.log(left) if left < 1 else np.inf
        said = (
            f"wrong offsets have decayed to {left:.1e} at margin level a = {level[0]:.4g}, they "
            f"need {SETTLED:.0e}: margins {more:.2g} times as large"
        )
        raise PremiseFails("long enough", run, left, said)


def check_rest(run, measured):
    """Raise PremiseFails where an offset still moves, as in a cycle below the linear threshold."""
    rounding = ROUNDING * np.finfo(float).eps * measured.level[-1]
    most = max(RESTS, rounding)
    if not measured.moved <= most:
        said = (
            f"an offset still moves by {measured.moved:.1e} in the last step, it needs at most "
            f"{most:.0e}"
        )
        raise PremiseFails("offsets at rest", run, measured.moved, said)


def each_seed(
    seeds: Iterable[int], study: Callable[[int], object], where: str = ""
) -> tuple[list, dict[int, str]]:
    """What `study` finds for every seed: kept, and seed -> refusal, which begins with `where`."""
    kept, refused = [], {}
    for seed in seeds:
        try:
            kept.append(study(seed))
        except (PremiseFails, RuntimeError) as why:
            refused[seed] = f"{where}seed {seed}: {getattr(why, 'named', why)}"
    return kept, refused
