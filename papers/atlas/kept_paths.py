"""Runs kept on disk one by one, so that a long map which is interrupted goes on."""

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numba
import numpy as np
from tqdm.auto import tqdm

from companion.sources import closure
from lib import files
from lib.attention.token_sets import TokenSet
from lib.dynamics import History, Rule, train


def train_kept(
    tokens: TokenSet,
    rules: Mapping[str, Rule],
    steps: int,
    record: Sequence[int],
    folder: Path,
) -> dict[str, History]:
    """`train` from W_0 = 0, a file a run under `folder`, named by a hash of tokens,
    rule, horizon, records and the loop's code; OSError where none can be written.
    """
    runs = range(len(tokens.X))
    jobs = [(run, name) for name in rules for run in runs]

    def work(job):
        run, name = job
        return _kept_run(tokens.run(run), rules[name], steps, record, Path(folder))

    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        made = chain([work(jobs[0])], pool.map(work, jobs[1:]))  # the first compiles
        paths = dict(zip(jobs, tqdm(made, "runs", len(jobs)), strict=True))
    return {name: _together([paths[run, name] for run in runs]) for name in rules}


def _kept_run(tokens, rule, steps, record, folder):
    arrays = [tokens.X, tokens.y, tokens.z, tokens.u, tokens.opt]
    if tokens.mask is not None:
        arrays.append(tokens.mask)
    key = repr((_code(), rule, steps, list(map(int, record)))).encode()
    content = key + b"".join(array.tobytes() for array in arrays)
    file = folder / f"{files.sha256(content)}.npz"
    try:
        return History.load(file)
    except (OSError, ValueError):  # none is there, or it is damaged
        history = train(tokens, rule, steps, record=record)
    written = io.BytesIO()
    history.save(written)
    files.write(file, written.getvalue())
    return history


@cache
def _code() -> str:
    sources = closure("from lib.dynamics.in_coordinates import loop, training")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _together(histories: Sequence[Any]) -> Any:
    """One record of all runs, from records of one run each with the same iterations."""
    first = histories[0]
    arrays = {}
    for name in (field.name for field in fields(first)):
        values = [getattr(history, name) for history in histories]
        if name == "iterations":
            arrays[name] = values[0]
        elif is_dataclass(values[0]):
            arrays[name] = _together(values)
        elif isinstance(values[0], dict):
            arrays[name] = {
                key: np.concatenate([value[key] for value in values])
                for key in values[0]
            }
        else:
            arrays[name] = np.concatenate(values)
    return type(first)(**arrays)
