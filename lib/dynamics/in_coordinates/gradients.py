"""The gradient of one run as a graded sum, -grad L = sum_i e^{s_i} b_i z_i^T, compiled.

The largest absolute value of an entry of b_i (d,) is 1, and s_i is the log of the
factor that was divided out. So the term of a sample with a small gradient does not
underflow beside the term of a sample with a large one.
"""

import math
from typing import Annotated, Any, NamedTuple, get_type_hints

import numba
import numpy as np

from lib.compiled import softmax
from lib.dynamics.in_coordinates import entrywise
from lib.dynamics.in_coordinates.entrywise import REORDER


class Problem(NamedTuple):
    """The data of one run: delta (n, T-1, d) with rows x_opt - x_t, z (n, d_z), scores
    (T, n) with the opt token first, and hidden (n, T-1), which is True for pairs with a
    masked token. If no token is masked, hidden has the shape (n, 0).
    """

    delta: np.ndarray
    z: np.ndarray
    scores: np.ndarray
    hidden: np.ndarray
    logistic: bool  # whether the loss is the logistic loss, not the exponential one


def zeros(kind: Any, **sizes: int) -> Any:
    """Return a NamedTuple of the type `kind`, filled with arrays of zeros. The
    annotation of a field gives the shape of its array as letters, each of which stands
    for one of the `sizes`. Arrays named `logs` are filled with -inf.
    """

    def made(name, hint):
        if not hasattr(hint, "__metadata__"):
            return zeros(hint, **sizes)
        size = [sizes[letter] for letter in hint.__metadata__[0].split()]
        if name == "logs":
            return np.full(size, -math.inf)
        return np.full(size, 0.0)

    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: made(name, hint) for name, hint in hints.items()})


class Graded(NamedTuple):
    """The graded sum of e^{logs_i} b_i z_i^T; a term that is zero has the log -inf."""

    b: Annotated[np.ndarray, "n d"]
    logs: Annotated[np.ndarray, "n"]


@numba.njit(fastmath=REORDER)
def margins(problem, W, image, out):
    """Fill `out` (T-1, lanes) with the margins: out[t, i] = <delta_{i,t}, W z_i>. The
    margin of a masked token is FAR. `image` (d,) is work space.
    """
    delta = problem.delta
    z = problem.z
    hidden = problem.hidden
    n, S, d = delta.shape
    for i in range(n):
        for j in range(d):
            total = 0.0
            for k in range(z.shape[1]):
                total += W[j, k] * z[i, k]
            image[j] = total
        for t in range(S):
            total = 0.0
            for j in range(d):
                total += delta[i, t, j] * image[j]
            out[t, i] = total
        for t in range(hidden.shape[1]):
            if hidden[i, t]:
                out[t, i] = softmax.FAR


@numba.njit(fastmath=REORDER)
def pulls(problem, c, scales, out):
    """Fill `out`, a Graded, with the negative gradient of the mean loss. Column i of c
    (T-1, lanes), times e^scales_i, contains the coefficients of the delta_{i,t} in the
    negative gradient of the loss of sample i.
    """
    delta = problem.delta
    n, S, d = delta.shape
    for i in range(n):
        b = out.b[i]
        b[:] = 0.0
        for t in range(S):
            for j in range(d):
                b[j] += c[t, i] * delta[i, t, j]
        out.logs[i] = scales[i] - math.log(n)
    unit(out)


@numba.njit
def unit(graded):
    """Divide each b_i by its largest absolute value, and add the log of this value to
    logs_i, in place. A term that is zero gets the log -inf.
    """
    for i in range(len(graded.b)):
        largest = entrywise.largest(graded.b[i])
        if largest == 0.0 or graded.logs[i] == -math.inf:
            graded.b[i], graded.logs[i] = 0.0, -math.inf
        else:
            for j in range(graded.b.shape[1]):
                graded.b[i, j] /= largest
            graded.logs[i] += math.log(largest)


@numba.njit
def keep(graded, first, size):
    """Keep only the `size` samples from `first` on, and turn the mean over n samples
    into the mean over these samples, in place.
    """
    n = graded.logs.size
    more = math.log(n / size)
    for i in range(n):
        inside = first <= i < first + size
        if inside:
            graded.logs[i] += more
        else:
            graded.logs[i] = -math.inf


@numba.njit
def reduce(anchor, graded, first, size):
    """Replace `graded` by anchor + (n / size) (graded - anchor), in place. The
    difference is taken only over the `size` samples from `first` on.
    """
    n = graded.logs.size
    more = n / size
    for i in range(n):
        now = graded.logs[i]
        then = anchor.logs[i]
        inside = first <= i < first + size
        top = then
        if inside:
            top = max(now, then)
        graded.logs[i] = top
        if inside and now > -math.inf:
            of_now = more * math.exp(now - top)
        else:
            of_now = 0.0
        if then > -math.inf:
            of_then = math.exp(then - top)
        else:
            of_then = 0.0
        if inside:
            of_then *= 1.0 - more
        for j in range(graded.b.shape[1]):
            graded.b[i, j] = of_now * graded.b[i, j] + of_then * anchor.b[i, j]
    unit(graded)


@numba.njit
def mix(into, alpha, other, beta, graded):
    """Fill `into` with alpha other + beta graded, sample by sample.

    `into`, `other` and `graded` are Graded, with terms b (n, d) and their logs (n,);
    `into` may be the same object as `other`. The scalars alpha and beta are at least
    zero. The result is scaled as `unit` does.
    """
    log_alpha = entrywise.log(alpha)
    log_beta = entrywise.log(beta)
    for i in range(into.logs.size):
        old = entrywise.log_product(other.logs[i], log_alpha)
        new = entrywise.log_product(graded.logs[i], log_beta)
        into.logs[i] = top = max(old, new)
        if top > -math.inf:
            old = math.exp(old - top)
            new = math.exp(new - top)
            for j in range(into.b.shape[1]):
                into.b[i, j] = old * other.b[i, j] + new * graded.b[i, j]
    unit(into)


@numba.njit(fastmath=REORDER)
def dense(graded, z, out):
    """Fill `out` (d, d_z) with the graded sum divided by e^top, and return top, the
    largest of its logs. If the sum is zero, top is -inf and `out` is zero.
    """
    out[:] = 0.0
    largest = graded.logs.max()
    if largest == -math.inf:
        return largest
    for i in range(graded.logs.size):
        factor = math.exp(graded.logs[i] - largest)
        if factor > 0.0:
            for j in range(out.shape[0]):
                b = factor * graded.b[i, j]
                for k in range(out.shape[1]):
                    out[j, k] += b * z[i, k]
    return largest
