"""Plain classifiers, which a network on the same rows has to beat: bool (test rows,), correct ones.

Training and test rows are pairs (inputs, labels).
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import hstack

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of a logistic regression: the weight of the data


def logistic(train: tuple, test: tuple) -> np.ndarray:
    """Logistic regression, its strength chosen on a fifth of the training rows."""
    from sklearn.linear_model import LogisticRegression  # sklearn takes a second to import
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    fifth = PredefinedSplit(np.where(np.arange(len(train[1])) % 5, -1, 0))
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": STRENGTHS}, cv=fifth)
    return search.fit(*train).predict(test[0]) == test[1]


def nearest(train: tuple, test: tuple) -> np.ndarray:
    """The 3 nearest neighbours."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(3).fit(*train).predict(test[0]) == test[1]


def bag_of_words(columns: Sequence[tuple], labels: tuple, **how) -> np.ndarray:
    """`logistic` on which words are in the texts, those of one column after those of another.

    Columns and labels are (training, test); `how` is for CountVectorizer.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    parts = []
    for known, unknown in columns:
        counter = CountVectorizer(binary=True, **how)
        parts.append((counter.fit_transform(known), counter.transform(unknown)))
    bags = [hstack(part).tocsr() for part in zip(*parts)]  # each (rows, words)
    return logistic(*zip(bags, labels))
