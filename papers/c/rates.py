"""How fast lp-AttGD finds its direction (paper C, Lemma 29), how wide basins are (28)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, interval
from lib.mirror.descent import MirrorHistory, MirrorRule, gaussian_start, selected_tokens, train
from papers.c.cones import Selection, locally_optimal, on_the_edge, selection
from papers.fits import fitted_slope


def found_selections(
    tokens: TokenSet, seeds: Sequence[int], p: float, steps: int, relative_step=0.02
) -> Selection:
    """The locally optimal selections that training with p from random starts ends in.

    Normalised steps of `relative_step` in units of the mirror image of W_0. A run that has not
    settled on a locally optimal selection is left out.
    """
    start = gaussian_start(tokens, seeds)
    history = train(tokens, relative_rule(start, p, relative_step), steps, start, record=[steps])
    of = selection(tokens, selected_tokens(tokens, history.W[:, -1]), p)
    kept = np.flatnonzero(locally_optimal(of))
    return selection(part(of.tokens, kept), of.tokens.opt[kept], p)


def part(tokens: TokenSet, runs: np.ndarray) -> TokenSet:
    """The data sets whose run numbers are in `runs` (m,), repeats allowed, as m runs."""
    return replace(
        tokens, **{field.name: getattr(tokens, field.name)[runs] for field in fields(tokens)}
    )


def relative_rule(start: np.ndarray, p: float, relative_step: float) -> MirrorRule:
    """Normalised lp-AttGD whose first step is this share of the mirror image of `start`.

    Sizes are ||nabla psi(W_0)|| of W_0 (runs, d, d_z), median over runs. ||W||^{p-1} then grows by
    about the same number of its first values for every p: the same progress, whatever p.
    """
    size = np.median((np.abs(start) ** p).sum((1, 2)) ** ((p - 1) / p))
    return MirrorRule(p, relative_step * size)


@dataclass(frozen=True)
class Edge:
    """Random starts on the edge of the cone D = mu with ||W_0|| = multiple ||W_mm||."""

    mu: float
    multiple: float
    draws: int = 1
    seed: int = 0


def from_cone(
    of: Selection,
    edge: Edge,
    steps: int,
    relative_step: float = 0.02,
    change: Callable[[MirrorRule], MirrorRule] = lambda rule: rule,
) -> tuple[MirrorHistory, TokenSet]:
    """Train from the edge of a cone; `change` makes another rule of the one that is used.

    Returns the history of the draws x runs, run after run within a draw, and the runs' data
    repeated likewise.
    """
    runs, draws = len(of.direction), edge.draws
    on_it = on_the_edge(of, np.full(runs, edge.mu), draws, edge.seed)
    W = on_it * (edge.multiple * of.solution.norm)[:, None]
    start = W.reshape(draws * runs, *of.solution.W.shape[1:])
    tokens = part(of.tokens, np.tile(np.arange(runs), draws))
    return train(tokens, change(relative_rule(start, of.p, relative_step)), steps, start), tokens


def theory(p: float) -> tuple[float, float, str]:
    """Lemma 29 as (a, b, text): D <= O(r^a (log r)^b), r = ||W||_{p,p}."""
    if p > 2:
        return -1.0, 1.0, r"$\log r / r$"
    return (-1.0, 2.0, r"$(\log r)^2 / r$") if p == 2 else (1 - p, 0.0, rf"$r^{{{1 - p:.3g}}}$")


def sharp(p: float) -> float:
    """The exponent of D in r that we expect: -2 min(p - 1, 1).

    It is the square of Lemma 29's rate up to logarithms. D is quadratic in the error of the
    direction. The part of the mirror image of W_0 that no constraint sees stays, an error of order
    1/||W||^{p-1}. The minimiser of the loss on a sphere is off by 1/||W||, more for p > 2.
    """
    return -2 * min(p - 1, 1.0)


def slopes(history: MirrorHistory, divergence: np.ndarray) -> np.ndarray:
    """Exponent in r of the divergence (runs, k), over the path's last half in log r: (runs,)."""
    log_r, log_D = np.log(history.norm), np.log(np.maximum(divergence, 1e-16))
    middle = (log_r[:, :1] + log_r[:, -1:]) / 2
    return np.array(
        [fitted_slope(r, D[None], m)[0] for r, D, m in zip(log_r, log_D, middle[:, 0], strict=True)]
    )


def lemma29(history: MirrorHistory, divergence: np.ndarray) -> list[Claim]:
    """D falls at least like Lemma 29's bound over the last half of the path in log r.

    And how fast it really falls. `divergence` (runs, records): D_psi from the direction of W_mm, at
    the records of `history`. Source: paper C, Lemma 29, Eq. 28; the sharper exponent is ours.
    """
    p = history.rule.p
    a, b, _ = theory(p)
    log_r = np.log(history.norm)
    over = np.log(np.maximum(divergence, 1e-16)) - a * log_r - b * np.log(np.maximum(log_r, 1e-9))
    middle = np.abs(log_r - (log_r[:, :1] + log_r[:, -1:]) / 2).argmin(1)[:, None]
    growth = over[:, -1] - np.take_along_axis(over, middle, 1)[:, 0]
    found = slopes(history, divergence)
    text = f"p = {p:g}: D over Lemma 29's bound, last over middle of the path, worst run"
    source = "paper C, Lemma 29, Eq. 28 (our reading)"
    sharper, ours = f"p = {p:g}: exponent of D in ||W||, median over runs", "ours: -2 min(p-1, 1)"
    worst, middle, ends = np.exp(growth).max(), np.median(found), interval(found)
    return [
        at_most(f"lemma29.{p:g}", text, source, worst, 1.0),
        close(f"lemma29.sharp.{p:g}", sharper, ours, middle, sharp(p), 0.1, interval=ends),
    ]


def captured(
    of: Selection, mus: Sequence[float], multiple: float, steps: int, draws: int
) -> np.ndarray:
    """Per mu, the fraction of starts on the edge of the cone D = mu that keep its tokens, (mus,).

    Kept: what W selects after `steps` steps. `draws` starts a run, each of norm `multiple`
    ||W_mm||.
    """
    found = []
    for k, mu in enumerate(mus):
        history, tokens = from_cone(of, Edge(mu, multiple, draws, k), steps)
        found.append((selected_tokens(tokens, history.W[:, -1]) == tokens.opt).all(1).mean())
    return np.array(found)


def local_claims(
    found: Mapping[float, np.ndarray], mus: Sequence[float], multiple: float
) -> list[Claim]:
    """Starts in the thinnest cone all keep their tokens, those in the widest need not.

    `found`: the fractions of `captured`, (mus,) for each p. Source: paper C, theorem on local
    convergence, in a cone of ours; that the widest loses some is ours.
    """
    source = "paper C, Theorem, convergence (our constant)"
    far = f"‖W_0‖ = {multiple:g} ‖W_mm‖"
    stays = f"p = {{:g}}, {far}: fraction that keeps its tokens from D = {{:.1g}}".format
    thin = [
        at_least(f"local.thin.{p:g}.{multiple:g}", stays(p, mus[0]), source, part[0], 1.0)
        for p, part in found.items()
    ]
    wide = [
        at_most(f"local.wide.{p:g}.{multiple:g}", stays(p, mus[-1]), "ours", part[-1], 0.9)
        for p, part in found.items()
    ]
    return thin + wide
