"""`make mutate`: which plausible wrong formulas do the tests notice?

`python -m tests.mutations [WORD ...]` runs the swaps of swaps.txt that have one of the words (all
without a word): in a copy of the tracked files, one formula wrong at a time, its tests must turn
red. `--random N --seed S` draws N mutants that nobody chose, of files with one of the words, each
against the tests that import its module. Status 1: a test is red without a swap, or fewer than 95 %
(of random mutants 85 %) die.
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

HEAVY = "cvxpy matplotlib.pyplot mpmath numba pytest scipy.stats torch".split()  # loaded once
FORK = multiprocessing.get_context("fork")
SECONDS = 600  # on a processor, for the tests of one swap: longer than those of any file


class Swap(NamedTuple):
    """One wrong formula: `old` -> `new` in `file`, which `tests` should notice."""

    file: str
    tests: tuple[str, ...]
    old: str
    new: str


SWAPS, _file, _tests = [], "", []  # swaps.txt: a line "file: tests", below it lines "old => new"
for _line in (Path(__file__).parent / "swaps.txt").read_text(encoding="utf-8").splitlines():
    if " => " in _line:
        SWAPS.append(Swap(_file, tuple(_tests), *_line.strip().split(" => ")))
    elif _line.strip():
        _file, *_tests = _line.replace(":", "", 1).split()


def misfits(swaps: list[Swap]) -> list[str]:
    """The swaps whose `old` is not found exactly once in its file, and tests that are not there."""
    count = lambda swap: (ROOT / swap.file).read_text(encoding="utf-8").count(swap.old)
    wrong = [f"{swap.file}: {swap.old}" for swap in swaps if count(swap) != 1]
    return wrong + sorted({t for swap in swaps for t in swap.tests if not (ROOT / t).is_file()})


def _pytest(copy: Path, tests: tuple[str, ...], cache: str, seconds: int) -> None:
    """The process of the `tests` in `copy`: its status is that of pytest."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with open(copy.with_suffix(".report"), "w") as report:
        os.dup2(report.fileno(), 1), os.dup2(report.fileno(), 2)
    os.chdir(copy)
    sys.dont_write_bytecode = True  # a swap and its undoing may share a second and a size
    sys.modules["numba"].config.CACHE_DIR = cache
    os.environ |= {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": cache}
    sys.path.insert(0, str(copy))
    for name in [name for name in sys.modules if name.split(".")[0] in ("lib", "papers", "tests")]:
        del sys.modules[name]
    options = "-x -q -p no:cacheprovider --tb=no -rfE".split()
    os._exit(sys.modules["pytest"].main([*options, *tests]))


def _run(copy: Path, swap: Swap, seconds: int = SECONDS) -> str:
    """The test that fails with `swap` in `copy`; "late" after `seconds` on a processor; or ""."""
    path = copy / swap.file
    before, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(before.replace(swap.old, swap.new), encoding="utf-8")
    with tempfile.TemporaryDirectory() as apart:  # numba forgets what it has of a changed file
        cache = f"{copy}/numba"
        cache = shutil.copytree(cache, apart, dirs_exist_ok=True) if swap.old else cache
        process = FORK.Process(target=_pytest, args=(copy, swap.tests, cache, seconds))
        process.start()
        process.join()
    path.write_text(before, encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", copy.with_suffix(".report").read_text(), re.M)
    return "" if process.exitcode == 0 else [*failed, "late"][0]


def main() -> int:
    """Run what is asked for, a line each as it ends; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    swaps = [swap for swap in SWAPS if any(word in str(swap) for word in asked.words or [""])]
    if asked.random:
        swaps = [Swap(*mutant) for mutant in draw(asked.random, asked.seed, asked.words)]
    elif wrong := misfits(swaps) if swaps else ["none has one of these words"]:
        parser.error("; ".join(wrong))
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    list(map(importlib.import_module, HEAVY))
    copy, red, died = ROOT / "runs" / "mutations" / "copy", {}, []
    (copy / "numba").mkdir(parents=True, exist_ok=True)
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    for swap in swaps:
        if swap.tests not in red:  # compiles, too
            red[swap.tests] = _run(copy, swap._replace(old="", new=""), 10 * SECONDS)
        if red[swap.tests]:
            print("RED without a swap:", red[swap.tests], flush=True)
            continue
        died.append(_run(copy, swap))
        print(died[-1] or "SURVIVED", swap.file, *line(swap.old, swap.new), sep=" | ", flush=True)
    killed = sum(map(bool, died))
    low, high = sys.modules["scipy.stats"].binomtest(killed, len(died)).proportion_ci()
    print(f"{killed} of {len(died)} killed, 95 % interval {low:.0%} to {high:.0%}")
    return int(any(red.values()) or killed < (0.85 if asked.random else 0.95) * len(died))


if __name__ == "__main__":
    sys.exit(main())
