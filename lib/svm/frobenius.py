"""Find the W of least Frobenius norm with all margins at least 1, or prove none exists.

The dual problem has one unknown per constraint: max_{beta >= 0} 1^T beta - beta^T K
beta / 2, where K is the Gram matrix of the constraints. Its optimality conditions are
beta >= 0, K beta >= 1 and beta^T (K beta - 1) = 0. The constraints with beta > 0
support W. Pivoting guesses this set of constraints (the *support*), solves on it with
equality, and then moves every constraint that violates a condition into or out of the
support.
"""

import contextlib
import math
from typing import NamedTuple

import numba
import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular
from scipy.optimize import nnls

import lib.compiled  # noqa: F401  # where numba keeps what is compiled below
from lib.attention.coordinates import constraint_rows
from lib.svm import large

# A constraint a_m whose norm exceeds that of the shortest one by more than this factor
# has to reach slightly more than margin 1.
BAD = 1e4
# The required excess over margin 1, divided by the relative length of the constraint.
# It is about 1e4 times the rounding error.
MORE = 3e-12
ROUNDING = np.finfo(float).eps
# The largest relative duality gap and constraint violation that a returned solution may
# have.
ACCURACY = 1e-9
# A combination of constraints counts as zero if its norm, divided by the sum of the
# norms of its terms, is smaller than this.
DEPENDENT = 1e-10
OF_SUPPORT = 2**24  # entries that the rows of a support may have at most: 128 MB
LARGER = 1e-7  # a dual above this share of the largest one belongs to the support
OF_ONE_QUERY = 1000  # at most this many constraints of one query are checked
SLACK = 1e-12  # a constraint violated by less than this, relative to b, is satisfied
PASSES = 6  # of iterative refinement; each one gains at least a digit
PATIENCE = 10  # pivoting gives up after this many exchanges without progress
# Plain loops compute this many columns of a Cholesky factor at a time. Matrix products
# apply the effect of all earlier columns.
BLOCK = 48


class Infeasible(ValueError):
    """Error with the proof that no W (or v) reaches positive margins in a run.

    The proof is a Farkas certificate, which holds for every norm. The certificate is
    non-negative, its entries sum to one, and sum certificate_m a_m = 0. Here a_{i,t} =
    (x_{i,s_i} - x_{i,t}) z_i^T for the token SVM and a_i = y_i x_{i,s_i} for the head
    SVM. If the constraints <a_m, W> >= 1 held, their sum with these weights would be 0
    >= 1.

    Parameters
    ----------
    problem : str
        The problem, ``"token SVM"`` or ``"head SVM"``, which the message names. All
        parameters are also attributes of the error.
    run : int
        The index of the run without a solution.
    certificate : ndarray (n, T-1) or (n,)
        The certificate, in the shape of the duals of one run.
    residual : float
        The norm of sum certificate_m a_m, divided by sum certificate_m ||a_m||. No W of
        norm 1 has all <a_m, W> above residual ||a_m||.
    one_query : bool, default False
        Whether the certificate is positive on two or more samples, all of which have
        the same query. It is False for a head SVM.

    Examples
    --------
    Two samples have the same tokens and the same query, but different opt tokens. Half
    of the one constraint plus half of the other one is zero.

    >>> from lib import attention, svm
    >>> X = np.array([np.eye(2), np.eye(2)])
    >>> data = attention.token_set(X, y=[1, 1], opt=[0, 1])
    >>> try:
    ...     svm.token_svm(data)
    ... except svm.Infeasible as error:
    ...     print(error.certificate.round(3), bool(error.residual < 1e-10))
    [[0.5]
     [0.5]] True
    """

    def __init__(
        self,
        problem: str,
        run: int,
        certificate: np.ndarray,
        residual: float,
        one_query: bool = False,
    ) -> None:
        self.problem = problem
        self.run = run
        self.certificate = certificate
        self.residual = residual
        self.one_query = one_query
        samples = np.unique(np.nonzero(certificate > 0)[0])
        shown = "samples " + ", ".join(map(str, samples[:8]))
        if len(samples) == 1:
            shown = f"sample {samples[0]}"
        if len(samples) > 8:
            shown += f" and {len(samples) - 8} more"
        if one_query:
            advice = (
                "They share one query, so W turns all of them to one direction: give "
                "each sample a query of its own, such as the mean of its tokens."
            )
        elif len(samples) == 1:
            advice = (
                "Select another token of this sample, hide copies of the selected one "
                "by a mask, see that its query is not zero, or leave the sample out."
            )
        elif certificate.ndim == 1:  # a certificate of the head SVM
            advice = "Select other tokens, or take fewer samples."
        else:
            advice = "Take other queries, select other tokens, or take fewer samples."
        super().__init__(
            f"{problem} of run {run} is infeasible: the constraints of {shown} "
            f"contradict one another, as a combination of them with weights above zero "
            f"is zero (`certificate`, relative residual {residual:.1e}). {advice}"
        )

    def __reduce__(self) -> tuple:
        # By default pickle keeps only an exception's message, which is not enough to
        # rebuild it.
        return type(self), (
            self.problem,
            self.run,
            self.certificate,
            self.residual,
            self.one_query,
        )


class Constraints(NamedTuple):
    """The constraints <a_m, W> >= 1 of one run, with a_m = delta_{i,t} z_i^T.

    Here delta is (n, S, d) and z is (n, d_z), so that there are n S pairs (i, t).
    `shape` is the shape of a certificate. Each a_m contains a factor `stretch` (n S,)
    of at most 1, see `Scaled`. If the margin of a constraint reaches this factor, it is
    at least 1 without the factor. A pair with a masked token has delta = 0 and is no
    constraint. `shown` lists the indices of the m pairs that are constraints (None: all
    pairs). Rows, duals and margins have entries for these m pairs only.

    `tokens`, if given, are X (n, S+1, d) and the indices of the selected tokens (n,),
    whose differences are delta up to rounding and a positive factor for each pair.
    """

    problem: str
    run: int
    shape: tuple[int, ...]
    delta: np.ndarray
    z: np.ndarray
    stretch: np.ndarray
    shown: np.ndarray | None = None
    tokens: tuple[np.ndarray, np.ndarray] | None = None

    def extended(self) -> "Constraints":
        """Return the same constraints with delta in numpy's `longdouble`.

        In float64 the difference of two tokens is rounded. If the margins that a W of
        norm 1 can reach are about 1e-7 or less, this rounding changes the margins of
        the solution by more than ACCURACY. Without `tokens`, delta itself is exact.
        """
        delta = self.delta.astype(np.longdouble)
        if self.tokens is not None:
            X, selected = self.tokens
            n, T, d = X.shape
            X = X.astype(np.longdouble)
            others = np.arange(T) != selected[:, None]
            exact = X[np.arange(n), selected][:, None] - X[others].reshape(n, T - 1, d)
            # The factor of a pair, from the largest entry before and after.
            largest = np.abs(exact).max(-1, keepdims=True)
            exact /= np.where(largest > 0, largest, 1)
            delta = exact * np.abs(delta).max(-1, keepdims=True)
        return self._replace(delta=delta)

    @property
    def asked(self) -> np.ndarray:
        """The value (m,) that the margin of each constraint must reach: its stretch."""
        return self.of_shown(self.stretch)

    def of_shown(self, values: np.ndarray) -> np.ndarray:
        """Select the values (m, ...) of the constraints from those of all n S pairs."""
        if self.shown is None:
            return values
        return values[self.shown]

    def everywhere(self, values: np.ndarray, other: float) -> np.ndarray:
        """Spread values (m,) of the constraints to all pairs, (n S,).

        Pairs that are no constraints get the value `other`.
        """
        if self.shown is None:
            return values
        full = np.full(len(self.stretch), other, values.dtype)
        full[self.shown] = values
        return full

    def gram(self) -> np.ndarray:
        """Compute the Gram matrix <a_m, a_m'> of the constraints, (m, m)."""
        K = _gram(self.delta, self.z)
        if self.shown is None:
            return K
        return K[np.ix_(self.shown, self.shown)]

    def weights(self, beta: np.ndarray) -> np.ndarray:
        """Compute W = sum beta_m a_m, (d, d_z)."""
        return weights(self.everywhere(beta, 0.0), self.delta, self.z)

    def margins(self, pulled: np.ndarray) -> np.ndarray:
        """Compute the margins (m,) of W from `pulled` = W z^T (d, n)."""
        return self.of_shown(np.einsum("ntd,dn->nt", self.delta, pulled).ravel())

    def infeasible(self, x: np.ndarray, residual: float) -> Infeasible:
        """Return the error to raise, from a certificate of the stretched rows.

        This certificate is x (m,) >= 0. It is not zero, and sum x_m a_m = 0 up to the
        relative `residual`.
        """
        weights = self.everywhere(x * self.asked, 0.0)
        certificate = (weights / weights.sum()).reshape(self.shape)
        samples = np.unique(np.nonzero(certificate > 0)[0])
        one_query = len(self.shape) == 2 and len(samples) > 1
        return Infeasible(
            self.problem,
            self.run,
            certificate,
            residual,
            one_query and bool((self.z[samples] == self.z[samples[0]]).all()),
        )


def solve(
    constraints: Constraints,
) -> tuple[np.ndarray, np.ndarray, str, np.ndarray | None]:
    """Solve one run.

    Returns the dual solution beta (m,), the margins (m,), the name of the method, and W
    (d, d_z). In place of W it returns None if the W that `weights` computes from beta
    is just as accurate. Raises Infeasible if there is no solution, RuntimeError if
    neither a solution within ACCURACY nor a certificate was found, and MemoryError if
    the problem would not fit.
    """
    delta = constraints.delta
    z = constraints.z
    if (found := _without_gram(constraints)) is not None:
        return found
    n, S, _ = delta.shape
    large.check_memory(n, S, *unknowns(delta, z), "pivoting")
    K = constraints.gram()
    length = np.sqrt(K.diagonal())  # ||a_m||
    if length.min() == 0:  # one constraint that is zero is a certificate
        alone = np.arange(length.size) == length.argmin()
        raise constraints.infeasible(alone.astype(float), 0.0)
    if len(K) <= min(delta.shape[-1], len(K)) * min(
        z.shape
    ):  # unknowns of W within the spans
        if (proved := _proved(K, block_pivoting(K), length, constraints)) is not None:
            return *proved, "block principal pivoting", None
    proved, guess = _proximal(K, length, constraints)
    if proved is not None:
        return *proved, "proximal block principal pivoting", None
    rows = constraints.of_shown(constraint_rows(*thin(delta, z)[:2]))
    unit_rows = rows / length[:, None]
    for find in (lambda: guess, lambda: _least_distance(unit_rows, np.ones(len(K)))):
        x, residual = _null_combination(unit_rows, find())
        if residual < DEPENDENT:
            raise constraints.infeasible(x / length, residual)
    if (by_rows := _on_rows(unit_rows, length, constraints)) is not None:
        return by_rows
    raise RuntimeError(
        f"{constraints.problem} of run {constraints.run}: no solution within "
        f"{ACCURACY:.0e}, and no proof that there is none. Its constraints have norms "
        f"within a factor {length.max() / length.min():.0e}; scaled to norm 1 they "
        f"leave no W of norm 1 a margin above {residual:.0e}. Rescale the tokens to a "
        "common norm, or select other tokens."
    )


def unknowns(delta: np.ndarray, z: np.ndarray) -> tuple[int, int]:
    """Return the dimensions of the spans of delta (n, S, d) and z (n, d_z)."""
    n, S, d = delta.shape
    return min(d, n * S), min(z.shape)


def _without_gram(
    constraints: Constraints,
) -> tuple[np.ndarray, np.ndarray, str, np.ndarray | None] | None:
    """Solve one run by the methods of `large`; return what `solve` returns, or None.

    The result is None if the caller should use the methods with the Gram matrix of all
    constraints. This is so if they are cheaper for this size. It is also so if the
    methods of `large` found neither a solution within ACCURACY nor a proof that there
    is none, and if there are at most `large.MOST_PIVOTING` pairs. Raises the errors of
    `solve`.
    """
    delta = constraints.delta
    z = constraints.z
    n, S, _ = delta.shape
    methods = large.methods(n, S, *unknowns(delta, z))
    if not methods:
        return None
    bases = None
    if delta.shape[-1] > n * S or z.shape[1] > n:
        delta, z, *bases = thin(delta, z)
    length = np.linalg.norm(delta, axis=-1) * np.linalg.norm(z, axis=-1)[:, None]
    of_constraints = constraints.of_shown(length.ravel())
    if of_constraints.min() == 0:
        zero = of_constraints == 0
        raise constraints.infeasible(zero / zero.sum(), 0.0)
    length = constraints.everywhere(of_constraints, 0.0).reshape(n, S)
    rows = large.unit_rows(delta, z, length)
    _refuse_one_query(constraints, of_constraints, rows)
    for method in methods:
        large.check_memory(n, S, *unknowns(delta, z), method)
        for verdict, x in large.candidates(rows, method):
            if verdict == "solved":
                proved = _proved_by(constraints, of_constraints, rows, x)
                if proved is not None:
                    return *proved, method, None
                proved = _proved_on(constraints, of_constraints, rows, x, bases)
                if proved is not None:
                    beta, margins, W = proved
                    return beta, margins, method, W
            else:
                _raise_if_null(constraints, of_constraints, rows, x)
    if n * S <= large.MOST_PIVOTING:
        return None
    raise RuntimeError(
        f"{constraints.problem} of run {constraints.run}: no solution within "
        f"{ACCURACY:.0e}, and no proof that there is none, by {' and '.join(methods)} "
        f"on its {n * S:,} constraints. Take fewer samples or tokens (up to "
        f"{large.MOST_PIVOTING:,} constraints another method helps), or rescale the "
        "tokens to a common norm."
    )


def _refuse_one_query(
    constraints: Constraints, length: np.ndarray, rows: large.Rows
) -> None:
    """Raise Infeasible if samples with the same query z contradict one another.

    W acts on these samples only through the vector W z, so that the problem is small.
    Queries can coincide: if the query is the first token, texts that begin with the
    same word share a query. At most OF_ONE_QUERY constraints of a query are checked,
    and only if there are more of them than entries in W z. So some contradictions are
    not found here. `length` (m,) are the norms of the constraints.
    """
    _, group = np.unique(rows.z, axis=0, return_inverse=True)
    group = group.ravel()
    shared = np.bincount(group)
    for g in np.argsort(-shared):
        if shared[g] == 1:
            return
        sample, token = np.nonzero((rows.b > 0) & (group == g)[:, None])
        few = np.linspace(0, sample.size - 1, min(sample.size, OF_ONE_QUERY))
        sample, token = sample[few.astype(int)], token[few.astype(int)]
        unit = rows.delta[sample, token]
        # With at most as many rows as unknowns a w exists, unless the rows are
        # dependent.
        if len(unit) > unit.shape[1]:
            nearest = _least_distance(unit, np.ones(len(unit)))
            weights, _ = _null_combination(unit, nearest)
            x = np.zeros_like(rows.b)
            x[sample, token] = weights
            _raise_if_null(constraints, length, rows, x)


def _proved_by(
    constraints: Constraints, length: np.ndarray, rows: large.Rows, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Compute beta (m,) and the margins (m,) from the duals x (n, S) of the unit rows.

    `length` (m,) are the norms of the constraints. The result is None if x is not a
    solution within ACCURACY.
    """
    beta = constraints.of_shown(x.ravel()) / (length * length.min())
    margins = constraints.margins(constraints.weights(beta) @ constraints.z.T)
    if _within_accuracy(beta, margins, constraints.asked):
        return beta, margins
    return None


def _proved_on(
    constraints: Constraints,
    length: np.ndarray,
    rows: large.Rows,
    x: np.ndarray,
    bases: list[np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """Solve on the rows with positive duals x (n, S), and return (beta, margins, W).

    It is meant for a W that has lost digits because it was computed from duals, whose
    terms cancel. A W that is computed from the rows loses fewer digits, see `_on_rows`.
    If the support of x yields no solution, non-negative least squares, an active-set
    method, looks for another support among these rows. beta, margins and `length`, the
    norms of the constraints, are (m,). W is (d, d_z), or None if the W computed from
    beta is just as accurate. `bases` are the bases that `thin` returned, or None if the
    rows are in the coordinates of the constraints. The result is None if no solution
    within ACCURACY was found.
    """
    found = _on_support(rows, x)
    if found is not None:
        w, exact = found
        W = w / length.min()
        if bases is not None:
            token_basis, query_basis = bases
            W = token_basis @ W @ query_basis.T
        beta = constraints.of_shown(exact.ravel()) / (length * length.min())
        margins = _proved_apart(constraints.extended(), beta, W)
        if margins is not None:
            return beta, margins, W
    proved = _proved_by(constraints, length, rows, _least_on(rows, x))
    if proved is None:
        return None
    beta, margins = proved
    return beta, margins, None


def _on_support(
    rows: large.Rows, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the w (r, q) of least norm on the support of x (n, S), and its duals.

    The duals have the shape (n, S), too. Rows that violate an optimality condition
    enter or leave the support, as long as the number of such rows falls. Among the
    duals that give this w, we choose those nearest to x, so that dependent rows share
    their weight as they do in x. The result is None if the number stops falling, or if
    the rows of the support would have too many entries.
    """
    support = x > LARGER * x.max()
    fewest = x.size + 1
    shape = rows.delta.shape[-1], rows.z.shape[-1]
    while True:
        held = _held(rows, support, OF_SUPPORT)
        if held is None:
            return None
        places, unit = held
        # The w of least norm with u_m w = b_m, for a largest set of independent rows.
        Q, R, order = qr(unit.T, mode="economic", pivoting=True, check_finite=False)
        diagonal = np.abs(R.diagonal())
        rank = np.count_nonzero(diagonal > DEPENDENT * diagonal[0])
        Q = Q[:, :rank]
        R = R[:rank, :rank]
        kept = order[:rank]
        asked = rows.b[places][kept]
        w = Q @ solve_triangular(R, asked, trans="T", check_finite=False)
        # The duals of this w.
        near = x[places]
        pulled = near @ unit
        if near.any():
            near = near * ((pulled @ w) / (pulled @ pulled))
        missing = w - near @ unit
        near[kept] += solve_triangular(R, Q.T @ missing, check_finite=False)
        # The wrong rows: those outside the support that are violated, and those inside
        # it whose dual is negative.
        slack = rows.margins(w.reshape(shape)) - rows.b
        wrong = ~support & (slack < -large.MISSED)
        wrong[places] |= near < -LARGER * near.max()
        count = np.count_nonzero(wrong)
        if count == 0:
            duals = np.zeros_like(x)
            duals[places] = np.maximum(near, 0.0)
            return w.reshape(shape), duals
        if count >= fewest:
            return None
        fewest = count
        support ^= wrong


def _raise_if_null(
    constraints: Constraints, length: np.ndarray, rows: large.Rows, x: np.ndarray
) -> None:
    """Raise Infeasible if the combination of rows with weights x (n, S) is zero.

    It tries x itself, and then the weights to which `_nearest_null` moves x. `length`
    (m,) are the norms of the constraints. If neither combination is zero, the function
    returns.
    """
    for found in (lambda: x, lambda: _nearest_null(rows, x)):
        null = found()
        total = null[rows.b > 0].sum()
        if total > 0:
            residual = np.linalg.norm(rows.weights(null)) / total
            if residual < DEPENDENT:
                null = constraints.of_shown(null.ravel())
                raise constraints.infeasible(null / length, residual)


def _held(
    rows: large.Rows, x: np.ndarray, most: int = large.ENTRIES
) -> tuple[tuple, np.ndarray] | None:
    """Return the indices of the k entries of x that are not zero, with their rows.

    x (n, S) holds duals >= 0 or booleans. The indices are two arrays of shape (k,), one
    of samples and one of tokens. The rows have the shape (k, r q). The result is None
    if x is zero, or if the rows would have more than `most` entries.
    """
    places = np.nonzero(x)
    sample = places[0]
    entries = sample.size * rows.delta.shape[-1] * rows.z.shape[1]
    if not 0 < entries <= most:
        return None
    outer = rows.delta[places][:, :, None] * rows.z[sample][:, None]
    return places, outer.reshape(sample.size, -1)


def _nearest_null(rows: large.Rows, x: np.ndarray) -> np.ndarray:
    """Move weights whose weighted sum of rows is nearly zero to ones whose sum is zero.

    The weights x (n, S) are at least zero. Returns weights (n, S) that add up to 1. If
    x is zero, or if its rows have more than `large.ENTRIES` entries, it returns x
    itself, unscaled. The caller has to check whether the weighted sum is now zero.
    """
    held = _held(rows, x)
    if held is None:
        return x
    places, unit = held
    moved = np.zeros_like(x)
    moved[places], _ = _null_combination(unit, x[places])
    return moved


def _least_on(rows: large.Rows, x: np.ndarray) -> np.ndarray:
    """Return the duals (n, S) of the least w with <row, w> >= b on the held rows.

    A row is held if its dual in x (n, S) is above LARGER times the largest dual.
    Non-negative least squares finds the duals. It is an active-set method, which
    dependent rows do not disturb. The result is x itself if no dual is positive or if
    the held rows have too many entries. It is zero if the solver reached its limit of
    iterations. If the rows contradict one another, the result is x or consists of very
    large duals, so the caller has to check it.
    """
    held = _held(rows, np.where(x > LARGER * x.max(), x, 0.0))
    if held is None:
        return x
    places, unit = held
    asked = rows.b[places]
    nearest = _least_distance(unit, asked)
    slack = 1 - asked @ nearest  # zero if the rows contradict one another
    if slack <= 0:
        return x
    moved = np.zeros_like(x)
    moved[places] = nearest / slack
    return moved


@numba.njit(cache=True)
def _gram(delta: np.ndarray, z: np.ndarray):
    """Compute the Gram matrix <a_p, a_p'> of all pairs p = (i, t), (n S, n S).

    Here a_p = delta_{i,t} z_i^T, with delta (n, S, d) and z (n, d_z). Pairs with a
    masked token are included.
    """
    n, S, d = delta.shape
    flat = delta.reshape(n * S, d)
    queries = z @ z.T
    K = flat @ flat.T
    blocks = K.reshape(n, S, n, S)
    for i in range(n):
        for j in range(n):
            for s in range(S):
                for t in range(S):
                    blocks[i, s, j, t] *= queries[i, j]
    return K


def weights(beta: np.ndarray, delta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Compute W = sum beta_{i,t} delta_{i,t} z_i^T, (d, d_z).

    Here beta is (n S,), one dual for each pair, delta is (n, S, d), and z is (n, d_z).
    """
    pulled = beta.reshape(len(z), 1, -1) @ delta  # (n, 1, d)
    return pulled[:, 0].T @ z


def _proved(
    K: np.ndarray, beta: np.ndarray | None, length: np.ndarray, constraints: Constraints
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (beta, margins), or None if beta is not a solution within ACCURACY.

    Both have the shape (m,). The margins are those of the W that follows from beta; see
    `_within_accuracy`. K is the Gram matrix (m, m) of the constraints, and `length`
    (m,) are their norms. If beta is None, so is the result.
    """
    if beta is None:
        return None
    if ROUNDING * (length @ beta) * length.max() < ACCURACY / 100:
        margins = K @ beta
    else:  # the terms of K beta are so large that their sum would lose digits
        margins = constraints.margins(constraints.weights(beta) @ constraints.z.T)
    if _within_accuracy(beta, margins, constraints.asked):
        return (beta, margins)
    return None


@numba.njit(cache=True)
def _within_accuracy(beta: np.ndarray, margins: np.ndarray, stretch: np.ndarray):
    """Return whether every margin reaches its stretch and the duality gap is closed.

    The margins may miss the stretch by ACCURACY times the stretch, and the gap may be
    ACCURACY times beta^T margins. All arguments are (m,). If one contains NaN, the
    result is False.
    """
    value = (beta * margins).sum()
    is_closed = abs((stretch * beta).sum() - value) <= ACCURACY * value
    return value > 0 and is_closed and 1 - (margins / stretch).min() <= ACCURACY


def _proximal(
    K: np.ndarray, length: np.ndarray, constraints: Constraints
) -> tuple[tuple[np.ndarray, np.ndarray] | None, np.ndarray]:
    """Find the dual solution for any K, even if K is singular.

    Returns the result of `_proved`, and the x (m,) defined below. If the result of
    `_proved` is None, x is a guess of weights with sum x_m a_m / length_m = 0.

    Let the rows be a_m / length_m, and b = min length / length. Then x solves min_{x >=
    0} ||sum x_m a_m / length_m||^2 + (b^T x - 1)^2 (Lawson and Hanson, 1974, ch. 23).
    This problem has a solution whether or not a W exists. If a W exists, beta = x / (1
    - b^T x) up to units. Otherwise sum x_m a_m / length_m is zero and b^T x = 1. Each
    step adds rho ||x - last||^2 to the objective, where last is the x of the step
    before. This term keeps the matrix regular, and vanishes as the steps converge.
    """
    b = length.min() / length
    bounded = K / np.outer(length, length) + np.outer(b, b)
    diagonal = np.diag(bounded).copy()
    x = np.zeros(len(K))
    nearest = bounded.sum(1)
    # Initial support: the half of the constraints that the sum of all rows satisfies
    # least.
    support = nearest <= _lower_median(nearest)
    for rho in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-10, 1e-10):
        np.fill_diagonal(bounded, diagonal + rho)
        new = block_pivoting(bounded, b + rho * x, support)
        if new is None:
            break
        x = new
        support = new > 0
        slack = 1 - b @ x
        if slack > 1e-13 and rho < 1e-6:
            beta = x / (length.min() * length * slack)
            if (proved := _proved(K, beta, length, constraints)) is not None:
                return proved, x
    # If W is large, 1 - b^T x loses digits, but the support of x is still correct.
    beta = block_pivoting(K, support=support)
    return _proved(K, beta, length, constraints), x


def _on_rows(
    unit_rows: np.ndarray, length: np.ndarray, constraints: Constraints
) -> tuple[np.ndarray, np.ndarray, str, np.ndarray] | None:
    """Solve on the rows themselves; return what `solve` returns, or None if it fails.

    The unit_rows (m, D) are in the bases of `thin`; `length` (m,) are the norms of the
    constraints.

    Let s be the largest margin that a W of norm 1 can attain if all constraints have
    norm 1. If the margins of the solution are computed from the duals, whose terms
    cancel, they have an error of eps/s^2. If they are computed from the rows, they have
    an error of eps/s. If this is too large, `_refined` corrects the solution in
    extended precision.
    """
    shortest = length.min()
    asked = shortest / length
    on = _least_distance(unit_rows, asked) > 0
    if not on.any():
        return None
    w = np.zeros(unit_rows.shape[1])
    beta = np.zeros(len(length))
    for _ in range(3):  # each solve corrects the rounding error of the one before
        w += np.linalg.lstsq(unit_rows[on], asked[on] - unit_rows[on] @ w, rcond=None)[
            0
        ]
    beta[on] = np.linalg.lstsq(unit_rows[on].T, w, rcond=None)[0]
    w = w / shortest
    beta = beta / (length * shortest)
    delta, z, *bases = thin(constraints.delta, constraints.z)
    token_basis, query_basis = bases
    W = token_basis @ w.reshape(delta.shape[-1], z.shape[-1]) @ query_basis.T
    constraints = constraints.extended()
    margins = _proved_apart(constraints, beta, W)
    if margins is None:
        W, beta = _refined(W, beta, on, unit_rows, length, constraints, bases)
        margins = _proved_apart(constraints, beta, W)
    if margins is None:
        return None
    return beta, margins, "least distance on the rows", W


def gap(constraints: Constraints, beta: np.ndarray, W: np.ndarray) -> float:
    """Return | ||W|| - lower bound | / ||W|| for W (d, d_z) and any beta (m,) >= 0.

    The lower bound is that of weak duality, sum beta_m asked_m / ||sum beta_m a_m||. It
    does not require W = sum beta_m a_m. The constraints come from
    `Constraints.extended`. The terms of the sum cancel, so it is computed in their
    precision.
    """
    combined = constraints.weights(beta.astype(np.longdouble))
    norms = np.sqrt((combined**2).sum() * (W.astype(np.longdouble) ** 2).sum())
    return float(abs(1 - (beta * constraints.asked).sum() / norms))


def _proved_apart(
    constraints: Constraints, beta: np.ndarray, W: np.ndarray
) -> np.ndarray | None:
    """Return the margins (m,) of W (d, d_z), computed from `Constraints.extended`.

    The duals beta (m,) are a proof of their own, since W was not computed from them.
    The result is None if W and beta are not a solution within ACCURACY.
    """
    margins = constraints.margins(W.astype(np.longdouble) @ constraints.z.T)
    margins = margins.astype(float)
    if not (beta >= 0).all() or not beta.any():
        return None
    is_closed = gap(constraints, beta, W) <= ACCURACY
    if is_closed and _within_accuracy(beta, margins, constraints.asked):
        return margins
    return None


def _refined(
    W: np.ndarray,
    beta: np.ndarray,
    on: np.ndarray,
    unit_rows: np.ndarray,
    length: np.ndarray,
    constraints: Constraints,
    bases: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Correct W (d, d_z) and its duals beta (m,) by iterative refinement.

    Each pass computes two errors in numpy's `longdouble`: by how much the margins of
    the support `on` (m,) differ from 1, and by how much W differs from the weighted sum
    of constraints that the duals give. It then solves for the corrections in float64.
    At the end W is rounded to float64 by `_rounded`. On machines whose `longdouble` is
    float64, nothing is gained. The constraints come from `Constraints.extended`, and
    `bases` are the bases that `thin` returned; the other arguments are those of
    `_on_rows`.
    """
    token_basis, query_basis = bases
    inside = unit_rows[on]
    W = W.astype(np.longdouble)
    beta = beta.astype(np.longdouble)
    for _ in range(PASSES):
        margins = constraints.margins(W @ constraints.z.T)
        missing = ((1 - margins) / length)[on].astype(float)
        step = np.linalg.lstsq(inside, missing, rcond=None)[0]
        W += token_basis @ step.reshape(token_basis.shape[1], -1) @ query_basis.T
        rest = (W - constraints.weights(beta)).astype(float)
        rest = token_basis.T @ rest @ query_basis
        step = np.linalg.lstsq(inside.T, rest.ravel(), rcond=None)[0]
        beta[on] += step / length[on]
    rows = constraint_rows(constraints.delta.astype(float), constraints.z)
    rows = constraints.of_shown(rows)[on]
    return _rounded(W.ravel(), rows).reshape(W.shape), beta.astype(float)


def _rounded(w: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Round w (D,) to float64 so that rows @ w hardly changes; rows is (k, D).

    Rounding every entry to the nearest number would change <row, w> by about eps ||w||,
    which exceeds ACCURACY once ||w|| is about 1e7. So the entries are rounded one after
    the other, and after each of them the entries that are still exact make up for the
    error. Only the error of the last entries remains. So the entries whose rounding
    changes rows @ w most come first. All entries but the last 3k are rounded at once,
    which saves time.
    """
    effect = np.spacing(np.abs(w.astype(float))) * np.linalg.norm(rows, axis=0)
    order = np.argsort(-effect, kind="stable")
    start = max(len(w) - 3 * len(rows), 0)
    rounded = w.copy()
    for first, last in [(0, start), *((i, i + 1) for i in range(start, len(w)))]:
        now = order[first:last]
        later = order[last:]
        nearest = rounded[now].astype(float)
        error = rows[:, now] @ (rounded[now] - nearest).astype(float)
        rounded[now] = nearest
        if later.size:
            rounded[later] += np.linalg.lstsq(rows[:, later], error, rcond=None)[0]
    return rounded.astype(float)


def _least_distance(rows: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Find the x >= 0 (m,) that minimises ||sum x_m rows_m||^2 + (asked^T x - 1)^2.

    The rows have the shape (m, D), and asked has the shape (m,). The result is positive
    on the rows that support the w of least norm with rows w >= asked (Lawson and
    Hanson). It is zero if the solver reached its limit of iterations.
    """
    stacked = np.vstack([rows.T, asked])
    with contextlib.suppress(RuntimeError):  # raised after maxiter iterations
        return nnls(stacked, np.eye(len(stacked))[-1], maxiter=30 * len(rows))[0]
    return np.zeros(len(rows))


def thin(delta: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, ...]:
    """Express delta (n, S, d) and z (n, d_z) in orthonormal bases of their spans.

    Returns delta (n, S, r) and z (n, q) in these bases, and the bases themselves,
    (d, r) and (d_z, q), with r = min(d, n S) and q = min(d_z, n).
    """
    n, S, d = delta.shape
    token_basis, flat = np.linalg.qr(delta.reshape(n * S, d).T)
    query_basis, queries = np.linalg.qr(z.T)
    return flat.T.reshape(n, S, -1), queries.T, token_basis, query_basis


def _null_combination(unit_rows: np.ndarray, x: np.ndarray):
    """Move weights x >= 0 (m,) to the nearest ones with rows^T x = 0.

    A row whose weight would not stay positive is left out, and the remaining weights
    are moved again. The rows (m, D) have norm 1. Returns weights (m,) that add up to 1,
    and the value of ||rows^T x|| for them. If the moved weights do not lower this
    value, the given weights are returned, scaled to sum 1. If x is zero, it returns x
    and infinity.
    """
    if not x.any():
        return x, np.inf
    tried = [x / x.sum()]
    support = np.flatnonzero(x)
    while support.size:
        inside = unit_rows[support]
        weights = (
            x[support] - np.linalg.lstsq(inside.T, x[support] @ inside, rcond=None)[0]
        )
        if weights.min() > 0:
            tried.append(np.zeros(len(x)))
            tried[1][support] = weights / weights.sum()
            break
        support = support[weights > 0]  # leave out rows whose weight turned negative
    return min(
        ((y, np.linalg.norm(y @ unit_rows)) for y in tried), key=lambda pair: pair[1]
    )


def _lower_median(values: np.ndarray) -> float:
    """Return the median of `values` (m,); of two middle values, the smaller one."""
    middle = (len(values) - 1) // 2
    return np.partition(values, middle)[middle]


def block_pivoting(
    K: np.ndarray, b: np.ndarray | None = None, support: np.ndarray | None = None
) -> np.ndarray | None:
    """Find the beta >= 0 with K beta >= b and beta^T (K beta - b) = 0.

    K (m, m) is symmetric positive definite, b is (m,) and 1 by default; m >= 1.
    `support` (m,) is a boolean mask, the first guess of the indices with beta > 0. By
    default it contains the half of the indices with the smallest row sums of K. The
    method is that of Judice and Pires (1994): it solves on the support, and moves all
    indices that violate a condition into or out of the support at once. If this stops
    making progress, non-negative least squares takes over.

    Off the support, K beta >= b holds up to SLACK times the largest |b|. On the
    support, K beta = b holds up to the rounding error of the solve, about eps times the
    condition number of K. Returns beta (m,), or None if a part of K that was factorised
    is not positive definite. Raises RuntimeError if non-negative least squares reaches
    its limit of iterations.
    """
    if b is None:
        b = np.ones(len(K))
    if support is None:
        total = K.sum(1)
        support = total <= _lower_median(total)
    beta, ended = _exchanged(K, b, support.copy())
    if ended:
        if beta.size == 0:  # the part of K on a support is not positive definite
            return None
        return beta
    try:
        factor = cholesky(K, lower=True)
    except np.linalg.LinAlgError:
        return None
    # Non-negative least squares never cycles. It solves the same problem, because
    # beta^T K beta / 2 - b^T beta = ||L^T beta - L^-1 b||^2 / 2 + const.
    return nnls(factor.T, solve_triangular(factor, b, lower=True), maxiter=10 * len(K))[
        0
    ]


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _dot(x: np.ndarray, y: np.ndarray, count: int):
    total = 0.0
    for k in range(count):
        total += x[k] * y[k]
    return total


@numba.njit(cache=True)
def _positive(L: np.ndarray):
    """Replace the lower part of K (m, m), given as L, by the L of K = L L^T.

    The upper part is neither read nor kept. Returns False if K is not positive
    definite.
    """
    m = len(L)
    for first in range(0, m, BLOCK):
        last = min(first + BLOCK, m)
        if first:
            rows = np.ascontiguousarray(L[first:, :first])
            product = rows @ np.ascontiguousarray(rows[: last - first].T)
            # Entry by entry, here and below, because numba needs seconds to compile a
            # slice assignment.
            for i in range(len(product)):
                for j in range(last - first):
                    L[first + i, first + j] -= product[i, j]
        for i in range(first, m):
            row = L[i, first:last]
            for j in range(min(i + 1, last) - first):
                row[j] -= _dot(row, L[first + j, first:last], j)
                if first + j < i:
                    row[j] /= L[first + j, first + j]
            if i < last:
                if not L[i, i] > 0:
                    return False
                L[i, i] = np.sqrt(L[i, i])
    return True


@numba.njit(cache=True)
def _exchanged(K: np.ndarray, b: np.ndarray, support: np.ndarray):
    """Exchange indices of `support` (m,), in place, until none violates a condition.

    Returns (beta, ended). If `ended` is True, beta (m,) is the solution, or it is empty
    because K (m, m) is not positive definite on one of the supports. If `ended` is
    False, the exchanges stopped making progress, and beta is empty.
    """
    m = len(b)
    largest = 0.0
    for i in range(m):
        largest = max(largest, abs(b[i]))
    tolerance = SLACK * largest
    fewest = m + 1
    patience = PATIENCE
    inside = np.empty(m, np.int64)
    while patience >= 0:
        size = 0
        for i in range(m):
            if support[i]:
                inside[size] = i
                size += 1
        beta = np.zeros(m)
        if not _solve_on(K, b, inside[:size], beta):
            return np.empty(0), True
        product = K @ beta
        count = 0
        for i in range(m):
            if support[i]:
                wrong = beta[i] < 0
            else:
                wrong = product[i] - b[i] < -tolerance
            if wrong:
                support[i] = not support[i]
                count += 1
        if count == 0:
            return beta, True
        if count < fewest:
            fewest = count
            patience = PATIENCE
        else:
            patience -= 1
    return np.empty(0), False


@numba.njit
def _solve_on(
    K: np.ndarray, b: np.ndarray, inside: np.ndarray, beta: np.ndarray
) -> bool:
    """Solve K x = b on the indices `inside`, and write x to these entries of beta (m,).

    The other entries of beta stay as they are. Returns False if this part of K is not
    positive definite.
    """
    size = inside.size
    L = np.empty((size, size))
    x = np.empty(size)
    for i in range(size):
        x[i] = b[inside[i]]
        for j in range(size):
            L[i, j] = K[inside[i], inside[j]]
    if not _positive(L):
        return False
    for i in range(size):
        x[i] = (x[i] - _dot(L[i], x, i)) / L[i, i]
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        for j in range(i):
            x[j] -= L[i, j] * x[i]
    for i in range(size):
        beta[inside[i]] = x[i]
    return True


class Scaled(NamedTuple):
    """The factors of the constraints, in the units that the solver uses.

    The solver sees stretch_m 2^-exponent a_m in place of a_m = delta_{i,t} z_i^T. Only
    the products <a_m, W> matter. So each factor of a_m is divided by a power of two,
    which causes no rounding. What remains is one common unit for W, which is set by the
    shortest constraint.

    The fields are the factors delta (runs, n, S, d) and z (runs, n, d_z); `exponent`
    (runs,), the binary exponent of the norm of the shortest a_m; `stretch` (runs, m),
    at most 1; and `ratio` (runs,), the norm of the longest a_m divided by the norm of
    the shortest a_m. Here the norms ||a|| are estimated from the largest entries.

    If ||a_m|| / min ||a|| exceeds BAD, the rounding error could exceed the margin. Then
    the constraint <a_m, W> >= 1 is replaced by <a_m, W> >= 1 / stretch_m, where 1 /
    stretch_m = 1 + MORE ||a_m|| / min ||a||. This raises the norm of W by at most MORE
    ||W_1||, where W_1 is the solution for constraints of norm 1.
    """

    delta: np.ndarray
    z: np.ndarray
    exponent: np.ndarray
    stretch: np.ndarray
    ratio: np.ndarray


@numba.njit(cache=True, error_model="numpy")
def scaled(
    X: np.ndarray, selected: np.ndarray, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute the fields of `Scaled` for delta_{i,t} = x_{i,selected} - x_{i,t}.

    X is (runs, n, S+1, d), `selected` (runs, n) holds the index of the selected token
    of each sample, and z is (runs, n, d_z). Returns the fields in the order of
    `Scaled`.
    """
    runs, n, T, d = X.shape
    S = T - 1
    z = z.copy()
    delta = np.empty((runs, n, S, d))
    exponent = np.zeros(runs, np.int64)
    stretch = np.ones((runs, n * S))
    ratio = np.ones(runs)
    for run in range(runs):
        rows = np.empty(n * S, np.int64)
        is_zero = np.empty(n * S, np.bool_)
        for i in range(n):
            largest_z, exponent_z = _normalised(z[run, i])
            chosen = selected[run, i]
            for s in range(S):
                for k in range(d):
                    delta[run, i, s, k] = (
                        X[run, i, chosen, k] - X[run, i, s + (s >= chosen), k]
                    )
                largest, exponent_delta = _normalised(delta[run, i, s])
                rows[i * S + s] = exponent_z + exponent_delta
                is_zero[i * S + s] = largest == 0 or largest_z == 0
        found = False
        for m in range(n * S):
            if not is_zero[m]:
                if not found or rows[m] < exponent[run]:
                    exponent[run] = rows[m]
                found = True
        for m in range(n * S):
            # The inverse of the relative length: min ||a|| / ||a_m||.
            inverse = math.ldexp(1.0, min(exponent[run] - rows[m], 0))
            length = 1 / inverse
            if inverse < 1 / BAD:
                length = 1 / (inverse + MORE)
                stretch[run, m] = inverse * length
            if not is_zero[m]:
                ratio[run] = max(ratio[run], 1 / inverse)
            for k in range(d):
                delta[run, m // S, m % S, k] *= length
    return delta, z, exponent, stretch, ratio


@numba.njit(cache=True)
def _normalised(x: np.ndarray):
    """Divide x in place by a power of two, so that its largest |entry| is in [0.5, 1).

    Returns the largest |entry| before the division, and the exponent of the power of
    two. If x is zero, both are 0.
    """
    largest = 0.0
    for k in range(len(x)):
        largest = max(largest, abs(x[k]))
    exponent = math.frexp(largest)[1]
    for k in range(len(x)):
        x[k] = math.ldexp(x[k], -exponent)
    return largest, exponent
