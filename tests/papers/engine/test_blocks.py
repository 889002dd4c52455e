"""Steepest descent block by block: against many digits, one block, blocks without gradient."""

import mpmath
import numpy as np
import pytest

from lib import attention
from lib.attention import tokens
from papers.beyond.engine import optimisers as o
from papers.beyond.engine import training
from tests.papers.engine import exact

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))


def ours(rule, steps, start=START, data=DATA):
    return training.train(data, rule, steps, start, [steps]).W[0, -1]


@pytest.mark.parametrize("norm", ["frobenius", 1, 3, np.inf, "spectral", "nuclear"])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("far", [1.0, 900.0])
def test_blocks_against_many_digits(norm, by_columns, far):
    rule = o.in_blocks(o.steepest(norm, 0.07), 2, by_columns)
    direction = exact.in_blocks(2 if norm == "frobenius" else norm, 2, by_columns)
    with mpmath.workdps(2500 if far > 1 and norm in ("spectral", "nuclear") else 1200):
        expected = exact.train(DATA, direction, 0.07, 12, far * START[0])
    found, moved = ours(rule, 12, far * START), np.abs(expected - far * START[0]).max()
    assert np.abs(found - expected).max() <= max(1e-9 * moved, 1e-13 * np.abs(expected).max())
    assert moved > 0.05


def test_the_dual_norm_is_the_sum_over_the_blocks():
    """Not normalised, a step is N*(G) long: sum_b N*(G_b) in every block."""
    with mpmath.workdps(50):
        G = exact.gradients(DATA, exact.digits(START[0]), "exponential").mean(0).astype(float)
    for norm, dual in (("spectral", "nuc"), ("nuclear", 2), ("frobenius", "fro")):
        sizes = [np.linalg.norm(part, dual) for part in np.split(G, 2)]
        rule = o.in_blocks(o.steepest(norm, 1.0, normalised=False), 2)
        step, plain = ours(rule, 1) - START[0], {"spectral": 2, "nuclear": "nuc"}.get(norm, "fro")
        for part in np.split(step, 2):
            assert np.linalg.norm(part, plain) == pytest.approx(sum(sizes), rel=1e-11)


def test_one_block_is_the_rule_itself_and_every_sign_is():
    for rule in (o.steepest("spectral", 0.05), o.muon(0.05), o.steepest(3, 0.05)):
        np.testing.assert_array_equal(ours(o.in_blocks(rule, 1), 50), ours(rule, 50))
    sign = o.steepest(np.inf, 0.05)
    np.testing.assert_allclose(ours(o.in_blocks(sign, 4), 50), ours(sign, 50), atol=1e-12)


def test_muon_by_heads_has_momentum_of_the_whole():
    """Each head is Muon on its own rows of every gradient, which the whole W makes."""
    rule = o.in_blocks(o.muon(0.05, nesterov=True), 2)
    direction = exact.muon(0.95, True)
    heads = [exact.muon(0.95, True), exact.muon(0.95, True)]
    with mpmath.workdps(400):
        both = lambda t, parts: np.concatenate(
            [head(t, half) for head, half in zip(heads, np.split(parts, 2, 1), strict=True)]
        )
        expected = exact.train(DATA, both, 0.05, 12, START[0])
        whole = exact.train(DATA, direction, 0.05, 12, START[0])
    np.testing.assert_allclose(ours(rule, 12), expected, atol=1e-10)
    assert np.abs(expected - whole).max() > 0.01


def test_a_block_without_a_gradient_rests():
    data = attention.token_set([[np.zeros(2), [-1.0, 0.0]]], [1.0], z=[[1.0]], u=[1.0, 0.0])
    for rule in (o.steepest("spectral", 0.1), o.steepest(2, 0.1), o.muon(0.1)):
        W = ours(o.in_blocks(rule, 2), 5, np.zeros((1, 2, 1)), data)
        np.testing.assert_allclose(W[:, 0], [0.5, 0.0], rtol=1e-12)


def test_bad_blocks_are_named():
    for wrong in (
        lambda: o.in_blocks(o.adam(0.1), 2),
        lambda: o.in_blocks(o.steepest(2, 0.1), 0),
        lambda: o.in_blocks(o.steepest(2, 0.1), 1.5),
        lambda: ours(o.in_blocks(o.steepest(2, 0.1), 3), 1),
        lambda: ours(o.in_blocks(o.steepest(2, 0.1), 3, by_columns=True), 1),
    ):
        with pytest.raises(ValueError, match="block"):
            wrong()
