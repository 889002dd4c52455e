"""Run the named benchmarks, or all of them, and print a table.

The results are written to runs/bench.json. The exit status is 1 if a bar is missed.
Each benchmark has a process of its own: heap and thread pools that earlier benchmarks
leave behind changed the ratio of a call under a millisecond from 2.7 to 5.
"""

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from tests.benchmarks.entries import ENTRIES, measured
from tests.benchmarks.measure import HEADER, line, save

PEERS = "daqp", "piqp", "jax"  # a row is skipped if its peer is not installed


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"out of {', '.join(ENTRIES)}"
    )
    names = parser.parse_args().names or list(ENTRIES)
    if unknown := [name for name in names if name not in ENTRIES]:
        parser.error(
            f"unknown benchmark {', '.join(unknown)}; choose out of {', '.join(ENTRIES)}"
        )
    print(HEADER, flush=True)
    entries = []
    skipped = []
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, fresh, max_tasks_per_child=1) as pool:
        for name in names:
            try:
                entries.append(pool.submit(measured, name).result())
            except ModuleNotFoundError as error:
                if error.name not in PEERS:
                    raise
                print(f"{name:<22} skipped: {error}", flush=True)
                skipped.append(name)
                continue
            print(line(entries[-1]), flush=True)
    missed = [entry.name for entry in entries if not entry.holds]
    told = {"missed": missed, "skipped": skipped}
    ends = [f"{word}: {', '.join(names)}" for word, names in told.items() if names]
    print(f"written to {save(entries)}; {'; '.join(ends) or 'every bar holds'}")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
