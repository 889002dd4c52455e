"""Compute score gaps, and how strongly each token pulls on W once the softmax
saturates.

Near saturation the gradient of the loss is a sum over pairs m = (i, t) of kappa_m
e^{-g_m}, with g_m the margin and kappa_m = |l'(f_i)| Delta_m. Delta_m is the score of
the selected token minus that of token t. The law of the margins and the atlas of
optimisers both use these weights to interpret the margins of a run.
"""

import numpy as np

from lib.attention import TokenSet, coordinates, losses, model


def saturated_slopes(
    tokens: TokenSet, selected: np.ndarray | None = None, loss: str = "exponential"
) -> np.ndarray:
    """Return the logarithms of the weights kappa_m of the pairs m = (i, t).

    Parameters
    ----------
    tokens : TokenSet
        The data sets, with their heads u.
    selected : ndarray of int (runs, n), optional
        The selected tokens. By default they are the opt tokens, `tokens.opt`.
    loss : str
        One of `lib.attention.losses.LOSSES`.

    Returns
    -------
    ndarray (runs, n, T-1)
        The logarithms. They are NaN for masked tokens, and for tokens whose score is at
        least that of the selected token.

    Raises
    ------
    ValueError
        If the loss is unknown.
    """
    losses.check_loss(loss)
    selected = tokens.opt if selected is None else selected
    scores = model.scores(tokens, tokens.u)
    chosen = np.take_along_axis(scores, selected[..., None], -1)
    return losses.log_derivative(chosen, loss) + log_of_gaps(scores, selected)


def log_ratios(log_slopes: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, float]:
    """Return log(kappa_m / beta_m) on the support minus its mean, an array (m,), and
    this mean.

    `log_slopes` (m,) are log kappa_m, and `beta` (m,) are positive duals. The mean is
    weighted by beta. The law of the margins says that log(kappa_m / beta_m) minus its
    mean is the offset a_m of margin m.
    """
    ratio = log_slopes - np.log(beta)
    mean = beta @ ratio / beta.sum()
    return ratio - mean, mean


def score_gaps(tokens: TokenSet, u: np.ndarray) -> np.ndarray:
    """Return y_i u^T (x_{i,opt} - x_{i,t}), of shape (runs, n, T-1), for heads u (runs,
    r).

    The gap of a masked token is infinite, because its score counts as -infinity.
    """
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    gaps = tokens.y[..., None] * (delta @ u[:, None, :, None])[..., 0]
    return np.where(coordinates.shown_pairs(tokens, tokens.opt), gaps, np.inf)


def gaps_of_scores(scores: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Return the selected token's score minus each other token's, of shape (runs, n,
    T-1).

    `scores` has the shape (runs, n, T), and `selected` (runs, n) has indices of tokens.
    """
    chosen = np.take_along_axis(scores, selected[..., None], -1)
    rest = coordinates.others(selected, scores.shape[-1])
    return chosen - np.take_along_axis(scores, rest, -1)


def log_of_gaps(scores: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Return the logarithm of `gaps_of_scores`, of shape (runs, n, T-1).

    The logarithm is NaN if a gap is not positive or a token is masked.
    """
    gaps = gaps_of_scores(scores, selected)
    known = (gaps > 0) & (gaps < np.inf)
    return np.where(known, np.log(np.where(known, gaps, 1.0)), np.nan)
