"""Directions computed entry by entry: steepest descent in l_p norms, Adam and the like.

All arrays are flat. An array is stored as a mantissa and a log, and represents e^log
times the mantissa, so that moments of size e^-30000 keep their digits. Entries smaller
than e^-700 times the largest entry are lost. A log of -inf represents an array of
zeros. Each function that computes a direction fills D from the mantissa G and its log
`top`. It returns the log of the factor by which D has to be multiplied, or -inf if
nothing moves. An entry of the form 0/0 does not move.
"""

import math

import numba
import numpy as np

from lib.compiled import exponentials
from lib.compiled.status import LOG_LONGEST

REORDER = {"reassoc", "contract", "nsz"}
SMALL = 1e-60  # a mantissa is rescaled once its largest entry is below this


@numba.njit
def log(value):
    """Return log(value) if the value is positive, and -inf otherwise."""
    if value > 0.0:
        return math.log(value)
    return -math.inf


@numba.njit
def log_product(log_a, log_b):
    """Return log(a b) = log a + log b, or -inf if one of them is -inf (even if the
    other is inf).
    """
    if log_a > -math.inf and log_b > -math.inf:
        return log_a + log_b
    return -math.inf


@numba.njit(fastmath=REORDER)
def dot(a, b):
    """Return <a, b>, for a and b (m,)."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@numba.njit(fastmath=REORDER)
def largest(x):
    """Return the largest absolute value of the entries of x (m,), ignoring NaN."""
    top = 0.0
    for j in range(x.size):
        top = max(top, abs(x[j]))
    return top


@numba.njit
def copy(x, out):
    """Copy x into the first entries of `out` along each axis; `out` may be larger than
    x. For `out[:] = x` numba would also compile error messages, which took a tenth of
    the whole compilation time.
    """
    for place, value in np.ndenumerate(x):
        out[place] = value


@numba.njit
def divide(x, size, out):
    """Fill `out` (m,) with x / size, for x (m,)."""
    for j in range(x.size):
        out[j] = x[j] / size


@numba.njit(fastmath=REORDER)
def mix(x, x_log, a, y, y_log, b, squared=False):
    """Replace x by a x + b y, or by a x + b y^2 if `squared`, and return the new log.

    x and y (m,) are mantissas; a and b are at least zero. x_log is the log of x. y_log
    is the log of y or, if `squared`, the log of y^2. x is changed in place. If x
    becomes zero, the new log is -inf.
    """
    old = log_product(x_log, log(a))
    new = log_product(y_log, log(b))
    top = max(old, new)
    if top == -math.inf:
        x[:] = 0.0
        return top
    old = math.exp(old - top) if old > -math.inf else 0.0
    new = math.exp(new - top) if new > -math.inf else 0.0
    if squared:
        for j in range(x.size):
            x[j] = old * x[j] + new * y[j] * y[j]
    else:
        for j in range(x.size):
            x[j] = old * x[j] + new * y[j]
    size = largest(x)
    if size == 0.0:
        return -math.inf
    if size < SMALL:
        divide(x, size, x)
        top += math.log(size)
    return top


@numba.njit
def sign(G, D):
    """Fill D (m,) with sgn(G), which is 0 for an entry of 0."""
    for j in range(G.size):
        if G[j] > 0.0:
            D[j] = 1.0
        elif G[j] < 0.0:
            D[j] = -1.0
        else:
            D[j] = 0.0


@numba.njit(fastmath=REORDER)
def steepest(G, top, p, work, D):
    """Fill D (m,) with the maximiser of <G, D> over all D with ||D||_p <= 1.

    p is in [1, inf], and `work` (2, m) is work space. Returns the log of the maximum
    for the gradient e^top G, which is ||e^top G||_q. If this norm is zero, D is zero.
    """
    size = largest(G)
    if size == 0.0 or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    total = 0.0
    if p == math.inf:
        sign(G, D)
        for j in range(G.size):
            total += abs(G[j])
        return top + math.log(total)
    if p == 1.0:  # if several entries are equally large, take the first
        D[:] = 0.0
        place = 0
        for j in range(1, G.size):
            if abs(G[j]) > abs(G[place]):
                place = j
        D[place] = math.copysign(1.0, G[place])
        return top + math.log(size)
    q = p / (p - 1.0)
    divide(G, size, D)
    if p == 2.0:
        length = math.sqrt(dot(D, D))
        divide(D, length, D)
        return top + math.log(size) + math.log(length)
    exponentials.power(D, q - 1.0, work[0], work[1])
    for j in range(G.size):
        total += work[1, j] * abs(D[j])
    over = total ** (-1.0 / p)
    for j in range(G.size):
        D[j] = math.copysign(work[1, j] * over, D[j])
    return top + math.log(size) + math.log(total) / q


@numba.njit(fastmath=REORDER)
def pull(G, top, p, normalised, work, D):
    """Fill D (m,) with the direction of mirror descent: G, or G / ||G||_q if
    `normalised`.

    Here 1 < p < inf, and `work` (2, m) is work space. Returns the log of the factor by
    which D has to be multiplied. If G is zero, D is zero and this log is -inf.
    """
    size = largest(G)
    if size == 0.0 or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    divide(G, size, D)
    if not normalised:
        return top + math.log(size)
    q = p / (p - 1.0)
    exponentials.power(D, q, work[0], work[1])
    return -math.log(work[1].sum()) / q


@numba.njit
def signed_power(x, exponent, work, out):
    """Fill `out` (m,) with sgn(x) |x|^exponent; return the log of its largest entry.

    The exponent is positive, and `work` (2, m) is work space. If the log exceeds
    LOG_LONGEST, `out` is not filled.
    """
    top = exponentials.power(x, exponent, work[0], work[1])
    if top <= LOG_LONGEST:
        for j in range(x.size):
            out[j] = math.copysign(work[1, j], x[j])
    return top


@numba.njit
def sign_momentum(rule, G, top, m, logs, D):
    """Fill D (m,) for Signum and Lion: D = sgn(a m + (1 - a) G) with a = `first_mix`.

    The running mean m (m,) is updated in place with the factor `momentum`; its log is
    logs[0]. Returns 0, or -inf if D is zero.
    """
    copy(m, D)
    log_mixed = mix(D, logs[0], rule.first_mix, G, top, 1.0 - rule.first_mix)
    logs[0] = mix(m, logs[0], rule.momentum, G, top, 1.0 - rule.momentum)
    sign(D, D)
    if log_mixed > -math.inf:
        return 0.0
    return -math.inf


@numba.njit(fastmath=REORDER)
def quotient(m, m_log, v, v_log, epsilon, D):
    """Fill D (m,) with m / (sqrt(v) + epsilon) up to a factor; return its log.

    m and v >= 0, each of shape (m,), are mantissas with the logs m_log and v_log.
    Entries with v = epsilon = 0 become 0. If all entries become 0 in this way, or if m
    is zero, the returned log is -inf.
    """
    root_log = 0.5 * v_log
    epsilon_log = log(epsilon)
    top = max(root_log, epsilon_log)
    if m_log == -math.inf or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    if root_log > -math.inf:
        of_root = math.exp(root_log - top)
    else:
        of_root = 0.0
    if epsilon_log > -math.inf:
        added = math.exp(epsilon_log - top)
    else:
        added = 0.0
    for j in range(m.size):
        below = of_root * math.sqrt(v[j]) + added
        D[j] = m[j] / below if below > 0.0 else 0.0
    return m_log - top


@numba.njit
def correction(beta, t):
    """Return log(1 - beta^{t+1}), for beta in [0, 1).

    Subtract it from the log of a running mean with the factor beta after step t = 0, 1,
    ..., to correct for the fact that the mean started at zero.
    """
    if beta > 0.0:
        return math.log(-math.expm1((t + 1.0) * math.log(beta)))
    return 0.0


@numba.njit
def adaptive(rule, t, G, top, m, v, logs, D):
    """Fill D for Adam, RMSprop and AdaGrad, up to a factor; return the log of this
    factor.

    G, m, v and D have the shape (m,). The moments m and v, whose logs are in `logs`
    (2,), are updated in place with this gradient.
    """
    beta = rule.momentum
    memory = rule.memory
    logs[0] = mix(m, logs[0], beta, G, top, 1.0 - beta)
    if rule.summed:
        weight_v = 1.0
        weight_G = 1.0
    else:
        weight_v = memory
        weight_G = 1.0 - memory
    logs[1] = mix(v, logs[1], weight_v, G, 2.0 * top, weight_G, True)
    m_log = logs[0]
    v_log = logs[1]
    if rule.corrected:
        m_log -= correction(beta, t)
        v_log -= correction(memory, t)
    return quotient(m, m_log, v, v_log, rule.epsilon, D)
