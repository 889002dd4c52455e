"""What a network says of rows, plain classifiers to beat, and its weights in numbers. A
plain classifier takes training and test rows, (inputs, labels), and says which it has
right.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import hstack
from torch import Tensor, nn

EDGES = np.geomspace(1e-6, 10, 71)  # of the bins of histograms
PARTS = {"K": "key", "Q": "query", "V": "value"}
PAPERS_THRESHOLD = 0.06  # paper C's
# C of a logistic regression: the weight of the data
STRENGTHS = (
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
)


@torch.no_grad()
def predict(
    model: nn.Module, rows: Tensor, transform: Callable = lambda x: x, size=250
) -> Tensor:
    """What `model` says of `rows` (N, ...), `size` at a time on its device; on the
    CPU.
    """
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Which rows are right: bool (N,); logits (N, classes), or (N,) of label 1."""
    if logits.ndim > 1:
        return logits.argmax(1) == targets
    return (logits > 0) == (targets > 0)


def classification(
    inputs: Tensor,
    targets: Tensor,
    transform=lambda x: x,
    size: int = 250,
    name: str = "test",
) -> Callable[[nn.Module], Mapping[str, float]]:
    """A function of a model: {"<name>_loss": mean cross-entropy, "<name>_accuracy":
    share}.
    """

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits = predict(model, inputs, transform, size)
        loss = F.cross_entropy
        wanted = targets
        if logits.ndim == 1:  # of label 1
            loss = F.binary_cross_entropy_with_logits
            wanted = targets.float()
        parts = zip(logits.split(size), wanted.split(size))
        total = sum(loss(*part, reduction="sum") for part in parts)
        hits = float(correct(logits, targets).sum())
        return {
            f"{name}_loss": float(total) / len(wanted),
            f"{name}_accuracy": hits / len(wanted),
        }

    return evaluate


def logistic(train: tuple, test: tuple) -> np.ndarray:
    """Logistic regression, its strength chosen on a fifth of the training rows."""
    from sklearn.linear_model import (
        LogisticRegression,  # sklearn takes a second to import
    )
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    fifth = PredefinedSplit(np.where(np.arange(len(train[1])) % 5, -1, 0))
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": STRENGTHS}, cv=fifth)
    return search.fit(*train).predict(test[0]) == test[1]


def nearest(train: tuple, test: tuple) -> np.ndarray:
    """The 3 nearest neighbours."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(3).fit(*train).predict(test[0]) == test[1]


def bag_of_words(columns: Sequence[tuple], labels: tuple, **how) -> np.ndarray:
    """`logistic` on which words are in the texts of each column; columns and labels are
    (training, test), `how` is for CountVectorizer.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    parts = []
    for known, unknown in columns:
        counter = CountVectorizer(binary=True, **how)
        parts.append((counter.fit_transform(known), counter.transform(unknown)))
    bags = [hstack(part).tocsr() for part in zip(*parts)]  # each (rows, words)
    return logistic(*zip(bags, labels))


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of two axes or more that `model` trains, by name, in order."""
    trained = {
        name: p
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }
    return {name: p.detach().cpu().numpy() for name, p in trained.items()}


def hoyer(W: np.ndarray) -> float:
    """The Hoyer index (√N - ‖w‖₁ / ‖w‖₂) / (√N - 1) of the N entries of W: 0 if all are
    equally large, 1 for one alone, NaN for W = 0 or N = 1. Source: Hoyer (2004).
    """
    size = np.abs(np.asarray(W, dtype=np.float64)).ravel()
    root = np.sqrt(size.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((root - size.sum() / np.sqrt((size**2).sum())) / (root - 1))


def binned(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """How many magnitudes fall into each bin of `EDGES`, clipped to its ends:
    (bins,).
    """
    counts = [
        np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0]
        for W in matrices
    ]
    return np.sum(counts, axis=0)


def by_part(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """The weight matrices (d, d) of K, Q and V, one a layer."""
    weights = matrices(model).items()
    return {
        part: [W for name, W in weights if f".{word}." in name]
        for part, word in PARTS.items()
    }


def sparsity(model: nn.Module, start: nn.Module) -> dict[str, float]:
    """Hoyer index and shares above thresholds of each part K, Q, V of `model`: the
    paper's, and the 90 % quantile of the part's magnitudes at the `start`.
    """
    row = {}
    first = by_part(start)
    for part, weights in by_part(model).items():
        size = np.abs(np.concatenate(weights))
        limit = np.quantile(np.abs(np.concatenate(first[part])), 0.9)
        row[f"hoyer.{part}"] = float(np.mean([hoyer(W) for W in weights]))
        row[f"above_006.{part}"] = float((size > PAPERS_THRESHOLD).mean())
        row[f"above_90.{part}"] = float((size > limit).mean())
    return row
