"""The rules of the atlas on samples of different lengths."""

import numpy as np
import pytest

from papers.beyond.engine import factored, training
from papers.beyond.engine import optimisers as o
from tests.masked import D_Z, DENSE, MASKED, RUNS, D

START = np.random.default_rng(5).standard_normal((RUNS, D, D_Z)) / 3
RULES = {
    "gradient": o.steepest("frobenius", 0.1, normalised=False),
    "sign": o.steepest(np.inf, 0.02),
    "spectral": o.steepest("spectral", 0.05),
    "Adam": o.adam(0.02),
    "mirror": o.mirror(1.7, 0.05),
    "natural": o.natural(0.02),
    "AdaGrad": o.full_adagrad(0.02),
    "SOAP": o.soap(0.02),
    "batches": o.on_batches(o.steepest("frobenius", 0.05), 1),
}


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_every_rule_moves_as_without_the_token(loss):
    ours, wanted = (
        training.train(data, RULES, 8, START, [0, 1, 8], loss)
        for data in (MASKED, DENSE)
    )
    for name in RULES:
        for field in ("W", "log_gap", "log_gradient"):
            np.testing.assert_allclose(
                getattr(ours[name], field),
                getattr(wanted[name], field),
                rtol=1e-10,
                atol=1e-12,
                err_msg=f"{name} {field}",
            )


def test_keys_and_queries_move_as_without_the_token():
    K, Q = factored.small_start(DENSE, [0, 1], 2, 0.3)
    rules = {"gradient": RULES["gradient"]}
    ours, wanted = (
        factored.train(data, rules, K, Q, [0, 8])["gradient"]
        for data in (MASKED, DENSE)
    )
    np.testing.assert_allclose(ours.W, wanted.W, rtol=1e-10, atol=1e-12)


def test_kept_runs_of_two_masks_are_two_runs(tmp_path):
    rules = {"gradient": RULES["gradient"]}
    for data in (MASKED, DENSE, MASKED):
        training.train_kept(data.run(0), rules, 2, [2], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
