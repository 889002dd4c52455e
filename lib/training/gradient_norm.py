"""Sums of squares of float32 numbers, compiled: four streams at a time, since a single one waits
for memory.

Work is cut into chunks of fixed size, those of all tensors together, so that threads are started
once and share it evenly, and the result does not depend on their number.
"""

import numba
import numpy as np
from numba.extending import intrinsic
from torch import Tensor

CHUNK = 262_144  # numbers of one sum; its four quarters are read side by side
BLOCK = 256  # numbers of each quarter that are summed in float32 before they join the float64 sum
_REORDER = {"reassoc", "contract", "nsz"}  # not nnan: NaN must stay NaN


def squares(tensors: list[Tensor], threads: int) -> np.ndarray:
    """Sums of squares of consecutive chunks of each tensor, contiguous float32 on a CPU: (chunks,) float64."""
    sizes, addresses = (
        np.array([f() for f in column]) for column in zip(*((t.numel, t.data_ptr) for t in tensors))
    )
    counts = -(-sizes // CHUNK)
    owner = np.repeat(np.arange(len(tensors)), counts)  # (chunks,)
    begin = CHUNK * (np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts))
    places, lengths = addresses[owner] + 4 * begin, np.minimum(CHUNK, sizes[owner] - begin)
    sums = np.empty(len(owner))
    threads = min(threads, len(sums), numba.config.NUMBA_NUM_THREADS)
    if threads == 1:
        _serial(places, lengths, sums)
        return sums
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        _parallel(places, lengths, sums)
    finally:
        numba.set_num_threads(before)
    return sums


@intrinsic
def _pointer(typing, address):
    """A memory address as a pointer, which `numba.carray` takes."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return numba.types.CPointer(numba.types.float32)(address), generate


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
def _serial(places, lengths, sums):
    for k in range(len(sums)):
        sums[k] = _chunk(numba.carray(_pointer(places[k]), (lengths[k],)))


@numba.njit(parallel=True, cache=True)
def _parallel(places, lengths, sums):
    for k in numba.prange(len(sums)):
        sums[k] = _chunk(numba.carray(_pointer(places[k]), (lengths[k],)))
