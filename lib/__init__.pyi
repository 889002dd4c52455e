# The public names of the library. The rooms behind them have more: lib.regression for
# paper B, lib.mirror for paper C, lib.networks and lib.training for networks.

__all__ = [
    "GD",
    "LOSSES",
    "NGD",
    "Blocks",
    "Custom",
    "History",
    "Infeasible",
    "MaxMargin",
    "Minimal",
    "MirrorHistory",
    "MirrorRule",
    "Polyak",
    "Rule",
    "Start",
    "TokenSet",
    "attention",
    "class_mean_tokens",
    "data",
    "dynamics",
    "feasible",
    "gaussian_start",
    "gaussian_tokens",
    "gradients",
    "head_svm",
    "log_spaced",
    "logits",
    "minimal",
    "mirror",
    "networks",
    "norm_of",
    "regression",
    "scores",
    "svm",
    "token_set",
    "token_svm",
    "train",
    "training",
    "two_examples",
    "two_token_gaussian",
    "unit_tokens",
    "weights",
    "zero_start",
]

from . import attention, data, dynamics, mirror, networks, regression, svm, training

# Data and the model.
from .attention import (
    LOSSES,
    Minimal,
    TokenSet,
    class_mean_tokens,
    gaussian_tokens,
    gradients,
    logits,
    minimal,
    scores,
    token_set,
    two_examples,
    two_token_gaussian,
    unit_tokens,
    weights,
)

# Training, and what it returns.
from .dynamics import (
    GD,
    NGD,
    Custom,
    History,
    Polyak,
    Rule,
    Start,
    gaussian_start,
    log_spaced,
    train,
    zero_start,
)
from .mirror import MirrorHistory, MirrorRule

# Where training must end.
from .svm import (
    Blocks,
    Infeasible,
    MaxMargin,
    feasible,
    head_svm,
    norm_of,
    token_svm,
)
