"""Token SVM and head SVM, whose solutions training must approach, with certificates.

Each is the problem min ||W|| subject to <a_m, W> >= 1, in a norm of your choice. The
token SVM has a_m = (x_{i,s_i} - x_{i,t}) z_i^T, and the head SVM has a_m = y_i
x_{i,s_i}. In every norm, duals beta >= 0 prove how good a solution is: with N* the dual
norm, 1^T beta / N*(sum beta_m a_m) is a lower bound on the least norm. The `gap` is the
relative distance between this bound and the norm of W.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from lib import blas
from lib.attention.coordinates import Minimal, hidden_pairs, token_set_of
from lib.attention.token_sets import TokenSet, as_array, check_kind
from lib.representation import Shapes
from lib.svm import frobenius, norms
from lib.svm.frobenius import ACCURACY, Constraints, Infeasible
from lib.svm.norms import Blocks, known, norm_of

# The largest relative duality gap and the largest constraint violation that a returned
# solution may have in a norm other than Frobenius.
ACCURACY_OTHER_NORMS = 1e-7
# The norm of W may be at most about two to this power. The duals are as large as the
# square of the norm, which float64 can still represent.
LARGEST_EXPONENT = 480
# The largest problems that are accepted in norms other than Frobenius. With 4,500
# constraints, an l_p norm takes 16 to 30 s, and the time grows with the cube of the
# number of constraints. A cone program with 1,800 constraints in 400 unknowns, whose
# matrix has 720,000 entries, takes 8 to 11 s.
MOST_CONSTRAINTS = 10_000
MOST_ENTRIES = 10_000_000
UNSHARED = 2**18  # multiplications in a product that OpenBLAS keeps on one thread


@dataclass(frozen=True, repr=False, eq=False)
class MaxMargin(Shapes):
    """Solutions of a token SVM or head SVM, one per run, with their certificates.

    The duals prove the solution: they give a lower bound on the norm of every W with
    margins of at least 1.

    Parameters
    ----------
    problem : str
        The problem in words, for example ``"token SVM, l_2 norm"``.
    norm : ndarray (runs,)
        The norm ||W|| (or ||v||), which was minimised.
    duals : ndarray (runs, n, T-1) or (runs, n)
        The dual variables beta >= 0 of min ||W||^2 / 2. In the Frobenius norm
        W = sum beta_{i,t} delta_{i,t} z_i^T. In every norm 1^T beta = ||W||^2.
    margins : ndarray, same shape as duals
        The margins delta_{i,t}^T W z_i (head: y_i v^T x_{i,s_i}), which are at least 1
        up to `accuracy`. A masked token has no constraint: its margin is NaN, its dual
        is zero, and its entry in `support` is False.
    support : ndarray of bool, same shape as duals
        Whether a constraint supports W, that is, whether its dual is positive. The
        solver of cone programs returns no dual that is exactly zero. There a constraint
        counts as supporting if its dual, divided by the largest dual, exceeds its
        slack.
    gap : ndarray (runs,)
        The relative duality gap | ||W|| - lower bound | / ||W||, with the lower bound
        from the duals. Rounding may put the bound slightly above ||W||, so we take the
        absolute value.
    accuracy : float
        A bound on the gap and on the violation, which every run satisfies.
    solver : tuple of str
        The method that solved each run.
    tokens : TokenSet
        The tokens of the problem. W is in their coordinates.
    _weights : callable
        A function without arguments that builds W (runs, d, d_z), or (runs, d, 1) for a
        head SVM. It is called when W is read for the first time.

    Examples
    --------
    The second margin of sample 0 exceeds 1, so that this constraint does not support W.

    >>> from lib import attention, svm
    >>> solution = svm.token_svm(attention.two_examples())
    >>> solution.margins.round(3)
    array([[[1. , 1.5],
            [1. , 1. ]]])
    >>> solution.support
    array([[[ True, False],
            [ True,  True]]])

    The duals sum to ||W||^2, and the gap between ||W|| and the lower bound is closed.

    >>> solution.duals.sum().round(3), (solution.norm**2).round(3)
    (np.float64(0.75), array([0.75]))
    >>> bool(solution.gap.max() <= solution.accuracy)
    True
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
    # A comparison of two records skips this field, since two functions are never equal.
    _weights: Callable[[], np.ndarray] = field(compare=False)

    @property
    def margin(self) -> np.ndarray:
        """The largest margin that a W (or v) of norm 1 can have, which is 1/norm.

        Returns
        -------
        ndarray (runs,)
            The margin.
        """
        return 1.0 / self.norm

    @property
    def violation(self) -> np.ndarray:
        """The largest violation 1 - margin of each run; zero if no margin is below 1.

        Returns
        -------
        ndarray (runs,)
            By how much the smallest margin of each run falls below 1. Masked tokens do
            not count.
        """
        smallest = np.nanmin(self.margins.reshape(len(self.margins), -1), 1)
        return np.maximum(0.0, 1.0 - smallest)

    @cached_property
    def value(self) -> np.ndarray:
        """The solution W in the coordinates of `tokens`, or v for the head.

        Returns
        -------
        ndarray (runs, d, d_z) or (runs, d)
            W of a token SVM, v of a head SVM.
        """
        W = self._weights()
        is_token_svm = self.duals.ndim == 3
        if is_token_svm:
            return W
        return W[..., 0]

    @property
    def W(self) -> np.ndarray:
        """The solution, as `value`; W is the name that paper A uses.

        Returns
        -------
        ndarray (runs, d, d_z) or (runs, d)
            W of a token SVM, v of a head SVM.
        """
        return self.value


def token_svm(
    tokens: TokenSet | Minimal,
    selected: np.ndarray | None = None,
    norm: str | float | Blocks = "frobenius",
) -> MaxMargin:
    """Find the W of least norm under which the selected token wins in every sample.

    W_mm = argmin ||W||  subject to  (x_{i,s_i} - x_{i,t})^T W z_i >= 1 for all i and t
    != s_i, with s_i = ``selected[i]``. The choice of the solver depends on the number m
    = n (T - 1) of constraints and on the number D of unknowns in W.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets, one per run. For a Minimal, W is in minimal coordinates.
    selected : ndarray of int (runs, n), optional
        The token s_i that must win in each sample, by having the largest logit.
        Default: the opt tokens.
    norm : {"frobenius", "nuclear", "spectral"}, float or Blocks
        The norm to minimise. A number p with 1 <= p <= inf stands for the entrywise
        norm ||W||_{p,p}.

    Returns
    -------
    MaxMargin
        The solution ``.W``, its ``.norm`` and ``.duals``, and the duality ``.gap``,
        which proves it. The gap and the violation are at most ``ACCURACY`` in the
        Frobenius norm, and at most ``ACCURACY_OTHER_NORMS`` in every other norm.

    Raises
    ------
    Infeasible
        If no W satisfies the constraints. It is a ValueError and carries a Farkas
        certificate, which holds for every norm.
    ValueError
        If `selected` has the wrong shape, type or range; if `norm` is unknown; if
        `tokens` is a Minimal and the norm depends on the coordinates; if a difference
        of tokens, the norm of W or a dual would leave the range of float64; if there
        are more constraints than the norm's solver can handle; if the parts of a Blocks
        do not fit W.
    TypeError
        If `tokens` is neither a TokenSet nor a Minimal.
    ImportError
        If cvxpy is not installed and the norm needs it. The nuclear, the spectral, the
        l_1, the l_inf and the block-wise norms need it.
    MemoryError
        If the problem would not fit into memory. The message says which size would.
    RuntimeError
        If the required accuracy was not reached. The message says what to do.

    Notes
    -----
    With "frobenius", the problem is W-SVM of paper A. With an exponent p, it is the
    problem of Definition 2 of paper C. With "nuclear", it is Att-SVM* of arXiv
    2308.16898, to which training of K and Q leads. In the nuclear, spectral, l_1, l_inf
    and block-wise norms W need not be unique, but its norm is. The l_p norms with p !=
    2 and `Blocks` depend on the coordinates. For these norms, pass a TokenSet in the
    coordinates of the model, not a Minimal.

    In the Frobenius norm, a problem with up to 700 constraints is solved by pivoting on
    their Gram matrix. For a larger problem, the cheaper of two methods is tried first.
    One is dual coordinate descent over the samples, followed by an exact solve on the
    support that it found. The other one is an interior-point method in the unknowns of
    W. A problem with 19,000 constraints takes 0.15 s with D = 256 and 1 to 4 s with D =
    4,096. An l_p norm allows up to 10,000 constraints; 4,500 constraints take half a
    minute. The other norms need a cone program, which allows up to m D = 10,000,000.

    Examples
    --------
    >>> from lib import attention, svm
    >>> data = attention.two_examples()
    >>> solution = svm.token_svm(data)
    >>> solution.W[0].round(3) + 0.0
    array([[-0.5,  0. ],
           [ 0.5, -0.5]])

    The logit of the selected token exceeds every other logit of its sample by at least
    1.

    >>> attention.logits(data, solution.W).round(3)
    array([[[-0.5, -1. ,  0.5],
            [-0.5, -0.5,  0.5]]])
    """
    if not isinstance(norm, Blocks):
        norm = known(norm, "norm", ("frobenius", "nuclear", "spectral"))
        if norm == "frobenius":
            norm = 2.0
    tokens = _in_coordinates(tokens, norm)
    runs, n, T, _ = tokens.shape
    selected = checked_selection(tokens, selected)
    X = tokens.X
    hidden = hidden_pairs(tokens, selected)
    # Replace each masked token by the selected one. Their difference is then zero, and
    # changes neither the spans nor the scales.
    if hidden is not None:
        chosen = np.take_along_axis(X, selected[..., None, None], 2)
        X = np.where(tokens.mask[..., None], X, chosen)
        hidden = hidden.reshape(runs, -1)
    return _solve(
        "token SVM", tokens, (X, selected, tokens.z), norm, (runs, n, T - 1), hidden
    )


def head_svm(
    tokens: TokenSet | Minimal, selected: np.ndarray | None = None, p: float = 2
) -> MaxMargin:
    """Find the head v of least norm that classifies the selected tokens with margin 1.

    v_mm = argmin ||v||_p  subject to  y_i v^T x_{i,s_i} >= 1 for all i, with
    s_i = ``selected[i]``.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets, one per run. For a Minimal, v is in minimal coordinates.
    selected : ndarray of int (runs, n), optional
        The token s_i that the head receives from each sample. Default: the opt tokens.
    p : float
        The exponent of the norm, 1 <= p <= inf.

    Returns
    -------
    MaxMargin
        The solution ``.W``, here v (runs, d), its ``.norm`` and ``.duals``, and the
        duality ``.gap``, which proves it. The gap and the violation are at most
        ``ACCURACY`` for p = 2, and at most ``ACCURACY_OTHER_NORMS`` for every other
        exponent.

    Raises
    ------
    Infeasible
        If no v satisfies the constraints. It is a ValueError and carries a Farkas
        certificate, which holds for every norm.
    ValueError
        If `selected` has the wrong shape, type or range; if `p` is not a number of at
        least 1; if `tokens` is a Minimal and p != 2; if a token, the norm of v or a
        dual would leave the range of float64; if there are more constraints than the
        norm's solver can handle.
    TypeError
        If `tokens` is neither a TokenSet nor a Minimal.
    ImportError
        If p is 1 or inf and cvxpy is not installed.
    MemoryError
        If the problem would not fit into memory. The message says which size would.
    RuntimeError
        If the required accuracy was not reached. The message says what to do.

    Notes
    -----
    The problem comes from paper A, where it is called u-SVM, and from paper C. It is
    the token SVM with delta_i = y_i x_{i,s_i} and z_i = 1. For p = 1 and p = inf, v
    need not be unique, but its norm is. The norms with p != 2 depend on the
    coordinates. For these norms, pass a TokenSet in the coordinates of the model, not a
    Minimal.

    Examples
    --------
    One token (2, 1) has to reach margin 1. The larger the exponent is, the more evenly
    v is spread over its entries.

    >>> from lib import attention, svm
    >>> data = attention.token_set(X=[[[2, 1], [0, 0]]], y=[1], opt=[0])
    >>> for p in 1.5, 2, 4:
    ...     print(p, svm.head_svm(data, p=p).W[0].round(3))
    1.5 [0.444 0.111]
    2 [0.4 0.2]
    4 [0.358 0.284]
    """
    p = known(p, "p", ())
    tokens = _in_coordinates(tokens, p)
    selected = checked_selection(tokens, selected)
    # (runs, n, 1, d)
    chosen = np.take_along_axis(tokens.X, selected[..., None, None], 2)
    signed = tokens.y[..., None, None] * chosen
    # Add a second token, which is zero, so that the difference of the two tokens is y_i
    # x_{i,s_i}.
    pairs = np.concatenate([signed, np.zeros_like(signed)], 2)
    parts = pairs, np.zeros_like(selected), np.ones((*selected.shape, 1))
    return _solve("head SVM", tokens, parts, p, selected.shape)


def _in_coordinates(tokens: TokenSet | Minimal, norm: str | float | Blocks):
    """Return the token set that was given, or the token set inside a Minimal.

    The norm is a value that `known` returned, or a Blocks. Raises ValueError if the
    tokens are a Minimal and the norm depends on the coordinates.
    """
    if not isinstance(tokens, Minimal):
        return token_set_of(tokens)
    if norm not in (2, "nuclear", "spectral"):
        raise ValueError(
            f"the norm {norm} sees the coordinates: give the tokens, not a Minimal"
        )
    return tokens.tokens


def checked_selection(tokens: TokenSet, selected: np.ndarray | None) -> np.ndarray:
    """Return `selected` as token indices (runs, n), by default the opt tokens.

    Raises ValueError if it does not consist of token indices (integers from 0 to T - 1,
    in the shape (runs, n)), or if it holds a masked token.
    """
    if selected is None:
        return tokens.opt
    runs, n, T, _ = tokens.shape
    selected = as_array("selected", selected)
    if selected.shape != (runs, n) or not np.issubdtype(selected.dtype, np.integer):
        raise ValueError(
            f"selected has shape {selected.shape} and type {selected.dtype}; "
            f"it needs token indices (integers) of shape {(runs, n)}"
        )
    if selected.min() < 0 or selected.max() >= T:
        raise ValueError(
            f"selected holds {selected.min()} ... {selected.max()}; "
            f"it needs indices 0 ... {T - 1}"
        )
    if tokens.mask is not None:
        shown = np.take_along_axis(tokens.mask, selected[..., None], 2)[..., 0]
        if not shown.all():
            run, sample = np.argwhere(~shown)[0]
            raise ValueError(
                f"selected holds token {selected[run, sample]} of sample {sample} of "
                f"run {run}, which is masked; select one that the mask shows"
            )
    return selected.astype(np.intp, copy=False)


def _solve(
    problem: str,
    tokens: TokenSet,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    norm: str | float | Blocks,
    shape: tuple[int, ...],
    hidden: np.ndarray | None = None,
) -> MaxMargin:
    """Solve all runs, and return them as one MaxMargin.

    The `parts` are the arguments of `frobenius.scaled`; `shape` is the shape of the
    duals. `hidden` (runs, n (T - 1)) is True for pairs that are no constraints; None
    means that every pair is a constraint. The first run that fails raises one of the
    errors that `token_svm` lists.
    """
    runs: list[dict] = []
    units = frobenius.Scaled(*frobenius.scaled(*map(np.ascontiguousarray, parts)))
    if not np.isfinite(units.delta).all():
        raise ValueError(
            f"X holds tokens whose difference exceeds {np.finfo(float).max:.1e}: "
            "divide them by a power of two, which only multiplies W by it"
        )
    # Limit BLAS to one thread, since a second one gains little. Small products run on
    # one thread anyway, so that no limit is needed for them.
    delta = units.delta[0]
    small = norm == 2 and delta.size * delta[..., 0].size <= UNSHARED
    with nullcontext() if small else blas.one_thread():
        for run, factors in enumerate(
            zip(units.delta, units.z, units.stretch, strict=True)
        ):
            # The Frobenius norm decides feasibility, and the solvers of all other norms
            # start from its solution.
            shown = None if hidden is None else np.flatnonzero(~hidden[run])
            constraints = Constraints(
                problem, run, shape[1:], *factors, shown, (parts[0][run], parts[1][run])
            )
            duals, margins, solver, W = frobenius.solve(constraints)
            if norm == 2:
                square = (duals * margins).sum()
                solved: dict = {"norm": np.sqrt(square), "solver": solver, "W": W}
                solved |= {"duals": duals, "margins": margins, "support": duals > 0}
                if W is None:
                    gap = np.abs(1 - (duals * constraints.asked).sum() / square)
                else:
                    gap = frobenius.gap(constraints.extended(), duals, W)
                solved["gap"] = gap
            else:
                solved = _other_norm(constraints, units, norm, duals)
            solved["duals"] = constraints.everywhere(solved["duals"], 0.0)
            solved["margins"] = constraints.everywhere(solved["margins"], np.nan)
            solved["support"] = constraints.everywhere(solved["support"], False)
            power = np.log2(solved["norm"]) - units.exponent[run]
            if abs(power) > LARGEST_EXPONENT:
                digits = power * np.log10(2)
                raise ValueError(
                    f"{problem} of run {run}: the solution would have norm "
                    f"1e{digits:.0f} and duals of size 1e{2 * digits:.0f}, outside "
                    "float64. That is only a scale: "
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
    norm_name = norm if isinstance(norm, str | Blocks) else f"l_{norm:g}"
    return MaxMargin(
        problem=f"{problem}, {norm_name} norm",
        accuracy=ACCURACY if norm == 2 else ACCURACY_OTHER_NORMS,
        solver=tuple(run["solver"] for run in runs),
        tokens=tokens,
        _weights=partial(_weights, units, runs),
        **solved,
    )


def _weights(units: frobenius.Scaled, runs: list[dict]) -> np.ndarray:
    """Return W (runs, d, d_z), the matrix whose margins were measured.

    `runs` are the solutions of the scaled runs. For each run we take the W that its
    solver returned or, if the solver returned none, compute W from the duals. Then we
    undo the scaling.
    """
    every_W = []
    for run, delta, z in zip(runs, units.delta, units.z, strict=True):
        W = run["W"]
        if W is None:
            W = frobenius.weights(run["duals"], delta, z)
        every_W.append(W)
    return np.ldexp(np.stack(every_W), -units.exponent[:, None, None])


def _other_norm(
    constraints: Constraints,
    units: frobenius.Scaled,
    norm: Any,
    beta: np.ndarray,
) -> dict:
    """Solve one scaled run in a norm other than Frobenius.

    It starts from beta (m,), the duals of the Frobenius norm. Returns a dict with the
    name of the `solver`, W (d, d_z), its `norm`, the `duals`, `margins` and `support`
    (m,), and the `gap`. Raises ValueError if the problem is too large for the norm's
    solver, and RuntimeError if the gap exceeds ACCURACY_OTHER_NORMS.
    """
    run = constraints.run
    delta = constraints.delta
    z = constraints.z
    stretch = constraints.asked
    blocks = isinstance(norm, Blocks)
    conic = blocks or norm in norms.DUAL
    if blocks:
        dual = norm.dual
    elif conic:
        dual = norms.DUAL[norm]
    else:
        dual = norm / (norm - 1)
    # Rotations change neither the nuclear nor the spectral norm, so solve within the
    # spans of the differences and of the queries.
    turned = isinstance(norm, str)
    if turned:
        delta, z, token_basis, query_basis = frobenius.thin(delta, z)
    _check_size(constraints, delta.shape[-1] * z.shape[-1], norm, conic)
    rows = constraints.of_shown(frobenius.constraint_rows(delta, z))  # (m, d d_z)
    shape = delta.shape[-1], z.shape[-1]
    start = rows.T @ beta
    if conic:
        solved = norms.conic(rows, shape, dual, float(np.linalg.norm(start)))
        # If Clarabel failed, keep the start: its large gap raises the error below.
        w = start
        if solved is not None:
            w, beta = solved
    else:
        w, beta = norms.entrywise(rows, norm, start, beta)
    lowest = (rows @ w).min()
    pulled = norm_of((rows.T @ beta).reshape(shape), dual)
    gap = abs(1 - stretch @ beta / pulled * lowest / norm_of(w.reshape(shape), norm))
    if not gap <= ACCURACY_OTHER_NORMS:
        raise RuntimeError(
            f"{constraints.problem} of run {run}: the relative duality gap {gap:.1e} "
            f"in the norm {norm} exceeds {ACCURACY_OTHER_NORMS:.0e}. Take an exponent "
            "nearer to 2 (inf in place of a large one), or rescale the tokens to a "
            "common norm: the constraints' entries differ by about a factor "
            f"{units.ratio[run]:.0e}."
        )
    # Scale w to be feasible up to rounding, so that its norm is an upper bound.
    w = w / lowest
    W = w.reshape(shape)
    margins = rows @ w
    size = norm_of(W, norm)
    beta = beta * size / pulled
    if conic:  # an interior point has no zero duals, so compare dual and slack
        solver = "Clarabel"
        support = beta / beta.max() > margins - 1
    else:
        solver = "Newton with weighted Frobenius steps"
        support = beta > 0
    if turned:
        W = token_basis @ W @ query_basis.T
    return {
        "solver": solver,
        "W": W,
        "norm": size,
        "duals": beta,
        "margins": margins,
        "support": support,
        "gap": gap,
    }


def _check_size(
    constraints: Constraints, unknowns: int, norm: Any, conic: bool
) -> None:
    """Raise ValueError if a problem in a norm other than Frobenius would take hours.

    The limit for a cone program (`conic`) is on the number of constraints times the
    number of unknowns. The limit for Newton's method is on the number of constraints
    alone.
    """
    count = len(constraints.asked)
    if conic:
        size = count * unknowns
        most = MOST_ENTRIES
        what = f"{count:,} constraints in {unknowns:,} unknowns, {size:,} entries,"
    else:
        size = count
        most = MOST_CONSTRAINTS
        what = f"{count:,} constraints"
    if size > most:
        raise ValueError(
            f"{constraints.problem} in the norm {norm}: {what} are more than the "
            f"{most:,} that its solver ends in minutes. Take fewer samples or tokens, "
            "or the Frobenius norm, which has solvers of its own for this size"
        )


def feasible(tokens: TokenSet) -> TokenSet | None:
    """Select the runs whose token SVM has a solution.

    The function solves the token SVM of the opt tokens in the Frobenius norm. Whether
    this SVM has a solution does not depend on the norm.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run. A Minimal has to be given as its ``.tokens``.

    Returns
    -------
    TokenSet or None
        The runs with a solution, in their order; None if no run has one.

    Raises
    ------
    ValueError
        If a difference of tokens, the norm of a solution or a dual would leave the
        range of float64.
    TypeError
        If `tokens` is not a TokenSet.
    MemoryError
        If a problem would not fit into memory.
    RuntimeError
        If the solver found neither a solution nor a proof that there is none.

    Examples
    --------
    In run 1 both samples have the same tokens and the same query, but different opt
    tokens. No W can select both opt tokens.

    >>> from lib import attention, svm
    >>> X = np.tile(np.eye(2), (2, 2, 1, 1))
    >>> y = np.ones((2, 2))
    >>> data = attention.token_set(X, y, opt=[[1, 1], [0, 1]])
    >>> data.shape
    (2, 2, 2, 2)
    >>> svm.feasible(data).opt
    array([[1, 1]])
    """
    check_kind(tokens)
    kept = []
    for run in range(len(tokens.y)):
        with suppress(Infeasible):
            token_svm(tokens.run(run))
            kept.append(run)
    if not kept:
        return None
    return tokens.take(kept)
