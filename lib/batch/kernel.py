"""One notebook, executed in this process: run it from its .py through papermill."""

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

from lib.batch.job import Job, Outcome, in_words
from lib.companion.notebook_cells import KERNEL

# Environment, working folder and log of a run belong to the whole worker process.
_one_notebook_per_process = threading.Lock()


def run(job: Job, threads: int | None, timeout: float | None) -> Outcome:
    """Run one notebook in this process; whatever goes wrong is in the outcome."""
    start, work, error = time.monotonic(), None, None
    with _one_notebook_per_process:
        try:
            work = _prepared(job)
            with _surroundings(job, work, threads or _threads_of_worker()):
                _papermill(job, work, timeout)
        except TimeoutError:
            error = f"a cell took longer than {timeout:g} s"
        except Exception as exception:  # any failure of one notebook must leave the others alone
            error = in_words(exception)
        finally:
            _keep_copy(job, work)
    return Outcome(job, time.monotonic() - start, error, work)


def _prepared(job: Job) -> Path:
    """A folder for this run alone; what an earlier run left, its marker first, is gone."""
    if not job.custom:
        job.marker.unlink(missing_ok=True)
    shutil.rmtree(job.home, ignore_errors=True)
    job.home.mkdir(parents=True)
    job.copy.unlink(missing_ok=True)
    return job.home if job.custom else Path(tempfile.mkdtemp(dir=job.home, prefix="run-"))


def _keep_copy(job: Job, work: Path | None) -> None:
    with contextlib.suppress(OSError):
        if work is not None:
            os.replace(work / job.copy.name, job.copy)


def _threads_of_worker() -> int:
    from distributed import get_worker

    return get_worker().state.nthreads


@contextlib.contextmanager
def _surroundings(job: Job, work: Path, threads: int):
    """Environment for the kernel; all that processes below print goes to the job's log."""
    changes = {
        "FIGURES_DIR": work / "figures",
        "RUNS_DIR": job.runs_folder,
        "NOTEBOOKS_DIR": job.notebooks_folder,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(job.root), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": 0,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": 1,
        # On a busy machine, threads that wait actively take the cores from each other.
        "OMP_WAIT_POLICY": "PASSIVE",
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads),
        # glibc gives a freed tensor's pages back and fetches them again at the next step: 4 of 10
        # CPU seconds of a ViT.
        **dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 2**32),
    }
    before = dict(os.environ)
    os.environ.update({name: str(value) for name, value in changes.items()})
    streams = [os.dup(1), os.dup(2)]
    with open(job.home / "kernel.log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        for number, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(before)


def _papermill(job: Job, work: Path, timeout: float | None) -> None:
    """Execute once; a second time only when the kernel never came up.

    Two kernels may race for a port.
    """
    import jupytext
    import papermill

    notebook = jupytext.reads(job.text, fmt="py:percent")
    notebook.metadata["kernelspec"] = KERNEL
    copy = work / job.copy.name
    for retry in (True, False):
        try:
            papermill.execute_notebook(
                notebook,
                str(copy),
                parameters=dict(job.overrides),
                kernel_name="python3",
                progress_bar=False,
                start_timeout=180,
                execution_timeout=timeout,
                cwd=str(job.notebooks_folder),
            )
            return
        except RuntimeError:
            if not retry or _started(copy):
                raise


def _started(copy: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
        return any(cell.get("execution_count") or cell.get("outputs") for cell in cells)
    return False
