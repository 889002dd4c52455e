"""How many threads a training takes: one for small networks, and none that waits by spinning.

OpenMP's threads spin while they wait for each other: with another process on the same cores a
training of small matrices fell from 100 steps a second to 1. This module is imported before torch,
since OpenMP reads its environment once. A program that imports torch first sets OMP_WAIT_POLICY
itself, or takes one thread.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

SMALL = 4_000_000  # parameters: the vision and text transformers here, not a pretrained BERT


def choose(parameters: int) -> str:
    """Take one thread for a network of fewer than `SMALL` parameters, else torch's own number.

    OMP_NUM_THREADS, where set, is kept. Returns the words that say what was chosen and why.
    """
    import torch

    why = "torch's own number"
    if "OMP_NUM_THREADS" in os.environ:
        why = "from OMP_NUM_THREADS"
    elif parameters < SMALL:
        torch.set_num_threads(1)
        why = f"for {parameters:,} parameters; OMP_NUM_THREADS sets another number"
    return f"threads: {torch.get_num_threads()} ({why})"
