"""Measure the answers of networks and plain classifiers, and the weights of networks.

A plain classifier is a function of the training rows and the test rows, each given as
(inputs, labels). It returns whether each test row is classified correctly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import hstack
from torch import Tensor, nn

EDGES = np.geomspace(1e-6, 10, 71)  # edges of the bins of all histograms
PARTS = {"K": "key", "Q": "query", "V": "value"}
PAPERS_THRESHOLD = 0.06  # the threshold of paper C
# The values that are tried for C, the weight of the data in a logistic regression.
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
    """Compute the outputs of a network for rows of data, some rows at a time.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It stays in its present mode, training or evaluation.
    rows : Tensor (N, ...)
        The rows.
    transform : callable
        A function that is first applied to each part of the rows, on the device of the
        network. Default: the rows stay as they are.
    size : int, default 250
        Number of rows in each forward pass.

    Returns
    -------
    Tensor (N, ...)
        The outputs of the network for all rows, for example logits, on the CPU.
    """
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return whether each row is classified correctly.

    Parameters
    ----------
    logits : Tensor (N, classes) or (N,)
        The logits of all classes, or the logit of label 1.
    targets : Tensor (N,)
        The labels: class indices, or 0 and 1.

    Returns
    -------
    Tensor of bool (N,)
        Whether the answer equals the label. The answer is the class with the largest
        logit. If there is a single logit, the answer is 1 if it is positive, and 0
        otherwise.

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
        The labels of the rows, on the CPU.
    transform : callable
        A function that is first applied to the rows, on the device of the network.
        Default: the rows stay as they are.
    size : int, default 250
        Number of rows in each forward pass.
    name : str, default "test"
        The name of the rows, with which the names of the metrics begin.

    Returns
    -------
    callable
        A function of a network that returns {"<name>_loss": mean cross-entropy in nats,
        "<name>_accuracy": share of rows that are classified correctly}. If the network
        returns one logit per row, this is the logit of label 1, as in `correct`.
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

    To choose the strength of the penalty, the regression is first fitted without every
    fifth training row, and the strength with the best accuracy on these rows is taken.
    Then the regression is fitted on all training rows.

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
    """Fit `logistic` to features that say which words occur in each text.

    The number of times that a word occurs in a text does not matter.

    Parameters
    ----------
    columns : sequence of tuple
        For each column, (training texts, test texts). Two columns can be the first and
        the second texts of pairs. The features are the words of the training texts.
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
    """Return those trainable parameters of a network that have two or more axes.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Returns
    -------
    dict of str to ndarray
        The parameters by name, in the order of the network. If the network is on a CPU,
        the arrays share its memory.
    """
    trained = {
        name: p
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }
    return {name: p.detach().cpu().numpy() for name, p in trained.items()}


def hoyer(W: np.ndarray) -> float:
    """Compute the Hoyer index of a matrix.

    The index is (√N - ‖w‖₁ / ‖w‖₂) / (√N - 1), where w contains the N entries.

    Parameters
    ----------
    W : ndarray
        The matrix, or an array of another shape.

    Returns
    -------
    float
        The index. It is 0 if all entries have the same magnitude, and 1 if only one
        entry is not zero. It is NaN if W = 0, if N is 0 or 1, or if an entry is not
        finite.

    Notes
    -----
    The index is due to Hoyer (2004).

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
    """Count how many entries have a magnitude in each of the bins that `EDGES` defines.

    Parameters
    ----------
    matrices : iterable of ndarray
        The matrices.

    Returns
    -------
    ndarray of int (bins,)
        The counts. A magnitude below or above all bins is counted in the first or the
        last bin. NaN is not counted.
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
        For each of "K", "Q" and "V", one matrix per layer. If the layers have other
        names, the lists are empty.
    """
    weights = matrices(model).items()
    return {
        part: [W for name, W in weights if f".{word}." in name]
        for part, word in PARTS.items()
    }


def sparsity(model: nn.Module, start: nn.Module) -> dict[str, float]:
    """Measure how sparse the key, query and value matrices of a network are.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    start : torch.nn.Module
        The same network at the start of training.

    Returns
    -------
    dict of str to float
        For each part K, Q and V, there are three numbers. "hoyer.<part>" is the mean
        Hoyer index of the matrices of this part. "above_006.<part>" is the share of the
        entries whose magnitude exceeds 0.06. "above_90.<part>" is the share of the
        entries whose magnitude exceeds the 90 % quantile of the magnitudes of this part
        at the start.

    Raises
    ------
    ValueError
        If `by_part` finds no keys, queries or values in the network.

    Notes
    -----
    The threshold 0.06 comes from paper C.
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
