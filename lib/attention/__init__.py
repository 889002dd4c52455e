"""The model: tokens, softmax attention, closed-form gradients, minimal coordinates.

The functions take seeds and sizes, or your own arrays. They return a `TokenSet`, and
its logits, softmax weights, scores and gradients. Open `model` first: it contains
equation (1) of paper A and its gradient.
"""

from lib.attention.coordinates import Minimal, minimal
from lib.attention.losses import (
    COMPILED_LOSSES,
    LOSSES,
    check_loss,
    is_logistic,
    log_loss,
)
from lib.attention.model import gradients, logits, scores, slopes, weights
from lib.attention.token_sets import TokenSet, token_set
from lib.attention.tokens import (
    class_mean_tokens,
    gaussian_tokens,
    two_examples,
    two_token_gaussian,
    unit_tokens,
)
