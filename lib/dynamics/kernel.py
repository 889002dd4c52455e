"""The compiled training loop: `lib.attention.slopes` and `rules.log_step`, several runs at a
time, on all cores.

State of a run, in the coordinates where training lives: margins g_m = delta_m^T W z_i (logit of the
reference token minus logit of the other) and coefficients alpha, W = W_0 + sum_m alpha_m delta_m
z_i^T. Joint training adds the scores gamma and coefficients b, u = u_0 + sum_{i,t} b_{it} y_i
x_{it}. One iteration is one product with the Gram matrix, k = K c for the descent direction -grad_W
L = sum_m c_m delta_m z_i^T, which also yields ||grad_W L||^2 = c^T k: alpha += eta c and g += eta
k. That product (`lib.compiled.gram`) is the floor of an iteration's cost; the rest works on the lanes
of `lib.compiled.softmax`.
"""

import math

import numba
import numpy as np

from lib.compiled import exponentials, gram, softmax
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from lib.dynamics import rules

# Columns of the table of rules, as `GradientRule.numbers` fills them.
KIND, LOG_SIZE, LOG_CAP, MOMENTUM, DECAY, JOINT = range(6)
LANES = 96  # in a group of runs: enough to make loops long, few enough to stay in the nearest cache
SOURCES = stamp(__file__)
_log_step = numba.njit(rules.log_step)


@numba.njit(forceinline=True)
def _step(r, eta, c, momentum, move, value):
    """One step of run r along c (m,), with momentum as in `rules.step`; move and value (runs,
    m).
    """
    if momentum == 0.0:
        for m in range(c.size):
            value[r, m] += eta * c[m]
    else:
        for m in range(c.size):
            move[r, m] = momentum * move[r, m] + eta * c[m]
            value[r, m] += move[r, m]


@numba.njit(forceinline=True)
def _exact_step(r, eta, c, momentum, move, value, carry):
    """`_step` with Kahan's sum: carry (runs, m) holds what rounding took from `value`.

    Settled steps are all alike and so is their rounding: after 10^7 of them the margins and W would
    have drifted apart by 10^-5, as much as W's direction is away from its limit.
    """
    for m in range(c.size):
        step = eta * c[m]
        if momentum != 0.0:
            step += momentum * move[r, m]
            move[r, m] = step
        step -= carry[r, m]
        total = value[r, m] + step
        carry[r, m] = (total - value[r, m]) - step
        value[r, m] = total


@numba.njit
def _train_group(
    data,
    K,
    G,
    margins,
    scores,
    head_fixed,
    logistic,
    rule,
    times,
    margins_at,
    scores_at,
    alpha_at,
    b_at,
    logs_at,
    status,
    ended,
):
    """Train jobs side by side; fills their records, status and the iteration at which each ended.

    margins (jobs, n, T-1) and scores (jobs, n, T) at the start; K, G packed. rule (jobs, 6): kind,
    log step_size, log max_step, momentum, decay, joint as numbers; times: what to record,
    ascending. logs_at (jobs, len(times), 5): log(L - L*), log ||grad_W L||, log ||grad_u L||, log
    of the step sizes for W and u.
    """
    jobs, n, T = scores.shape
    m, m_u = K.shape[1], G.shape[1]
    width = -(-jobs * n // gram.WIDTH) * gram.WIDTH
    g, c = gram.zeros(T - 1, width), gram.zeros(T - 1, width)  # margins, and scores below, as lanes
    gamma, push = gram.zeros(T, width), gram.zeros(T, width)
    x, D = gram.zeros(T, width), gram.zeros(T, width)
    w, lane = gram.zeros(T, width), gram.zeros(softmax.WORK_ROWS, width)
    flat_g, alpha = gram.zeros(jobs, m), gram.zeros(jobs, m)
    move, move_k = gram.zeros(jobs, m), gram.zeros(jobs, m)
    flat_gamma, b = gram.zeros(jobs, m_u), gram.zeros(jobs, m_u)
    move_u, move_u_k = gram.zeros(jobs, m_u), gram.zeros(jobs, m_u)
    carry, carry_k = gram.zeros(jobs, m), gram.zeros(jobs, m)
    flat_c, k = gram.zeros(1, m)[0], gram.zeros(1, m)[0]
    flat_push, k_u = gram.zeros(1, m_u)[0], gram.zeros(1, m_u)[0]
    scales = np.zeros((2, jobs))
    for r in range(jobs):
        for i in range(n):
            g[:, r * n + i], gamma[:, r * n + i] = margins[r, i], scores[r, i]
        softmax.gather(r, n, g, flat_g[r])
        if not head_fixed:
            softmax.gather(r, n, gamma, flat_gamma[r])
    alive, living, record = np.ones(jobs, np.bool_), jobs, 0
    for t in range(times[-1] + 1):
        # One softmax for all runs of the group, then the rest run by run.
        recording = record < times.size and times[record] == t
        softmax.slopes(g, gamma, n, logistic, head_fixed, c, push, x, D, w, lane, scales)
        for r in range(jobs):
            if not alive[r]:
                continue
            kind, log_size, log_cap = rule[r, KIND], rule[r, LOG_SIZE], rule[r, LOG_CAP]
            decay, joint = rule[r, DECAY], rule[r, JOINT]
            together = head_fixed or joint != 0.0 or kind != rules.NGD
            log_gap = math.nan
            if recording or kind == rules.POLYAK:
                log_gap = softmax.log_gap(r * n, n, gamma, logistic, head_fixed, lane)
            # The product with the Gram matrix: the floor of an iteration's cost.
            softmax.gather(r, n, c, flat_c)
            gram.multiply(K, data[r], flat_c, k)
            square = gram.dot(flat_c, k)
            log_norm = scales[0, r] + 0.5 * math.log(square) if square > 0.0 else -math.inf
            log_norm_u, log_both = -math.inf, log_norm
            if not head_fixed:
                softmax.gather(r, n, push, flat_push)
                gram.multiply(G, data[r], flat_push, k_u)
                log_norm_u = scales[1, r] + 0.5 * math.log(gram.dot(flat_push, k_u))
                log_both = 0.5 * exponentials.add_logs(2.0 * log_norm, 2.0 * log_norm_u)
            size = log_both if together else log_norm
            log_eta = _log_step(kind, log_size, log_cap, decay, t, log_gap, size)
            log_eta_u = log_eta
            if not together:
                log_eta_u = _log_step(kind, log_size, log_cap, decay, t, log_gap, log_norm_u)

            if recording:
                softmax.by_sample(g, r * n, n, margins_at[r, record])
                softmax.by_sample(gamma, r * n, n, scores_at[r, record])
                softmax.by_sample(
                    alpha[r, : (T - 1) * n].reshape(T - 1, n), 0, n, alpha_at[r, record]
                )
                b_at[r, record] = 0.0
                if not head_fixed:
                    softmax.by_sample(b[r, : T * n].reshape(T, n), 0, n, b_at[r, record])
                logs_at[r, record] = (log_gap, log_norm, log_norm_u, log_eta, log_eta_u)
            # 0/0 = 0: where there is no gradient there is no step.
            length = log_eta + log_norm if log_norm > -math.inf else -math.inf
            length_u = log_eta_u + log_norm_u if log_norm_u > -math.inf else -math.inf
            # Comparisons with NaN are false, so a NaN ends a run as diverged.
            bounded = scales[1, r] < LONGEST and length < LONGEST and length_u < LONGEST
            if log_both == -math.inf or not bounded:
                status[r], ended[r] = (STALLED if log_both == -math.inf else DIVERGED), t
                alive[r], living = False, living - 1
                continue

            momentum = rule[r, MOMENTUM]
            eta = math.exp(log_eta + scales[0, r]) if length > -math.inf else 0.0
            _exact_step(r, eta, flat_c, momentum, move, alpha, carry)
            _exact_step(r, eta, k, momentum, move_k, flat_g, carry_k)
            softmax.scatter(r, n, flat_g, g)
            if not head_fixed:
                eta_u = math.exp(log_eta_u + scales[1, r])
                _step(r, eta_u, flat_push, momentum, move_u, b)
                _step(r, eta_u, k_u, momentum, move_u_k, flat_gamma)
                softmax.scatter(r, n, flat_gamma, gamma)
        if living == 0:
            return
        record += recording
    for r in range(jobs):
        if alive[r]:
            status[r], ended[r] = COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(
    threads,
    data,
    K,
    G,
    margins,
    scores,
    head_fixed,
    logistic,
    rule,
    times,
    margins_at,
    scores_at,
    alpha_at,
    b_at,
    logs_at,
    sources=SOURCES,
):
    """Train all jobs; job j runs on data set data[j] with rule[j]. Returns status and last
    iteration, (jobs,) each.

    As `_train_group`, in groups of equal size, as many for each of the threads.
    """
    jobs = data.size
    status, ended = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    side_by_side = max(1, LANES // margins.shape[1])
    groups = min(jobs, -(-jobs // (side_by_side * threads)) * threads)
    for group in numba.prange(groups):
        j = slice(group * jobs // groups, (group + 1) * jobs // groups)
        _train_group(
            data[j],
            K,
            G,
            margins[j],
            scores[j],
            head_fixed,
            logistic,
            rule[j],
            times,
            margins_at[j],
            scores_at[j],
            alpha_at[j],
            b_at[j],
            logs_at[j],
            status[j],
            ended[j],
        )
    return status, ended
