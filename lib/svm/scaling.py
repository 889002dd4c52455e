"""Units in which no token SVM overflows, underflows or drowns one constraint in another's rounding.

Only products <delta_{i,t} z_i^T, W> are asked for, so each factor may be divided by a power of two,
which rounds nothing. What is left is one unit for W, that of the shortest constraint.
"""

from dataclasses import dataclass

import numpy as np

LARGEST_EXPONENT = 480  # of W in powers of two: its square, the size of the duals, is still a float
BAD = 1e4  # constraints this much longer than the shortest are asked for more than margin 1
MORE = 1e-11  # ... by this much relative to their length: 1e5 roundings


@dataclass(frozen=True)
class Scaled:
    """The factors of a_m = delta_{i,t} z_i^T as they are solved: stretch_m 2^-exponent a_m.

    delta (runs, n, S, d), z (runs, n, d_z); exponent (runs,) that of the shortest a_m; stretch
    (runs, m) at most 1. A constraint <a_m, W> >= 1 is posed as >= 1 / stretch_m = 1 + MORE
    ||a_m|| / min ||a||, where this ratio exceeds BAD: else its rounding would exceed its margin.
    Whatever W this yields is feasible, and its norm rises by at most MORE ||W_1||, W_1 the solution
    for constraints of norm 1; the duality gap shows it. ratio (runs,) longest to shortest.
    """

    delta: np.ndarray
    z: np.ndarray
    exponent: np.ndarray
    stretch: np.ndarray
    ratio: np.ndarray


def scaled(delta: np.ndarray, z: np.ndarray) -> Scaled:
    """The constraints in common units; delta (runs, n, S, d), z (runs, n, d_z).

    A constraint that is zero stays zero. Raises ValueError where a difference of tokens overflows.
    """
    size_delta, size_z = np.abs(delta).max(-1), np.abs(z).max(-1)  # (runs, n, S), (runs, n)
    if not np.isfinite(size_delta).all():
        raise ValueError(
            f"X holds tokens whose difference exceeds {np.finfo(float).max:.1e}: divide them by a "
            "power of two, which only multiplies W by it"
        )
    of_delta, of_z = np.frexp(size_delta)[1], np.frexp(size_z)[1]
    of_row = of_delta + of_z[..., None]
    there = (size_delta > 0) & (size_z > 0)[..., None]
    shortest = np.where(there, of_row, np.iinfo(np.int32).max).min((1, 2), keepdims=True)
    shortest = np.where(there.any((1, 2), keepdims=True), shortest, 0)
    inverse = np.ldexp(1.0, np.minimum(shortest - of_row, 0))  # min ||a|| / ||a_m||, (runs, n, S)
    stretch = np.where(inverse < 1 / BAD, inverse / (inverse + MORE), 1.0)
    length = np.where(inverse < 1 / BAD, 1 / (inverse + MORE), 1 / np.maximum(inverse, 1 / BAD))
    return Scaled(
        delta=np.ldexp(delta, -of_delta[..., None]) * length[..., None],
        z=np.ldexp(z, -of_z[..., None]),
        exponent=shortest[:, 0, 0],
        stretch=stretch.reshape(len(delta), -1),
        ratio=1 / np.where(there, inverse, 1.0).min((1, 2)),
    )


def shortened(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, asked): rows (m, D) over BAD times the shortest are cut to its norm.

    asked (m,): what A w >= 1 then asks of each.
    """
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
