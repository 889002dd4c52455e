"""Tests of arrays as readers have them.

Any real type, layout or nested list gives the numbers of float64, and an error names
what does not fit.
"""

import numpy as np
import pytest
import torch

from lib import regression

RNG = np.random.default_rng(0)
PROBLEM = regression.random_regression(0, d=4, k=5)
X = RNG.integers(-9, 10, (30, 4)).astype(float)
Y = RNG.integers(-9, 10, (30, 5)).astype(float)
A = RNG.integers(-9, 10, (5, 4)).astype(float)
B = RNG.integers(-9, 10, (4, 4)).astype(float)
SIGMA = np.diag([4.0, 3.0, 2.0, 1.0])
DOORS = {
    "population_loss": (lambda *of: regression.population_loss(PROBLEM, *of), "AB"),
    "excess_loss": (lambda *of: regression.excess_loss(PROBLEM, *of), "AB"),
    "population_gradients": (
        lambda *of: regression.population_gradients(PROBLEM, *of),
        "AB",
    ),
    "regulariser": (regression.regulariser, "SAB"),
    "regulariser_gradients": (regression.regulariser_gradients, "SAB"),
    "empirical_gradients": (regression.empirical_gradients, "XYAB"),
    "spectral_start": (regression.spectral_start, "XY"),
    "Regression": (
        lambda Sigma, M: regression.excess_loss(
            regression.Regression(Sigma=np.array(Sigma, float) / 100, M=M, noise=0.1),
            A,
            B,
        ),
        "SM",
    ),
}
ARRAYS = {"A": A, "B": B, "X": X, "Y": Y, "S": SIGMA, "M": np.eye(5, 4)}
FORMS = {
    "float32": lambda array: array.astype(np.float32),
    "int8": lambda array: array.astype(np.int8),
    "Fortran order": np.asfortranarray,
    "every second entry": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "nested lists": lambda array: array.tolist(),
}


def flat(values):
    """Return all numbers of a result in a row."""
    if not isinstance(values, tuple):
        values = (values,)
    return np.concatenate([np.ravel(np.asarray(value, float)) for value in values])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_the_type_and_layout_of_an_array_do_not_matter(door, form):
    work, names = DOORS[door]
    given = [ARRAYS[name] for name in names]
    found = flat(work(*(FORMS[form](array) for array in given)))
    np.testing.assert_allclose(found, flat(work(*given)), rtol=1e-12)


@pytest.mark.parametrize("door", [door for door in DOORS if DOORS[door][1][-1] == "B"])
def test_a_matrix_that_does_not_fit_is_named(door):
    work, names = DOORS[door]
    given = [ARRAYS[name] for name in names]
    given[-1] = given[-1][:, :-1]
    with pytest.raises(ValueError, match=r"^B has shape \(4, 3\)"):
        work(*given)


@pytest.mark.parametrize("door", DOORS)
def test_words_are_no_numbers(door):
    work, names = DOORS[door]
    given = [ARRAYS[name] for name in names]
    given[0] = given[0].astype(str).astype(object) + "?"
    with pytest.raises(ValueError, match="real numbers|could not convert"):
        work(*given)


def test_tensors_of_integers_are_refused():
    integers = torch.ones((5, 4), dtype=torch.int64)
    with pytest.raises(ValueError, match="A is a tensor of torch.int64; give A.double"):
        regression.excess_loss(PROBLEM, integers, torch.ones((4, 4)))
