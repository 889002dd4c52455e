"""Train a study, or one run of it; also under torchrun.

The same command goes on where it stopped.

Examples: `python -m lib.training mnist_60000 --minutes 50`, `python -m lib.training
digits --set seeds=3 --set rates.SGD=0.05,0.1 --set rates.RMSprop=1e-3`, `python -m
lib.training digits --one SNGD 0.2 0`.
"""

import argparse
import ast
import io
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from lib import files, seeds
from lib.training.curves import Curve, load
from lib.training.studies import STUDIES
from lib.training.study import TUNING_SEED, Study
from lib.training.work import OutOfTime, Run, Work

# Fields of a study that the command line cannot set.
FIXED = ("name", "problem", "rules")


def _options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", help=", ".join(STUDIES))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="set a field of the study, or an entry as rates.SGD or options.rows; "
        "separate the values of a list by commas",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--one",
        nargs=3,
        metavar=("RULE", "RATE", "SEED"),
        help=f"train this run alone; seed {TUNING_SEED} is that of the trials",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="stop after this many minutes and save; rerun to continue",
    )
    either.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="train nothing, and write the curves so far to DIR",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=files.folder("runs") / "studies",
        help="keep the runs in this folder; runs/studies by default",
    )
    parser.add_argument(
        "--cpu", action="store_true", help="stay on the CPU even if there is a GPU"
    )
    return parser.parse_args(arguments)


def _changed(study: Study, setting: str) -> Study:
    """Return `study` with one change, "field=value" or "field.entry=value".

    A single number for rates or targets becomes a tuple with one entry. Raises
    ValueError if no field or option has this name, or if the value does not fit.
    """
    place, equals, text = setting.partition("=")
    name, dot, entry = place.partition(".")
    names = [field.name for field in fields(study) if field.name not in FIXED]
    if not equals or name not in names:
        raise ValueError(
            f"--set {setting}: it is FIELD=VALUE, with a field of {', '.join(names)}"
        )
    before = getattr(study, name)
    value = _value(text)
    if name in ("rates", "targets") and not isinstance(value, tuple):
        value = (value,)
    if not isinstance(before, Mapping):
        if dot:
            raise ValueError(f"--set {setting}: {name} has no entries, not {entry!r}")
        _check_alike(setting, before, value)
        return replace(study, **{name: value})
    # A change may add a new rule to the rates, but not a new option, since the problem
    # defines its options.
    if not dot or (name == "options" and entry not in before):
        raise ValueError(f"--set {setting}: {name} has {[*before]}, not {entry!r}")
    _check_alike(setting, before.get(entry), value)
    return replace(study, **{name: {**before, entry: value}})


def _check_alike(setting: str, before: Any, value: Any) -> None:
    """Raise ValueError if a bool, a whole number or a string would change its type.

    `before` is the present value, and `value` is the new one. Values of other types are
    not checked here; the study checks its numbers itself.
    """
    if isinstance(before, bool | int | str) and type(value) is not type(before):
        text = setting.partition("=")[2]
        raise ValueError(
            f"--set {setting}: expected a value such as {before!r}, got {text!r}"
        )


def _value(text: str) -> Any:
    """Read `text` as a Python literal; return the text itself if it is not one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _one(study: Study, words: list[str]) -> Run:
    """Return the run of the study that "RULE RATE SEED" names.

    SNGD gets the cap of the study. If the study has no cap, SNGD has none either,
    because no race has found the rate of SPS. Raises ValueError if the rule is unknown
    or if the rate or the seed is not valid.
    """
    rule, rate_text, seed_text = words
    rate = _value(rate_text)
    # the study raises an error for an unknown rule or a wrong rate
    replace(study, rates={rule: (rate,)})
    seed = seeds.whole_number("seed", _value(seed_text))
    return Run.of("one", rule, float(rate), study.cap, seed)


def _keep(work: Work, path: Path) -> str:
    """Store the curves so far in a file, and return how far the study has come.

    Raises ValueError if the file is of another study, or if it has runs that the folder
    of the study lacks: these would be lost.
    """
    collected = work.collected()
    if path.exists():
        stored = load(path)
        if stored.configuration != work.configuration:
            raise ValueError(f"{path} is of another study: move it away")
        lost = {*map(_key, stored.curves)} - {*map(_key, collected.curves)}
        if lost:
            raise ValueError(
                f"{path} has {len(lost)} runs that are not in {work.folder} and would "
                "be lost: move it away"
            )
    collected.save(path)
    return f"{path}: {work.left()}"


def _key(run: Curve) -> tuple:
    """Return what distinguishes a run from the other runs of its study."""
    return run.part, run.rule, run.rate, run.cap, run.seed


def _run(chosen: argparse.Namespace) -> str:
    """Do what the command line requests, and return the message to print at the end.

    The function trains one run (--one), only stores the curves so far (--keep), or
    trains the study. Raises OutOfTime if the minutes are used up first.
    """
    if chosen.study not in STUDIES:
        raise ValueError(
            f"there is no study {chosen.study!r}, only {', '.join(STUDIES)}"
        )
    study = reduce(_changed, chosen.set, STUDIES[chosen.study])
    alone = _one(study, chosen.one) if chosen.one else None
    work = Work(study, chosen.state, chosen.minutes, cpu=chosen.cpu)
    if alone is not None:
        (curve,) = work.all_of([alone])
        ends = [f", {name} {values[-1]:.4f}" for name, values in curve.metrics.items()]
        return f"{curve.status}{''.join(ends)}; in {work.folder}"
    if chosen.keep:
        return _keep(work, chosen.keep / f"{study.name}.npz")
    work.run()
    return f"{study.name}: {work.left()}, in {work.folder}"


def main(arguments: list[str] | None = None) -> int:
    """Train a study, or a single run of it; interrupted work resumes.

    This is the command ``python -m lib.training STUDY [options]``, which also works
    under torchrun. If the command is repeated, it continues where it stopped.

    Parameters
    ----------
    arguments : list of str, optional
        The command line. Default: ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit status: 0 if everything is finished, 3 if time ran out, and 1 after an
        error that the user can fix. In the last case, a sentence about the error is
        printed to standard error.

    Raises
    ------
    SystemExit
        With status 2, if an option is unknown or has a wrong form.

    Examples
    --------
    Train for 50 minutes, then stop and save::

        python -m lib.training mnist_60000 --minutes 50

    Change the seeds and rates of a study::

        python -m lib.training digits --set seeds=3 --set rates.SGD=0.05,0.1

    Train one run, by its rule, rate and seed::

        python -m lib.training digits --one SNGD 0.2 0
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        words = _run(_options(arguments))
        status = 0
    except OutOfTime as rest:
        words = f"the minutes are used up: {rest}; the same command goes on from here"
        status = 3
    except (ValueError, OSError, MemoryError, torch.OutOfMemoryError) as error:
        words = f"error: {files.sentence(error)}"
        status = 1
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if os.environ.get("RANK", "0") == "0":  # one process prints for all
        print(words, file=sys.stderr if status == 1 else sys.stdout)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
