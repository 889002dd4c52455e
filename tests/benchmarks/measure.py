"""How a benchmark is timed and reported.

Reference and ours run in turns, so that a busy machine slows both.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numba
import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from lib import files

# number of turns of a row
FEWEST = 5
MOST = 51
ENOUGH = 12.0  # a row ends after so many seconds once it has the fewest turns


@dataclass(frozen=True)
class Entry:
    """One row of the report: median seconds per unit of work, ratio, and its spread.

    The seconds are None for memory. The ratio is the median over the turns of
    reference/ours for the sense "at least", and of ours/reference otherwise.
    """

    name: str
    seconds: float | None
    reference_seconds: float | None
    ratio: float
    spread: tuple[float, float]
    bar: float
    sense: str
    ours: str
    reference: str
    note: str

    @property
    def holds(self) -> bool:
        """Return whether the bar is reached."""
        if self.sense == "at least":
            return self.ratio >= self.bar
        return self.ratio <= self.bar

    def as_dict(self) -> dict:
        """Return the row of runs/bench.json."""
        return asdict(self) | {"holds": self.holds}


@dataclass(frozen=True)
class Times:
    """Seconds per unit of work of each repeat, in the order of measurement."""

    ours: list[float]
    reference: list[float]
    threads: tuple[int, int]

    def entry(self, name: str, bar: float, note: str, sense: str = "at least") -> Entry:
        """Return the row for these times."""
        ours = median(self.ours)
        reference = median(self.reference)
        power = 1 if sense == "at least" else -1
        # The ratio is taken in each turn, because a host that is slow for a second
        # slows both sides of a turn.
        each = [
            (r / o) ** power for o, r in zip(self.ours, self.reference, strict=True)
        ]
        threads = f"threads {self.threads[0]} (reference {self.threads[1]})"
        return Entry(
            name, ours, reference, median(each), (min(each), max(each)), bar, sense,
            duration(ours), duration(reference), f"{note}; {threads}",
        )  # fmt: skip


@cache
def _pools():
    return ThreadpoolController()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let the thread pools of numpy, scipy, torch and numba use `count` threads."""
    before = torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS
    torch.set_num_threads(count)
    numba.config.NUMBA_NUM_THREADS = min(count, before[1])  # lib.compiled.threads
    try:
        with _pools().limit(limits=count):
            yield
    finally:
        torch.set_num_threads(before[0])
        numba.config.NUMBA_NUM_THREADS = before[1]


def seconds(work, at_least: float = 0.0, clock=time.perf_counter) -> float:
    """Measure seconds per call of `work`, over calls that take `at_least` seconds
    together.
    """
    calls = 0
    began = clock()
    while True:
        work()
        calls += 1
        elapsed = clock() - began
        if elapsed >= at_least:
            return elapsed / calls


def turns(enough: float = ENOUGH) -> Iterator[int]:
    """Yield the numbers of turns: FEWEST, then more until MOST or `enough` seconds are
    over.

    The speed of a busy host changes within seconds. Many short turns, each with a ratio
    of its own, let both sides meet every speed. With few long turns the medians
    differed by a half.
    """
    began = time.perf_counter()
    for turn in range(MOST):
        if turn >= FEWEST and time.perf_counter() - began > enough:
            return
        yield turn


def in_turns(ours, reference, units=1, reference_units=1, enough=ENOUGH) -> Times:
    """Time both sides in turns, with one and with two threads; keep each side's faster
    count.

    `units` and `reference_units` say what one call does, in units of work (iterations).
    Thread counts that were chosen in advance by one or two tries were sometimes the
    slower ones.
    """
    sides = ((reference, reference_units), (ours, units))
    counts = (1, 2)
    taken = {(work, count): [] for work, _ in sides for count in counts}
    for work, _ in sides:
        work()  # compiles
    for _ in turns(enough):
        for work, amount in sides:
            for count in counts:
                with threads(count):
                    time.sleep(0.02)  # lets the other side's threads stop spinning
                    taken[work, count].append(seconds(work, at_least=0.05) / amount)

    def faster(work):
        return min(counts, key=lambda count: median(taken[work, count]))

    one = faster(ours)
    other = faster(reference)
    return Times(taken[ours, one], taken[reference, other], (one, other))


def gate(what: str, ours, reference, tolerance: float) -> None:
    """Raise AssertionError unless |ours - reference| <= tolerance max |reference|, all
    finite.
    """
    ours = np.asarray(ours)
    reference = np.asarray(reference)
    error = np.abs(ours - reference).max() / np.abs(reference).max()
    if not error <= tolerance:
        raise AssertionError(
            f"{what}: ours and the reference differ by {error:.1e}; at most {tolerance:.0e}"
        )


def duration(value: float) -> str:
    """Write seconds in a suitable unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


HEADER = f"{'name':<22} {'ours':>10} {'reference':>10} {'ratio':>8}  {'spread':<17} {'bar':>8}  holds"


def line(entry: Entry) -> str:
    """Return the entry as a line of the table, with its note below."""
    low, high = (f"{value:.3g}" for value in entry.spread)
    bar = f"{'>=' if entry.sense == 'at least' else '<='} {entry.bar:g}"
    spread = f"{low} .. {high}"
    numbers = f"{entry.ours:>10} {entry.reference:>10} {entry.ratio:>8.3g}  {spread:<17} {bar:>8}"
    return f"{entry.name:<22} {numbers}  {'yes' if entry.holds else 'NO'}\n    {entry.note}"


def save(entries: list[Entry]) -> Path:
    """Write runs/bench.json atomically."""
    path = files.folder("runs") / "bench.json"
    files.write(path, files.dumps([entry.as_dict() for entry in entries]).encode())
    return path
