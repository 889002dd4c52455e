"""Where descent takes its gradients from: minibatches, the population, the mean of fresh batches.

A source is a function of (t, A, B) that returns gradients of the loss for all runs at once; layers
are torch tensors A (rules, seeds, k, d) and B (rules, seeds, d, d), on any device.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lib import seeds
from lib.regression.empirical import empirical_gradients
from lib.regression.losses import population_gradients
from lib.regression.problem import Regression

if TYPE_CHECKING:
    import torch

Source = Callable[[int, "torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]


def minibatches(
    X: np.ndarray, Y: np.ndarray, batch: int, of_seeds: Sequence[int], device: str = "cpu"
) -> Source:
    """In-sample gradients (Eq. 1) on `batch` samples, drawn anew in each iteration.

    All rules see the same draw. X (seeds, n, d), Y (seeds, n, k). Raises ValueError if batch is not
    within 1..n.
    """
    import torch

    n = X.shape[1]
    if not 1 <= batch <= n:
        raise ValueError(
            f"batch is {batch}; it must lie between 1 and the n = {n} samples it is drawn from"
        )
    streams = [seeds.stream(seed, "batches") for seed in of_seeds]
    on_device = device != "cpu"
    x, y = (torch.as_tensor(value, device=device) for value in (X, Y)) if on_device else (X, Y)

    def gradients(t, A, B):
        # (seeds, batch)
        drawn = np.stack([rng.choice(n, batch, replace=False, shuffle=False) for rng in streams])
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
    """E grad L^ over a fresh batch of n samples (paper B, Section 3.1), without bias.

    It is estimated from `draws` batches. All queries of a batch have one law, so one query per
    batch has the right mean; the noise eps enters linearly and is averaged out exactly.

    Two control variates with known means are taken out. One is the same gradient for infinitely
    many keys, whose mean is grad L; the other its first-order change with the other keys, whose
    mean is zero. What is left to estimate is of order 1/n, like the bias E grad L^ - grad L itself.
    Raises ValueError unless n, draws >= 1.
    """
    import torch

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
    """An estimate of E grad L^ - grad L.

    It is the mean of gradient - its limit - its first-order change with the keys.

    In whitened coordinates: keys g (d, draws, n) standard normal, x = Sigma^{1/2} g, key 0 the
    query, logits g^T u; under the weights e^{g^T u} a key has mean u and covariance I.
    """
    import torch

    root, M = (torch.from_numpy(part) for part in (problem.root, problem.M))
    g = torch.randn(problem.d, draws, n, generator=stream, dtype=A.dtype)
    query = g[:, :, 0].T @ root  # (draws, d)
    u = query @ B @ root
    # (draws, n), of mean 1 but for the query's
    e = torch.exp(_dot(g, u) - (u * u).sum(1, keepdim=True) / 2)
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
    found = g[0] * w[:, :1]
    for j in range(1, len(g)):
        found.addcmul_(g[j], w[:, j : j + 1])
    return found


def _mean(e, g):
    """Mean over keys of e g: e (draws, n), g (d, draws, n) -> (draws, d)."""
    import torch

    return torch.linalg.vecdot(e, g).T / e.shape[1]
