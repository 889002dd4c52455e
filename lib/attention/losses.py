"""The losses l(f) and their derivatives, as logarithms. All are decreasing and C^1.

* exponential: e^{-f}
* logistic: log(1 + e^{-f})
* sigmoid: 1 / (1 + e^f), bounded and neither convex nor concave
* reciprocal: 1 / (1 + f) for f >= 0 and 1 - f for f < 0, with a tail like 1/f

Papers A and C train with the first two losses, and only these two are compiled. The
other two test whether paper A's statement about "any decreasing C^1 loss" (Section 3.2)
holds in general.
"""

import numpy as np

COMPILED_LOSSES = ("exponential", "logistic")
LOSSES = (*COMPILED_LOSSES, "sigmoid", "reciprocal")


def check_loss(loss: str, known: tuple[str, ...] = LOSSES) -> None:
    """Raise ValueError unless a loss has a known name.

    Parameters
    ----------
    loss : str
        The name of a loss.
    known : tuple of str
        The accepted names. Default: ``LOSSES``, the names of all losses of this
        package.

    Raises
    ------
    ValueError
        If `loss` is not one of `known`.

    Examples
    --------
    >>> from lib import attention
    >>> attention.check_loss("sigmoid")
    >>> attention.check_loss("sigmoid", attention.COMPILED_LOSSES)
    Traceback (most recent call last):
        ...
    ValueError: loss must be one of ('exponential', 'logistic'), not 'sigmoid'
    """
    if loss not in known:
        raise ValueError(f"loss must be one of {known}, not {loss!r}")


def is_logistic(loss: str) -> bool:
    """Return whether a compiled loss is the logistic one and not the exponential one.

    Parameters
    ----------
    loss : str
        One of ``COMPILED_LOSSES``.

    Returns
    -------
    bool
        True for the logistic loss, False for the exponential loss.

    Raises
    ------
    ValueError
        If `loss` is not compiled.

    Examples
    --------
    >>> from lib import attention
    >>> {loss: attention.is_logistic(loss) for loss in attention.COMPILED_LOSSES}
    {'exponential': False, 'logistic': True}
    """
    check_loss(loss, COMPILED_LOSSES)
    return loss == "logistic"


def log_loss(f: np.ndarray, loss: str) -> np.ndarray:
    """Compute log l(f), elementwise in the answers f.

    The loss l(f) is

    * exponential: e^{-f},
    * logistic: log(1 + e^{-f}),
    * sigmoid: 1 / (1 + e^f), bounded and neither convex nor concave,
    * reciprocal: 1 / (1 + f) for f >= 0 and 1 - f below, with a tail like 1/f.

    Parameters
    ----------
    f : ndarray of float (...)
        The answers f_i = y_i u^T X_i^T softmax(X_i W z_i), which contain the label.
    loss : str
        One of ``LOSSES``.

    Returns
    -------
    ndarray (...)
        The natural logarithm of the loss. It is NaN for each f that is NaN.

    Raises
    ------
    ValueError
        If `loss` is not in ``LOSSES``.

    Notes
    -----
    Papers A and C train with the exponential and the logistic loss. The other two
    losses test whether paper A's statement about "any decreasing C^1 loss" (Section
    3.2) holds in general.

    Examples
    --------
    At a large answer the exponential loss underflows, but its logarithm does not. The
    tail of the reciprocal loss is much heavier than the tails of the other three
    losses.

    >>> from lib import attention
    >>> f = np.array([1.0, 1000.0])
    >>> np.exp(-f).round(3)
    array([0.368, 0.   ])
    >>> for loss in attention.LOSSES:
    ...     print(f"{loss:>11}", attention.log_loss(f, loss).round(2))
    exponential [   -1. -1000.]
       logistic [   -1.16 -1000.  ]
        sigmoid [   -1.31 -1000.  ]
     reciprocal [-0.69 -6.91]
    """
    check_loss(loss)
    if loss == "exponential":
        return -f
    if loss == "sigmoid":
        return -np.logaddexp(0.0, f)
    if loss == "reciprocal":
        return np.where(f < 0, 1.0, -1.0) * np.log1p(np.abs(f))
    # log1p(x) = x below e^-37
    return np.where(f > 37, -f, np.log(np.logaddexp(0.0, -np.minimum(f, 37.0))))


def log_derivative(f: np.ndarray, loss: str) -> np.ndarray:
    """Compute log |l'(f)|, elementwise in the answers f (...).

    Raises ValueError unless `loss` is in `LOSSES`.
    """
    check_loss(loss)
    if loss == "sigmoid":
        return -np.logaddexp(0.0, f) - np.logaddexp(0.0, -f)
    if loss == "reciprocal":
        return -2 * np.log1p(np.maximum(f, 0.0))
    if loss == "exponential":
        return -f
    return -np.logaddexp(0.0, f)


def log_gap(log_epsilon: np.ndarray, best: np.ndarray, loss: str) -> np.ndarray:
    """Compute log(l(best - epsilon) - l(best)) from log(epsilon), elementwise.

    The shapes of `log_epsilon` and `best` are equal or broadcast. The result is exact
    up to rounding for 0 < epsilon < 700, and -inf for epsilon = 0. The gap is

    * exponential: l(best) expm1(epsilon)
    * logistic: log1p(sigmoid(-best) expm1(epsilon))
    * sigmoid: sigmoid(best - epsilon) sigmoid(-best) expm1(epsilon)
    * reciprocal: epsilon / ((1 + best - epsilon) (1 + best)) if best and best - epsilon
      are positive, epsilon if both are negative, and epsilon - best^2 / (1 + best) if
      zero lies between them

    Raises ValueError unless `loss` is one of `LOSSES`.
    """
    check_loss(loss)
    if loss == "reciprocal":
        epsilon = np.exp(log_epsilon)
        above = np.maximum(best, 0.0)
        after = best - epsilon
        across = (after < 0) & (best > 0)
        jump = np.where(across, epsilon - above**2 / (1 + above), 1.0)
        one_side = log_epsilon - np.log1p(np.maximum(after, 0.0)) - np.log1p(above)
        return np.where(across, np.log(jump), one_side)
    tiny = log_epsilon < -37  # there expm1(x) = log1p(x) = x in float64
    expm1 = np.expm1(np.exp(np.where(tiny, 0.0, log_epsilon)))
    log_expm1 = np.where(tiny, log_epsilon, np.log(expm1))
    if loss == "sigmoid":
        return (
            log_expm1
            - np.logaddexp(0.0, np.exp(log_epsilon) - best)
            - np.logaddexp(0.0, best)
        )
    log_gap = log_derivative(best, loss) + log_expm1
    if loss == "exponential":
        return log_gap
    return np.where(log_gap < -37, log_gap, np.log(np.log1p(np.exp(log_gap))))
