"""AdaGrad with the whole matrix of second moments, in the span of the samples' pulls, compiled.

Every gradient is a sum of the n(T-1) matrices delta_{i,t} z_i^T, so S = sum of vec(G) vec(G)^T
lives in their span, of dimension r <= min(n(T-1), d d_z), and is kept there as mantissa and log.
A step costs an eigendecomposition, of order r^3.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from papers.beyond.engine import graded_svd, matrix_moments, scaled


class Moment(NamedTuple):
    """basis (r, d d_z), orthonormal; S (r, r) with log (1,); the rest is work space.

    c and turned (r,), values (r,), outer, work and Q (r, r).
    """

    basis: np.ndarray
    S: np.ndarray
    log: np.ndarray
    c: np.ndarray
    turned: np.ndarray
    values: np.ndarray
    outer: np.ndarray
    work: np.ndarray
    Q: np.ndarray


@numba.njit
def moment(problem, wanted):
    """A Moment with the basis of a problem; empty where it is not `wanted`."""
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
    return Moment(
        basis=basis[:rank],
        S=np.zeros((rank, rank)),
        log=np.full(1, -math.inf),
        c=np.zeros(rank),
        turned=np.zeros(rank),
        values=np.zeros(rank),
        outer=np.zeros((rank, rank)),
        work=np.zeros((rank, rank)),
        Q=np.zeros((rank, rank)),
    )


@numba.njit
def adagrad(G, top, s, D):
    """D = S^{-1/2} vec(G), flat, the power that of the pseudo-inverse; the log of what D lacks."""
    D[:] = 0.0
    if top == -math.inf:
        return -math.inf
    rank = len(s.basis)
    for k in range(rank):
        s.c[k] = graded_svd.dot(s.basis[k], G)
    for k in range(rank):
        for l in range(rank):
            s.outer[k, l] = s.c[k] * s.c[l]
    s.log[0] = scaled.mix(s.S.ravel(), s.log[0], 1.0, s.outer.ravel(), 2.0 * top, 1.0)
    matrix_moments.eigen(s.S, s.work, s.Q, s.values)
    s.turned[:] = 0.0
    for k in range(rank):
        if s.values[k] > matrix_moments.FLOOR * s.values[0]:
            part = 0.0
            for l in range(rank):
                part += s.Q[l, k] * s.c[l]
            part /= math.sqrt(s.values[k])
            for l in range(rank):
                s.turned[l] += part * s.Q[l, k]
    for k in range(rank):
        for j in range(D.size):
            D[j] += s.turned[k] * s.basis[k, j]
    return top - 0.5 * s.log[0]
