"""What a network must beat to speak: plain classifiers on the same training rows, by scikit-learn.

A regularisation is chosen on a fifth of the training rows, never on test rows.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

NEIGHBOURS = 3
STRENGTHS = (0.001, 0.01, 0.1)  # C of the logistic regression: the weight of the data
Fits = dict[str, Callable[[], np.ndarray]]  # name: fit, which says which test rows are right


def of_images(train, test) -> Fits:
    """Logistic regression and 3 nearest neighbours on pixels in [0, 1].

    `train` and `test` are `lib.data.images.ImageSet`; both read the same rows as the network.
    """

    def arrays():
        pixels = [split.images.flatten(1).numpy() / np.float32(255) for split in (train, test)]
        return *pixels, train.labels.numpy(), test.labels.numpy()

    def nearest() -> np.ndarray:
        known, unknown, labels, truth = arrays()
        return KNeighborsClassifier(NEIGHBOURS).fit(known, labels).predict(unknown) == truth

    return {
        "logistic regression": lambda: _logistic(*arrays()),
        f"{NEIGHBOURS} nearest neighbours": nearest,
    }


def of_texts(train, test) -> Fits:
    """Logistic regression on the bag of words; of pairs, one bag a sentence.

    `train` and `test` are `lib.data.texts.TextSet`, whole texts even where a network reads their
    first words alone; a bag says which words stand in a text.
    """

    def bag() -> np.ndarray:
        columns = [(train.texts, test.texts)]
        columns += [] if train.pairs is None else [(train.pairs, test.pairs)]
        bags = []
        for known, unknown in columns:
            counter = CountVectorizer(binary=True, min_df=2)
            bags.append((counter.fit_transform(known), counter.transform(unknown)))
        inputs = [hstack(split).tocsr() for split in zip(*bags, strict=True)]
        return _logistic(*inputs, train.labels, test.labels)

    return {"bag of words": bag}


def _logistic(train, test, labels, truth) -> np.ndarray:
    rest = np.arange(train.shape[0]) % 5 > 0

    def fit(strength, rows):
        return LogisticRegression(C=strength, max_iter=200).fit(train[rows], labels[rows])

    held = {c: fit(c, rest).score(train[~rest], labels[~rest]) for c in STRENGTHS}
    return fit(max(held, key=held.get), slice(None)).predict(test) == truth
