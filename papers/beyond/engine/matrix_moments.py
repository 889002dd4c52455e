"""Shampoo and SOAP: preconditioners from second moments of a matrix, compiled.

L = sum of G G^T and R = sum of G^T G, decaying or not, are kept as mantissa and log. They are not
graded sums: what lies below FLOOR of the largest is rounding, and counts as zero. Without that SOAP
would divide rounding by rounding: a gradient in its own singular bases is diagonal, so the other
entries' signs, of full weight in an update with epsilon 0, would be the processor's.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from papers.beyond.engine import entrywise, graded_svd, scaled
from papers.beyond.engine import update as o

FLOOR = 1e-13


class Sides(NamedTuple):
    """L (d, d) and R (d_z, d_z) with logs (2,), their bases Q_L and Q_R, and the moments (d, d_z)
    of SOAP with moment_logs (2,). The rest is work space like L, like R and like G.
    """

    left: np.ndarray
    right: np.ndarray
    logs: np.ndarray
    of_left: np.ndarray
    of_right: np.ndarray
    first: np.ndarray
    second: np.ndarray
    moment_logs: np.ndarray
    work_left: np.ndarray
    work_right: np.ndarray
    root_left: np.ndarray
    root_right: np.ndarray
    values_left: np.ndarray
    values_right: np.ndarray
    half: np.ndarray
    turned: np.ndarray
    quotient: np.ndarray


@numba.njit
def sides(d, d_z):
    """Sides of zeros."""
    return Sides(
        left=np.zeros((d, d)),
        right=np.zeros((d_z, d_z)),
        logs=np.full(2, -math.inf),
        of_left=np.zeros((d, d)),
        of_right=np.zeros((d_z, d_z)),
        first=np.zeros((d, d_z)),
        second=np.zeros((d, d_z)),
        moment_logs=np.full(2, -math.inf),
        work_left=np.zeros((d, d)),
        work_right=np.zeros((d_z, d_z)),
        root_left=np.zeros((d, d)),
        root_right=np.zeros((d_z, d_z)),
        values_left=np.zeros(d),
        values_right=np.zeros(d_z),
        half=np.zeros((d, d_z)),
        turned=np.zeros((d, d_z)),
        quotient=np.zeros((d, d_z)),
    )


@numba.njit
def _product(A, B, flip_a, flip_b, out):
    """out = A B, either factor transposed where said; `out` is another array."""
    inner = A.shape[0] if flip_a else A.shape[1]
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for k in range(inner):
                a = A[k, i] if flip_a else A[i, k]
                total += a * (B[j, k] if flip_b else B[k, j])
            out[i, j] = total


@numba.njit
def _accumulate(rule, G, top, s):
    """L and R with one more gradient."""
    memory = rule[o.MEMORY]
    a, b = (1.0, 1.0) if rule[o.SUMMED] != 0.0 else (memory, 1.0 - memory)
    _product(G, G, False, True, s.work_left)
    _product(G, G, True, False, s.work_right)
    s.logs[0] = scaled.mix(s.left.ravel(), s.logs[0], a, s.work_left.ravel(), 2.0 * top, b)
    s.logs[1] = scaled.mix(s.right.ravel(), s.logs[1], a, s.work_right.ravel(), 2.0 * top, b)


@numba.njit
def eigen(A, work, Q, values):
    """Columns of Q: eigenvectors of the symmetric A >= 0, by values from large to small."""
    m = len(A)
    entrywise.copy(A.ravel(), work.ravel())
    graded_svd.jacobi(work, Q, m, m)  # the rows of Q A are orthogonal: those of Q, eigenvectors
    for k in range(m):
        values[k] = math.sqrt(graded_svd.dot(work[k], work[k]))
    for k in range(m):
        best = k
        for l in range(k + 1, m):
            if values[l] > values[best]:
                best = l
        values[k], values[best] = values[best], values[k]
        for j in range(m):
            Q[k, j], Q[best, j] = Q[best, j], Q[k, j]
    for k in range(m):
        for j in range(k):
            Q[k, j], Q[j, k] = Q[j, k], Q[k, j]


@numba.njit
def _quarter(A, work, Q, values, out):
    """out = A^{-1/4} of the pseudo-inverse; A symmetric."""
    eigen(A, work, Q, values)
    for i in range(len(A)):
        for j in range(len(A)):
            total = 0.0
            for k in range(len(A)):
                if values[k] > FLOOR * values[0]:
                    total += Q[i, k] * Q[j, k] * values[k] ** -0.25
            out[i, j] = total


@numba.njit
def shampoo(rule, G, top, s, D):
    """D = L^{-1/4} G R^{-1/4}; returns the log of the factor that D lacks."""
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    _accumulate(rule, G, top, s)
    _quarter(s.left, s.work_left, s.of_left, s.values_left, s.root_left)
    _quarter(s.right, s.work_right, s.of_right, s.values_right, s.root_right)
    _product(s.root_left, G, False, False, s.turned)
    _product(s.turned, s.root_right, False, False, D)
    return top - 0.25 * (s.logs[0] + s.logs[1])


@numba.njit
def _follow(A, Q, work, basis):
    """Q = the orthonormal factor of A Q, as QR with a positive diagonal gives it.

    A column of A Q in the span of those before it says nothing: the last basis' columns, and then
    the axes, stand in for it.
    """
    m, rank = len(A), 0
    _product(Q, A, True, False, work)  # the columns of A Q, as rows
    for k in range(3 * m):
        for j in range(m):
            if k < m:
                work[0, j] = work[k, j]
            elif k < 2 * m:
                work[0, j] = Q[j, k - m]
            else:
                work[0, j] = 1.0 if j == k - 2 * m else 0.0
        if rank < m:
            rank = graded_svd.expand(work[0], basis, rank, work[0, :0])
    for i in range(m):
        for j in range(m):
            Q[i, j] = basis[j, i]


@numba.njit
def _begin(A, Q, work, basis, values):
    """Q = the eigenvectors of A, by values from large to small; off its range the axes' rests.

    Eigenvectors of rounding would be the processor's, and the next gradient has entries there.
    """
    eigen(A, work, Q, values)
    for k in range(len(A)):
        if values[k] <= FLOOR * values[0]:
            Q[:, k] = 0.0
    _follow(A, Q, work, basis)


@numba.njit
def _turn(left, M, right, back, work, out):
    """out = left^T M right, or left M right^T where `back`."""
    _product(left, M, not back, False, work)
    _product(work, right, False, back, out)


@numba.njit
def _turn_there(M, s):
    """s.turned = Q_L^T M Q_R, its entries below FLOOR of the largest 0."""
    _turn(s.of_left, M, s.of_right, False, s.half, s.turned)
    largest = np.abs(s.turned).max()
    for i in range(s.turned.shape[0]):
        for j in range(s.turned.shape[1]):
            if abs(s.turned[i, j]) <= FLOOR * largest:
                s.turned[i, j] = 0.0


@numba.njit
def soap(rule, t, G, top, s, D):
    """Adam in the bases of L and R before this step; returns the log of the factor that D lacks."""
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    first = s.logs[0] == -math.inf
    if first:
        _accumulate(rule, G, top, s)
        _begin(s.left, s.of_left, s.work_left, s.root_left, s.values_left)
        _begin(s.right, s.of_right, s.work_right, s.root_right, s.values_right)
    logs, beta, memory = s.moment_logs, rule[o.MOMENTUM], rule[o.MEMORY]
    logs[0] = scaled.mix(s.first.ravel(), logs[0], beta, G.ravel(), top, 1.0 - beta)
    _turn_there(G, s)
    squares = s.turned.ravel()
    logs[1] = scaled.mix(s.second.ravel(), logs[1], memory, squares, 2.0 * top, 1.0 - memory, True)
    _turn_there(s.first, s)
    m_log = logs[0] - entrywise.correction(beta, t)
    v_log = logs[1] - entrywise.correction(memory, t)
    scaled_by = entrywise.quotient(
        s.turned.ravel(), m_log, s.second.ravel(), v_log, rule[o.EPSILON], s.quotient.ravel()
    )
    _turn(s.of_left, s.quotient, s.of_right, True, s.half, D)
    if not first:
        _accumulate(rule, G, top, s)
        _follow(s.left, s.of_left, s.work_left, s.root_left)
        _follow(s.right, s.of_right, s.work_right, s.root_right)
    return scaled_by
