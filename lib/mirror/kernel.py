"""The compiled loop of l_p mirror descent.

The loop stores each parameter (W, flat, or the head v) together with its mirror image U
= |W|^{p-1} sgn(W). An iteration moves U by -eta times the gradient. Then the power
1/(p-1) of the entries of U gives W. W stays in the given coordinates, in which the
margins are A vec(W) with the rows A of `coordinates.constraint_rows`, and minus the
gradient is A^T c, with the c that `softmax.slopes` fills. For large problems A is not
formed: the margins are computed as <delta, W z>, and minus the gradient as the sum of c
delta z^T.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials, softmax, threads
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.compiled.threads import LAST, STEP, STOP

# The compiler may reorder sums, so that they fill vector registers.
_REORDER = {"reassoc", "contract", "nsz"}
NEGLIGIBLE_RISE = 1e-12  # a smaller relative rise of the loss is rounding error


@numba.njit(fastmath=_REORDER)
def _multiply(A: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (m,) with A w, four rows at a time, for A (m, D) and w (D,)."""
    m = out.size
    for i in range(0, m - m % 4, 4):
        a = 0.0
        b = 0.0
        d = 0.0
        e = 0.0
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
def _pull(A: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (D,) with A^T c, four rows at a time, for A (m, D) and c (m,)."""
    m = c.size
    out[:] = 0.0
    for i in range(0, m - m % 4, 4):
        a = c[i]
        b = c[i + 1]
        d = c[i + 2]
        e = c[i + 3]
        for j in range(out.size):
            out[j] += a * A[i, j] + b * A[i + 1, j] + d * A[i + 2, j] + e * A[i + 3, j]
    for i in range(m - m % 4, m):
        for j in range(out.size):
            out[j] += c[i] * A[i, j]


@numba.njit
def _margins(problem: "Rows", W: np.ndarray, of_sample: tuple, out: np.ndarray) -> None:
    """Fill `out` with the margins <delta, W z> of all pairs, in the order (T-1, n).

    W is flat, in the order (d, d_z). `problem` holds the data of one run, without the
    runs axis. `of_sample` holds three arrays of work space for one sample, of shapes
    (d,), (T-1,) and (d,). Masked tokens get the margin `softmax.FAR`.
    """
    A, delta, z, hidden = problem.A, problem.delta, problem.z, problem.hidden
    if len(A) > 0:
        _multiply(A, W, out)
    else:
        image, row, _ = of_sample
        W_matrix = W.reshape((image.size, z.shape[1]))
        for i in range(len(z)):
            _multiply(W_matrix, z[i], image)
            _multiply(delta[i], image, row)
            for t in range(row.size):
                out[t * len(z) + i] = row[t]
    for m in range(hidden.size):
        if hidden[m]:
            out[m] = softmax.FAR  # which gives a masked token the weight zero


@numba.njit(fastmath=_REORDER)
def _sum_of_pulls(
    problem: "Rows", c: np.ndarray, of_sample: tuple, out: np.ndarray
) -> None:
    """Fill `out`, in the order (d, d_z), with the sum of c delta z^T over all pairs.

    c is flat, in the order (T-1, n). `problem` and `of_sample` are as in `_margins`.
    """
    A, delta, z = problem.A, problem.delta, problem.z
    if len(A) > 0:
        _pull(A, c, out)
        return
    _, row, pulled = of_sample
    width = z.shape[1]
    out[:] = 0.0
    for i in range(len(z)):
        for t in range(row.size):
            row[t] = c[t * len(z) + i]
        _pull(delta[i], row, pulled)
        for j in range(pulled.size):
            for k in range(width):
                out[j * width + k] += pulled[j] * z[i, k]


@numba.njit
def _plus(log_value: float, log_scale: float) -> float:
    """Return log_value + log_scale, or -inf if log_value is -inf or NaN.

    This makes the step zero if the gradient is zero, even if the scale is infinite.
    """
    if log_value > -math.inf:
        return log_value + log_scale
    return -math.inf


@numba.njit
def _to_unit(out: np.ndarray, q: float, work: np.ndarray) -> tuple[float, float]:
    """Divide `out` (D,) in place by its largest |entry|.

    Returns the log of this largest |entry|, and the log of ||out||_q before the
    division. If `out` is zero, it stays zero, and both logs are -inf. `work` has the
    shape (2, D).
    """
    largest = 0.0
    for j in range(out.size):
        largest = max(largest, abs(out[j]))
    if largest == 0.0:
        return -math.inf, -math.inf
    for j in range(out.size):
        out[j] /= largest
    exponentials.power(out, q, work[0], work[1])
    total = 0.0
    for j in range(out.size):
        total += work[1, j]
    return math.log(largest), math.log(largest) + math.log(total) / q


@numba.njit
def _log_step(
    eta: float, log_largest: float, log_size: float, log_scale: float, normalised: bool
) -> float:
    """Return the log of the factor of a step, for the direction from `_to_unit`.

    `log_largest` and `log_size` are the values that `_to_unit` returns for the gradient
    without its scale, and `log_scale` is the log of this scale. The result is -inf if
    the gradient is zero.
    """
    # In a normalised step the scale cancels. So it must not be added first: next to a
    # log_scale of -1e50, rounding would remove all other terms.
    if normalised:
        return math.log(eta) + _plus(log_largest, -log_size)
    return math.log(eta) + _plus(log_largest, log_scale)


@numba.njit
def _move(
    step: float,
    direction: np.ndarray,
    exponent: float,
    U: np.ndarray,
    W: np.ndarray,
    work: np.ndarray,
) -> float:
    """Add step times direction to U, then set W = sgn(U) |U|^exponent, both in place.

    Returns the log of the largest |entry| of the new W. If this log exceeds
    LOG_LONGEST, W is left as it was. `direction`, U and W have the shape (D,), and
    `work` has the shape (2, D).
    """
    for j in range(U.size):
        U[j] += step * direction[j]
    log_top = exponentials.power(U, exponent, work[0], work[1])
    if log_top <= LOG_LONGEST:
        for j in range(U.size):
            W[j] = math.copysign(work[1, j], U[j])
    return log_top


@numba.njit
def _copy(values: np.ndarray, out: np.ndarray) -> None:
    """Copy values (D,) to `out`; numba needs seconds to compile a slice assignment."""
    for j in range(values.size):
        out[j] = values[j]


@numba.njit
def _mean_loss(lane: np.ndarray, n: int, logistic: bool) -> float:
    """Return the mean loss over the n samples, from the rows that `slopes` has filled.

    An exponential loss above e^LOG_LONGEST counts as e^LOG_LONGEST.
    """
    loss = 0.0
    for i in range(n):
        f = lane[softmax.ANSWER, i]
        log_slope = lane[softmax.LOG_SLOPE, i]
        loss += (-log_slope - f if logistic else math.exp(min(-f, LOG_LONGEST))) / n
    return loss


@numba.njit
def _rose(loss: float, previous_loss: float) -> bool:
    """Return whether the loss rose by more than rounding errors explain."""
    return loss > previous_loss + NEGLIGIBLE_RISE * max(1.0, previous_loss)


@numba.njit(forceinline=True)
def _tie(hidden: np.ndarray, n: int, scores: np.ndarray) -> None:
    """Give each masked token exactly the score of its sample's opt token.

    `scores` (n T,) are ordered by token first, then by sample, and the opt token is
    token 0.
    """
    for m in range(hidden.size):
        if hidden[m]:
            scores[m + n] = scores[m % n]


class Rows(NamedTuple):
    """The data of all runs, with the opt token of each sample first.

    The margins are A vec(W), and the scores are signed v. For the loop, all rows have
    to be ordered by token first, then by sample.

    Parameters
    ----------
    A : ndarray (runs, n (T - 1), d d_z)
        The rows of the margins. If they are not formed, the shape is (runs, 0, 0).
    delta : ndarray (runs, n, T - 1, d)
        The opt token minus each other token.
    z : ndarray (runs, n, d_z)
        The queries.
    signed : ndarray (runs, n T, d)
        Rows y_i x_{i,t} of the scores.
    n : int
        Number of samples.
    logistic : bool
        Whether the loss is the logistic one; otherwise it is the exponential loss.
    joint : bool
        Whether the head is trained too; otherwise it stays fixed.
    hidden : ndarray of bool (runs, n (T - 1))
        Whether a margin belongs to a masked token; such margins stay at `softmax.FAR`.
        If no token is masked, the shape is (runs, 0).
    """

    A: np.ndarray
    delta: np.ndarray
    z: np.ndarray
    signed: np.ndarray
    n: int
    logistic: bool
    joint: bool
    hidden: np.ndarray


@numba.njit(nogil=True, cache=True)
def _train_run(
    problem: Rows,
    rule: np.ndarray,
    times: np.ndarray,
    parameters: tuple,
    records: tuple,
    signals: np.ndarray,
) -> tuple[int, int, int]:
    """Train one run in place, and return early once `signals` say so.

    The arguments are those of `run_jobs` for one job, without the first axis. `rule` is
    (p, step_size, 1.0 if normalised). Returns the status, the last iteration, and the
    first iteration at which the loss rose by more than NEGLIGIBLE_RISE (-1 if it never
    did). No step is taken after the last time. If STOP ends the run early, the function
    also returns COMPLETED and the last time; the caller then discards the run.
    """
    signed, n, logistic, joint = problem[3:7]
    W, v, U, V = parameters
    path, head, logs = records
    T = signed.shape[0] // n
    p = rule[0]
    eta = rule[1]
    normalised = rule[2] != 0.0
    q = p / (p - 1.0)
    exponent = 1.0 / (p - 1.0)
    work = softmax.empty_lanes(T, n)
    scales = np.zeros((2, 1))
    all_margins = np.zeros((1, (T - 1) * n))
    all_scores = np.zeros((1, T * n))
    flat_margins = all_margins[0]
    flat_scores = all_scores[0]
    flat_c = np.zeros((T - 1) * n)
    flat_push = np.zeros(T * n)
    down = np.zeros(W.size)
    powers = np.zeros((2, W.size))
    down_v = np.zeros(v.size)
    powers_v = np.zeros((2, v.size))
    of_sample = (np.zeros(v.size), np.zeros(T - 1), np.zeros(v.size))
    record = 0
    rise = -1
    previous_loss = math.inf
    signals[LAST] = times[-1]
    for t in range(times[-1] + 1):
        signals[STEP] = t
        if signals[STOP] != 0:
            break
        _margins(problem, W, of_sample, flat_margins)
        softmax.scatter(0, n, all_margins, work.margins)
        if joint or t == 0:
            _multiply(signed, v, flat_scores)
            _tie(problem.hidden, n, flat_scores)
            softmax.scatter(0, n, all_scores, work.scores)
        softmax.slopes(work, n, logistic, not joint, scales)
        scale = scales[0, 0]
        push_scale = scales[1, 0]
        softmax.gather(0, n, work.c, flat_c)
        _sum_of_pulls(problem, flat_c, of_sample, down)
        log_factor, log_size = _to_unit(down, q, powers)
        log_factor_v = -math.inf
        log_size_v = -math.inf
        if joint:
            softmax.gather(0, n, work.push, flat_push)
            _pull(signed, flat_push, down_v)
            log_factor_v, log_size_v = _to_unit(down_v, q, powers_v)

        loss = _mean_loss(work.lane, n, logistic)
        if rise < 0 and _rose(loss, previous_loss):
            rise = t
        previous_loss = loss

        if record < times.size and times[record] == t:
            _copy(W, path[record])
            _copy(v, head[record])
            logs[record, 0] = softmax.log_gap(0, n, work, logistic, not joint)
            logs[record, 1] = _plus(log_size, scale)
            logs[record, 2] = _plus(log_size_v, push_scale)
            record += 1
        if log_size == -math.inf and log_size_v == -math.inf:
            return STALLED, t, rise
        if t == times[-1]:
            break
        log_step = _log_step(eta, log_factor, log_size, scale, normalised)
        log_step_v = _log_step(eta, log_factor_v, log_size_v, push_scale, normalised)
        if not (log_step < LOG_LONGEST and log_step_v < LOG_LONGEST):  # false for NaN
            return DIVERGED, t, rise
        log_top = _move(math.exp(log_step), down, exponent, U, W, powers)
        if joint:
            log_top_v = _move(math.exp(log_step_v), down_v, exponent, V, v, powers_v)
            log_top = max(log_top, log_top_v)
        if not log_top <= LOG_LONGEST:
            return DIVERGED, t + 1, rise
    return COMPLETED, times[-1], rise


def run_jobs(
    problem: Rows,
    rules: np.ndarray,
    times: np.ndarray,
    parameters: tuple,
    records: tuple,
) -> np.ndarray:
    """Train every run with every rule, on all cores.

    There is one job per run and rule: job j trains run j // rules by rule j % rules.

    Parameters
    ----------
    problem : Rows
        The margins and scores of all runs.
    rules : ndarray (rules, 3)
        For each rule: p, the step size, and 1.0 if the step is normalised (otherwise
        0.0).
    times : ndarray of int (rules, k)
        Iterations to record: one row per rule, padded with -1.
    parameters : tuple of ndarray
        W (jobs, D), the head v (jobs, d), and the mirror images U of W and V of v. All
        four are changed in place.
    records : tuple of ndarray
        Arrays that are filled at the k times: path (jobs, k, D) with W, head (jobs, k,
        d) with v, and logs (jobs, k, 3). The columns of logs are log(L - L*) (log L in
        joint training), log ||grad_W L||_q and log ||grad_v L||_q, with 1/p + 1/q = 1;
        the last one is -inf if the head stays fixed. Times after the end of a run that
        stalled or diverged are not filled.

    Returns
    -------
    ndarray of int (3, jobs)
        For each job: the status, the last iteration, and the first iteration at which
        the loss rose by more than NEGLIGIBLE_RISE times max(1, previous loss). The last
        number is -1 if this never happened.
    """
    A, delta, z, signed, n, logistic, joint, hidden = problem
    W, v, U, V = parameters
    path, head_path, logs = records
    kinds = len(rules)
    calls = []
    for j in range(len(U)):
        run = j // kinds
        kind = j % kinds
        when = times[kind][times[kind] >= 0]
        rows = Rows(
            A=A[run],
            delta=delta[run],
            z=z[run],
            signed=signed[run],
            n=n,
            logistic=logistic,
            joint=joint,
            hidden=hidden[run],
        )
        moved = (W[j], v[j], U[j], V[j])
        filled = (path[j], head_path[j], logs[j])
        calls.append((rows, rules[kind], when, moved, filled))
    return np.array(threads.call_each(_train_run, calls)).T
