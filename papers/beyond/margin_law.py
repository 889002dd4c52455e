"""The law of the margins: what a token SVM's duals say about the run that ends in its solution.

Near saturation -grad L = sum_m kappa_m e^{-g_m} A_m, with pairs m = (i, t), A_m = delta_m z_i^T,
margins g_m = <A_m, W> and kappa_m = |l'(f_i)| Delta_m. W's direction rests only where this is along
W_mm = sum_m beta_m A_m, that is where kappa_m e^{-g_m} is proportional to beta_m. So on the support

    g_m = a_t + log(kappa_m / beta_m) - mean + o(1),    a_t = <W_t, W_mm> / ||W_mm||^2,

mean the beta-weighted one of these logarithms, whatever the rule and the start. For the exponential
loss on separable data this is Soudry et al. (2018); the proof for attention and for steps of a
fixed length, and what is only measured, stand in `notebooks/law_of_margins.md`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from lib.attention import coordinates
from lib.attention.tokens import TokenSet
from lib.representation import Shapes
from lib.svm.max_margin import MaxMargin, checked_selection
from papers.beyond.least_entropy import INDEPENDENT, features, least_entropy
from papers.beyond.margin_slopes import SMALLEST_DUAL, PremiseFails, saturated_slopes

TIGHT = 1e-7  # a margin of at most 1 + TIGHT counts as 1
SAME_SOLUTION = 1e-6  # largest difference between the solution's margins and those of its duals


@dataclass(frozen=True, kw_only=True, repr=False)
class MarginLaw(Shapes):
    """The law for one or more runs, pairs m = (i, t) as in `MaxMargin.duals`.

    offsets       (runs, n, T-1) log(kappa_m / beta_m) less its beta-weighted mean, the limit of
                  g_m - a_t; NaN off the support
    support       (runs, n, T-1) the constraints that carry W_mm
    duals         (runs, n, T-1) beta: the solution's, or of all its duals those of least entropy
                  relative to kappa where the tight constraints are dependent
    coefficients  (runs, n, T-1) rho_perp = sum_m coefficients_m A_m, the residual off W_mm
    constant      (runs,) C = ||rho_perp||: ||W_t|| times the direction error tends to it
    norm          (runs,) ||W_mm||
    slowest       (runs,) and `fastest`: extreme eigenvalues of B^1/2 K B^1/2 off sqrt(beta), with
                  B = diag(beta) and K the Gram matrix of the support: a wrong offset decays like
                  e^{-lambda a_t}; infinity and 0 where a single constraint carries W_mm
    slowest_mode  (runs, n, T-1) v: sum_m v_m (g_m - offsets_m) is what is left of the slowest mode
    excess        (runs,) least margin off the support, less 1: pulls there die like
                  e^{-excess a_t}; infinity where all constraints carry W_mm
    """

    offsets: np.ndarray
    support: np.ndarray
    duals: np.ndarray
    coefficients: np.ndarray
    constant: np.ndarray
    norm: np.ndarray
    slowest: np.ndarray
    slowest_mode: np.ndarray
    fastest: np.ndarray
    excess: np.ndarray

    def direction_error(self, norm: np.ndarray, outside: np.ndarray | float = 0.0) -> np.ndarray:
        """||W/||W|| - W_mm/||W_mm|| || of a settled run at ||W|| = `norm` (runs, ...).

        It is 2 sin(arcsin(C/||W||)/2), about C/||W||. outside (runs,): the norm of W's part off the
        span of the support, in quadrature with C.
        """
        total = np.hypot(self.constant, outside)
        total = total.reshape(total.shape + (1,) * (np.ndim(norm) - 1))
        return 2 * np.sin(np.arcsin(np.minimum(total / norm, 1.0)) / 2)

    def remaining(self, level: np.ndarray) -> np.ndarray:
        """What is left of wrong offsets at margin level a_t (runs, ...), in order: e^{-rate a_t}.

        rate = min(slowest, excess, 1), the 1 for weights that are not yet small. For exact flow; a
        step must be well below `longest_step` for it to hold.
        """
        rate = np.minimum(np.minimum(self.slowest, self.excess), 1.0)
        return np.exp(-rate.reshape(rate.shape + (1,) * (np.ndim(level) - 1)) * level)

    def longest_step(self, momentum: float = 0.0) -> np.ndarray:
        """The longest step at which *small* disturbances of NGD's offsets die, (runs,).

        2 (1 + momentum) ||W_mm|| / fastest. A longer one makes them cycle: their linearised map has
        an eigenvalue below -1. With momentum a large cycle can live below it as well. Infinite
        where there is nothing to settle. Polyak's step tends to ||W_mm||/2, so that its offsets
        settle where fastest < 4. ValueError for a momentum outside [0, 1).
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
    """The law for runs that end in `solution`, the Frobenius token SVM of the selection `selected`.

    selected (runs, n): default the opt tokens. log_slopes (runs, n, T-1): log kappa_m, default
    `saturated_slopes` of a head that stays; only their differences count.

    Raises PremiseFails, a ValueError that says which premise fails and by how much: "same problem"
    (the solution is not of these tokens, this selection or this norm), "positive duals" (a tight
    constraint without a dual), "score gaps" (a token on the support scores at least what the
    selected one does). ValueError as well for shapes that do not fit and for a selection that
    names no token.
    """
    selected = checked_selection(tokens, selected)
    delta = coordinates.differences(tokens, selected)
    if solution.duals.shape != delta.shape[:3]:
        raise ValueError(
            f"solution.duals has shape {solution.duals.shape}; it needs {delta.shape[:3]}"
        )
    K = coordinates.gram(delta, tokens.z)
    slopes = saturated_slopes(tokens, selected, loss) if log_slopes is None else log_slopes
    if np.shape(slopes) != solution.duals.shape:
        raise ValueError(
            f"log_slopes has shape {np.shape(slopes)}; it needs {solution.duals.shape}"
        )
    duals = solution.duals.copy()
    for run in range(len(K)):
        beta, margins = duals[run].ravel(), solution.margins[run].ravel()
        beta = _checked(run, K[run], beta, margins, np.ravel(slopes[run]), delta.shape[2])
        duals[run] = beta.reshape(duals[run].shape)
    return from_duals(K, duals, solution.margins, slopes)


def from_duals(K, duals, margins, log_slopes) -> MarginLaw:
    """`margin_law` without its checks, from the Gram matrix K (runs, m, m) of all constraints.

    duals, margins, log_slopes (runs, n, T-1). What it says of duals that solve nothing is what a
    wrong world would have measured.
    """
    runs = [
        _of_run(K[r], duals[r].ravel(), margins[r].ravel(), np.ravel(log_slopes[r]))
        for r in range(len(K))
    ]
    stacked = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    pairs = ("offsets", "support", "coefficients", "slowest_mode")
    stacked |= {name: stacked[name].reshape(duals.shape) for name in pairs}
    return MarginLaw(duals=duals, **stacked)


def _of_run(K, beta, margins, log_slopes):
    """The fields of MarginLaw for one run, pairs in one axis (m,)."""
    on = beta > 0
    weights, K_on = beta[on], K[np.ix_(on, on)]
    square = weights @ K_on @ weights  # ||W_mm||^2
    log_ratio = log_slopes[on] - np.log(weights)
    offsets = log_ratio - weights @ log_ratio / weights.sum()
    rank = features(K_on).shape[1]
    if rank == len(K_on):
        inside = cho_solve(cho_factor(K_on), offsets)
    else:  # the shortest coefficients of many
        inside = np.linalg.lstsq(K_on, offsets, rcond=INDEPENDENT)[0]
    root = np.sqrt(weights)
    symmetric = root[:, None] * K_on * root - np.outer(root, root) / weights.sum()
    modes, vectors = np.linalg.eigh(symmetric)
    none = len(K_on) - rank + 1  # sqrt(beta), along which a_t moves, and what moves no margin
    modes, vectors = modes[none:], vectors[:, none:]
    full = {name: np.zeros(beta.shape) for name in ("offsets", "coefficients", "slowest_mode")}
    full["offsets"][~on] = np.nan
    full["offsets"][on], full["coefficients"][on] = offsets, inside
    full["slowest_mode"][on] = root * vectors[:, 0] if modes.size else 0.0
    return full | {
        "support": on,
        "constant": np.sqrt(max(offsets @ inside, 0.0)),
        "norm": np.sqrt(square),
        "slowest": modes[0] if modes.size else np.inf,
        "fastest": modes[-1] if modes.size else 0.0,
        "excess": (margins[~on] - 1).min() if not on.all() else np.inf,
    }


def _checked(run, K, beta, margins, log_slopes, width):
    """The duals (m,) that the law is about; PremiseFails for the first premise that a run breaks.

    Pairs in one axis (m,); width = T-1, to name a pair in messages.
    """
    off = np.abs(K @ beta - margins).max()
    if not off <= SAME_SOLUTION:
        said = (
            f"the duals give margins that differ by {off:.2g} from the solution's, it needs at "
            f"most {SAME_SOLUTION:.0e}: the Frobenius solution of these tokens and this selection"
        )
        raise PremiseFails("same problem", run, off, said)
    tight = np.flatnonzero(margins - 1 <= TIGHT)
    K_tight = K[np.ix_(tight, tight)]
    independent = features(K_tight).shape[1] == len(tight)
    behind = tight[~np.isfinite(log_slopes[tight])]
    if not independent and not behind.size:
        total = beta.sum()
        beta = np.zeros(beta.shape)
        beta[tight] = total * least_entropy(K_tight, log_slopes[tight])
    smallest = tight[beta[tight].argmin()]
    share = beta[smallest] / beta.max()
    if share < SMALLEST_DUAL and (independent or not behind.size):
        said = (
            f"{_pair(smallest, width)} is tight (margin 1 + {margins[smallest] - 1:.1e}) but its "
            f"dual is {share:.1e} of the largest, it needs {SMALLEST_DUAL:.0e}"
        )
        raise PremiseFails("positive duals", run, share, said)
    if behind.size:
        said = (
            f"{len(behind)} of {len(tight)} tokens on the support score at least what the "
            f"selected one does, the first {_pair(behind[0], width)}; it needs none"
        )
        raise PremiseFails("score gaps", run, len(behind), said)
    return beta


def _pair(m, width):
    return f"(sample {m // width}, pair {m % width})"
