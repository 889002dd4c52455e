"""How many threads a training takes: one for small networks, and none that waits by spinning.

OpenMP's threads spin while they wait for each other: with another process on the same cores a
training of small matrices fell from 100 steps a second to 1. This module is imported before torch,
since OpenMP reads its environment once. A program that imports torch first sets OMP_WAIT_POLICY
itself, or takes one thread; the words of `choose` say where that was missed.
"""

import os
import sys

SPINNING = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

SMALL = 4_000_000  # parameters: the vision and text transformers here, not a pretrained BERT


def choose(parameters: int) -> str:
    """Take one thread for a network of fewer than `SMALL` parameters, else torch's own number.

    OMP_NUM_THREADS, where set, is kept. Returns the words that say what was chosen and why.
    """
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        return _words("from OMP_NUM_THREADS")
    if parameters < SMALL:
        torch.set_num_threads(1)
        return _words(f"for {parameters:,} parameters; OMP_NUM_THREADS sets another number")
    return _words("torch's own number")


def one(why: str) -> str:
    """Take one thread whatever the environment says, and the words for it with the reason `why`."""
    import torch

    torch.set_num_threads(1)
    return _words(why)


def _words(why: str) -> str:
    import torch

    threads = torch.get_num_threads()
    text = f"threads: {threads} ({why})"
    if SPINNING and threads > 1:
        text += "; they spin while they wait, since torch was imported before lib.training"
        text += " with OMP_WAIT_POLICY unset"
    return text
