"""One resumable training loop for all networks, and the papers' update rules.

`race` compares rules, also your own, on a network; `Trainer` trains one network by any
torch optimiser. Open `loop` first; `study` has what is compared, `racing` how a rate is
chosen, `work` how runs are kept, and `studies` the papers' own.
"""

import os

# torch reads this once when it is imported. Threads that wait by spinning would starve
# whatever shares their cores.
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
