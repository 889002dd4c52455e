"""The model: tokens, softmax attention, closed-form gradients, minimal coordinates.

Some functions make a `TokenSet` from seeds and sizes, or from your own arrays. Others
compute its logits, softmax weights, scores and gradients. Open `model` first, which
contains equation (1) of paper A and the gradients of this loss.
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
