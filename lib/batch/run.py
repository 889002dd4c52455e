"""Plan, run, publish and compare notebooks. What is not up to date runs from its .py, by
papermill on Dask; its figures reach figures/<scale>/ all together, or not at all."""

import argparse
import ast
import contextlib
import json
import logging
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from filelock import FileLock, Timeout

from lib import files, provenance
from lib.companion import colab_cell, record
from lib.companion.claims import Claim, Table

# Of a lost scheduler or a slow cell an outcome tells in a sentence; asyncio would in forty lines.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


@dataclass(frozen=True, eq=False)
class _Job:
    """One notebook at one scale, as whoever plans it sees it: a worker may have another view.

    `page` is its text, `overrides` go to papermill; `parts` is its fingerprint without the
    data; `changes` is what nobody committed. A run leaves its files in `home`, its figures
    in `figures`; `folders` are the project's, by environment variable."""

    notebook: str
    scale: str
    page: str
    overrides: Mapping
    parts: Mapping
    changes: Mapping
    home: Path
    figures: Path
    folders: Mapping[str, str]

    @property
    def copy(self) -> Path:
        """The executed notebook."""
        return self.home.with_suffix(".ipynb")

    @property
    def marker(self) -> Path:
        """The file of a success, which says with what."""
        return self.home.with_suffix(".json")


# The command.


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 where a notebook failed or a number or claim is not
    reproduced, 2 for bad usage, 130 where interrupted."""
    asked = _options(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        jobs = _plan(asked)
    except ValueError as error:
        asked.refuse(str(error))
    todo = [job for job, reason in jobs.items() if reason]
    for job in todo:
        print(f"run  {job.notebook}: {jobs[job]}")
    print(f"{len(jobs) - len(todo)} up to date, {len(todo)} to run", flush=True)
    try:
        return 0 if asked.dry_run else _carry_out([*jobs], todo, asked)
    except KeyboardInterrupt:
        _stop()


def _options(argv: list[str] | None) -> argparse.Namespace:
    """The command line; its `refuse` says a sentence and ends the process."""
    usage = "python -m lib.batch [NAME ...] [options]"
    parser = argparse.ArgumentParser("lib.batch", usage, "Run notebooks headless.")
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="a notebook or the start of its name; default all")
    add("--scale", choices=record.SCALES, default="demo")
    text = "another value for a parameter, KEY=VALUE; such figures go to runs/custom/"
    add("--set", type=_setting, action="append", dest="settings", default=[], help=text)
    add("--scheduler", metavar="ADDRESS", help="of Dask; default: a cluster of this machine")
    add("--workers", type=int, metavar="N", help="notebooks at a time; default: as many as cores")
    add("--timeout", type=float, metavar="SECONDS", help="longest time for a cell; default: none")
    add("--force", action="store_true", help="run even what is up to date")
    add("--dry-run", action="store_true", help="only say what would run, and why")
    add("--store", action="store_true", help="write the demo outputs into the .ipynb files")
    parser.set_defaults(refuse=parser.error)
    asked = parser.parse_args(argv)
    asked.settings = dict(asked.settings)
    if asked.store and (asked.scale != "demo" or asked.settings):
        parser.error("--store keeps the demo scale as it is; leave out --scale and --set")
    if "scale" in asked.settings:
        parser.error("choose the scale with --scale, not with --set")
    for name in ("workers", "timeout"):
        if getattr(asked, name) is not None and not 0 < getattr(asked, name) < math.inf:
            parser.error(f"--{name} must be positive and finite")
    return asked


def _setting(text: str) -> tuple[str, object]:
    """Read key=value; the value is a Python literal, true, false, or else a text."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form parameter=value")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, {"true": True, "false": False}.get(value, value)


def _carry_out(jobs: list[_Job], todo: list[_Job], asked: argparse.Namespace) -> int:
    """Run what is to do and compare all jobs, a line each; the exit status."""
    listing = provenance.git("ls-tree", "--name-only", "HEAD", f"figures/{asked.scale}/") or ""
    names = [name for name in listing.split() if name.endswith(".json")]
    texts = {Path(name).stem: provenance.git("show", f"HEAD:./{name}") for name in names}
    committed = {slug: json.loads(text) for slug, text in texts.items() if text}
    # Longest first, so that none is left alone at the end; one never run may be the longest.
    seconds = {old["notebook"]: old["provenance"]["seconds"] for old in committed.values()}
    todo.sort(key=lambda job: -seconds.get(job.notebook, math.inf))
    failed, differing = [], []
    for job, took, error, note in _outcomes(todo, asked):
        failed += [job.notebook] if error else []
        verdict, reason = ("FAIL", f": {error}") if error else ("ok  ", "")
        note += f"  ({os.path.relpath(job.copy)})" if error or job.changes else ""
        print(f"{verdict} {job.notebook}  {took:.1f} s{reason}{note}", flush=True)
    for job in jobs:
        if job.notebook in failed:
            continue
        if asked.store:
            colab_cell.store(job.copy, Path(job.folders["NOTEBOOKS_DIR"], job.copy.name))
        for slug in _slugs(job):
            text, same = _compare(job, slug, committed)
            print(f"{slug}: {text}")
            differing += [] if same else [job.notebook]
    if differing:
        names = ", ".join(dict.fromkeys(differing))
        print(f"Numbers or claims that are not reproduced: {names}.", file=sys.stderr)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return int(bool(failed or differing))


def _stop() -> NoReturn:
    """End this process, its workers and their kernels, which get no Ctrl-C, with status 130."""
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    words = "Interrupted; what is finished stays, the rest runs next time."
    print(words, file=sys.stderr, flush=True)
    os._exit(130)


# What to run.


def _plan(asked: argparse.Namespace) -> dict[_Job, str]:
    """The jobs asked for, each with the reason why it must run, empty where it is up to date."""
    jobs = {name: _job(name, asked) for name in record.notebooks(asked.names)}
    absent = [name for name, job in jobs.items() if job is None]
    if absent and (asked.names or len(absent) == len(jobs)):
        words = f"no section for scale {asked.scale} in scales.toml, so not offered"
        raise ValueError(f"{', '.join(absent)}: {words}")
    for name in absent:
        print(f"skip {name}: not offered at scale {asked.scale}")
    return {job: _reason(job, asked) for job in jobs.values() if job is not None}


def _job(notebook: str, asked: argparse.Namespace) -> _Job | None:
    """The job of a notebook; None where the scale is not offered, ValueError with its name."""
    try:
        planned = record.planned(notebook, asked.scale, asked.settings)
        if planned is None:
            return None
        page, overrides, values, changes = planned
        parts = provenance.fingerprint(notebook, values)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{notebook}: {error}") from None
    places = sorted((files.ROOT / "data").glob("*/"))
    parts["places"] = [os.environ.get("DATA_DIR"), *map(str, places)]
    names = ("figures", "runs", "notebooks")
    folders = {f"{name.upper()}_DIR": str(files.folder(name)) for name in names}
    home = Path(folders["RUNS_DIR"], asked.scale, notebook)
    figures = Path(folders["FIGURES_DIR"])
    if changes:
        home = record.custom_folder(notebook, changes)
        figures = home / "figures"
    about = notebook, asked.scale, page, overrides, parts, changes
    return _Job(*about, home, figures / asked.scale, folders)


def _reason(job: _Job, asked: argparse.Namespace) -> str:
    """Why a job must run, against the marker of its last success; empty where nothing changed."""
    if job.changes:
        return "custom code" if "code" in job.changes else "custom parameters"
    if asked.force or not job.marker.exists():
        return "forced" if asked.force else "never run"
    try:
        marker = files.read_object(job.marker)
    except ValueError:
        return f"damaged: {os.path.relpath(job.marker)}"
    paths = {name: job.figures / name for name in marker.get("figures", ())}
    figures = {name: files.sha256(p.read_bytes()) for name, p in paths.items() if p.exists()}
    parts = {**job.parts, "figures": figures}
    if all(row["source"] in ("synthetic", "kept") for row in marker.get("data", ())):
        del parts["places"]  # where real data would lie
    reasons = []
    for part, now in parts.items():
        if now != (before := marker.get(part)):
            moved = now.items() ^ (before or {}).items() if isinstance(now, dict) else ()
            names = ", ".join(sorted({name for name, _ in moved}))
            reasons += [f"{part} changed: {names}" if names else f"{part} changed"]
    reasons += ["no executed copy"] if asked.store and not job.copy.exists() else []
    return "; ".join(reasons)


# Running it.


def _outcomes(jobs: list[_Job], asked: argparse.Namespace) -> Iterator[tuple]:
    """Each job as it ends, with what `_run` tells of it."""
    if not jobs:
        return
    import dask
    from dask.system import CPU_COUNT  # of a container it is its share
    from distributed import Client, as_completed

    workers = min(asked.workers or CPU_COUNT, len(jobs))
    # Not tried again: the notebook that took a worker's memory would take the next one's too.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    dask.config.set({"distributed.logging.distributed": "critical"})
    # The memory is in the kernels, which Dask does not see; another batch may have any fixed port.
    local = dict(memory_limit=0, dashboard_address=":0", silence_logs=60)
    local |= dict(n_workers=workers, threads_per_worker=1, processes=True)
    # The workers never see the terminal's Ctrl-C, of which each would print a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        client = Client(asked.scheduler, timeout=10) if asked.scheduler else Client(**local)
    except (OSError, ValueError) as error:
        asked.refuse(f"no Dask scheduler answers at {asked.scheduler} ({type(error).__name__})")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    threads = None if asked.scheduler else max(1, CPU_COUNT // workers)
    about = dict(threads=threads, timeout=asked.timeout, pure=False)
    futures = {client.submit(_run, job, priority=-k, **about): job for k, job in enumerate(jobs)}
    for future in as_completed(futures):
        done = future.status == "finished"
        lost = 0.0, "its worker or the scheduler was lost", ""
        yield futures[future], *(future.result() if done else lost)
    client.close()


# Environment, working folder and log of a run belong to the whole process.
_one_notebook_per_process = threading.Lock()


def _run(job: _Job, threads: int | None, timeout: float | None) -> tuple[float, str | None, str]:
    """Run one notebook and publish its figures: the seconds, the error if any, what else to say.
    threads: of its kernel, None for those of the worker."""
    begin, error, note = time.monotonic(), None, ""
    try:
        job.home.parent.mkdir(parents=True, exist_ok=True)
        with _one_notebook_per_process, FileLock(job.home.with_suffix(".lock"), timeout=0):
            for path in (job.marker, job.copy):
                path.unlink(missing_ok=True)
            shutil.rmtree(job.home, ignore_errors=True)
            job.home.mkdir()
            with _surroundings(job, threads):
                _papermill(job, timeout)
            note = "" if job.changes else _publish(job)
    except Timeout:
        error = "another batch runs it"
    except TimeoutError:
        error = f"a cell took longer than {timeout:g} s"
    except Exception as exception:  # a notebook that fails must leave the others alone
        text = str(getattr(exception, "evalue", None) or exception).strip()
        error = getattr(exception, "ename", None) or type(exception).__name__
        error += f": {text.splitlines()[0]}" if text else ""
    return time.monotonic() - begin, error, note


@contextlib.contextmanager
def _surroundings(job: _Job, threads: int | None) -> Iterator[None]:
    """Environment for the kernel; all that processes below print goes to the job's log."""
    if threads is None:
        from distributed import get_worker

        threads = get_worker().state.nthreads
    changes = {
        **job.folders,
        "FIGURES_DIR": job.home / "figures",
        "PYTHONPATH": os.pathsep.join([str(files.ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONHASHSEED": 0,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": 1,
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait actively take the cores from each other
    }
    changes |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    # Else glibc gives pages back and fetches them again at each step.
    changes |= dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 2**32)
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


def _papermill(job: _Job, timeout: float | None) -> None:
    """Execute once; a second time only when no kernel came up: two may race for a port."""
    import jupytext
    import papermill

    notebook = jupytext.reads(job.page, fmt="py:percent")
    notebook.metadata["kernelspec"] = colab_cell.KERNEL
    options: dict[str, Any] = dict(
        kernel_name="python3", progress_bar=False, cwd=job.folders["NOTEBOOKS_DIR"]
    )
    options |= dict(start_timeout=180, execution_timeout=timeout, parameters=dict(job.overrides))
    try:
        papermill.execute_notebook(notebook, str(job.copy), **options)
    except RuntimeError as error:
        # Of a cell it is another class, of a kernel that dies under a cell a subclass.
        if type(error) is not RuntimeError:
            raise
        papermill.execute_notebook(notebook, str(job.copy), **options)


def _publish(job: _Job) -> str:
    """Move the staged figures of a run to their place, all or none; what else to say of them."""
    staged = job.home / "figures" / job.scale
    records = {path: record.read(path) for path in sorted(staged.glob("*.json"))}
    data = [row for saved in records.values() for row in saved["data"]]
    # Embedded data must not take the place of real ones; the job never counts as up to date.
    if job.scale != "demo" and any(row["source"] == "demo" for row in data):
        return f"  (embedded data, not the real ones: the figures stay in {staged})"
    new, hashes = {}, {}
    for path, saved in records.items():
        parts = [path.with_suffix(end) for end in record.ENDS]
        content = {job.figures / part.name: part.read_bytes() for part in parts}
        picture = content[job.figures / f"{path.stem}.png"]
        if record.reproduces(saved, picture, job.figures / path.name):
            content = {place: place.read_bytes() for place in content if place.exists()}
        else:
            new |= content
        hashes |= {place.name: files.sha256(part) for place, part in content.items()}
    marker = {**job.parts, "data": data, "figures": hashes}
    files.write_all({**new, job.marker: files.dumps(marker).encode()})
    shutil.rmtree(staged.parent, ignore_errors=True)
    return "" if records else "  (no figure saved)"


# New numbers against the committed ones.


def _slugs(job: _Job) -> list[str]:
    """The figures of the last run of a job: its marker names them, older ones may lie beside."""
    if job.changes:
        return sorted(path.stem for path in job.figures.glob("*.json"))
    names = files.read_object(job.marker)["figures"] if job.marker.exists() else []
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _compare(job: _Job, slug: str, committed: Mapping[str, Mapping]) -> tuple[str, bool]:
    """A figure of a job beside the committed record in words, and whether it is reproduced."""
    new = files.read_object(job.figures / f"{slug}.json")
    text, same = "custom, not compared" if job.changes else "no committed record", True
    if slug in committed and not job.changes:
        text, same = _reproduced(new, committed[slug])
    return f"{text}; {Table(map(Claim.of, new['claims'])).summary()}", same


def _reproduced(new: Mapping, old: Mapping) -> tuple[str, bool]:
    if new["parameters"] != old["parameters"]:
        return "parameters differ, not compared", True
    kinds = [[(row["name"], row["source"] == "demo") for row in r["data"]] for r in (new, old)]
    if kinds[0] != kinds[1]:
        return "data differ, not compared", True
    differences, count = record.compare(new, old), len(old["numbers"])
    text = f"{count - len(differences)} of {count}"
    redrawn = any(row["source"] == "kept" for row in new["data"])  # nothing was trained for it
    text = f"redrawn from kept curves: {text}" if redrawn else f"{text} numbers reproduced"
    held = {claim["id"] for claim in new["claims"] if claim["holds"]}
    lost = [c["id"] for c in old["claims"] if c["holds"] and c["id"] not in held]
    words = [text, *differences, *(f"{name} held before" for name in lost)]
    return "; ".join(words), not (differences or lost)
