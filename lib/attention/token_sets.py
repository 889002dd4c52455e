"""The record of token data, and how arrays become one.

All models, rules and solvers take this record.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from lib.representation import Shapes

SIZES = 1e-100, 1e100  # of tokens, queries, head; fourth powers leave float64


@dataclass(frozen=True, repr=False)
class TokenSet(Shapes):
    """Sequences of tokens with labels and queries, of several independent data sets.

    The data sets are called runs: the first axis of every array is the run. X, y, z and
    u become float64.

    Parameters
    ----------
    X : ndarray (runs, n, T, d)
        The tokens x_{i,t}: T tokens of dimension d in each of n samples.
    y : ndarray (runs, n)
        The labels, -1 or +1.
    z : ndarray (runs, n, d_z)
        The queries. In paper A the query is the first token of the sample.
    u : ndarray (runs, d)
        The linear head. It is zero if it is still to be trained.
    opt : ndarray of int (runs, n)
        The index of each sample's opt token.

    Raises
    ------
    ValueError
        If a shape is wrong, the set is empty or T < 2; if values are masked or are not
        finite real numbers; if a label is not -1 or +1; if an opt index is out of
        range. The message names the argument.

    See Also
    --------
    token_set : Fills in what follows from the tokens, and takes one data set as well.

    Examples
    --------
    >>> from lib import attention
    >>> X = np.array([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> rest = dict(z=X[:, :, 0], u=np.zeros((1, 2)), opt=np.array([[1]]))
    >>> data = attention.TokenSet(X=X, y=np.array([[1]]), **rest)
    >>> data
    TokenSet(X 1 x 1 x 2 x 2, y 1 x 1, z 1 x 1 x 2, u 1 x 2, opt 1 x 1)
    >>> attention.TokenSet(X=X, y=np.array([[0]]), **rest)
    Traceback (most recent call last):
        ...
    ValueError: y holds labels other than -1 and +1: [0.]
    """

    X: np.ndarray
    y: np.ndarray
    z: np.ndarray
    u: np.ndarray
    opt: np.ndarray

    def __post_init__(self) -> None:
        for name in (
            "X",
            "y",
            "z",
            "u",
        ):  # in small integers differences would wrap around
            object.__setattr__(self, name, _real(name, getattr(self, name)))
        object.__setattr__(self, "opt", _array("opt", self.opt))
        _check_axes(self.X, 4)
        runs, n, T, d = self.X.shape
        if self.X.size == 0:
            raise ValueError(
                f"X has shape {self.X.shape}; no axis (runs, n, T, d) may be empty"
            )
        if T < 2:
            raise ValueError(
                f"X has T = {T} token per sample; attention needs at least 2"
            )
        d_z = self.z.shape[-1] if self.z.ndim == 3 else d
        if d_z == 0:
            raise ValueError(
                f"z has shape {self.z.shape}; a query needs at least one entry"
            )
        wanted = {"y": (runs, n), "z": (runs, n, d_z), "u": (runs, d), "opt": (runs, n)}
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}; it needs {shape}"
                )
        for name in ("X", "z", "u"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} holds NaN or infinite values")
        if not np.isin(self.y, (-1, 1)).all():
            raise ValueError(
                f"y holds labels other than -1 and +1: {np.unique(self.y)[:5]}"
            )
        whole = np.issubdtype(self.opt.dtype, np.integer)
        if not whole or self.opt.min() < 0 or self.opt.max() >= T:
            raise ValueError(f"opt must hold token indices 0 ... {T - 1}")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of X.

        Returns
        -------
        tuple of int
            (runs, n, T, d).
        """
        return self.X.shape

    def run(self, index: int) -> "TokenSet":
        """Select the data set of one run.

        Parameters
        ----------
        index : int
            The number of the run, from 0.

        Returns
        -------
        TokenSet
            The data set. It keeps the runs axis, with length 1.
        """
        part = slice(index, index + 1)
        return TokenSet(
            X=self.X[part],
            y=self.y[part],
            z=self.z[part],
            u=self.u[part],
            opt=self.opt[part],
        )


def _with_runs_axis(value: np.ndarray | None):
    """Add an axis of one run in front of the value; None stays None."""
    return None if value is None else value[None]


def _opt_by_score(tokens: TokenSet) -> np.ndarray:
    """Find the token of largest score of every sample, (runs, n).

    Raises ValueError if two tokens tie.
    """
    scores = tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, tokens.u)
    is_largest = scores == scores.max(-1, keepdims=True)
    tied = is_largest.sum(-1) > 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        words = f"sample {sample} of run {run} has a tie for the opt token"
        raise ValueError(f"{words}: its scores are {scores[run, sample]}")
    return scores.argmax(-1)


def token_set(
    X: ArrayLike,
    y: ArrayLike,
    z: ArrayLike | None = None,
    u: ArrayLike | None = None,
    opt: ArrayLike | None = None,
) -> TokenSet:
    """Make a TokenSet from arrays, with or without the runs axis.

    Parameters
    ----------
    X : array_like (n, T, d) or (runs, n, T, d)
        The tokens. Without the runs axis all other arrays lack it too.
    y : array_like (n,) or (runs, n)
        The labels, -1 or +1.
    z : array_like (n, d_z) or (runs, n, d_z), optional
        The queries. Default: the first token of each sample.
    u : array_like (d,) or (runs, d), optional
        The head. Default: zero.
    opt : array_like of int (n,) or (runs, n), optional
        The index of each sample's opt token. Default: the token of largest score
        y_i u^T x_{i,t} (paper A, Definition 1), which needs a head.

    Returns
    -------
    TokenSet
        The data sets, with the runs axis.

    Raises
    ------
    ValueError
        If neither `opt` nor `u` is given; if two tokens tie for the largest score (the
        message names the sample); if an array is not as `TokenSet` requires.

    Examples
    --------
    >>> from lib import attention
    >>> X = [[[1, 0], [0, 1]], [[0, 2], [1, -1]]]
    >>> attention.token_set(X, y=[1, -1], u=[0, 1]).opt
    array([[1, 1]])
    >>> attention.token_set(X, y=[1, -1], u=[1, 1])
    Traceback (most recent call last):
        ...
    ValueError: sample 0 of run 0 has a tie for the opt token: its scores are [1. 1.]
    """
    X = _real("X", X)
    y = _real("y", y)
    z = None if z is None else _real("z", z)
    u = None if u is None else _real("u", u)
    opt = None if opt is None else _array("opt", opt)
    _check_axes(X, 3, 4)
    if X.ndim == 3:
        X = _with_runs_axis(X)
        y = _with_runs_axis(y)
        z = _with_runs_axis(z)
        u = _with_runs_axis(u)
        opt = _with_runs_axis(opt)
    runs, n, _, d = X.shape

    # What was not given.
    if opt is None and u is None:
        raise ValueError("opt tokens follow from a head: give opt, or u")
    if z is None:
        z = X[..., 0, :]
    if u is None:
        u = np.zeros((runs, d))
    if opt is not None:
        return TokenSet(X=X, y=y, z=z, u=u, opt=opt)

    # A TokenSet checks the shapes, so that the scores are taken from one.
    unselected = TokenSet(X=X, y=y, z=z, u=u, opt=np.zeros((runs, n), int))
    return replace(unselected, opt=_opt_by_score(unselected))


def _check_axes(X: np.ndarray, *allowed: int):
    if X.ndim not in allowed:
        raise ValueError(
            f"X has shape {X.shape}; it needs (n, T, d) or (runs, n, T, d)"
        )


def _real(name: str, value: ArrayLike):
    value = _array(name, value)
    if value.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {value.dtype} values; it needs real numbers")
    with np.errstate(over="ignore"):  # of wider floats: infinite, and said as such
        return value.astype(float, copy=False)


def _array(name: str, value: ArrayLike):
    if np.ma.is_masked(value):
        raise ValueError(f"{name} has masked entries; give each of them a value")
    try:
        return np.asarray(value)
    except ValueError:
        words = f"{name} holds sequences of different lengths; it needs an array"
        raise ValueError(words) from None


def check_sizes(tokens: TokenSet) -> None:
    """Raise ValueError if tokens, queries or head leave `SIZES`.

    Whatever trains calls this first.
    """
    for name in ("X", "z", "u"):
        values = getattr(tokens, name)
        largest = max(values.max(), -values.min())  # without a copy of them all
        if largest and not SIZES[0] <= largest <= SIZES[1]:
            words = (
                f"{name} has largest entry {largest:.3g}, "
                "whose fourth power leaves float64"
            )
            raise ValueError(
                f"{words}; rescale it to within {SIZES[0]:g} ... {SIZES[1]:g}"
            )
