"""The loss and its curvature for a run with a trained head, from margins and scores.

In joint training the loss depends on W and u only through margins and scores, and these
are linear in W and u. So the loss on a segment between two iterates follows from the
margins and scores at the two ends. The spectrum of the Hessian follows from a matrix of
size n(2T-1), in whatever dimension the tokens are.
"""

import numpy as np

from lib import attention
from lib.attention import TokenSet, coordinates
from lib.dynamics import History


def opt_scores(history: History, tokens: TokenSet) -> np.ndarray:
    """Return y_i u^T x_{i,opt} at every record.

    The result has the shape (runs, k, n).

    Parameters
    ----------
    history : History
        A run with a trained head.
    tokens : TokenSet
        The tokens of the training problem in the coordinates of the history. If these
        are minimal coordinates, they are ``attention.minimal(tokens).tokens``.

    Returns
    -------
    ndarray (runs, k, n)
        The scores of the opt tokens.
    """
    records = range(history.iterations.size)
    scores = [attention.scores(tokens, history.head(k)) for k in records]
    scores = np.stack(scores, 1)  # (runs, k, n, T)
    best = np.take_along_axis(scores, tokens.opt[:, None, :, None], -1)
    return best[..., 0]


def opt_first(history: History, tokens: TokenSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the margins and the scores of all tokens, the opt token first, as two
    arrays (runs, k, n, T).

    The opt token has the margin 0. A masked token has an infinite margin, and the score
    of the opt token.
    """
    best = opt_scores(history, tokens)[..., None]
    margins = history.margins
    gaps = history.score_gaps
    # In a history, NaN marks a masked token, or all tokens of a run that has ended.
    ended = np.isnan(history.norm)[..., None, None]  # (runs, k, 1, 1)
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    if hidden is not None:
        masked = hidden[:, None] & ~ended  # (runs, k, n, T-1)
        margins = np.where(masked, np.inf, margins)
        gaps = np.where(masked, 0.0, gaps)
    zero = np.broadcast_to(np.where(ended, np.nan, 0.0), best.shape)
    margins = np.concatenate([zero, margins], -1)
    return margins, np.concatenate([best, best - gaps], -1)


def _check_coordinates(history: History, tokens: TokenSet) -> None:
    """Raise ValueError if the scores of `tokens` are not those of the history."""
    others = coordinates.others(tokens.opt, tokens.shape[2])  # (runs, n, T-1)
    for k in range(history.iterations.size):
        scores = attention.scores(tokens, history.head(k))
        best = np.take_along_axis(scores, tokens.opt[..., None], -1)
        gaps = best - np.take_along_axis(scores, others, -1)
        recorded = history.score_gaps[:, k]
        known = np.isfinite(recorded)  # NaN marks a masked token or a run that ended
        size = np.abs(recorded[known]).max(initial=0.0)
        if not np.allclose(gaps[known], recorded[known], rtol=0, atol=1e-6 * size):
            raise ValueError(
                "tokens: expected those of the history, in its coordinates "
                f"({history.coordinates}); got others. Those of a run in minimal "
                "coordinates are attention.minimal(tokens).tokens"
            )


def log_loss_parts(
    margins: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log L (...), the softmax weights p (..., n, T) and the outputs f (..., n).

    The loss is exponential, L = mean_i e^{-f_i}. `margins` and `scores` have the shape
    (..., n, T), with the opt token first. Scores are finite.
    """
    log_p = -margins - np.logaddexp.reduce(-margins, -1)[..., None]
    p = np.exp(log_p)
    gaps = scores[..., :1] - scores
    f = scores[..., 0] - (p * gaps).sum(-1)
    return np.logaddexp.reduce(-f, -1) - np.log(f.shape[-1]), p, f


def curvature(history: History, tokens: TokenSet) -> np.ndarray:
    """Return the spectral norm ||Hessian of L in (W, u)|| / L at every record, as
    (runs, k).

    The loss is exponential. `tokens` must be the tokens of the Minimal that was
    trained; other tokens raise ValueError. Let f_i = sum_t p_t gamma_t be a function of
    logits a and scores gamma. Then

        df/da_t = p_t (gamma_t - f),    df/dgamma_t = p_t,
        d^2f/da_s da_t = p_s (1_{st} - p_t)(gamma_s - f) - p_s p_t (gamma_t - f),
        d^2f/da_s dgamma_t = p_s (1_{st} - p_t).
    """
    _, n, T, _ = tokens.shape
    margins, scores = opt_first(history, tokens)
    _check_coordinates(history, tokens)
    log_loss, p, f = log_loss_parts(margins, scores)
    away = scores - f[..., None]
    eye = np.eye(T)
    weights = p[..., :, None] * (eye - p[..., None, :])  # p_s (1_{st} - p_t)
    second = weights * away[..., :, None] - p[..., :, None] * (p * away)[..., None, :]
    zero = np.zeros_like(second)
    hessian_f = np.block([[second, weights], [np.swapaxes(weights, -1, -2), zero]])
    first = np.concatenate([p * away, p], -1)
    share = np.exp(-f - log_loss[..., None]) / n  # l_i / (n L)
    block = share[..., None, None] * (
        first[..., :, None] * first[..., None, :] - hessian_f
    )
    # Logits are relative to the logit of the opt token, which we leave out, so that the
    # shape becomes (runs, k, n, 2T-1, 2T-1).
    block = block[..., 1:, 1:]
    root = _gram_root(tokens)  # (runs, n, 2T-1, m)
    hessian = np.einsum("rnia,rknij,rnjb->rkab", root, block, root, optimize=True)
    return np.abs(np.linalg.eigvalsh(hessian)).max(-1)


def _gram_root(tokens: TokenSet):
    """Return R (runs, n, 2T-1, m) such that R R^T is the Gram matrix of the linear map
    from (W, u) to logits and scores.

    A sample has T - 1 logits relative to the logit of the opt token, and T scores, the
    opt token's first. m is the number of logits and scores of all samples, n (2T - 1).
    """
    runs, n, T, d = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    logits = n * (T - 1)
    scores = n * T
    of_logits = coordinates.gram(delta, tokens.z)
    of_scores = signed @ np.swapaxes(signed, 1, 2)
    root = np.zeros((runs, n, 2 * T - 1, logits + scores))
    root[:, :, : T - 1, :logits] = _root(of_logits).reshape(runs, n, T - 1, logits)
    root[:, :, T - 1 :, logits:] = _root(of_scores).reshape(runs, n, T, scores)
    return root


def _root(gram: np.ndarray):
    """Return R (..., m, m) with R R^T = gram (..., m, m), which is positive
    semidefinite.
    """
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(values.clip(0))[:, None]
