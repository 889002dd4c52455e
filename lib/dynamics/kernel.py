"""The compiled training loop: `attention.slopes` and `rules.log_step`, on all cores.

The state of a run is its margins g_m = delta_m^T W z_i (the logit of the opt token
minus the logit of another token) and the coefficients alpha of W = W_0 + sum_m alpha_m
delta_m z_i^T. In joint training it also contains the scores gamma and the coefficients
b of u = u_0 + sum_{i,t} b_{it} y_i x_{it}.

The negative gradient has the coefficients c: -grad_W L = sum_m c_m delta_m z_i^T. An
iteration needs one product with the Gram matrix, k = K c. This product gives the norm
of the gradient, ||grad_W L||^2 = c^T k, and the two updates alpha += eta c and g += eta
k. No iteration can be cheaper than this product.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, gram, softmax, threads
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.compiled.threads import LAST, STEP, STOP
from lib.dynamics import rules as update_rules

# Columns of the table of rules, as `BuiltIn.numbers` fills them.
CODE, LOG_SIZE, LOG_CAP, MOMENTUM, DECAY, JOINT = range(6)
# The number of samples that a group of runs holds side by side. It is large enough to
# make the loops over samples long, and small enough for the samples to fit into the
# nearest cache.
LANES = 96
# The rows of an array that steps move: the value, the last move (for momentum), and the
# rounding error of the value, which the next step corrects.
VALUE, MOVE, CARRY = range(3)
_log_step = numba.njit(update_rules.log_step)


@numba.njit(forceinline=True)
def _step(
    r: int, eta: float, c: np.ndarray, momentum: float, moving: np.ndarray
) -> None:
    """Move run r by one step along c (m,), in place.

    The step is the momentum times the last step, plus eta c. The array `moving` has the
    shape (3, jobs, m), see `_moving`. Its row MOVE is not used if the momentum is zero.
    """
    if momentum == 0.0:
        for m in range(c.size):
            moving[VALUE, r, m] += eta * c[m]
    else:
        for m in range(c.size):
            moving[MOVE, r, m] = momentum * moving[MOVE, r, m] + eta * c[m]
            moving[VALUE, r, m] += moving[MOVE, r, m]


@numba.njit(forceinline=True)
def _exact_step(
    r: int, eta: float, c: np.ndarray, momentum: float, moving: np.ndarray
) -> None:
    """Move run r as `_step` does, but with Kahan's compensated summation.

    CARRY holds the rounding error of VALUE. Late in training, all steps are nearly
    equal. So are their rounding errors, which therefore add up. Without Kahan's
    summation, the stored margins would differ from the margins of W by 10^-5 after 10^7
    steps. This is as much as the direction of W then differs from its limit.
    """
    for m in range(c.size):
        step = eta * c[m]
        if momentum != 0.0:
            step += momentum * moving[MOVE, r, m]
            moving[MOVE, r, m] = step
        step -= moving[CARRY, r, m]
        total = moving[VALUE, r, m] + step
        moving[CARRY, r, m] = (total - moving[VALUE, r, m]) - step
        moving[VALUE, r, m] = total


class Jobs(NamedTuple):
    """Runs that are trained side by side, one job per run and rule.

    Parameters
    ----------
    data : ndarray of int (jobs,)
        For each job, the index of its Gram matrices in K and G, and of its factors.
    K : ndarray (data, m, m)
        The Gram matrices for W as `gram.pack` returns them, with m = n (T-1) rounded up
        to a multiple of `gram.WIDTH`. If they are not formed, the shape is (data, m,
        0).
    G : ndarray (data, m_u, m_u)
        The Gram matrices for a trained head, with m_u = n T rounded up. If they are not
        formed, the shape is (data, m_u, 0). If the head is fixed, it is (data, 0, 0).
    v, w, pairs, first : ndarray
        The fields of `gram.Factors` for K.
    v_head, w_head, pairs_head, first_head : ndarray
        The fields of `gram.Factors` for G.
    margins : ndarray (jobs, n, T-1)
        The margins at the start: the logit of the opt token minus the logit of each
        other token.
    scores : ndarray (jobs, n, T)
        The scores at the start.
    rules : ndarray (jobs, 6)
        The rules, with the columns CODE to JOINT.
    head_fixed : bool
        Whether the head stays fixed.
    logistic : bool
        Whether the loss is the logistic one.
    """

    data: np.ndarray
    K: np.ndarray
    G: np.ndarray
    v: np.ndarray
    w: np.ndarray
    pairs: np.ndarray
    first: np.ndarray
    v_head: np.ndarray
    w_head: np.ndarray
    pairs_head: np.ndarray
    first_head: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    rules: np.ndarray
    head_fixed: bool
    logistic: bool


class Records(NamedTuple):
    """Arrays that training fills at each of the k iterations to record.

    Parameters
    ----------
    margins : ndarray (jobs, k, n, T-1)
        Margins.
    scores : ndarray (jobs, k, n, T)
        Scores; empty for a fixed head.
    alpha : ndarray (jobs, k, n, T-1)
        Coefficients of W.
    b : ndarray (jobs, k, n, T)
        Coefficients of the head; empty for a fixed head.
    logs : ndarray (jobs, k, 5)
        The five columns are log(L - L*), or log L in joint training; log ||grad_W L||;
        log ||grad_u L||, which is -inf for a fixed head; and the logarithms of the step
        sizes for W and for u, which are equal for a fixed head.
    """

    margins: np.ndarray
    scores: np.ndarray
    alpha: np.ndarray
    b: np.ndarray
    logs: np.ndarray


@numba.njit
def _moving(jobs: int, m: int) -> np.ndarray:
    """Return an array of zeros (3, jobs, m), with the rows VALUE, MOVE and CARRY."""
    return gram.zeros(3 * jobs, m).reshape(3, jobs, m)


@numba.njit(forceinline=True)
def _write(
    r: int,
    record: int,
    work: Any,
    alpha: np.ndarray,
    b: np.ndarray,
    head_fixed: bool,
    records: Records,
) -> None:
    """Write margins and alpha of run r into its record `record`.

    If the head is trained, also write the scores and b. `work` holds the lanes of all
    runs; alpha (jobs, m) and b (jobs, m_u) are ordered by token first.
    """
    n = records.margins.shape[2]
    T = records.margins.shape[3] + 1
    softmax.by_sample(work.margins, r * n, n, records.margins[r, record])
    coefficients = alpha[r, : (T - 1) * n].reshape(T - 1, n)
    softmax.by_sample(coefficients, 0, n, records.alpha[r, record])
    if not head_fixed:
        softmax.by_sample(work.scores, r * n, n, records.scores[r, record])
        softmax.by_sample(b[r, : T * n].reshape(T, n), 0, n, records.b[r, record])


@numba.njit(forceinline=True, error_model="numpy")
def _gradient(
    r: int,
    n: int,
    lanes: np.ndarray,
    of: tuple,
    number: int,
    c: np.ndarray,
    k: np.ndarray,
) -> float:
    """Return the log of the gradient norm of run r, without the scale of this run.

    The result is -inf if the gradient is zero. The function also fills c (m,) with the
    coefficients of this gradient, which it reads from `lanes`, and k (m,) with K c.
    `of` holds the Gram matrices, their factors and the memory for a product; `number`
    is the index of the run's matrix in them.
    """
    K, factors, room = of
    softmax.gather(r, n, lanes, c)
    if K.shape[2]:
        gram.multiply(K, number, c, k)
    else:
        gram.multiply_factored(factors, number, c, k, room)
    square = gram.dot(c, k)
    # If c^T K c is zero, rounding can make it negative. A NaN passes this test, and
    # ends the run as diverged.
    if square <= 0.0:
        return -math.inf
    return 0.5 * math.log(square)


@numba.njit(error_model="numpy", nogil=True, cache=True)
def _train_group(
    jobs: Jobs,
    times: np.ndarray,
    records: Records,
    status: np.ndarray,
    ended: np.ndarray,
    signals: np.ndarray,
) -> None:
    """Train `jobs` side by side, or return early once `signals` say so.

    The function fills the records of the jobs at the iterations `times` (k,), and
    leaves records after the end of a run as they are. For each job, it writes into
    `status` (jobs,) how the run ended, and into `ended` (jobs,) the iteration at which
    it ended. A diverged run ends at the iteration from which it could not take a step.
    """
    data = jobs.data
    K = jobs.K
    G = jobs.G
    margins = jobs.margins
    scores = jobs.scores
    rule = jobs.rules
    head_fixed = jobs.head_fixed
    logistic = jobs.logistic
    factors = (jobs.v, jobs.w, jobs.pairs, jobs.first)
    factors_head = (jobs.v_head, jobs.w_head, jobs.pairs_head, jobs.first_head)
    of_W = (K, factors, gram.room_for(factors))
    of_head = (G, factors_head, gram.room_for(factors_head))
    count, n, T = scores.shape
    m = K.shape[1]
    m_u = G.shape[1]
    work = softmax.empty_lanes(T, count * n)
    alpha = _moving(count, m)
    flat_g = _moving(count, m)
    b = _moving(count, m_u)
    flat_gamma = _moving(count, m_u)
    flat_c = gram.zeros(1, m)[0]
    k = gram.zeros(1, m)[0]
    flat_push = gram.zeros(1, m_u)[0]
    k_u = gram.zeros(1, m_u)[0]
    scales = np.zeros((2, count))
    # These arrays get names before the loop. Inside the loop, numba would count a
    # reference each time an array is read from its tuple.
    margins_now = work.margins
    scores_now = work.scores
    c = work.c
    push = work.push
    g = flat_g[VALUE]
    gamma = flat_gamma[VALUE]
    for r in range(count):
        for i in range(n):
            # Entry by entry, because numba needs seconds to compile a slice assignment.
            for t in range(T - 1):
                margins_now[t, r * n + i] = margins[r, i, t]
            for t in range(T):
                scores_now[t, r * n + i] = scores[r, i, t]
        softmax.gather(r, n, margins_now, g[r])
        if not head_fixed:
            softmax.gather(r, n, scores_now, gamma[r])
    alive = np.ones(count, np.bool_)
    living = count
    record = 0
    signals[LAST] = times[-1]
    for t in range(times[-1] + 1):
        signals[STEP] = t
        if signals[STOP] != 0:
            return
        # One softmax call serves all runs of the group; everything else is done run by
        # run.
        recording = record < times.size and times[record] == t
        softmax.slopes(work, n, logistic, head_fixed, scales)
        for r in range(count):
            if not alive[r]:
                continue
            code = rule[r, CODE]
            log_size = rule[r, LOG_SIZE]
            log_cap = rule[r, LOG_CAP]
            decay = rule[r, DECAY]
            joint = rule[r, JOINT]
            together = head_fixed or joint != 0.0 or code != update_rules.NGD_CODE
            log_gap = math.nan
            if recording or code == update_rules.POLYAK_CODE:
                log_gap = softmax.log_gap(r * n, n, work, logistic, head_fixed)
            log_norm = scales[0, r] + _gradient(r, n, c, of_W, data[r], flat_c, k)
            log_norm_u = -math.inf
            log_both = log_norm
            if not head_fixed:
                log_norm_u = scales[1, r] + _gradient(
                    r, n, push, of_head, data[r], flat_push, k_u
                )
                log_both = 0.5 * exponentials.add_logs(2.0 * log_norm, 2.0 * log_norm_u)
            size = log_both if together else log_norm
            log_eta = _log_step(code, log_size, log_cap, decay, t, log_gap, size)
            log_eta_u = log_eta
            if not together:
                log_eta_u = _log_step(
                    code, log_size, log_cap, decay, t, log_gap, log_norm_u
                )

            if recording:
                _write(r, record, work, alpha[VALUE], b[VALUE], head_fixed, records)
                logs = records.logs[r, record]
                logs[0] = log_gap
                logs[1] = log_norm
                logs[2] = log_norm_u
                logs[3] = log_eta
                logs[4] = log_eta_u
            # If the gradient is zero, the step is zero as well, rather than 0/0.
            if log_norm > -math.inf:
                length = log_eta + log_norm
            else:
                length = -math.inf
            if log_norm_u > -math.inf:
                length_u = log_eta_u + log_norm_u
            else:
                length_u = -math.inf
            # A comparison with NaN is false, so that a NaN ends the run as diverged.
            bounded = (
                scales[1, r] < LOG_LONGEST
                and length < LOG_LONGEST
                and length_u < LOG_LONGEST
            )
            if log_both == -math.inf or not bounded:
                if log_both == -math.inf:
                    status[r] = STALLED
                else:
                    status[r] = DIVERGED
                ended[r] = t
                alive[r], living = False, living - 1
                continue

            momentum = rule[r, MOMENTUM]
            if length > -math.inf:
                eta = math.exp(log_eta + scales[0, r])
            else:
                eta = 0.0
            _exact_step(r, eta, flat_c, momentum, alpha)
            _exact_step(r, eta, k, momentum, flat_g)
            softmax.scatter(r, n, g, margins_now)
            if not head_fixed:
                eta_u = math.exp(log_eta_u + scales[1, r])
                _step(r, eta_u, flat_push, momentum, b)
                _step(r, eta_u, k_u, momentum, flat_gamma)
                softmax.scatter(r, n, gamma, scores_now)
        if living == 0:
            return
        record += recording
    for r in range(count):
        if alive[r]:
            status[r], ended[r] = COMPLETED, times[-1]


def run_jobs(
    jobs: Jobs, times: np.ndarray, records: Records
) -> tuple[np.ndarray, np.ndarray]:
    """Train jobs on all cores and fill their records.

    Parameters
    ----------
    jobs : Jobs
        The runs.
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

    Notes
    -----
    The jobs are split into groups of nearly equal size, and `_train_group` trains one
    group. Every thread gets nearly the same number of groups.
    """
    cores = threads.count()
    runs = jobs.data.size
    status = np.zeros(runs, np.int64)
    ended = np.zeros(runs, np.int64)
    side_by_side = max(1, LANES // jobs.margins.shape[1])
    groups = min(runs, -(-runs // (side_by_side * cores)) * cores)
    calls = []
    for group in range(groups):
        part = slice(group * runs // groups, (group + 1) * runs // groups)
        side = jobs._replace(
            data=jobs.data[part],
            margins=jobs.margins[part],
            scores=jobs.scores[part],
            rules=jobs.rules[part],
        )
        filled = Records(*(array[part] for array in records))
        calls.append((side, times, filled, status[part], ended[part]))
    threads.call_each(_train_group, calls)
    return status, ended
