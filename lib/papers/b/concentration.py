"""What paper B's appendix says of sums over softmax weights, starts and moments, by Monte Carlo.

Each function returns values over a range of sample sizes n, whose exponents in n are the claims.
In whitened coordinates: keys g ~ N(0, I), logits g^T u, u = Sigma^{1/2} B^T x for a fixed query.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import expm
from scipy.optimize import minimize

from lib import seeds
from lib.regression import Regression, manifold, regulariser_gradients

PART = 2_000_000  # numbers drawn at a time; the draws are those of one large array


def _draws(rng, draws, n, d):
    """Standard normal samples, (draws, n, d), some draws after the other."""
    most = max(1, PART // (n * d))
    for first in range(0, draws, most):
        yield rng.standard_normal((min(most, draws - first), n, d))


def softmax_sums(u: np.ndarray, sizes: Sequence[int], draws: int, seed: int = 0) -> dict:
    """Softmax sums at the query u (d,) over n standard normal keys, `draws` times for each n.

    {"mean": c = sum s_i g_i, "second": sum s_i g_i g_i^T, "squared": n sum s_i^2 g_i, "outer": c
    c^T, "weight": n s_1 given g_1 = u/2, "mean bias", "second bias": the first two less their
    limits and less their first-order change with the keys, whose mean is zero}: lists over `sizes`
    of (draws, ...).

    The last two have the bias as their mean and a spread of its own order 1/n, where the quantities
    themselves spread like n^{-1/2}: 100,000 draws left a quarter of the bias at n = 100 as noise.
    """
    rng, found = seeds.stream(seed, "draws"), []
    for n in sizes:
        parts = [_sums(u, g) for g in _draws(rng, draws, n, len(u))]
        found.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return {name: [of_size[name] for of_size in found] for name in found[0]}


def _sums(u, g):
    """`softmax_sums` of some draws of keys g (draws, n, d), (draws, ...) by name."""
    n, one = g.shape[1], np.exp(u @ u / 2)
    e = np.exp(g @ u)
    s = e / e.sum(1, keepdims=True)  # (draws, n)
    c = np.einsum("rn,rnd->rd", s, g)
    second = np.einsum("rn,rnd,rne->rde", s, g, g, optimize=True)
    over = e.mean(1) / one  # sum_i e_i f(g_i) / (n E e) is `over` times the softmax mean of f
    return {
        "mean": c,
        "second": second,
        "squared": n * np.einsum("rn,rnd->rd", s**2, g),
        "outer": np.einsum("rd,re->rde", c, c),
        "weight": n * one / (one + e[:, 1:].sum(1)),
        # value - limit - over (value - limit)
        "mean bias": (1 - over)[:, None] * (c - u),
        "second bias": (1 - over)[:, None, None] * (second - np.eye(len(u)) - np.outer(u, u)),
    }


def variances(values: list[np.ndarray], halves: int = 10) -> np.ndarray:
    """E||v - E v||^2 of each size, (repeats, sizes), its draws cut into `halves` repeats."""
    parts = [np.stack(np.array_split(v, halves)[:halves]) for v in values]
    return np.array([[part.var(0).sum() for part in cut] for cut in parts]).T


def biases(values: list[np.ndarray], halves: int = 10) -> np.ndarray:
    """||E v|| of each size's values, (repeats, sizes), the draws cut into `halves` repeats."""
    parts = [np.stack(np.array_split(v, halves)[:halves]).mean(1) for v in values]
    return np.array([[np.linalg.norm(mean) for mean in part] for part in parts]).T


def moments(values: list[np.ndarray], power: float) -> np.ndarray:
    """E||v||^power of each size's values, (1, sizes)."""
    flat = [np.linalg.norm(v.reshape(len(v), -1), axis=1) for v in values]
    return np.array([[(size**power).mean() for size in flat]])


def least_squares_errors(problem: Regression, sizes: Sequence[int], draws: int) -> np.ndarray:
    """||(M^ - M) Sigma^{1/2}||^2 over its mean k noise^2 d / (n - d - 1), (draws, sizes)."""
    found = np.empty((draws, len(sizes)))
    for r in range(draws):
        rng = seeds.stream(r, "draws")
        for j, n in enumerate(sizes):
            of = manifold.estimate(*problem.sample(n, rng))
            found[r, j] = np.linalg.norm((of.M - problem.M) @ problem.root) ** 2
    expected = problem.k * problem.noise**2 * problem.d / (np.array(sizes) - problem.d - 1)
    return found / expected


def perturbed_starts(problem: Regression, sizes: Sequence[float], draws: int) -> np.ndarray:
    """Distance to the minima of the start for Sigma + s S and M + s N, (draws, sizes).

    S and N have size 1, s is each of `sizes`.
    """
    space, found = manifold.of(problem), np.empty((draws, len(sizes)))
    for r in range(draws):
        rng = seeds.stream(r, "draws")
        S, N = rng.standard_normal((problem.d, problem.d)), rng.standard_normal(problem.M.shape)
        S = (S + S.T) / np.linalg.norm(S + S.T, 2)
        N /= np.linalg.norm(N, 2)
        for j, s in enumerate(sizes):
            near = manifold.Manifold(problem.Sigma + s * S, problem.M + s * N)
            found[r, j] = space.distance(near.point())
    return found


def regulariser_bias(problem: Regression, sizes: Sequence[int], draws: int) -> np.ndarray:
    """||E grad R^(Z) - grad R(Z)|| near the manifold, R^ with X^T X / n, (5 repeats, sizes)."""
    rng = seeds.stream(0, "draws")
    Z = manifold.of(problem).point() * 1.1
    A, B = Z[: problem.k], Z[problem.k :]
    limit = np.concatenate(regulariser_gradients(problem.Sigma, A, B))
    found = np.empty((5, len(sizes)))
    for j, n in enumerate(sizes):
        for repeat in range(5):
            drawn = (g @ problem.root for g in _draws(rng, draws, n, problem.d))
            covariance = np.concatenate([X.swapaxes(1, 2) @ X / n for X in drawn])
            gradients = np.concatenate(regulariser_gradients(covariance, A, B), -2)
            found[repeat, j] = np.linalg.norm(gradients.mean(0) - limit)
    return found


def singular_ends(problem: Regression) -> tuple[float, float]:
    """Lemma 1's two inequalities at the rotations that attain them: measured over bound.

    The smallest singular value of Sbar^{1/2} Z_R is smallest where R pairs the weakest direction of
    the signal with the strongest of Sigma; the largest likewise.
    """
    space = manifold.of(problem)
    values, vectors = np.linalg.eigh(problem.Sigma)
    sigma = space.singular_values
    ends = [
        np.linalg.svd(space.weighted(space.point(R), "left"), compute_uv=False)
        for R in (vectors.T, vectors[:, ::-1].T)
    ]
    low = min(end[-1] for end in ends) / np.sqrt(2 * sigma[-1] / values[-1])
    high = max(end[0] for end in ends) / np.sqrt(2 * sigma[0] / values[0])
    return float(low), float(high)


def largest_self_logit(problem: Regression, starts: int = 6) -> float:
    """The largest lambda_max(sym(Sigma^{1/2} B Sigma^{1/2})) on the manifold, over sigma_1^{1/2}.

    Found by search over rotations: L-BFGS on the skew matrix of R = R_0 e^S from random R_0.
    """
    space, d, root = manifold.of(problem), problem.d, problem.root
    rng, (i, j) = seeds.stream(0, "draws"), np.triu_indices(problem.d, 1)
    best = -np.inf
    for _ in range(starts):
        first, _ = np.linalg.qr(rng.standard_normal((d, d)))
        for sign in (1.0, -1.0):
            R_0 = first * np.where(np.arange(d) == 0, sign, 1.0)

            def value(angles, R_0=R_0):
                S = np.zeros((d, d))
                S[i, j], S[j, i] = angles, -angles
                L = root @ space.point(R_0 @ expm(S))[problem.k :] @ root
                return -np.linalg.eigvalsh((L + L.T) / 2)[-1]

            best = max(best, -minimize(value, np.zeros(len(i)), method="L-BFGS-B").fun)
    return float(best / np.sqrt(problem.singular_values[0]))


def ill_conditioned(condition: float, seed: int, d: int = 4, k: int = 6, signal: float = 0.2):
    """A problem whose Sigma has eigenvalues from 1 to 1/condition, evenly in the logarithm."""
    rng = seeds.stream(seed, "data")
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    Sigma = (Q * np.geomspace(1, 1 / condition, d)) @ Q.T
    Sigma = (Sigma + Sigma.T) / 2
    values, vectors = np.linalg.eigh(Sigma)
    U, _ = np.linalg.qr(rng.standard_normal((k, d)))
    V, _ = np.linalg.qr(rng.standard_normal((d, d)))
    N = (U * np.linspace(signal, signal / 2, d)) @ V.T  # M Sigma^{1/2}, well conditioned
    return Regression(Sigma, N @ (vectors / np.sqrt(values)) @ vectors.T, 0.045)
