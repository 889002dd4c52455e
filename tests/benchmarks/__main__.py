"""Run the named benchmarks, or all: a table, runs/bench.json, exit status 1 if a bar is missed."""

import argparse

from tests.benchmarks.entries import ENTRIES
from tests.benchmarks.measure import HEADER, line, save


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(ENTRIES)}")
    names = parser.parse_args().names or list(ENTRIES)
    if unknown := [name for name in names if name not in ENTRIES]:
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose out of {', '.join(ENTRIES)}")
    print(HEADER, flush=True)
    entries = []
    for name in names:
        try:
            entries.append(ENTRIES[name]())
        except ImportError as error:  # a peer that few machines have
            print(f"{name:<22} skipped: {error}", flush=True)
            continue
        print(line(entries[-1]), flush=True)
    missed = [entry.name for entry in entries if not entry.holds]
    print(
        f"written to {save(entries)}; "
        + (f"missed: {', '.join(missed)}" if missed else "every bar holds")
    )
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
