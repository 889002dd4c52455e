"""The softmax of many samples at once, compiled: `lib.attention.slopes`, side by side.

Column r n + i of an array (T, columns) is sample i of run r, so that one instruction serves many
samples while a loop goes over the tokens. Columns are padded with zeros to whole vector registers:
none is computed differently from another, and a run gives the same bits in any company.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, gram

_REORDER = {"reassoc", "contract", "nsz"}  # sums in any order, so that they fill vector registers


LEVEL, ANCHOR, MEAN_D, F, TOP, SMALL, OVER_Z, REST, LOG_SLOPE, FACTOR = range(10)


class Space(NamedTuple):
    """Work space of `slopes` and its results, in the words of `lib.attention.slopes`.

    c (T-1, columns) and push (T, columns) are the results, without their scales (2, runs); x, D, w
    (T, columns) exponents, scores and weights relative to the selected token. each (10, columns)
    has a row per name above: LEVEL the selected token's score and TOP its logit, ANCHOR the log
    weight of the largest token of another score and SMALL its exponential, OVER_Z one over the sum
    of weights, F the model's output, LOG_SLOPE log |l'(f)|. Rows of one array, so that the compiler
    needs no check whether they overlap: with one, bits would depend on the number of columns.
    """

    c: np.ndarray
    push: np.ndarray
    x: np.ndarray
    D: np.ndarray
    w: np.ndarray
    each: np.ndarray
    scales: np.ndarray


@numba.njit
def space(T, runs, n):
    """The Space of `runs` runs with n samples of T tokens."""
    columns = -(-runs * n // gram.WIDTH) * gram.WIDTH
    c, push = gram.zeros(T - 1, columns), gram.zeros(T, columns)
    x, D, w = gram.zeros(T, columns), gram.zeros(T, columns), gram.zeros(T, columns)
    return Space(c, push, x, D, w, gram.zeros(10, columns), np.zeros((2, runs)))


@numba.njit(fastmath=_REORDER)
def slopes(at, margins, scores, n, logistic, head_fixed):
    """`lib.attention.slopes`, reference token first: fills the Space `at`.

    margins (T-1, columns), scores (T, columns) of runs with n samples each.
    """
    c, push, x, D, w, each, scales = at
    T, columns = scores.shape
    level, anchor, mean_D, f, top = each[LEVEL], each[ANCHOR], each[MEAN_D], each[F], each[TOP]
    small, over_Z, rest, log_slope = each[SMALL], each[OVER_Z], each[REST], each[LOG_SLOPE]
    factor, logs, share = each[FACTOR], rest, 1.0 / n
    # The selected token's logit and score; token 0 is the reference, whose logit is 0.
    for i in range(columns):
        top[i], level[i] = 0.0, scores[0, i]
    for t in range(T - 1):
        for i in range(columns):
            logit = -margins[t, i]
            larger = logit > top[i]
            level[i] = scores[t + 1, i] if larger else level[i]
            top[i] = logit if larger else top[i]
    # Tokens of the selected one's score pull nothing: log weight of the largest other.
    for i in range(columns):
        D[0, i] = scores[0, i] - level[i]
        anchor[i] = -top[i] if D[0, i] != 0.0 else -math.inf
    for t in range(T - 1):
        for i in range(columns):
            D[t + 1, i] = scores[t + 1, i] - level[i]
            log_weight = -margins[t, i] - top[i] if D[t + 1, i] != 0.0 else -math.inf
            anchor[i] = log_weight if log_weight > anchor[i] else anchor[i]
    # Weights relative to it, so that none that counts underflows.
    for i in range(columns):
        x[0, i] = -top[i] - (anchor[i] if D[0, i] != 0.0 else 0.0)
    for t in range(T - 1):
        for i in range(columns):
            x[t + 1, i] = -margins[t, i] - top[i] - (anchor[i] if D[t + 1, i] != 0.0 else 0.0)
    exponentials.exp(x.reshape(-1), w.reshape(-1))
    exponentials.exp(anchor, small)
    for i in range(columns):
        over_Z[i], rest[i], mean_D[i] = 0.0, 0.0, 0.0
    for t in range(T):
        for i in range(columns):
            weight = w[t, i]
            at_level = weight if D[t, i] == 0.0 else 0.0
            mean_D[i] += weight * D[t, i]
            over_Z[i] += at_level
            rest[i] += weight - at_level
    for i in range(columns):
        over_Z[i] = 1.0 / (over_Z[i] + small[i] * rest[i])
    for i in range(columns):
        mean_D[i] *= over_Z[i]
    for i in range(columns):
        f[i] = level[i] + small[i] * mean_D[i]
    if logistic:
        for i in range(columns):
            log_slope[i] = -exponentials.log1p_exp(f[i])
    else:
        for i in range(columns):
            log_slope[i] = -f[i]
    # c = -dL/dmargins, without the largest slope times weight of each run.
    for i in range(columns):
        logs[i] = log_slope[i] + anchor[i]
    _take_out_scales(logs, n, scales[0])
    exponentials.exp(logs, factor)
    for i in range(columns):
        factor[i] *= share * over_Z[i]
    for t in range(T - 1):
        for i in range(columns):
            lag = D[t + 1, i]
            ahead = small[i] * mean_D[i] - lag if lag != 0.0 else mean_D[i]
            c[t, i] = factor[i] * w[t + 1, i] * ahead
    # push = -dL/dscores, without the largest slope.
    for i in range(columns):
        logs[i] = log_slope[i]
    _take_out_scales(logs, n, scales[1])
    if not head_fixed:
        exponentials.exp(logs, factor)
        for i in range(columns):
            factor[i] *= share * over_Z[i]
        for t in range(T):
            for i in range(columns):
                push[t, i] = factor[i] * w[t, i] * (small[i] if D[t, i] != 0.0 else 1.0)


@numba.njit(forceinline=True)
def _take_out_scales(logs, n, scales):
    """Subtract each run's largest value from its columns, unless that is -inf; note it in scales (runs,)."""
    for r in range(scales.size):
        own, largest = logs[r * n : r * n + n], -math.inf
        for i in range(n):
            largest = own[i] if own[i] > largest else largest
        scales[r] = largest
        shift = largest if largest > -math.inf else 0.0
        for i in range(n):
            own[i] -= shift


@numba.njit
def log_gap(at, first, n, scores, logistic, head_fixed):
    """log(L - L*), or log L when the head is trained (where L* = 0), of the run whose first column is `first`."""
    level, anchor, mean_D, f = at.each[LEVEL], at.each[ANCHOR], at.each[MEAN_D], at.each[F]
    total = -math.inf
    for i in range(first, first + n):
        best = scores[:, i].max()
        if not head_fixed:
            total = exponentials.add_logs(total, _log_loss(f[i], logistic))
        elif best > level[i]:  # another token is selected than the best: no cancellation
            log_epsilon = math.log(best - f[i])
            total = exponentials.add_logs(total, _gap(log_epsilon, best, logistic))
        elif mean_D[i] < 0.0:
            log_epsilon = anchor[i] + math.log(-mean_D[i])
            total = exponentials.add_logs(total, _gap(log_epsilon, best, logistic))
    return total - math.log(n)


@numba.njit
def _gap(log_epsilon, best, logistic):
    """log(l(best - epsilon) - l(best))."""
    log_slope = -exponentials.log1p_exp(best) if logistic else -best
    log_gap = log_slope + exponentials.log_expm1(log_epsilon)
    return math.log(math.log1p(math.exp(log_gap))) if logistic and log_gap > -37.0 else log_gap


@numba.njit
def _log_loss(f, logistic):
    return math.log(exponentials.log1p_exp(-f)) if logistic and f < 37.0 else -f


@numba.njit(forceinline=True)
def gather(r, n, columns, flat):
    """Run r's columns of an array (T, columns), token after token, in flat (T n + padding,)."""
    for t in range(len(columns)):
        source, target = columns[t, r * n : r * n + n], flat[t * n : t * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit(forceinline=True)
def scatter(r, n, flat, columns):
    """The inverse of `gather`; flat (T n + padding,)."""
    for t in range(len(columns)):
        source, target = flat[t * n : t * n + n], columns[t, r * n : r * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit
def by_sample(columns, first, n, out):
    """The columns of one run of an array (T, columns) as out (n, T)."""
    for i in range(n):
        for t in range(len(columns)):
            out[i, t] = columns[t, first + i]
