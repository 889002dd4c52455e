"""Tests of mirror descent on samples of different lengths.

A masked token must change nothing.
"""

import numpy as np
import pytest

from lib import dynamics, mirror
from lib.attention.token_sets import token_set
from lib.dynamics import mirror_descent
from tests.masked import D_Z, DENSE, MASKED, RUNS, D, assert_alike

RULES = {
    "normalised": dynamics.MirrorDescent(1.7, 0.05),
    "plain": dynamics.MirrorDescent(3.0, 0.05, normalised=False),
}
START = np.random.default_rng(5).standard_normal((RUNS, D, D_Z)) / 3


@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_mirror_descent_is_that_without_the_token(head, loss):
    settings = dict(steps=12, start=START, head=head, loss=loss)
    ours = dynamics.train(MASKED, RULES, **settings)
    wanted = dynamics.train(DENSE, RULES, **settings)
    fields = "own_norm own_head_norm log_gap log_gradient log_own_gradient_head"
    assert_alike(ours, wanted, fields)
    assert set(ours) == set(RULES)


def test_a_sample_of_one_token_leaves_the_others_their_direction():
    samples = [DENSE.X[0, 0], DENSE.X[0, 1, :3], DENSE.X[0, 2, :1]]
    z = DENSE.z[0]
    three = token_set(samples, DENSE.y[0], z, DENSE.u[0])
    two = token_set(samples[:2], DENSE.y[0, :2], z[:2], DENSE.u[0])
    ours, wanted = (
        dynamics.train(data, RULES["normalised"], 12) for data in (three, two)
    )
    np.testing.assert_allclose(
        ours.weights(-1), wanted.weights(-1), rtol=1e-10, atol=1e-12
    )


def test_mirror_descent_selects_no_masked_token():
    selected = mirror.selected_tokens(MASKED, START)
    assert np.take_along_axis(MASKED.mask, selected[..., None], 2).all()


@pytest.mark.parametrize("data", [MASKED, DENSE], ids=["masked", "dense"])
@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_the_rows_of_all_margins_need_not_be_formed(data, head, loss, monkeypatch):
    settings = dict(steps=40, start=START, head=head, loss=loss)
    formed = dynamics.train(data, RULES, **settings)
    monkeypatch.setattr(mirror_descent, "FORMED", 0)
    through_samples = dynamics.train(data, RULES, **settings)
    fields = "norm log_gap own_norm log_own_gradient head_norm"
    assert_alike(through_samples, formed, fields, rtol=1e-12, atol=1e-13)
    assert set(through_samples) == set(RULES)
