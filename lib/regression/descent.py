"""Paper B's Algorithm 1 and what it is compared with: gradient sources, update rules, one training
loop.

A source is a function of (t, A, B) that returns gradients of the loss for all runs at once; layers
are torch tensors A (rules, seeds, k, d) and B (rules, seeds, d, d), on any device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib import seeds
from lib.regression import manifold
from lib.regression.problem import (
    Regression,
    empirical_gradients,
    excess_loss,
    population_gradients,
    regulariser_gradients,
)

PRECONDITIONERS = ("left", "left_right", "none")
LARGEST = 1e8  # an entry of A or B beyond it counts as divergence

Source = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class PreconditionedRule:
    """A <- A - eta g_A P_r,  B <- B - eta P_l g_B P_r with g = grad(L^ + R^) or, not regularised,
    grad L^.

    preconditioner "left": P_l = Sigma^^{-1}, P_r = I (paper B, Algorithm 1); "left_right": P_r =
    Sigma^^{-1} as well, gradient descent in the coordinates of the "left_right" norm; "none": both
    I. Raises ValueError for an unknown one.
    """

    step_size: float
    preconditioner: str = "left"
    regularised: bool = True

    def __post_init__(self):
        if self.preconditioner not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {self.preconditioner!r}"
            )
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be finite and > 0, not {self.step_size}")


def sgd(step_size: float) -> PreconditionedRule:
    """Plain stochastic gradient descent on L^: paper B's baseline."""
    return PreconditionedRule(step_size, "none", False)


@dataclass(frozen=True)
class Library:
    """An optimiser from a library, on L^: `make(parameters)` returns a torch optimiser over a list
    of matrices.
    """

    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def library(optimiser: Callable, **options) -> Callable[[float], Library]:
    """Step size -> Library of a torch optimiser class with these options."""
    return lambda step_size: Library(lambda matrices: optimiser(matrices, lr=step_size, **options))


@dataclass(frozen=True)
class RegressionHistory:
    """Layers at the recorded iterations (K,): A (seeds, K, k, d), B (seeds, K, d, d), NaN from
    divergence on.

    diverged (seeds,) is the iteration whose step left the numbers up to LARGEST, -1 where none did.
    """

    iterations: np.ndarray
    A: np.ndarray
    B: np.ndarray
    diverged: np.ndarray

    def excess(self, problems: Sequence[Regression]) -> np.ndarray:
        """L(Z_t) - min L of each seed's problem, (seeds, K)."""
        return np.stack(
            [excess_loss(p, A, B) for p, A, B in zip(problems, self.A, self.B, strict=True)]
        )


def minibatches(
    X: np.ndarray, Y: np.ndarray, batch: int, of_seeds: Sequence[int], device: str = "cpu"
) -> Source:
    """In-sample gradients (Eq. 1) on `batch` samples, drawn anew in each iteration and the same for
    all rules.

    X (seeds, n, d), Y (seeds, n, k). Raises ValueError if batch is not within 1..n.
    """
    n = X.shape[1]
    if not 1 <= batch <= n:
        raise ValueError(
            f"batch is {batch}; it must lie between 1 and the n = {n} samples it is drawn from"
        )
    streams = [seeds.stream(seed, "batches") for seed in of_seeds]
    on_device = device != "cpu"
    x, y = (torch.as_tensor(value, device=device) for value in (X, Y)) if on_device else (X, Y)

    def gradients(t, A, B):
        drawn = np.stack(
            [rng.choice(n, batch, replace=False, shuffle=False) for rng in streams]
        )  # (seeds, batch)
        if on_device:
            row, drawn = (
                torch.arange(len(x), device=x.device)[:, None],
                torch.as_tensor(drawn, device=x.device),
            )
            return empirical_gradients(x[row, drawn], y[row, drawn], A, B)
        row = np.arange(len(x))[:, None]
        found = empirical_gradients(x[row, drawn], y[row, drawn], A.numpy(), B.numpy())
        return tuple(torch.from_numpy(part) for part in found)

    return gradients


def population(problem: Regression) -> Source:
    """Gradients of the population loss, the limit of infinitely many samples."""
    return lambda t, A, B: population_gradients(problem, A, B)


def oracle(problem: Regression, n: int, draws: int, of_seeds: Sequence[int]) -> Source:
    """E grad L^ over a fresh batch of n samples (paper B, Section 3.1), estimated from `draws` of
    them, without bias.

    All queries of a batch have one law, so one query per batch has the right mean; the noise eps
    enters linearly and is averaged out exactly. Control variates with known means are the same
    gradient for infinitely many keys, whose mean is grad L, and its first-order change with the
    other keys, whose mean is zero: what is left to estimate is of order 1/n, like the bias grad L^
    - grad L itself. Raises ValueError unless n, draws >= 1.
    """
    if min(n, draws) < 1:
        raise ValueError(f"n and draws must be at least 1, not {n} and {draws}")
    streams = [
        torch.Generator().manual_seed(int(seeds.stream(seed, "batches").integers(2**62)))
        for seed in of_seeds
    ]

    def gradients(t, A, B):
        mean_A, mean_B = population_gradients(problem, A, B)
        for s, stream in enumerate(streams):
            for r in range(len(A)):
                beyond_A, beyond_B = _beyond_population(problem, A[r, s], B[r, s], n, draws, stream)
                mean_A[r, s] += beyond_A
                mean_B[r, s] += beyond_B
        return mean_A, mean_B

    return gradients


def _beyond_population(problem, A, B, n, draws, stream):
    """An estimate of E grad L^ - grad L: the mean of gradient - its limit - its first-order change
    with the keys.

    In whitened coordinates: keys g (d, draws, n) standard normal, x = Sigma^{1/2} g, key 0 the
    query, logits g^T u; under the weights e^{g^T u} a key has mean u and covariance I.
    """
    root, M = (torch.from_numpy(part) for part in (problem.root, problem.M))
    g = torch.randn(problem.d, draws, n, generator=stream, dtype=A.dtype)
    query = g[:, :, 0].T @ root  # (draws, d)
    u = query @ B @ root
    e = torch.exp(
        _dot(g, u) - (u * u).sum(1, keepdim=True) / 2
    )  # (draws, n), of mean 1 but for the query's
    total = e.sum(1, keepdim=True)
    c = _mean(e, g) * n / total  # (draws, d)
    error, limit_error = c @ root @ A.T - query @ M.T, u @ root @ A.T - query @ M.T  # (draws, k)
    v, limit_v = error @ A @ root, limit_error @ A @ root
    pull = _mean(e * _dot(g, v), g) * n / total - c * (v * c).sum(1, keepdim=True)

    e[:, 0] = 0.0  # only the other keys from here on
    delta = _mean(e, g) - u * e.mean(1, keepdim=True)  # first-order change of c
    tilted = e * (_dot(g, limit_v) - (u * limit_v).sum(1, keepdim=True))
    change = _mean(tilted, g) - u * tilted.mean(1, keepdim=True) - limit_v * e.mean(1, keepdim=True)
    change += delta @ root @ A.T @ A @ root
    beyond_A = error.T @ c - limit_error.T @ (u + delta) - A @ root @ delta.T @ u
    return beyond_A @ root / draws, query.T @ (pull - limit_v - change) @ root / draws


def _dot(g, w):
    """g_i^T w_q for every draw's own keys: g (d, draws, n), w (draws, d) -> (draws, n)."""
    return sum(g[j] * w[:, j : j + 1] for j in range(len(g)))


def _mean(e, g):
    """Mean over keys of e g: e (draws, n), g (d, draws, n) -> (draws, d)."""
    return torch.stack([(e * plane).mean(1) for plane in g], 1)


def descend(
    source: Source,
    rules: Mapping[str, PreconditionedRule | Library],
    starts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    covariance: np.ndarray,
    steps: int,
    record: Sequence[int],
    device: str = "cpu",
) -> dict[str, RegressionHistory]:
    """Train every rule from its start on every seed, `steps` iterations, all on the gradients of
    `source`.

    starts: per rule A_0 (seeds, k, d) and B_0 (seeds, d, d); covariance (seeds, d, d) is the Sigma^
    of regulariser and preconditioner. A run that diverges stops there and says so in its History;
    the others go on. Raises ValueError for a missing start, an iteration to record outside
    0..steps, or a singular covariance.
    """
    record = np.unique(record)
    if record[0] < 0 or record[-1] > steps:
        raise ValueError(
            f"record must lie within 0..{steps}, it runs from {record[0]} to {record[-1]}"
        )
    if missing := set(rules) - set(starts):
        raise ValueError(f"starts lacks {', '.join(sorted(missing))}")
    A, B = (
        torch.tensor(np.stack([starts[name][part] for name in rules]), device=device)
        for part in (0, 1)
    )
    update = _Update(list(rules.values()), A, B, covariance)
    diverged = torch.full(A.shape[:2], -1)
    kept = {}
    for t in range(steps + 1):
        if t in record:
            kept[t] = A.cpu().numpy().copy(), B.cpu().numpy().copy()
        if t == steps or (diverged >= 0).all():
            break
        update(*source(t, A, B))
        size = torch.maximum(A.abs().amax((-1, -2)), B.abs().amax((-1, -2)))
        if not bool((size <= LARGEST).all()):  # catches NaN as well
            gone = ~(size <= LARGEST)
            A[gone], B[gone] = torch.nan, torch.nan
            diverged[(gone.cpu()) & (diverged < 0)] = t + 1
    nothing = np.full(A.shape, np.nan), np.full(B.shape, np.nan)
    A_path, B_path = (np.stack([kept.get(t, nothing)[part] for t in record], 2) for part in (0, 1))
    return {
        name: RegressionHistory(record, A_path[r], B_path[r], diverged[r].numpy())
        for r, name in enumerate(rules)
    }


class _Update:
    """Applies every rule's step in place: own rules as one formula, library optimisers on views of
    A and B.
    """

    def __init__(self, rules, A, B, covariance):
        self.A, self.B = A, B
        own = [r for r, rule in enumerate(rules) if isinstance(rule, PreconditionedRule)]
        self.own = torch.tensor(own, device=A.device)
        self.library = []
        for r, rule in enumerate(rules):
            if not isinstance(rule, PreconditionedRule):
                matrices = [*A[r].unbind(), *B[r].unbind()]  # views: a step moves A and B
                self.library.append((r, matrices, rule.make(matrices)))
        self.Sigma = torch.as_tensor(covariance, dtype=A.dtype, device=A.device)
        inverse = np.stack([np.linalg.inv(_regular(S)) for S in np.asarray(covariance)])
        inverse = torch.as_tensor(inverse, dtype=A.dtype, device=A.device)
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(inverse)
        chosen = [rules[r] for r in own]
        self.left = [eye if rule.preconditioner == "none" else inverse for rule in chosen]
        self.right = [inverse if rule.preconditioner == "left_right" else eye for rule in chosen]
        if chosen:
            self.left, self.right = (
                torch.stack(self.left),
                torch.stack(self.right),
            )  # (own, seeds, d, d)
            column = dict(dtype=A.dtype, device=A.device)
            self.step = torch.tensor([rule.step_size for rule in chosen], **column)[
                :, None, None, None
            ]
            self.weight = torch.tensor([float(rule.regularised) for rule in chosen], **column)[
                :, None, None, None
            ]

    def __call__(self, gradient_A, gradient_B):
        if len(self.own):
            A, B = self.A[self.own], self.B[self.own]
            reg_A, reg_B = regulariser_gradients(self.Sigma, A, B)
            g_A, g_B = (
                gradient_A[self.own] + self.weight * reg_A,
                gradient_B[self.own] + self.weight * reg_B,
            )
            self.A[self.own] = A - self.step * g_A @ self.right
            self.B[self.own] = B - self.step * self.left @ g_B @ self.right
        for r, matrices, optimiser in self.library:
            for matrix, g in zip(
                matrices, [*gradient_A[r].unbind(), *gradient_B[r].unbind()], strict=True
            ):
                # optimisers that decompose matrices raise on NaN: one that has diverged stands
                # still
                matrix.grad = g if bool(matrix.isfinite().all()) else None
            optimiser.step()


def _regular(Sigma):
    manifold.covariance_root(Sigma, "covariance")
    return Sigma


def modes(problem: Regression, preconditioner: str = "left") -> tuple[np.ndarray, np.ndarray]:
    """Rates lambda (modes,), ascending, and directions (modes, k + d, d) of P grad(L + R) around a
    minimum.

    The d (d - 1) / 2 rotations, of rate zero, are left out. With step eta a mode of Z_t - Z_pi
    shrinks by 1 - eta lambda an iteration on the population loss, so the excess loss falls in the
    end like (1 - eta lambda_min)^{2t}. Raises ValueError for an unknown preconditioner.
    """
    if preconditioner not in PRECONDITIONERS:
        raise ValueError(f"preconditioner must be one of {PRECONDITIONERS}, not {preconditioner!r}")
    k, d = problem.k, problem.d
    Z, reach = manifold.of(problem).point(), 1e-5
    basis = np.eye((k + d) * d).reshape(-1, k + d, d)
    above, below = (manifold.gradient(problem, Z + sign * reach * basis) for sign in (1, -1))
    slope = (above - below) / (2 * reach)
    inverse = np.linalg.inv(problem.Sigma)
    if preconditioner != "none":
        slope[:, k:] = inverse @ slope[:, k:]
    if preconditioner == "left_right":
        slope = slope @ inverse
    rates, vectors = np.linalg.eig(slope.reshape(len(slope), -1).T)
    order = np.argsort(rates.real)[d * (d - 1) // 2 :]
    return rates.real[order], vectors.real.T[order].reshape(-1, k + d, d)
