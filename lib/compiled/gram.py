"""Products with symmetric Gram matrices, the floor of an iteration's cost."""

from collections.abc import Callable

import numba
import numpy as np

WIDTH = 8  # numbers in a vector register
FITS = 64  # columns of the largest Gram matrix that the nearest cache holds
# Sums may be taken in any order, so that they fill vector registers.
_REORDER = {"reassoc", "contract", "nsz"}


@numba.njit
def zeros(rows: int, columns: int) -> np.ndarray:
    """Return zeros that begin at a boundary of cache lines.

    No load of a register crosses such a boundary.

    Parameters
    ----------
    rows, columns : int
        The shape.

    Returns
    -------
    ndarray (rows, columns)
        Zeros.
    """
    raw = np.zeros(rows * columns + WIDTH)
    first = -(raw.ctypes.data // 8) % WIDTH
    return raw[first : first + rows * columns].reshape(rows, columns)


def pack(K: np.ndarray, n: int) -> np.ndarray:
    """Reorder Gram matrices from sample first to token first, as the loop reads them.

    Parameters
    ----------
    K : ndarray (data, m, m)
        Gram matrices, m = n T, sample first.
    n : int
        Number of samples.

    Returns
    -------
    ndarray (data, m', m')
        The same matrices, token first; m' is m rounded up to a multiple of WIDTH, and
        the rest is zero.
    """
    data, m = K.shape[:2]
    padded = -(-m // WIDTH) * WIDTH
    plain: Callable[[int, int], np.ndarray] = getattr(zeros, "py_func")  # noqa: B009
    packed = plain(data * padded, padded).reshape(data, padded, padded)
    split = K.reshape(data, n, m // n, n, m // n)
    packed[:, :m, :m] = split.transpose(0, 2, 1, 4, 3).reshape(data, m, m)
    return packed


@numba.njit(fastmath=_REORDER, forceinline=True)
def _multiply_rows(K: np.ndarray, s: int, c: np.ndarray, out: np.ndarray) -> None:
    """Set out = K[s] c, eight rows at a time; K (data, m, m)."""
    m = c.size
    for i in range(0, m - m % 8, 8):
        s0 = 0.0
        s1 = 0.0
        s2 = 0.0
        s3 = 0.0
        s4 = 0.0
        s5 = 0.0
        s6 = 0.0
        s7 = 0.0
        for j in range(m):
            s0 += K[s, i, j] * c[j]
            s1 += K[s, i + 1, j] * c[j]
            s2 += K[s, i + 2, j] * c[j]
            s3 += K[s, i + 3, j] * c[j]
            s4 += K[s, i + 4, j] * c[j]
            s5 += K[s, i + 5, j] * c[j]
            s6 += K[s, i + 6, j] * c[j]
            s7 += K[s, i + 7, j] * c[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = s0, s1, s2, s3
        out[i + 4], out[i + 5], out[i + 6], out[i + 7] = s4, s5, s6, s7


@numba.njit(fastmath=_REORDER, forceinline=True)
def _multiply_triangle(K: np.ndarray, s: int, c: np.ndarray, out: np.ndarray) -> None:
    """Set out = K[s] c for symmetric K (data, m, m).

    It takes four rows of the lower triangle at a time.
    """
    m = c.size
    for j in range(m):
        out[j] = 0.0
    for i in range(0, m - m % 4, 4):
        a = K[s, i]
        b = K[s, i + 1]
        d = K[s, i + 2]
        e = K[s, i + 3]
        c_a = c[i]
        c_b = c[i + 1]
        c_d = c[i + 2]
        c_e = c[i + 3]
        s_a = 0.0
        s_b = 0.0
        s_d = 0.0
        s_e = 0.0
        for j in range(i):
            c_j = c[j]
            out[j] += a[j] * c_a + b[j] * c_b + d[j] * c_d + e[j] * c_e
            s_a += a[j] * c_j
            s_b += b[j] * c_j
            s_d += d[j] * c_j
            s_e += e[j] * c_j
        out[i] = s_a + a[i] * c_a + b[i] * c_b + d[i] * c_d + e[i] * c_e
        out[i + 1] = s_b + b[i] * c_a + b[i + 1] * c_b + d[i + 1] * c_d + e[i + 1] * c_e
        out[i + 2] = s_d + d[i] * c_a + d[i + 1] * c_b + d[i + 2] * c_d + e[i + 2] * c_e
        out[i + 3] = s_e + e[i] * c_a + e[i + 1] * c_b + e[i + 2] * c_d + e[i + 3] * c_e


@numba.njit(forceinline=True)
def multiply(K: np.ndarray, s: int, c: np.ndarray, out: np.ndarray) -> None:
    """Set out = K[s] c.

    Parameters
    ----------
    K : ndarray (data, m, m)
        Packed Gram matrices.
    s : int
        Number of the matrix.
    c : ndarray (m,)
        Coefficients.
    out : ndarray (m,)
        Filled with the product.
    """
    if c.size <= FITS:
        _multiply_rows(K, s, c, out)
    else:  # memory is slower than arithmetic: read half of it
        _multiply_triangle(K, s, c, out)


@numba.njit(fastmath=_REORDER, forceinline=True)
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the inner product <a, b>.

    Parameters
    ----------
    a, b : ndarray (m,)
        Vectors.

    Returns
    -------
    float
        <a, b>.
    """
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total
