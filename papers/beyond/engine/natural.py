"""The natural gradient D = (F + lambda I)^{-1} G of one run, compiled.

The gradient is G = sum_i p_i, and j_i = grad f_i of the answer f_i = y_i u^T X_i^T softmax(X_i W
z_i) a multiple of p_i, n p_i = |l'(f_i)| j_i. The Fisher matrix of the labels, P(y) = sigma(y f)
under the logistic loss, is the Gauss-Newton matrix (1/n) sum_i l''(f_i) j_i j_i^T; so it is F =
sum_i w_i p_i p_i^T with w_i = n l'' / l'^2 = n e^{f_i}, for the exponential loss too, and with w_i
= n the empirical Fisher matrix (1/n) sum_i g_i g_i^T. Then D = sum_i y_i e^{-s_i} p_i, where

    (C + diag(lambda e^{-2 s_i} / w_i)) y = e^{-s} / w,   C_ij = <p_i, p_j> e^{-s_i - s_j},

n unknowns, C of order one, all that is graded on the diagonal: scaled to a diagonal of ones, the
matrix loses no digits.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from papers.beyond.engine import graded_svd, scaled
from papers.beyond.engine import update as o

VANISHED = 1e-13  # of a pivot, relative to its diagonal


class System(NamedTuple):
    """Work space: C and factor (n, n); half, right, y, weight (n,); order (n,) of the samples."""

    C: np.ndarray
    factor: np.ndarray
    half: np.ndarray
    right: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    order: np.ndarray


@numba.njit
def system(n):
    """A System of zeros."""
    return System(
        C=np.zeros((n, n)),
        factor=np.zeros((n, n)),
        half=np.zeros(n),
        right=np.zeros(n),
        y=np.zeros(n),
        weight=np.zeros(n),
        order=np.zeros(n, np.int64),
    )


@numba.njit
def _gather(rule, graded, z, answers, s):
    """Fill C, the logs of the weights w, and the order from large to small pulls; their number."""
    n, count = len(z), 0
    size = rule[o.BATCH] if rule[o.BATCH] > 0.0 else float(n)
    for i in range(n):
        s.weight[i] = math.log(size) + (0.0 if rule[o.EMPIRICAL] != 0.0 else answers[i])
        for k in range(i + 1):
            s.C[i, k] = graded_svd.dot(graded.b[i], graded.b[k]) * graded_svd.dot(z[i], z[k])
            s.C[k, i] = s.C[i, k]
        if graded.logs[i] == -math.inf or s.C[i, i] == 0.0:
            continue
        s.y[i] = graded.logs[i] + 0.5 * s.weight[i]
        k = count
        while k > 0 and s.y[s.order[k - 1]] < s.y[i]:
            s.order[k] = s.order[k - 1]
            k -= 1
        s.order[k] = i
        count += 1
    return count


@numba.njit
def _scale(rule, graded, count, s):
    """Fill half, minus half the logs of the diagonal, and right, the scaled right-hand side."""
    damping = scaled.log(rule[o.DAMPING])
    if rule[o.RELATIVE] != 0.0:
        trace = -math.inf
        for k in range(count):
            i = s.order[k]
            trace = exponentials.add_logs(trace, 2.0 * s.y[i] + math.log(s.C[i, i]))
        damping = scaled.add_logs(damping, trace)
    top = -math.inf
    for k in range(count):
        i = s.order[k]
        added = scaled.add_logs(damping, -2.0 * s.y[i])
        s.half[i] = -0.5 * exponentials.add_logs(math.log(s.C[i, i]), added)
        s.right[i] = s.half[i] - graded.logs[i] - s.weight[i]
        top = max(top, s.right[i])
    for k in range(count):
        i = s.order[k]
        s.right[i] = math.exp(s.right[i] - top)
    return top


@numba.njit
def _solve(count, s):
    """Fill y, the scaled unknowns, by Cholesky's method; 0 where a pivot vanishes."""
    L, kept = s.factor, 0
    for a in range(count):
        i, pivot, right = s.order[a], 1.0, s.right[s.order[a]]
        for b in range(kept):
            k = s.order[b]
            total = s.C[i, k] * math.exp(s.half[i] + s.half[k])
            for c in range(b):
                total -= L[kept, c] * L[b, c]
            L[kept, b] = total / L[b, b]
            pivot -= L[kept, b] ** 2
            right -= L[kept, b] * s.y[k]
        if pivot > VANISHED:
            L[kept, kept] = math.sqrt(pivot)
            s.y[i] = right / L[kept, kept]
            s.order[kept] = i
            kept += 1
    for b in range(kept - 1, -1, -1):
        total = s.y[s.order[b]]
        for c in range(b + 1, kept):
            total -= L[c, b] * s.y[s.order[c]]
        s.y[s.order[b]] = total / L[b, b]
    return kept


@numba.njit
def direction(rule, graded, z, answers, s, D):
    """Fill D; returns the log of the factor that it lacks, -inf where nothing pulls.

    answers (n,): the f_i. A sample whose pull lies in the span of those of larger ones, to
    rounding, is left out: the larger decide.
    """
    D[:] = 0.0
    count = _gather(rule, graded, z, answers, s)
    top = _scale(rule, graded, count, s)
    count, largest = _solve(count, s), -math.inf
    for k in range(count):
        i = s.order[k]
        largest = max(largest, s.half[i] + scaled.log(abs(s.y[i])))
    if largest == -math.inf:
        return -math.inf
    for k in range(count):
        i = s.order[k]
        if s.y[i] == 0.0:
            continue
        size = math.exp(s.half[i] + math.log(abs(s.y[i])) - largest)
        factor = math.copysign(size, s.y[i])
        for j in range(D.shape[0]):
            for e in range(D.shape[1]):
                D[j, e] += factor * graded.b[i, j] * z[i, e]
    if rule[o.NORMALISED] == 0.0:
        return top + largest
    total = 0.0
    for j in range(len(D)):
        total += graded_svd.dot(D[j], D[j])
    return -0.5 * math.log(total)
