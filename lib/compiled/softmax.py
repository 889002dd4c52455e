"""The softmax of many samples at once, compiled: `lib.attention.slopes` on lanes.

Lane r n + i of an array (T, lanes) holds sample i of run r, so that one instruction
serves many samples while a loop goes over the tokens. The lanes are padded with zeros
to whole vector registers. So all lanes are computed in the same way, and the results of
a run are bitwise the same whichever other runs are trained along with it.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, gram
from lib.compiled.vectors import WIDTH, copy, load, store, where

# The compiler may reorder sums, so that they fill vector registers.
_REORDER = {"reassoc", "contract", "nsz"}

# Rows of the work space `lane` (WORK_ROWS, lanes): what `slopes` computes per sample.
LEVEL = 0  # score of the selected token, the token with the largest logit
ANCHOR = 1  # largest log weight of tokens with another score, minus the selected one's
MEAN_D = 2  # softmax mean of score - LEVEL, without the factor e^ANCHOR
ANSWER = 3  # f = LEVEL + e^ANCHOR MEAN_D, the mean score
SMALL = 4  # e^ANCHOR
OVER_Z = 5  # 1 divided by the sum of the weights
LOG_SLOPE = 6  # log |l'(f)|
LOG_C = 7  # log of the factors of a sample's c, without p and f - score
LOG_PUSH = 8  # log of the factors of a sample's push, without p
WORK_ROWS = 9
# The margin of a masked token. The weight e^-FAR of such a token is zero compared with
# every other weight. FAR is finite, so that no loop subtracts infinities. A masked
# token is a copy of the opt token, so that it has the same score and its margin never
# changes. So this code needs no special case for masks.
FAR = 1e300


class _Lanes(NamedTuple):
    """Arrays that `slopes` reads and fills.

    Parameters
    ----------
    margins, c : ndarray (T-1, lanes)
        The margins (the logit of the opt token minus the logit of token t), and the
        coefficients c = -dL/dmargins, from which minus the gradient with respect to W
        is computed.
    scores, push : ndarray (T, lanes)
        The scores, and the coefficients push = -dL/dscores, from which minus the
        gradient with respect to the head is computed.
    w : ndarray (T, lanes)
        Work space: the weights.
    lane : ndarray (WORK_ROWS, lanes)
        Work space, which `log_gap` also reads.
    """

    margins: np.ndarray
    scores: np.ndarray
    c: np.ndarray
    push: np.ndarray
    w: np.ndarray
    lane: np.ndarray


@numba.njit
def empty_lanes(T: int, samples: int) -> _Lanes:
    """Return lanes of zeros, padded to whole registers.

    Parameters
    ----------
    T : int
        Number of tokens.
    samples : int
        Total number of samples of all runs.

    Returns
    -------
    _Lanes
        Zeros.
    """
    width = -(-samples // gram.WIDTH) * gram.WIDTH
    g = gram.zeros(T - 1, width)
    c = gram.zeros(T - 1, width)
    gamma = gram.zeros(T, width)
    push = gram.zeros(T, width)
    w = gram.zeros(T, width)
    lane = gram.zeros(WORK_ROWS, width)
    return _Lanes(margins=g, scores=gamma, c=c, push=push, w=w, lane=lane)


@numba.njit(error_model="numpy")
def slopes(
    work: _Lanes, n: int, logistic: bool, head_fixed: bool, scales: np.ndarray
) -> None:
    """Compute `lib.attention.slopes` of many runs: fill `c` and `push` of the lanes.

    c = -dL/dmargins = |l'(f)| p (f - score) / n, and push = -dL/dscores = |l'(f)| p /
    n. In each run, c and push are divided by scales, whose logs are written to
    `scales`.

    Parameters
    ----------
    work : _Lanes
        The lanes, with the opt token of each sample first.
    n : int
        Number of samples of a run.
    logistic : bool
        Whether the loss is the logistic one, not the exponential one.
    head_fixed : bool
        Whether the head stays fixed. If it does, `push` is left as it is.
    scales : ndarray (2, runs)
        Filled with the logs of the factors by which c and push were divided. A log of
        -inf means that c is zero and was not divided.
    """
    margins, scores, c, push, w, lane = work
    lanes = scores.shape[1]
    for first in range(0, lanes, WIDTH):
        _weigh(margins, scores, w, lane, first)
    if logistic:
        for i in range(lanes):
            lane[LOG_SLOPE, i] = -exponentials.log1p_exp(lane[ANSWER, i])
    # First divide c and push by their scales. A normalised step never needs these
    # scales.
    for i in range(lanes):
        lane[LOG_C, i] = lane[LOG_SLOPE, i] + lane[ANCHOR, i]
        lane[LOG_PUSH, i] = lane[LOG_SLOPE, i]
    _take_out_scales(lane, LOG_C, n, scales, 0)
    _take_out_scales(lane, LOG_PUSH, n, scales, 1)
    for first in range(0, lanes, WIDTH):
        _pull(scores, w, lane, first, 1.0 / n, c)
        if not head_fixed:
            _push(scores, w, lane, first, 1.0 / n, push)


@numba.njit(error_model="numpy")
def slopes_of_lanes(
    work: _Lanes,
    start: int,
    end: int,
    n: int,
    logistic: bool,
    log_scale: float,
    largest: np.ndarray,
) -> None:
    """Fill `c` in some lanes of a single run, divided by a scale that is given.

    In contrast to `slopes`, no sum or maximum over all samples is needed, so that a
    loop over the tokens can compute c of a few samples at a time. `push` stays as it
    is.

    Parameters
    ----------
    work : _Lanes
        The lanes of one run, with the opt token of each sample first.
    start, end : int
        The first of the lanes, a multiple of WIDTH, and the first lane after them.
    n : int
        Number of samples.
    logistic : bool
        Whether the loss is the logistic one, not the exponential one.
    log_scale : float
        The log of the number by which c is divided.
    largest : ndarray (2,)
        Raised to the logs that `slopes` writes to `scales`, if they are larger in one
        of these lanes.
    """
    margins, scores, c, _, w, lane = work
    for first in range(start, end, WIDTH):
        _weigh(margins, scores, w, lane, first)
    for i in range(start, min(end, n)):
        if logistic:
            lane[LOG_SLOPE, i] = -exponentials.log1p_exp(lane[ANSWER, i])
        log_slope = lane[LOG_SLOPE, i]
        log_c = log_slope + lane[ANCHOR, i]
        largest[0] = max(largest[0], log_c)
        largest[1] = max(largest[1], log_slope)
        lane[LOG_C, i] = log_c - log_scale
    for first in range(start, end, WIDTH):
        _pull(scores, w, lane, first, 1.0 / n, c)


@numba.njit(fastmath=_REORDER, forceinline=True)
def _weigh(
    margins: np.ndarray, scores: np.ndarray, w: np.ndarray, lane: np.ndarray, first: int
) -> None:
    """Compute softmax weights, their sums and the mean score of WIDTH lanes.

    The lanes begin at `first`. The function fills w and the rows LEVEL to OVER_Z of
    `lane`, which do not depend on the loss. It also fills the row LOG_SLOPE, for the
    exponential loss.
    """
    T = len(scores)
    # Find the token with the largest logit, and its score. Token 0 is the reference,
    # whose logit is 0.
    score = load(scores, 0, first)
    top = score * 0.0
    level = score
    for t in range(1, T):
        logit = 0.0 - load(margins, t - 1, first)
        larger = logit > top
        level = where(larger, load(scores, t, first), level)
        top = where(larger, logit, top)
    # Find the largest log weight among tokens with another score. Its exponential is
    # factored out of all small numbers, so that the direction of the gradient keeps its
    # digits even if the weights themselves underflow.
    anchor = where(score == level, -math.inf, 0.0 - top)
    for t in range(1, T):
        log_weight = 0.0 - load(margins, t - 1, first) - top
        log_weight = where(load(scores, t, first) == level, -math.inf, log_weight)
        anchor = where(log_weight > anchor, log_weight, anchor)
    # Compute the weights and their sums. The stored weights of tokens with another
    # score lack the factor e^anchor.
    lag = score - level
    weight = exponentials.exp_of(0.0 - top - where(lag == 0.0, 0.0, anchor))
    store(w, 0, first, weight)
    mean_D = weight * lag
    at_level = where(lag == 0.0, weight, 0.0)
    rest = weight - at_level
    for t in range(1, T):
        lag = load(scores, t, first) - level
        log_weight = 0.0 - load(margins, t - 1, first) - top
        weight = exponentials.exp_of(log_weight - where(lag == 0.0, 0.0, anchor))
        store(w, t, first, weight)
        alike = where(lag == 0.0, weight, 0.0)
        mean_D = mean_D + weight * lag
        at_level = at_level + alike
        rest = rest + (weight - alike)
    small = exponentials.exp_of(anchor)
    over_Z = 1.0 / (at_level + small * rest)
    mean_D = mean_D * over_Z
    f = level + small * mean_D
    store(lane, LEVEL, first, level)
    store(lane, ANCHOR, first, anchor)
    store(lane, SMALL, first, small)
    store(lane, OVER_Z, first, over_Z)
    store(lane, MEAN_D, first, mean_D)
    store(lane, ANSWER, first, f)
    store(lane, LOG_SLOPE, first, 0.0 - f)


@numba.njit(fastmath=_REORDER, forceinline=True)
def _pull(
    scores: np.ndarray,
    w: np.ndarray,
    lane: np.ndarray,
    first: int,
    share: float,
    c: np.ndarray,
) -> None:
    """Fill c with |l'| p (f - score) / n, divided by its scale.

    The function fills the WIDTH lanes from `first` on.
    """
    level = load(lane, LEVEL, first)
    mean_D = load(lane, MEAN_D, first)
    near = load(lane, SMALL, first) * mean_D
    factor = exponentials.exp_of(load(lane, LOG_C, first)) * (
        share * load(lane, OVER_Z, first)
    )
    for t in range(1, len(scores)):
        lag = load(scores, t, first) - level
        behind = where(lag == 0.0, mean_D, near - lag)
        store(c, t - 1, first, factor * load(w, t, first) * behind)


@numba.njit(fastmath=_REORDER, forceinline=True)
def _push(
    scores: np.ndarray,
    w: np.ndarray,
    lane: np.ndarray,
    first: int,
    share: float,
    push: np.ndarray,
) -> None:
    """Fill push with |l'| p / n, the coefficients of the head, divided by its scale.

    The function fills the WIDTH lanes from `first` on.
    """
    level = load(lane, LEVEL, first)
    small = load(lane, SMALL, first)
    factor = exponentials.exp_of(load(lane, LOG_PUSH, first)) * (
        share * load(lane, OVER_Z, first)
    )
    for t in range(len(scores)):
        size = where(load(scores, t, first) == level, 1.0, small)
        store(push, t, first, factor * load(w, t, first) * size)


@numba.njit(forceinline=True)
def _take_out_scales(
    lane: np.ndarray, row: int, n: int, scales: np.ndarray, which: int
) -> None:
    """Subtract each run's largest log from its lanes, unless it is -inf.

    The logs are in row `row` of `lane`, and those of run r are in the n lanes from r n
    on. The largest log of each run is written to scales[which], even if it is -inf.
    """
    for r in range(scales.shape[1]):
        largest = -math.inf
        for i in range(r * n, r * n + n):
            if lane[row, i] > largest:
                largest = lane[row, i]
        scales[which, r] = largest
        shift = largest if largest > -math.inf else 0.0
        for i in range(r * n, r * n + n):
            lane[row, i] -= shift


@numba.njit
def log_gap(
    first: int, n: int, work: _Lanes, logistic: bool, head_fixed: bool
) -> float:
    """Compute log(L - L*) of one run.

    Parameters
    ----------
    first : int
        First lane of the run.
    n : int
        Number of samples of the run.
    work : _Lanes
        The lanes, after `slopes` has filled them.
    logistic : bool
        Whether the loss is the logistic one, not the exponential one.
    head_fixed : bool
        Whether the head stays fixed. If the head is trained, L* is 0.

    Returns
    -------
    float
        log(L - L*); -inf if L = L*.
    """
    scores = work.scores
    lane = work.lane
    level = lane[LEVEL]
    anchor = lane[ANCHOR]
    mean_D = lane[MEAN_D]
    f = lane[ANSWER]
    log_gap = -math.inf
    for i in range(first, first + n):
        best = scores[0, i]
        for t in range(1, len(scores)):  # numpy's max takes long to compile
            best = max(best, scores[t, i])
        if not head_fixed:
            log_gap = exponentials.add_logs(log_gap, _log_loss(f[i], logistic))
        elif best > level[i]:
            log_gap = exponentials.add_logs(
                log_gap, _gap(math.log(best - f[i]), best, logistic)
            )
        elif mean_D[i] < 0.0:
            log_epsilon = anchor[i] + math.log(-mean_D[i])
            log_gap = exponentials.add_logs(log_gap, _gap(log_epsilon, best, logistic))
    return log_gap - math.log(n)


@numba.njit
def _gap(log_epsilon: float, best: float, logistic: bool) -> float:
    """Compute log(l(best - epsilon) - l(best)), as `attention.losses.log_gap` does."""
    if logistic:
        log_slope = -exponentials.log1p_exp(best)
    else:
        log_slope = -best
    log_gap = log_slope + exponentials.log_expm1(log_epsilon)
    if logistic and log_gap > -37.0:
        return math.log(math.log1p(math.exp(log_gap)))
    return log_gap


@numba.njit
def _log_loss(f: float, logistic: bool) -> float:
    """Compute log l(f)."""
    if logistic and f < 37.0:
        return math.log(exponentials.log1p_exp(-f))
    return -f


@numba.njit(forceinline=True)
def gather(r: int, n: int, lanes: np.ndarray, flat: np.ndarray) -> None:
    """Copy the lanes of one run into a flat array.

    Parameters
    ----------
    r : int
        The run.
    n : int
        Number of samples of the run.
    lanes : ndarray (T, lanes)
        Lanes of all runs.
    flat : ndarray (T n + padding,)
        Filled with the lanes of run r, ordered by token first. The padding stays as it
        is.
    """
    T, width = lanes.shape
    for t in range(T):
        for i in range(0, n, WIDTH):
            copy(min(WIDTH, n - i), lanes, t * width + r * n + i, flat, t * n + i)


@numba.njit(forceinline=True)
def scatter(r: int, n: int, flat: np.ndarray, lanes: np.ndarray) -> None:
    """Copy one run back into its lanes: the inverse of `gather`.

    Parameters
    ----------
    r : int
        The run.
    n : int
        Number of samples of the run.
    flat : ndarray (runs, T n + padding)
        The flat array of every run, as `gather` fills it.
    lanes : ndarray (T, lanes)
        Lanes of all runs, of which the lanes of run r are filled.
    """
    (T, width) = lanes.shape
    m = flat.shape[1]
    for t in range(T):
        for i in range(0, n, WIDTH):
            copy(
                min(WIDTH, n - i), flat, r * m + t * n + i, lanes, t * width + r * n + i
            )


@numba.njit
def by_sample(lanes: np.ndarray, first: int, n: int, out: np.ndarray) -> None:
    """Copy the lanes of one run, and order them by sample first.

    Parameters
    ----------
    lanes : ndarray (T, lanes)
        Lanes of all runs.
    first : int
        First lane of the run.
    n : int
        Number of samples of the run.
    out : ndarray (n, T)
        Filled with the lanes of the run.
    """
    for i in range(n):
        for t in range(len(lanes)):
            out[i, t] = lanes[t, first + i]
