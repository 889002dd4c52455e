"""Keys and queries trained in place of W = K Q^T, by rules that see the coordinates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.attention import TokenSet
from lib.compiled import status
from lib.dynamics.in_coordinates import codes, loop, training
from lib.dynamics.in_coordinates.rules import Optimiser
from lib.dynamics.recording import end_where_not_finite, record_times, unwritten
from lib.seeds import stream

_KINDS = (codes.ENTRYWISE, codes.SPECTRAL, codes.ADAPTIVE, codes.SIGN)


@dataclass(frozen=True, repr=False)
class _FactoredPath(training.Path):
    """A path of W = K Q^T, with K (runs, k, d, m) and Q (runs, k, d_z, m). "stalled"
    also where no factor moves, as from K = Q = 0.
    """

    K: Any = None
    Q: Any = None


def small_start(tokens: TokenSet, seeds: Sequence[int], m: int, size: float = 0.01):
    """K (runs, d, m), Q (runs, d_z, m), Gaussian of deviation size / sqrt(m)."""
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
    optimisers: Mapping[str, Optimiser],
    K: np.ndarray,
    Q: np.ndarray,
    record: Sequence[int],
    loss: str = "exponential",
) -> dict[str, _FactoredPath]:
    """Minimise paper A's loss over (K, Q), head fixed; every rule acts on each factor.

    K (runs, d, m), Q (runs, d_z, m): the start. record: iterations, ascending. Raises
    ValueError for another loss than "exponential" or "logistic", factors that do not
    fit or are not finite, momentum of polar factors, other rules of matrices, batches
    and radii.
    """
    problems = training.problems(tokens, loss)
    runs, _, _, d = tokens.shape
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        needed = runs, width, K.shape[-1]
        if value.ndim != 3 or value.shape != needed or not value.shape[-1]:
            raise ValueError(f"{name} has shape {value.shape}; it needs {needed}")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinite values")
    for name, rule in optimisers.items():
        more = (
            rule.batch or rule.blocks > 1 or rule.radius < math.inf or rule.weight_decay
        )
        if (
            rule.kind not in _KINDS
            or more
            or (rule.kind == codes.SPECTRAL and rule.momentum)
        ):
            raise ValueError(
                f"{name}: factors take plain rules without matrix moments and batches"
            )
    times = record_times(record, max(record))
    return {
        name: _train_rule(problems, rule, times, K, Q)
        for name, rule in optimisers.items()
    }


def _train_rule(problems, rule, times, K, Q):
    raw = unwritten(
        status.COMPLETED,
        len(K),
        K=(len(times), *K.shape[1:]),
        Q=(len(times), *Q.shape[1:]),
        logs=(len(times),),
    )
    for run, problem in enumerate(problems):
        n = len(problem.z)
        # The loop moves the factors in place: each run gets its own copies.
        K_run = np.array(K[run], float, order="C")
        Q_run = np.array(Q[run], float, order="C")
        raw["status"][run], raw["ended"][run] = loop.run_factors(
            problem,
            rule.numbers(),
            times,
            K_run,
            Q_run,
            raw["K"][run],
            raw["Q"][run],
            raw["logs"][run],
            loop.part(n, *K_run.shape),
            loop.part(n, *Q_run.shape),
        )
    end_where_not_finite(
        raw["status"], raw["ended"], times, [raw["K"], raw["Q"]], [raw["logs"]]
    )
    return _FactoredPath(
        iterations=times,
        W=raw["K"] @ np.swapaxes(raw["Q"], -1, -2),
        log_gap=raw["logs"],
        status=np.array(status.NAMES)[raw["status"]],
        ended=raw["ended"],
        K=raw["K"],
        Q=raw["Q"],
    )
