"""`make mutate`: check that the tests notice formulas that were changed at random.

`python -m tests.mutations [WORD ...] --random N --seed S` draws N mutants of the files
that have one of the words in their path (of all files without a word). In a copy of the
tracked files one formula at a time is wrong, and the tests that import its module must
fail. The exit status is 1 if a test fails without a mutant, or if fewer than 85 % of
the mutants are detected.
"""

import argparse
import importlib
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.mutations.random_mutants import ROOT, draw, line

# Loaded once
HEAVY = "cvxpy matplotlib.pyplot mpmath numba pytest scipy.stats torch".split()
FORK = multiprocessing.get_context("fork")
SECONDS = (
    600  # processor seconds for the tests of one mutant, more than any test file takes
)


class Mutant(NamedTuple):
    """One wrong formula: `old` -> `new` in `file`, which `tests` should notice."""

    file: str
    tests: tuple[str, ...]
    old: str
    new: str


def _pytest(copy: Path, tests: tuple[str, ...], cache: str, seconds: int) -> None:
    """Start the `tests` in `copy`; the status of the process is that of pytest."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with open(copy.with_suffix(".report"), "w") as report:
        os.dup2(report.fileno(), 1), os.dup2(report.fileno(), 2)
    os.chdir(copy)
    sys.dont_write_bytecode = (
        True  # a mutant and its undoing may share a second and a size
    )
    sys.modules["numba"].config.CACHE_DIR = cache
    os.environ |= {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": cache}
    sys.path.insert(0, str(copy))
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] in ("lib", "companion", "papers", "tests")
    ]:
        del sys.modules[name]
    options = "-x -q -p no:cacheprovider --tb=no -rfE".split()
    os._exit(sys.modules["pytest"].main([*options, *tests]))


def _run(copy: Path, mutant: Mutant, seconds: int = SECONDS) -> str:
    """Return the first test that fails with `mutant` in `copy`.

    The result is "" if no test fails. It is "late" if the process ends without a test
    that failed, as it does after `seconds` of processor time.
    """
    path = copy / mutant.file
    before = path.read_text(encoding="utf-8")
    times = path.stat()
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    with (
        tempfile.TemporaryDirectory() as apart
    ):  # numba discards what it has kept of a changed file
        cache = f"{copy}/numba"
        if mutant.old:
            cache = shutil.copytree(cache, apart, dirs_exist_ok=True)
        else:
            cache = cache
        process = FORK.Process(
            target=_pytest, args=(copy, mutant.tests, cache, seconds)
        )
        process.start()
        process.join()
    path.write_text(before, encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    failed = re.findall(
        r"^(?:FAILED|ERROR) (\S+)", copy.with_suffix(".report").read_text(), re.M
    )
    if process.exitcode == 0:
        return ""
    return [*failed, "late"][0]


def main() -> int:
    """Test the mutants that are requested, with a line for each; return the exit
    status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__
    )
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--random", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    mutants = [Mutant(*drawn) for drawn in draw(asked.random, asked.seed, asked.words)]
    os.environ |= dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )
    list(map(importlib.import_module, HEAVY))
    copy = ROOT / "runs" / "mutations" / "copy"
    red = {}
    died = []
    (copy / "numba").mkdir(parents=True, exist_ok=True)
    for name in subprocess.check_output(
        ["git", "ls-files"], cwd=ROOT, text=True
    ).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    for mutant in mutants:
        if mutant.tests not in red:  # compiles, too
            red[mutant.tests] = _run(
                copy, mutant._replace(old="", new=""), 10 * SECONDS
            )
        if red[mutant.tests]:
            print("RED without a mutant:", red[mutant.tests], flush=True)
            continue
        died.append(_run(copy, mutant))
        print(
            died[-1] or "SURVIVED",
            mutant.file,
            *line(mutant.old, mutant.new),
            sep=" | ",
            flush=True,
        )
    killed = sum(map(bool, died))
    low, high = sys.modules["scipy.stats"].binomtest(killed, len(died)).proportion_ci()
    print(f"{killed} of {len(died)} killed, 95 % interval {low:.0%} to {high:.0%}")
    return int(any(red.values()) or killed < 0.85 * len(died))


if __name__ == "__main__":
    sys.exit(main())
