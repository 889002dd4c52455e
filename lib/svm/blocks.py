"""The norm of W taken block by block: the largest N of equal parts of its rows or columns.

Head-wise steepest descent is steepest descent in it. Its dual is the sum of N* over the parts.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from lib.attention.coordinates import lp_norm

DUAL = {"frobenius": "frobenius", "spectral": "nuclear", "nuclear": "spectral"}
_ORDER: dict = {"frobenius": "fro", "spectral": 2, "nuclear": "nuc"}


@dataclass(frozen=True)
class Blocks:
    """max_b N(W_b), or where `summed` sum_b N(W_b); W_b one of `count` parts, N = `inner`.

    inner: "frobenius", "spectral" or "nuclear"; by_columns: parts of the columns, else the rows.
    Raises ValueError for another N or a count below 1.
    """

    inner: str
    count: int
    by_columns: bool = False
    summed: bool = False

    def __post_init__(self):
        if self.inner not in DUAL or self.count != int(self.count) or self.count < 1:
            raise ValueError(f"{self}: N must be one of {', '.join(DUAL)}, count at least 1")

    def __str__(self):
        parts = "columns" if self.by_columns else "rows"
        return f"{self.inner}, {self.count} blocks of {parts}"

    @property
    def dual(self) -> "Blocks":
        """The dual norm."""
        return Blocks(DUAL[self.inner], self.count, self.by_columns, not self.summed)

    def parts(self, W) -> list:
        """The blocks of W (..., d, d_z), numpy's or cvxpy's; ValueError where they do not fit."""
        size = W.shape[-1 if self.by_columns else -2]
        if size % self.count:
            raise ValueError(f"{self.count} blocks do not divide W's {size} entries a side")
        step = size // self.count
        slices = [slice(first, first + step) for first in range(0, size, step)]
        return [W[..., :, one] if self.by_columns else W[..., one, :] for one in slices]

    def of(self, W: np.ndarray) -> np.ndarray:
        """The norm of matrices (..., d, d_z)."""
        sizes = [norm_of(part, self.inner) for part in self.parts(W)]
        return np.sum(sizes, 0) if self.summed else np.max(sizes, 0)

    def expression(self, S):
        """The norm of a cvxpy variable (d, d_z)."""
        import cvxpy as cp  # here: see `cone`

        inner = {"spectral": cp.sigma_max, "nuclear": cp.normNuc}
        inner["frobenius"] = partial(cp.norm, p="fro")
        terms = [inner[self.inner](part) for part in self.parts(S)]
        return cp.sum(cp.hstack(terms)) if self.summed else cp.max(cp.hstack(terms))


def norm_of(W: np.ndarray, norm: str | float | Blocks) -> np.ndarray:
    """N(W) of matrices (..., d, d_z), N by the names of `max_margin.token_svm`."""
    if isinstance(norm, Blocks):
        return norm.of(W)
    if norm in _ORDER:
        return np.linalg.norm(W, _ORDER[norm], axis=(-2, -1))
    flat = W.reshape(*W.shape[:-2], -1)
    return np.abs(flat).max(-1) if norm == np.inf else lp_norm(flat, float(norm))
