"""Every row of the ledgers in its wrong worlds: the smallest falsehood that it catches.

`python -m lib.papers.falsify [A B C]` computes each ledger at small size, once in the true world
and once in every wrong world that one of its rows names, and writes figures/power/<slug>.json: per
row the smallest world of each family in which it fails though it holds in the true one. It also
writes figures/failures.md, what did not hold in the committed records, and why.
"""

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping

import numpy as np

from lib.companion import ledger
from lib.companion.claims import Claim
from lib.files import dumps, folder, write
from lib.papers.wrong_worlds import World, worlds

LEDGERS = {"A": "fastrates_ledger", "B": "precond_ledger", "C": "mirror_ledger"}


class NotTouched(ValueError):
    """A wrong world that does not apply to a row: it changes nothing of what the row measures."""


def power(section: Callable[[World], list[Claim]]) -> dict[str, dict]:
    """Per row of a section: what it catches, and whether one of these worlds is small.

    section(world) gives the rows in a world. A row that fails in the true world catches nothing.
    Raises NotTouched where a family that a row names leaves its measured value and bound alone.
    """
    true = {row.id: row for row in section(World())}
    families = dict.fromkeys(f for row in true.values() for f in row.fails_if)
    found = {row.id: {"catches": [], "small": False, "holds": row.holds} for row in true.values()}
    touched = set()
    for world in worlds(families):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a wrong world may divide by zero
            wrong = {row.id: row for row in section(world)}
        for row in true.values():
            other = wrong.get(row.id)
            if world.family not in row.fails_if:
                continue
            if other is None or (other.measured, other.bound) != (row.measured, row.bound):
                touched.add((row.id, world.family))
            known = found[row.id]["catches"]
            if row.holds and not (other and other.holds):
                if not any(text.startswith(world.family) for text in known):
                    known.append(str(world))
                    found[row.id]["small"] |= world.small
    named = [(row.id, family) for row in true.values() if row.holds for family in row.fails_if]
    missed = [pair for pair in named if pair not in touched]
    if missed:
        said = "; ".join(f"{id}: the wrong world {family!r}" for id, family in missed)
        raise NotTouched(f"{said} does not apply")
    return found


def sections(paper: str) -> Mapping[str, Callable[[World], list[Claim]]]:
    """The ledger's sections of a paper at small size, each a function of the world."""
    module = importlib.import_module(f"lib.papers.{paper.lower()}.ledger_rows")
    return {
        name: lambda world, section=section: section(module.SMALL, world)
        for name, section in module.SECTIONS.items()
    }


def falsify(paper: str) -> dict[str, dict]:
    """`power` of every section of a paper's ledger, printed as it goes and written to its file."""
    found = {}
    for name, section in sections(paper).items():
        began = time.monotonic()
        of = power(section)
        strong = sum(row["small"] for row in of.values())
        spent = time.monotonic() - began
        print(
            f"{paper}, {name}: {strong} of {len(of)} catch a small world, {spent:.0f} s", flush=True
        )
        found |= of
    write(ledger.power_path(LEDGERS[paper]), dumps(found).encode())
    return found


def write_failures() -> None:
    """figures/failures.md from all records; `make falsify` and the ledgers' notebooks keep it."""
    base = folder("figures")
    paths = sorted(path for path in base.glob("*/*.json") if path.parent.name != "power")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    write(base / "failures.md", ledger.failures(records).encode())


def main(papers: list[str]) -> None:
    """The command: falsify the named papers' ledgers, all of them by default."""
    found = {paper: falsify(paper) for paper in papers or LEDGERS}
    for paper, of in found.items():
        for id, row in of.items():
            if row["holds"] and not row["small"]:
                print(f"  {paper}, {id}: {', '.join(row['catches']) or 'nothing'}")
    counted = [row for of in found.values() for row in of.values()]
    strong = sum(row["small"] for row in counted)
    write_failures()
    print(f"{strong} of {len(counted)} rows catch 5 %, 0.1 in an exponent, or one sample")


if __name__ == "__main__":
    main(sys.argv[1:])
