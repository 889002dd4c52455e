"""Train a token set with an update rule and record its history, at any horizon."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, overload

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import status
from lib.dynamics.history import LOGS, Coefficients, History
from lib.dynamics.recording import (
    check_head,
    checked_start,
    end_where_not_finite,
    record_times,
)
from lib.dynamics.reduced import FORMS, Reduced, reduce, run_compiled, run_numpy
from lib.dynamics.rules import BuiltIn, Rule
from lib.representation import Shapes
from lib.seeds import gaussian, stream
from lib.svm.max_margin import MaxMargin

# Numbers held while directions are measured: more would come from the system anew
CHUNK = 2**17
ROUNDING = 1e-12  # a target's part outside the span, over its norm, that counts as none


@dataclass(frozen=True, repr=False)
class Start(Shapes):
    """W_0 in two parts: inside the span of tokens and queries, and the rest.

    Parameters
    ----------
    inside : ndarray (runs, r, q)
        The part within the span, in minimal coordinates.
    outside : ndarray (runs,)
        The norm of the rest. Training never changes it.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> problem = attention.minimal(attention.two_examples())
    >>> start = dynamics.gaussian_start(problem, std=0.1, seeds=[0])
    >>> start
    Start(inside 1 x 2 x 2, outside 1)
    """

    inside: np.ndarray
    outside: np.ndarray


def zero_start(problem: coordinates.Minimal) -> Start:
    """Return W_0 = 0.

    Parameters
    ----------
    problem : Minimal
        The problem, from `attention.minimal`.

    Returns
    -------
    Start
        Zeros of its shape.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> problem = attention.minimal(attention.two_examples())
    >>> float(dynamics.zero_start(problem).outside[0])
    0.0
    """
    runs = len(problem.tokens.y)
    r = problem.token_basis.shape[2]
    q = problem.query_basis.shape[2]
    return Start(np.zeros((runs, r, q)), np.zeros(runs))


def gaussian_start(
    problem: coordinates.Minimal, std: float, seeds: Sequence[int]
) -> Start:
    """Draw W_0 with independent Gaussian entries, as minimal coordinates see it.

    The part within the span has r q entries N(0, std^2). The norm of the rest is std
    times a chi variable with d d_z - r q degrees of freedom. So the cost does not grow
    with the dimension.

    Parameters
    ----------
    problem : Minimal
        The problem, from `attention.minimal`.
    std : float
        The standard deviation of an entry of W_0 (d, d_z).
    seeds : sequence of int
        A seed per run.

    Returns
    -------
    Start
        The drawn start.

    Notes
    -----
    Paper A, Lemma 4.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> tokens = attention.class_mean_tokens([0], n=4, T=3, d=300)
    >>> start = dynamics.gaussian_start(attention.minimal(tokens), 1.0, seeds=[0])
    >>> norm = np.hypot(np.linalg.norm(start.inside), start.outside[0])
    >>> bool(abs(norm - 300) < 3)  # 300^2 entries of variance 1
    True
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


@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Rule,
    *args: Any,
    **kwargs: Any,
) -> History: ...
@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Mapping[str, Rule],
    *args: Any,
    **kwargs: Any,
) -> dict[str, History]: ...
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Rule | Mapping[str, Rule],
    steps: int,
    record: Sequence[int] | np.ndarray | None = None,
    start: Start | np.ndarray | None = None,
    *,
    targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    loss: str = "exponential",
    product: str | None = None,
) -> History | dict[str, History]:
    r"""Train attention with one or several update rules and record the path.

    It minimises paper A's loss

    .. math:: L = \frac1n \sum_i \ell(y_i u^\top X_i^\top \mathrm{softmax}(X_i W z_i))

    over W, or over W and u. Training runs in coordinates of the span of the tokens, so
    that its cost does not grow with their dimension. Whatever underflows is kept as a
    logarithm.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets, one per run. The head u is theirs: it stays fixed, or joint
        training starts from it.
    rules : Rule or mapping of str to Rule
        Update rules such as ``dynamics.NGD(0.1)``. A mapping gives a dict of histories
        with the same keys.
    steps : int
        The number of iterations.
    record : sequence of int, optional
        The iterations to record, ascending, within 0 ... `steps`. Default:
        ``log_spaced(steps)``.
    start : Start or ndarray (runs, d, d_z), optional
        W_0. Default: zero.
    targets : mapping of str to MaxMargin or ndarray, optional
        Directions to compare W_t with, for example ``{"W_mm": svm.token_svm(tokens)}``.
        An array has the shape of W: (runs, d, d_z) for a TokenSet, (runs, r, q) for a
        Minimal.
    head : {"fixed", "joint"}
        Whether u stays fixed, or is trained together with W.
    head_targets : mapping of str to MaxMargin or ndarray, optional
        The same for u, for example ``{"u_mm": svm.head_svm(tokens)}``; arrays (runs, d)
        or (runs, r).
    loss : str
        One of ``attention.LOSSES``.
    product : {"gram", "factored"}, optional
        Whether the Gram matrix of the m = n(T-1) pairs of tokens is formed once, m^2
        numbers, or left out: then its product costs n r (T + q) numbers per step. Both
        take the same steps up to rounding. Default: the cheaper one.

    Returns
    -------
    History or dict of str to History
        What was recorded. A run whose gradient is zero ends as "stalled", one that
        leaves the range of float64 as "diverged"; its later entries are NaN. For
        ``History.log_gap``, L* is the loss at the largest scores if the head is fixed,
        and 0 in joint training.

    Raises
    ------
    ValueError
        If `record`, `start` or a target has the wrong shape or order; if a target was
        solved for other tokens; if a target and W_0 both leave the span of tokens and
        queries, where their angle is not known.
    TypeError
        If `rules` contains anything that is not a Rule.

    Examples
    --------
    >>> from lib import attention, dynamics, svm
    >>> data = attention.two_examples()
    >>> rules = {"GD": dynamics.GD(1.0), "NGD": dynamics.NGD(0.1)}
    >>> targets = {"W_mm": svm.token_svm(data)}
    >>> runs = dynamics.train(data, rules, 1000, targets=targets)
    >>> for name, run in runs.items():
    ...     print(name, float(run.direction_error["W_mm"][0, -1].round(4)))
    GD 0.1533
    NGD 0.0094
    """
    problem = coordinates.minimal(tokens)
    attention.check_loss(loss)
    check_head(head)
    times = record_times(record, steps)
    start = _start(problem, start)
    ends = _targets(targets, tokens, problem)
    head_ends = _targets(head_targets, tokens, problem, of_head=True)
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
    if isinstance(rules, Mapping):
        named = rules
    else:
        named = {"": rules}
    for rule in named.values():
        if not isinstance(rule, Rule):
            raise TypeError(
                f"rules holds {rule!r}; it takes rules such as dynamics.NGD(0.1)"
            )
    if product is not None and product not in FORMS:
        raise ValueError(f"product = {product!r}; it must be {' or '.join(FORMS)}")
    reduced = reduce(problem.tokens, start.inside, head, loss, product)
    fast = loss in attention.COMPILED_LOSSES
    built_in = {
        name: rule for name, rule in named.items() if fast and isinstance(rule, BuiltIn)
    }
    if built_in:
        compiled = run_compiled(reduced, list(built_in.values()), times)
    else:
        compiled = []
    raws = dict(zip(built_in, compiled, strict=True))
    for name in named.keys() - built_in.keys():
        raws[name] = run_numpy(reduced, named[name], times)
    first_head = Start(problem.tokens.u, problem.head_outside)
    measured = times, start, first_head, ends, head_ends
    histories = {name: _derive(reduced, raws[name], *measured) for name in named}
    if isinstance(rules, Mapping):
        return histories
    return histories[""]


def _start(problem: coordinates.Minimal, start: Start | np.ndarray | None) -> Start:
    """Return W_0 as a Start, zero by default."""
    if start is None:
        return zero_start(problem)
    runs, d, r = problem.token_basis.shape
    _, d_z, q = problem.query_basis.shape
    if not isinstance(start, Start):
        return Start(*problem.reduce(checked_start(start, (runs, d, d_z))))
    shapes = (runs, r, q), (runs,)
    return Start(*map(checked_start, (start.inside, start.outside), shapes))


def _targets(
    given: Mapping[str, np.ndarray | MaxMargin] | None,
    tokens: TokenSet | coordinates.Minimal,
    problem: coordinates.Minimal,
    of_head: bool = False,
) -> dict[str, _Target]:
    """Return the targets in two parts, from the coordinates of `tokens`."""
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
            if not all(
                np.array_equal(getattr(solved, part), getattr(data, part))
                for part in ("X", "z", "mask")
            ):
                raise ValueError(
                    f"target {name!r} solves other tokens, or these in other "
                    "coordinates: solve what is trained, svm.token_svm(tokens) or "
                    "svm.token_svm(problem)"
                )
            target = target.value
        target = np.asarray(target, float)
        if target.shape != shape:
            raise ValueError(
                f"target {name!r} has shape {target.shape}; it needs {shape}, in the "
                "coordinates of the tokens or of the Minimal that is trained"
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
    problem: Reduced,
    raw: SimpleNamespace,
    times: np.ndarray,
    start: Start,
    first_head: Start,
    targets: dict[str, _Target],
    head_targets: dict[str, _Target],
) -> History:
    """Return the History of raw records at `times`, from the starts of W and head."""
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
    if problem.hidden is not None:  # of a single real token 1 - p is zero, not e^-FAR
        margins = np.where(problem.hidden[:, None], np.inf, margins)
    log_odds = np.logaddexp.reduce(-margins, -1)  # all others against the opt token
    log_miss = -np.logaddexp(0.0, -log_odds)
    flipped = {
        name: _Target(np.swapaxes(V.inside, 1, 2), V.outside)
        for name, V in targets.items()
    }
    norm, error, alignment = _directions(
        path.transposed_weights, times.size, start.outside, flipped
    )
    head_norm = np.full_like(norm, np.nan)
    head_error = {}
    head_alignment = {}
    if not problem.head_fixed:
        head_norm, head_error, head_alignment = _directions(
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
        path=path,
    )


def _directions(
    vectors: Callable[[slice], np.ndarray],
    count: int,
    outside: np.ndarray,
    targets: dict[str, _Target],
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return norms (runs, k), and direction errors and alignments by target.

    `vectors` gives the vectors (runs, k, ...) of a slice of the `count` records;
    `outside` (runs,) is the norm of a part that is orthogonal to all of them.
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


def _descent(
    problem: Reduced, raw: SimpleNamespace, targets: dict[str, _Target]
) -> dict[str, np.ndarray]:
    """Return <-grad_W L/||grad_W L||, V>/||V|| (runs, k) by target, from the slopes."""
    if not targets:
        return {}
    runs, count = raw.margins.shape[:2]
    c = np.empty((runs, count, problem.K.matrix.shape[1]))
    # Ten arrays are held at a time
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
