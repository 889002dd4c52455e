"""Descent on paper B's layer: the update rules, the gradients they take, one loop for
all.

A source is a function of (t, A, B) that returns the loss's gradients of all runs: of
`minibatches`, the `population`, or the mean of fresh batches (`oracle`). Layers are
torch tensors A (rules, seeds, k, d) and B (rules, seeds, d, d).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib import seeds
from lib.regression.empirical import empirical_gradients
from lib.regression.problem import (
    Regression,
    covariance_root,
    excess_loss,
    population_gradients,
    regulariser_gradients,
)
from lib.representation import Shapes

# Of torch's tensors; torch, a second to load, is imported where descent needs it.
Source = Callable[[int, Any, Any], tuple[Any, Any]]
PRECONDITIONERS = ("left", "left_right", "none")
LARGEST = 1e8  # an entry of A or B beyond it counts as divergence


@dataclass(frozen=True)
class PreconditionedRule:
    """A <- A - eta g_A P_r and B <- B - eta P_l g_B P_r, g = grad(L^ + R^), or grad L^
    where not `regularised`. "left" (paper B, Algorithm 1): P_l = Sigma^^{-1}, P_r = I;
    "left_right": both Sigma^^{-1}; "none": both I. ValueError for another
    preconditioner.
    """

    step_size: float
    preconditioner: str = "left"
    regularised: bool = True

    def __post_init__(self):
        if (kind := self.preconditioner) not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {kind!r}"
            )
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be finite and > 0, not {self.step_size}")


def sgd(step_size: float) -> PreconditionedRule:
    """Plain stochastic gradient descent on L^: paper B's baseline."""
    return PreconditionedRule(
        step_size=step_size, preconditioner="none", regularised=False
    )


def library(optimiser: Callable, **options) -> Callable[[float], Callable]:
    """A torch optimiser class on L^: step size -> matrices -> optimiser, as `descend`
    takes it.
    """
    return lambda step_size: (
        lambda matrices: optimiser(matrices, lr=step_size, **options)
    )


def minibatches(
    X: np.ndarray, Y: np.ndarray, batch: int, of_seeds: Sequence[int]
) -> Source:
    """In-sample gradients (Eq. 1) on `batch` samples, drawn anew in each iteration for
    all rules. X (seeds, n, d), Y (seeds, n, k). ValueError unless 1 <= batch <= n.
    """
    import torch

    n = X.shape[1]
    if not 1 <= batch <= n:
        raise ValueError(f"batch is {batch}; it must lie between 1 and n = {n}")
    streams = [seeds.stream(seed, "batches") for seed in of_seeds]
    row = np.arange(len(X))[:, None]

    def gradients(t, A, B):
        # (seeds, batch)
        drawn = np.stack(
            [rng.choice(n, batch, replace=False, shuffle=False) for rng in streams]
        )
        pair = empirical_gradients(X[row, drawn], Y[row, drawn], A.numpy(), B.numpy())
        return tuple(map(torch.from_numpy, pair))

    return gradients


def population(problem: Regression) -> Source:
    """Gradients of the population loss, the limit of infinitely many samples."""
    return lambda t, A, B: population_gradients(problem, A, B)


def oracle(problem: Regression, n: int, draws: int, of_seeds: Sequence[int]) -> Source:
    """E grad L^ over a fresh batch of n samples (paper B, Section 3.1), without bias.

    Estimated from one query each of `draws` batches; the noise eps is averaged out
    exactly. Two control variates are taken out: the gradient for infinitely many keys,
    of mean grad L, and its first-order change with the other keys, of mean zero.
    ValueError for counts < 1.
    """
    import torch

    if min(n, draws) < 1:
        raise ValueError(f"n and draws must be at least 1, not {n} and {draws}")
    streams = [
        torch.Generator().manual_seed(
            int(seeds.stream(seed, "batches").integers(2**62))
        )
        for seed in of_seeds
    ]

    def gradients(t, A, B):
        mean_A, mean_B = population_gradients(problem, A, B)
        for s, stream in enumerate(streams):
            for r in range(len(A)):
                beyond_A, beyond_B = _beyond_population(
                    problem, A[r, s], B[r, s], n, draws, stream
                )
                mean_A[r, s] += beyond_A
                mean_B[r, s] += beyond_B
        return mean_A, mean_B

    return gradients


def _beyond_population(problem, A, B, n, draws, stream):
    """E grad L^ - grad L of one layer: the mean of gradient - its limit - its
    first-order change, over `draws` batches of n keys.

    The limit, for infinitely many keys, and the change with the keys beside the query,
    of mean zero, are control variates. In whitened coordinates: keys g (d, draws, n)
    standard normal, x = Sigma^{1/2} g, key 0 the query, logits g^T u; under the
    weights e^{g^T u} a key has mean u, covariance I.
    """
    import torch

    root = torch.from_numpy(problem.root)  # Sigma^{1/2}
    M = torch.from_numpy(problem.M)
    g = torch.randn(problem.d, draws, n, generator=stream, dtype=A.dtype)
    query = g[:, :, 0].T @ root  # (draws, d)
    u = query @ B @ root  # (draws, d)
    target = query @ M.T  # (draws, k)

    # Softmax weights up to a common factor, (draws, n), of mean 1 but for the query's.
    log_normaliser = (u * u).sum(1, keepdim=True) / 2
    e = torch.exp(_dot(g, u) - log_normaliser)
    total = e.sum(1, keepdim=True)

    # The gradient of each batch.
    c = _mean(e, g) * n / total  # attended mean of the keys, (draws, d)
    error = c @ root @ A.T - target  # (draws, k)
    v = error @ A @ root
    pull = _mean(e * _dot(g, v), g) * n / total
    pull = pull - c * (v * c).sum(1, keepdim=True)

    # Its limit for infinitely many keys.
    limit_error = u @ root @ A.T - target
    limit_v = limit_error @ A @ root

    # Its first-order change with the other keys, of c and of pull.
    e[:, 0] = 0.0  # only the other keys from here on
    mean_weight = e.mean(1, keepdim=True)
    delta_c = _mean(e, g) - u * mean_weight
    limit_slope = _dot(g, limit_v) - (u * limit_v).sum(1, keepdim=True)
    tilted = e * limit_slope
    delta_pull = _mean(tilted, g) - u * tilted.mean(1, keepdim=True)
    delta_pull = delta_pull - limit_v * mean_weight
    delta_pull = delta_pull + delta_c @ root @ A.T @ A @ root

    # What remains of the gradients in A and in B, whitened on the right.
    beyond_A = error.T @ c
    beyond_A = beyond_A - limit_error.T @ (u + delta_c)
    beyond_A = beyond_A - A @ root @ delta_c.T @ u
    beyond_B = query.T @ (pull - limit_v - delta_pull)
    return beyond_A @ root / draws, beyond_B @ root / draws


def _dot(g, w):
    """g_i^T w_q for every draw's own keys: g (d, draws, n), w (draws, d) -> (draws,
    n).
    """
    logits = g[0] * w[:, :1]
    for j in range(1, len(g)):
        logits.addcmul_(g[j], w[:, j : j + 1])
    return logits


def _mean(e, g):
    """Mean over keys of e g: e (draws, n), g (d, draws, n) -> (draws, d)."""
    import torch

    return torch.linalg.vecdot(e, g).T / e.shape[1]


@dataclass(frozen=True, repr=False)
class RegressionHistory(Shapes):
    """Layers at the K recorded iterations: A (seeds, K, k, d), B (seeds, K, d, d), NaN
    from divergence on; diverged (seeds,): the iteration whose step left LARGEST, else
    -1.
    """

    iterations: np.ndarray
    A: np.ndarray
    B: np.ndarray
    diverged: np.ndarray

    def excess(self, problems: Sequence[Regression]) -> np.ndarray:
        """L(Z_t) - min L of each seed's problem, (seeds, K)."""
        layers = zip(problems, self.A, self.B, strict=True)
        return np.stack([excess_loss(*each) for each in layers])


def descend(
    source: Source,
    rules: Mapping[str, PreconditionedRule | Callable],
    starts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    covariance: np.ndarray,
    steps: int,
    record: Sequence[int],
) -> dict[str, RegressionHistory]:
    """Train every rule from its start on every seed, all on the gradients of `source`.

    rules: by name, each a PreconditionedRule or a function from a list of matrices to
    the torch optimiser that moves them; starts: likewise A_0 (seeds, k, d) and B_0
    (seeds, d, d); covariance (seeds, d, d): the Sigma^ of regulariser and
    preconditioner; record: the iterations of 0 ... steps to keep. A run that diverges
    stops, the others go on. ValueError for a missing start, a record outside 0 ...
    steps, a singular covariance.
    """
    import torch

    times = np.unique(record)
    if times[0] < 0 or times[-1] > steps:
        raise ValueError(f"record leaves 0..{steps}: {times[0]}..{times[-1]}")
    if missing := set(rules) - set(starts):
        raise ValueError(f"starts lacks {', '.join(sorted(missing))}")
    pairs = zip(*(starts[name] for name in rules), strict=True)
    A, B = (torch.tensor(np.stack(part)) for part in pairs)
    for Sigma in np.asarray(covariance):
        covariance_root(Sigma, "covariance")  # which raises for a singular one
    movers = [
        _mover(rule, A[r], B[r], covariance) for r, rule in enumerate(rules.values())
    ]
    diverged = torch.full(A.shape[:2], -1)
    kept = {}
    for t in range(steps + 1):
        if t in times:
            kept[t] = A.numpy().copy(), B.numpy().copy()
        if t == steps or (diverged >= 0).all():
            break
        for move, gradient_A, gradient_B in zip(movers, *source(t, A, B), strict=True):
            move(gradient_A, gradient_B)
        size = torch.maximum(A.abs().amax((-1, -2)), B.abs().amax((-1, -2)))
        if not bool((size <= LARGEST).all()):  # catches NaN as well
            gone = ~(size <= LARGEST)
            A[gone], B[gone] = torch.nan, torch.nan
            diverged[gone & (diverged < 0)] = t + 1
    nothing = np.full(A.shape, np.nan), np.full(B.shape, np.nan)
    A_path, B_path = (
        np.stack([kept.get(t, nothing)[part] for t in times], 2) for part in (0, 1)
    )
    return {
        name: RegressionHistory(
            iterations=times, A=A_path[r], B=B_path[r], diverged=diverged[r].numpy()
        )
        for r, name in enumerate(rules)
    }


def _mover(rule, A, B, covariance):
    """A function of gradients that takes the rule's step from A (seeds, k, d), B, in
    place.
    """
    import torch

    if not isinstance(rule, PreconditionedRule):
        matrices = [*A.unbind(), *B.unbind()]  # views: a step moves A and B
        optimiser = rule(matrices)

        def step(g_A, g_B):
            for matrix, g in zip(matrices, [*g_A.unbind(), *g_B.unbind()], strict=True):
                # optimisers that decompose matrices raise on NaN: a diverged one stands
                # still
                matrix.grad = g if bool(matrix.isfinite().all()) else None
            optimiser.step()

        return step
    Sigma = torch.as_tensor(covariance, dtype=A.dtype)
    inverse = torch.as_tensor(np.linalg.inv(covariance), dtype=A.dtype)
    eye = torch.eye(A.shape[-1], dtype=A.dtype)
    left = eye if rule.preconditioner == "none" else inverse
    if rule.preconditioner == "left_right":
        right = inverse
    else:
        right = eye

    def move(g_A, g_B):
        if rule.regularised:
            R_A, R_B = regulariser_gradients(Sigma, A, B)
            g_A = g_A + R_A
            g_B = g_B + R_B
        A.sub_(rule.step_size * g_A @ right)
        B.sub_(rule.step_size * left @ g_B @ right)

    return move
