"""`python -m lib.training study NAME --minutes 50`: run a study piece by piece, keep its curves."""

import argparse
import sys
from pathlib import Path

from lib import files
from lib.budget import Budget, minutes
from lib.training import threads
from lib.training.curves import Curves, load
from lib.training.runner import OutOfTime, Runner
from lib.training.studies import STUDIES


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line of `python -m lib.training study`."""
    parser = argparse.ArgumentParser(prog="python -m lib.training study", description=__doc__)
    parser.add_argument(
        "names", nargs="+", choices=STUDIES, metavar="NAME", help=", ".join(STUDIES)
    )
    parser.add_argument(
        "--minutes", type=minutes, help="train so long, save, say what is left, go on next time"
    )
    parser.add_argument("--state", type=Path, help="folder of unfinished work, runs/studies")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="write the curves so far to DIR/<name>.npz and stop",
    )
    parser.add_argument(
        "--adopt", type=Path, metavar="DIR", help="take over the finished runs in DIR/<name>.npz"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="RULE", help="only these rules")
    parser.add_argument(
        "--backwards", action="store_true", help="the last seed first, beside another process"
    )
    chosen = parser.parse_args(arguments)
    chosen.state = chosen.state or files.folder("runs") / "studies"
    return chosen


def run(chosen: argparse.Namespace) -> list[Curves]:
    """The studies of the command line, one after the other; OutOfTime where the minutes end."""
    print(threads.one("sums are split over threads, and another split rounds differently"))
    budget, found = Budget(chosen.minutes), []
    for name in chosen.names:
        runner = Runner(STUDIES[name], chosen.state, budget)
        if chosen.adopt is not None:
            runner.files.adopt(load(chosen.adopt / f"{name}.npz", runner.configuration))
        if chosen.keep is None:
            curves = runner.run(chosen.only, chosen.backwards)
            print(f"{name}: {runner.left()}", flush=True)
        else:
            curves = runner.files.collected()
            curves.save(chosen.keep / f"{name}.npz")
            print(f"{chosen.keep / f'{name}.npz'}: {runner.left()}", flush=True)
        found.append(curves)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    It is 3 where time ran out, and 1, with one printed sentence, for an error that a user can mend.
    """
    sys.stdout.reconfigure(line_buffering=True)
    try:
        run(options(arguments))
    except OutOfTime as rest:
        print(f"the minutes are used up: {rest}; the same command goes on from here")
        return 3
    except (ValueError, OSError, MemoryError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0
