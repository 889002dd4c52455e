"""The command `python -m lib.batch`, and new numbers beside the committed ones."""

import argparse
import ast
import io
import json
import math
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import files, provenance
from lib.batch import plan, run
from lib.batch.plan import Job
from lib.companion import record
from lib.companion.claims import UNDECIDED


def _setting(text: str) -> tuple[str, object]:
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
    asked = parser.parse_args(argv)
    asked.settings = dict(asked.settings)
    if asked.store and (asked.scale != "demo" or asked.settings):
        parser.error("--store keeps the demo scale as it is; leave out --scale and --set")
    if "scale" in asked.settings:
        parser.error("choose the scale with --scale, not with --set")
    for name, value in (("workers", asked.workers), ("timeout", asked.timeout)):
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} must be positive and finite")
    return asked


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status.

    0: all is well; 1: a notebook failed, or a number or claim is not reproduced; 2: bad usage;
    130: interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # some locales know no ± and no ‖
            stream.reconfigure(errors="backslashreplace")
    asked = _options(argv)
    if Path(os.environ.get("DATA_DIR") or "?").is_dir():  # kernels work in another folder
        os.environ["DATA_DIR"] = os.path.abspath(os.environ["DATA_DIR"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _batch(asked)
    except plan.UsageError as error:
        print(f"lib.batch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return run.stop()


def _batch(asked: argparse.Namespace) -> int:
    how = asked.scale, asked.settings, asked.force, asked.store
    jobs, todo, lines = plan.plan(asked.names, *how)
    print("\n".join(lines), flush=True)
    if asked.dry_run:
        return 0
    old, differing = _committed(asked.scale, [job.notebook for job in todo]), []
    failed = _carry_out(todo, asked) if todo else []
    for job in jobs:
        if job.notebook in failed:
            continue
        if asked.store and (error := run.store(job)):
            print(f"FAIL {job.notebook}: not stored, {error}")
            failed.append(job.notebook)
        for slug in _slugs(job):
            text, same = _compare(job, slug, old)
            print(f"{slug}: {text}")
            differing += [] if same else [job.notebook]
    if differing:
        names = ", ".join(dict.fromkeys(differing))
        print(f"Numbers or claims that are not reproduced: {names}.", file=sys.stderr)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed or differing else 0


def _carry_out(jobs: list[Job], asked: argparse.Namespace) -> list[str]:
    """Run and publish, one line a job as it ends; the notebooks that failed."""
    from dask.system import CPU_COUNT  # of a container it is its share

    workers = min(asked.workers or CPU_COUNT, len(jobs))
    threads = None if asked.scheduler else max(1, CPU_COUNT // workers)
    failed = []
    with run.connected(asked.scheduler, workers) as client:
        for outcome in run.execute(jobs, client, threads, asked.timeout):
            error, note = run.publish(outcome)
            failed += [outcome.job.notebook] if error else []
            verdict, reason = ("FAIL", f": {error}") if error else ("ok  ", "")
            text = f"{verdict} {outcome.job.notebook}  {outcome.seconds:.1f} s{reason}{note}"
            print(text, flush=True)
    return failed


# New numbers against the committed ones.


def _committed(scale: str, running: Iterable[str]) -> dict[str, str]:
    """The committed records of a scale by slug, as they are.

    Without git they are those that the `running` notebooks made before.
    """
    if provenance.git("rev-parse", "--git-dir") is None:
        paths = (files.folder("figures") / scale).glob("*.json")
        made = {path.stem: path.read_text("utf-8", "surrogateescape") for path in paths}
        names = [f'"notebook": "{name}"' for name in running]
        return {slug: old for slug, old in made.items() if any(name in old for name in names)}
    listing = provenance.git("ls-tree", "--name-only", "HEAD", f"figures/{scale}/") or ""
    names = [name for name in listing.split() if name.endswith(".json")]
    return {Path(name).stem: provenance.git("show", f"HEAD:./{name}") or "" for name in names}


def _slugs(job: Job) -> list[str]:
    """The figures of the last run of a job: its marker names them, older ones may lie beside."""
    names = [path.name for path in job.figures.glob("*")] if job.changes else []
    if not job.changes and job.marker.exists():
        names = files.read_object(job.marker)["figures"]
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _compare(job: Job, slug: str, old: Mapping[str, str]) -> tuple[str, bool]:
    """A figure of a job beside the committed record in words, and whether it is reproduced."""
    new = files.read_object(job.figures / f"{slug}.json")
    text, same = "no committed record", True
    if job.changes:
        text = "custom, not compared"
    elif slug in old:
        try:
            text, same = _reproduced(new, json.loads(old[slug]))
        except (ValueError, KeyError, TypeError, AttributeError):
            text, same = "the committed record is damaged, not compared", False
    held = sum(claim["holds"] for claim in new["claims"])
    undecided = [c["id"] for c in new["claims"] if c.get("verdict") == UNDECIDED]
    failing = [c["id"] for c in new["claims"] if not c["holds"] and c["id"] not in undecided]
    text += f"; held {held} of {len(new['claims'])} claims"
    text += f", not {', '.join(failing)}" if failing else ""
    return text + (f", undecided {', '.join(undecided)}" if undecided else ""), same


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


if __name__ == "__main__":
    raise SystemExit(main())
