"""Singular values of a graded sum, each to full relative accuracy, and steps from them.

The polar factor gives a singular value of e^-1000 the same weight as a singular value
of 1. So we need even the smallest singular values to full relative accuracy. Order the
samples by their scales, the largest first. Then G = C diag(e^s) Q^T, where Q has
orthonormal columns and the columns of C have similar sizes, because a sample with a
smaller scale only adds to columns that samples with larger scales began. A QR
factorisation C = Q' R leaves the triangular matrix R diag(e^s). This matrix splits into
blocks wherever two consecutive scales differ by more than APART. Within a block, the
one-sided Jacobi method finds every singular value to full relative accuracy (Demmel and
Veselic, 1992). The direction of a step is U f(S) V^T, where G = U S V^T.

None of this is needed for a large G whose singular values lie within a factor of EVEN.
For such a G, LAPACK is several times faster, and loses at most four of sixteen digits.
"""

import math
from typing import Annotated, NamedTuple

import numba
import numpy as np

from lib.dynamics.in_coordinates import codes
from lib.dynamics.in_coordinates.entrywise import divide, dot, largest, log

# The part of a vector that is orthogonal to other vectors counts as zero if its length,
# divided by the length of the vector, is at most this.
DEPENDENT = 1e-10
APART = 37.0  # e^-37 is below rounding
WIDEST = 300.0  # largest spread of a block's scales, so that squares stay floats
VANISHED = 1e-13
EVEN = 1e4  # largest singular value divided by the smallest
LARGE = 32  # if no side is smaller than this, LAPACK is faster than Jacobi's method
ORTHOGONAL = 1e-15  # below this cosine, Jacobi's method leaves two columns alone
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan (2024)


class Space(NamedTuple):
    """Work space for n samples, with e = d_z and r = min(n, d_z). In terms of the
    matrices of the module's docstring, of_z is Q^T, and from_z contains the coordinates
    of the z_i in this basis. The field C is the transpose of the matrix C, so that each
    of its rows is a column of the matrix, and `scale` is s. of_c is Q'^T, and the field
    R is the transpose of the matrix R. block, V and sigma are the vectors, the
    rotations and the norms of Jacobi's method. `image` is work space for one vector.
    """

    of_z: Annotated[np.ndarray, "r e"]
    from_z: Annotated[np.ndarray, "n r"]
    C: Annotated[np.ndarray, "r d"]
    scale: Annotated[np.ndarray, "r"]
    of_c: Annotated[np.ndarray, "r d"]
    R: Annotated[np.ndarray, "r r"]
    block: Annotated[np.ndarray, "r r"]
    V: Annotated[np.ndarray, "r r"]
    sigma: Annotated[np.ndarray, "r"]
    image: Annotated[np.ndarray, "e"]


@numba.njit
def expand(vector, basis, rank, coefficients):
    """Fill `coefficients`, unless it is empty, with the coordinates of `vector` (e,) in
    the orthonormal rows of `basis` (r, e), of which the first `rank` are filled. If the
    part of the vector outside their span is longer than DEPENDENT times the vector, and
    r > rank, first fill one more row. Returns the new rank. `vector` may be
    overwritten.
    """
    coefficients[:] = 0.0
    # A full basis spans the vector, so that its inner products with the rows are its
    # coordinates.
    if rank == len(basis) == vector.size:
        for r in range(min(rank, coefficients.size)):
            coefficients[r] = dot(basis[r], vector)
        return rank
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
def descending(values):
    """Return the indices that sort `values` (k,) from largest to smallest; ties keep
    their order. No value may be NaN.
    """
    order = np.arange(values.size)
    for k in range(1, values.size):
        place = k
        while place > 0 and values[order[place - 1]] < values[k]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
    return order


@numba.njit(inline="always")
def _factorise(graded, z, s):
    """Fill the fields of s from of_z to R, for the graded sum with the rows z (n, e).
    Column c of C belongs to row c of of_z, and has the factor e^{scale_c}. Returns the
    indices (count,) of the columns that are not zero, by scale from largest to
    smallest, and the integers `made`, whose entry k is the number of rows of of_c that
    the first k of these columns need.
    """
    n = graded.logs.size
    rank = 0
    order = descending(graded.logs)
    for k in range(n):
        i = order[k]
        if graded.logs[i] == -math.inf:
            n = k
            break
        before = rank
        rank = expand(z[i].copy(), s.of_z, rank, s.from_z[k])
        if rank > before:
            s.scale[before] = graded.logs[i]
    for c in range(rank):
        column = s.C[c]
        column[:] = 0.0
        for k in range(n):
            i = order[k]
            if s.from_z[k, c] != 0.0:
                factor = s.from_z[k, c] * math.exp(graded.logs[i] - s.scale[c])
                for j in range(column.size):
                    column[j] += factor * graded.b[i, j]
        size = largest(column)
        s.scale[c] += log(size)
        if size > 0.0:
            divide(column, size, column)
    columns = descending(s.scale[:rank])
    count = 0
    made = np.zeros(rank + 1, np.int64)
    for c in columns:
        if s.scale[c] == -math.inf:
            break
        made[count + 1] = expand(s.C[c].copy(), s.of_c, made[count], s.R[count])
        count += 1
    return columns[:count], made


@numba.njit
def add_multiple(x, factor, y):
    """Add `factor` times y (m,) to x (m,), in place."""
    for k in range(x.size):
        x[k] += factor * y[k]


@numba.njit
def rotate(x, y, cosine, sine):
    """Rotate x and y (m,) in place, in the plane that they span."""
    for k in range(x.size):
        old = x[k]
        x[k] = cosine * old - sine * y[k]
        y[k] = sine * old + cosine * y[k]


@numba.njit
def jacobi(A, V, count, width):
    """Rotate the rows of A (count, width) in place until they are orthogonal, in 60
    sweeps at most. V (count, count) is filled with the product of the rotations: A = V
    A_0, where A_0 is A before the call. A row whose length falls below VANISHED times
    its initial length becomes zero. A and V may be larger than these shapes; their
    other entries are not used.
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
                x = A[i, :width]
                y = A[j, :width]
                a = dot(x, x)
                b = dot(y, y)
                ab = dot(x, y)
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
                tangent = math.copysign(1.0, zeta) / (
                    abs(zeta) + math.sqrt(1.0 + zeta * zeta)
                )
                cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
                sine = cosine * tangent
                rotate(x, y, cosine, sine)
                rotate(V[i, :count], V[j, :count], cosine, sine)
        if not moved:
            break


@numba.njit(inline="always")
def _decompose(s, scale, made, first, last):
    """Decompose the block of the columns from `first` up to `last`, without its factor
    e^{scale_first}. Its singular values are written to s.sigma, unsorted. The rows of
    s.block become the left singular vectors times these values, and the rows of s.V
    become the right singular vectors. Returns the largest singular value. `scale` and
    `made` are indexed like the columns.
    """
    before = made[first]
    count = last - first
    width = made[last] - before
    for k in range(count):
        factor = math.exp(scale[first + k] - scale[first])
        for r in range(width):
            s.block[k, r] = factor * s.R[first + k, before + r]
    jacobi(s.block, s.V, count, width)
    top = 0.0
    positive = 0
    for l in range(count):
        total = 0.0
        for r in range(width):
            total += s.block[l, r] * s.block[l, r]
        s.sigma[l] = math.sqrt(total)
        top = max(top, s.sigma[l])
        positive += s.sigma[l] > 0.0
    # If more values are positive than the rank allows, the smallest ones are rounding
    # errors.
    for _ in range(positive - width):
        smallest = -1
        for l in range(count):
            if s.sigma[l] > 0.0 and (smallest < 0 or s.sigma[l] < s.sigma[smallest]):
                smallest = l
        s.sigma[smallest] = 0.0
    return top


@numba.njit
def _weight(rule, sigma, norm):
    """Return f(sigma) for a singular value sigma > 0 of a matrix with this Frobenius
    norm. f is Muon's polynomial, applied `iterations` times to sigma / norm, or else 1.
    """
    if rule.shape == codes.NEWTON_SCHULZ:
        weight = sigma / norm
        for _ in range(int(rule.iterations)):  # Muon's polynomial
            y = weight * weight
            weight = weight * (QUINTIC[0] + y * (QUINTIC[1] + y * QUINTIC[2]))
        return weight
    return 1.0


@numba.njit
def direction(rule, graded, z, s, D):
    """Fill D (d, d_z) with U f(S) V^T for the graded sum G with the rows z (n, d_z).
    For codes.LEADING, f is 1 for one of the largest singular values and 0 for all
    others. Returns the log of the dual norm of G, which is the largest singular value
    for codes.LEADING and the sum of all singular values otherwise. If G is zero, D is
    zero and the log is -inf.
    """
    if min(D.shape) >= LARGE:
        value = _even(rule, graded, z, D)
        if value > -math.inf:
            return value
    return _uneven(rule, graded, z, s, D)


@numba.njit
def _even(rule, graded, z, D):
    """Do what `direction` does, with LAPACK. If the singular values of G differ too
    much for LAPACK, or if G is zero, return -inf and leave D as it is.
    """
    logs = graded.logs
    top = logs.max()
    if (logs > top - math.log(EVEN)).sum() < min(D.shape):
        return -math.inf
    factors = np.exp(logs - top).reshape((-1, 1))
    G = (factors * graded.b).T @ z
    U, sigma, Vt = np.linalg.svd(G, full_matrices=False)
    if not sigma[-1] * EVEN > sigma[0]:  # true if every value is zero
        return -math.inf
    if rule.shape == codes.LEADING:
        D[:] = np.outer(U[:, 0], Vt[0])
        return top + math.log(sigma[0])
    norm = math.sqrt(dot(sigma, sigma))
    weights = np.empty(sigma.size)
    for l in range(sigma.size):
        weights[l] = _weight(rule, sigma[l], norm)
    D[:] = (U * weights) @ Vt
    return top + math.log(sigma.sum())


@numba.njit
def _uneven(rule, graded, z, s, D):
    """Do what `direction` does, block by block, for singular values of any size."""
    D[:] = 0.0
    columns, made = _factorise(graded, z, s)
    count = columns.size
    scale = s.scale[columns]
    if count == 0:
        return -math.inf
    norm = 0.0  # of G, without the factor e^scale_0
    for k in range(count):
        for r in range(made[k + 1]):
            norm += (math.exp(scale[k] - scale[0]) * s.R[k, r]) ** 2
    norm = math.sqrt(norm)
    first = 0
    value = 0.0
    while first < count:
        last = first + 1
        while last < count and scale[last - 1] - scale[last] <= APART:
            if scale[first] - scale[last] > WIDEST:
                break
            last += 1
        factor = math.exp(scale[first] - scale[0])
        top = _decompose(s, scale, made, first, last)
        if rule.shape == codes.LEADING:
            _keep_largest(s.sigma[: last - first], top)
        for l in range(last - first):
            sigma = s.sigma[l]
            if sigma > 0.0:
                s.sigma[l] = _weight(rule, sigma * factor, norm) / sigma
                value += sigma * factor
        _add(s, columns[first:last], s.of_c[made[first] : made[last]], D)
        if rule.shape == codes.LEADING:
            return scale[0] + math.log(top)
        first = last
    return scale[0] + math.log(value)


@numba.njit
def _keep_largest(sigma, top):
    """Set `sigma` (count,) to zero, except for the first entry that equals `top`."""
    taken = False
    for l in range(sigma.size):
        if taken or sigma[l] != top:
            sigma[l] = 0.0
        taken = taken or sigma[l] == top


@numba.njit(inline="always")
def _add(s, columns, rows, D):
    """Add a block's part to D (d, d_z), the sum over l of s.sigma_l times the outer
    product of row l of s.block and row l of s.V. The entries of the rows of s.block are
    coordinates in the basis `rows` (width, d), and those of the rows of s.V are
    coordinates in the basis s.of_z[columns].
    """
    count = columns.size
    along = np.empty(count)
    for r in range(len(rows)):
        along[:] = 0.0
        for l in range(count):
            add_multiple(along, s.sigma[l] * s.block[l, r], s.V[l, :count])
        s.image[:] = 0.0
        for k in range(count):
            add_multiple(s.image, along[k], s.of_z[columns[k]])
        for j in range(len(D)):
            add_multiple(D[j], rows[r, j], s.image)
