"""Where along an axis half of the seeds do something, with an interval over seeds."""

from collections.abc import Sequence

import numpy as np

from lib.seeds import stream

RESAMPLES = 2000


def half(values: Sequence[float], did: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """The value at which half of the seeds did it, and the ends of a 95 % bootstrap over seeds.

    values (k,) > 0, ascending; did (k, seeds) of bool, more often true at larger values.
    Interpolated in log value on shares made monotone: the first value where all shares are above
    1/2, the last where all are below.
    """
    did, log = np.asarray(did), np.log(np.asarray(values, float))
    drawn = stream(seed, "resamples").integers(0, did.shape[1], (RESAMPLES, did.shape[1]))
    low, high = np.quantile([_crossing(log, did[:, pick]) for pick in drawn], [0.025, 0.975])
    return _crossing(log, did), float(low), float(high)


def _crossing(log, did):
    share = np.maximum.accumulate(did.mean(1)) + 1e-9 * np.arange(len(log))  # strictly ascending
    return float(np.exp(np.interp(0.5, share, log)))
