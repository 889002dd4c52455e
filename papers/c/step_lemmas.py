"""What paper C (2410.14581) states of the loss, its gradient and one step of lp-AttGD.

Inequalities are given as their sides, smaller <= larger, of matrices whose last axis holds the
entries. Where several runs or iterations enter, the worst of them is judged.
"""

import numpy as np

from lib import attention, svm
from lib.attention.token_sets import TokenSet, token_set
from lib.companion.claims import Claim, interval
from lib.mirror.descent import MirrorHistory
from lib.mirror.geometry import bregman, dual_exponent, norm, to_mirror
from lib.seeds import stream
from papers.c.statements import PAPER
from papers.fits import fitted_slope

ROUNDING = 1e-12
claim = PAPER.claim


def spread(tokens: TokenSet, q: float) -> np.ndarray:
    """max over t, s of ||(x_{i,t} - x_{i,s}) z_i^T||_{q,q}, (runs, n)."""
    apart = norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], q).max((2, 3))
    return apart * norm(tokens.z, q)


def random_matrices(tokens: TokenSet, draws: int) -> np.ndarray:
    """W (draws, runs, d, d_z) of sizes from 0.01 to 1000, evenly in the logarithm."""
    shape = draws, len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    sizes = np.geomspace(0.01, 1000, draws)[:, None, None, None]
    return sizes * stream(0, "draws").standard_normal(shape)


def lemma16(tokens: TokenSet, matrices: np.ndarray, off: float = 0.0) -> list[Claim]:
    """L_min <= L(W) <= L_max, of each sample's best and worst score (our constant), at
    `matrices` (m, runs, d, d_z), and far along both SVMs; off: the constants' error."""
    scores = attention.scores(tokens, tokens.u)
    ends = scores.max(-1), scores.min(-1)
    smallest, largest = (np.exp(attention.log_loss(end, "logistic")).mean(-1) for end in ends)
    selections = scores.argmax(-1), scores.argmin(-1)
    extremes = [1000.0 * svm.token_svm(tokens, selected).W for selected in selections]
    tried = np.concatenate([matrices, extremes])
    losses = np.array([attention.gradients(tokens, W, tokens.u, "logistic")[0] for W in tried])
    low = (losses / smallest).min() / (1 + off)
    high = (losses / largest).max() / (1 + off)
    return [claim("lemma16.lower", low), claim("lemma16.upper", high)]


def lemma18(tokens: TokenSet, matrices: np.ndarray, p: float, off: float = 0.0) -> Claim:
    """||grad L||_{q,q} <= G = mean over i of G_i spread_i / 4, G_i the range of scores (ours).

    Sum_t p_t (gamma_t - f) x_t is a covariance under the softmax weights, at most a quarter of the
    product of the ranges (Gruess); |l'| <= 1. At `matrices` (m, runs, d, d_z), and at W = 0 for two
    misclassified tokens, where it is attained. off: by what share G is wrong.
    """
    q, ratio, d = dual_exponent(p), 0.0, 4
    X = -np.array([30.0, 31.0])[:, None] * np.eye(d)[:1]
    pair = token_set(X[None], np.ones(1), np.eye(d)[:1], np.eye(d)[0])
    for data, tried in ((tokens, matrices), (pair, np.zeros((1, 1, d, d)))):
        ranges = np.ptp(attention.scores(data, data.u), axis=-1)
        bound = (ranges * spread(data, q)).mean(-1) / 4
        for W in tried:
            gradient = attention.gradients(data, W, data.u, "logistic")[1]
            size = norm(gradient.reshape(len(gradient), -1), q)
            ratio = max(ratio, (size / bound).max() / (1 + off))
    return claim("lemma18", ratio, p)


def _excess_loss(tokens, W):
    """L(W) less its limit where all opt tokens are selected, (runs,), exact at e^-300."""
    logits, scores = attention.logits(tokens, W), attention.scores(tokens, tokens.u)
    limit = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    selected = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    weights = attention.weights(tokens, W)
    above = (selected[..., 0] - limit) + (weights * (scores - selected)).sum(-1)
    return np.log1p(np.expm1(-above) / (1 + np.exp(limit))).mean(-1)


class Steps:
    """Every recorded pair (t, t+1) of lp-AttGD: flat W, W+, gradient (runs, pairs, D),
    eta (over ||grad L||_qq if normalised), losses; gradients and losses anew from W, so
    that claims check training and not only algebra."""

    def __init__(self, tokens: TokenSet, history: MirrorHistory):
        first = np.flatnonzero(np.diff(history.iterations) == 1)
        rule, flat = history.rule, (len(tokens.y), len(first), -1)
        self.p, self.eta, self.loss_rise = rule.p, rule.step_size, history.loss_rise
        self.W, self.later = (history.W[:, at].reshape(flat) for at in (first, first + 1))
        gradient = lambda k: attention.gradients(tokens, history.W[:, k], tokens.u, "logistic")[1]
        self.gradient = np.stack(list(map(gradient, first)), 1).reshape(flat)
        losses = {k: _excess_loss(tokens, history.W[:, k]) for k in {*first, *(first + 1)}}
        self.losses = tuple(np.stack([losses[k] for k in at], 1) for at in (first, first + 1))
        if rule.normalised:
            self.eta = self.eta / norm(self.gradient, dual_exponent(self.p))


def _growth(step):  # what one step adds to the norm of the mirror image
    return norm(step.later, step.p) ** (step.p - 1) - norm(step.W, step.p) ** (step.p - 1)


def _lemma4(step):
    """||W+||^{p-1} - ||W||^{p-1} <= eta ||grad L||_{q,q}, W+ = `later` a step on."""
    return _growth(step), step.eta * norm(step.gradient, dual_exponent(step.p))


def lemma12(W, p):
    """D^{1/p-1/2} ||W||_F <= ||W||_{p,p} <= ||W||_F, D entries; reversed for p < 2."""
    size, ends = norm(W, p), sorted((1.0, W.shape[-1] ** (1 / p - 0.5)))
    frobenius = norm(W, 2)
    return [(ends[0] * frobenius, size), (size, ends[1] * frobenius)]


def lemma13(first, second, p):
    """||W_1 - W_2||_{p,p}^p / (p 2^p) <= D_psi(W_1, W_2) of unit W_1, W_2, p >= 2; for
    p < 2 the smaller side is (p-1)/2 ||W_1 - W_2||_F^2 (our constant)."""
    apart = first - second
    bound = norm(apart, p) ** p / (p * 2**p) if p >= 2 else (p - 1) / 2 * norm(apart, 2) ** 2
    return bound, bregman(first, second, p)


def lemma14(x, y, p):
    """y s <= (p-1)/p (x^p - y^p) <= x s for x >= y >= 0, s = x^{p-1} - y^{p-1}; pairs."""
    middle, rise = (p - 1) / p * (x**p - y**p), x ** (p - 1) - y ** (p - 1)
    return [(y * rise, middle), (middle, x * rise)]


def lemma15(x, y, p):
    """y^{p-2} s <= x^{p-1} - y^{p-1} <= x^{p-2} s, s = (p-1)(x-y); reversed for p < 2."""
    rise = x ** (p - 1) - y ** (p - 1)
    at_y, at_x = ((p - 1) * end ** (p - 2) * (x - y) for end in (y, x))
    return [(at_y, rise), (rise, at_x)] if p >= 2 else [(at_x, rise), (rise, at_y)]


def _lemma22(step):
    """eta <-grad L, W> / ||W|| <= ||W+||^{p-1} - ||W||^{p-1}."""
    return -step.eta * (step.gradient * step.W).sum(-1) / norm(step.W, step.p), _growth(step)


def _lemma24(step):
    """(p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= -eta <grad L, W>: 23 for V = 0."""
    p, (before, after) = step.p, step.losses
    grown = (p - 1) / p * (norm(step.later, p) ** p - norm(step.W, p) ** p)
    return grown + step.eta * (after - before), -step.eta * (step.gradient * step.W).sum(-1)


def step_claims(steps: Steps) -> list[Claim]:
    """Lemma 4: the largest share of its bound that a step has; 22 and 24 by their slack
    over the last term; 25: eta (L - L+) over <nabla psi(W) - nabla psi(W+), W - W+>, 1
    for small eta; -inf where L rises."""
    W, later, p = steps.W, steps.later, steps.p
    size, (before, after) = norm(W, p), steps.losses
    growth, bound = _lemma4(steps)
    work, _ = _lemma22(steps)
    slack_22 = ((growth - work) / (np.abs(work) + 1e-13 * size ** (p - 1))).min()
    smaller, larger = _lemma24(steps)
    slack_24 = ((larger - smaller) / (np.abs(larger) + ROUNDING * size**p)).min()
    turned = ((to_mirror(W, p) - to_mirror(later, p)) * (W - later)).sum(-1)
    never = (steps.loss_rise == -1).all()
    fall = (steps.eta * (before - after) / turned).min() if never else -np.inf
    values = {"lemma4": (growth / bound).max(), "lemma22": slack_22, "lemma24": slack_24}
    return PAPER.claims(values | {"lemma25": fall}, p)


def lemma30(history: MirrorHistory, size, since: float, stay) -> list[Claim]:
    """||W(k)||_{p,p} = Omega(log k): after `since` 0.9 times the sharp slope (ours),
    dr/dlog k = ||W_mm||/(1 + (p-2) ||W_mm||/r), as gradient and (r^{p-1})' fall like
    e^{-r/||W_mm||}. size (runs,): ||W_mm||; stay: runs that keep its tokens."""
    p, late = history.rule.p, history.iterations >= since
    slope = fitted_slope(np.log(history.iterations[late]), history.norm[:, late]) / size
    predicted = 1 / (1 + (p - 2) * size / history.norm[:, late].mean(1))
    ratio = (slope / predicted)[stay] if stay.any() else np.array([np.nan])
    runs = stay.sum(), len(stay)
    sharp = claim("lemma30.sharp", np.median(ratio), p, say=runs, interval=interval(ratio))
    return [claim("lemma30", ratio.min(), p, say=runs), sharp]
