"""The compiled loops: one trains W by any rule, one trains K and Q by simple rules."""

import math
from typing import Annotated, NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, softmax
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.compiled.threads import LAST, STEP, STOP
from lib.dynamics.in_coordinates import (
    codes,
    entrywise,
    graded_svd,
    gradients,
    preconditioners,
)
from lib.dynamics.in_coordinates.entrywise import copy
from lib.dynamics.in_coordinates.gradients import Graded

# If a function takes a whole State or Part, each call counts references to all arrays
# in it, which costs as much as a step. So functions that are called at every step are
# inlined, or take only the arrays that they need. Other functions with a single caller
# are inlined, too, unless only few rules need them, because numba optimises a function
# once by itself and once more in each caller. We write loops instead of numpy's
# argsort, outer, where and argmax, and instead of array assignments: numba would need
# more time to compile these than to compile all the rules.


class _Part(NamedTuple):
    """A matrix (d, e) that moves as a whole: W or a block of its rows, with e = d_z, or
    a factor K or Q of W, with e columns. `graded` is its negative gradient as a graded
    sum, G the mantissa of the sum, and D the direction. `first` and `second` are the
    moments, with their `logs`; in mirror descent `first` is the mirror image of W.
    `work` and `svd` are work space.
    """

    G: Annotated[np.ndarray, "d e"]
    D: Annotated[np.ndarray, "d e"]
    work: Annotated[np.ndarray, "two m"]
    first: Annotated[np.ndarray, "m"]
    second: Annotated[np.ndarray, "m"]
    logs: Annotated[np.ndarray, "two"]
    graded: Graded
    svd: graded_svd.Space


class _State(NamedTuple):
    """The state of an optimiser in one run, and its work space. `whole` is for W, and
    `block` for one block of its rows at a time. `momentum` is the running mean of
    gradients for spectral rules and rules with blocks, `looked` is Nesterov's
    look-ahead gradient, and `anchor` is the gradient at the anchor of variance
    reduction.
    """

    whole: _Part
    block: _Part
    momentum: Graded
    looked: Graded
    anchor: Graded
    sides: preconditioners.Sides


def part(n: int, d: int, e: int) -> _Part:
    """Return a Part for n samples and a matrix (d, e). Its logs are -inf, and all other
    entries are zero.
    """
    r = min(n, e)
    return gradients.zeros(_Part, n=n, d=d, e=e, r=r, m=d * e, two=2)


def state(rule: codes.Numbers, n: int, d: int, e: int) -> _State:
    """Return a State for n samples and W (d, e), of zeros except for logs of -inf."""
    block = part(n, d // int(rule.blocks), e)
    momentum, looked, anchor = (gradients.zeros(Graded, n=n, d=d) for _ in range(3))
    sides = gradients.zeros(preconditioners.Sides, d=d, e=e, two=2)
    return _State(
        whole=part(n, d, e),
        block=block,
        momentum=momentum,
        looked=looked,
        anchor=anchor,
        sides=sides,
    )


@numba.njit(inline="always")
def _seen(rule, s):
    """Return the graded sum from which the direction is computed: the gradient, or its
    momentum, which is updated first.
    """
    beta = rule.momentum
    seen = s.whole.graded
    if beta > 0.0:
        gradients.mix(s.momentum, beta, s.momentum, 1.0 - beta, s.whole.graded)
        seen = s.momentum
        if rule.nesterov:
            gradients.mix(s.looked, beta, s.momentum, 1.0 - beta, s.whole.graded)
            seen = s.looked
    return seen


@numba.njit(inline="always")
def _by_blocks(rule, graded, z, s, D):
    """Fill D (d, d_z) one block of rows at a time. Each block has logs of its own.
    Returns the log of the dual norm of the whole gradient, which is the sum of the dual
    norms of the blocks. `s` is the work space for one block.
    """
    height = len(s.D)
    value = -math.inf
    for first in range(0, len(D), height):
        rows = D[first : first + height]
        for i in range(len(z)):
            s.graded.logs[i] = graded.logs[i]
            copy(graded.b[i, first : first + height], s.graded.b[i])
        gradients.unit(s.graded)
        if rule.kind == codes.SPECTRAL:
            dual = graded_svd.direction(rule, s.graded, z, s.svd, rows)
        else:
            top = gradients.dense(s.graded, z, s.G)
            dual = entrywise.steepest(s.G.ravel(), top, rule.p, s.work, rows.ravel())
        value = exponentials.add_logs(value, dual)
    return value


@numba.njit(inline="always")
def _plain(rule, t, top, s):
    """Fill s.D from s.G, whose log is `top`, by an entrywise rule at step t. Returns
    the log of the factor by which s.D has to be multiplied, or -inf if nothing moves.
    """
    G = s.G.ravel()
    D = s.D.ravel()
    if rule.kind == codes.ENTRYWISE:
        value = entrywise.steepest(G, top, rule.p, s.work, D)
        if rule.normalised and value > -math.inf:
            return 0.0
        return value
    if rule.kind == codes.ADAPTIVE:
        return entrywise.adaptive(rule, t, G, top, s.first, s.second, s.logs, D)
    return entrywise.sign_momentum(rule, G, top, s.first, s.logs, D)


@numba.njit(inline="always")
def _direction(rule, t, z, answers, basis, S, s):
    """Fill s.whole.D by the rule at step t, from the graded sum s.whole.graded. Returns
    the log of the factor by which D has to be multiplied, or -inf if nothing moves. The
    natural gradient also needs the answers f_i (n,). AdaGrad with the full matrix also
    needs `basis` (r, d d_z) and the sum S (r, r).
    """
    w = s.whole
    kind = rule.kind
    if kind == codes.SPECTRAL or rule.blocks > 1.0:
        value = _by_blocks(rule, _seen(rule, s), z, s.block, w.D)
        if rule.signed:
            entrywise.sign(w.D.ravel(), w.D.ravel())
        if rule.normalised and value > -math.inf:
            return 0.0
        return value
    if kind == codes.NATURAL:
        return preconditioners.natural(rule, w.graded, z, answers, w.D)
    top = gradients.dense(w.graded, z, w.G)
    if kind == codes.MIRROR:
        return entrywise.pull(
            w.G.ravel(), top, rule.p, rule.normalised, w.work, w.D.ravel()
        )
    if kind == codes.FULL_ADAGRAD:
        return preconditioners.full_adagrad(
            w.G.ravel(), top, basis, S, w.logs, w.D.ravel()
        )
    if kind == codes.SHAMPOO:
        return preconditioners.shampoo(rule, w.G, top, s.sides, w.D)
    if kind == codes.SOAP:
        return preconditioners.soap(
            rule, t, w.G, top, s.sides, w.first, w.second, w.logs, w.D
        )
    return _plain(rule, t, top, w)


@numba.njit(inline="always")
def _batch(rule, t, graded, anchor):
    """Restrict `graded` to the batch of step t. With variance reduction, replace it by
    the gradient at the anchor plus the correction from this batch.
    """
    size = int(rule.batch)
    if size > 0:
        first = (t % (graded.logs.size // size)) * size
        if rule.reduced:
            if first == 0:
                copy(graded.b, anchor.b)
                copy(graded.logs, anchor.logs)
            gradients.reduce(anchor, graded, first, size)
        else:
            gradients.keep(graded, first, size)


@numba.njit(inline="always")
def _move(rule, t, shrink, length, D, image, work, W):
    """Move W, flat, to shrink W + length D, in place. For mirror descent, move the
    mirror `image` of W in this way instead. Returns the log of the largest absolute
    value in W or, if the rule has a radius, the log of the norm of W. This log can be
    NaN, and it can overlook an entry that is NaN. The records of such a run end at the
    first one that is not finite.
    """
    # Mirror descent moves the mirror image of W, and then computes W from it.
    if rule.kind == codes.MIRROR:
        moved = image
    else:
        moved = W
    for j in range(W.size):
        moved[j] = shrink * moved[j] + length * D[j]
    if rule.kind == codes.MIRROR:
        return entrywise.signed_power(moved, 1.0 / (rule.p - 1.0), work, W)
    largest = entrywise.largest(W)
    if rule.log_radius < math.inf and 0.0 < largest < math.inf:
        return _rescale(rule, t, largest, W)
    return entrywise.log(largest)


@numba.njit
def _rescale(rule, t, largest, W):
    """Scale W_{t+1}, flat and in place, into the ball of phase k = (t + 1) // every. If
    iteration t + 1 is the first one of a phase k > 0, scale W_{t+1} onto the sphere.
    `largest` is the largest absolute value in W. Returns the log of the norm of W, or
    inf if the radius or the factor of the scaling exceeds e^LOG_LONGEST.
    """
    phase = (t + 1) // int(rule.every)
    log_radius = rule.log_radius + phase * rule.log_growth
    total = 0.0
    for j in range(W.size):
        total += (W[j] / largest) ** 2
    log_norm = math.log(largest) + 0.5 * math.log(total)
    begins = phase > 0 and (t + 1) % int(rule.every) == 0
    if begins and not max(log_radius, log_radius - log_norm) <= LOG_LONGEST:
        return math.inf
    if begins or log_norm > log_radius:
        factor = math.exp(log_radius - log_norm)
        for j in range(W.size):
            W[j] *= factor
        return log_radius
    return log_norm


@numba.njit(inline="always")
def _lanes(problem):
    """Return lanes for the softmax, one per sample, with the scores of the head."""
    n, S, _ = problem.delta.shape
    lanes = softmax.empty_lanes(S + 1, n)
    copy(problem.scores, lanes.scores)
    return lanes


@numba.njit(inline="always")
def _record(problem, lanes, graded, G, W, path, logs):
    """Fill `path` (d, d_z) with W, and `logs` (2,) with log(L - L*) and log ||grad L||
    over all samples. G (d, d_z) is work space.
    """
    copy(W, path)
    top = gradients.dense(graded, problem.z, G)
    size = math.sqrt(entrywise.dot(G.ravel(), G.ravel()))
    logs[0] = softmax.log_gap(0, len(problem.z), lanes, problem.logistic, True)
    logs[1] = entrywise.log_product(top, entrywise.log(size))


@numba.njit(nogil=True, cache=True)
def run_job(problem, rule, times, W, path, logs, s, signals):
    """Train W (d, d_z) in place, and return early once `signals` say so. At the
    iterations `times` (k,), the loop fills path (k, d, d_z) with W, and logs (k, 2)
    with log(L - L*) and log ||grad L||. Returns the status and the last iteration. The
    status is STALLED if the gradient over all samples is zero, and DIVERGED if a step
    or W leaves the range of float64. `s` is the rule's State, which is changed.
    """
    n, _, d = problem.delta.shape
    lanes = _lanes(problem)
    image = np.zeros(d)
    w = s.whole
    answers = lanes.lane[softmax.ANSWER]
    # Each sample gets a scale of its own, as if it were a run, so that no sample
    # underflows.
    scales = np.zeros((2, n))
    basis = preconditioners.span(problem, rule.kind == codes.FULL_ADAGRAD)
    S = np.zeros((len(basis), len(basis)))
    record = 0
    if rule.kind == codes.MIRROR and not (
        entrywise.signed_power(W.ravel(), rule.p - 1.0, w.work, w.first) <= LOG_LONGEST
    ):
        return DIVERGED, 0
    signals[LAST] = times[-1]
    for t in range(times[-1] + 1):
        signals[STEP] = t
        if signals[STOP] != 0:
            break
        gradients.margins(problem, W, image, lanes.margins)
        softmax.slopes(lanes, 1, problem.logistic, True, scales)
        gradients.pulls(problem, lanes.c, scales[0], w.graded)
        if record < times.size and times[record] == t:
            _record(problem, lanes, w.graded, w.G, W, path[record], logs[record])
            record += 1
        if w.graded.logs.max() == -math.inf:
            return STALLED, t
        if record == times.size:
            break
        _batch(rule, t, w.graded, s.anchor)
        lacks = _direction(rule, t, problem.z, answers, basis, S, s)
        log_eta = rule.log_step_size
        if rule.decay != 0.0:
            log_eta -= rule.decay * math.log(t + 1.0)
        step = entrywise.log_product(lacks, log_eta)
        shrink = 1.0
        if rule.weight_decay > 0.0:
            shrink -= rule.weight_decay * math.exp(log_eta)
        if not step < LOG_LONGEST:  # false for NaN
            return DIVERGED, t
        length = math.exp(step)
        moved = _move(rule, t, shrink, length, w.D.ravel(), w.first, w.work, W.ravel())
        if not moved <= LOG_LONGEST:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]


@numba.njit(inline="always")
def _factor_direction(rule, t, graded, z, s):
    """Fill s.D (d, m), the direction of a factor, from the graded sum with the rows z
    (n, m). Returns the log of the factor by which D has to be multiplied, or -inf if
    nothing moves.
    """
    if rule.kind == codes.SPECTRAL:
        value = graded_svd.direction(rule, graded, z, s.svd, s.D)
        if rule.normalised and value > -math.inf:
            return 0.0
        return value
    return _plain(rule, t, gradients.dense(graded, z, s.G), s)


@numba.njit
def _move_factor(factor, D, step):
    """Add e^step D to `factor`, flat and in place. Returns the log of the factor's
    largest absolute value, or 0 if this log is negative.
    """
    for j in range(factor.size):
        factor[j] += math.exp(step) * D[j]
    return math.log(max(entrywise.largest(factor), 1.0))


@numba.njit(nogil=True, cache=True)
def run_factors(problem, rule, times, K, Q, K_path, Q_path, logs, of_K, of_Q, signals):
    """Train W = K Q^T by moving K and Q in place, and return early once `signals` say
    so. At the iterations `times` (k,), the loop fills K_path (k, d, m), Q_path (k, d_z,
    m), and logs (k,) with log(L - L*). Returns the status and the last iteration. The
    status is STALLED if neither factor moves, and DIVERGED if a step or a factor leaves
    the range of float64. `of_K` and `of_Q` are the Parts of the factors, which are
    changed.
    """
    n, _, d = problem.delta.shape
    lanes = _lanes(problem)
    image = np.zeros(d)
    scales = np.zeros((2, n))
    record = 0
    graded = Graded(np.zeros((n, d)), np.full(n, -math.inf))
    signals[LAST] = times[-1]
    for t in range(times[-1] + 1):
        signals[STEP] = t
        if signals[STOP] != 0:
            break
        gradients.margins(problem, K @ Q.T, image, lanes.margins)
        softmax.slopes(lanes, 1, problem.logistic, True, scales)
        gradients.pulls(problem, lanes.c, scales[0], graded)
        if times[record] == t:
            copy(K, K_path[record])
            copy(Q, Q_path[record])
            logs[record] = softmax.log_gap(0, n, lanes, problem.logistic, True)
            record += 1
        if record == times.size:
            break
        # -grad_K L = sum e^{s_i} b_i (Q^T z_i)^T, -grad_Q L = sum e^{s_i} z_i (K^T b_i)^T
        turned = Graded(problem.z.copy(), graded.logs.copy())
        gradients.unit(turned)
        of_z = preconditioners.product(problem.z, Q)
        of_b = preconditioners.product(graded.b, K)
        a = _factor_direction(rule, t, graded, of_z, of_K)
        b = _factor_direction(rule, t, turned, of_b, of_Q)
        if max(a, b) == -math.inf:
            return STALLED, t
        more = rule.log_step_size - rule.decay * math.log(t + 1.0)
        if not max(a, b) + more < LOG_LONGEST:  # false for NaN
            return DIVERGED, t
        size_K = _move_factor(K.ravel(), of_K.D.ravel(), a + more)
        size_Q = _move_factor(Q.ravel(), of_Q.D.ravel(), b + more)
        if not max(size_K, size_Q) <= LOG_LONGEST / 2:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]
