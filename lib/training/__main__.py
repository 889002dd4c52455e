"""Train a study, or one run of it; also under torchrun. The same command goes on where it stopped.

Examples: `python -m lib.training mnist --minutes 50`,
`python -m lib.training mnist --set seeds=3 --set rates.SGD=0.05,0.1 --set options.rows=60000`,
`python -m lib.training digits --one SNGD 0.2 0`.
"""

import argparse
import ast
import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from lib import files
from lib.budget import Budget, minutes
from lib.training.curves import load
from lib.training.rules import RULES
from lib.training.studies import STUDIES
from lib.training.study import TUNING_SEED, OutOfTime, Study, Work, a_run


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line of `python -m lib.training`."""
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
        help="a field of the study, or an entry as rates.SGD or options.rows; a list has commas",
    )
    parser.add_argument(
        "--one",
        nargs=3,
        metavar=("RULE", "RATE", "SEED"),
        help=f"this run alone; seed {TUNING_SEED} is that of the trials",
    )
    parser.add_argument(
        "--minutes", type=minutes, help="train so long, save, say what is left, go on next time"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="write the curves so far to DIR/STUDY.npz and stop"
    )
    parser.add_argument("--state", type=Path, help="folder of the runs, runs/studies")
    parser.add_argument("--cpu", action="store_true", help="stay on the CPU even if there is a GPU")
    return parser.parse_args(arguments)


def changed(study: Study, words: list[str]) -> Study:
    """`study` with "field=value" or "field.entry=value"; ValueError for a field that there is none
    of, and for a value of another kind."""
    fields = [f.name for f in dataclasses.fields(study) if f.name not in ("name", "problem")]
    for word in words:
        place, equals, text = word.partition("=")
        name, dot, entry = place.partition(".")
        if not equals or name not in fields:
            raise ValueError(f"--set {word}: there is no field {name!r}, only {', '.join(fields)}")
        held = getattr(study, name)
        if dot and not (isinstance(held, Mapping) and (name == "rates" or entry in held)):
            there = ", ".join(held) if isinstance(held, Mapping) else "none"
            raise ValueError(f"--set {word}: {name} has the entries {there}, not {entry!r}")
        before = held.get(entry, ()) if dot else held
        study = dataclasses.replace(
            study,
            **{name: held | {entry: _value(word, text, before)}}
            if dot
            else {name: _value(word, text, before)},
        )
    return study


def _value(word: str, text: str, before):
    """The value that `text` says, of the kind of the one `before`."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(before, tuple):
        value = value if isinstance(value, tuple) else (value,)
        fits = value and all(type(v) in (int, float) for v in value)
    elif before is None or isinstance(before, float):
        fits = value is None or type(value) in (int, float)
    else:
        fits = type(value) is type(before)
    if not fits:
        raise ValueError(f"--set {word}: {text!r} is no value like {before!r}")
    return value


def run(chosen: argparse.Namespace) -> str:
    """Do what `options` chose; what is to be said at the end."""
    if chosen.study not in STUDIES:
        raise ValueError(f"there is no study {chosen.study!r}, only {', '.join(STUDIES)}")
    study = changed(STUDIES[chosen.study], chosen.set)
    if chosen.one:
        rule, rate, seed = chosen.one[0], *map(_number, chosen.one[1:])
        if rule not in RULES:
            raise ValueError(f"there is no rule {rule!r}, only {', '.join(RULES)}")
        study = dataclasses.replace(
            study, rates=study.rates | {rule: study.rates.get(rule, (rate,))}
        )
        dataclasses.replace(study, rates={rule: (rate,)})  # which refuses what is no rate
        if type(seed) is not int or seed < 0:
            raise ValueError(f"a seed must be a whole number from 0 on, got {chosen.one[2]}")
    state = chosen.state or files.folder("runs") / "studies"
    work = Work(study, state, Budget(chosen.minutes), cpu=chosen.cpu)
    if chosen.one:
        one = a_run("one", rule, float(rate), study.cap, seed)
        (curve,) = work.all_of([one])
        ends = ", ".join(f"{k} {v[-1]:.4f}" for k, v in curve.metrics.items() if k[:4] == "test")
        return f"{curve.status}; {ends}; in {work.folder}"
    if not chosen.keep:
        work.run()
        return f"{study.name}: {work.left()}, in {work.folder}"
    path = chosen.keep / f"{study.name}.npz"
    if path.exists() and (old := load(path)).digest != work.key:
        mine, theirs = work.configuration, old.configuration
        unlike = [k for k in {**mine, **theirs} if mine.get(k) != theirs.get(k)]
        raise ValueError(f"{path} is of another study ({', '.join(unlike)} differ): move it away")
    work.collected().save(path)
    return f"{path}: {work.left()}"


def _number(text: str):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"{text!r} is no number") from None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    It is 3 where time ran out, and 1, with one printed sentence, for an error that a user can mend.
    """
    sys.stdout.reconfigure(line_buffering=True)
    status = 0
    try:
        words = run(options(arguments))
    except OutOfTime as rest:
        words, status = f"the minutes are used up: {rest}; the same command goes on from here", 3
    except (ValueError, OSError, MemoryError, torch.OutOfMemoryError) as error:
        words, status = f"error: {files.sentence(error)}", 1
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if os.environ.get("RANK", "0") == "0":  # one process speaks for all
        print(words, file=sys.stderr if status == 1 else sys.stdout)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
