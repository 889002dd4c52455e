"""How hard a saturated softmax pulls on each pair: kappa_m = |l'(f_i)| Delta_m.

Beside a margin g_m the gradient's weight on the pair m = (i, t) is kappa_m e^{-g_m}, with
Delta_m = y_i u^T(x_{i,s_i} - x_{i,t}) the score gap to the selected token s_i.
"""

import numpy as np

from lib.attention import coordinates, losses, model
from lib.attention.tokens import TokenSet
from lib.svm.max_margin import MaxMargin

SMALLEST_DUAL = 1e-9  # of the run's largest; less counts as zero


class PremiseFails(ValueError):
    """A premise of the law does not hold; `premise` names it, `run` where, `amount` by how much.

    `said` is the reason in words, with what was needed; `named` the same after the premise's name.
    """

    def __init__(self, premise: str, run: int, amount: float, said: str):
        self.premise, self.run, self.amount, self.said = premise, run, float(amount), said
        self.named = f"premise {premise!r} fails: {said}"
        super().__init__(f"run {run}, {self.named}")


def saturated_slopes(
    tokens: TokenSet, selected: np.ndarray | None = None, loss: str = "exponential"
) -> np.ndarray:
    """log kappa_m = log |l'(gamma_{i,s_i})| + log(gamma_{i,s_i} - gamma_{i,t}), (runs, n, T-1).

    selected (runs, n): s_i, default the opt tokens. NaN where the score gap is not positive: no run
    can rest on such a pair.
    """
    losses.check_loss(loss)
    selected = tokens.opt if selected is None else selected
    scores = model.scores(tokens, tokens.u)
    own = np.take_along_axis(scores, selected[..., None], -1)  # (runs, n, 1)
    return losses.log_derivative(own, loss) + _log_gaps(scores, selected)


def joint_slopes(
    tokens: TokenSet, head: MaxMargin, selected: np.ndarray | None = None
) -> np.ndarray:
    """log kappa_m = log nu_i + log y_i v^T(x_{i,s_i} - x_{i,t}) for a head trained with W.

    Up to a constant, (runs, n, T-1). v is the head SVM's solution `head` and nu its duals: a head
    that obeys the law itself ends with |l'_i| proportional to nu_i. NaN where the score gap is not
    positive. selected (runs, n): s_i, default the opt tokens.

    Raises PremiseFails "whole head": a sample is no support vector of the head SVM, so that its
    |l'_i| vanishes beside the others'.
    """
    selected = tokens.opt if selected is None else selected
    least = head.duals.min(1) / head.duals.max(1)  # (runs,)
    if least.min() < SMALLEST_DUAL:
        run, share = int(least.argmin()), least.min()
        idle = int((head.duals[run] < SMALLEST_DUAL * head.duals[run].max()).sum())
        said = (
            f"{idle} of {head.duals.shape[1]} samples carry nothing in the head SVM, smallest dual "
            f"{share:.1e} of the largest, it needs {SMALLEST_DUAL:.0e}"
        )
        raise PremiseFails("whole head", run, share, said)
    log_gaps = _log_gaps(model.scores(tokens, head.W), selected)
    return np.log(head.duals)[..., None] + log_gaps


def _log_gaps(scores, selected):
    """Log of the selected token's score less another's, (runs, n, T-1), NaN where not positive."""
    own = np.take_along_axis(scores, selected[..., None], -1)  # (runs, n, 1)
    gaps = own - np.take_along_axis(scores, coordinates.others(selected, scores.shape[-1]), -1)
    return np.where(gaps > 0, np.log(np.where(gaps > 0, gaps, 1.0)), np.nan)
