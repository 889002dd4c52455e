"""One resumable training loop for all networks and optimisers, and the papers' update rules.

In: a network, batches, an optimiser whose `step(closure)` states its constant; or a `Study`, a
comparison of rules. Out: a `Curve` of losses, step sizes, norms and evaluations, or a file of them.
Open `loop` first; `rules` holds the optimisers, `study` what is compared and how it is run,
`studies` the papers' own. `python -m lib.training STUDY` trains one.
"""

import os

# OpenMP's threads spin while they wait for each other, which starves whatever shares their cores;
# it reads this once, so it is set before torch comes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# isort: split
from lib.training.batches import Batches
from lib.training.loop import initialised, train
from lib.training.measures import classification
from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak

__all__ = ["Batches", "classification", "initialised", "train"]
__all__ += ["MirrorDescent", "NormalizedSGD", "StochasticPolyak"]
