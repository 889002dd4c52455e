"""The compiled loop that trains keys and queries, W = K Q^T, in place of W; `factored` calls it."""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import softmax
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from papers.beyond.engine import entrywise, graded_svd, gradients, scaled, spectral
from papers.beyond.engine import update as o

SOURCES = stamp(__file__)


class Records(NamedTuple):
    """What training fills at each of the k times: K (k, d, m), Q (k, d_z, m), logs (k,)."""

    K: np.ndarray
    Q: np.ndarray
    logs: np.ndarray


class Side(NamedTuple):
    """One factor's gradient as a graded sum over rows `z` (n, m), and what its rule keeps."""

    graded: gradients.Graded
    z: np.ndarray
    G: np.ndarray
    D: np.ndarray
    kept: entrywise.Moments
    work: np.ndarray
    space: graded_svd.Space


@numba.njit
def _side(n, d, m):
    return Side(
        graded=gradients.empty(n, d),
        z=np.zeros((n, m)),
        G=np.zeros((d, m)),
        D=np.zeros((d, m)),
        kept=entrywise.no_moments(d * m),
        work=np.zeros((2, d * m)),
        space=graded_svd.space(n, d, m),
    )


@numba.njit
def chain(graded, z, K, Q, of_K, of_Q):
    """Fill both sides' graded gradients from -grad_W L = sum_i e^{s_i} b_i z_i^T."""
    n, m = len(z), K.shape[1]
    for i in range(n):
        entrywise.copy(graded.b[i], of_K.graded.b[i])
        entrywise.copy(z[i], of_Q.graded.b[i])
        of_K.graded.logs[i] = of_Q.graded.logs[i] = graded.logs[i]
        for k in range(m):
            of_K.z[i, k] = of_Q.z[i, k] = 0.0
            for j in range(len(Q)):
                of_K.z[i, k] += Q[j, k] * z[i, j]
            for j in range(len(K)):
                of_Q.z[i, k] += K[j, k] * graded.b[i, j]
    gradients.unit(of_Q.graded)


@numba.njit
def _direction(rule, t, s):
    """Fill s.D; returns the log of the factor that it lacks, -inf where nothing moves."""
    kind, normalised = int(rule[o.KIND]), rule[o.NORMALISED] != 0.0
    if kind == o.SPECTRAL:
        value = spectral.direction(s.graded, s.z, rule, s.space, s.D)
        return 0.0 if normalised and value > -math.inf else value
    top = gradients.dense(s.graded, s.z, s.G)
    G, D = s.G.ravel(), s.D.ravel()
    if kind == o.ENTRYWISE:
        value = entrywise.steepest(G, top, rule[o.P], s.work, D)
        return 0.0 if normalised and value > -math.inf else value
    if kind == o.ADAPTIVE:
        return entrywise.adaptive(rule, t, G, top, s.kept, D)
    first, logs = s.kept.first, s.kept.logs
    value, logs[0] = entrywise.sign_momentum(rule, G, top, first, logs[0], D)
    return value


@numba.njit
def _move(factor, D, step):
    """factor += e^step D; returns log of its largest entry, at least 0."""
    length = math.exp(step)
    for j in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            factor[j, k] += length * D[j, k]
    return math.log(max(scaled.largest(factor.ravel()), 1.0))


@numba.njit(nogil=True, cache=True)
def run_job(problem, rule, times, K, Q, records, sources=SOURCES):
    """Train one run: K and Q are moved in place, `records` filled; (status, last iteration)."""
    n, S, d = problem.delta.shape
    work, image = softmax.empty_lanes(S + 1, n), np.zeros(d)
    for token in range(S + 1):
        for i in range(n):
            work.scores[token, i] = problem.scores[token, i]
    scales, graded = np.zeros((2, n)), gradients.empty(n, d)
    of_K, of_Q, record = _side(n, d, K.shape[1]), _side(n, len(Q), K.shape[1]), 0
    for t in range(times[-1] + 1):
        gradients.margins(problem, K @ Q.T, image, work.margins)
        softmax.slopes(work, 1, problem.logistic, True, scales)
        gradients.pulls(problem, work.c, scales[0], graded)
        if times[record] == t:
            records.K[record], records.Q[record] = K, Q
            records.logs[record] = softmax.log_gap(0, n, work, problem.logistic, True)
            record += 1
        if record == times.size:
            break
        chain(graded, problem.z, K, Q, of_K, of_Q)
        a, b = _direction(rule, t, of_K), _direction(rule, t, of_Q)
        if max(a, b) == -math.inf:
            return STALLED, t
        more = rule[o.STEP] - rule[o.DECAY] * math.log(t + 1.0)
        if not max(a, b) + more < LONGEST:  # false for NaN
            return DIVERGED, t
        if not max(_move(K, of_K.D, a + more), _move(Q, of_Q.D, b + more)) <= LONGEST / 2:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]
