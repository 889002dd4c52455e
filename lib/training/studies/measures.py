"""What several studies measure of a run, in one form for all of them."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch

EDGES = np.geomspace(1e-6, 10, 71)  # of the bins of weight histograms


def binned(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """How many magnitudes of all `matrices` fall into each bin of `EDGES`, below and above
    included: (bins,).
    """
    return sum(np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0] for W in matrices)


def correctness(hits: torch.Tensor) -> dict[str, np.ndarray]:
    """Which test rows (N,) bool are classified correctly, as packed bits, and N."""
    return {"test_correct": np.packbits(hits.numpy()), "test_rows": np.array(len(hits))}


def renamed(found: Mapping[str, float], name: str) -> dict[str, float]:
    """What a judge of test rows found, for rows that are called `name`: "test_loss" becomes
    "<name>_loss".
    """
    return {f"{name}_{key.removeprefix('test_')}": value for key, value in found.items()}
