"""What training leaves behind: norms, directions and margins at the recorded iterations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lib import attention, kernel
from lib.engine import Raw, Reduced

STATUS = {kernel.COMPLETED: "completed", kernel.STALLED: "stalled", kernel.DIVERGED: "diverged"}


@dataclass(frozen=True)
class History:
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    log_gap (runs, k) log(L - L*); log_gradient (runs, k) log ||grad_W L||; log_step (runs, k) log of the step size
    taken next; norm (runs, k) ||W_t||; margins (runs, k, n, T-1) logit of the opt token minus logits of the others;
    log_miss (runs, k, n) log(1 - p_opt); direction_error ||W_t/||W_t|| - V/||V|| || and alignment <W_t, V>/(||W_t||
    ||V||) per target V, and descent <-grad L/||grad L||, V>/||V||, (runs, k) each. status and ended (runs,) say how and at which iteration a run ended.
    Joint training adds the same of the head: head_norm, log_gradient_head, log_step_head, head_direction_error,
    head_alignment, and score_gaps (runs, k, n, T-1), score of the opt token minus scores of the others.
    """

    iterations: np.ndarray
    status: np.ndarray
    ended: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    log_step: np.ndarray
    norm: np.ndarray
    margins: np.ndarray
    log_miss: np.ndarray
    score_gaps: np.ndarray
    direction_error: dict[str, np.ndarray]
    alignment: dict[str, np.ndarray]
    descent: dict[str, np.ndarray]
    log_gradient_head: np.ndarray
    log_step_head: np.ndarray
    head_norm: np.ndarray
    head_direction_error: dict[str, np.ndarray]
    head_alignment: dict[str, np.ndarray]
    _weights: Callable
    _head: Callable

    @property
    def opt_score(self) -> np.ndarray:
        """Mean softmax weight of the opt token over samples, (runs, k)."""
        return 1.0 - np.exp(self.log_miss).mean(-1)

    def weights(self, k: int) -> np.ndarray:
        """W at record k in minimal coordinates, (runs, r, q), without the part of W_0 outside them."""
        return self._weights(k)

    def head(self, k: int) -> np.ndarray:
        """u at record k in minimal coordinates, (runs, r)."""
        return self._head(k)


def derive(problem: Reduced, raw: Raw, times, W_0, outside, u, targets, head_targets) -> History:
    """The History of raw records at `times`; W_0 (runs, r, q) with the norm `outside` (runs,) of its part off the span."""

    def weights(k):
        pulled = np.einsum("rnt,rntd->rnd", raw.alpha[:, k], problem.delta, optimize=True)
        return W_0 + np.swapaxes(pulled, 1, 2) @ problem.z  # (runs, r, q)

    def head(k):
        return u + np.einsum("rnt,rntd->rd", raw.b[:, k], problem.signed, optimize=True)

    with np.errstate(invalid="ignore"):  # NaN where a run had ended
        log_odds = np.logaddexp.reduce(-raw.margins, -1)  # of all other tokens against the opt token
        log_miss = -np.logaddexp(0.0, -log_odds)
    norm, error, alignment = _directions(weights, times.size, outside, targets)
    if problem.head_fixed:
        empty = np.full_like(norm, np.nan)
        head_norm, head_error, head_alignment = empty, {}, {}
    else:
        head_norm, head_error, head_alignment = _directions(head, times.size, np.zeros(len(norm)), head_targets)
    log_gap, log_gradient, log_gradient_head, log_step, log_step_head = np.moveaxis(raw.logs, -1, 0)
    descent = {name: _descent(problem, raw, target) for name, target in targets.items()}
    return History(
        times, np.array([STATUS[code] for code in raw.status]), raw.ended, log_gap, log_gradient, log_step, norm,
        raw.margins, log_miss, raw.scores[..., :1] - raw.scores[..., 1:], error, alignment, descent,
        log_gradient_head, log_step_head, head_norm, head_error, head_alignment, weights, head,
    )  # fmt: skip


def _directions(vector_at, count, outside, targets):
    """Norm, and per target direction error and alignment, of the vectors vector_at(k) (runs, ...), each (runs, k).

    `outside` (runs,) is the norm of a part orthogonal to everything, the targets too.
    """
    runs = outside.size
    norm = np.full((runs, count), np.nan)
    error = {name: norm.copy() for name in targets}
    alignment = {name: norm.copy() for name in targets}
    for k in range(count):
        v = vector_at(k).reshape(runs, -1)
        norm[:, k] = np.hypot(np.linalg.norm(v, axis=1), outside)
        scale = np.where(norm[:, k] > 0, norm[:, k], np.nan)  # the direction of zero is not defined
        for name, target in targets.items():
            unit = target.reshape(runs, -1) / np.linalg.norm(target.reshape(runs, -1), axis=1, keepdims=True)
            away = np.linalg.norm(v / scale[:, None] - unit, axis=1)
            error[name][:, k] = np.hypot(away, outside / scale)
            alignment[name][:, k] = np.einsum("rm,rm->r", v, unit) / scale
    return norm, error, alignment


def _descent(problem, raw, target):
    """<-grad_W L/||grad_W L||, V>/||V|| (runs, k) from the recorded margins and scores."""
    runs, count = raw.margins.shape[:2]
    at = attention.slopes(np.concatenate([0 * raw.margins[..., :1], -raw.margins], -1), raw.scores, problem.loss)
    c = -at.pull[..., 1:].reshape(runs, count, -1)
    toward = np.einsum("rntd,rde,rne->rnt", problem.delta, target, problem.z, optimize=True).reshape(runs, 1, -1)
    length = np.sqrt(np.einsum("rkm,rkm->rk", c @ problem.K, c)) * np.linalg.norm(target, axis=(1, 2))[:, None]
    with np.errstate(invalid="ignore"):
        return (c * toward).sum(-1) / length
