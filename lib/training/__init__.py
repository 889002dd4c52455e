"""One resumable training loop for all networks, and the papers' update rules.

`race` compares update rules, including your own, on a network. `Trainer` trains one
network with any torch optimiser. Open `loop` first. `study` defines what is compared,
`racing` defines how a learning rate is chosen, `work` stores the runs, and `studies`
contains the studies of the papers.
"""

import os

# torch reads this variable once, when it is imported. Threads that wait by spinning
# would starve all other work on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# isort: split
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoint
from lib.training.loop import Trainer, initialised
from lib.training.problem import Problem
from lib.training.recorders import Clock, Evaluations
from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak
from lib.training.study import Study
from lib.training.work import race
