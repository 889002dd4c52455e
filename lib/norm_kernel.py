"""Sums of squares of float32 numbers, compiled: four streams at a time, since a single one waits for memory.

Work is cut into chunks of fixed size, so the result does not depend on the number of threads.
"""

import numba
import numpy as np

CHUNK = 262_144  # numbers of one sum; its four quarters are read side by side
BLOCK = 256  # numbers of each quarter that are summed in float32 before they join the float64 sum
_REORDER = {"reassoc", "contract", "nsz"}  # not nnan: NaN must stay NaN


def squares(x: np.ndarray, threads: int) -> np.ndarray:
    """Sums of squares of consecutive chunks of x (N,) float32: (⌈N / CHUNK⌉,) float64."""
    sums = np.empty(-(-len(x) // CHUNK))
    threads = min(threads, len(sums), numba.config.NUMBA_NUM_THREADS)
    if threads == 1:
        _serial(x, sums)
        return sums
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        _parallel(x, sums)
    finally:
        numba.set_num_threads(before)
    return sums


@numba.njit(fastmath=_REORDER)
def _chunk(x):
    total, quarter = 0.0, len(x) // (4 * BLOCK) * BLOCK
    second, third, fourth = quarter, 2 * quarter, 3 * quarter
    for start in range(0, quarter, BLOCK):
        a, b = x[start : start + BLOCK], x[second + start : second + start + BLOCK]
        c, d = x[third + start : third + start + BLOCK], x[fourth + start : fourth + start + BLOCK]
        sum_a = sum_b = sum_c = sum_d = np.float32(0)
        for i in range(BLOCK):
            sum_a += a[i] * a[i]
            sum_b += b[i] * b[i]
            sum_c += c[i] * c[i]
            sum_d += d[i] * d[i]
        total += np.float64(sum_a + sum_b + sum_c + sum_d)
    for i in range(4 * quarter, len(x)):
        total += np.float64(x[i]) * np.float64(x[i])
    return total


@numba.njit(cache=True)
def _serial(x, sums):
    for k in range(len(sums)):
        sums[k] = _chunk(x[k * CHUNK : min((k + 1) * CHUNK, len(x))])


@numba.njit(parallel=True, cache=True)
def _parallel(x, sums):
    for k in numba.prange(len(sums)):
        sums[k] = _chunk(x[k * CHUNK : min((k + 1) * CHUNK, len(x))])
