"""Keys and queries trained in place of W = K Q^T, by rules that see the coordinates."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.compiled import status, threads
from lib.dynamics.history import Factors, History
from lib.dynamics.in_coordinates import codes, gradients, loop, training
from lib.dynamics.in_coordinates.rules import InCoordinates
from lib.dynamics.measures import of_weights
from lib.dynamics.recording import end_where_not_finite, record_times, unwritten
from lib.seeds import stream

_KINDS = (codes.ENTRYWISE, codes.SPECTRAL, codes.ADAPTIVE, codes.SIGN)


def small_start(
    tokens: TokenSet, seeds: Sequence[int], m: int, size: float = 0.01
) -> tuple[np.ndarray, np.ndarray]:
    """Draw Gaussian factors of deviation size / sqrt(m).

    Parameters
    ----------
    tokens : TokenSet
        The data sets, whose sizes give d and d_z.
    seeds : sequence of int
        One seed per run.
    m : int
        The columns of the factors.
    size : float, optional
        The deviation times sqrt(m).

    Returns
    -------
    K : ndarray (runs, d, m)
        The keys.
    Q : ndarray (runs, d_z, m)
        The queries.

    Raises
    ------
    ValueError
        If there are no columns, or another number of seeds than of runs.
    """
    runs, _, _, d = tokens.shape
    if m < 1 or len(seeds) != runs:
        raise ValueError(
            f"m = {m} and {len(seeds)} seeds; it needs m >= 1 and {runs} seeds"
        )
    widths = d, tokens.z.shape[-1]
    draws = [stream(seed, "start").standard_normal((sum(widths), m)) for seed in seeds]
    both = size / math.sqrt(m) * np.stack(draws)
    return both[:, :d], both[:, d:]


def train(
    tokens: TokenSet,
    rules: Mapping[Any, InCoordinates],
    K: np.ndarray,
    Q: np.ndarray,
    record: Sequence[int],
    loss: str = "exponential",
) -> dict[Any, History]:
    """Minimise paper A's loss over (K, Q), head fixed; a rule acts on each factor.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    rules : mapping of str to InCoordinates
        Plain rules without matrix moments: steepest descent, `SignDescent`, `Adam`,
        `RMSprop`, `AdaGrad`, `Signum`, `Lion`.
    K : ndarray (runs, d, m)
        The keys at the start.
    Q : ndarray (runs, d_z, m)
        The queries at the start.
    record : sequence of int
        The iterations to record, ascending; training ends at the last.
    loss : str
        "exponential" or "logistic".

    Returns
    -------
    dict of str to History
        The histories; their path has K and Q. A run is "stalled" also if no factor
        moves, as from K = Q = 0.

    Raises
    ------
    ValueError
        For another loss, factors that do not fit or are not finite, momentum of polar
        factors, other rules of matrices, batches, blocks, radii and weight decay.
    """
    problems = training.problems(tokens, loss)
    runs, _, _, d = tokens.shape
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        needed = runs, width, K.shape[-1]
        if value.ndim != 3 or value.shape != needed or not value.shape[-1]:
            raise ValueError(f"{name} has shape {value.shape}; it needs {needed}")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinite values")
    for name, rule in rules.items():
        if not _is_plain(rule.numbers()):
            raise ValueError(
                f"rule {name!r}: factors take plain rules without matrix moments and "
                f"batches, not {rule}"
            )
    times = record_times(record, max(record))
    return {
        name: _of_factors(
            tokens, times, _train_rule(problems, rule.numbers(), times, K, Q), loss
        )
        for name, rule in rules.items()
    }


def _is_plain(numbers: codes.Numbers) -> bool:
    """Return whether the loop of factors knows all that a rule does."""
    momentum_of_polar = numbers.kind == codes.SPECTRAL and numbers.momentum
    more = (
        numbers.batch
        or numbers.blocks > 1
        or numbers.log_radius < math.inf
        or numbers.weight_decay
    )
    return numbers.kind in _KINDS and not momentum_of_polar and not more


def _of_factors(
    tokens: TokenSet, times: np.ndarray, raw: dict[str, np.ndarray], loss: str
) -> History:
    """Return the History of a rule on factors."""
    u = np.repeat(tokens.u[:, None], len(times), 1)
    records = {
        "path": Factors(K=raw["K"], Q=raw["Q"], u=u),
        "log_gap": raw["logs"],
        "status": raw["status"],
        "ended": raw["ended"],
    }
    return of_weights(
        tokens,
        times,
        records,
        head="fixed",
        loss=loss,
        targets={},
        head_targets={},
    )


def _train_rule(
    problems: list[gradients.Problem],
    numbers: codes.Numbers,
    times: np.ndarray,
    K: np.ndarray,
    Q: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the records of a rule, NaN from the first that is not finite."""
    raw = unwritten(
        status.COMPLETED,
        len(K),
        K=(len(times), *K.shape[1:]),
        Q=(len(times), *Q.shape[1:]),
        logs=(len(times),),
    )
    n = len(problems[0].z)
    # The loop moves the factors in place: each run gets its own copies.
    ends = threads.call_each(
        loop.run_factors,
        [
            (
                problem,
                numbers,
                times,
                np.array(K[run], float, order="C"),
                np.array(Q[run], float, order="C"),
                raw["K"][run],
                raw["Q"][run],
                raw["logs"][run],
                loop.part(n, *K.shape[1:]),
                loop.part(n, *Q.shape[1:]),
            )
            for run, problem in enumerate(problems)
        ],
    )
    raw["status"][:], raw["ended"][:] = zip(*ends, strict=True)
    end_where_not_finite(
        raw["status"], raw["ended"], times, [raw["K"], raw["Q"]], [raw["logs"]]
    )
    return raw
