"""Measure the margin of a run in several norms, relative to the largest possible one.

For the tokens that a run selects at its end, the largest margin in the norm N is
gamma_N = max {min_m <A_m, W> : N(W) <= 1} = 1/||W_mm||_N. We compute it with the
certified token SVM. The margin ratio of a run is min_m <A_m, W_t> / (N(W_t) gamma_N),
which is at most 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib import attention, svm
from lib.attention import TokenSet, coordinates
from lib.dynamics import History

# The norms by their names in the figures, as arguments of `svm.token_svm`.
NORMS: dict[str, Any] = {
    "l_1": 1.0,
    "nuclear": "nuclear",
    "Frobenius": "frobenius",
    "l_3": 3.0,
    "spectral": "spectral",
    "l_inf": np.inf,
    # The larger of two spectral norms: that of the upper half of W, and that of the
    # lower half.
    "head-wise": svm.Blocks("spectral", 2),
}


def column(name: str) -> int:
    """Return the index of a norm in NORMS."""
    return list(NORMS).index(name)


def selected(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Return the index of the token with the largest logit in each sample, for W (runs,
    d, d_z).

    The result has the shape (runs, n). If several tokens tie, it has the first of them.
    """
    return attention.logits(tokens, W).argmax(-1)


def least_margins(tokens: TokenSet, selection: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return the least margin (x_s - x_t)^T W z of each run and record.

    The result has the shape (runs, k). W has the shape (runs, k, d, d_z), and
    `selection` has the shape (runs, n). Masked tokens are left out.
    """
    delta = coordinates.differences(tokens, selection, masked_as_zero=True)
    images = np.einsum("rkde,rne->rknd", W, tokens.z)
    margins = np.einsum("rntd,rknd->rknt", delta, images)
    shown = coordinates.shown_pairs(tokens, selection)[:, None]  # (runs, 1, n, T-1)
    return np.where(shown, margins, np.inf).min((-2, -1))


def features(tokens: TokenSet, selection: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute A_m = (x_s - x_t) z^T of the first run, for all pairs m of a sample and a
    token t that is not selected.

    x_s is the selected token of the sample, given by `selection` (n,). The function
    returns A (m, d, d_z), and the index of each pair's sample (m,), in ascending order.
    Masked tokens have no pair.
    """
    delta = coordinates.differences(tokens, selection[None], masked_as_zero=True)[0]
    shown = coordinates.shown_pairs(tokens, selection[None])[0]  # (n, T-1)
    sample = np.nonzero(shown)[0]
    return np.einsum("md,me->mde", delta[shown], tokens.z[0, sample]), sample


class BestMargins:
    """The token SVMs of all runs and selections.

    Each SVM is solved when it is first needed, and its solution is kept. `known` has
    the solutions by run and selection and then by norm, and `gap` is the largest
    duality gap of a solution.
    """

    def __init__(self, tokens: TokenSet) -> None:
        self.tokens = tokens
        self.known = {}
        self.gap = 0.0

    def solution(self, run: int, selection: np.ndarray, norm: str) -> svm.MaxMargin:
        """Return the SVM solution for one run's selection (n,) in the norm NORMS[norm].

        The method raises svm.Infeasible if there is none.
        """
        solved = self.known.setdefault((run, *map(int, selection)), {})
        if norm not in solved:
            solved[norm] = svm.token_svm(
                self.tokens.run(run), selection[None], NORMS[norm]
            )
            self.gap = max(self.gap, solved[norm].gap[0])
        return solved[norm]

    def gamma(self, run: int, selection: np.ndarray, norm: str) -> float:
        """Return the largest margin gamma_N = 1 / ||W_mm||_N.

        The arguments are those of `solution`.
        """
        return 1 / self.solution(run, selection, norm).norm[0]


@dataclass(frozen=True)
class Ratios:
    """The margin ratios of a rule's runs.

    `value` has the shape (runs, k, norms), with the norms in the order of NORMS. At all
    records of a run, margins are those of the tokens that the run selects at its end,
    so that an early ratio can be negative. A ratio is NaN where W = 0, and for a run
    that did not complete or that ends with a tie.
    """

    iterations: np.ndarray  # (k,)
    value: np.ndarray
    selection: np.ndarray  # (runs, n) at the last record
    # (runs,) whether the selection after half of the steps is already the final one
    steady: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """Return the ratios at the last record.

        The result has the shape (runs, norms).
        """
        return self.value[:, -1]


Reached = Mapping[str, Ratios]  # by rule


def ratios(path: History, best: BestMargins) -> Ratios:
    """Compute the ratios of one rule's runs for the selections that the runs make at
    the end.

    `path` must have recorded W, in the coordinates of the tokens of `best`.
    """
    tokens = best.tokens
    W = path.W
    selection = selected(tokens, W[:, -1])
    middle = np.searchsorted(path.iterations, path.iterations[-1] / 2)
    steady = (selected(tokens, W[:, middle]) == selection).all(-1)
    margins = least_margins(tokens, selection, W)
    value = np.full((*margins.shape, len(NORMS)), np.nan)
    for run in range(len(W)):
        if path.status[run] != "completed" or not margins[run, -1] > 0:
            continue  # A run that diverged, or that ends with a tie, selects nothing.
        with np.errstate(invalid="ignore"):  # W_0 = 0 has no direction
            for k, (name, norm) in enumerate(NORMS.items()):
                gamma = best.gamma(run, selection[run], name)
                value[run, :, k] = margins[run] / svm.norm_of(W[run], norm) / gamma
    return Ratios(
        iterations=path.iterations, value=value, selection=selection, steady=steady
    )


def atlas(paths: Mapping[str, History], best: BestMargins) -> dict[str, Ratios]:
    """Compute the ratios of every rule."""
    return {name: ratios(path, best) for name, path in paths.items()}


def fitted_rate(reached: Ratios, norm: int, decades: float = 1.0) -> np.ndarray:
    """Fit the exponents b (runs,) of 1 - ratio ~ t^b over the last `decades` decades of
    iterations.

    `norm` is the index of a norm in NORMS. A value of 1 - ratio below 1e-15 counts as
    1e-15. If a ratio is NaN, the exponent of its run is NaN too.
    """
    t = reached.iterations
    late = t >= t[-1] / 10**decades
    left = np.log(np.maximum(1 - reached.value[:, late, norm], 1e-15))
    return np.array([np.polyfit(np.log(t[late]), run, 1)[0] for run in left])
