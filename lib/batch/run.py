"""Run notebooks from their .py through papermill on Dask, and publish the figures of a success.

Figures are staged in a folder of their run and reach figures/<scale>/ all together, or not at all.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from unittest import mock

from lib import files
from lib.batch.plan import Job, UsageError
from lib.companion import colab_cell, record

# Of a lost scheduler or a slow cell an outcome tells in a sentence; asyncio would in forty lines.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class _Outcome:
    """How a job went: its seconds, its error if any, the folder of what this run made."""

    job: Job
    seconds: float = 0.0
    error: str | None = None
    work: Path | None = None


def _in_words(error: BaseException) -> str:
    """An error as one line: its kind and the first line of its text."""
    kind = getattr(error, "ename", None) or type(error).__name__
    text = str(getattr(error, "evalue", None) or error).strip()
    return f"{kind}: {text.splitlines()[0]}" if text else kind


# On a worker. Environment, working folder and log of a run belong to the whole process.
_one_notebook_per_process = threading.Lock()


def _run(job: Job, threads: int | None, timeout: float | None) -> _Outcome:
    """Run one notebook in this process; whatever goes wrong is in the outcome.

    threads: of its kernel, None for those of the worker. timeout: longest seconds of a cell.
    """
    with _one_notebook_per_process:
        begin, work, error = time.monotonic(), None, None
        try:
            for path in (job.marker, job.copy):
                path.unlink(missing_ok=True)
            shutil.rmtree(job.home, ignore_errors=True)
            job.home.mkdir(parents=True)
            work = Path(tempfile.mkdtemp(dir=job.home, prefix="run-"))
            with _surroundings(job, work, threads):
                _papermill(job, work / job.copy.name, timeout)
        except TimeoutError:
            error = f"a cell took longer than {timeout:g} s"
        except Exception as exception:  # a notebook that fails must leave the others alone
            error = _in_words(exception)
        if work is not None and (work / job.copy.name).exists():
            os.replace(work / job.copy.name, job.copy)
        return _Outcome(job, round(time.monotonic() - begin, 1), error, work)


@contextlib.contextmanager
def _surroundings(job: Job, work: Path, threads: int | None):
    """Environment for the kernel; all that processes below print goes to the job's log."""
    if threads is None:
        from distributed import get_worker

        threads = get_worker().state.nthreads
    counts = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"
    kept = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
    changes = {
        **job.folders,
        "FIGURES_DIR": work / "figures",
        "PYTHONPATH": os.pathsep.join([str(files.ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONHASHSEED": 0,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": 1,
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait actively take the cores from each other
        **dict.fromkeys(counts, threads),
        **dict.fromkeys(kept, 2**32),  # else glibc gives pages back and fetches them at each step
    }
    streams = {number: os.dup(number) for number in (1, 2)}
    with open(job.home / "kernel.log", "wb") as log:
        for number in streams:
            os.dup2(log.fileno(), number)
    try:
        with mock.patch.dict(os.environ, {name: str(value) for name, value in changes.items()}):
            yield
    finally:
        for number, stream in streams.items():
            os.dup2(stream, number)
            os.close(stream)


def _papermill(job: Job, copy: Path, timeout: float | None) -> None:
    """Execute once; a second time only when no kernel came up: two may race for a port."""
    import jupytext
    import papermill

    notebook = jupytext.reads(job.text, fmt="py:percent")
    notebook.metadata["kernelspec"] = colab_cell.KERNEL
    options = dict(kernel_name="python3", progress_bar=False, cwd=job.folders["NOTEBOOKS_DIR"])
    options |= dict(start_timeout=180, execution_timeout=timeout, parameters=dict(job.overrides))
    try:
        papermill.execute_notebook(notebook, str(copy), **options)
    except RuntimeError as error:
        # Of a cell it is another class, of a kernel that dies under a cell a subclass.
        if type(error) is not RuntimeError:
            raise
        papermill.execute_notebook(notebook, str(copy), **options)


# In the process of the command.


def execute(
    jobs: Iterable[Job], client, threads: int | None, timeout: float | None
) -> Iterator[_Outcome]:
    """The outcomes of the jobs on a Dask `client`, in the order in which they end.

    A job is locked against other batches until the next outcome is asked for, and so while its
    figures are published. threads and timeout are those of `_run`.
    """
    from distributed import as_completed
    from filelock import FileLock, Timeout

    futures = {}
    with contextlib.ExitStack() as locks:
        for place, job in enumerate(jobs):
            try:
                lock = FileLock(job.home.with_name(f"{job.home.name}.lock"))
                job.home.parent.mkdir(parents=True, exist_ok=True)
                locks.enter_context(lock.acquire(blocking=False))
            except OSError as error:
                busy = isinstance(error, Timeout)
                yield _Outcome(job, error="another batch runs it" if busy else _in_words(error))
                continue
            future = client.submit(_run, job, threads, timeout, pure=False, priority=-place)
            futures[future] = job, lock
        for future in as_completed(futures):
            job, lock = futures[future]
            if future.status == "finished":
                yield future.result()
            else:  # "error" of the worker, or "cancelled" where the scheduler went
                lost = "worker" if future.status == "error" else "scheduler"
                yield _Outcome(job, error=f"the {lost} was lost")
            lock.release()


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int):
    """A Dask client of the scheduler at an address, or of `workers` processes of this machine.

    Raises UsageError where no scheduler answers. An interrupt ends the process, see `stop`.
    """
    import dask
    from distributed import Client

    # Not tried again: the notebook that took a worker's memory would take the next one's too.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    dask.config.set({"distributed.logging.distributed": "critical"})
    # The memory is in the kernels, which Dask does not see; another batch may have any fixed port.
    local = dict(memory_limit=0, dashboard_address=":0", silence_logs=60)
    local |= dict(n_workers=workers, threads_per_worker=1, processes=True)
    # The workers never see the terminal's Ctrl-C, of which each would print a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        client = Client(scheduler, timeout=10) if scheduler else Client(**local)
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        raise UsageError(f"no Dask scheduler answers at {scheduler} ({kind})") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with client:
        try:
            yield client
        except KeyboardInterrupt:
            stop()


def stop() -> NoReturn:
    """End this process, its workers and their kernels at once, with status 130.

    Kernels get no Ctrl-C, and Dask would wait for running notebooks.
    """
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    words = "Interrupted; what is finished stays, the rest runs next time."
    print(words, file=sys.stderr, flush=True)
    os._exit(130)


# What becomes of a run that has ended.


def publish(outcome: _Outcome) -> tuple[str | None, str]:
    """Publish the figures of a run that succeeded: why that failed, if so, and what else to say."""
    job = outcome.job
    if outcome.error or job.changes:
        return outcome.error, f"  ({os.path.relpath(job.copy)})"
    staged = outcome.work / "figures" / job.scale
    stay = f"the figures stay in {os.path.relpath(staged)}"
    try:
        records = {path: record.read(path) for path in sorted(staged.glob("*.json"))}
        data = [row for saved in records.values() for row in saved["data"]]
        # Embedded data must not take the place of real ones; the job never counts as up to date.
        if job.scale != "demo" and any(row["source"] == "demo" for row in data):
            return None, f"  (embedded data, not the real ones: {stay})"
        new, hashes = {}, {}
        for path, saved in records.items():
            # A ledger has a table beside its picture; the record is written last.
            names = [path.stem + end for end in (".md", ".png", ".pdf", ".json")]
            parts = [staged / name for name in names if (staged / name).exists()]
            content = {job.figures / part.name: part.read_bytes() for part in parts}
            picture = content[job.figures / f"{path.stem}.png"]
            if record.reproduces(saved, picture, job.figures / path.name):
                content = {place: place.read_bytes() for place in content if place.exists()}
            else:
                new |= content
            hashes |= {place.name: files.sha256(part) for place, part in content.items()}
        marker = {**job.parts, "data": data, "figures": hashes, "seconds": outcome.seconds}
        files.write_all({**new, job.marker: files.dumps(marker).encode()})
        shutil.rmtree(outcome.work, ignore_errors=True)
        return None, "" if records else "  (no figure saved)"
    except (OSError, ValueError) as error:
        return f"not published, {_in_words(error)}", f"  ({stay})"


def store(job: Job) -> str | None:
    """Write the executed copy into the .ipynb beside the .py; why it failed, if it did."""
    import nbformat

    try:
        notebook = colab_cell.storable(nbformat.read(job.copy, as_version=4))
        text = nbformat.writes(notebook) + "\n"
        files.write(Path(job.folders["NOTEBOOKS_DIR"], f"{job.notebook}.ipynb"), text.encode())
        return None
    except (OSError, ValueError) as error:
        return _in_words(error)
