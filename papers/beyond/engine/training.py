"""Train a token set by rules that see the coordinates: fixed head."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from pathlib import Path as File
from typing import Any

import numba
import numpy as np
from tqdm.auto import tqdm

from companion.sources import closure
from lib import attention, files
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status
from lib.dynamics.recording import (
    checked_start,
    end_where_not_finite,
    record_times,
    unwritten,
)
from lib.representation import Shapes
from papers.beyond.engine import gradients, loop
from papers.beyond.engine.optimisers import SOAP, Optimiser


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
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    delta = np.ascontiguousarray(delta)
    # (runs, n, T, 1)
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]
    scores = scores[..., 0]
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    if hidden is None:
        hidden = np.zeros((*tokens.y.shape, 0), bool)
    else:  # the opt token's own score: a product may round that of its copy apart
        scores[..., 1:] = np.where(hidden, scores[..., :1], scores[..., 1:])
    scores = np.ascontiguousarray(np.swapaxes(scores, 1, 2))
    # a copy: what may be written is one type to numba
    z = np.array(tokens.z, order="C")
    return [
        gradients.Problem(*arrays, logistic)
        for arrays in zip(delta, z, scores, hidden, strict=True)
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


_ARRAYS = [field.name for field in fields(Path)]


def train_kept(
    tokens: TokenSet,
    optimisers: Mapping[str, Optimiser],
    steps: int,
    record: Sequence[int],
    folder: File,
) -> dict[str, Path]:
    """`train` from W_0 = 0, a file a run under `folder`, named by a hash of tokens,
    rule, horizon, records and the loop's code; OSError where none can be written.
    """
    runs = range(len(tokens.X))
    jobs = [(run, name) for name in optimisers for run in runs]

    def work(job):
        run, name = job
        return _kept_run(tokens.run(run), optimisers[name], steps, record, File(folder))

    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        made = chain([work(jobs[0])], pool.map(work, jobs[1:]))  # the first compiles
        paths = dict(zip(jobs, tqdm(made, "runs", len(jobs)), strict=True))
    return {name: _together([paths[run, name] for run in runs]) for name in optimisers}


def _kept_run(tokens, optimiser, steps, record, folder):
    arrays = [tokens.X, tokens.y, tokens.z, tokens.u, tokens.opt]
    if tokens.mask is not None:
        arrays.append(tokens.mask)
    key = repr((_code(), optimiser, steps, list(map(int, record)))).encode()
    content = key + b"".join(array.tobytes() for array in arrays)
    file = folder / f"{files.sha256(content)}.npz"
    try:
        with open(file, "rb") as stream, np.load(stream) as saved:
            return Path(*(saved[name] for name in _ARRAYS))
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
        path = train(tokens, optimiser, steps, record=record)
    written = io.BytesIO()
    np.savez(written, **{name: getattr(path, name) for name in _ARRAYS})
    files.write(file, written.getvalue())
    return path


@cache
def _code() -> str:
    sources = closure("from papers.beyond.engine import loop")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _together(paths):
    def joined(name):
        return np.concatenate([getattr(path, name) for path in paths])

    arrays = {name: joined(name) for name in _ARRAYS if name != "iterations"}
    return replace(paths[0], **arrays)
