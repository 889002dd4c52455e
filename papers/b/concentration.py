"""What paper B's appendix says of sums over softmax weights, starts and moments, by Monte Carlo.

Each function returns values over a range of sample sizes n, whose exponents in n are the claims.
In whitened coordinates: keys g ~ N(0, I), one of them the query, logits g^T u with u = Sigma^{1/2}
B^T x = L^T Sigma^{-1/2} x, L = Sigma^{1/2} B Sigma^{1/2}.
"""

import itertools
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
    rng, found = seeds.stream(seed, "draws"), []
    for n in sizes:
        parts = [_sums(u, query, g) for g in _draws(rng, draws, n, len(u))]
        found.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return {name: [of_size[name] for of_size in found] for name in found[0]}


def _sums(u, query, g):
    """`softmax_sums` of some draws of keys g (draws, n, d), whose first becomes the query."""
    g[:, 0] = query
    n, square, limit = g.shape[1], lambda v: v[:, :, None] * v[:, None], np.eye(len(u))
    e = np.exp(g @ u - u @ u / 2)  # of mean 1, under which a key has mean u and covariance I
    over = e.mean(1)[:, None]
    s = e / (n * over)  # (draws, n)
    c = (s[:, None] @ g)[:, 0]
    second = (g * s[..., None]).swapaxes(1, 2) @ g
    # value - limit less its first-order change is own + (1 - over) (value - limit), where own is
    # the query's share of sum_i e_i (value_i - limit) / n
    own = e[0, 0] / n
    mean_bias = own * (query - u) + (1 - over) * (c - u)
    outer_bias = square(c - u) + u[:, None] * mean_bias[:, None] + mean_bias[:, :, None] * u
    away = second - limit - np.outer(u, u)
    of_query = own * (np.outer(query, query) - limit - np.outer(u, u))
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
    """What Theorem 4 integrates over the query g ~ N(0, I), u = L^T g: (repeats, sizes) by name.

    "mean": E |g|^2 |E[c | g] - u|^2, "outer": E |E[c c^T | g] - u u^T|^2, "covariance": E |E[C | g]
    - I|^4. The square of a mean is the inner product of two independent estimates of it, each from
    `draws` sets of keys, so that noise does not add to it.
    """
    found = {name: np.empty((queries, len(sizes))) for name in ("mean", "outer", "covariance")}
    for q in range(queries):
        query = seeds.stream(q, "start").standard_normal(len(L))
        sums = softmax_sums(L.T @ query, query, sizes, 4 * draws, q)
        for name, values in found.items():
            for j, bias in enumerate(sums[f"{name} bias"]):
                four = bias.reshape(4, draws, -1).mean(1)
                square = four[:2].mean(0) @ four[2:].mean(0)
                own = (four[0] @ four[1]) * (four[2] @ four[3])
                size = query @ query if name == "mean" else 1.0
                values[q, j] = own if name == "covariance" else size * square
    parts = {name: np.array_split(values, repeats) for name, values in found.items()}
    return {name: np.array([part.mean(0) for part in own]) for name, own in parts.items()}


def leading_exponent(sizes: Sequence[int], values: np.ndarray) -> np.ndarray:
    """The a of values (repeats, sizes) = C n^a (1 + b/n), (repeats,): log n and 1/n by regression.

    With a = -1 this is the fit of C/n + C b/n^2, up to higher orders of b/n. From three sizes on.
    """
    n = np.asarray(sizes, float)
    known = np.column_stack([np.ones_like(n), np.log(n), 1 / n])
    return np.linalg.lstsq(known, np.log(values).T, rcond=None)[0][1]


def _parts(values, repeats=10):
    """The draws of each size cut into as many repeats: (sizes) of (repeats, draws, ...)."""
    return [np.stack([v[r::repeats][: len(v) // repeats] for r in range(repeats)]) for v in values]


def variances(values: list[np.ndarray], repeats: int = 10) -> np.ndarray:
    """E||v - E v||^2 of each size's draws, (repeats, sizes)."""
    cut = _parts(values, repeats)
    return np.array([part.var(1).reshape(repeats, -1).sum(1) for part in cut]).T


def biases(values: list[np.ndarray], repeats: int = 10) -> np.ndarray:
    """||E v|| of each size's draws, (repeats, sizes)."""
    cut = _parts(values, repeats)
    return np.array([np.linalg.norm(p.mean(1).reshape(repeats, -1), axis=1) for p in cut]).T


def moments(values: list[np.ndarray], power: float, repeats: int = 10) -> np.ndarray:
    """E|v|^power of each size's draws of a number, (repeats, sizes)."""
    return np.array([(np.abs(part) ** power).mean(1) for part in _parts(values, repeats)]).T


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


def regulariser_bias(
    problem: Regression, Z: np.ndarray, sizes: Sequence[int], draws: int, repeats: int, seed: int
) -> np.ndarray:
    """E grad R^(Z) - grad R(Z), R^ with X^T X / n, (repeats, sizes, k + d, d).

    R^'s first-order change with X^T X / n, whose mean is zero, is taken out.
    """
    rng, found = seeds.stream(seed, "draws"), np.empty((repeats, len(sizes), *Z.shape))
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
        found[r, j] = total / draws
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
