"""Max-margin tokens and head, where training must end, and their certificates.

One problem in many norms: min ||W|| subject to <a_m, W> >= 1, with a_m = (x_{i,s_i} -
x_{i,t}) z_i^T for the tokens and a_m = y_i x_{i,s_i} for the head. Whatever the norm, a
solution is proved by beta >= 0: with N* the dual norm, 1^T beta / N*(sum beta_m a_m) is
a lower bound on ||W||, and `gap` is its relative distance from the norm of W.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from numbers import Real

import numpy as np
from threadpoolctl import ThreadpoolController

from lib.attention.coordinates import Minimal
from lib.attention.token_sets import TokenSet
from lib.representation import Shapes
from lib.svm import frobenius, norms
from lib.svm.frobenius import ACCURACY, Constraints, Infeasible
from lib.svm.norms import Blocks, norm_of

ACCURACY_OTHER_NORMS = (
    1e-7  # largest relative duality gap, violation: norms other than Frobenius
)
LARGEST_EXPONENT = (
    480  # of W in powers of two: its square, the size of the duals, is still a float
)
UNSHARED = 2**18  # multiplications of a product that OpenBLAS never shares out
_thread_pools = lru_cache(ThreadpoolController)  # looked up once


@dataclass(frozen=True, repr=False)
class MaxMargin(Shapes):
    """Solutions of a token SVM or head SVM, one per run, with their certificates.

    norm       (runs,) ||W|| (or ||v||), which was minimised
    duals      (runs, n, T-1) or (runs, n): beta >= 0 of min ||W||^2 / 2. In the Frobenius
               norm W = sum beta_{i,t} delta_{i,t} z_i^T, in all 1^T beta = ||W||^2
    margins    like duals: delta_{i,t}^T W z_i (head: y_i v^T x_{i,s_i}), at least 1
    support    like duals: the constraints that carry W, those with a positive dual (of
               cone programs: a dual whose share of the largest exceeds the slack)
    gap        (runs,) (||W|| - lower bound) / ||W||, the lower bound from the duals
    accuracy   what gap and violation were held to
    tokens     the problem's; W is in their coordinates
    """

    problem: str
    norm: np.ndarray
    duals: np.ndarray
    margins: np.ndarray
    support: np.ndarray
    gap: np.ndarray
    accuracy: float
    solver: tuple[str, ...]
    tokens: TokenSet
    # W (runs, d, d_z), built when it is first asked for
    _weights: Callable[[], np.ndarray]

    @property
    def violation(self) -> np.ndarray:
        """The largest 1 - margin of each run, or zero, (runs,)."""
        return np.maximum(0.0, 1.0 - self.margins.reshape(len(self.margins), -1).min(1))

    @cached_property
    def value(self) -> np.ndarray:
        """W (runs, d, d_z) in the coordinates of `tokens`; for the head v (runs, d)."""
        W = self._weights()
        return W if self.duals.ndim == 3 else W[..., 0]

    @property
    def W(self) -> np.ndarray:
        """The same as `value`, as paper A calls it."""
        return self.value


def token_svm(
    tokens: TokenSet | Minimal,
    selected: np.ndarray | None = None,
    norm: str | float | Blocks = "frobenius",
) -> MaxMargin:
    """W_mm = argmin ||W|| subject to (x_{i,s_i} - x_{i,t})^T W z_i >= 1 for all i and t
    != s_i.

    selected (runs, n): s_i, default the opt tokens. norm: "frobenius" (paper A, W-SVM);
    an exponent 1 <= p <= inf for the entrywise ||W||_{p,p} (paper C, Definition 2);
    "nuclear" (2308.16898, Att-SVM*: where training K and Q leads); "spectral"; or
    `Blocks`. W need not be unique in the nuclear, spectral, l_1, l_inf and block-wise
    norm; its norm is. The l_p norms with p != 2 and blocks depend on the coordinates:
    give tokens in the model's own. Of a Minimal, W is in minimal coordinates.

    Solved in the m = n(T-1) unknowns of the dual. Gap and violation are at most
    ACCURACY for the Frobenius norm, else ACCURACY_OTHER_NORMS. Raises Infeasible (a
    ValueError) with a Farkas certificate, which holds for every norm; ValueError for a
    wrong `selected`, an unknown norm, or sizes beyond float64; RuntimeError, with what
    to do, where that accuracy was not reached.
    """
    if not isinstance(norm, Blocks):
        norm = _known(norm, "norm", ("frobenius", "nuclear", "spectral"))
    tokens = _in_coordinates(tokens, norm)
    runs, n, T, _ = tokens.shape
    selected = checked_selection(tokens, selected)
    return _solve(
        "token SVM", tokens, (tokens.X, selected, tokens.z), norm, (runs, n, T - 1)
    )


def head_svm(
    tokens: TokenSet | Minimal, selected: np.ndarray | None = None, p: float = 2
) -> MaxMargin:
    """v_mm = argmin ||v||_p subject to y_i v^T x_{i,s_i} >= 1 for all i, 1 <= p <= inf.

    Source: paper A, u-SVM; paper C. It is the token SVM with delta_i = y_i x_{i,s_i}
    and z_i = 1: it takes, returns and raises the same.
    """
    p = _known(p, "p", ())
    tokens = _in_coordinates(tokens, p)
    selected = checked_selection(tokens, selected)
    # (runs, n, 1, d)
    chosen = np.take_along_axis(tokens.X, selected[..., None, None], 2)
    signed = tokens.y[..., None, None] * chosen
    # Whose difference is the first
    pairs = np.concatenate([signed, np.zeros_like(signed)], 2)
    parts = pairs, np.zeros_like(selected), np.ones((*selected.shape, 1))
    return _solve("head SVM", tokens, parts, p, selected.shape)


def _in_coordinates(tokens, norm):
    """The token set of a Minimal too; ValueError where the norm sees which coordinates
    they are.
    """
    if not isinstance(tokens, Minimal):
        return tokens
    if norm not in (2, "nuclear", "spectral"):
        raise ValueError(
            f"the norm {norm} sees the coordinates: give the tokens, not a Minimal"
        )
    return tokens.tokens


def _known(norm, name, words):
    """`norm` as an exponent p >= 1, or as one of the `words`; "frobenius" is the
    exponent 2.
    """
    if isinstance(norm, str) and norm in words:
        return 2.0 if norm == "frobenius" else norm
    if isinstance(norm, bool) or not isinstance(norm, Real) or not norm >= 1:
        listed = "".join(f"{word!r}, " for word in words)
        raise ValueError(
            f"{name} = {norm!r}; it must be {listed}an exponent p >= 1, or inf"
        )
    return float(norm)


def checked_selection(tokens: TokenSet, selected: np.ndarray | None) -> np.ndarray:
    """`selected` as token indices (runs, n), by default the opt tokens; else
    ValueError.
    """
    if selected is None:
        return tokens.opt
    runs, n, T, _ = tokens.shape
    selected = np.asarray(selected)
    if selected.shape != (runs, n) or not np.issubdtype(selected.dtype, np.integer):
        raise ValueError(
            f"selected has shape {selected.shape} and type {selected.dtype}; "
            f"it needs token indices (integers) of shape {(runs, n)}"
        )
    if selected.min() < 0 or selected.max() >= T:
        raise ValueError(
            f"selected holds {selected.min()} ... {selected.max()}; it needs indices 0 ... {T - 1}"
        )
    return selected


def _solve(problem, tokens, parts, norm, shape):
    """The record of all runs; `parts` are what `frobenius.scaled` takes, `shape` of the
    duals.
    """
    runs: list[dict] = []
    units = frobenius.Scaled(*frobenius.scaled(*map(np.ascontiguousarray, parts)))
    if not np.isfinite(units.delta).all():
        raise ValueError(
            f"X holds tokens whose difference exceeds {np.finfo(float).max:.1e}: divide them by a "
            "power of two, which only multiplies W by it"
        )
    # One thread for BLAS: a second gains little. What it never shares out need not ask.
    delta = units.delta[0]
    small = norm == 2 and delta.size * delta[..., 0].size <= UNSHARED
    with nullcontext() if small else _thread_pools().limit(limits=1, user_api="blas"):
        for run, factors in enumerate(zip(units.delta, units.z, units.stretch)):
            # The Frobenius norm decides feasibility, and the others start at its
            # solution.
            duals, margins, solver, W = frobenius.solve(
                Constraints(problem, run, shape[1:], *factors)
            )
            if norm == 2:
                square = (duals * margins).sum()
                solved: dict = {"norm": np.sqrt(square), "solver": solver, "W": W}
                solved |= {"duals": duals, "margins": margins, "support": duals > 0}
                solved["gap"] = np.abs(1 - (duals * units.stretch[run]).sum() / square)
            else:
                solved = _other_norm(problem, run, units, norm, duals)
            power = np.log2(solved["norm"]) - units.exponent[run]
            if abs(power) > LARGEST_EXPONENT:
                digits = power * np.log10(2)
                raise ValueError(
                    f"{problem} of run {run}: the solution would have norm 1e{digits:.0f} and "
                    f"duals of size 1e{2 * digits:.0f}, outside float64. That is only a scale: "
                    "multiply the tokens or the queries, or both together, by "
                    f"1e{digits:.0f}, which divides W by as much."
                )
            runs.append(solved)
    names = "norm", "duals", "margins", "support", "gap"
    solved = {name: np.array([run[name] for run in runs]) for name in names}
    exponent = -units.exponent
    solved["norm"] = np.ldexp(solved["norm"], exponent)
    solved["duals"] = np.ldexp(solved["duals"] * units.stretch, 2 * exponent[:, None])
    solved["margins"] = solved["margins"] / units.stretch
    solved |= {
        key: solved[key].reshape(shape) for key in ("duals", "margins", "support")
    }
    return MaxMargin(
        problem=f"{problem}, {norm if isinstance(norm, str | Blocks) else f'l_{norm:g}'} norm",
        accuracy=ACCURACY if norm == 2 else ACCURACY_OTHER_NORMS,
        solver=tuple(run["solver"] for run in runs),
        tokens=tokens,
        _weights=partial(_weights, units, runs),
        **solved,
    )


def _weights(units, runs):
    """W (runs, d, d_z), as the margins were measured on it: as solved, or from its
    duals.
    """
    W = [
        frobenius.weights(run["duals"], delta, z) if run["W"] is None else run["W"]
        for run, delta, z in zip(runs, units.delta, units.z)
    ]
    return np.ldexp(np.stack(W), -units.exponent[:, None, None])


def _other_norm(problem, run, units, norm, beta):
    """Scaled solution of one run in another norm than Frobenius, from the duals (m,)
    there.
    """
    delta = units.delta[run]
    z = units.z[run]
    stretch = units.stretch[run]
    blocks = isinstance(norm, Blocks)
    conic = blocks or norm in norms.DUAL
    if blocks:
        dual = norm.dual
    else:
        dual = norms.DUAL[norm] if conic else norm / (norm - 1)
    turned = isinstance(norm, str)  # these two do not see a rotation: keep to the spans
    if turned:
        delta, z, token_basis, query_basis = frobenius.thin(delta, z)
    rows = frobenius.constraint_rows(delta, z)  # (m, d d_z)
    shape = delta.shape[-1], z.shape[-1]
    start = rows.T @ beta
    if conic:
        solved = norms.conic(rows, shape, dual, float(np.linalg.norm(start)))
        w, beta = (start, beta) if solved is None else solved  # the start shows its gap
    else:
        w, beta = norms.entrywise(rows, norm, start, beta)
    lowest = (rows @ w).min()
    pulled = norm_of((rows.T @ beta).reshape(shape), dual)
    gap = abs(1 - stretch @ beta / pulled * lowest / norm_of(w.reshape(shape), norm))
    if not gap <= ACCURACY_OTHER_NORMS:
        raise RuntimeError(
            f"{problem} of run {run}: the relative duality gap {gap:.1e} in the norm {norm} exceeds"
            f" {ACCURACY_OTHER_NORMS:.0e}. Take an exponent nearer to 2 (inf in place of a large "
            "one), or rescale the tokens to a common norm: the constraints' entries differ by "
            f"about a factor {units.ratio[run]:.0e}."
        )
    # Feasible to rounding, so that norm and lower bound enclose the minimum
    w = w / lowest
    W = w.reshape(shape)
    margins = rows @ w
    size = norm_of(W, norm)
    beta = beta * size / pulled
    support = beta > 0
    if conic:  # an interior point has no zero duals: does dual or slack vanish?
        support = beta / beta.max() > margins - 1
    return {
        "solver": "Clarabel" if conic else "Newton with weighted Frobenius steps",
        "W": token_basis @ W @ query_basis.T if turned else W,
        "norm": size,
        "duals": beta,
        "margins": margins,
        "support": support,
        "gap": gap,
    }


def feasible(tokens: TokenSet) -> TokenSet | None:
    """The runs whose token SVM has a solution; None where none has."""
    kept = []
    for run in range(len(tokens.y)):
        with suppress(Infeasible):
            token_svm(tokens.run(run))
            kept.append(run)
    parts = {field.name: getattr(tokens, field.name)[kept] for field in fields(tokens)}
    return TokenSet(**parts) if kept else None
