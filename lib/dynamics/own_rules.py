"""A plain numpy loop for rules of your own that return the whole step of W."""

from typing import Any

import numpy as np

from lib import attention, progress
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.dynamics import recording
from lib.dynamics.rules import Rule, real_numbers

LARGEST = np.exp(
    LOG_LONGEST
)  # the largest allowed entry of W, as in the compiled loops


@np.errstate(over="ignore", invalid="ignore")  # a number that is not finite ends a run
def run(
    tokens: TokenSet, rule: Rule, times: np.ndarray, W_0: np.ndarray, *, loss: str
) -> dict[str, Any]:
    """Train by W_{t+1} = W_t + D_t with the rule's own D_t; the head stays fixed.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    rule : Rule
        A rule with a `direction`.
    times : ndarray of int (k,)
        The iterations to record, ascending.
    W_0 : ndarray (runs, d, d_z)
        The start.
    loss : str
        One of ``attention.LOSSES``.

    Returns
    -------
    dict of str to ndarray
        W (runs, k, d, d_z), status and ended (runs,), log_gap (runs, k). Records after
        the end of a run are NaN.

    Raises
    ------
    TypeError
        If a step is not an array of real numbers.
    ValueError
        If a step does not have the shape of W; if the first step contains NaN in a run
        whose gradient is finite and not zero; if the sizes of the tokens leave the
        range that `check_sizes` allows. A NaN in a later step is no error: it ends the
        run as diverged.
    """
    check_sizes(tokens)
    shape = W_0.shape
    sizes = {"W": (len(times), *shape[1:]), "log_gap": (len(times),)}
    raw = recording.unwritten(COMPLETED, len(W_0), **sizes)
    raw["ended"][:] = times[-1]
    places = {int(t): k for k, t in enumerate(times)}
    scores = attention.scores(tokens, tokens.u)
    state: dict[str, Any] = {}
    W = W_0
    alive = np.ones(len(W), bool)
    for t in progress.steps(times[-1] + 1):
        _, gradient, _ = attention.gradients(tokens, W, tokens.u, loss)
        if t in places:
            at = attention.slopes(attention.logits(tokens, W), scores, loss)
            raw["W"][alive, places[t]] = W[alive]
            raw["log_gap"][alive, places[t]] = at.log_gap[alive]

        # A run whose gradient is zero ends here.
        still = alive & ~gradient.any((1, 2))
        raw["status"][still], raw["ended"][still] = STALLED, t
        alive = alive & ~still
        if not alive.any() or t == times[-1]:
            break

        # Take the step in the runs that have not ended.
        D = _checked(rule, rule.direction(gradient, state), shape)
        known = alive & np.isfinite(gradient).all((1, 2))
        if t == 0 and np.isnan(D[known]).any():
            raise ValueError(
                f"{type(rule).__name__}.direction returned NaN at its first step, of a "
                "finite gradient"
            )
        later = W + D
        wild = alive & ~(np.abs(later).max((1, 2)) <= LARGEST)  # true for NaN
        raw["status"][wild], raw["ended"][wild] = DIVERGED, t + 1
        alive = alive & ~wild
        W = np.where(alive[:, None, None], later, W)
    recording.end_where_not_finite(
        raw["status"], raw["ended"], times, [raw["W"]], [raw["log_gap"]]
    )
    return raw


def _checked(rule: Rule, step: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Check the step that a rule returned, and return it as floats (runs, d, d_z).

    Raises TypeError if the step contains anything but real numbers, and ValueError if
    its shape is not `shape`.
    """
    name = f"{type(rule).__name__}.direction"
    D = real_numbers(f"what {name} returned", step)
    if D.shape != shape:
        raise ValueError(
            f"{name} returned shape {D.shape}; it needs {shape}, the shape of the "
            "gradient"
        )
    return D.astype(float, copy=False)
