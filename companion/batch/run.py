"""The command: plan, run, compare with the committed figures, and copy if asked.

With --update it copies the figures of the run over the committed ones.
"""

import argparse
import ast
import contextlib
import math
import sys
import tempfile
from collections.abc import Iterable

from companion import pages, record, stored
from companion.batch import work
from companion.batch.job import Job, jobs, marker_of
from companion.batch.reference import Comparison, Refused, Result, compare, update
from lib import files, interrupt, provenance


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : list of str, optional
        The words of the command line. By default they are those of this process.

    Returns
    -------
    int
        The exit status: 1 if a notebook failed, a number or claim is not reproduced,
        the committed record of a figure is missing, or a file cannot be read or
        written; 2 if --update refused to copy; else 0. A figure that was made with
        other parameters or data than the committed one, or that is not committed yet,
        is not compared. The status is then 0, and the last lines say so.

    Raises
    ------
    SystemExit
        With status 2, if bad usage is found before anything runs.

    Notes
    -----
    Ctrl-C and SIGTERM end the whole process with status 130.
    """
    interrupt.end_in_a_sentence()
    asked = _options(argv)
    try:
        planned = jobs(asked)
        if not asked.dry_run:
            _check_folders(asked)
    except ValueError as error:
        asked.refuse(str(error))
    todo = [job for job, reason in planned.items() if reason]
    for job in todo:
        print(f"run  {job.notebook}: {planned[job]}")
    print(f"{len(planned) - len(todo)} up to date, {len(todo)} to run", flush=True)
    if asked.dry_run:
        return 0
    return _carry_out([*planned], todo, asked)


# The command line.


def _options(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line.

    The method `refuse` of the options prints a sentence and ends the process with
    status 2, as a wrong option would. `settings` is a dict.
    """
    usage = "python -m companion.batch [NAME ...] [options]"
    parser = argparse.ArgumentParser(
        "companion.batch", usage, "Run notebooks headless."
    )
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="a notebook or the start of its name; default all",
    )
    add("--scale", choices=pages.SCALES, default="demo")
    text = "use another value for a parameter, KEY=VALUE; such figures go to runs/set/"
    add("--set", type=setting, action="append", dest="settings", default=[], help=text)
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="of Dask; default: a cluster of this machine",
    )
    add(
        "--workers",
        type=int,
        metavar="N",
        help="notebooks at a time on this machine; default: as many as cores",
    )
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="longest time for a cell, rounded up to whole seconds; default: none",
    )
    add("--force", action="store_true", help="run even what is up to date")
    add("--dry-run", action="store_true", help="only say what would run, and why")
    add(
        "--store",
        action="store_true",
        help="write the demo outputs into the .ipynb files",
    )
    text = "copy what differs over the committed figures and records"
    add("--update", action="store_true", help=text)
    parser.set_defaults(refuse=parser.error)
    asked = parser.parse_args(argv)
    asked.settings = dict(asked.settings)
    if asked.store and (asked.scale != "demo" or asked.settings):
        parser.error(
            "--store keeps the demo scale as it is; leave out --scale and --set"
        )
    if asked.update and asked.settings:
        parser.error(
            "--update copies figures of the page's own parameters; leave out --set"
        )
    if "scale" in asked.settings:
        parser.error("choose the scale with --scale, not with --set")
    for name in ("workers", "timeout"):
        if getattr(asked, name) is not None and not 0 < getattr(asked, name) < math.inf:
            parser.error(f"--{name} must be positive and finite")
    if asked.workers is not None and asked.scheduler:
        parser.error(
            "--workers is about processes of this machine, and with --scheduler the "
            "workers of the scheduler run the notebooks; leave out one of the two"
        )
    if asked.timeout is not None:
        asked.timeout = math.ceil(asked.timeout)  # nbclient takes whole seconds only
    return asked


def setting(text: str) -> tuple[str, object]:
    """Read key=value.

    Parameters
    ----------
    text : str
        The text. The value is read as a Python literal, or as true or false; anything
        else stays a text.

    Returns
    -------
    key : str
        The name of a parameter.
    value : object
        The value of the parameter.

    Raises
    ------
    argparse.ArgumentTypeError
        If the text does not have the form key=value.

    Examples
    --------
    >>> from companion.batch import run
    >>> run.setting("seeds=3"), run.setting("cap=true"), run.setting("rule=NGD")
    (('seeds', 3), ('cap', True), ('rule', 'NGD'))
    """
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form parameter=value")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, {"true": True, "false": False}.get(value, value)


def _check_folders(asked: argparse.Namespace) -> None:
    """Raise ValueError if the folder of runs cannot be written into.

    With --update, also raise it if the code is not committed.
    """
    runs = files.folder("runs")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=runs).close()
    except OSError as error:
        words = error.strerror or error
        raise ValueError(
            f"{runs} cannot be written into: {words}; set another RUNS_DIR"
        ) from None
    if not asked.update:
        return
    commit = provenance.commit()
    if commit is None:
        if (files.ROOT / ".git").exists():
            remedy = (
                f"git gives no answer here; `git -C {files.ROOT} status` says why, and "
                "a clone of another owner needs an entry safe.directory"
            )
        else:
            remedy = "this is no git repository; clone it"
        raise ValueError(f"--update copies figures of committed code only: {remedy}")
    if commit.endswith("-dirty"):
        raise ValueError(
            "--update copies figures of committed code only, and here are changes "
            "that nobody committed; commit them or take them back"
        )


# Running and comparing.


def _carry_out(planned: list[Job], todo: list[Job], asked: argparse.Namespace) -> int:
    """Run the jobs `todo`, and compare all planned jobs with the reference.

    The function prints one line per figure, and returns the exit status.
    """
    failed = _run_all(todo, asked)
    finished = [job for job in planned if job.notebook not in failed]
    comparisons: list[Comparison] = []
    copied: list[Comparison] = []
    try:
        for job in finished:
            if asked.store:
                target = files.folder("notebooks") / job.executed
                stored.store(job.results / job.executed, target)
            for slug in marker_of(job.results).slugs:
                comparisons.append(compare(job, slug))
                print(comparisons[-1].words, flush=True)
        if asked.update:
            copied = update(comparisons)
    except Refused as refusal:
        print(f"{refusal}.", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"{files.sentence(error)}.", file=sys.stderr)
        return 1
    return _summed_up(failed, comparisons, copied, asked)


def _run_all(todo: list[Job], asked: argparse.Namespace) -> list[str]:
    """Run the jobs, the longest first, and print how each ended.

    The function returns the notebooks that failed.
    """
    failed = []
    seconds = _seconds_by_notebook(asked.scale)
    # The longest jobs come first, so that no long job runs by itself at the end. A page
    # that has never been run also comes first, because it may be the longest.
    todo = sorted(todo, key=lambda job: -seconds.get(job.notebook, math.inf))
    for job, outcome in work.outcomes(todo, asked):
        took = f"{job.notebook}  {outcome.seconds:.1f} s"
        if outcome.error:
            failed.append(job.notebook)
            print(
                f"FAIL {took}: {outcome.error}{outcome.note}  (in {job.work})",
                flush=True,
            )
        else:
            print(f"ok   {took}{outcome.note}", flush=True)
    return failed


def _seconds_by_notebook(scale: str) -> dict[str, float]:
    """Return each notebook's running time at a scale, in seconds, from the records.

    If a notebook has several records, the last one by name counts.
    """
    seconds = {}
    for path in sorted((files.folder("figures") / scale).glob("*.json")):
        # A damaged record is reported later.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            saved = record.read(path)
            seconds[saved["notebook"]] = float(saved["provenance"]["seconds"])
    return seconds


def _summed_up(
    failed: list[str],
    comparisons: Iterable[Comparison],
    copied: list[Comparison],
    asked: argparse.Namespace,
) -> int:
    """Print what was copied, what is not reproduced or compared, and what failed.

    The function returns the exit status.
    """
    for comparison in copied:
        print(f"{comparison.slug}: copied to {next(iter(comparison.copies)).parent}")
    if asked.update and not copied:
        print("--update had nothing to copy")
    comparisons = list(comparisons)
    left = {result: [] for result in Result}
    for comparison in comparisons:
        if comparison not in copied:
            left[comparison.result].append(comparison)
    _say_what_was_not_compared(left[Result.NOT_COMPARED], len(comparisons), failed)
    if different := left[Result.DIFFERENT]:
        names = ", ".join(dict.fromkeys(each.job.notebook for each in different))
        print(f"Numbers or claims that are not reproduced: {names}.", file=sys.stderr)
    if missing := left[Result.MISSING]:
        names = ", ".join(each.slug for each in missing)
        print(
            f"Figures whose committed record is missing: {names}; restore the records, "
            "or add the new ones with --update.",
            file=sys.stderr,
        )
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return int(bool(failed or different or missing))


def _say_what_was_not_compared(
    skipped: list[Comparison], total: int, failed: list[str]
) -> None:
    """Print in one sentence which figures were not compared with committed ones.

    `total` is the number of figures of all pages that did not fail.
    """
    names = ", ".join(each.slug for each in skipped)
    if not total and not failed:
        print("No figure was saved, so nothing was compared.")
    elif skipped and len(skipped) == total:
        print(f"Nothing was compared with the committed figures: {names}.")
    elif skipped:
        print(f"Not compared with the committed figures: {names}.")
