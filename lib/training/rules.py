"""The update rules that the papers compare, by name, for commands, studies and notebooks."""

from collections.abc import Callable
from math import inf

import torch

from lib.training.mirror_descent import MirrorDescent
from lib.training.step_sizes import NormalizedSGD, StochasticPolyak

# Rule -> optimiser from parameters, rate and cap. The rate of SPS is its cap, and it has no other;
# SNGD alone has both, and no cap where that is None. l_p is mirror descent.
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate),
    "Adam": lambda parameters, rate, cap: torch.optim.Adam(parameters, rate),
    "SPS": lambda parameters, rate, cap: StochasticPolyak(parameters, rate),
    "SNGD": lambda parameters, rate, cap: NormalizedSGD(
        parameters, rate, inf if cap is None else cap
    ),
    "l1.1": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 1.1),
    "l2": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 2.0),
    "l3": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 3.0),
}
STEP_SIZED = ("SPS", "SNGD")  # rules whose step size changes from step to step
