"""Margins read off a history: else the law is judged by another selection, part of W or dual."""

import numpy as np
import pytest

from lib import attention, dynamics
from lib.attention import coordinates, tokens
from papers.beyond import margin_law, margins


@pytest.fixture(scope="module")
def trained():
    """Unit tokens, two of whose runs end in other selections than the opt tokens."""
    problem = coordinates.minimal(tokens.unit_tokens(range(6), n=6, T=8, d=10))
    history = dynamics.train(problem, dynamics.ngd(0.5), 2000, [0, 500, 1000, 2000])
    return problem.tokens, history


def test_selection_and_margins_are_those_of_the_logits(trained):
    data, history = trained
    selected = margins.selection(history, data.opt)
    relative = margins.relative_margins(history, data.opt, selected)
    for k in range(4):
        logits = attention.logits(data, history.weights(k))
        expected = margin_law.gaps_of_scores(logits, selected)
        np.testing.assert_allclose(relative[:, k], expected, rtol=1e-9, atol=1e-8)
    assert (selected == logits.argmax(-1)).all() and (selected != data.opt).any()
    assert (margins.selection(history, data.opt, 0) == data.opt).all()  # at W_0 = 0 all are level


def test_difference_of_iterates_and_runs_that_ended(trained):
    _, history = trained
    step = history.weights(3) - history.weights(1)
    assert (margins.difference(history, 1, -1) == step).all()
    with pytest.raises(ValueError, match="ascend"):
        margins.difference(history, 2, 2)
    data = tokens.unit_tokens(0, n=2, T=2, d=4)
    rule = dynamics.custom_log(
        lambda t, log_gap, log_norm: np.where(t < 5, 0.0, np.inf) + 0 * log_norm
    )
    diverged = dynamics.train(data, rule, 20, [0, 10, 20])
    with pytest.raises(ValueError, match="run 0 .* iteration 5"):
        margins.selection(diverged, data.opt)


def test_parts_along_and_off_obey_pythagoras():
    V, W = np.random.default_rng(0).standard_normal((2, 4, 5, 3))
    along, off = margins.along_and_off(W, V)
    size = lambda W: np.linalg.norm(W, axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.hypot(along, off), size(W).ravel())
    far = 1e9 * V + W
    naive = size(far / size(far) - V / size(V)).ravel()
    np.testing.assert_allclose(margins.direction_error(far, V), naive, rtol=1e-5)
    np.testing.assert_allclose(margins.direction_error(-V, V), 2.0)
    beside = 2 * np.sin(np.arctan(1 / (3 * size(V).ravel())) / 2)
    np.testing.assert_allclose(margins.direction_error(3 * V, V, np.ones(4)), beside)


def test_margins_and_weights_do_not_drift_apart_in_a_million_steps():
    problem = coordinates.minimal(tokens.unit_tokens(2, n=3, T=3, d=5))
    history = dynamics.train(problem, dynamics.ngd(0.2), 1_000_000, [1_000_000])
    logits = attention.logits(problem.tokens, history.weights(0))
    exact = margin_law.gaps_of_scores(logits, problem.tokens.opt)
    assert np.abs(history.margins[:, 0]).max() > 1e4
    assert np.abs(exact - history.margins[:, 0]).max() < 1e-9  # plain sums: 1e-6
