"""Train a token set by l_p mirror descent on attention: lp-AttGD and lp-JointGD of paper C.

The paper is 2410.14581. Mirror descent is not rotation equivariant, so training stays in the
tokens' own coordinates; softmax weights are kept as logarithms, so that directions stay exact when
the weights themselves are e^-30000.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention.token_sets import TokenSet
from lib.compiled import status
from lib.dynamics.recording import check_head, checked_start, record_times
from lib.mirror import geometry, rows
from lib.mirror.geometry import check_exponent, to_mirror
from lib.representation import Shapes
from lib.seeds import gaussian

__all__ = ["MirrorHistory", "MirrorRule", "gaussian_start", "selected_tokens", "train"]


@dataclass(frozen=True)
class MirrorRule:
    """One lp-AttGD rule (paper C, Section 2): the exponent p and the step size eta.

    |W+|^{p-1} sgn(W+) = |W|^{p-1} sgn(W) - eta g entrywise, with g = grad L, or g = grad L / ||grad
    L||_{q,q} when `normalised`, 1/p + 1/q = 1. p = 2 is gradient descent. Raises ValueError unless
    1 < p < inf and 0 < eta < inf.
    """

    p: float
    step_size: float = 0.1
    normalised: bool = True

    def __post_init__(self):
        check_exponent(self.p)
        if not 0 < self.step_size < np.inf:
            raise ValueError(f"step_size = {self.step_size}; it must be positive and finite")

    def numbers(self) -> tuple[float, float, float]:
        """(p, step_size, 1.0 if normalised), as the kernel takes a rule."""
        return float(self.p), float(self.step_size), float(self.normalised)

    def to_dual(self, W: np.ndarray) -> np.ndarray:
        """nabla psi(W) of W (..., d, d_z), the same shape: there a step is an addition."""
        return to_mirror(W, self.p)


@dataclass(frozen=True, repr=False)
class MirrorHistory(Shapes):
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    rule; W (runs, k, d, d_z) and v (runs, k, d), the path; norm, head_norm (runs, k) their l_p
    norms; log_gap (runs, k) log(L - L*) (joint training: log L); log_gradient, log_gradient_head
    (runs, k) logs of the gradients' dual norms. status and ended (runs,): "completed", "stalled"
    (the gradient is zero) or "diverged" (an entry left the range of float64), and at which
    iteration. loss_rise (runs,): the first iteration whose loss is above the one before, -1 if
    none: there the step size is too large for the descent of paper C's Lemma 25.
    """

    rule: MirrorRule
    iterations: np.ndarray
    W: np.ndarray
    v: np.ndarray
    norm: np.ndarray
    head_norm: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    log_gradient_head: np.ndarray
    status: np.ndarray
    ended: np.ndarray
    loss_rise: np.ndarray

    def divergence(self, target: np.ndarray, p: float | None = None) -> np.ndarray:
        """Directional Bregman divergence of every iterate from `target`, as (runs, k).

        `target` (runs, d, d_z). D_psi(target/||target||, W/||W||) (paper C, Section 5), by default
        with the rule's p; NaN where W = 0.
        """
        flat = self.W.reshape(*self.W.shape[:2], -1)
        return geometry.directional_bregman(
            flat, target.reshape(len(flat), 1, -1), p or self.rule.p
        )

    def head_divergence(self, target: np.ndarray) -> np.ndarray:
        """The same of the head v from `target` (runs, d), with the rule's p: (runs, k)."""
        return geometry.directional_bregman(self.v, target[:, None], self.rule.p)


def gaussian_start(tokens: TokenSet, seeds: Sequence[int], std: float = 1.0) -> np.ndarray:
    """W_0 (runs, d, d_z) with independent N(0, std^2) entries, one seed per run.

    The entries are those of the given coordinates.
    """
    return gaussian(seeds, (tokens.shape[-1], tokens.z.shape[-1]), std)


def selected_tokens(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """alpha_i = argmax_t of sample i's softmax weights at W (runs, d, d_z), (runs, n).

    Raises ValueError naming run and sample where two tokens share the largest logit: there W
    selects nothing; train on, or start elsewhere.
    """
    logits = attention.logits(tokens, W)
    tied = (logits == logits.max(-1, keepdims=True)).sum(-1) != 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        raise ValueError(
            f"sample {sample} of run {run} has two equal softmax maxima or none: its logits are "
            f"{logits[run, sample]}; "
            "this W selects no token"
        )
    return logits.argmax(-1)


def train(
    tokens: TokenSet,
    rules: MirrorRule | Mapping[str, MirrorRule],
    steps: int | Mapping[str, int],
    start: np.ndarray | None = None,
    head: str = "fixed",
    record: Sequence[int] | None = None,
    loss: str = "logistic",
) -> MirrorHistory | dict[str, MirrorHistory]:
    """Minimise the loss over W, or over W and v, by l_p mirror descent.

    The loss is (1/n) sum_i l(y_i v^T X_i^T softmax(X_i W z_i)).

    rules: one MirrorRule, or named rules; all runs and rules are trained in one call on all cores,
    and the result is one history or a dict of them. steps: number of updates, one for all or by
    name. start: W_0 (runs, d, d_z), default zero. head: "fixed" (v = tokens.u, lp-AttGD) or "joint"
    (v from tokens.u, lp-JointGD: each normalised by itself). record: iterations to record,
    ascending, cut at each rule's steps (default about 100, evenly spaced in log t).

    A W_0 with zero entries is welcome for every p: the mirror map is used, never its derivative.
    Raises ValueError for a start of the wrong shape, unknown loss or head, steps or records out of
    order. Memory: n(T-1) d d_z numbers a run.
    """
    attention.is_logistic(loss)
    check_head(head)
    named = rules if isinstance(rules, Mapping) else {"": rules}
    times = [_times(steps[name] if isinstance(steps, Mapping) else steps, record) for name in named]
    problem = rows.rows(tokens, loss, head == "joint")
    shape = tokens.shape[-1], tokens.z.shape[-1]
    whole = len(tokens.y), *shape
    W_0 = np.zeros(whole) if start is None else checked_start(start, whole)
    flat = W_0.reshape(len(W_0), -1)
    raws = rows.run_compiled(problem, list(named.values()), times, flat, tokens.u)
    found = {
        name: _history(rule, own, raw, shape)
        for (name, rule), own, raw in zip(named.items(), times, raws, strict=True)
    }
    return found if isinstance(rules, Mapping) else found[""]


def _times(steps, record):
    """The iterations to record: `record` cut at `steps`, or the default."""
    if record is not None and (kept := np.asarray(record)).size:
        whole = record_times(record, max(0, int(kept.max())))
        record = whole[whole <= steps]
    return record_times(record, steps)


def _history(rule, times, raw, shape):
    log_gap, log_gradient, log_gradient_head = np.moveaxis(raw.logs, -1, 0)
    return MirrorHistory(
        rule=rule,
        iterations=times,
        W=raw.path.reshape(*raw.path.shape[:2], *shape),
        v=raw.head,
        norm=geometry.norm(raw.path, rule.p),
        head_norm=geometry.norm(raw.head, rule.p),
        log_gap=log_gap,
        log_gradient=log_gradient,
        log_gradient_head=log_gradient_head,
        status=np.array(status.NAMES)[raw.status],
        ended=raw.ended,
        loss_rise=raw.rise,
    )
