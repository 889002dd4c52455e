"""Where training must end: max-margin token selection, the max-margin head, and what certifies
them.

One problem in many norms: min ||W|| subject to <a_m, W> >= 1, with a_m = (x_{i,s_i} - x_{i,t})
z_i^T for the tokens and a_m = y_i x_{i,s_i} for the head. Whatever the norm, a solution is proved
by beta >= 0: with N* the dual norm, 1^T beta / N*(sum beta_m a_m) is a lower bound on ||W||, and
`gap` is its relative distance from the norm of W.
"""

import time
from dataclasses import dataclass, fields
from functools import cache, cached_property
from numbers import Real

import numpy as np
from threadpoolctl import ThreadpoolController

from lib.attention import coordinates
from lib.attention.tokens import TokenSet
from lib.svm import cone, frobenius, lp
from lib.svm.frobenius import ACCURACY, Infeasible

__all__ = ["ACCURACY", "ACCURACY_OTHER_NORMS", "Infeasible", "MaxMargin", "head_svm", "token_svm"]

ACCURACY_OTHER_NORMS = (
    1e-7  # largest relative duality gap and violation in another norm than Frobenius
)


@dataclass(frozen=True)
class MaxMargin:
    """Solutions of a token SVM or head SVM, one per run, with their certificates.

    problem      which problem, in words
    objective    (runs,) the norm ||W|| (or ||v||) that was minimised
    duals        (runs, n, T-1) or (runs, n): beta >= 0 of the form min ||W||^2 / 2. In the Frobenius norm
                 W = sum beta_{i,t} delta_{i,t} z_i^T; in every norm 1^T beta = ||W||^2 up to the gap
    margins      like duals: delta_{i,t}^T W z_i (head: y_i v^T x_{i,s_i}), at least 1
    support      like duals: the constraints that carry W, those with a positive dual
    violation    (runs,) the largest 1 - margin, or zero
    gap          (runs,) (||W|| - lower bound) / ||W||, the lower bound from the duals
    accuracy     what gap and violation were held to
    solver       one name per run
    status       "optimal": whatever is less raises
    seconds      for all runs together
    """

    problem: str
    objective: np.ndarray
    duals: np.ndarray
    margins: np.ndarray
    support: np.ndarray
    violation: np.ndarray
    gap: np.ndarray
    accuracy: float
    solver: tuple[str, ...]
    _factors: tuple[np.ndarray, ...]  # W itself, or (delta, z) to build it when it is asked for
    status: str
    seconds: float

    @cached_property
    def value(self) -> np.ndarray:
        """W (runs, d, d_z) in the coordinates of the tokens given; for the head v (runs, d)."""
        if len(self._factors) == 1:
            return self._factors[0]
        delta, z = self._factors
        pulled = np.einsum("rnt,rntd->rnd", self.duals.reshape(delta.shape[:3]), delta)
        W = np.swapaxes(pulled, 1, 2) @ z
        return W if self.duals.ndim == 3 else W[..., 0]

    @property
    def W(self) -> np.ndarray:
        """The same as `value`, under the name that paper A gives it."""
        return self.value

    @property
    def norm(self) -> np.ndarray:
        """||W_mm||, (runs,), the same as `objective`; 1/||W_mm|| is the margin of the unit-norm solution."""
        return self.objective


def token_svm(
    tokens: TokenSet, selected: np.ndarray | None = None, norm: str | float = "frobenius"
) -> MaxMargin:
    """W_mm = argmin ||W|| subject to (x_{i,s_i} - x_{i,t})^T W z_i >= 1 for all i and t != s_i.

    selected (runs, n): s_i, default the opt tokens. norm: "frobenius" (paper A, W-SVM); an exponent
    1 < p < inf for the entrywise ||W||_{p,p} (paper C, Definition 2; 2 is Frobenius); inf for max
    |W_jk|; "nuclear" (2308.16898, Att-SVM*: where training K and Q leads); or "spectral". In the
    nuclear, spectral and l_inf norm W need not be unique; its norm is. The l_p norms with p != 2
    depend on the coordinates: give tokens in the model's own, not in minimal ones; m constraints
    take m d d_z numbers in memory.

    Solved in the m = n(T-1) unknowns of the dual: by pivoting (`svm_frobenius`), by Newton's method
    (`svm_lp`), or by Clarabel (`svm_cone`). Gap and violation are at most ACCURACY for the
    Frobenius norm, else ACCURACY_OTHER_NORMS.

    Raises Infeasible (a ValueError) with a Farkas certificate, which holds for every norm;
    ValueError for a `selected` of the wrong shape or range, or an unknown norm; RuntimeError, with
    what to do, where that accuracy was not reached.
    """
    runs, n, T, _ = tokens.shape
    norm, selected = (
        _known(norm, "norm", ("frobenius", "nuclear", "spectral")),
        _selection(tokens, selected),
    )
    delta = coordinates.differences(tokens, selected)
    return _solve("token SVM", delta, tokens.z, norm, (runs, n, T - 1))


def head_svm(tokens: TokenSet, selected: np.ndarray | None = None, p: float = 2) -> MaxMargin:
    """v_mm = argmin ||v||_p subject to y_i v^T x_{i,s_i} >= 1 for all i.

    Paper A, u-SVM, for p = 2; paper C for other p; 1 < p <= inf. selected (runs, n): s_i, default
    the opt tokens. It is the token SVM with delta_i = y_i x_{i,s_i} and z_i = 1: the same solvers,
    the same record (value v (runs, d), duals (runs, n)), and it raises the same.
    """
    p, selected = _known(p, "p", ()), _selection(tokens, selected)
    chosen = np.take_along_axis(tokens.X, selected[..., None, None], 2)  # (runs, n, 1, d)
    delta = tokens.y[..., None, None] * chosen
    return _solve("head SVM", delta, np.ones((*selected.shape, 1)), p, selected.shape)


def _known(norm, name, words):
    """`norm` as an exponent p > 1, or as one of the `words`; "frobenius" is the exponent 2."""
    if isinstance(norm, str) and norm in words:
        return 2.0 if norm == "frobenius" else norm
    if not isinstance(norm, Real) or not norm > 1:
        listed = "".join(f"{word!r}, " for word in words)
        raise ValueError(f"{name} = {norm!r}; it must be {listed}an exponent p > 1, or inf")
    return float(norm)


def _selection(tokens, selected):
    runs, n, T, _ = tokens.shape
    selected = tokens.opt if selected is None else np.asarray(selected)
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


def _solve(problem, delta, z, norm, shape):
    """The record of all runs; delta (runs, n, S, d), z (runs, n, d_z), `shape` that of the duals."""
    began = time.perf_counter()
    # One thread: at these sizes a second gains little, and on a busy machine the two wait for each
    # other.
    with _thread_pools().limit(limits=1, user_api="blas"):
        solved = _solve_runs(problem, delta, z, norm, shape)
    return MaxMargin(*solved, "optimal", time.perf_counter() - began)


@cache
def _thread_pools():
    return ThreadpoolController()


def _solve_runs(problem, delta, z, norm, shape):
    K = coordinates.gram(delta, z)  # (runs, m, m), m = n S
    every = range(len(K))
    # The Frobenius solution comes first for every norm: it decides feasibility, and the others
    # start there.
    first = [frobenius.solve(K[run], delta[run], z[run], problem, run, shape[1:]) for run in every]
    if norm == 2:
        duals = np.stack([beta for beta, _ in first])  # (runs, m)
        margins = np.einsum("rij,rj->ri", K, duals)
        square = np.einsum("rm,rm->r", duals, margins)
        gap, size, support = np.abs(1 - duals.sum(1) / square), np.sqrt(square), duals > 0
        factors, accuracy, solver = (delta, z), ACCURACY, tuple(name for _, name in first)
    else:
        solved = [
            _other_norm(problem, run, delta[run], z[run], norm, first[run][0]) for run in every
        ]
        W, size, duals, margins, gap, support = (
            np.stack(part) for part in zip(*solved, strict=True)
        )
        factors, accuracy = (W if len(shape) == 3 else W[..., 0],), ACCURACY_OTHER_NORMS
        solver = (
            "Clarabel" if norm in cone.NORMS else "Newton with weighted Frobenius steps",
        ) * len(K)
    return (
        f"{problem}, {norm if isinstance(norm, str) else f'l_{norm:g}'} norm",
        size, duals.reshape(shape), margins.reshape(shape), support.reshape(shape),
        np.maximum(0.0, 1.0 - margins.min(1)), gap, accuracy, solver, factors,
    )  # fmt: skip


def _other_norm(problem, run, delta, z, norm, beta):
    """(W, its norm, duals, margins, gap, support) of one run, from the Frobenius duals `beta` (m,)."""
    turned = isinstance(
        norm, str
    )  # nuclear and spectral norm do not see a rotation: keep to the spans
    if turned:
        delta, z, token_basis, query_basis = frobenius.thin(delta, z)
    rows = frobenius.constraint_rows(delta, z)  # (m, d d_z)
    shape = delta.shape[-1], z.shape[-1]
    start = rows.T @ beta
    if norm in cone.NORMS:
        w, beta = cone.least_norm(rows, shape, norm, np.linalg.norm(start))
    else:
        w, beta = lp.least_norm(rows, norm, start, beta)
    least, pulled_size = (
        (rows @ w).min(),
        _size(rows.T @ beta, shape, _DUAL.get(norm) or norm / (norm - 1)),
    )
    gap = abs(1 - beta.sum() / pulled_size * least / _size(w, shape, norm))
    if not gap <= ACCURACY_OTHER_NORMS:
        raise RuntimeError(
            f"{problem} of run {run}: the relative duality gap {gap:.1e} in the norm {norm} exceeds "
            f"{ACCURACY_OTHER_NORMS:.0e}. Take an exponent nearer to 2 (inf in place of a large one), or "
            "rescale the tokens to a common norm."
        )
    w = w / least  # feasible to rounding, so that norm and lower bound enclose the minimum
    margins, size = rows @ w, _size(w, shape, norm)
    beta = beta * size / pulled_size
    support = beta > 0
    if (
        norm in cone.NORMS
    ):  # an interior point has no zero duals: is it dual or slack that vanishes?
        support = beta / beta.max() > margins - 1
    W = token_basis @ w.reshape(shape) @ query_basis.T if turned else w.reshape(shape)
    return W, size, beta, margins, gap, support


_DUAL = {"nuclear": "spectral", "spectral": "nuclear", np.inf: 1.0}


def _size(w, shape, norm):
    if isinstance(norm, str):
        return np.linalg.norm(w.reshape(shape), "nuc" if norm == "nuclear" else 2)
    return np.abs(w).max() if norm == np.inf else lp.norm(w, norm)


def feasible(tokens: TokenSet) -> TokenSet | None:
    """The runs whose token SVM has a solution: those with a W_mm to reach; None where no run has one."""
    kept = []
    for run in range(len(tokens.y)):
        try:
            token_svm(tokens.run(run))
        except Infeasible:
            continue
        kept.append(run)
    return (
        TokenSet(*(getattr(tokens, field.name)[kept] for field in fields(tokens))) if kept else None
    )
