"""Run pages on Dask.

Papermill runs each in a folder of its own, which one rename publishes.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from filelock import FileLock, Timeout

from companion import record, stored
from companion.batch.job import Job, Marker
from lib import files

# An outcome reports a lost scheduler or a slow cell in one sentence. asyncio would log
# forty lines.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


class Outcome(NamedTuple):
    """How a run ended.

    Parameters
    ----------
    seconds : float
        How long it took.
    error : str, optional
        The error, if any, in one line.
    note : str, optional
        What else to say of it.
    """

    seconds: float
    error: str | None = None
    note: str = ""


# On Dask.


def outcomes(jobs: list[Job], asked: Namespace) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs on Dask.

    Parameters
    ----------
    jobs : list of Job
        The jobs, the most urgent first.
    asked : Namespace
        The options scheduler, workers and timeout of the command, and `refuse`.

    Yields
    ------
    job : Job
        Each job as it ends.
    outcome : Outcome
        How it ended.
    """
    if not jobs:
        return
    from dask.system import CPU_COUNT  # in a container this is the container's share
    from distributed import as_completed

    workers = min(asked.workers or CPU_COUNT, len(jobs))
    client = _client(workers, asked)
    if asked.scheduler:
        threads = None
    else:
        threads = max(1, CPU_COUNT // workers)
    futures = {}
    for place, job in enumerate(jobs):
        future = client.submit(
            run,
            job,
            threads=threads,
            timeout=asked.timeout,
            pure=False,
            priority=-place,
        )
        futures[future] = job
    for future in as_completed(futures):
        if future.status == "finished":
            yield futures[future], future.result()
        else:
            yield futures[future], Outcome(0.0, "its worker or the scheduler was lost")
    client.close()


def _client(workers: int, asked: Namespace):
    """Return a client of the given scheduler, else of a cluster of this machine."""
    import dask
    from distributed import Client

    # No second try: a notebook that used up a worker's memory would use up the next
    # one's too.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    dask.config.set({"distributed.logging.distributed": "critical"})
    # Kernels compute and workers wait. By default a worker would look a hundred times
    # a second at what it does, which costs a waiting one 4 % of a core.
    dask.config.set({"distributed.worker.profile.enabled": False})
    dask.config.set({"distributed.admin.tick.interval": "500ms"})
    # The workers never see the terminal's Ctrl-C, of which each would print a
    # traceback: they inherit from the thread that starts them that it is blocked. This
    # thread waits for them and does see it. What starts a tracker of resources lets the
    # signal through again, so the tracker has to run before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        starter = ThreadPoolExecutor(max_workers=1)
        if asked.scheduler:
            future = starter.submit(Client, asked.scheduler, timeout=10)
        else:
            future = starter.submit(
                Client,
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # the memory is in the kernels, which Dask does not see
                host="127.0.0.1",
                # Seen from this machine alone, at any free port: another batch may have
                # a fixed one.
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.FATAL + 10,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        return future.result()
    except (OSError, ValueError) as error:
        asked.refuse(
            f"no Dask scheduler answers at {asked.scheduler} ({type(error).__name__})"
        )
    finally:
        starter.shutdown()


# One page.

# Environment, working folder and log of a run belong to the whole process.
_one_notebook_per_process = threading.Lock()


def run(job: Job, threads: int | None, timeout: float | None) -> Outcome:
    """Run a page and publish what it made.

    Parameters
    ----------
    job : Job
        The page at its scale.
    threads : int or None
        The threads of its kernel; None for those of the worker.
    timeout : float or None
        The longest time for a cell, in seconds; None for no limit.

    Returns
    -------
    Outcome
        With the error, if any: a page that fails leaves the others alone. The results
        of an earlier run then stay as they are; what there is of this one lies in
        `job.work`.
    """
    begin = time.monotonic()
    error = None
    note = ""
    try:
        job.work.parent.mkdir(parents=True, exist_ok=True)
        with _one_notebook_per_process, FileLock(job.lock, timeout=0):
            files.remove(job.work)
            job.work.mkdir()
            with _surroundings(job, threads):
                _papermill(job, timeout)
            note = publish(job)
    except Timeout:
        error = "another batch runs it"
    except TimeoutError:
        error = f"a cell took longer than {timeout:g} s"
    except OSError as exception:
        # a full disk names no file
        exception.filename = exception.filename or str(job.work)
        error = f"{type(exception).__name__}: {files.sentence(exception)}"
    except Exception as exception:
        error = _said(exception)
    return Outcome(seconds=time.monotonic() - begin, error=error, note=note)


def _said(exception: Exception) -> str:
    """Write an error in one line.

    An error in a cell has the name and words of the cell's exception, other errors
    their own.
    """
    name = getattr(exception, "ename", None) or type(exception).__name__
    lines = str(getattr(exception, "evalue", None) or exception).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name


@contextlib.contextmanager
def _surroundings(job: Job, threads: int | None) -> Generator[None]:
    """Set the environment for the kernel.

    All output of child processes goes to the job's log.
    """
    if threads is None:
        from distributed import get_worker

        threads = get_worker().state.nthreads
    changes = {
        **job.folders,
        record.TOLD: job.work,
        "PYTHONPATH": os.pathsep.join(
            [str(files.ROOT), os.environ.get("PYTHONPATH", "")]
        ),
        "PYTHONHASHSEED": 0,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": 1,
        # Threads that wait actively take the cores from each other.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Otherwise glibc returns pages to the system and requests them again at each
        # step.
        "MALLOC_TRIM_THRESHOLD_": 2**32,
        "MALLOC_MMAP_THRESHOLD_": 2**32,
    }
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        changes[name] = threads
    changes |= _data_folder()
    streams = {number: os.dup(number) for number in (1, 2)}
    with open(job.work / "kernel.log", "wb") as log:
        for number in streams:
            os.dup2(log.fileno(), number)
    try:
        with mock.patch.dict(
            os.environ, {name: str(value) for name, value in changes.items()}
        ):
            yield
    finally:
        for number, stream in streams.items():
            os.dup2(stream, number)
            os.close(stream)


def _data_folder() -> dict[str, Path]:
    """Return DATA_DIR as an absolute path, as the kernel has another working folder."""
    given = os.environ.get("DATA_DIR")
    if not given:
        return {}
    path = Path(given).expanduser().absolute()
    # otherwise it may be relative to the repository
    if path.exists():
        return {"DATA_DIR": path}
    return {}


def _papermill(job: Job, timeout: float | None) -> None:
    """Execute the page; a second time only if no kernel came up.

    Two kernels may race for a port.
    """
    import jupytext
    import papermill

    notebook = jupytext.reads(job.page, fmt="py:percent")
    notebook.metadata["kernelspec"] = stored.KERNEL

    def execute() -> None:
        papermill.execute_notebook(
            notebook,
            str(job.work / job.executed),
            kernel_name="python3",
            progress_bar=False,
            cwd=job.folders["NOTEBOOKS_DIR"],
            start_timeout=180,
            execution_timeout=timeout,
            parameters=dict(job.overrides),
        )

    try:
        execute()
    except RuntimeError as error:
        # An error in a cell has another class, and a kernel that dies during a cell a
        # subclass.
        if type(error) is not RuntimeError:
            raise
        execute()


def publish(job: Job) -> str:
    """Put the folder of a finished run in the place of the last one's.

    Parameters
    ----------
    job : Job
        A job whose run has ended well.

    Returns
    -------
    str
        What else to say of it.

    Raises
    ------
    ValueError
        With its path, if the run has written a record that is none.
    OSError
        If the folder cannot be moved; the last one's results then stay.
    """
    paths = [
        path for path in sorted(job.work.glob("*.json")) if path.name != record.MARKER
    ]
    records = {path: record.read(path) for path in paths}
    names = [job.executed]
    for path in records:
        names += [path.with_suffix(end).name for end in record.ENDS]
    marker = Marker(
        inputs=dict(job.inputs),
        data=[row for saved in records.values() for row in saved["data"]],
        hashes={name: files.sha256((job.work / name).read_bytes()) for name in names},
    )
    files.write(job.work / record.MARKER, marker.dumps())
    files.replace_folder(job.work, job.results)
    return "" if records else "  (no figure saved)"
