"""What l_p mirror descent runs on: a problem as rows, and the loop of `lib.mirror_kernel` once more in plain numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.ambient import kernel as mirror_kernel
from lib.ambient.kernel import COMPLETED, DIVERGED, LONGEST, NEGLIGIBLE_RISE, STALLED
from lib.attention import coordinates
from lib.attention import model as attention
from lib.attention.tokens import TokenSet
from lib.mirror.geometry import check_exponent, dual_exponent, from_mirror, norm, to_mirror
from lib.svm import frobenius as svm_frobenius


@dataclass(frozen=True)
class Rule:
    """One lp-AttGD rule (paper C, Section 2): the exponent p, the step size eta, and whether steps are normalised.

    |W+|^{p-1} sgn(W+) = |W|^{p-1} sgn(W) - eta g entrywise, with g = grad L, or g = grad L / ||grad L||_{q,q} when
    `normalised`, 1/p + 1/q = 1. p = 2 is gradient descent. Raises ValueError unless 1 < p < inf and 0 < eta < inf.
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


@dataclass(frozen=True)
class Rows:
    """A problem as the loop sees it, everything linear in W and v, the opt token as reference.

    A (runs, n(T-1), d d_z): margins = A vec(W); signed (runs, n T, d): scores = signed v; n; logistic or exponential
    loss; joint or fixed head. A holds n(T-1) d d_z numbers a run.
    """

    A: np.ndarray
    signed: np.ndarray
    n: int
    logistic: bool
    joint: bool


def rows(tokens: TokenSet, loss: str, joint: bool) -> Rows:
    """The Rows of a token set."""
    runs, n, T, d = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt)
    A = np.stack([svm_frobenius.constraint_rows(delta[run], tokens.z[run]) for run in range(runs)])
    order = np.concatenate([tokens.opt[..., None], coordinates.others(tokens.opt, T)], -1)
    signed = tokens.y[..., None, None] * np.take_along_axis(tokens.X, order[..., None], 2)
    return Rows(A, signed.reshape(runs, n * T, d), n, loss == "logistic", joint)


@dataclass(frozen=True)
class Raw:
    """Raw records, a row per job, NaN after an early end: path (jobs, k, D), head (jobs, k, d), logs (jobs, k, 3)."""

    status: np.ndarray
    ended: np.ndarray
    rise: np.ndarray
    path: np.ndarray
    head: np.ndarray
    logs: np.ndarray


def _empty(jobs, k, D, d):
    return Raw(
        np.full(jobs, COMPLETED), np.zeros(jobs, int), np.full(jobs, -1),
        *(np.full((jobs, k, size), np.nan) for size in (D, d, 3)),
    )  # fmt: skip


def run_compiled(problem: Rows, rules: Sequence[Rule], times: Sequence[np.ndarray], W, v) -> list[Raw]:
    """Train every run with every rule on all cores; W (runs, D) and v (runs, d) the start, times one array a rule.

    In the list of jobs a run's rules stand together, so that each core gets its share of the long ones.
    """
    kinds, runs, k = len(rules), len(W), max(map(len, times))
    padded = np.stack([np.pad(own, (0, k - len(own)), constant_values=-1) for own in times])
    raw = _empty(runs * kinds, k, W.shape[1], v.shape[1])
    start, head = (np.repeat(array, kinds, 0) for array in (W, v))  # copies: the loop works in place
    mirrored = [
        np.stack([to_mirror(row, rules[job % kinds].p) for job, row in enumerate(array)]) for array in (start, head)
    ]
    numbers = np.array([rule.numbers() for rule in rules])
    raw.status[:], raw.ended[:], raw.rise[:] = mirror_kernel.train(
        _token_first(problem.A, problem.n), _token_first(problem.signed, problem.n), problem.logistic, problem.joint,
        numbers, padded, *mirrored, start, head, problem.n,
        raw.path, raw.head, raw.logs,
    )  # fmt: skip
    return [
        Raw(*(getattr(raw, name)[kind::kinds] for name in ("status", "ended", "rise")),
            *(getattr(raw, name)[kind::kinds, : len(times[kind])] for name in ("path", "head", "logs")))
        for kind in range(kinds)
    ]  # fmt: skip


def _token_first(rows, n):
    """Rows (runs, n T, D), a sample's tokens together, with each token's samples together instead."""
    runs, _, D = rows.shape
    return np.ascontiguousarray(rows.reshape(runs, n, -1, D).swapaxes(1, 2)).reshape(rows.shape)


def run_numpy(problem: Rows, rule: Rule, times: np.ndarray, W, v) -> Raw:
    """Train every run with one rule in plain numpy: the kernel's twin."""
    p, q, runs, n = rule.p, dual_exponent(rule.p), len(W), problem.n
    raw = _empty(runs, times.size, W.shape[1], v.shape[1])
    U, V, records = to_mirror(W, p), to_mirror(v, p), {int(t): k for k, t in enumerate(times)}
    alive, last = np.ones(runs, bool), np.full(runs, np.inf)
    raw.ended[:] = times[-1]

    def end(code, which, t):
        raw.status[alive & which], raw.ended[alive & which] = code, t
        alive[which] = False

    for t in range(times[-1] + 1):
        margins = np.einsum("rmj,rj->rm", problem.A, W).reshape(runs, n, -1)
        scores = np.einsum("rmj,rj->rm", problem.signed, v).reshape(runs, n, -1)
        logits = np.concatenate([0 * margins[..., :1], -margins], -1)
        with np.errstate(over="ignore"):  # L - L*, which joint training does not ask for, may overflow with its scores
            at = attention.slopes(logits, scores, "logistic" if problem.logistic else "exponential")
        down = np.einsum("rm,rmj->rj", -at.pull[..., 1:].reshape(runs, -1), problem.A)
        down_v = np.einsum("rm,rmj->rj", at.push.reshape(runs, -1), problem.signed) * problem.joint
        with np.errstate(divide="ignore"):
            log_size, log_size_v = np.log(norm(down, q)), np.log(norm(down_v, q))
        log_norm, log_norm_v = at.log_scale + log_size, at.log_push_scale + log_size_v
        loss = np.exp(at.log_loss)
        rises = alive & (raw.rise < 0) & (loss > last + NEGLIGIBLE_RISE * np.maximum(1.0, last))
        raw.rise[rises], last = t, loss
        if t in records:
            logs = np.stack([at.log_loss if problem.joint else at.log_gap, log_norm, log_norm_v], -1)
            for store, value in ((raw.path, W), (raw.head, v), (raw.logs, logs)):
                store[alive, records[t]] = value[alive]
        end(STALLED, (log_norm == -np.inf) & (log_norm_v == -np.inf), t)

        step = np.log(rule.step_size) - (log_size if rule.normalised else -at.log_scale)
        step_v = np.log(rule.step_size) - (log_size_v if rule.normalised else -at.log_push_scale)
        moves, moves_v = log_norm > -np.inf, log_norm_v > -np.inf
        end(DIVERGED, ~(np.where(moves, step, 0) < LONGEST) | ~(np.where(moves_v, step_v, 0) < LONGEST), t)
        U = U + np.exp(np.where(alive & moves, step, -np.inf))[:, None] * down
        V = V + np.exp(np.where(alive & moves_v, step_v, -np.inf))[:, None] * down_v
        new, new_v = from_mirror(U, p), from_mirror(V, p)
        bounded = np.maximum(np.abs(new).max(1), np.abs(new_v).max(1)) <= np.exp(LONGEST)
        end(DIVERGED, ~bounded, t + 1) if t < times[-1] else None
        W, v = (np.where(alive[:, None], *pair) for pair in ((new, W), (new_v, v)))
        if not alive.any():
            break
    return raw
