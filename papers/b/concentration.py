"""Sums over softmax weights, starts and moments of paper B's appendix, by Monte Carlo.

Each function returns values over a range of sample sizes n, whose exponents in n are the claims.
In whitened coordinates: keys g ~ N(0, I), one of them the query, logits g^T u with u = Sigma^{1/2}
B^T x = L^T Sigma^{-1/2} x, L = Sigma^{1/2} B Sigma^{1/2}.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from lib import seeds
from lib.companion.claims import Claim, close, interval
from lib.regression import Regression, manifold, regulariser_gradients

PART = 2_000_000  # numbers drawn at a time; the draws are those of one large array


def _draws(rng, draws, n, d):
    """Standard normal samples, (draws, n, d), some draws after the other."""
    size = max(1, PART // (n * d))
    for start in range(0, draws, size):
        yield rng.standard_normal((min(size, draws - start), n, d))


def softmax_sums(
    u: np.ndarray, query: np.ndarray, sizes: Sequence[int], draws: int, seed: int = 0
) -> dict:
    """Softmax sums at the `query` (d,), the first of n keys, `draws` times for each n of `sizes`.

    u (d,) gives the logits; the other keys are standard normal. {"weight": n s_1, the query's own,
    "mean": c = sum s_i g_i, "outer": c c^T, "covariance": C = sum s_i g_i (g_i - c)^T, and "mean
    bias", "outer bias", "covariance bias": these less their limits u, u u^T, I and less their
    first-order change with the other keys, whose mean is zero}: lists over `sizes` of (draws, ...).

    A bias has the quantity's own bias as its mean and a spread of that order 1/n, where the
    quantities themselves spread like n^{-1/2}.
    """
    rng, sums = seeds.stream(seed, "draws"), {}
    for n in sizes:
        parts = [_sums(u, query, g) for g in _draws(rng, draws, n, len(u))]
        for name in parts[0]:
            sums.setdefault(name, []).append(np.concatenate([part[name] for part in parts]))
    return sums


def _sums(u, query, g):
    """`softmax_sums` of some draws of keys g (draws, n, d), whose first becomes the query."""
    g[:, 0] = query
    n, square, limit = g.shape[1], lambda v: v[:, :, None] * v[:, None], np.eye(len(u))
    e = np.exp(g @ u - u @ u / 2)  # of mean 1, under which a key has mean u and covariance I
    over = e.mean(1)[:, None]
    s = e / (n * over)  # (draws, n)
    c = (s[:, None] @ g)[:, 0]
    second = (g * s[..., None]).swapaxes(1, 2) @ g
    # value - limit less its first-order change is share + (1 - over) (value - limit), where share
    # is the query's part of sum_i e_i (value_i - limit) / n
    share = e[0, 0] / n
    mean_bias = share * (query - u) + (1 - over) * (c - u)
    outer_bias = square(c - u) + u[:, None] * mean_bias[:, None] + mean_bias[:, :, None] * u
    away = second - limit - np.outer(u, u)
    of_query = share * (np.outer(query, query) - limit - np.outer(u, u))
    return {
        "weight": n * s[:, 0],
        "mean": c,
        "outer": square(c),
        "covariance": second - square(c),
        "mean bias": mean_bias,
        "outer bias": outer_bias,
        "covariance bias": of_query + (1 - over[..., None]) * away - outer_bias,
    }


def integrated(
    L: np.ndarray, sizes: Sequence[int], queries: int, draws: int, repeats: int = 10
) -> dict[str, np.ndarray]:
    """Theorem 4's integrals over the query g ~ N(0, I), u = L^T g: (repeats, sizes) by name.

    "mean": E |g|^2 |E[c | g] - u|^2, "outer": E |E[c c^T | g] - u u^T|^2, "covariance": E |E[C | g]
    - I|^4. The square of a mean is the inner product of two independent estimates of it, each from
    `draws` sets of keys, so that noise does not add to it.
    """
    powers = {name: np.empty((queries, len(sizes))) for name in ("mean", "outer", "covariance")}
    for q in range(queries):
        query = seeds.stream(q, "start").standard_normal(len(L))
        sums = softmax_sums(L.T @ query, query, sizes, 4 * draws, q)
        for name, values in powers.items():
            for j, bias in enumerate(sums[f"{name} bias"]):
                four = bias.reshape(4, draws, -1).mean(1)
                square = four[:2].mean(0) @ four[2:].mean(0)
                fourth = (four[0] @ four[1]) * (four[2] @ four[3])
                size = query @ query if name == "mean" else 1.0
                values[q, j] = fourth if name == "covariance" else size * square
    return {
        name: np.array([part.mean(0) for part in np.array_split(values, repeats)])
        for name, values in powers.items()
    }


def leading(
    id: str, text: str, source: str, sizes, values, expected: float, since=0, tolerance=0.05
) -> Claim:
    """The a of values (repeats, sizes) = C n^a (1 + b/n), with its interval over repeats.

    log n and 1/n by regression, from the sizes `since` on, three at least. With a = -1 this is the
    fit of C/n + C b/n^2, up to higher orders of b/n.
    """
    n = np.asarray(sizes, float)
    late = n >= since
    known = np.column_stack([np.ones_like(n), np.log(n), 1 / n])[late]
    logarithms = np.log(np.atleast_2d(values)[:, late]).T
    exponents = np.linalg.lstsq(known, logarithms, rcond=None)[0][1]
    ends = interval(exponents) if len(exponents) > 1 else None
    text = f"exponent of {text} in n, the next order C/n taken out"
    return close(id, text, source, exponents.mean(), expected, tolerance, interval=ends)


def _of_parts(values, measure):
    """`measure` of the draws of each size in ten parts, (parts, draws, ...): (parts, sizes)."""
    parts = ([v[r::10][: len(v) // 10] for r in range(10)] for v in values)
    return np.array([measure(np.stack(part)) for part in parts]).T


def variances(values: list[np.ndarray]) -> np.ndarray:
    """E||v - E v||^2 of each size's draws, (10 parts, sizes)."""
    return _of_parts(values, lambda part: part.var(1).reshape(10, -1).sum(1))


def biases(values: list[np.ndarray]) -> np.ndarray:
    """||E v|| of each size's draws, (10 parts, sizes)."""
    return _of_parts(values, lambda part: np.linalg.norm(part.mean(1).reshape(10, -1), axis=1))


def moments(values: list[np.ndarray], power: float) -> np.ndarray:
    """E|v|^power of each size's draws of a number, (10 parts, sizes)."""
    return _of_parts(values, lambda part: (np.abs(part) ** power).mean(1))


def least_squares_errors(problem: Regression, sizes: Sequence[int], draws: int) -> np.ndarray:
    """||(M^ - M) Sigma^{1/2}||^2 over its mean k noise^2 d / (n - d - 1), (draws, sizes)."""
    squares = np.empty((draws, len(sizes)))
    for r in range(draws):
        rng = seeds.stream(r, "draws")
        for j, n in enumerate(sizes):
            estimate = manifold.estimate(*problem.sample(n, rng))
            squares[r, j] = np.linalg.norm((estimate.M - problem.M) @ problem.root) ** 2
    mean = problem.k * problem.noise**2 * problem.d / (np.array(sizes) - problem.d - 1)
    return squares / mean


def perturbed_starts(problem: Regression, sizes: Sequence[float], draws: int) -> np.ndarray:
    """Distance to the minima of the start for Sigma + s S and M + s N, (draws, sizes).

    S and N have size 1, s is each of `sizes`.
    """
    space, distances = manifold.of(problem), np.empty((draws, len(sizes)))
    for r in range(draws):
        rng = seeds.stream(r, "draws")
        S, N = rng.standard_normal((problem.d, problem.d)), rng.standard_normal(problem.M.shape)
        S = (S + S.T) / np.linalg.norm(S + S.T, 2)
        N /= np.linalg.norm(N, 2)
        for j, s in enumerate(sizes):
            near = manifold.Manifold(problem.Sigma + s * S, problem.M + s * N)
            distances[r, j] = space.distance(near.point())
    return distances


def regulariser_bias(
    problem: Regression, Z: np.ndarray, sizes: Sequence[int], draws: int, repeats: int, seed: int
) -> np.ndarray:
    """E grad R^(Z) - grad R(Z), R^ with X^T X / n, (repeats, sizes, k + d, d).

    R^'s first-order change with X^T X / n, whose mean is zero, is taken out.
    """
    rng, bias = seeds.stream(seed, "draws"), np.empty((repeats, len(sizes), *Z.shape))
    A, B = Z[: problem.k], Z[problem.k :]

    def gradient(Sigma):
        return np.concatenate(regulariser_gradients(Sigma, A, B), -2)

    for r, (j, n) in itertools.product(range(repeats), enumerate(sizes)):
        total = 0.0
        for g in _draws(rng, draws, n, problem.d):
            X, step = g @ problem.root, 1e-4
            off = X.swapaxes(1, 2) @ X / n - problem.Sigma
            sides = (gradient(problem.Sigma + sign * step * off) for sign in (1, -1))
            linear = np.subtract(*sides) / (2 * step)
            total += (gradient(problem.Sigma + off) - gradient(problem.Sigma) - linear).sum(0)
        bias[r, j] = total / draws
    return bias
