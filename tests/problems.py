"""Problems with a known answer, on which every solver and rule is tested."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from lib import attention
from lib.attention.token_sets import TokenSet


class Problem(NamedTuple):
    """Tokens, and W_mm (d, d_z), or None if no W prefers the opt tokens.

    `error` is the largest distance of a rule from W_mm's direction after 2,000 steps.
    It is None if no rule is trained on the problem.
    """

    tokens: TokenSet
    W: np.ndarray | None
    error: float | None = 1e-9


def of_pairs(*deltas, queries=None):
    """Make one sample per row of `deltas`, a list of x_opt - x_t, with the opt token at
    zero.

    Its label has the sign of its query, by default 1.
    """
    X = [[np.zeros(2), *(-np.asarray(delta, float) for delta in row)] for row in deltas]
    if queries is None:
        z = np.ones((len(X), 1))
    else:
        z = np.reshape(queries, (-1, 1))
    return attention.token_set(
        X, np.sign(z[:, 0]), z, u=[1.0, 1.0], opt=np.zeros(len(X), int)
    )


def stacked(*sets):
    """Join token sets as the runs of one."""
    names = "X", "y", "z", "u", "opt"
    return TokenSet(
        *(np.concatenate([getattr(data, name) for data in sets]) for name in names)
    )


def rows_of(data, run=0, kind=np.longdouble):
    """Return every constraint of a run as a row, (m, d d_z), by default in 80 bits."""
    X = data.X[run].astype(kind)
    z = data.z[run].astype(kind)
    rows = [
        np.outer(x[k] - x[t], q).ravel()
        for x, q, k in zip(X, z, data.opt[run], strict=True)
        for t in range(len(x)) if t != k
    ]  # fmt: skip
    return np.array(rows)


def nearest(data):
    """Solve for W_mm by Lawson and Hanson's least distance programming.

    It uses non-negative least squares. The result is that of the first run, (d, d_z).
    """
    rows = rows_of(data, kind=float)
    E = np.vstack([rows.T, np.ones(len(rows))])
    f = np.zeros(len(rows[0]) + 1)
    f[-1] = 1.0
    residual = E @ nnls(E, f)[0] - f
    return (-residual[:-1] / residual[-1]).reshape(data.X.shape[-1], -1)


def drawn(data, error):
    return Problem(data, nearest(data), error)


E_1, E_2 = np.eye(2)
PROBLEMS = {
    "by hand": Problem(of_pairs([E_1]), E_1[:, None]),
    "two at a right angle": Problem(of_pairs([E_1], [E_2]), np.ones((2, 1))),
    "antipodal": Problem(of_pairs([E_1], [-E_1], queries=[1, -1]), E_1[:, None]),
    "a token repeated": Problem(of_pairs([E_1, E_1]), E_1[:, None]),
    "a dual of zero": Problem(of_pairs([E_1, E_1 + E_2]), E_1[:, None], 0.2),
    "a slack constraint": Problem(of_pairs([E_1, 2 * E_1]), E_1[:, None]),
    "badly scaled": Problem(
        of_pairs([1e-3 * E_1], [1e3 * E_2]), np.array([[1e3], [1e-3]]), 2
    ),
    "the opt token repeated": Problem(of_pairs([E_1, 0 * E_1]), None),
    "opposed": Problem(of_pairs([E_1], [-E_1]), None),
    "more turns than dimensions": Problem(of_pairs([E_1, E_2, -E_1 - E_2]), None),
    "class means": drawn(attention.class_mean_tokens(0, n=4, T=3, d=12), 0.2),
    "Gaussian": drawn(attention.gaussian_tokens(0, n=3, T=3, d=12), 0.2),
    "two tokens": drawn(
        attention.two_token_gaussian(0, n=3, d=12), None
    ),  # it has no head yet
    "unit tokens": drawn(attention.unit_tokens(0, n=3, T=3, d=4), 0.2),
    "two examples": Problem(
        attention.two_examples(), np.array([[-1, 0], [1, -1]]) / 2, 0.2
    ),
}
SOLVABLE = [name for name, problem in PROBLEMS.items() if problem.W is not None]
UNSOLVABLE = [name for name in PROBLEMS if name not in SOLVABLE]
TRAINABLE = [name for name in SOLVABLE if PROBLEMS[name].error is not None]
