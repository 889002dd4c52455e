"""Plain classifiers that a network must beat on the same training rows to speak, by scikit-learn.

Each is a function without arguments that fits it and says which test rows are right, bool (rows,).
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix, hstack

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of the logistic regression: the weight of the data
Fits = dict[str, Callable[[], np.ndarray]]


def of_images(train, test) -> Fits:
    """Logistic regression and 3 nearest neighbours on the pixels of two `ImageSet`, in [0, 1]."""

    def pixels() -> tuple:
        parts = [part.images.flatten(1).numpy() / np.float32(255) for part in (train, test)]
        return *parts, train.labels.numpy(), test.labels.numpy()

    def nearest() -> np.ndarray:
        from sklearn.neighbors import KNeighborsClassifier  # sklearn takes a second to import

        known, unknown, labels, truth = pixels()
        return KNeighborsClassifier(3).fit(known, labels).predict(unknown) == truth

    return {"logistic regression": lambda: _logistic(*pixels()), "3 nearest neighbours": nearest}


def of_tokens(train: tuple, test: tuple, words: int) -> Fits:
    """Logistic regression on the bag of the tokens that a network reads, no more and no fewer.

    `train` and `test` are ids (N, T) below `words`, 0 for padding, and labels (N,).
    """

    def bag(ids: np.ndarray) -> csr_matrix:
        rows, columns = np.nonzero(ids)
        where = (rows, ids[rows, columns])
        return csr_matrix((np.ones(len(rows)), where), (len(ids), words)).sign()

    def fit() -> np.ndarray:
        (known, labels), (unknown, truth) = (map(np.asarray, part) for part in (train, test))
        return _logistic(bag(known), bag(unknown), labels, truth)

    return {"bag of words": fit}


def of_texts(train, test) -> Fits:
    """Logistic regression on which words stand in a text of two `TextSet`, of pairs in each one."""

    def fit() -> np.ndarray:
        from sklearn.feature_extraction.text import CountVectorizer

        bags = []
        for known, unknown in ((train.texts, test.texts), (train.pairs, test.pairs)):
            if known is not None:
                counter = CountVectorizer(binary=True, min_df=2)
                bags.append((counter.fit_transform(known), counter.transform(unknown)))
        inputs = [hstack(part).tocsr() for part in zip(*bags)]
        return _logistic(*inputs, train.labels, test.labels)

    return {"bag of words": fit}


def _logistic(train, test, labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Its strength is chosen on a fifth of the training rows, never on test rows."""
    from sklearn.linear_model import LogisticRegression

    rest = np.arange(train.shape[0]) % 5 > 0

    def fit(strength, rows):
        return LogisticRegression(C=strength, max_iter=200).fit(train[rows], labels[rows])

    scores = {c: fit(c, rest).score(train[~rest], labels[~rest]) for c in STRENGTHS}
    return fit(max(scores, key=scores.get), slice(None)).predict(test) == truth
