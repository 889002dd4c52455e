"""Paper B's in-sample gradients (Eq. 1), compiled.

The kernel processes four queries at a time, while the keys stay in the cache. Partial
sums are added in the same order for any number of threads.
"""

import math

import numba
import numpy as np

from lib.compiled import exponentials, threads
from lib.compiled.threads import STOP
from lib.regression.problem import real

QUERIES = 128  # the number of queries in one piece of work
# If |logits| are bounded by at most this, e^(logit - bound) cannot underflow, so that
# the largest logit need not be found.
SAFE = 300.0
PARALLEL = 200_000  # from this many attention weights on, several threads are faster
_FAST = {"reassoc", "contract", "nsz", "arcp"}  # not nnan: a diverged run must stay NaN


def _check(X: np.ndarray, Y: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """Raise ValueError if shapes do not fit or samples are not finite.

    The check is applied to the sum of the samples, so that it also fails if all entries
    are finite but their sum is not.
    """
    m, d = X.shape[-2:]
    k = A.shape[-2]
    for name, value, needed in (("A", A, (k, d)), ("B", B, (d, d)), ("Y", Y, (m, k))):
        if value.shape[-2:] != needed:
            shape = tuple(value.shape)
            raise ValueError(
                f"{name} has shape {shape}; its last two axes must be {needed}"
            )
    for name, value in (("X", X), ("Y", Y)):
        if not math.isfinite(float(value.sum())):
            raise ValueError(f"{name} holds values that are not finite")
    sets = X.shape[:-2]
    if Y.shape[:-2] != sets:
        raise ValueError(
            f"Y has shape {Y.shape}; its leading axes must be those of X, {sets}"
        )


def _flat(value: np.ndarray) -> np.ndarray:
    """Reshape an array (..., rows, columns) to (sets, rows, columns).

    The result is a C-contiguous, writable array of floats. Data are copied only if
    necessary.
    """
    return np.require(value, float, "CW").reshape(-1, *value.shape[-2:])


def _padded_keys(X: np.ndarray) -> np.ndarray:
    """Return the samples (sets, m, d) as the kernel's keys (sets, D, m).

    The first d rows are the coordinates of the samples. They are followed by a row of
    ones, for sums and shifts, and by rows of zeros. The zeros make D a multiple of
    four, because the kernel reads four rows at a time.
    """
    sets, m, d = X.shape
    D = d + 1 + -(d + 1) % 4
    keys = np.zeros((sets, D, m))
    keys[:, :d] = X.swapaxes(1, 2)
    keys[:, d] = 1.0
    return keys


def empirical_gradients(
    X: np.ndarray, Y: np.ndarray, A: np.ndarray, B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the in-sample gradients of paper B's Eq. 1 in closed form.

    Let P be the softmax weights, c_j = sum_i P_ji x_i, e_j = A c_j - y_j and v_j = A^T
    e_j. Then

        grad_A L^ = 1/m sum_j e_j c_j^T,
        grad_B L^ = 1/m sum_j x_j (sum_i P_ji (v_j^T (x_i - c_j)) x_i)^T.

    Parameters
    ----------
    X : ndarray (..., m, d)
        The samples x_j. Each is both a query and a key.
    Y : ndarray (..., m, k)
        Responses y_j.
    A : ndarray (..., k, d)
        Value matrices.
    B : ndarray (..., d, d)
        Key-query matrices.

    Returns
    -------
    grad_A : ndarray (..., k, d)
        The gradient with respect to A.
    grad_B : ndarray (..., d, d)
        The gradient with respect to B.

    Raises
    ------
    ValueError
        If shapes do not fit; if samples are not finite, or so large that their sum is
        not finite; or if an array contains anything but real numbers.

    Notes
    -----
    The leading axes of the layers broadcast against the leading axes of the samples, so
    that several layers may share a data set. The leading axes of X and Y must be equal.
    For a layer that is not finite, the gradients are NaN.

    Examples
    --------
    With B = 0, every query attends to all keys equally. So c_j is the mean of the keys,
    and the gradient with respect to A is that of a regression on this mean:

    >>> from lib import regression
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> Y = np.array([[1.0], [2.0], [3.0]])
    >>> A = np.array([[0.5, 0.5]])
    >>> grad_A, grad_B = regression.empirical_gradients(X, Y, A, np.zeros((2, 2)))
    >>> grad_A
    array([[-1., -1.]])
    >>> mean = X.mean(0)
    >>> (A @ mean - Y).mean() * mean
    array([-1., -1.])
    """
    X, Y, A, B = map(real, "XYAB", (X, Y, A, B))
    _check(X, Y, A, B)
    sets = X.shape[:-2]
    m = X.shape[-2]

    # The flattened leading axes of all arrays are the runs. Several runs may share a
    # data set.
    lead = np.broadcast_shapes(sets, A.shape[:-2], B.shape[:-2])
    set_numbers = np.arange(math.prod(sets)).reshape(sets)
    set_of_run = np.array(np.broadcast_to(set_numbers, lead)).ravel()
    A = _flat(np.broadcast_to(A, (*lead, *A.shape[-2:])))
    B = _flat(np.broadcast_to(B, (*lead, *B.shape[-2:])))
    X = _flat(X)
    Y = _flat(Y)
    keys = _padded_keys(X)
    radius = np.sqrt(np.einsum("smd,smd->sm", X, X).max(-1))  # per data set

    # One partial sum for each piece of QUERIES queries.
    runs = len(A)
    pieces = -(-m // QUERIES)
    partial_A = np.zeros((runs, pieces, *A.shape[1:]))
    partial_B = np.zeros((runs, pieces, *B.shape[1:]))
    tasks = runs * pieces
    parts = threads.count() if runs * m * m >= PARALLEL else 1
    data = (X, keys, radius, Y), (A, B), set_of_run, (partial_A, partial_B)
    calls = [
        (*data, part * tasks // parts, (part + 1) * tasks // parts)
        for part in range(parts)
    ]
    if parts == 1:  # handing the work to another thread would take longer
        _some(*calls[0], threads.new_signals()[0])
    else:
        threads.call_each(_some, calls)
    grad_A = partial_A.sum(1) / m
    grad_B = partial_B.sum(1) / m
    return (
        grad_A.reshape(*lead, *grad_A.shape[1:]),
        grad_B.reshape(*lead, *grad_B.shape[1:]),
    )


@numba.njit(nogil=True, cache=True)
def _some(
    samples: tuple,
    layers: tuple,
    set_of_run: np.ndarray,
    partial_sums: tuple,
    first: int,
    end: int,
    signals: np.ndarray,
) -> None:
    """Fill the partial sums of the tasks from `first` up to, but not including, `end`.

    Task run * pieces + piece is one piece of QUERIES queries of one run. The function
    returns early once `signals` say so. `partial_sums` are arrays (runs, pieces, k, d)
    and (runs, pieces, d, d), which must be zero at first.
    """
    X, keys, radius, Y = samples
    (A, B) = layers
    (partial_A, partial_B) = partial_sums
    pieces = partial_A.shape[1]
    for task in range(first, end):
        if signals[STOP] != 0:
            return
        run = task // pieces
        piece = task % pieces
        s = set_of_run[run]
        sums = partial_A[run, piece], partial_B[run, piece]
        _piece(
            (X[s], keys[s], radius[s], Y[s]), (A[run], B[run]), piece * QUERIES, sums
        )


@numba.njit(fastmath=_FAST, error_model="numpy")
def _piece(samples: tuple, layer: tuple, first: int, sums: tuple) -> None:
    """Add to `sums` the gradients of QUERIES queries from `first` on.

    What is added is the sum of the gradients over these queries, for one data set and
    one layer, not divided by m. The function is not split into smaller ones, because
    the compiler would then add in another order.

    Four queries x are processed at a time, one in each lane:

    * w = (B^T x, bound), whose products with the keys are the logits;
    * e, the exponentials of the logits;
    * c = (mean of the keys under the softmax, sum of e);
    * error = A c - y, zero in lanes beyond the last query;
    * v = (A^T error, -<A^T error, c>), whose products with the keys are the slopes
      of the logits;
    * h, the sum of the keys with the weights e times slope;
    * t, the partial sum of one entry.
    """
    X, keys, radius, Y = samples
    (A, B) = layer
    (sum_A, sum_B) = sums
    (m, d) = X.shape
    k = len(A)
    D = len(keys)
    logits = np.empty((4, m))
    e = np.empty((4, m))
    w = np.zeros((4, D))
    v = np.zeros((4, D))
    c = np.empty((4, D))
    h = np.empty((4, D))
    total = np.empty(4)
    error = np.empty(k)
    last = min(first + QUERIES, m)
    for j in range(first, last, 4):
        # The directions w, whose products with the keys are the logits.
        for lane in range(4):
            # Lanes beyond the last query repeat this query, and add nothing to the
            # sums.
            x = X[min(j + lane, last - 1)]
            length = 0.0
            for q in range(d):
                t = 0.0
                for p in range(d):
                    t += x[p] * B[p, q]
                w[lane, q] = t
                length += t * t
            # Subtract the bound on |x^T B x_i|, so that no logit is positive.
            w[lane, d] = -radius * np.sqrt(length)

        # The softmax weights, before the division by their total.
        _combine(w, keys, logits)
        for lane in range(4):
            if not -w[lane, d] <= SAFE:  # NaN as well
                # Entry by entry, because numba needs seconds to compile a slice.
                largest = logits[lane, 0]
                for i in range(1, m):
                    largest = max(largest, logits[lane, i])
                for i in range(m):
                    logits[lane, i] -= largest
        exponentials.exp(logits.reshape(-1), e.reshape(-1))

        # The attended means c, and the totals of the weights.
        _moments(e, keys, d + 1, c)
        for lane in range(4):
            total[lane] = c[lane, d]
            for q in range(d):
                c[lane, q] /= total[lane]

            # The error A c - y.
            counts = 1.0 if j + lane < last else 0.0
            for p in range(k):
                t = -Y[min(j + lane, last - 1), p]
                for q in range(d):
                    t += A[p, q] * c[lane, q]
                error[p] = t * counts

            # v = A^T error with its shift, and the gradient with respect to A.
            v[lane, d] = 0.0
            for q in range(d):
                t = 0.0
                for p in range(k):
                    t += error[p] * A[p, q]
                    sum_A[p, q] += error[p] * c[lane, q]
                v[lane, q] = t
                v[lane, d] -= t * c[lane, q]

        # The weights times the slope of each logit; `logits` holds the slopes now.
        _combine(v, keys, logits)
        for lane in range(4):
            for i in range(m):
                e[lane, i] *= logits[lane, i]

        # The gradient with respect to B.
        _moments(e, keys, d, h)
        for lane in range(4):
            x = X[min(j + lane, last - 1)]
            for p in range(d):
                t = x[p] / total[lane]
                for q in range(d):
                    sum_B[p, q] += t * h[lane, q]


@numba.njit(fastmath=_FAST, error_model="numpy", forceinline=True)
def _combine(w: np.ndarray, keys: np.ndarray, out: np.ndarray) -> None:
    """Set out (4, m) = w (4, D) keys (D, m)."""
    out[:] = 0.0
    o0 = out[0]
    o1 = out[1]
    o2 = out[2]
    o3 = out[3]
    for q in range(0, len(keys), 4):
        k0 = keys[q]
        k1 = keys[q + 1]
        k2 = keys[q + 2]
        k3 = keys[q + 3]
        w00 = w[0, q]
        w01 = w[0, q + 1]
        w02 = w[0, q + 2]
        w03 = w[0, q + 3]
        w10 = w[1, q]
        w11 = w[1, q + 1]
        w12 = w[1, q + 2]
        w13 = w[1, q + 3]
        w20 = w[2, q]
        w21 = w[2, q + 1]
        w22 = w[2, q + 2]
        w23 = w[2, q + 3]
        w30 = w[3, q]
        w31 = w[3, q + 1]
        w32 = w[3, q + 2]
        w33 = w[3, q + 3]
        for i in range(out.shape[1]):
            x0 = k0[i]
            x1 = k1[i]
            x2 = k2[i]
            x3 = k3[i]
            o0[i] += w00 * x0 + w01 * x1 + w02 * x2 + w03 * x3
            o1[i] += w10 * x0 + w11 * x1 + w12 * x2 + w13 * x3
            o2[i] += w20 * x0 + w21 * x1 + w22 * x2 + w23 * x3
            o3[i] += w30 * x0 + w31 * x1 + w32 * x2 + w33 * x3


@numba.njit(fastmath=_FAST, error_model="numpy", forceinline=True)
def _moments(e: np.ndarray, keys: np.ndarray, rows: int, out: np.ndarray) -> None:
    """Set out (4, rows) = e (4, m) keys^T (m, rows), of the first rows of keys.

    Two rows are taken at a time: if `rows` is odd, one more column of `out` is filled.
    """
    e0 = e[0]
    e1 = e[1]
    e2 = e[2]
    e3 = e[3]
    for q in range(0, rows, 2):
        k0 = keys[q]
        k1 = keys[q + 1]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
        for i in range(e.shape[1]):
            x0 = k0[i]
            x1 = k1[i]
            a0 += e0[i] * x0
            b0 += e0[i] * x1
            a1 += e1[i] * x0
            b1 += e1[i] * x1
            a2 += e2[i] * x0
            b2 += e2[i] * x1
            a3 += e3[i] * x0
            b3 += e3[i] * x1
        out[0, q], out[1, q], out[2, q], out[3, q] = a0, a1, a2, a3
        out[0, q + 1], out[1, q + 1], out[2, q + 1], out[3, q + 1] = b0, b1, b2, b3
