"""Mirror descent once more, in plain numpy, to compare with `lib.mirror.kernel`."""

from types import SimpleNamespace

import numpy as np

from lib import attention
from lib.mirror import descent, geometry


def from_mirror(U, p):
    """The inverse of the mirror map, W = |U|^{1/(p-1)} sgn(U), infinite beyond float64."""
    return np.sign(U) * np.abs(U) ** (1 / (p - 1))


def twin(data, rule, steps, start, head="fixed", loss="logistic"):
    """Path, head, logs (runs, steps + 1, ...) and losses (runs, steps + 1) of a rule."""
    joint, runs, p, records = head == "joint", len(start), rule.p, []
    problem, q = descent._rows(data, loss, joint), geometry.dual_exponent(p)
    W, v = start.reshape(runs, -1), data.u
    U, V = geometry.to_mirror(W, p), geometry.to_mirror(v, p)
    with np.errstate(all="ignore"):
        for _ in range(steps + 1):
            margins = np.einsum("rmj,rj->rm", problem.A, W).reshape(runs, problem.n, -1)
            scores = np.einsum("rmj,rj->rm", problem.signed, v).reshape(runs, problem.n, -1)
            at = attention.slopes(
                np.concatenate([0 * margins[..., :1], -margins], -1), scores, loss
            )
            down = np.einsum("rm,rmj->rj", -at.pull[..., 1:].reshape(runs, -1), problem.A)
            down_v = np.einsum("rm,rmj->rj", at.push.reshape(runs, -1), problem.signed) * joint
            size, size_v = geometry.norm(down, q), geometry.norm(down_v, q)
            gap = at.log_loss if joint else at.log_gap
            logs = gap, at.log_scale + np.log(size), at.log_push_scale + np.log(size_v)
            records.append((W, v, np.stack(logs, -1), np.exp(at.log_loss)))
            step = rule.step_size * (1 / size if rule.normalised else np.exp(at.log_scale))
            step_v = rule.step_size * (1 / size_v if rule.normalised else np.exp(at.log_push_scale))
            U, V = U + step[:, None] * down, V + step_v[:, None] * down_v if joint else V
            W, v = from_mirror(U, p), from_mirror(V, p)
    path, heads, logs, losses = (np.stack(part, 1) for part in zip(*records, strict=True))
    return SimpleNamespace(path=path, head=heads, logs=logs, losses=losses)
