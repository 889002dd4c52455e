"""Derive one independent random stream per role from one integer seed.

This file also contains the check that counts and sizes are whole numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# Only append to this list and never reorder it: the index of a role selects its stream.
ROLES = [
    "data",
    "labels",
    "start",
    "batches",
    "split",
    "dropout",
    "draws",
    "selection",
    "noise",
    "subset",
    "tilt",
    "raw_noise",
    "heads",
    "problems",
    "resamples",
    "outside",
    "buckets",
    "crops",
]


def whole_number(name: str, value: Any, minimum: int = 0) -> int:
    """Check that a value is a whole number, and return it as an int.

    Parameters
    ----------
    name : str
        The name of the value, for the error message.
    value : Any
        The value. A float without a fractional part is accepted; a boolean or a string
        is not.
    minimum : int, default 0
        The smallest value that is allowed.

    Returns
    -------
    int
        The value.

    Raises
    ------
    ValueError
        If the value is not a whole number, or is below `minimum`. The message names the
        value.

    Examples
    --------
    >>> from lib import seeds
    >>> seeds.whole_number("steps", 1e3)
    1000
    """
    try:
        if isinstance(value, bool | np.bool_ | str | bytes):
            number = None
        else:
            number = int(value)
    except (TypeError, ValueError, OverflowError):  # not a number, NaN or infinity
        number = None
    if number is None or number != value or number < minimum:
        if minimum:
            enough = f"at least {minimum}"
        else:
            enough = "zero or more"
        raise ValueError(f"{name} = {value!r}; it must be a whole number, {enough}")
    return number


def stream(seed: int, role: str) -> np.random.Generator:
    """Return the random stream of a role under a seed.

    Streams of different roles or seeds are independent. So, for example, two different
    starts can be drawn for the same data set.

    Parameters
    ----------
    seed : int
        The seed, at least 0.
    role : str
        One of `ROLES`.

    Returns
    -------
    numpy.random.Generator
        Child ROLES.index(role) of `SeedSequence(seed)`.

    Raises
    ------
    ValueError
        If the role is unknown, or the seed is not a whole number of at least 0.

    Examples
    --------
    >>> from lib import seeds
    >>> first = seeds.stream(0, "start").random()
    >>> first == seeds.stream(0, "start").random()
    True
    >>> first == seeds.stream(0, "noise").random()
    False
    """
    seed = whole_number("seed", seed)
    if role not in ROLES:
        raise ValueError(f"role must be one of {ROLES}, not {role!r}")
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(ROLES.index(role),))
    )


def stream_at(seed: int, role: str, *place: int) -> np.random.Generator:
    """Return the random stream of a role under a seed, for one place in a run.

    A place is, for example, an epoch or a step. Since every place has its own stream, a
    run can resume at any place.

    Parameters
    ----------
    seed : int
        The seed, at least 0.
    role : str
        One of `ROLES`.
    *place : int
        The numbers of the place, such as the epoch and the step, each at least 0.

    Returns
    -------
    numpy.random.Generator
        The stream, at its beginning.

    Raises
    ------
    ValueError
        If the role is unknown, the seed is not a whole number of at least 0, or a
        number of the place is negative.
    TypeError
        If a number of the place is not an integer.

    Notes
    -----
    numpy pads the place with zeros, so that the places (1,) and (1, 0) have the same
    stream.
    """
    return np.random.default_rng([int(stream(seed, role).integers(2**63)), *place])


def seed_list(seeds: Any) -> list:
    """Return seeds as a list. A single seed becomes a list of one.

    Parameters
    ----------
    seeds : int or iterable of int
        The seeds. Whether each of them is a whole number is checked only by `stream`.

    Returns
    -------
    list of int
        The seeds, at least one.

    Raises
    ------
    ValueError
        If there is no seed, or if `seeds` is a mapping.

    Examples
    --------
    >>> from lib import seeds
    >>> seeds.seed_list(3), seeds.seed_list(range(2))
    ([3], [0, 1])
    """
    if isinstance(seeds, Mapping):
        raise ValueError(f"seeds = {seeds!r}; it must be a number or a list of numbers")
    if isinstance(seeds, str) or not np.iterable(seeds):
        return [seeds]
    listed = list(seeds)
    if not listed:
        raise ValueError(
            "seeds is empty; give at least one, a number or a list of numbers"
        )
    return listed


def gaussian(
    seeds: int | Iterable[int], shape: Sequence[int], std: float = 1.0
) -> np.ndarray:
    """Draw Gaussian starts, each run from the stream "start" of its seed.

    Parameters
    ----------
    seeds : int or iterable of int (runs,)
        The seeds.
    shape : sequence of int
        Shape of one start.
    std : float, default 1.0
        Standard deviation of the entries.

    Returns
    -------
    ndarray (runs, *shape)
        Independent N(0, std^2) entries.

    Raises
    ------
    ValueError
        If there is no seed, or if a seed is not a whole number of at least 0.
    """
    return np.stack(
        [
            std * stream(seed, "start").standard_normal(shape)
            for seed in seed_list(seeds)
        ]
    )
