"""Starts W_0 of training, in two parts: inside and outside the tokens' span."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from lib.attention import coordinates
from lib.dynamics.rules import real_numbers
from lib.representation import Shapes
from lib.seeds import gaussian, seed_list, stream


@dataclass(frozen=True, repr=False, eq=False)
class Start(Shapes):
    """W_0 in two parts: one inside the span of tokens and queries, one outside.

    `Start` does not check the arrays it is given; `train` does.

    Parameters
    ----------
    inside : ndarray (runs, r, q)
        The part within the span, in minimal coordinates.
    outside : ndarray (runs,)
        The norm of the part outside the span, at least zero. Training never changes
        this part.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> problem = attention.minimal(attention.two_examples())
    >>> start = dynamics.gaussian_start(problem, std=0.1, seeds=[0])
    >>> start
    Start(inside (1, 2, 2), outside 0)
    """

    inside: np.ndarray
    outside: np.ndarray


def zero_start(problem: coordinates.Minimal) -> Start:
    """Return W_0 = 0.

    Parameters
    ----------
    problem : Minimal
        The problem, from `attention.minimal`.

    Returns
    -------
    Start
        A start of zeros: `inside` (runs, r, q) and `outside` (runs,).

    Raises
    ------
    TypeError
        If `problem` is not a Minimal.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> problem = attention.minimal(attention.two_examples())
    >>> float(dynamics.zero_start(problem).outside[0])
    0.0
    """
    _check_problem(problem)
    runs = len(problem.tokens.y)
    r = problem.token_basis.shape[2]
    q = problem.query_basis.shape[2]
    return Start(np.zeros((runs, r, q)), np.zeros(runs))


def _check_problem(problem: Any) -> None:
    """Raise TypeError unless `problem` is a Minimal."""
    if not isinstance(problem, coordinates.Minimal):
        raise TypeError(
            f"problem = {type(problem).__name__}; it must be a Minimal, which "
            "lib.attention.minimal makes of a TokenSet"
        )


def gaussian_start(
    problem: coordinates.Minimal, std: float, seeds: int | Iterable[int]
) -> Start:
    """Draw a W_0 with independent Gaussian entries, in minimal coordinates.

    The part inside the span has r q independent entries N(0, std^2). The norm of the
    part outside is std times a chi variable with d d_z - r q degrees of freedom. We
    draw only this norm, so that the cost does not grow with the dimension.

    Parameters
    ----------
    problem : Minimal
        The problem, from `attention.minimal`.
    std : float
        The standard deviation of an entry of W_0 (d, d_z), finite and at least zero.
    seeds : int or iterable of int
        One seed per run of `problem`. The number of seeds is checked only in `train`.

    Returns
    -------
    Start
        The drawn start: `inside` (runs, r, q) and `outside` (runs,).

    Raises
    ------
    ValueError
        If `std` is negative or not finite; if a seed is not a whole number, or if
        there are no seeds.
    TypeError
        If `problem` is not a Minimal, or `std` is not a number.

    Notes
    -----
    Paper A uses such a start in its Lemma 4.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> tokens = attention.class_mean_tokens([0], n=4, T=3, d=300)
    >>> start = dynamics.gaussian_start(attention.minimal(tokens), 1.0, seeds=[0])
    >>> norm = np.hypot(np.linalg.norm(start.inside), start.outside[0])
    >>> bool(abs(norm - 300) < 3)  # 300^2 entries of variance 1
    True
    """
    _check_problem(problem)
    if not 0 <= real_numbers("std", std) < inf:
        raise ValueError(f"std = {std}; it must be finite, zero or above")
    (_, d, r) = problem.token_basis.shape
    (_, d_z, q) = problem.query_basis.shape
    # The squared norm of the part outside is std^2 times a chi-squared variable, with
    # one degree of freedom for each direction outside.
    directions_outside = d * d_z - r * q
    seeds = seed_list(seeds)
    squares = np.zeros(len(seeds))
    if directions_outside > 0:
        for run, seed in enumerate(seeds):
            squares[run] = stream(seed, "outside").chisquare(directions_outside)
    return Start(gaussian(seeds, (r, q), std), std * np.sqrt(squares))
