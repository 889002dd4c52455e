"""Mirror descent in the compiled loop of `lib.mirror`, with a fixed or a joint head.

The loop works in the coordinates of the tokens themselves, since mirror descent is not
equivariant under rotations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status
from lib.dynamics import recording
from lib.dynamics.in_coordinates.rules import MirrorDescent
from lib.mirror import geometry, kernel

# The rows of all margins of a run are formed if they have at most this many entries.
# Then they stay in the fast cache, and two products with them are faster than a loop
# over samples.
FORMED = 2**14


def run(
    tokens: TokenSet,
    rules: Mapping[Any, MirrorDescent],
    times: Mapping[Any, np.ndarray],
    W_0: np.ndarray,
    *,
    head: str,
    loss: str,
) -> dict[Any, dict[str, np.ndarray]]:
    """Train by lp-AttGD, or by lp-JointGD with a joint head, on all cores.

    Parameters
    ----------
    tokens : TokenSet
        The data sets. The head u that they contain stays fixed, or joint training
        starts from it.
    rules : mapping of str to MirrorDescent
        The rules. Each step uses all samples; `in_coordinates` trains with batches.
    times : mapping of str to ndarray of int (k,)
        The iterations to record, by rule.
    W_0 : ndarray (runs, d, d_z)
        The start.
    head : {"fixed", "joint"}
        Whether the head is trained.
    loss : str
        "exponential" or "logistic".

    Returns
    -------
    dict of str to dict
        For each rule, a dict of arrays: W (runs, k, d, d_z); u (runs, k, d); status and
        ended (runs,); loss_rise (runs,), the first iteration at which the loss rose, or
        -1; log_gap (runs, k); own_norm and own_head_norm (runs, k), the l_p norms of W
        and u; log_own_gradient and log_own_gradient_head (runs, k), the logarithms of
        the dual norms of the gradients for W and u. The last one is -inf if the head is
        fixed. The k of a rule is the number of its `times`.

    Raises
    ------
    ValueError
        If the loss is neither of these two, or if sizes leave the range that
        `check_sizes` allows.

    Notes
    -----
    A run needs memory for n (T - 1) d numbers. If the rows of all margins are formed,
    it needs memory for another 2 n (T - 1) d d_z numbers. The rows are formed if they
    have at most ``FORMED`` entries.
    """
    problem = rows(tokens, loss, head == "joint")
    flat = W_0.reshape(len(W_0), -1)
    v = tokens.u
    kinds = len(rules)
    runs = len(flat)
    k = max(len(times[name]) for name in rules)
    padded = np.stack(
        [
            np.pad(times[name], (0, k - len(times[name])), constant_values=-1)
            for name in rules
        ]
    )

    # The jobs are ordered by run, with all rules of a run one after another, so that
    # each core gets some long jobs. The loop changes the following copies in place.
    start, first_head = (np.repeat(array, kinds, 0) for array in (flat, v))
    exponents = np.tile([float(rule.p) for rule in rules.values()], runs)
    with np.errstate(over="ignore"):  # an overflow ends the run as diverged
        images = tuple(
            np.stack(
                [
                    geometry.to_mirror(row, p)
                    for row, p in zip(array, exponents, strict=True)
                ]
            )
            for array in (start, first_head)
        )

    # The rows (runs, n T, D) are ordered by sample first, then by token. The loop needs
    # them ordered by token first, then by sample.
    def by_token(rows: np.ndarray) -> np.ndarray:
        if not rows.size:
            return rows
        split = rows.reshape(runs, problem.n, -1, *rows.shape[2:])
        return split.swapaxes(1, 2).reshape(rows.shape)

    sizes = {
        "path": (k, flat.shape[1]),
        "head": (k, v.shape[1]),
        "logs": (k, 3),
    }
    raw = recording.unwritten(status.COMPLETED, runs * kinds, **sizes)
    raw["status"], raw["ended"], raw["loss_rise"] = kernel.run_jobs(
        problem._replace(
            A=by_token(problem.A),
            signed=by_token(problem.signed),
            hidden=by_token(problem.hidden),
        ),
        np.array(
            [[rule.p, rule.step_size, rule.normalised] for rule in rules.values()],
            float,
        ),
        padded,
        (start, first_head, *images),
        tuple(raw[name] for name in sizes),
    )
    return {
        name: _of_rule(
            {field: values[place::kinds] for field, values in raw.items()},
            times[name],
            rules[name].p,
            W_0.shape[1:],
        )
        for place, name in enumerate(rules)
    }


def _of_rule(
    raw: dict[str, np.ndarray], times: np.ndarray, p: float, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the records of one rule, under the names that `run` lists.

    `raw` has the path (runs, K, d d_z) of W, the head (runs, K, d), and logs (runs, K,
    3) of the loss gap and the gradients of W and u. These arrays are padded to K
    records; this rule has only as many as there are `times`. `shape` is the shape (d,
    d_z) of W.

    A run ends as diverged at its first record in which W or u is not finite, or in
    which a logarithm is NaN or +inf. This record and all later ones are set to NaN, in
    the arrays of `raw` themselves.
    """
    path, heads, logs = (
        raw[name][:, : len(times)] for name in ("path", "head", "logs")
    )
    recording.end_where_not_finite(
        raw["status"], raw["ended"], times, [path, heads], [logs]
    )
    log_gap, log_gradient, log_gradient_head = np.moveaxis(logs, -1, 0)
    return {
        "W": path.reshape(*path.shape[:2], *shape),
        "u": heads,
        "status": raw["status"],
        "ended": raw["ended"],
        "loss_rise": raw["loss_rise"],
        "log_gap": log_gap,
        "own_norm": geometry.norm(path, p),
        "own_head_norm": geometry.norm(heads, p),
        "log_own_gradient": log_gradient,
        "log_own_gradient_head": log_gradient_head,
    }


def rows(tokens: TokenSet, loss: str, joint: bool) -> kernel.Rows:
    """Return the rows of margins and scores of a token set.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    loss : str
        "exponential" or "logistic".
    joint : bool
        Whether the head is trained.

    Returns
    -------
    Rows
        The rows, ordered by sample first, then by token. The compiled loop needs them
        ordered by token first; `run` reorders them. The rows of the margins are formed
        only if the rows of one run have at most ``FORMED`` entries.

    Raises
    ------
    ValueError
        If the loss is neither of these two, or if sizes leave the range that
        `check_sizes` allows.
    """
    check_sizes(tokens)
    runs, n, T, d = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    if delta[0].size * tokens.z.shape[-1] <= FORMED:
        A = coordinates.constraint_rows(delta, tokens.z)
    else:
        A = np.zeros((runs, 0, 0))
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    if hidden is None:
        hidden = np.zeros((runs, 0), bool)
    return kernel.Rows(
        A=A,
        delta=np.ascontiguousarray(delta),
        z=np.array(tokens.z, order="C"),  # a writable copy: numba sees one type
        signed=signed,
        n=n,
        logistic=attention.is_logistic(loss),
        joint=joint,
        hidden=hidden.reshape(runs, -1),
    )
