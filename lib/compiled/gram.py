"""Products with symmetric Gram matrices; no iteration is cheaper than such a product.

The matrix K contains the inner products of the outer products v_{it} w_i^T: K_{it,js} =
<v_{it}, v_{js}> <w_i, w_j>. For few tokens, K is formed once. For many tokens, K is
never formed. Then the kernel computes b_i = sum_t c_{it} v_{it} and h_i = sum_j <w_i,
w_j> b_j, and the product is (K c)_{it} = <v_{it}, h_i>.
"""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

WIDTH = 8  # numbers in a vector register
FITS = 64  # columns of the largest Gram matrix that the nearest cache holds
# The compiler may reorder sums, so that they fill vector registers.
_REORDER = {"reassoc", "contract", "nsz"}


@numba.njit
def zeros(rows: int, columns: int) -> np.ndarray:
    """Return an array of zeros that begins at the start of a cache line.

    Because of this alignment, no load of a vector register crosses the boundary between
    two cache lines.

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
    """Reorder Gram matrices for the loop: by token first instead of by sample first.

    Parameters
    ----------
    K : ndarray (data, m, m)
        Gram matrices with m = n S rows, where S rows belong to each sample. The rows
        are ordered by sample first, then by token. If the matrices are not formed, K
        has fewer than m columns.
    n : int
        Number of samples.

    Returns
    -------
    ndarray (data, m', m')
        The same matrices, ordered by token first. Here m' is m rounded up to a multiple
        of WIDTH, and the additional entries are zero. If the matrices are not formed,
        the shape is (data, m', 0).
    """
    data, m = K.shape[:2]
    padded = -(-m // WIDTH) * WIDTH
    if K.shape[2] < m:  # K is not formed: return only its size
        return np.zeros((data, padded, 0))
    plain: Callable[[int, int], np.ndarray] = getattr(zeros, "py_func")  # noqa: B009
    packed = plain(data * padded, padded).reshape(data, padded, padded)
    split = K.reshape(data, n, m // n, n, m // n)
    packed[:, :m, :m] = split.transpose(0, 2, 1, 4, 3).reshape(data, m, m)
    return packed


@numba.njit(fastmath=_REORDER, forceinline=True)
def _multiply_rows(K: np.ndarray, s: int, c: np.ndarray, out: np.ndarray) -> None:
    """Set out = K[s] c, eight rows at a time, for K (data, m, m) and c (m,).

    m must be a multiple of eight, as it is in the matrices from `pack`.
    """
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
    """Set out = K[s] c for symmetric K (data, m, m) and c (m,), m a multiple of four.

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
        Gram matrices as `pack` returns them: symmetric, with m a multiple of WIDTH.
    s : int
        The index of the matrix.
    c : ndarray (m,)
        Coefficients.
    out : ndarray (m,)
        Filled with the product.
    """
    if c.size <= FITS:
        _multiply_rows(K, s, c, out)
    else:  # memory is slower than arithmetic, so read only half of the matrix
        _multiply_triangle(K, s, c, out)


class Factors(NamedTuple):
    """The arrays for products without the Gram matrix; empty if the matrix is formed.

    Parameters
    ----------
    v : ndarray (data, n, S, r)
        The vectors v_{it}, S of them in each sample.
    w : ndarray (data, n, q)
        The vector w_i of each sample, the second factor of all outer products v_{it}
        w_i^T of this sample.
    pairs : ndarray (data, n, n)
        The inner products of the w_i. If products with w cost less, the shape is (data,
        n, 0).
    first : ndarray of int (data, m)
        For each vector, the index of the first vector of its sample that equals it, in
        the order of the loop (by token first). Because of this array, equal vectors get
        bitwise equal entries of the product. If no two vectors are equal, the shape is
        (data, 0).
    """

    v: np.ndarray
    w: np.ndarray
    pairs: np.ndarray
    first: np.ndarray


@numba.njit(fastmath=_REORDER)
def sums_of_samples(
    v: np.ndarray, s: int, start: int, c: np.ndarray, b: np.ndarray
) -> None:
    """Fill b with the sums of the vectors of some samples, four tokens at a time.

    The sum of sample i is b[i - start] = sum_t c[t, i] v[s, i, t].

    Parameters
    ----------
    v : ndarray (data, n, S, r)
        The vectors.
    s : int
        The index of the data set.
    start : int
        The first sample.
    c : ndarray (S, at least n)
        The coefficients.
    b : ndarray (samples, r)
        Filled with the sums, one row for each sample from `start` on.
    """
    S, r = v.shape[2:]
    b[:] = 0.0
    for place in range(len(b)):
        i = start + place
        row = b[place]
        for t in range(0, S - S % 4, 4):
            c_0 = c[t, i]
            c_1 = c[t + 1, i]
            c_2 = c[t + 2, i]
            c_3 = c[t + 3, i]
            v_0 = v[s, i, t]
            v_1 = v[s, i, t + 1]
            v_2 = v[s, i, t + 2]
            v_3 = v[s, i, t + 3]
            for j in range(r):
                row[j] += c_0 * v_0[j] + c_1 * v_1[j] + c_2 * v_2[j] + c_3 * v_3[j]
        for t in range(S - S % 4, S):
            c_0 = c[t, i]
            v_0 = v[s, i, t]
            for j in range(r):
                row[j] += c_0 * v_0[j]


@numba.njit(fastmath=_REORDER)
def products_with_samples(
    v: np.ndarray, s: int, start: int, h: np.ndarray, out: np.ndarray
) -> None:
    """Fill `out` with inner products in some samples, four tokens at a time.

    The products of sample i are out[t, i - start] = <v[s, i, t], h[i - start]>.

    Parameters
    ----------
    v : ndarray (data, n, S, r)
        The vectors.
    s : int
        The index of the data set.
    start : int
        The first sample.
    h : ndarray (samples, r)
        One vector for each sample from `start` on.
    out : ndarray (S, at least samples)
        Filled with the products. Further columns stay as they are.
    """
    S, r = v.shape[2:]
    for place in range(len(h)):
        i = start + place
        row = h[place]
        for t in range(0, S - S % 4, 4):
            v_0 = v[s, i, t]
            v_1 = v[s, i, t + 1]
            v_2 = v[s, i, t + 2]
            v_3 = v[s, i, t + 3]
            s_0 = 0.0
            s_1 = 0.0
            s_2 = 0.0
            s_3 = 0.0
            for j in range(r):
                s_0 += v_0[j] * row[j]
                s_1 += v_1[j] * row[j]
                s_2 += v_2[j] * row[j]
                s_3 += v_3[j] * row[j]
            out[t, place] = s_0
            out[t + 1, place] = s_1
            out[t + 2, place] = s_2
            out[t + 3, place] = s_3
        for t in range(S - S % 4, S):
            v_0 = v[s, i, t]
            s_0 = 0.0
            for j in range(r):
                s_0 += v_0[j] * row[j]
            out[t, place] = s_0


@numba.njit
def multiply_factored(
    factors: tuple, s: int, c: np.ndarray, out: np.ndarray, room: tuple
) -> None:
    """Set out = K[s] c for a Gram matrix that is not formed.

    Parameters
    ----------
    factors : Factors
        The factors of the matrix, as a plain tuple.
    s : int
        The index of the data set.
    c : ndarray (m,)
        The coefficients, ordered by token first. Entries of the padding are not used.
    out : ndarray (m,)
        Filled with the product. Entries of the padding stay as they are.
    room : tuple of ndarray
        The work space that `room_for` returns: b and h (n, r), and w^T b (q, r).
    """
    v, w, pairs, first = factors
    b, h, low = room
    n, S = v.shape[1:3]
    sums_of_samples(v, s, 0, c[: n * S].reshape(S, n), b)
    if pairs.shape[2]:
        np.dot(pairs[s], b, h)
    else:
        np.dot(w[s].T, b, low)
        np.dot(w[s], low, h)
    products_with_samples(v, s, 0, h, out[: n * S].reshape(S, n))
    for m in range(first.shape[1]):
        out[m] = out[first[s, m]]


@numba.njit
def room_for(factors: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the work space of `multiply_factored`.

    Parameters
    ----------
    factors : Factors
        The factors of the matrix, as a plain tuple.

    Returns
    -------
    tuple of ndarray
        Uninitialised arrays for b and h (n, r), and for w^T b (q, r).
    """
    n = factors[0].shape[1]
    r = factors[0].shape[3]
    q = factors[1].shape[2]
    return np.empty((n, r)), np.empty((n, r)), np.empty((q, r))


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
