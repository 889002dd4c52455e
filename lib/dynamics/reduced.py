"""Reduce a problem to its Gram matrices, and train on these, compiled or in numpy."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from lib import attention, blas, memory, progress
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import gram, softmax
from lib.compiled.status import COMPLETED, DIVERGED, LOG_LONGEST, STALLED
from lib.dynamics import factored_kernel, kernel, recording
from lib.dynamics.rules import NGD, BuiltIn, Rule, own_log_step

# The two ways to multiply a vector by a Gram matrix: with the formed matrix, or only
# with the factors of the matrix.
FORMS = ("gram", "factored")
# A product with a formed matrix reads the m^2 entries of the matrix. A product with the
# factors costs twice as much per number that it reads, plus a fixed cost that equals
# the cost of reading 25,000 numbers. These two constants were measured on 42 to 5,800
# pairs of tokens.
FACTORED_COST = 2.0
FACTORED_START = 25_000
FORMED_COPIES = 4  # copies of a Gram matrix that exist at once while it is formed
RECORD_COPIES = 4  # copies of the records that exist while a history is derived
LARGE = 2**22  # the largest number of entries of an intermediate array


def cheapest_form(n: int, S: int, r: int, q: int) -> str:
    """Choose between a formed Gram matrix and its factors, by the cost of a product.

    Parameters
    ----------
    n : int
        Number of samples.
    S : int
        Number of vectors per sample.
    r : int
        Dimension of the vectors.
    q : int
        Dimension of the second factor w_i, the vector that all pairs of a sample share.

    Returns
    -------
    str
        "gram" or "factored"; "gram" if the two cost the same.

    Examples
    --------
    >>> cheapest_form(20, 9, 200, 20)  # the size of the papers
    'gram'
    >>> cheapest_form(200, 29, 64, 64)  # 200 sentences of 30 tokens
    'factored'
    """
    formed = (n * S) ** 2
    factored = FACTORED_START + FACTORED_COST * n * r * (S + min(q, n / 2))
    if formed > factored:
        return "factored"
    return "gram"


@dataclass(frozen=True)
class GramProduct:
    """The product K c with the Gram matrix K of the outer products v_{it} w_i^T.

    Let W = sum_m c_m v_m w_m^T, where the sum runs over all m = (i, t). Then entry m of
    K c is the margin v_m^T W w_m, and c^T K c = ||W||^2. Training needs two such
    products: `Reduced.K` for pairs of tokens, and `Reduced.G` for tokens times their
    labels. Either K is formed, or products are computed from the factors v and w;
    `cheapest_form` says which is cheaper.

    Parameters
    ----------
    v : ndarray (runs, n, S, r)
        The vectors v_{it}, S of them in each sample.
    w : ndarray (runs, n, q)
        The vector w_i that all v_{it} of sample i share as their second factor.
    first : ndarray of int (runs, n, S)
        For each vector, the index 0 ... S-1 of the first vector of its sample that
        equals it; if no earlier vector does, this is its own index. Every product
        copies the entry of this first vector, so that equal vectors have bitwise equal
        entries.
    matrix : ndarray (runs, n S, n S)
        The Gram matrix, or (runs, n S, 0) if it is not formed.
    """

    v: np.ndarray
    w: np.ndarray
    first: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(
        cls, v: np.ndarray, w: np.ndarray, first: np.ndarray, form: str
    ) -> "GramProduct":
        """Make the product from the first three fields, in one of FORMS.

        The form "gram" forms K, and raises MemoryError if K would not fit into memory.
        """
        runs, n, S, _ = v.shape
        if form == "factored":
            matrix = np.zeros((runs, n * S, 0))
        else:
            memory.require(
                FORMED_COPIES * 8.0 * runs * (n * S) ** 2,
                f"the Gram matrix of {n * S:,} pairs of tokens in {runs} runs",
                'product="factored" does without it',
            )
            matrix = _tied(coordinates.gram(v, w), first)
        return cls(np.ascontiguousarray(v), np.ascontiguousarray(w), first, matrix)

    @property
    def formed(self) -> bool:
        """Whether K itself is stored, and not only its factors."""
        return self.matrix.shape[2] == self.matrix.shape[1]

    def __call__(self, c: np.ndarray) -> np.ndarray:
        """Return K c, in the shape of c: the margins of W = sum_m c_m v_m w_m^T.

        The coefficients c are (runs, m), or (runs, k, m) for k records, with m = n S.
        If K is not formed, the product is computed through W. In each sample, b (runs,
        k, n, r) is the sum of the vectors v weighted with their coefficients. Then
        `low` (runs, k, q, r) is W^T, h (runs, k, n, r) is W w_i for each sample, and
        the margins are the inner products of v with h.
        """
        if self.formed and c.ndim == 2:
            return np.einsum("rij,rj->ri", self.matrix, c)
        if self.formed:
            return c @ self.matrix
        runs, n, S, r = self.v.shape
        split = c.reshape(runs, -1, n, S)
        product = np.empty_like(split)
        at_once = max(1, LARGE // (runs * n * r))  # how many records are done at once
        for k in range(0, split.shape[1], at_once):
            part = slice(k, k + at_once)
            b = np.einsum("rkns,rnsd->rknd", split[:, part], self.v, optimize=True)
            low = np.einsum("rnq,rknd->rkqd", self.w, b, optimize=True)
            h = np.einsum("rnq,rkqd->rknd", self.w, low, optimize=True)
            product[:, part] = np.einsum("rnsd,rknd->rkns", self.v, h, optimize=True)
        product = np.take_along_axis(product, self.first[:, None], 3)
        return product.reshape(c.shape)

    def factors(self) -> gram.Factors:
        """Return the arrays from which the compiled loop multiplies with K.

        If K is formed, all of them are empty, because the loop then reads K itself.
        Otherwise, `pairs` is formed only if there are so few samples that it costs less
        than products with w, and `first` is filled only if two vectors are equal.
        """
        runs, n, S, _ = self.v.shape
        if self.formed:
            return gram.Factors(
                v=np.zeros((runs, 0, 0, 0)),
                w=np.zeros((runs, 0, 0)),
                pairs=np.zeros((runs, 0, 0)),
                first=np.zeros((runs, 0), int),
            )
        if n < 2 * self.w.shape[2]:
            pairs = self.w @ np.swapaxes(self.w, 1, 2)
        else:
            pairs = np.zeros((runs, n, 0))
        # In the compiled loop, the pairs are ordered by token first, then by sample.
        places = (self.first * n + np.arange(n)[:, None]).swapaxes(1, 2)
        first = places.reshape(runs, n * S)
        if (first == np.arange(n * S)).all():
            first = first[:, :0].copy()
        return gram.Factors(self.v, self.w, pairs, np.ascontiguousarray(first))


@dataclass(frozen=True)
class Reduced:
    """A problem in the form that the training loop needs, with each opt token first.

    Parameters
    ----------
    delta : ndarray (runs, n, T-1, r)
        The opt token of each sample minus each of its other tokens; zero for a masked
        token.
    signed : ndarray (runs, n, T, r)
        The tokens times the labels of their samples, y_i x_{i,t}. If the head is fixed,
        the array is empty: it has no runs.
    z : ndarray (runs, n, q)
        The queries.
    K : GramProduct
        The product with the Gram matrix of the outer products delta_{it} z_i^T.
    G : GramProduct
        The product with the Gram matrix of the tokens in `signed`. If the head is
        fixed, it has no vectors.
    margins : ndarray (runs, n, T-1)
        The margins at the start; `softmax.FAR` for a masked token.
    scores : ndarray (runs, n, T)
        The scores at the start.
    head_fixed : bool
        Whether the head is not trained.
    loss : str
        One of ``attention.LOSSES``.
    hidden : ndarray of bool (runs, n, T-1) or None
        Whether the other token of a pair is masked, so that its margin stays at
        `softmax.FAR`; None if no token is masked.
    """

    delta: np.ndarray
    signed: np.ndarray
    z: np.ndarray
    K: GramProduct
    G: GramProduct
    margins: np.ndarray
    scores: np.ndarray
    head_fixed: bool
    loss: str
    hidden: np.ndarray | None = None


def reduce(
    tokens: TokenSet, W_0: np.ndarray, head: str, loss: str, form: str | None = None
) -> Reduced:
    """Convert a token set in minimal coordinates to the form that training needs.

    Parameters
    ----------
    tokens : TokenSet
        The token set in minimal coordinates.
    W_0 : ndarray (runs, r, q)
        The start W_0 in minimal coordinates.
    head : {"fixed", "joint"}
        Whether the head stays fixed, or is trained together with W.
    loss : str
        One of ``attention.LOSSES``.
    form : {"gram", "factored"}, optional
        The form of both products. Default: the cheaper form for each product.

    Returns
    -------
    Reduced
        The problem.

    Raises
    ------
    MemoryError
        If a Gram matrix would not fit.
    """
    runs, n, T, r = tokens.shape
    q = tokens.z.shape[2]
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    keys = tokens.z @ np.swapaxes(W_0, 1, 2)  # W_0 z_i, (runs, n, r)
    pairs = coordinates.first_equal(delta)
    margins = np.take_along_axis((delta @ keys[..., None])[..., 0], pairs, 2)
    if hidden is not None:
        margins[hidden] = softmax.FAR
    of_tokens = tokens.y[..., None] * (tokens.X @ tokens.u[:, None, :, None])[..., 0]
    of_tokens = np.take_along_axis(of_tokens, coordinates.first_equal(tokens.X), 2)
    scores = np.take_along_axis(of_tokens, coordinates.opt_first(tokens), 2)
    K = GramProduct.of(delta, tokens.z, pairs, form or cheapest_form(n, T - 1, r, q))
    if head == "fixed":
        signed = np.zeros((0, n, T, r))
        none = np.zeros((runs, 0, 0))
        G = GramProduct(none[..., None], none, none.astype(int), none)
    else:
        signed = coordinates.signed_opt_first(tokens)
        every = coordinates.first_equal(signed)
        ones = np.ones((runs, n, 1))  # all samples share one head, so w_i = 1 for all
        G = GramProduct.of(signed, ones, every, form or cheapest_form(n, T, r, 1))
    return Reduced(
        delta=delta,
        signed=signed,
        z=tokens.z,
        K=K,
        G=G,
        margins=margins,
        scores=scores,
        head_fixed=head == "fixed",
        loss=loss,
        hidden=hidden,
    )


def _tied(K: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Make the rows and columns of K bitwise equal for equal vectors.

    The matrix product that formed K may have rounded these rows and columns
    differently. Here K is (runs, n T, n T), `first` (runs, n, T) is the result of
    `first_equal`, and the returned matrix has the shape of K.
    """
    runs, n, T = first.shape
    if (first == np.arange(T)).all():  # no equal vectors: avoid two copies of K
        return K
    index = (np.arange(n)[:, None] * T + first).reshape(runs, n * T)
    K = np.take_along_axis(K, index[:, :, None], 1)
    return np.take_along_axis(K, index[:, None, :], 2)


def _empty(runs: int, n: int, T: int, k: int, head_fixed: bool):
    """Return records of k iterations that are still to be filled, as arrays by name.

    The names and shapes are those of `kernel.Records`, with runs in place of jobs;
    status and ended (runs,) are added. For a fixed head, scores and b have no
    iterations. Raises MemoryError if the records would not fit.
    """
    # The approximate number of entries that one iteration records: those of margins and
    # alpha and, unless the head is fixed, those of scores and b.
    if head_fixed:
        head_iterations = 0
        numbers = runs * n * 2 * T
    else:
        head_iterations = k
        numbers = runs * n * 4 * T
    one = RECORD_COPIES * 8.0 * numbers
    fit = int(memory.available() / one)
    memory.require(
        one * k,
        f"recording {k:,} iterations of {n} samples of {T} tokens in {runs} runs",
        f"give record=, with about {fit:,} iterations or fewer, or train fewer runs",
    )
    pairs = (k, n, T - 1)
    tokens = (head_iterations, n, T)
    return recording.unwritten(
        COMPLETED,
        runs,
        margins=pairs,
        scores=tokens,
        alpha=pairs,
        b=tokens,
        logs=(k, 5),
    )


def run_compiled(
    problem: Reduced, rules: Sequence[BuiltIn], times: np.ndarray
) -> list[SimpleNamespace]:
    """Train every run with each rule in the compiled kernel, on all cores.

    Parameters
    ----------
    problem : Reduced
        The problem.
    rules : sequence of BuiltIn
        The rules.
    times : ndarray of int (k,)
        The iterations to record, ascending.

    Returns
    -------
    list of SimpleNamespace
        The raw records of each rule, in the order of `rules`. They have the fields of
        `kernel.Records`, all of which are filled even for a fixed head, and two more:
        `status` and `ended`, each of shape (runs,). Entries after the end of a run are
        NaN.

    Raises
    ------
    ValueError
        If the loss is not one of ``attention.COMPILED_LOSSES``.
    MemoryError
        If the records would not fit.
    """
    runs, n, T = problem.scores.shape
    every = len(rules), 1, 1
    numbers = np.array([rule.numbers() for rule in rules])
    raw = _empty(len(rules) * runs, n, T, times.size, problem.head_fixed)
    jobs = kernel.Jobs(
        data=np.tile(np.arange(runs), len(rules)),
        K=gram.pack(problem.K.matrix, n),
        G=gram.pack(problem.G.matrix, n),
        **problem.K.factors()._asdict(),
        **{
            f"{name}_head": array
            for name, array in problem.G.factors()._asdict().items()
        },
        margins=np.tile(problem.margins, every),
        scores=np.tile(problem.scores, every),
        rules=np.repeat(numbers, runs, 0),
        head_fixed=problem.head_fixed,
        logistic=attention.is_logistic(problem.loss),
    )
    records = kernel.Records(**{name: raw[name] for name in kernel.Records._fields})
    factored = not (problem.K.formed and problem.G.formed)
    # Several runs occupy all cores already, so that each run gets one BLAS thread.
    shared = factored and len(jobs.data) > 1
    with blas.one_thread() if shared else nullcontext():
        engine = factored_kernel if factored and problem.head_fixed else kernel
        raw["status"], raw["ended"] = engine.run_jobs(jobs, times, records)
    split = (slice(k * runs, (k + 1) * runs) for k in range(len(rules)))
    return [
        _raw(problem, {name: values[part] for name, values in raw.items()})
        for part in split
    ]


def _raw(problem: Reduced, filled: dict[str, np.ndarray]) -> SimpleNamespace:
    """Return the filled records as attributes, with those that a fixed head lacks.

    The loop records neither scores nor b for a fixed head. Then the scores are the same
    at all records, and the coefficients b are zero. These two arrays (runs, k, n, T)
    are read-only views, and are also put into `filled`.
    """
    if problem.head_fixed:
        shape = *filled["margins"].shape[:2], *problem.scores.shape[1:]
        filled["scores"] = np.broadcast_to(problem.scores[:, None], shape)
        filled["b"] = np.broadcast_to(0.0, shape)
    return SimpleNamespace(**filled)


def _log_norm(c: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the logarithm (runs,) of the norm sqrt(c^T k), with k = K c (runs, m)."""
    # If c^T K c is zero, rounding can make it negative. A NaN stays NaN.
    squares = np.maximum(np.einsum("rm,rm->r", c, k), 0.0)
    with np.errstate(divide="ignore"):
        return 0.5 * np.log(squares)


def run_numpy(problem: Reduced, rule: Rule, times: np.ndarray) -> SimpleNamespace:
    """Train every run with one rule in plain numpy, with the same steps as the kernel.

    Unlike the kernel, this loop also accepts rules that a user has written.

    Parameters
    ----------
    problem : Reduced
        The problem.
    rule : Rule
        The rule.
    times : ndarray of int (k,)
        The iterations to record, ascending.

    Returns
    -------
    SimpleNamespace
        The raw records, with the same fields as those of `run_compiled`.

    Raises
    ------
    TypeError
        If the rule returns a step size that is not a real number.
    ValueError
        If the rule returns neither one step size nor one step size per run, or if it
        returns NaN at the first step.
    MemoryError
        If the records would not fit.

    Notes
    -----
    The kernel adds up the steps of W by Kahan's compensated summation. Here they are
    added up without compensation.
    """
    runs, n, T = problem.scores.shape
    raw = _empty(runs, n, T, times.size, problem.head_fixed)
    g = problem.margins.reshape(runs, -1).copy()
    gamma = problem.scores.reshape(runs, -1).copy()
    alpha = np.zeros_like(g)
    b = np.zeros_like(gamma)
    move = move_k = np.zeros_like(g)
    move_u = move_u_k = np.zeros_like(gamma)
    alive = np.ones(runs, bool)
    records = {int(t): k for k, t in enumerate(times)}
    raw["ended"][:] = times[-1]
    for t in progress.steps(times[-1] + 1):
        logits = np.concatenate(
            [np.zeros((runs, n, 1)), -g.reshape(runs, n, T - 1)], -1
        )
        # If this overflows, the run is marked as diverged below.
        with np.errstate(over="ignore", invalid="ignore"):
            at = attention.slopes(logits, gamma.reshape(runs, n, T), problem.loss)
        c = -at.pull[..., 1:].reshape(runs, -1)
        push = at.push.reshape(runs, -1)
        k = problem.K(c)
        log_gap = at.log_gap if problem.head_fixed else at.log_loss
        log_norm = at.log_scale + _log_norm(c, k)
        log_norm_u = np.full(runs, -np.inf)
        if not problem.head_fixed:
            k_u = problem.G(push)
            log_norm_u = at.log_push_scale + _log_norm(push, k_u)
        log_both = 0.5 * np.logaddexp(2 * log_norm, 2 * log_norm_u)
        together = problem.head_fixed or rule.joint or not isinstance(rule, NGD)
        if together:
            log_eta = own_log_step(rule, t, log_gap, log_both)
            log_eta_u = log_eta
        else:
            log_eta = own_log_step(rule, t, log_gap, log_norm)
            log_eta_u = own_log_step(rule, t, log_gap, log_norm_u)

        if t in records:
            logs = np.stack([log_gap, log_norm, log_norm_u, log_eta, log_eta_u], -1)
            now = {"margins": g, "alpha": alpha, "logs": logs}
            if not problem.head_fixed:
                now["scores"] = gamma
                now["b"] = b
            for name, value in now.items():
                raw[name][alive, records[t]] = value[alive].reshape(
                    -1, *raw[name].shape[2:]
                )
        with np.errstate(invalid="ignore"):  # a gradient of zero gives a step of zero
            length = np.where(log_norm > -np.inf, log_eta + log_norm, -np.inf)
            length_u = np.where(log_norm_u > -np.inf, log_eta_u + log_norm_u, -np.inf)
        stalled = log_both == -np.inf
        bounded = (
            (at.log_push_scale < LOG_LONGEST)
            & (length < LOG_LONGEST)
            & (length_u < LOG_LONGEST)
        )
        for code, ends in ((STALLED, stalled), (DIVERGED, ~bounded & ~stalled)):
            raw["status"][alive & ends], raw["ended"][alive & ends] = code, t
            alive &= ~ends
        if not alive.any():
            break

        def step_size(log_size: np.ndarray, moves: np.ndarray) -> np.ndarray:
            return np.where(moves, np.exp(np.where(moves, log_size, 0.0)), 0.0)[:, None]

        eta = step_size(log_eta + at.log_scale, alive & (length > -np.inf))
        move = rule.momentum * move + eta * c
        move_k = rule.momentum * move_k + eta * k
        alpha = alpha + move
        g = g + move_k
        if not problem.head_fixed:
            eta = step_size(log_eta_u + at.log_push_scale, alive)
            move_u = rule.momentum * move_u + eta * push
            move_u_k = rule.momentum * move_u_k + eta * k_u
            b = b + move_u
            gamma = gamma + move_u_k
    return _raw(problem, raw)
