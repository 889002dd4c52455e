"""Every swap of the table fits the code as it is, and random mutants are Python that differs."""

import ast

from tests.mutations import random_mutants
from tests.mutations.__main__ import ROOT, SWAPS, Swap, misfits


def test_every_swap_fits_its_file_once_and_leaves_python():
    assert misfits(SWAPS) == [] and len(set(SWAPS)) == len(SWAPS) > 100
    for swap in SWAPS:
        text = (ROOT / swap.file).read_text(encoding="utf-8")
        assert ast.parse(text.replace(swap.old, swap.new)), swap
    missing = Swap("lib/seeds.py", ("tests/none.py",), "gone", "new")
    assert misfits([missing]) == ["lib/seeds.py: gone", "tests/none.py"]
    packages = {swap.file.removeprefix("lib/").split("/")[0] for swap in SWAPS}
    assert {
        *"attention compiled dynamics mirror papers regression svm training".split()
    } <= packages


def test_random_mutants_are_drawn_by_their_seed_and_are_python():
    drawn = random_mutants.draw(20, 3)
    assert drawn == random_mutants.draw(20, 3) != random_mutants.draw(20, 4)
    drawn += (some := random_mutants.draw(5, 3, ["lib/svm"]))
    assert all(file.startswith("lib/svm/") for file, *_ in some)
    for file, tests, old, new in drawn:
        assert tests and ast.dump(ast.parse(old)) != ast.dump(ast.parse(new)), file
