"""`TokenSet`, the record of token data, and the function that makes it from arrays.

All models, rules and solvers take such a record.
"""

from __future__ import (
    annotations,
)  # help() then shows ArrayLike, not what it stands for

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib.representation import Shapes

# The smallest and the largest size that tokens, queries and head may have. Beyond these
# bounds, the fourth power of a size would leave the range of float64.
SIZES = 1e-100, 1e100


@dataclass(frozen=True, repr=False, eq=False)
class TokenSet(Shapes):
    """Sequences of tokens with labels and queries, in several independent data sets.

    Each data set is called a run, and the first axis of every array is the axis of
    runs. X, y, z and u are converted to float64. An array that has this type already is
    not copied, so do not change it afterwards.

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
    mask : ndarray of bool (runs, n, T), optional
        True for a real token, False for a token that only fills up a shorter sample.
        Default: None, which means that all tokens are real. A mask without a False
        becomes None.

    Raises
    ------
    ValueError
        If a shape is wrong, the set is empty or T < 2; if values are masked or are not
        finite real numbers; if a label is not -1 or +1; if an opt index is out of
        range; if the mask is not boolean, hides all tokens of a sample, hides the opt
        token of a sample, or leaves only one token in every sample of a run. The
        message names the argument.
    TypeError
        If a value cannot become a numpy array, such as a torch tensor that is in
        bfloat16 or has a gradient.

    See Also
    --------
    token_set : Computes default queries and opt tokens; also accepts a single data set.

    Notes
    -----
    A masked token has softmax weight zero, and no score, no margin and no constraint.
    Its values in X, which may be NaN, are replaced by the opt token of its sample. A
    sample with a single real token has no margin and no constraint. If the head is
    fixed, such a sample only adds a constant to the loss.

    Examples
    --------
    >>> from lib import attention
    >>> X = np.array([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> rest = dict(z=X[:, :, 0], u=np.zeros((1, 2)), opt=np.array([[1]]))
    >>> data = attention.TokenSet(X=X, y=np.array([[1]]), **rest)
    >>> data
    TokenSet(X (1, 1, 2, 2), y (1, 1), z (1, 1, 2), u (1, 2), opt (1, 1))
    >>> attention.TokenSet(X=X, y=np.array([[0]]), **rest)
    Traceback (most recent call last):
        ...
    ValueError: y holds labels other than -1 and +1: [0.]; give 2 * y - 1
    """

    X: np.ndarray
    y: np.ndarray
    z: np.ndarray
    u: np.ndarray
    opt: np.ndarray
    mask: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in (
            "X",
            "y",
            "z",
            "u",
        ):  # differences of small integers could overflow
            object.__setattr__(self, name, _real(name, getattr(self, name)))
        object.__setattr__(self, "opt", as_array("opt", self.opt))
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
        object.__setattr__(self, "opt", _checked_opt(self.opt, T))
        if self.mask is not None:
            object.__setattr__(self, "mask", _checked_mask(self.mask, self.X))
        if self.mask is not None:
            object.__setattr__(self, "X", _filled(self.X, self.mask, self.opt))
        for name in ("X", "z", "u"):
            _check_finite(name, getattr(self, name))
        if not np.isin(self.y, (-1, 1)).all():
            held = np.unique(self.y)
            advice = "; give 2 * y - 1" if np.isin(held, (0, 1)).all() else ""
            raise ValueError(f"y holds labels other than -1 and +1: {held[:5]}{advice}")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of X.

        Returns
        -------
        tuple of int
            (runs, n, T, d).
        """
        return self.X.shape

    def run(self, index: int) -> TokenSet:
        """Select the data set of one run.

        Parameters
        ----------
        index : int
            The number of the run, counted from 0.

        Returns
        -------
        TokenSet
            The data set, with an axis of runs of length 1.

        Raises
        ------
        ValueError
            If there is no run with this number. Negative numbers do not count from the
            end.
        """
        runs = len(self.y)
        whole = isinstance(index, Integral) and not isinstance(index, bool)
        if not whole or not 0 <= index < runs:
            raise ValueError(
                f"index = {index!r}; it must be a whole number in 0 ... {runs - 1}, "
                f"since the number of runs is {runs}"
            )
        return self.take(slice(index, index + 1))

    def take(self, runs: np.ndarray | list[int] | slice) -> TokenSet:
        """Select the data sets of several runs.

        Parameters
        ----------
        runs : ndarray of int (m,), list of int or slice
            The numbers of the runs, in any order; a number may occur more than once. A
            boolean array (runs,) selects the runs for which it is True.

        Returns
        -------
        TokenSet
            The data sets of the m selected runs.

        Raises
        ------
        IndexError
            If a run does not exist.
        ValueError
            If no run is selected, or if `runs` is a single number, for which there is
            `run`.
        """
        mask = self.mask
        if mask is not None:
            mask = mask[runs]
        return TokenSet(
            X=self.X[runs],
            y=self.y[runs],
            z=self.z[runs],
            u=self.u[runs],
            opt=self.opt[runs],
            mask=mask,
        )


def _with_runs_axis(value: np.ndarray | None):
    """Prepend a runs axis of length 1 to the value; None stays None."""
    if value is None:
        return None
    return value[None]


def _real_or_none(name: str, value: ArrayLike | None) -> np.ndarray | None:
    """Return an argument as an array of real numbers; None stays None."""
    if value is None:
        return None
    return _real(name, value)


def _array_or_none(name: str, value: ArrayLike | None) -> np.ndarray | None:
    """Return an argument as an array of any type; None stays None."""
    if value is None:
        return None
    return as_array(name, value)


def _opt_by_score(tokens: TokenSet) -> np.ndarray:
    """Return the index (runs, n) of the token with the largest score in every sample.

    Raises ValueError if two tokens tie.
    """
    scores = tokens.y[..., None] * np.einsum("rntd,rd->rnt", tokens.X, tokens.u)
    if tokens.mask is not None:
        scores = np.where(tokens.mask, scores, -np.inf)
    is_largest = scores == scores.max(-1, keepdims=True)
    tied = is_largest.sum(-1) > 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        best = np.flatnonzero(is_largest[run, sample])
        shown = ", ".join(map(str, best[:5]))
        if best.size > 5:
            shown += ", ..."
        raise ValueError(
            f"sample {sample} of run {run} has a tie for the opt token: its scores are "
            f"{scores[run, sample, best[0]]:.4g} at the tokens {shown}; say which of "
            "them is the best, opt=..., and hide its copies, mask=..., or make the "
            "tokens differ, for example by adding their positions"
        )
    return scores.argmax(-1)


def token_set(
    X: ArrayLike | Sequence,
    y: ArrayLike,
    z: ArrayLike | None = None,
    u: ArrayLike | None = None,
    opt: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> TokenSet:
    """Make a TokenSet from arrays, with or without the runs axis.

    Samples of different lengths can be passed as a list of arrays, or as one padded
    array with a mask.

    Parameters
    ----------
    X : array_like (n, T, d) or (runs, n, T, d), or list of array_like (T_i, d)
        The tokens. If X has no runs axis, the other arrays must not have one either. A
        list of n arrays (T_i, d) of different lengths stands for one run, and a list of
        such lists for several runs. Shorter samples are then padded at the end, and the
        mask is computed.
    y : array_like (n,) or (runs, n)
        The labels, -1 or +1.
    z : array_like (n, d_z) or (runs, n, d_z), optional
        The queries. Default: in each sample, the first token that is not masked; this
        is the query in paper A. In data of your own, the first token may say little
        about its sample. Then pass the mean token of each sample instead, which is
        ``z=[np.mean(sample, 0) for sample in X]`` if X has no padding.
    u : array_like (d,) or (runs, d), optional
        The head. Default: zero, which is meant as a start for joint training,
        ``train(..., head="joint")``. With a fixed head of zero, all scores are zero,
        and training ends at the first step as "stalled".
    opt : array_like of int (n,) or (runs, n), optional
        The index of each sample's opt token. Default: the token of largest score y_i
        u^T x_{i,t} (paper A, Definition 1). This default needs a head. Masked tokens do
        not count.
    mask : array_like of bool (n, T) or (runs, n, T), optional
        True for a real token, False for a token that only fills up a shorter sample.
        The values of X at such tokens are ignored. Default: all tokens are real.

    Returns
    -------
    TokenSet
        The data sets, with an axis of runs.

    Raises
    ------
    ValueError
        If neither `opt` nor `u` is given; if two tokens tie for the largest score (the
        message names the sample); if an array is not as `TokenSet` requires; if X is a
        list of samples of different lengths, and their tokens differ in dimension or a
        mask is given as well; if runs have different numbers of samples.
    TypeError
        If a value cannot become a numpy array, such as a torch tensor that is in
        bfloat16 or has a gradient.

    Examples
    --------
    >>> from lib import attention
    >>> X = [[[1, 0], [0, 1]], [[0, 2], [1, -1]]]
    >>> attention.token_set(X, y=[1, -1], u=[0, 1]).opt
    array([[1, 1]])
    >>> attention.token_set(X, y=[1, -1], u=[1, 1])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: sample 0 of run 0 has a tie for the opt token: its scores are 1 at...

    Here are two texts, one of three tokens and one of two. If a padded array is passed
    instead, the values after the end of the second text do not matter.

    >>> texts = [[[1, 0], [0, 1], [2, 2]], [[0, 2], [1, -1]]]
    >>> data = attention.token_set(texts, y=[1, -1], u=[0, 1])
    >>> data.mask
    array([[[ True,  True,  True],
            [ True,  True, False]]])
    >>> attention.weights(data, np.zeros((1, 2, 2))).round(3)
    array([[[0.333, 0.333, 0.333],
            [0.5  , 0.5  , 0.   ]]])
    >>> padded = [[[1, 0], [0, 1], [2, 2]], [[0, 2], [1, -1], [7, 7]]]
    >>> mask = [[True, True, True], [True, True, False]]
    >>> again = attention.token_set(padded, y=[1, -1], u=[0, 1], mask=mask)
    >>> bool((again.X == data.X).all())
    True
    """
    padded = _padded(X)
    if padded is None:
        X = _real("X", X)
    elif mask is not None:
        raise ValueError(
            "mask comes with samples of different lengths, which make it themselves: "
            "leave it out, or pad X to one length"
        )
    else:
        X, mask = padded
    mask = _array_or_none("mask", mask)
    y = _real("y", y)
    z = _real_or_none("z", z)
    u = _real_or_none("u", u)
    opt = _array_or_none("opt", opt)
    _check_axes(X, 3, 4)
    if X.ndim == 3:
        X = _with_runs_axis(X)
        y = _with_runs_axis(y)
        z = _with_runs_axis(z)
        u = _with_runs_axis(u)
        opt = _with_runs_axis(opt)
        mask = _with_runs_axis(mask)
    runs, n, _, d = X.shape
    if mask is not None and X.size:
        mask = _checked_mask(mask, X)

    # Default values for what was not given.
    if opt is None and u is None:
        raise ValueError("opt tokens follow from a head: give opt, or u")
    first = np.zeros((runs, n), int)
    if mask is not None:
        first = mask.argmax(-1)
    if z is None and mask is not None:
        z = np.take_along_axis(X, first[..., None, None], 2)[:, :, 0]
    if z is None:
        z = X[..., 0, :]
    if u is None:
        u = np.zeros((runs, d))
    if opt is not None:
        return TokenSet(X=X, y=y, z=z, u=u, opt=opt, mask=mask)

    # Making a TokenSet checks the shapes. So make one before the scores are computed.
    unselected = TokenSet(X=X, y=y, z=z, u=u, opt=first, mask=mask)
    return replace(unselected, opt=_opt_by_score(unselected))


def _checked_mask(mask: np.ndarray, X: np.ndarray) -> np.ndarray | None:
    """Return the mask (runs, n, T), or None if it hides nothing.

    Raises ValueError unless the mask is boolean, has the shape of X without d, leaves
    at least one token in every sample, and leaves at least two tokens in some sample of
    every run.
    """
    mask = as_array("mask", mask)
    if mask.dtype != bool:
        raise ValueError(
            f"mask holds {mask.dtype} values; it needs booleans, True for a real "
            "token: give mask == 1, or its opposite"
        )
    if mask.shape != X.shape[:3]:
        raise ValueError(
            f"mask has shape {mask.shape}; it needs {X.shape[:3]}, or the same without "
            "the runs axis if X lacks it"
        )
    if mask.all():
        return None
    count = mask.sum(-1)
    if not count.all():
        run, sample = np.argwhere(count == 0)[0]
        raise ValueError(
            f"mask hides every token of sample {sample} of run {run}; leave at least "
            "one, or leave the sample out"
        )
    alone = (count == 1).all(1)
    if alone.any():
        raise ValueError(
            f"mask leaves one token in every sample of run {alone.argmax()}; attention "
            "needs at least 2 in one of them"
        )
    return mask


def _checked_opt(opt: np.ndarray, T: int) -> np.ndarray:
    """Return `opt` as integers of numpy's type for indices.

    Raises ValueError unless it holds token indices, integers from 0 to T - 1.
    """
    if not np.issubdtype(opt.dtype, np.integer):
        raise ValueError(
            f"opt holds {_kind(opt)}; it needs token indices, integers 0 ... {T - 1}"
        )
    if opt.min() < 0 or opt.max() >= T:
        raise ValueError(f"opt must hold token indices 0 ... {T - 1}")
    # The sum of a uint64 and an int64 would be a float.
    return opt.astype(np.intp, copy=False)


def _filled(X: np.ndarray, mask: np.ndarray, opt: np.ndarray) -> np.ndarray:
    """Return X with masked tokens replaced by the opt token of their sample.

    Raises ValueError if an opt token is itself masked.
    """
    hidden = ~np.take_along_axis(mask, opt[..., None], -1)[..., 0]
    if hidden.any():
        run, sample = np.argwhere(hidden)[0]
        raise ValueError(
            f"mask hides token {opt[run, sample]} of sample {sample} of run {run}, "
            "its opt token; select one that the mask shows"
        )
    # The difference between the opt token and a copy of it is zero, and a copy changes
    # neither the span of the tokens nor the largest score. Its score stays equal to the
    # score of the opt token while a head is trained. So a training loop only has to
    # give the copies the weight zero.
    chosen = np.take_along_axis(X, opt[..., None, None], 2)
    return np.where(mask[..., None], X, chosen)


def _padded(X: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Pad samples of different lengths; return X and mask, or None if all are equal.

    The returned X has the shape (n, T, d) or (runs, n, T, d), with zeros in the
    padding; the mask has the same shape without d. Raises ValueError if X is an array
    of objects, or if the nesting of the list is not one that `token_set` allows.
    """
    if isinstance(X, np.ndarray) and X.dtype == object:
        raise ValueError(
            "X is an array of objects; give samples of different lengths as a list of "
            "arrays (T_i, d), one per sample"
        )
    if not isinstance(X, list | tuple) or not _is_ragged(X):
        return None
    if _depth(X) == 3:
        samples = _samples([X])
    elif _depth(X) == 4:
        samples = _samples(X)
    else:
        raise ValueError(
            "X holds sequences of different lengths; it needs an array, or a list of n "
            "arrays (T_i, d), or a list of such lists, one per run"
        )
    lengths = np.array([len(sample) for sample in samples])
    mask = np.arange(lengths.max()) < lengths[:, None]
    filled = np.zeros((*mask.shape, samples[0].shape[1]))
    filled[mask] = np.concatenate(samples)
    if _depth(X) == 3:
        return filled, mask
    runs = len(X)
    return filled.reshape(runs, -1, *filled.shape[1:]), mask.reshape(
        runs, -1, mask.shape[1]
    )


def _samples(sets: Sequence) -> list[np.ndarray]:
    """List the samples (T_i, d) of all runs.

    `sets` contains one sequence of samples for each run. Raises ValueError unless all
    runs have the same number of samples and all tokens have the same dimension.
    """
    n = len(sets[0])
    samples = []
    for run, data in enumerate(sets):
        if len(data) != n:
            raise ValueError(
                f"X has {len(data)} samples in run {run} and {n} in run 0; all runs "
                "need the same number"
            )
        for i, sample in enumerate(data):
            samples.append(_sample(f"sample {i} of run {run}", sample))
            d = samples[0].shape[1]
            if samples[-1].shape[1] != d:
                raise ValueError(
                    f"X: sample {i} of run {run} has tokens of dimension "
                    f"{samples[-1].shape[1]}; it needs {d}, as sample 0 of run 0. A "
                    "sample is an array (T_i, d), a row for each token"
                )
    return samples


def _is_ragged(X: ArrayLike) -> bool:
    """Return whether nested sequences have different lengths at the same depth."""
    try:
        np.asarray(X)
    except ValueError:
        return True
    except (RuntimeError, TypeError):  # a torch tensor that numpy does not accept
        return False
    return False


def _depth(value: Any) -> int:
    """Count the axes of nested sequences along their first entries."""
    if not isinstance(value, list | tuple):
        return np.ndim(value)
    if not value:
        return 1
    return 1 + _depth(value[0])


def _sample(name: str, tokens: ArrayLike) -> np.ndarray:
    """Return the tokens of one sample as floats (T_i, d).

    Raises ValueError, with the `name` of the sample, if the tokens do not form such an
    array, or if the array is empty.
    """
    if _is_ragged(tokens):
        raise ValueError(f"X: {name} has tokens of different dimensions")
    values = as_array(f"X: {name}", tokens)
    if values.ndim != 2 or not values.size:
        raise ValueError(
            f"X: {name} has shape {values.shape}; it needs (T_i, d), neither of them 0"
        )
    return _real(f"X: {name}", values)


def _check_axes(X: np.ndarray, *allowed: int) -> None:
    """Raise ValueError unless X has one of the allowed numbers of axes, 3 or 4."""
    if X.ndim not in allowed:
        axes = {3: "(n, T, d)", 4: "(runs, n, T, d)"}
        needed = " or ".join(axes[number] for number in allowed)
        raise ValueError(f"X has shape {X.shape}; it needs {needed}")


def _check_finite(name: str, value: np.ndarray) -> None:
    """Raise ValueError if X, z or u (`name`) holds NaN or infinity.

    The message gives the run of the first such value, and also its sample and its token
    if the array has these axes.
    """
    wrong = ~np.isfinite(value)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        # The last axis holds the entries of a vector; u has no axis of samples.
        if name == "u":
            axes = ("run",)
        else:
            axes = ("run", "sample", "token")[: value.ndim - 1]
        where = ", ".join(f"{axis} {k}" for axis, k in zip(axes, place, strict=False))
        raise ValueError(f"{name} holds NaN or infinite values, first in {where}")


def _kind(value: np.ndarray) -> str:
    """Describe in words what an array contains instead of real numbers."""
    if value.dtype.kind in "USO":
        return f"text or objects such as {value.ravel().tolist()[0]!r:.60}"
    return f"{value.dtype} values"


def _real(name: str, value: ArrayLike):
    """Return a value as float64; raise ValueError if it does not hold real numbers.

    Booleans and integers are accepted. The array is copied only if its type changes.
    """
    value = as_array(name, value)
    if value.dtype.kind not in "biuf":
        if name == "y":
            needed = "labels -1 and +1"
        else:
            needed = "real numbers"
        raise ValueError(f"{name} holds {_kind(value)}; it needs {needed}")
    # A wider float may become infinite here; `_check_finite` reports that.
    with np.errstate(over="ignore"):
        return value.astype(float, copy=False)


def as_array(name: str, value: ArrayLike) -> np.ndarray:
    """Convert a value to an array without changing its type, or raise an error.

    The function raises ValueError if entries are masked or if sequences differ in
    length, and TypeError if numpy cannot convert the value. The message contains
    `name`.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"{name} has masked entries; give each of them a value")
    try:
        return np.asarray(value)
    except ValueError:
        words = f"{name} holds sequences of different lengths; it needs an array"
        raise ValueError(words) from None
    except (RuntimeError, TypeError) as error:
        # A torch tensor in bfloat16, or one with a gradient.
        raise TypeError(
            f"{name} cannot become a numpy array: give t.detach().cpu().float() in "
            f"place of a torch tensor t ({error})"
        ) from None


def check_kind(tokens: Any) -> None:
    """Raise TypeError unless `tokens` is a TokenSet."""
    if not isinstance(tokens, TokenSet):
        raise TypeError(
            f"tokens = {type(tokens).__name__}; it must be a TokenSet, which "
            "lib.token_set makes of arrays, or the `.tokens` of a Minimal"
        )


def check_sizes(tokens: TokenSet) -> None:
    """Raise ValueError if the sizes of tokens, queries or head lie outside `SIZES`.

    A size is the largest absolute entry of X, z or u, over all runs; zero is allowed.
    Every training function calls this before it starts.
    """
    for name in ("X", "z", "u"):
        values = getattr(tokens, name)
        largest = max(values.max(), -values.min())  # np.abs would copy all values
        if largest and not SIZES[0] <= largest <= SIZES[1]:
            words = (
                f"{name} has largest entry {largest:.3g}, "
                "whose fourth power leaves float64"
            )
            raise ValueError(
                f"{words}; rescale it to within {SIZES[0]:g} ... {SIZES[1]:g}"
            )
