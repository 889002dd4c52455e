"""Minimal coordinates, in which the cost of training does not grow with the dimension.

The gradient in paper A is a sum of outer products of tokens and queries, so that W_t -
W_0 never leaves span(tokens) x span(queries). We therefore express the tokens in an
orthonormal basis of their span, which has at most n T vectors, and the queries in an
orthonormal basis of the span of the queries, which has at most n vectors. All scores,
norms and angles stay the same.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib import blas
from lib.attention.token_sets import TokenSet, check_sizes
from lib.representation import Shapes

LARGE = 2**18  # at most this many entries are factorised in one call
BLOCK = 2**12  # a QR factorisation takes this many coordinates at once
# A vector counts as lying in a span if its distance from the span, divided by its
# length, is at most this.
DEPENDENT = 1e-12


@dataclass(frozen=True, repr=False, eq=False)
class Minimal(Shapes):
    """A token set in minimal coordinates, with orthonormal bases that map back.

    Parameters
    ----------
    tokens : TokenSet
        The token set in minimal coordinates: X (runs, n, T, r), z (runs, n, q) and u
        (runs, r). Labels, opt tokens and mask are those of the original token set.
    token_basis : ndarray (runs, d, r)
        A matrix with orthonormal columns. Each token is `token_basis` times its minimal
        coordinates.
    query_basis : ndarray (runs, d_z, q)
        A matrix with orthonormal columns. Each query is `query_basis` times its minimal
        coordinates.
    head_outside : ndarray (runs,)
        The norm of the part of the head outside the span of the tokens; zero if it is
        at most 1e-12 times the norm of the head. Training never changes this part, and
        no score depends on it, but it contributes to the norm and the direction of the
        head.

    Examples
    --------
    >>> from lib import attention
    >>> data = attention.class_mean_tokens([0], n=4, T=3, d=300)
    >>> problem = attention.minimal(data)
    >>> problem.tokens.X.shape[-1] <= 4 * 3  # few coordinates instead of 300
    True
    >>> inside, outside = problem.reduce(np.ones((1, 300, 300)))
    >>> float(np.hypot(np.linalg.norm(inside), outside[0]).round(6))  # nothing is lost
    300.0
    """

    tokens: TokenSet
    token_basis: np.ndarray
    query_basis: np.ndarray
    head_outside: np.ndarray

    def reduce(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Express W in minimal coordinates.

        Parameters
        ----------
        W : ndarray (runs, d, d_z)
            The matrix in the model's coordinates.

        Returns
        -------
        inside : ndarray (runs, r, q)
            W in minimal coordinates.
        outside : ndarray (runs,)
            The norm of the part of W that minimal coordinates do not represent.
        """
        inside = np.swapaxes(self.token_basis, 1, 2) @ W @ self.query_basis
        outside = W - self.expand(inside)
        return inside, np.sqrt(np.einsum("rij,rij->r", outside, outside))

    def expand(self, inside: np.ndarray) -> np.ndarray:
        """Compute the matrix W that has the given minimal coordinates.

        Parameters
        ----------
        inside : ndarray (runs, r, q)
            The minimal coordinates.

        Returns
        -------
        ndarray (runs, d, d_z)
            The matrix in the model's coordinates.
        """
        return self.token_basis @ inside @ np.swapaxes(self.query_basis, 1, 2)


def token_set_of(tokens: TokenSet | Minimal) -> TokenSet:
    """Return the token set used for training, in the coordinates of `tokens`.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets.

    Returns
    -------
    TokenSet
        `tokens` itself, or the token set of a Minimal.

    Raises
    ------
    TypeError
        If `tokens` is neither of the two.
    """
    if isinstance(tokens, Minimal):
        return tokens.tokens
    if not isinstance(tokens, TokenSet):
        raise TypeError(
            f"tokens = {type(tokens).__name__}; it must be a TokenSet, which "
            "lib.token_set makes of arrays"
        )
    return tokens


def minimal(tokens: TokenSet | Minimal) -> Minimal:
    """Express a token set in orthonormal bases of the spans of its tokens and queries.

    The bases come from the Gram-Schmidt process, applied to the tokens and to the
    queries in the given order. Scores, norms and angles stay the same up to rounding,
    but training needs only r = min(nT, d) and q = min(n, d_z) coordinates instead of d
    and d_z. With a mask, nT is replaced by the number of real tokens in the run that
    has the most of them.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets, one per run. A Minimal is returned unchanged.

    Returns
    -------
    Minimal
        A record of the data sets in minimal coordinates, ``.tokens``, and the bases.
        ``.reduce(W)`` and ``.expand(W)`` convert a matrix to these coordinates and
        back.

    Raises
    ------
    TypeError
        If `tokens` is anything else.
    ValueError
        If the largest absolute entry of X, z or u is not zero and lies outside 1e-100
        ... 1e100.

    Notes
    -----
    The gradient in paper A is a sum of outer products of tokens and queries, so that
    W_t - W_0 never leaves span(tokens) x span(queries).

    Examples
    --------
    >>> from lib import attention
    >>> data = attention.class_mean_tokens(0, n=2, T=3, d=1000)
    >>> small = attention.minimal(data)
    >>> small.tokens
    TokenSet(X (1, 2, 3, 6), y (1, 2), z (1, 2, 2), u (1, 6), opt (1, 2))
    >>> W = np.arange(12.0).reshape(1, 6, 2)
    >>> in_small = attention.logits(small.tokens, W)
    >>> in_large = attention.logits(data, small.expand(W))
    >>> bool(np.allclose(in_small, in_large))
    True
    """
    if isinstance(tokens, Minimal):
        return tokens
    check_sizes(token_set_of(tokens))
    runs, n, T, d = tokens.shape
    with blas.one_thread():
        if tokens.mask is None:
            token_basis, X = _basis(tokens.X.reshape(runs, n * T, d))
        else:
            token_basis, X = _basis_of_shown(tokens.X, tokens.mask, tokens.opt)
        query_basis, z = _basis(tokens.z)
    u = (tokens.u[:, None] @ token_basis)[:, 0]
    # Rounding must not make equal tokens differ, since their scores have to stay equal,
    # even during joint training.
    X = X.reshape(runs, n, T, -1)
    first = first_equal(tokens.X)
    if (first != np.arange(T)).any():
        X = vectors_at(X, first)
    rest = tokens.u - np.einsum("rk,rdk->rd", u, token_basis)
    distance = np.linalg.norm(rest, axis=1)
    inside = distance <= DEPENDENT * np.linalg.norm(tokens.u, axis=1)
    return Minimal(
        tokens=replace(tokens, X=X, z=z, u=u),
        token_basis=token_basis,
        query_basis=query_basis,
        head_outside=np.where(inside, 0.0, distance),
    )


def vectors_at(X: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the vectors X[r, i, index[r, i, k]], (runs, n, k, d).

    X has the shape (runs, n, T, d), and `index` has the shape (runs, n, k). This copies
    whole vectors, and takes a fifth of the time of `np.take_along_axis`.
    """
    runs, n, T, d = X.shape
    first = T * np.arange(runs * n).reshape(runs, n, 1)
    return X.reshape(-1, d).take(first + index, axis=0)


def first_equal(X: np.ndarray) -> np.ndarray:
    """For each vector t, find the first vector of its sample that equals it.

    X has the shape (runs, n, T, d). Returns indices (runs, n, T). If no earlier vector
    equals vector t, its index is t itself.
    """
    runs, n, T, _ = X.shape
    first = np.tile(np.arange(T), (runs, n, 1))
    entry = X[..., 0]
    # Compare the first entries first, since few of them are equal if entries are
    # continuous.
    alike = entry[..., :, None] == entry[..., None, :]
    for t, s in np.argwhere(np.tril(alike.any((0, 1)), -1))[
        ::-1
    ]:  # descending, so that the first equal s is written last
        r, i = np.nonzero(alike[..., t, s])
        same = (X[r, i, s] == X[r, i, t]).all(-1)
        first[r[same], i[same], t] = s
    return first


def _basis(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find an orthonormal basis of the span of `rows` (runs, m, d).

    It is the basis that the Gram-Schmidt process makes from the rows in their order. Up
    to rounding, row k has coordinates in the first k + 1 basis vectors only, and the
    last of these coordinates is positive. Returns the basis (runs, d, r) with r =
    min(d, m), and the rows in this basis (runs, m, r). A row that depends on earlier
    rows adds no basis vector; further vectors then complete the basis.
    """
    runs, m, d = rows.shape
    r = min(d, m)
    columns = np.swapaxes(rows[:, :r], 1, 2)  # (runs, d, r)
    if d <= max(BLOCK, m):
        basis = np.empty((runs, d, r))
        inside = np.empty((runs, m, r))
        # A single call for all large runs would need three copies of them.
        at_once = max(1, LARGE // (d * m))
        for first in range(0, runs, at_once):
            part = slice(first, first + at_once)
            basis[part], upper = np.linalg.qr(columns[part])
            inside[part, :r] = np.swapaxes(upper, 1, 2)
            if m > r:  # the first d rows give a basis of all vectors
                inside[part, r:] = rows[part, r:] @ basis[part]
    else:
        basis, upper = _qr_by_blocks(columns, max(BLOCK, m))
        inside = np.swapaxes(upper, 1, 2)
    for Q, C in zip(basis, inside, strict=True):  # (d, r), (m, r)
        diagonal = np.diagonal(C)
        if (np.abs(diagonal) > DEPENDENT * np.linalg.norm(C[:r], axis=1)).all():
            signs = np.sign(diagonal)
            Q *= signs
            C *= signs
        else:  # QR turned the rounding error of a dependent column into a direction
            turn = _in_order(C.T)
            for first in range(0, d, BLOCK):
                Q[first : first + BLOCK] = Q[first : first + BLOCK] @ turn
            C[:] = C @ turn
    return basis, inside


def _basis_of_shown(
    tokens: np.ndarray, mask: np.ndarray, opt: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find an orthonormal basis of the span of the tokens that are not masked.

    Masked tokens are copies of opt tokens. They would add coordinates and, as dependent
    columns, slow down the computation. `tokens` has the shape (runs, n, T, d), `mask`
    has the shape (runs, n, T), and `opt` has the shape (runs, n). Returns the basis
    (runs, d, r), and all tokens in this basis, (runs, n T, r). There, a masked token is
    again the opt token of its sample.
    """
    runs, n, T, d = tokens.shape
    shown = mask.reshape(runs, n * T)
    # The real tokens come first, in their order. Then come as many masked tokens as are
    # needed to reach the number of real tokens in the run that has the most of them.
    order = np.argsort(~shown, axis=1, kind="stable")[:, : shown.sum(1).max()]
    rows = np.take_along_axis(tokens.reshape(runs, n * T, d), order[..., None], 1)
    basis, inside = _basis(rows)
    X = np.zeros((runs, n * T, basis.shape[2]))
    np.put_along_axis(X, order[..., None], inside, 1)
    X = X.reshape(runs, n, T, -1)
    chosen = np.take_along_axis(X, opt[..., None, None], 2)
    X = np.where(mask[..., None], X, chosen)
    return basis, X.reshape(runs, n * T, -1)


def _in_order(columns: np.ndarray) -> np.ndarray:
    """Return an orthogonal matrix (r, r), by Gram-Schmidt on the `columns` (r, m).

    Columns that depend on earlier columns are skipped. If fewer than r columns remain,
    unit vectors complete the matrix.
    """
    r = len(columns)
    rank = 0
    turn = np.empty((r, r))

    # For a single vector, this takes a tenth of the time of numpy's norm.
    def length(v: np.ndarray):
        return np.sqrt(v @ v)

    for column in np.hstack([columns, np.eye(r)]).T:
        rest = column
        for _ in range(2):  # the second pass corrects the rounding of the first
            rest = rest - turn[:, :rank] @ (turn[:, :rank].T @ rest)
        distance = length(rest)
        if distance > DEPENDENT * length(column):
            turn[:, rank] = rest / distance
            rank += 1
        if rank == r:
            break
    return turn


def _qr_by_blocks(columns: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the QR factorisation of columns (runs, d, m), with d > block >= m.

    The function first factorises blocks of rows, since LAPACK needs four copies of the
    matrix that it factorises. Returns Q (runs, d, m) and R (runs, m, m).
    """
    runs, d, m = columns.shape
    basis = np.empty((runs, d, m))
    uppers = []
    parts = [slice(first, first + block) for first in range(0, d, block)]
    for part in parts:
        Q, upper = np.linalg.qr(columns[:, part])
        basis[:, part, : Q.shape[-1]] = Q
        uppers.append(upper)
    turned, upper = np.linalg.qr(np.concatenate(uppers, 1))
    first = 0
    for part, upper_part in zip(parts, uppers, strict=True):
        count = upper_part.shape[1]
        basis[:, part] = basis[:, part, :count] @ turned[:, first : first + count]
        first += count
    return basis, upper


def others(selected: np.ndarray, T: int) -> np.ndarray:
    """List the tokens (runs, n, T-1) other than `selected` (runs, n), ascending."""
    rank = np.arange(T - 1)
    return rank + (rank >= selected[..., None])


def opt_first(tokens: TokenSet) -> np.ndarray:
    """List the tokens (runs, n, T) of each sample: opt, then the others ascending."""
    rest = others(tokens.opt, tokens.shape[2])
    return np.concatenate([tokens.opt[..., None], rest], -1)


def signed_opt_first(tokens: TokenSet) -> np.ndarray:
    """Return y_i x_{i,t}, (runs, n, T, d), with the opt token of each sample first.

    The other tokens keep their order.
    """
    return tokens.y[..., None, None] * vectors_at(tokens.X, opt_first(tokens))


def differences(
    tokens: TokenSet, selected: np.ndarray, *, masked_as_zero: bool = False
) -> np.ndarray:
    """Compute delta_{i,t} = x_{i,selected} - x_{i,t}, (runs, n, T-1, d).

    The integer array `selected` (runs, n) has one token per sample, and t runs over the
    other tokens in ascending order. The caller must make sure that each selected index
    is in 0 ... T-1 and is not masked; this is not checked. If the other token is
    masked, the difference has no meaning. With `masked_as_zero`, such a difference is
    zero, and the caller has to leave out the pairs for which `shown_pairs` is False.
    Without `masked_as_zero`, a token set with a mask raises ValueError.
    """
    if tokens.mask is not None and not masked_as_zero:
        raise ValueError(
            "tokens have a mask, and `differences` has no value for masked tokens: "
            "give masked_as_zero=True and use the pairs of `shown_pairs` alone, or "
            "give sequences of one length"
        )
    rest = others(selected, tokens.shape[2])
    chosen = vectors_at(tokens.X, selected[..., None])  # (runs, n, 1, d)
    delta = vectors_at(tokens.X, rest)
    np.subtract(chosen, delta, out=delta)
    hidden = hidden_pairs(tokens, selected)
    if hidden is not None:
        delta[hidden] = 0.0
    return delta


def hidden_pairs(tokens: TokenSet, selected: np.ndarray) -> np.ndarray | None:
    """Return whether each pair's other token is masked, (runs, n, T-1).

    The result is None if the token set has no mask.
    """
    if tokens.mask is None:
        return None
    rest = others(selected, tokens.shape[2])
    return ~np.take_along_axis(tokens.mask, rest, 2)


def shown_pairs(tokens: TokenSet, selected: np.ndarray) -> np.ndarray:
    """Return whether each pair's other token is not masked, (runs, n, T-1)."""
    hidden = hidden_pairs(tokens, selected)
    if hidden is None:
        runs, n, T, _ = tokens.shape
        return np.ones((runs, n, T - 1), bool)
    return ~hidden


def constraint_rows(delta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Compute the rows vec(delta_{i,t} z_i^T), (..., n S, d d_z).

    Here delta has the shape (..., n, S, d), and z has the shape (..., n, d_z).
    """
    *lead, n, S, d = delta.shape
    return np.einsum("...ntd,...ne->...ntde", delta, z).reshape(
        *lead, n * S, d * z.shape[-1]
    )


def lp_norm(w: np.ndarray, p: float) -> np.ndarray:
    """Compute ||w||_p = (sum_k |w_k|^p)^{1/p} over the last axis.

    Here 1 <= p <= inf, and the entries are finite. The powers do not overflow for large
    p.
    """
    largest = np.abs(w).max(-1, keepdims=True)
    unit = np.abs(w) / np.where(largest > 0, largest, 1.0)
    return largest[..., 0] * (unit**p).sum(-1) ** (1 / p)


def gram(delta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Compute the Gram matrix (runs, m, m) of all delta_m z_i^T, with m = (i, t).

    K_{mm'} = (delta_m^T delta_m') (z_i^T z_i'), for delta (runs, n, T-1, d) and z
    (runs, n, d_z).
    """
    runs, n, S, d = delta.shape
    flat = delta.reshape(runs, n * S, d)
    queries = z @ np.swapaxes(z, 1, 2)  # (runs, n, n)
    return (flat @ np.swapaxes(flat, 1, 2)) * np.repeat(np.repeat(queries, S, 1), S, 2)
