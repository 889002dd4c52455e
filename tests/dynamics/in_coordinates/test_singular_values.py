"""Tests of spectral directions of large matrices, which LAPACK may compute.

A failure means that Muon's or steepest descent's step is wrong for many samples.
"""

import numpy as np
import pytest

from lib import dynamics
from lib.dynamics.in_coordinates import codes, graded_svd, loop
from lib.dynamics.in_coordinates.gradients import Graded

SHAPES = {
    codes.POLAR: dynamics.SteepestDescent("spectral", 1.0),
    codes.LEADING: dynamics.SteepestDescent("nuclear", 1.0),
    codes.NEWTON_SCHULZ: dynamics.Muon(1.0, newton_schulz=5),
}


def graded_sum(n, d, d_z, spread, seed=0):
    """Draw samples whose logarithms are spread evenly from 0 to -spread."""
    rng = np.random.default_rng(seed)
    b = rng.standard_normal((n, d))
    b /= np.abs(b).max(1, keepdims=True)
    return Graded(b, -np.linspace(0.0, spread, n)), rng.standard_normal((n, d_z))


def directions(shape, graded, z, numbers):
    """Return the direction and its logarithm, with LAPACK's form and without."""
    d, d_z = graded.b.shape[1], z.shape[1]
    found = []
    for form in ("direction", "_uneven"):
        part = loop.part(len(z), d, d_z)
        D = np.zeros((d, d_z))
        log = getattr(graded_svd, form)(numbers, graded, z, part.svd, D)
        found.append((D, log))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(120, 40, 33), (120, 33, 40), (40, 40, 40)])
@pytest.mark.parametrize("spread", [0.0, 3.0, 2000.0])
def test_large_matrices_have_the_directions_of_the_exact_method(shape, size, spread):
    numbers = SHAPES[shape].numbers()
    assert numbers.shape == shape
    graded, z = graded_sum(*size, spread)
    (D, log), (expected, expected_log) = directions(shape, graded, z, numbers)
    np.testing.assert_allclose(D, expected, atol=1e-11)
    assert log == pytest.approx(expected_log, abs=1e-11)


@pytest.mark.parametrize(("spread", "taken"), [(0.0, True), (2000.0, False)])
def test_lapack_is_left_when_singular_values_differ_too_much(spread, taken):
    graded, z = graded_sum(120, 40, 33, spread)
    numbers = SHAPES[codes.POLAR].numbers()
    log = graded_svd._even(numbers, graded, z, np.zeros((40, 33)))
    assert (log > -np.inf) == taken


def test_values_are_sorted_from_large_to_small_and_equal_ones_stay_in_order():
    values = np.array([2.0, -np.inf, 5.0, 2.0, 7.0, -1.0, 5.0])
    assert graded_svd.descending(values).tolist() == [4, 2, 6, 0, 3, 5, 1]
    assert graded_svd.descending(values[:0]).tolist() == []
