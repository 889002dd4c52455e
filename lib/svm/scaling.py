"""Units in which no token SVM overflows, underflows or drowns one constraint in another's rounding.

Only products <delta_{i,t} z_i^T, W> are asked for, so each factor may be divided by a power
of two, which rounds nothing. What is left is one unit for W, that of the shortest constraint.
"""

import math
from dataclasses import dataclass

import numba
import numpy as np

from lib.compiled import cache

LARGEST_EXPONENT = 480  # of W in powers of two: its square, the size of the duals, is still a float
BAD = 1e4  # constraints this much longer than the shortest are asked for more than margin 1
MORE = 1e-11  # ... by this much relative to their length: 1e5 roundings

cache.find_place()


@dataclass(frozen=True)
class Scaled:
    """The factors of a_m = delta_{i,t} z_i^T as they are solved: stretch_m 2^-exponent a_m.

    delta (runs, n, S, d), z (runs, n, d_z); exponent (runs,) that of the shortest a_m;
    stretch (runs, m) at most 1. A constraint <a_m, W> >= 1 is posed as >= 1 / stretch_m =
    1 + MORE ||a_m|| / min ||a||, where this ratio exceeds BAD: else its rounding would
    exceed its margin. Whatever W this yields is feasible; its norm rises by at most MORE
    ||W_1||, W_1 the solution for constraints of norm 1. ratio (runs,) longest to shortest.
    """

    delta: np.ndarray
    z: np.ndarray
    exponent: np.ndarray
    stretch: np.ndarray
    ratio: np.ndarray


def scaled(delta: np.ndarray, z: np.ndarray) -> Scaled:
    """delta (runs, n, S, d), z (runs, n, d_z) in common units; ValueError where delta overflows."""
    if not np.isfinite(delta).all():
        raise ValueError(
            f"X holds tokens whose difference exceeds {np.finfo(float).max:.1e}: divide them by a "
            "power of two, which only multiplies W by it"
        )
    return Scaled(*_scaled(delta, np.ascontiguousarray(z)))


@numba.njit(cache=True, error_model="numpy")
def _scaled(delta, z):
    """The fields of `Scaled`."""
    runs, n, S, _ = delta.shape
    delta, z = delta.copy(), z.copy()
    exponent, stretch, ratio = np.zeros(runs, np.int64), np.ones((runs, n * S)), np.ones(runs)
    for run in range(runs):
        rows, is_zero = np.empty(n * S, np.int64), np.empty(n * S, np.bool_)
        for i in range(n):
            largest_z, exponent_z = _normalised(z[run, i])
            for m in range(i * S, i * S + S):
                largest, exponent_delta = _normalised(delta[run, i, m - i * S])
                rows[m] = exponent_z + exponent_delta
                is_zero[m] = largest == 0 or largest_z == 0
        if not is_zero.all():
            exponent[run] = rows[~is_zero].min()
        for m in range(n * S):
            inverse = math.ldexp(1.0, min(exponent[run] - rows[m], 0))  # min ||a|| / ||a_m||
            length = 1 / inverse
            if inverse < 1 / BAD:
                length = 1 / (inverse + MORE)
                stretch[run, m] = inverse * length
            if not is_zero[m]:
                ratio[run] = max(ratio[run], 1 / inverse)
            delta[run, m // S, m % S] *= length
    return delta, z, exponent, stretch, ratio


@numba.njit(cache=True)
def _normalised(x):
    """Divide x by a power of two, to entries of at most 1; its largest entry and the exponent."""
    largest = 0.0
    for k in range(len(x)):
        largest = max(largest, abs(x[k]))
    exponent = math.frexp(largest)[1]
    for k in range(len(x)):
        x[k] = math.ldexp(x[k], -exponent)
    return largest, exponent


def shortened(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m, D), cut to the shortest where over BAD times it; what A w >= 1 then asks, (m,)."""
    length = np.linalg.norm(rows, axis=1)
    asked = np.where(length > BAD * length.min(), length.min() / length, 1.0)
    return rows * asked[:, None], asked


def in_range(problem: str, run: int, size: float, exponent: int) -> None:
    """Raises ValueError where ||W|| = size 2^-exponent or its square, the duals, is no float64."""
    power = np.log2(size) - exponent
    if abs(power) > LARGEST_EXPONENT:
        digits = power * np.log10(2)
        raise ValueError(
            f"{problem} of run {run}: the solution would have norm 1e{digits:.0f} and duals of "
            f"size 1e{2 * digits:.0f}, outside float64. That is only a scale: multiply the tokens "
            f"or the queries, or both together, by 1e{digits:.0f}, which divides W by as much."
        )
