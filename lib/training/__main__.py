"""Train a study, or one run of it; also under torchrun. The same command goes on where it stopped.

Examples: `python -m lib.training mnist --minutes 50`,
`python -m lib.training mnist --set seeds=3 --set rates.SGD=0.05,0.1 --set options.rows=60000`,
`python -m lib.training digits --one SNGD 0.2 0`.
"""

import argparse
import ast
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import torch

from lib import files
from lib.training.curves import load
from lib.training.studies import STUDIES
from lib.training.study import TUNING_SEED, OutOfTime, Study, Work, a_run


def _options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line of `python -m lib.training`."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("study", help=", ".join(STUDIES))
    words = "a field of the study, or an entry as rates.SGD or options.rows; a list has commas"
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help=words)
    words = f"this run alone; seed {TUNING_SEED} is that of the trials"
    add("--one", nargs=3, metavar=("RULE", "RATE", "SEED"), help=words)
    words = "train so long, save, say what is left, go on next time"
    add("--minutes", type=float, default=math.inf, help=words)
    add(
        "--keep", type=Path, metavar="DIR", help="write the curves so far to DIR/STUDY.npz and stop"
    )
    state = files.folder("runs") / "studies"
    add("--state", type=Path, default=state, help="folder of the runs, runs/studies")
    add("--cpu", action="store_true", help="stay on the CPU even if there is a GPU")
    return parser.parse_args(arguments)


def _changed(study: Study, word: str) -> Study:
    """`study` with "field=value" or "field.entry=value"; ValueError for what fits no field."""
    names = [f.name for f in fields(study) if f.name not in ("name", "problem")]
    place, equals, text = word.partition("=")
    name, dot, entry = place.partition(".")
    if not equals or name not in names:
        raise ValueError(f"--set {word}: there is no field {name!r}, only {', '.join(names)}")
    before = getattr(study, name)
    if not dot:
        return replace(study, **{name: _value(f"--set {word}", text, before)})
    entries = before if isinstance(before, Mapping) else {}
    if entry not in entries and name != "rates":
        raise ValueError(f"--set {word}: {name} has the entries {[*entries]}, not {entry!r}")
    value = _value(f"--set {word}", text, entries.get(entry, ()))
    return replace(study, **{name: {**entries, entry: value}})


def _value(word: str, text: str, before):
    """The value that `text` says, of the kind of the one `before`."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    number = lambda x: type(x) in (int, float)
    if isinstance(before, list | tuple):
        value = value if isinstance(value, tuple) else (value,)
        fits = value and all(map(number, value))
    elif before is None or isinstance(before, float):
        fits = value is None or number(value)
    else:
        fits = type(value) is type(before)
    if not fits:
        raise ValueError(f"{word}: {text!r} is no value like {before!r}")
    return value


def _run(chosen: argparse.Namespace) -> str:
    """Do what the options `chosen` say; what is to be said at the end."""
    if chosen.study not in STUDIES:
        raise ValueError(f"there is no study {chosen.study!r}, only {', '.join(STUDIES)}")
    study = STUDIES[chosen.study]
    for word in chosen.set:
        study = _changed(study, word)
    if chosen.one:
        rule, rate, seed = chosen.one
        rate = _value(f"--one {rule}", rate, 0.1)
        replace(study, rates={rule: (rate,)})  # which refuses what is no rule or no rate
        if not seed.isdecimal():
            raise ValueError(f"a seed must be a whole number from 0 on, got {seed}")
        study = replace(study, rates={rule: (rate,), **study.rates})
    work = Work(study, chosen.state, chosen.minutes, cpu=chosen.cpu)
    if chosen.one:
        (curve,) = work.all_of([a_run("one", rule, float(rate), study.cap, int(seed))])
        last = {name: values[-1] for name, values in curve.metrics.items() if name[:4] == "test"}
        ends = ", ".join(f"{name} {value:.4f}" for name, value in last.items())
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


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status: 3 where time ran out, and 1, with one
    printed sentence, for an error that a user can mend."""
    sys.stdout.reconfigure(line_buffering=True)
    status = 0
    try:
        words = _run(_options(arguments))
    except OutOfTime as rest:
        words = f"the minutes are used up: {rest}; the same command goes on from here"
        status = 3
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
