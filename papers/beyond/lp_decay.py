"""Steps that settle l_p mirror descent for p < 2, where constant ones end in a cycle.

Along W = a W_mm a normalised step of length eta raises the level by h = eta a^{2-p} / ((p - 1)
||W_mm||^{p-1}), which grows with a for p < 2. The offsets settle exactly as long as h < 2/fastest.
So h stays what it is for

    eta_t = (p - 1) ||W_mm||^{p-1} h (h (t + 1))^{p-2},    a_t = h t, ||W_t||_p = h ||W_mm|| t,

steps that decay like t^{p-2}, with the sum (h t ||W_mm||)^{p-1}.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.attention import coordinates, model
from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.mirror import geometry
from papers.beyond.lp_law import QUIET, REST, LpLaw, check_resolved, offsets, predict, problem
from papers.beyond.margin_law_premises import each_seed
from papers.beyond.margin_slopes import PremiseFails

SHARES = (0.5, 0.95, 1.05)  # of the longest rise that settles, 2/fastest
# Of notebooks/bends_protocol.md
CONSTANT, PACE, LOUD = 0.02, 0.01, 0.1
OURS = "ours, beside paper C, Lemma 29"


def decaying(of: LpLaw, share: float) -> Callable[[int], float]:
    """eta_t by which every step raises the margins by `share` of what settles."""
    p, h = of.p, 2 * share / of.fastest
    first = (p - 1) * of.solution.norm[0] ** (p - 1) * h ** (p - 1)
    return lambda t: first * (t + 1.0) ** (p - 2)


def constant(of: LpLaw, share: float, steps: int) -> Callable[[int], float]:
    """A constant step with the same ||W||_p after `steps` iterations."""
    size = 2 * share / of.fastest * steps * of.solution.norm[0]
    return lambda t: size ** (of.p - 1) / steps


def _batch(laws):
    """Of problems with T = 2: rows A (runs, n, d d_z), own scores and their gaps (runs, n)."""
    parts = []
    for of in laws:
        data = of.tokens
        if data.shape[2] != 2:
            raise ValueError(f"T = {data.shape[2]}; the loop in numpy takes T = 2")
        scores = model.scores(data, data.u)[0]
        own = np.take_along_axis(scores, data.opt[0][:, None], -1)[:, 0]
        delta = coordinates.differences(data, data.opt)
        A = coordinates.constraint_rows(delta, data.z)[0]
        parts.append((A, own, 2 * own - scores.sum(-1)))
    return map(np.stack, zip(*parts, strict=True))


def train(laws: Sequence[LpLaw], steps: Sequence[Callable], count: int, record: Sequence[int]):
    """Normalised mirror descent on the exponential loss from zero, W (runs, k, d d_z).

    One run per law and step rule eta_t; softmax weights stay logarithms. All laws of one p.
    """
    (A, own, gap), p = _batch(laws), laws[0].p
    q = p / (p - 1)
    U, path, wanted = np.zeros(A[:, 0].shape), [], set(record)
    for t in range(count + 1):
        W = np.sign(U) * np.abs(U) ** (1 / (p - 1))
        if t in wanted:
            path.append(W)
        margins = np.einsum("rmd,rd->rm", A, W)
        log_other = -np.logaddexp(0.0, margins)  # weight of the other token
        f = own - np.exp(log_other) * gap
        log_pull = np.log(gap) - f + log_other - np.logaddexp(0.0, -margins)
        pull = np.exp(log_pull - log_pull.max(1, keepdims=True))
        down = np.einsum("rm,rmd->rd", pull, A)
        length = np.array([rule(t) for rule in steps]) / geometry.norm(down, q)
        U = U + length[:, None] * down
    return np.stack(path, 1)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """One problem after decaying steps, for SHARES (k,), and after as many constant ones.

    moved (k,): the largest move of an offset in the last step; constant: that with constant steps
    which reach the ||W|| of the second share; pace (k,): ||W||_p over (sum of steps)^{1/(p-1)};
    error: ||W||_p sqrt(2 D) over its constant, at the first share.
    """

    of: LpLaw
    moved: np.ndarray
    constant: float
    pace: np.ndarray
    error: float


def study(seeds: Sequence[int], p: float, count: int):
    """Every seed's problem with decaying steps of SHARES: kept, and seed -> refusal.

    Refused: what `lp_law.predict` refuses; "offsets at rest" where one still moves by more than
    REST over the last tenth of the shortest steps; "entries resolved" as in `lp_law.run`.
    """
    where = f"p = {p:g}, "
    kept, refused = each_seed(seeds, lambda seed: (seed, predict(problem(seed), p)), where)
    if not kept:
        return [], refused
    laws, each = dict(kept), []
    for of in laws.values():
        each += [(of, decaying(of, share)) for share in SHARES]
        each.append((of, constant(of, SHARES[1], count)))
    times = [count * 9 // 10, count - 1, count]
    W = train(*zip(*each, strict=True), count, times)
    own = dict(zip(laws, W.reshape(len(laws), -1, *W.shape[1:]), strict=True))
    kept, late = each_seed(laws, lambda seed: _settled(laws[seed], own[seed], count), where)
    return kept, refused | late


def _settled(of, W, count):
    """`Settled` from W (shares and constant steps, 3, d d_z)."""
    rested = np.array([offsets(of, own) for own in W])
    rest = np.abs(rested[0, 2] - rested[0, 0]).max()
    if not rest <= REST:
        said = f"an offset moved by {rest:.2g} over the last tenth, it needs {REST:g}: longer"
        raise PremiseFails("offsets at rest", 0, rest, said)
    size = geometry.norm(W[:, 2], of.p)
    check_resolved(of, size[0] / of.solution.norm[0])
    D = geometry.directional_bregman(W[:1, 2], of.solution.W.reshape(1, -1), of.p)[0]
    t = np.arange(count)
    total = np.array([decaying(of, share)(t).sum() for share in SHARES])
    moved = np.abs(rested[:, 2] - rested[:, 1]).max(1)
    return Settled(
        of=of,
        moved=moved[:-1],
        constant=float(moved[-1]),
        pace=size[:-1] / total ** (1 / (of.p - 1)),
        error=float(size[0] * np.sqrt(2 * max(D, 0.0)) / of.constant),
    )


def steps_claims(found: Sequence[Settled]) -> list[Claim]:
    """For each p: rest below the longest rise, cycles beyond it, pace and constant; worst run."""
    claims = []
    for p in dict.fromkeys(one.of.p for one in found):
        own = [one for one in found if one.of.p == p]
        moved = np.array([one.moved for one in own])
        off = np.array([one.error for one in own]) - 1
        slow = np.array([one.pace[0] for one in own]) - 1
        text = f"p = {p:g}, {len(own)} runs, steps like t^(p-2): {{}}".format
        at = "{} move of an offset at {:g} of the longest rise".format
        rest, cycle = at("largest", SHARES[1]), at("least", SHARES[2])
        pace = text("‖W‖ over its prediction, less 1")
        error = text("‖W‖ x error over its constant, less 1")
        same = f"p = {p:g}: least move of an offset, constant steps to the ‖W‖ of {SHARES[1]:g}"
        claims += [
            at_most(f"lp.steady.{p:g}", text(rest), OURS, moved[:, 1].max(), QUIET),
            at_least(f"lp.unsteady.{p:g}", text(cycle), OURS, moved[:, 2].min(), LOUD),
            at_least(f"lp.same.{p:g}", same, OURS, min(one.constant for one in own), LOUD),
            close(f"lp.pace.{p:g}", pace, OURS, furthest(slow), 0.0, PACE),
            close(f"lp.settled.{p:g}", error, OURS, furthest(off), 0.0, CONSTANT),
        ]
    return claims


def as_constant(one: Settled) -> Settled:
    """Decaying steps fare no better than constant ones."""
    return replace(one, moved=np.array([one.moved[0], one.constant, one.moved[2]]))


def twice_as_long(one: Settled) -> Settled:
    """Twice the rise settles as well, decaying steps or not."""
    return replace(one, moved=one.moved[[0, 0, 1]], constant=float(one.moved[0]))


WORLDS: Mapping[str, Callable[[Settled], Settled]] = {
    "decay is no help": as_constant,
    "twice the rise settles": twice_as_long,
    "another pace": lambda one: replace(one, pace=one.pace * (one.of.p - 1)),
    "constant of lp 5 % high": lambda one: replace(one, error=one.error / 1.05),
}
