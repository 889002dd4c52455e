"""The compiled loop of all optimisers of `optimisers`, on problems of `gradients`."""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import softmax
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from papers.beyond.engine import (
    blocks,
    entrywise,
    full_matrix,
    graded_svd,
    gradients,
    matrix_moments,
    natural,
    scaled,
    spectral,
)
from papers.beyond.engine import update as o

SOURCES = stamp(__file__)
# A call that takes the whole State counts a reference to each of its arrays, up and down, which
# costs as much as a step. What every step calls is inlined, or takes only the arrays it needs.


class State(NamedTuple):
    """What an optimiser keeps, and its work space, of one run.

    G, D (d, d_z): gradient's mantissa and direction; kept: moments of d d_z entries, or the mirror
    image of W in the first; momentum a graded sum; work (2, d d_z).
    """

    G: np.ndarray
    D: np.ndarray
    kept: entrywise.Moments
    work: np.ndarray
    graded: gradients.Graded
    momentum: gradients.Graded
    looked: gradients.Graded
    space: graded_svd.Space
    sides: matrix_moments.Sides
    block: blocks.Block
    system: natural.System
    full: full_matrix.Moment


@numba.njit
def _state(problem, rule):
    n, d, d_z = problem.delta.shape[0], problem.delta.shape[2], problem.z.shape[1]
    return State(
        G=np.zeros((d, d_z)),
        D=np.zeros((d, d_z)),
        kept=entrywise.no_moments(d * d_z),
        work=np.zeros((2, d * d_z)),
        graded=gradients.empty(n, d),
        momentum=gradients.empty(n, d),
        looked=gradients.empty(n, d),
        space=graded_svd.space(n, d, d_z),
        sides=matrix_moments.sides(d, d_z),
        block=blocks.block(rule, n, d, d_z),
        system=natural.system(n),
        full=full_matrix.moment(problem, rule[o.KIND] == o.FULL_ADAGRAD),
    )


@numba.njit
def _seen(rule, s):
    """The graded sum whose direction is taken: the gradient or its momentum."""
    beta, seen = rule[o.MOMENTUM], s.graded
    if beta > 0.0:
        gradients.mix(s.momentum, beta, s.graded, 1.0 - beta)
        seen = s.momentum
        if rule[o.NESTEROV] != 0.0:
            entrywise.copy(s.momentum.b.ravel(), s.looked.b.ravel())
            entrywise.copy(s.momentum.logs, s.looked.logs)
            gradients.mix(s.looked, beta, s.graded, 1.0 - beta)
            seen = s.looked
    return seen


@numba.njit(inline="always")
def _direction(rule, t, z, answers, s):
    """Fill s.D; returns the log of the factor that it lacks, -inf where nothing moves."""
    kind, normalised = int(rule[o.KIND]), rule[o.NORMALISED] != 0.0
    if kind == o.SPECTRAL or rule[o.BLOCKS] > 1.0:
        seen = _seen(rule, s)
        if rule[o.BLOCKS] > 1.0:
            value = blocks.direction(rule, seen, z, s.block, s.D)
        else:
            value = spectral.direction(seen, z, rule, s.space, s.D)
        return 0.0 if normalised and value > -math.inf else value
    if kind == o.NATURAL:
        return natural.direction(rule, s.graded, z, answers, s.system, s.D)
    top = gradients.dense(s.graded, z, s.G)
    G, D = s.G.ravel(), s.D.ravel()
    if kind == o.ENTRYWISE:
        value = entrywise.steepest(G, top, rule[o.P], s.work, D)
        return 0.0 if normalised and value > -math.inf else value
    if kind == o.MIRROR:
        return entrywise.pull(G, top, rule[o.P], normalised, s.work, D)
    if kind == o.FULL_ADAGRAD:
        return full_matrix.adagrad(G, top, s.full, D)
    if kind == o.ADAPTIVE:
        return entrywise.adaptive(rule, t, G, top, s.kept, D)
    if kind == o.SIGN:
        first, logs = s.kept.first, s.kept.logs
        value, logs[0] = entrywise.sign_momentum(rule, G, top, first, logs[0], D)
        return value
    if kind == o.SHAMPOO:
        return matrix_moments.shampoo(rule, s.G, top, s.sides, s.D)
    return matrix_moments.soap(rule, t, s.G, top, s.sides, s.D)


@numba.njit(inline="always")
def _batch(rule, t, order, graded):
    """Leave the samples of step t's batch; order (epochs, n), repeated when it ends."""
    size = int(rule[o.BATCH])
    epochs, n = order.shape
    if size > 0:
        per_epoch = n // size
        first = (t % per_epoch) * size
        gradients.keep(graded, order[(t // per_epoch) % epochs, first : first + size], size)


@numba.njit(inline="always")
def _move(rule, t, length, D, image, work, W):
    """Move W, flat, by length D; returns the log of its largest entry, NaN where that is none."""
    moved = image if rule[o.KIND] == o.MIRROR else W  # mirror descent moves W's image
    for j in range(W.size):
        moved[j] += length * D[j]
    if rule[o.KIND] == o.MIRROR:
        return entrywise.signed_power(moved, 1.0 / (rule[o.P] - 1.0), work, W)
    largest = scaled.largest(W)
    if rule[o.RADIUS] < math.inf and 0.0 < largest < math.inf:
        return _rescale(rule, t, largest, W)
    return scaled.log(largest)


@numba.njit
def _rescale(rule, t, largest, W):
    """W, flat, into the ball of step t's phase, or onto its sphere; returns the log of its size."""
    phase = (t + 1) // int(rule[o.EVERY])
    log_radius, total = rule[o.RADIUS] + phase * rule[o.GROWTH], 0.0
    for j in range(W.size):
        total += (W[j] / largest) ** 2
    log_norm = math.log(largest) + 0.5 * math.log(total)
    begins = phase > 0 and (t + 1) % int(rule[o.EVERY]) == 0
    if begins and not max(log_radius, log_radius - log_norm) <= LONGEST:
        return math.inf
    if begins or log_norm > log_radius:
        factor = math.exp(log_radius - log_norm)
        for j in range(W.size):
            W[j] *= factor
        return log_radius
    return log_norm


class Records(NamedTuple):
    """What training fills, at each of the k times: path (jobs, k, d, d_z); logs (jobs, k, 2).

    logs: log(L - L*) and log ||grad L||, of all samples.
    """

    path: np.ndarray
    logs: np.ndarray


@numba.njit
def _record(problem, work, s, W, path, logs):
    n = problem.delta.shape[0]
    entrywise.copy(W.ravel(), path.ravel())
    top, total = gradients.dense(s.graded, problem.z, s.G), 0.0
    for j in range(len(W)):
        total += graded_svd.dot(s.G[j], s.G[j])
    logs[0] = softmax.log_gap(0, n, work, problem.logistic, True)
    logs[1] = scaled.add_logs(top, 0.5 * scaled.log(total))


@numba.njit(nogil=True, cache=True)
def run_job(problem, rule, times, order, W, records, sources=SOURCES):
    """Train one run: W (d, d_z) is moved in place, `records` are filled; (status, last iteration).

    rule (NUMBERS,); times (k,); order (epochs, n). A run stalls where the gradient of every sample
    is zero.
    """
    n, S, d = problem.delta.shape
    s = _state(problem, rule)
    work, image = softmax.empty_lanes(S + 1, n), np.zeros(d)
    answers = work.lane[softmax.ANSWER]
    for token in range(S + 1):
        for i in range(n):
            work.scores[token, i] = problem.scores[token, i]
    scales = np.zeros((2, n))  # every sample a run of its own, so that none underflows
    record = 0
    if rule[o.KIND] == o.MIRROR and not (
        entrywise.signed_power(W.ravel(), rule[o.P] - 1.0, s.work, s.kept.first) <= LONGEST
    ):
        return DIVERGED, 0
    for t in range(times[-1] + 1):
        gradients.margins(problem, W, image, work.margins)
        softmax.slopes(work, 1, problem.logistic, True, scales)
        gradients.pulls(problem, work.c, scales[0], s.graded)
        if record < times.size and times[record] == t:
            _record(problem, work, s, W, records.path[record], records.logs[record])
            record += 1
        if gradients.top(s.graded) == -math.inf:
            return STALLED, t
        if record == times.size:
            break
        _batch(rule, t, order, s.graded)
        step = scaled.add_logs(_direction(rule, t, problem.z, answers, s), rule[o.STEP])
        if rule[o.DECAY] != 0.0:
            step -= rule[o.DECAY] * math.log(t + 1.0)
        if not step < LONGEST:  # false for NaN
            return DIVERGED, t
        length = math.exp(step)
        if not _move(rule, t, length, s.D.ravel(), s.kept.first, s.work, W.ravel()) <= LONGEST:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]
