"""Directions with a matrix in front: natural gradient, Shampoo, SOAP, full-matrix AdaGrad.

Moments are mantissa and log. What lies below FLOOR of the largest is rounding and counts as zero,
or SOAP would divide rounding by rounding: a gradient in its own singular bases is diagonal.
"""

import math
from typing import Annotated, NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from papers.beyond.engine import entrywise, graded_svd
from papers.beyond.engine.gradients import dot

FLOOR = 1e-13
VANISHED = 1e-13  # of a pivot, relative to its diagonal


@numba.njit
def natural(rule, graded, z, answers, D):
    """Fill D = (F + lambda I)^{-1} G; returns the log of the factor that it lacks, or -inf.

    G = sum_i p_i, and j_i = grad f_i of the answer f_i = y_i u^T X_i^T softmax(X_i W z_i) is a
    multiple of p_i, n p_i = |l'(f_i)| j_i. The Fisher matrix of the labels, P(y) = sigma(y f) under
    the logistic loss, is the Gauss-Newton matrix (1/n) sum_i l''(f_i) j_i j_i^T; so it is F = sum_i
    w_i p_i p_i^T with w_i = n l'' / l'^2 = n e^{f_i}, for the exponential loss too. Then D = sum_i
    y_i e^{-s_i} p_i, where

        (C + diag(lambda e^{-2 s_i} / w_i)) y = e^{-s} / w,   C_ij = <p_i, p_j> e^{-s_i - s_j},

    n unknowns, C of order one, all that is graded on the diagonal: scaled to a diagonal of ones,
    the matrix loses no digits. answers (n,): the f_i. A sample whose pull lies in the span of those
    of larger ones, to rounding, is left out: the larger decide.
    """
    n = len(z)
    C, order, rows = np.zeros((n, n)), np.zeros(n, np.int64), np.zeros((4, n))
    half, right, y, weight = rows[0], rows[1], rows[2], rows[3]
    D[:] = 0.0
    count = _gather(rule, graded, z, answers, C, y, weight, order)
    top = _scale(rule, graded, count, C, y, weight, order, half, right)
    count, largest = _solve(count, C, order, half, right, y), -math.inf
    for k in range(count):
        i = order[k]
        largest = max(largest, half[i] + entrywise.log(abs(y[i])))
    if largest == -math.inf:
        return -math.inf
    for k in range(count):
        i = order[k]
        if y[i] == 0.0:
            continue
        size = math.exp(half[i] + math.log(abs(y[i])) - largest)
        factor = math.copysign(size, y[i])
        for j in range(D.shape[0]):
            for e in range(D.shape[1]):
                D[j, e] += factor * graded.b[i, j] * z[i, e]
    if not rule.normalised:
        return top + largest
    total = 0.0
    for j in range(len(D)):
        total += dot(D[j], D[j])
    return -0.5 * math.log(total)


@numba.njit
def _gather(rule, graded, z, answers, C, y, weight, order):
    """Fill C, the logs of the weights w, and the order from large to small pulls; their number."""
    n, count = len(z), 0
    size = rule.batch if rule.batch > 0.0 else float(n)
    for i in range(n):
        weight[i] = math.log(size) + answers[i]
        for k in range(i + 1):
            C[i, k] = dot(graded.b[i], graded.b[k]) * dot(z[i], z[k])
            C[k, i] = C[i, k]
        if graded.logs[i] == -math.inf or C[i, i] == 0.0:
            continue
        y[i] = graded.logs[i] + 0.5 * weight[i]
        k = count
        while k > 0 and y[order[k - 1]] < y[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i
        count += 1
    return count


@numba.njit
def _scale(rule, graded, count, C, y, weight, order, half, right):
    """Fill half, minus half the logs of the diagonal, and right, the scaled right-hand side."""
    damping = entrywise.log(rule.damping)
    if rule.relative:
        trace = -math.inf
        for k in range(count):
            i = order[k]
            trace = exponentials.add_logs(trace, 2.0 * y[i] + math.log(C[i, i]))
        damping = entrywise.add_logs(damping, trace)
    top = -math.inf
    for k in range(count):
        i = order[k]
        added = entrywise.add_logs(damping, -2.0 * y[i])
        half[i] = -0.5 * exponentials.add_logs(math.log(C[i, i]), added)
        right[i] = half[i] - graded.logs[i] - weight[i]
        top = max(top, right[i])
    for k in range(count):
        i = order[k]
        right[i] = math.exp(right[i] - top)
    return top


@numba.njit
def _solve(count, C, order, half, right, y):
    """Fill y, the scaled unknowns, by Cholesky's method; 0 where a pivot vanishes."""
    L, kept = np.zeros(C.shape), 0
    for a in range(count):
        i, pivot, rest = order[a], 1.0, right[order[a]]
        for b in range(kept):
            k = order[b]
            total = C[i, k] * math.exp(half[i] + half[k])
            for c in range(b):
                total -= L[kept, c] * L[b, c]
            L[kept, b] = total / L[b, b]
            pivot -= L[kept, b] ** 2
            rest -= L[kept, b] * y[k]
        if pivot > VANISHED:
            L[kept, kept] = math.sqrt(pivot)
            y[i] = rest / L[kept, kept]
            order[kept] = i
            kept += 1
    for b in range(kept - 1, -1, -1):
        total = y[order[b]]
        for c in range(b + 1, kept):
            total -= L[c, b] * y[order[c]]
        y[order[b]] = total / L[b, b]
    return kept


class Sides(NamedTuple):
    """L = sum of G G^T and R = sum of G^T G, decaying or not, their logs, and SOAP's bases."""

    left: Annotated[np.ndarray, "d d"]
    right: Annotated[np.ndarray, "e e"]
    logs: Annotated[np.ndarray, "two"]
    left_basis: Annotated[np.ndarray, "d d"]
    right_basis: Annotated[np.ndarray, "e e"]


@numba.njit
def _product(A, B, flip_a, flip_b):
    """A B, either factor transposed where said."""
    inner = A.shape[0] if flip_a else A.shape[1]
    rows = A.shape[1] if flip_a else A.shape[0]
    out = np.zeros((rows, B.shape[0] if flip_b else B.shape[1]))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for k in range(inner):
                a = A[k, i] if flip_a else A[i, k]
                total += a * (B[j, k] if flip_b else B[k, j])
            out[i, j] = total
    return out


@numba.njit
def _accumulate(rule, G, top, sides):
    """L and R with one more gradient."""
    a, b = (1.0, 1.0) if rule.summed else (rule.memory, 1.0 - rule.memory)
    left, right = _product(G, G, False, True).ravel(), _product(G, G, True, False).ravel()
    logs = sides.logs
    logs[0] = entrywise.mix(sides.left.ravel(), logs[0], a, left, 2.0 * top, b)
    logs[1] = entrywise.mix(sides.right.ravel(), logs[1], a, right, 2.0 * top, b)


@numba.njit
def _eigen(A):
    """Eigenvectors of the symmetric A >= 0 as columns, and values, from large to small."""
    m = len(A)
    work, Q, values = A.copy(), np.zeros((m, m)), np.zeros(m)
    graded_svd.jacobi(work, Q, m, m)  # the rows of Q A are orthogonal: those of Q, eigenvectors
    for k in range(m):
        values[k] = math.sqrt(dot(work[k], work[k]))
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
    return Q, values


@numba.njit
def _quarter(A):
    """A^{-1/4} of the pseudo-inverse; A symmetric."""
    Q, values = _eigen(A)
    out = np.zeros(A.shape)
    for i in range(len(A)):
        for j in range(len(A)):
            total = 0.0
            for k in range(len(A)):
                if values[k] > FLOOR * values[0]:
                    total += Q[i, k] * Q[j, k] * values[k] ** -0.25
            out[i, j] = total
    return out


@numba.njit
def shampoo(rule, G, top, sides, D):
    """D = L^{-1/4} G R^{-1/4}; returns the log of the factor that D lacks."""
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    _accumulate(rule, G, top, sides)
    half = _product(_quarter(sides.left), G, False, False)
    entrywise.copy(_product(half, _quarter(sides.right), False, False).ravel(), D.ravel())
    return top - 0.25 * (sides.logs[0] + sides.logs[1])


@numba.njit
def _follow(A, Q):
    """Q = the orthonormal factor of A Q, as QR with a positive diagonal gives it.

    For a column in the span of those before it stand in the last basis' columns, then the axes.
    """
    m, rank = len(A), 0
    basis, vector = np.zeros((m, m)), np.zeros(m)
    columns = _product(Q, A, True, False)  # of A Q, as rows
    for k in range(3 * m):
        for j in range(m):
            if k < m:
                vector[j] = columns[k, j]
            elif k < 2 * m:
                vector[j] = Q[j, k - m]
            else:
                vector[j] = 1.0 if j == k - 2 * m else 0.0
        if rank < m:
            rank = graded_svd.expand(vector, basis, rank, vector[:0])
    for i in range(m):
        for j in range(m):
            Q[i, j] = basis[j, i]


@numba.njit
def _begin(A, Q):
    """Q = the eigenvectors of A, by values from large to small; off its range the axes' rests.

    Eigenvectors of rounding would be the processor's, and the next gradient has entries there.
    """
    vectors, values = _eigen(A)
    for k in range(len(A)):
        for j in range(len(A)):
            Q[j, k] = vectors[j, k] if values[k] > FLOOR * values[0] else 0.0
    _follow(A, Q)


@numba.njit
def _turned(M, sides):
    """Q_L^T M Q_R, its entries below FLOOR of the largest 0; flat."""
    half = _product(sides.left_basis, M, True, False)
    turned = _product(half, sides.right_basis, False, False).ravel()
    largest = np.abs(turned).max()
    for j in range(turned.size):
        if abs(turned[j]) <= FLOOR * largest:
            turned[j] = 0.0
    return turned


@numba.njit
def soap(rule, t, G, top, sides, m, v, logs, D):
    """Adam in the bases of L and R before this step; returns the log of the factor that D lacks.

    m and v, flat, with the logs (2,): the moments.
    """
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    first, beta, memory = sides.logs[0] == -math.inf, rule.momentum, rule.memory
    if first:
        _accumulate(rule, G, top, sides)
        _begin(sides.left, sides.left_basis)
        _begin(sides.right, sides.right_basis)
    logs[0] = entrywise.mix(m, logs[0], beta, G.ravel(), top, 1.0 - beta)
    squares = _turned(G, sides)
    logs[1] = entrywise.mix(v, logs[1], memory, squares, 2.0 * top, 1.0 - memory, True)
    inner, quotient = _turned(m.reshape(G.shape), sides), np.zeros(m.size)
    m_log = logs[0] - entrywise.correction(beta, t)
    v_log = logs[1] - entrywise.correction(memory, t)
    lacks = entrywise.quotient(inner, m_log, v, v_log, rule.epsilon, quotient)
    half = _product(sides.left_basis, quotient.reshape(G.shape), False, False)
    entrywise.copy(_product(half, sides.right_basis, False, True).ravel(), D.ravel())
    if not first:
        _accumulate(rule, G, top, sides)
        _follow(sides.left, sides.left_basis)
        _follow(sides.right, sides.right_basis)
    return lacks


@numba.njit
def span(problem, wanted):
    """An orthonormal basis (r, d d_z) of the samples' pulls; no rows where it is not `wanted`."""
    n, S, d = problem.delta.shape
    d_z = problem.z.shape[1]
    most = min(n * S, d * d_z) if wanted else 0
    basis, vector, rank = np.zeros((most, d * d_z)), np.zeros(d * d_z), 0
    for i in range(n if wanted else 0):
        for t in range(S):
            for j in range(d):
                for e in range(d_z):
                    vector[j * d_z + e] = problem.delta[i, t, j] * problem.z[i, e]
            rank = graded_svd.expand(vector, basis, rank, vector[:0])
    return basis[:rank]


@numba.njit
def full_adagrad(G, top, basis, S, logs, D):
    """D = S^{-1/2} vec(G), flat, the power that of the pseudo-inverse; the log of what D lacks.

    Every gradient is a sum of the n(T-1) matrices delta_{i,t} z_i^T, so S = sum of vec(G) vec(G)^T,
    with the log logs[0], is kept in the `basis` (r, d d_z) of their span. A step costs order r^3.
    """
    D[:] = 0.0
    if top == -math.inf:
        return -math.inf
    rank = len(basis)
    c, turned, outer = np.zeros(rank), np.zeros(rank), np.zeros((rank, rank))
    for k in range(rank):
        c[k] = dot(basis[k], G)
    for k in range(rank):
        for l in range(rank):
            outer[k, l] = c[k] * c[l]
    logs[0] = entrywise.mix(S.ravel(), logs[0], 1.0, outer.ravel(), 2.0 * top, 1.0)
    Q, values = _eigen(S)
    for k in range(rank):
        if values[k] > FLOOR * values[0]:
            part = 0.0
            for l in range(rank):
                part += Q[l, k] * c[l]
            part /= math.sqrt(values[k])
            for l in range(rank):
                turned[l] += part * Q[l, k]
    for k in range(rank):
        for j in range(D.size):
            D[j] += turned[k] * basis[k, j]
    return top - 0.5 * logs[0]
