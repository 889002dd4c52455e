"""What rules that see the coordinates run on: a problem as rows, and the compiled loop's call."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import apart
from lib.compiled.status import COMPLETED
from lib.dynamics import recording
from lib.mirror import kernel


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
    """The Rows of a token set; ValueError for sizes whose squares leave float64."""
    check_sizes(tokens)
    runs, n, T, d = tokens.shape
    A = coordinates.constraint_rows(coordinates.differences(tokens, tokens.opt), tokens.z)
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    return Rows(A, signed, n, attention.is_logistic(loss), joint)


@dataclass(frozen=True)
class RowsRaw:
    """Raw records of runs, with the shapes of `kernel.RowsRecords`; status, ended, rise (runs,)."""

    status: np.ndarray
    ended: np.ndarray
    rise: np.ndarray
    path: np.ndarray
    head: np.ndarray
    logs: np.ndarray


def _empty(jobs, k, D, d):
    records = recording.unwritten(COMPLETED, jobs, path=(k, D), head=(k, d), logs=(k, 3))
    return records | {"rise": np.full(jobs, -1)}


def run_compiled(
    problem: Rows, rules: Sequence, times: Sequence[np.ndarray], W, v
) -> list[RowsRaw]:
    """Train every run with every rule on all cores.

    W (runs, D) and v (runs, d) are the start; times has one array a rule. In the list of jobs a
    run's rules stand together, so that each core gets its share of the long ones.
    """
    kinds, runs, k = len(rules), len(W), max(map(len, times))
    padded = np.stack([np.pad(own, (0, k - len(own)), constant_values=-1) for own in times])
    start, head = (np.repeat(array, kinds, 0) for array in (W, v))  # copies, to be moved in place
    mirrored = [
        np.stack([rules[job % kinds].to_dual(row) for job, row in enumerate(array)])
        for array in (start, head)
    ]
    A, signed = (_token_first(part, problem.n) for part in (problem.A, problem.signed))
    raw = _empty(runs * kinds, k, W.shape[1], v.shape[1])
    raw["status"], raw["ended"], raw["rise"] = apart.call(
        kernel.run_jobs,
        kernel.RowsProblem(A, signed, problem.n, problem.logistic, problem.joint),
        np.array([rule.numbers() for rule in rules]),
        padded,
        kernel.Parameters(start, head, *mirrored),
        kernel.RowsRecords(**{name: raw[name] for name in kernel.RowsRecords._fields}),
    )
    by_rule = [{name: values[kind::kinds] for name, values in raw.items()} for kind in range(kinds)]
    for own, one in zip(times, by_rule, strict=True):
        one |= {name: one[name][:, : len(own)] for name in ("path", "head", "logs")}
        finite, logs = [one["path"], one["head"]], [one["logs"]]
        recording.end_where_not_finite(one["status"], one["ended"], own, finite, logs)
    return [RowsRaw(**one) for one in by_rule]


def _token_first(rows, n):
    """The rows (runs, n T, D), a sample's tokens together, ordered by token and then sample."""
    runs, _, D = rows.shape
    return np.ascontiguousarray(rows.reshape(runs, n, -1, D).swapaxes(1, 2)).reshape(rows.shape)
