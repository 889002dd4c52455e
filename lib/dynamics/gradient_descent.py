"""Train a token set with an update rule and record its history, exactly, at any horizon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.dynamics.history import History, Target, derive
from lib.dynamics.recording import check_head, checked_start, record_times
from lib.dynamics.reduced import reduce, run_compiled, run_numpy
from lib.dynamics.rules import GradientRule
from lib.representation import Shapes
from lib.seeds import gaussian, stream
from lib.svm.max_margin import MaxMargin

ROUNDING = 1e-12  # a target's part outside the span, over its norm, that counts as none


@dataclass(frozen=True, repr=False)
class Start(Shapes):
    """W_0: its part in minimal coordinates (runs, r, q), the norm (runs,) of the rest."""

    inside: np.ndarray
    outside: np.ndarray


def zero_start(problem: coordinates.Minimal) -> Start:
    """W_0 = 0."""
    runs, r, q = len(problem.tokens.y), problem.token_basis.shape[2], problem.query_basis.shape[2]
    return Start(np.zeros((runs, r, q)), np.zeros(runs))


def gaussian_start(problem: coordinates.Minimal, std: float, seeds: Sequence[int]) -> Start:
    """W_0 with independent N(0, std^2) entries (d, d_z), a seed a run (paper A, Lemma 4): drawn in
    minimal coordinates (r, q), and the norm of the rest, std chi(d d_z - r q)."""
    (_, d, r), (_, d_z, q) = problem.token_basis.shape, problem.query_basis.shape
    rest = d * d_z - r * q
    squares = [stream(seed, "outside").chisquare(rest) if rest else 0.0 for seed in seeds]
    return Start(gaussian(seeds, (r, q), std), std * np.sqrt(squares))


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
    start: W_0 as a Start or an array (runs, d, d_z); default zero. targets: matrices in the
    coordinates of what is given, (runs, d, d_z) of a token set, (runs, r, q) of a Minimal,
    or solutions such as `svm.token_svm(tokens)`; head_targets: likewise vectors (runs, d)
    or (runs, r), `svm.head_svm(tokens)`. loss: one of `attention.LOSSES`. L* is the loss at
    the largest scores (fixed head) or 0 (joint).

    A run whose gradient is zero ends as "stalled", one that leaves the range of float64 as
    "diverged". ValueError for records, starts or targets of the wrong shape or order, a
    solution of other tokens, and a target that leaves the span of tokens and queries where
    W_0 does too; TypeError for rules that are none.
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
    named = rules if isinstance(rules, Mapping) else {"": rules}
    for rule in named.values():
        if not isinstance(rule, GradientRule):
            raise TypeError(f"rules holds {rule!r}; it takes rules such as dynamics.ngd(0.1)")
    reduced = reduce(problem.tokens, start.inside, head, loss)
    fast = loss in attention.COMPILED_LOSSES
    built_in = {name: rule for name, rule in named.items() if fast and rule.law is None}
    compiled = run_compiled(reduced, list(built_in.values()), times) if built_in else []
    raws = dict(zip(built_in, compiled, strict=True))
    for name in named.keys() - built_in.keys():
        raws[name] = run_numpy(reduced, named[name], times)
    measured = times, start, problem.tokens.u, targets, head_targets
    histories = {name: derive(reduced, raws[name], *measured) for name in named}
    return histories if isinstance(rules, Mapping) else histories[""]


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
    """The targets as a dict of Target, from the coordinates of `tokens`."""
    data = tokens if isinstance(tokens, TokenSet) else tokens.tokens
    shape = data.u.shape if of_head else (*data.u.shape, data.z.shape[-1])
    targets = {}
    for name, target in (given or {}).items():
        if isinstance(target, MaxMargin):
            solved = target.tokens
            if not (np.array_equal(solved.X, data.X) and np.array_equal(solved.z, data.z)):
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
        inside, outside = target, np.zeros(len(target))
        if isinstance(tokens, TokenSet) and of_head:
            inside = np.einsum("rd,rdk->rk", target, problem.token_basis)
            rest = target - np.einsum("rk,rdk->rd", inside, problem.token_basis)
            outside = np.linalg.norm(rest, axis=1)
        elif isinstance(tokens, TokenSet):
            inside, outside = problem.reduce(target)
        targets[name] = Target(inside, np.where(outside > ROUNDING * size, outside, 0.0))
    return targets
