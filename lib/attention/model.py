"""The model of paper A, f_i = y_i u^T X_i^T softmax(X_i W z_i), and its closed-form
gradients.

All is relative to the selected token s_i, that of the largest logit; the other softmax
weights are logarithms with the largest factored out. No small weight is a difference of
large ones, so the gradient's direction stays exact when weights are e^-30000.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from lib.attention.losses import check_loss, log_derivative, log_gap, log_loss
from lib.attention.token_sets import TokenSet
from lib.representation import Shapes


@dataclass(frozen=True, repr=False)
class _Slopes(Shapes):
    """Loss and derivatives of the model at given logits; e^log_scale restores the
    scaled arrays.

    log_weights (..., n, T) log of the softmax weights; log_loss, log_gap (...,)
    logarithms of L and of L - L*; pull (..., n, T) e^log_scale = -dL/dlogits, and its
    log_scale (...,); push (..., n, T) e^log_push_scale = -dL/dscores = |l'(f_i)|
    p_{i,t} / n.
    """

    log_weights: np.ndarray
    log_loss: np.ndarray
    log_gap: np.ndarray
    pull: np.ndarray
    log_scale: np.ndarray
    push: np.ndarray
    log_push_scale: np.ndarray


def slopes(
    logits: np.ndarray, scores: np.ndarray, loss: str = "exponential"
) -> _Slopes:
    """Loss and derivatives from logits a = X W z and scores gamma = y X u, both (...,
    n, T).

    With s the token of largest logit, D_t = gamma_t - gamma_s and e = sum_t p_t D_t:

    * f = gamma_s + e,
    * -dL/da_t = |l'(f)| p_t (gamma_t - f) / n = |l'(f)| p_t (D_t - e) / n.

    L* is the loss at p_opt = 1, opt being the token of largest score. The loss is one
    of `LOSSES`.
    """
    b = logits - logits.max(-1, keepdims=True)  # relative to the selected token
    selected_score = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    D = scores - selected_score
    # The selected token and those with its score, as repeated tokens have
    level = D == 0
    second = np.where(level, -np.inf, b).max(-1)  # -inf if all scores are equal
    anchor = np.where(second > -np.inf, second, 0.0)
    w = np.where(level, 0.0, np.exp(np.where(level, 0.0, b - anchor[..., None])))
    log_Z = np.log((np.exp(b) * level).sum(-1) + np.exp(second) * w.sum(-1))
    log_small = second - log_Z
    mean_D = (w * D).sum(-1)
    e = np.exp(log_small) * mean_D
    f = selected_score[..., 0] + e

    log_weights = b - log_Z[..., None]
    p = np.exp(log_weights)
    v = np.where(level, -p * mean_D[..., None], w * (D - e[..., None]))
    log_slope = log_derivative(f, loss)
    pull, log_scale = _factor(v, log_slope + log_small)
    push, log_push_scale = _factor(p, log_slope)
    best = scores.max(-1)
    # Zero where the selected token is the opt token
    lag = best - selected_score[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        # of epsilon = best - f
        log_epsilon = np.where(lag > 0, np.log(lag - e), log_small + np.log(-mean_D))
        gap = _log_mean(log_gap(log_epsilon, best, loss))
    mean = _log_mean(log_loss(f, loss))
    return _Slopes(
        log_weights=log_weights,
        log_loss=mean,
        log_gap=gap,
        pull=pull,
        log_scale=log_scale,
        push=push,
        log_push_scale=log_push_scale,
    )


def _factor(values, log_factor):
    """values (..., n, T) e^log_factor / n without the largest factor over samples, and
    its log.
    """
    largest = log_factor.max(-1)
    largest = np.where(largest > -np.inf, largest, 0.0)  # all values are zero then
    n = values.shape[-2]
    return values * (np.exp(log_factor - largest[..., None]) / n)[..., None], largest


def _log_mean(log_values):
    return np.logaddexp.reduce(log_values, -1) - np.log(log_values.shape[-1])


def logits(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """a_{i,t} = x_{i,t}^T W z_i, (runs, n, T); W (runs, d, d_z)."""
    keys = tokens.z @ np.swapaxes(W, 1, 2)  # W z_i, (runs, n, d)
    # Sums that round equal tokens alike
    return np.einsum("rntd,rnd->rnt", tokens.X, keys)


def weights(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """p_{i,t} = softmax_t(x_{i,t}^T W z_i), (runs, n, T); W (runs, d, d_z)."""
    return softmax(logits(tokens, W), axis=-1)


def scores(tokens: TokenSet, u: np.ndarray) -> np.ndarray:
    """gamma_{i,t} = y_i u^T x_{i,t}, (runs, n, T); u (runs, d)."""
    return tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, u)


def gradients(
    tokens: TokenSet, W: np.ndarray, u: np.ndarray, loss: str = "exponential"
):
    """Loss (runs,), grad_W L (runs, d, d_z) and grad_u L (runs, d) of paper A's Eq. 1.

    * grad_W L = (1/n) sum_i l'(f_i) X_i^T softmax'(a_i) gamma_i z_i^T,
    * grad_u L = (1/n) sum_i l'(f_i) y_i X_i^T softmax(a_i).

    ValueError for a W or u of the wrong shape and for an unknown loss.
    """
    runs, _, _, d = tokens.shape
    for name, value, shape in (
        ("W", W, (runs, d, tokens.z.shape[-1])),
        ("u", u, (runs, d)),
    ):
        if value.shape != shape:
            raise ValueError(f"{name} has shape {value.shape}; it needs {shape}")
    check_loss(loss)
    at = slopes(logits(tokens, W), scores(tokens, u), loss)
    pulled = np.einsum("rnt,rntd->rnd", at.pull, tokens.X)
    pushed = np.einsum("rnt,rn,rntd->rd", at.push, tokens.y, tokens.X, optimize=True)
    grad_W = -np.exp(at.log_scale)[:, None, None] * np.einsum(
        "rnd,rne->rde", pulled, tokens.z
    )
    return np.exp(at.log_loss), grad_W, -np.exp(at.log_push_scale)[:, None] * pushed
