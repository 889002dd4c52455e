"""Statements of paper C (2410.14581) on the loss, its gradient and one step of lp-AttGD.

Lemmas 4, 16, 18, 22, 24, 25 and 30 of the appendix. Constants that the text at hand lost are
derived here and marked "our constant"; where several runs or iterations enter, a claim speaks of
the worst of them.
"""

import numpy as np

from lib import attention, svm
from lib.attention.token_sets import TokenSet, token_set
from lib.companion.claims import Claim, at_least, at_most, close, interval
from lib.mirror.descent import MirrorHistory
from lib.mirror.geometry import dual_exponent, norm, to_mirror
from lib.seeds import stream
from papers.c import inequalities
from papers.fits import fitted_slope

ROUNDING = 1e-12


def score_range(tokens: TokenSet) -> np.ndarray:
    """max_t gamma_{i,t} - min_t gamma_{i,t}, (runs, n)."""
    return np.ptp(attention.scores(tokens, tokens.u), axis=-1)


def spread(tokens: TokenSet, q: float) -> np.ndarray:
    """max over t, s of ||(x_{i,t} - x_{i,s}) z_i^T||_{q,q}, (runs, n)."""
    apart = norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], q).max((2, 3))
    return apart * norm(tokens.z, q)


def gradient_bound(tokens: TokenSet, q: float) -> np.ndarray:
    """||grad L||_{q,q} <= mean over i of G_i spread_i / 4, (runs,) (our constant).

    Sum_t p_t (gamma_t - f) x_t is the covariance of scores and tokens under the softmax weights, at
    most a quarter of the product of their ranges (Gruess); |l'| <= 1.
    """
    return (score_range(tokens) * spread(tokens, q)).mean(-1) / 4


def extreme_pair(d: int = 4) -> TokenSet:
    """One sample of two tokens, both misclassified by far: W = 0 attains `gradient_bound`."""
    X = -np.array([30.0, 31.0])[:, None] * np.eye(d)[:1]
    return token_set(X[None], np.ones(1), np.eye(d)[:1], np.eye(d)[0])


def random_matrices(tokens: TokenSet, draws: int, seed: int = 0) -> np.ndarray:
    """W (draws, runs, d, d_z) of sizes from 0.01 to 1000, evenly in the logarithm."""
    shape = draws, len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    sizes = np.geomspace(0.01, 1000, draws)[:, None, None, None]
    return sizes * stream(seed, "draws").standard_normal(shape)


def extreme_matrices(tokens: TokenSet, size: float = 1000.0) -> np.ndarray:
    """`size` times the SVMs of every sample's best token, and worst, (2, runs, d, d_z)."""
    scores = attention.scores(tokens, tokens.u)
    ends = scores.argmax(-1), scores.argmin(-1)
    return size * np.stack([svm.token_svm(tokens, selected).W for selected in ends])


def lemma16(tokens: TokenSet, matrices: np.ndarray, off: float = 0.0) -> list[Claim]:
    """L_min <= L(W) <= L_max, attained: the loss of each sample's best and worst score (ours).

    At every W of `matrices` (m, runs, d, d_z). off: by what share both constants are wrong. Source:
    paper C, Lemma 16.
    """
    scores, extremes = attention.scores(tokens, tokens.u), extreme_matrices(tokens)
    ends = scores.max(-1), scores.min(-1)
    least, most = (np.exp(attention.log_loss(end, "logistic")).mean(-1) for end in ends)
    every = np.concatenate([matrices, extremes])
    losses = np.array([attention.gradients(tokens, W, tokens.u, "logistic")[0] for W in every])
    source, low = "paper C, Lemma 16 (our constant)", (losses / least).min() / (1 + off)
    high = (losses / most).max() / (1 + off)
    return [
        at_least("lemma16.lower", "smallest L(W) / L_min, W searched", source, low, 1 - ROUNDING),
        at_most("lemma16.upper", "largest L(W) / L_max, W searched", source, high, 1 + ROUNDING),
    ]


def lemma18(tokens: TokenSet, matrices: np.ndarray, p: float, off: float = 0.0) -> Claim:
    """||grad L||_{q,q} <= G for every W, a constant of the data (`gradient_bound`).

    At `matrices` (m, runs, d, d_z), and on the data that attain it; off: by what share G is wrong.
    Source: paper C, Lemma 18 (our constant).
    """
    q, extreme = dual_exponent(p), extreme_pair()
    zero = np.zeros((1, 1, extreme.shape[-1], extreme.z.shape[-1]))
    ratio = 0.0
    for data, tried in ((tokens, matrices), (extreme, zero)):
        for W in tried:
            gradient = attention.gradients(data, W, data.u, "logistic")[1]
            size = norm(gradient.reshape(len(gradient), -1), q)
            ratio = max(ratio, (size / gradient_bound(data, q)).max() / (1 + off))
    text = f"p = {p:g}: largest ||grad L||_qq over its bound, W and data searched"
    return at_most(f"lemma18.{p:g}", text, "paper C, Lemma 18 (our constant)", ratio, 1 + 1e-9)


def excess_loss(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """L(W) minus its limit when every sample selects its opt token, (runs,), logistic loss.

    Exact when it is e^-300: l(f) - l(g) = log1p(sigmoid(-g) expm1(g - f)), and f - g is summed
    relative to the selected token's score.
    """
    logits, scores = attention.logits(tokens, W), attention.scores(tokens, tokens.u)
    limit = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    selected = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    weights = attention.weights(tokens, W)
    above = (selected[..., 0] - limit) + (weights * (scores - selected)).sum(-1)
    return np.log1p(np.expm1(-above) / (1 + np.exp(limit))).mean(-1)


class Steps:
    """Every recorded pair (t, t+1) of lp-AttGD: flat W, W+, gradient (runs, pairs, D), eta.

    Losses (runs, pairs) as well. Gradients and losses are computed anew from W, so that the claims
    check training and not only algebra; losses are `excess_loss`. Normalised steps have eta /
    ||grad L||_qq as their step size. Gradients must not underflow.
    """

    def __init__(self, tokens: TokenSet, history: MirrorHistory):
        first = np.flatnonzero(np.diff(history.iterations) == 1)
        rule, self.iterations = history.rule, history.iterations[first]
        self.p, self.eta = rule.p, rule.step_size
        gradients, losses = {}, {}
        for k in np.unique([first, first + 1]):
            W = history.W[:, k]
            gradients[k] = attention.gradients(tokens, W, tokens.u, "logistic")[1]
            losses[k] = excess_loss(tokens, W)
        flat = (len(tokens.y), len(first), -1)
        self.W, self.later = (history.W[:, at].reshape(flat) for at in (first, first + 1))
        self.gradient = np.stack([gradients[k] for k in first], 1).reshape(flat)
        self.losses = tuple(np.stack([losses[k] for k in at], 1) for at in (first, first + 1))
        if rule.normalised:
            self.eta = self.eta / norm(self.gradient, dual_exponent(self.p))

    @property
    def sides(self) -> tuple:
        """(W, W+, grad L, eta, p), what an inequality about one step takes."""
        return self.W, self.later, self.gradient, self.eta, self.p


def lemma4(steps: Steps) -> Claim:
    """||W+||^{p-1} - ||W||^{p-1} <= eta ||grad L||_qq at every step: largest share of it.

    Our reading: the proof in the paper bounds the increment of ||W|| itself.
    """
    growth, most = inequalities.lemma4(*steps.sides)
    text = f"p = {steps.p:g}: largest growth of ||W||^(p-1) over eta ||grad L||_qq"
    largest = (growth / most).max()
    return at_most(f"lemma4.{steps.p:g}", text, "paper C, Lemma 4 (our reading)", largest, 1 + 1e-9)


def lemma22(steps: Steps) -> Claim:
    """||W+||^{p-1} >= ||W||^{p-1} + eta <-grad L, W> / ||W||: smallest slack over the last term."""
    work, growth = inequalities.lemma22(*steps.sides)
    text = f"p = {steps.p:g}: smallest slack over eta |<grad L, W>| / ||W||"
    small = 1e-13 * norm(steps.W, steps.p) ** (steps.p - 1)
    slack = ((growth - work) / (np.abs(work) + small)).min()
    return at_least(f"lemma22.{steps.p:g}", text, "paper C, Lemma 22 (our reading)", slack, -1e-6)


def lemma24(steps: Steps) -> Claim:
    """(p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= -eta <grad L, W>: slack over the right."""
    sides = steps.W, steps.later, steps.gradient, steps.losses, steps.eta, steps.p
    smaller, larger = inequalities.lemma24(*sides)
    size = np.abs(larger) + ROUNDING * norm(steps.W, steps.p) ** steps.p
    text = f"p = {steps.p:g}: smallest slack of Eq. 24 over eta |<grad L, W>|"
    slack = ((larger - smaller) / size).min()
    return at_least(
        f"lemma24.{steps.p:g}", text, "paper C, Lemma 24, Eq. 24 (our reading)", slack, -1e-6
    )


def lemma25(steps: Steps, history: MirrorHistory) -> Claim:
    """L(W(k+1)) <= L(W(k)): L falls by 0.97 (our constant) of the first order at each step.

    Measured: eta (L - L+) / <nabla psi(W) - nabla psi(W+), W - W+>, which a small eta brings to 1;
    minus infinity where L rises at any iteration, recorded or not.
    """
    p, (before, after) = steps.p, steps.losses
    turned = to_mirror(steps.W, p) - to_mirror(steps.later, p)
    share = steps.eta * (before - after) / (turned * (steps.W - steps.later)).sum(-1)
    least = share.min() if (history.loss_rise == -1).all() else -np.inf
    text = f"p = {p:g}: smallest fall of L over that of first order; L never rises"
    return at_least(f"lemma25.{p:g}", text, "paper C, Lemma 25 (our constant)", least, 0.97)


def lemma30(
    history: MirrorHistory, size: np.ndarray, since: float, stay: np.ndarray
) -> list[Claim]:
    """||W(k)||_{p,p} = Omega(log k): after iteration `since` its slope is 0.9 times the sharp one.

    0.9 is our constant. size (runs,): ||W_mm||_{p,p}; stay (runs,): the runs that stay with W_mm's
    tokens, as those do that start far enough out. Sharp (ours): the gradient falls like
    e^{-r/||W_mm||}, so that (r^{p-1})' does too and dr/dlog k = ||W_mm|| / (1 + (p-2) ||W_mm||/r).
    """
    p, late = history.rule.p, history.iterations >= since
    slope = fitted_slope(np.log(history.iterations[late]), history.norm[:, late], -np.inf) / size
    predicted = 1 / (1 + (p - 2) * size / history.norm[:, late].mean(1))
    source, ratio = "paper C, Lemma 30", (slope / predicted)[stay]
    text = f"p = {p:g}: slope of ||W|| in log k over ||W_mm|| / (1 + (p-2) ||W_mm||/||W||)"
    text += f", {stay.sum()} of {len(stay)} runs that stay with their tokens"
    ratio = ratio if stay.any() else np.array([np.nan])
    ends, ours = interval(ratio), f"derived from {source} (ours)"
    least, middle = ratio.min(), np.median(ratio)
    form = f"{source} (our constant, a regression test)"
    return [
        at_least(f"lemma30.{p:g}", f"{text}, least", form, least, 0.9),
        close(f"lemma30.sharp.{p:g}", f"{text}, median", ours, middle, 1, 0.04, interval=ends),
    ]
