"""The record of a solved max-margin problem."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.representation import Shapes

ACCURACY_OTHER_NORMS = 1e-7  # largest relative duality gap, violation: norms other than Frobenius


@dataclass(frozen=True, repr=False)
class MaxMargin(Shapes):
    """Solutions of a token SVM or head SVM, one per run, with their certificates.

    problem      which problem, in words
    objective    (runs,) the norm ||W|| (or ||v||) that was minimised
    duals        (runs, n, T-1) or (runs, n): beta >= 0 of the form min ||W||^2 / 2. In the
                 Frobenius norm W = sum beta_{i,t} delta_{i,t} z_i^T; in every norm
                 1^T beta = ||W||^2 up to the gap
    margins      like duals: delta_{i,t}^T W z_i (head: y_i v^T x_{i,s_i}), at least 1
    support      like duals: the constraints that carry W, those with a positive dual
    gap          (runs,) (||W|| - lower bound) / ||W||, the lower bound from the duals
    accuracy     what gap and violation were held to
    solver       one name per run
    seconds      for all runs together
    tokens       the problem's; W is in their coordinates
    status       "optimal": whatever is less raises
    """

    problem: str
    objective: np.ndarray
    duals: np.ndarray
    margins: np.ndarray
    support: np.ndarray
    gap: np.ndarray
    accuracy: float
    solver: tuple[str, ...]
    seconds: float
    tokens: TokenSet
    _weights: Callable[[], np.ndarray]  # W (runs, d, d_z), built when it is first asked for
    status: str = "optimal"

    @property
    def violation(self) -> np.ndarray:
        """The largest 1 - margin of each run, or zero, (runs,)."""
        return np.maximum(0.0, 1.0 - self.margins.reshape(len(self.margins), -1).min(1))

    @cached_property
    def value(self) -> np.ndarray:
        """W (runs, d, d_z) in the coordinates of `tokens`; for the head v (runs, d)."""
        W = self._weights()
        return W if self.duals.ndim == 3 else W[..., 0]

    @property
    def W(self) -> np.ndarray:
        """The same as `value`, under the name that paper A gives it."""
        return self.value

    @property
    def norm(self) -> np.ndarray:
        """||W_mm||, (runs,), the same as `objective`; 1/||W_mm|| is the margin at unit norm."""
        return self.objective
