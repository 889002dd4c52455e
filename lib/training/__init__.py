"""One loop for all networks and optimisers, resumable and data parallel, and the papers' rules as
torch optimisers.

In: a network, batches, an optimiser whose `step(closure)` states its constant. Out: a
`TrainingHistory` of losses, step sizes, norms and evaluations. Open `loop` first; `step_sizes` and
`mirror_descent` hold the optimisers.
"""

from lib.training import threads  # first: it must come before torch

# isort: split
from lib.training.loop import (
    Batches,
    Checkpoints,
    at_end,
    classification,
    cross_entropy,
    initialised,
    running_mean,
    train,
)
from lib.training.mirror_descent import MirrorDescent
from lib.training.record import TrainingHistory
from lib.training.step_sizes import NormalizedSGD, StochasticPolyak

__all__ = [
    "Batches",
    "Checkpoints",
    "MirrorDescent",
    "NormalizedSGD",
    "StochasticPolyak",
    "TrainingHistory",
    "at_end",
    "classification",
    "cross_entropy",
    "initialised",
    "running_mean",
    "threads",
    "train",
]
