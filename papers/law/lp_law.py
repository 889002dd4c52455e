"""The law of the margins under l_p mirror descent, from the duals of the l_p SVM.

Let w = W_mm have the least l_p norm, and D = |w|^{2-p}/(p-1) entrywise. The residual is
r = D sum_m c_m A_m, with <A_m, r> = log(kappa_m/beta_m) + const, so that the direction
error falls like 1/||W||. The part of the start outside the span of the A_m adds an
error of order ||W||^-(p-1).

A step of size eta at the margin level a raises the level by h = eta a^{2-p}/((p-1)
||w||^{p-1}). Offsets converge as long as h < 2/fastest. For p < 2, h grows under
constant steps until it exceeds 2/fastest, and then the run ends in a cycle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, model, tokens
from lib.dynamics import MirrorDescent, train
from lib.mirror import gaussian_start, geometry
from lib.svm import token_svm
from papers.law.margin_law import require
from papers.law.margins import each_seed
from papers.law.tolerances import AT_REST_LP as REST
from papers.law.tolerances import QUIET_LP, SMALLEST_DUAL, UNRESOLVED
from papers.ours import claim
from papers.saturation import saturated_slopes

# The rises of the level per step that are tried. They are divided by 2/fastest, the
# largest rise with which offsets converge.
SHARES = (0.5, 0.95, 1.05)


class _LpLaw:
    """The law of one run from W_0 = 0 that ends at its opt tokens, for the exponential
    loss and the exponent p > 1.

    We do not reduce the tokens to minimal coordinates, because l_p norms depend on the
    coordinates. `constant` is the limit of ||W||_p sqrt(2 D), where D is the divergence
    from `solution`. `fastest` is the largest rate, per unit of margin, at which a wrong
    offset decays. Arrays over pairs (m,) leave out the pairs with a masked token. The
    constructor raises PremiseFails with "whole support" or "score gaps", and Infeasible
    if no W selects the opt tokens.
    """

    def __init__(self, data: TokenSet, p: float) -> None:
        self.tokens = data
        self.p = p
        self.solution = token_svm(data, norm=p)
        self.shown = shown = coordinates.shown_pairs(data, data.opt)[0]  # (n, T-1)
        beta = self.solution.duals[0][shown]
        margins = self.solution.margins[0][shown]
        idle = (beta <= SMALLEST_DUAL * beta.max()) | (margins > 1 + 1e-6)
        reason = (
            f"{idle.sum()} of {idle.size} constraints do not carry the l_{p:g} solution"
        )
        require(not idle.any(), "whole support", idle.sum(), reason)
        slopes = saturated_slopes(data)[0][shown]
        reason = "another token scores at least the opt one's"
        require(np.isfinite(slopes).all(), "score gaps", 0.0, reason)
        w = self.solution.W[0].ravel()
        delta = coordinates.differences(data, data.opt, masked_as_zero=True)
        A = coordinates.constraint_rows(delta, data.z)[0][shown.ravel()]
        D = np.abs(w) ** (2 - p) / (p - 1)
        K = (A * D) @ A.T
        r = D * (A.T @ np.linalg.solve(K, slopes - np.log(beta)))
        size = geometry.norm(w, p)
        h = geometry.to_mirror(w / size, p)  # gradient of the norm at w
        across = r - w * (h @ r) / size
        squares = (p - 1) * np.abs(w / size) ** (p - 2) * across**2
        # The mirror image w~ of w is the sum of the scaled duals: <w~, w> = sum beta.
        scale = (geometry.to_mirror(w, p) @ w) / beta.sum()
        root = np.sqrt(beta * scale)
        off = (p - 1) * root[:, None] * K * root - np.outer(root, root) / (root @ root)
        self.rows = A  # (m, d d_z)
        self.constant = float(np.sqrt(squares.sum()))
        # (d d_z,): the residual divided by W_mm, entry by entry
        self.relative = np.abs(across / w)
        self.share = squares / squares.sum()  # the share of each entry in constant^2
        # sqrt(beta) is projected out, because a_t moves along it.
        self.fastest = float(np.linalg.eigvalsh(off)[-1])

    def offsets(self, W: np.ndarray) -> np.ndarray:
        """Return the margins minus their mean, an array (k, m), at W (k, d, d_z) or at
        flattened W (k, d d_z).
        """
        margins = W.reshape(len(W), -1) @ self.rows.T
        return margins - margins.mean(1, keepdims=True)

    def check_resolved(self, level: float) -> None:
        """Raise PremiseFails if too much of the residual is on small entries of W_mm.

        An entry of W at `level` is too small for the expansion of the l_p geometry if
        its absolute value is less than ten times the residual of that entry. For p = 2
        there is no expansion, so that no entry is too small.
        """
        share = self.share[self.relative > 0.1 * level].sum()
        needed = np.log10(self.relative.max() / (0.1 * level))
        reason = (
            f"entries near zero hold {share:.2g} of the residual: ||W|| "
            f"10^{needed:.1f} longer"
        )
        holds = self.p == 2 or share <= UNRESOLVED  # For p = 2 nothing is expanded.
        require(holds, "entries resolved", share, reason)


@dataclass(frozen=True, kw_only=True)
class _LpRun:
    """A run with its law: the norm ||W||_p and the error sqrt(2 D) at the late records,
    two arrays (k,).

    `started` says whether the run starts from a W other than zero.
    """

    law: _LpLaw
    started: bool
    norm: np.ndarray
    error: np.ndarray


def _run(law: _LpLaw, size: float, steps: int, start: np.ndarray | None = None):
    """Train until ||W||_p = (eta steps)^{1/(p-1)} = `size`, and compare with the law.

    `start` is W_0 (1, d, d_z), by default zero. The norm reaches `size` up to terms
    that the law neglects. The function returns an _LpRun, or raises PremiseFails if the
    steps are too long, the run is too short, or too much of the residual is on small
    entries of W_mm.
    """
    p = law.p
    step = size ** (p - 1) / steps
    first = max(1, int(steps * 10.0 ** -(p - 1)))  # the last decade of ||W||
    late = np.unique(np.geomspace(first, steps, 12).round().astype(int))
    history = train(law.tokens, MirrorDescent(p, step), steps, late, start)

    # A step raises the margins by level / ((p - 1) t). If this is 2 / fastest or more,
    # offsets do not converge.
    level = history.own_norm[0] / law.solution.norm[0]
    rise = level / ((p - 1) * late)
    raised = rise.max() * law.fastest
    reason = f"a step is {raised / 2:.2g} times as long as the longest that settles"
    require(raised < 2, "short steps", raised, reason)

    last_offsets = law.offsets(history.W[0, -2:])
    moved = np.ptp(last_offsets, axis=0).max()
    reason = (
        f"an offset moved by {moved:.2g} between the last records, "
        f"it needs {REST:g}: longer"
    )
    require(moved <= REST, "offsets at rest", moved, reason)

    law.check_resolved(level[0])
    D = history.divergence(law.solution.W, p)[0].clip(0)
    return _LpRun(
        law=law,
        started=start is not None,
        norm=history.own_norm[0],
        error=np.sqrt(2 * D),
    )


def _problem(seed: int) -> TokenSet:
    """Return the small problem of the claims: Gaussian tokens with n = 4, T = 2, d =
    10.
    """
    return tokens.gaussian_tokens(seed, n=4, T=2, d=10)


def study(
    seeds: Sequence[int], p: float, size: float, steps: int, std: float = 0.3
) -> tuple[list[_LpRun], dict[int, str]]:
    """Train on every seed from zero, and from a Gaussian start with standard deviation
    `std`.

    The function returns two runs for every seed for which each of the two meets the
    premises of the law. For each excluded seed it returns the reason.
    """

    def both(seed: int):
        law = _LpLaw(_problem(seed), p)
        started = gaussian_start(law.tokens, [seed], std)
        return [_run(law, size, steps), _run(law, size, steps, started)]

    kept, refused = each_seed(seeds, both)
    return [run for pair in kept for run in pair], refused


def lp_claims(runs: Sequence[_LpRun]) -> list[Claim]:
    """Check the exponent and the constant of the direction error, for each p and each
    kind of start.

    Each claim is about the worst run.
    """
    rows = []
    for p, started in dict.fromkeys((r.law.p, r.started) for r in runs):
        alike = [r for r in runs if (r.law.p, r.started) == (p, started)]
        powers = np.array(
            [np.polyfit(np.log(r.norm), np.log(r.error), 1)[0] for r in alike]
        )
        if started:  # The start has a part outside the span of the A_m.
            expected = -min(1.0, p - 1)
            rows.append(
                claim("lp.start", powers, f"{p:g}", expected=expected, each=True)
            )
            continue
        off = [r.norm[-1] * r.error[-1] / r.law.constant - 1 for r in alike]
        rows.append(claim("lp.zero", powers, f"{p:g}", each=True))
        rows.append(claim("lp.constant", off, f"{p:g}"))
    return rows


def _onset(law: _LpLaw, at: int, times: Sequence[float] = (0.9, 1.25)):
    """Return the largest change of an offset in one step, at the iterations `times`
    multiplied by `at`.

    The step size is chosen such that cycles should begin at the iteration `at`, for p <
    2. The result has one value for each of `times`. The function raises PremiseFails if
      offsets still move at half of `at`.
    """
    record = sorted({round(share * at) + k for share in (0.5, *times) for k in (0, 1)})
    # At the iteration `at` the margins of ||W||_p = (eta t)^{1/(p-1)} rise by
    # 2/fastest.
    size = 2 * (law.p - 1) * at * law.solution.norm[0] / law.fastest
    rule = MirrorDescent(law.p, float(size ** (law.p - 1) / at))
    W = train(law.tokens, rule, record[-1], record=record).W[0]
    moved = np.abs(np.diff(law.offsets(W), axis=0)[::2]).max(1)
    reason = f"an offset still moves by {moved[0]:.1g} a step at half of the onset"
    require(moved[0] <= QUIET_LP, "offsets at rest", moved[0], reason)
    return moved[1:]


def onsets(
    seeds: Sequence[int], p: float, at: int
) -> tuple[np.ndarray, dict[int, str]]:
    """Return `_onset` of every seed's problem, an array (runs, 2), and for each
    excluded seed the reason.

    If all seeds are excluded, the first result has the shape (0,).
    """
    kept, refused = each_seed(seeds, lambda seed: _onset(_LpLaw(_problem(seed), p), at))
    return np.array(kept), refused


def onset_claims(p: float, moved: np.ndarray) -> list[Claim]:
    """Check that under constant steps the offsets are at their limits before the onset
    of cycles, and cycle after it.

    `moved` (runs, 2) has the changes of the offsets before and after the onset. If
    there are no runs, the measured values of both claims are NaN.
    """
    if np.size(moved):
        early, late = np.reshape(moved, (-1, 2)).T
    else:
        early = np.array([np.nan])
        late = np.array([np.nan])
    return [claim("lp.rests", early, f"{p:g}"), claim("lp.cycles", late, f"{p:g}")]


def _decaying(law: _LpLaw, share: float):
    """Return steps under which the margin level rises by a constant h per iteration.

    The step sizes are eta_t = (p-1) ||w||^{p-1} h (h (t+1))^{p-2}, so that a_t = h t.
    `share` is h divided by 2/fastest, the largest rise with which offsets converge. The
    result is a function from t to eta_t.
    """
    p = law.p
    h = 2 * share / law.fastest
    first = (p - 1) * law.solution.norm[0] ** (p - 1) * h ** (p - 1)
    return lambda t: first * (t + 1.0) ** (p - 2)


def _constant(law: _LpLaw, share: float, steps: int):
    """Return a function of t whose value is the same step size at every t.

    After `steps` iterations with it, ||W||_p is as large as with the steps of
    `_decaying`.
    """
    size = 2 * share / law.fastest * steps * law.solution.norm[0]
    return lambda t: size ** (law.p - 1) / steps


def _train(law: _LpLaw, steps: Any, count: int, record: Any):
    """Train by normalised mirror descent from zero, one run for each entry of `steps`.

    An entry of `steps` is a function from the iteration t to eta_t. Each sample must
    have one or two tokens that are not masked. The function returns W, as (runs,
    records, d d_z), at the iterations `record`, which are ascending and at most
    `count`.
    """
    A = law.rows
    p = law.p
    scores = model.scores(law.tokens, law.tokens.u)[0]  # (n, T), -inf if masked
    q = p / (p - 1)
    # A sample has at most one pair, so that these arrays have one entry per pair (m,).
    of_pair = np.nonzero(law.shown)[0]
    best = scores.max(-1)[of_pair]
    gap = 2 * best - np.where(scores > -np.inf, scores, 0.0).sum(-1)[of_pair]
    U = np.zeros((len(steps), A.shape[1]))
    path = []
    wanted = set(record)
    for t in range(count + 1):
        W = np.sign(U) * np.abs(U) ** (1 / (p - 1))
        if t in wanted:
            path.append(W)
        margins = np.einsum("md,rd->rm", A, W)
        log_other = -np.logaddexp(0.0, margins)  # weight of the other token
        f = best - np.exp(log_other) * gap
        log_pull = np.log(gap) - f + log_other - np.logaddexp(0.0, -margins)
        pull = np.exp(log_pull - log_pull.max(1, keepdims=True))
        down = np.einsum("rm,md->rd", pull, A)
        length = np.array([rule(t) for rule in steps]) / geometry.norm(down, q)
        U = U + length[:, None] * down
    return np.stack(path, 1)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """How training on one problem ends, with decaying steps for each of `SHARES` (k,),
    and with constant steps.
    """

    law: _LpLaw
    moved: np.ndarray  # (k,) the largest change of an offset in the last step
    # The same for constant steps that lead to the ||W||_p of the second share.
    constant: float
    pace: np.ndarray  # (k,) ||W||_p divided by (sum of step sizes)^{1/(p-1)}
    error: float  # ||W||_p sqrt(2 D) divided by the law's constant, at the first share


def decay_study(
    seeds: Sequence[int], p: float, count: int
) -> tuple[list[Settled], dict[int, str]]:
    """Train on every seed's problem with decaying steps, for each of `SHARES`.

    A run takes `count` steps. The function returns the results, and for each excluded
    seed the reason.
    """

    def study_seed(seed: int):
        return _settled(_LpLaw(_problem(seed), p), count)

    return each_seed(seeds, study_seed, f"p = {p:g}, ")


def _settled(law: _LpLaw, count: int):
    """Train on one problem with `count` decaying steps for each of `SHARES`, and with
    `count` constant steps.

    The function returns Settled. It raises PremiseFails if the offsets have not
    converged under the smallest share, or if too much of the residual is on small
    entries of W_mm.
    """
    decaying = [_decaying(law, share) for share in SHARES]
    constant = _constant(law, SHARES[1], count)
    times = [count * 9 // 10, count - 1, count]
    W = _train(law, [*decaying, constant], count, times)
    at_tenth, before, at_end = range(len(times))
    offsets = np.array([law.offsets(path) for path in W])  # (rules, times, m)

    # With the first share, the offsets may not move over the last tenth of the run.
    unrest = np.abs(offsets[0, at_end] - offsets[0, at_tenth]).max()
    reason = (
        f"an offset moved by {unrest:.2g} over the last tenth, "
        f"it needs {REST:g}: longer"
    )
    require(unrest <= REST, "offsets at rest", unrest, reason)
    size = geometry.norm(W[:, at_end], law.p)
    law.check_resolved(size[0] / law.solution.norm[0])

    # With the first share, the product of direction error and norm is compared with the
    # law's constant.
    W_mm = law.solution.W.reshape(1, -1)
    D = geometry.directional_bregman(W[:1, at_end], W_mm, law.p)[0]
    scaled_error = size[0] * np.sqrt(2 * max(D, 0.0))

    last_move = np.abs(offsets[:, at_end] - offsets[:, before]).max(1)
    sum_of_steps = np.array([rule(np.arange(count)).sum() for rule in decaying])
    return Settled(
        law=law,
        moved=last_move[:-1],
        constant=float(last_move[-1]),
        pace=size[:-1] / sum_of_steps ** (1 / (law.p - 1)),
        error=float(scaled_error / law.constant),
    )


def steps_claims(runs: Sequence[Settled]) -> list[Claim]:
    """Check for each p that offsets converge if the rise of the level per step is below
    the limit 2/fastest, and cycle if it is above.

    Further claims compare the growth of ||W||_p, and the constant of the direction
    error, with the law.
    """
    rows = []
    for p in dict.fromkeys(run.law.p for run in runs):
        alike = [run for run in runs if run.law.p == p]
        setting = f"{p:g}"
        moved = np.array([run.moved for run in alike])
        rows += [
            claim("lp.steady", moved[:, 1], setting, len(alike), f"{SHARES[1]:g}"),
            claim("lp.unsteady", moved[:, 2], setting, len(alike), f"{SHARES[2]:g}"),
            claim(
                "lp.same", [run.constant for run in alike], setting, f"{SHARES[1]:g}"
            ),
            claim("lp.pace", [run.pace[0] - 1 for run in alike], setting, len(alike)),
            claim("lp.settled", [run.error - 1 for run in alike], setting, len(alike)),
        ]
    return rows
