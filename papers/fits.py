"""Fits of exponents and rates to measured curves, for all three papers."""

from collections.abc import Sequence

import numpy as np

from lib.dynamics import History


def fitted_slope(
    x: np.ndarray, y: np.ndarray, since: float = -np.inf, until: float = np.inf
) -> np.ndarray:
    """Fit the slope of y (runs, k) in x (k,) by least squares, over since <= x <=
    until.

    The result has the shape (runs,). It is NaN if fewer than two different x are in
    this range.
    """
    keep = (x >= since) & (x <= until)
    x = x[keep] - x[keep].mean()
    y = y[:, keep]
    return (y - y.mean(1, keepdims=True)) @ x / (x @ x)


def log_slope(
    x: Sequence[float] | np.ndarray,
    y: np.ndarray,
    since: float = 0.0,
    until: float = np.inf,
) -> np.ndarray:
    """Fit the exponent a of y ~ x^a, over since <= x <= until and x > 0.

    y (runs, k) must be positive in this range. x has the shape (k,), and the result has
    the shape (runs,).
    """
    x = np.asarray(x)
    keep = (x > 0) & (x >= since) & (x <= until)
    return fitted_slope(np.log(x[keep]), np.log(y[:, keep]))


def path_sum(iterations: np.ndarray, decay: float) -> np.ndarray:
    """Return S_t = sum_{s=1}^t s^-decay at the `iterations` t.

    `iterations` are integers of shape (k,), and so is the shape of the result. S_t is
    the sum of t step sizes eta s^-decay, divided by eta. It equals t for decay 0, and 3
    t^(1/3) - 2.45 + O(t^-2/3) for decay 2/3.
    """
    sums = np.cumsum(np.arange(1.0, np.max(iterations) + 1) ** -decay)
    return np.concatenate([[0.0], sums])[iterations]


def exponent(
    history: History, target: str, since: float, until: float = np.inf
) -> np.ndarray:
    """Fit the exponent a of direction error ~ t^a over since <= t <= until.

    The result has the shape (runs,).
    """
    return log_slope(history.iterations, history.direction_error[target], since, until)


def power_fit(x: Sequence[float] | np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Fit the exponent a of y = C x^a, with its standard error.

    x has the shape (points,) and y has the shape (repeats, points), or (points,) if
    there is only one repeat. Each repeat gives a least-squares slope of log y in log x,
    and the exponent is the mean of these slopes. With a single repeat the standard
    error is unknown, and 0.0 is returned for it.
    """
    slopes = log_slope(x, np.atleast_2d(y))
    if len(slopes) > 1:
        error = slopes.std(ddof=1) / np.sqrt(len(slopes))
    else:
        error = 0.0
    return float(slopes.mean()), float(error)


def first_below(iterations: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Return the first of `iterations` (k,) at which `values` (runs, k) is at most
    `level`.

    The result has the shape (runs,). It is inf for a run that never gets there; a value
    of NaN is never below the level.
    """
    reached = values <= level
    return np.where(reached.any(1), iterations[reached.argmax(1)], np.inf)


def geometric_phase(iterations: np.ndarray, excess: np.ndarray, floor: float) -> float:
    """Fit the slope of log excess (k,) per iteration, over the records before the
    excess first falls to 10 times the floor.

    There must be at least two such records.
    """
    reached = excess <= 10 * floor
    end = reached.argmax() if reached.any() else len(excess)
    return float(np.polyfit(iterations[:end], np.log(excess[:end]), 1)[0])
