"""The losses l(f), decreasing and C^1, by logarithms of what a step needs.

* exponential: e^{-f}
* logistic: log(1 + e^{-f})
* sigmoid: 1 / (1 + e^f), bounded and neither convex nor concave
* reciprocal: 1 / (1 + f) for f >= 0, 1 - f below: a tail like 1/f

Papers A and C train with the first two, which alone are compiled; the others ask
whether "any decreasing C^1 loss" (paper A, Section 3.2) means what it says.
"""

import numpy as np

COMPILED_LOSSES = ("exponential", "logistic")
LOSSES = (*COMPILED_LOSSES, "sigmoid", "reciprocal")


def check_loss(loss: str, known: tuple[str, ...] = LOSSES) -> None:
    """Raise ValueError unless `loss` is one of `known`."""
    if loss not in known:
        raise ValueError(f"loss must be one of {known}, not {loss!r}")


def is_logistic(loss: str) -> bool:
    """True for the logistic, False for the exponential loss; ValueError for those not
    compiled.
    """
    check_loss(loss, COMPILED_LOSSES)
    return loss == "logistic"


def log_loss(f: np.ndarray, loss: str) -> np.ndarray:
    """log l(f), elementwise in the margins f (...); ValueError unless `loss` is in
    `LOSSES`.
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
    """log |l'(f)|, elementwise in the margin f (...); ValueError unless `loss` is in
    `LOSSES`.
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
    """log(l(best - epsilon) - l(best)), exact for 0 < epsilon < 700, given by its
    logarithm.

    * exponential: l(best) expm1(epsilon)
    * logistic: log1p(sigmoid(-best) expm1(epsilon))
    * sigmoid: sigmoid(best - epsilon) sigmoid(-best) expm1(epsilon)
    * reciprocal: epsilon / ((1 + best - epsilon) (1 + best)), epsilon where both arguments
      are negative, epsilon - best^2 / (1 + best) where zero lies between them

    ValueError unless `loss` is one of `LOSSES`.
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
