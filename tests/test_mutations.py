"""Tests of mutants and benchmarks.

Mutants are valid Python that differs, and benchmarks report a missed bar. Otherwise
both would always pass.
"""

import ast
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks import measure
from tests.mutations import random_mutants


def test_random_mutants_are_drawn_by_their_seed_and_are_python():
    drawn = random_mutants.draw(20, 3)
    assert drawn == random_mutants.draw(20, 3) != random_mutants.draw(20, 4)
    drawn += (some := random_mutants.draw(5, 3, ["lib/svm"]))
    assert all(file.startswith("lib/svm/") for file, *_ in some)
    for file, tests, old, new in drawn:
        assert tests and ast.dump(ast.parse(old)) != ast.dump(ast.parse(new)), file


def test_gate_raises_with_the_difference():
    measure.gate("same", [1.0, 2.0], [1.0, 2.0 + 1e-9], 1e-8)
    for wrong in (2.1, np.nan):
        with pytest.raises(AssertionError, match="W: ours and the reference differ by"):
            measure.gate("W", [1.0, wrong], [1.0, 2.0], 1e-8)


@pytest.mark.parametrize(
    ("ratio", "sense", "status"),
    [(100.0, "at least", 0), (99.0, "at least", 1), (99.0, "at most", 0)],
)
def test_report_and_exit_status(ratio, sense, status, monkeypatch, tmp_path, capsys):
    words = sense, "1 us", "100 us", "a note"
    row = measure.Entry("one", 1e-6, 1e-4, ratio, (90.0, 110.0), 100.0, *words)
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    monkeypatch.setitem(command.ENTRIES, "one", lambda: row)

    # another process would not know of this row
    def here(*_, **__):
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(command, "ProcessPoolExecutor", here)
    monkeypatch.setattr("sys.argv", ["benchmarks", "one"])
    assert command.main() == status
    (written,) = json.loads((tmp_path / "bench.json").read_text())
    layout = {
        "name",
        "seconds",
        "reference_seconds",
        "ratio",
        "spread",
        "bar",
        "holds",
        "note",
    }
    assert layout <= set(written)
    assert written["holds"] is (status == 0)
    assert ("missed: one" in capsys.readouterr().out) is bool(status)
