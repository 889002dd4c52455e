"""Token SVMs with many constraints: no matrix of them against each other.

Let the m constraints be <a_m, W> >= 1 with a_m = delta_{i,t} z_i^T, and D = r q the
unknowns of W. Two methods read the tokens alone.

* `descent` ("dual descent") takes the dual sample by sample, keeping W, until few
  duals are positive, and then solves on these exactly. It cannot prove that no W
  exists.
* `interior_point` has the D unknowns of W and one more, and decides both cases. It is
  the faster one if there are many more constraints than unknowns, unless D^3 is large.

Both work with rows of norm 1: <u_m, w> >= b_m with u_m = a_m / ||a_m|| and b_m = min
||a|| / ||a_m||, so that W = w / min ||a||.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numba
import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy.linalg import LinAlgError, cho_factor, cho_solve

import lib.compiled  # noqa: F401  # where numba keeps what is compiled below
from lib import memory
from lib.seeds import stream

FEW = 700  # constraints up to which pivoting on their Gram matrix is the cheapest
MOST_PIVOTING = 6000  # constraints up to which it may be tried after the others
# Speeds that decide between the methods: operations per second, measured on one core.
SCALAR_RATE = 2e9  # speed of plain loops
MATRIX_RATE = 4e10  # speed of matrix products
STEPS = 15  # usual number of interior-point steps
# most unknowns of the interior point, which factorises a matrix of their number squared
MOST_UNKNOWNS = 8192
PASSES = 300  # most passes of dual coordinate descent
INNER = 5  # passes over the duals of one sample before the next one's turn
ROUGH = 1e-3  # violation at which the exact solve takes over
ROUNDS = 60  # most exchanges of the support
PATIENCE = 10  # exchanges without progress
RIDGE = 1e-10  # on the diagonal of a singular Gram matrix of unit rows
REFINED = 3  # how often the residual of a system is solved again
MISSED = 1e-12  # a constraint missed by less is kept
ITERATIONS = 50  # most iterations of the interior point
CLOSED = 1e-12  # relative gap at which it ends
NEARLY = 1e-6  # relative gap from which it also ends where rounding stops its progress,
STALLED = 3  # after so many iterations without a smaller gap
FIRST_TRY = 1e-3  # a combination of unit rows this small may be moved onto zero,
TRY_AGAIN = 1e-2  # and is tried again when it is so much smaller
PROGRESS = 0.3  # a round of these moves may leave this fraction of the sum
STIFF = 1e14  # how much more a zero sum weighs than a small move
NULL = 1e-11  # norm of a combination of unit rows with sum 1 that counts as zero
TOWARDS = 0.995  # fraction of the way to the boundary that a step takes
_REORDER = {"reassoc", "contract", "nsz"}  # sums may be taken in any order
ENTRIES = 2**22  # most entries of an intermediate array


def methods(n: int, S: int, r: int, q: int) -> tuple[str, ...]:
    """Choose the methods for a size, the first one first.

    Parameters
    ----------
    n, S, r, q : int
        Samples, constraints per sample, and the dimensions of tokens and queries.

    Returns
    -------
    tuple of str
        Out of "dual descent" and "interior point"; empty where pivoting on the Gram
        matrix of all constraints is the cheapest.

    Examples
    --------
    >>> methods(20, 9, 180, 20)  # the size of the papers
    ()
    >>> methods(200, 29, 64, 64)
    ('dual descent', 'interior point')
    >>> methods(1000, 19, 16, 16)
    ('interior point', 'dual descent')
    """
    m = n * S
    if m <= FEW:
        return ()
    unknowns = r * q
    if unknowns > MOST_UNKNOWNS:
        return ("dual descent",)
    all_passes = PASSES * 4 * n * unknowns / SCALAR_RATE
    normal_matrix = n * r**2 * q**2 / 2 + unknowns**3 / 3
    if m > unknowns and STEPS * normal_matrix / MATRIX_RATE < all_passes:
        return ("interior point", "dual descent")
    return ("dual descent", "interior point")


class Rows(NamedTuple):
    """Unit rows u_{it} = delta_{it} z_i^T and what is asked of them, b.

    Parameters
    ----------
    delta : ndarray (n, S, r)
        Of norm 1.
    z : ndarray (n, q)
        Of norm 1.
    b : ndarray (n, S)
        Positive and at most 1; -1 for a pair of a masked token, which is no constraint
        and has delta = 0.
    """

    delta: np.ndarray
    z: np.ndarray
    b: np.ndarray

    def margins(self, W: np.ndarray) -> np.ndarray:
        """Return <u_{it}, W>, (n, S), for W (r, q)."""
        return (self.delta @ (self.z @ W.T)[..., None])[..., 0]

    def weights(self, x: np.ndarray) -> np.ndarray:
        """Return sum x_{it} u_{it}, (r, q), for x (n, S)."""
        return (x[:, None] @ self.delta)[:, 0].T @ self.z


def unit_rows(delta: np.ndarray, z: np.ndarray, length: np.ndarray) -> Rows:
    """Scale the factors of all constraints to norm 1.

    Parameters
    ----------
    delta : ndarray (n, S, r)
        Differences of tokens; zero for the pairs of masked tokens alone.
    z : ndarray (n, q)
        Queries, none zero.
    length : ndarray (n, S)
        The norms of delta_{it} z_i^T.

    Returns
    -------
    Rows
        The unit rows.
    """
    masked = length == 0
    size = np.where(masked, 1.0, np.linalg.norm(delta, axis=-1))
    b = length[~masked].min() / np.where(masked, 1.0, length)
    return Rows(
        delta=delta / size[..., None],
        z=z / np.linalg.norm(z, axis=-1, keepdims=True),
        b=np.where(masked, -1.0, b),
    )


def candidates(rows: Rows, method: str) -> Iterator[tuple[str, np.ndarray]]:
    """Run a method and give what it found, the most exact first.

    Parameters
    ----------
    rows : Rows
        The constraints.
    method : {"dual descent", "interior point"}
        The method.

    Yields
    ------
    verdict : {"solved", "infeasible", "undecided"}
        What the duals are meant to prove.
    x : ndarray (n, S)
        The duals x >= 0 of w = sum x u, or of a combination of rows that is zero, or
        nearly so where the method remained undecided.
    """
    if method == "dual descent":
        found = descent(rows)
        if found is not None:
            yield "solved", found
        return
    verdict, x, support = interior_point(rows)
    if verdict == "infeasible":
        yield verdict, x
        return
    exact = exchange(rows, x, support)
    if exact is not None:
        yield "solved", exact
    asked = rows.b > 0
    x = np.where(asked, x, 0.0)
    lowest = (rows.margins(rows.weights(x))[asked] / rows.b[asked]).min()
    if lowest > 0:
        yield "solved", x / lowest
    yield "solved", np.where(support & asked, x, 0.0)
    if verdict == "undecided":
        yield verdict, np.where(support & asked, x, 0.0)


def descent(rows: Rows) -> np.ndarray | None:
    """Solve the dual by descent, then exactly on its support.

    Parameters
    ----------
    rows : Rows
        The constraints.

    Returns
    -------
    ndarray (n, S) or None
        The duals x >= 0 of w = sum x u; None if no support was found, which says
        nothing about whether there is a solution.
    """
    n, S, r = rows.delta.shape
    q = rows.z.shape[1]
    x = np.zeros((n, S))
    grams = rows.delta @ rows.delta.swapaxes(1, 2)
    draws = stream(0, "draws")
    orders = np.array([draws.permutation(n) for _ in range(PASSES)])
    _descend(rows.delta, rows.z, rows.b, grams, orders, np.zeros((r, q)), x)
    return exchange(rows, x, x > 0)


def exchange(rows: Rows, x: np.ndarray, support: np.ndarray) -> np.ndarray | None:
    """Solve on a support, and exchange what is on its wrong side, until nothing is.

    Parameters
    ----------
    rows : Rows
        The constraints.
    x : ndarray (n, S)
        Approximate duals: the larger ones stay if the support is too large.
    support : ndarray of bool (n, S)
        Where to begin.

    Returns
    -------
    ndarray (n, S) or None
        The duals, or None if no progress was made.
    """
    n, S, r = rows.delta.shape
    unknowns = r * rows.z.shape[1]
    flat = rows.delta.reshape(n * S, r)
    sample = np.repeat(np.arange(n), S)
    asked = rows.b.ravel()
    rank = np.argsort(-x.ravel())
    support = support.ravel().copy()
    fewest = n * S + 1
    patience = PATIENCE
    for _ in range(ROUNDS):
        inside = np.flatnonzero(support)
        if inside.size > unknowns:
            inside = np.sort(rank[support[rank]][:unknowns])
            support[:] = False
            support[inside] = True
        if not inside.size:
            return None
        queries = rows.z[sample[inside]]
        K = (flat[inside] @ flat[inside].T) * (queries @ queries.T)
        factor = _cholesky(K)
        if factor is None:  # some of its constraints are combinations of others
            K[np.diag_indices(len(K))] += RIDGE
            factor = _cholesky(K)
        if factor is None:
            return None
        found = np.zeros(n * S)
        missing = asked[inside]
        for _ in range(REFINED):  # each takes out the rounding of the one before
            found[inside] += cho_solve((factor, True), missing, check_finite=False)
            W = rows.weights(found.reshape(n, S))
            slack = rows.margins(W).ravel() - asked
            missing = -slack[inside]
        # Of equal constraints some duals are zero up to rounding, on either side of it.
        wrong = np.where(support, found < -MISSED * found.max(), slack < -MISSED)
        count = np.count_nonzero(wrong)
        if count == 0:
            return np.maximum(found, 0.0).reshape(n, S)
        if count < fewest:
            fewest = count
            patience = PATIENCE
        else:
            patience -= 1
            if patience < 0:
                return None
        support ^= wrong
    return None


@numba.njit(fastmath=_REORDER)
def _image(W: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """Set out = W z, for W (r, q)."""
    for j in range(out.size):
        total = 0.0
        for k in range(z.size):
            total += W[j, k] * z[k]
        out[j] = total


@numba.njit(fastmath=_REORDER)
def _residuals(
    delta: np.ndarray, image: np.ndarray, b: np.ndarray, x: np.ndarray, out: np.ndarray
) -> float:
    """Fill out with b - delta image, (S,); return the largest violation."""
    violation = 0.0
    for t in range(b.size):
        total = 0.0
        for j in range(image.size):
            total += delta[t, j] * image[j]
        out[t] = b[t] - total
        violation = max(violation, abs(out[t]) if x[t] > 0.0 else out[t])
    return violation


@numba.njit(fastmath=_REORDER)
def _settle(
    gram: np.ndarray,
    enough: float,
    residual: np.ndarray,
    x: np.ndarray,
    moved: np.ndarray,
) -> None:
    """Move the duals x (S,) of one sample, with its residuals, until steps are small.

    Filled are the moves; its rows have norm 1 and the Gram matrix (S, S).
    """
    moved[:] = 0.0
    for _ in range(INNER):
        largest = 0.0
        for t in range(x.size):
            step = max(-x[t], residual[t])
            if step != 0.0:
                x[t] += step
                moved[t] += step
                largest = max(largest, abs(step))
                for s in range(x.size):
                    residual[s] -= step * gram[t, s]
        if largest < enough:
            break


@numba.njit(fastmath=_REORDER)
def _add(x: np.ndarray, delta: np.ndarray, z: np.ndarray, W: np.ndarray) -> None:
    """Add sum x_t delta_t z^T to W, for x (S,) and delta (S, r)."""
    pulled = np.zeros(len(W))
    for t in range(x.size):
        if x[t] != 0.0:
            for j in range(pulled.size):
                pulled[j] += x[t] * delta[t, j]
    for j in range(pulled.size):
        for k in range(z.size):
            W[j, k] += pulled[j] * z[k]


@numba.njit(cache=True, fastmath=_REORDER)
def _descend(
    delta: np.ndarray,
    z: np.ndarray,
    b: np.ndarray,
    grams: np.ndarray,
    orders: np.ndarray,
    W: np.ndarray,
    x: np.ndarray,
) -> None:
    """Move x (n, S) and W (r, q) by dual coordinate descent, one sample at a time.

    A pass takes the samples in an order of `orders` (passes, n). It leaves out those
    that had nothing to do; every tenth pass looks at all. It ends when no constraint
    is violated by more than ROUGH.
    """
    n, S, r = delta.shape
    image = np.empty(r)
    residual = np.empty(S)
    moved = np.empty(S)
    settled = np.zeros(n, np.bool_)
    for sweep in range(len(orders)):
        whole = sweep % 10 in (0, 9)
        worst = 0.0
        for i in orders[sweep]:
            if settled[i] and not whole:
                continue
            _image(W, z[i], image)
            violation = _residuals(delta[i], image, b[i], x[i], residual)
            worst = max(worst, violation)
            settled[i] = violation == 0.0
            if settled[i]:
                continue
            _settle(grams[i], 1e-2 * violation, residual, x[i], moved)
            _add(moved, delta[i], z[i], W)
        if whole and worst < ROUGH:
            return


def interior_point(rows: Rows) -> tuple[str, np.ndarray, np.ndarray]:
    """Decide whether there is a W, and find it or the proof that there is none.

    It solves min ||v||^2 / 2 + (tau - 1)^2 / 2 subject to <u_m, v> >= tau b_m, which
    always has a solution: if tau > 0, then w = v / tau; if tau = 0, the duals sum the
    rows to zero (Lawson and Hanson, 1974, ch. 23). The method is Mehrotra's
    predictor-corrector. A step solves with I + sum theta_m u_m u_m^T, which is built
    from one matrix product, since the rows are outer products.

    Parameters
    ----------
    rows : Rows
        The constraints.

    Returns
    -------
    verdict : {"solved", "infeasible", "undecided"}
        What was found.
    x : ndarray (n, S)
        The duals of v, or the weights of a combination of rows that is zero; where it
        remained undecided, those of the smallest gap.
    support : ndarray of bool (n, S)
        Whether the dual exceeds the slack, as at the constraints that carry w.
    """
    rows = _principal(rows)
    n, S, r = rows.delta.shape
    q = rows.z.shape[1]
    m = n * S
    normal = _NormalMatrix(rows)
    goal = np.zeros(r * q + 1)
    goal[-1] = 1.0

    def of_rows(point: np.ndarray) -> np.ndarray:
        """Return <u, v> - tau b, (n, S)."""
        return rows.margins(point[:-1].reshape(r, q)) - point[-1] * rows.b

    def of_duals(x: np.ndarray) -> np.ndarray:
        """Return the transpose of `of_rows` times x, (r q + 1,)."""
        return np.append(rows.weights(x), -(x * rows.b).sum())

    point = np.zeros(r * q + 1)
    slack = np.full((n, S), m**-0.5)
    x = np.full((n, S), 1.0 / m)
    next_try = FIRST_TRY
    smallest = np.inf
    nearest = x, x > slack
    stalled = 0
    for _ in range(ITERATIONS):
        pulled = of_duals(x)
        size = np.linalg.norm(pulled[:-1]) / x[rows.b > 0].sum()
        if point[-1] <= size**2 and size < next_try:  # as where there is no W
            next_try = TRY_AGAIN * size
            null = _onto_null(rows, normal, x)
            if null is not None:
                return "infeasible", null, x > slack
        if size <= NULL:
            return "infeasible", x, x > slack
        gap = _gap(rows, point, x, pulled)
        if gap <= CLOSED:
            return "solved", x, x > slack
        # Of nearly equal queries the duals are so large that their rounding leaves a
        # gap above CLOSED.
        stalled += 1
        if gap < smallest or smallest == np.inf:
            smallest = gap
            nearest = x, x > slack
            stalled = 0
        if smallest < NEARLY and stalled == STALLED:
            break
        primal = of_rows(point) - slack
        dual = point - goal - pulled
        mean = (slack * x).sum() / m
        factor = normal.factor(x / slack)
        if factor is None:
            break

        def direction(
            complementary: np.ndarray,
            factor: np.ndarray = factor,
            primal: np.ndarray = primal,
            dual: np.ndarray = dual,
            slack: np.ndarray = slack,
            x: np.ndarray = x,
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Solve Newton's equations: steps of point, slack and duals."""
            right = of_duals((-complementary - x * primal) / slack) - dual
            step = cho_solve((factor, True), right, check_finite=False)
            of_slack = of_rows(step) + primal
            return step, of_slack, (-complementary - x * of_slack) / slack

        # Mehrotra: how far a step goes without centring says how much of it is needed.
        _, of_slack, of_x = direction(slack * x)
        length = min(_length(slack, of_slack), _length(x, of_x))
        left = ((slack + length * of_slack) * (x + length * of_x)).sum() / m
        centre = mean * (left / mean) ** 3
        step, of_slack, of_x = direction(slack * x + of_slack * of_x - centre)
        length = TOWARDS * min(_length(slack, of_slack), _length(x, of_x))
        point = point + length * step
        slack = slack + length * of_slack
        x = x + length * of_x
    return "undecided", *nearest


def _principal(rows: Rows) -> Rows:
    """Turn tokens and queries to their principal axes, which leaves the duals.

    The error of a Cholesky factor does not depend on the units of the unknowns. So it
    is small where nearly equal queries differ, if they differ along other axes than
    the one that they share.
    """
    _, tokens_axes = np.linalg.eigh(np.einsum("ntj,ntk->jk", rows.delta, rows.delta))
    _, query_axes = np.linalg.eigh(rows.z.T @ rows.z)
    return Rows(delta=rows.delta @ tokens_axes, z=rows.z @ query_axes, b=rows.b)


def _gap(rows: Rows, point: np.ndarray, x: np.ndarray, pulled: np.ndarray) -> float:
    """Return the relative distance of the bounds on ||w||, from above and from below.

    It is infinite where the iterate of the interior point satisfies no margin.
    """
    if point[-1] <= 0:
        return np.inf
    asked = rows.b > 0
    v = point[:-1].reshape(rows.delta.shape[-1], -1)
    lowest = (rows.margins(v)[asked] / rows.b[asked]).min()
    if lowest <= 0:
        return np.inf
    above = np.linalg.norm(v) / lowest
    below = (x * rows.b)[asked].sum() / np.linalg.norm(pulled[:-1])  # of sum x u
    return abs(above - below) / above


def _onto_null(rows: Rows, normal: "_NormalMatrix", x: np.ndarray) -> np.ndarray | None:
    """Move x (n, S) of a small combination of rows onto one that is zero, if it can.

    Each round moves the weights by as little as zero needs, the larger ones further,
    and sets to zero what has become negative, which the next round makes up for.
    """
    x = np.where(rows.b > 0, x, 0.0)
    last = np.inf
    while True:
        size = np.linalg.norm(rows.weights(x)) / x.sum()
        if size <= NULL:
            return x
        if size > PROGRESS * last:
            return None
        last = size
        theta = STIFF * x / x.max()
        factor = normal.factor(theta, tau=0.0)
        if factor is None:
            return None
        for _ in range(2):  # the second time takes out the first one's rounding
            pulled = rows.weights(x)
            right = np.append(pulled, 0.0)
            step = cho_solve((factor, True), right, check_finite=False)
            x = x - theta * rows.margins(step[:-1].reshape(pulled.shape))
        x = np.maximum(x, 0.0)


def _cholesky(matrix: np.ndarray, *, overwrite: bool = False) -> np.ndarray | None:
    """Return the lower Cholesky factor, or None if the matrix is not positive."""
    try:
        factor, _ = cho_factor(
            matrix, lower=True, overwrite_a=overwrite, check_finite=False
        )
    except LinAlgError:
        return None
    return factor


def _length(value: np.ndarray, step: np.ndarray) -> float:
    """Return the longest step, at most 1, after which the value is not negative."""
    down = step < 0
    if not down.any():
        return 1.0
    return min(1.0, float((-value[down] / step[down]).min()))


class _NormalMatrix:
    """I + sum theta_m (u_m; -b_m) (u_m; -b_m)^T for changing theta, by its structure.

    Of the part in W the entry (j k, j' k') is the sum over samples of z_k z_k' times
    sum_t theta_t delta_tj delta_tj'. That is one product of an (r r / 2, n) with an
    (n, q q / 2) matrix, with T times fewer operations than from the rows.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        r = rows.delta.shape[-1]
        q = rows.z.shape[-1]
        self.pair = np.triu_indices(r)
        first, second = np.triu_indices(q)
        self.queries = rows.z[:, first] * rows.z[:, second]  # (n, q (q + 1) / 2)
        place = np.empty((q, q), int)
        place[first, second] = np.arange(first.size)
        place[second, first] = np.arange(first.size)
        self.place = place.ravel()

    def factor(self, theta: np.ndarray, tau: float = 1.0) -> np.ndarray | None:
        """Return the Cholesky factor for theta (n, S), or None without one.

        With tau = 0 the last row and column are those of the identity.
        """
        delta, z, b = self.rows
        n, _, r = delta.shape
        q = z.shape[1]
        first, second = self.pair
        product = np.zeros((first.size, self.queries.shape[1]))
        chunk = max(1, ENTRIES // (r * r))
        for begin in range(0, n, chunk):
            part = slice(begin, begin + chunk)
            weighted = delta[part] * theta[part][..., None]
            squares = weighted.swapaxes(1, 2) @ delta[part]  # (chunk, r, r)
            product += squares[:, first, second].T @ self.queries[part]
        # The upper triangle alone is filled. Its transpose is the lower one, in the
        # order that LAPACK takes without a copy.
        matrix = np.empty((r * q + 1, r * q + 1))
        row, entry = matrix.strides
        of_W = as_strided(matrix, (r, q, r, q), (q * row, row, q * entry, entry))
        of_W[first, :, second, :] = product[:, self.place].reshape(first.size, q, q)
        matrix[:-1, -1] = -tau * self.rows.weights(theta * b).ravel()
        matrix[-1, -1] = tau * (theta * b**2).sum()
        matrix[np.diag_indices(len(matrix))] += 1.0
        return _cholesky(matrix.T, overwrite=True)


def memory_of(n: int, S: int, r: int, q: int, method: str) -> float:
    """Estimate the bytes that a method takes at its peak.

    Parameters
    ----------
    n, S, r, q : int
        Samples, constraints per sample, and the dimensions of tokens and queries.
    method : {"pivoting", "dual descent", "interior point"}
        The method.

    Returns
    -------
    float
        The bytes.
    """
    m = n * S
    tokens = 4 * n * S * r
    unknowns = min(m, r * q)
    if method == "pivoting":
        return 8.0 * (tokens + 4 * m**2)
    if method == "dual descent":
        return 8.0 * (tokens + n * S**2 + PASSES * n + 3 * unknowns**2)
    return 8.0 * (tokens + n * q * (q + 1) / 2 + 3 * (r * q + 1) ** 2)


def check_memory(n: int, S: int, r: int, q: int, method: str) -> None:
    """Refuse a problem that would not fit, before anything is allocated.

    Parameters
    ----------
    n, S, r, q : int
        Samples, constraints per sample, and the dimensions of tokens and queries.
    method : {"pivoting", "dual descent", "interior point"}
        The method.

    Raises
    ------
    MemoryError
        With the amounts, and the number of samples that would fit.
    """
    fits = n
    while fits > 1 and memory_of(fits, S, r, min(q, fits), method) > memory.available():
        fits = fits * 9 // 10
    memory.require(
        memory_of(n, S, r, q, method),
        f"a token SVM of {n * S:,} constraints in {r * q:,} unknowns ({method})",
        f"about {fits:,} samples would fit",
    )
