"""Singular values of a graded sum, each to full relative accuracy, compiled.

The polar factor treats a singular value of e^-1000 like one of 1, so it must be known. With the
samples in the order of their scales, G = C diag(e^s) Q^T with Q orthonormal and the columns of C of
like size, because a smaller sample only adds to the columns of the larger ones. C = Q' R leaves R
diag(e^s), triangular; where neighbouring scales lie further apart than APART it falls into blocks,
and in each the one-sided Jacobi method is accurate relative to every singular value (Demmel and
Veselic, 1992).
"""

import math
from typing import NamedTuple

import numba
import numpy as np

_REORDER = {"reassoc", "contract", "nsz"}
DEPENDENT = 1e-10  # a vector's part across others this small, relative to its length, is zero
APART = 37.0  # e^-37 is below rounding
WIDEST = 300.0  # of a block's scales, so that squares stay floats
VANISHED = 1e-13
ORTHOGONAL = 1e-15  # cosine of two columns that Jacobi's method leaves alone


class Space(NamedTuple):
    """Work space for n samples, d and d_z, r = min(n, d_z): the factors named above.

    of_z (r, d_z) = Q^T, from_z (n, r) coordinates of the z_i in it; C (r, d), scale (r,) and
    order (n,) of the samples, columns (r,) of the columns of C, from large to small; of_c (r, d) =
    Q'^T, R (r, r) a row per column in that order, made (r + 1,) how many rows of of_c those before
    it made; block, V (r, r) and sigma (r,) the Jacobi method's vectors, rotations and norms; inner
    (r, r) and image (r, d_z) of a direction; vector_z (d_z,), vector_d (d,).
    """

    of_z: np.ndarray
    from_z: np.ndarray
    C: np.ndarray
    scale: np.ndarray
    order: np.ndarray
    of_c: np.ndarray
    R: np.ndarray
    block: np.ndarray
    V: np.ndarray
    sigma: np.ndarray
    inner: np.ndarray
    columns: np.ndarray
    made: np.ndarray
    image: np.ndarray
    vector_z: np.ndarray
    vector_d: np.ndarray


@numba.njit
def space(n, d, d_z):
    """A Space of zeros."""
    r = min(n, d_z)
    return Space(
        of_z=np.zeros((r, d_z)),
        from_z=np.zeros((n, r)),
        C=np.zeros((r, d)),
        scale=np.zeros(r),
        order=np.zeros(n, np.int64),
        of_c=np.zeros((r, d)),
        R=np.zeros((r, r)),
        block=np.zeros((r, r)),
        V=np.zeros((r, r)),
        sigma=np.zeros(r),
        inner=np.zeros((r, r)),
        columns=np.zeros(r, np.int64),
        made=np.zeros(r + 1, np.int64),
        image=np.zeros((r, d_z)),
        vector_z=np.zeros(d_z),
        vector_d=np.zeros(d),
    )


@numba.njit(fastmath=_REORDER)
def dot(a, b):
    """<a, b>; (m,) each."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@numba.njit
def expand(vector, basis, rank, coefficients):
    """Coordinates of `vector` in the first `rank` rows of basis; a new row where it leaves them.

    `vector` is overwritten; returns the new rank. Orthogonalised twice, which is enough. Where
    `coefficients` is empty they are not wanted.
    """
    for r in range(coefficients.size):
        coefficients[r] = 0.0
    length = math.sqrt(dot(vector, vector))
    for _ in range(2):
        for r in range(rank):
            part = dot(basis[r], vector)
            if coefficients.size:
                coefficients[r] += part
            for j in range(vector.size):
                vector[j] -= part * basis[r, j]
    rest = math.sqrt(dot(vector, vector))
    if rest > DEPENDENT * length and rank < len(basis):
        if coefficients.size:
            coefficients[rank] = rest
        for j in range(vector.size):
            basis[rank, j] = vector[j] / rest
        rank += 1
    return rank


@numba.njit
def _descending(values, order):
    """order = the places of `values`, from large to small; equal ones in their order."""
    for i in range(values.size):
        k = i
        while k > 0 and values[order[k - 1]] < values[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i


@numba.njit
def factorise(graded, z, s):
    """Fill s up to R and made; returns the number of columns.

    Column c of C stands for row c of of_z with the factor e^{scale_c}; those that are zero leave.
    """
    n = graded.logs.size
    _descending(graded.logs, s.order)
    rank = 0
    for k in range(n):
        i = s.order[k]
        if graded.logs[i] == -math.inf:
            n = k
            break
        for j in range(s.vector_z.size):
            s.vector_z[j] = z[i, j]
        before = rank
        rank = expand(s.vector_z, s.of_z, rank, s.from_z[k])
        if rank > before:
            s.scale[before] = graded.logs[i]
    for c in range(rank):
        column, size = s.C[c], 0.0
        column[:] = 0.0
        for k in range(n):
            i = s.order[k]
            if s.from_z[k, c] != 0.0:
                factor = s.from_z[k, c] * math.exp(graded.logs[i] - s.scale[c])
                for j in range(column.size):
                    column[j] += factor * graded.b[i, j]
        for j in range(column.size):
            size = max(size, abs(column[j]))
        s.scale[c] = s.scale[c] + math.log(size) if size > 0.0 else -math.inf
        for j in range(column.size):
            column[j] = column[j] / size if size > 0.0 else 0.0
    _descending(s.scale[:rank], s.columns)
    count, inside = 0, 0
    for k in range(rank):
        c = s.columns[k]
        if s.scale[c] == -math.inf:
            break
        for j in range(s.vector_d.size):
            s.vector_d[j] = s.C[c, j]
        inside = expand(s.vector_d, s.of_c, inside, s.R[k])
        s.made[k + 1] = inside
        count = k + 1
    return count


@numba.njit
def jacobi(A, V, count, width):
    """Rotate the rows A (count, width) until they are orthogonal; V the rotations: A = V A_0.

    A row that keeps less than VANISHED of its length depends on the others, and becomes zero.
    """
    length = np.zeros(count)
    for c in range(count):
        for k in range(count):
            V[c, k] = 0.0
        V[c, c] = 1.0
        length[c] = math.sqrt(dot(A[c, :width], A[c, :width]))
    for _ in range(60):
        moved = False
        for i in range(count - 1):
            for j in range(i + 1, count):
                a, b, ab = 0.0, 0.0, 0.0
                for k in range(width):
                    a += A[i, k] * A[i, k]
                    b += A[j, k] * A[j, k]
                    ab += A[i, k] * A[j, k]
                if math.sqrt(a) < VANISHED * length[i]:
                    A[i, :width] = 0.0
                    continue
                if math.sqrt(b) < VANISHED * length[j]:
                    A[j, :width] = 0.0
                    continue
                if abs(ab) <= ORTHOGONAL * math.sqrt(a) * math.sqrt(b):
                    continue
                moved = True
                zeta = (b - a) / (2.0 * ab)
                tangent = math.copysign(1.0, zeta) / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
                sine = cosine * tangent
                for k in range(width):
                    x, y = A[i, k], A[j, k]
                    A[i, k], A[j, k] = cosine * x - sine * y, sine * x + cosine * y
                for k in range(count):
                    x, y = V[i, k], V[j, k]
                    V[i, k], V[j, k] = cosine * x - sine * y, sine * x + cosine * y
        if not moved:
            break


@numba.njit
def block_end(s, first, count):
    """Where the block of columns that begins at `first` ends."""
    last = first + 1
    while last < count:
        gap = s.scale[s.columns[last - 1]] - s.scale[s.columns[last]]
        if gap > APART or s.scale[s.columns[first]] - s.scale[s.columns[last]] > WIDEST:
            break
        last += 1
    return last
