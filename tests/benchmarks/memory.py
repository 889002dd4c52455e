"""Workloads whose peak memory is measured.

`python -m tests.benchmarks.memory NAME` prints the peak of one in MB.
"""

import sys

import numpy as np

from lib import dynamics, provenance, regression, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules


def dimension():
    """Tokens, basis and 1000 iterations of training at d = 100,000."""
    problem = coordinates.minimal(tokens.class_mean_tokens(0, n=20, T=10, d=100_000))
    history = dynamics.train(problem, rules.NGD(0.1), 1000)
    assert (history.status == "completed").all()


def large_svm():
    """A token SVM with 250 x 20 = 5,000 constraints."""
    solution = svm.token_svm(tokens.unit_tokens(0, n=250, T=21, d=60))
    assert max(solution.gap.max(), solution.violation.max()) <= svm.ACCURACY


def minibatch():
    """Paper B's in-sample gradient on 20,000 samples, d = k = 10."""
    problem = regression.random_regression(0, d=10, k=10)
    samples = problem.sample(20_000, np.random.default_rng(0))
    layer = regression.gaussian_start(0, 10, 10, 0.3)
    assert all(
        np.isfinite(part).all()
        for part in regression.empirical_gradients(*samples, *layer)
    )


WORKLOADS = {"dimension": dimension, "svm": large_svm, "minibatch": minibatch}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]]()
    print(provenance.peak_memory_mb())
