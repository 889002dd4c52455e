"""Synthetic token data sets: one generator per role the papers give the data."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from lib.attention.token_sets import TokenSet, token_set
from lib.seeds import stream, whole_number


def class_mean_tokens(
    seeds: int | Sequence[int],
    n=20,
    T=10,
    d=300,
    signal=3.0,
    noise=0.1,
    antipodal=False,
) -> TokenSet:
    """Class means: paper A's Example 1, as we read it, and the data of its Figures 2
    and 5.

    x_{i,opt} = mu_{y_i} with ||mu_+|| = ||mu_-|| = `signal` and mu_+ orthogonal to mu_-
    (or mu_- = -mu_+ when `antipodal`, Figure 5); the others are N(0, noise^2 P), P the
    projector off span(mu_+, mu_-). Head u = (mu_+ - mu_-) / ||mu_+ - mu_-||, so that
    others score zero (Assumption 2). Assumption 1, as we read it, does not bound the
    inner product of two opt tokens, so a class may share its opt token; it holds if d
    is large enough for n. The query is the first token, the opt token a random other
    one. One set a seed. ValueError for n < 1, T < 2 or d < 3, and for `signal` or
    `noise` that is not positive.
    """
    _positive(signal=signal, noise=noise)
    n, T, d = _sizes(n, T, d)
    if d < 3:
        raise ValueError(
            f"d = {d}; two class means and noise off their span need d >= 3"
        )

    def draw(data, labels):
        # (d, 2), orthonormal
        directions = np.linalg.qr(data.standard_normal((d, 2)))[0]
        plus = signal * directions[:, 0]
        minus = -plus if antipodal else signal * directions[:, 1]
        y = labels.choice((-1.0, 1.0), n)
        X = data.standard_normal((n, T, d))
        X *= noise
        for x in (
            X
        ):  # one sample at a time: at d = 100,000 a second array of X's size counts
            x -= (x @ directions) @ directions.T
        opt = labels.integers(1, T, n)
        X[np.arange(n), opt] = np.where(y[:, None] > 0, plus, minus)
        head = (plus - minus) / np.linalg.norm(plus - minus)
        return X, y, X[:, 0], head, opt

    return _stack(seeds, draw)


def gaussian_tokens(
    seeds: int | Sequence[int], n=10, T=6, d=300, signal=2.0, noise=None
) -> TokenSet:
    """Gaussian tokens, the opt token scaled by `signal`: a second data model (ours) for
    paper A.

    In high dimension any two tokens are nearly orthogonal, two opt tokens included:
    that is more than Assumption 1 asks, as we read it.

    Every token is N(0, noise^2 I) before that, noise by default 1/sqrt(d). u is the
    least-norm solution of y_i u^T x_{i,opt} = 1, u^T x_{i,t} = 0 (Assumption 2);
    ValueError for n T > d, which has none. The query is the first token, never the opt
    token.
    """
    n, T, d = _sizes(n, T, d)
    if n * T > d:
        raise ValueError(
            f"n T = {n * T} exceeds d = {d}: equal scores of others need n T <= d"
        )
    noise = d**-0.5 if noise is None else noise
    _positive(signal=signal, noise=noise)

    def draw(data, labels):
        X = noise * data.standard_normal((n, T, d))
        y = labels.choice((-1.0, 1.0), n)
        opt = labels.integers(1, T, n)
        X[np.arange(n), opt] *= signal
        scores = np.zeros((n, T))
        scores[np.arange(n), opt] = y
        head = np.linalg.lstsq(X.reshape(n * T, d), scores.ravel(), rcond=None)[0]
        return X, y, X[:, 0], head, opt

    return _stack(seeds, draw)


def two_token_gaussian(
    seeds: int | Sequence[int], n=8, T=2, d=400, signal=3.0, noise=None
) -> TokenSet:
    """Paper A, data model (DM): an opt token and one additional token, both Gaussian.

    x_{i,opt} ~ N(0, signal^2 noise^2 I), the additional token ~ N(0, noise^2 I), noise
    by default 1/sqrt(d); y_i = sign(u_*^T x_{i,opt}) for a random u_*. The additional
    token is there T - 1 times, which keeps Assumption 2 at every step. The head is
    zero, still to be trained. The opt token stands last, the query is the first.
    """
    n, T, d = _sizes(n, T, d)
    noise = d**-0.5 if noise is None else noise
    _positive(signal=signal, noise=noise)

    def draw(data, labels):
        opt_tokens = signal * noise * data.standard_normal((n, d))
        additional = noise * data.standard_normal((n, d))
        X = np.concatenate(
            [np.repeat(additional[:, None], T - 1, 1), opt_tokens[:, None]], 1
        )
        y = np.where(opt_tokens @ labels.standard_normal(d) >= 0, 1.0, -1.0)
        return X, y, additional, np.zeros(d), np.full(n, T - 1)

    return _stack(seeds, draw)


def unit_tokens(seeds: int | Sequence[int], n=6, T=8, d=10) -> TokenSet:
    """Paper C, Section 5 (and 2308.16898): tokens, queries and head uniform on the unit
    sphere, labels random. Scores are all different for d > 1: Assumption 2 fails for T
    > 2.
    """
    n, T, d = _sizes(n, T, d)

    def draw(data, labels):
        drawn = (data.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
        X, z, head = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in drawn)
        y = labels.choice((-1.0, 1.0), n)
        return X, y, z, head, (y[:, None] * (X @ head)).argmax(1)

    return _stack(seeds, draw)


def two_examples() -> TokenSet:
    """Two examples of three tokens in the plane (notebook 00): W_mm = ((-1/2, 0), (1/2,
    -1/2)).
    """
    X = np.array([[[1, 0], [2, 0], [0, 1]], [[0, 1], [2, 1], [1, -1]]], float)
    return token_set(X, np.array([1.0, -1.0]), u=np.array([0.0, 1.0]))


def _stack(seeds, draw):
    if np.iterable(seeds) and not isinstance(seeds, str):
        seeds = list(seeds)
    else:
        seeds = [seeds]
    if not seeds:
        raise ValueError(
            "seeds is empty; give at least one, a number or a list of numbers"
        )
    draws = (draw(stream(seed, "data"), stream(seed, "labels")) for seed in seeds)
    first = [np.asarray(part) for part in next(draws)]
    if len(seeds) == 1:  # no copy of what may be most of the memory
        return TokenSet(*(part[None] for part in first))
    stacked = [np.empty((len(seeds), *part.shape), part.dtype) for part in first]
    for run, parts in enumerate(
        chain([first], draws)
    ):  # a list of them all would hold two of each
        for whole, part in zip(stacked, parts, strict=True):
            whole[run] = part
    return TokenSet(*stacked)


def _sizes(n, T, d):
    return whole_number("n", n, 1), whole_number("T", T, 2), whole_number("d", d, 1)


def _positive(**values):
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value}; it must be positive and finite")
