"""How paper B's quantities depend on the number of samples n: softmax sums, starts,
gradient bias, and the floor of Theorem 2.

Each function returns values over a range of sizes n, and the claims are about their
exponents in n. Sums are in whitened coordinates: keys are g ~ N(0, I), and one of them
is the query. Logits are g^T u with u = Sigma^{1/2} B^T x = L^T Sigma^{-1/2} x and L =
Sigma^{1/2} B Sigma^{1/2}.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from companion.claims import Claim
from lib import regression, seeds
from lib.regression import PreconditionedRule, Regression, RegressionHistory, manifold
from papers.b.statements import PAPER
from papers.fits import geometric_phase, power_fit

# How many random numbers are drawn at a time; the numbers themselves do not depend on
# this.
PART = 2_000_000
LATE = 50  # With fewer samples, the term C/n is not small.


def _draws(rng: np.random.Generator, draws: int, n: int, d: int):
    """Draw standard normal samples (draws, n, d), and yield them a few draws at a time.

    At least one draw is yielded at a time, however large n is.
    """
    size = max(1, PART // (n * d))
    for start in range(0, draws, size):
        yield rng.standard_normal((min(size, draws - start), n, d))


def repeated(
    measure: Callable, sizes: Sequence[float], draws: int, role: str
) -> np.ndarray:
    """Evaluate measure(size, rng) for every size and draw.

    Each draw has its own random stream `rng`, of the given `role`. `measure` uses this
    stream for all sizes, one after the other. The result has the shape (..., draws,
    sizes), where ... is the shape of a result of `measure`.
    """
    streams = [seeds.stream(r, role) for r in range(draws)]
    values = np.array([[measure(size, rng) for size in sizes] for rng in streams])
    return np.moveaxis(values, (0, 1), (-2, -1))


def softmax_sums(
    u: np.ndarray, query: np.ndarray, sizes: Sequence[int], draws: int, seed: int = 0
) -> dict:
    """Draw softmax sums at the `query` (d,), which is the first of n keys.

    u (d,) determines the logits; the other keys are standard normal.

    Returns
    -------
    dict
        Each entry is a list with one array (draws, ...) per size. "weight" is n s_1,
        where s_1 is the softmax weight of the query itself. "mean" is c = sum s_i g_i,
        "outer" is c c^T, and "covariance" is C = sum s_i g_i (g_i - c)^T. "mean bias",
        "outer bias" and "covariance bias" are the last three minus their limits u, u
        u^T and I, and minus their first-order change with the keys other than the
        query. This first-order change has mean zero.

    Notes
    -----
    For example, "mean bias" has the same mean as c - u. But the spread of "mean bias"
    is only of the order 1/n, while the spread of c is of the order n^{-1/2}.
    """
    rng = seeds.stream(seed, "draws")
    sums = {}
    for n in sizes:
        parts = [_sums(u, query, g) for g in _draws(rng, draws, n, len(u))]
        for name in parts[0]:
            sums.setdefault(name, []).append(
                np.concatenate([part[name] for part in parts])
            )
    return sums


def _sums(u: np.ndarray, query: np.ndarray, g: np.ndarray):
    """Return the `softmax_sums` of the keys g (draws, n, d): arrays (draws, ...) by
    name.

    u and `query` have the shape (d,). The query overwrites the first key in g.
    """
    g[:, 0] = query
    n = g.shape[1]

    def square(v: np.ndarray):
        return v[:, :, None] * v[:, None]

    limit = np.eye(len(u))
    # Weights of mean 1, under which a key has mean u and covariance I.
    e = np.exp(g @ u - u @ u / 2)
    over = e.mean(1)[:, None]
    s = e / (n * over)  # (draws, n)
    c = (s[:, None] @ g)[:, 0]
    second = (g * s[..., None]).swapaxes(1, 2) @ g
    # value - limit minus its first-order change is share (value_q - limit) + (1 - over)
    # (value - limit), where value_q is the value of the query, and share = e_q / n.
    share = e[0, 0] / n
    mean_bias = share * (query - u) + (1 - over) * (c - u)
    outer_bias = (
        square(c - u) + u[:, None] * mean_bias[:, None] + mean_bias[:, :, None] * u
    )
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
) -> dict:
    """Estimate Theorem 4's integrals over the query g ~ N(0, I), with u = L^T g.

    L has the shape (d, d). The square of a mean is estimated as the product of two
    independent estimates of the mean, so that noise adds no bias. Each of the two
    estimates uses 2 `draws` sets of keys. The fourth power is estimated as a product of
    four estimates, each from `draws` sets of keys.

    Returns
    -------
    dict of str to ndarray (repeats, sizes)
        "mean" is E |g|^2 |E[c | g] - u|^2, "outer" is E |E[c c^T | g] - u u^T|^2, and
        "covariance" is E |E[C | g] - I|^4. Each repeat averages over its own part of
        the queries. There must be at least as many queries as `repeats`.
    """
    powers = {
        name: np.empty((queries, len(sizes)))
        for name in ("mean", "outer", "covariance")
    }
    for q in range(queries):
        query = seeds.stream(q, "start").standard_normal(len(L))
        sums = softmax_sums(L.T @ query, query, sizes, 4 * draws, q)
        for name, values in powers.items():
            for j, bias in enumerate(sums[f"{name} bias"]):
                four = bias.reshape(4, draws, -1).mean(1)
                square = four[:2].mean(0) @ four[2:].mean(0)
                fourth = (four[0] @ four[1]) * (four[2] @ four[3])
                if name == "mean":
                    values[q, j] = (query @ query) * square
                elif name == "covariance":
                    values[q, j] = fourth
                else:
                    values[q, j] = square
    return {
        name: np.array([part.mean(0) for part in np.array_split(values, repeats)])
        for name, values in powers.items()
    }


def leading(
    sizes: Sequence[int] | np.ndarray, values: np.ndarray, since: float = 0
) -> np.ndarray:
    """Fit values (repeats, sizes) = C n^a (1 + b/n), and return the exponents a
    (repeats,).

    The values must be positive; their logarithm is regressed on log n and 1/n. The fit
    is over the sizes n >= since, and there must be at least three of them.
    """
    n = np.asarray(sizes, float)
    late = n >= since
    known = np.column_stack([np.ones_like(n), np.log(n), 1 / n])[late]
    logarithms = np.log(np.atleast_2d(values)[:, late]).T
    return np.linalg.lstsq(known, logarithms, rcond=None)[0][1]


def least_squares_errors(
    problem: Regression, sizes: Sequence[int], draws: int
) -> np.ndarray:
    """Return ||(M^ - M) Sigma^{1/2}||^2 divided by its expectation.

    The result has the shape (draws, sizes). M^ is the least-squares estimate of M, and
    the norm is Frobenius. The expectation is k noise^2 d/(n-d-1) (Lemma 6); it is
    finite only if all `sizes` n exceed d + 1.
    """

    def square(n: int, rng: np.random.Generator):
        estimate = manifold.estimate(*problem.sample(n, rng))
        return np.linalg.norm((estimate.M - problem.M) @ problem.root) ** 2

    mean = problem.k * problem.noise**2 * problem.d / (np.array(sizes) - problem.d - 1)
    return repeated(square, sizes, draws, "draws") / mean


def perturbed_starts(
    problem: Regression, sizes: Sequence[float], draws: int
) -> np.ndarray:
    """Return the distance from the minima of a start that is computed from perturbed
    Sigma and M.

    The start is a minimum for Sigma + s S and M + s N, with random S and N of spectral
    norm 1. The result is the distance of the start from the minima in the norm "left",
    an array (draws, sizes) for the `sizes` s. The function raises ValueError if Sigma +
    s S is not positive definite.
    """
    space = manifold.of(problem)
    distances = np.empty((draws, len(sizes)))
    for r in range(draws):
        rng = seeds.stream(r, "draws")
        S = rng.standard_normal((problem.d, problem.d))
        N = rng.standard_normal(problem.M.shape)
        S = (S + S.T) / np.linalg.norm(S + S.T, 2)
        N /= np.linalg.norm(N, 2)
        for j, s in enumerate(sizes):
            near = manifold.Manifold(problem.Sigma + s * S, problem.M + s * N)
            distances[r, j] = space.distance(near.point())
    return distances


def spectral_distances(
    problem: Regression, sizes: Sequence[int], repeats: int
) -> np.ndarray:
    """Measure the two quantities that Lemma 3 bounds, on fresh data sets.

    The result has the shape (2, repeats, sizes). The first quantity is the distance of
    the spectral start from the minima, in the norm "left". The second is the spectral
    norm ||Sigma^{1/2} Sigma^^{-1} Sigma^{1/2} - I||, where Sigma^ is the sample
    covariance.
    """

    def events(n: int, rng: np.random.Generator):
        X, Y = problem.sample(n, rng)
        start = np.concatenate(manifold.spectral_start(X, Y))
        inverse = problem.root @ np.linalg.inv(X.T @ X / n) @ problem.root
        return manifold.of(problem).distance(start), np.linalg.norm(
            inverse - np.eye(problem.d), 2
        )

    return repeated(events, sizes, repeats, "labels")


def near(problem: Regression, seed: int) -> np.ndarray:
    """Return Z (k + d, d) near the manifold: a minimum plus 0.02 times a Gaussian
    matrix.
    """
    minimum = manifold.of(problem).point()
    return minimum + 0.02 * seeds.stream(seed, "draws").standard_normal(minimum.shape)


def regulariser_bias(
    problem: Regression,
    Z: np.ndarray,
    sizes: Sequence[int],
    draws: int,
    repeats: int,
    seed: int,
) -> np.ndarray:
    """Estimate E grad R^(Z) - grad R(Z), where R^ has X^T X / n in place of Sigma.

    Z has the shape (k + d, d). The part of grad R^ that is linear in X^T X / n - Sigma
    has mean zero; we subtract this part to reduce the spread. The result has the shape
    (repeats, sizes, k + d, d), and each of its entries is a mean over `draws` data
    sets.
    """
    rng = seeds.stream(seed, "draws")
    step = 1e-4
    layer = Z[: problem.k], Z[problem.k :]

    def gradient(S: np.ndarray):
        return np.concatenate(regression.regulariser_gradients(S, *layer), -2)

    bias = np.empty((repeats, len(sizes), *Z.shape))
    for r, j in np.ndindex(repeats, len(sizes)):
        total = 0.0
        for g in _draws(rng, draws, sizes[j], problem.d):
            X = g @ problem.root
            off = X.swapaxes(1, 2) @ X / sizes[j] - problem.Sigma
            sides = (gradient(problem.Sigma + sign * step * off) for sign in (1, -1))
            linear = np.subtract(*sides) / (2 * step)
            total += (
                gradient(problem.Sigma + off) - gradient(problem.Sigma) - linear
            ).sum(0)
        bias[r, j] = total / draws
    return bias


def loss_bias(
    problem: Regression, Z: np.ndarray, sizes: Sequence[int], draws: int, repeats: int
) -> np.ndarray:
    """Estimate E grad L^ - grad L at Z (k + d, d) from at least `draws` queries.

    The result has the shape (repeats, sizes, k + d, d), and each entry is computed from
    its own draws.
    """
    layer = Z[: problem.k], Z[problem.k :]
    A, B = (torch.from_numpy(part)[None, None] for part in layer)
    limit = np.concatenate(regression.population_gradients(problem, *layer))
    bias = np.empty((repeats, len(sizes), *Z.shape))
    for r, j in np.ndindex(repeats, len(sizes)):
        # We draw at most 2^20 keys at once, to limit the memory.
        chunk = max(1, 2**20 // sizes[j])
        source = regression.oracle(problem, sizes[j], min(draws, chunk), [1000 * r + j])
        passes = range(-(-draws // chunk))
        parts = [
            np.concatenate([g[0, 0].numpy() for g in source(t, A, B)]) for t in passes
        ]
        bias[r, j] = sum(parts) / len(parts) - limit
    return bias


def gradient_bias(
    problem: Regression, sizes: Sequence[int], draws: int, repeats: int
) -> np.ndarray:
    """Return ||E grad L^ - grad L|| at one point, for each batch size.

    The result has the shape (repeats, sizes).
    """
    bias = loss_bias(problem, near(problem, 0), sizes, draws, repeats)
    return np.linalg.norm(bias, axis=(-1, -2))


def tail_excess(
    problem: Regression, history: RegressionHistory, since: int
) -> np.ndarray:
    """Estimate the excess loss to which a run on a noisy oracle converges, without the
    part due to the oracle's noise.

    The loss depends only on the map A Sigma B^T. We divide the records from iteration
    `since` on into an earlier and a later half, and average the error of the map over
    each half. The result (seeds,) is half the inner product of the two means, which can
    be negative. Half the squared norm of a single mean would also contain the square of
    the noise of this mean. There must be at least two records from `since` on.
    """
    late = history.iterations >= since
    A = history.A[:, late]
    Bt = history.B[:, late].swapaxes(-1, -2)
    errors = (
        A @ problem.Sigma @ Bt - problem.M
    ) @ problem.root  # (seeds, records, k, d)
    middle = errors.shape[1] // 2
    return (errors[:, :middle].mean(1) * errors[:, middle:].mean(1)).sum((-1, -2)) / 2


def every_step(
    rule: PreconditionedRule,
    source: Any,
    start: tuple[np.ndarray, np.ndarray],
    covariance: np.ndarray,
    steps: int,
) -> RegressionHistory:
    """Train by a rule, and record every iteration from 0 to `steps`.

    `source` gives the gradients, `start` is the pair of A_0 (seeds, k, d) and B_0
    (seeds, d, d), and `covariance` (seeds, d, d) is the covariance that the rule uses.
    """
    record = list(range(steps + 1))
    return regression.descend(
        source, {"": rule}, {"": start}, covariance, steps, record
    )[""]


def from_slowest_mode(
    problem: Regression,
    distance: float,
    source: Any,
    steps: int,
    runs: int = 1,
) -> RegressionHistory:
    """Run Algorithm 1 with eta = 1/lambda_max, from a start along its slowest mode.

    The start has the given `distance`, in the norm "left", from the minimum with R = I.
    There are as many `runs` as `source` has seeds. All of them have the same start, and
    use the true covariance. lambda_max is the largest rate from `regression.modes`.
    Every iteration is recorded.
    """
    space = manifold.of(problem)
    k = problem.k
    rates, directions = regression.modes(problem)
    Z = space.point() + distance * directions[0] / space.norm(directions[0])
    start = np.stack([Z[:k]] * runs), np.stack([Z[k:]] * runs)
    rule = PreconditionedRule(1 / rates[-1])
    covariance = np.stack([problem.Sigma] * runs)
    return every_step(rule, source, start, covariance, steps)


@dataclass(frozen=True)
class Floors:
    """The runs for Theorem 2, recorded at `iterations` (K,).

    `excess` (sizes, seeds, K) is the excess loss, and `floor` (sizes, seeds) is the
    level to which it falls. `exact` (K,) is the excess of a run on the population loss.
    In theory `exact` shrinks by `factor` = (1 - eta lambda_min)^2 per iteration.
    """

    sizes: np.ndarray
    iterations: np.ndarray
    excess: np.ndarray
    exact: np.ndarray
    floor: np.ndarray
    factor: float


def scaling(
    problem: Regression,
    sizes: Sequence[int],
    steps: int,
    draws: int,
    of_seeds: Sequence[int],
) -> Floors:
    """Run Algorithm 1 on one oracle for each number of samples in `sizes`.

    At the start, the distance from the minima is the radius within which the one-point
    bounds hold. Each estimate of the gradient uses `draws` batches. The floors are the
    `tail_excess` of the last two thirds of the `steps`.
    """
    radius = manifold.of(problem).constants().radius
    count = len(of_seeds)
    sources = (regression.oracle(problem, n, draws, of_seeds) for n in sizes)
    runs = [
        from_slowest_mode(problem, radius, source, steps, count) for source in sources
    ]
    exact = from_slowest_mode(problem, radius, regression.population(problem), steps)
    rates, _ = regression.modes(problem)
    return Floors(
        sizes=np.array(sizes),
        iterations=exact.iterations,
        excess=np.stack([run.excess([problem] * count) for run in runs]),
        exact=exact.excess([problem])[0],
        floor=np.stack([tail_excess(problem, run, steps // 3) for run in runs]),
        factor=float((1 - rates[0] / rates[-1]) ** 2),
    )


def theorem_2(floors: Floors) -> list[Claim]:
    """Check that the excess loss falls geometrically to a floor, and that the floor
    falls like n^-2.

    The rate must equal that of the linearised problem. We measure the rate at the last
    of the sizes, as a mean over seeds.
    """
    floor = floors.sizes, floors.floor.T
    pairs = zip(floors.excess[-1], floors.floor[-1], strict=True)
    slopes = [geometric_phase(floors.iterations, *pair) for pair in pairs]
    rate = np.mean(slopes) / np.log(floors.factor)
    values = {"thm2.rate": rate, "thm2.floor": power_fit(*floor)[0]}
    return [*PAPER.claims(values), PAPER.mean("thm2.floor_late", leading(*floor, LATE))]


def powers(
    sizes: Sequence[int],
    distances: np.ndarray,
    bias_sizes: Sequence[int],
    bias: np.ndarray,
) -> list[Claim]:
    """Check that `distances` fall like n^{-1/2} (Lemma 3), and that `bias` falls like
    1/n (Theorem 4).

    `distances` and `bias` have the shape (repeats, sizes), for `sizes` and for
    `bias_sizes` respectively.
    """
    start, error = power_fit(sizes, distances)
    return [
        replace(PAPER.claim("distance", start, say=(error,)), id="lemma3"),
        PAPER.mean("theorem4", leading(bias_sizes, bias, LATE), say=("",)),
    ]
