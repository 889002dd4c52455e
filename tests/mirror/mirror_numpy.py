"""Mirror descent once more, in plain numpy, to compare with `lib.mirror.kernel`."""

from types import SimpleNamespace

import numpy as np

from lib import attention
from lib.compiled.status import COMPLETED, DIVERGED, LONGEST, STALLED
from lib.dynamics.recording import unwritten
from lib.mirror import MirrorRule
from lib.mirror.geometry import dual_exponent, norm, to_mirror
from lib.mirror.kernel import NEGLIGIBLE_RISE, Rows


def from_mirror(U, p):
    """The inverse of `to_mirror`, W = |U|^{1/(p-1)} sgn(U), infinite beyond float64."""
    with np.errstate(over="ignore"):
        return np.sign(U) * np.abs(U) ** (1 / (p - 1))


def run_numpy(problem: Rows, rule: MirrorRule, times: np.ndarray, W, v) -> SimpleNamespace:
    """Train every run with one rule in plain numpy: the kernel's twin."""
    p, q, runs, n = rule.p, dual_exponent(rule.p), len(W), problem.n
    shapes = dict(
        path=(times.size, W.shape[1]), head=(times.size, v.shape[1]), logs=(times.size, 3)
    )
    raw = SimpleNamespace(**unwritten(COMPLETED, runs, **shapes), rise=np.full(runs, -1))
    U, V, records = to_mirror(W, p), to_mirror(v, p), {int(t): k for k, t in enumerate(times)}
    alive, last = np.ones(runs, bool), np.full(runs, np.inf)
    raw.ended[:] = times[-1]

    def end(code, which, t):
        raw.status[alive & which], raw.ended[alive & which] = code, t
        alive[which] = False

    for t in range(times[-1] + 1):
        margins = np.einsum("rmj,rj->rm", problem.A, W).reshape(runs, n, -1)
        scores = np.einsum("rmj,rj->rm", problem.signed, v).reshape(runs, n, -1)
        logits = np.concatenate([0 * margins[..., :1], -margins], -1)
        # L - L*, which joint training does not ask for, may overflow with its scores
        with np.errstate(over="ignore"):
            at = attention.slopes(logits, scores, "logistic" if problem.logistic else "exponential")
        down = np.einsum("rm,rmj->rj", -at.pull[..., 1:].reshape(runs, -1), problem.A)
        down_v = np.einsum("rm,rmj->rj", at.push.reshape(runs, -1), problem.signed) * problem.joint
        with np.errstate(divide="ignore"):
            log_size, log_size_v = np.log(norm(down, q)), np.log(norm(down_v, q))
        log_norm, log_norm_v = at.log_scale + log_size, at.log_push_scale + log_size_v
        loss = np.exp(at.log_loss)
        rises = alive & (raw.rise < 0) & (loss > last + NEGLIGIBLE_RISE * np.maximum(1.0, last))
        raw.rise[rises], last = t, loss
        if t in records:
            logs = np.stack(
                [at.log_loss if problem.joint else at.log_gap, log_norm, log_norm_v], -1
            )
            for store, value in ((raw.path, W), (raw.head, v), (raw.logs, logs)):
                store[alive, records[t]] = value[alive]
        end(STALLED, (log_norm == -np.inf) & (log_norm_v == -np.inf), t)

        step = np.log(rule.step_size) - (log_size if rule.normalised else -at.log_scale)
        step_v = np.log(rule.step_size) - (log_size_v if rule.normalised else -at.log_push_scale)
        moves, moves_v = log_norm > -np.inf, log_norm_v > -np.inf
        end(
            DIVERGED,
            ~(np.where(moves, step, 0) < LONGEST) | ~(np.where(moves_v, step_v, 0) < LONGEST),
            t,
        )
        U = U + np.exp(np.where(alive & moves, step, -np.inf))[:, None] * down
        V = V + np.exp(np.where(alive & moves_v, step_v, -np.inf))[:, None] * down_v
        new, new_v = from_mirror(U, p), from_mirror(V, p)
        bounded = np.maximum(np.abs(new).max(1), np.abs(new_v).max(1)) <= np.exp(LONGEST)
        end(DIVERGED, ~bounded, t + 1) if t < times[-1] else None
        W, v = (np.where(alive[:, None], *pair) for pair in ((new, W), (new_v, v)))
        if not alive.any():
            break
    return raw
