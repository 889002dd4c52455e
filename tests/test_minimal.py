"""Tests of notebooks/minimal.py, which people copy: it must give the library's
numbers.
"""

import importlib.util

import numpy as np
import pytest

from lib import attention, dynamics, files, svm
from papers.law import margin_law

PATH = files.ROOT / "notebooks" / "minimal.py"
SPEC = importlib.util.spec_from_file_location("minimal", PATH)
minimal = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(minimal)
TOKENS = attention.token_set(*minimal.draw(0))
DATA = tuple(part[0] for part in (TOKENS.X, TOKENS.y, TOKENS.z, TOKENS.u))
RULES = {
    "gd": (minimal.gd, dynamics.SteepestDescent(2, 0.05, normalised=False)),
    "ngd": (minimal.ngd, dynamics.SteepestDescent(2, 0.05)),
    "sign": (minimal.sign, dynamics.SteepestDescent(np.inf, 0.05)),
    "polar": (minimal.polar, dynamics.SteepestDescent("spectral", 0.05)),
    "adam": (minimal.Adam(), dynamics.Adam(0.05)),
}


@pytest.mark.parametrize("name", RULES)
def test_its_rules_are_the_librarys(name):
    by_page, by_lib = RULES[name]
    expected = dynamics.train(TOKENS, by_lib, 40, record=[40]).W[0, 0]
    np.testing.assert_allclose(
        minimal.train(DATA, by_page, 0.05, 40), expected, atol=1e-9
    )


def test_the_svm_and_the_law_are_the_librarys():
    A, gaps = minimal.pairs(DATA)
    W_mm, beta = minimal.token_svm(A)
    solution = svm.token_svm(TOKENS)
    np.testing.assert_allclose(W_mm, solution.W[0].ravel(), atol=1e-9)
    best = np.repeat(
        minimal.scores(DATA[0], DATA[1], DATA[3]).max(1), len(A) // len(DATA[0])
    )
    constant = margin_law.margin_law(TOKENS, solution).constant[0]
    assert minimal.law(A, beta, gaps, best) == pytest.approx(constant, rel=1e-8)
    with pytest.raises(ValueError, match="no W lets every opt token win"):
        minimal.token_svm(np.array([[1.0], [-1.0]]))


def test_the_file_is_short_and_imports_numpy_and_scipy_alone(capsys):
    text = PATH.read_text(encoding="utf-8")
    lines = [
        line for line in text.splitlines() if line.startswith(("import ", "from "))
    ]
    assert lines == ["import numpy as np", "from scipy.optimize import nnls"]
    minimal.main()
    assert "C = 4.275" in capsys.readouterr().out
