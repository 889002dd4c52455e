"""Norms and magnitudes of a network's weights, layer by layer."""

from collections.abc import Iterable

import numpy as np
from torch import nn


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """The weight matrices of `model` by name, in order, each in its own shape.

    No vectors, and nothing frozen; the tables of embeddings are among them.
    """
    return {
        name: p.detach().cpu().numpy()
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }


def share_above(weights: Iterable[np.ndarray], threshold: float) -> float:
    """The share of all entries of `weights`, of any shapes, with magnitude over `threshold`."""
    sizes = [(np.count_nonzero(np.abs(W) > threshold), W.size) for W in weights]
    return sum(n for n, _ in sizes) / sum(n for _, n in sizes)


def hoyer(W: np.ndarray) -> float:
    """The Hoyer index (√N - ‖w‖₁ / ‖w‖₂) / (√N - 1) of the N entries of W, of any shape.

    It is 0 if all are equally large, 1 for one entry alone, and NaN for W = 0. It does not change
    when W is scaled. Source: Hoyer (2004).
    """
    size = np.abs(np.asarray(W, dtype=np.float64)).ravel()
    root = np.sqrt(size.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((root - size.sum() / np.sqrt((size**2).sum())) / (root - 1))
