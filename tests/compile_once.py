"""Compiles the kernels of training into numba's cache: `python -m tests.compile_once NAME`.

Two workers that begin with cold caches would compile the same kernels side by side, and so would
the notebooks' own processes.
"""

import sys

import numpy as np

from lib import dynamics, mirror
from lib.ambient import factored, optimisers, training
from lib.attention import tokens
from lib.dynamics import rules


def side_by_side():
    """Exact training and mirror descent."""
    data = tokens.gaussian_tokens(0, n=2, T=2, d=4)
    dynamics.train(data, rules.ngd(0.1), 1)
    mirror.train(data, mirror.MirrorRule(2.0, 0.1), 1)


def one_by_one():
    """Rules that see the coordinates, of W and of keys and queries."""
    data, rule = tokens.gaussian_tokens(0, n=2, T=2, d=4), {"": optimisers.steepest(2, 0.1)}
    training.train(data, rule, 1)
    factored.train(data, rule, np.ones((1, 4, 1)), np.ones((1, 4, 1)), [0, 1])


KERNELS = {"side_by_side": side_by_side, "one_by_one": one_by_one}

if __name__ == "__main__":
    KERNELS[sys.argv[1]]()
