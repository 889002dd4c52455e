"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

In: names of notebooks and a scale. Out: figures, records, executed copies, and what did not
reproduce. What is up to date is skipped (`plan`), the rest runs and its figures are published
(`run`), new numbers are compared with the committed ones (here).
"""

import argparse
import ast
import math
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import files, provenance
from lib.batch import plan, run
from lib.batch.plan import Job
from lib.companion import record
from lib.companion.claims import UNDECIDED


def setting(text: str) -> tuple[str, object]:
    """Read key=value; the value is a Python literal, true, false, or else a text."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form parameter=value")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, {"true": True, "false": False}.get(value, value)


def _options(argv: list[str] | None) -> argparse.Namespace:
    """The command line; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser("python -m lib.batch", description="Run notebooks headless.")
    add = parser.add_argument
    text = "a notebook or the start of its name; default: all"
    add("names", nargs="*", metavar="NAME", help=text)
    add("--scale", choices=record.SCALES, default="demo")
    text = "another value for a parameter; such figures go to runs/custom/"
    many = {"action": "append", "dest": "settings", "default": []}
    add("--set", type=setting, metavar="KEY=VALUE", help=text, **many)
    text = "a Dask scheduler; default: a cluster of this machine's cores"
    add("--scheduler", metavar="ADDRESS", help=text)
    add("--workers", type=int, metavar="N", help="notebooks at a time; default: as many as cores")
    text = "longest time for any one cell; default: none"
    add("--timeout", type=float, metavar="SECONDS", help=text)
    text = "start no further notebook after N minutes, say which are left; status 3 then"
    add("--minutes", type=float, metavar="N", help=text)
    add("--force", action="store_true", help="run even what is up to date")
    add("--dry-run", action="store_true", help="only say what would run, and why")
    text = "write the demo outputs into the .ipynb beside each .py"
    add("--store", action="store_true", help=text)
    add("--notebooks", type=Path, metavar="DIR", help="their folder; default: notebooks/")
    asked = parser.parse_args(argv)
    asked.settings = dict(asked.settings)
    if asked.store and (asked.scale != "demo" or asked.settings):
        parser.error("--store keeps the demo scale as it is; leave out --scale and --set")
    if "scale" in asked.settings:
        parser.error("choose the scale with --scale, not with --set")
    if asked.workers is not None and asked.workers < 1:
        parser.error("--workers must be at least 1")
    for name in ("timeout", "minutes"):
        value = getattr(asked, name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} must be positive and finite")
    return asked


def main(argv: list[str] | None = None) -> int:
    """The command `python -m lib.batch`; returns its exit status.

    0: all is well; 1: a notebook failed, or a number or claim is not reproduced; 2: bad usage;
    3: the minutes are used up; 130: interrupted.
    """
    for stream in (sys.stdout, sys.stderr):  # some locales know no ± and no ‖
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    asked = _options(argv)
    # Kernels work in another folder.
    if asked.notebooks:
        os.environ["NOTEBOOKS_DIR"] = str(asked.notebooks.resolve())
    if Path(os.environ.get("DATA_DIR") or "?").is_dir():
        os.environ["DATA_DIR"] = os.path.abspath(os.environ["DATA_DIR"])

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _batch(asked)
    except plan.UsageError as error:
        print(f"lib.batch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        run.stop()


def _batch(asked: argparse.Namespace) -> int:
    how = asked.scale, asked.settings, asked.force, asked.store
    jobs, todo, lines = plan.plan(asked.names, *how)
    print("\n".join(lines), flush=True)
    if asked.dry_run:
        return 0
    old = committed(asked.scale, [job.notebook for job in todo])
    failed, left = _carry_out(todo, asked) if todo else ([], [])
    differing = []
    for job in jobs:
        if job.notebook in (*failed, *left):
            continue
        if asked.store and (error := run.store(job)):
            print(f"FAIL {job.notebook}: not stored, {error}")
            failed.append(job.notebook)
        compared = {slug: compare(job, slug, old) for slug in _slugs(job)}
        print(*(f"{slug}: {text}\n" for slug, (text, _) in compared.items()), sep="", end="")
        differing += [] if all(same for _, same in compared.values()) else [job.notebook]
    if differing:
        words = "Numbers or claims that are not reproduced"
        print(f"{words}: {', '.join(differing)}.", file=sys.stderr)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    if left:
        print(f"The minutes are used up; left for next time: {', '.join(left)}.")
    return 1 if failed or differing else 3 if left else 0


def _carry_out(jobs: list[Job], asked: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Run and publish, one line a job as it ends; the notebooks that failed and those left."""
    from dask.system import CPU_COUNT  # of a container it is its share

    until = math.inf if asked.minutes is None else time.time() + 60 * asked.minutes
    workers = min(asked.workers or CPU_COUNT, len(jobs))
    threads = None if asked.scheduler else max(1, CPU_COUNT // workers)
    failed, left = [], []
    with run.connected(asked.scheduler, workers) as client:
        for outcome in run.execute(jobs, client, threads, asked.timeout, until):
            name = outcome.job.notebook
            if outcome.seconds is None:
                left.append(name)
                continue
            error, note = run.publish(outcome)
            failed += [name] if error else []
            verdict = f"FAIL {name}" if error else f"ok   {name}"
            reason = f": {error}" if error else ""
            print(f"{verdict}  {outcome.seconds:.1f} s{reason}{note}", flush=True)
    return failed, left


# New numbers against the committed ones.


def committed(scale: str, running: Iterable[str]) -> dict[str, Mapping | None]:
    """The committed records of a scale by slug, None for one that cannot be read.

    Without git they are those that the `running` notebooks made before.
    """
    if provenance.git("rev-parse", "--git-dir") is None:
        places = [path for path in (files.folder("figures") / scale).glob("*.json")]
        there = {path.stem: _read(path.read_bytes()) for path in places if path.is_file()}
        return {s: old for s, old in there.items() if old is None or old["notebook"] in running}
    listing = provenance.git("ls-tree", "--name-only", "HEAD", f"figures/{scale}/") or ""
    names = [name for name in listing.split() if name.endswith(".json")]
    texts = {Path(name).stem: provenance.git("show", f"HEAD:./{name}") or "" for name in names}
    return {slug: _read(text.encode("utf-8", "surrogateescape")) for slug, text in texts.items()}


def _read(content: bytes) -> Mapping | None:
    try:
        return record.checked(files.parse_object(content, "the record"), "the record")
    except ValueError:
        return None


def _slugs(job: Job) -> list[str]:
    """The figures of the last run of a job: its marker names them, older ones may lie beside."""
    if job.changes:
        names = [path.name for path in job.figures.glob("*")]
    else:
        names = files.read_object(job.marker)["figures"] if job.marker.exists() else []
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def compare(job: Job, slug: str, old: Mapping) -> tuple[str, bool]:
    """A figure of a job beside the committed record in words, and whether it is reproduced."""
    new = files.read_object(job.figures / f"{slug}.json")
    text, same = "no committed record", True
    if job.changes:
        text = "custom, not compared"
    elif slug in old:
        text, same = _reproduced(new, old[slug])
    held = sum(claim["holds"] for claim in new["claims"])
    undecided = [c["id"] for c in new["claims"] if c.get("verdict") == UNDECIDED]
    failing = [c["id"] for c in new["claims"] if not c["holds"] and c["id"] not in undecided]
    text += f"; held {held} of {len(new['claims'])} claims"
    text += f", not {', '.join(failing)}" if failing else ""
    return text + (f", undecided {', '.join(undecided)}" if undecided else ""), same


def _reproduced(new: Mapping, old: Mapping | None) -> tuple[str, bool]:
    if old is None:
        return "the committed record is damaged, not compared", False
    if new["parameters"] != old["parameters"]:
        return "parameters differ, not compared", True
    kinds = [
        [(row["name"], row["source"] == "demo") for row in saved["data"]] for saved in (new, old)
    ]
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
