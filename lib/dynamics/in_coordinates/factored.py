"""Train keys K and queries Q instead of W = K Q^T, by rules that see coordinates."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lib.attention.token_sets import TokenSet, check_kind
from lib.compiled import status, threads
from lib.dynamics.history import Factors, History
from lib.dynamics.in_coordinates import codes, gradients, loop, training
from lib.dynamics.in_coordinates.rules import InCoordinates
from lib.dynamics.measures import of_weights
from lib.dynamics.recording import end_where_not_finite, record_times, unwritten
from lib.dynamics.rules import real_numbers
from lib.seeds import seed_list, stream, whole_number

_KINDS = (codes.ENTRYWISE, codes.SPECTRAL, codes.ADAPTIVE, codes.SIGN)


def small_start(
    tokens: TokenSet, seeds: int | Iterable[int], m: int, size: float = 0.01
) -> tuple[np.ndarray, np.ndarray]:
    """Draw K and Q with independent N(0, size^2 / m) entries.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, whose sizes give d and d_z.
    seeds : int or iterable of int
        One seed per run.
    m : int
        The number of columns of K and Q.
    size : float, optional
        sqrt(m) times the standard deviation of an entry of K or Q. An entry of K Q^T
        then has the standard deviation size^2 / sqrt(m).

    Returns
    -------
    K : ndarray (runs, d, m)
        The keys.
    Q : ndarray (runs, d_z, m)
        The queries.

    Raises
    ------
    ValueError
        If m < 1, if the number of seeds is not the number of runs, or if a seed is not
        a whole number.
    """
    runs, _, _, d = tokens.shape
    m = whole_number("m", m, 1)
    seeds = seed_list(seeds)
    if len(seeds) != runs:
        raise ValueError(f"seeds has {len(seeds)} seeds; it needs {runs}, one per run")
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
    """Minimise paper A's loss over (K, Q) with a fixed head; a rule moves both factors.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    rules : mapping of str to InCoordinates
        Rules without matrix moments: `SteepestDescent`, `SignDescent`, `Adam`,
        `RMSprop`, `AdaGrad`, `Signum`, `Lion`, and `Muon` without momentum.
    K : ndarray (runs, d, m)
        The keys at the start.
    Q : ndarray (runs, d_z, m)
        The queries at the start.
    record : sequence of int
        The iterations to record, ascending. Training ends at the last one.
    loss : str
        "exponential" or "logistic".

    Returns
    -------
    dict of str to History
        The histories by rule. The `path` of a history contains K and Q, and there are
        no targets. All norms and gradients in it refer to W = K Q^T. A run also ends as
        "stalled" if neither factor moves, for example if it starts from K = Q = 0.

    Raises
    ------
    ValueError
        If the loss is neither of these two; if K or Q has the wrong shape or is not
        finite; if `record` is not as in `dynamics.train`; if a rule is spectral with
        momentum, or has matrix moments, batches, blocks, a radius or weight decay, or
        takes the signs of a polar factor.
    TypeError
        If `tokens` is not a TokenSet; if `rules` is not a mapping of these rules; if K
        or Q contains anything but real numbers.
    """
    check_kind(tokens)
    _check_rules(rules)
    times = record_times(record, None)
    problems = training.problems(tokens, loss)
    runs, _, _, d = tokens.shape
    K = real_numbers("K", K)
    Q = real_numbers("Q", Q)
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        needed = runs, width, K.shape[-1]
        if value.ndim != 3 or value.shape != needed or not value.shape[-1]:
            raise ValueError(f"{name} has shape {value.shape}; it needs {needed}")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinite values")
    return {
        name: _of_factors(
            tokens, times, _train_rule(problems, rule.numbers(), times, K, Q), loss
        )
        for name, rule in rules.items()
    }


def _check_rules(rules: Any) -> None:
    """Raise an error unless `rules` is a mapping of rules that can move K and Q."""
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules = {rules!r}; it must be a dict of rules by their names")
    for name, rule in rules.items():
        if not isinstance(rule, InCoordinates) or rule.has_direction:
            raise TypeError(
                f"rule {name!r} = {rule!r}; factors take rules of this library that "
                "see coordinates, such as lib.Adam(0.1)"
            )
        if not _is_plain(rule.numbers()):
            raise ValueError(
                f"rule {name!r}: factors take plain rules without matrix moments and "
                f"batches, not {rule}"
            )


def _is_plain(numbers: codes.Numbers) -> bool:
    """Return whether the loop for K and Q supports all settings of a rule."""
    momentum_of_polar = numbers.kind == codes.SPECTRAL and numbers.momentum
    more = (
        numbers.batch
        or numbers.blocks > 1
        or numbers.log_radius < math.inf
        or numbers.weight_decay
        or numbers.signed  # the loop has no signs of polar factors
    )
    return numbers.kind in _KINDS and not momentum_of_polar and not more


def _of_factors(
    tokens: TokenSet, times: np.ndarray, raw: dict[str, np.ndarray], loss: str
) -> History:
    """Compute the History from the records that `_train_rule` returned."""
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
    """Train every run with one rule, and return the records by name.

    These are K (runs, k, d, m), Q (runs, k, d_z, m), logs (runs, k) with log(L - L*),
    and status and ended (runs,). The first record of a run that is not finite, and all
    later records of this run, are set to NaN.
    """
    raw = unwritten(
        status.COMPLETED,
        len(K),
        K=(len(times), *K.shape[1:]),
        Q=(len(times), *Q.shape[1:]),
        logs=(len(times),),
    )
    n = len(problems[0].z)
    # The loop moves the factors in place, so that each run gets copies of its own.
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
