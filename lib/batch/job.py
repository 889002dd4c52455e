"""One notebook, executed: run it from its .py through papermill, publish its figures, store its outputs."""

import contextlib
import json
import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from lib import files, provenance
from lib.companion.notebook_cells import KERNEL, without_widget
from lib.files import folder

# Environment, working folder and log of a run belong to the whole worker process.
_one_notebook_per_process = threading.Lock()


@dataclass(frozen=True)
class Job:
    """One notebook at one scale. `overrides` go to papermill; `parts` is its fingerprint without the data."""

    notebook: str
    scale: str
    overrides: dict
    text: str
    parts: dict
    custom: bool
    # Where things lie for whoever plans the job; a worker on another machine may see other
    # defaults.
    root: Path = files.ROOT
    figures_folder: Path = field(default_factory=lambda: folder("figures"))
    runs_folder: Path = field(default_factory=lambda: folder("runs"))
    notebooks_folder: Path = field(default_factory=lambda: folder("notebooks"))

    @property
    def home(self) -> Path:
        """Folder of the staged figures and the kernel's log."""
        if self.custom:
            return (
                self.runs_folder
                / "custom"
                / f"{self.notebook}-{provenance.digest(self.overrides)[:8]}"
            )
        return self.runs_folder / self.scale / self.notebook

    @property
    def copy(self) -> Path:
        """The executed notebook."""
        return (
            self.home / f"{self.notebook}.ipynb" if self.custom else self.home.with_suffix(".ipynb")
        )

    @property
    def marker(self) -> Path:
        """The file that says a run has succeeded, and with what."""
        return self.home.with_suffix(".json")

    @property
    def figures(self) -> Path:
        """Where the finished figures of this job lie."""
        return (self.home / "figures" if self.custom else self.figures_folder) / self.scale


@contextlib.contextmanager
def _surroundings(job: Job, threads: int):
    """Environment for the kernel, and everything that processes below print sent to the job's log."""
    changes = {
        "FIGURES_DIR": job.home / "figures",
        "RUNS_DIR": job.runs_folder,
        "NOTEBOOKS_DIR": job.notebooks_folder,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(job.root), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": 0,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": 1,
        "OMP_WAIT_POLICY": "PASSIVE",  # on a busy machine, threads that wait actively take the cores from each other
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads),
        # glibc gives a freed tensor's pages back and fetches them again at the next step: 4 of 10
        # CPU seconds of a ViT
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


def _started(copy: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
        return any(cell.get("execution_count") or cell.get("outputs") for cell in cells)
    return False


def _papermill(job: Job, timeout: float | None) -> None:
    """Execute once; a second time only when the kernel never came up, as when two kernels race for a port."""
    import jupytext
    import papermill

    notebook = jupytext.reads(job.text, fmt="py:percent")
    notebook.metadata["kernelspec"] = KERNEL
    for retry in (True, False):
        try:
            papermill.execute_notebook(
                notebook,
                str(job.copy),
                parameters=job.overrides,
                kernel_name="python3",
                progress_bar=False,
                start_timeout=180,
                execution_timeout=timeout,
                cwd=str(job.notebooks_folder),
            )
            return
        except RuntimeError:
            if not retry or _started(job.copy):
                raise


def _words(error: BaseException) -> str:
    kind = getattr(error, "ename", None) or type(error).__name__
    text = str(getattr(error, "evalue", None) or error).strip()
    return f"{kind}: {text.splitlines()[0]}" if text else kind


def execute(job: Job, threads: int | None, timeout: float | None) -> tuple[float, str | None]:
    """Run one notebook in this process; return its seconds and, when it failed, why."""
    start = time.monotonic()
    with _one_notebook_per_process:
        if threads is None:
            from distributed import get_worker

            threads = get_worker().state.nthreads
        if not job.custom:
            job.marker.unlink(missing_ok=True)
        shutil.rmtree(job.home, ignore_errors=True)
        job.home.mkdir(parents=True)
        job.copy.unlink(missing_ok=True)
        error = None
        try:
            with _surroundings(job, threads):
                _papermill(job, timeout)
        except TimeoutError:
            error = f"a cell took longer than {timeout:g} s"
        except Exception as exception:  # any failure of one notebook must leave the others alone
            error = _words(exception)
    return time.monotonic() - start, error


def stand_in(job: Job) -> bool:
    """Whether a figure of a larger scale was made from embedded data, for want of the real ones.

    Such a figure must not take the place of the real one: it stays staged, and the job never counts
    as up to date.
    """
    records = (job.home / "figures" / job.scale).glob("*.json")
    rows = [row for path in records for row in json.loads(path.read_text(encoding="utf-8"))["data"]]
    return job.scale != "demo" and any(row["source"] == "demo" for row in rows)


def publish(job: Job, seconds: float) -> list[str]:
    """Move the staged figures to figures/<scale>/ and then write the marker; return their names."""
    written, data = {}, []
    staged = (p for p in (job.home / "figures" / job.scale).glob("*") if not p.name.startswith("."))
    for path in sorted(staged, key=lambda p: (p.stem, p.suffix == ".json", p.suffix)):
        content = path.read_bytes()
        if path.suffix == ".json":
            data += [row for row in json.loads(content)["data"] if row not in data]
        files.write(job.figures / path.name, content)
        written[path.name] = files.sha256(content)
    shutil.rmtree(job.home / "figures", ignore_errors=True)
    marker = {**job.parts, "data": data, "figures": written, "seconds": round(seconds, 1)}
    files.write(job.marker, files.dumps(marker).encode())
    return list(written)


def store(job: Job) -> None:
    """Write the executed cells of the demo run, with their outputs, into the .ipynb beside the .py."""
    import jupytext
    import nbformat

    from lib.companion import colab_cell

    source = jupytext.reads(job.text, fmt="py:percent")
    executed = nbformat.read(job.copy, as_version=4)
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for place, (cell, ran) in enumerate(zip(source.cells, executed.cells, strict=True)):
        cell.id = f"cell-{place:02d}"
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = (
                list(map(without_widget, ran.outputs)),
                ran.execution_count,
            )
        notebook.cells.append(cell)
    notebook.cells = colab_cell.opened(notebook.cells)
    nbformat.validate(notebook)
    files.write(
        job.notebooks_folder / f"{job.notebook}.ipynb", (nbformat.writes(notebook) + "\n").encode()
    )
