"""Descent on paper B's layer: update rules, sources of gradients, and one loop.

A source is a function of (t, A, B) that returns the gradients of the loss for all runs.
Here t is the iteration. A source that draws samples draws new ones at every call. Three
sources are built here: `minibatches` uses the loss on random batches, `population` uses
the population loss, and `oracle` uses the expected loss on a fresh batch. Layers are
torch tensors A (rules, seeds, k, d) and B (rules, seeds, d, d).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from lib import seeds
from lib.regression.empirical import empirical_gradients
from lib.regression.problem import (
    Regression,
    covariance_root,
    excess_loss,
    population_gradients,
    regulariser_gradients,
)
from lib.representation import Shapes

# Any stands for a tensor of torch. Since torch takes a second to load, it is imported
# only inside the functions that need it.
Source = Callable[[int, Any, Any], tuple[Any, Any]]
PRECONDITIONERS = ("left", "left_right", "none")
LARGEST = 1e8  # a run with a larger entry in A or B counts as diverged


@dataclass(frozen=True)
class PreconditionedRule:
    """A rule of preconditioned gradient descent, such as Algorithm 1 of paper B.

    A <- A - eta g_A P_r and B <- B - eta P_l g_B P_r, with g = grad(L^ + R^), or with g
    = grad L^ if `regularised` is False.

    Parameters
    ----------
    step_size : float
        The step size eta, finite and positive.
    preconditioner : {"left", "left_right", "none"}
        With "left" (paper B, Algorithm 1), P_l = Sigma^^{-1} and P_r = I. With
        "left_right", P_l = P_r = Sigma^^{-1}. With "none", P_l = P_r = I.
    regularised : bool, default True
        Whether the gradient of the regulariser R^ is added to the gradient of L^.

    Raises
    ------
    ValueError
        If `preconditioner` is unknown, or if `step_size` is not finite and positive.

    Examples
    --------
    >>> from lib import regression
    >>> regression.PreconditionedRule(step_size=0.5)
    PreconditionedRule(step_size=0.5, preconditioner='left', regularised=True)
    """

    step_size: float
    preconditioner: str = "left"
    regularised: bool = True

    def __post_init__(self) -> None:
        if (kind := self.preconditioner) not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {kind!r}"
            )
        step_size = self.step_size
        if not (isinstance(step_size, Real) and 0 < step_size < math.inf):
            raise ValueError(f"step_size must be finite and > 0, not {step_size!r}")


def sgd(step_size: float) -> PreconditionedRule:
    """Build the rule of plain stochastic gradient descent on L^, paper B's baseline.

    Parameters
    ----------
    step_size : float
        The step size, finite and positive.

    Returns
    -------
    PreconditionedRule
        A rule without preconditioner and without regulariser.

    Raises
    ------
    ValueError
        If `step_size` is not finite and positive.

    Examples
    --------
    >>> from lib import regression
    >>> regression.sgd(step_size=0.5)
    PreconditionedRule(step_size=0.5, preconditioner='none', regularised=False)
    """
    return PreconditionedRule(
        step_size=step_size, preconditioner="none", regularised=False
    )


def library(optimiser: Callable, **options: Any) -> Callable[[float], Callable]:
    """Build rules that minimise L^ by a torch optimiser.

    Parameters
    ----------
    optimiser : type
        A class such as ``torch.optim.Adam``.
    **options : Any
        Further keyword arguments of this class.

    Returns
    -------
    callable
        A function that takes a step size and returns a rule for `descend`. Such a rule
        is a function that takes a list of matrices and returns the optimiser that moves
        them.

    Examples
    --------
    >>> import torch
    >>> from lib import regression
    >>> momentum = regression.library(torch.optim.SGD, momentum=0.9)
    >>> optimiser = momentum(0.1)([torch.zeros(2, 2)])
    >>> optimiser.defaults["lr"], optimiser.defaults["momentum"]
    (0.1, 0.9)
    """
    return lambda step_size: (
        lambda matrices: optimiser(matrices, lr=step_size, **options)
    )


def minibatches(
    X: np.ndarray, Y: np.ndarray, batch: int, of_seeds: Sequence[int]
) -> Source:
    """Build a source of in-sample gradients (Eq. 1) on random batches.

    Every iteration draws `batch` new samples, without replacement. All rules share
    them.

    Parameters
    ----------
    X : ndarray (seeds, n, d)
        The covariates of the data set of every seed.
    Y : ndarray (seeds, n, k)
        The responses.
    batch : int
        Number of samples per iteration, between 1 and n.
    of_seeds : sequence of int
        The seeds of the random draws, one per data set.

    Returns
    -------
    callable
        A source for `descend`: a function of t, A and B that returns the gradients with
        respect to A and B. Every call draws the next batch, whatever t is. A and B must
        be tensors on the CPU.

    Raises
    ------
    ValueError
        If `batch` does not lie between 1 and n, or if the number of seeds is not the
        number of data sets. A call of the source raises it if samples of the batch are
        not finite, or if shapes do not fit.

    Notes
    -----
    Paper B, Eq. 1.

    Examples
    --------
    A batch of all samples gives the gradient on the whole data set:

    >>> import torch
    >>> from lib import regression
    >>> X = np.array([[[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]])  # (seeds, n, d)
    >>> Y = np.array([[[1.0], [2.0], [3.0]]])
    >>> A = np.array([[[[0.5, 0.5]]]])  # (rules, seeds, k, d)
    >>> B = np.zeros((1, 1, 2, 2))
    >>> source = regression.minibatches(X, Y, batch=3, of_seeds=[0])
    >>> grad_A, _ = source(0, torch.tensor(A), torch.tensor(B))
    >>> np.allclose(grad_A, regression.empirical_gradients(X, Y, A, B)[0])
    True
    """
    import torch

    n = X.shape[1]
    if not 1 <= batch <= n:
        raise ValueError(f"batch is {batch}; it must lie between 1 and n = {n}")
    if len(of_seeds) != len(X):
        raise ValueError(f"of_seeds has {len(of_seeds)} seeds; it needs {len(X)}")
    streams = [seeds.stream(seed, "batches") for seed in of_seeds]
    row = np.arange(len(X))[:, None]

    def gradients(t: int, A: Any, B: Any) -> tuple[Any, ...]:
        """Return the gradients of one random batch per seed."""
        # (seeds, batch)
        drawn = np.stack(
            [rng.choice(n, batch, replace=False, shuffle=False) for rng in streams]
        )
        pair = empirical_gradients(X[row, drawn], Y[row, drawn], A.numpy(), B.numpy())
        return tuple(map(torch.from_numpy, pair))

    return gradients


def population(problem: Regression) -> Source:
    """Build a source of gradients of the population loss.

    Parameters
    ----------
    problem : Regression
        The law of the data.

    Returns
    -------
    callable
        A source for `descend`: a function of t, A and B that returns the gradients of
        the population loss with respect to A and B. They do not depend on t.

    Examples
    --------
    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3)
    >>> source = regression.population(problem)
    >>> grad_A, grad_B = source(0, A, B)
    >>> np.allclose(grad_A, regression.population_gradients(problem, A, B)[0])
    True
    """
    return lambda t, A, B: population_gradients(problem, A, B)


def oracle(problem: Regression, n: int, draws: int, of_seeds: Sequence[int]) -> Source:
    """Build a source of unbiased estimates of the expected gradient E grad L^.

    Here L^ is the in-sample loss, and the expectation is taken over a fresh batch of n
    samples. It is estimated from one query in each of `draws` batches.

    Parameters
    ----------
    problem : Regression
        The law of the data.
    n : int
        Number of samples in a batch, at least 1.
    draws : int
        Number of batches per estimate, at least 1.
    of_seeds : sequence of int
        The seeds of the random draws, one for each seed of the layers.

    Returns
    -------
    callable
        A source for `descend`: a function of t, A and B that returns estimates of the
        expected gradients with respect to A and B. Every rule and every seed gets new
        batches at every call, whatever t is.

    Raises
    ------
    ValueError
        If `n` or `draws` is below 1. A call of the source raises it if the number of
        seeds of the layers is not the length of `of_seeds`.

    Notes
    -----
    This is the expectation in Section 3.1 of paper B. The noise eps is averaged out
    exactly. Two control variates reduce the variance that remains. One is the gradient
    for infinitely many keys, whose mean is grad L. The other one is the first-order
    change of the gradient with the keys other than the query, whose mean is zero.

    Examples
    --------
    For large batches, the expected gradient is close to the gradient of the population
    loss:

    >>> import torch
    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> A, B = map(torch.tensor, regression.gaussian_start(seed=0, d=2, k=3, std=0.3))
    >>> layers = A[None, None], B[None, None]  # one rule, one seed
    >>> limit, _ = regression.population(problem)(0, *layers)
    >>> distances = []
    >>> for n in (10, 1000):
    ...     source = regression.oracle(problem, n=n, draws=200, of_seeds=[0])
    ...     grad_A, _ = source(0, *layers)
    ...     distances.append(float((grad_A - limit).norm() / limit.norm()))
    >>> distances[0] > 10 * distances[1]
    True
    """
    import torch

    if min(n, draws) < 1:
        raise ValueError(f"n and draws must be at least 1, not {n} and {draws}")
    streams = [
        torch.Generator().manual_seed(
            int(seeds.stream(seed, "batches").integers(2**62))
        )
        for seed in of_seeds
    ]

    def gradients(t: int, A: Any, B: Any) -> tuple[Any, Any]:
        """Return the population's gradients plus what finite batches add to them."""
        if A.shape[1] != len(streams):
            raise ValueError(f"of_seeds has {len(streams)} seeds; A has {A.shape[1]}")
        mean_A, mean_B = population_gradients(problem, A, B)
        for s, stream in enumerate(streams):
            for r in range(len(A)):
                beyond_A, beyond_B = _beyond_population(
                    problem, A[r, s], B[r, s], n, draws, stream
                )
                mean_A[r, s] += beyond_A
                mean_B[r, s] += beyond_B
        return mean_A, mean_B

    return gradients


def _beyond_population(
    problem: Regression, A: Any, B: Any, n: int, draws: int, stream: Any
) -> tuple[Any, Any]:
    """Estimate E grad L^ - grad L for one layer; return its parts (k, d) and (d, d).

    The layer is A (k, d) and B (d, d), and `stream` is torch's random generator.

    The estimate is the mean, over `draws` batches of n keys, of the gradient minus its
    limit for infinitely many keys minus its first-order change with the keys other than
    the query. This limit and this change, whose mean is zero, are control variates.

    In whitened coordinates, keys g (d, draws, n) are standard normal, x = Sigma^{1/2}
    g, and key 0 is the query. Logits are g^T u. Under the weights e^{g^T u}, a key has
    mean u and covariance I.
    """
    import torch

    root = torch.from_numpy(problem.root)  # Sigma^{1/2}
    M = torch.from_numpy(problem.M)
    g = torch.randn(problem.d, draws, n, generator=stream, dtype=A.dtype)
    query = g[:, :, 0].T @ root  # (draws, d)
    u = query @ B @ root  # (draws, d)
    target = query @ M.T  # (draws, k)

    # Softmax weights (draws, n) up to a common factor. Except for the weight of the
    # query, their mean is 1.
    log_normaliser = (u * u).sum(1, keepdim=True) / 2
    e = torch.exp(_dot(g, u) - log_normaliser)
    total = e.sum(1, keepdim=True)

    # The gradient of each batch.
    c = _mean(e, g) * n / total  # attended mean of the keys, (draws, d)
    error = c @ root @ A.T - target  # (draws, k)
    v = error @ A @ root
    pull = _mean(e * _dot(g, v), g) * n / total
    pull = pull - c * (v * c).sum(1, keepdim=True)

    # The limit of the gradient for infinitely many keys.
    limit_error = u @ root @ A.T - target
    limit_v = limit_error @ A @ root

    # The first-order change of the gradient with the other keys, which acts through c
    # and through pull.
    e[:, 0] = 0.0  # only the other keys from here on
    mean_weight = e.mean(1, keepdim=True)
    delta_c = _mean(e, g) - u * mean_weight
    limit_slope = _dot(g, limit_v) - (u * limit_v).sum(1, keepdim=True)
    tilted = e * limit_slope
    delta_pull = _mean(tilted, g) - u * tilted.mean(1, keepdim=True)
    delta_pull = delta_pull - limit_v * mean_weight
    delta_pull = delta_pull + delta_c @ root @ A.T @ A @ root

    # What remains of the gradients with respect to A and B, whitened on the right.
    beyond_A = error.T @ c
    beyond_A = beyond_A - limit_error.T @ (u + delta_c)
    beyond_A = beyond_A - A @ root @ delta_c.T @ u
    beyond_B = query.T @ (pull - limit_v - delta_pull)
    return beyond_A @ root / draws, beyond_B @ root / draws


def _dot(g: Any, w: Any) -> Any:
    """Return the inner products (draws, n) of the keys of each draw with its vector.

    The keys are g (d, draws, n), and the vectors are w (draws, d).
    """
    logits = g[0] * w[:, :1]
    for j in range(1, len(g)):
        logits.addcmul_(g[j], w[:, j : j + 1])
    return logits


def _mean(e: Any, g: Any) -> Any:
    """Return the mean over keys of e g: e (draws, n), g (d, draws, n) -> (draws, d)."""
    import torch

    return torch.linalg.vecdot(e, g).T / e.shape[1]


@dataclass(frozen=True, repr=False, eq=False)
class RegressionHistory(Shapes):
    """The layers of one rule at the K recorded iterations.

    Parameters
    ----------
    iterations : ndarray of int (K,)
        The recorded iterations, ascending.
    A : ndarray (seeds, K, k, d)
        The value matrices; NaN from the divergence on.
    B : ndarray (seeds, K, d, d)
        The key-query matrices; NaN from the divergence on.
    diverged : ndarray of int (seeds,)
        The first iteration at which an entry of A or B exceeded 1e8 in absolute value
        or was NaN; -1 if there was none. From this iteration on, the recorded A and B
        are NaN.

    Examples
    --------
    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3)
    >>> history = regression.RegressionHistory(
    ...     iterations=np.array([0]),
    ...     A=A[None, None],
    ...     B=B[None, None],
    ...     diverged=np.array([-1]),
    ... )
    >>> history
    RegressionHistory(iterations 0, A (1, 1, 3, 2), B (1, 1, 2, 2), diverged -1)
    >>> np.allclose(history.excess([problem]), regression.excess_loss(problem, A, B))
    True
    """

    iterations: np.ndarray
    A: np.ndarray
    B: np.ndarray
    diverged: np.ndarray

    def excess(self, problems: Sequence[Regression]) -> np.ndarray:
        """Compute the excess loss L(Z_t) - min L along the path.

        Parameters
        ----------
        problems : sequence of Regression
            The problem of every seed.

        Returns
        -------
        ndarray (seeds, K)
            The excess loss on the problem of every seed, at the recorded iterations;
            NaN from the divergence on.

        Raises
        ------
        ValueError
            If the number of problems is not the number of seeds, or if the sizes of a
            problem do not fit the layers.
        """
        layers = zip(problems, self.A, self.B, strict=True)
        return np.stack([excess_loss(*each) for each in layers])


def descend(
    source: Source,
    rules: Mapping[str, PreconditionedRule | Callable],
    starts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    covariance: np.ndarray,
    steps: int,
    record: Sequence[int],
) -> dict[str, RegressionHistory]:
    """Train by every rule, on every seed, with gradients from one source.

    Parameters
    ----------
    source : callable
        The source of the gradients, made by `population`, `minibatches` or `oracle`.
    rules : mapping of str to PreconditionedRule or callable
        The rules by name. A callable takes a list of matrices and returns the torch
        optimiser that moves them; `library` makes such rules.
    starts : mapping of str to tuple of ndarray
        The start of every rule by name: A_0 (seeds, k, d) and B_0 (seeds, d, d), of
        floats. The starts of all rules must have the same shape. Starts with other
        names are not used.
    covariance : ndarray (seeds, d, d)
        The Sigma^ in the regulariser and in the preconditioner.
    steps : int
        Number of iterations.
    record : sequence of int
        The iterations to record, between 0 and `steps`; at least one. Each is recorded
        once, in ascending order.

    Returns
    -------
    dict of str to RegressionHistory
        The history of every rule. If a run diverges, it stops, and all other runs
        continue.

    Raises
    ------
    ValueError
        If there is no rule; if a rule has no start, if a start does not have three
        axes, or if starts differ in shape; if `steps` or an iteration in `record` is
        not a whole number; if `record` is empty, or if an iteration in it is outside 0
        ... `steps`; if a covariance is not finite, symmetric and positive definite. The
        source may raise errors of its own.

    Examples
    --------
    On the population loss and with the same step size, the preconditioned rule ends
    with a smaller excess loss than plain gradient descent:

    >>> from lib import regression
    >>> problem = regression.random_regression(seed=0, d=2, k=3)
    >>> A, B = regression.gaussian_start(seed=0, d=2, k=3, std=0.3)
    >>> rules = {
    ...     "Algorithm 1": regression.PreconditionedRule(step_size=0.5),
    ...     "SGD": regression.sgd(step_size=0.5),
    ... }
    >>> starts = dict.fromkeys(rules, (A[None], B[None]))
    >>> histories = regression.descend(
    ...     source=regression.population(problem),
    ...     rules=rules,
    ...     starts=starts,
    ...     covariance=problem.Sigma[None],
    ...     steps=100,
    ...     record=[0, 100],
    ... )
    >>> for name, history in histories.items():
    ...     print(name, history.excess([problem])[0].round(4))
    Algorithm 1 [0.0566 0.0001]
    SGD [0.0566 0.0005]
    """
    import torch

    steps = seeds.whole_number("steps", steps)
    times = _times(record, steps)
    _check_starts(rules, starts)
    pairs = zip(*(starts[name] for name in rules), strict=True)
    A, B = (torch.tensor(np.stack(part)) for part in pairs)
    for Sigma in np.asarray(covariance):
        covariance_root(Sigma, "covariance")  # raises an error for a singular matrix
    movers = [
        _mover(rule, A[r], B[r], covariance) for r, rule in enumerate(rules.values())
    ]
    diverged = torch.full(A.shape[:2], -1)
    kept = {}
    for t in range(steps + 1):
        if t in times:
            kept[t] = A.numpy().copy(), B.numpy().copy()
        if t == steps or (diverged >= 0).all():
            break
        for move, gradient_A, gradient_B in zip(movers, *source(t, A, B), strict=True):
            move(gradient_A, gradient_B)
        size = torch.maximum(A.abs().amax((-1, -2)), B.abs().amax((-1, -2)))
        if not bool((size <= LARGEST).all()):  # catches NaN as well
            gone = ~(size <= LARGEST)
            A[gone], B[gone] = torch.nan, torch.nan
            diverged[gone & (diverged < 0)] = t + 1
    nothing = np.full(A.shape, np.nan), np.full(B.shape, np.nan)
    A_path, B_path = (
        np.stack([kept.get(t, nothing)[part] for t in times], 2) for part in (0, 1)
    )
    return {
        name: RegressionHistory(
            iterations=times, A=A_path[r], B=B_path[r], diverged=diverged[r].numpy()
        )
        for r, name in enumerate(rules)
    }


def _times(record: Sequence[int], steps: int) -> np.ndarray:
    """Return the recorded iterations in ascending order, each once.

    Raises ValueError if there is none, or if one is not a whole number from 0 to
    `steps`.
    """
    listed = np.ravel(record).tolist()
    times = np.unique(
        [seeds.whole_number(f"record[{k}]", t) for k, t in enumerate(listed)]
    )
    if not len(times):
        raise ValueError(f"record is empty; it needs an iteration in 0..{steps}")
    if times[-1] > steps:
        raise ValueError(f"record leaves 0..{steps}: {times[0]}..{times[-1]}")
    return times


def _check_starts(
    rules: Mapping[str, Any], starts: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    """Raise ValueError if there is no rule, or if one lacks a start of three axes."""
    if not rules:
        raise ValueError("rules is empty; give at least one rule by its name")
    if missing := set(rules) - set(starts):
        raise ValueError(f"starts lacks {', '.join(sorted(missing))}")
    for name in rules:
        A, B = starts[name]
        for letter, value, axes in (("A", A, "k, d"), ("B", B, "d, d")):
            if np.ndim(value) != 3:
                raise ValueError(
                    f"starts[{name!r}]: {letter} has shape {np.shape(value)}; it needs "
                    f"three axes, (seeds, {axes})"
                )


def _mover(
    rule: PreconditionedRule | Callable, A: Any, B: Any, covariance: np.ndarray
) -> Callable[[Any, Any], None]:
    """Build the function that takes gradients and makes a rule's step, in place.

    The step moves A (seeds, k, d) and B (seeds, d, d), which are views of the loop's
    layers. The returned function takes the gradients with respect to A and B, in the
    same shapes. `covariance` has the shape (seeds, d, d).
    """
    import torch

    if not isinstance(rule, PreconditionedRule):
        matrices = [*A.unbind(), *B.unbind()]  # views: a step moves A and B
        optimiser = rule(matrices)

        def step(g_A: Any, g_B: Any) -> None:
            """Let the torch optimiser take its step."""
            for matrix, g in zip(matrices, [*g_A.unbind(), *g_B.unbind()], strict=True):
                # Optimisers that decompose matrices raise an error for NaN, so a
                # diverged run is no longer moved.
                if bool(matrix.isfinite().all()):
                    matrix.grad = g
                else:
                    matrix.grad = None
            optimiser.step()

        return step
    Sigma = torch.as_tensor(covariance, dtype=A.dtype)
    inverse = torch.as_tensor(np.linalg.inv(covariance), dtype=A.dtype)
    eye = torch.eye(A.shape[-1], dtype=A.dtype)
    left = eye
    right = eye
    if rule.preconditioner != "none":
        left = inverse
    if rule.preconditioner == "left_right":
        right = inverse

    def move(g_A: Any, g_B: Any) -> None:
        """Take the preconditioned step."""
        if rule.regularised:
            R_A, R_B = regulariser_gradients(Sigma, A, B)
            g_A = g_A + R_A
            g_B = g_B + R_B
        A.sub_(rule.step_size * g_A @ right)
        B.sub_(rule.step_size * left @ g_B @ right)

    return move
