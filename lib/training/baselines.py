"""What a network must beat to speak: plain classifiers on the same training rows, by scikit-learn.

A regularisation is chosen on a fifth of the training rows, never on test rows.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix, hstack

NEIGHBOURS = 3
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of the logistic regression: the weight of the data
Fits = dict[str, Callable[[], np.ndarray]]  # name: fit, which says which test rows are right


def of_images(train, test) -> Fits:
    """Logistic regression and 3 nearest neighbours on pixels in [0, 1].

    `train` and `test` are `lib.data.images.ImageSet`; both read the same rows as the network.
    """

    def arrays():
        pixels = [split.images.flatten(1).numpy() / np.float32(255) for split in (train, test)]
        return *pixels, train.labels.numpy(), test.labels.numpy()

    def nearest() -> np.ndarray:
        from sklearn.neighbors import KNeighborsClassifier  # sklearn takes a second to import

        known, unknown, labels, truth = arrays()
        return KNeighborsClassifier(NEIGHBOURS).fit(known, labels).predict(unknown) == truth

    return {
        "logistic regression": lambda: _logistic(*arrays()),
        f"{NEIGHBOURS} nearest neighbours": nearest,
    }


def of_tokens(train: tuple, test: tuple, words: int) -> Fits:
    """Logistic regression on the bag of the tokens that a network reads, no more and no fewer.

    `train` and `test` are ids (N, T) below `words`, 0 for padding, and labels (N,).
    """

    def bag(ids) -> csr_matrix:
        rows, columns = np.nonzero(np.asarray(ids))
        where = (rows, np.asarray(ids)[rows, columns])
        found = csr_matrix((np.ones(len(rows)), where), shape=(len(ids), words))
        found.data[:] = 1  # whether, not how often
        return found

    return {
        "bag of words": lambda: _logistic(
            bag(train[0]), bag(test[0]), np.asarray(train[1]), np.asarray(test[1])
        )
    }


def of_texts(train, test) -> Fits:
    """Logistic regression on the bag of words; of pairs, one bag a sentence.

    `train` and `test` are `lib.data.texts.TextSet`; a bag says which words stand in a text.
    """

    def bag() -> np.ndarray:
        from sklearn.feature_extraction.text import CountVectorizer

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
    from sklearn.linear_model import LogisticRegression

    rest = np.arange(train.shape[0]) % 5 > 0

    def fit(strength, rows):
        return LogisticRegression(C=strength, max_iter=200).fit(train[rows], labels[rows])

    held = {c: fit(c, rest).score(train[~rest], labels[~rest]) for c in STRENGTHS}
    return fit(max(held, key=held.get), slice(None)).predict(test) == truth
