"""Cones around locally optimal selections (paper C, Eqs. 4-8): Lemmas 19-21 and 27-29 in them.

A selection alpha with solution W_mm of its l_p SVM; T_i its support tokens, those with margin 1.
Unless said otherwise D is D_psi(W_mm/||W_mm||, W/||W||), S = {D <= mu} and C = S with ||W||_{p,p}
>= R.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from lib import attention, svm
from lib.attention import TokenSet, coordinates
from lib.companion.claims import Claim, interval
from lib.mirror.descent import MirrorHistory, MirrorRule, gaussian_start, selected_tokens, train
from lib.mirror.geometry import directional_bregman, norm, to_mirror
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.c.statements import PAPER
from papers.c.step_lemmas import Steps, claim, spread
from papers.fits import fitted_slope

SUPPORT = 1e-6  # a margin up to 1 + SUPPORT belongs to a support token
RESOLVED = 1e-14  # D of two directions carries an error of about 1e-16
MOVED = 1e-3  # the least change of D, as a share, of a run that is said to move


@dataclass(frozen=True)
class Selection:
    """A selection, the opt tokens of `tokens`, and its max-margin direction."""

    tokens: TokenSet
    solution: MaxMargin
    p: float

    @property
    def direction(self) -> np.ndarray:
        """vec(W_mm) / ||W_mm||_{p,p}, (runs, D)."""
        return self.solution.W.reshape(len(self.solution.W), -1) / self.solution.norm[:, None]


def select(tokens: TokenSet, opt: np.ndarray, p: float) -> Selection:
    """The Selection of `opt` (runs, n); svm.Infeasible where no W can make it."""
    chosen = replace(tokens, opt=opt)
    return Selection(chosen, svm.token_svm(chosen, norm=p), p)


def locally_optimal(selection: Selection) -> np.ndarray:
    """Definition 3: whether selected tokens score more than their support tokens."""
    tokens = selection.tokens
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    rest = np.take_along_axis(scores, coordinates.others(tokens.opt, scores.shape[-1]), -1)
    return ((rest < best) | (selection.solution.margins > 1 + SUPPORT)).all((1, 2))


def _delta(selection):
    """Eq. 4: half the smallest excess over 1 of the other tokens' margins."""
    margins = selection.solution.margins
    return np.where(margins > 1 + SUPPORT, margins - 1, np.inf).min((1, 2)) / 2


def _nearness(selection):
    """min(delta, 1/2): at ||W_mm|| over it softmax tells support tokens from others."""
    return np.minimum(_delta(selection), 0.5)


def radius(selection: Selection) -> np.ndarray:
    """mu_0 of Eq. 4, (runs,) (our constant; Lemma 19 by Lemmas 12, 13): rho^p / (p 2^p)
    for p >= 2, (p-1)/2 (rho d^{1-2/p})^2 for p < 2, rho = min(delta, 1/2) / (A
    ||W_mm||), A the largest `spread`."""
    p, entries = selection.p, selection.direction.shape[-1]
    A = spread(selection.tokens, p / (p - 1)).max(-1)
    rho = _nearness(selection) / (A * selection.solution.norm)
    return rho**p / (p * 2**p) if p >= 2 else (p - 1) / 2 * (rho * entries ** (0.5 - 1 / p)) ** 2


def on_the_edge(selection: Selection, mu: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    """Random unit directions, D = mu (runs,) from the selection's, (draws, runs, D)."""
    directions = stream(seed, "draws").standard_normal((draws, *selection.direction.shape))
    return _edge_along(selection, mu, directions)


def _edge_along(selection, mu, E):
    """The first W_mm/||W_mm|| + s E with D = mu, of unit norm, E (draws, runs, D)."""
    direction, p = selection.direction, selection.p
    moved = lambda log_s: direction + np.exp(log_s)[..., None] * E
    D = lambda log_s: directional_bregman(moved(log_s), direction, p)
    low = high = np.full(E.shape[:2], -25.0)
    while (inside := D(high) < mu).any() and high.max() < 10:
        low, high = np.where(inside, high, low), high + np.where(inside, 0.5, 0.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = D(middle) <= mu
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    W = moved(low)
    return W / norm(W, p)[..., None]


def _worst_edges(selection):
    """+-sgn(A) |A|^{q-1} of every constraint A, along which its margin changes most."""
    tokens = selection.tokens
    rows = coordinates.constraint_rows(coordinates.differences(tokens, tokens.opt), tokens.z)
    E = to_mirror(np.swapaxes(rows, 0, 1), selection.p / (selection.p - 1))
    return np.concatenate([E, -E])


def _slack(selection, mu):
    """Eqs. 12a-c on the edge of the cone of mu (runs,), slacks of 1 or more by margins
    m: (12a) (m_tau - m_t)/delta, t a support token, tau not; (12b) (m_tau - 1)/delta;
    (12c) 2 m_t, 3/2 over m_t; the least over all, runs and `_worst_edges`."""
    tokens, solution = selection.tokens, selection.solution
    d, support = _delta(selection)[:, None, None], solution.margins <= 1 + SUPPORT
    apart, slacks = coordinates.differences(tokens, tokens.opt), []
    for V in _edge_along(selection, mu, _worst_edges(selection)):
        W = (V * solution.norm[:, None]).reshape(solution.W.shape)
        m = np.einsum("rntd,rde,rne->rnt", apart, W, tokens.z)
        rest = np.where(support, np.inf, m)
        high = np.where(support, m, -np.inf).max(-1)
        low = np.where(support, m, np.inf).min()
        slacks += [((rest.min(-1) - high) / d[..., 0]).min(), ((rest - 1) / d).min()]
        slacks += [2 * low, 1.5 / high.max()]
    return np.min(slacks)


def lemma19(selection: Selection) -> Claim:
    """Eqs. 12a-c in the cone of mu_0, and the widest 10^k mu_0 in which they hold."""
    slack = lambda k: _slack(selection, radius(selection) * 10.0**k)
    room = next((k for k in range(5) if not slack(k) >= 1), 5)
    far = f", which hold up to {10 ** (room - 1):,} mu_0" if room else ""
    return claim("lemma19", slack(0), selection.p, say=(far,))


def _descent(selection, W, toward):
    """<-grad L(W), V>/e^s and s, (runs,), W and V flat: nothing underflows."""
    tokens, shape = selection.tokens, selection.solution.W.shape
    logits = attention.logits(tokens, W.reshape(shape))
    slopes = attention.slopes(logits, attention.scores(tokens, tokens.u), "logistic")
    logits = attention.logits(tokens, toward.reshape(shape))
    below = logits - logits.max(-1, keepdims=True)
    return (slopes.pull * below).sum((1, 2)), slopes.log_scale


def _radii(selection, multiples):
    return np.asarray(multiples, float)[:, None] / _nearness(selection)


def lemma20(selection: Selection, multiples: np.ndarray, draws: int = 20) -> list[Claim]:
    """W, V in S with mu_0: <-grad L(W), V/||V||> >= c e^{-(1 + delta/2) ||W||/||W_mm||}
    > 0: the smallest c of ||W|| = multiple ||W_mm||/delta, delta of `_nearness`, is in
    no run below that of the first; multiples (m,) ascend, `draws` a run."""
    W, V = (on_the_edge(selection, radius(selection), draws, seed) for seed in (1, 2))
    positive, constants = np.inf, []
    for r in _radii(selection, multiples):
        sizes = (r * selection.solution.norm)[:, None]
        values = [_descent(selection, w * sizes, v) for w, v in zip(W, V, strict=True)]
        positive = min(positive, min(value.min() for value, _ in values))
        fall = r * (1 + _nearness(selection) / 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            constants.append(np.min([np.log(value) + s + fall for value, s in values], 0))
    grown = (np.array(constants[1:]) - constants[0]).min()
    return PAPER.claims({"lemma20.positive": positive, "lemma20.rate": grown}, selection.p)


def _excess(selection, W):
    """Lemma 21's pi: <-grad L, W/||W||> = (1+pi) <-grad L, W_mm/||W_mm||>, (runs,)."""
    along, _ = _descent(selection, W, W / norm(W, selection.p)[:, None])
    best, _ = _descent(selection, W, selection.direction)
    return along / best - 1


def lemma21(selection: Selection, multiples: np.ndarray, draws: int = 20) -> Claim:
    """For every pi there is R_pi ~ (C/pi) log(C/pi): the largest pi falls at least like
    log R / R: pi R / log R at the radii of `lemma20` is largest before the last. On
    edges from mu_0 to 10^-10 mu_0: what favours W most is near W_mm."""
    inside = radius(selection) * np.geomspace(1, 1e-10, 6)[:, None]
    radii, size = _radii(selection, multiples), selection.solution.norm
    W = np.concatenate([on_the_edge(selection, mu, draws, seed=3) for mu in inside])
    largest = [np.max([_excess(selection, w * (r * size)[:, None]) for w in W], 0) for r in radii]
    scaled = np.array(largest) * radii / np.log(radii)
    growth = (scaled[-1] - scaled[:-1].max(0)).max()
    return claim("lemma21", growth, selection.p)


def lemma27(selection: Selection, steps: Steps) -> Claim:
    """Eq. 25 at every recorded step where its premises hold, with the least pi of Lemma 21.

    <nabla psi(W+) - nabla psi(W), W_mm/||W_mm||> >= (||W+||^{p-1} - ||W||^{p-1}) / (1+pi) + eta (L+
    - L) / ((1+pi) ||W||): the line before the paper's, which is weaker. The left side is eta <-grad
    L, W_mm/||W_mm||>, by Eq. 23. Premises: it is positive (Lemma 20) and pi <= 1/2.
    """
    p, eta = selection.p, np.broadcast_to(steps.eta, steps.losses[0].shape)
    pi = [_excess(selection, steps.W[:, k]) for k in range(steps.W.shape[1])]
    pi = np.maximum(np.stack(pi, 1), 0.0)
    left = -eta * (steps.gradient * selection.direction[:, None]).sum(-1)
    sizes = norm(steps.W, p), norm(steps.later, p)
    grown = sizes[1] ** (p - 1) - sizes[0] ** (p - 1)
    right = (grown + eta * (steps.losses[1] - steps.losses[0]) / sizes[0]) / (1 + pi)
    inside = (left > 0) & (pi <= 0.5)
    slack = ((left - right) / (np.abs(left) + 1e-13 * sizes[0] ** (p - 1)))[inside].min()
    return claim("lemma27", slack, p, say=(f"{100 * inside.mean():.0f}",))


def lemma28(selection: Selection, D: np.ndarray, mu: np.ndarray) -> Claim:
    """From a thinner cone D (runs, k) stays in that of mu (runs,) (our constant), mu >
    RESOLVED; NaN where none is or D hardly moves. The remark: last D over first."""
    wide = mu > RESOLVED
    course, largest = D[wide, -1] / D[wide, 0], np.nan
    if wide.any() and np.median(np.abs(course - 1)) > MOVED:
        largest = (D[wide] / mu[wide, None]).max()
    runs = f"{wide.sum()} of {len(mu)} runs (mu_0 > {RESOLVED:g})"
    ends = f"{course.min():.2g} to {course.max():.3g}" if wide.any() else "unresolved"
    remark = f"last D over first, no part of the lemma: {ends}"
    return claim("lemma28", largest, selection.p, say=(runs,), remark=remark)


def found_selections(tokens: TokenSet, seeds: Sequence[int], p: float, steps: int) -> Selection:
    """The locally optimal selections in which training with p ends."""
    start = gaussian_start(tokens, seeds)
    history = train(tokens, relative_rule(start, p, 0.02), steps, start, record=[steps])
    opt = selected_tokens(tokens, history.W[:, -1])
    kept = np.flatnonzero(locally_optimal(select(tokens, opt, p)))
    return select(part(tokens, kept), opt[kept], p)


def part(tokens: TokenSet, runs: np.ndarray) -> TokenSet:
    """The data sets of the `runs` (m,), repeats allowed, as m runs."""
    return replace(tokens, **{f.name: getattr(tokens, f.name)[runs] for f in fields(tokens)})


def relative_rule(start: np.ndarray, p: float, relative_step: float) -> MirrorRule:
    """Normalised lp-AttGD whose first step is this share of ||nabla psi(W_0)||, W_0 =
    `start` (runs, d, d_z), median over runs: ||W||^{p-1} grows alike for all p."""
    size = np.median((np.abs(start) ** p).sum((1, 2)) ** ((p - 1) / p))
    return MirrorRule(p, relative_step * size)


def from_cone(
    selection: Selection, mu, multiple, steps, share=0.02, draws=1, seed=0, change=lambda rule: rule
) -> tuple[MirrorHistory, TokenSet]:
    """Train from `draws` random starts a run, D = mu, ||W_0|| = multiple ||W_mm||, by
    `relative_rule` of `share` as `change` makes it: history, data of draws x runs."""
    solution, runs = selection.solution, len(selection.direction)
    directions = on_the_edge(selection, np.full(runs, mu), draws, seed)
    W = directions * (multiple * solution.norm)[:, None]
    start = W.reshape(draws * runs, *solution.W.shape[1:])
    tokens = part(selection.tokens, np.tile(np.arange(runs), draws))
    rule = relative_rule(start, selection.p, share)
    return train(tokens, change(rule), steps, start), tokens


def theory(p: float) -> tuple[float, float, str]:
    """Lemma 29 as (a, b, text): D <= O(r^a (log r)^b), r = ||W||_{p,p}."""
    if p > 2:
        return -1.0, 1.0, r"$\log r / r$"
    return (-1.0, 2.0, r"$(\log r)^2 / r$") if p == 2 else (1 - p, 0.0, rf"$r^{{{1 - p:.3g}}}$")


def slopes(history: MirrorHistory, divergence: np.ndarray) -> np.ndarray:
    """Exponent in r of the divergence (runs, k), over half of log r: (runs,)."""
    log_r, log_D = np.log(history.norm), np.log(np.maximum(divergence, 1e-16))
    since = lambda r: (r[0] + r[-1]) / 2
    each = zip(log_r, log_D, strict=True)
    return np.array([fitted_slope(r, D[None], since(r))[0] for r, D in each])


def lemma29(history: MirrorHistory, divergence: np.ndarray) -> list[Claim]:
    """D falls at least like Lemma 29's bound over the last half of the path in log r.

    And really by r^{-2 min(p - 1, 1)} (ours): D is quadratic in the error of the direction. The
    part of the mirror image of W_0 that no constraint sees stays, an error of order 1/||W||^{p-1};
    the minimiser of the loss on a sphere is off by 1/||W||. `divergence` (runs, records) is D.
    """
    p = history.rule.p
    a, b, _ = theory(p)
    log_r = np.log(history.norm)
    over = np.log(np.maximum(divergence, 1e-16)) - a * log_r - b * np.log(np.maximum(log_r, 1e-9))
    middle = np.abs(log_r - (log_r[:, :1] + log_r[:, -1:]) / 2).argmin(1)[:, None]
    growth = np.exp(over[:, -1] - np.take_along_axis(over, middle, 1)[:, 0]).max()
    exponents, sharp = slopes(history, divergence), -2 * min(p - 1, 1.0)
    power = {"bound": f"{sharp} ± 0.1", "interval": interval(exponents)}
    fall = claim("lemma29.sharp", np.median(exponents), p, **power)
    return [claim("lemma29", growth, p), fall]


def captured(selection: Selection, mus, multiple: float, steps: int, draws: int) -> np.ndarray:
    """Per mu, the share of starts of `from_cone` that select its tokens, (mus,)."""
    fractions = []
    for k, mu in enumerate(mus):
        history, tokens = from_cone(selection, mu, multiple, steps, draws=draws, seed=k)
        kept = (selected_tokens(tokens, history.W[:, -1]) == tokens.opt).all(1)
        fractions.append(kept.mean())
    return np.array(fractions)


def local_claims(fractions: Mapping, mus: Sequence[float], multiple: float) -> list[Claim]:
    """Starts in the thinnest cone keep their tokens, those in the widest need not."""
    return [
        claim(id, kept[k], p, multiple, say=(f"{mus[k]:.1g}",))
        for id, k in (("local.thin", 0), ("local.wide", -1))
        for p, kept in fractions.items()
    ]
