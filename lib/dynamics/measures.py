"""What is measured along a path of W and u, whichever engine trained it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.compiled import status
from lib.dynamics.history import History
from lib.dynamics.rules import real_numbers
from lib.dynamics.starts import Start
from lib.svm.max_margin import MaxMargin

# The largest number of entries that an intermediate array should have. For larger
# arrays, new memory would be requested from the system each time.
CHUNK = 2**17
# The part of a target outside the span counts as zero if its norm, divided by the norm
# of the target, is at most this.
ROUNDING = 1e-12


class Target(Start):
    """A target direction V for W or for the head, in two parts.

    `inside` is the part inside the span of the tokens. It has the shape of W (runs, r,
    q) or of the head (runs, r), and is in the coordinates of the path with which V is
    compared. `outside` (runs,) is the norm of the part outside the span.
    """

    @property
    def norm(self) -> np.ndarray:
        """The norm ||V|| (runs,) of the two parts together."""
        inside = np.linalg.norm(self.inside.reshape(len(self.inside), -1), axis=1)
        return np.hypot(inside, self.outside)


def checked_targets(
    given: Mapping[str, np.ndarray | MaxMargin] | None,
    data: TokenSet,
    of_head: bool = False,
) -> dict[str, np.ndarray]:
    """Check the targets, and return them as arrays.

    Parameters
    ----------
    given : mapping of str to MaxMargin or ndarray, or None
        The targets. For None, the result is an empty dict.
    data : TokenSet
        The tokens that are trained on, in the coordinates of the targets.
    of_head : bool, optional
        Whether they are targets of the head.

    Returns
    -------
    dict of str to ndarray
        Float arrays (runs, d, d_z), or (runs, d) for the head.

    Raises
    ------
    TypeError
        If the targets are not a mapping, or contain anything but real numbers.
    ValueError
        If a target has the wrong shape; if its norm in some run is zero, NaN or beyond
        the range of float64; if a MaxMargin was solved for other tokens, other queries
        or another mask. The labels, the head and the selected tokens of a MaxMargin may
        differ.
    """
    if of_head:
        shape = data.u.shape
    else:
        shape = (*data.u.shape, data.z.shape[-1])
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"targets is a {type(given).__name__}; it must be a dict of names and "
            'solutions, such as {"W_mm": svm.token_svm(tokens)}'
        )
    targets = {}
    for name, target in (given or {}).items():
        if isinstance(target, MaxMargin):
            solved = target.tokens
            if not all(
                np.array_equal(getattr(solved, part), getattr(data, part))
                for part in ("X", "z", "mask")
            ):
                raise ValueError(
                    f"target {name!r} solves other tokens, or these in other "
                    "coordinates: solve what is trained, svm.token_svm(tokens) or "
                    "svm.token_svm(problem)"
                )
            target = target.value
        target = real_numbers(f"target {name!r}", target).astype(float)
        if target.shape != shape:
            raise ValueError(
                f"target {name!r} has shape {target.shape}; it needs {shape}, in the "
                "coordinates of the tokens or of the Minimal that is trained"
            )
        size = np.linalg.norm(target.reshape(len(target), -1), axis=1)  # (runs,)
        if not (np.isfinite(size).all() and size.all()):
            raise ValueError(f"target {name!r} must be finite and not zero")
        targets[name] = target
    return targets


def in_span(
    targets: Mapping[str, np.ndarray],
    tokens: TokenSet | coordinates.Minimal,
    problem: coordinates.Minimal,
    of_head: bool = False,
) -> dict[str, Target]:
    """Split each target into its part inside the span of the tokens, and the rest.

    For targets of W, this is the span of tokens and queries.

    Parameters
    ----------
    targets : mapping of str to ndarray
        The targets that `checked_targets` returned.
    tokens : TokenSet or Minimal
        The tokens that are trained on. The targets are in their coordinates.
    problem : Minimal
        These tokens in minimal coordinates.
    of_head : bool, optional
        Whether they are targets of the head.

    Returns
    -------
    dict of str to Target
        The targets in two parts: `inside` (runs, r, q), or (runs, r) for the head, and
        `outside` (runs,). If `tokens` is a Minimal, or if the part outside is at most
        ROUNDING times the norm, `outside` is zero.
    """
    split = {}
    for name, target in targets.items():
        size = np.linalg.norm(target.reshape(len(target), -1), axis=1)  # (runs,)
        inside = target
        outside = np.zeros(len(target))
        if isinstance(tokens, TokenSet) and of_head:
            inside = np.einsum("rd,rdk->rk", target, problem.token_basis)
            rest = target - np.einsum("rk,rdk->rd", inside, problem.token_basis)
            outside = np.linalg.norm(rest, axis=1)
        elif isinstance(tokens, TokenSet):
            inside, outside = problem.reduce(target)
        split[name] = Target(inside, np.where(outside > ROUNDING * size, outside, 0.0))
    return split


def directions(
    vectors: Callable[[slice], np.ndarray],
    count: int,
    outside: np.ndarray,
    targets: dict[str, Target],
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Measure the norms of vectors, and compare their directions with targets.

    Parameters
    ----------
    vectors : callable
        A function that takes a slice of k records and returns their vectors (runs, k,
        ...).
    count : int
        The number of all records.
    outside : ndarray (runs,)
        The norm of a constant part that all vectors of a run share. This part is
        orthogonal to the span, and `vectors` does not return it.
    targets : dict of str to Target
        The targets V, whose `inside` has the shape (runs, ...) of a vector. In each
        run, `outside` may be positive for a target or for the vectors, but not for
        both, because the angle between the two parts outside is not known.

    Returns
    -------
    norm : ndarray (runs, count)
        The norms ||v||, which include the part outside the span.
    error, alignment : dict of str to ndarray (runs, count)
        || v/||v|| - V/||V|| || and <v, V>/(||v|| ||V||), by the name of the target.
        They are NaN if v is zero.
    """
    runs = outside.size
    outside = outside[:, None]
    norm = np.full((runs, count), np.nan)
    error = {name: norm.copy() for name in targets}
    alignment = {name: norm.copy() for name in targets}
    units = {
        name: (
            V.inside.reshape(runs, 1, -1) / V.norm[:, None, None],
            (V.outside / V.norm)[:, None],
        )
        for name, V in targets.items()
    }
    chunk = max(1, CHUNK // max(1, vectors(slice(0, 1)).size))
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        v = vectors(part)
        v = v.reshape(*v.shape[:2], -1)
        size = np.linalg.norm(v, axis=-1)
        if np.isinf(size).any():  # the square of the norm left the range of float64
            unit = np.where(np.isinf(size), np.abs(v).max(-1), 1.0)
            size = unit * np.linalg.norm(v / unit[..., None], axis=-1)
        norm[:, part] = np.hypot(size, outside)
        # A zero vector has no direction, so that its entries become NaN.
        scale = np.where(norm[:, part] > 0, norm[:, part], np.nan)
        for name, (unit, rest) in units.items():
            alignment[name][:, part] = (v @ np.swapaxes(unit, 1, 2))[..., 0] / scale
            apart = np.linalg.norm(v / scale[..., None] - unit, axis=-1)
            error[name][:, part] = np.hypot(np.hypot(apart, outside / scale), rest)
    return norm, error, alignment


def not_measured(runs: int, k: int) -> dict[str, Any]:
    """Return NaN for those fields of a `History` that only some engines measure.

    Parameters
    ----------
    runs, k : int
        The numbers of runs and of records.

    Returns
    -------
    dict of str to ndarray
        The fields by name: `loss_rise` and `momentum` are (runs,), all others are
        (runs, k).
    """
    names = (
        "log_gradient",
        "log_step",
        "log_gradient_head",
        "log_step_head",
        "own_norm",
        "own_head_norm",
        "log_own_gradient",
        "log_own_gradient_head",
    )
    empty = {name: np.full((runs, k), np.nan) for name in names}
    return empty | {name: np.full(runs, np.nan) for name in ("loss_rise", "momentum")}


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def of_weights(
    tokens: TokenSet,
    times: np.ndarray,
    raw: dict[str, Any],
    *,
    head: str,
    loss: str,
    targets: Mapping[str, np.ndarray],
    head_targets: Mapping[str, np.ndarray],
) -> History:
    """Return the History of a path of W in the coordinates of the tokens.

    Parameters
    ----------
    tokens : TokenSet
        The data sets.
    times : ndarray of int (k,)
        The iterations of the records.
    raw : dict
        What the engine recorded: the path, as Weights or Factors; status (runs,), as
        codes of `lib.compiled.status`; ended (runs,); log_gap (runs, k); and possibly
        other fields of a History. These replace the fields that are computed here.
    head : {"fixed", "joint"}
        Whether the head was trained.
    loss : str
        One of ``attention.LOSSES``.
    targets, head_targets : mapping of str to ndarray
        The targets of W and of the head, as `checked_targets` returns them. If the head
        was fixed, `head_targets` is not used.

    Returns
    -------
    History
        The records of the engine, and all quantities that can be computed from W and u.
        All other fields are NaN, for example the gradient of the head.
    """
    raw = dict(raw)
    runs, n, T, _ = tokens.shape
    k = len(times)
    joint = head == "joint"
    path = raw.pop("path")
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)  # (runs, n, T-1) or None
    signed = coordinates.signed_opt_first(tokens)  # (runs, n, T, d)
    zero = np.zeros(runs)
    to_W = {name: Target(value, zero) for name, value in targets.items()}
    to_u = {name: Target(value, zero) for name, value in head_targets.items()}

    # The quantities that depend on W and the head, but not on the tokens.
    norm, error, alignment = directions(path.weights, k, zero, to_W)
    head_norm = np.full((runs, k), np.nan)
    head_error = {}
    head_alignment = {}
    if joint:
        head_norm, head_error, head_alignment = directions(path.head, k, zero, to_u)

    # Margins and scores, and the gradient that is computed from these.
    margins = np.empty((runs, k, n, T - 1))
    head_iterations = k if joint else 1  # a fixed head has the same scores in all
    gaps = np.empty((runs, head_iterations, n, T - 1))
    log_gradient = np.empty((runs, k))
    descent = {name: np.empty((runs, k)) for name in targets}
    chunk = max(1, CHUNK // (runs * n * T + runs * np.prod(path.shape)))
    for first in range(0, k, chunk):
        part = slice(first, first + chunk)
        W = path.weights(part)  # (runs, k, d, d_z)
        if joint:
            u = path.head(part)  # (runs, k, d)
        else:
            u = tokens.u[:, None]  # (runs, 1, d)
        images = np.swapaxes(W @ np.swapaxes(tokens.z, 1, 2)[:, None], -1, -2)
        now = np.moveaxis(delta @ images.transpose(0, 2, 3, 1), -1, 1)
        scores = np.moveaxis(signed @ np.swapaxes(u, 1, 2)[:, None], -1, 1)
        if hidden is not None:  # an infinite margin gives a masked token no weight
            now = np.where(hidden[:, None], np.inf, now)
        margins[:, part] = now
        if joint:
            gaps[:, part] = scores[..., :1] - scores[..., 1:]
        elif first == 0:
            gaps[:] = scores[..., :1] - scores[..., 1:]
        logits = np.concatenate([np.zeros_like(now[..., :1]), -now], -1)
        scores = np.broadcast_to(scores, logits.shape)
        at = attention.slopes(logits, scores, loss)
        pulled = np.moveaxis(
            np.swapaxes(-at.pull[..., 1:], 1, 2) @ delta, 2, 1
        )  # (runs, k, n, d)
        down = np.swapaxes(pulled, -1, -2) @ tokens.z[:, None]
        size = np.linalg.norm(down.reshape(*down.shape[:2], -1), axis=-1)
        log_gradient[:, part] = at.log_scale + np.log(size)
        for name, V in targets.items():
            toward = (down * V[:, None]).sum((-2, -1))
            descent[name][:, part] = toward / (size * to_W[name].norm[:, None])
    if not joint:
        gaps = np.broadcast_to(gaps, margins.shape)
    log_odds = np.logaddexp.reduce(-margins, -1)  # log odds against the opt token
    if hidden is not None:
        margins[np.broadcast_to(hidden[:, None], margins.shape)] = np.nan
        gaps = np.where(hidden[:, None], np.nan, gaps)
    records: dict[str, Any] = {
        "iterations": times,
        "norm": norm,
        "margins": margins,
        "log_miss": -np.logaddexp(0.0, -log_odds),
        "score_gaps": gaps,
        "direction_error": error,
        "alignment": alignment,
        "descent": descent,
        "head_norm": head_norm,
        "head_direction_error": head_error,
        "head_alignment": head_alignment,
        "path": path,
        "moments": {},
    }
    records = not_measured(runs, k) | {"log_gradient": log_gradient} | records | raw
    records["status"] = np.array(status.NAMES)[raw["status"]]
    return History(**records)
