"""Train with rules that step along the gradient, in the span of the tokens."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import status
from lib.dynamics.history import LOGS, Coefficients, History
from lib.dynamics.measures import (
    CHUNK,
    ROUNDING,
    Target,
    directions,
    in_span,
    not_measured,
)
from lib.dynamics.recording import checked_start, end_where_not_finite
from lib.dynamics.reduced import Reduced, reduce, run_compiled, run_numpy
from lib.dynamics.rules import BuiltIn, Rule
from lib.dynamics.starts import Start, zero_start


def run(
    tokens: TokenSet | coordinates.Minimal,
    rules: Mapping[Any, Rule],
    times: Mapping[Any, np.ndarray],
    start: Start | np.ndarray | None,
    *,
    targets: Mapping[str, np.ndarray],
    head: str,
    head_targets: Mapping[str, np.ndarray],
    loss: str,
    product: str | None,
) -> dict[Any, History]:
    """Train with rules that step along the gradient.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets.
    rules : mapping of str to Rule
        Rules with a `log_step`. If the loss is one of ``attention.COMPILED_LOSSES``,
        the rules of this library run in the compiled loop. In all other cases a rule
        runs in numpy.
    times : mapping of str to ndarray of int (k,)
        The iterations to record, by rule.
    start : Start, ndarray (runs, d, d_z) or None
        W_0; None stands for zero.
    targets, head_targets : mapping of str to ndarray
        The targets V of W and of the head, as `measures.checked_targets` returns them.
    head : {"fixed", "joint"}
        Whether the head stays fixed, or is trained together with W.
    loss : str
        One of ``attention.LOSSES``.
    product : {"gram", "factored"} or None
        The form of the product with the Gram matrix; None selects the cheaper one.

    Returns
    -------
    dict of str to History
        The histories by rule.

    Raises
    ------
    ValueError
        If, in some run, a target and W_0 (or a head target and u_0) both have a part
        outside the span of the tokens. Only the norms of these two parts are stored, so
        that the angle between them is not known. Also if the start has the wrong shape
        or exceeds 1e100.
    MemoryError
        If the Gram matrix or the records would not fit into memory.
    """
    problem = coordinates.minimal(tokens)
    start = _start(problem, start)
    ends = in_span(targets, tokens, problem)
    head_ends = in_span(head_targets, tokens, problem, of_head=True)
    size = np.linalg.norm(start.inside.reshape(len(start.inside), -1), axis=1)
    start_leaves = start.outside > ROUNDING * size  # (runs,)
    for name, target in ends.items():
        if (start_leaves & (target.outside > 0)).any():
            raise ValueError(
                f"target {name!r} and W_0 both leave the span of tokens and queries, "
                "where only norms are kept; their angle is not known there"
            )
    for name, target in head_ends.items():
        if (problem.head_outside * target.outside > 0).any():
            raise ValueError(
                f"head target {name!r} and u_0 both leave the span of the tokens, "
                "where only norms are kept; their angle is not known there"
            )
    reduced = reduce(problem.tokens, start.inside, head, loss, product)
    fast = loss in attention.COMPILED_LOSSES
    raws = {}
    for names in _alike(times):
        built_in: dict[Any, BuiltIn] = {}
        for name in names:
            rule = rules[name]
            # A subclass can have its own `log_step`, which the compiled loop lacks.
            overridden = type(rule).log_step is not BuiltIn.log_step
            if fast and isinstance(rule, BuiltIn) and not overridden:
                built_in[name] = rule
        if built_in:
            compiled = run_compiled(reduced, list(built_in.values()), times[names[0]])
            raws |= zip(built_in, compiled, strict=True)
    for name in rules.keys() - raws.keys():
        raws[name] = run_numpy(reduced, rules[name], times[name])
    first_head = Start(problem.tokens.u, problem.head_outside)
    histories = {}
    for name, rule in rules.items():
        history = _derive(
            reduced, raws[name], times[name], start, first_head, ends, head_ends
        )
        momentum = np.full(len(history.norm), float(rule.momentum))
        histories[name] = replace(history, momentum=momentum)
    return histories


def _alike(times: Mapping[Any, np.ndarray]) -> list[list[Any]]:
    """Return lists of names of rules. The rules in one list record the same iterations.

    `times` maps the name of each rule to the iterations (k,) that it records. The rules
    in one list are trained together.
    """
    groups: dict[bytes, list[Any]] = {}
    for name, at in times.items():
        groups.setdefault(at.tobytes(), []).append(name)
    return list(groups.values())


def _start(problem: coordinates.Minimal, start: Start | np.ndarray | None) -> Start:
    """Return W_0 as a Start; None becomes a start of zero.

    If `start` is an array, its shape must be (runs, d, d_z). Raises ValueError if a
    shape is wrong, if an entry is not finite or exceeds 1e100, or if the norm of the
    part outside the span is negative.
    """
    if start is None:
        return zero_start(problem)
    runs, d, r = problem.token_basis.shape
    _, d_z, q = problem.query_basis.shape
    if not isinstance(start, Start):
        return Start(*problem.reduce(checked_start(start, (runs, d, d_z))))
    inside = checked_start(start.inside, (runs, r, q))
    outside = checked_start(start.outside, (runs,))
    if outside.min() < 0:
        raise ValueError(
            f"start has outside = {outside.min():.3g}; a norm must be zero or above"
        )
    return Start(inside, outside)


# A number that is not finite ends its run, by `end_where_not_finite` below.
@np.errstate(over="ignore", invalid="ignore")
def _derive(
    problem: Reduced,
    raw: SimpleNamespace,
    times: np.ndarray,
    start: Start,
    first_head: Start,
    targets: dict[str, Target],
    head_targets: dict[str, Target],
) -> History:
    """Compute the History from the raw records at `times` (k,).

    Its momentum is NaN; the caller sets it.

    `raw` has the fields that `run_compiled` lists; its arrays are changed in place.
    `start` is W_0, and `first_head` is u_0 with `inside` (runs, r). The recorded
    coefficients represent W_t - W_0 and u_t - u_0.
    """
    path = Coefficients(
        W_0=start.inside,
        delta=problem.delta,
        z=problem.z,
        alpha=raw.alpha,
        u_0=first_head.inside,
        signed=problem.signed,
        b=raw.b,
    )
    margins = raw.margins
    # An infinite margin, unlike FAR, makes 1 - p zero in a sample with a single real
    # token.
    if problem.hidden is not None:
        margins = np.where(problem.hidden[:, None], np.inf, margins)
    log_odds = np.logaddexp.reduce(-margins, -1)  # log odds against the opt token
    log_miss = -np.logaddexp(0.0, -log_odds)
    flipped = {
        name: Target(np.swapaxes(V.inside, 1, 2), V.outside)
        for name, V in targets.items()
    }
    norm, error, alignment = directions(
        path.transposed_weights, times.size, start.outside, flipped
    )
    head_norm = np.full_like(norm, np.nan)
    head_error = {}
    head_alignment = {}
    if not problem.head_fixed:
        head_norm, head_error, head_alignment = directions(
            path.head, times.size, first_head.outside, head_targets
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
    if problem.hidden is not None:
        hidden = problem.hidden[:, None]
        gaps = np.where(hidden, np.nan, gaps)
        raw.margins[np.broadcast_to(hidden, raw.margins.shape)] = np.nan
    if problem.head_fixed:
        gaps = np.broadcast_to(gaps, raw.margins.shape)
    return History(
        **not_measured(*norm.shape)
        | dict(zip(LOGS, np.moveaxis(raw.logs, -1, 0), strict=True)),
        iterations=times,
        status=np.array(status.NAMES)[raw.status],
        ended=raw.ended,
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
        path=path,
        moments={},
    )


def _descent(
    problem: Reduced, raw: SimpleNamespace, targets: dict[str, Target]
) -> dict[str, np.ndarray]:
    """Return <-grad_W L/||grad_W L||, V>/||V|| (runs, k) by the name of the target V.

    The coefficients of the gradient are computed from the recorded margins and scores.
    If the gradient is zero, the result is NaN.
    """
    if not targets:
        return {}
    runs, count = raw.margins.shape[:2]
    c = np.empty((runs, count, problem.K.matrix.shape[1]))
    # About ten arrays of a run's size exist at once, which limits the number of runs
    # per chunk.
    chunk = max(1, CHUNK // max(1, 10 * raw.scores[0].size))
    for first in range(0, runs, chunk):
        part = slice(first, first + chunk)
        margins = raw.margins[part]
        logits = np.concatenate([0 * margins[..., :1], -margins], -1)
        pull = attention.slopes(logits, raw.scores[part], problem.loss).pull
        c[part] = -pull[..., 1:].reshape(len(margins), count, -1)
    length = np.sqrt(np.einsum("rkm,rkm->rk", problem.K(c), c))
    descent = {}
    for name, V in targets.items():
        parts = problem.delta, V.inside, problem.z
        toward = np.einsum("rntd,rde,rne->rnt", *parts, optimize=True).reshape(
            runs, 1, -1
        )
        with np.errstate(invalid="ignore"):
            descent[name] = (c * toward).sum(-1) / (length * V.norm[:, None])
    return descent
