"""Find, for every row of the ledgers, the smallest error that makes the row fail.

`python -m papers.falsify [A B C atlas]` computes each ledger at small size. It does so
once in the true world, and once `inside` every wrong world that some row of the ledger
has to detect. A wrong world is an altered copy of the experiment in which one thing is
false by a known amount (`papers.wrong_worlds`). The command writes
figures/power/<slug>.json once all sections of the ledger are measured. The file says,
for each row that holds in the true world and for each family of wrong worlds, in which
world with the smallest error the row fails. The command also writes
figures/failures.md, which lists the claims that did not hold in the committed records,
with the reasons.
"""

import argparse
import importlib
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from companion import ledger, record
from companion.claims import Claim
from lib.files import dumps, folder, sentence, write
from papers.wrong_worlds import inside, worlds

LEDGERS = {"A": "fastrates_ledger", "B": "precond_ledger", "C": "mirror_ledger"}
# The atlas has no page of statements. Its rows are the claims about weight decay, and
# those about rules with a norm of their own.
LEDGERS["atlas"] = "atlas_as_used"


def _power(section: Callable[[], Iterable[Claim]], paper: str) -> dict[str, dict]:
    """Find, for every row and each family of altered copies, the smallest error with
    which the row fails.

    The function returns, by the id of the row, "catches", the names of these altered
    copies, which are none for a row that fails in the true world; "small", whether one
    of these copies is small; and "holds", whether the row holds in the true world. It
    raises ValueError if a family in the row's `fails_if` changes neither the value nor
    the bound of the row, or if the row is missing in one of the copies of such a
    family.
    """
    true = list(section())
    catches = {row.id: [] for row in true}
    for family in dict.fromkeys(family for row in true for family in row.fails_if):
        rows = [row for row in true if family in row.fails_if]
        wrong = worlds(family)
        measured = []
        untouched = []
        for world in wrong:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # an altered copy may divide by zero
                with inside(world, paper):
                    seen = {row.id: row for row in section()}
            if missing := [row.id for row in rows if row.id not in seen]:
                names = ", ".join(missing)
                raise ValueError(
                    f"{names}: missing from the wrong world {str(world)!r}"
                )
            measured.append([seen[row.id] for row in rows])
        for row, *seen in zip(rows, *measured, strict=True):
            known = row.measured, row.bound
            if row.holds and all(
                (other.measured, other.bound) == known for other in seen
            ):
                untouched.append(row.id)
            fails = [row.holds and not other.holds for other in seen]
            catches[row.id] += list(itertools.compress(wrong, fails))[:1]
        if untouched:
            raise ValueError(
                f"{', '.join(untouched)}: the wrong world {family!r} does not apply"
            )
    return {
        row.id: {
            "catches": [str(world) for world in catches[row.id]],
            "small": any(world.small for world in catches[row.id]),
            "holds": row.holds,
        }
        for row in true
    }


def _sections(paper: str) -> Mapping[str, Callable[[], Iterable[Claim]]]:
    """Return the sections of a paper's ledger at small size, by name."""
    module = importlib.import_module(f"papers.{paper.lower()}.ledger_rows")
    return {
        name: partial(section, module.SMALL)
        for name, section in module.SECTIONS.items()
    }


def _write_failures() -> None:
    """Write figures/failures.md from all records, the largest scale first."""
    base = folder("figures")
    paths = [sorted(base.glob(f"{scale}/*.json")) for scale in record.SCALES[::-1]]
    records = [record.read(path) for path in itertools.chain(*paths)]
    write(base / "failures.md", ledger.failures(records).encode())


def main(words: Sequence[str] | None = None) -> None:
    """Measure the ledgers that are given as arguments, and write the file of each
    ledger once all of its sections are measured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m papers.falsify", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    meaning = f"papers whose ledgers to falsify, of {', '.join(LEDGERS)}; default all"
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=meaning)
    papers = list(dict.fromkeys(parser.parse_args(words).papers or LEDGERS))
    # argparse's `choices` does not accept an empty list in Python 3.11.
    if unknown := [paper for paper in papers if paper not in LEDGERS]:
        parser.error(f"{', '.join(unknown)}: none of {', '.join(LEDGERS)}")
    # We check that the results can be written before we spend hours on measuring.
    for paper in papers:
        place = ledger.power_path(LEDGERS[paper]).parent
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    measured = {}
    with ProcessPoolExecutor(2) as pool:
        tasks = {
            paper: {
                name: pool.submit(_power, rows, paper)
                for name, rows in _sections(paper).items()
            }
            for paper in papers
        }
        for paper, sections in tasks.items():
            measured[paper] = {}
            for name, task in sections.items():
                rows = task.result()
                small = sum(row["small"] for row in rows.values())
                print(
                    f"{paper}, {name}: {small} of {len(rows)} catch a small world",
                    flush=True,
                )
                measured[paper] |= rows
            text = dumps(dict(sorted(measured[paper].items())))
            write(ledger.power_path(LEDGERS[paper]), text.encode())
    for paper in papers:
        for id, row in sorted(measured[paper].items()):
            if row["holds"] and not row["small"]:
                print(f"  {paper}, {id}: {', '.join(row['catches']) or 'nothing'}")
    _write_failures()
    rows = [row for of_paper in measured.values() for row in of_paper.values()]
    small = sum(row["small"] for row in rows)
    print(
        f"{small} of {len(rows)} rows catch 5 %, 0.1 in an exponent, one sample or pair"
    )


if __name__ == "__main__":
    try:
        main()
    except OSError as error:  # The results cannot be written to the disk.
        raise SystemExit(f"papers.falsify: {sentence(error)}") from None
