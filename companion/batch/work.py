"""Run pages on Dask.

Papermill runs each page in its own folder. A single rename publishes this folder.
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

# An `Outcome` reports a lost scheduler or a slow cell in one sentence. Without the next
# line of code, asyncio would also log forty lines about it.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


class Outcome(NamedTuple):
    """How a run ended.

    Parameters
    ----------
    seconds : float
        How long the run took.
    error : str, optional
        The error, if there was one, in one line.
    note : str, optional
        A remark on the run.
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
        The jobs, in descending order of priority.
    asked : Namespace
        The options scheduler, workers and timeout of the command, and `refuse`, which
        is called if no scheduler answers.

    Yields
    ------
    job : Job
        Each job as it ends.
    outcome : Outcome
        How the job ended.
    """
    if not jobs:
        return
    from dask.system import CPU_COUNT  # in a container, this is the container's share
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
    """Return a client of the given scheduler, or of a new cluster on this machine.

    If no scheduler answers, the function calls `asked.refuse`, which ends the process.
    """
    import dask
    from distributed import Client

    # Dask must not try again: a notebook that used up one worker's memory would use up
    # the next worker's too.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    dask.config.set({"distributed.logging.distributed": "critical"})
    # The kernels compute, and the workers only wait. By default a worker would profile
    # itself a hundred times per second, which takes 4 % of a core while it waits.
    dask.config.set({"distributed.worker.profile.enabled": False})
    dask.config.set({"distributed.admin.tick.interval": "500ms"})
    # The workers must not receive the terminal's Ctrl-C, because each would print a
    # traceback. So the thread that starts the workers blocks the signal, and the
    # workers inherit this. The present thread waits for the workers and still receives
    # the signal. Starting a resource tracker would unblock the signal again, so the
    # tracker has to be started earlier.
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
                # The kernels use the memory, and Dask does not see the kernels.
                memory_limit=0,
                host="127.0.0.1",
                # The dashboard is reachable only from this machine. It uses any free
                # port, because another batch may occupy a fixed port.
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.FATAL + 10,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        return future.result()
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        if asked.scheduler:
            asked.refuse(f"no Dask scheduler answers at {asked.scheduler} ({kind})")
        asked.refuse(f"the processes of this batch cannot be started ({kind}: {error})")
    finally:
        starter.shutdown()


# One page.

# The environment, the working folder and the log of a run belong to the whole process,
# so only one notebook may run in a process at a time.
_one_notebook_per_process = threading.Lock()


def run(job: Job, threads: int | None, timeout: float | None) -> Outcome:
    """Run a page and publish its results.

    Parameters
    ----------
    job : Job
        The page at its scale.
    threads : int or None
        The number of threads of the page's kernel. If it is None, the kernel has as
        many as the worker.
    timeout : float or None
        The longest time that a cell may take, in seconds. None means no limit.

    Returns
    -------
    Outcome
        How the run ended. An error of the page is returned here and not raised, so that
        other pages still run. After an error, the results of an earlier run stay as
        they are, and the incomplete results of this run are in `job.work`.
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
    except TimeoutError as exception:
        if timeout is None:  # A file system or a network may time out, too.
            error = f"TimeoutError: {exception}"
        else:
            error = f"a cell took longer than {timeout:g} s"
    except OSError as exception:
        # If the disk is full, the error of the operating system names no file.
        exception.filename = exception.filename or str(job.work)
        error = f"{type(exception).__name__}: {files.sentence(exception)}"
    except Exception as exception:
        error = _said(exception)
    return Outcome(seconds=time.monotonic() - begin, error=error, note=note)


def _said(exception: Exception) -> str:
    """Return an error in one line.

    For an error in a cell, the line has the name and message of the cell's exception.
    """
    name = getattr(exception, "ename", None) or type(exception).__name__
    lines = str(getattr(exception, "evalue", None) or exception).strip().splitlines()
    if not lines:
        return name
    return f"{name}: {lines[0]}"


@contextlib.contextmanager
def _surroundings(job: Job, threads: int | None) -> Generator[None]:
    """Set the environment for the kernel, and undo this at the end.

    Until then, all output of this process and its children goes to the job's log.
    `threads` is the number of the kernel's threads. If it is None, the kernel has as
    many as the worker.
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
        "TQDM_DISABLE": 1,  # no progress bars in the stored notebook
        # Threads that wait actively take cores away from each other.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Otherwise glibc returns memory pages to the system and requests them again at
        # each training step.
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
    """Return DATA_DIR as an absolute path. The kernel has another working folder.

    The dict is empty if DATA_DIR is not set, or if no folder is at its absolute path.
    """
    given = os.environ.get("DATA_DIR")
    if not given:
        return {}
    path = Path(given).expanduser().absolute()
    # If this path does not exist, DATA_DIR may be relative to the repository.
    if path.exists():
        return {"DATA_DIR": path}
    return {}


def _papermill(job: Job, timeout: float | None) -> None:
    """Execute the page, and try again if the page's kernel did not start.

    A kernel may fail to start because another kernel took its port.
    """
    import jupytext
    import papermill
    from traitlets.config import Config

    # The kernel's connection file has a key. Jupyter would write this file into the
    # system's temporary folder, where it would stay if the kernel were killed.
    connection = {"connection_file": str(job.work / "connection.json")}
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
            config=Config(ConnectionFileMixin=connection),
        )

    try:
        execute()
    except RuntimeError as error:
        # Only a kernel that did not start raises exactly RuntimeError. An error in a
        # cell has another class, and a kernel that dies later raises a subclass.
        if type(error) is not RuntimeError:
            raise
        execute()


def publish(job: Job) -> str:
    """Replace the folder of the last run's results by that of a finished run.

    Parameters
    ----------
    job : Job
        A job whose run has ended well.

    Returns
    -------
    str
        A remark if the run has saved no figure; otherwise an empty text.

    Raises
    ------
    ValueError
        If the run has written a record that is not valid. The message names its path.
    OSError
        If a picture of a record or the notebook is missing, or if the folder cannot be
        moved. In these cases the results of the last run stay.
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
    if not records:
        return "  (no figure saved)"
    return ""
