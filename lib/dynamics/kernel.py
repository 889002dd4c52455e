"""The compiled training loop: `lib.attention.slopes` and `rules.log_step`, several runs at a time,
on all cores.

State of a run, in the coordinates where training lives: margins g_m = delta_m^T W z_i (logit of the
reference token minus logit of the other) and coefficients alpha, W = W_0 + sum_m alpha_m delta_m
z_i^T. Joint training adds the scores gamma and coefficients b, u = u_0 + sum_{i,t} b_{it} y_i
x_{it}. One iteration is one product with the Gram matrix, k = K c for the descent direction -grad_W
L = sum_m c_m delta_m z_i^T, which also yields ||grad_W L||^2 = c^T k: alpha += eta c and g += eta
k. That product (`lib.compiled.gram`) is the floor of an iteration's cost; everything else works on
the columns of `lib.compiled.softmax`.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, gram, softmax
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from lib.dynamics import rules

COLUMNS = 96  # in a group of runs: loops long enough, and all of it in the nearest cache
SOURCES = stamp(__file__)
_log_step = numba.njit(rules.log_step)


class Jobs(NamedTuple):
    """What to train: job j runs on data set data[j] with rule[j], a record of `rules.NUMBERS`.

    K, G packed Gram matrices by data set; margins (jobs, n, T-1), scores (jobs, n, T) at the start.
    """

    data: np.ndarray
    rule: np.ndarray
    K: np.ndarray
    G: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    head_fixed: bool
    logistic: bool


class Records(NamedTuple):
    """What is filled: by job, and all but status and ended by record. logs in the order of `history.LOGS`."""

    status: np.ndarray
    ended: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    alpha: np.ndarray
    b: np.ndarray
    logs: np.ndarray


class Side(NamedTuple):
    """A parameter, W or the head, by its coefficients (alpha or b) and its outputs (margins or scores).

    outputs (T', columns) as the softmax reads them, flat (jobs, m) the same as the Gram matrix
    gives them; move and move_flat the momentum of coefficients and outputs; pull (m,) the descent
    direction of the run at hand and pulled (m,) its product with the Gram matrix.
    """

    outputs: np.ndarray
    flat: np.ndarray
    coefficients: np.ndarray
    move: np.ndarray
    move_flat: np.ndarray
    pull: np.ndarray
    pulled: np.ndarray


@numba.njit
def _side(start, m, columns):
    """The Side that begins at outputs `start` (jobs, n, T'); m = 0 where nothing is trained."""
    jobs, n, T = start.shape
    outputs, flat = gram.zeros(T, columns), gram.zeros(jobs, m)
    for r in range(jobs):
        for i in range(n):
            outputs[:, r * n + i] = start[r, i]
        if m:
            softmax.gather(r, n, outputs, flat[r])
    coefficients, move, move_flat = gram.zeros(jobs, m), gram.zeros(jobs, m), gram.zeros(jobs, m)
    pull, pulled = gram.zeros(1, m)[0], gram.zeros(1, m)[0]
    return Side(outputs, flat, coefficients, move, move_flat, pull, pulled)


@numba.njit(forceinline=True)
def _log_norm(side, direction, K, s, r, n):
    """Fill pull and pulled of run r from its columns of `direction`; the log of the gradient's norm."""
    softmax.gather(r, n, direction, side.pull)
    gram.multiply(K, s, side.pull, side.pulled)
    square = gram.dot(side.pull, side.pulled)
    # Not "square > 0": a run that has become NaN must be seen to diverge, not to stall.
    return -math.inf if square <= 0.0 else 0.5 * math.log(square)


@numba.njit(forceinline=True)
def _add(r, eta, c, momentum, move, value):
    """value[r] += m_t with the momentum m_t = momentum m_{t-1} + eta c of `rules.step`; c (m,)."""
    if momentum == 0.0:
        for m in range(c.size):
            value[r, m] += eta * c[m]
    else:
        for m in range(c.size):
            move[r, m] = momentum * move[r, m] + eta * c[m]
            value[r, m] += move[r, m]


@numba.njit(forceinline=True)
def _move(side, r, n, eta, momentum):
    """One step of run r along its pull, in coefficients and in outputs."""
    _add(r, eta, side.pull, momentum, side.move, side.coefficients)
    _add(r, eta, side.pulled, momentum, side.move_flat, side.flat)
    softmax.scatter(r, n, side.flat[r], side.outputs)


@numba.njit
def _record(W, head, r, n, head_fixed, margins, scores, alpha, b):
    """Write run r's state, a row of the Records."""
    T = len(scores[0])
    softmax.by_sample(W.outputs, r * n, n, margins)
    softmax.by_sample(head.outputs, r * n, n, scores)
    softmax.by_sample(W.coefficients[r, : (T - 1) * n].reshape(T - 1, n), 0, n, alpha)
    b[:] = 0.0
    if not head_fixed:
        softmax.by_sample(head.coefficients[r, : T * n].reshape(T, n), 0, n, b)


@numba.njit
def _train_group(job, times, record):
    """Train the Jobs side by side; fills their Records. times: what to record, ascending."""
    jobs, n, T = job.scores.shape
    head_fixed, logistic = job.head_fixed, job.logistic
    at = softmax.space(T, jobs, n)
    W = _side(job.margins, job.K.shape[1], at.w.shape[1])
    head = _side(job.scores, job.G.shape[1], at.w.shape[1])
    alive, living, k = np.ones(jobs, np.bool_), jobs, 0
    for t in range(times[-1] + 1):
        recording = k < times.size and times[k] == t
        softmax.slopes(at, W.outputs, head.outputs, n, logistic, head_fixed)
        for r in range(jobs):
            if not alive[r]:
                continue
            rule, s, scale, scale_u = job.rule[r], job.data[r], at.scales[0, r], at.scales[1, r]
            log_gap = math.nan
            if recording or rule.kind == rules.POLYAK:
                log_gap = softmax.log_gap(at, r * n, n, head.outputs, logistic, head_fixed)
            log_norm = scale + _log_norm(W, at.c, job.K, s, r, n)
            log_norm_u, log_both = -math.inf, log_norm
            if not head_fixed:
                log_norm_u = scale_u + _log_norm(head, at.push, job.G, s, r, n)
                log_both = 0.5 * exponentials.add_logs(2.0 * log_norm, 2.0 * log_norm_u)
            together = head_fixed or rule.joint != 0.0 or rule.kind != rules.NGD
            own = log_both if together else log_norm
            shape = rule.kind, rule.log_size, rule.log_cap, rule.decay
            log_eta = _log_step(*shape, t, log_gap, own)
            log_eta_u = log_eta if together else _log_step(*shape, t, log_gap, log_norm_u)
            if recording:
                _record(
                    W,
                    head,
                    r,
                    n,
                    head_fixed,
                    record.margins[r, k],
                    record.scores[r, k],
                    record.alpha[r, k],
                    record.b[r, k],
                )
                record.logs[r, k] = (log_gap, log_norm, log_norm_u, log_eta, log_eta_u)

            # 0/0 = 0: no gradient, no step. The comparisons are false for NaN.
            length = log_eta + log_norm if log_norm != -math.inf else -math.inf
            length_u = log_eta_u + log_norm_u if log_norm_u != -math.inf else -math.inf
            bounded = scale_u < LONGEST and length < LONGEST and length_u < LONGEST
            if log_both == -math.inf or not bounded:
                record.status[r] = STALLED if log_both == -math.inf else DIVERGED
                record.ended[r], alive[r], living = t, False, living - 1
                continue
            eta = math.exp(log_eta + scale) if length > -math.inf else 0.0
            _move(W, r, n, eta, rule.momentum)
            if not head_fixed:
                _move(head, r, n, math.exp(log_eta_u + scale_u), rule.momentum)
        if living == 0:
            return
        k += recording
    for r in range(jobs):
        if alive[r]:
            record.status[r], record.ended[r] = COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(threads, job, times, record, sources=SOURCES):
    """Train all Jobs and fill their Records, in groups of equal size, as many for each of the threads."""
    jobs = job.data.size
    side_by_side = max(1, COLUMNS // job.margins.shape[1])
    groups = min(jobs, -(-jobs // (side_by_side * threads)) * threads)
    for group in numba.prange(groups):
        _train_part(job, times, record, group * jobs // groups, (group + 1) * jobs // groups)


@numba.njit
def _train_part(job, times, record, first, end):
    """Train jobs first ... end - 1."""
    j = slice(first, end)
    part = Jobs(
        job.data[j],
        job.rule[j],
        job.K,
        job.G,
        job.margins[j],
        job.scores[j],
        job.head_fixed,
        job.logistic,
    )
    own = Records(
        record.status[j],
        record.ended[j],
        record.margins[j],
        record.scores[j],
        record.alpha[j],
        record.b[j],
        record.logs[j],
    )
    _train_group(part, times, own)
