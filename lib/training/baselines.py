"""What a network must beat to speak: plain classifiers on the same training rows, by scikit-learn.

A regularisation is chosen on a fifth of the training rows, never on test rows.
"""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

NEIGHBOURS = 3
STRENGTHS = (0.001, 0.01, 0.1)  # C of the logistic regression: the weight of the data


def of_images(train, test) -> dict[str, float]:
    """Test accuracy of logistic regression and of 3 nearest neighbours on pixels in [0, 1].

    `train` and `test` are `lib.data.images.ImageSet`; both read the same rows as the network.
    """
    pixels = [split.images.flatten(1).numpy() / np.float32(255) for split in (train, test)]
    labels = [split.labels.numpy() for split in (train, test)]
    nearest = KNeighborsClassifier(NEIGHBOURS).fit(pixels[0], labels[0])
    return {
        "logistic regression": _logistic(*pixels, *labels),
        f"{NEIGHBOURS} nearest neighbours": float(nearest.score(pixels[1], labels[1])),
    }


def of_texts(train, test) -> dict[str, float]:
    """Test accuracy of logistic regression on the bag of words; of pairs, one bag a sentence.

    `train` and `test` are `lib.data.texts.TextSet`; a bag says which words stand in a text.
    """
    columns = [(train.texts, test.texts)]
    columns += [] if train.pairs is None else [(train.pairs, test.pairs)]
    bags = []
    for known, unknown in columns:
        counter = CountVectorizer(binary=True, min_df=2)
        bags.append((counter.fit_transform(known), counter.transform(unknown)))
    inputs = [hstack(split).tocsr() for split in zip(*bags, strict=True)]
    return {"bag of words": _logistic(*inputs, train.labels, test.labels)}


def _logistic(train, test, train_labels, test_labels) -> float:
    rest = np.arange(train.shape[0]) % 5 > 0

    def fit(strength, rows):
        model = LogisticRegression(C=strength, max_iter=200)
        return model.fit(train[rows], train_labels[rows])

    held = {c: fit(c, rest).score(train[~rest], train_labels[~rest]) for c in STRENGTHS}
    best = max(held, key=held.get)
    return float(fit(best, slice(None)).score(test, test_labels))


def speaks(accuracy: float, baselines: Mapping[str, float]) -> bool:
    """Whether a network of this test accuracy beats the best plain classifier."""
    return accuracy > max(baselines.values())
