"""Exponents and rates fitted to measured curves; all three papers use them."""

import numpy as np

from lib.dynamics import History


def fitted_slope(x, y, since: float, until: float = np.inf) -> np.ndarray:
    """Least-squares slope of y (runs, k) against x (k,), over since <= x <= until; (runs,)."""
    keep = (x >= since) & (x <= until)
    x, y = x[keep] - x[keep].mean(), y[:, keep]
    return (y - y.mean(1, keepdims=True)) @ x / (x @ x)


def exponent(history: History, target: str, since: float, until: float = np.inf) -> np.ndarray:
    """The a of direction error ~ t^a over iterations since <= t <= until, (runs,); since > 0."""
    later = history.iterations > 0
    log_t = np.log(history.iterations[later])
    log_error = np.log(history.direction_error[target][:, later])
    return fitted_slope(log_t, log_error, np.log(since) - 1e-9, np.log(until) + 1e-9)


def power_fit(x, y) -> tuple[float, float]:
    """The exponent a of y = C x^a and its standard error over repeats.

    x (points,), y (repeats, points), all > 0. One least-squares slope per repeat; the value is
    their mean, the error that of the mean.
    """
    log_x = np.log(x) - np.log(x).mean()
    slopes = np.log(np.atleast_2d(y)) @ log_x / (log_x @ log_x)
    error = slopes.std(ddof=1) / np.sqrt(len(slopes)) if len(slopes) > 1 else 0.0
    return float(slopes.mean()), float(error)


def geometric_phase(
    iterations: np.ndarray, excess: np.ndarray, floor: float, above: float = 10.0
) -> tuple[float, float]:
    """Slope of log excess (K,) per iteration, and R^2 of the line.

    The line is fitted from the first record down to `above` x floor.
    """
    reached = excess <= above * floor
    end = reached.argmax() if reached.any() else len(excess)
    t, y = iterations[:end], np.log(excess[:end])
    slope, intercept = np.polyfit(t, y, 1)
    residual = y - slope * t - intercept
    return float(slope), float(1 - residual @ residual / ((y - y.mean()) @ (y - y.mean())))
