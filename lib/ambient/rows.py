"""What rules that see the coordinates run on: a problem as rows, and the call of the compiled loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.ambient import kernel
from lib.ambient.kernel import COMPLETED
from lib.attention import coordinates
from lib.attention.tokens import TokenSet
from lib.svm import frobenius


@dataclass(frozen=True)
class Rows:
    """A problem as the loop sees it, everything linear in W and v, the opt token as reference.

    A (runs, n(T-1), d d_z): margins = A vec(W); signed (runs, n T, d): scores = signed v; n;
    logistic or exponential loss; joint or fixed head. A holds n(T-1) d d_z numbers a run.
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
    A = np.stack([frobenius.constraint_rows(delta[run], tokens.z[run]) for run in range(runs)])
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


def run_compiled(problem: Rows, rules: Sequence, times: Sequence[np.ndarray], W, v) -> list[Raw]:
    """Train every run with every rule on all cores; W (runs, D) and v (runs, d) the start, times
    one array a rule.

    In the list of jobs a run's rules stand together, so that each core gets its share of the long
    ones.
    """
    kinds, runs, k = len(rules), len(W), max(map(len, times))
    padded = np.stack([np.pad(own, (0, k - len(own)), constant_values=-1) for own in times])
    raw = _empty(runs * kinds, k, W.shape[1], v.shape[1])
    start, head = (
        np.repeat(array, kinds, 0) for array in (W, v)
    )  # copies: the loop works in place
    mirrored = [
        np.stack([rules[job % kinds].to_dual(row) for job, row in enumerate(array)])
        for array in (start, head)
    ]
    numbers = np.array([rule.numbers() for rule in rules])
    raw.status[:], raw.ended[:], raw.rise[:] = kernel.train(
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
