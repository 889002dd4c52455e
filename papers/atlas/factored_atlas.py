"""The atlas with trained factors (K, Q), and the norms of W = K Q^T that they induce.

A norm N of factors with m columns induces F_N(W) = min {max(N(K), N(Q))^2 : K Q^T = W}.
The spectral norm induces ||W||_2, and the Frobenius norm induces ||W||_* if m >= rank
W. If N is the size of the largest entry, then m F_N(W) >= ||W||_sgn, with equality in
the limit of many columns. The sign norm is ||W||_sgn = min {sum_r w_r : W = sum_r w_r
x_r y_r^T, w_r >= 0, x_r, y_r in {-1, 1}^d}. It is dual to ||G||_{inf -> 1} = max_{x, y}
x^T G y over sign vectors x and y. We compute the maximum by trying every x.

Predictions and their criteria are those of notebooks/networks_protocol.md. Factors of
norm 2 eta sqrt(t) have a product of norm 4 eta^2 t.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp

from companion.claims import Claim
from lib import dynamics
from lib.attention.token_sets import TokenSet
from lib.dynamics.in_coordinates import factored
from papers.atlas import atlas, atlas_rules
from papers.atlas.atlas import Reached
from papers.atlas.atlas_rules import ranked, word
from papers.ours import claim

SIGN = "sign factors"  # the name of ||.||_sgn in NORMS
WHOLE = {name: norm for name, norm in atlas.NORMS.items() if name != "head-wise"}
NORMS = (*WHOLE, SIGN)  # the protocol's seven norms; none divides W into blocks
WIDEST = 14  # W may have at most this many rows, for which we try 2^13 sign vectors
ACCURACY = 1e-9
PRODUCTS = 300  # how many products are added to a linear program at once
SLACK = 0.4  # A product with a larger slack is removed; it may be added again later.
GREEDY = 20
ROUNDS = 500

COLUMNS = 10  # number of columns of K and Q
GROWTH = 0.02
GAMMA = {"nuclear": 0.19, "spectral": 0.65, SIGN: 1.3 * COLUMNS}
PILOTS = "The bound was read off two pilots of up to 4e5 steps"


@dataclass(frozen=True)
class _FactorRow:
    """A rule for K and Q with the prediction for it, and the same rule for W itself."""

    rule: dynamics.Rule
    norm: str  # the norm in which the ratio was predicted to be the largest
    # whether this was predicted for every run, or only for half of the runs
    always: bool
    least: float  # the smallest ratio that was predicted
    alone: dynamics.Rule
    alone_norm: str


Table = Mapping[str, _FactorRow]


def step(norm: str) -> float:
    """Return eta_0 of the step size eta_t = eta_0 (t+1)^{-1/2} of each factor, for a
    rule that maximises the margin in `norm`, a name in GAMMA.

    With this eta_0 the margins of W grow by about GROWTH per step.
    """
    return float(np.sqrt(GROWTH / (4 * GAMMA[norm])))


def rows() -> dict[str, _FactorRow]:
    """Return the rows of the map: steepest descent in several norms, and Adam.

    The step sizes for K and Q decay. When the same rule trains W itself, its step size
    is constant.
    """

    def steepest(alone_norm: str, norm: str, least: float):
        rule = dynamics.SteepestDescent(atlas.NORMS[alone_norm], step(norm), decay=0.5)
        alone = atlas_rules.steepest_rows()[f"steepest, {alone_norm}"].rule
        return _FactorRow(
            rule=rule,
            norm=norm,
            always=True,
            least=least,
            alone=alone,
            alone_norm=alone_norm,
        )

    def adam(memory: float, slower: int):
        rule = dynamics.Adam(step(SIGN) / 2, memory=memory, decay=0.5)
        alone = dynamics.Adam(atlas_rules.step("l_inf") / slower, memory=memory)
        return _FactorRow(
            rule=rule,
            norm=SIGN,
            always=False,
            least=0.7,
            alone=alone,
            alone_norm="l_inf",
        )

    return {
        "gradient descent": steepest("Frobenius", "nuclear", 0.9),
        "sign descent": steepest("l_inf", SIGN, 0.75),
        "polar steps": steepest("spectral", "spectral", 0.9),
        "Adam, 0.99": adam(0.99, 10),
        "Adam, 0.999": adam(0.999, 50),
    }


def run(
    tokens: TokenSet, table: Table, steps: int, seeds: Sequence[int]
) -> tuple[Reached, Reached, float]:
    """Train every rule on (K, Q) from small starts, and on W from zero.

    The function returns the Ratios at the last record for (K, Q), by rule, the same for
    W, and the largest duality gap of the SVMs.
    """
    best = atlas.BestMargins(tokens)
    known = {}
    K, Q = factored.small_start(tokens, seeds, COLUMNS)
    record = [steps // 2, steps]
    both = factored.train(tokens, {n: r.rule for n, r in table.items()}, K, Q, record)
    alone: Any = dynamics.train(
        tokens, {n: r.alone for n, r in table.items()}, steps, record=record
    )
    on_both = {name: _last_ratios(path, best, known) for name, path in both.items()}
    on_W = {name: _last_ratios(alone[name], best, known) for name in table}
    return on_both, on_W, max([best.gap, *(gap for _, gap in known.values())])


def predictions(table: Table, both: Reached, alone: Reached) -> list[Claim]:
    """Check what part 1 of the protocol predicts for every rule.

    `both` and `alone` are the first two results of `run`.
    """
    ratios = [ends.last for runs in (both, alone) for ends in runs.values()]
    claims = [claim("factors.bounded", np.nanmax(ratios))]
    for name, row in table.items():
        about = word(name), name
        share, nearest = ranked(both[name].last, NORMS, row.norm)
        bound = "≥ 1" if row.always else ""
        why = f"The prediction is refuted: nearest to {nearest}"
        claims.append(
            claim("factors.norm", share, *about, row.norm, bound=bound, why=why)
        )
        ratio = both[name].last[:, NORMS.index(row.norm)]
        bound = f"≥ {row.least}"
        claims.append(
            claim("factors.above", ratio, *about, row.norm, bound=bound, why=PILOTS)
        )
        share, nearest = ranked(alone[name].last, NORMS, row.alone_norm)
        why = f"W alone ends nearest to {nearest}"
        claims.append(claim("factors.alone", share, *about, row.alone_norm, why=why))
    return claims


def _signs(d: int) -> np.ndarray:
    """Return every x in {-1, 1}^d with x_1 = 1, as (2^(d-1), d).

    The function raises ValueError if d exceeds WIDEST.
    """
    if d > WIDEST:
        raise ValueError(
            f"W has {d} rows; the sign vectors of at most {WIDEST} are tried"
        )
    return np.array(list(product((1.0,), *[(1.0, -1.0)] * (d - 1))))


def _largest_products(G: np.ndarray, signs: np.ndarray, count: int):
    """Return the largest x^T G y for the `count` best x, and the products x y^T.

    The two results have the shapes (count,) and (count, d, e). G has the shape (d, e),
    x is one of the `signs` (2^(d-1), d), and y is the best sign vector for this x. The
    largest value comes first. If there are fewer signs than `count`, all of them are
    used.
    """
    image = signs @ G
    value = np.abs(image).sum(1)
    place = np.argsort(-value)[:count]
    y = np.where(image[place] >= 0, 1.0, -1.0)
    return value[place], signs[place, :, None] * y[:, None, :]


def _sign_norm(W: np.ndarray) -> float:
    """Compute ||W||_sgn of one matrix (d, e), to relative ACCURACY, by cutting planes.

    The dual is max {<Y, W> : |x^T Y y| <= 1 for all sign vectors x and y}. We solve
    linear programs with only some of these constraints, and add more constraints after
    each. The value is certified as soon as the solution Y has ||Y||_{inf -> 1} <= 1 +
    ACCURACY. The function raises ValueError if entries are not finite or W has too many
    rows, and RuntimeError if the programs do not converge.
    """
    if not np.isfinite(W).all():
        raise ValueError("W holds NaN or infinite values")
    size = np.abs(W).max()
    if size == 0:
        return 0.0
    signs = _signs(len(W))
    flat = W.ravel() / size
    rows = _first_products(W / size, signs)
    before = -np.inf
    for _ in range(ROUNDS):
        # No variable is an integer. We use `milp` because its constraints have a lower
        # and an upper bound.
        solved = milp(
            -flat, constraints=LinearConstraint(rows, -1, 1), bounds=(-np.inf, np.inf)
        )
        if not solved.success:
            raise RuntimeError(f"a linear program of the norm failed: {solved.message}")
        value, products = _largest_products(solved.x.reshape(W.shape), signs, PRODUCTS)
        if value[0] <= 1 + ACCURACY:
            return -size * solved.fun
        # If the value did not change, no product is removed, so that the programs
        # cannot cycle.
        kept = (np.abs(rows @ solved.x) >= 1 - SLACK) | (solved.fun <= before)
        new = products[value > 1 + ACCURACY].reshape(-1, W.size)
        rows = np.concatenate([rows[kept], new])
        before = solved.fun
    raise RuntimeError(f"the norm was not reached in {ROUNDS} rounds; raise ROUNDS")


def _first_products(W: np.ndarray, signs: np.ndarray):
    """Return the products x y^T of the first linear program, one per row.

    The result has the shape (products, W.size). They span all matrices (d, e), the
    shape of W. GREEDY of them are chosen one after the other. Each is the best fit to
    the part of W that the earlier ones leave over.
    """
    flips = [np.vstack([np.ones(k), 1 - 2 * np.eye(k)]) for k in W.shape]
    columns = [np.einsum("aj,bk->abjk", *flips).reshape(-1, W.size)]
    for _ in range(GREEDY):
        value, nearest = _largest_products(W, signs, 1)
        W = W - value[0] / W.size * nearest[0]
        columns.append(nearest.reshape(1, -1))
    return np.concatenate(columns)


def _best_sign_margin(A: np.ndarray) -> tuple[float, float]:
    """Solve max {min_m <A_m, W> : ||W||_sgn <= 1} for A (pairs, d, e).

    The margin must be positive, which means that some W has <A_m, W> > 0 for all m. The
    function returns the margin and its relative duality gap, two floats. It raises
    RuntimeError if the linear programs do not reach ACCURACY, and ValueError if d
    exceeds WIDEST.
    """
    pairs, d, e = A.shape
    signs = _signs(d)
    _, columns = _largest_products(A.mean(0), signs, PRODUCTS)
    for _ in range(ROUNDS):
        gains = np.einsum("mde,kde->mk", A, columns)
        # Maximise t, subject to gains w >= t, sum w = 1 and w >= 0.
        rows = np.hstack([-gains, np.ones((pairs, 1))])
        cost = np.r_[np.zeros(len(columns)), -1.0]
        total = np.r_[np.ones(len(columns)), 0.0][None]
        bounds = [(0, None)] * len(columns) + [(None, None)]
        solved = linprog(
            cost, A_ub=rows, b_ub=np.zeros(pairs), A_eq=total, b_eq=[1], bounds=bounds
        )
        q = np.maximum(-solved.ineqlin.marginals, 0)
        mean = np.einsum("m,mde->de", q / q.sum(), A)
        value, added = _largest_products(mean, signs, PRODUCTS)
        gap = value[0] / -solved.fun - 1
        if abs(gap) <= ACCURACY:
            return -solved.fun, abs(gap)
        columns = np.concatenate([columns, added])
    raise RuntimeError(f"the margin was not reached in {ROUNDS} rounds; raise ROUNDS")


def _last_ratios(path: Any, best: atlas.BestMargins, known: dict) -> atlas.Ratios:
    """Return the Ratios at the last record of a path of W or of factors.

    Their `value` has the shape (runs, 1, norms), with the norms in the order of this
    module's NORMS. `known` caches (largest margin in ||.||_sgn, its duality gap) by run
    and selection; this function adds to it.
    """
    ratios = atlas.ratios(path, best)
    runs = len(path.W)
    in_sign_norm = np.full((runs, 1), np.nan)
    has_all_ratios = np.isfinite(ratios.last).all(1)
    for run in np.flatnonzero(has_all_ratios):
        selection = ratios.selection[run]
        W = path.W[run, -1]
        tokens = best.tokens.run(run)

        # The largest margin, computed only once for each selection of a run.
        key = (run, *map(int, selection))
        if key not in known:
            features, _ = atlas.features(tokens, selection)
            known[key] = _best_sign_margin(features)
        largest_margin, _ = known[key]

        margins = atlas.least_margins(tokens, selection[None], W[None, None])
        in_sign_norm[run] = margins[0, 0] / _sign_norm(W) / largest_margin
    columns = [atlas.column(name) for name in WHOLE]
    last = np.hstack([ratios.last[:, columns], in_sign_norm])
    return replace(ratios, iterations=path.iterations[-1:], value=last[:, None])
