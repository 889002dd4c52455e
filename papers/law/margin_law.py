"""The law of the margins: what the duals of a token SVM say about a run whose direction
converges to the SVM's solution.

Near saturation -n grad L = sum_m kappa_m e^{-g_m} A_m, summed over pairs m = (i, t).
Here A_m = delta_m z_i^T, with delta_m the selected token minus token t, g_m = <A_m, W>
is the margin, and kappa_m = |l'(f_i)| Delta_m. If the steps are short enough, the
direction of this sum converges to that of W_mm = sum_m beta_m A_m. Then on the support,
that is, for the pairs with beta_m > 0, and from every start that leads to these tokens,

    g_m = a_t + log(kappa_m / beta_m) - mean + o(1),    a_t = <W_t, W_mm> / ||W_mm||^2,

where the mean is weighted by beta. With longer steps the direction of W may still
converge while g_m - a_t keeps jumping (page 41). For the exponential loss on separable
data the law is a theorem of Soudry et al. (2018). The proofs are in
`notebooks/law_of_margins.md`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from lib.attention import TokenSet, coordinates, model
from lib.representation import Shapes
from lib.svm.max_margin import MaxMargin, checked_selection
from papers.law.tolerances import (
    INDEPENDENT,
    SAME_SOLUTION,
    SHARE,
    SMALLEST_DUAL,
    TIGHT,
)
from papers.saturation import (
    log_of_gaps,
    log_ratios,
    saturated_slopes,
)


class PremiseFails(ValueError):
    """Raised if a premise of the law fails.

    The exception has the name of the premise, the run, the measured amount and the
    reason.
    """

    def __init__(self, premise: str, run: int, amount: float, reason: str) -> None:
        self.premise = premise
        self.run = run
        self.amount = float(amount)
        self.reason = reason
        self.named = f"premise {premise!r} fails: {reason}"
        super().__init__(f"run {run}, {self.named}")

    def __reduce__(self) -> tuple:
        # By default pickle keeps only an exception's message, which is not enough to
        # rebuild it.
        return type(self), (self.premise, self.run, self.amount, self.reason)


def require(
    holds: bool, premise: str, amount: float, reason: str, run: int = 0
) -> None:
    """Raise PremiseFails unless the premise holds."""
    if not holds:
        raise PremiseFails(premise, run, amount, reason)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MarginLaw(Shapes):
    """The law of the margins for one or more runs, from `margin_law`.

    Arrays over pairs m = (i, t) have the shape (runs, n, T-1); all others have the
    shape (runs,).

    Parameters
    ----------
    constant : ndarray (runs,)
        C, the norm of rho_perp. If W_0 = 0 and all pairs are on the support, the
        direction error times ||W_t|| tends to C. In other runs it tends to
        (C^2 + ||omega||^2)^{1/2}, where omega is the part of W outside the span of the
        support. `papers.law.prediction.predict` reads omega off a run.
    offsets : ndarray (runs, n, T-1)
        The limits of g_m - a_t. They are NaN off the support.
    support : ndarray of bool (runs, n, T-1)
        Whether the pair is on the support, that is, its constraint has a positive dual.
    duals : ndarray (runs, n, T-1)
        The duals beta. If the tight constraints are linearly dependent and the duals
        are not unique, these are the duals of least entropy relative to kappa.
    coefficients : ndarray (runs, n, T-1)
        The coefficients of rho_perp in the A_m. rho_perp is the residual of W
        orthogonal to W_mm, and C is its norm.
    norm : ndarray (runs,)
        ||W_mm||.
    slowest, fastest : ndarray (runs,)
        The smallest and the largest rate lambda with which an error of the offsets
        decays, like e^{-lambda a_t}. The rates are the eigenvalues of B^1/2 K B^1/2
        orthogonal to sqrt(beta), with B = diag(beta) and K the Gram matrix of the
        support. If the support has only one constraint, `slowest` is infinite and
        `fastest` is zero.
    slowest_mode : ndarray (runs, n, T-1)
        The vector v for which sum_m v_m (g_m - offsets_m) is the component of the
        offsets' error that decays slowest.
    excess : ndarray (runs,)
        The smallest margin outside the support, minus 1. It is infinite if all pairs
        are on the support.

    Notes
    -----
    `remaining` is the fraction of an error of the offsets that remains at the level a_t
    = <W_t, W_mm>/||W_mm||^2. The law holds once this fraction is small. `longest_step`
    is the longest step of normalised gradient descent with which small deviations of
    the offsets die out.
    """

    constant: np.ndarray
    offsets: np.ndarray
    support: np.ndarray
    duals: np.ndarray
    coefficients: np.ndarray
    norm: np.ndarray
    slowest: np.ndarray
    fastest: np.ndarray
    slowest_mode: np.ndarray
    excess: np.ndarray

    def direction_error(
        self, norm: np.ndarray, outside: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """Return the direction error that a run has at ||W|| = `norm` (runs, ...) once
        its offsets have converged.

        `outside` is ||omega||, the norm of W's part outside the span of the support. It
        is one number for all runs, or one per run (runs,). It enters as (C^2 +
        ||omega||^2)^{1/2}. It is zero if W_0 = 0 and all pairs are on the support;
        otherwise `papers.law.prediction.predict` reads it off the run. The method
        raises ValueError if `outside` has any other shape.
        """
        if np.shape(outside) not in ((), (1,), self.constant.shape):
            raise ValueError(
                f"outside has shape {np.shape(outside)}; it needs one number, or one "
                f"per run, {self.constant.shape}"
            )
        with np.errstate(divide="ignore"):  # At W = 0 the error has its largest value.
            share = np.hypot(self.constant, outside) / np.transpose(norm)
        return 2 * np.sin(np.arcsin(np.minimum(share, 1.0)) / 2).T

    def remaining(self, level: np.ndarray) -> np.ndarray:
        """Return e^{-a_t min(slowest, excess, 1)}, the fraction of an offset error that
        remains.

        `level` is a_t (runs, ...).
        """
        rate = np.minimum(np.minimum(self.slowest, self.excess), 1.0)
        return np.exp(-rate * np.transpose(level)).T

    def longest_step(self, momentum: float = 0.0) -> np.ndarray:
        """Return the largest step size of NGD with which small deviations of the
        offsets from their limits die out.

        The result has the shape (runs,). It is 2 (1 + momentum) ||W_mm|| / fastest, or
        infinite if the support has only one constraint. With larger step sizes the
        offsets do not converge. With smaller ones a large deviation may still end in a
        cycle (page 41 has examples). The method raises ValueError unless 0 <= momentum
        < 1.
        """
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}; it needs 0 <= momentum < 1")
        with np.errstate(divide="ignore"):
            return 2 * (1 + momentum) * self.norm / self.fastest


def margin_law(
    tokens: TokenSet,
    solution: MaxMargin,
    selected: np.ndarray | None = None,
    loss: str = "exponential",
    log_slopes: np.ndarray | None = None,
) -> MarginLaw:
    r"""Compute the law of the margins for runs whose direction converges to the
    solution of a token SVM.

    Once the selected tokens lead, the margins on the support are

    .. math:: g_m(t) = a_t + \log(\kappa_m / \beta_m) - \text{mean} + o(1), \quad
        a_t = \langle W_t, W_{mm} \rangle / \|W_{mm}\|^2

    with the duals beta of the SVM. These margins determine the part of W_t in the span
    of the support, and C = ``constant`` is the distance of this part from the ray of
    W_mm. Let omega be the part of W_t outside this span, which the duals do not
    determine. Then

    .. math:: \|W_t\| \cdot \text{error}_t \to \sqrt{C^2 + \|\omega_\infty\|^2}.

    Nothing is fitted. If W_0 = 0 and all pairs are on the support, omega is zero, and
    the direction error is C divided by ||W_t||. Otherwise omega has to be measured on
    the run, and `papers.law.prediction.predict` does so.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    solution : MaxMargin
        ``lib.token_svm(tokens)``, in the Frobenius norm.
    selected : ndarray of int (runs, n), optional
        The token that each sample selects. By default these are the opt tokens.
    loss : str, optional
        One of ``lib.LOSSES``.
    log_slopes : ndarray (runs, n, T-1), optional
        log kappa_m, up to one common additive constant. The default is
        `saturated_slopes` for `loss`; `loss` is not used otherwise.

    Returns
    -------
    MarginLaw
        The law. Its arrays include ``constant`` (runs,), which is C; ``offsets`` (runs,
        n, T-1) of the margins, NaN off the support; ``support``; and ``duals``. Its
        method ``direction_error(norm, outside)`` returns the direction error that the
        law predicts at ||W|| = norm and ||omega|| = outside.

    Raises
    ------
    PremiseFails
        If a premise of the law fails: "same problem" (the solution belongs to another
        problem), "positive duals" (a tight constraint has no positive dual), or "score
        gaps" (a token on the support scores at least as high as the selected one).
    ValueError
        If an array has the wrong shape, or if the loss is unknown.
    RuntimeError
        If the tight constraints are linearly dependent, the duals are not unique, and
        Newton's method does not find those of least entropy.
    TypeError
        If the first two arguments have the wrong type, for example because they are
        swapped.

    Notes
    -----
    The law is our theorem, proved in ``notebooks/law_of_margins.md``. For the
    exponential loss on separable data it is the theorem of Soudry et al. (2018). It
    holds for rules that step along the gradient. omega contains the part of W_0 outside
    the span of the support, and also what the pairs off the support add to W early in
    training.

    Examples
    --------
    Here all pairs are on the support, so that C alone determines the error.

    >>> import lib
    >>> from papers.law.margin_law import margin_law
    >>> tokens = lib.class_mean_tokens(seeds=[0])
    >>> target = lib.token_svm(tokens)
    >>> law = margin_law(tokens, target)
    >>> bool(law.support.all())
    True
    >>> run = lib.train(tokens, lib.NGD(0.1), 100_000, targets={"W_mm": target})
    >>> predicted = law.direction_error(run.norm)
    >>> measured = run.direction_error["W_mm"]
    >>> print((measured / predicted)[0, [20, -1]].round(3))
    [0.276 1.   ]
    """
    if not (isinstance(tokens, TokenSet) and isinstance(solution, MaxMargin)):
        raise TypeError(
            f"tokens = {type(tokens).__name__} and solution = "
            f"{type(solution).__name__}; it must be margin_law(tokens, solution), with "
            "a TokenSet and the MaxMargin that token_svm returns for it"
        )
    selected = checked_selection(tokens, selected)
    delta = coordinates.differences(tokens, selected, masked_as_zero=True)
    shape = selected.shape + (tokens.shape[2] - 1,)
    if log_slopes is None:
        slopes = saturated_slopes(tokens, selected, loss)
    else:
        slopes = log_slopes
    for name, values in (("solution.duals", solution.duals), ("log_slopes", slopes)):
        if np.shape(values) != shape:
            raise ValueError(f"{name} has shape {np.shape(values)}; it needs {shape}")
    duals = np.empty(shape)
    fields = []
    for run in range(len(tokens.X)):
        of_run = solution.duals[run], solution.margins[run], slopes[run]
        # Only pairs on the support enter the law, so we need no matrix of all pairs.
        inside = (of_run[1] - 1 <= TIGHT) | (of_run[0] > 0)
        rows = delta[run][inside]
        queries = tokens.z[run][np.nonzero(inside)[0]]
        K = (rows @ rows.T) * (queries @ queries.T)
        off = _distance(delta[run], tokens.z[run], *of_run[:2])
        duals[run] = _checked(run, K, inside, off, *of_run)
        on = duals[run][inside] > 0
        fields.append(_of_run(K[np.ix_(on, on)], duals[run], *of_run[1:]))
    return _together(duals, fields)


def _distance(
    delta: np.ndarray, z: np.ndarray, duals: np.ndarray, margins: np.ndarray
) -> float:
    """Return the largest |<A_m, sum_k beta_k A_k> - margin_m| of one run, over all
    pairs.

    `delta` (n, T-1, d) and `z` (n, d_z) give A_m; `duals` and `margins` have the shape
    (n, T-1). This distance is zero if the margins belong to the solution that the duals
    give.
    """
    W = np.einsum("nt,ntd->dn", duals, delta) @ z  # (d, d_z)
    found = np.einsum("ntd,nd->nt", delta, z @ W.T)
    return np.nanmax(np.abs(found - margins))  # a masked token has a NaN margin


def gram(
    tokens: TokenSet,
    selected: np.ndarray | None = None,
    *,
    masked_as_zero: bool = False,
) -> np.ndarray:
    """Compute K (runs, m, m), the Gram matrix of the A_m of all m = n (T-1) pairs.

    `selected` defaults to the opt tokens. The function raises ValueError if tokens are
    masked, unless `masked_as_zero` sets their A_m to zero.
    """
    selected = tokens.opt if selected is None else selected
    delta = coordinates.differences(tokens, selected, masked_as_zero=masked_as_zero)
    return coordinates.gram(delta, tokens.z)


def from_duals(
    K: np.ndarray, duals: np.ndarray, margins: np.ndarray, log_slopes: np.ndarray
) -> MarginLaw:
    """Compute the `margin_law` without its checks, from the Gram matrix K (runs, m, m).

    The other arguments have the shape (runs, n, T-1), with m = n (T-1). The support
    consists of the pairs with a positive dual.
    """
    fields = []
    for K_run, beta, *more in zip(K, duals, margins, log_slopes, strict=True):
        on = beta.ravel() > 0
        fields.append(_of_run(K_run[np.ix_(on, on)], beta, *more))
    return _together(duals, fields)


def _together(duals: np.ndarray, fields: list[dict[str, np.ndarray]]) -> MarginLaw:
    """Join the fields of all runs, one dict per run, into one law."""
    return MarginLaw(
        duals=duals, **{name: np.stack([f[name] for f in fields]) for name in fields[0]}
    )


def _of_run(
    K_on: np.ndarray, beta: np.ndarray, margins: np.ndarray, log_slopes: np.ndarray
):
    """Compute the fields of MarginLaw for one run.

    `K_on` is the Gram matrix of the pairs on the support. The other arguments have the
    shape (n, T-1). The result is {name of a field: its value for this run}.
    """
    on = beta > 0
    weights = beta[on]
    square = weights @ K_on @ weights  # ||W_mm||^2
    offsets, _ = log_ratios(log_slopes[on], weights)
    rank = features(K_on).shape[1]
    if rank == len(K_on):
        inside = cho_solve(cho_factor(K_on), offsets)
    # For dependent A_m the coefficients are not unique; we take the shortest vector of
    # them.
    else:
        inside = np.linalg.lstsq(K_on, offsets, rcond=INDEPENDENT)[0]
    root = np.sqrt(weights)
    symmetric = root[:, None] * K_on * root - np.outer(root, root) / weights.sum()
    modes, vectors = np.linalg.eigh(symmetric)
    # We leave out sqrt(beta), along which a_t moves, and the directions that change no
    # margin.
    none = len(K_on) - rank + 1
    modes = modes[none:]
    vectors = vectors[:, none:]
    full = {
        name: np.zeros(on.shape) for name in ("offsets", "coefficients", "slowest_mode")
    }
    full["offsets"][~on] = np.nan
    full["offsets"][on], full["coefficients"][on] = offsets, inside
    # If no margin can move, there is no mode.
    slowest = np.inf
    fastest = 0.0
    if modes.size:
        slowest = modes[0]
        fastest = modes[-1]
        full["slowest_mode"][on] = root * vectors[:, 0]
    return full | {
        "support": on,
        "constant": np.sqrt(max(offsets @ inside, 0.0)),
        "norm": np.sqrt(square),
        "slowest": slowest,
        "fastest": fastest,
        # A masked token has a NaN margin.
        "excess": np.nanmin(margins[~on] - 1, initial=np.inf),
    }


def _checked(
    run: int,
    K: np.ndarray,
    inside: np.ndarray,
    off: np.ndarray,
    duals: np.ndarray,
    margins: np.ndarray,
    log_slopes: np.ndarray,
):
    """Return the duals (n, T-1) that the law uses, or raise PremiseFails.

    `K` is the Gram matrix of the pairs for which `inside` (n, T-1) is True, and `off`
    is the result of `_distance`. The other arguments have the shape (n, T-1).
    """
    beta = duals.ravel()
    margins = margins.ravel()
    log_slopes = np.ravel(log_slopes)

    def pair(m: int):
        return "(sample {}, pair {})".format(*np.unravel_index(m, duals.shape))

    reason = (
        f"the duals give margins that differ by {off:.2g} from the solution's, "
        "it needs at "
        f"most {SAME_SOLUTION:.0e}: the Frobenius solution of these tokens and "
        "this selection"
    )
    require(off <= SAME_SOLUTION, "same problem", off, reason, run)
    tight = np.flatnonzero(margins - 1 <= TIGHT)
    of_tight = np.searchsorted(np.flatnonzero(inside), tight)
    K_tight = K[np.ix_(of_tight, of_tight)]
    independent = features(K_tight).shape[1] == len(tight)
    behind = tight[~np.isfinite(log_slopes[tight])]
    if not (independent or behind.size):
        pi = _least_entropy(K_tight, log_slopes[tight])
        beta, total = np.zeros(beta.shape), beta.sum()
        beta[tight] = total * pi
    smallest = tight[beta[tight].argmin()]
    share = beta[smallest] / beta.max()
    reason = (
        f"{pair(smallest)} is tight (margin 1 + {margins[smallest] - 1:.1e}) but its "
        f"dual is {share:.1e} of the largest, it needs {SMALLEST_DUAL:.0e}"
    )
    unknown = behind.size and not independent
    require(share >= SMALLEST_DUAL or unknown, "positive duals", share, reason, run)
    first_behind = pair(behind[0]) if behind.size else ""
    reason = (
        f"{len(behind)} of {len(tight)} tokens on the support score at least what the "
        f"selected one does, the first {first_behind}; "
        "it needs none: train longer or with larger steps, since the selection may not "
        "have settled"
    )
    require(not behind.size, "score gaps", len(behind), reason, run)
    return beta.reshape(duals.shape)


def joint_slopes(
    tokens: TokenSet, head: MaxMargin, selected: np.ndarray | None = None
) -> np.ndarray:
    """Return log kappa_m (runs, n, T-1) for a head that is trained with W.

    Up to a constant, log kappa_m is log nu_i + log y_i v^T(x_{i,s_i} - x_{i,t}), where
    v solves the SVM `head` and nu are the duals of this SVM. Entries are NaN as in
    `saturated_slopes`. `selected` (runs, n) are the tokens s_i, by default the opt
    tokens. The function raises PremiseFails with "whole head" if some nu_i is zero.
    """
    selected = tokens.opt if selected is None else selected
    smallest = head.duals.min(1) / head.duals.max(1)
    run = int(smallest.argmin())
    share = smallest.min()
    idle = int((head.duals[run] < SMALLEST_DUAL * head.duals[run].max()).sum())
    reason = (
        f"{idle} of {head.duals.shape[1]} samples carry nothing in the head SVM, "
        "smallest dual "
        f"{share:.1e} of the largest, it needs {SMALLEST_DUAL:.0e}"
    )
    require(share >= SMALLEST_DUAL, "whole head", share, reason, run)
    log_gaps = log_of_gaps(model.scores(tokens, head.W), selected)
    return np.log(head.duals)[..., None] + log_gaps


def features(K: np.ndarray) -> np.ndarray:
    """Return F (s, rank) with F F^T = K (s, s), for the Gram matrix K of features A_m.

    The rows of F are the A_m in coordinates of their span. No A_m may be zero.
    Directions in which the A_m/||A_m|| have eigenvalues below INDEPENDENT are left out.
    """
    length = np.sqrt(np.diag(K))
    values, vectors = np.linalg.eigh(K / np.outer(length, length))
    kept = values >= INDEPENDENT
    return length[:, None] * vectors[:, kept] * np.sqrt(values[kept])


def _least_entropy(
    K: np.ndarray, log_slopes: np.ndarray, steps: int = 200
) -> np.ndarray:
    """Return the shares pi (s,) of the duals with the least entropy relative to kappa.

    The tight constraints have the Gram matrix K (s, s) and the `log_slopes` log kappa
    (s,). The result pi (s,) minimises sum_m pi_m log(pi_m / kappa_m) over pi >= 0 with
    sum_m pi_m A_m = V / ||V||^2, so that it sums to 1. Newton's method solves the dual
    problem of Lemma 1 in `notebooks/law_of_margins.md`. If no vector of duals has only
    positive entries, some entries of pi are 0. The function raises RuntimeError if
    Newton's method needs more than `steps` steps.
    """
    F = features(K)
    v = np.linalg.lstsq(F, np.ones(len(F)), rcond=None)[0]  # V: F v = 1
    H = F @ np.linalg.qr(v[:, None], mode="complete")[0][:, 1:]
    y = np.zeros(H.shape[1])

    def at(y: np.ndarray):
        powers = log_slopes - H @ y
        top = powers.max()
        weights = np.exp(powers - top)
        return top + np.log(weights.sum()), weights / weights.sum()

    value, pi = at(y)
    for _ in range(steps):
        centred = H - pi @ H
        step = np.linalg.lstsq(
            centred.T @ (pi[:, None] * centred), H.T @ pi, rcond=None
        )[0]
        decrement = (H.T @ pi) @ step
        size = 1.0
        # A small share is set to zero only now, because the other shares have to
        # converge, too.
        if decrement < 1e-28:
            return np.where(pi < SHARE, 0.0, pi)
        while (
            decrement > 1e-9 and at(y + size * step)[0] > value - size * decrement / 4
        ):
            size /= 2
        y = y + size * step
        value, pi = at(y)
    raise RuntimeError(
        f"least entropy: Newton's method is not done after {steps} steps"
    )
