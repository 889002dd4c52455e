"""Keys and queries trained in place of W = K Q^T, by rules that see the coordinates, compiled.

Margins and softmax are those of `lib.ambient`: each sample's part of the gradient keeps a logarithm
of its own, -grad_W L = sum_i e^{s_i} b_i z_i^T. The chain rule keeps that form,

    -grad_K L = sum_i e^{s_i} b_i (Q^T z_i)^T,    -grad_Q L = sum_i e^{s_i} z_i (K^T b_i)^T.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from lib.ambient import entrywise, graded_svd, gradients, scaled, spectral
from lib.ambient import update as o
from lib.ambient.update import Optimiser
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import softmax, status
from lib.compiled.cache import stamp
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from lib.dynamics.recording import record_times, unwritten
from lib.representation import Facts, counts, last, span
from lib.seeds import stream

SOURCES = stamp(__file__)
KINDS = (o.ENTRYWISE, o.SPECTRAL, o.ADAPTIVE, o.SIGN)


@dataclass(frozen=True, repr=False)
class FactoredPath(Facts):
    """What was recorded of each run at `iterations` (k,); entries after a run's early end are NaN.

    K (runs, k, d, m), Q (runs, k, d_z, m); log_gap (runs, k), log(L - L*); status and ended (runs,)
    as in `lib.ambient.training.Path`; "stalled" also where no factor moves, as from K = Q = 0.
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

    def facts(self) -> list[tuple[str, str]]:
        runs, records, d, m = self.K.shape
        return [
            ("runs", str(runs)),
            ("K, Q", f"{d} x {m}, {self.Q.shape[2]} x {m}"),
            ("records", f"{records}, t = {self.iterations[0]} to {self.iterations[-1]}"),
            ("ended", counts(self.status)),
            ("last log(L - L*)", span(last(self.log_gap))),
        ]


def small_start(tokens: TokenSet, seeds: Sequence[int], m: int, size: float = 0.01):
    """K (runs, d, m) and Q (runs, d_z, m), entries Gaussian of deviation size / sqrt(m)."""
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

    Raises ValueError for factors that do not fit the tokens or each other or are not finite, for
    momentum of polar factors, Shampoo, SOAP and other rules of matrices, batches, blocks and radii.
    """
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
    problem = _problems(tokens, loss == "logistic")
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
        records = Records(raw["K"][run], raw["Q"][run], raw["logs"][run])
        raw["status"][run], raw["ended"][run] = run_job(
            problem, rule.numbers(), times, *factors, records
        )
    return FactoredPath(
        optimiser=rule,
        iterations=times,
        K=raw["K"],
        Q=raw["Q"],
        log_gap=raw["logs"],
        status=np.array(status.NAMES)[raw["status"]],
        ended=raw["ended"],
    )


class Records(NamedTuple):
    """What training fills at each of the k times: K (k, d, m), Q (k, d_z, m), logs (k,)."""

    K: np.ndarray
    Q: np.ndarray
    logs: np.ndarray


class Side(NamedTuple):
    """One factor's gradient as a graded sum over rows `z` (n, m), and what its rule keeps."""

    graded: gradients.Graded
    z: np.ndarray
    G: np.ndarray
    D: np.ndarray
    kept: entrywise.Moments
    work: np.ndarray
    space: graded_svd.Space


@numba.njit
def _side(n, d, m):
    return Side(
        graded=gradients.empty(n, d),
        z=np.zeros((n, m)),
        G=np.zeros((d, m)),
        D=np.zeros((d, m)),
        kept=entrywise.no_moments(d * m),
        work=np.zeros((2, d * m)),
        space=graded_svd.space(n, d, m),
    )


@numba.njit
def chain(graded, z, K, Q, of_K, of_Q):
    """Fill both sides' graded gradients from -grad_W L = sum_i e^{s_i} b_i z_i^T."""
    n, m = len(z), K.shape[1]
    for i in range(n):
        entrywise.copy(graded.b[i], of_K.graded.b[i])
        entrywise.copy(z[i], of_Q.graded.b[i])
        of_K.graded.logs[i] = of_Q.graded.logs[i] = graded.logs[i]
        for k in range(m):
            of_K.z[i, k] = of_Q.z[i, k] = 0.0
            for j in range(len(Q)):
                of_K.z[i, k] += Q[j, k] * z[i, j]
            for j in range(len(K)):
                of_Q.z[i, k] += K[j, k] * graded.b[i, j]
    gradients.unit(of_Q.graded)


@numba.njit
def _direction(rule, t, s):
    """Fill s.D; returns the log of the factor that it lacks, -inf where nothing moves."""
    kind, normalised = int(rule[o.KIND]), rule[o.NORMALISED] != 0.0
    if kind == o.SPECTRAL:
        value = spectral.direction(s.graded, s.z, rule, s.space, s.D)
        return 0.0 if normalised and value > -math.inf else value
    top = gradients.dense(s.graded, s.z, s.G)
    G, D = s.G.ravel(), s.D.ravel()
    if kind == o.ENTRYWISE:
        value = entrywise.steepest(G, top, rule[o.P], s.work, D)
        return 0.0 if normalised and value > -math.inf else value
    if kind == o.ADAPTIVE:
        return entrywise.adaptive(rule, t, G, top, s.kept, D)
    first, logs = s.kept.first, s.kept.logs
    value, logs[0] = entrywise.sign_momentum(rule, G, top, first, logs[0], D)
    return value


@numba.njit
def _move(factor, D, step):
    """factor += e^step D; returns log of its largest entry, at least 0."""
    length = math.exp(step)
    for j in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            factor[j, k] += length * D[j, k]
    return math.log(max(scaled.largest(factor.ravel()), 1.0))


@numba.njit(nogil=True, cache=True)
def run_job(problem, rule, times, K, Q, records, sources=SOURCES):
    """Train one run: K and Q are moved in place, `records` filled; (status, last iteration)."""
    n, S, d = problem.delta.shape
    work, image = softmax.empty_lanes(S + 1, n), np.zeros(d)
    for token in range(S + 1):
        for i in range(n):
            work.scores[token, i] = problem.scores[token, i]
    scales, graded = np.zeros((2, n)), gradients.empty(n, d)
    of_K, of_Q, record = _side(n, d, K.shape[1]), _side(n, len(Q), K.shape[1]), 0
    for t in range(times[-1] + 1):
        gradients.margins(problem, K @ Q.T, image, work.margins)
        softmax.slopes(work, 1, problem.logistic, True, scales)
        gradients.pulls(problem, work.c, scales[0], graded)
        if times[record] == t:
            records.K[record], records.Q[record] = K, Q
            records.logs[record] = softmax.log_gap(0, n, work, problem.logistic, True)
            record += 1
        if record == times.size:
            break
        chain(graded, problem.z, K, Q, of_K, of_Q)
        a, b = _direction(rule, t, of_K), _direction(rule, t, of_Q)
        if max(a, b) == -math.inf:
            return STALLED, t
        more = rule[o.STEP] - rule[o.DECAY] * math.log(t + 1.0)
        if not max(a, b) + more < LONGEST:  # false for NaN
            return DIVERGED, t
        if not max(_move(K, of_K.D, a + more), _move(Q, of_Q.D, b + more)) <= LONGEST / 2:
            return DIVERGED, t + 1
    return COMPLETED, times[-1]
