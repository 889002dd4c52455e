"""Limit the number of threads that BLAS uses."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

_controller = cache(ThreadpoolController)  # it takes 15 ms to find all libraries


def one_thread() -> AbstractContextManager:
    """Keep BLAS on one thread.

    The limit applies to the BLAS libraries that were loaded before the first call.

    For matrices of our sizes, several threads mostly wait for one another. On two busy
    cores, a QR factorisation of a 2000 x 1000 matrix took 8 s with two threads and 1.2
    s with one.

    Returns
    -------
    context manager
        A context in which BLAS is limited to one thread.

    Examples
    --------
    >>> import numpy as np
    >>> from lib import blas
    >>> with blas.one_thread():
    ...     product = np.eye(2) @ np.ones((2, 1))
    """
    return _controller().limit(limits=1, user_api="blas")
