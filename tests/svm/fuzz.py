"""Small max-margin problems of every awkward kind, each answer against a linear program.

HiGHS finds the largest t with <a_m, W> >= t ||a_m|| for some |W_jk| <= 1:
above FEASIBLE there is a W, below INFEASIBLE there is none. A solution must keep its margins, an
`Infeasible` its residual, computed again in 80-bit floats from the tokens alone.
"""

import numpy as np
from scipy.optimize import linprog

from lib import svm
from lib.attention import token_sets

NORMS = ("frobenius", 1, 1.5, 1.75, 3, 5, np.inf, "nuclear", "spectral")
FEASIBLE, INFEASIBLE = 1e-6, 1e-9


def _set(array, values):
    array[...] = values


def _between(rng, X, z):
    share = rng.uniform(0, 1)
    X[0, 0] = share * X[0, 1] + (1 - share) * X[0, -1]


KINDS = {
    "plain": lambda rng, X, z: None,
    "repeated": lambda rng, X, z: _set(X[0, 1], X[0, 0]),
    "repeated_to_rounding": lambda rng, X, z: _set(
        X[0, 1], np.nextafter(X[0, 0], rng.choice((-9.0, 9.0), X.shape[-1]))
    ),
    "near": lambda rng, X, z: _set(
        X[0, 1], X[0, 0] + 10.0 ** rng.uniform(-12, -3) * rng.standard_normal(X.shape[-1])
    ),
    "between": _between,
    "integers": lambda rng, X, z: [_set(a, rng.integers(-2, 3, a.shape)) for a in (X, z)],
    "samples_scaled": lambda rng, X, z: _set(X, X * 10.0 ** rng.uniform(-8, 8, (len(X), 1, 1))),
    "samples_and_queries_scaled": lambda rng, X, z: [
        _set(a, a * 10.0 ** rng.uniform(-8, 8, (len(a), *[1] * (a.ndim - 1)))) for a in (X, z)
    ],
    "all_scaled": lambda rng, X, z: _set(X, X * 10.0 ** rng.uniform(-95, 95)),
    "same_sample_twice": lambda rng, X, z: (_set(X[-1], X[0]), _set(z[-1], z[0])),
    "collinear": lambda rng, X, z: _set(
        X[:, -1], X[:, 1] + rng.uniform(-2, 2) * (X[:, 1] - X[:, 0])
    ),
}
# A problem may be refused if its constraints' norms lie further apart, and it says so.
BADLY_SCALED = 1e4


def instance(seed):
    """(kind, tokens, norm) number `seed`: at most 6 samples of 6 tokens in 6 dimensions."""
    rng = np.random.default_rng([seed, 1])
    kind, norm = list(KINDS)[seed % len(KINDS)], NORMS[rng.integers(len(NORMS))]
    n, T, d, d_z = (int(rng.integers(low, 7)) for low in (1, 2, 1, 1))
    X, z = rng.standard_normal((n, T, d)), rng.standard_normal((n, d_z))
    KINDS[kind](rng, X, z)
    y, u, opt = np.ones((1, n)), np.zeros((1, d)), np.zeros((1, n), int)
    return kind, token_sets.TokenSet(X[None], y, z[None], u, opt), norm


def rows_of(data):
    """Every constraint as a row of 80-bit floats, (m, d d_z)."""
    X, z = data.X[0].astype(np.longdouble), data.z[0].astype(np.longdouble)
    delta = X[:, :1] - X[:, 1:]
    return np.einsum("ntd,ne->ntde", delta, z).reshape(delta.shape[0] * delta.shape[1], -1)


def largest_margin(rows):
    """The largest t with <a_m, W> >= t max|a_m| for some |W_jk| <= 1, by linear programming."""
    length = np.abs(rows).max(1, keepdims=True)
    if not length.all():
        return 0.0
    unit = (rows / length).astype(float)
    m, D = unit.shape
    tight = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
    bounds = [(-1, 1)] * D + [(0, 1)]
    objective, constraints = [*np.zeros(D), -1.0], np.c_[-unit, np.ones(m)]
    program = linprog(objective, constraints, np.zeros(m), bounds=bounds, options=tight)
    return -program.fun if program.status == 0 else np.nan


def verdict(seed):
    """(kind, verdict, detail): "solved", "infeasible", "refused", "undecided" or "wrong"."""
    name, data, norm = instance(seed)
    rows = rows_of(data)
    t = largest_margin(rows)
    try:
        solution = svm.token_svm(data, norm=norm)
    except svm.Infeasible as error:
        combination = error.certificate.ravel().astype(np.longdouble)
        size = combination @ np.linalg.norm(rows.astype(float), axis=1) if rows.any() else 0
        residual = np.sqrt(((combination @ rows) ** 2).sum())
        proved = (combination >= 0).all() and residual <= 2e-10 * size
        right = proved and not t > FEASIBLE
        return name, "infeasible" if right else "wrong", f"t {t:.1e} residual {residual}"
    except ValueError as error:
        return name, "refused", str(error)
    except RuntimeError as error:
        length = np.linalg.norm(rows.astype(float), axis=1)
        named = length.max() > BADLY_SCALED * length.min() and "about a factor" in str(error)
        return name, "refused" if named else "undecided", f"t {t:.1e} {norm} {error}"
    margins = rows @ solution.W[0].ravel().astype(np.longdouble)
    right = margins.min() > 1 - 1e-6 and not t < INFEASIBLE
    return name, "solved" if right else "wrong", f"t {t:.1e} {norm} margin {margins.min()}"
