"""The compiled training loop: `lib.attention.slopes` and `lib.rules.log_step`, one run after the other, on all cores.

State of a run, in the coordinates where training lives: margins g_m = delta_m^T W z_i (logit of the reference token
minus logit of the other) and coefficients alpha, W = W_0 + sum_m alpha_m delta_m z_i^T. Joint training adds the scores
gamma and coefficients b, u = u_0 + sum_{i,t} b_{it} y_i x_{it}. One iteration is one product with the Gram matrix,
k = K c for the descent direction -grad_W L = sum_m c_m delta_m z_i^T, which also yields ||grad_W L||^2 = c^T k:
alpha += eta c and g += eta k. That product is the floor of an iteration's cost.
"""

import math

import numba
import numpy as np

from lib import rules

COMPLETED, STALLED, DIVERGED = range(3)
LONGEST = 600.0  # log of the longest step, and of the largest slope of the loss, that counts as finite
_REORDER = {"reassoc", "contract", "nsz"}  # sums may be taken in any order, so that they fill vector registers
_log_step = numba.njit(rules.log_step)


@numba.njit(fastmath=_REORDER)
def _multiply(K, c, out):
    """out = K c, four rows at a time; K (m, D), c (D,)."""
    m = out.size
    for i in range(0, m - m % 4, 4):
        a, b, d, e = 0.0, 0.0, 0.0, 0.0
        for j in range(c.size):
            a += K[i, j] * c[j]
            b += K[i + 1, j] * c[j]
            d += K[i + 2, j] * c[j]
            e += K[i + 3, j] * c[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = a, b, d, e
    for i in range(m - m % 4, m):
        out[i] = _dot(K[i], c)


@numba.njit(fastmath=_REORDER)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@numba.njit(fastmath={"contract"})
def exp(x, out):
    """out = e^x for x <= 0 within 2 units in the last place, 0 below e^-708; (m,) each.

    e^x = 2^k e^r with k = round(x / log 2), |r| <= log(2)/2 and e^r by its Taylor polynomial. Unlike the C library's
    exp, which takes one number a call and would take half of an iteration, this loop fills vector registers.
    """
    for i in range(x.size):
        bounded = max(x[i], -708.0)
        k = np.rint(bounded * 1.4426950408889634)
        r = bounded - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10  # log 2 in two parts
        p = 1 / 6227020800.0
        p = p * r + 1 / 479001600.0
        p = p * r + 1 / 39916800.0
        p = p * r + 1 / 3628800.0
        p = p * r + 1 / 362880.0
        p = p * r + 1 / 40320.0
        p = p * r + 1 / 5040.0
        p = p * r + 1 / 720.0
        p = p * r + 1 / 120.0
        p = p * r + 1 / 24.0
        p = p * r + 1 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        power = np.int64((np.int64(k) + np.int64(1023)) << np.int64(52)).view(np.float64)  # 2^k by its bits
        out[i] = p * power if x[i] >= -708.0 else 0.0


@numba.njit
def _log_expm1(log_x):
    return log_x if log_x < -37.0 else math.log(math.expm1(math.exp(log_x)))


@numba.njit
def _log1p_exp(x):
    return x + math.log1p(math.exp(-x)) if x > 0.0 else math.log1p(math.exp(x))


@numba.njit
def _add_logs(a, b):
    largest, smallest = max(a, b), min(a, b)
    return largest if smallest == -math.inf else largest + math.log1p(math.exp(smallest - largest))


@numba.njit
def _log_gap(log_epsilon, best, logistic):
    """log(l(best - epsilon) - l(best))."""
    log_gap = (-_log1p_exp(best) if logistic else -best) + _log_expm1(log_epsilon)
    return math.log(math.log1p(math.exp(log_gap))) if logistic and log_gap > -37.0 else log_gap


@numba.njit
def _log_loss(f, logistic):
    return math.log(_log1p_exp(-f)) if logistic and f < 37.0 else -f


@numba.njit(fastmath=_REORDER)
def _slopes(margins, scores, logistic, head_fixed, want_gap, c, push, work, sample):
    """`lib.attention.slopes`, reference token first: fills c (n, T-1) and push (n, T), each without its scale.

    margins (n, T-1), scores (n, T); work (3, n, T) and sample (9, n) are work space. Returns log(L - L*) (log L
    when the head is trained, where L* = 0; NaN unless wanted), and the logs of the scales taken out of c and push.
    """
    n, T = scores.shape
    x, D, w = work[0], work[1], work[2]  # by index: unpacking loses that rows are contiguous
    selected_score, second, small, Z, mean_D = sample[0], sample[1], sample[2], sample[3], sample[4]
    f, log_slope, log_pull, factor = sample[5], sample[6], sample[7], sample[8]
    for i in range(n):
        s, top = 0, 0.0  # selected token and its logit; token 0 is the reference, whose logit is 0
        for t in range(T - 1):
            if -margins[i, t] > top:
                s, top = t + 1, -margins[i, t]
        level = scores[i, s]
        anchor = -top if scores[i, 0] != level else -math.inf
        for t in range(T - 1):
            if scores[i, t + 1] != level:
                anchor = max(anchor, -margins[i, t] - top)
        D[i, 0] = scores[i, 0] - level
        x[i, 0] = -top - (anchor if D[i, 0] != 0.0 else 0.0)
        for t in range(T - 1):
            D[i, t + 1] = scores[i, t + 1] - level
            x[i, t + 1] = -margins[i, t] - top - (anchor if D[i, t + 1] != 0.0 else 0.0)
        selected_score[i], second[i] = level, anchor
    exp(x.reshape(-1), w.reshape(-1))
    exp(second, small)
    for i in range(n):
        level, sum_w, mean = 0.0, 0.0, 0.0
        for t in range(T):
            mean += w[i, t] * D[i, t]
            sum_w += w[i, t] if D[i, t] != 0.0 else 0.0
            level += w[i, t] if D[i, t] == 0.0 else 0.0
        Z[i] = level + small[i] * sum_w
        mean_D[i] = mean / Z[i]
        f[i] = selected_score[i] + small[i] * mean_D[i]
        log_slope[i] = -_log1p_exp(f[i]) if logistic else -f[i]
        log_pull[i] = log_slope[i] + second[i]
    scale, push_scale = log_pull.max(), log_slope.max()
    for i in range(n):
        log_pull[i] -= scale if scale > -math.inf else 0.0
    exp(log_pull, factor)
    for i in range(n):
        share, e, at_level = factor[i] / (n * Z[i]), small[i] * mean_D[i], mean_D[i]
        for t in range(T - 1):
            c[i, t] = share * w[i, t + 1] * (e - D[i, t + 1] if D[i, t + 1] != 0.0 else at_level)
    if not head_fixed:
        for i in range(n):
            log_pull[i] = log_slope[i] - push_scale
        exp(log_pull, factor)
        for i in range(n):
            share = factor[i] / (n * Z[i])
            for t in range(T):
                push[i, t] = share * w[i, t] * (small[i] if D[i, t] != 0.0 else 1.0)
    log_gap = -math.inf if want_gap else math.nan
    if want_gap:
        for i in range(n):
            lag = scores[i].max() - selected_score[i]
            if not head_fixed:
                log_gap = _add_logs(log_gap, _log_loss(f[i], logistic))
            elif lag > 0.0:
                log_epsilon = math.log(lag - (f[i] - selected_score[i]))
                log_gap = _add_logs(log_gap, _log_gap(log_epsilon, scores[i].max(), logistic))
            elif mean_D[i] < 0.0:
                log_epsilon = second[i] + math.log(-mean_D[i])
                log_gap = _add_logs(log_gap, _log_gap(log_epsilon, scores[i].max(), logistic))
    return log_gap - math.log(n), scale, push_scale


@numba.njit
def _move(eta, c, k, momentum, move, move_k, coefficients, values):
    """One step along c, in the coefficients and in what they are seen through, k = K c; momentum as in `rules.step`."""
    for m in range(c.size):
        move[m] = momentum * move[m] + eta * c[m]
        move_k[m] = momentum * move_k[m] + eta * k[m]
        coefficients[m] += move[m]
        values[m] += move_k[m]


@numba.njit
def _train_run(
    K, G, margins, scores, head_fixed, logistic, rule, times, margins_at, scores_at, alpha_at, b_at, logs_at
):
    """Train one run in place; fills its records and returns (status, iteration at which it ended).

    rule: (kind, log step_size, log max_step, momentum, decay, joint) as numbers; times: what to record, ascending.
    logs_at (len(times), 5): log(L - L*), log ||grad_W L||, log ||grad_u L||, log of the step sizes for W and for u.
    """
    n, S = margins.shape
    kind, log_size, log_cap, momentum, decay, joint = rule[0], rule[1], rule[2], rule[3], rule[4], rule[5]
    c, k = np.zeros((n, S)), np.zeros(n * S)
    push, k_u = np.zeros((n, S + 1)), np.zeros(n * (S + 1))
    alpha, move, move_k = np.zeros(n * S), np.zeros(n * S), np.zeros(n * S)
    b, move_u, move_u_k = np.zeros(k_u.size), np.zeros(k_u.size), np.zeros(k_u.size)
    work, sample = np.zeros((3, n, S + 1)), np.zeros((9, n))
    g, gamma, flat_c, flat_push = margins.reshape(-1), scores.reshape(-1), c.reshape(-1), push.reshape(-1)
    together = head_fixed or joint != 0.0 or kind != rules.NGD
    record = 0
    for t in range(times[-1] + 1):
        recording = record < times.size and times[record] == t
        log_gap, scale, push_scale = _slopes(
            margins, scores, logistic, head_fixed, recording or kind == rules.POLYAK, c, push, work, sample
        )
        _multiply(K, flat_c, k)
        square = _dot(flat_c, k)
        log_norm = scale + 0.5 * math.log(square) if square > 0.0 else -math.inf
        log_norm_u, log_both = -math.inf, log_norm
        if not head_fixed:
            _multiply(G, flat_push, k_u)
            log_norm_u = push_scale + 0.5 * math.log(_dot(flat_push, k_u))
            log_both = 0.5 * _add_logs(2.0 * log_norm, 2.0 * log_norm_u)
        log_eta = _log_step(kind, log_size, log_cap, decay, t, log_gap, log_both if together else log_norm)
        log_eta_u = log_eta if together else _log_step(kind, log_size, log_cap, decay, t, log_gap, log_norm_u)

        if recording:
            margins_at[record], alpha_at[record] = margins, alpha.reshape(n, S)
            scores_at[record], b_at[record] = scores, b.reshape(n, S + 1)
            logs_at[record] = (log_gap, log_norm, log_norm_u, log_eta, log_eta_u)
            record += 1
        if log_both == -math.inf:
            return STALLED, t
        length = log_eta + log_norm if log_norm > -math.inf else -math.inf  # 0/0 = 0: no gradient, no step
        length_u = log_eta_u + log_norm_u if log_norm_u > -math.inf else -math.inf
        if not (push_scale < LONGEST and length < LONGEST and length_u < LONGEST):  # false for NaN
            return DIVERGED, t

        eta = math.exp(log_eta + scale) if length > -math.inf else 0.0
        _move(eta, flat_c, k, momentum, move, move_k, alpha, g)
        if not head_fixed:
            _move(math.exp(log_eta_u + push_scale), flat_push, k_u, momentum, move_u, move_u_k, b, gamma)
    return COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(
    data, K, G, margins, scores, head_fixed, logistic, rule, times, margins_at, scores_at, alpha_at, b_at, logs_at
):
    """Train all jobs; job j runs on data set data[j] with rule[j]. Returns status and last iteration, (jobs,) each."""
    jobs = data.size
    status, ended = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    for j in numba.prange(jobs):
        status[j], ended[j] = _train_run(
            K[data[j]], G[data[j]], margins[j], scores[j], head_fixed, logistic, rule[j], times,
            margins_at[j], scores_at[j], alpha_at[j], b_at[j], logs_at[j],
        )  # fmt: skip
    return status, ended
