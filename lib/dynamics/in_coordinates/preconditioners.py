"""Directions with a matrix in front: natural gradient, Shampoo, SOAP, full-matrix
AdaGrad.

An eigenvalue or entry of at most FLOOR times the largest one counts as a rounding
error, and is set to zero. Otherwise SOAP would divide rounding errors by rounding
errors, because a gradient is diagonal in its own singular bases.
"""

import math
from typing import Annotated, NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from lib.dynamics.in_coordinates import entrywise, graded_svd
from lib.dynamics.in_coordinates.entrywise import copy, dot

FLOOR = 1e-13
VANISHED = 1e-13  # a pivot of at most this times its diagonal entry counts as zero


@numba.njit
def natural(rule, graded, z, answers, D):
    """Fill D (d, d_z) with (F + delta I)^{-1} G, up to a factor. Returns the log of
    this factor, or -inf if nothing moves.

    The answer of the model on sample i is f_i = y_i u^T X_i^T softmax(X_i W z_i), with
    gradient j_i = grad f_i. G = sum_i p_i is a sum over samples with n p_i = |l'(f_i)|
    j_i. Under the logistic loss, labels have P(y) = sigma(y f), and their Fisher matrix
    F is the Gauss-Newton matrix (1/n) sum_i l''(f_i) j_i j_i^T. So F = sum_i w_i p_i
    p_i^T with w_i = n l'' / l'^2 = n e^{f_i}. For the exponential loss, the
    Gauss-Newton matrix has the same form with the same w_i. Then D = sum_i y_i e^{-s_i}
    p_i, where the n unknowns y solve

        (C + diag(delta e^{-2 s_i} / w_i)) y = e^{-s} / w,   C_ij = <p_i, p_j> e^{-s_i - s_j},

    The entries of C are of order one, and all differences of scale are on the diagonal
    of this matrix. So no digits are lost if the matrix is scaled to a diagonal of ones.
    `answers` (n,) are the f_i. With batches, n is the number of samples of a batch. A
    sample is left out if its p_i lies, up to rounding, in the span of the p_i of
    samples that have a larger sqrt(w_i) e^{s_i}. These larger samples dominate F on
    their span.
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
    """Return the indices (m,) of the m samples whose gradient is not zero, from largest
    to smallest sqrt(w_i) e^{s_i}, and for these samples the matrix C (m, m) and log w
    (m,).
    """
    weight = np.zeros(len(z))
    size = np.zeros(len(z))
    count = 0
    if rule.batch > 0.0:
        log_seen = math.log(rule.batch)
    else:
        log_seen = math.log(float(len(z)))
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
    """Return -1/2 times the logs of the diagonal (m,), the right-hand side (m,) after
    scaling to a diagonal of ones, up to a factor, and the log of this factor. `logs`
    (m,) are the s_i and `weight` (m,) the log w_i, in the order of C (m, m).
    """
    damping = entrywise.log(rule.damping)
    if rule.relative:
        trace = -math.inf
        for i in range(len(C)):
            y = logs[i] + 0.5 * weight[i]
            trace = exponentials.add_logs(trace, 2.0 * y + math.log(C[i, i]))
        damping = entrywise.log_product(damping, trace)
    half = np.zeros(len(C))
    right = np.zeros(len(C))
    top = -math.inf
    for i in range(len(C)):
        added = entrywise.log_product(damping, -2.0 * (logs[i] + 0.5 * weight[i]))
        half[i] = -0.5 * exponentials.add_logs(math.log(C[i, i]), added)
        right[i] = half[i] - logs[i] - weight[i]
        top = max(top, right[i])
    for i in range(len(C)):
        right[i] = math.exp(right[i] - top)
    return half, right, top


@numba.njit(inline="always")
def _solve(C, half, right):
    """Solve for y (m,), the unknowns after scaling, by Cholesky's method. C is (m, m),
    and `half` and `right` come from `_scale`. An unknown whose pivot vanishes is 0.
    """
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
    """The matrices L and R of Shampoo, and the bases of SOAP. L is `left`, the sum or
    running mean of G G^T. R is `right`, the sum or running mean of G^T G. L and R are
    mantissas, whose logs are in `logs`. The columns of the two bases are the basis
    vectors.
    """

    left: Annotated[np.ndarray, "d d"]
    right: Annotated[np.ndarray, "e e"]
    logs: Annotated[np.ndarray, "two"]
    left_basis: Annotated[np.ndarray, "d d"]
    right_basis: Annotated[np.ndarray, "e e"]


@numba.njit
def product(A, B):
    """Return A B; each sum adds its terms in order, so that no bit varies."""
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
    """Add one more gradient to the sums or running means L and R, in place. G (d, d_z)
    is the mantissa of the gradient, and `top` is its log.
    """
    if rule.summed:
        a = 1.0
        b = 1.0
    else:
        a = rule.memory
        b = 1.0 - rule.memory
    left = product(G, G.T).ravel()
    right = product(G.T, G).ravel()
    logs = sides.logs
    logs[0] = entrywise.mix(sides.left.ravel(), logs[0], a, left, 2.0 * top, b)
    logs[1] = entrywise.mix(sides.right.ravel(), logs[1], a, right, 2.0 * top, b)


@numba.njit
def _eigen(A):
    """Return the eigenvectors (m, m) of a symmetric A >= 0 (m, m), as columns, and the
    eigenvalues (m,), both in order from the largest eigenvalue to the smallest.
    """
    m = len(A)
    work = A.copy()
    Q = np.zeros((m, m))
    values = np.zeros(m)
    # Jacobi makes the rows of Q A orthogonal; the rows of Q are then eigenvectors.
    graded_svd.jacobi(work, Q, m, m)
    for k in range(m):
        values[k] = math.sqrt(dot(work[k], work[k]))
    order = graded_svd.descending(values)
    return np.ascontiguousarray(Q[order].T), values[order]


@numba.njit
def _power(A, B, exponent):
    """Return A^exponent B (m, n) for a symmetric A >= 0 (m, m), B (m, n) and an exponent
    < 0. Eigenvalues of at most FLOOR times the largest count as zero, and their powers
    are zero, as in the pseudo-inverse.
    """
    Q, values = _eigen(A)
    scaled = np.zeros(Q.shape)
    for k in range(len(values)):
        if values[k] > FLOOR * values[0]:
            for j in range(len(Q)):
                scaled[j, k] = Q[j, k] * values[k] ** exponent
    return product(scaled, product(Q.T, B))


@numba.njit
def shampoo(rule, G, top, sides, D):
    """Fill D (d, d_z) with L^{-1/4} G R^{-1/4}, after adding G to L and R. Returns the
    log of the factor by which D has to be multiplied. If G is zero, D is zero, L and R
    stay as they are, and the log is -inf.
    """
    if top == -math.inf:
        D[:] = 0.0
        return -math.inf
    _accumulate(rule, G, top, sides)
    half = _power(sides.left, G, -0.25)
    copy(_power(sides.right, np.ascontiguousarray(half.T), -0.25).T, D)
    return top - 0.25 * (sides.logs[0] + sides.logs[1])


@numba.njit
def _follow(A, Q):
    """Replace Q (m, m) by the orthonormal factor of A Q. If the rank of A Q is below m,
    this factor is completed by old columns of Q, and then by coordinate axes.
    """
    m = len(A)
    rank = 0
    basis = np.zeros((m, m))
    vector = np.zeros(m)
    columns = product(Q.T, A)  # the columns of A Q, as rows
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
    """Fill Q (m, m) with the eigenvectors of A, from the largest eigenvalue to the
    smallest. Outside the range of A, coordinate axes complete Q.
    """
    vectors, values = _eigen(A)
    for j in range(len(A)):
        for k in range(len(A)):
            Q[j, k] = vectors[j, k] if values[k] > FLOOR * values[0] else 0.0
    _follow(A, Q)


@numba.njit
def _turned(M, sides):
    """Return Q_L^T M Q_R, flat, for M (d, d_z). Entries whose absolute value is at most
    FLOOR times the largest absolute value become 0.
    """
    turned = product(product(sides.left_basis.T, M), sides.right_basis).ravel()
    least = FLOOR * entrywise.largest(turned)
    for j in range(turned.size):
        if abs(turned[j]) <= least:
            turned[j] = 0.0
    return turned


@numba.njit
def soap(rule, t, G, top, sides, m, v, logs, D):
    """Fill D (d, d_z) by Adam in the bases from before this step, then update L, R and
    the bases. At the first step, the bases are the singular bases of G. The running
    mean m of G, and the running mean v of the squares in the bases, are flat and
    updated in place. Returns the log of the factor by which D has to be multiplied. If
    G is zero, D is zero, nothing is updated, and the log is -inf.
    """
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
    """Return an orthonormal basis (r, d d_z) of the span of all delta_{i,t} z_i^T, as
    rows. If the basis is not `wanted`, there are no rows.
    """
    n, S, d = problem.delta.shape
    size = d * problem.z.shape[1]
    rank = 0
    largest_rank = 0
    samples = 0
    if wanted:
        largest_rank = min(n * S, size)
        samples = n
    basis = np.zeros((largest_rank, size))
    for i in range(samples):
        for t in range(S):
            vector = product(
                problem.delta[i, t : t + 1].T, problem.z[i : i + 1]
            ).ravel()
            rank = graded_svd.expand(vector, basis, rank, vector[:0])
    return basis[:rank]


@numba.njit
def full_adagrad(G, top, basis, S, logs, D):
    """Fill D with S^{-1/2} vec(G), as a power of the pseudo-inverse, after adding G to
    S. G and D are flat. Returns the log of the factor by which D has to be multiplied.
    If G is zero, this log is -inf, and D is zero. S (r, r) is the sum of vec(G)
    vec(G)^T in `basis` (r, d d_z), which spans all delta_{i,t} z_i^T. S is updated in
    place, and its log is logs[0].
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
