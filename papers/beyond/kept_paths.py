"""Runs kept on disk one by one, so that a long map which is interrupted goes on."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache
from itertools import chain
from pathlib import Path as File

import numba
import numpy as np
from tqdm.auto import tqdm

from companion.sources import closure
from lib import files
from lib.attention.token_sets import TokenSet
from lib.dynamics.in_coordinates.rules import Optimiser
from lib.dynamics.in_coordinates.training import Path, train

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
    arrays = tokens.X, tokens.y, tokens.z, tokens.u, tokens.opt
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
    sources = closure("from lib.dynamics.in_coordinates import loop")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _together(paths):
    def joined(name):
        return np.concatenate([getattr(path, name) for path in paths])

    arrays = {name: joined(name) for name in _ARRAYS if name != "iterations"}
    return replace(paths[0], **arrays)
