"""Arrays with one common logarithm, so that moments of e^-30000 keep their digits, compiled.

A scaled array is e^log times its mantissa (flat). Within one array, entries below e^-700 of the
largest are lost.
"""

import math

import numba

_REORDER = {"reassoc", "contract", "nsz"}
SMALL = 1e-60  # largest entry below which a mantissa is brought back to 1


@numba.njit
def log(value):
    """log value, -inf for zero."""
    return math.log(value) if value > 0.0 else -math.inf


@numba.njit
def add_logs(a, b):
    """a + b, -inf where either is."""
    return a + b if a > -math.inf and b > -math.inf else -math.inf


@numba.njit(fastmath=_REORDER)
def largest(x):
    """The largest |entry| of x, flat."""
    top = 0.0
    for j in range(x.size):
        top = max(top, abs(x[j]))
    return top


@numba.njit(fastmath=_REORDER)
def mix(x, x_log, a, y, y_log, b, squared=False):
    """x = a x + b y, in place of x's mantissa, y or its square; returns the new log of x."""
    old, new = add_logs(x_log, log(a)), add_logs(y_log, log(b))
    top = max(old, new)
    if top == -math.inf:
        x[:] = 0.0
        return top
    old = math.exp(old - top) if old > -math.inf else 0.0
    new = math.exp(new - top) if new > -math.inf else 0.0
    if squared:
        for j in range(x.size):
            x[j] = old * x[j] + new * y[j] * y[j]
    else:
        for j in range(x.size):
            x[j] = old * x[j] + new * y[j]
    size = largest(x)
    if size == 0.0:
        return -math.inf
    if size < SMALL:
        for j in range(x.size):
            x[j] /= size
        top += math.log(size)
    return top
