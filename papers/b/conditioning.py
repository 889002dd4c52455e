"""What Algorithm 1's preconditioner is for: iterations against the condition number of Sigma."""

from collections.abc import Mapping, Sequence

import numpy as np

from lib import regression
from lib.companion import claims
from lib.companion.claims import Claim
from papers.b import concentration

WHY = (
    "Our constant asks a tenfold gain of the worst draw. The one-sided preconditioner leaves the"
    " other factor Sigma: a draw whose slow mode is mild without it gains less"
)


def condition_numbers(conditions, of_seeds) -> dict[str, np.ndarray]:
    """Iterations that cut the distance to the minima by 10^6, (conditions, seeds) a preconditioner.

    Steps of 1/lambda_max along the slowest mode of the population loss, whose rate is 1 -
    lambda_min/lambda_max: "none", "left" (Algorithm 1) and "left_right".
    """
    found = {}
    for name in ("none", "left", "left_right"):
        table = np.empty((len(conditions), len(of_seeds)))
        for i, condition in enumerate(conditions):
            for j, seed in enumerate(of_seeds):
                rates, _ = regression.modes(concentration.ill_conditioned(condition, seed), name)
                table[i, j] = np.log(1e6) / -np.log1p(-rates[0] / rates[-1])
        found[name] = table
    return found


def gains(conditions: Sequence[float], iterations: Mapping[str, np.ndarray]) -> list[Claim]:
    """Algorithm 1 gains tenfold at the last condition number; the two-sided rule never slows.

    `iterations` (conditions, seeds) are those of `condition_numbers`, by preconditioner. The first
    claim is paper B's Section 5 with our constant, the second is ours.
    """
    gain = (iterations["left"] / iterations["none"]).max(1)[-1]
    slopes = growth(conditions, iterations["left_right"])
    ratio = "iterations with the paper's preconditioner over those without, condition number"
    flat = "two-sided preconditioner: exponent of the iterations in the condition number"
    source = "paper B, Section 5 (our constant)"
    text = f"{ratio} {conditions[-1]:g}, largest"
    return [
        claims.at_most("ill.gain", text, source, gain, 0.1, remark=WHY),
        claims.at_most("ill.flat", flat, "ours", slopes.max(), 0.05),
    ]


def growth(conditions: Sequence[float], iterations: np.ndarray) -> np.ndarray:
    """Exponents of iterations (conditions, seeds) in the condition number, (seeds,)."""
    return np.polyfit(np.log(conditions), np.log(iterations), 1)[0]
