"""Runs that are kept one by one, so that an interrupted map goes on where it stopped."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache
from pathlib import Path as File

import numba
import numpy as np
from tqdm.auto import tqdm

from lib import files
from lib.attention.token_sets import TokenSet
from lib.provenance import closure
from papers.beyond.engine import training
from papers.beyond.engine.optimisers import Optimiser
from papers.beyond.engine.training import Path

_ARRAYS = [field.name for field in fields(Path) if field.name != "optimiser"]


def train(
    tokens: TokenSet,
    optimisers: Mapping[str, Optimiser],
    steps: int,
    record: Sequence[int],
    folder: File,
) -> dict[str, Path]:
    """What `training.train` returns from W_0 = 0, each run of each rule in a file under `folder`.

    A file's name is a hash of its run's tokens, rule, horizon, records and of the code of the loop;
    a file that cannot be read is made again. Raises what `training.train` raises, and OSError where
    `folder` cannot be written.
    """
    runs = range(len(tokens.X))
    jobs = [(run, name) for name in optimisers for run in runs]
    bar = tqdm(total=len(jobs), desc="runs")

    def work(job):
        run, name = job
        path = _run(tokens.run(run), optimisers[name], steps, record, run, File(folder))
        bar.update()
        return path

    first = [work(jobs[0])]  # compiles
    with bar, ThreadPoolExecutor(numba.get_num_threads()) as pool:
        paths = dict(zip(jobs, first + list(pool.map(work, jobs[1:])), strict=True))
    return {name: _together([paths[run, name] for run in runs]) for name in optimisers}


def _run(tokens, optimiser, steps, record, seed, folder):
    arrays = tokens.X, tokens.y, tokens.z, tokens.u, tokens.opt
    key = repr((_code(), optimiser, steps, list(map(int, record)), seed)).encode()
    content = key + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    file = folder / f"{files.sha256(content)}.npz"
    try:
        with open(file, "rb") as stream, np.load(stream) as saved:
            return Path(optimiser, *(saved[name] for name in _ARRAYS))
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
        path = training.train(tokens, optimiser, steps, record=record, seeds=[seed])
    written = io.BytesIO()
    np.savez(written, **{name: getattr(path, name) for name in _ARRAYS})
    files.write(file, written.getvalue())
    return path


@cache
def _code() -> str:
    sources = closure("from papers.beyond.engine import loop")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _together(paths):
    by_run = [name for name in _ARRAYS if name != "iterations"]
    arrays = {name: np.concatenate([getattr(path, name) for path in paths]) for name in by_run}
    return Path(paths[0].optimiser, paths[0].iterations, **arrays)
