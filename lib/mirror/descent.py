"""Train a token set by l_p mirror descent on attention: lp-AttGD and lp-JointGD of
paper C, in the tokens' own coordinates, since mirror descent is not rotation
equivariant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status
from lib.dynamics import recording
from lib.mirror import geometry, kernel
from lib.representation import Shapes
from lib.seeds import gaussian


@dataclass(frozen=True)
class MirrorRule:
    """One lp-AttGD rule (paper C, Section 2): the exponent p and the step size eta.

    |W+|^{p-1} sgn(W+) = |W|^{p-1} sgn(W) - eta g entrywise, with g = grad L, or g = grad L /
    ||grad L||_{q,q} when `normalised`, 1/p + 1/q = 1. p = 2 is gradient descent.
    ValueError unless 1 < p < inf and 0 < eta < inf.
    """

    p: float
    step_size: float = 0.1
    normalised: bool = True

    def __post_init__(self):
        geometry.check_exponent(self.p)
        if not 0 < self.step_size < np.inf:
            raise ValueError(
                f"step_size = {self.step_size}; it must be positive and finite"
            )


@dataclass(frozen=True, repr=False)
class MirrorHistory(Shapes):
    """Records of each run at `iterations` (k,); entries after a run's early end are
    NaN.

    W (runs, k, d, d_z) and v (runs, k, d), the path; norm, head_norm (runs, k) their
    l_p norms; log_gap (runs, k) log(L - L*) (joint training: log L); log_gradient,
    log_gradient_head (runs, k) logs of the gradients' dual norms. status and ended
    (runs,): "completed", "stalled" (the gradient is zero) or "diverged" (an entry or a
    step is above e^600), and at which iteration. loss_rise (runs,): the first iteration
    whose loss is above the one before (against paper C's Lemma 25), -1 if none.
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
        """D_psi(V/||V||, W/||W||) of every iterate W from the `target` V (runs, d,
        d_z), (runs, k), by default with the rule's p (authors' code of paper C); NaN
        where W = 0.
        """
        flat = self.W.reshape(*self.W.shape[:2], -1)
        V = target.reshape(len(flat), 1, -1)
        return geometry.directional_bregman(flat, V, p or self.rule.p)

    def head_divergence(self, target: np.ndarray) -> np.ndarray:
        """The same of the head v from `target` (runs, d), with the rule's p: (runs,
        k).
        """
        return geometry.directional_bregman(self.v, target[:, None], self.rule.p)


def gaussian_start(
    tokens: TokenSet, seeds: Sequence[int], std: float = 1.0
) -> np.ndarray:
    """W_0 (runs, d, d_z) with independent N(0, std^2) entries, one seed per run."""
    return gaussian(seeds, (tokens.shape[-1], tokens.z.shape[-1]), std)


def selected_tokens(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """alpha_i = argmax_t of sample i's softmax weights at W (runs, d, d_z), (runs, n).
    ValueError, naming run and sample, where two tokens share the largest logit.
    """
    logits = attention.logits(tokens, W)
    tied = (logits == logits.max(-1, keepdims=True)).sum(-1) != 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        where = f"sample {sample} of run {run}"
        row = logits[run, sample]
        raise ValueError(f"{where} has two equal softmax maxima or none: logits {row}")
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
    """Minimise (1/n) sum_i l(y_i v^T X_i^T softmax(X_i W z_i)) by l_p mirror descent.

    rules: one MirrorRule, or named ones; the result is one history or a dict of them.
    steps: one for all or by name. start: W_0 (runs, d, d_z), default zero. head:
    "fixed" (v = tokens.u, lp-AttGD) or "joint" (v from tokens.u, lp-JointGD: each
    normalised by itself). record: ascending iterations, cut at each rule's steps
    (default about 100, evenly spaced in log t). ValueError for a start of the wrong
    shape, unknown loss or head, steps or records out of order. Memory: 2 n(T-1) d d_z
    numbers a run.
    """
    recording.check_head(head)
    if isinstance(rules, Mapping):
        named = rules
    else:
        named = {"": rules}
    times = [
        _times(steps[name] if isinstance(steps, Mapping) else steps, record)
        for name in named
    ]
    problem = _rows(tokens, loss, head == "joint")
    whole = len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    if start is None:
        W_0 = np.zeros(whole)
    else:
        W_0 = recording.checked_start(start, whole)
    histories = _run(problem, list(named.values()), times, W_0, tokens.u)
    if isinstance(rules, Mapping):
        return dict(zip(named, histories))
    return histories[0]


def _times(steps, record):
    if record is not None and (kept := np.asarray(record)).size:
        whole = recording.record_times(record, max(0, int(kept.max())))
        record = whole[whole <= steps]
    return recording.record_times(record, steps)


def _rows(tokens: TokenSet, loss: str, joint: bool) -> kernel.Rows:
    """The Rows of a token set; ValueError for an unknown loss, sizes not in `SIZES`."""
    check_sizes(tokens)
    runs, n, T, d = tokens.shape
    A = coordinates.constraint_rows(
        coordinates.differences(tokens, tokens.opt), tokens.z
    )
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    return kernel.Rows(
        A=A, signed=signed, n=n, logistic=attention.is_logistic(loss), joint=joint
    )


def _run(problem, rules, times, W_0, v):
    """The history of every rule, from W_0 (runs, d, d_z) and v (runs, d); times has one
    array a rule. Of the jobs a run's rules stand together, so that each core gets long
    ones.
    """
    W = W_0.reshape(len(W_0), -1)
    kinds = len(rules)
    runs = len(W)
    k = max(map(len, times))
    padded = np.stack(
        [np.pad(at, (0, k - len(at)), constant_values=-1) for at in times]
    )
    # Copies, to be moved in place
    start, head = (np.repeat(array, kinds, 0) for array in (W, v))
    exponents = np.tile([float(rule.p) for rule in rules], runs)
    images = (
        np.stack([geometry.to_mirror(row, p) for row, p in zip(array, exponents)])
        for array in (start, head)
    )

    # The rows (runs, n T, D) keep a sample's tokens together, the loop a token's
    # samples.
    def split(rows):
        return rows.reshape(runs, problem.n, -1, rows.shape[-1])

    A, signed = (split(part).swapaxes(1, 2).reshape(part.shape) for part in problem[:2])
    sizes = dict(path=(k, W.shape[1]), head=(k, v.shape[1]), logs=(k, 3))
    raw = recording.unwritten(status.COMPLETED, runs * kinds, **sizes)
    raw["status"], raw["ended"], raw["rise"] = kernel.run_jobs(
        problem._replace(A=A, signed=signed),
        np.array([[rule.p, rule.step_size, rule.normalised] for rule in rules], float),
        padded,
        (start, head, *images),
        tuple(raw[name] for name in sizes),
    )
    histories = []
    for kind, (rule, at) in enumerate(zip(rules, times, strict=True)):
        part = {name: values[kind::kinds] for name, values in raw.items()}
        path, heads, logs = (part[name][:, : len(at)] for name in sizes)
        recording.end_where_not_finite(
            part["status"], part["ended"], at, [path, heads], [logs]
        )
        W = path.reshape(runs, len(at), *W_0.shape[1:])
        norms = geometry.norm(path, rule.p), geometry.norm(heads, rule.p)
        names = np.array(status.NAMES)[part["status"]]
        about = *norms, *np.moveaxis(logs, -1, 0), names, part["ended"], part["rise"]
        histories.append(MirrorHistory(rule, at, W, heads, *about))
    return histories
