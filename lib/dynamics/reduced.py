"""The training loop, compiled or in numpy: Gram matrices in, records out."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numba
import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import gram
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from lib.dynamics import kernel, recording
from lib.dynamics.rules import NGD, BuiltIn, Rule


@dataclass(frozen=True)
class Reduced:
    """A problem as the training loop sees it, the opt token first.

    Parameters
    ----------
    delta : ndarray (runs, n, T-1, r)
        Opt token minus the others.
    signed : ndarray (runs, n, T, r)
        y_i x_{i,t}, of a trained head; of a fixed head no run.
    z : ndarray (runs, n, q)
        The queries.
    K : ndarray (runs, n(T-1), n(T-1))
        The Gram matrix of delta z^T.
    G : ndarray (runs, nT, nT)
        The Gram matrix of `signed`, of a trained head; else empty.
    margins : ndarray (runs, n, T-1)
        Margins at the start.
    scores : ndarray (runs, n, T)
        Scores at the start.
    head_fixed : bool
        Whether the head stays fixed.
    loss : str
        Name of the loss.
    """

    delta: np.ndarray
    signed: np.ndarray
    z: np.ndarray
    K: np.ndarray
    G: np.ndarray
    margins: np.ndarray
    scores: np.ndarray
    head_fixed: bool
    loss: str


def reduce(tokens: TokenSet, W_0: np.ndarray, head: str, loss: str) -> Reduced:
    """Bring a token set to the form that the training loop takes.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run, in minimal coordinates.
    W_0 : ndarray (runs, r, q)
        The start of W.
    head : {"fixed", "joint"}
        Whether the head is trained.
    loss : str
        Name of the loss.

    Returns
    -------
    Reduced
        The problem.
    """
    runs, n, T, r = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt)
    signed = coordinates.signed_opt_first(tokens)
    flat = signed.reshape(runs, n * T, r)
    if head == "fixed":
        G = np.zeros((runs, 0, 0))
    else:
        G = flat @ np.swapaxes(flat, 1, 2)
    keys = tokens.z @ np.swapaxes(W_0, 1, 2)  # W_0 z_i, (runs, n, r)
    pairs = coordinates.first_equal(delta)
    every = coordinates.first_equal(signed)
    return Reduced(
        delta=delta,
        signed=signed[:0].copy() if head == "fixed" else signed,
        z=tokens.z,
        K=_tied(coordinates.gram(delta, tokens.z), pairs),
        G=G if head == "fixed" else _tied(G, every),
        margins=np.take_along_axis((delta @ keys[..., None])[..., 0], pairs, 2),
        scores=np.take_along_axis(
            (signed @ tokens.u[:, None, :, None])[..., 0], every, 2
        ),
        head_fixed=head == "fixed",
        loss=loss,
    )


def _tied(K: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Give equal vectors the same rows and columns of K, to the bit.

    A product may round them apart. K is (runs, n T, n T), and first (runs, n, T) is
    that of `first_equal`.
    """
    runs, n, T = first.shape
    if (first == np.arange(T)).all():  # no copies of what is large
        return K
    index = (np.arange(n)[:, None] * T + first).reshape(runs, n * T)
    K = np.take_along_axis(K, index[:, :, None], 1)
    return np.take_along_axis(K, index[:, None, :], 2)


def _empty(runs: int, n: int, T: int, k: int, head_fixed: bool):
    """Return records that nothing has filled yet."""
    pairs = (k, n, T - 1)
    every = (0 if head_fixed else k, n, T)
    return recording.unwritten(
        COMPLETED, runs, margins=pairs, scores=every, alpha=pairs, b=every, logs=(k, 5)
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
        The raw records of each rule: those of `kernel.Records`, and beside them status
        and ended (runs,).
    """
    runs, n, T = problem.scores.shape
    every = len(rules), 1, 1
    numbers = np.array([rule.numbers() for rule in rules])
    raw = _empty(len(rules) * runs, n, T, times.size, problem.head_fixed)
    jobs = kernel.Jobs(
        data=np.tile(np.arange(runs), len(rules)),
        K=gram.pack(problem.K, n),
        G=gram.pack(problem.G, n),
        margins=np.tile(problem.margins, every),
        scores=np.tile(problem.scores, every),
        rules=np.repeat(numbers, runs, 0),
        head_fixed=problem.head_fixed,
        logistic=attention.is_logistic(problem.loss),
    )
    records = kernel.Records(**{name: raw[name] for name in kernel.Records._fields})
    raw["status"], raw["ended"] = kernel.run_jobs(
        numba.get_num_threads(), jobs, times, records
    )
    split = (slice(k * runs, (k + 1) * runs) for k in range(len(rules)))
    return [
        _raw(problem, {name: values[part] for name, values in raw.items()})
        for part in split
    ]


def _raw(problem: Reduced, filled: dict[str, np.ndarray]) -> SimpleNamespace:
    """Complete the filled records.

    A fixed head has the same scores throughout, and has moved nowhere.
    """
    if problem.head_fixed:
        shape = *filled["margins"].shape[:2], *problem.scores.shape[1:]
        filled["scores"] = np.broadcast_to(problem.scores[:, None], shape)
        filled["b"] = np.broadcast_to(0.0, shape)
    return SimpleNamespace(**filled)


def run_numpy(problem: Reduced, rule: Rule, times: np.ndarray) -> SimpleNamespace:
    """Train every run with one rule in plain numpy, as the kernel does.

    It takes custom rules too.

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
        The raw records, as those of `run_compiled`.
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
    for t in range(times[-1] + 1):
        logits = np.concatenate(
            [np.zeros((runs, n, 1)), -g.reshape(runs, n, T - 1)], -1
        )
        with np.errstate(over="ignore", invalid="ignore"):  # ends a run as diverged
            at = attention.slopes(logits, gamma.reshape(runs, n, T), problem.loss)
        c = -at.pull[..., 1:].reshape(runs, -1)
        push = at.push.reshape(runs, -1)
        k = np.einsum("rij,rj->ri", problem.K, c)
        log_gap = at.log_gap if problem.head_fixed else at.log_loss
        with np.errstate(divide="ignore"):
            log_norm = at.log_scale + 0.5 * np.log(np.einsum("rm,rm->r", c, k))
            log_norm_u = np.full(runs, -np.inf)
            if not problem.head_fixed:
                k_u = np.einsum("rij,rj->ri", problem.G, push)
                log_norm_u = at.log_push_scale + 0.5 * np.log(
                    np.einsum("rm,rm->r", push, k_u)
                )
        log_both = 0.5 * np.logaddexp(2 * log_norm, 2 * log_norm_u)
        together = problem.head_fixed or rule.joint or not isinstance(rule, NGD)
        log_eta = rule.log_step(
            t, log_gap, log_both if together else log_norm
        ) + np.zeros(runs)
        if together:
            log_eta_u = log_eta
        else:
            log_eta_u = rule.log_step(t, log_gap, log_norm_u) + np.zeros(runs)

        if t in records:
            logs = np.stack([log_gap, log_norm, log_norm_u, log_eta, log_eta_u], -1)
            now = {"margins": g, "alpha": alpha, "logs": logs}
            now |= {} if problem.head_fixed else {"scores": gamma, "b": b}
            for name, value in now.items():
                raw[name][alive, records[t]] = value[alive].reshape(
                    -1, *raw[name].shape[2:]
                )
        with np.errstate(invalid="ignore"):  # 0/0 = 0: no gradient, no step
            length = np.where(log_norm > -np.inf, log_eta + log_norm, -np.inf)
            length_u = np.where(log_norm_u > -np.inf, log_eta_u + log_norm_u, -np.inf)
        stalled = log_both == -np.inf
        bounded = (
            (at.log_push_scale < LONGEST) & (length < LONGEST) & (length_u < LONGEST)
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
