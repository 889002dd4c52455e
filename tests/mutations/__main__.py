"""`make mutate`: which plausible wrong formulas do the tests notice?

`python -m tests.mutations [WORD ...] [--jobs N]` copies the tracked files, runs every killer once
as it is, then once for each swap whose file, killer or text contains one of the words (all without
a word). A swap is killed when its test file turns red or runs out of time. The status is 1 where a
killer is red without a swap or fewer than 95 % are killed, 2 where a swap no longer fits its file.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutations import child
from tests.mutations.swaps import SWAPS, Swap

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for one test file
SHARE = 0.95  # to be killed
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["cvxpy", "matplotlib.pyplot", "numba", "pytest", "scipy.stats", "torch"]
)


def misfits(swaps: list[Swap]) -> list[str]:
    """The swaps whose `old` is not found exactly once in its file, in words."""
    found = []
    for swap in swaps:
        path = ROOT / swap.file
        count = path.read_text(encoding="utf-8").count(swap.old) if path.is_file() else 0
        if count != 1:
            found.append(f"{swap.file}: {count} times {swap.old!r}")
        if not (ROOT / swap.killer).is_file():
            found.append(f"{swap.killer} is no file")
    return found


def _copy(place: Path) -> Path:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def _run(copy: Path, killer: str, numba_cache: Path) -> str:
    """ "passed", "failed", "timed out", or "broken" where pytest itself could not run it.

    Its process is forked from one with the libraries loaded: they take longer than most tests.
    """
    process = SERVER.Process(target=child.run, args=(str(copy), killer, str(numba_cache)))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return "timed out"
    return {0: "passed", 1: "failed"}.get(process.exitcode, "broken")


def _with(swap: Swap, copy: Path) -> str:
    path = copy / swap.file
    before, times = path.read_text(encoding="utf-8"), path.stat()
    compiled = "numba" in before or "/compiled/" in swap.file
    path.write_text(before.replace(swap.old, swap.new), encoding="utf-8")
    try:
        if not compiled:
            return _run(copy, swap.killer, copy / "numba")
        with tempfile.TemporaryDirectory() as cache:
            return _run(copy, swap.killer, Path(cache))
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def main() -> int:
    """Runs the swaps asked for and prints what came of each; the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if wrong := misfits(SWAPS):
        print("These swaps no longer fit; bring them up to date:", *wrong, sep="\n  ")
        return 2
    swaps = [
        swap
        for swap in SWAPS
        if not asked.words or any(w in f"{swap.file} {swap.killer} {swap.old}" for w in asked.words)
    ]
    equivalent = [swap for swap in swaps if swap.equivalent]
    swaps = [swap for swap in swaps if not swap.equivalent]
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(asked.jobs) as pool:
        copies = SimpleQueue()
        for job in range(asked.jobs):
            copies.put(_copy(Path(base) / str(job)))

        def borrowed(work):
            copy = copies.get()
            try:
                return work(copy)
            finally:
                copies.put(copy)

        red, killed, ready = [], 0, []
        for killer in dict.fromkeys(swap.killer for swap in swaps):
            if borrowed(lambda copy, k=killer: _run(copy, k, copy / "numba")) != "passed":
                red.append(killer)
                print(f"RED without a swap: {killer}", flush=True)
                continue
            own = [swap for swap in swaps if swap.killer == killer]
            ready += own
            verdicts = pool.map(lambda s: borrowed(lambda copy: _with(s, copy)), own)
            for swap, said in zip(own, verdicts, strict=True):
                dead = said in ("failed", "timed out")
                killed += dead
                word = "killed" if dead else "SURVIVED" if said == "passed" else "BROKEN"
                print(f"{word:8} {swap.file}: {swap.old!r} -> {swap.new!r}", flush=True)
    print(f"{killed} of {len(ready)} killed, {len(equivalent)} equivalent, {len(red)} killers red")
    return int(bool(red) or killed < SHARE * len(ready))


if __name__ == "__main__":
    sys.exit(main())
