"""Train a token set by rules that see the coordinates: fixed head."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status
from lib.dynamics.in_coordinates import gradients, loop
from lib.dynamics.in_coordinates.codes import SOAP
from lib.dynamics.in_coordinates.rules import Optimiser
from lib.dynamics.recording import (
    checked_start,
    end_where_not_finite,
    record_times,
    unwritten,
)
from lib.representation import Shapes


@dataclass(frozen=True, repr=False)
class Path(Shapes):
    """What was recorded of each run at `iterations` (k,); NaN after a run's early end.

    W (runs, k, d, d_z); log_gap, log_gradient (runs, k): log(L - L*) and log ||grad L||
    of all samples; status and ended (runs,): "completed", "stalled" (every sample's
    gradient is zero) or "diverged" (a step or an entry beyond e^600), and at which
    iteration. What the rule keeps at the end, each up to a factor: second (runs, d,
    d_z), the moments of G^2; left (runs, d, d) and right (runs, d_z, d_z), Shampoo's L
    and R, or SOAP's bases.
    """

    iterations: np.ndarray
    W: np.ndarray
    log_gap: np.ndarray
    status: np.ndarray
    ended: np.ndarray
    log_gradient: Any = None
    second: Any = None
    left: Any = None
    right: Any = None


def train(
    tokens: TokenSet,
    optimisers: Optimiser | Mapping[str, Optimiser],
    steps: int,
    start: np.ndarray | None = None,
    record: Sequence[int] | None = None,
    loss: str = "exponential",
) -> Path | dict[str, Path]:
    """Minimise paper A's loss (1/n) sum_i l(y_i u^T X_i^T softmax(X_i W z_i)) over W.

    optimisers: one Optimiser, or several by name; all are trained on all cores. start:
    W_0 (runs, d, d_z), default zero. record: iterations to record, ascending (default
    about 100, evenly spaced in log t). loss: "exponential" or "logistic".

    Raises ValueError for a start of the wrong shape, another loss, records out of
    order, a batch larger than n, or blocks that do not divide W.
    """
    problem = problems(tokens, loss)
    runs, n, _, d = tokens.shape
    times = record_times(record, steps)
    shape = runs, d, tokens.z.shape[-1]
    if start is None:
        W = np.zeros(shape)
    else:
        W = checked_start(start, shape)
    if isinstance(optimisers, Mapping):
        named = optimisers
    else:
        named = {"": optimisers}
    for rule in named.values():
        if rule.batch > n:
            raise ValueError(f"batch = {rule.batch}; there are {n} samples")
        if d % rule.blocks:
            raise ValueError(f"blocks = {rule.blocks} do not divide the {d} rows of W")
    raw = _run_all(problem, [*named.values()], times, np.repeat(W, len(named), 0))
    raw["status"] = np.array(status.NAMES)[raw["status"]]
    logs = raw.pop("logs")
    raw |= {"log_gap": logs[..., 0], "log_gradient": logs[..., 1]}
    paths = {
        name: Path(times, **{what: raw[what][k :: len(named)] for what in raw})
        for k, name in enumerate(named)
    }
    if isinstance(optimisers, Mapping):
        return paths
    return paths[""]


def problems(tokens: TokenSet, loss: str) -> list[gradients.Problem]:
    """Each run as the compiled loop takes it; ValueError for another loss."""
    logistic = attention.is_logistic(loss)
    check_sizes(tokens)
    delta = np.ascontiguousarray(coordinates.differences(tokens, tokens.opt))
    # (runs, n, T, 1)
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]
    scores = np.ascontiguousarray(np.swapaxes(scores[..., 0], 1, 2))
    # a copy: what may be written is one type to numba
    z = np.array(tokens.z, order="C")
    return [
        gradients.Problem(*arrays, logistic)
        for arrays in zip(delta, z, scores, strict=True)
    ]


def _run_all(problem, optimisers, times, W):
    """Records job by job, on all cores; job j: run j // rules, rule j % rules."""
    shapes = {"W": (len(times), *W.shape[1:]), "logs": (len(times), 2)}
    raw = unwritten(status.COMPLETED, len(W), **shapes)

    def work(j):
        run, kind = divmod(j, len(optimisers))
        one = problem[run]
        rule = optimisers[kind].numbers()
        state = loop.state(rule, len(one.z), *W.shape[1:])
        where = W[j], raw["W"][j], raw["logs"][j]
        ended = loop.run_job(one, rule, times, *where, state)
        left = state.sides.left
        right = state.sides.right
        if rule.kind == SOAP:
            left = state.sides.left_basis
            right = state.sides.right_basis
        return *ended, state.whole.second.reshape(W.shape[1:]), left, right

    first = [work(0)]  # compiles
    with ThreadPoolExecutor(
        numba.get_num_threads()
    ) as pool:  # the loop lets go of the interpreter
        ended = first + list(pool.map(work, range(1, len(W))))
    names = "status", "ended", "second", "left", "right"
    raw |= zip(
        names, (np.array(part) for part in zip(*ended, strict=True)), strict=True
    )
    end_where_not_finite(raw["status"], raw["ended"], times, [raw["W"]], [raw["logs"]])
    return raw
