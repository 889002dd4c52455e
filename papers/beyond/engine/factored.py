"""Keys and queries trained in place of W = K Q^T, by rules that see the coordinates, compiled.

Margins and softmax are those of `gradients`: each sample's part of the gradient keeps a logarithm
of its own, -grad_W L = sum_i e^{s_i} b_i z_i^T. The chain rule keeps that form,

    -grad_K L = sum_i e^{s_i} b_i (Q^T z_i)^T,    -grad_Q L = sum_i e^{s_i} z_i (K^T b_i)^T.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import apart, status
from lib.dynamics.recording import end_where_not_finite, record_times, unwritten
from lib.representation import Shapes
from lib.seeds import stream
from papers.beyond.engine import factored_loop, gradients
from papers.beyond.engine import update as o
from papers.beyond.engine.update import Optimiser

KINDS = (o.ENTRYWISE, o.SPECTRAL, o.ADAPTIVE, o.SIGN)


@dataclass(frozen=True, repr=False)
class FactoredPath(Shapes):
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    K (runs, k, d, m), Q (runs, k, d_z, m); log_gap (runs, k), log(L - L*); status and ended (runs,)
    as in `training.Path`; "stalled" also where no factor moves, as from K = Q = 0.
    """

    optimiser: Optimiser
    iterations: np.ndarray
    K: np.ndarray
    Q: np.ndarray
    log_gap: np.ndarray
    status: np.ndarray
    ended: np.ndarray

    @property
    def W(self) -> np.ndarray:
        """K Q^T, (runs, k, d, d_z)."""
        return self.K @ np.swapaxes(self.Q, -1, -2)


def small_start(tokens: TokenSet, seeds: Sequence[int], m: int, size: float = 0.01):
    """K (runs, d, m) and Q (runs, d_z, m), entries Gaussian of deviation size / sqrt(m).

    ValueError for m < 1 and unless there is one seed per run.
    """
    runs, _, _, d = tokens.shape
    if m < 1 or len(seeds) != runs:
        raise ValueError(f"m = {m} and {len(seeds)} seeds; it needs m >= 1 and {runs} seeds")
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
) -> dict[str, FactoredPath]:
    """Minimise paper A's loss over (K, Q), W = K Q^T, head fixed; every rule acts on each factor.

    K (runs, d, m), Q (runs, d_z, m): the start; K = Q = 0 is a saddle at which both gradients
    vanish, and a run from there is "stalled" at once. record: iterations, ascending.

    loss: "exponential" or "logistic".

    Raises ValueError for another loss, factors that do not fit or are not finite, for
    momentum of polar factors, Shampoo, SOAP and other rules of matrices, batches, blocks and radii.
    """
    logistic = attention.is_logistic(loss)
    check_sizes(tokens)
    runs, _, _, d = tokens.shape
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        if value.ndim != 3 or value.shape != (runs, width, K.shape[-1]) or not value.shape[-1]:
            raise ValueError(
                f"{name} has shape {value.shape}; it needs {(runs, width, K.shape[-1])}"
            )
        if not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinite values")
    for name, one in optimisers.items():
        more = one.batch or one.blocks > 1 or one.radius < math.inf
        if one.kind not in KINDS or more or (one.kind == o.SPECTRAL and one.momentum):
            raise ValueError(f"{name}: factors take plain rules without matrix moments and batches")
    times = record_times(record, max(record))
    problem = _problems(tokens, logistic)
    return {name: _trained(problem, one, times, K, Q) for name, one in optimisers.items()}


def _problems(tokens, logistic):
    delta = np.ascontiguousarray(coordinates.differences(tokens, tokens.opt))
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]  # (runs, n, T, 1)
    scores = np.ascontiguousarray(np.swapaxes(scores[..., 0], 1, 2))
    z = np.ascontiguousarray(tokens.z)
    return [gradients.Problem(*own, logistic) for own in zip(delta, z, scores, strict=True)]


def _trained(problems, rule, times, K, Q):
    """One rule on every run."""
    shapes = {"K": (len(times), *K.shape[1:]), "Q": (len(times), *Q.shape[1:])}
    raw = unwritten(status.COMPLETED, len(K), **shapes, logs=(len(times),))
    for run, problem in enumerate(problems):
        factors = [np.ascontiguousarray(part[run], float).copy() for part in (K, Q)]
        records = factored_loop.Records(raw["K"][run], raw["Q"][run], raw["logs"][run])
        raw["status"][run], raw["ended"][run] = apart.call(
            factored_loop.run_job, problem, rule.numbers(), times, *factors, records
        )
    end_where_not_finite(raw["status"], raw["ended"], times, [raw["K"], raw["Q"]], [raw["logs"]])
    return FactoredPath(
        optimiser=rule,
        iterations=times,
        K=raw["K"],
        Q=raw["Q"],
        log_gap=raw["logs"],
        status=np.array(status.NAMES)[raw["status"]],
        ended=raw["ended"],
    )
