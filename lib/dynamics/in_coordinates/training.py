"""Compiled training by rules that see the coordinates of W, with a fixed head."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status, threads
from lib.dynamics.in_coordinates import codes, gradients, loop
from lib.dynamics.in_coordinates.rules import InCoordinates, MirrorDescent
from lib.dynamics.recording import end_where_not_finite, unwritten


def run(
    tokens: TokenSet,
    rules: Mapping[Any, InCoordinates | MirrorDescent],
    times: Mapping[Any, np.ndarray],
    W_0: np.ndarray,
    *,
    loss: str,
) -> dict[Any, dict[str, Any]]:
    """Train every run with every rule, on all cores.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    rules : mapping of str to InCoordinates or MirrorDescent
        The rules.
    times : mapping of str to ndarray of int (k,)
        The iterations to record, by rule.
    W_0 : ndarray (runs, d, d_z)
        The start.
    loss : str
        "exponential" or "logistic".

    Returns
    -------
    dict of str to dict
        For each rule, a dict with W (runs, k, d, d_z), status and ended (runs,),
        log_gap and log_gradient (runs, k), and moments, a dict of the arrays that
        `_moments` describes, with the runs as first axis. The two logarithms are
        computed from all samples, even if the rule uses batches.

    Raises
    ------
    ValueError
        If the loss is neither of these two, if a batch would have more samples than
        there are, if the number of blocks of a rule does not divide the number of rows
        of W, or if sizes leave the range that `check_sizes` allows.
    """
    data = problems(tokens, loss)
    _, n, _, d = tokens.shape
    numbers = {name: rule.numbers() for name, rule in rules.items()}
    for name, of_rule in numbers.items():
        if of_rule.batch > n:
            raise ValueError(
                f"rule {name!r}: batch_size = {of_rule.batch:g}; there are {n} samples"
            )
        if d % of_rule.blocks:
            raise ValueError(
                f"rule {name!r}: blocks = {of_rule.blocks:g} do not divide the {d} "
                "rows of W"
            )
    runs = len(W_0)
    raws = {
        name: unwritten(
            status.COMPLETED, runs, W=(len(at), *W_0.shape[1:]), logs=(len(at), 2)
        )
        for name, at in times.items()
        if name in rules
    }

    jobs_of = [(name, place) for place in range(runs) for name in rules]
    states = {
        (name, place): loop.state(numbers[name], n, *W_0.shape[1:])
        for name, place in jobs_of
    }
    ends = threads.call_each(
        loop.run_job,
        [
            (
                data[place],
                numbers[name],
                times[name],
                W_0[place].copy(),  # the loop moves it in place
                raws[name]["W"][place],
                raws[name]["logs"][place],
                states[name, place],
            )
            for name, place in jobs_of
        ],
    )
    for (name, place), end in zip(jobs_of, ends, strict=True):
        raws[name]["status"][place], raws[name]["ended"][place] = end
    return {
        name: _of_rule(
            raw,
            times[name],
            [
                _moments(numbers[name], states[name, place], W_0.shape[1:])
                for place in range(runs)
            ],
        )
        for name, raw in raws.items()
    }


def _moments(
    rule: codes.Numbers, state: Any, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the moments of a rule after the last step of one run.

    The array "second" has the `shape` (d, d_z) of W; for SOAP, it is in the bases of
    SOAP. "left" (d, d) and "right" (d_z, d_z) are Shampoo's L and R, or the bases of
    SOAP. The state stores each moment, L and R as an array times a factor whose
    logarithm is stored separately; the arrays returned here lack this factor. Arrays
    that the rule does not use are zero.
    """
    left, right = state.sides.left, state.sides.right
    if rule.kind == codes.SOAP:
        left, right = state.sides.left_basis, state.sides.right_basis
    return {
        "second": state.whole.second.reshape(shape),
        "left": left,
        "right": right,
    }


def _of_rule(
    raw: dict[str, np.ndarray], times: np.ndarray, kept: list[dict[str, np.ndarray]]
) -> dict[str, Any]:
    """Return the records of one rule, under the names that `run` lists.

    `raw` has W (runs, k, d, d_z), logs (runs, k, 2), status and ended (runs,); it is
    changed in place. `kept` lists what `_moments` returned for each run. The first
    record of a run that is not finite, and all later records of this run, are set to
    NaN.
    """
    logs = raw.pop("logs")
    end_where_not_finite(raw["status"], raw["ended"], times, [raw["W"]], [logs])
    moments = {
        name: np.stack([of_run[name] for of_run in kept])
        for name in ("second", "left", "right")
    }
    return raw | {
        "log_gap": logs[..., 0],
        "log_gradient": logs[..., 1],
        "moments": moments,
    }


def problems(tokens: TokenSet, loss: str) -> list[gradients.Problem]:
    """Return the data of each run in the form that the compiled loop needs.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    loss : str
        "exponential" or "logistic".

    Returns
    -------
    list of Problem
        One Problem per run.

    Raises
    ------
    ValueError
        If the loss is neither of these two, or if sizes leave the range that
        `check_sizes` allows.
    """
    logistic = attention.is_logistic(loss)
    check_sizes(tokens)
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    delta = np.ascontiguousarray(delta)
    # (runs, n, T, 1)
    scores = coordinates.signed_opt_first(tokens) @ tokens.u[:, None, :, None]
    scores = scores[..., 0]
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    if hidden is None:
        hidden = np.zeros((*tokens.y.shape, 0), bool)
    else:  # masked copies of the opt token get its score, without a rounding difference
        scores[..., 1:] = np.where(hidden, scores[..., :1], scores[..., 1:])
    scores = np.ascontiguousarray(np.swapaxes(scores, 1, 2))
    # A copy is always writable, so that numba compiles for one type of array only.
    z = np.array(tokens.z, order="C")
    return [
        gradients.Problem(*arrays, logistic)
        for arrays in zip(delta, z, scores, hidden, strict=True)
    ]
