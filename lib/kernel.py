"""The compiled training loop: `lib.attention.slopes` and `lib.rules.log_step`, one run after the other, on all cores.

State of a run, in the coordinates where training lives: margins g_m = delta_m^T W z_i (logit of the reference token
minus logit of the other) and coefficients alpha, W = W_0 + sum_m alpha_m delta_m z_i^T. Joint training adds the scores
gamma and coefficients b, u = u_0 + sum_{i,t} b_{it} y_i x_{it}. One iteration is one product with the Gram matrix,
k = K c for the descent direction -grad_W L = sum_m c_m delta_m z_i^T, which also yields ||grad_W L||^2 = c^T k:
alpha += eta c and g += eta k.
"""

import math

import numba
import numpy as np

from lib import rules

COMPLETED, STALLED, DIVERGED = range(3)
LONGEST = 600.0  # log of the longest step, and of the largest loss, that counts as finite
_log_step = numba.njit(rules.log_step)


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@numba.njit
def _multiply(K, c, out):
    for i in range(out.size):
        out[i] = _dot(K[i], c)


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


@numba.njit
def _slopes(margins, scores, logistic, head_fixed, c, push, log_slope, log_pull, log_total, work):
    """`lib.attention.slopes`, reference token first: fills c (n, T-1) and push (n, T), each without its scale.

    margins (n, T-1), scores (n, T); log_slope, log_pull, log_total (n,) and work (3, T) are work space. Returns log(L - L*) (log L when
    the head is trained, where L* = 0), and the logarithms of the scales taken out of c and of push.
    """
    n, T = scores.shape
    b, D, w = work
    log_gap = -math.inf
    for i in range(n):
        s, top = 0, 0.0  # selected token and its logit; token 0 is the reference, whose logit is 0
        for t in range(1, T):
            if -margins[i, t - 1] > top:
                s, top = t, -margins[i, t - 1]
        selected_score, best, second = scores[i, s], scores[i, 0], -math.inf
        for t in range(T):
            b[t] = (-margins[i, t - 1] if t > 0 else 0.0) - top
            D[t] = scores[i, t] - selected_score
            best = max(best, scores[i, t])
            if D[t] != 0.0:
                second = max(second, b[t])
        level, sum_w, mean_D = 0.0, 0.0, 0.0
        for t in range(T):
            w[t] = math.exp(b[t] - second if D[t] != 0.0 else b[t])
            if D[t] != 0.0:
                sum_w += w[t]
                mean_D += w[t] * D[t]
            else:
                level += w[t]
        log_Z = math.log(level + math.exp(second) * sum_w)
        log_small = second - log_Z
        log_total[i] = top + log_Z
        e = math.exp(log_small) * mean_D
        f = selected_score + e
        for t in range(1, T):
            c[i, t - 1] = w[t] * (e - D[t]) if D[t] != 0.0 else math.exp(-log_Z) * w[t] * mean_D
        log_slope[i] = -_log1p_exp(f) if logistic else -f
        log_pull[i] = log_slope[i] + log_small
        if not head_fixed:
            log_gap = _add_logs(log_gap, _log_loss(f, logistic))
        elif best > selected_score:
            log_gap = _add_logs(log_gap, _log_gap(math.log(best - selected_score - e), best, logistic))
        elif mean_D < 0.0:
            log_gap = _add_logs(log_gap, _log_gap(log_small + math.log(-mean_D), best, logistic))
    scale, push_scale = log_pull.max(), log_slope.max()
    for i in range(n):
        factor = math.exp(log_pull[i] - scale) / n if scale > -math.inf else 0.0
        for t in range(T - 1):
            c[i, t] *= factor
        if not head_fixed:
            log_factor = log_slope[i] - push_scale - log_total[i] - math.log(n)
            for t in range(T):
                push[i, t] = math.exp(log_factor - (margins[i, t - 1] if t > 0 else 0.0))
    return log_gap - math.log(n), scale, push_scale


@numba.njit
def _move(eta, c, k, momentum, move, move_k, coefficients, values):
    """One step with momentum along c, in the coefficients and in what they are seen through, k = K c."""
    for m in range(c.size):
        move[m] = momentum * move[m] + eta * c[m]
        move_k[m] = momentum * move_k[m] + eta * k[m]
        coefficients[m] += move[m]
        values[m] += move_k[m]


@numba.njit
def _train_run(K, G, margins, scores, head_fixed, logistic, rule, times, margins_at, scores_at, alpha_at, b_at, logs_at):
    """Train one run in place; fills its records and returns (status, iteration at which it ended).

    rule: (kind, step_size, max_step, momentum, decay, joint) as numbers; times: iterations to record, ascending.
    logs_at (len(times), 5): log(L - L*), log ||grad_W L||, log ||grad_u L||, log of the step sizes for W and for u.
    """
    n, S = margins.shape
    kind, step_size, max_step, momentum, decay, joint = rule[0], rule[1], rule[2], rule[3], rule[4], rule[5]
    c, k = np.zeros((n, S)), np.zeros(n * S)
    push, k_u = np.zeros((n, S + 1)), np.zeros(n * (S + 1))
    alpha, move, move_k = np.zeros(n * S), np.zeros(n * S), np.zeros(n * S)
    b, move_u, move_u_k = np.zeros(k_u.size), np.zeros(k_u.size), np.zeros(k_u.size)
    log_slope, log_pull, log_total, work = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros((3, S + 1))
    g, gamma, flat_c, flat_push = margins.reshape(-1), scores.reshape(-1), c.reshape(-1), push.reshape(-1)
    together = head_fixed or joint != 0.0 or kind != rules.NGD
    record = 0
    for t in range(times[-1] + 1):
        log_gap, scale, push_scale = _slopes(
            margins, scores, logistic, head_fixed, c, push, log_slope, log_pull, log_total, work
        )
        _multiply(K, flat_c, k)
        square = _dot(flat_c, k)
        log_norm = scale + 0.5 * math.log(square) if square > 0.0 else -math.inf
        log_norm_u = -math.inf
        if not head_fixed:
            _multiply(G, flat_push, k_u)
            log_norm_u = push_scale + 0.5 * math.log(_dot(flat_push, k_u))
        log_both = 0.5 * _add_logs(2.0 * log_norm, 2.0 * log_norm_u)
        log_eta = _log_step(kind, step_size, max_step, decay, t, log_gap, log_both if together else log_norm)
        log_eta_u = log_eta if together else _log_step(kind, step_size, max_step, decay, t, log_gap, log_norm_u)

        if record < times.size and times[record] == t:
            margins_at[record], alpha_at[record] = margins, alpha.reshape(n, S)
            scores_at[record], b_at[record] = scores, b.reshape(n, S + 1)
            logs_at[record] = (log_gap, log_norm, log_norm_u, log_eta, log_eta_u)
            record += 1
        if log_both == -math.inf:
            return STALLED, t
        length = log_eta + log_norm if log_norm > -math.inf else -math.inf  # 0/0 = 0: no gradient, no step
        length_u = log_eta_u + log_norm_u if log_norm_u > -math.inf else -math.inf
        if not (log_gap < LONGEST and length < LONGEST and length_u < LONGEST):  # false for NaN
            return DIVERGED, t

        eta = math.exp(log_eta + scale) if length > -math.inf else 0.0
        _move(eta, flat_c, k, momentum, move, move_k, alpha, g)
        if not head_fixed:
            _move(math.exp(log_eta_u + push_scale), flat_push, k_u, momentum, move_u, move_u_k, b, gamma)
    return COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(data, K, G, margins, scores, head_fixed, logistic, rule, times, margins_at, scores_at, alpha_at, b_at, logs_at):
    """Train all jobs; job j runs on data set data[j] with rule[j]. Returns status and last iteration, (jobs,) each."""
    jobs = data.size
    status, ended = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    for j in numba.prange(jobs):
        status[j], ended[j] = _train_run(
            K[data[j]], G[data[j]], margins[j], scores[j], head_fixed, logistic, rule[j], times,
            margins_at[j], scores_at[j], alpha_at[j], b_at[j], logs_at[j],
        )  # fmt: skip
    return status, ended
