"""The update rules of paper B: its Algorithm 1, SGD, and optimisers from libraries beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # a second to load, and only descent on tensors needs it
    import torch

PRECONDITIONERS = ("left", "left_right", "none")


@dataclass(frozen=True)
class PreconditionedRule:
    """A <- A - eta g_A P_r and B <- B - eta P_l g_B P_r.

    Here g = grad(L^ + R^) or, not regularised, grad L^.

    preconditioner "left": P_l = Sigma^^{-1}, P_r = I (paper B, Algorithm 1); "left_right": P_r =
    Sigma^^{-1} as well, gradient descent in the coordinates of the "left_right" norm; "none": both
    I. Raises ValueError for an unknown one.
    """

    step_size: float
    preconditioner: str = "left"
    regularised: bool = True

    def __post_init__(self):
        if self.preconditioner not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {self.preconditioner!r}"
            )
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be finite and > 0, not {self.step_size}")


def sgd(step_size: float) -> PreconditionedRule:
    """Plain stochastic gradient descent on L^: paper B's baseline."""
    return PreconditionedRule(step_size, "none", False)


@dataclass(frozen=True)
class Library:
    """An optimiser from a library, on L^.

    `make(parameters)` returns a torch optimiser over a list of matrices.
    """

    make: Callable[[list["torch.Tensor"]], "torch.optim.Optimizer"]


def library(optimiser: Callable, **options) -> Callable[[float], Library]:
    """Step size -> Library of a torch optimiser class with these options."""
    return lambda step_size: Library(lambda matrices: optimiser(matrices, lr=step_size, **options))
