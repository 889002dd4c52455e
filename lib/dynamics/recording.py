"""What all training loops share: checks of arguments, and how a run's records end."""

from collections.abc import Sequence

import numpy as np

from lib.attention.token_sets import SIZES, as_array
from lib.compiled.status import DIVERGED
from lib.dynamics.rules import real_numbers
from lib.seeds import whole_number


def log_spaced(steps: int, count: int = 100) -> np.ndarray:
    """Return iterations that are nearly evenly spaced in log t.

    Parameters
    ----------
    steps : int
        The last iteration, at least zero.
    count : int, optional
        The number of iterations from 1 to `steps`, before repetitions are removed, at
        least 1; with iteration 0, at most `count` + 1 are returned. For `steps` itself
        to be among them, `count` has to be at least 2.

    Returns
    -------
    ndarray of int (k,)
        Iterations from 0 to `steps`, ascending, without repetitions.

    Raises
    ------
    ValueError
        If `steps` or `count` is not a whole number, `steps` is below 0, or `count` is
        below 1.

    Examples
    --------
    >>> from lib import dynamics
    >>> dynamics.log_spaced(1000, count=4)
    array([   0,    1,   10,  100, 1000])
    """
    steps = whole_number("steps", steps)
    count = whole_number("count", count, 1)
    spread = np.geomspace(1, max(steps, 1), count).round().astype(int)
    return np.unique(np.concatenate([[0], spread.clip(max=steps)]))


def record_times(
    record: Sequence[int] | np.ndarray | None, steps: int | None
) -> np.ndarray:
    """Check the iterations to record.

    Parameters
    ----------
    record : sequence of int, ndarray of int or None
        Iterations to record, ascending within 0 ... `steps`. None stands for
        ``log_spaced(steps)``.
    steps : int or None
        The last iteration that is allowed. None stands for no limit; then `record` must
        be given.

    Returns
    -------
    ndarray of int (k,)
        The iterations.

    Raises
    ------
    ValueError
        If `steps` is not a whole number of at least 0; if there are no iterations, or
        if they are not a flat list of integers; if they do not ascend strictly, or if
        one is out of range.

    Examples
    --------
    >>> from lib.dynamics import recording
    >>> recording.record_times([0, 5, 10], steps=10)
    array([ 0,  5, 10])
    """
    if steps is None:
        allowed = "0, 1, 2, ..."
        last = np.iinfo(int).max
    else:
        last = whole_number("steps", steps)
        allowed = f"0 ... {last}"
    if record is None:
        times = log_spaced(last)
    else:
        times = as_array("record", record)
    if times.ndim != 1 or times.size == 0 or not np.issubdtype(times.dtype, np.integer):
        raise ValueError(f"record must list whole numbers, one or more in {allowed}")
    times = times.astype(int)  # differences of small or unsigned types could overflow
    if (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > last:
        raise ValueError(f"record must ascend within {allowed}")
    return times


def checked_start(start: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Check a start, and return it as an array of floats.

    Parameters
    ----------
    start : ndarray
        W_0, or one part of a Start.
    shape : tuple of int
        The shape that it needs.

    Returns
    -------
    ndarray
        A copy of the start, as floats.

    Raises
    ------
    ValueError
        If the start has another shape, or an entry that is not finite or exceeds 1e100
        in absolute value.
    TypeError
        If it contains anything but real numbers.
    """
    start = real_numbers("start", start).astype(float)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"start has shape {start.shape}; it needs {shape}, all finite")
    if (largest := np.abs(start).max()) > SIZES[1]:
        words = (
            f"start has largest entry {largest:.3g}, whose fourth power leaves float64"
        )
        raise ValueError(f"{words}; it needs at most {SIZES[1]:g}")
    return start


def end_where_not_finite(
    status: np.ndarray,
    ended: np.ndarray,
    times: np.ndarray,
    finite: Sequence[np.ndarray],
    logs: Sequence[np.ndarray],
    derived: Sequence[np.ndarray] = (),
) -> None:
    """End each run as diverged at its first record that is not finite.

    This record and all later ones are set to NaN. All arrays are changed in place.
    Records after the end of a run are not checked, since the engines leave NaN there.

    Parameters
    ----------
    status, ended : ndarray of int (runs,)
        How each run ended, as a code of `lib.compiled.status`, and the iteration at
        which it ended.
    times : ndarray of int (k,)
        The iterations of the records.
    finite : sequence of ndarray (runs, k, ...)
        Records that have to be finite.
    logs : sequence of ndarray (runs, k, ...)
        Records that are logarithms and may be -inf.
    derived : sequence of ndarray (runs, k, ...), optional
        Records that are computed from other records. They are set to NaN too, but not
        checked.
    """
    written = times <= ended[:, None]
    bad = np.zeros_like(written)
    # For a logarithm v, v < inf is False if v is NaN or +inf.
    for good in (*(np.isfinite(v) for v in finite), *(v < np.inf for v in logs)):
        bad |= ~good.reshape(*bad.shape, -1).all(-1)
    bad &= written
    for run in np.flatnonzero(bad.any(1)):
        first = bad[run].argmax()
        status[run], ended[run] = DIVERGED, times[first]
        for values in (*finite, *logs, *derived):
            values[run, first:] = np.nan


def check_head(head: str) -> None:
    """Check the argument `head`.

    Parameters
    ----------
    head : str
        "fixed" or "joint".

    Raises
    ------
    ValueError
        If it is neither of the two.
    """
    if not isinstance(head, str) or head not in ("fixed", "joint"):
        raise ValueError(f'head must be "fixed" or "joint", not {head!r}')


def unwritten(
    status: int, runs: int, **shapes: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return records by name, filled with NaN, for a training loop to fill.

    Parameters
    ----------
    status : int
        The initial status of every run, a code of `lib.compiled.status`.
    runs : int
        Number of runs.
    **shapes : tuple of int
        The shape of each record for one run, by the name of the record.

    Returns
    -------
    dict of str to ndarray
        The arrays "status" and "ended", of integers (runs,), and each record, of floats
        (runs, ...). "ended" is filled with zeros.
    """
    records = {name: np.full((runs, *shape), np.nan) for name, shape in shapes.items()}
    return {"status": np.full(runs, status), "ended": np.zeros(runs, int)} | records
