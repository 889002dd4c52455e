"""What is measured of a network, on whatever device it lies, and the plain classifiers to beat.

A plain classifier is a function without arguments that fits it, by scikit-learn, and says which
test rows it has right, bool (rows,): a network that does not beat it is too small to speak.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix, hstack
from torch import Tensor, nn

Evaluate = Callable[[nn.Module], Mapping[str, float]]  # a model in evaluation mode to named numbers
Fits = dict[str, Callable[[], np.ndarray]]
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of the logistic regression: the weight of the data


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of logits model(inputs) (b, classes) against targets (b,), in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


@torch.no_grad()
def predict(model: nn.Module, rows: Tensor, transform: Callable = lambda x: x, size=250) -> Tensor:
    """What `model` says of `rows` (N, ...), `size` at a time on the model's device: on the CPU."""
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def right(logits: Tensor, targets: Tensor) -> Tensor:
    """Which rows are classified correctly: bool (N,); logits (N, classes), or (N,) of label 1."""
    return logits.argmax(1) == targets if logits.ndim > 1 else (logits > 0) == (targets > 0)


def correctness(hits: Tensor) -> dict[str, np.ndarray]:
    """Which test rows (N,) bool are classified correctly, as packed bits, and N."""
    return {"test_correct": np.packbits(hits.numpy()), "test_rows": np.array(len(hits))}


def classification(
    inputs: Tensor, targets: Tensor, transform=lambda x: x, size: int = 250, name: str = "test"
) -> Evaluate:
    """An `evaluate`: {"<name>_loss": mean cross-entropy, "<name>_accuracy": share correct}."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if logits.ndim > 1:
            return F.cross_entropy(logits, labels, reduction="sum")
        return F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits = predict(model, inputs, transform, size)
        parts = zip(logits.split(size), targets.split(size))
        return {
            f"{name}_loss": float(sum(loss(*part) for part in parts)) / len(targets),
            f"{name}_accuracy": float(right(logits, targets).sum()) / len(targets),
        }

    return evaluate


def of_images(train, test) -> Fits:
    """Logistic regression and 3 nearest neighbours on the pixels of two `ImageSet`, in [0, 1]."""
    labels = train.labels.numpy(), test.labels.numpy()

    def pixels() -> list[np.ndarray]:
        return [part.images.flatten(1).numpy() / np.float32(255) for part in (train, test)]

    def nearest() -> np.ndarray:
        from sklearn.neighbors import KNeighborsClassifier  # sklearn takes a second to import

        known, unknown = pixels()
        return KNeighborsClassifier(3).fit(known, labels[0]).predict(unknown) == labels[1]

    logistic = lambda: _logistic(*pixels(), *labels)
    return {"logistic regression": logistic, "3 nearest neighbours": nearest}


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
