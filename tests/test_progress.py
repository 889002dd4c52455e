"""Tests of the bars of long training.

A failure means that a reader waits for minutes without a sign of life, or that short
training writes where it should not.
"""

import os
import subprocess
import sys

import pytest

from lib import files

TRAIN = """
import lib
from lib import progress
progress.DELAY = {delay}
tokens = lib.two_examples()
class Mine(lib.Rule):
    def direction(self, gradient, state):
        return -0.01 * gradient
run = lib.train(tokens, {rule}, {steps}, record=[0, {steps}])
print(run.status[0], int(run.ended[0]))
"""
RULES = {
    "lib.NGD(0.1)": 2_000_000,
    "lib.SteepestDescent(float('inf'), 0.1)": 2_000_000,
    "Mine()": 3000,
}


def trained(rule, delay, **environment):
    code = TRAIN.format(rule=rule, steps=RULES[rule], delay=delay)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TQDM_DISABLE": "", **environment},
        cwd=files.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("rule", RULES)
def test_long_training_shows_how_far_it_is_and_then_removes_it(rule):
    done = trained(rule, 0.1)
    assert done.stdout.split() == ["completed", str(RULES[rule])]
    assert "training" in done.stderr and "steps" in done.stderr
    assert done.stderr.splitlines()[-1].strip() == ""  # it is written over at the end


def test_short_training_shows_nothing():
    assert trained("Mine()", 1000.0).stderr == ""


def test_the_variable_of_tqdm_hides_the_bar():
    assert trained("lib.NGD(0.1)", 0.1, TQDM_DISABLE="1").stderr == ""
