"""Synthetic token data sets: one frozen record, one generator per role the papers give the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.seeds import stream

SIZES = 1e-100, 1e100  # of tokens, queries and head: beyond, squares leave the range of float64


@dataclass(frozen=True, repr=False)
class TokenSet:
    """Sequences of tokens with labels and queries; the leading axis counts independent data sets
    ("runs").

    X (runs, n, T, d) tokens x_{i,t}; y (runs, n) labels in {-1, +1}; z (runs, n, d_z) queries
    (paper A: the first token); u (runs, d) the linear head, zero where it is still to be trained;
    opt (runs, n) the index of each sample's opt token. Tokens and queries may live in different
    coordinates (d and d_z).

    Raises ValueError, naming the argument, for wrong shapes, an empty set, values that are not
    finite real numbers or whose squares leave the range of float64, labels other than -1 or +1,
    fewer than two tokens, or an opt index out of range.
    """

    X: np.ndarray
    y: np.ndarray
    z: np.ndarray
    u: np.ndarray
    opt: np.ndarray

    def __post_init__(self):
        if self.X.ndim != 4:
            raise ValueError(f"X has shape {self.X.shape}; it needs four axes (runs, n, T, d)")
        runs, n, T, d = self.X.shape
        if self.X.size == 0:
            raise ValueError(f"X has shape {self.X.shape}; no axis (runs, n, T, d) may be empty")
        if T < 2:
            raise ValueError(
                f"X has T = {T} token per sample; attention needs at least 2 to choose between"
            )
        wanted = {
            "y": (runs, n),
            "z": (runs, n, self.z.shape[-1]),
            "u": (runs, d),
            "opt": (runs, n),
        }
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}; it needs {shape}")
        for name in ("X", "z", "u"):
            _check_real(name, getattr(self, name))
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} holds NaN or infinite values")
        if not np.isin(self.y, (-1, 1)).all():
            raise ValueError(f"y holds labels other than -1 and +1: {np.unique(self.y)[:5]}")
        if (
            not np.issubdtype(self.opt.dtype, np.integer)
            or self.opt.min() < 0
            or self.opt.max() >= T
        ):
            raise ValueError(f"opt must hold token indices 0 ... {T - 1}")

    def __repr__(self) -> str:
        """Sizes, the heads' norms and the largest token: what tells two sets apart."""
        runs, n, T, d = self.shape
        unit = np.abs(self.X).max() or 1.0  # squares of huge or tiny tokens leave float64
        largest = unit * np.sqrt(np.square(self.X / unit).sum(-1).max())
        head = np.linalg.norm(self.u, axis=-1)
        return (
            f"TokenSet(runs={runs}, n={n}, T={T}, d={d}, d_z={self.z.shape[-1]}; "
            f"largest ||x|| = {largest:.3g}, ||u|| = {head.min():.3g} ... {head.max():.3g})"
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(runs, n, T, d)."""
        return self.X.shape

    def run(self, index: int) -> "TokenSet":
        """The data set of one run, its runs axis kept with length 1."""
        part = slice(index, index + 1)
        return TokenSet(self.X[part], self.y[part], self.z[part], self.u[part], self.opt[part])


def token_set(X, y, z=None, u=None, opt=None) -> TokenSet:
    """A TokenSet from arrays, with or without the runs axis.

    z defaults to the first token of each sample, u to zero. opt defaults to the token with the
    largest score gamma_{i,t} = y_i u^T x_{i,t} (paper A, Definition 1), which needs a head and must
    be unique: a tie raises ValueError naming the sample.
    """
    X, y, z, u = (_real(name, a) for name, a in (("X", X), ("y", y), ("z", z), ("u", u)))
    if X.ndim == 3:
        X, y, z, u = (None if a is None else a[None] for a in (X, y, z, u))
        opt = None if opt is None else np.asarray(opt)[None]
    if opt is None and u is None:
        raise ValueError("opt tokens follow from a head: give opt, or u")
    z = X[..., 0, :] if z is None else z
    head = np.zeros((X.shape[0], X.shape[-1])) if u is None else u
    first = np.zeros(X.shape[:2], int)
    tokens = TokenSet(X, y, z, head, first if opt is None else np.asarray(opt))
    return tokens if opt is not None else replace(tokens, opt=_opt_tokens(tokens))


def _real(name, value):
    if value is None:
        return None
    value = np.asarray(value)
    _check_real(name, value)
    return value.astype(float)


def _check_real(name, value):
    if value.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {value.dtype} values; it needs real numbers")


def check_sizes(tokens: TokenSet) -> None:
    """ValueError where tokens, queries or head are so large or small that squares leave float64.

    Whatever trains takes inner products of them. The SVM takes out the scale and needs no check.
    """
    for name in ("X", "z", "u"):
        largest = np.abs(getattr(tokens, name)).max()
        if largest and not SIZES[0] <= largest <= SIZES[1]:
            raise ValueError(
                f"{name} has largest entry {largest:.3g}, whose square leaves the range of "
                f"float64; "
                f"rescale it to within {SIZES[0]:g} ... {SIZES[1]:g}: only W's unit changes"
            )


def _opt_tokens(tokens):
    scores = tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, tokens.u)
    tied = (scores == scores.max(-1, keepdims=True)).sum(-1) > 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        raise ValueError(
            f"sample {sample} of run {run} has a tie for the opt token: "
            f"its scores are {scores[run, sample]}"
        )
    return scores.argmax(-1)


def class_mean_tokens(
    seeds: int | Sequence[int], n=20, T=10, d=300, signal=3.0, noise=0.1, antipodal=False
) -> TokenSet:
    """Paper A, Example 1, in class-mean form (our reading of it; the paper's exact form did not
    survive).

    x_{i,opt} = mu_{y_i} with ||mu_+|| = ||mu_-|| = `signal` and mu_+ orthogonal to mu_- (or mu_- =
    -mu_+ when `antipodal`, paper A, Figure 5); the other tokens are N(0, noise^2 P), `noise` per
    entry, P the projector off span(mu_+, mu_-). Head u = (mu_+ - mu_-) / ||mu_+ - mu_-||, so that
    all other tokens score zero (Assumption 2). The query is the first token; the opt token stands
    at a random other position. Needs d >= 3.
    """
    _positive(signal=signal, noise=noise)
    _sizes(n=n, T=T, d=d)
    if d < 3:
        raise ValueError(f"d = {d}; two class means and noise off their span need d >= 3")
    return _stack(seeds, lambda *rng: _class_means(*rng, n, T, d, signal, noise, antipodal))


def _class_means(data, labels, n, T, d, signal, noise, antipodal):
    directions = np.linalg.qr(data.standard_normal((d, 2)))[0]  # (d, 2), orthonormal
    plus = signal * directions[:, 0]
    minus = -plus if antipodal else signal * directions[:, 1]
    y = labels.choice((-1.0, 1.0), n)
    X = data.standard_normal((n, T, d))
    X *= noise
    for x in X:  # one sample at a time: at d = 100,000 a second array of X's size counts
        x -= (x @ directions) @ directions.T
    opt = labels.integers(1, T, n)
    X[np.arange(n), opt] = np.where(y[:, None] > 0, plus, minus)
    head = (plus - minus) / np.linalg.norm(plus - minus)
    return X, y, X[:, 0], head, opt


def gaussian_tokens(
    seeds: int | Sequence[int], n=10, T=6, d=300, signal=2.0, noise=None
) -> TokenSet:
    """Paper A, Example 1, in Gaussian form: every token N(0, noise^2 I), the opt token scaled by
    `signal`.

    u is the least-norm solution of y_i u^T x_{i,opt} = 1, u^T x_{i,t} = 0 (Assumption 2), which
    needs n T <= d. `noise` defaults to 1/sqrt(d): token norm about 1. The query is the first token,
    never the opt token.
    """
    _sizes(n=n, T=T, d=d)
    if n * T > d:
        raise ValueError(
            f"n T = {n * T} exceeds d = {d}: equal scores of the other tokens need n T <= d"
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
    """Paper A, data model (DM): x_{i,opt} ~ N(0, signal^2 noise^2 I), one additional token ~ N(0,
    noise^2 I).

    y_i = sign(u_*^T x_{i,opt}) for a random u_*; for T > 2 the additional token is repeated T - 1
    times, which keeps Assumption 2 at every step. The head is left at zero: this is the
    joint-training model. The opt token stands last, the query is the first token (the additional
    one). `noise` defaults to 1/sqrt(d).
    """
    _sizes(n=n, T=T, d=d)
    noise = d**-0.5 if noise is None else noise
    _positive(signal=signal, noise=noise)

    def draw(data, labels):
        opt_tokens = signal * noise * data.standard_normal((n, d))
        additional = noise * data.standard_normal((n, d))
        X = np.concatenate(
            [np.repeat(additional[:, None], T - 1, 1), opt_tokens[:, None]], 1
        )  # (n, T, d)
        y = np.where(opt_tokens @ labels.standard_normal(d) >= 0, 1.0, -1.0)
        return X, y, additional, np.zeros(d), np.full(n, T - 1)

    return _stack(seeds, draw)


def unit_tokens(seeds: int | Sequence[int], n=6, T=8, d=10) -> TokenSet:
    """Paper C, Section 5 (and 2308.16898): tokens, queries and head uniform on the unit sphere,
    random labels.

    Scores are all different, so Assumption 2 fails; the queries are independent of the tokens.
    """
    _sizes(n=n, T=T, d=d)

    def draw(data, labels):
        X, z, head = (_unit(data.standard_normal(shape)) for shape in ((n, T, d), (n, d), (d,)))
        y = labels.choice((-1.0, 1.0), n)
        return X, y, z, head, (y[:, None] * (X @ head)).argmax(1)

    return _stack(seeds, draw)


def _unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def _stack(seeds, draw):
    seeds = [seeds] if np.isscalar(seeds) else list(seeds)
    if not seeds:
        raise ValueError("seeds is empty; give at least one, a number or a list of numbers")
    draws = [draw(stream(seed, "data"), stream(seed, "labels")) for seed in seeds]
    if len(draws) == 1:  # no copy of what may be most of the memory
        return TokenSet(*(np.asarray(part)[None] for part in draws[0]))
    return TokenSet(*(np.stack(parts) for parts in zip(*draws, strict=True)))


def _sizes(n, T, d):
    for name, value, least in (("n", n, 1), ("T", T, 2), ("d", d, 1)):
        if value != int(value) or value < least:
            raise ValueError(f"{name} = {value}; it must be a whole number, at least {least}")


def _positive(**values):
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value}; it must be positive and finite")
