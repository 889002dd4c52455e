"""Directions made entry by entry: steepest descent in l_p norms, Adam and its kin, sign momentum.

Every function fills D (flat) from the mantissa G and its log `top`, and returns the log of the
factor that D lacks; -inf where nothing moves. Entries with 0/0 do not move.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from lib.compiled.status import LONGEST
from papers.beyond.engine import scaled
from papers.beyond.engine import update as o

_REORDER = {"reassoc", "contract", "nsz"}


@numba.njit
def copy(x, out):
    """out = x, flat."""
    for j in range(x.size):
        out[j] = x[j]


@numba.njit
def sign(G, D):
    """D = sgn(G), 0 for 0."""
    for j in range(G.size):
        D[j] = 1.0 if G[j] > 0.0 else (-1.0 if G[j] < 0.0 else 0.0)


@numba.njit
def first_largest(G, D):
    """D = the sign of G's largest entry there, zero elsewhere; of several the first."""
    place, top = 0, 0.0
    for j in range(G.size):
        D[j] = 0.0
        if abs(G[j]) > top:
            place, top = j, abs(G[j])
    D[place] = math.copysign(1.0, G[place])


@numba.njit(fastmath=_REORDER)
def steepest(G, top, p, work, D):
    """The D with ||D||_p <= 1 and largest <G, D>, and the log of ||G||_q, its value.

    work (2, m). Entries of G are divided by the largest first, so that no power overflows.
    """
    size = scaled.largest(G)
    if size == 0.0 or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    total = 0.0
    if p == math.inf:
        sign(G, D)
        for j in range(G.size):
            total += abs(G[j]) / size
        return top + math.log(size) + math.log(total)
    if p == 1.0:
        first_largest(G, D)
        return top + math.log(size)
    q = p / (p - 1.0)
    for j in range(G.size):
        D[j] = G[j] / size
    if p == 2.0:
        for j in range(G.size):
            total += D[j] * D[j]
        length = math.sqrt(total)
        for j in range(G.size):
            D[j] /= length
        return top + math.log(size) + math.log(length)
    exponentials.power(D, q - 1.0, work[0], work[1])
    for j in range(G.size):
        total += work[1, j] * abs(D[j])
    over = total ** (-1.0 / p)
    for j in range(G.size):
        D[j] = math.copysign(work[1, j] * over, D[j])
    return top + math.log(size) + math.log(total) / q


@numba.njit(fastmath=_REORDER)
def pull(G, top, p, normalised, work, D):
    """Mirror descent's D = G up to e^factor, divided by ||G||_q where `normalised`; work (2, m)."""
    size, total = scaled.largest(G), 0.0
    if size == 0.0 or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    for j in range(G.size):
        D[j] = G[j] / size
    if not normalised:
        return top + math.log(size)
    q = p / (p - 1.0)
    exponentials.power(D, q, work[0], work[1])
    for j in range(G.size):
        total += work[1, j]
    return -math.log(total) / q


@numba.njit
def signed_power(x, exponent, work, out):
    """out = sgn(x) |x|^exponent, and the log of its largest entry, above LONGEST where no float."""
    top = exponentials.power(x, exponent, work[0], work[1])
    if top <= LONGEST:
        for j in range(x.size):
            out[j] = math.copysign(work[1, j], x[j])
    return top


@numba.njit
def sign_momentum(rule, G, top, first, first_log, D):
    """Signum and Lion: D = sgn(beta_1 m + (1 - beta_1) G); returns (log factor, new log of m)."""
    a, beta = rule[o.FIRST_MIX], rule[o.MOMENTUM]
    copy(first, D)
    log_mixed = scaled.mix(D, first_log, a, G, top, 1.0 - a)
    new = scaled.mix(first, first_log, beta, G, top, 1.0 - beta)
    sign(D, D)
    return (0.0 if log_mixed > -math.inf else -math.inf), new


@numba.njit(fastmath=_REORDER)
def quotient(m, m_log, v, v_log, epsilon, D):
    """D = m / (sqrt(v) + epsilon) up to e^factor; an entry with v = 0 and epsilon = 0 is 0."""
    root_log, epsilon_log = 0.5 * v_log, scaled.log(epsilon)
    top = max(root_log, epsilon_log)
    if m_log == -math.inf or top == -math.inf:
        D[:] = 0.0
        return -math.inf
    of_root = math.exp(root_log - top) if root_log > -math.inf else 0.0
    added = math.exp(epsilon_log - top) if epsilon_log > -math.inf else 0.0
    for j in range(m.size):
        below = of_root * math.sqrt(v[j]) + added
        D[j] = m[j] / below if below > 0.0 else 0.0
    return m_log - top


class Moments(NamedTuple):
    """first, second (m,): mantissas of m and v, and logs (2,) of what they lack."""

    first: np.ndarray
    second: np.ndarray
    logs: np.ndarray


@numba.njit
def no_moments(size):
    """Moments of nothing, of so many entries."""
    return Moments(np.zeros(size), np.zeros(size), np.full(2, -math.inf))


@numba.njit
def moments(rule, G, top, first, second, logs):
    """Move m and v by one gradient; logs (2,) their logs."""
    beta, memory, summed = rule[o.MOMENTUM], rule[o.MEMORY], rule[o.SUMMED] != 0.0
    logs[0] = scaled.mix(first, logs[0], beta, G, top, 1.0 - beta)
    a, b = (1.0, 1.0) if summed else (memory, 1.0 - memory)
    logs[1] = scaled.mix(second, logs[1], a, G, 2.0 * top, b, True)


@numba.njit
def correction(beta, t):
    """log(1 - beta^{t+1}), the correction of a mean that began at zero, after step t = 0, 1, ..."""
    return math.log(-math.expm1((t + 1.0) * math.log(beta))) if beta > 0.0 else 0.0


@numba.njit
def adaptive(rule, t, G, top, kept, D):
    """Adam, RMSprop and AdaGrad; kept: their Moments."""
    first, second, logs = kept
    moments(rule, G, top, first, second, logs)
    m_log, v_log = logs[0], logs[1]
    if rule[o.CORRECTED] != 0.0:
        m_log -= correction(rule[o.MOMENTUM], t)
        v_log -= correction(rule[o.MEMORY], t)
    return quotient(first, m_log, second, v_log, rule[o.EPSILON], D)
