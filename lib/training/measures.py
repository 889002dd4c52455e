"""What is measured of a network, on whatever device it lies, and the plain classifiers to beat."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix, hstack
from torch import Tensor, nn

# A model in evaluation mode to named numbers.
Evaluate = Callable[[nn.Module], Mapping[str, float]]
# C of the logistic regression: the weight of the data.
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)


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


def logistic(train, test, labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Which rows of `test` logistic regression on `train` has right: bool (rows,).

    Its strength is chosen on a fifth of the training rows, never on test rows.
    """
    from sklearn.linear_model import LogisticRegression  # sklearn takes a second to import

    rest = np.arange(train.shape[0]) % 5 > 0

    def fit(strength, rows):
        return LogisticRegression(C=strength, max_iter=200).fit(train[rows], labels[rows])

    scores = {c: fit(c, rest).score(train[~rest], labels[~rest]) for c in STRENGTHS}
    return fit(max(scores, key=scores.get), slice(None)).predict(test) == truth


def nearest(train, test, labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Which rows of `test` the 3 nearest neighbours in `train` have right: bool (rows,)."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(3).fit(train, labels).predict(test) == truth


def on_pixels(classify: Callable, train, test) -> np.ndarray:
    """`classify` on the pixels of two `ImageSet`, in [0, 1]."""
    pixels = (part.images.flatten(1).numpy() / np.float32(255) for part in (train, test))
    return classify(*pixels, train.labels.numpy(), test.labels.numpy())


def on_tokens(train: tuple, test: tuple, words: int) -> np.ndarray:
    """`logistic` on which tokens are in rows of ids (N, T) below `words`, 0 for padding; the second
    of each pair are the labels (N,)."""

    def bag(ids: np.ndarray) -> csr_matrix:
        rows, columns = np.nonzero(ids)
        where = (rows, ids[rows, columns])
        return csr_matrix((np.ones(len(rows)), where), (len(ids), words)).sign()

    (known, labels), (unknown, truth) = (map(np.asarray, part) for part in (train, test))
    return logistic(bag(known), bag(unknown), labels, truth)


def on_words(train, test) -> np.ndarray:
    """`logistic` on which words are in the texts of two `TextSet`, in each text of a pair."""
    from sklearn.feature_extraction.text import CountVectorizer

    bags = []
    for known, unknown in ((train.texts, test.texts), (train.pairs, test.pairs)):
        if known is not None:
            counter = CountVectorizer(binary=True, min_df=2)
            bags.append((counter.fit_transform(known), counter.transform(unknown)))
    inputs = [hstack(part).tocsr() for part in zip(*bags)]
    return logistic(*inputs, train.labels, test.labels)
