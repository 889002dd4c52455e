"""The model of paper A, f_i = y_i u^T X_i^T softmax(X_i W z_i), and its gradients.

The gradients are closed formulas. In each sample, all logits and scores are taken
relative to the logit and the score of the selected token s_i, the token with the
largest logit. The softmax weights of the other tokens are stored as logarithms, with
the largest of these weights factored out. No small weight is computed as a difference
of large numbers, so that the direction of the gradient stays accurate even if weights
are as small as e^-30000.
"""

from dataclasses import dataclass

import numpy as np

from lib.attention.losses import check_loss, log_derivative, log_gap, log_loss
from lib.attention.token_sets import TokenSet, as_array, check_kind
from lib.representation import Shapes


@dataclass(frozen=True, repr=False, eq=False)
class _Slopes(Shapes):
    """Loss and derivatives of the model at given logits.

    Arrays that may underflow are stored without a common factor: multiply `pull` by
    e^`log_scale`, and `push` by e^`log_push_scale`.

    Parameters
    ----------
    log_weights : ndarray (..., n, T)
        Logarithms of the softmax weights.
    log_loss : ndarray (...)
        Logarithm of the loss L.
    log_gap : ndarray (...)
        Logarithm of L - L*, with L* the loss at p_opt = 1; -inf if L = L*.
    pull : ndarray (..., n, T)
        Scaled derivatives with respect to the logits: `pull` e^`log_scale` =
        -dL/dlogits.
    log_scale : ndarray (...)
        Logarithm of the factor of `pull`.
    push : ndarray (..., n, T)
        Scaled derivatives with respect to the scores: `push` e^`log_push_scale` =
        -dL/dscores = |l'(f_i)| p_{i,t} / n.
    log_push_scale : ndarray (...)
        Logarithm of the factor of `push`.
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
    """Compute loss and derivatives from logits a = X W z and scores gamma = y X u.

    Let s be the token of largest logit, D_t = gamma_t - gamma_s, and e = sum_t p_t D_t.
    Then

    * f = gamma_s + e,
    * -dL/da_t = |l'(f)| p_t (gamma_t - f) / n = |l'(f)| p_t (D_t - e) / n.

    Parameters
    ----------
    logits : ndarray (..., n, T)
        The logits a_{i,t} of every token; -inf for a masked token.
    scores : ndarray (..., n, T)
        The scores gamma_{i,t} of every token. The score of a masked token is not used.
    loss : str
        One of ``LOSSES``.

    Returns
    -------
    _Slopes
        A record of arrays. ``log_weights`` (..., n, T) are the logarithms of the
        softmax weights. ``log_loss`` and ``log_gap`` (...) are the logarithms of L and
        of L - L*, where L* is the loss at p_opt = 1, and opt is the token of largest
        score. The derivatives are ``pull`` and ``push`` (..., n, T) times factors,
        whose logarithms are ``log_scale`` and ``log_push_scale`` (...): ``pull``
        e^``log_scale`` = -dL/dlogits, and ``push`` e^``log_push_scale`` = -dL/dscores.

    Raises
    ------
    ValueError
        If `loss` is not in ``LOSSES``.

    Examples
    --------
    At W = 60,000 W_mm the loss exceeds its infimum by about e^-60000. The logarithm of
    this gap is computed accurately, and so is the direction of the gradient.

    >>> from lib import attention
    >>> data = attention.two_examples()
    >>> W = 60_000 * np.array([[[-0.5, 0.0], [0.5, -0.5]]])
    >>> a = attention.logits(data, W)
    >>> at = attention.slopes(a, attention.scores(data, data.u))
    >>> at.log_gap.round(2)
    array([-60000.08])
    >>> at.pull.round(3) + 0.0
    array([[[-0.5,  0. ,  0.5],
            [-1. , -1. ,  2. ]]])
    """
    b = logits - logits.max(-1, keepdims=True)  # relative to the selected token
    selected_score = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    masked = logits == -np.inf
    # A masked token gets the score of the selected token, so that the difference of the
    # two is zero.
    if masked.any():
        scores = np.where(masked, selected_score, scores)
    D = scores - selected_score
    # Marks the selected token, and tokens with the same score, such as copies of it.
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
    # The lag is zero if the selected token is the opt token.
    lag = best - selected_score[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        # The logarithm of epsilon = best - f.
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


def _factor(
    values: np.ndarray, log_factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return values e^log_factor / n divided by the largest factor, and its log.

    The values have the shape (..., n, T), and log_factor has the shape (..., n). The
    largest factor (...) is taken over the n samples. If all factors are zero, it is
    replaced by 1.
    """
    largest = log_factor.max(-1)
    largest = np.where(largest > -np.inf, largest, 0.0)  # all values are zero then
    n = values.shape[-2]
    return values * (np.exp(log_factor - largest[..., None]) / n)[..., None], largest


def _log_mean(log_values: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(log_values, -1) - np.log(log_values.shape[-1])


def logits(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Compute the logits a_{i,t} = x_{i,t}^T W z_i of every token.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    W : ndarray (runs, d, d_z)
        The attention matrix of every run. An array (1, d, d_z) is used for all runs,
        and a single data set is used for all matrices.

    Returns
    -------
    ndarray (runs, n, T)
        The logits. Equal tokens of a sample have bitwise equal logits. The logit of a
        masked token is -inf.

    Raises
    ------
    ValueError
        If W has the wrong shape.
    TypeError
        If `tokens` is not a TokenSet.

    Examples
    --------
    Under W_mm, the logit of the opt token, which is the last token here, exceeds every
    other logit of its sample by at least 1.

    >>> from lib import attention
    >>> data = attention.two_examples()
    >>> W_mm = np.array([[[-0.5, 0.0], [0.5, -0.5]]])
    >>> attention.logits(data, W_mm)
    array([[[-0.5, -1. ,  0.5],
            [-0.5, -0.5,  0.5]]])
    """
    check_kind(tokens)
    W = as_array("W", W)
    _check_shape("W", W, (len(tokens.X), tokens.shape[-1], tokens.z.shape[-1]))
    keys = tokens.z @ np.swapaxes(W, 1, 2)  # W z_i, (runs, n, d)
    # einsum adds in a fixed order, so that equal tokens get bitwise equal logits.
    return _shown(tokens, np.einsum("rntd,rnd->rnt", tokens.X, keys))


def _check_shape(name: str, value: np.ndarray, needed: tuple[int, ...]) -> None:
    """Raise ValueError unless a value has the needed shape; the runs may broadcast.

    Without this check, einsum would also broadcast an axis d of length 1.
    """
    runs = needed[0]
    fits = (
        value.ndim == len(needed)
        and value.shape[1:] == needed[1:]
        and (len(value) in (1, runs) or runs == 1)
    )
    if not fits:
        raise ValueError(f"{name} has shape {value.shape}; it needs {needed}")


def _shown(tokens: TokenSet, values: np.ndarray) -> np.ndarray:
    """Return the values (runs, n, T) of the tokens, with -inf for masked tokens."""
    if tokens.mask is None:
        return values
    return np.where(tokens.mask, values, -np.inf)


def weights(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Compute the softmax weights p_{i,t} = softmax_t(x_{i,t}^T W z_i) of every token.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    W : ndarray (runs, d, d_z)
        The attention matrix of every run. An array (1, d, d_z) is used for all runs,
        and a single data set is used for all matrices.

    Returns
    -------
    ndarray (runs, n, T)
        The weights, which sum to one over the tokens of a sample. The weight of a
        masked token is zero. Weights below about e^-745 underflow to zero; `slopes`
        returns their logarithms.

    Raises
    ------
    ValueError
        If W has the wrong shape.
    TypeError
        If `tokens` is not a TokenSet.

    Examples
    --------
    As W grows in a fixed direction, the weight of the opt token, which is the last
    token here, tends to one.

    >>> from lib import attention
    >>> data = attention.two_examples()
    >>> W_mm = np.array([[[-0.5, 0.0], [0.5, -0.5]]])
    >>> for length in 0, 1, 5, 25:
    ...     print(length, attention.weights(data, length * W_mm)[0, :, 2].round(3))
    0 [0.333 0.333]
    1 [0.629 0.576]
    5 [0.993 0.987]
    25 [1. 1.]
    """
    logit = logits(tokens, W)
    odds = np.exp(logit - logit.max(-1, keepdims=True))  # relative to the largest logit
    return odds / odds.sum(-1, keepdims=True)


def scores(tokens: TokenSet, u: np.ndarray) -> np.ndarray:
    """Compute the scores gamma_{i,t} = y_i u^T x_{i,t} of every token.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    u : ndarray (runs, d)
        The head of every run, for example ``tokens.u``. An array (1, d) is used for all
        runs, and a single data set is used for all heads.

    Returns
    -------
    ndarray (runs, n, T)
        The scores. The score of a masked token is -inf, which is below every other
        score.

    Raises
    ------
    ValueError
        If u has the wrong shape.
    TypeError
        If `tokens` is not a TokenSet.

    Examples
    --------
    The opt token has the largest score (paper A, Definition 1).

    >>> from lib import attention
    >>> data = attention.two_examples()
    >>> attention.scores(data, data.u)
    array([[[ 0.,  0.,  1.],
            [-1., -1.,  1.]]])
    >>> data.opt
    array([[2, 2]])
    """
    check_kind(tokens)
    u = as_array("u", u)
    _check_shape("u", u, (len(tokens.X), tokens.shape[-1]))
    return _shown(tokens, tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, u))


def gradients(
    tokens: TokenSet, W: np.ndarray, u: np.ndarray, loss: str = "exponential"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the loss of paper A's Eq. 1, and its gradients with respect to W and u.

    * L = (1/n) sum_i l(f_i) with f_i = y_i u^T X_i^T softmax(X_i W z_i),
    * grad_W L = (1/n) sum_i l'(f_i) X_i^T softmax'(a_i) gamma_i z_i^T,
    * grad_u L = (1/n) sum_i l'(f_i) y_i X_i^T softmax(a_i).

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    W : ndarray (runs, d, d_z)
        The attention matrix of every run.
    u : ndarray (runs, d)
        The head of every run, for example ``tokens.u``.
    loss : str
        One of ``LOSSES``.

    Returns
    -------
    L : ndarray (runs,)
        The loss.
    grad_W : ndarray (runs, d, d_z)
        The gradient with respect to W.
    grad_u : ndarray (runs, d)
        The gradient with respect to u.

    Raises
    ------
    ValueError
        If W or u has the wrong shape; if `loss` is not in ``LOSSES``.
    TypeError
        If `tokens` is not a TokenSet.

    Examples
    --------
    A small step against the gradient lowers the loss. Per unit of step size, the
    decrease is ||grad_W||^2.

    >>> from lib import attention
    >>> data = attention.two_examples()
    >>> W = np.zeros((1, 2, 2))
    >>> L, grad_W, grad_u = attention.gradients(data, W, data.u)
    >>> grad_W.round(3) + 0.0
    array([[[ 0.119,  0.   ],
            [-0.08 ,  0.62 ]]])
    >>> step = 1e-4
    >>> L_next, *_ = attention.gradients(data, W - step * grad_W, data.u)
    >>> ((L - L_next) / step).round(3)
    array([0.405])
    >>> float((grad_W**2).sum().round(3))
    0.405
    """
    check_kind(tokens)
    runs, _, _, d = tokens.shape
    W = as_array("W", W)
    u = as_array("u", u)
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
