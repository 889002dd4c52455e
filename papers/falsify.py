"""Every row of the ledgers in its wrong worlds: the smallest falsehood that it catches.

`python -m papers.falsify [A B C]` computes each ledger at small size, once in the true world
and once in every wrong world that one of its rows names. It writes figures/power/<slug>.json when
all sections of the ledger are measured: per row the smallest world of each family in which it fails
though it holds in the true one. It also writes figures/failures.md, what did not hold in the
committed records, and why.
"""

import argparse
import importlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from lib.companion import ledger, record
from lib.companion.claims import Claim
from lib.files import dumps, folder, sentence, write
from papers.wrong_worlds import World, worlds

LEDGERS = {"A": "fastrates_ledger", "B": "precond_ledger", "C": "mirror_ledger"}


class NotTouched(ValueError):
    """A wrong world that does not apply to a row: it changes nothing of what the row measures."""


def power(section: Callable[[World], list[Claim]]) -> dict[str, dict]:
    """Per row of a section: what it catches, and whether one of these worlds is small.

    section(world) gives the rows in a world. A row that fails in the true world catches nothing.
    Raises NotTouched where a family that a row names leaves its measured value and bound alone, and
    where the row is missing from such a world: it was not measured there.
    """
    true = {row.id: row for row in section(World())}
    families = dict.fromkeys(f for row in true.values() for f in row.fails_if)
    found = {id: {"catches": [], "small": False, "holds": row.holds} for id, row in true.items()}
    touched, caught = set(), set()
    for world in worlds(families):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a wrong world may divide by zero
            wrong = {row.id: row for row in section(world)}
        for id, row in true.items():
            if world.family not in row.fails_if:
                continue
            if id not in wrong:
                raise NotTouched(f"{id}: missing from the wrong world {str(world)!r}")
            other, pair = wrong[id], (id, world.family)
            if (other.measured, other.bound) != (row.measured, row.bound):
                touched.add(pair)
            if row.holds and not other.holds and pair not in caught:
                caught.add(pair)
                found[id]["catches"].append(str(world))
                found[id]["small"] |= world.small
    named = [(id, family) for id, row in true.items() if row.holds for family in row.fails_if]
    if missed := [pair for pair in named if pair not in touched]:
        said = "; ".join(f"{id}: the wrong world {family!r}" for id, family in missed)
        raise NotTouched(f"{said} does not apply")
    return found


def sections(paper: str) -> Mapping[str, Callable[[World], list[Claim]]]:
    """The ledger's sections of a paper at small size, each a function of the world."""
    module = importlib.import_module(f"papers.{paper.lower()}.ledger_rows")
    return {
        name: lambda world, section=section: section(module.SMALL, world)
        for name, section in module.SECTIONS.items()
    }


def falsify(paper: str, name: str) -> tuple[str, str, dict[str, dict], float]:
    """`power` of one section of a paper's ledger: (paper, name, power, seconds)."""
    began = time.monotonic()
    return paper, name, power(sections(paper)[name]), time.monotonic() - began


def keep(paper: str, found: Mapping[str, dict]) -> None:
    """Write the power of all rows of a paper's ledger, in place of what its file held."""
    write(ledger.power_path(LEDGERS[paper]), dumps(dict(sorted(found.items()))).encode())


def write_failures() -> None:
    """figures/failures.md from all records; `make falsify` and the ledgers' notebooks keep it."""
    base = folder("figures")
    paths = sorted(path for path in base.glob("*/*.json") if path.parent.name != "power")
    records = [record.read(path) for path in paths]
    write(base / "failures.md", ledger.failures(records).encode())


def named(words: Sequence[str] | None = None) -> list[str]:
    """The papers that a command line names, each once; all of them where it names none."""
    parser = argparse.ArgumentParser(prog="python -m papers.falsify", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    said = f"papers whose ledgers to falsify, of {', '.join(LEDGERS)}; default all"
    parser.add_argument("papers", nargs="*", type=_paper, metavar="PAPER", help=said)
    return list(dict.fromkeys(parser.parse_args(words).papers or LEDGERS))


def _paper(letter: str) -> str:
    # argparse's own `choices` refuse that no paper is named.
    if letter not in LEDGERS:
        raise argparse.ArgumentTypeError(f"{letter!r}: choose from {', '.join(LEDGERS)}")
    return letter


def main(papers: Sequence[str]) -> None:
    """The command: falsify the named papers' ledgers on two cores.

    A paper's file is written once all its sections are measured: an interrupted run leaves it.
    """
    found, left = {paper: {} for paper in papers}, {paper: len(sections(paper)) for paper in papers}
    with ProcessPoolExecutor(2) as pool:
        tasks = [pool.submit(falsify, paper, name) for paper in papers for name in sections(paper)]
        for task in as_completed(tasks):
            paper, name, rows, seconds = task.result()
            found[paper] |= rows
            left[paper] -= 1
            if not left[paper]:
                keep(paper, found[paper])
            strong = sum(row["small"] for row in rows.values())
            print(f"{paper}, {name}: {strong} of {len(rows)} catch a small world, {seconds:.0f} s")
    for paper in papers:
        weak = {id: row for id, row in found[paper].items() if row["holds"] and not row["small"]}
        for id, row in sorted(weak.items()):
            print(f"  {paper}, {id}: {', '.join(row['catches']) or 'nothing'}")
    write_failures()
    counted = [row for rows in found.values() for row in rows.values()]
    strong = sum(row["small"] for row in counted)
    print(f"{strong} of {len(counted)} rows catch 5 %, 0.1 in an exponent, or one sample")


if __name__ == "__main__":
    try:
        main(named())
    except OSError as error:  # of the disk that takes the results
        raise SystemExit(f"papers.falsify: {sentence(error)}") from None
