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
_BY_RUN = [name for name in _ARRAYS if name != "iterations"]


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
    jobs = [(run, name) for name in optimisers for run in range(len(tokens.X))]
    bar = tqdm(total=len(jobs), desc="runs")

    def one(job):
        run, name = job
        path = _run(tokens.run(run), optimisers[name], steps, record, run, File(folder))
        bar.update()
        return path

    first = [one(jobs[0])]  # compiles
    with bar, ThreadPoolExecutor(numba.get_num_threads()) as pool:
        done = dict(zip(jobs, first + list(pool.map(one, jobs[1:])), strict=True))
    return {
        name: _together([done[run, name] for run in range(len(tokens.X))]) for name in optimisers
    }


def _run(alone, optimiser, steps, record, seed, folder):
    name = _name(alone, optimiser, steps, record, seed)
    kept = _load(folder / name, optimiser)
    if kept is None:
        kept = training.train(alone, optimiser, steps, record=record, seeds=[seed])
        content = io.BytesIO()
        np.savez(content, **{name: getattr(kept, name) for name in _ARRAYS})
        files.write(folder / name, content.getvalue())
    return kept


def _name(alone, optimiser, steps, record, seed):
    arrays = alone.X, alone.y, alone.z, alone.u, alone.opt
    told = repr((_code(), optimiser, steps, list(map(int, record)), seed)).encode()
    return files.sha256(told + b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)) + ".npz"


@cache
def _code() -> str:
    sources = closure("from papers.beyond.engine import loop")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _load(path, optimiser):
    try:
        with open(path, "rb") as stream, np.load(stream) as file:
            return Path(optimiser, *(file[name] for name in _ARRAYS))
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
        return None


def _together(paths):
    parts = {name: np.concatenate([getattr(p, name) for p in paths]) for name in _BY_RUN}
    return Path(paths[0].optimiser, paths[0].iterations, **parts)
