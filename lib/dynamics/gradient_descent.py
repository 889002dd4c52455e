"""Train a token set with an update rule and record its history, exactly, at any
horizon: norms, directions and margins at the recorded iterations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import status
from lib.dynamics.recording import (
    check_head,
    checked_start,
    end_where_not_finite,
    record_times,
)
from lib.dynamics.reduced import Reduced, reduce, run_compiled, run_numpy
from lib.dynamics.rules import GradientRule
from lib.representation import Shapes
from lib.seeds import gaussian, stream
from lib.svm.max_margin import MaxMargin

# Numbers held while directions are measured: more would come from the system anew
CHUNK = 2**17
LOGS = ("log_gap", "log_gradient", "log_gradient_head", "log_step", "log_step_head")
ROUNDING = 1e-12  # a target's part outside the span, over its norm, that counts as none


@dataclass(frozen=True, repr=False)
class Start(Shapes):
    """W_0: its part in minimal coordinates (runs, r, q), the norm (runs,) of the
    rest.
    """

    inside: np.ndarray
    outside: np.ndarray


def zero_start(problem: coordinates.Minimal) -> Start:
    """W_0 = 0."""
    runs = len(problem.tokens.y)
    r = problem.token_basis.shape[2]
    q = problem.query_basis.shape[2]
    return Start(np.zeros((runs, r, q)), np.zeros(runs))


def gaussian_start(
    problem: coordinates.Minimal, std: float, seeds: Sequence[int]
) -> Start:
    """W_0 with independent N(0, std^2) entries (d, d_z), a seed a run (paper A, Lemma
    4): drawn in minimal coordinates (r, q), and the norm of the rest, std chi(d d_z - r
    q).
    """
    (_, d, r) = problem.token_basis.shape
    (_, d_z, q) = problem.query_basis.shape
    rest = d * d_z - r * q
    squares = [
        stream(seed, "outside").chisquare(rest) if rest else 0.0 for seed in seeds
    ]
    return Start(gaussian(seeds, (r, q), std), std * np.sqrt(squares))


class _Target(Start):
    """A direction V, of W or of the head, in two parts as a start."""

    @property
    def norm(self) -> np.ndarray:
        """||V||, (runs,)."""
        inside = np.linalg.norm(self.inside.reshape(len(self.inside), -1), axis=1)
        return np.hypot(inside, self.outside)


@dataclass(frozen=True, repr=False)
class History(Shapes):
    """Records of each run at `iterations` (k,); entries after a run's early end are
    NaN.

    log_gap (runs, k) log(L - L*); log_gradient (runs, k) log ||grad_W L||; log_step (runs,
    k) log of the step size taken next; norm (runs, k) ||W_t||; margins (runs, k, n, T-1)
    logit of the opt token minus logits of the others, score_gaps the same of scores (of a
    fixed head a view that repeats); log_miss (runs, k, n) log(1 - p_opt). Per target V,
    (runs, k) each: direction_error ||W_t/||W_t|| - V/||V|| ||, alignment <W_t, V>/(||W_t||
    ||V||) and descent <-grad_W L/||grad_W L||, V>/||V||. status and ended (runs,) say how
    and at which iteration it ended. Joint training adds the same of the head: head_norm,
    log_gradient_head, log_step_head, head_direction_error, head_alignment.
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
        """W at record k, below 0 from the end, in minimal coordinates, (runs, r, q),
        without the part of W_0 outside them; IndexError for a record that is not
        there.
        """
        return np.swapaxes(self._weights(self._record(k))[:, 0], 1, 2)

    def head(self, k: int) -> np.ndarray:
        """u at record k in minimal coordinates, (runs, r); k as in `weights`."""
        return self._head(self._record(k))[:, 0]

    def _record(self, k):
        count = len(self.iterations)
        if not -count <= k < count:
            raise IndexError(
                f"record k = {k} is not there: k runs from {-count} to {count - 1}"
            )
        return slice(k % count, k % count + 1)


@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: GradientRule,
    *args: Any,
    **kwargs: Any,
) -> History: ...
@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Mapping[str, GradientRule],
    *args: Any,
    **kwargs: Any,
) -> dict[str, History]: ...
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: GradientRule | Mapping[str, GradientRule],
    steps: int,
    record: Sequence[int] | np.ndarray | None = None,
    start: Start | np.ndarray | None = None,
    targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    loss: str = "exponential",
) -> History | dict[str, History]:
    """Minimise paper A's loss over W (head "fixed") or over W and u ("joint").

    The head u is that of `tokens`: kept, or where joint training starts.

    rules: one GradientRule, or named ones; the result is one History or a dict of them.
    record: iterations to record, ascending, within 0 ... steps (default `log_spaced`).
    start: W_0 as a Start or an array (runs, d, d_z); default zero. targets: matrices in
    the coordinates of what is given, (runs, d, d_z) of a token set, (runs, r, q) of a
    Minimal, or solutions such as `svm.token_svm(tokens)`; head_targets: likewise
    vectors (runs, d) or (runs, r), `svm.head_svm(tokens)`. loss: one of
    `attention.LOSSES`. L* is the loss at the largest scores (fixed head) or 0 (joint).

    A run whose gradient is zero ends as "stalled", one that leaves the range of float64
    as "diverged". ValueError for records, starts or targets of the wrong shape or
    order, a solution of other tokens, and a target that leaves the span of tokens and
    queries where W_0 does too; TypeError for rules that are none.
    """
    problem = coordinates.minimal(tokens)
    attention.check_loss(loss)
    check_head(head)
    times = record_times(record, steps)
    start = _start(problem, start)
    targets = _targets(targets, tokens, problem)
    head_targets = _targets(head_targets, tokens, problem, of_head=True)
    for name, target in targets.items():
        if (start.outside * target.outside > 0).any():
            raise ValueError(
                f"target {name!r} and W_0 both leave the span of tokens and queries, where only "
                "norms are kept; their angle is not known there"
            )
    for name, target in head_targets.items():
        if (problem.head_outside * target.outside > 0).any():
            raise ValueError(
                f"head target {name!r} and u_0 both leave the span of the tokens, where only norms "
                "are kept; their angle is not known there"
            )
    if isinstance(rules, Mapping):
        named = rules
    else:
        named = {"": rules}
    for rule in named.values():
        if not isinstance(rule, GradientRule):
            raise TypeError(
                f"rules holds {rule!r}; it takes rules such as dynamics.ngd(0.1)"
            )
    reduced = reduce(problem.tokens, start.inside, head, loss)
    fast = loss in attention.COMPILED_LOSSES
    built_in = {name: rule for name, rule in named.items() if fast and rule.law is None}
    if built_in:
        compiled = run_compiled(reduced, list(built_in.values()), times)
    else:
        compiled = []
    raws = dict(zip(built_in, compiled, strict=True))
    for name in named.keys() - built_in.keys():
        raws[name] = run_numpy(reduced, named[name], times)
    first_head = Start(problem.tokens.u, problem.head_outside)
    measured = times, start, first_head, targets, head_targets
    histories = {name: _derive(reduced, raws[name], *measured) for name in named}
    if isinstance(rules, Mapping):
        return histories
    return histories[""]


def _start(problem, start):
    if start is None:
        return zero_start(problem)
    runs, d, r = problem.token_basis.shape
    _, d_z, q = problem.query_basis.shape
    if not isinstance(start, Start):
        return Start(*problem.reduce(checked_start(start, (runs, d, d_z))))
    shapes = (runs, r, q), (runs,)
    return Start(*map(checked_start, (start.inside, start.outside), shapes))


def _targets(given, tokens, problem, of_head=False):
    """The targets as a dict of _Target, from the coordinates of `tokens`."""
    if isinstance(tokens, TokenSet):
        data = tokens
    else:
        data = tokens.tokens
    if of_head:
        shape = data.u.shape
    else:
        shape = (*data.u.shape, data.z.shape[-1])
    targets = {}
    for name, target in (given or {}).items():
        if isinstance(target, MaxMargin):
            solved = target.tokens
            if not (
                np.array_equal(solved.X, data.X) and np.array_equal(solved.z, data.z)
            ):
                raise ValueError(
                    f"target {name!r} solves other tokens, or these in other coordinates: solve "
                    "what is trained, svm.token_svm(tokens) or svm.token_svm(problem)"
                )
            target = target.value
        target = np.asarray(target, float)
        if target.shape != shape:
            raise ValueError(
                f"target {name!r} has shape {target.shape}; it needs {shape}, in the coordinates "
                "of the tokens or of the Minimal that is trained"
            )
        size = np.linalg.norm(target.reshape(len(target), -1), axis=1)  # (runs,)
        if not (np.isfinite(size).all() and size.all()):
            raise ValueError(f"target {name!r} must be finite and not zero")
        inside = target
        outside = np.zeros(len(target))
        if isinstance(tokens, TokenSet) and of_head:
            inside = np.einsum("rd,rdk->rk", target, problem.token_basis)
            rest = target - np.einsum("rk,rdk->rd", inside, problem.token_basis)
            outside = np.linalg.norm(rest, axis=1)
        elif isinstance(tokens, TokenSet):
            inside, outside = problem.reduce(target)
        targets[name] = _Target(
            inside, np.where(outside > ROUNDING * size, outside, 0.0)
        )
    return targets


@np.errstate(over="ignore", invalid="ignore")  # what is not finite ends a run, below
def _derive(
    problem: Reduced, raw, times, start, first_head, targets, head_targets
) -> History:
    """The History of raw records at `times` from the `Start` of W and that of the
    head.
    """
    u = first_head.inside  # (runs, r)
    # What the closures name lives as long as the history; the Gram matrices need not.
    alpha = raw.alpha
    b = raw.b
    delta = problem.delta
    z = problem.z
    signed = problem.signed

    def weights(part):
        pulled = np.swapaxes(alpha[:, part], 1, 2) @ delta  # (runs, n, k, r)
        runs, n, k, r = pulled.shape
        moved = np.swapaxes(z, 1, 2) @ pulled.reshape(runs, n, k * r)
        moved = np.swapaxes(moved.reshape(runs, -1, k, r), 1, 2)  # W^T, (runs, k, q, r)
        return np.add(np.swapaxes(start.inside, 1, 2)[:, None], moved, order="C")

    def head(part):
        runs, k, n, T = b[:, part].shape
        if not len(signed):  # the head is fixed
            return np.repeat(u[:, None], k, 1)  # (runs, k, r)
        coefficients = b[:, part].reshape(runs, k, n * T)
        return u[:, None] + coefficients @ signed.reshape(runs, n * T, -1)

    log_odds = np.logaddexp.reduce(-raw.margins, -1)  # all others against the opt token
    log_miss = -np.logaddexp(0.0, -log_odds)
    flipped = {
        name: _Target(np.swapaxes(V.inside, 1, 2), V.outside)
        for name, V in targets.items()
    }
    norm, error, alignment = _directions(weights, times.size, start.outside, flipped)
    head_norm = np.full_like(norm, np.nan)
    head_error = {}
    head_alignment = {}
    if not problem.head_fixed:
        head_norm, head_error, head_alignment = _directions(
            head, times.size, first_head.outside, head_targets
        )
    descent = _descent(problem, raw, targets)
    logs = [raw.logs[..., :3]]
    steps = raw.logs[..., 3:]
    finite = [norm, raw.margins]
    derived = [log_miss, steps, raw.alpha]
    if not problem.head_fixed:
        finite = [*finite, head_norm, raw.scores]
        derived = [*derived, raw.b]
    for measured in (error, alignment, descent, head_error, head_alignment):
        derived += measured.values()
    end_where_not_finite(raw.status, raw.ended, times, finite, logs, derived)
    if problem.head_fixed:
        known = raw.scores[:, :1]
    else:
        known = raw.scores
    gaps = known[..., :1] - known[..., 1:]
    if problem.head_fixed:
        gaps = np.broadcast_to(gaps, raw.margins.shape)
    return History(
        iterations=times,
        status=np.array(status.NAMES)[raw.status],
        ended=raw.ended,
        **dict(zip(LOGS, np.moveaxis(raw.logs, -1, 0), strict=True)),
        norm=norm,
        margins=raw.margins,
        log_miss=log_miss,
        score_gaps=gaps,
        direction_error=error,
        alignment=alignment,
        descent=descent,
        head_norm=head_norm,
        head_direction_error=head_error,
        head_alignment=head_alignment,
        _weights=weights,
        _head=head,
    )


def _directions(vectors, count, outside, targets):
    """Norm of vectors(slice of records) (runs, k, ...), direction error and alignment
    per Target, (runs, k) each; `outside` (runs,) is the norm of a part orthogonal to
    them all.
    """
    runs = outside.size
    outside = outside[:, None]
    norm = np.full((runs, count), np.nan)
    error = {name: norm.copy() for name in targets}
    alignment = {name: norm.copy() for name in targets}
    units = {
        name: (
            V.inside.reshape(runs, 1, -1) / V.norm[:, None, None],
            (V.outside / V.norm)[:, None],
        )
        for name, V in targets.items()
    }
    chunk = max(1, CHUNK // max(1, vectors(slice(0, 1)).size))
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        v = vectors(part)
        v = v.reshape(*v.shape[:2], -1)
        size = np.linalg.norm(v, axis=-1)
        if np.isinf(size).any():  # its square left the range of float64
            unit = np.where(np.isinf(size), np.abs(v).max(-1), 1.0)
            size = unit * np.linalg.norm(v / unit[..., None], axis=-1)
        norm[:, part] = np.hypot(size, outside)
        # Zero has no direction
        scale = np.where(norm[:, part] > 0, norm[:, part], np.nan)
        for name, (unit, rest) in units.items():
            alignment[name][:, part] = (v @ np.swapaxes(unit, 1, 2))[..., 0] / scale
            apart = np.linalg.norm(v / scale[..., None] - unit, axis=-1)
            error[name][:, part] = np.hypot(np.hypot(apart, outside / scale), rest)
    return norm, error, alignment


def _descent(problem, raw, targets):
    """<-grad_W L/||grad_W L||, V>/||V|| (runs, k) per Target V, from the recorded
    slopes.
    """
    if not targets:
        return {}
    runs, count = raw.margins.shape[:2]
    c = np.empty((runs, count, problem.K.shape[1]))
    # Ten arrays are held at a time
    chunk = max(1, CHUNK // max(1, 10 * raw.scores[0].size))
    for first in range(0, runs, chunk):
        part = slice(first, first + chunk)
        margins = raw.margins[part]
        logits = np.concatenate([0 * margins[..., :1], -margins], -1)
        pull = attention.slopes(logits, raw.scores[part], problem.loss).pull
        c[part] = -pull[..., 1:].reshape(len(margins), count, -1)
    length = np.sqrt(np.einsum("rkm,rkm->rk", c @ problem.K, c))
    descent = {}
    for name, V in targets.items():
        parts = problem.delta, V.inside, problem.z
        toward = np.einsum("rntd,rde,rne->rnt", *parts, optimize=True).reshape(
            runs, 1, -1
        )
        with np.errstate(invalid="ignore"):
            descent[name] = (c * toward).sum(-1) / (length * V.norm[:, None])
    return descent
