"""A committed trial, its first steps again: today's code draws and steps as it did then."""

import os

import numpy as np
import pytest

from lib import files, training
from lib.training import curves, rules
from lib.training.studies import STUDIES

STEPS = 200
# One unit of the half precision in which a trial's losses are kept: another processor sums in
# another order, and 200 steps carry that to about 1e-6.
UNIT = 2.0**-10


@pytest.mark.skipif(not os.environ.get("DATA_DIR"), reason="DATA_DIR is not set: no real MNIST")
def test_the_first_steps_of_a_committed_trial_come_again_to_its_last_kept_bit():
    kept = curves.load(files.ROOT / "figures" / "desk" / "mnist_60000.npz")
    (trial,) = [c for c in kept.trials("SGD") if c.rate == 0.1]
    study = STUDIES["mnist_60000"]
    problem = study.problem(batch=study.batch, **study.options)
    model = training.initialised(problem.build, trial.seed)
    batches = problem.batches(trial.seed, True)
    optimizer = rules.RULES["SGD"](model.parameters(), trial.rate, None)
    found = training.train(model, optimizer, batches, STEPS)
    np.testing.assert_allclose(found.loss, trial.loss[:STEPS].astype(float), rtol=UNIT, atol=0)
