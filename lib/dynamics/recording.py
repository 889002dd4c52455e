"""What to record of a run and where it starts: the checks that all training loops share."""

from collections.abc import Sequence

import numpy as np

from lib.whole_numbers import whole_number


def log_spaced(steps: int, count: int = 100) -> np.ndarray:
    """About `count` iterations to record out of 0 ... steps, ascending, evenly spaced in log(t)."""
    spread = np.geomspace(1, max(steps, 1), count).round().astype(int)
    return np.unique(np.concatenate([[0], spread.clip(max=steps)]))


def record_times(record: Sequence[int] | None, steps: int) -> np.ndarray:
    """The iterations to record, (k,), ascending within 0 ... steps; `log_spaced` by default.

    Raises ValueError where steps or records are not whole numbers, or out of order or range.
    """
    steps = whole_number("steps", steps)
    times = log_spaced(steps) if record is None else np.asarray(record)
    if times.ndim != 1 or times.size == 0 or not np.issubdtype(times.dtype, np.integer):
        raise ValueError("record must be a list of whole numbers, at least one")
    if (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > steps:
        raise ValueError(f"record must ascend within 0 ... {steps}, the number of steps")
    return times


def checked_start(start: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """W_0 as an array of floats; ValueError unless it has this shape and is finite."""
    start = np.asarray(start, float)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"start has shape {start.shape}; it needs {shape}, all finite")
    return start


def check_head(head: str) -> None:
    """Raise ValueError unless `head` is "fixed" or "joint"."""
    if head not in ("fixed", "joint"):
        raise ValueError(f'head must be "fixed" or "joint", not {head!r}')


def unwritten(status: int, runs: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Records to be filled, by name, NaN until then.

    status (runs,), ended (runs,), and the `shapes`, each with an axis of runs in front.
    """
    records = {name: np.full((runs, *shape), np.nan) for name, shape in shapes.items()}
    return {"status": np.full(runs, status), "ended": np.zeros(runs, int)} | records
