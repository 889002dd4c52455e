"""Token SVMs with many constraints, without the Gram matrix of all constraints.

Let the m constraints be <a_m, W> >= 1 with a_m = delta_{i,t} z_i^T, and let D = r q be
the number of unknowns in W. Two methods work on the tokens and queries directly.

* `descent` ("dual descent") changes the duals of one sample after the other, and
  updates W along with them, until no constraint is violated by much. Then it solves
  exactly on the constraints with a positive dual. It cannot prove that no W exists.
* `interior_point` ("interior point") has the D unknowns of W and one more unknown. It
  finds W or proves that there is none. It is the faster one of the two methods if there
  are many more constraints than unknowns, unless D^3 is large.

Both methods work with rows of norm 1: the constraints are <u_m, w> >= b_m with u_m =
a_m / ||a_m|| and b_m = min ||a|| / ||a_m||, so that W = w / min ||a||.
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

# Up to FEW constraints, pivoting on their Gram matrix is the cheapest method. Up to
# MOST_PIVOTING constraints, pivoting is tried if the methods of this file have failed.
FEW = 700
MOST_PIVOTING = 6000
# These operations per second, measured on one core, decide which method is tried first.
SCALAR_RATE = 2e9  # in plain loops
MATRIX_RATE = 4e10  # in matrix products
STEPS = 15  # steps that the interior point needs on most problems
MOST_UNKNOWNS = 8192  # for the interior point, whose matrix has this many rows
PASSES = 300  # passes of dual coordinate descent over the samples, at most
INNER = 5  # passes over the duals of one sample, at most, before the next sample
ROUGH = 1e-3  # largest violation at which descent ends and the exact solve begins
ROUNDS = 60  # exchanges of the support, at most
PATIENCE = 10  # exchanges without progress, at most
RIDGE = 1e-10  # added to the diagonal of a singular Gram matrix of unit rows
# Bytes that need no check, which would take longer than a small problem.
ALWAYS_THERE = 1e7
REFINED = 3  # solves of one system; each one corrects the error of the ones before
MISSED = 1e-12  # a constraint violated by less than this counts as satisfied
ITERATIONS = 50  # iterations of the interior point, at most
CLOSED = 1e-12  # relative gap at which the interior point ends
# Rounding may keep the gap above CLOSED. Once the relative gap is below NEARLY, the
# interior point also ends after STALLED iterations in a row without a smaller gap.
NEARLY = 1e-6
STALLED = 3
# If the norm of a combination of unit rows is smaller than FIRST_TRY, we try to move
# its weights to ones whose combination is zero. We try again once the combination has
# shrunk by a factor of TRY_AGAIN.
FIRST_TRY = 1e-3
TRY_AGAIN = 1e-2
PROGRESS = 0.3  # these moves end once one leaves more than this share of the norm
STIFF = 1e14  # penalty on a combination that is not zero, relative to that on moving
NULL = 1e-11  # a smaller combination of unit rows, with weights of sum 1, is zero
TOWARDS = 0.995  # share of the way to the boundary that a step goes
_REORDER = {"reassoc", "contract", "nsz"}  # the compiler may reorder sums
ENTRIES = 2**22  # largest number of entries that an intermediate array may have


def methods(n: int, S: int, r: int, q: int) -> tuple[str, ...]:
    """Choose the methods for a problem of this size, in the order in which to try them.

    Parameters
    ----------
    n, S, r, q : int
        The number of samples, the number of constraints per sample, the dimension of
        the tokens and the dimension of the queries.

    Returns
    -------
    tuple of str
        One or both of "dual descent" and "interior point". The tuple is empty if
        pivoting on the Gram matrix of all constraints is cheaper than both methods.

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
    """The constraints <u_{it}, w> >= b_{it} with unit rows u_{it} = delta_{it} z_i^T.

    Parameters
    ----------
    delta : ndarray (n, S, r)
        The differences of tokens, scaled to norm 1.
    z : ndarray (n, q)
        The queries, scaled to norm 1.
    b : ndarray (n, S)
        The right-hand sides, positive and at most 1. A pair with a masked token is no
        constraint: it has delta = 0 and b = -1.
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
        Differences of tokens. Only pairs with a masked token have a difference of zero.
    z : ndarray (n, q)
        The queries, none of which is zero.
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
    """Run a method and yield the results that it found, the most accurate one first.

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
        If "solved", the duals x >= 0 of w = sum x u. The last ones that the interior
        point yields are correct only up to a factor; use their support. Otherwise,
        weights x >= 0 whose combination of rows is zero ("infeasible") or nearly zero
        ("undecided").

    Notes
    -----
    Nothing here is proved: the caller has to measure the accuracy of each candidate.
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
    """Solve the dual by coordinate descent, then exactly on the support that it found.

    The samples are visited in random orders, which are the same in every call.

    Parameters
    ----------
    rows : Rows
        The constraints.

    Returns
    -------
    ndarray (n, S) or None
        The duals x >= 0 of w = sum x u. None if no support was found, even though a
        solution may exist.
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
    """Solve on a support, and exchange constraints until none is on the wrong side.

    A constraint of the support is on the wrong side if its dual is negative. Any other
    constraint is on the wrong side if it is violated.

    Parameters
    ----------
    rows : Rows
        The constraints.
    x : ndarray (n, S)
        Approximate duals. If the support has more constraints than w has unknowns, only
        the constraints with the largest duals stay in it, as many as there are
        unknowns.
    support : ndarray of bool (n, S)
        The first support.

    Returns
    -------
    ndarray (n, S) or None
        The duals x >= 0. None if the exchanges made no more progress or did not end, if
        the support became empty, or if its Gram matrix was singular even after a ridge
        was added.
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
        if factor is None:  # K is singular: some rows are combinations of others
            K[np.diag_indices(len(K))] += RIDGE
            factor = _cholesky(K)
        if factor is None:
            return None
        found = np.zeros(n * S)
        missing = asked[inside]
        for _ in range(REFINED):  # each solve corrects the rounding of those before
            found[inside] += cho_solve((factor, True), missing, check_finite=False)
            W = rows.weights(found.reshape(n, S))
            slack = rows.margins(W).ravel() - asked
            missing = -slack[inside]
        # If constraints are equal, some of their duals are zero up to rounding, so
        # allow slightly negative duals.
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
    """Fill `out` (r,) with W z, for W (r, q) and z (q,)."""
    for j in range(out.size):
        total = 0.0
        for k in range(z.size):
            total += W[j, k] * z[k]
        out[j] = total


@numba.njit(fastmath=_REORDER)
def _residuals(
    delta: np.ndarray, image: np.ndarray, b: np.ndarray, x: np.ndarray, out: np.ndarray
) -> float:
    """Fill `out` (S,) with b - delta image; return the sample's largest violation.

    Here delta (S, r) holds the sample's differences of tokens, image (r,) is W z, b
    (S,) holds the right-hand sides, and x (S,) holds the duals, which are at least
    zero. A constraint with x > 0 has to hold with equality, every other constraint as
    an inequality.
    """
    violation = 0.0
    for t in range(b.size):
        total = 0.0
        for j in range(image.size):
            total += delta[t, j] * image[j]
        out[t] = b[t] - total
        if x[t] > 0.0:
            violation = max(violation, abs(out[t]))
        else:
            violation = max(violation, out[t])
    return violation


@numba.njit(fastmath=_REORDER)
def _settle(
    gram: np.ndarray,
    enough: float,
    residual: np.ndarray,
    x: np.ndarray,
    moved: np.ndarray,
) -> None:
    """Move the duals x (S,) of one sample in place, until all moves are below `enough`.

    It makes at most INNER passes over the duals, and keeps x >= 0. `residual` (S,) is
    updated along with x, and `moved` (S,) is filled with the total change of x. `gram`
    (S, S) is the Gram matrix of the sample's rows. The rows have norm 1, so that its
    diagonal is 1.
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
    """Add sum x_t delta_t z^T to W (r, q), for x (S,), delta (S, r) and z (q,)."""
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

    x and W are changed in place. `grams` (n, S, S) are the Gram matrices of the
    samples' rows. Each pass visits the samples in the order of one row of `orders`
    (passes, n), and skips samples that had no violation at their last visit. Only three
    kinds of passes visit all samples: the first pass, every tenth pass, and the pass
    after a tenth one. The descent ends after the first of these full passes in which no
    violation reached ROUGH, or after the last pass.
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
    """Find W by an interior-point method, or prove that there is none.

    It solves min ||v||^2 / 2 + (tau - 1)^2 / 2 subject to <u_m, v> >= tau b_m, which
    always has a solution. If tau > 0, then w = v / tau solves the SVM. If tau = 0, the
    sum of the rows, weighted with the duals, is zero (Lawson and Hanson, 1974, ch. 23).
    The method is Mehrotra's predictor-corrector method. Each step solves a linear
    system with the matrix I + sum theta_m u_m u_m^T. One matrix product builds this
    matrix, since the rows u_m are outer products.

    Parameters
    ----------
    rows : Rows
        The constraints.

    Returns
    -------
    verdict : {"solved", "infeasible", "undecided"}
        Whether the function found a solution, a proof that there is none, or neither.
    x : ndarray (n, S)
        If "solved", the duals of v. If "infeasible", the weights of a combination of
        rows that is zero. If "undecided", the duals at the iteration with the smallest
        gap.
    support : ndarray of bool (n, S)
        Whether the dual of a constraint exceeds its slack, as it does if the constraint
        supports w.
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
        if point[-1] <= size**2 and size < next_try:  # as if there were no W
            next_try = TRY_AGAIN * size
            null = _onto_null(rows, normal, x)
            if null is not None:
                return "infeasible", null, x > slack
        if size <= NULL:
            return "infeasible", x, x > slack
        gap = _gap(rows, point, x, pulled)
        if gap <= CLOSED:
            return "solved", x, x > slack
        # If queries are nearly equal, the duals are so large that their rounding errors
        # keep the gap above CLOSED.
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
            """Solve Newton's equations for the steps of point, slack and duals.

            `complementary` (n, S) is the amount by which slack times dual should fall,
            to first order.
            """
            right = of_duals((-complementary - x * primal) / slack) - dual
            step = cho_solve((factor, True), right, check_finite=False)
            of_slack = of_rows(step) + primal
            return step, of_slack, (-complementary - x * of_slack) / slack

        # Mehrotra's rule: the longer the step without centring can be, the less
        # centring the final step needs.
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
    """Rotate tokens and queries to their principal axes; the duals do not change.

    The relative error of a Cholesky factor does not depend on the units of the
    unknowns. Nearly equal queries have one large common component and small
    differences. In principal axes the common component and the differences lie along
    different coordinates, so that the differences stay accurate.
    """
    _, tokens_axes = np.linalg.eigh(np.einsum("ntj,ntk->jk", rows.delta, rows.delta))
    _, query_axes = np.linalg.eigh(rows.z.T @ rows.z)
    return Rows(delta=rows.delta @ tokens_axes, z=rows.z @ query_axes, b=rows.b)


def _gap(rows: Rows, point: np.ndarray, x: np.ndarray, pulled: np.ndarray) -> float:
    """Return the relative distance between two bounds on ||w||, with w the solution.

    The upper bound is ||v|| divided by the smallest value of margin/b. The lower bound
    is sum x b / ||sum x u||, where the sums run over the rows u. `point` (r q + 1,) is
    (v, tau), the iterate of `interior_point`, x (n, S) >= 0 are the duals, and `pulled`
    (r q + 1,) is (sum x u, -sum x b). Pairs with a masked token, which have b < 0, do
    not count. The gap is infinite if tau <= 0 or if the margin of any other pair is not
    positive.
    """
    if point[-1] <= 0:
        return np.inf
    asked = rows.b > 0
    v = point[:-1].reshape(rows.delta.shape[-1], -1)
    lowest = (rows.margins(v)[asked] / rows.b[asked]).min()
    if lowest <= 0:
        return np.inf
    above = np.linalg.norm(v) / lowest
    below = (x * rows.b)[asked].sum() / np.linalg.norm(pulled[:-1])  # norm of sum x u
    return abs(above - below) / above


def _onto_null(rows: Rows, normal: "_NormalMatrix", x: np.ndarray) -> np.ndarray | None:
    """Move the weights x (n, S) of a small combination of rows to ones that give zero.

    Each round moves the weights just far enough that the combination vanishes, and
    moves large weights further than small ones. It sets weights that became negative to
    zero, and the next round corrects for this. Returns weights (n, S), or None if a
    round makes too little progress.
    """
    x = np.where(rows.b > 0, x, 0.0)
    last = np.inf
    while True:
        size = np.linalg.norm(rows.weights(x)) / x.sum()
        if size <= NULL:
            return x
        if not size <= PROGRESS * last:  # NaN ends here, too
            return None
        last = size
        theta = STIFF * x / x.max()
        factor = normal.factor(theta, tau=0.0)
        if factor is None:
            return None
        for _ in range(2):  # the second solve corrects the rounding of the first
            pulled = rows.weights(x)
            right = np.append(pulled, 0.0)
            step = cho_solve((factor, True), right, check_finite=False)
            x = x - theta * rows.margins(step[:-1].reshape(pulled.shape))
        x = np.maximum(x, 0.0)


def _cholesky(matrix: np.ndarray, *, overwrite: bool = False) -> np.ndarray | None:
    """Return the lower Cholesky factor, or None if the matrix is not positive definite.

    Only the lower triangles of the matrix and of the factor have a meaning. With
    `overwrite`, a matrix in Fortran order is overwritten even if the result is None.
    The function does not check for NaN: if the matrix contains NaN, so may the factor.
    """
    try:
        factor, _ = cho_factor(
            matrix, lower=True, overwrite_a=overwrite, check_finite=False
        )
    except LinAlgError:
        return None
    return factor


def _length(value: np.ndarray, step: np.ndarray) -> float:
    """Return the largest factor a <= 1 with value + a step >= 0, given value >= 0."""
    down = step < 0
    if not down.any():
        return 1.0
    return min(1.0, float((-value[down] / step[down]).min()))


class _NormalMatrix:
    """The matrix I + sum theta_m (u_m; -b_m) (u_m; -b_m)^T, built fast for any theta.

    In the block that belongs to W, entry (j k, j' k') is a sum over samples: z_k z_k'
    times sum_t theta_t delta_tj delta_tj'. So the block is the product of an (r r / 2,
    n) matrix and an (n, q q / 2) matrix, up to the order of its entries. This saves a
    factor of order S in operations, compared with a sum over all n S rows.
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
        """Return the Cholesky factor (r q + 1, r q + 1) for theta (n, S), or None.

        The result is None if the matrix is not positive definite. With tau = 0, the
        last row and the last column equal those of the identity matrix.
        """
        delta, z, b = self.rows
        n, _, r = delta.shape
        q = z.shape[1]

        # The block of W for j <= j' and k <= k', summed over the samples.
        first, second = self.pair
        product = np.zeros((first.size, self.queries.shape[1]))
        chunk = max(1, ENTRIES // (r * r))
        for begin in range(0, n, chunk):
            samples = slice(begin, begin + chunk)
            weighted = delta[samples] * theta[samples][..., None]
            squares = weighted.swapaxes(1, 2) @ delta[samples]  # (chunk, r, r)
            triangles = squares[:, first, second]  # (chunk, r (r + 1) / 2)
            product += triangles.T @ self.queries[samples]

        # Write the block into the matrix, of which only the upper triangle is filled.
        # The transpose of this matrix is a lower triangle in LAPACK's memory order, so
        # that LAPACK needs no copy.
        matrix = np.empty((r * q + 1, r * q + 1))
        row, entry = matrix.strides
        strides = (q * row, row, q * entry, entry)
        of_W = as_strided(matrix, (r, q, r, q), strides)
        full = product[:, self.place]  # (r (r + 1) / 2, q q)
        of_W[first, :, second, :] = full.reshape(first.size, q, q)

        # The last column, and the identity.
        pulled = self.rows.weights(theta * b)
        matrix[:-1, -1] = -tau * pulled.ravel()
        matrix[-1, -1] = tau * (theta * b**2).sum()
        diagonal = np.diag_indices(len(matrix))
        matrix[diagonal] += 1.0
        return _cholesky(matrix.T, overwrite=True)


def memory_of(n: int, S: int, r: int, q: int, method: str) -> float:
    """Estimate how many bytes of memory a method needs at its peak.

    Parameters
    ----------
    n, S, r, q : int
        Samples, constraints per sample, and the dimensions of tokens and queries.
    method : {"pivoting", "dual descent", "interior point"}
        The method.

    Returns
    -------
    float
        A rough estimate of the bytes: 8 for each entry of the largest arrays.
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
    """Raise MemoryError if a problem would not fit, before memory is allocated for it.

    Parameters
    ----------
    n, S, r, q : int
        Samples, constraints per sample, and the dimensions of tokens and queries.
    method : {"pivoting", "dual descent", "interior point"}
        The method.

    Raises
    ------
    MemoryError
        If the method needs more memory than is available. The message states the memory
        that is needed, the memory that is available, and roughly the number of samples
        that would fit, which is at least 1.
    """
    needed = memory_of(n, S, r, q, method)
    if needed <= ALWAYS_THERE:
        return
    there = memory.available()
    fits = n
    while fits > 1 and memory_of(fits, S, r, min(q, fits), method) > there:
        fits = fits * 9 // 10
    memory.require(
        needed,
        f"a token SVM of {n * S:,} constraints in {r * q:,} unknowns ({method})",
        f"about {fits:,} samples would fit",
    )
