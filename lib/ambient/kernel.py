"""The compiled loop in the tokens' own coordinates; at present its one rule is l_p mirror descent.

A parameter (W, flat, or the head v) is kept as its mirror image U = |W|^{p-1} sgn(W), which one
iteration moves by -eta times the gradient: one power 1/(p-1) per entry gives W back, one power q
per entry the gradient's dual norm. Such rules see the coordinates, so W stays in the given ones,
and everything is linear in it: margins A vec(W) with the rows A of `coordinates.constraint_rows`,
gradient A^T c. Softmax and loss are those of `lib.compiled.softmax`.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, softmax
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED

_REORDER = {"reassoc", "contract", "nsz"}  # sums in any order, so that they fill vector registers
SOURCES = stamp(__file__)
NEGLIGIBLE_RISE = 1e-12  # of the loss between two iterations: below it is rounding


class Problem(NamedTuple):
    """A (runs, m, D) rows of the margins, signed (runs, T n, d) rows y_i x_{i,t} of the scores, each
    with the reference token first and a token's samples together; n samples a run."""

    A: np.ndarray
    signed: np.ndarray
    n: int
    logistic: bool
    joint: bool


class State(NamedTuple):
    """By job: W (jobs, D) and the head v (jobs, d), and their mirror images U and V; moved in place."""

    U: np.ndarray
    V: np.ndarray
    W: np.ndarray
    v: np.ndarray


class Records(NamedTuple):
    """What is filled, by job, NaN after an early end: path (jobs, k, D), head (jobs, k, d), logs (jobs, k, 3).

    rise: the first iteration whose loss exceeds the last one's, -1 if none. logs: log(L - L*)
    (joint: log L), log ||grad_W L||_q, log ||grad_v L||_q.
    """

    status: np.ndarray
    ended: np.ndarray
    rise: np.ndarray
    path: np.ndarray
    head: np.ndarray
    logs: np.ndarray


class Side(NamedTuple):
    """A parameter's work space: its rows (T' n, D), its outputs (margins or scores) and their pull,
    as columns of the softmax and flat, and its direction (D,) with two powers of it (2, D)."""

    rows: np.ndarray
    outputs: np.ndarray
    flat: np.ndarray
    flat_pull: np.ndarray
    direction: np.ndarray
    powers: np.ndarray


@numba.njit
def _side(rows, n, columns):
    m, D = rows.shape
    return Side(
        rows, np.zeros((m // n, columns)), np.zeros(m), np.zeros(m), np.zeros(D), np.zeros((2, D))
    )


@numba.njit(fastmath=_REORDER)
def _multiply(A, w, out):
    """out = A w, four rows at a time; A (m, D)."""
    m = out.size
    for i in range(0, m - m % 4, 4):
        a, b, d, e = 0.0, 0.0, 0.0, 0.0
        for j in range(w.size):
            a += A[i, j] * w[j]
            b += A[i + 1, j] * w[j]
            d += A[i + 2, j] * w[j]
            e += A[i + 3, j] * w[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = a, b, d, e
    for i in range(m - m % 4, m):
        total = 0.0
        for j in range(w.size):
            total += A[i, j] * w[j]
        out[i] = total


@numba.njit(fastmath=_REORDER)
def _pull(A, c, out):
    """out = A^T c, four rows at a time; A (m, D)."""
    m = c.size
    out[:] = 0.0
    for i in range(0, m - m % 4, 4):
        a, b, d, e = c[i], c[i + 1], c[i + 2], c[i + 3]
        for j in range(out.size):
            out[j] += a * A[i, j] + b * A[i + 1, j] + d * A[i + 2, j] + e * A[i + 3, j]
    for i in range(m - m % 4, m):
        for j in range(out.size):
            out[j] += c[i] * A[i, j]


@numba.njit
def _plus(log_value, log_scale):
    """log_value + log_scale, -inf where the value is zero: 0/0 = 0, no gradient and no step."""
    return log_value + log_scale if log_value > -math.inf else -math.inf


@numba.njit(error_model="numpy")
def power(x, exponent, work, out):
    """out = |x|^exponent, exponent > 0; (m,) each. Returns the log of the largest; above LONGEST, no `out`.

    Square roots and products where they do; otherwise e^(exponent log|x|), whose relative error is
    about exponent |log x| 2^-52.
    """
    if exponent == 0.5 or exponent == 1.0 or exponent == 1.5 or exponent == 2.0:
        largest = 0.0
        for i in range(x.size):
            largest = max(largest, abs(x[i]))
        top = exponent * math.log(largest) if largest > 0.0 else -math.inf
        if top <= LONGEST:
            for i in range(x.size):
                size = abs(x[i])
                once, again = size if exponent >= 1.0 else 1.0, size if exponent == 2.0 else 1.0
                out[i] = once * again * (math.sqrt(size) if exponent % 1.0 == 0.5 else 1.0)
        return top
    exponentials.log(x, exponent, work)
    top = -math.inf
    for i in range(x.size):
        top = max(top, work[i])
    if top <= LONGEST:  # false for NaN
        exponentials.exp(work, out)
    return top


@numba.njit
def _direction(side, pull, n, q):
    """Fill the direction A^T c up to a positive factor, c being the columns `pull`.

    Returns the logs of that factor and of ||A^T c||_q, both -inf for zero. The factor is the
    largest entry, so that no power of an entry overflows: entries are at most 1.
    """
    out, powers = side.direction, side.powers
    softmax.gather(0, n, pull, side.flat_pull)
    _pull(side.rows, side.flat_pull, out)
    largest = 0.0
    for j in range(out.size):
        largest = max(largest, abs(out[j]))
    if largest == 0.0:
        return -math.inf, -math.inf
    for j in range(out.size):
        out[j] /= largest
    power(out, q, powers[0], powers[1])
    total = 0.0
    for j in range(out.size):
        total += powers[1, j]
    return math.log(largest), math.log(largest) + math.log(total) / q


@numba.njit
def _outputs(side, W, n):
    """Margins or scores of the parameter W, as columns."""
    _multiply(side.rows, W, side.flat)
    softmax.scatter(0, n, side.flat, side.outputs)


@numba.njit
def _move(step, side, exponent, U, W):
    """U += step direction, then W = sgn(U) |U|^exponent; returns the log of W's largest entry."""
    powers = side.powers
    for j in range(U.size):
        U[j] += step * side.direction[j]
    top = power(U, exponent, powers[0], powers[1])
    if top <= LONGEST:
        for j in range(U.size):
            W[j] = math.copysign(powers[1, j], U[j])
    return top


@numba.njit
def _loss(at, n, logistic):
    """L from the columns of one run."""
    loss = 0.0
    for i in range(n):
        f, log_slope = at.each[softmax.F, i], at.each[softmax.LOG_SLOPE, i]
        loss += (-log_slope - f if logistic else math.exp(min(-f, LONGEST))) / n
    return loss


@numba.njit
def _train_run(problem, run, rule, times, state, record, job):
    """Train one job in place and fill its records; returns (status, last iteration).

    rule: (p, step_size, 1.0 if normalised). times: what to record, ascending.
    """
    n, logistic, joint = problem.n, problem.logistic, problem.joint
    U, V, W, v = state.U[job], state.V[job], state.W[job], state.v[job]
    p, log_eta, normalised = rule[0], math.log(rule[1]), rule[2] != 0.0
    q, exponent = p / (p - 1.0), 1.0 / (p - 1.0)
    at = softmax.space(problem.signed.shape[1] // n, 1, n)
    columns = at.w.shape[1]
    weights, head = _side(problem.A[run], n, columns), _side(problem.signed[run], n, columns)
    k, last = 0, math.inf
    for t in range(times[-1] + 1):
        _outputs(weights, W, n)
        if joint or t == 0:
            _outputs(head, v, n)
        softmax.slopes(at, weights.outputs, head.outputs, n, logistic, not joint)
        scale, scale_v = at.scales[0, 0], at.scales[1, 0]
        log_factor, log_size = _direction(weights, at.c, n, q)
        log_factor_v, log_size_v = -math.inf, -math.inf
        if joint:
            log_factor_v, log_size_v = _direction(head, at.push, n, q)
        loss = _loss(at, n, logistic)
        if record.rise[job] < 0 and loss > last + NEGLIGIBLE_RISE * max(1.0, last):
            record.rise[job] = t
        last = loss
        if k < times.size and times[k] == t:
            record.path[job, k], record.head[job, k] = W, v
            log_gap = softmax.log_gap(at, 0, n, head.outputs, logistic, not joint)
            log_norms = _plus(log_size, scale), _plus(log_size_v, scale_v)
            record.logs[job, k] = (log_gap, log_norms[0], log_norms[1])
            k += 1
        if log_size == -math.inf and log_size_v == -math.inf:
            return STALLED, t
        # Normalised, the scale cancels before it is added: next to a scale of -1e50 nothing else
        # would survive.
        step = log_eta + _plus(log_factor, -log_size if normalised else scale)
        step_v = log_eta + _plus(log_factor_v, -log_size_v if normalised else scale_v)
        if not (step < LONGEST and step_v < LONGEST):  # false for NaN
            return DIVERGED, t
        top = _move(math.exp(step), weights, exponent, U, W)
        if joint:
            top = max(top, _move(math.exp(step_v), head, exponent, V, v))
        if not top <= LONGEST:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]


@numba.njit(parallel=True, cache=True)
def train(problem, rules, times, state, record, sources=SOURCES):
    """Train every run with every rule and fill the Records; job j is run j // rules with rule j % rules.

    rules (rules, 3); times (rules, k): one row per rule, padded with -1.
    """
    kinds = len(rules)
    for job in numba.prange(len(state.U)):
        kind = job % kinds
        own = times[kind][times[kind] >= 0]
        record.status[job], record.ended[job] = _train_run(
            problem, job // kinds, rules[kind], own, state, record, job
        )
