"""Tests that records of arrays print their shapes.

Otherwise one line of a notebook prints a million numbers.
"""

import numpy as np
import pytest
import torch

from lib import attention, dynamics, svm, training
from lib.attention import tokens
from lib.data import texts
from lib.dynamics import rules

TOKENS = tokens.class_mean_tokens([0, 1], n=6, T=4, d=30, signal=2.5)
MINIMAL = attention.minimal(TOKENS)


def history():
    """Train in plain numpy, which compiles nothing."""
    rule = rules.Custom(lambda t, log_gap, log_norm: -log_norm - 2.0, logarithmic=True)
    target = np.ones(
        (2, *MINIMAL.token_basis.shape[2:], *MINIMAL.query_basis.shape[2:])
    )
    return dynamics.train(MINIMAL, rule, 5, [0, 2, 5], targets={"V": target})


def test_a_record_shows_shapes_words_and_numbers():
    assert (
        repr(TOKENS)
        == "TokenSet(X (2, 6, 4, 30), y (2, 6), z (2, 6, 30), u (2, 30), opt (2, 6))"
    )
    batches = training.Batches(
        torch.zeros(6, 4), torch.zeros(6), 2, 0, transform=torch.exp
    )
    assert (
        repr(batches)
        == "Batches(inputs (6, 4), targets (6,), size 2, seed 0, crops False, part 2)"
    )
    labels = np.array([0, 1, 1, 1])
    words = "TextSet(texts 4, labels (4,), classes 2, name imdb)"
    assert repr(texts.TextSet(["a"] * 4, labels, 2, "imdb")) == words
    slopes = attention.slopes(np.zeros((2, 3)), np.eye(3)[:2])
    assert "log_loss -0.3333, " in repr(slopes)


def test_a_history_and_a_solution_show_how_they_ended_and_no_entry():
    for shown, word in (
        (repr(history()), "status completed"),
        (repr(history()), "direction_error {V}"),
        (repr(svm.token_svm(TOKENS)), "accuracy 1e-09"),
    ):
        assert (
            word in shown
            and "array" not in shown
            and "\n" not in shown
            and len(shown) < 600
        )


def test_records_of_a_history_are_counted_from_both_ends():
    record = history()
    for k in range(3):
        np.testing.assert_array_equal(record.weights(k), record.weights(k - 3))
        np.testing.assert_array_equal(record.head(k), record.head(k - 3))
    assert not np.array_equal(record.weights(-1), record.weights(-2))
    for k in (3, -4):
        for part in (record.weights, record.head):
            with pytest.raises(
                IndexError,
                match=f"k = {k} is not there: k is a place in run.iterations, "
                "from -3 to 2",
            ):
                part(k)
