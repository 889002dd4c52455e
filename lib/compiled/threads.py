"""Run compiled functions on all cores, in threads that Ctrl-C can end.

numba's own parallel loops run inside one call. Ctrl-C has to wait for the end of this
call, and a process that has used such loops cannot fork. Here, Python threads make one
call per core without holding the interpreter's lock, so that the main thread can react
to Ctrl-C.
"""

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numba
import numpy as np

from lib import progress

# The entries of the array through which a running call and the main thread communicate:
# whether to stop, the step that the call has reached, and its last step.
STOP, STEP, LAST = range(3)
LOOK = 0.5  # seconds between two updates of the bar, once it is shown


def new_signals(calls: int = 1) -> np.ndarray:
    """Make the arrays of signals for a number of calls.

    Parameters
    ----------
    calls : int, optional
        The number of calls.

    Returns
    -------
    ndarray of int (calls, 3)
        An array of zeros. Each row belongs to one call; its entries are STOP, STEP and
        LAST.

    Examples
    --------
    >>> from lib.compiled import threads
    >>> threads.new_signals(2).shape
    (2, 3)
    """
    # Rows of 128 bytes keep the calls apart. Otherwise, cores would pass a shared cache
    # line back and forth at each step.
    return np.zeros((calls, 16), np.int64)[:, :3]


def count() -> int:
    """Return the number of threads that compiled functions use.

    Returns
    -------
    int
        $NUMBA_NUM_THREADS; by default, the number of cores that the process may use.

    Examples
    --------
    >>> from lib.compiled import threads
    >>> threads.count() >= 1
    True
    """
    return int(numba.config.NUMBA_NUM_THREADS)  # ty: ignore[unresolved-attribute]  # numba sets it when it is imported


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads. Starting it takes long, so it is done only once."""
    return ThreadPoolExecutor(threads)


# After a fork, the child has only the thread that forked. So it must start new threads.
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


def call_each(kernel: Any, calls: Sequence[tuple]) -> list[Any]:
    """Call a compiled function with each tuple of arguments, on all cores.

    Parameters
    ----------
    kernel : numba dispatcher
        A function compiled with ``nogil=True``. Its last argument is `signals`, an
        array (3,) of int. The function must return soon after ``signals[STOP]`` is set
        to one. It may write its current step into ``signals[STEP]`` and its last step
        into ``signals[LAST]``. From these two, a progress bar is drawn after ten
        seconds.
    calls : sequence of tuple
        The arguments of each call, without `signals`. The arguments must have the same
        types in all calls.

    Returns
    -------
    list
        What each call returned.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C, after every running call has returned. Calls that have not begun are
        not started. An exception in a call is raised in the same way.

    Examples
    --------
    >>> import numba
    >>> from lib.compiled import threads
    >>> @numba.njit(nogil=True)
    ... def double(x, signals):
    ...     return 2 * x
    >>> threads.call_each(double, [(1,), (2,)])
    [2, 4]
    """
    if not calls:
        return []
    signals = new_signals(len(calls))
    # Compile in this thread, so that Ctrl-C also works during compilation.
    first = (*calls[0], signals[0])
    kernel.compile(tuple(numba.typeof(argument) for argument in first))
    pool = _pool(count())
    running: list[Future] = []
    try:
        running += [
            pool.submit(kernel, *arguments, row)
            for arguments, row in zip(calls, signals, strict=True)
        ]
        if wait(running, progress.DELAY, FIRST_EXCEPTION).not_done:
            _show(running, signals)
        return [call.result() for call in running]
    finally:
        # After an exception, no thread may continue to write into the arrays.
        signals[:, STOP] = 1
        for call in running:
            call.cancel()
        wait(running)


def _show(running: list[Future], signals: np.ndarray) -> None:
    """Show a bar until all calls have returned, or one of them has failed.

    `signals` has the shape (calls, 3). A call that has not begun is assumed to have as
    many steps as the longest one that has begun.
    """
    with progress.bar(0, delay=0.0) as bar:
        while wait(running, LOOK, FIRST_EXCEPTION).not_done:
            last = signals[:, LAST]
            done = np.array([call.done() for call in running])
            bar.total = int(np.where(last > 0, last, last.max()).sum())
            bar.n = int(np.where(done, last, signals[:, STEP]).sum())
            bar.refresh()
