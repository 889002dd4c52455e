"""Exponentials and logarithms of the compiled loops.

The functions take arrays or single numbers.
"""

import math
from typing import Any

import numba
import numpy as np

from lib.compiled import vectors
from lib.compiled.status import LOG_LONGEST

# Adding this to a number and subtracting it again rounds the number to an integer.
ROUNDING = 1.5 * 2.0**52


@numba.njit(fastmath={"contract"}, forceinline=True)
def exp_of(x: Any) -> Any:
    """Compute e^x with an error of at most 2 units in the last place.

    Parameters
    ----------
    x : float or Vector
        A number of at most LOG_LONGEST, or WIDTH such numbers side by side.

    Returns
    -------
    float or Vector
        e^x; 0 if x is below -708 or NaN.

    Notes
    -----
    e^x = 2^k e^r with k = round(x / log 2) and |r| <= log(2)/2, and e^r is computed by
    a Taylor polynomial. Unlike the exp of the C library, this code fills vector
    registers. The exp of the C library would take half of the time of an iteration.
    """
    inside = x >= -708.0
    bounded = vectors.where(inside, x, -708.0)
    shifted = bounded * 1.4426950408889634 + ROUNDING
    k = shifted - ROUNDING
    r = bounded - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10
    p = r * (1 / 6227020800.0) + 1 / 479001600.0
    p = p * r + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return vectors.where(inside, p * vectors.power_of_two(shifted), 0.0)


@numba.njit(fastmath={"contract"})
def exp(x: np.ndarray, out: np.ndarray) -> None:
    """Set out = e^x, as `exp_of` computes it.

    Parameters
    ----------
    x : ndarray (m,)
        Numbers, each at most LOG_LONGEST.
    out : ndarray (m,)
        Filled with e^x, or with 0 if x is NaN.
    """
    for i in range(x.size):
        out[i] = exp_of(x[i])


@numba.njit(fastmath={"contract"}, error_model="numpy")
def _log(x: np.ndarray, factor: float, out: np.ndarray) -> None:
    """Fill `out` (m,) with factor times log|x|.

    Here x (m,) has no infinite entries. The log is accurate to 2 units in the last
    place. It is -inf if |x| is below 1e-300, or if x is NaN. Write |x| = 2^k m with m
    in [0.7, 1.42). Then log m = 2 atanh(s) with s = (m - 1)/(m + 1) and |s| < 0.176,
    which is computed by a power series.
    """
    for i in range(x.size):
        size = abs(x[i])
        bits = np.float64(size).view(np.int64)
        k = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
        m = np.int64(bits - np.int64(k << np.int64(52))).view(np.float64)
        s = (m - 1.0) / (m + 1.0)
        s2 = s * s
        p = 1 / 21.0
        p = p * s2 + 1 / 19.0
        p = p * s2 + 1 / 17.0
        p = p * s2 + 1 / 15.0
        p = p * s2 + 1 / 13.0
        p = p * s2 + 1 / 11.0
        p = p * s2 + 1 / 9.0
        p = p * s2 + 1 / 7.0
        p = p * s2 + 1 / 5.0
        p = p * s2 + 1 / 3.0
        # Adds k log 2, with log 2 split into two numbers for more digits.
        tail = 2.0 * s * s2 * p + np.float64(k) * 1.90821492927058770002e-10
        value = factor * ((2.0 * s + tail) + np.float64(k) * 6.93147180369123816490e-01)
        out[i] = value if size >= 1e-300 else -math.inf


@numba.njit
def log_expm1(log_x: float) -> float:
    """Compute log(e^x - 1) from the logarithm of x.

    Parameters
    ----------
    log_x : float
        log x, for x > 0.

    Returns
    -------
    float
        log(e^x - 1). If x is below e^-37, the result is `log_x` itself, since there
        log(e^x - 1) and log x round to the same float. If x is above 709, the result is
        infinite, since e^x overflows.
    """
    if log_x < -37.0:
        return log_x
    return math.log(math.expm1(math.exp(log_x)))


@numba.njit
def log1p_exp(x: float) -> float:
    """Compute log(1 + e^x), the logistic loss of -x, without overflow.

    Parameters
    ----------
    x : float
        A number.

    Returns
    -------
    float
        log(1 + e^x).
    """
    if x > 0.0:
        return x + math.log1p(math.exp(-x))
    return math.log1p(math.exp(x))


@numba.njit
def add_logs(a: float, b: float) -> float:
    """Compute log(e^a + e^b) without overflow.

    Parameters
    ----------
    a, b : float
        Logarithms; -inf is the logarithm of zero.

    Returns
    -------
    float
        log(e^a + e^b).
    """
    largest = max(a, b)
    smallest = min(a, b)
    if smallest == -math.inf:
        return largest
    return largest + math.log1p(math.exp(smallest - largest))


@numba.njit(error_model="numpy")
def power(x: np.ndarray, exponent: float, work: np.ndarray, out: np.ndarray) -> float:
    """Set out = |x|^exponent.

    Parameters
    ----------
    x : ndarray (m,)
        Numbers, each finite or NaN.
    exponent : float
        The exponent, finite and positive.
    work : ndarray (m,)
        Work space.
    out : ndarray (m,)
        Filled with the powers, unless the logarithm of the largest power exceeds
        LOG_LONGEST.

    Returns
    -------
    float
        The logarithm of the largest power of an entry that is not NaN; -inf if x is
        zero or empty.

    Notes
    -----
    For the exponents 0.5, 1, 1.5 and 2, the function uses square roots and products.
    For all other exponents it computes e^(exponent log|x|), whose relative error is at
    most about max(1, exponent |log x|) 2^-52. For these exponents, |x| below 1e-300
    counts as zero.
    """
    if exponent == 0.5 or exponent == 1.0 or exponent == 1.5 or exponent == 2.0:
        largest = 0.0
        for i in range(x.size):
            largest = max(largest, abs(x[i]))
        if largest > 0.0:
            top = exponent * math.log(largest)
        else:
            top = -math.inf
        whole = exponent >= 1.0
        root = exponent == 0.5 or exponent == 1.5
        if top <= LOG_LONGEST:
            for i in range(x.size):
                size = abs(x[i])
                out[i] = (size if whole else 1.0) * (
                    math.sqrt(size) if root else size if exponent == 2.0 else 1.0
                )
        return top
    _log(x, exponent, work)
    top = -math.inf
    for i in range(x.size):
        top = max(top, work[i])
    if top <= LOG_LONGEST:
        exp(work, out)
    return top
