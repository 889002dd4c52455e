"""Tests of rules that see coordinates, on samples of different lengths.

A masked token must change nothing.
"""

import numpy as np
import pytest

from lib import dynamics
from lib.attention import coordinates
from lib.dynamics.in_coordinates import factored
from papers.atlas.kept_paths import train_kept
from tests.masked import D_Z, DENSE, MASKED, RUNS, D, assert_alike

START = np.random.default_rng(5).standard_normal((RUNS, D, D_Z)) / 3
RULES = {
    "gradient": dynamics.SteepestDescent("frobenius", 0.1, normalised=False),
    "sign": dynamics.SteepestDescent(np.inf, 0.02),
    "spectral": dynamics.SteepestDescent("spectral", 0.05),
    "Adam": dynamics.Adam(0.02),
    "mirror on batches": dynamics.MirrorDescent(1.7, 0.05, batch_size=1),
    "natural": dynamics.NaturalGradient(0.02),
    "AdaGrad": dynamics.FullAdaGrad(0.02),
    "SOAP": dynamics.SOAP(0.02),
    "batches": dynamics.SteepestDescent("frobenius", 0.05, batch_size=1),
}
FIELDS = "norm log_gap log_gradient log_miss"


class Signs(dynamics.Rule):
    """A reader's own rule that trains in numpy."""

    formula = r"D=-\eta\,\mathrm{sgn}(\nabla L)"

    def direction(self, gradient, state):
        return -0.02 * np.sign(gradient)


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_every_rule_moves_as_without_the_token(loss):
    rules = RULES | {"own": Signs()}
    hidden = coordinates.hidden_pairs(MASKED, MASKED.opt)
    ours, wanted = (
        dynamics.train(data, rules, 8, [0, 1, 8], START, loss=loss)
        for data in (MASKED, DENSE)
    )
    assert_alike(ours, wanted, FIELDS)
    for name in rules:
        assert np.isnan(ours[name].margins[:, -1][hidden]).all()


def test_keys_and_queries_move_as_without_the_token():
    K, Q = factored.small_start(DENSE, [0, 1], 2, 0.3)
    rules = {"gradient": RULES["gradient"]}
    ours, wanted = (
        factored.train(data, rules, K, Q, [0, 8])["gradient"]
        for data in (MASKED, DENSE)
    )
    np.testing.assert_allclose(
        ours.weights(-1), wanted.weights(-1), rtol=1e-10, atol=1e-12
    )


def test_kept_runs_of_two_masks_are_two_runs(tmp_path):
    rules = {"gradient": RULES["gradient"]}
    for data in (MASKED, DENSE, MASKED):
        train_kept(data.run(0), rules, 2, [2], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
