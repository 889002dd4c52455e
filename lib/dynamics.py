"""Train a token set with an update rule and record its history, exactly, at any horizon.

Training happens in minimal coordinates (`lib.coordinates`) and in logarithms (`lib.attention.slopes`), so that an
iteration's cost does not depend on the dimension d and directions stay exact when softmax weights are e^-30000.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from lib import attention, coordinates, kernel
from lib.rules import NGD, Rule
from lib.seeds import stream
from lib.tokens import TokenSet

STATUS = {kernel.COMPLETED: "completed", kernel.STALLED: "stalled", kernel.DIVERGED: "diverged"}


@dataclass(frozen=True)
class Start:
    """W_0 in minimal coordinates (runs, r, q) and the norm of its part outside them (runs,), which never moves."""

    inside: np.ndarray
    outside: np.ndarray


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


def log_spaced(steps: int, count: int = 100) -> np.ndarray:
    """Iterations 0, 1, ..., steps to record: about `count` of them, evenly spaced in log(t), ascending."""
    return np.unique(np.concatenate([[0], np.geomspace(1, max(steps, 1), count).round().astype(int).clip(max=steps)]))


def zero_start(problem: coordinates.Minimal) -> Start:
    """W_0 = 0."""
    runs, r, q = len(problem.tokens.y), problem.token_basis.shape[2], problem.query_basis.shape[2]
    return Start(np.zeros((runs, r, q)), np.zeros(runs))


def gaussian_start(problem: coordinates.Minimal, std: float, seeds: Sequence[int]) -> Start:
    """W_0 with independent N(0, std^2) entries, one seed per run (paper A, Lemma 4).

    Drawn in minimal coordinates, where its law is the same; of the rest only the norm matters,
    std chi(d d_z - r q), so that d = 100,000 costs no more than d = 100.
    """
    inside, outside = [], []
    (_, d, r), (_, d_z, q) = problem.token_basis.shape, problem.query_basis.shape
    for seed in seeds:
        draw = stream(seed, "start")
        inside.append(std * draw.standard_normal((r, q)))
        outside.append(std * np.sqrt(draw.chisquare(d * d_z - r * q)) if d * d_z > r * q else 0.0)
    return Start(np.stack(inside), np.array(outside))


def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Rule | Mapping[str, Rule],
    steps: int,
    record: Sequence[int] | None = None,
    start: Start | np.ndarray | None = None,
    targets: Mapping[str, np.ndarray] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray] | None = None,
    loss: str = "exponential",
) -> History | dict[str, History]:
    """Minimise paper A's loss over W (head "fixed": u as in `tokens`) or over W and u ("joint", starting from u).

    rules: one Rule, or named rules that all runs are trained with in one call on all cores; the result is one History
    or a dict of them. steps: number of updates. record: iterations to record, ascending, within 0 ... steps (default
    `log_spaced`). start: W_0 as a Start or as an array (runs, d, d_z); default zero. targets: matrices (runs, r, q)
    in minimal coordinates, such as `svm.token_svm(...).W`; head_targets: vectors (runs, r).
    L* is the loss at p_opt = 1 for a fixed head and 0 in joint training.

    A run whose gradient is zero ends as "stalled", one whose loss is not finite as "diverged"; the history says which
    and when. Raises ValueError for records, starts or targets of the wrong shape or order.
    """
    problem = tokens if isinstance(tokens, coordinates.Minimal) else coordinates.minimal(tokens)
    attention.check_loss(loss)
    if head not in ("fixed", "joint"):
        raise ValueError(f'head must be "fixed" or "joint", not {head!r}')
    times = _times(record, steps)
    start = _start(problem, start)
    targets = _check_targets(targets, start.inside.shape)
    head_targets = _check_targets(head_targets, problem.tokens.u.shape)
    named = rules if isinstance(rules, Mapping) else {"": rules}
    reduced = reduce(problem.tokens, start, head, loss)
    built_in = {name: rule for name, rule in named.items() if rule.law is None}
    raws = dict(zip(built_in, run_compiled(reduced, list(built_in.values()), times), strict=True)) if built_in else {}
    histories = {}
    for name, rule in named.items():
        raw = raws[name] if name in raws else run_numpy(reduced, rule, times)
        histories[name] = _history(reduced, start, problem.tokens.u, times, raw, targets, head_targets)
    return histories if isinstance(rules, Mapping) else histories[""]


@dataclass(frozen=True)
class Reduced:
    """What the training loop sees of a problem: Gram matrices, margins and scores, the opt token first.

    delta (runs, n, T-1, r) opt token minus others; signed (runs, n, T, r) y_i x_{i,t}; z (runs, n, q);
    K (runs, n(T-1), n(T-1)) the Gram matrix of delta z^T; G (runs, nT, nT) that of y x, empty for a fixed head;
    margins (runs, n, T-1) and scores (runs, n, T) at the start.
    """

    delta: np.ndarray
    signed: np.ndarray
    z: np.ndarray
    K: np.ndarray
    G: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    head_fixed: bool
    loss: str


def reduce(tokens: TokenSet, start: Start, head: str, loss: str) -> Reduced:
    """The Reduced form of a token set in minimal coordinates."""
    runs, n, T, r = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt)
    order = np.concatenate([tokens.opt[..., None], coordinates.others(tokens.opt, T)], -1)
    signed = tokens.y[..., None, None] * np.take_along_axis(tokens.X, order[..., None], 2)
    flat = signed.reshape(runs, n * T, r)
    G = np.zeros((runs, 0, 0)) if head == "fixed" else flat @ np.swapaxes(flat, 1, 2)
    keys = tokens.z @ np.swapaxes(start.inside, 1, 2)  # W_0 z_i, (runs, n, r)
    margins = (delta @ keys[..., None])[..., 0]
    scores = (signed @ tokens.u[:, None, :, None])[..., 0]
    return Reduced(delta, signed, tokens.z, coordinates.gram(delta, tokens.z), G, margins, scores, head == "fixed", loss)


@dataclass(frozen=True)
class Raw:
    """Raw records of runs: margins, alpha (runs, k, n, T-1); scores, b (runs, k, n, T); logs (runs, k, 5)."""

    status: np.ndarray
    ended: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    alpha: np.ndarray
    b: np.ndarray
    logs: np.ndarray


def _empty(runs, n, T, k):
    shapes = (runs, k, n, T - 1), (runs, k, n, T), (runs, k, n, T - 1), (runs, k, n, T), (runs, k, 5)
    return Raw(np.zeros(runs, int), np.zeros(runs, int), *(np.full(shape, np.nan) for shape in shapes))


def run_compiled(problem: Reduced, rules: Sequence[Rule], times: np.ndarray) -> list[Raw]:
    """Train every run with every rule by the compiled kernel, in parallel over all of them."""
    runs, n, T = problem.scores.shape
    numbers = np.array([rule.numbers() for rule in rules])
    raw = _empty(len(rules) * runs, n, T, times.size)
    every = len(rules), 1, 1
    raw.status[:], raw.ended[:] = kernel.train(
        np.tile(np.arange(runs), len(rules)), problem.K, problem.G,
        np.tile(problem.margins, every), np.tile(problem.scores, every),
        problem.head_fixed, problem.loss == "logistic", np.repeat(numbers, runs, 0), times,
        raw.margins, raw.scores, raw.alpha, raw.b, raw.logs,
    )  # fmt: skip
    split = (slice(k * runs, (k + 1) * runs) for k in range(len(rules)))
    return [Raw(*(getattr(raw, f.name)[part] for f in fields(Raw))) for part in split]


def run_numpy(problem: Reduced, rule: Rule, times: np.ndarray) -> Raw:
    """Train every run with one rule in plain numpy: the kernel's twin, and the road for custom rules."""
    runs, n, T = problem.scores.shape
    raw = _empty(runs, n, T, times.size)
    g, gamma = problem.margins.reshape(runs, -1).copy(), problem.scores.reshape(runs, -1).copy()
    alpha, b = np.zeros_like(g), np.zeros_like(gamma)
    move, move_k, move_u, move_u_k = np.zeros_like(g), np.zeros_like(g), np.zeros_like(gamma), np.zeros_like(gamma)
    alive = np.ones(runs, bool)
    records = {int(t): k for k, t in enumerate(times)}
    raw.ended[:] = times[-1]
    for t in range(times[-1] + 1):
        logits = np.concatenate([np.zeros((runs, n, 1)), -g.reshape(runs, n, T - 1)], -1)
        at = attention.slopes(logits, gamma.reshape(runs, n, T), problem.loss)
        c, push = -at.pull[..., 1:].reshape(runs, -1), at.push.reshape(runs, -1)
        k = np.einsum("rij,rj->ri", problem.K, c)
        log_gap = at.log_gap if problem.head_fixed else at.log_loss
        with np.errstate(divide="ignore"):
            log_norm = at.log_scale + 0.5 * np.log(np.einsum("rm,rm->r", c, k))
            log_norm_u = np.full(runs, -np.inf)
            if not problem.head_fixed:
                k_u = np.einsum("rij,rj->ri", problem.G, push)
                log_norm_u = at.log_push_scale + 0.5 * np.log(np.einsum("rm,rm->r", push, k_u))
        log_both = 0.5 * np.logaddexp(2 * log_norm, 2 * log_norm_u)
        together = problem.head_fixed or rule.joint or rule.kind != NGD
        log_eta = rule.log_step(t, log_gap, log_both if together else log_norm) + np.zeros(runs)
        log_eta_u = log_eta if together else rule.log_step(t, log_gap, log_norm_u) + np.zeros(runs)

        if t in records:
            values = g, gamma, alpha, b, np.stack([log_gap, log_norm, log_norm_u, log_eta, log_eta_u], -1)
            for store, value in zip((raw.margins, raw.scores, raw.alpha, raw.b, raw.logs), values, strict=True):
                store[alive, records[t]] = value[alive].reshape(-1, *store.shape[2:])
        with np.errstate(invalid="ignore"):
            length = np.where(log_norm > -np.inf, log_eta + log_norm, -np.inf)  # 0/0 = 0: no gradient, no step
            length_u = np.where(log_norm_u > -np.inf, log_eta_u + log_norm_u, -np.inf)
        stalled = log_both == -np.inf
        bounded = (at.log_push_scale < kernel.LONGEST) & (length < kernel.LONGEST) & (length_u < kernel.LONGEST)
        for code, ends in ((kernel.STALLED, stalled), (kernel.DIVERGED, ~bounded & ~stalled)):
            raw.status[alive & ends], raw.ended[alive & ends] = code, t
            alive &= ~ends
        if not alive.any():
            break

        moves = alive & (length > -np.inf)
        eta = np.where(moves, np.exp(np.where(moves, log_eta + at.log_scale, 0.0)), 0.0)[:, None]
        move, move_k = rule.momentum * move + eta * c, rule.momentum * move_k + eta * k
        alpha, g = alpha + move, g + move_k
        if not problem.head_fixed:
            eta = np.where(alive, np.exp(np.where(alive, log_eta_u + at.log_push_scale, 0.0)), 0.0)[:, None]
            move_u, move_u_k = rule.momentum * move_u + eta * push, rule.momentum * move_u_k + eta * k_u
            b, gamma = b + move_u, gamma + move_u_k
    return raw


def _history(problem, start, u, times, raw, targets, head_targets):
    """The derived quantities of a History from raw records."""

    def weights(k):
        pulled = np.einsum("rnt,rntd->rnd", raw.alpha[:, k], problem.delta, optimize=True)
        return start.inside + np.swapaxes(pulled, 1, 2) @ problem.z  # (runs, r, q)

    def head(k):
        return u + np.einsum("rnt,rntd->rd", raw.b[:, k], problem.signed, optimize=True)

    with np.errstate(invalid="ignore"):  # NaN where a run had ended
        log_odds = np.logaddexp.reduce(-raw.margins, -1)  # of all other tokens against the opt token
        log_miss = -np.logaddexp(0.0, -log_odds)
    norm, error, alignment = _directions(weights, times.size, start.outside, targets)
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


def _times(record, steps):
    if int(steps) != steps or steps < 0:
        raise ValueError(f"steps = {steps}; it must be a whole number, zero or more")
    times = log_spaced(steps) if record is None else np.asarray(record)
    if times.ndim != 1 or times.size == 0 or not np.issubdtype(times.dtype, np.integer):
        raise ValueError("record must be a list of whole numbers, at least one")
    if (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > steps:
        raise ValueError(f"record must ascend within 0 ... {steps}, the number of steps")
    return times


def _start(problem, start):
    runs, (_, d, r), (_, d_z, q) = len(problem.tokens.y), problem.token_basis.shape, problem.query_basis.shape
    if start is None:
        return zero_start(problem)
    if isinstance(start, Start):
        if start.inside.shape != (runs, r, q) or start.outside.shape != (runs,):
            raise ValueError(f"start.inside has shape {start.inside.shape}; it needs {(runs, r, q)}, start.outside {(runs,)}")
        return start
    start = np.asarray(start, float)
    if start.shape != (runs, d, d_z) or not np.isfinite(start).all():
        raise ValueError(f"start has shape {start.shape}; it needs {(runs, d, d_z)}, all finite")
    return Start(*problem.reduce(start))


def _check_targets(targets, shape):
    targets = {name: np.asarray(target, float) for name, target in (targets or {}).items()}
    for name, target in targets.items():
        if target.shape != shape:
            raise ValueError(f"target {name!r} has shape {target.shape}; it needs {shape}, in minimal coordinates")
        if not np.isfinite(target).all() or not np.linalg.norm(target.reshape(len(target), -1), axis=1).all():
            raise ValueError(f"target {name!r} must be finite and not zero")
    return targets
