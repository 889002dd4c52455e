"""Run notebooks headless, skip what is up to date, and compare new numbers with the committed ones.

Notebooks run straight from their .py through papermill on Dask. Executed copies go to
runs/<scale>/; figures are staged there too and reach figures/<scale>/ only when their notebook has
succeeded.
"""

import argparse
import ast
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import provenance
from lib.batch.job import Job, execute, publish, stand_in, store
from lib.batch.plan import UsageError, plan, reason
from lib.companion import record
from lib.files import folder

INTERRUPTED = "Interrupted; what is finished stays, the rest runs next time."


def _stop_children() -> None:
    """End the workers and their kernels at once; kernels lie in sessions of their own and get no Ctrl-C."""
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _connect(scheduler: str | None, workers: int, stack: contextlib.ExitStack):
    import dask
    from distributed import Client, LocalCluster

    # A worker that died is not tried again: the notebook that took its memory would take the next
    # one's too.
    quiet = {"distributed.logging.distributed": "critical"}
    dask.config.set({"distributed.scheduler.allowed-failures": 0, **quiet})
    if scheduler:
        try:
            return stack.enter_context(Client(scheduler, timeout=10))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler answers at {scheduler} ({type(error).__name__})"
            ) from None
    # The memory is in the kernels, which Dask does not see; port 0 since another batch may run on
    # this machine.
    options = {
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "memory_limit": 0,
        "silence_logs": 60,
    }
    cluster = stack.enter_context(LocalCluster(n_workers=workers, processes=True, **options))
    return stack.enter_context(Client(cluster))


def run(todo: list[Job], args: argparse.Namespace) -> list[str]:
    """Run the jobs with one line for each as it ends; the names of those that failed."""
    from dask.system import CPU_COUNT
    from distributed import as_completed
    from tqdm import tqdm

    workers = min(args.workers or CPU_COUNT, len(todo))
    threads = None if args.scheduler else max(1, CPU_COUNT // workers)
    failed = []
    stack = contextlib.ExitStack()
    try:
        client = _connect(args.scheduler, workers, stack)
        bar = stack.enter_context(
            tqdm(total=len(todo), leave=False, disable=not sys.stderr.isatty())
        )
        futures = {
            client.submit(execute, job, threads, args.timeout, pure=False, priority=-place): job
            for place, job in enumerate(todo)
        }
        for future in as_completed(futures):
            job = futures[future]
            if future.status == "finished":
                seconds, error = future.result()
            else:
                seconds, error = 0.0, f"the worker was lost ({type(future.exception()).__name__})"
            note = f"  ({os.path.relpath(job.copy)})" if error or job.custom else ""
            if error:
                failed.append(job.notebook)
            elif not job.custom and stand_in(job):
                note = f"  (embedded data, not the real ones: the figures stay in {os.path.relpath(job.home)}/figures)"
            elif not job.custom and not publish(job, seconds):
                note = "  (no figure saved)"
            said = f"{'FAIL' if error else 'ok  '} {job.notebook}  {seconds:.1f} s" + (
                f": {error}" if error else ""
            )
            tqdm.write(said + note, file=sys.stdout)
            sys.stdout.flush()
            bar.update()
    except KeyboardInterrupt:
        # Not the orderly way: Dask would wait for running notebooks and report each worker it
        # misses.
        _stop_children()
        print(INTERRUPTED, file=sys.stderr, flush=True)
        os._exit(130)
    finally:
        stack.close()
    return failed


def committed(scale: str, running: Iterable[str]) -> dict[str, dict]:
    """The committed records of a scale by slug; without git, what `running` notebooks made before."""
    listing = provenance.git("ls-tree", "--name-only", "HEAD", f"figures/{scale}/")
    names = [name for name in (listing or "").split() if name.endswith(".json")]
    records = [json.loads(provenance.git("show", f"HEAD:./{name}")) for name in names]
    if listing is None and provenance.git("rev-parse", "--git-dir") is None:
        present = map(_read, (folder("figures") / scale).glob("*.json"))
        records = [saved for saved in present if saved["notebook"] in running]
    return {saved["slug"]: saved for saved in records}


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _reproduced(new: Mapping, old: Mapping | None) -> tuple[str, bool]:
    def kinds(saved):
        return [(row["name"], row["source"] == "demo") for row in saved["data"]]

    if old is None:
        return "no committed record", True
    if new["parameters"] != old["parameters"]:
        return "parameters differ, not compared", True
    if kinds(new) != kinds(old):
        return "data differ, not compared", True
    differences, count = record.compare(new, old), len(old["numbers"])
    text = f"{count - len(differences)} of {count} numbers reproduced"
    held = {claim["id"] for claim in new["claims"] if claim["holds"]}
    lost = [
        f"{claim['id']} held before"
        for claim in old["claims"]
        if claim["holds"] and claim["id"] not in held
    ]
    return "; ".join([text, *map(str, differences), *lost]), not (differences or lost)


def report(job: Job, old: Mapping[str, Mapping]) -> bool:
    """Print a line per figure of a finished job; False when a number, or a claim that held, was not reproduced."""
    good = True
    if not job.custom and not job.marker.exists():
        return good  # nothing was published
    # The marker names what this run made; an older figure may lie beside it.
    files = (
        [path.name for path in job.figures.glob("*")]
        if job.custom
        else _read(job.marker)["figures"]
    )
    for path in (job.figures / name for name in sorted(files) if name.endswith(".json")):
        saved = _read(path)
        text, same = "custom parameters, not compared", True
        if not job.custom:
            text, same = _reproduced(saved, old.get(path.stem))
        failed = [claim["id"] for claim in saved["claims"] if not claim["holds"]]
        count = len(saved["claims"])
        names = f", not {', '.join(failed)}" if failed else ""
        print(f"{path.stem}: {text}; held {count - len(failed)} of {count} claims{names}")
        good &= same
    return good


def setting(text: str) -> tuple[str, object]:
    """Read key=value; the value is a Python literal, else YAML: 1e-3, [1, 2], true and plain words work."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form parameter=value")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        import yaml

        try:
            return key, yaml.safe_load(value)
        except yaml.YAMLError:
            raise argparse.ArgumentTypeError(
                f"{value!r} is neither a Python literal nor YAML"
            ) from None


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.batch", description="Run notebooks headless."
    )
    add = parser.add_argument
    add(
        "names", nargs="*", metavar="NAME", help="a notebook or the start of its name; default: all"
    )
    add("--scale", choices=record.SCALES, default="demo")
    add(
        "--set",
        dest="settings",
        action="append",
        type=setting,
        default=[],
        metavar="KEY=VALUE",
        help="another value for a parameter; such figures go to runs/custom/",
    )
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask scheduler; default: a cluster of this machine's cores",
    )
    add("--workers", type=int, metavar="N", help="notebooks at a time; default: as many as cores")
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="longest time for any one cell; default: none",
    )
    add("--force", action="store_true", help="run even what is up to date")
    add("--dry-run", action="store_true", help="only say what would run, and why")
    add(
        "--store",
        action="store_true",
        help="write the demo outputs into the .ipynb beside each .py",
    )
    add(
        "--notebooks", type=Path, metavar="DIR", help="folder of the notebooks; default: notebooks/"
    )
    args = parser.parse_args(argv)
    if args.store and (args.scale != "demo" or args.settings):
        parser.error(
            "--store keeps the demo scale with its default parameters; leave out --scale and --set"
        )
    if args.workers is not None and args.workers < 1:
        parser.error("--workers must be at least 1")
    if args.timeout is not None and args.timeout <= 0:
        parser.error("--timeout must be positive")
    return args


def past_seconds(scale: str) -> dict[str, float]:
    """How long each notebook took when its present figures were made."""
    seconds = {}
    for path in (folder("figures") / scale).glob("*.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            saved = _read(path)
            notebook = saved["notebook"]
            seconds[notebook] = max(seconds.get(notebook, 0.0), saved["provenance"]["seconds"])
    return seconds


def _why(job: Job, args: argparse.Namespace) -> str | None:
    if job.custom:
        return "custom parameters"
    if args.force:
        return "forced"
    why = reason(job)
    return "no executed copy" if why is None and args.store and not job.copy.exists() else why


def batch(args: argparse.Namespace) -> int:
    """Do what the command line asks and return the exit status."""
    jobs, skipped = plan(args.names, args.scale, dict(args.settings))
    reasons = {job.notebook: _why(job, args) for job in jobs}
    past = past_seconds(args.scale)
    todo = [job for job in jobs if reasons[job.notebook]]
    # Longest first, so that none is left alone at the end; one never run may be the longest.
    todo.sort(key=lambda job: -past.get(job.notebook, float("inf")))
    for notebook in skipped:
        print(f"skip {notebook}: not offered at scale {args.scale}")
    for job in todo:
        print(f"run  {job.notebook}: {reasons[job.notebook]}")
    print(f"{len(jobs) - len(todo)} up to date, {len(todo)} to run", flush=True)
    if args.dry_run:
        return 0
    old = committed(args.scale, [job.notebook for job in todo])
    failed = run(todo, args) if todo else []
    done = [job for job in jobs if job.notebook not in failed]
    differing = [job.notebook for job in done if not report(job, old)]
    if args.store:
        for job in done:
            store(job)
    if differing:
        print(
            f"Numbers or claims that are not reproduced: {', '.join(differing)}.", file=sys.stderr
        )
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed or differing else 0


def main(argv: list[str] | None = None) -> int:
    """The command `python -m lib.batch`; returns its exit status (2 usage, 130 interrupted)."""
    args = parse(argv)
    if args.notebooks:
        os.environ["NOTEBOOKS_DIR"] = str(
            args.notebooks.resolve()
        )  # also for the workers and their kernels
    if Path(os.environ.get("DATA_DIR") or "?").is_dir():
        os.environ["DATA_DIR"] = os.path.abspath(
            os.environ["DATA_DIR"]
        )  # kernels work in another folder

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        return batch(args)
    except UsageError as error:
        print(f"lib.batch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
