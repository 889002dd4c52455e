"""The compiled training loop: `lib.attention.slopes` and `lib.rules.log_step`, several runs at a time, on all cores.

State of a run, in the coordinates where training lives: margins g_m = delta_m^T W z_i (logit of the reference token
minus logit of the other) and coefficients alpha, W = W_0 + sum_m alpha_m delta_m z_i^T. Joint training adds the scores
gamma and coefficients b, u = u_0 + sum_{i,t} b_{it} y_i x_{it}. One iteration is one product with the Gram matrix,
k = K c for the descent direction -grad_W L = sum_m c_m delta_m z_i^T, which also yields ||grad_W L||^2 = c^T k:
alpha += eta c and g += eta k. That product is the floor of an iteration's cost.

Everything else works on lanes, one per run and sample, while a loop goes over the tokens: lane r n + i of an array
(T, lanes) is sample i of run r, so that one instruction serves many samples. Lanes and Gram matrices are padded with
zeros to whole vector registers (`WIDTH`): no lane is computed differently from another, and a run gives the same bits
in any company.
"""

import math

import numba
import numpy as np

from lib import rules

COMPLETED, STALLED, DIVERGED = range(3)
LONGEST = 600.0  # log of the longest step, and of the largest slope of the loss, that counts as finite
WIDTH = 8  # numbers in a vector register
LANES = 96  # in a group of runs: enough to make loops long, few enough to stay in the nearest cache
FITS = 64  # columns of the largest Gram matrix that the nearest cache holds
_REORDER = {"reassoc", "contract", "nsz"}  # sums may be taken in any order, so that they fill vector registers
_log_step = numba.njit(rules.log_step)


@numba.njit
def _aligned_zeros(rows, columns):
    """Zeros (rows, columns) that start where a register's load meets no boundary of cache lines."""
    raw = np.zeros(rows * columns + WIDTH)
    first = -(raw.ctypes.data // 8) % WIDTH
    return raw[first : first + rows * columns].reshape(rows, columns)


def pack(K: np.ndarray, n: int) -> np.ndarray:
    """Gram matrices (data, m, m) with the sample first, m = n T, as the loop reads them: token first, padded."""
    data, m = K.shape[:2]
    padded = -(-m // WIDTH) * WIDTH
    packed = _aligned_zeros.py_func(data * padded, padded).reshape(data, padded, padded)
    split = K.reshape(data, n, m // n, n, m // n)
    packed[:, :m, :m] = split.transpose(0, 2, 1, 4, 3).reshape(data, m, m)
    return packed


@numba.njit(fastmath=_REORDER, forceinline=True)
def _multiply_rows(K, s, c, out):
    """out = K[s] c, eight rows at a time; K (data, m, m)."""
    m = c.size
    for i in range(0, m - m % 8, 8):
        s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            s0 += K[s, i, j] * c[j]
            s1 += K[s, i + 1, j] * c[j]
            s2 += K[s, i + 2, j] * c[j]
            s3 += K[s, i + 3, j] * c[j]
            s4 += K[s, i + 4, j] * c[j]
            s5 += K[s, i + 5, j] * c[j]
            s6 += K[s, i + 6, j] * c[j]
            s7 += K[s, i + 7, j] * c[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = s0, s1, s2, s3
        out[i + 4], out[i + 5], out[i + 6], out[i + 7] = s4, s5, s6, s7


@numba.njit(fastmath=_REORDER, forceinline=True)
def _multiply_triangle(K, s, c, out):
    """out = K[s] c for symmetric K (data, m, m), of which only the lower triangle is read, four rows at a time."""
    m = c.size
    for j in range(m):
        out[j] = 0.0
    for i in range(0, m - m % 4, 4):
        a, b, d, e = K[s, i], K[s, i + 1], K[s, i + 2], K[s, i + 3]
        c_a, c_b, c_d, c_e = c[i], c[i + 1], c[i + 2], c[i + 3]
        s_a, s_b, s_d, s_e = 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            c_j = c[j]
            out[j] += a[j] * c_a + b[j] * c_b + d[j] * c_d + e[j] * c_e
            s_a += a[j] * c_j
            s_b += b[j] * c_j
            s_d += d[j] * c_j
            s_e += e[j] * c_j
        out[i] = s_a + a[i] * c_a + b[i] * c_b + d[i] * c_d + e[i] * c_e
        out[i + 1] = s_b + b[i] * c_a + b[i + 1] * c_b + d[i + 1] * c_d + e[i + 1] * c_e
        out[i + 2] = s_d + d[i] * c_a + d[i + 1] * c_b + d[i + 2] * c_d + e[i + 2] * c_e
        out[i + 3] = s_e + e[i] * c_a + e[i + 1] * c_b + e[i + 2] * c_d + e[i + 3] * c_e


@numba.njit(forceinline=True)
def multiply(K, s, c, out):
    """out = K[s] c for packed Gram matrices K (data, m, m)."""
    if c.size <= FITS:
        _multiply_rows(K, s, c, out)
    else:  # memory is slower than arithmetic: read half of it
        _multiply_triangle(K, s, c, out)


@numba.njit(fastmath=_REORDER, forceinline=True)
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
def _slopes(margins, scores, n, logistic, head_fixed, c, push, x, D, w, lane, scales):
    """`lib.attention.slopes`, reference token first: fills c (T-1, lanes) and push (T, lanes), each without its scale.

    margins (T-1, lanes), scores (T, lanes) of runs with n samples each; x, D, w (T, lanes) and lane (10, lanes) are
    work space, of which `_log_gap_of` reads what it needs. scales (2, runs) are the logs taken out of c and push.
    """
    T, lanes = scores.shape
    level, anchor, mean_D, f, top = lane[0], lane[1], lane[2], lane[3], lane[4]
    small, over_Z, rest, log_slope, factor = lane[5], lane[6], lane[7], lane[8], lane[9]
    logs, share = rest, 1.0 / n
    for i in range(lanes):  # the selected token's logit and score; token 0 is the reference, whose logit is 0
        top[i], level[i] = 0.0, scores[0, i]
    for t in range(T - 1):
        for i in range(lanes):
            logit = -margins[t, i]
            larger = logit > top[i]
            level[i] = scores[t + 1, i] if larger else level[i]
            top[i] = logit if larger else top[i]
    for i in range(lanes):  # log weight of the largest token of another score
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
    exp(x.reshape(-1), w.reshape(-1))
    exp(anchor, small)
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
            log_slope[i] = -_log1p_exp(f[i])
    else:
        for i in range(lanes):
            log_slope[i] = -f[i]
    for i in range(lanes):
        logs[i] = log_slope[i] + anchor[i]
    _take_out_scales(logs, n, scales[0])
    exp(logs, factor)
    for i in range(lanes):
        factor[i] *= share * over_Z[i]
    for t in range(T - 1):
        for i in range(lanes):
            lag = D[t + 1, i]
            c[t, i] = factor[i] * w[t + 1, i] * (small[i] * mean_D[i] - lag if lag != 0.0 else mean_D[i])
    for i in range(lanes):
        logs[i] = log_slope[i]
    _take_out_scales(logs, n, scales[1])
    if not head_fixed:
        exp(logs, factor)
        for i in range(lanes):
            factor[i] *= share * over_Z[i]
        for t in range(T):
            for i in range(lanes):
                push[t, i] = factor[i] * w[t, i] * (small[i] if D[t, i] != 0.0 else 1.0)


@numba.njit(forceinline=True)
def _take_out_scales(logs, n, scales):
    """Subtract from each run's lanes their largest value, unless that is -inf, and note it in scales (runs,)."""
    for r in range(scales.size):
        own, largest = logs[r * n : r * n + n], -math.inf
        for i in range(n):
            largest = own[i] if own[i] > largest else largest
        scales[r] = largest
        shift = largest if largest > -math.inf else 0.0
        for i in range(n):
            own[i] -= shift


@numba.njit
def _log_gap_of(first, n, scores, logistic, head_fixed, lane):
    """log(L - L*), or log L when the head is trained (where L* = 0), of the run whose first lane is `first`."""
    level, anchor, mean_D, f = lane[0], lane[1], lane[2], lane[3]
    log_gap = -math.inf
    for i in range(first, first + n):
        best = scores[:, i].max()
        if not head_fixed:
            log_gap = _add_logs(log_gap, _log_loss(f[i], logistic))
        elif best > level[i]:
            log_gap = _add_logs(log_gap, _log_gap(math.log(best - f[i]), best, logistic))
        elif mean_D[i] < 0.0:
            log_gap = _add_logs(log_gap, _log_gap(anchor[i] + math.log(-mean_D[i]), best, logistic))
    return log_gap - math.log(n)


@numba.njit(forceinline=True)
def _gather(r, n, lanes, flat):
    """The lanes of run r of an array (T, lanes) one after the other, in flat (T n + padding,)."""
    for t in range(len(lanes)):
        source, target = lanes[t, r * n : r * n + n], flat[t * n : t * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit(forceinline=True)
def _scatter(r, n, flat, lanes):
    """The inverse of `_gather`; flat (runs, T n + padding)."""
    for t in range(len(lanes)):
        source, target = flat[r, t * n : t * n + n], lanes[t, r * n : r * n + n]
        for i in range(n):
            target[i] = source[i]


@numba.njit(forceinline=True)
def _step(r, eta, c, momentum, move, value):
    """One step of run r along c (m,), with momentum as in `rules.step`; move and value (runs, m)."""
    if momentum == 0.0:
        for m in range(c.size):
            value[r, m] += eta * c[m]
    else:
        for m in range(c.size):
            move[r, m] = momentum * move[r, m] + eta * c[m]
            value[r, m] += move[r, m]


@numba.njit
def _transpose(lanes, first, n, out):
    """The lanes of one run of an array (T, lanes) as out (n, T)."""
    for i in range(n):
        for t in range(len(lanes)):
            out[i, t] = lanes[t, first + i]


@numba.njit
def _train_group(
    data, K, G, margins, scores, head_fixed, logistic, rule, times,
    margins_at, scores_at, alpha_at, b_at, logs_at, status, ended,
):  # fmt: skip
    """Train jobs side by side; fills their records, status and the iteration at which each ended.

    margins (jobs, n, T-1) and scores (jobs, n, T) at the start; K, G packed. rule (jobs, 6): kind, log step_size,
    log max_step, momentum, decay, joint as numbers; times: what to record, ascending.
    logs_at (jobs, len(times), 5): log(L - L*), log ||grad_W L||, log ||grad_u L||, log of the step sizes for W and u.
    """
    jobs, n, T = scores.shape
    m, m_u = K.shape[1], G.shape[1]
    lanes = -(-jobs * n // WIDTH) * WIDTH
    g, c = _aligned_zeros(T - 1, lanes), _aligned_zeros(T - 1, lanes)  # margins, and scores below, as lanes
    gamma, push = _aligned_zeros(T, lanes), _aligned_zeros(T, lanes)
    x, D = _aligned_zeros(T, lanes), _aligned_zeros(T, lanes)
    w, lane = _aligned_zeros(T, lanes), _aligned_zeros(10, lanes)
    flat_g, alpha = _aligned_zeros(jobs, m), _aligned_zeros(jobs, m)
    move, move_k = _aligned_zeros(jobs, m), _aligned_zeros(jobs, m)
    flat_gamma, b = _aligned_zeros(jobs, m_u), _aligned_zeros(jobs, m_u)
    move_u, move_u_k = _aligned_zeros(jobs, m_u), _aligned_zeros(jobs, m_u)
    flat_c, k = _aligned_zeros(1, m)[0], _aligned_zeros(1, m)[0]
    flat_push, k_u = _aligned_zeros(1, m_u)[0], _aligned_zeros(1, m_u)[0]
    scales = np.zeros((2, jobs))
    for r in range(jobs):
        for i in range(n):
            g[:, r * n + i], gamma[:, r * n + i] = margins[r, i], scores[r, i]
        _gather(r, n, g, flat_g[r])
        if not head_fixed:
            _gather(r, n, gamma, flat_gamma[r])
    alive, living, record = np.ones(jobs, np.bool_), jobs, 0
    for t in range(times[-1] + 1):
        recording = record < times.size and times[record] == t
        _slopes(g, gamma, n, logistic, head_fixed, c, push, x, D, w, lane, scales)
        for r in range(jobs):
            if not alive[r]:
                continue
            kind, log_size, log_cap, decay, joint = rule[r, 0], rule[r, 1], rule[r, 2], rule[r, 4], rule[r, 5]
            together = head_fixed or joint != 0.0 or kind != rules.NGD
            log_gap = math.nan
            if recording or kind == rules.POLYAK:
                log_gap = _log_gap_of(r * n, n, gamma, logistic, head_fixed, lane)
            _gather(r, n, c, flat_c)
            multiply(K, data[r], flat_c, k)
            square = _dot(flat_c, k)
            log_norm = scales[0, r] + 0.5 * math.log(square) if square > 0.0 else -math.inf
            log_norm_u, log_both = -math.inf, log_norm
            if not head_fixed:
                _gather(r, n, push, flat_push)
                multiply(G, data[r], flat_push, k_u)
                log_norm_u = scales[1, r] + 0.5 * math.log(_dot(flat_push, k_u))
                log_both = 0.5 * _add_logs(2.0 * log_norm, 2.0 * log_norm_u)
            log_eta = _log_step(kind, log_size, log_cap, decay, t, log_gap, log_both if together else log_norm)
            log_eta_u = log_eta if together else _log_step(kind, log_size, log_cap, decay, t, log_gap, log_norm_u)

            if recording:
                _transpose(g, r * n, n, margins_at[r, record])
                _transpose(gamma, r * n, n, scores_at[r, record])
                _transpose(alpha[r, : (T - 1) * n].reshape(T - 1, n), 0, n, alpha_at[r, record])
                b_at[r, record] = 0.0
                if not head_fixed:
                    _transpose(b[r, : T * n].reshape(T, n), 0, n, b_at[r, record])
                logs_at[r, record] = (log_gap, log_norm, log_norm_u, log_eta, log_eta_u)
            length = log_eta + log_norm if log_norm > -math.inf else -math.inf  # 0/0 = 0: no gradient, no step
            length_u = log_eta_u + log_norm_u if log_norm_u > -math.inf else -math.inf
            bounded = scales[1, r] < LONGEST and length < LONGEST and length_u < LONGEST  # false for NaN
            if log_both == -math.inf or not bounded:
                status[r], ended[r] = (STALLED if log_both == -math.inf else DIVERGED), t
                alive[r], living = False, living - 1
                continue

            momentum = rule[r, 3]
            eta = math.exp(log_eta + scales[0, r]) if length > -math.inf else 0.0
            _step(r, eta, flat_c, momentum, move, alpha)
            _step(r, eta, k, momentum, move_k, flat_g)
            _scatter(r, n, flat_g, g)
            if not head_fixed:
                eta_u = math.exp(log_eta_u + scales[1, r])
                _step(r, eta_u, flat_push, momentum, move_u, b)
                _step(r, eta_u, k_u, momentum, move_u_k, flat_gamma)
                _scatter(r, n, flat_gamma, gamma)
        if living == 0:
            return
        record += recording
    for r in range(jobs):
        if alive[r]:
            status[r], ended[r] = COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(
    threads, data, K, G, margins, scores, head_fixed, logistic, rule, times,
    margins_at, scores_at, alpha_at, b_at, logs_at,
):  # fmt: skip
    """Train all jobs; job j runs on data set data[j] with rule[j]. Returns status and last iteration, (jobs,) each.

    As `_train_group`, in groups of equal size, as many for each of the threads.
    """
    jobs = data.size
    status, ended = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    side_by_side = max(1, LANES // margins.shape[1])
    groups = min(jobs, -(-jobs // (side_by_side * threads)) * threads)
    for group in numba.prange(groups):
        j = slice(group * jobs // groups, (group + 1) * jobs // groups)
        _train_group(
            data[j], K, G, margins[j], scores[j], head_fixed, logistic, rule[j], times,
            margins_at[j], scores_at[j], alpha_at[j], b_at[j], logs_at[j], status[j], ended[j],
        )  # fmt: skip
    return status, ended
