"""One resumable training loop for all networks and optimisers, and the papers' update rules.

The loop runs in one process or in several that share every batch; the rules are torch optimisers.

In: a network, batches, an optimiser whose `step(closure)` states its constant. Out: a
`TrainingHistory` of losses, step sizes, norms and evaluations. Open `loop` first; `step_sizes` and
`mirror_descent` hold the optimisers, `rules` names all of them. `study` declares a comparison of
rules, `studies` holds the papers' own, `rate_choice` picks each rule's rate, `runner` runs it.
"""

from lib.training import threads  # first: it must come before torch

# isort: split
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.history import TrainingHistory
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
    "classification",
    "cross_entropy",
    "initialised",
    "threads",
    "train",
]
