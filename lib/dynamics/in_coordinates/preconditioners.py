"""Directions with a matrix in front: natural gradient, Shampoo, SOAP, full-matrix
AdaGrad.

What lies below FLOOR of the largest is rounding and counts as zero: SOAP would divide
rounding by rounding, as a gradient in its own singular bases is diagonal.
"""

import math
from typing import Annotated, NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from lib.dynamics.in_coordinates import entrywise, graded_svd
from lib.dynamics.in_coordinates.entrywise import copy, dot

FLOOR = 1e-13
VANISHED = 1e-13  # of a pivot, relative to its diagonal


@numba.njit
def natural(rule, graded, z, answers, D):
    """Fill D = (F + lambda I)^{-1} G; returns the log of the factor that it lacks, or
    -inf.

    G = sum_i p_i, and j_i = grad f_i of the answer f_i = y_i u^T X_i^T softmax(X_i W
    z_i) is a multiple of p_i, n p_i = |l'(f_i)| j_i. The Fisher matrix of the labels,
    P(y) = sigma(y f) under the logistic loss, is the Gauss-Newton matrix (1/n) sum_i
    l''(f_i) j_i j_i^T; so it is F = sum_i w_i p_i p_i^T with w_i = n l'' / l'^2 = n
    e^{f_i}, for the exponential loss too. Then D = sum_i y_i e^{-s_i} p_i, where

        (C + diag(lambda e^{-2 s_i} / w_i)) y = e^{-s} / w,   C_ij = <p_i, p_j> e^{-s_i - s_j},

    n unknowns, C of order one, all that is graded on the diagonal: scaled to a diagonal
    of ones, the matrix loses no digits. answers (n,): the f_i. A sample whose pull lies
    in the span of those of larger ones, to rounding, is left out: the larger decide.
    """
    D[:] = 0.0
    samples, C, weight = _gather(rule, graded, z, answers)
    half, right, top = _scale(rule, C, graded.logs[samples], weight)
    y = _solve(C, half, right)
    largest = -math.inf
    for k in range(y.size):
        largest = max(largest, half[k] + entrywise.log(abs(y[k])))
    if largest == -math.inf:
        return -math.inf
    for k in range(y.size):
        if y[k] == 0.0:
            continue
        i = samples[k]
        size = math.exp(half[k] + math.log(abs(y[k])) - largest)
        factor = math.copysign(size, y[k])
        for j in range(D.shape[0]):
            for e in range(D.shape[1]):
                D[j, e] += factor * graded.b[i, j] * z[i, e]
    if not rule.normalised:
        return top + largest
    return -0.5 * math.log(dot(D.ravel(), D.ravel()))


@numba.njit(inline="always")
def _gather(rule, graded, z, answers):
    """The samples that pull, from large to small, their C and log weights w."""
    weight = np.zeros(len(z))
    size = np.zeros(len(z))
    count = 0
    log_seen = math.log(rule.batch if rule.batch > 0.0 else float(len(z)))
    for i in range(len(z)):
        weight[i] = log_seen + answers[i]
        size[i] = graded.logs[i] + 0.5 * weight[i]
    order = graded_svd.descending(size)
    for i in order:
        if graded.logs[i] > -math.inf and dot(z[i], z[i]) > 0.0:
            order[count] = i
            count += 1
    order = order[:count]
    C = np.zeros((count, count))
    for a in range(count):
        for b in range(a + 1):
            i = order[a]
            k = order[b]
            C[a, b] = C[b, a] = dot(graded.b[i], graded.b[k]) * dot(z[i], z[k])
    return order, C, weight[order]


@numba.njit(inline="always")
def _scale(rule, C, logs, weight):
    """Minus half the diagonal's logs, the scaled right-hand side, what it lacks."""
    damping = entrywise.log(rule.damping)
    if rule.relative:
        trace = -math.inf
        for i in range(len(C)):
            y = logs[i] + 0.5 * weight[i]
            trace = exponentials.add_logs(trace, 2.0 * y + math.log(C[i, i]))
        damping = entrywise.add_logs(damping, trace)
    half = np.zeros(len(C))
    right = np.zeros(len(C))
    top = -math.inf
    for i in range(len(C)):
        added = entrywise.add_logs(damping, -2.0 * (logs[i] + 0.5 * weight[i]))
        half[i] = -0.5 * exponentials.add_logs(math.log(C[i, i]), added)
        right[i] = half[i] - logs[i] - weight[i]
        top = max(top, right[i])
    for i in range(len(C)):
        right[i] = math.exp(right[i] - top)
    return half, right, top


@numba.njit(inline="always")
def _solve(C, half, right):
    """y, the scaled unknowns, by Cholesky's method; 0 where a pivot vanishes."""
    count = len(C)
    kept = 0
    L = np.zeros(C.shape)
    y = np.zeros(count)
    used = np.zeros(count, np.int64)
    for i in range(count):
        pivot = 1.0
        rest = right[i]
        for b in range(kept):
            k = used[b]
            total = C[i, k] * math.exp(half[i] + half[k])
            for c in range(b):
                total -= L[kept, c] * L[b, c]
            L[kept, b] = total / L[b, b]
            pivot -= L[kept, b] ** 2
            rest -= L[kept, b] * y[k]
        if pivot > VANISHED:
            L[kept, kept] = math.sqrt(pivot)
            y[i] = rest / L[kept, kept]
            used[kept] = i
            kept += 1
    for b in range(kept - 1, -1, -1):
        total = y[used[b]]
        for c in range(b + 1, kept):
            total -= L[c, b] * y[used[c]]
        y[used[b]] = total / L[b, b]
    return y


class Sides(NamedTuple):
    """L, sum of G G^T, and R, of G^T G, decaying or not; logs; SOAP's bases."""

    left: Annotated[np.ndarray, "d d"]
    right: Annotated[np.ndarray, "e e"]
    logs: Annotated[np.ndarray, "two"]
    left_basis: Annotated[np.ndarray, "d d"]
    right_basis: Annotated[np.ndarray, "e e"]


@numba.njit
def product(A, B):
    """A B, every sum in its order."""
    out = np.zeros((A.shape[0], B.shape[1]))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for k in range(A.shape[1]):
                total += A[i, k] * B[k, j]
            out[i, j] = total
    return out


@numba.njit
def _accumulate(rule, G, top, sides):
    """L and R with one more gradient."""
    a, b = (1.0, 1.0) if rule.summed else (rule.memory, 1.0 - rule.memory)
    left = product(G, G.T).ravel()
    right = product(G.T, G).ravel()
    logs = sides.logs
    logs[0] = entrywise.mix(sides.left.ravel(), logs[0], a, left, 2.0 * top, b)
    logs[1] = entrywise.mix(sides.right.ravel(), logs[1], a, right, 2.0 * top, b)


@numba.njit
def _eigen(A):
    """Eigenvectors of symmetric A >= 0 as columns, values, from large to small."""
    m = len(A)
    work = A.copy()
    Q = np.zeros((m, m))
    values = np.zeros(m)
    # The rows of Q A are orthogonal: those of Q, eigenvectors
    graded_svd.jacobi(work, Q, m, m)
    for k in range(m):
        values[k] = math.sqrt(dot(work[k], work[k]))
    order = graded_svd.descending(values)
    return np.ascontiguousarray(Q[order].T), values[order]


@numba.njit
def _power(A, B, exponent):
    """A^exponent B, exponent < 0, by the pseudo-inverse; A symmetric."""
    Q, values = _eigen(A)
    scaled = np.zeros(Q.shape)
    for k in range(len(values)):
        if values[k] > FLOOR * values[0]:
            for j in range(len(Q)):
                scaled[j, k] = Q[j, k] * values[k] ** exponent
    return product(scaled, product(Q.T, B))


@numba.njit
def shampoo(rule, G, top, sides, D):
    """D = L^{-1/4} G R^{-1/4}; returns the log of the factor that D lacks."""
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    _accumulate(rule, G, top, sides)
    half = _power(sides.left, G, -0.25)
    copy(_power(sides.right, np.ascontiguousarray(half.T), -0.25).T, D)
    return top - 0.25 * (sides.logs[0] + sides.logs[1])


@numba.njit
def _follow(A, Q):
    """Q = the orthonormal factor of A Q, filled up by old columns, then axes."""
    m = len(A)
    rank = 0
    basis = np.zeros((m, m))
    vector = np.zeros(m)
    columns = product(Q.T, A)  # of A Q, as rows
    for k in range(3 * m):
        if rank == m:
            break
        if k < m:
            copy(columns[k], vector)
        elif k < 2 * m:
            copy(Q[:, k - m], vector)
        else:
            vector[:] = 0.0
            vector[k - 2 * m] = 1.0
        rank = graded_svd.expand(vector, basis, rank, vector[:0])
    copy(basis.T, Q)


@numba.njit
def _begin(A, Q):
    """Q = the eigenvectors of A, from large to small; off its range, axes."""
    vectors, values = _eigen(A)
    for j in range(len(A)):
        for k in range(len(A)):
            Q[j, k] = vectors[j, k] if values[k] > FLOOR * values[0] else 0.0
    _follow(A, Q)


@numba.njit
def _turned(M, sides):
    """Q_L^T M Q_R, its entries below FLOOR of the largest 0; flat."""
    turned = product(product(sides.left_basis.T, M), sides.right_basis).ravel()
    least = FLOOR * entrywise.largest(turned)
    for j in range(turned.size):
        turned[j] = 0.0 if abs(turned[j]) <= least else turned[j]
    return turned


@numba.njit
def soap(rule, t, G, top, sides, m, v, logs, D):
    """Adam in the bases before this step, m, v flat; the log of what D lacks."""
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    first = sides.logs[0] == -math.inf
    beta = rule.momentum
    memory = rule.memory
    if first:
        _accumulate(rule, G, top, sides)
        _begin(sides.left, sides.left_basis)
        _begin(sides.right, sides.right_basis)
    logs[0] = entrywise.mix(m, logs[0], beta, G.ravel(), top, 1.0 - beta)
    squares = _turned(G, sides)
    logs[1] = entrywise.mix(v, logs[1], memory, squares, 2.0 * top, 1.0 - memory, True)
    inner = _turned(m.reshape(G.shape), sides)
    quotient = np.zeros(m.size)
    m_log = logs[0] - entrywise.correction(beta, t)
    v_log = logs[1] - entrywise.correction(memory, t)
    lacks = entrywise.quotient(inner, m_log, v, v_log, rule.epsilon, quotient)
    half = product(sides.left_basis, quotient.reshape(G.shape))
    copy(product(half, sides.right_basis.T), D)
    if not first:
        _accumulate(rule, G, top, sides)
        _follow(sides.left, sides.left_basis)
        _follow(sides.right, sides.right_basis)
    return lacks


@numba.njit
def span(problem, wanted):
    """A basis (r, d d_z) of the samples' pulls; no rows where not `wanted`."""
    n, S, d = problem.delta.shape
    size = d * problem.z.shape[1]
    rank = 0
    basis = np.zeros((min(n * S, size) if wanted else 0, size))
    for i in range(n if wanted else 0):
        for t in range(S):
            vector = product(
                problem.delta[i, t : t + 1].T, problem.z[i : i + 1]
            ).ravel()
            rank = graded_svd.expand(vector, basis, rank, vector[:0])
    return basis[:rank]


@numba.njit
def full_adagrad(G, top, basis, S, logs, D):
    """D = S^{-1/2} vec(G), pseudo-inverse; the log of what D lacks. S, the sum of
    vec(G) vec(G)^T, has the log logs[0], `basis` (r, d d_z) spans delta_{i,t} z_i^T.
    """
    D[:] = 0.0
    if top == -math.inf:
        return top
    c = np.zeros(len(basis))
    turned = np.zeros(len(basis))
    for k in range(len(basis)):
        c[k] = dot(basis[k], G)
    outer = product(c.reshape(-1, 1), c.reshape(1, -1)).ravel()
    logs[0] = entrywise.mix(S.ravel(), logs[0], 1.0, outer, 2.0 * top, 1.0)
    Q, values = _eigen(S)
    for k in range(len(values)):
        if values[k] > FLOOR * values[0]:
            part = 0.0
            for l in range(len(values)):
                part += Q[l, k] * c[l]
            for l in range(len(values)):
                turned[l] += part / math.sqrt(values[k]) * Q[l, k]
    for k in range(len(basis)):
        for j in range(D.size):
            D[j] += turned[k] * basis[k, j]
    return top - 0.5 * logs[0]
