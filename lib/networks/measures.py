"""Measure the answers of networks and of plain classifiers, and a network's weights.

A plain classifier is a function of training and test rows, each (inputs, labels). It
returns which test rows it classifies correctly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import hstack
from torch import Tensor, nn

EDGES = np.geomspace(1e-6, 10, 71)  # edges of the bins of histograms
PARTS = {"K": "key", "Q": "query", "V": "value"}
PAPERS_THRESHOLD = 0.06  # the threshold of paper C
# The values tried for C, the weight of the data in a logistic regression.
STRENGTHS = (
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
)


@torch.no_grad()
def predict(
    model: nn.Module, rows: Tensor, transform: Callable = lambda x: x, size: int = 250
) -> Tensor:
    """Compute a network's answers to rows of data, some rows at a time.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It stays in its mode, training or evaluation.
    rows : Tensor (N, ...)
        The rows.
    transform : callable
        What is done to each part of the rows first, on the network's device. Default:
        nothing.
    size : int, default 250
        Number of rows at a time.

    Returns
    -------
    Tensor (N, ...)
        What the network returns for every row, such as its logits, on the CPU.
    """
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return whether each row is classified correctly.

    Parameters
    ----------
    logits : Tensor (N, classes) or (N,)
        Logits of all classes, or of label 1.
    targets : Tensor (N,)
        The labels: numbers of classes, or 0 and 1.

    Returns
    -------
    Tensor of bool (N,)
        Whether the answer equals the label. The answer is the class with the largest
        logit, or label 1 if the one logit is above 0.

    Examples
    --------
    >>> import torch
    >>> from lib.networks import measures
    >>> measures.correct(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
    tensor([ True, False])
    """
    if logits.ndim > 1:
        return logits.argmax(1) == targets
    return (logits > 0) == (targets > 0)


def classification(
    inputs: Tensor,
    targets: Tensor,
    transform: Callable = lambda x: x,
    size: int = 250,
    name: str = "test",
) -> Callable[[nn.Module], Mapping[str, float]]:
    """Build a function that measures a classifier on rows.

    Parameters
    ----------
    inputs : Tensor (N, ...)
        The rows.
    targets : Tensor (N,)
        Their labels, on the CPU.
    transform : callable
        What is done to the rows first, on the network's device. Default: nothing.
    size : int, default 250
        Number of rows at a time.
    name : str, default "test"
        Name of the rows.

    Returns
    -------
    callable
        A function of a network that returns {"<name>_loss": mean cross-entropy in
        nats, "<name>_accuracy": share of rows that are classified correctly}. If the
        network returns one logit per row, it is that of label 1, as in `correct`.
    """

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits = predict(model, inputs, transform, size)
        loss = F.cross_entropy
        wanted = targets
        if logits.ndim == 1:  # logits of label 1
            loss = F.binary_cross_entropy_with_logits
            wanted = targets.float()
        parts = zip(logits.split(size), wanted.split(size), strict=True)
        total = sum(loss(*part, reduction="sum") for part in parts)
        hits = float(correct(logits, targets).sum())
        return {
            f"{name}_loss": float(total) / len(wanted),
            f"{name}_accuracy": hits / len(wanted),
        }

    return evaluate


def logistic(train: tuple, test: tuple) -> np.ndarray:
    """Fit a logistic regression.

    The strength of its penalty is chosen by the accuracy on every fifth training row,
    after a fit of the other ones. Then it is fitted on all training rows.

    Parameters
    ----------
    train, test : tuple
        (inputs (rows, features), labels (rows,)) of the training and of the test rows.

    Returns
    -------
    ndarray of bool (test rows,)
        Whether each test row is classified correctly.
    """
    from sklearn.linear_model import (
        LogisticRegression,  # sklearn takes a second to import
    )
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    fifth = PredefinedSplit(np.where(np.arange(len(train[1])) % 5, -1, 0))
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": STRENGTHS}, cv=fifth)
    return search.fit(*train).predict(test[0]) == test[1]


def nearest(train: tuple, test: tuple) -> np.ndarray:
    """Classify by the 3 nearest neighbours.

    Parameters
    ----------
    train, test : tuple
        (inputs (rows, features), labels (rows,)) of the training and of the test rows.

    Returns
    -------
    ndarray of bool (test rows,)
        Whether each test row is classified correctly.
    """
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(3).fit(*train).predict(test[0]) == test[1]


def bag_of_words(columns: Sequence[tuple], labels: tuple, **how: Any) -> np.ndarray:
    """Fit `logistic` on which words are in the texts of each column.

    How often a word occurs in a text does not matter.

    Parameters
    ----------
    columns : sequence of tuple
        (training texts, test texts) of each column, such as the first and the second
        texts of pairs. The words are those of the training texts.
    labels : tuple
        (training labels, test labels).
    **how : Any
        Options of scikit-learn's CountVectorizer.

    Returns
    -------
    ndarray of bool (test rows,)
        Whether each test row is classified correctly.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    parts = []
    for known, unknown in columns:
        counter = CountVectorizer(binary=True, **how)
        parts.append((counter.fit_transform(known), counter.transform(unknown)))
    bags = [
        hstack(part).tocsr() for part in zip(*parts, strict=True)
    ]  # each (rows, words)
    return logistic(*zip(bags, labels, strict=True))


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """Return a network's trainable parameters that have two or more axes.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Returns
    -------
    dict of str to ndarray
        The parameters by name, in the network's order. On a CPU they share the
        network's memory.
    """
    trained = {
        name: p
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }
    return {name: p.detach().cpu().numpy() for name, p in trained.items()}


def hoyer(W: np.ndarray) -> float:
    """Compute the Hoyer index of a matrix.

    It is (√N - ‖w‖₁ / ‖w‖₂) / (√N - 1), with w the N entries.

    Parameters
    ----------
    W : ndarray
        The matrix, or an array of another shape.

    Returns
    -------
    float
        0 if all entries have the same magnitude, 1 if only one entry is not zero, NaN
        if W = 0, if N is 0 or 1, or if an entry is not finite.

    Notes
    -----
    Hoyer (2004).

    Examples
    --------
    >>> import numpy as np
    >>> from lib.networks import measures
    >>> measures.hoyer(np.ones((2, 2))), measures.hoyer(np.diag([1.0, 0.0]))
    (0.0, 1.0)
    """
    size = np.abs(np.asarray(W, dtype=np.float64)).ravel()
    root = np.sqrt(size.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((root - size.sum() / np.sqrt((size**2).sum())) / (root - 1))


def binned(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """Count how many magnitudes fall into each bin of `EDGES`.

    Parameters
    ----------
    matrices : iterable of ndarray
        The matrices.

    Returns
    -------
    ndarray of int (bins,)
        The counts. A magnitude outside the bins is counted in the first or last bin;
        NaN is not counted.
    """
    counts = [
        np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0]
        for W in matrices
    ]
    return np.sum(counts, axis=0)


def by_part(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """Return the weight matrices of keys, queries and values.

    Parameters
    ----------
    model : torch.nn.Module
        The network. Its layers are named as in `TextTransformer`.

    Returns
    -------
    dict of str to list of ndarray (d, d)
        One matrix per layer, by "K", "Q" and "V"; the lists of another network are
        empty.
    """
    weights = matrices(model).items()
    return {
        part: [W for name, W in weights if f".{word}." in name]
        for part, word in PARTS.items()
    }


def sparsity(model: nn.Module, start: nn.Module) -> dict[str, float]:
    """Measure how sparse keys, queries and values of a network are.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    start : torch.nn.Module
        The same network at the start.

    Returns
    -------
    dict of str to float
        For each part K, Q, V: "hoyer.<part>", the mean Hoyer index of its matrices;
        "above_006.<part>", the share of magnitudes above 0.06; and "above_90.<part>",
        the share above the 90 % quantile of the part's magnitudes at the start.

    Raises
    ------
    ValueError
        If the network has no keys, queries or values, as `by_part` finds them.

    Notes
    -----
    The threshold 0.06 is that of paper C.
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
