"""The list of wrong formulas fits the code; what an earlier run found is kept while it is true."""

import ast

from tests.mutations.__main__ import ROOT, misfits
from tests.mutations.remembered import Remembered
from tests.mutations.swaps import SWAPS, Swap


def test_every_swap_fits_its_file_once():
    assert misfits(SWAPS) == []


def test_every_swapped_file_is_python():
    for swap in SWAPS:
        text = (ROOT / swap.file).read_text(encoding="utf-8")
        assert ast.parse(text.replace(swap.old, swap.new)), swap


def test_there_are_swaps_of_every_package_with_formulas():
    packages = {swap.file.removeprefix("lib/").split("/")[0] for swap in SWAPS}
    formulas = "attention compiled data dynamics mirror networks papers regression svm"
    assert {*formulas.split(), "training", "companion", "batch"} <= packages
    assert len(SWAPS) >= 150
    assert len({(swap.file, swap.old, swap.new) for swap in SWAPS}) == len(SWAPS)


def test_a_misfit_is_named():
    swap = Swap("lib/seeds.py", "tests/test_mutations.py::test_that_is_not_there", "gone", "new")
    file, killer = misfits([swap])
    assert file == "lib/seeds.py: 0 times 'gone'"
    assert killer == "tests/test_mutations.py::test_that_is_not_there is no test"


def test_a_verdict_is_kept_until_its_file_or_its_killer_changes(tmp_path):
    for name in ("lib/a.py", "lib/b.py", "tests/test_a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    swap, path = Swap("lib/a.py", "tests/test_a.py", "1", "2"), tmp_path / "kept.jsonl"
    kept = Remembered(path, tmp_path)
    kept.add({"key": kept.of_swap(swap), "verdict": "failed"})
    kept.add({"key": kept.of_killer(swap.killer), "verdict": "passed"})
    path.write_text(path.read_text() + '{"key": "cut by an interr')

    def known():
        again = Remembered(path, tmp_path)
        return again.of_swap(swap) in again.rows, again.of_killer(swap.killer) in again.rows

    assert known() == (True, True)
    (tmp_path / "lib/b.py").write_text("x = 2\n")
    assert known() == (True, False)
    (tmp_path / "tests/test_a.py").write_text("x = 2\n")
    assert known() == (False, False)
