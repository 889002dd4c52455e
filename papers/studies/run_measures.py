"""The quantities that papers A and C measure on one run.

The confirmation measures them on fresh seeds. Each function measures one `Curve`, or
compares two. No function returns a verdict.
"""

import numpy as np

from lib.training.curves import Curve

# Parameters that are not weight matrices; "mlp.0.weight" belongs to the norm before the
# MLP.
VECTORS = ("norm", "bias", "class_token", "log_temperature", "head.0")


def weight_matrices(run: Curve) -> list[str]:
    """Return the names of the weight matrices whose norms a run recorded.

    Parameters
    ----------
    run
        A run with `weight_norms`.

    Returns
    -------
    list of str
        The names, in the network's order, without vectors such as biases and norms.
    """
    names = []
    for name in run.weight_norms:
        is_vector = name.endswith("mlp.0.weight") or any(
            part in name for part in VECTORS
        )
        if not is_vector:
            names.append(name)
    return names


def random_walk_growth(first: np.ndarray, walked: np.ndarray) -> np.ndarray:
    """Return by how much the norm of W would grow if its steps had no common direction.

    Parameters
    ----------
    first
        The norm ||W_0|| at the start, an array of any shape.
    walked
        The sum of the squared steps, sum ||dW||^2, of the same shape.

    Returns
    -------
    numpy.ndarray
        sqrt(1 + sum ||dW||^2 / ||W_0||^2) - 1, of the same shape.
    """
    return np.sqrt(1 + walked / first**2) - 1


def rising(run: Curve, metric: str) -> np.ndarray:
    """Return the values of a metric, with the sign for which larger is better.

    Parameters
    ----------
    run
        A run with evaluations at the steps `evaluated_at`.
    metric
        The metric's name. If the name ends in "loss", the sign is reversed.

    Returns
    -------
    numpy.ndarray
        The values, with the shape (evaluations,).
    """
    if metric.endswith("loss"):
        return -run.metrics[metric]
    return run.metrics[metric]


def at_level(run: Curve, name: str, level: float, along: str) -> float:
    """Return one metric of a run at the point at which another metric first passes a
    level.

    Parameters
    ----------
    run
        A run with evaluations at the steps `evaluated_at`.
    name
        The metric that is returned, or "steps" for the number of steps.
    level
        The level, in units of `rising(run, along)`.
    along
        The metric that passes the level.

    Returns
    -------
    float
        The value, interpolated linearly between two evaluations. It is the first value
        if the level is already reached at the first evaluation, and NaN if the level is
        never reached.
    """
    passing = rising(run, along)
    if name == "steps":
        values = run.evaluated_at
    else:
        values = run.metrics[name]
    passed = np.flatnonzero(passing >= level)
    if len(passed) == 0:
        return np.nan
    around = slice(max(passed[0] - 1, 0), passed[0] + 1)
    return float(np.interp(level, passing[around], values[around]))


def at_common_level(pair: tuple[Curve, Curve], name: str, along: str) -> list[float]:
    """Return `at_level` of two runs, at the best level that each of them reaches.

    Parameters
    ----------
    pair
        The two runs.
    name, along
        As in `at_level`.

    Returns
    -------
    list of float
        The two values, in the order of the pair.
    """
    level = min(float(rising(run, along).max()) for run in pair)
    return [at_level(run, name, level, along) for run in pair]
