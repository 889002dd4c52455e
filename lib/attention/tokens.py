"""Synthetic token data sets: one generator for each data model of the papers."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from lib.attention.token_sets import TokenSet, token_set
from lib.seeds import seed_list, stream, whole_number


def class_mean_tokens(
    seeds: int | Sequence[int],
    n: int = 20,
    T: int = 10,
    d: int = 300,
    signal: float = 3.0,
    noise: float = 0.1,
    antipodal: bool = False,
) -> TokenSet:
    """Draw tokens with class means: the opt token is the mean of its sample's class.

    The opt token is ``x_{i,opt} = mu_{y_i}``, where ``||mu_+|| = ||mu_-||`` = `signal`
    and ``mu_+`` is orthogonal to ``mu_-``. The other tokens are ``N(0, noise^2 P)``,
    with ``P`` the projector onto the orthogonal complement of ``span(mu_+, mu_-)``. The
    head is ``u = (mu_+ - mu_-) / ||mu_+ - mu_-||``. So every token but the opt token
    has score zero. This satisfies Assumption 2, which requires that all tokens of a
    sample except its opt token have the same score. The labels are -1 or +1 with equal
    probability. The query is the first token, and the opt token is drawn at random from
    the other tokens.

    Parameters
    ----------
    seeds : int or sequence of int
        The seeds. One data set is drawn for each seed.
    n : int
        The number of samples, at least 1.
    T : int
        The number of tokens per sample, at least 2.
    d : int
        The dimension of the tokens, at least 3.
    signal : float
        The norm of the class means, positive.
    noise : float
        The standard deviation of the other tokens, positive.
    antipodal : bool
        Whether to use ``mu_- = -mu_+`` instead, as in paper A's Figure 5. ``P`` still
        projects onto the complement of a plane, namely the plane that would contain the
        two orthogonal means.

    Returns
    -------
    TokenSet
        The data sets, one per seed.

    Raises
    ------
    ValueError
        If n < 1, T < 2 or d < 3; if `signal` or `noise` is not a positive and finite
        number; if `antipodal` is not a boolean; if a seed is not a whole number; if
        there is no seed.

    Notes
    -----
    This is Example 1 of paper A, as we read it, and the data of the paper's Figures 2
    and 5. As we read Assumption 1, it does not bound the inner product of two opt
    tokens, so that all samples of a class may share one opt token. Assumption 1 holds
    if d is large enough compared with n.

    Examples
    --------
    Only the opt token has a score other than zero, namely signal / sqrt(2).

    >>> from lib import attention
    >>> data = attention.class_mean_tokens(0, n=3, T=4, d=20)
    >>> attention.scores(data, data.u).round(3) + 0.0
    array([[[0.   , 2.121, 0.   , 0.   ],
            [0.   , 2.121, 0.   , 0.   ],
            [0.   , 0.   , 2.121, 0.   ]]])
    >>> data.opt
    array([[1, 1, 2]])
    """
    _positive(signal=signal, noise=noise)
    if not isinstance(antipodal, bool | np.bool_):
        raise ValueError(f"antipodal = {antipodal!r}; it must be True or False")
    n, T, d = _sizes(n, T, d)
    if d < 3:
        raise ValueError(
            f"d = {d}; two class means and noise off their span need d >= 3"
        )

    def draw(data: np.random.Generator, labels: np.random.Generator):
        # (d, 2), orthonormal
        directions = np.linalg.qr(data.standard_normal((d, 2)))[0]
        plus = signal * directions[:, 0]
        if antipodal:
            minus = -plus
        else:
            minus = signal * directions[:, 1]
        y = labels.choice((-1.0, 1.0), n)
        X = data.standard_normal((n, T, d))
        X *= noise
        # Project one sample at a time: at d = 100,000, a second array of X's size would
        # take much memory.
        for x in X:
            x -= (x @ directions) @ directions.T
        opt = labels.integers(1, T, n)
        X[np.arange(n), opt] = np.where(y[:, None] > 0, plus, minus)
        head = (plus - minus) / np.linalg.norm(plus - minus)
        return X, y, X[:, 0], head, opt

    return _stack(seeds, draw)


def gaussian_tokens(
    seeds: int | Sequence[int],
    n: int = 10,
    T: int = 6,
    d: int = 300,
    signal: float = 2.0,
    noise: float | None = None,
) -> TokenSet:
    """Draw Gaussian tokens, and multiply the opt token of each sample by `signal`.

    Every token is drawn from N(0, noise^2 I) before the opt token is multiplied. The
    index of the opt token and the label are random. The head u is the least-norm
    solution of y_i u^T x_{i,opt} = 1 and u^T x_{i,t} = 0 for the other tokens. This
    satisfies Assumption 2, which requires that all tokens of a sample except its opt
    token have the same score. The query is the first token, which is never the opt
    token.

    Parameters
    ----------
    seeds : int or sequence of int
        The seeds. One data set is drawn for each seed.
    n : int
        The number of samples, at least 1.
    T : int
        The number of tokens per sample, at least 2.
    d : int
        The dimension of the tokens, at least n T.
    signal : float
        The factor that multiplies the opt token, positive.
    noise : float, optional
        The standard deviation of the entries, positive. Default: 1/sqrt(d).

    Returns
    -------
    TokenSet
        The data sets, one per seed.

    Raises
    ------
    ValueError
        If n T > d, since then no head solves these equations; if n < 1 or T < 2; if
        `signal` or `noise` is not positive and finite; if `signal` is so far from 1
        that float64 cannot solve the equations; if a seed is not a whole number; if
        there is no seed.

    Notes
    -----
    We added this data model as a second one for paper A. In high dimension, any two
    tokens are nearly orthogonal, including two opt tokens. This is more than Assumption
    1 requires: as we read it, the assumption does not bound the inner product of two
    opt tokens.

    Examples
    --------
    The opt token has score 1, and every other token has score zero.

    >>> from lib import attention
    >>> data = attention.gaussian_tokens(0, n=2, T=3, d=10_000)
    >>> attention.scores(data, data.u).round(3) + 0.0
    array([[[0., 1., 0.],
            [0., 1., 0.]]])
    >>> data.opt
    array([[1, 1]])
    >>> lengths = np.linalg.norm(data.X, axis=-1).round(1)
    >>> np.sort(lengths)
    array([[[1., 1., 2.],
            [1., 1., 2.]]])
    """
    n, T, d = _sizes(n, T, d)
    if n * T > d:
        raise ValueError(
            f"n T = {n * T} exceeds d = {d}: a head that scores only the opt "
            "tokens needs n T <= d"
        )
    noise = d**-0.5 if noise is None else noise
    _positive(signal=signal, noise=noise)

    def draw(data: np.random.Generator, labels: np.random.Generator):
        X = noise * data.standard_normal((n, T, d))
        y = labels.choice((-1.0, 1.0), n)
        opt = labels.integers(1, T, n)
        X[np.arange(n), opt] *= signal
        scores = np.zeros((n, T))
        scores[np.arange(n), opt] = y
        rows = X.reshape(n * T, d)
        head, _, rank, _ = np.linalg.lstsq(rows, scores.ravel(), rcond=None)
        if rank < n * T:  # lstsq has left out the tokens that are much shorter
            raise ValueError(
                f"signal = {signal}; the lengths of the tokens differ too much to "
                "solve for the head, so it must be nearer to 1"
            )
        return X, y, X[:, 0], head, opt

    return _stack(seeds, draw)


def two_token_gaussian(
    seeds: int | Sequence[int],
    n: int = 8,
    T: int = 2,
    d: int = 400,
    signal: float = 3.0,
    noise: float | None = None,
) -> TokenSet:
    """Draw a Gaussian opt token and one additional Gaussian token per sample.

    The opt token is x_{i,opt} ~ N(0, signal^2 noise^2 I), the additional token is drawn
    from N(0, noise^2 I), and y_i = sign(u_*^T x_{i,opt}) for one random u_* ~ N(0, I)
    per data set. The additional token occurs T - 1 times. So all tokens of a sample
    except its opt token have the same score, whatever the head is, and Assumption 2
    stays true at every step. The opt token comes last, and the query is the first
    token. The head is zero; training has to find a better one.

    Parameters
    ----------
    seeds : int or sequence of int
        The seeds. One data set is drawn for each seed.
    n : int
        The number of samples, at least 1.
    T : int
        The number of tokens per sample, at least 2.
    d : int
        The dimension of the tokens, at least 1.
    signal : float
        The standard deviation of the entries of the opt token, divided by `noise`;
        positive.
    noise : float, optional
        The standard deviation of the entries of the additional token, positive.
        Default: 1/sqrt(d).

    Returns
    -------
    TokenSet
        The data sets, one per seed.

    Raises
    ------
    ValueError
        If n < 1, T < 2 or d < 1; if `signal` or `noise` is not positive and finite; if
        a seed is not a whole number; if there is no seed.

    Notes
    -----
    This is the data model that paper A calls (DM).

    Examples
    --------
    >>> from lib import attention
    >>> data = attention.two_token_gaussian(0, n=2, T=3, d=10_000)
    >>> np.linalg.norm(data.X, axis=-1).round(1)
    array([[[1., 1., 3.],
            [1., 1., 3.]]])
    >>> bool((data.X[:, :, 0] == data.X[:, :, 1]).all())
    True
    """
    n, T, d = _sizes(n, T, d)
    noise = d**-0.5 if noise is None else noise
    _positive(signal=signal, noise=noise)

    def draw(data: np.random.Generator, labels: np.random.Generator):
        opt_tokens = signal * noise * data.standard_normal((n, d))
        additional = noise * data.standard_normal((n, d))
        X = np.concatenate(
            [np.repeat(additional[:, None], T - 1, 1), opt_tokens[:, None]], 1
        )
        y = np.where(opt_tokens @ labels.standard_normal(d) >= 0, 1.0, -1.0)
        return X, y, additional, np.zeros(d), np.full(n, T - 1)

    return _stack(seeds, draw)


def unit_tokens(
    seeds: int | Sequence[int], n: int = 6, T: int = 8, d: int = 10
) -> TokenSet:
    """Draw tokens, queries and head uniformly on the unit sphere, with random labels.

    The opt token of a sample is the token of largest score y_i u^T x_{i,t}.

    Parameters
    ----------
    seeds : int or sequence of int
        The seeds. One data set is drawn for each seed.
    n : int
        The number of samples, at least 1.
    T : int
        The number of tokens per sample, at least 2.
    d : int
        The dimension of tokens and queries, at least 1.

    Returns
    -------
    TokenSet
        The data sets, one per seed.

    Raises
    ------
    ValueError
        If n < 1, T < 2 or d < 1; if a seed is not a whole number; if there is no seed.

    Notes
    -----
    The code by the authors of paper C uses these data, and so does the code of arXiv
    2308.16898. For d > 1, all scores are different with probability 1. So Assumption 2,
    which requires that all tokens of a sample except its opt token have the same score,
    fails for T > 2.

    Examples
    --------
    >>> from lib import attention
    >>> data = attention.unit_tokens([0, 1])
    >>> data.shape
    (2, 6, 8, 10)
    >>> bool(np.allclose(np.linalg.norm(data.X, axis=-1), 1))
    True
    """
    n, T, d = _sizes(n, T, d)

    def draw(data: np.random.Generator, labels: np.random.Generator):
        drawn = (data.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
        X, z, head = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in drawn)
        y = labels.choice((-1.0, 1.0), n)
        return X, y, z, head, (y[:, None] * (X @ head)).argmax(1)

    return _stack(seeds, draw)


def two_examples() -> TokenSet:
    """Return two samples of three tokens each in the plane, the data of notebook 00.

    Returns
    -------
    TokenSet
        One data set with n = 2, T = 3, d = 2 and a head u = (0, 1). Its max-margin
        solution is W_mm = ((-1/2, 0), (1/2, -1/2)).

    Examples
    --------
    >>> from lib import attention, svm
    >>> data = attention.two_examples()
    >>> data.X[0]
    array([[[ 1.,  0.],
            [ 2.,  0.],
            [ 0.,  1.]],
    <BLANKLINE>
           [[ 0.,  1.],
            [ 2.,  1.],
            [ 1., -1.]]])
    >>> svm.token_svm(data).W[0].round(3) + 0.0
    array([[-0.5,  0. ],
           [ 0.5, -0.5]])
    """
    X = np.array([[[1, 0], [2, 0], [0, 1]], [[0, 1], [2, 1], [1, -1]]], float)
    return token_set(X, np.array([1.0, -1.0]), u=np.array([0.0, 1.0]))


def _stack(
    seeds: Any,
    draw: Callable[[np.random.Generator, np.random.Generator], tuple],
) -> TokenSet:
    """Draw one data set per seed, and return them as the runs of one token set.

    `seeds` is a seed or a sequence of seeds. `draw` takes the random streams "data" and
    "labels" of one seed, and returns X (n, T, d), y, z, u and opt of the data set with
    this seed. Raises ValueError if there is no seed, or if one is not a whole number.
    """
    seeds = seed_list(seeds)
    draws = (draw(stream(seed, "data"), stream(seed, "labels")) for seed in seeds)
    first = [np.asarray(part) for part in next(draws)]
    if len(seeds) == 1:  # do not copy the data, which may take most of the memory
        return TokenSet(*(part[None] for part in first))
    stacked = [np.empty((len(seeds), *part.shape), part.dtype) for part in first]
    # Copy one data set at a time. If all of them were in a list, each would be in
    # memory twice.
    for run, parts in enumerate(chain([first], draws)):
        for whole, part in zip(stacked, parts, strict=True):
            whole[run] = part
    return TokenSet(*stacked)


def _sizes(n: int, T: int, d: int) -> tuple[int, int, int]:
    """Return the sizes as ints; raise ValueError unless n >= 1, T >= 2 and d >= 1."""
    return whole_number("n", n, 1), whole_number("T", T, 2), whole_number("d", d, 1)


def _positive(**values: float) -> None:
    """Raise ValueError, naming the value, unless every value is positive and finite."""
    for name, value in values.items():
        number = np.asarray(value)
        if number.dtype.kind not in "iuf" or not 0 < number < np.inf:
            raise ValueError(f"{name} = {value!r}; it must be positive and finite")
