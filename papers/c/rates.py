"""Lemma 29's rate at which lp-AttGD finds its direction, Lemma 28's width of basins."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, interval
from lib.mirror.descent import MirrorHistory, MirrorRule, gaussian_start, selected_tokens, train
from papers.c.cones import Selection, locally_optimal, on_the_edge, select
from papers.c.statements import PAPER
from papers.fits import fitted_slope


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
    fall = PAPER.claim("lemma29.sharp", np.median(exponents), p, **power)
    return [PAPER.claim("lemma29", growth, p), fall]


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
        PAPER.claim(id, kept[k], p, multiple, say=(f"{mus[k]:.1g}",))
        for id, k in (("local.thin", 0), ("local.wide", -1))
        for p, kept in fractions.items()
    ]
