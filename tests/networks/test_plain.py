"""Plain classifiers: they read the rows that they are given, and the labels that go with them."""

import numpy as np
import pytest

from lib.networks import plain


@pytest.mark.parametrize("classify", [plain.logistic, plain.nearest])
def test_plain_classifiers_read_rows_and_labels(classify):
    rng = np.random.default_rng(0)

    def rows(count):
        labels = rng.integers(0, 2, count)
        return labels[:, None] + rng.uniform(0, 0.4, (count, 3)), labels

    train, (inputs, labels) = rows(100), rows(40)
    wrong = labels.copy()
    wrong[:3] = 1 - wrong[:3]
    np.testing.assert_array_equal(classify(train, (inputs, wrong)), labels == wrong)


def test_bags_of_words_and_of_tokens_know_the_training_rows_alone(monkeypatch):
    monkeypatch.setattr(plain, "logistic", lambda train, test: (train, test))
    texts = (["good film", "bad film"], ["a good book", "bad"])
    pairs = ([[1, 2, 0], [1, 3, 0]], [[3, 9, 0], [0, 0, 0]])
    labels = [1, 0], [1, 0]
    (known, first), (unknown, second) = plain.bag_of_words([texts], labels)
    assert known.toarray().tolist() == [[0, 1, 1], [1, 1, 0]]  # bad, film, good
    assert unknown.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert (first, second) == labels
    both = plain.bag_of_words([texts, texts], labels)[1][0].toarray()
    np.testing.assert_array_equal(both, np.tile(unknown.toarray(), 2))
    kept = lambda row: [k for k in row if k]
    tokens = plain.bag_of_words([pairs], labels, analyzer=kept)[1][0]
    assert tokens.toarray().tolist() == [[0, 0, 1], [0, 0, 0]]
