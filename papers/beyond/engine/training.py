"""Train a token set with optimisers that see the coordinates: fixed head, any horizon."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import apart, status
from lib.dynamics.recording import checked_start, end_where_not_finite, record_times, unwritten
from lib.representation import Shapes
from lib.seeds import stream
from papers.beyond.engine import gradients, loop
from papers.beyond.engine.optimisers import SOAP, Optimiser

EPOCHS = 4096  # orders of samples that are drawn; longer training repeats them


@dataclass(frozen=True, repr=False)
class Path(Shapes):
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    optimiser; W (runs, k, d, d_z); log_gap, log_gradient (runs, k): log(L - L*) and log ||grad L||
    of all samples; status and ended (runs,): "completed", "stalled" (every sample's gradient is
    zero) or "diverged" (a step or an entry left the range of float64), and at which iteration.
    What the rule keeps at the end, each up to a factor: second (runs, d, d_z), the moments of G^2;
    left (runs, d, d) and right (runs, d_z, d_z), Shampoo's L and R, or SOAP's bases.
    """

    optimiser: Optimiser
    iterations: np.ndarray
    W: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    status: np.ndarray
    ended: np.ndarray
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
    seeds: Sequence[int] | None = None,
) -> Path | dict[str, Path]:
    """Minimise paper A's loss (1/n) sum_i l(y_i u^T X_i^T softmax(X_i W z_i)) over W.

    optimisers: one Optimiser, or several by name; all runs and rules are trained in one call on
    all cores. start: W_0 (runs, d, d_z), default zero. record: iterations to record, ascending
    (default about 100, evenly spaced in log t). seeds: one per run, for the order of shuffled
    batches (default 0, 1, ...). loss: "exponential" or "logistic".

    Raises ValueError for a start of the wrong shape, another loss, records out of order, a batch
    larger than n, or blocks that do not divide W.
    """
    problem = problems(tokens, loss)
    runs, n, _, d = tokens.shape
    times = record_times(record, steps)
    shape = runs, d, tokens.z.shape[-1]
    W = np.zeros(shape) if start is None else checked_start(start, shape)
    named = optimisers if isinstance(optimisers, Mapping) else {"": optimisers}
    order = _orders(list(named.values()), range(runs) if seeds is None else seeds, n)
    _check_blocks(named.values(), *shape[1:])
    raw = _run_all(problem, list(named.values()), times, order, np.repeat(W, len(named), 0))
    paths = {
        name: Path(
            optimiser=rule,
            iterations=times,
            W=raw["path"][k :: len(named)],
            log_gap=raw["logs"][k :: len(named), :, 0],
            log_gradient=raw["logs"][k :: len(named), :, 1],
            status=np.array(status.NAMES)[raw["status"][k :: len(named)]],
            ended=raw["ended"][k :: len(named)],
            **{what: raw[what][k :: len(named)] for what in ("second", "left", "right")},
        )
        for k, (name, rule) in enumerate(named.items())
    }
    return paths if isinstance(optimisers, Mapping) else paths[""]


def problems(tokens: TokenSet, loss: str) -> list[gradients.Problem]:
    """Each run as the compiled loop takes it; ValueError for a loss that is not compiled."""
    logistic = attention.is_logistic(loss)
    check_sizes(tokens)
    delta = np.ascontiguousarray(coordinates.differences(tokens, tokens.opt))
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]  # (runs, n, T, 1)
    scores = np.ascontiguousarray(np.swapaxes(scores[..., 0], 1, 2))
    z = np.array(tokens.z, order="C")  # a copy: arrays that may be written are one type to numba
    return [gradients.Problem(*arrays, logistic) for arrays in zip(delta, z, scores, strict=True)]


def _check_blocks(optimisers, d, d_z):
    for rule in optimisers:
        size, what = (d_z, "columns") if rule.by_columns else (d, "rows")
        if size % rule.blocks:
            raise ValueError(f"blocks = {rule.blocks} do not divide the {size} {what} of W")


def _run_all(problem, optimisers, times, order, W):
    """Records of job by job, on all cores, job j being run j // rules with rule j % rules."""
    shapes = {"path": (len(times), *W.shape[1:]), "logs": (len(times), 2)}
    raw = unwritten(status.COMPLETED, len(W), **shapes)
    numbers = [rule.numbers() for rule in optimisers]

    def job(j):
        run, kind = divmod(j, len(optimisers))
        state = loop.state(numbers[kind], order.shape[-1], *W.shape[1:])
        where = order[kind, run], W[j], raw["path"][j], raw["logs"][j]
        return problem[run], numbers[kind], times, *where, state

    def work(j):
        *arguments, state = job(j)
        ended, sides = loop.run_job(*arguments, state), state.sides
        soap = optimisers[j % len(optimisers)].kind == SOAP
        turned = (sides.left_basis, sides.right_basis) if soap else (sides.left, sides.right)
        return *ended, state.whole.second.reshape(W.shape[1:]), *turned

    apart.prepare(loop.run_job, *job(0))
    first = [work(0)]  # compiles what is not prepared
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:  # the loop lets go of the interpreter
        ended = first + list(pool.map(work, range(1, len(W))))
    names = "status", "ended", "second", "left", "right"
    raw |= zip(names, (np.array(part) for part in zip(*ended, strict=True)), strict=True)
    end_where_not_finite(raw["status"], raw["ended"], times, [raw["path"]], [raw["logs"]])
    return raw


def _orders(optimisers, seeds, n):
    """The samples of every epoch, (rules, runs, epochs, n), in one layout for one compilation."""
    if any(rule.batch > n for rule in optimisers):
        raise ValueError(f"batch = {max(rule.batch for rule in optimisers)}; there are {n} samples")
    epochs = EPOCHS if any(rule.batch and rule.shuffled for rule in optimisers) else 1
    cyclic = np.broadcast_to(np.arange(n), (len(seeds), epochs, n))
    if epochs == 1:
        return np.repeat(cyclic[None], len(optimisers), 0)
    drawn = np.stack(
        [stream(seed, "batches").permuted(epoch, axis=1) for seed, epoch in zip(seeds, cyclic)]
    )
    return np.ascontiguousarray([drawn if rule.shuffled else cyclic for rule in optimisers])
