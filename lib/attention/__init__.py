"""The model: tokens, softmax attention with its closed-form gradients, and coordinates in which
both are small.

In: seeds and sizes, or your own arrays. Out: a `TokenSet` (X, y, z, u and the opt tokens), its
logits, softmax weights, scores and gradients, and the same problem in minimal coordinates. Nothing
here trains or solves. Open `model` first: it is equation (1) of paper A and its gradient.
`token_sets` has the record of the data, `tokens` the data models, `coordinates` the reduction.
"""

from lib.attention.coordinates import Minimal, differences, gram, minimal, others
from lib.attention.model import (
    LOSSES,
    check_loss,
    gradients,
    influences,
    log_loss,
    logits,
    scores,
    slopes,
    weights,
)
from lib.attention.token_sets import TokenSet, token_set
from lib.attention.tokens import class_mean_tokens, gaussian_tokens, two_token_gaussian, unit_tokens

__all__ = [
    "LOSSES",
    "Minimal",
    "TokenSet",
    "check_loss",
    "class_mean_tokens",
    "differences",
    "gaussian_tokens",
    "gradients",
    "gram",
    "influences",
    "log_loss",
    "logits",
    "minimal",
    "others",
    "scores",
    "slopes",
    "token_set",
    "two_token_gaussian",
    "unit_tokens",
    "weights",
]
