"""`make mutate`: which plausible wrong formulas do the tests notice?

`python -m tests.mutations [WORD ...]` runs the swaps of swaps.txt whose file, test or text contains
one of the words (all without a word): in a copy of the tracked files, one formula wrong at a time,
its tests must turn red. `--random N --seed S` draws N mutants that nobody chose instead, each
against the tests that import its module. The status is 1 where a test is red without a swap or
fewer than 95 % (of random mutants 85 %) are killed, 2 where a swap no longer fits its file.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from scipy.stats import binomtest

from lib import files
from tests.mutations import child, random_mutants

ROOT = Path(__file__).resolve().parents[2]
SERVER = multiprocessing.get_context("forkserver")  # libraries take longer to load than tests
SERVER.set_forkserver_preload("cvxpy matplotlib.pyplot mpmath numba scipy.stats torch".split())
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


class Swap(NamedTuple):
    """One wrong formula: `old` -> `new` in `file`, which `tests` should notice."""

    file: str
    tests: tuple[str, ...]
    old: str
    new: str


def table(text: str) -> list[Swap]:
    """The swaps of swaps.txt: a line "file: tests", below it lines "old => new"."""
    found, file, tests = [], "", ()
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if " => " in line:
            found.append(Swap(file, tests, *line.split(" => ")))
        else:
            file, names = line.split(": ")
            tests = tuple(names.split())
    return found


SWAPS = table((Path(__file__).parent / "swaps.txt").read_text(encoding="utf-8"))


def misfits(swaps: list[Swap]) -> list[str]:
    """The swaps whose `old` is not found exactly once in its file, in words."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in {s.file for s in swaps}}
    found = [f"{s.file}: {s.old}" for s in swaps if texts[s.file].count(s.old) != 1]
    tests = {test for swap in swaps for test in swap.tests}
    return found + sorted(test for test in tests if not (ROOT / test).is_file())


def run(copy: Path, swap: Swap, seconds: int) -> str:
    """The test that fails with `swap` in `copy`; "late" after `seconds` on a processor; or ""."""
    path, report = copy / swap.file, copy.with_suffix(".report")
    before, times = path.read_text(encoding="utf-8"), path.stat()
    compiled = swap.old and ("numba" in before or "/compiled/" in swap.file)
    report.unlink(missing_ok=True)
    path.write_text(before.replace(swap.old, swap.new) if swap.old else before, encoding="utf-8")
    with tempfile.TemporaryDirectory() as apart:  # numba forgets what it has of a changed file
        cache = f"{copy}/numba"
        cache = shutil.copytree(cache, apart, dirs_exist_ok=True) if compiled else cache
        given = (str(copy), swap.tests, cache, seconds * (3 if compiled else 1), str(report))
        process = SERVER.Process(target=child.run, args=given)
        process.start()
        process.join(20 * seconds)
        process.kill()
        process.join()
    path.write_text(before, encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    failed = json.loads(report.read_text()) if report.is_file() else "late"
    return "" if process.exitcode == 0 else failed or "broken"


def main() -> int:
    """Runs what is asked for, a line each as it ends; the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60, help="on a processor, for one swap")
    asked = parser.parse_args()
    if wrong := misfits(SWAPS):
        print("These swaps no longer fit:", *wrong, sep="\n  ")
        return 2
    swaps = [swap for swap in SWAPS if any(word in str(swap) for word in asked.words or [""])]
    if not swaps:
        parser.error(f"no swap has one of the words {asked.words}")
    if asked.random:
        drawn = random_mutants.draw(asked.random, asked.seed)
        swaps = [
            Swap(str(p.relative_to(ROOT)), random_mutants.importing(p), old, new)
            for p, old, new in drawn
        ]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    copy, clean, died = files.folder("runs") / "mutations" / "copy", {}, []
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.splitlines()):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    (copy / "numba").mkdir(exist_ok=True)
    for swap in swaps:
        if swap.tests not in clean:  # compiles, too
            clean[swap.tests] = run(copy, swap._replace(old="", new=""), 10 * asked.seconds)
            if clean[swap.tests]:
                print("RED without a swap:", clean[swap.tests], flush=True)
        if not clean[swap.tests]:
            died.append(run(copy, swap, asked.seconds))
            old, new = random_mutants.line(swap.old, swap.new)
            verdict = "killed  " if died[-1] else "SURVIVED"
            print(verdict, swap.file, old, "=>", new, died[-1], flush=True)
    killed, red = sum(map(bool, died)), any(clean.values())
    low, high = binomtest(killed, len(died)).proportion_ci()
    print(f"{killed} of {len(died)} killed, 95 % interval {low:.0%} to {high:.0%}")
    return int(red or killed < (0.85 if asked.random else 0.95) * len(died))


if __name__ == "__main__":
    sys.exit(main())
