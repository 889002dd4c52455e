"""Margins of a run: what they say about the SVM's solution, and the premises of the law
that a run must meet first.

A pair m = (i, t) is a sample i and a token t that the sample does not select; pairs are
in ascending order. The checks use only margins and steps, never the direction error.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lib.attention import TokenSet, coordinates
from lib.dynamics import History
from papers.law.margin_law import PremiseFails, require
from papers.law.tolerances import AT_REST, ROUNDING, SATURATED, SETTLED
from papers.saturation import gaps_of_scores


def selection(history: History, opt: np.ndarray, k: int = -1) -> np.ndarray:
    """Return the tokens with the largest logit at record k.

    The result has the shape (runs, n). The margins of the history are relative to the
    logits of the tokens `opt` (runs, n). In a tie the function returns the opt token if
    it is among the tied tokens, and otherwise the first of them. It raises ValueError
    if a run has ended before record k.
    """
    margins = known(history.margins)[:, k]
    ended = np.flatnonzero(np.isnan(margins).any((1, 2)))
    if ended.size:
        run = ended[0]
        raise ValueError(
            f"run {run} ended as {str(history.status[run])!r} at iteration "
            f"{history.ended[run]}, "
            f"before record {k} at iteration {history.iterations[k]}"
        )
    place = coordinates.others(opt, margins.shape[-1] + 1)
    nearest = np.take_along_axis(place, margins.argmin(-1)[..., None], -1)[..., 0]
    return np.where(margins.min(-1) >= 0, opt, nearest)


def known(values: np.ndarray) -> np.ndarray:
    """Replace the NaN of masked tokens in margins or score gaps by infinity.

    `values` have the shape (..., n, T-1), and come from a history. An infinite margin
    gives a masked token weight zero. Entries of a run that has ended stay NaN.
    """
    unknown = np.isnan(values)
    # In a run that ended early, all pairs are unknown.
    masked = unknown & ~unknown.all((-2, -1), keepdims=True)
    return np.where(masked, np.inf, values)


def relative_margins(
    history: History, opt: np.ndarray, selected: np.ndarray
) -> np.ndarray:
    """Return the logit of the selected token minus that of each other token.

    `opt` (runs, n) is as in `selection`, and `selected` has the same shape. The result
    has the shape (runs, k, n, T-1), with values at every record. It is infinite for
    masked tokens, and NaN at records after a run has ended.
    """
    margins = known(history.margins)
    runs, count, n, S = margins.shape
    logits = np.zeros((runs, count, n, S + 1))  # relative to the opt token
    place = np.broadcast_to(coordinates.others(opt, S + 1)[:, None], margins.shape)
    np.put_along_axis(logits, place, -margins, -1)
    return gaps_of_scores(logits, np.broadcast_to(selected[:, None], (runs, count, n)))


def recovered_duals(margins: np.ndarray, log_slopes: np.ndarray) -> np.ndarray:
    """Compute beta_m / sum beta from margins and log kappa_m, all of shape (..., n,
    T-1).

    By the law, beta_m is proportional to kappa_m e^{-g_m}. A pair whose log kappa_m is
    not finite gets the dual 0.
    """
    pull = np.where(np.isfinite(log_slopes), log_slopes - margins, -np.inf)
    pull = pull - pull.max((-2, -1), keepdims=True)
    weights = np.exp(pull)
    return weights / weights.sum((-2, -1), keepdims=True)


def along_and_off(W: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split W along V: return <W, V>/||V|| and the norm of the part orthogonal to V.

    W and V have the shape (runs, r, q), and the two results have the shape (runs,).
    """
    unit = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
    along = np.einsum("rij,rij->r", W, unit)
    return along, np.linalg.norm(W - along[:, None, None] * unit, axis=(1, 2))


def direction_error(
    W: np.ndarray, V: np.ndarray, outside: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return ||W/||W|| - V/||V||||.

    The result has the shape (runs,). W and V have the shape (runs, r, q), or one of
    them has the shape (1, r, q). `outside` (runs,) is the norm of a part of W that the
    coordinates of W leave out. For W = 0 the error is 0 here, whereas a history has
    NaN.
    """
    along, off = along_and_off(W, V)
    return 2 * np.sin(np.arctan2(np.hypot(off, outside), along) / 2)


def outside_support(
    tokens: TokenSet, selected: np.ndarray, support: np.ndarray, W: np.ndarray
) -> np.ndarray:
    """Return the norm of the part of W outside the span of the support.

    The result has the shape (runs,). W (runs, d, d_z) is in the coordinates of the
    tokens, `selected` has the shape (runs, n), and `support` has the shape (runs, n,
    T-1). The function raises ValueError if W has another shape.
    """
    return np.linalg.norm(W - _span_part(tokens, selected, support, W), axis=(1, 2))


def residual(
    tokens: TokenSet,
    selected: np.ndarray,
    support: np.ndarray,
    W: np.ndarray,
    V: np.ndarray,
) -> np.ndarray:
    """Return the norm of the part of W that is in the support's span and orthogonal to
    V.

    The result has the shape (runs,). For V = W_mm this norm tends to ||rho_perp|| = C,
    even if some pairs are off the support. The arguments are those of
    `outside_support`, and V has the shape of W.
    """
    unit = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
    across = W - np.einsum("rij,rij->r", W, unit)[:, None, None] * unit
    return np.linalg.norm(_span_part(tokens, selected, support, across), axis=(1, 2))


def _span_part(
    tokens: TokenSet, selected: np.ndarray, support: np.ndarray, W: np.ndarray
) -> np.ndarray:
    """Project W (runs, d, d_z) on the span of delta_{i,t} z_i^T over the support.

    delta_{i,t} is the selected token, given by `selected` (runs, n), minus token t.
    `support` (runs, n, T-1) is True at the pairs of the support. The function raises
    ValueError if W has another shape. It does not notice a W in minimal coordinates
    that happens to have this shape.
    """
    shape = len(tokens.y), tokens.X.shape[-1], tokens.z.shape[-1]
    if np.shape(W) != shape:
        raise ValueError(
            f"W has shape {np.shape(W)}; these tokens need {shape}: "
            "lib.minimal(tokens).expand(W) turns minimal coordinates, in which rules "
            "along the gradient train, into those of the tokens"
        )
    delta = coordinates.differences(tokens, selected, masked_as_zero=True)
    margins = np.einsum("rntd,rde,rne->rnt", delta, W, tokens.z, optimize=True)
    inside = np.empty(W.shape)
    for run, on in enumerate(support):
        # Only pairs on the support enter, so that we need no matrix of all pairs.
        rows = delta[run][on]
        queries = tokens.z[run][np.nonzero(on)[0]]
        K = (rows @ rows.T) * (queries @ queries.T)
        weights = np.zeros(on.shape)
        # The entries of K are squared lengths, so that pairs that differ by less than
        # 1e-6 count as one.
        weights[on] = np.linalg.lstsq(K, margins[run][on], rcond=1e-12)[0]
        inside[run] = np.einsum("nt,ntd->dn", weights, delta[run]) @ tokens.z[run]
    return inside


def check_selection(run: int, margins: np.ndarray) -> None:
    """Raise PremiseFails unless every margin (n, T-1) is at least SATURATED.

    `run` is the index of the run that the error names.
    """
    smallest = margins.min()
    sample, pair = np.unravel_index(margins.argmin(), margins.shape)
    reason = (
        f"the smallest margin is {smallest:.2g} (sample {sample}, pair {pair}), "
        "it needs "
        f"{SATURATED:g}: the run has not decided on its tokens yet, or never will"
    )
    require(smallest >= SATURATED, "selection made", smallest, reason, run)


def check_settled(run: int, law: Any, measured: Any, momentum: float) -> None:
    """Raise PremiseFails if the steps are too long, the run is too short, or an offset
    still moves.

    `law` is the MarginLaw of one run, `measured` has the measurements of
    `margin_law_runs` on this run, and `run` is the index of the run that the error
    names.
    """
    longest = law.longest_step(momentum)[0]
    step = measured.step_length
    reason = (
        f"steps of length {step:.3g} make the offsets cycle, they need less than "
        f"{longest:.3g}"
    )
    require(step < longest, "short steps", step / longest, reason, run)
    level = measured.level[-1:]
    # The part of W outside the span is measured at the first late record. By then, the
    # pulls of pairs outside the support must have decayed.
    left = max(law.remaining(level)[0], np.exp(-law.excess[0] * measured.level[0]))
    # `remaining` describes the exact flow. A long step may overshoot in the fastest
    # mode.
    if momentum == 0:
        overshot = max(step / law.norm[0] * law.fastest[0] - 1, 0.0)
        left = max(left, overshot ** measured.iterations[-1])
    if 0 < left < 1:
        more = np.log(SETTLED) / np.log(left)
    else:
        more = np.inf
    reason = (
        f"wrong offsets have decayed to {left:.1e} at margin level a = "
        f"{level[0]:.4g}, they "
        f"need {SETTLED:.0e}: margins {more:.2g} times as large"
    )
    require(left <= SETTLED, "long enough", left, reason, run)
    allowed = max(AT_REST, ROUNDING * np.finfo(float).eps * level[0])
    reason = f"an offset still moves by {measured.moved:.1e} in the last step"
    reason = f"{reason}, it needs at most {allowed:.0e}"
    require(measured.moved <= allowed, "offsets at rest", measured.moved, reason, run)


def each_seed(
    seeds: Iterable[int], study: Callable[[int], object], where: str = ""
) -> tuple[list, dict[int, str]]:
    """Apply `study` to every seed, and collect the seeds for which `study` fails.

    A seed fails if `study` raises PremiseFails or RuntimeError. Other errors, such as
    Infeasible, are not caught. The function returns the results, and for each excluded
    seed the reason, which begins with `where`.
    """
    kept = []
    refused = {}
    for seed in seeds:
        try:
            kept.append(study(seed))
        except (PremiseFails, RuntimeError) as why:
            refused[seed] = f"{where}seed {seed}: {getattr(why, 'named', why)}"
    return kept, refused
