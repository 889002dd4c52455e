"""Cones around locally optimal selections (paper C, Eqs. 4-8), and lemmas inside them.

A selection alpha with solution W_mm of its l_p SVM; T_i its support tokens, those with margin 1.
Unless said otherwise D is D_psi(W_mm/||W_mm||, W/||W||), S = {D <= mu} and C = S with ||W||_{p,p}
>= R.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib import attention, svm
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.mirror.geometry import directional_bregman, norm, to_mirror
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.c.step_lemmas import spread

SUPPORT = 1e-6  # a margin up to 1 + SUPPORT belongs to a support token


@dataclass(frozen=True)
class Selection:
    """A selection of tokens and its max-margin direction: `tokens` have it as their opt tokens."""

    tokens: TokenSet
    solution: MaxMargin
    p: float

    @property
    def direction(self) -> np.ndarray:
        """vec(W_mm) / ||W_mm||_{p,p}, (runs, D)."""
        return self.solution.W.reshape(len(self.solution.W), -1) / self.solution.norm[:, None]


def selection(tokens: TokenSet, selected: np.ndarray, p: float) -> Selection:
    """The Selection of the tokens `selected` (runs, n); svm.Infeasible where no W can make it."""
    chosen = replace(tokens, opt=selected)
    return Selection(chosen, svm.token_svm(chosen, norm=p), p)


def locally_optimal(of: Selection) -> np.ndarray:
    """Whether every selected token's score is above its support tokens', (runs,) (Definition 3)."""
    scores = attention.scores(of.tokens, of.tokens.u)
    best = np.take_along_axis(scores, of.tokens.opt[..., None], -1)
    rest = np.take_along_axis(scores, coordinates.others(of.tokens.opt, scores.shape[-1]), -1)
    return ((rest < best) | (of.solution.margins > 1 + SUPPORT)).all((1, 2))


def delta(of: Selection) -> np.ndarray:
    """Half the smallest excess over 1 of the margins of other than support tokens, (runs,).

    Infinite without one. Source: paper C, Eq. 4.
    """
    beyond = np.where(of.solution.margins > 1 + SUPPORT, of.solution.margins - 1, np.inf)
    return beyond.min((1, 2)) / 2


def radius(of: Selection) -> np.ndarray:
    """mu_0 of paper C's Eq. 4, (runs,) (our constant): Lemma 19 follows by Lemmas 12 and 13.

    rho^p / (p 2^p) for p >= 2 and (p-1)/2 (rho d^{1-2/p})^2 for p < 2, with rho = min(delta, 1/2) /
    (A ||W_mm||) and A the largest `spread`.
    """
    p, entries = of.p, of.direction.shape[-1]
    A = spread(of.tokens, p / (p - 1)).max(-1)
    rho = nearness(of) / (A * of.solution.norm)
    return rho**p / (p * 2**p) if p >= 2 else (p - 1) / 2 * (rho * entries ** (0.5 - 1 / p)) ** 2


def on_the_edge(of: Selection, mu: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    """Random unit directions with D = mu (runs,) from the selection's, (draws, runs, D).

    W_mm/||W_mm|| + s E for Gaussian E, with the first s that has D = mu, by bisection in log s.
    """
    return edge_along(of, mu, stream(seed, "draws").standard_normal((draws, *of.direction.shape)))


def edge_along(of: Selection, mu: np.ndarray, E: np.ndarray) -> np.ndarray:
    """As `on_the_edge`, along given directions E (draws, runs, D)."""

    def moved(log_s):
        return of.direction + np.exp(log_s)[..., None] * E

    low, high = np.full(E.shape[:2], -25.0), np.full(E.shape[:2], -25.0)
    while (
        outside := directional_bregman(moved(high), of.direction, of.p) < mu
    ).any() and high.max() < 10:
        low, high = np.where(outside, high, low), high + np.where(outside, 0.5, 0.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = directional_bregman(moved(middle), of.direction, of.p) <= mu
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    W = moved(low)
    return W / norm(W, of.p)[..., None]


def worst_edges(of: Selection) -> np.ndarray:
    """Directions E (2 n (T-1), runs, D) in which a margin changes most for the size of E.

    sgn(A) |A|^{q-1} for every constraint A = (x_{i,alpha} - x_{i,t}) z_i^T, where Hoelder's
    inequality is an equality, and its negative.
    """
    apart = coordinates.differences(of.tokens, of.tokens.opt)
    A = np.swapaxes(coordinates.constraint_rows(apart, of.tokens.z), 0, 1)  # (n (T-1), runs, D)
    E = to_mirror(A, of.p / (of.p - 1))
    return np.concatenate([E, -E])


def nearness(of: Selection) -> np.ndarray:
    """min(delta, 1/2), (runs,): the least excess of a margin that softmax must tell apart.

    Below ||W_mm|| / nearness it hardly tells support tokens from others.
    """
    return np.minimum(delta(of), 0.5)
