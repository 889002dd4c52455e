"""Train a token set with optimisers that see the coordinates: fixed head, any horizon."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

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
from papers.beyond.engine.optimisers import Optimiser

EPOCHS = 4096  # orders of samples that are drawn; longer training repeats them


@dataclass(frozen=True, repr=False)
class Path(Shapes):
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    optimiser; W (runs, k, d, d_z); log_gap, log_gradient (runs, k): log(L - L*) and log ||grad L||
    of all samples; status and ended (runs,): "completed", "stalled" (every sample's gradient is
    zero) or "diverged" (a step or an entry left the range of float64), and at which iteration.
    """

    optimiser: Optimiser
    iterations: np.ndarray
    W: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    status: np.ndarray
    ended: np.ndarray


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
    logistic = attention.is_logistic(loss)
    check_sizes(tokens)
    runs, n, _, d = tokens.shape
    times = record_times(record, steps)
    shape = runs, d, tokens.z.shape[-1]
    W_0 = np.zeros(shape) if start is None else checked_start(start, shape)
    named = optimisers if isinstance(optimisers, Mapping) else {"": optimisers}
    kinds = len(named)
    order = _orders(list(named.values()), range(runs) if seeds is None else seeds, n)
    _check_blocks(named.values(), *shape[1:])
    W = np.repeat(W_0, kinds, 0)
    raw = unwritten(
        status.COMPLETED, runs * kinds, path=(len(times), *shape[1:]), logs=(len(times), 2)
    )
    _run_all(_problem(tokens, logistic), list(named.values()), times, order, W, raw)
    end_where_not_finite(raw["status"], raw["ended"], times, [raw["path"]], [raw["logs"]])
    paths = {
        name: _path(one, times, {key: value[k::kinds] for key, value in raw.items()})
        for k, (name, one) in enumerate(named.items())
    }
    return paths if isinstance(optimisers, Mapping) else paths[""]


def _check_blocks(optimisers, d, d_z):
    for one in optimisers:
        size, what = (d_z, "columns") if one.by_columns else (d, "rows")
        if size % one.blocks:
            raise ValueError(f"blocks = {one.blocks} do not divide the {size} {what} of W")


def _run_all(problem, optimisers, times, order, W, raw):
    """Train job by job, job j being run j // rules with rule j % rules, on all cores."""
    kinds = len(optimisers)
    numbers = [one.numbers() for one in optimisers]

    def of(job):
        run, kind = job // kinds, job % kinds
        delta, z, scores, logistic = problem
        own = gradients.Problem(delta[run], z[run], scores[run], logistic)
        records = loop.Records(raw["path"][job], raw["logs"][job])
        return own, numbers[kind], times, order[kind, run], W[job], records

    def work(job):
        return loop.run_job(*of(job))

    apart.prepare(loop.run_job, *of(0))
    first = [work(0)]  # compiles what is not prepared
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:  # the loop lets go of the interpreter
        ended = first + list(pool.map(work, range(1, len(W))))
    raw["status"], raw["ended"] = (np.array(part) for part in zip(*ended, strict=True))


def _problem(tokens, logistic):
    delta = np.ascontiguousarray(coordinates.differences(tokens, tokens.opt))
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]  # (runs, n, T, 1)
    scores = np.ascontiguousarray(np.swapaxes(scores[..., 0], 1, 2))
    return gradients.Problem(delta, np.ascontiguousarray(tokens.z), scores, logistic)


def _orders(optimisers, seeds, n):
    """The samples of every epoch, (rules, runs, epochs, n), in one layout for one compilation."""
    if any(one.batch > n for one in optimisers):
        raise ValueError(f"batch = {max(one.batch for one in optimisers)}; there are {n} samples")
    epochs = EPOCHS if any(one.batch and one.shuffled for one in optimisers) else 1
    cyclic = np.broadcast_to(np.arange(n), (len(seeds), epochs, n))
    if epochs == 1:
        return np.repeat(cyclic[None], len(optimisers), 0)
    drawn = np.stack(
        [stream(seed, "batches").permuted(own, axis=1) for seed, own in zip(seeds, cyclic)]
    )
    return np.ascontiguousarray([drawn if one.shuffled else cyclic for one in optimisers])


def _path(optimiser, times, raw):
    return Path(
        optimiser=optimiser,
        iterations=times,
        W=raw["path"],
        log_gap=raw["logs"][..., 0],
        log_gradient=raw["logs"][..., 1],
        status=np.array(status.NAMES)[raw["status"]],
        ended=raw["ended"],
    )
