"""Directions made entry by entry: steepest descent in l_p norms, Adam and its kin.

Arrays are flat, e^log times a mantissa, so that moments of e^-30000 keep their digits;
entries below e^-700 of the largest are lost. Every direction fills D from the mantissa
G and its log `top`, and returns the log of the factor that D lacks; -inf where nothing
moves. 0/0 does not move.
"""

import math

import numba
import numpy as np

from lib.compiled import exponentials
from lib.compiled.status import LONGEST

REORDER = {"reassoc", "contract", "nsz"}
SMALL = 1e-60  # largest entry below which a mantissa is brought back to 1


@numba.njit
def log(value):
    """log value, -inf for zero."""
    return math.log(value) if value > 0.0 else -math.inf


@numba.njit
def add_logs(a, b):
    """a + b, -inf where either is."""
    if a > -math.inf and b > -math.inf:
        return a + b
    return -math.inf


@numba.njit(fastmath=REORDER)
def dot(a, b):
    """<a, b>; (m,) each."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@numba.njit(fastmath=REORDER)
def largest(x):
    """The largest |entry| of x."""
    top = 0.0
    for j in range(x.size):
        top = max(top, abs(x[j]))
    return top


@numba.njit
def copy(x, out):
    """out = x, in the corner that x fills. With `out[:] = x` numba compiles the words
    of its errors as well, a tenth of all compilation.
    """
    for place, value in np.ndenumerate(x):
        out[place] = value


@numba.njit
def divide(x, size, out):
    """out = x / size; (m,) each."""
    for j in range(x.size):
        out[j] = x[j] / size


@numba.njit(fastmath=REORDER)
def mix(x, x_log, a, y, y_log, b, squared=False):
    """x = a x + b y, y or its square, in x's mantissa; returns the new log."""
    old = add_logs(x_log, log(a))
    new = add_logs(y_log, log(b))
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
    """D = sgn(G), 0 for 0."""
    for j in range(G.size):
        D[j] = 1.0 if G[j] > 0.0 else (-1.0 if G[j] < 0.0 else 0.0)


@numba.njit(fastmath=REORDER)
def steepest(G, top, p, work, D):
    """The D with ||D||_p <= 1 and largest <G, D>, and the log of ||G||_q, its value."""
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
    if p == 1.0:  # of several largest entries the first
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
    """Mirror descent's D = G, over ||G||_q where `normalised`; work (2, m)."""
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
    """out = sgn(x) |x|^exponent; log of its largest entry, > LONGEST for no float."""
    top = exponentials.power(x, exponent, work[0], work[1])
    if top <= LONGEST:
        for j in range(x.size):
            out[j] = math.copysign(work[1, j], x[j])
    return top


@numba.njit
def sign_momentum(rule, G, top, m, logs, D):
    """Signum and Lion: D = sgn(beta_1 m + (1 - beta_1) G), m with the log logs[0]."""
    copy(m, D)
    log_mixed = mix(D, logs[0], rule.first_mix, G, top, 1.0 - rule.first_mix)
    logs[0] = mix(m, logs[0], rule.momentum, G, top, 1.0 - rule.momentum)
    sign(D, D)
    return 0.0 if log_mixed > -math.inf else -math.inf


@numba.njit(fastmath=REORDER)
def quotient(m, m_log, v, v_log, epsilon, D):
    """D = m / (sqrt(v) + epsilon) up to e^factor; 0 where v = epsilon = 0."""
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
    """log(1 - beta^{t+1}), the correction of a mean from zero, after step t."""
    if beta > 0.0:
        return math.log(-math.expm1((t + 1.0) * math.log(beta)))
    return 0.0


@numba.njit
def adaptive(rule, t, G, top, m, v, logs, D):
    """Adam, RMSprop and AdaGrad; m and v, with the logs (2,), move by one gradient."""
    beta = rule.momentum
    memory = rule.memory
    logs[0] = mix(m, logs[0], beta, G, top, 1.0 - beta)
    a, b = (1.0, 1.0) if rule.summed else (memory, 1.0 - memory)
    logs[1] = mix(v, logs[1], a, G, 2.0 * top, b, True)
    m_log = logs[0]
    v_log = logs[1]
    if rule.corrected:
        m_log -= correction(beta, t)
        v_log -= correction(memory, t)
    return quotient(m, m_log, v, v_log, rule.epsilon, D)
