"""Norms and magnitudes of a network's weights, layer by layer."""

from collections.abc import Iterable

import numpy as np
from torch import nn

EDGES = np.geomspace(1e-6, 10, 71)  # of the bins of histograms
PARTS = {"K": "key", "Q": "query", "V": "value"}
LEVELS = (0.5, 0.9)  # quantiles of a part's magnitudes at the start that serve as thresholds
PAPERS_THRESHOLD = 0.06  # paper C's


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """The weight matrices of `model` by name, in order, each in its own shape.

    No vectors, and nothing frozen; the tables of embeddings are among them.
    """
    return {
        name: p.detach().cpu().numpy()
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.requires_grad
    }


def _share_above(weights: Iterable[np.ndarray], threshold: float) -> float:
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


def binned(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """How many magnitudes fall into each bin of `EDGES`, clipped to its ends: (bins,)."""
    counts = [np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0] for W in matrices]
    return np.sum(counts, axis=0)


def by_part(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """The weight matrices (d, d) of K, Q and V, one a layer."""
    weights = matrices(model).items()
    return {part: [W for name, W in weights if f".{word}." in name] for part, word in PARTS.items()}


def sparsity(model: nn.Module, start: nn.Module) -> dict[str, float]:
    """Hoyer index and shares above thresholds of each part K, Q, V of `model`.

    The thresholds are the paper's, and the `LEVELS` quantiles of the magnitudes at the `start`.
    """
    row, first = {}, by_part(start)
    for part, weights in by_part(model).items():
        limits = np.quantile(np.abs(np.concatenate([W.ravel() for W in first[part]])), LEVELS)
        row[f"hoyer.{part}"] = float(np.mean([hoyer(W) for W in weights]))
        row[f"above_006.{part}"] = _share_above(weights, PAPERS_THRESHOLD)
        for level, limit in zip(LEVELS, limits):
            row[f"above_{100 * level:.0f}.{part}"] = _share_above(weights, limit)
    return row
