"""Norms and magnitudes of a network's weights, layer by layer."""

from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """The weight matrices of `model` by name, in order; no vectors, but the embeddings' tables."""
    return {
        name: p.detach().cpu().numpy()
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }


def growth(histories: Sequence, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Norms ‖W‖_F over time, relative to the first, of each of `names`: {name: (runs, points)}."""
    norms = {
        name: np.stack([history.weight_norms[name] for history in histories]) for name in names
    }
    return {name: values / values[:, :1] for name, values in norms.items()}


def share_above(weights: Iterable[np.ndarray], threshold: float) -> float:
    """The share of all entries of `weights` that are larger than `threshold` in magnitude."""
    sizes = [(np.count_nonzero(np.abs(W) > threshold), W.size) for W in weights]
    return sum(n for n, _ in sizes) / sum(n for _, n in sizes)


def effective_share(W: np.ndarray) -> float:
    """How evenly the entries carry the matrix: (Σ|w|)² / (N Σ w²), 1 for equal magnitudes, 1/N for
    one entry alone.

    It does not change when W is scaled, so that matrices of different norms can be compared; 2/π
    for Gaussian entries. NaN for W = 0.
    """
    size = np.abs(np.asarray(W, dtype=np.float64))
    with np.errstate(invalid="ignore"):
        return float(size.sum() ** 2 / (size.size * (size**2).sum()))


def hoyer(W: np.ndarray) -> float:
    """The Hoyer index (√N - ‖w‖₁ / ‖w‖₂) / (√N - 1) of all N entries: 0 if they are equally large,
    1 for one entry alone.

    It does not change when W is scaled. NaN for W = 0. Source: Hoyer (2004).
    """
    size = np.abs(np.asarray(W, dtype=np.float64)).ravel()
    root = np.sqrt(size.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((root - size.sum() / np.sqrt((size**2).sum())) / (root - 1))
