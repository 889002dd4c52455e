"""Tests of accuracy, loss and sparsity against counts by hand, since figures quote
them.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import model_selection

from lib.networks import measures


def test_classification_counts_over_unequal_chunks_by_classes_and_by_one_logit():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(50, 4, generator=generator)
    labels = torch.arange(50) % 3
    model = torch.nn.Linear(4, 3)
    logits = model(inputs).detach()
    for head, targets, loss, right in (
        (slice(None), labels, F.cross_entropy, logits.argmax(1) == labels),
        (0, labels % 2, None, (logits[:, 0] > 0) == (labels % 2 == 1)),
    ):
        loss = loss or (lambda z, y: F.softplus(torch.where(y > 0, -z, z)).mean())
        read = torch.nn.Linear(1, 1)
        read.forward = lambda rows, head=head: model(rows)[:, head]
        values = measures.classification(inputs, targets, size=16)(read)
        assert values["test_accuracy"] == pytest.approx(float(right.float().mean()))
        expected = float(loss(logits[:, head], targets))
        assert values["test_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_hoyer_index():
    assert measures.hoyer(np.ones((3, 4))) == pytest.approx(0, abs=1e-12)
    assert measures.hoyer(7 * np.eye(1, 20)) == pytest.approx(1)
    gauss = np.random.default_rng(0).standard_normal(100_000)
    # ||w||_1 = sqrt(2 / pi) sqrt(N) ||w||_2
    expected = (1 - np.sqrt(2 / np.pi)) / (1 - 1e5**-0.5)
    assert measures.hoyer(gauss) == pytest.approx(expected, rel=0.01)
    assert measures.hoyer(3 * gauss) == pytest.approx(measures.hoyer(gauss))
    assert np.isnan(measures.hoyer(np.zeros(3)))


def test_sparsity_of_a_part_is_the_share_above_thresholds():
    def network(*rows):
        layers = [
            {
                word: torch.nn.Linear(2, 1, bias=False)
                for word in ("key", "query", "value")
            }
            for _ in rows
        ]
        model = torch.nn.ModuleList(map(torch.nn.ModuleDict, layers))
        with torch.no_grad():
            for parameter, row in zip(
                model.parameters(), np.repeat(rows, 3, 0), strict=False
            ):
                parameter.copy_(torch.tensor(row))
        return model

    values = measures.sparsity(
        network([0.1, -0.2], [0.3, 0.065]), network([0.0, 0.0], [0.0, 0.1])
    )
    # nine tenths of the start's entries 0, 0, 0, 0.1 are at most 0.07
    assert values["above_90.V"] == 0.75
    assert values["above_006.K"] == 1.0
    each = [measures.hoyer(np.array(row)) for row in ([1, 2], [0.3, 0.065])]
    assert values["hoyer.Q"] == pytest.approx(np.mean(each))


def test_magnitudes_fall_into_the_bins_of_their_decade_and_none_outside():
    inside = measures.EDGES[3] * 1.01
    counts = measures.binned([np.array([[0.0, -inside]]), np.array([1e9, 1e9])])
    assert dict(zip(np.flatnonzero(counts), counts[counts > 0], strict=True)) == {
        0: 1,
        3: 1,
        69: 2,
    }


@pytest.mark.parametrize("classify", [measures.logistic, measures.nearest])
def test_plain_classifiers_read_rows_and_labels(classify):
    rng = np.random.default_rng(0)

    def rows(count):
        labels = rng.integers(0, 2, count)
        return labels[:, None] + rng.uniform(0, 0.4, (count, 3)), labels

    train = rows(100)
    (inputs, labels) = rows(40)
    wrong = labels.copy()
    wrong[:3] = 1 - wrong[:3]
    np.testing.assert_array_equal(classify(train, (inputs, wrong)), labels == wrong)


def test_bags_of_words_and_of_tokens_know_the_training_rows_alone(monkeypatch):
    monkeypatch.setattr(measures, "logistic", lambda train, test: (train, test))
    texts = (["good film", "bad film"], ["a good book", "bad"])
    pairs = ([[1, 2, 0], [1, 3, 0]], [[3, 9, 0], [0, 0, 0]])
    labels = [1, 0], [1, 0]
    (known, first), (unknown, second) = measures.bag_of_words([texts], labels)
    assert known.toarray().tolist() == [[0, 1, 1], [1, 1, 0]]  # bad, film, good
    assert unknown.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert (first, second) == labels
    both = measures.bag_of_words([texts, texts], labels)[1][0].toarray()
    np.testing.assert_array_equal(both, np.tile(unknown.toarray(), 2))

    def kept(row):
        return [k for k in row if k]

    tokens = measures.bag_of_words([pairs], labels, analyzer=kept)[1][0]
    assert tokens.toarray().tolist() == [[0, 0, 1], [0, 0, 0]]


def test_a_plain_classifier_chooses_its_strength_on_a_fifth_of_the_training_rows(
    monkeypatch,
):
    seen = []
    search = model_selection.GridSearchCV

    def watched(estimator, grid, cv):
        seen.extend(cv.split())
        return search(estimator, grid, cv=cv)

    monkeypatch.setattr(model_selection, "GridSearchCV", watched)
    labels = np.arange(40) % 2
    rows = labels[:, None] + 0.1 * np.random.default_rng(0).standard_normal((40, 3))
    measures.logistic((rows, labels), (rows, labels))
    ((fitted, judged),) = seen
    assert judged.tolist() == list(range(0, 40, 5))
    assert sorted([*fitted, *judged]) == list(range(40))


def test_a_single_logit_answers_by_its_sign_whatever_its_size():
    logits = torch.tensor([0.5, 0.5, -0.5, -0.5, 3.0])
    labels = torch.tensor([1, 0, 1, 0, 1])
    right = measures.correct(logits, labels)
    assert right.tolist() == [True, False, False, True, True]


def test_the_hoyer_index_is_between_that_of_one_entry_and_of_equal_ones():
    """For w = (3, 4): (sqrt(2) - 7 / 5) / (sqrt(2) - 1)."""
    expected = (np.sqrt(2) - 1.4) / (np.sqrt(2) - 1)
    assert measures.hoyer(np.array([3.0, -4.0])) == pytest.approx(expected)


def test_shares_are_of_entries_above_a_threshold_and_not_at_it():
    def network(row):
        model = torch.nn.ModuleDict(
            {
                part: torch.nn.Linear(4, 1, bias=False)
                for part in measures.PARTS.values()
            }
        )
        for parameter in model.parameters():
            parameter.data = torch.tensor([row])
        return torch.nn.ModuleDict({"layer": model})

    trained = network([0.05, -0.07, 0.5, 0.0])
    values = measures.sparsity(trained, network([0.5, 0.5, 0.5, 0.5]))
    assert values["above_006.K"] == 0.5
    assert values["above_90.K"] == 0.0
