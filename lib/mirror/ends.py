"""How a run of paper C starts, and which tokens it selects."""

from collections.abc import Iterable

import numpy as np

from lib import attention
from lib.attention.token_sets import TokenSet
from lib.seeds import gaussian


def gaussian_start(
    tokens: TokenSet, seeds: int | Iterable[int], std: float = 1.0
) -> np.ndarray:
    """Draw W_0 with independent N(0, std^2) entries, one seed per run.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, whose sizes give d and d_z.
    seeds : int or iterable of int
        One seed per run. The number of seeds is not compared with the number of data
        sets.
    std : float, default 1.0
        Standard deviation of every entry.

    Returns
    -------
    ndarray (runs, d, d_z)
        The start W_0, one matrix per seed.

    Raises
    ------
    ValueError
        If there is no seed, or a seed is not a whole number of at least 0.

    Examples
    --------
    >>> from lib import attention, mirror
    >>> data = attention.two_examples()
    >>> mirror.gaussian_start(data, seeds=[0]).shape
    (1, 2, 2)
    """
    return gaussian(seeds, (tokens.shape[-1], tokens.z.shape[-1]), std)


def selected_tokens(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Return the token of every sample that attention at W selects.

    This is the token alpha_i = argmax_t of the softmax weights of sample i.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    W : ndarray (runs, d, d_z)
        The attention matrix of every run.

    Returns
    -------
    ndarray of int (runs, n)
        The index alpha_i of the token with the largest weight.

    Raises
    ------
    ValueError
        If two tokens of a sample share the largest logit, or if the logits of a sample
        are NaN. The message names the run and the sample.

    Examples
    --------
    A random W may select any token; a trained W selects the opt tokens:

    >>> from lib import attention, dynamics, mirror
    >>> data = attention.two_examples()
    >>> data.opt
    array([[2, 2]])
    >>> start = mirror.gaussian_start(data, seeds=[0])
    >>> mirror.selected_tokens(data, start)
    array([[1, 0]])
    >>> rule = dynamics.MirrorDescent(p=2.0)
    >>> history = dynamics.train(data, rule, 100, start=start)
    >>> mirror.selected_tokens(data, history.W[:, -1])
    array([[2, 2]])
    """
    logits = attention.logits(tokens, W)
    tied = (logits == logits.max(-1, keepdims=True)).sum(-1) != 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        where = f"sample {sample} of run {run}"
        row = logits[run, sample]
        raise ValueError(f"{where} has two equal softmax maxima or none: logits {row}")
    return logits.argmax(-1)
