"""`make mutate`: which plausible wrong formulas do the tests notice?

`python -m tests.mutations [WORD ...] [--jobs N] [--again] [--dry-run]` copies the tracked files,
runs every killer once as it is, then once for each swap whose file, killer or text contains one of
the words (all without a word). A swap is killed when its killer turns red or runs out of time; the
quickest tests run first, and the first that fails ends it. Verdicts are kept in
runs/mutations.jsonl: an interrupted run goes on, `--again` starts anew, `--dry-run` only counts.
The status is 1 where a killer is red without a swap or fewer than 95 % are killed, 2 where a swap
no longer fits its file.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from lib import files
from tests.mutations import child
from tests.mutations.remembered import Remembered
from tests.mutations.swaps import SWAPS, Swap

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for one killer without a swap
SHARE = 0.95  # to be killed
SERVER = multiprocessing.get_context("forkserver")
# Not hypothesis, nbval and xdist, whose modules pytest itself has to import.
SERVER.set_forkserver_preload(
    "cvxpy IPython ipywidgets jupyter_client matplotlib.pyplot mpmath nbconvert nbformat numba "
    "pandas pytest scipy.stats seaborn torch".split()
)
# As conftest.py has it, but before numba is loaded, which refuses another number later.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
DEAD = ("failed", "timed out")


def misfits(swaps: list[Swap]) -> list[str]:
    """The swaps whose `old` is not found exactly once in its file, in words."""
    found = []
    for swap in swaps:
        path = ROOT / swap.file
        count = path.read_text(encoding="utf-8").count(swap.old) if path.is_file() else 0
        if count != 1:
            found.append(f"{swap.file}: {count} times {swap.old!r}")
        name, _, test = swap.killer.partition("::")
        text = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).is_file() else ""
        if f"def {test}" not in text:
            found.append(f"{swap.killer} is no test")
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


def _run(copy: Path, killer: str, numba_cache: Path, seconds: dict, limit: float) -> dict:
    """What became of the tests of `killer`: a verdict, `seconds` by test, the one that `failed`.

    The verdict is "passed", "failed", "timed out", or "broken" where pytest itself could not run
    it. Its process is forked from one with the libraries loaded: they take longer than most tests.
    """
    report = copy.with_suffix(".report")
    report.unlink(missing_ok=True)
    arguments = (str(copy), killer, str(numba_cache), seconds, str(report))
    process = SERVER.Process(target=child.run, args=arguments)
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return {"verdict": "timed out"}
    said = json.loads(report.read_text()) if report.is_file() else {}
    return {"verdict": {0: "passed", 1: "failed"}.get(process.exitcode, "broken")} | said


def _with(swap: Swap, seconds: dict, copy: Path) -> dict:
    path = copy / swap.file
    before, times = path.read_text(encoding="utf-8"), path.stat()
    limit = 90 + 5 * sum(seconds.values())  # compiling, and a machine that is busier than before
    path.write_text(before.replace(swap.old, swap.new), encoding="utf-8")
    try:
        if not ("numba" in before or "/compiled/" in swap.file):
            return _run(copy, swap.killer, copy / "numba", seconds, limit)
        with tempfile.TemporaryDirectory() as cache:
            return _run(copy, swap.killer, Path(cache), seconds, limit)
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class Copies:
    """Copies of the repository, lent to one piece of work at a time."""

    def __init__(self, base: str, count: int):
        self._free = SimpleQueue()
        for number in range(count):
            self._free.put(_copy(Path(base) / str(number)))

    def lend(self, work):
        """What `work` makes of a copy."""
        copy = self._free.get()
        try:
            return work(copy)
        finally:
            self._free.put(copy)


def _clean(killer: str, kept: Remembered, copies: Copies) -> dict:
    """The row of a killer without a swap, which runs where none is kept."""
    key = kept.of_killer(killer)
    if key in kept.rows:
        return kept.rows[key]
    ran = copies.lend(lambda copy: _run(copy, killer, copy / "numba", {}, SECONDS))
    return kept.add({"key": key, "killer": killer} | ran)


def _verdict(swap: Swap, seconds: dict, kept: Remembered, copies: Copies) -> dict:
    ran = copies.lend(partial(_with, swap, seconds))
    about = {"key": kept.of_swap(swap), "file": swap.file, "old": swap.old, "new": swap.new}
    return about | {"verdict": ran["verdict"], "failed": ran.get("failed")}


def _words(swap: Swap, row: dict) -> str:
    verdict = row["verdict"]
    word = "killed" if verdict in DEAD else "SURVIVED" if verdict == "passed" else "BROKEN"
    by = row.get("failed") or (verdict if verdict in DEAD else "")
    return f"{word:8} {swap.file}: {swap.old!r} -> {swap.new!r}  {by}".rstrip()


def _all(swaps: list[Swap], kept: Remembered, jobs: int) -> list[str]:
    """Run what is not kept, a line each as it ends; the killers that are red without a swap."""
    red = []
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(jobs) as pool:
        copies = Copies(base, jobs)
        for killer in dict.fromkeys(swap.killer for swap in swaps):
            clean = _clean(killer, kept, copies)
            if clean["verdict"] != "passed":
                red.append(killer)
                print(f"RED without a swap: {killer} ({clean.get('failed')})", flush=True)
                continue
            own = [swap for swap in swaps if swap.killer == killer]
            work = partial(_verdict, seconds=clean["seconds"], kept=kept, copies=copies)
            for swap, row in zip(own, pool.map(work, own), strict=True):
                print(_words(swap, kept.add(row)), flush=True)
    return red


def main() -> int:
    """Runs the swaps asked for and prints what came of each; the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    if wrong := misfits(SWAPS):
        print("These swaps no longer fit; bring them up to date:", *wrong, sep="\n  ")
        return 2
    swaps = [
        swap
        for swap in SWAPS
        if not asked.words or any(w in f"{swap.file} {swap.killer} {swap.old}" for w in asked.words)
    ]
    equivalent = sum(bool(swap.equivalent) for swap in swaps)
    swaps = [swap for swap in swaps if not swap.equivalent]
    path = files.folder("runs") / "mutations.jsonl"
    if asked.again:
        path.unlink(missing_ok=True)
    kept = Remembered(path, ROOT)
    waiting = [swap for swap in swaps if kept.of_swap(swap) not in kept.rows]
    red = [] if asked.dry_run else _all(waiting, kept, asked.jobs)
    rows = {swap: kept.rows.get(kept.of_swap(swap), {"verdict": "not run"}) for swap in swaps}
    count = Counter("killed" if row["verdict"] in DEAD else row["verdict"] for row in rows.values())
    alive = [_words(swap, row) for swap, row in rows.items() if row["verdict"] == "passed"]
    print(*alive, sep="\n", end="\n" if alive else "")
    print(
        f"{count['killed']} of {len(swaps)} killed, {count['passed']} survived, "
        f"{count['broken']} broken, {count['not run']} not run; "
        f"{equivalent} equivalent, {len(red)} killers red"
    )
    return int(bool(red) or count["killed"] < SHARE * len(swaps))


if __name__ == "__main__":
    sys.exit(main())
