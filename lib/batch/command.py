"""The command `python -m lib.batch`: run notebooks headless, compare their numbers.

What is up to date is skipped; new numbers are compared with the committed ones. Notebooks run
straight from their .py through papermill on Dask. Executed copies go to runs/<scale>/; figures are
staged there too and reach figures/<scale>/ only when their notebook has succeeded.
"""

import argparse
import ast
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from lib import files
from lib.batch import compare, execute, publish
from lib.batch.job import Outcome, in_words
from lib.batch.plan import Plan, UsageError, plan
from lib.budget import minutes
from lib.companion import record


def setting(text: str) -> tuple[str, object]:
    """Read key=value; the value is a Python literal, else YAML: 1e-3, [1, 2], true, plain words."""
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


def options(argv: list[str] | None) -> argparse.Namespace:
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
    text = "longest time for any one cell; default: none"
    add("--timeout", type=float, metavar="SECONDS", help=text)
    text = "start no further notebook after N minutes, say which are left; status 3 then"
    add("--minutes", type=minutes, metavar="N", help=text)
    add("--force", action="store_true", help="run even what is up to date")
    add("--dry-run", action="store_true", help="only say what would run, and why")
    text = "write the demo outputs into the .ipynb beside each .py"
    add("--store", action="store_true", help=text)
    text = "folder of the notebooks; default: notebooks/"
    add("--notebooks", type=Path, metavar="DIR", help=text)
    asked = parser.parse_args(argv)
    if asked.store and (asked.scale != "demo" or asked.settings):
        parser.error(
            "--store keeps the demo scale with its default parameters; leave out --scale and --set"
        )
    if asked.workers is not None and asked.workers < 1:
        parser.error("--workers must be at least 1")
    if asked.timeout is not None and not 0 < asked.timeout < math.inf:
        parser.error("--timeout must be positive and finite")
    return asked


def batch(asked: argparse.Namespace) -> int:
    """Do what the command line asks and return the exit status."""
    planned = plan(asked.names, asked.scale, dict(asked.settings), asked.force, asked.store)
    print("\n".join(planned.lines()), flush=True)
    if asked.dry_run:
        return 0
    old = compare.committed(asked.scale, [job.notebook for job in planned.todo])
    means = asked.scheduler, asked.workers, asked.timeout, asked.minutes
    failed, left = _carried_out(planned, execute.execute(planned, *means))
    done = [job for job in planned.jobs if job.notebook not in (*failed, *left)]
    for job in done if asked.store else ():
        try:
            publish.store(job)
        except (OSError, ValueError) as error:
            print(f"FAIL {job.notebook}: not stored, {in_words(error)}")
            failed.append(job.notebook)
    compared = compare.compare(done, old)
    print("\n".join(compared.lines), end="\n" if compared.lines else "")
    if compared.differing:
        names = ", ".join(compared.differing)
        print(f"Numbers or claims that are not reproduced: {names}.", file=sys.stderr)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    if left:
        print(f"The minutes are used up; left for next time: {', '.join(left)}.")
    return 1 if failed or compared.differing else 3 if left else 0


def _carried_out(planned: Plan, outcomes: Iterator[Outcome]) -> tuple[list[str], list[str]]:
    """Publish the `outcomes`, one line a job as it ends; which failed, which had no time."""
    from tqdm import tqdm

    failed, left = [], [job.notebook for job in planned.todo]
    for outcome in outcomes:
        published = publish.publish(outcome)
        left.remove(outcome.job.notebook)
        failed += [outcome.job.notebook] if published.error else []
        tqdm.write(published.line, file=sys.stdout)
        sys.stdout.flush()
    return failed, left


def _make_paths_absolute(notebooks: Path | None) -> None:
    """Folders as the workers and their kernels see them, which work in another folder."""
    if notebooks:
        os.environ["NOTEBOOKS_DIR"] = str(notebooks.resolve())
    if Path(os.environ.get("DATA_DIR") or "?").is_dir():
        os.environ["DATA_DIR"] = os.path.abspath(os.environ["DATA_DIR"])


def _check_paths() -> None:
    for place in (files.ROOT, *map(files.folder, ("figures", "runs", "notebooks"))):
        try:
            str(place).encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"this Python cannot write the path {ascii(str(place))} (its file names are "
                f"{sys.getfilesystemencoding()}); set PYTHONUTF8=1"
            ) from None


def main(argv: list[str] | None = None) -> int:
    """The command `python -m lib.batch`; returns its exit status (2 usage, 130 interrupted)."""
    for stream in (sys.stdout, sys.stderr):  # in the C locale they know no ± and no ‖
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    asked = options(argv)
    _make_paths_absolute(asked.notebooks)

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        _check_paths()
        return batch(asked)
    except UsageError as error:
        print(f"lib.batch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        execute.stop()
