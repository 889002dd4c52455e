"""One integer seed, one independent random stream per role; counts and sizes are whole
numbers.
"""

from collections.abc import Sequence

import numpy as np

# Appended to, never reordered: a role's place in the list is its stream.
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


def whole_number(name: str, value, minimum: int = 0) -> int:
    """`value` as an int, at least `minimum`, else ValueError naming it. A float without
    a fraction is one; a truth value and a text are none.
    """
    try:
        if isinstance(value, bool | np.bool_ | str | bytes):
            number = None
        else:
            number = int(value)
    except (TypeError, ValueError, OverflowError):  # no number at all, NaN, infinity
        number = None
    if number is None or number != value or number < minimum:
        if minimum:
            enough = f"at least {minimum}"
        else:
            enough = "zero or more"
        raise ValueError(f"{name} = {value!r}; it must be a whole number, {enough}")
    return number


def stream(seed: int, role: str) -> np.random.Generator:
    """The random stream of `role` under `seed`: child ROLES.index(role) of
    `SeedSequence(seed)`. Streams of different roles or seeds are independent: two
    starts can share one data set. ValueError for an unknown role and for a seed that is
    no whole number.
    """
    seed = whole_number("seed", seed)
    if role not in ROLES:
        raise ValueError(f"role must be one of {ROLES}, not {role!r}")
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(ROLES.index(role),))
    )


def stream_at(seed: int, role: str, *place: int) -> np.random.Generator:
    """The random stream of `role` under `seed` at `place`, for example an epoch or a
    step, so that a run goes on from any. numpy pads with zeros: (1,) and (1, 0) are
    one.
    """
    return np.random.default_rng([int(stream(seed, role).integers(2**63)), *place])


def gaussian(
    seeds: Sequence[int], shape: Sequence[int], std: float = 1.0
) -> np.ndarray:
    """Independent N(0, std^2) entries (runs, *shape), each run from its seed's "start"
    stream.
    """
    return np.stack(
        [std * stream(seed, "start").standard_normal(shape) for seed in seeds]
    )
