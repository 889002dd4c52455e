"""Lemmas 19-21, 27 and 28 of paper C (2410.14581), inside the cones of `cones`."""

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.companion.claims import Claim, at_least, at_most
from lib.mirror.geometry import norm
from papers.c.cones import (
    SUPPORT,
    Selection,
    delta,
    edge_along,
    nearness,
    on_the_edge,
    radius,
    worst_edges,
)
from papers.c.step_lemmas import Steps

RESOLVED = 1e-14  # D of two directions carries an error of about 1e-16
MOVED = 1e-3  # the least change of D, as a share, of a run that is said to move


def _matrices(flat, of):
    return flat.reshape(*flat.shape[:-1], *of.solution.W.shape[1:])


def margins_inside(of: Selection, mu: np.ndarray) -> np.ndarray:
    """Eqs. 12a-c on the edge of the cone of mu (runs,): four slacks, (4,), that must be 1 or more.

    V there with ||V|| = ||W_mm|| has margins m; (12a) (m_tau - m_t)/delta for a support token t and
    another tau; (12b) (m_tau - 1)/delta; (12c) 2 m_t, and 3/2 over m_t; smallest over runs and over
    the `worst_edges`, where some margin moves as far as the cone lets it. Source: paper C.
    """
    d, support = delta(of)[:, None, None], of.solution.margins <= 1 + SUPPORT
    apart, found = coordinates.differences(of.tokens, of.tokens.opt), []
    for V in edge_along(of, mu, worst_edges(of)):
        W = _matrices(V * of.solution.norm[:, None], of)
        m = np.einsum("rntd,rde,rne->rnt", apart, W, of.tokens.z)
        rest, most = np.where(support, np.inf, m), np.where(support, m, -np.inf).max(-1)
        low = np.where(support, m, np.inf).min()
        a, b = ((rest.min(-1) - most) / d[..., 0]).min(), ((rest - 1) / d).min()
        found.append([a, b, 2 * low, 1.5 / most.max()])
    return np.min(found, 0)


def lemma19(of: Selection) -> Claim:
    """Eqs. 12a-c in the cone of mu_0 (our constant).

    Its words tell how much of the constant is ours alone: the largest power of 10 times mu_0, up to
    10 000, at whose edge all four still hold.
    """
    mu, room = radius(of), 0
    least = margins_inside(of, mu).min()
    while room < 5 and margins_inside(of, mu * 10.0**room).min() >= 1:
        room += 1
    text = f"p = {of.p:g}: smallest slack of Eqs. 12a-c"
    text += f", which hold up to {10 ** (room - 1):,} mu_0" if room else ""
    return at_least(f"lemma19.{of.p:g}", text, "paper C, Lemma 19 (our constant)", least, 1.0)


def descent(of: Selection, W: np.ndarray, toward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<-grad L(W), V> / e^s and s, (runs,) each, for flat W and V: so nothing underflows."""
    logits = attention.logits(of.tokens, _matrices(W, of))
    at = attention.slopes(logits, attention.scores(of.tokens, of.tokens.u), "logistic")
    logits = attention.logits(of.tokens, _matrices(toward, of))
    return (at.pull * (logits - logits.max(-1, keepdims=True))).sum((1, 2)), at.log_scale


def _radii(of, multiples):
    return np.asarray(multiples, float)[:, None] / nearness(of)


def lemma20(of: Selection, multiples: np.ndarray, draws: int = 20) -> list[Claim]:
    """W, V in S with mu_0: <-grad L(W), V/||V||> >= c e^{-(1 + delta/2) ||W|| / ||W_mm||} > 0.

    c does not fall with ||W||: for every run, the smallest c of each ||W|| = multiple ||W_mm|| /
    `nearness` is at least that of the first. multiples (m,) ascend; `draws` pairs a run. Source:
    paper C, Lemma 20; mu_0 is our constant, the exponent our reading.
    """
    W, V = (on_the_edge(of, radius(of), draws, seed) for seed in (1, 2))
    positive, constants = np.inf, []
    for r in _radii(of, multiples):
        sizes, fall = (r * of.solution.norm)[:, None], r * (1 + nearness(of) / 2)
        values = [descent(of, w * sizes, v) for w, v in zip(W, V, strict=True)]
        positive = min(positive, min(value.min() for value, _ in values))
        with np.errstate(invalid="ignore", divide="ignore"):
            constants.append(np.min([np.log(value) + s + fall for value, s in values], 0))
    grown = (np.array(constants[1:]) - constants[0]).min()
    source, p = "paper C, Lemma 20", f"p = {of.p:g}"
    cone, reading = f"{source} (our constant)", f"{source} (our reading)"
    sign = f"{p}: smallest <-grad L(W), V>, scaled"
    rate = f"{p}: smallest log of c(||W||) over c at the smallest ||W||"
    return [
        at_least(f"lemma20.positive.{of.p:g}", sign, cone, positive, 0.0),
        at_least(f"lemma20.rate.{of.p:g}", rate, reading, grown, 0.0),
    ]


def excess(of: Selection, W: np.ndarray) -> np.ndarray:
    """Lemma 21's pi: <-grad L, W/||W||> = (1 + pi) <-grad L, W_mm/||W_mm||>, (runs,)."""
    (own, _), (best, _) = descent(of, W, W / norm(W, of.p)[:, None]), descent(of, W, of.direction)
    return own / best - 1


def lemma21(of: Selection, multiples: np.ndarray, draws: int = 20) -> Claim:
    """For every pi there is R_pi ~ (C/pi) log(C/pi): the largest pi falls at least like log R / R.

    The largest over draws, measured on the edges of cones within S with mu_0, from mu_0 to 10^-10
    mu_0: at a large R what favours W most is near to W_mm. Radii are those of `lemma20`, multiples
    (m,); pi R / log R is largest before the last one, in every run. Source: paper C, Lemma 21 (our
    reading).
    """
    inside, radii = radius(of) * np.geomspace(1, 1e-10, 6)[:, None], _radii(of, multiples)
    W = np.concatenate([on_the_edge(of, mu, draws, seed=3) for mu in inside])
    largest = np.array(
        [np.max([excess(of, w * (r * of.solution.norm)[:, None]) for w in W], 0) for r in radii]
    )
    scaled = largest * radii / np.log(radii)
    source, p = "paper C, Lemma 21", f"p = {of.p:g}"
    text = f"{p}: pi R / log R at the last radius less its largest before, any run"
    growth = (scaled[-1] - scaled[:-1].max(0)).max()
    return at_most(f"lemma21.{of.p:g}", text, f"{source} (our reading)", growth, 0.0)


def lemma27(of: Selection, steps: Steps) -> Claim:
    """Eq. 25 at every recorded step where its premises hold, with the least pi of Lemma 21.

    <nabla psi(W+) - nabla psi(W), W_mm/||W_mm||> >= (||W+||^{p-1} - ||W||^{p-1}) / (1+pi) + eta (L+
    - L) / ((1+pi) ||W||): the line before the paper's, which lacks the last 1/(1+pi) and is weaker,
    as L falls. The left side is eta <-grad L, W_mm/||W_mm||>, by Eq. 23. Premises: it is positive
    (Lemma 20) and pi <= 1/2; a run with too small a ||W|| for its cone can leave them.
    """
    p, eta = of.p, np.broadcast_to(steps.eta, steps.losses[0].shape)
    pi = np.maximum(np.stack([excess(of, steps.W[:, k]) for k in range(steps.W.shape[1])], 1), 0.0)
    left = -eta * (steps.gradient * of.direction[:, None]).sum(-1)
    sizes = norm(steps.W, p), norm(steps.later, p)
    grown = sizes[1] ** (p - 1) - sizes[0] ** (p - 1)
    right = (grown + eta * (steps.losses[1] - steps.losses[0]) / sizes[0]) / (1 + pi)
    inside = (left > 0) & (pi <= 0.5)
    share = f"at {100 * inside.mean():.0f} % of the steps"
    statement = f"p = {p:g}: smallest slack of Eq. 25 over its left side, {share}"
    slack = ((left - right) / (np.abs(left) + 1e-13 * sizes[0] ** (p - 1)))[inside].min()
    return at_least(
        f"lemma27.{p:g}", statement, "paper C, Lemma 27, Eq. 25 (our reading)", slack, -1e-9
    )


def lemma28(of: Selection, D: np.ndarray, mu: np.ndarray) -> Claim:
    """Started in a thinner cone, D (runs, k) stays within the cone of mu (runs,), our constant.

    Over the runs whose mu is above `RESOLVED`: below, D is rounding. NaN, so that it does not hold,
    if none is, and if the median run's D hardly moves: runs that rest cannot leave. Its remark
    tells the last D over the first, of which the lemma says nothing.
    """
    wide = mu > RESOLVED
    course, most = D[wide, -1] / D[wide, 0], np.nan
    if wide.any() and np.median(np.abs(course - 1)) > MOVED:
        most = (D[wide] / mu[wide, None]).max()
    text = f"p = {of.p:g}: largest D along the path over mu_0, {wide.sum()} of {len(mu)} runs"
    text += f" (mu_0 > {RESOLVED:g})"
    ends = f"{course.min():.2g} to {course.max():.3g}" if wide.any() else "unresolved"
    seen, source = f"last D over first, no part of the lemma: {ends}", "paper C, Lemma 28"
    return at_most(f"lemma28.{of.p:g}", text, f"{source} (our constant)", most, 1.0, remark=seen)
