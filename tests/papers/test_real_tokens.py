"""Tests of the law on real tokens.

A wrong constant, a wrong selection or an unreported exclusion would mislead.
"""

from dataclasses import replace

import numpy as np
import pytest

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.data import texts
from papers.law import real_tokens

UNIT = tokens.unit_tokens(1, n=6, T=8, d=10)


def test_reading_measures_the_constant_and_what_is_left_of_the_transients():
    one = real_tokens.read(UNIT, dynamics.NGD(0.1), 100_000)
    assert not one.refusal and abs(one.ratio - 1) < 1e-9
    assert abs(one.plain / one.law.constant[0] - 1) > 0.1
    assert np.allclose(one.weights.sum(-1), 1) and one.weights[-1].max(-1).min() > 0.99
    small = coordinates.minimal(UNIT).tokens
    at = one.iterations[[8]]
    W = dynamics.train(small, dynamics.NGD(0.1), at[0], at).weights(0)
    V = svm.token_svm(small, one.selected[None]).W
    level = (W * V).sum() / (V * V).sum()
    assert np.isclose(one.left[8], one.law.remaining(level)[0])
    wrong = replace(one, residual=one.residual * 1.02, plain=one.law.constant[0])
    for reading in (wrong, replace(one, refusal="no")):
        assert [claim.holds for claim in real_tokens.claims([reading])] == [
            False,
            False,
        ]


@pytest.mark.parametrize(
    ("rule", "steps", "name"),
    [
        (dynamics.NGD(1e-4), 10, "selection made"),
        (dynamics.NGD(50.0), 2000, "short steps"),
    ],
)
def test_a_hypothesis_that_fails_is_named(rule, steps, name):
    assert name in real_tokens.read(UNIT, rule, steps).refusal


def test_sentences_are_of_one_length_and_both_labels_and_know_their_words():
    data = texts.load("multi_nli", "train", demo=True)
    if texts.identity("multi_nli", demo=True)["source"] != "demo":
        pytest.skip("DATA_DIR holds another set: the words below are the stand-in's")
    found = real_tokens.sentences(data, 6)
    runs, count, length, width = found.tokens.shape
    assert (runs, count, width) == (1, 6, 384) and length >= 12
    assert all(len(words) == length for words in found.words)
    assert found.tokens.y[0].tolist() == [-1] * 3 + [1] * 3
    assert any(
        text.lower().startswith(" ".join(found.words[0][:3])) for text in data.texts
    )
    mean = found.tokens.X[0].mean(1)  # the probe separates what it was fitted on
    y = found.tokens.y[0]
    u = found.tokens.u[0]
    assert (y * (mean @ u) > 0).all()
    penalty = real_tokens.RIDGE * (mean**2).sum(1).mean()
    # the normal equations of the ridge regression
    assert np.allclose(mean.T @ (y - mean @ u), penalty * u, atol=1e-9)


def test_too_few_sentences_are_refused_by_the_name_of_their_set():
    data = texts.load("multi_nli", "train", demo=True).take(np.arange(5))
    for shortest in (12, 600):
        with pytest.raises(
            ValueError, match="from .* to 126 word pieces, where .* has 3 rows"
        ):
            real_tokens.sentences(data, 6, shortest)
    for count in (0, 7):
        with pytest.raises(
            ValueError, match=f"count is {count}; it needs an even number"
        ):
            real_tokens.sentences(data, count)
