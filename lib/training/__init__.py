"""One resumable training loop for all networks, and the papers' update rules.

The loop takes every torch optimiser. Open `loop` first; `study` has what is compared
and how, `studies` the papers' own.
"""

import os

# Read once, when torch comes: waiting threads that spin would starve whatever shares
# their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# isort: split
from lib.training.batches import Batches
from lib.training.loop import initialised, train
from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak
