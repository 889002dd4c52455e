"""The norm of W that a norm N of the factors induces, and the largest margin in it.

F_N(W) = min {max(N(K), N(Q))^2 : K Q^T = W}, m columns: ||W||_2 for the spectral norm, ||W||_* for
the Frobenius norm where m >= rank W. For the largest entry m F_N(W) >=

    ||W||_sgn = min {sum_r w_r : W = sum_r w_r x_r y_r^T, x_r, y_r in {-1, 1}^d},

equal in the limit of many columns: the projective tensor norm of l_inf and l_inf, dual to
||G||_{inf -> 1} = max_{x, y} x^T G y over signs, of which every x is tried.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp

from lib.attention.token_sets import TokenSet
from papers.beyond import atlas

SIGN = "sign factors"  # the name of ||.||_sgn beside those of WHOLE
WHOLE = {name: norm for name, norm in atlas.NORMS.items() if name != "head-wise"}
NORMS = (*WHOLE, SIGN)  # the protocol's seven: none that divides W into blocks
WIDEST = 14  # of W: 2^13 sign vectors are tried each time
ACCURACY = 1e-9
PRODUCTS = 300  # products that are added at once
SLACK = 0.4  # a product whose bound is slacker is left out; it may come back
GREEDY = 20
ROUNDS = 500


def _signs(d):
    """Every x in {-1, 1}^d with x_1 = 1, (2^(d-1), d)."""
    if d > WIDEST:
        raise ValueError(f"W has {d} rows; the sign vectors of at most {WIDEST} are tried")
    return np.array(list(product((1.0,), *[(1.0, -1.0)] * (d - 1))))


def _largest_products(G, signs, count):
    """The `count` largest x^T G y, one a sign vector x, and their x y^T (count, d, e)."""
    image = signs @ G
    value = np.abs(image).sum(1)
    place = np.argsort(-value)[:count]
    y = np.where(image[place] >= 0, 1.0, -1.0)
    return value[place], signs[place, :, None] * y[:, None, :]


def sign_norm(W: np.ndarray) -> float:
    """||W||_sgn of one matrix (d, e), within ACCURACY of itself, by cutting planes.

    The dual, max {<Y, W> : |x^T Y y| <= 1 for all signs x, y}, with some products' bounds; Y proves
    it once ||Y||_{inf -> 1} <= 1 + ACCURACY. ValueError for entries that are not finite or too many
    rows, RuntimeError where the programs do not end.
    """
    if not np.isfinite(W).all():
        raise ValueError("W holds NaN or infinite values")
    size = np.abs(W).max()
    if size == 0:
        return 0.0
    signs, flat = _signs(len(W)), W.ravel() / size
    rows, before = _first_products(W / size, signs), -np.inf
    for _ in range(ROUNDS):
        # No entry is an integer: `milp` is taken since it bounds a row from both sides.
        solved = milp(-flat, constraints=LinearConstraint(rows, -1, 1), bounds=(-np.inf, np.inf))
        if not solved.success:
            raise RuntimeError(f"a linear program of the norm failed: {solved.message}")
        value, products = _largest_products(solved.x.reshape(W.shape), signs, PRODUCTS)
        if value[0] <= 1 + ACCURACY:
            return -size * solved.fun
        # Where the value stands still nothing is left out: the programs cannot go in a circle.
        kept = (np.abs(rows @ solved.x) >= 1 - SLACK) | (solved.fun <= before)
        new = products[value > 1 + ACCURACY].reshape(-1, W.size)
        rows, before = np.concatenate([rows[kept], new]), solved.fun
    raise RuntimeError(f"the norm was not reached in {ROUNDS} rounds; raise ROUNDS")


def _first_products(W, signs):
    """Products that span all matrices, and GREEDY ones each nearest to what those before left."""
    flips = [np.vstack([np.ones(k), 1 - 2 * np.eye(k)]) for k in W.shape]
    columns = [np.einsum("aj,bk->abjk", *flips).reshape(-1, W.size)]
    for _ in range(GREEDY):
        value, nearest = _largest_products(W, signs, 1)
        W = W - value[0] / W.size * nearest[0]
        columns.append(nearest.reshape(1, -1))
    return np.concatenate(columns)


def _best_sign_margin(A):
    """max {min_m <A_m, W> : ||W||_sgn <= 1} of A (pairs, d, e); its gap to the dual."""
    pairs, d, e = A.shape
    signs = _signs(d)
    _, columns = _largest_products(A.mean(0), signs, PRODUCTS)
    for _ in range(ROUNDS):
        gains = np.einsum("mde,kde->mk", A, columns)
        # max t: gains w >= t, sum w = 1, w >= 0
        rows = np.hstack([-gains, np.ones((pairs, 1))])
        cost, total = np.r_[np.zeros(len(columns)), -1.0], np.r_[np.ones(len(columns)), 0.0][None]
        bounds = [(0, None)] * len(columns) + [(None, None)]
        solved = linprog(cost, A_ub=rows, b_ub=np.zeros(pairs), A_eq=total, b_eq=[1], bounds=bounds)
        q = np.maximum(-solved.ineqlin.marginals, 0)
        mean = np.einsum("m,mde->de", q / q.sum(), A)
        value, added = _largest_products(mean, signs, PRODUCTS)
        gap = value[0] / -solved.fun - 1
        if abs(gap) <= ACCURACY:
            return -solved.fun, abs(gap)
        columns = np.concatenate([columns, added])
    raise RuntimeError(f"the margin was not reached in {ROUNDS} rounds; raise ROUNDS")


class SignMargins:
    """The largest margins in ||.||_sgn, each selection solved once; `gap` the largest gap."""

    def __init__(self, tokens: TokenSet):
        self.tokens, self.known, self.gap = tokens, {}, 0.0

    def ratio(self, run: int, selection: np.ndarray, W: np.ndarray) -> float:
        """min_m <A_m, W> / (||W||_sgn gamma) of one run's W (d, d_z) and selection (n,)."""
        alone = self.tokens.run(run)
        key = run, *map(int, selection)
        if key not in self.known:
            A = atlas.features(alone, selection).reshape(-1, *W.shape)
            self.known[key], gap = _best_sign_margin(A)
            self.gap = max(self.gap, gap)
        margin = atlas.least_margins(alone, selection[None], W[None, None])[0, 0]
        return margin / sign_norm(W) / self.known[key]


def last_ratios(path: Any, best: atlas.BestMargins, sign_best: SignMargins) -> atlas.Ratios:
    """The ratios of a path of W or of factors at its last record, in NORMS, as `atlas.ratios`."""
    ratios = atlas.ratios(path, best)
    sign = np.full((len(path.W), 1), np.nan)
    for run in np.flatnonzero(np.isfinite(ratios.last).all(1)):
        sign[run] = sign_best.ratio(run, ratios.selection[run], path.W[run, -1])
    whole = ratios.last[:, [atlas.column(name) for name in WHOLE]]
    last = np.hstack([whole, sign])
    return replace(ratios, iterations=path.iterations[-1:], value=last[:, None])
