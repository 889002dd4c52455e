"""Checks that all training loops share: the iterations to record, the start, the
end.
"""

from collections.abc import Sequence

import numpy as np

from lib.attention.token_sets import SIZES
from lib.compiled.status import DIVERGED
from lib.seeds import whole_number


def log_spaced(steps: int, count: int = 100) -> np.ndarray:
    """Return iterations that are nearly evenly spaced in log t.

    Parameters
    ----------
    steps : int
        The last iteration.
    count : int, optional
        At most `count` + 1 iterations are returned.

    Returns
    -------
    ndarray of int
        Iterations from 0 to `steps`, ascending.

    Examples
    --------
    >>> from lib import dynamics
    >>> dynamics.log_spaced(1000, count=4)
    array([   0,    1,   10,  100, 1000])
    """
    spread = np.geomspace(1, max(steps, 1), count).round().astype(int)
    return np.unique(np.concatenate([[0], spread.clip(max=steps)]))


def record_times(record: Sequence[int] | np.ndarray | None, steps: int) -> np.ndarray:
    """The iterations to record, (k,), ascending within 0 ... steps; `log_spaced` by
    default. ValueError where steps or records are not whole numbers, or out of order or
    range.
    """
    steps = whole_number("steps", steps)
    if record is None:
        times = log_spaced(steps)
    else:
        times = np.asarray(record)
    if times.ndim != 1 or times.size == 0 or not np.issubdtype(times.dtype, np.integer):
        raise ValueError(
            f"record must list whole numbers, one or more in 0 ... {steps}"
        )
    times = times.astype(int)  # of small or unsigned types, differences wrap around
    if (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > steps:
        raise ValueError(f"record must ascend within 0 ... {steps}")
    return times


def checked_start(start: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """W_0 as floats; ValueError unless it has this shape and entries up to 1e100."""
    start = np.asarray(start, float)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"start has shape {start.shape}; it needs {shape}, all finite")
    if (largest := np.abs(start).max()) > SIZES[1]:
        words = (
            f"start has largest entry {largest:.3g}, whose fourth power leaves float64"
        )
        raise ValueError(f"{words}; it needs at most {SIZES[1]:g}")
    return start


def end_where_not_finite(status, ended, times, finite, logs, derived=()) -> None:
    """End each run at its first record that is not finite, as diverged; the rest
    becomes NaN.

    In place: status, ended (runs,); finite, logs and derived are arrays (runs, k, ...)
    of records at `times` (k,). A log may be -inf; what is derived is not asked.
    """
    written = times <= ended[:, None]
    bad = np.zeros_like(written)
    # of a log false for NaN and infinity
    for good in (*(np.isfinite(v) for v in finite), *(v < np.inf for v in logs)):
        bad |= ~good.reshape(*bad.shape, -1).all(-1)
    bad &= written
    for run in np.flatnonzero(bad.any(1)):
        first = bad[run].argmax()
        status[run], ended[run] = DIVERGED, times[first]
        for values in (*finite, *logs, *derived):
            values[run, first:] = np.nan


def check_head(head: str) -> None:
    """Raise ValueError unless `head` is "fixed" or "joint"."""
    if head not in ("fixed", "joint"):
        raise ValueError(f'head must be "fixed" or "joint", not {head!r}')


def unwritten(
    status: int, runs: int, **shapes: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Records by name, NaN until filled: status, ended (runs,), and the `shapes` of
    every run.
    """
    records = {name: np.full((runs, *shape), np.nan) for name, shape in shapes.items()}
    return {"status": np.full(runs, status), "ended": np.zeros(runs, int)} | records
