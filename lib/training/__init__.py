"""One loop for all networks and optimisers, resumable and data parallel, and the papers' rules as
torch optimisers.

In: a network, batches, an optimiser whose `step(closure)` states its constant. Out: a
`TrainingHistory` of losses, step sizes, norms and evaluations. Open `loop` first; `step_sizes` and
`mirror_descent` hold the optimisers; `study` declares a comparison of rules and `runner` runs it.
"""

from lib.training import threads  # first: it must come before torch

# isort: split
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.history import TrainingHistory, at_end, running_mean
from lib.training.loop import initialised, train
from lib.training.losses import classification, cross_entropy
from lib.training.mirror_descent import MirrorDescent
from lib.training.settings import Execution, Recording
from lib.training.step_sizes import NormalizedSGD, StochasticPolyak

__all__ = [
    "Batches",
    "Checkpoints",
    "Execution",
    "MirrorDescent",
    "NormalizedSGD",
    "Recording",
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
