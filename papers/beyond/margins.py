"""What a history says about the max-margin solution it tends to, without solving for that.

Pairs m = (i, t) as everywhere: sample i, and the tokens t that it does not select, ascending.
"""

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.dynamics.history import History


def selection(history: History, opt: np.ndarray, k: int = -1) -> np.ndarray:
    """The token of largest logit in each sample at record k, (runs, n); opt (runs, n).

    Raises ValueError for a run that had ended before that record.
    """
    margins = _finite(history, k)
    place = coordinates.others(opt, margins.shape[-1] + 1)
    nearest = np.take_along_axis(place, margins.argmin(-1)[..., None], -1)[..., 0]
    return np.where(margins.min(-1) >= 0, opt, nearest)


def relative_margins(history: History, opt: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Logit of the selected token minus logits of the others at every record, (runs, k, n, T-1)."""
    runs, count, n, S = history.margins.shape
    logits = np.zeros((runs, count, n, S + 1))  # relative to the opt token
    place = np.broadcast_to(coordinates.others(opt, S + 1)[:, None], history.margins.shape)
    np.put_along_axis(logits, place, -history.margins, -1)
    own = np.broadcast_to(selected[:, None, :, None], (runs, count, n, 1))
    rest = np.broadcast_to(coordinates.others(selected, S + 1)[:, None], history.margins.shape)
    return np.take_along_axis(logits, own, -1) - np.take_along_axis(logits, rest, -1)


def recovered_duals(margins: np.ndarray, log_slopes: np.ndarray) -> np.ndarray:
    """beta_m / sum beta from margins alone: proportional to kappa_m e^{-g_m}, (..., n, T-1).

    margins (..., n, T-1) and log_slopes, log kappa_m of the same shape; a pair with a NaN slope,
    whose token outscores the selected one, gets none. What W rests on, read off a trained layer
    whose SVM nobody solved; near the SVM's as far as the offsets have settled.
    """
    pull = np.where(np.isfinite(log_slopes), log_slopes - margins, -np.inf)
    pull = pull - pull.max((-2, -1), keepdims=True)
    weights = np.exp(pull)
    return weights / weights.sum((-2, -1), keepdims=True)


def difference(history: History, early: int, late: int) -> np.ndarray:
    """W at record `late` minus W at record `early`, (runs, r, q): the residual cancels in it.

    W_t = a_t W_mm + rho + o(1), so that this is (a_late - a_early) W_mm + o(1): a max-margin
    direction from training alone. Raises ValueError for records that do not ascend or that a run
    did not reach.
    """
    count = len(history.iterations)
    early, late = range(count)[early], range(count)[late]
    if early >= late:
        raise ValueError(f"early = {early}, late = {late}; records must ascend")
    _finite(history, late)
    return history.weights(late) - history.weights(early)


def along_and_off(W: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<W, V>/||V|| and the norm of W - its part along V, (runs,) each; W, V (runs, r, q).

    Their ratio is the tangent of the angle, to the last digits even where W is 10^10 times off V.
    """
    unit = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
    along = np.einsum("rij,rij->r", W, unit)
    return along, np.linalg.norm(W - along[:, None, None] * unit, axis=(1, 2))


def direction_error(W: np.ndarray, V: np.ndarray, outside: np.ndarray | float = 0.0) -> np.ndarray:
    """||W/||W|| - V/||V|| ||, (runs,): 2 sin(angle/2); `outside` (runs,): W's part beside it."""
    along, off = along_and_off(W, V)
    return 2 * np.sin(np.arctan2(np.hypot(off, outside), along) / 2)


def outside_support(
    tokens: TokenSet, selected: np.ndarray, support: np.ndarray, W: np.ndarray
) -> np.ndarray:
    """Norm of the part of W (runs, r, q) off the span of the A_m on the support, (runs,).

    The start and the transients leave it there, and once those are over it no longer changes.
    support (runs, n, T-1).
    """
    return np.linalg.norm(W - span_part(tokens, selected, support, W), axis=(1, 2))


def residual(
    tokens: TokenSet, selected: np.ndarray, support: np.ndarray, W: np.ndarray, V: np.ndarray
) -> np.ndarray:
    """Norm of W's part in the span of the A_m on the support, across V, (runs,).

    It tends to C = ||rho_perp|| whatever W_0 was and whatever lies off the span. V (runs, r, q) is
    in the span, as W_mm is; support (runs, n, T-1).
    """
    unit = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
    across = W - np.einsum("rij,rij->r", W, unit)[:, None, None] * unit
    return np.linalg.norm(span_part(tokens, selected, support, across), axis=(1, 2))


def span_part(
    tokens: TokenSet, selected: np.ndarray, support: np.ndarray, W: np.ndarray
) -> np.ndarray:
    """The part of W in the span of the A_m on the support (runs, n, T-1), (runs, r, q)."""
    delta = coordinates.differences(tokens, selected)
    K = coordinates.gram(delta, tokens.z)
    margins = np.einsum("rntd,rde,rne->rnt", delta, W, tokens.z, optimize=True)
    inside = np.empty(W.shape)
    for run, on in enumerate(support):
        flat = on.ravel()
        weights = np.zeros(flat.size)
        weights[flat] = np.linalg.lstsq(
            K[run][np.ix_(flat, flat)], margins[run].ravel()[flat], rcond=1e-12
        )[0]
        pulled = np.einsum("nt,ntd->nd", weights.reshape(on.shape), delta[run])
        inside[run] = pulled.T @ tokens.z[run]
    return inside


def _finite(history, k):
    margins = history.margins[:, k]
    ended = np.flatnonzero(~np.isfinite(margins).all((1, 2)))
    if ended.size:
        run = ended[0]
        raise ValueError(
            f"run {run} ended as {str(history.status[run])!r} at iteration {history.ended[run]}, "
            f"before record {k} at iteration {history.iterations[k]}"
        )
    return margins
