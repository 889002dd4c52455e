"""Train a study, or one run of it; also under torchrun. The same command goes on where
it stopped.

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

import torch

from lib import files, seeds
from lib.training.curves import load
from lib.training.studies import STUDIES
from lib.training.study import TUNING_SEED, OutOfTime, Study, Work, a_run


def _options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m lib.training", None, __doc__, formatter_class=how
    )
    add = parser.add_argument
    state = files.folder("runs") / "studies"
    add("study", help=", ".join(STUDIES))
    words = (
        "a field of the study, or an entry as rates.SGD or options.rows; "
        "a list has commas"
    )
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help=words)
    words = f"this run alone; seed {TUNING_SEED} is that of the trials"
    add("--one", nargs=3, metavar=("RULE", "RATE", "SEED"), help=words)
    add("--minutes", type=float, default=math.inf, help="train so long, and save")
    add("--keep", type=Path, metavar="DIR", help="only write its curves so far to DIR")
    add("--state", type=Path, default=state, help="folder of the runs, runs/studies")
    add("--cpu", action="store_true", help="stay on the CPU even if there is a GPU")
    return parser.parse_args(arguments)


def _changed(study: Study, word: str) -> Study:
    """Return `study` with "field=value" or "field.entry=value".

    ValueError is raised for what fits no field.
    """
    place, equals, text = word.partition("=")
    name, dot, entry = place.partition(".")
    names = [
        field.name for field in fields(study) if field.name not in ("name", "problem")
    ]
    if not equals or name not in names:
        raise ValueError(
            f"--set {word}: it is FIELD=VALUE, with a field of {', '.join(names)}"
        )
    before = getattr(study, name)
    value = _value(text)
    if isinstance(before, Mapping) != bool(dot) or (
        name == "options" and entry not in before
    ):
        if isinstance(before, Mapping):
            entries = [*before]
        else:
            entries = "no entries"
        raise ValueError(f"--set {word}: {name} has {entries}, not {entry!r}")
    old = before.get(entry) if dot else before
    if isinstance(old, bool | int | str) and type(value) is not type(old):
        raise ValueError(f"--set {word}: {text!r} is no value like {old!r}")
    if name in ("rates", "targets") and not isinstance(value, tuple):
        value = (value,)
    return replace(study, **{name: {**before, entry: value} if dot else value})


def _value(text: str):
    """Read `text` as Python; return the text itself if it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _run(chosen: argparse.Namespace) -> str:
    """Do what the command line asks; return what is to be said at the end."""
    if chosen.study not in STUDIES:
        raise ValueError(
            f"there is no study {chosen.study!r}, only {', '.join(STUDIES)}"
        )
    study = reduce(_changed, chosen.set, STUDIES[chosen.study])
    if chosen.one:
        rule, *numbers = chosen.one
        rate, seed = map(_value, numbers)
        # Which refuses what is no rule or no rate
        replace(study, rates={rule: (rate,)})
        alone = a_run(
            "one", rule, float(rate), study.cap, seeds.whole_number("seed", seed)
        )
    work = Work(study, chosen.state, chosen.minutes, cpu=chosen.cpu)
    if chosen.one:
        (curve,) = work.all_of([alone])
        ends = "".join(
            f", {name} {values[-1]:.4f}" for name, values in curve.metrics.items()
        )
        return f"{curve.status}{ends}; in {work.folder}"
    if not chosen.keep:
        work.run()
        return f"{study.name}: {work.left()}, in {work.folder}"
    path = chosen.keep / f"{study.name}.npz"
    if path.exists() and load(path).configuration != work.configuration:
        raise ValueError(f"{path} is of another study: move it away")
    work.collected().save(path)
    return f"{path}: {work.left()}"


def main(arguments: list[str] | None = None) -> int:
    """Train a study, or a single run of it; interrupted work resumes.

    It runs ``python -m lib.training STUDY [options]``, also under torchrun. The same
    command goes on where the last one stopped.

    Parameters
    ----------
    arguments : list of str, optional
        The command line. Default: ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit status: 0 at the end, 3 if time ran out, and 1 after an error that a user
        can mend, of which one sentence is printed.

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
    if os.environ.get("RANK", "0") == "0":  # one process speaks for all
        print(words, file=sys.stderr if status == 1 else sys.stdout)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
