"""The softmax of many samples at once, compiled: `lib.attention.slopes` on lanes.

A lane is one sample of one run: lane r n + i of an array (T, lanes) is sample i of run r, so that
one instruction serves many samples while a loop goes over the tokens. Lanes are padded with zeros
to whole vector registers: none is computed differently from another, and a run gives the same bits
in any company.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, gram

# Sums may be taken in any order, so that they fill vector registers.
_REORDER = {"reassoc", "contract", "nsz"}

# Rows of the work space `lane` (WORK_ROWS, lanes): what `slopes` finds of each sample.
LEVEL = 0  # score of the token with the largest logit
ANCHOR = 1  # log weight of the largest token of another score, relative to that token
MEAN_D = 2  # mean of score - LEVEL under the softmax, without the factor e^ANCHOR
ANSWER = 3  # f = LEVEL + e^ANCHOR MEAN_D, the mean score
TOP = 4  # the largest logit
SMALL = 5  # e^ANCHOR
OVER_Z = 6  # one over the sum of the weights
REST = 7  # sum of the weights of other scores, later the logs to be exponentiated
LOG_SLOPE = 8  # log |l'(f)|
FACTOR = 9  # common factor of a sample's entries of c or push
WORK_ROWS = 10


class Lanes(NamedTuple):
    """What `slopes` reads and fills: margins, c (T-1, lanes), scores, push (T, lanes), and work
    space: x, D, w (T, lanes) and lane (WORK_ROWS, lanes), of which `log_gap` reads what it needs.
    """

    margins: np.ndarray
    scores: np.ndarray
    c: np.ndarray
    push: np.ndarray
    x: np.ndarray
    D: np.ndarray
    w: np.ndarray
    lane: np.ndarray


@numba.njit
def empty_lanes(T, samples):
    """Lanes of zeros for that many samples of T tokens, padded to whole registers."""
    width = -(-samples // gram.WIDTH) * gram.WIDTH
    g, c = gram.zeros(T - 1, width), gram.zeros(T - 1, width)
    gamma, push = gram.zeros(T, width), gram.zeros(T, width)
    x, D, w = gram.zeros(T, width), gram.zeros(T, width), gram.zeros(T, width)
    lane = gram.zeros(WORK_ROWS, width)
    return Lanes(margins=g, scores=gamma, c=c, push=push, x=x, D=D, w=w, lane=lane)


@numba.njit(fastmath=_REORDER)
def slopes(work, n, logistic, head_fixed, scales):
    """`lib.attention.slopes`, reference token first: fills c and push of `work`, each without its
    scale, for runs of n samples; scales (2, runs) are the logs taken out of c and push.
    """
    margins, scores, c, push, x, D, w, lane = work
    T, lanes = scores.shape
    level, anchor, mean_D, f, top = lane[LEVEL], lane[ANCHOR], lane[MEAN_D], lane[ANSWER], lane[TOP]
    small, over_Z, rest = lane[SMALL], lane[OVER_Z], lane[REST]
    log_slope, factor = lane[LOG_SLOPE], lane[FACTOR]
    logs, share = rest, 1.0 / n
    # The token with the largest logit, and its score. Token 0 is the reference, whose logit is 0.
    for i in range(lanes):
        top[i], level[i] = 0.0, scores[0, i]
    for t in range(T - 1):
        for i in range(lanes):
            logit = -margins[t, i]
            larger = logit > top[i]
            level[i] = scores[t + 1, i] if larger else level[i]
            top[i] = logit if larger else top[i]
    # Log weight of the largest token of another score. It is factored out of all that is small, so
    # that the direction of the gradient keeps its digits when the weights themselves underflow.
    for i in range(lanes):
        D[0, i] = scores[0, i] - level[i]
        anchor[i] = -top[i] if D[0, i] != 0.0 else -math.inf
    for t in range(T - 1):
        for i in range(lanes):
            D[t + 1, i] = scores[t + 1, i] - level[i]
            log_weight = -margins[t, i] - top[i] if D[t + 1, i] != 0.0 else -math.inf
            anchor[i] = log_weight if log_weight > anchor[i] else anchor[i]
    for i in range(lanes):
        x[0, i] = -top[i] - (anchor[i] if D[0, i] != 0.0 else 0.0)
    for t in range(T - 1):
        for i in range(lanes):
            x[t + 1, i] = -margins[t, i] - top[i] - (anchor[i] if D[t + 1, i] != 0.0 else 0.0)
    # One call for all tokens of all samples: the exponential is most of the work here.
    exponentials.exp(x.reshape(-1), w.reshape(-1))
    exponentials.exp(anchor, small)
    for i in range(lanes):
        over_Z[i], rest[i], mean_D[i] = 0.0, 0.0, 0.0
    for t in range(T):
        for i in range(lanes):
            weight = w[t, i]
            at_level = weight if D[t, i] == 0.0 else 0.0
            mean_D[i] += weight * D[t, i]
            over_Z[i] += at_level
            rest[i] += weight - at_level
    for i in range(lanes):
        over_Z[i] = 1.0 / (over_Z[i] + small[i] * rest[i])
    for i in range(lanes):
        mean_D[i] *= over_Z[i]
    for i in range(lanes):
        f[i] = level[i] + small[i] * mean_D[i]
    if logistic:
        for i in range(lanes):
            log_slope[i] = -exponentials.log1p_exp(f[i])
    else:
        for i in range(lanes):
            log_slope[i] = -f[i]
    # c = |l'| p (f - score) / n. The log of its scale leaves first, since a step that is normalised
    # never needs it.
    for i in range(lanes):
        logs[i] = log_slope[i] + anchor[i]
    _take_out_scales(logs, n, scales[0])
    exponentials.exp(logs, factor)
    for i in range(lanes):
        factor[i] *= share * over_Z[i]
    for t in range(T - 1):
        for i in range(lanes):
            lag = D[t + 1, i]
            c[t, i] = (
                factor[i] * w[t + 1, i] * (small[i] * mean_D[i] - lag if lag != 0.0 else mean_D[i])
            )
    # push = |l'| p / n, the head's gradient, with a scale of its own.
    for i in range(lanes):
        logs[i] = log_slope[i]
    _take_out_scales(logs, n, scales[1])
    if not head_fixed:
        exponentials.exp(logs, factor)
        for i in range(lanes):
            factor[i] *= share * over_Z[i]
        for t in range(T):
            for i in range(lanes):
                push[t, i] = factor[i] * w[t, i] * (small[i] if D[t, i] != 0.0 else 1.0)


@numba.njit(forceinline=True)
def _take_out_scales(logs, n, scales):
    """Subtract from each run's lanes their largest value, unless that is -inf; note it in
    scales.
    """
    for r in range(scales.size):
        own, largest = logs[r * n : r * n + n], -math.inf
        for i in range(n):
            largest = own[i] if own[i] > largest else largest
        scales[r] = largest
        shift = largest if largest > -math.inf else 0.0
        for i in range(n):
            own[i] -= shift


@numba.njit
def log_gap(first, n, work, logistic, head_fixed):
    """log(L - L*) of the run whose first lane is `first`; log L when the head is trained: L* =
    0.
    """
    scores, lane = work.scores, work.lane
    level, anchor, mean_D, f = lane[LEVEL], lane[ANCHOR], lane[MEAN_D], lane[ANSWER]
    log_gap = -math.inf
    for i in range(first, first + n):
        best = scores[:, i].max()
        if not head_fixed:
            log_gap = exponentials.add_logs(log_gap, _log_loss(f[i], logistic))
        elif best > level[i]:
            log_gap = exponentials.add_logs(log_gap, _gap(math.log(best - f[i]), best, logistic))
        elif mean_D[i] < 0.0:
            log_gap = exponentials.add_logs(
                log_gap, _gap(anchor[i] + math.log(-mean_D[i]), best, logistic)
            )
    return log_gap - math.log(n)


@numba.njit
def _gap(log_epsilon, best, logistic):
    """log(l(best - epsilon) - l(best))."""
    log_gap = (-exponentials.log1p_exp(best) if logistic else -best) + exponentials.log_expm1(
        log_epsilon
    )
    return math.log(math.log1p(math.exp(log_gap))) if logistic and log_gap > -37.0 else log_gap


@numba.njit
def _log_loss(f, logistic):
    return math.log(exponentials.log1p_exp(-f)) if logistic and f < 37.0 else -f


@numba.njit(forceinline=True)
def gather(r, n, lanes, flat):
    """The lanes of run r of an array (T, lanes) one after the other, in flat (T n + padding,)."""
    for t in range(len(lanes)):
        source, target = lanes[t, r * n : r * n + n], flat[t * n : t * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit(forceinline=True)
def scatter(r, n, flat, lanes):
    """The inverse of `gather`; flat (runs, T n + padding)."""
    for t in range(len(lanes)):
        source, target = flat[r, t * n : t * n + n], lanes[t, r * n : r * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit
def by_sample(lanes, first, n, out):
    """The lanes of one run of an array (T, lanes) as out (n, T)."""
    for i in range(n):
        for t in range(len(lanes)):
            out[i, t] = lanes[t, first + i]
