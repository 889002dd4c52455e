"""The compiled loop for many tokens, which reads the tokens once per iteration.

The loop takes the same steps as `lib.dynamics.kernel`. It serves runs with a fixed head
whose Gram matrix K is not formed. Such a run spends most of its time on reading the
vectors delta_{it}, because the caches near the processor cannot hold them.

An iteration needs these vectors twice. First, the sums b_i = sum_t c_{it} delta_{it}
give minus the gradient, -grad_W L = sum_i b_i z_i^T. Then the margins change by eta
<delta_{it}, h_i> with h_i = -grad_W L z_i. The step size eta depends on the norm of the
gradient, which follows from the b_i alone. So the second use of a vector can wait until
just before the first use of this vector in the next iteration, and only the softmax of
its sample lies between the two. The loop takes one block of samples after the other. It
moves the margins of the block, computes the softmax and the next b_i, and needs the
vectors of this block no more.
"""

import math
from contextlib import nullcontext
from typing import NamedTuple

import numba
import numpy as np

from lib import blas
from lib.compiled import gram, softmax, threads
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.compiled.threads import LAST, STEP, STOP
from lib.compiled.vectors import load, store
from lib.dynamics import kernel
from lib.dynamics import rules as update_rules
from lib.dynamics.kernel import (
    CODE,
    DECAY,
    LOG_CAP,
    LOG_SIZE,
    MOMENTUM,
    Jobs,
    Records,
)

# The vectors of a block have about this many numbers, a quarter of a megabyte, so that
# the second nearest cache holds them. Twice as many took the same time, and four times
# as many or half as many took a tenth longer.
BLOCK = 2**15
# If a gradient has at most this many entries, it stays in a near cache, and the loop
# multiplies one block after the other by it. Otherwise it multiplies all at once.
NEAR = 2**14
# The c of an iteration are divided by the scale of the iteration before. If the log of
# the scale has changed by more than this, they are computed again.
FAR_OFF = 50.0


class _Moving(NamedTuple):
    """Coefficients or margins (T-1, lanes), with what `_exact_step` keeps about them.

    The fields are the value, the last move, and the rounding error of the value.
    """

    value: np.ndarray
    move: np.ndarray
    carry: np.ndarray


class _Room(NamedTuple):
    """Arrays of a pass over the tokens.

    Parameters
    ----------
    b, h : ndarray (block or n, r)
        The sums b_i, and the vectors h_i = -grad_W L z_i; either those of one block, or
        those of all samples.
    low : ndarray (q, r)
        Minus the gradient, transposed: sum_i z_i b_i^T.
    next_low, part : ndarray (q, r) or (0, r)
        The next such sum, and the part of a block in it. Both are empty if the loop
        multiplies all samples at once.
    k : ndarray (T-1, block)
        The products <delta_{it}, h_i> of one block.
    """

    b: np.ndarray
    h: np.ndarray
    low: np.ndarray
    next_low: np.ndarray
    part: np.ndarray
    k: np.ndarray


@numba.njit
def _room_for(factors: tuple, in_blocks: bool) -> _Room:
    """Return zeros for a pass over the vectors of `factors`, a tuple of gram.Factors.

    `in_blocks` says whether the loop multiplies one block at a time.
    """
    v, w, _, _ = factors
    n, S, r = v.shape[1:]
    q = w.shape[2]
    width = gram.WIDTH
    registers = max(1, BLOCK // (S * r * width))
    block = width * min(registers, -(-n // width))
    samples = block if in_blocks else n
    parts = q if in_blocks else 0
    return _Room(
        b=gram.zeros(samples, r),
        h=gram.zeros(samples, r),
        low=gram.zeros(q, r),
        next_low=gram.zeros(parts, r),
        part=gram.zeros(parts, r),
        k=gram.zeros(S, block),
    )


@numba.njit(forceinline=True)
def _exact_step(
    moving: _Moving, t: int, first: int, step: float, momentum: float
) -> None:
    """Move a vector of lanes as `kernel._exact_step` moves a run.

    Here `step` is a vector: eta times the coefficients or products of the lanes from
    `first` on in row t.
    """
    if momentum != 0.0:
        step = step + momentum * load(moving.move, t, first)
        store(moving.move, t, first, step)
    step = step - load(moving.carry, t, first)
    value = load(moving.value, t, first)
    total = value + step
    store(moving.carry, t, first, (total - value) - step)
    store(moving.value, t, first, total)


@numba.njit
def _move_block(
    start: int,
    eta: float,
    momentum: float,
    c: np.ndarray,
    k: np.ndarray,
    alpha: _Moving,
    margins: _Moving,
) -> None:
    """Move alpha by eta c, and the margins by eta k, for one block of samples.

    `start` is the first lane of the block. The lanes of c (T-1, lanes) are those of all
    samples, and the lanes of k (T-1, block) those of the block.
    """
    block = min(k.shape[1], c.shape[1] - start)
    for t in range(len(k)):
        for place in range(0, block, gram.WIDTH):
            first = start + place
            _exact_step(alpha, t, first, eta * load(c, t, first), momentum)
            _exact_step(margins, t, first, eta * load(k, t, place), momentum)


@numba.njit(forceinline=True)
def _tie(
    start: int, end: int, n: int, s: int, first: np.ndarray, k: np.ndarray
) -> None:
    """Copy the products of equal vectors, so that they are equal to the bit.

    The arrays `first` and k are those of `gram.Factors` and of `_Room`. The block has
    the samples from `start` to `end` - 1. Zeros are written behind them in k.
    """
    if first.shape[1]:
        for t in range(len(k)):
            for i in range(start, end):
                k[t, i - start] = k[first[s, t * n + i] // n, i - start]
    for t in range(len(k)):
        for place in range(end - start, k.shape[1]):
            k[t, place] = 0.0


@numba.njit
def _add(part: np.ndarray, total: np.ndarray) -> None:
    """Add one matrix to another of the same shape."""
    for i in range(len(total)):
        for j in range(total.shape[1]):
            total[i, j] += part[i, j]


@numba.njit
def _pass(
    moves: bool,
    step: tuple,
    log_scale: float,
    logistic: bool,
    of_run: tuple,
    state: tuple,
    largest: np.ndarray,
) -> float:
    """Take a step, and compute the next gradient, in one pass over the vectors.

    Parameters
    ----------
    moves : bool
        Whether there is a step. If not, the function only computes the gradient.
    step : tuple of float
        The step size eta in units of the scale of c, and the momentum.
    log_scale : float
        The log of the number by which the next c are divided.
    logistic : bool
        Whether the loss is the logistic one, not the exponential one.
    of_run : tuple
        The factors of the Gram matrices, the index of the run's matrix, and the room.
    state : tuple
        The alpha and the margins, as `_Moving`, and the lanes of the softmax.
    largest : ndarray (2,)
        Filled with the logs that `softmax.slopes` would write to its `scales`.

    Returns
    -------
    float
        The square of the norm of the next gradient, divided by the square of the scale.
    """
    factors, s, room = of_run
    v, w, pairs, first = factors
    alpha, margins, work = state
    n = v.shape[1]
    block = room.k.shape[1]
    low = room.low
    next_low = room.next_low
    part = room.part
    in_blocks = part.size > 0
    eta, momentum = step
    largest[0] = -math.inf
    largest[1] = -math.inf
    next_low[:] = 0.0
    for start in range(0, n, block):
        end = min(start + block, n)
        stop = min(start + block, work.c.shape[1])  # the last block fills its lanes
        place = 0 if in_blocks else start
        b = room.b[place : place + end - start]
        # Use the vectors for the step ...
        if moves:
            h = room.h[place : place + end - start]
            if in_blocks:
                np.dot(w[s, start:end], low, h)
            gram.products_with_samples(v, s, start, h, room.k)
            _tie(start, end, n, s, first, room.k)
            _move_block(start, eta, momentum, work.c, room.k, alpha, margins)
        # ... and while the cache still holds them, for the next gradient.
        softmax.slopes_of_lanes(work, start, stop, n, logistic, log_scale, largest)
        gram.sums_of_samples(v, s, start, work.c, b)
        if in_blocks:
            np.dot(w[s, start:end].T, b, part)
            _add(part, next_low)

    # The squared norm of the gradient is sum_i <b_i, h_i>, the same as ||low||^2.
    if pairs.shape[2]:
        np.dot(pairs[s], room.b, room.h)
        return gram.dot(room.b.ravel(), room.h.ravel())
    if in_blocks:
        low[:] = 0.0
        _add(next_low, low)
    else:
        np.dot(w[s].T, room.b, low)
        np.dot(w[s], low, room.h)
    return gram.dot(low.ravel(), low.ravel())


@numba.njit
def _next_gradient(
    moves: bool,
    step: tuple,
    log_scale: float,
    logistic: bool,
    of_run: tuple,
    state: tuple,
    largest: np.ndarray,
) -> tuple[float, float]:
    """Take a step and compute the next gradient, as `_pass` does with these arguments.

    Returns the square of the gradient's norm without its scale, and the log of this
    scale. It is `log_scale`, unless that one has turned out to be far off.
    """
    square = _pass(moves, step, log_scale, logistic, of_run, state, largest)
    if largest[0] > -math.inf and abs(largest[0] - log_scale) > FAR_OFF:
        log_scale = largest[0]
        square = _pass(False, step, log_scale, logistic, of_run, state, largest)
    return square, log_scale


@numba.njit(error_model="numpy", nogil=True, cache=True)
def _train_run(
    jobs: Jobs,
    in_blocks: bool,
    times: np.ndarray,
    records: Records,
    status: np.ndarray,
    ended: np.ndarray,
    signals: np.ndarray,
) -> None:
    """Train the only run of `jobs`, or return early once `signals` say so.

    `in_blocks` says whether the loop multiplies one block at a time. Other arguments
    are those of `kernel._train_group`, with a single job.
    """
    scores = jobs.scores[0]
    n, T = scores.shape
    factors = (jobs.v, jobs.w, jobs.pairs, jobs.first)
    rule = jobs.rules[0]
    code = rule[CODE]
    log_size = rule[LOG_SIZE]
    log_cap = rule[LOG_CAP]
    momentum = rule[MOMENTUM]
    decay = rule[DECAY]
    logistic = jobs.logistic
    work = softmax.empty_lanes(T, n)
    width = work.c.shape[1]
    zeros = gram.zeros
    alpha = _Moving(zeros(T - 1, width), zeros(T - 1, width), zeros(T - 1, width))
    margins = _Moving(work.margins, zeros(T - 1, width), zeros(T - 1, width))
    for i in range(n):
        for t in range(T - 1):
            work.margins[t, i] = jobs.margins[0, i, t]
        for t in range(T):
            work.scores[t, i] = scores[i, t]
    of_run = (factors, jobs.data[0], _room_for(factors, in_blocks))
    state = (alpha, margins, work)
    largest = np.zeros(2)
    square, log_scale = _next_gradient(
        False, (0.0, momentum), 0.0, logistic, of_run, state, largest
    )
    record = 0
    signals[LAST] = times[-1]
    for t in range(times[-1] + 1):
        signals[STEP] = t
        if signals[STOP] != 0:
            return

        # The gradient and the step size.
        recording = record < times.size and times[record] == t
        log_gap = math.nan
        if recording or code == update_rules.POLYAK_CODE:
            log_gap = softmax.log_gap(0, n, work, logistic, True)
        log_norm = -math.inf
        if not square <= 0.0:  # a NaN ends the run as diverged
            log_norm = log_scale + 0.5 * math.log(square)
        log_eta = kernel._log_step(code, log_size, log_cap, decay, t, log_gap, log_norm)

        if recording:
            softmax.by_sample(work.margins, 0, n, records.margins[0, record])
            softmax.by_sample(alpha.value, 0, n, records.alpha[0, record])
            logs = records.logs[0, record]
            logs[0] = log_gap
            logs[1] = log_norm
            logs[2] = -math.inf
            logs[3] = log_eta
            logs[4] = log_eta
            record += 1

        # Whether the run ends here.
        if log_norm == -math.inf:
            status[0], ended[0] = STALLED, t
            return
        length = log_eta + log_norm
        if not (length < LOG_LONGEST and largest[1] < LOG_LONGEST):
            status[0], ended[0] = DIVERGED, t
            return
        if t == times[-1]:
            break

        eta = math.exp(log_eta + log_scale) if length > -math.inf else 0.0
        square, log_scale = _next_gradient(
            True, (eta, momentum), largest[0], logistic, of_run, state, largest
        )
    status[0], ended[0] = COMPLETED, times[-1]


def run_jobs(
    jobs: Jobs, times: np.ndarray, records: Records
) -> tuple[np.ndarray, np.ndarray]:
    """Train jobs with a fixed head on all cores and fill their records.

    The arguments and results are those of `kernel.run_jobs`. Here each job is a call of
    its own.

    Parameters
    ----------
    jobs : Jobs
        The runs. Their head is fixed, and K is not formed.
    times : ndarray of int (k,)
        The iterations to record, ascending. Training ends at the last one.
    records : Records
        The records to fill, at each of the times up to the end of each run.

    Returns
    -------
    status : ndarray of int (jobs,)
        How each run ended, as a code of `lib.compiled.status`.
    ended : ndarray of int (jobs,)
        The last iteration of each run.
    """
    runs = jobs.data.size
    q = jobs.w.shape[2]
    r = jobs.v.shape[3]
    in_blocks = jobs.pairs.shape[2] == 0 and q * r <= NEAR
    status = np.zeros(runs, np.int64)
    ended = np.zeros(runs, np.int64)
    calls = []
    for run in range(runs):
        part = slice(run, run + 1)
        alone = jobs._replace(
            data=jobs.data[part],
            margins=jobs.margins[part],
            scores=jobs.scores[part],
            rules=jobs.rules[part],
        )
        filled = Records(*(array[part] for array in records))
        calls.append((alone, in_blocks, times, filled, status[part], ended[part]))
    # The matrices of a block are so small that several threads would mostly wait.
    with blas.one_thread() if in_blocks else nullcontext():
        threads.call_each(_train_run, calls)
    return status, ended
