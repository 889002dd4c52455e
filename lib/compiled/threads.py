"""Compiled functions on all cores, in threads that Ctrl-C can end.

numba's own parallel loops run inside one call. Ctrl-C has to wait for the end of this
call, and a process that has used such loops cannot fork. Here Python threads make one
call per core, without the interpreter's lock, while the main thread can react to
Ctrl-C.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numba
import numpy as np


def count() -> int:
    """Return the number of threads that compiled functions use.

    Returns
    -------
    int
        $NUMBA_NUM_THREADS, by default the number of cores that the process may use.

    Examples
    --------
    >>> from lib.compiled import threads
    >>> threads.count() >= 1
    True
    """
    return int(numba.config.NUMBA_NUM_THREADS)  # ty: ignore[unresolved-attribute]  # numba sets it when it is imported


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the threads, started once: starting them takes as long as many steps."""
    return ThreadPoolExecutor(threads)


# After a fork, the child only has the thread that forked. So it starts new threads.
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


def call_each(kernel: Any, calls: Sequence[tuple]) -> list[Any]:
    """Call a compiled function with each tuple of arguments, on all cores.

    Parameters
    ----------
    kernel : numba dispatcher
        A function compiled with ``nogil=True``. Its last argument is `stop`, an array
        (1,) of int: the function returns soon after ``stop[0]`` is set to one.
    calls : sequence of tuple
        The arguments of each call, without `stop`. All calls must have the same types.

    Returns
    -------
    list
        What each call returned.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C, after every running call has returned; the others are not started. An
        exception of a call is raised in the same way.

    Examples
    --------
    >>> import numba
    >>> from lib.compiled import threads
    >>> @numba.njit(nogil=True)
    ... def double(x, stop):
    ...     return 2 * x
    >>> threads.call_each(double, [(1,), (2,)])
    [2, 4]
    """
    if not calls:
        return []
    stop = np.zeros(1, np.int64)
    # Compile in this thread, so that Ctrl-C works during compilation too.
    kernel.compile(tuple(numba.typeof(argument) for argument in (*calls[0], stop)))
    pool = _pool(count())
    running: list[Future] = []
    try:
        running += [pool.submit(kernel, *arguments, stop) for arguments in calls]
        return [call.result() for call in running]
    finally:
        # After an exception, no thread may continue to write into the arrays.
        stop[0] = 1
        for call in running:
            call.cancel()
        wait(running)
