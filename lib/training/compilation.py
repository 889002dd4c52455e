"""torch.compile where it works, eager where it does not, said once."""

from collections.abc import Callable

import torch
from torch import nn

_SAID: set[str] = set()


def compiled_or_eager(
    model: nn.Module, batch: tuple, loss: Callable, say: Callable[[str], None] = print
) -> bool:
    """Compile `model` in place and try it on `batch`; returns whether it stays compiled.

    Where there is no compiler, or it fails, the model runs eagerly as before, and `say` gets one
    sentence, once per process. Shapes are taken as fixed, so that a run that is taken up again
    compiles the same code. Leaves gradients and torch's generator as they were.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            model.compile(dynamic=False)
            loss(model, batch).backward()
        return True
    except Exception as error:  # every backend has failures of its own
        model._compiled_call_impl = None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if reason not in _SAID:
            _SAID.add(reason)
            say(f"torch.compile does not work here ({reason}); training goes on without it")
        return False
    finally:
        model.zero_grad(set_to_none=True)
